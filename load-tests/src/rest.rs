//! Waiting until the service has nothing left to do, so that one measurement does not meet the work of another.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::loops::{Failure, Stop};

/// How often a condition is looked at that something waits for.
pub(crate) const POLL: Duration = Duration::from_millis(10);
/// What has not happened after this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// What has not changed for this long is taken to be at rest: above every pause that the service's workers make.
const REST: Duration = Duration::from_secs(1);

/// Waits until a number stands still, and gives it.
///
/// # Errors
/// It could not be read, has not come to rest within [`PATIENCE`], or the run was interrupted.
pub(crate) async fn until_rest<Fut>(stop: &Stop, what: &str, read: impl Fn() -> Fut) -> Result<u64>
where
    Fut: Future<Output = Result<u64, Failure>>,
{
    let began = Instant::now();
    let (mut last, mut since) = (read().await?, Instant::now());
    while since.elapsed() < REST {
        ensure!(!stop.is_set(), "interrupted");
        ensure!(began.elapsed() < PATIENCE, "{what} have not come to rest in {} s", PATIENCE.as_secs());
        tokio::time::sleep(POLL).await;
        let now = read().await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
