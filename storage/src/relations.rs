//! What each reader's relations are in the memory of processes.

use rookery_domain::UserId;

use crate::{Result, Store};

impl Store {
    /// Tells every process that whom these readers follow, block or mute has changed. Nothing is remembered of that yet.
    #[expect(clippy::unused_async, clippy::unused_self, reason = "it will write to the database")]
    pub(crate) async fn relations_changed(&self, _readers: &[UserId]) -> Result<()> {
        Ok(())
    }
}
