//! Says that readers' relations have changed.

use rookery_domain::UserId;

use crate::{Result, Store};

impl Store {
    /// Says that the relations of these readers have changed: after the write, before the answer. Nothing keeps relations in memory yet.
    #[expect(clippy::unused_async, clippy::unused_self, reason = "whatever keeps relations in memory will write here")]
    pub(crate) async fn relations_changed(&self, _readers: &[UserId]) -> Result<()> {
        Ok(())
    }
}
