//! Background work: loops only. What is done, within which bounds, and that it may be done again is the business of the step
//! functions of `storage`; a loop calls one of them until it is told that there is nothing to do.

use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use rookery_storage::{Result, Store, pending::Progress};
use tokio::{sync::Notify, task::AbortHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::error::chain;

/// One kind of background work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// What it is called in logs, metrics and readiness.
    pub name: &'static str,
    /// Does a bounded batch and returns what it did.
    pub step: fn(Store) -> BoxFuture<'static, Result<Progress>>,
    /// What is notified when there may be something to do. A notice wakes one loop: no two share one.
    pub wake: fn(&Store) -> &Notify,
    /// How long an idle loop sleeps at most: a wake-up is a hint, and this is how late work is found whose hint was lost.
    pub poll: Duration,
}

/// Everything that is done in the background. `rookery serve` and `rookery work` loop over it, and the tests run it to its end.
pub const ALL: &[Work] = &[
    // One loop for children of every kind: a wake-up wakes one.
    Work { name: "applier", step: |store| Box::pin(apply(store)), wake: |store| &store.wake().applier, poll: APPLY_EVERY },
    Work {
        name: "deliverer",
        step: |store| Box::pin(async move { store.deliver_step().await }),
        wake: |store| &store.wake().deliverer,
        poll: DELIVER_EVERY,
    },
    Work {
        name: "merger",
        step: |store| Box::pin(async move { store.merge_step().await }),
        wake: |store| &store.wake().merger,
        poll: DELIVER_EVERY,
    },
    Work {
        name: "jobs",
        step: |store| Box::pin(async move { store.jobs_step().await }),
        wake: |store| &store.wake().jobs,
        poll: DELIVER_EVERY,
    },
    Work { name: "refresher", step: |store| Box::pin(refresh(store)), wake: |store| &store.wake().refresher, poll: REFRESH_EVERY },
    Work {
        name: "stats",
        step: |store| Box::pin(async move { store.flush_stats_step().await }),
        wake: |store| &store.wake().stats,
        poll: ADD_STATS_EVERY,
    },
];

/// What other processes' requests left is found within this, and in sum with the delivery well within a second.
const DELIVER_EVERY: Duration = Duration::from_millis(250);
/// What is counted in memory is in the database within about this, and what a crash loses is no more.
const ADD_STATS_EVERY: Duration = Duration::from_secs(2);
/// What other processes changed is known within 500 ms.
const REFRESH_EVERY: Duration = Duration::from_millis(200);

/// Reads again what this process remembers of others' changes. That is never work left over.
async fn refresh(store: Store) -> Result<Progress> {
    futures::try_join!(store.refresh_shared(), store.refresh_revoked(), store.refresh_deleting())?;
    Ok(Progress::Idle)
}

/// Nothing stays pending for longer than a second on an idle machine.
const APPLY_EVERY: Duration = Duration::from_millis(500);

/// Applies what requests left pending, and clears away what is left of deleted comments.
async fn apply(store: Store) -> Result<Progress> {
    let items = |progress| if let Progress::Did(items) = progress { items } else { 0 };
    // One after the other: both write the posts that they are under.
    let under_posts = async {
        let comments = store.apply_comments_step().await?;
        let reactions = store.apply_reactions_step().await?;
        Ok(items(comments) + items(reactions))
    };
    let (follows, posts, under_posts, tombstones, likes) = futures::try_join!(
        store.apply_follows_step(),
        store.apply_posts_step(),
        under_posts,
        store.purge_tombstones_step(),
        store.sweep_likes_step(),
    )?;
    Ok(match under_posts + [follows, posts, tombstones, likes].map(items).iter().sum::<usize>() {
        0 => Progress::Idle,
        items => Progress::Did(items),
    })
}

/// The first and the longest pause after a step that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The loops of this process.
#[derive(Debug, Default)]
pub struct Workers {
    tasks: TaskTracker,
    loops: Vec<(&'static str, AbortHandle)>,
}

impl Workers {
    /// Starts a loop for each kind of work. They end when `stop` is cancelled, each after the step it is at.
    #[must_use]
    pub fn start(works: &[Work], store: &Store, stop: &CancellationToken) -> Self {
        let tasks = TaskTracker::new();
        let start = |work: &Work| (work.name, tasks.spawn(run(*work, store.clone(), stop.clone())).abort_handle());
        let loops = works.iter().map(start).collect();
        tasks.close();
        Self { tasks, loops }
    }

    /// A loop that has ended, if there is one. Before the stop that means that it panicked.
    #[must_use]
    pub fn ended(&self) -> Option<&'static str> {
        self.loops.iter().find(|(_, task)| task.is_finished()).map(|(name, _)| *name)
    }

    /// Waits until every loop has ended.
    pub async fn wait(&self) {
        self.tasks.wait().await;
    }
}

async fn run(work: Work, store: Store, stop: CancellationToken) {
    let mut backoff = BACKOFF.0;
    while !stop.is_cancelled() {
        match (work.step)(store.clone()).await {
            Ok(progress) => {
                backoff = BACKOFF.0;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                metrics::gauge!("worker_last_success_timestamp_seconds", "worker" => work.name).set(now.as_secs_f64());
                match progress {
                    Progress::Did(items) => {
                        metrics::counter!("worker_items_total", "worker" => work.name).increment(items as u64);
                    }
                    Progress::Idle => {
                        tokio::select! {
                            () = stop.cancelled() => {}
                            () = (work.wake)(&store).notified() => {}
                            () = tokio::time::sleep(work.poll) => {}
                        }
                    }
                }
            }
            Err(fault) => {
                metrics::counter!("worker_errors_total", "worker" => work.name).increment(1);
                tracing::warn!(
                    worker = work.name,
                    fault = chain(&fault),
                    pause_ms = backoff.as_millis(),
                    "a background step failed"
                );
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(backoff) => {}
                }
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }
}
