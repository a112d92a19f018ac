//! The one protocol by which children are applied to their parents.
//!
//! *Wanted and applied*: a request writes what is wanted on the child and marks it `pending`; the child's `seq` says whether the parent
//! counts it; `rookery_domain::pending::step` says what makes the two agree. *Quiet at once, hot in batches*: the request makes one
//! attempt to apply its own child ([`attempt`]) and on a write conflict leaves it to the applier, which takes children in batches and
//! halves a batch that conflicts ([`in_batches`]). *Write first, check after*: every application looks again, in its own transaction, for what
//! forbids the child.
//!
//! Follows, posts, comments and reactions each bring one function that applies a batch of their children in one transaction, and nothing else.

use std::{future::Future, time::Duration};

use bson::{Document, doc};
use tokio::time::{Instant, timeout_at};

use rookery_domain::pending::halved;

use crate::{Error, Result, Store};

/// What one step of background work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many children (entries, documents) were dealt with; there may be more.
    Did(usize),
    /// There was nothing to do.
    Idle,
}

/// What became of a request's one attempt to apply its own child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt<T> {
    /// It is applied.
    Applied(T),
    /// Somebody else is writing the parent: the applier will do it.
    Left,
}

/// Makes one attempt. A conflict is no fault: the child stays pending.
pub(crate) async fn attempt<T>(once: impl Future<Output = Result<T>>) -> Result<Attempt<T>> {
    match once.await {
        Ok(applied) => Ok(Attempt::Applied(applied)),
        Err(Error::Conflict(_)) => Ok(Attempt::Left),
        Err(fault) => Err(fault),
    }
}

/// How long a request waits for the applier to take what it left: a batch or two. Longer would help nobody: by then the parent is hot.
const PATIENCE: Duration = Duration::from_millis(150);

impl Store {
    /// A request's attempt to apply its own child of a post or comment; what it leaves is the applier's. `siblings` are the pending
    /// children of its parent in the collection `name`; `apply` is one transaction, and says whether it found the child. True if the
    /// child is applied.
    ///
    /// Where others' children wait, the parent is hot and no attempt is made: it would only be in the applier's way. Otherwise a conflict
    /// is with something that writes the parent once (its delivery, a child of another kind), and a second attempt is worth it, so that
    /// on a quiet parent everybody sees his own act counted.
    pub(crate) async fn apply_own_child<F: Future<Output = Result<bool>>>(
        &self,
        name: &str,
        siblings: Document,
        child: bson::Uuid,
        apply: impl Fn() -> F,
    ) -> Result<bool> {
        let mut others = siblings;
        others.insert("_id", doc! { "$ne": child });
        for _ in 0..2 {
            if self.has_child(name, others.clone()).await? {
                break;
            }
            match attempt(apply()).await? {
                Attempt::Applied(true) => return Ok(true),
                Attempt::Applied(false) => break,
                Attempt::Left => {}
            }
        }
        let is_applied = || async { Ok(!self.has_child(name, doc! { "_id": child, "pending": true }).await?) };
        self.leave_to_applier(is_applied).await?;
        is_applied().await
    }

    async fn has_child(&self, name: &str, these: Document) -> Result<bool> {
        Ok(self.coll::<Document>(name).find_one(these).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// Hands what a request left to the applier, and waits a moment for it, so that a caller who alone writes a quiet parent finds its
    /// effect in the next read even where its one attempt met the applier's. It is a wait and not a second attempt: however many
    /// callers there are, nobody but the applier writes the parent. `is_applied` looks at the child.
    pub(crate) async fn leave_to_applier<F: Future<Output = Result<bool>>>(&self, is_applied: impl Fn() -> F) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        self.wake().applier.notify_one();
        loop {
            let applied = self.wake().applied.notified();
            if is_applied().await? || timeout_at(until, applied).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Applies `children` in batches of at most `most`. A batch that conflicts is halved, down to one child, which is tried again after a
/// growing pause; after a success the batches grow again. Gives up on a child that conflicts eight times in a row: it stays pending for the next round.
pub(crate) async fn in_batches<C, F: Future<Output = Result<()>>>(
    children: &[C],
    most: usize,
    mut apply: impl FnMut(&[C]) -> F,
) -> Result<usize>
where
    C: Clone,
{
    let (mut done, mut at, mut size, mut failures) = (0, 0, most, 0_u32);
    while at < children.len() {
        let batch = &children[at..children.len().min(at + size)];
        match apply(batch).await {
            Ok(()) => {
                done += batch.len();
                at += batch.len();
                size = most.min(size * 2);
                failures = 0;
            }
            Err(Error::Conflict(_)) if batch.len() > 1 => size = halved(batch.len()),
            Err(Error::Conflict(_)) if failures < 8 => {
                tokio::time::sleep(Duration::from_millis(1 << failures)).await;
                failures += 1;
            }
            Err(Error::Conflict(_)) => {
                at += 1;
                failures = 0;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}
