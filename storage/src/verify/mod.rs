//! Checks the invariants of docs/data-model.md against what the database holds, and repairs what does not hold.
//!
//! Collections are read in the order of an index and joined as they stream by, so that memory stays constant whatever their size and
//! whatever is wrong with them. A service may be writing meanwhile: whatever looks wrong is looked at again in one snapshot before it is
//! reported. A check can stop behind any key and go on from there, which is how jobs do it ([`Pass`]).
//!
//! A repair is the same pass, which mends each drift as it comes to it ([`repair`]).

mod accounts;
mod blocks;
mod comments;
mod copies;
mod notifications;
mod outliers;
mod pending;
mod reactions;
mod repair;
#[cfg(test)]
mod repair_tests;
mod revisions;
#[cfg(test)]
mod tests;
mod timelines;

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bson::{Document, doc};
use futures::{
    StreamExt as _,
    stream::{BoxStream, Peekable},
};
use rookery_domain::jobs::Finding;
use serde::de::DeserializeOwned;

use crate::{
    Result, Store,
    collections::USER_OVERFLOW,
    jobs::{Batch, Checkpoint, Stage, Then},
    overflow::PageDoc,
    reactions::Kind,
    store::ANSWER,
};

/// A kind of drift: which invariant does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftKind {
    /// I1: an account's followers are not the edges to it that have a `seq`.
    FollowerCount,
    /// I1: an account's followees are not the edges from it that have a `seq`.
    FollowingCount,
    /// I1: an account's posts are not those of its posts that have a `seq`.
    PostCount,
    /// I1: a post's comments are not those under it that are counted as live.
    CommentCount,
    /// I1: a post's tombstones are not the deleted comments under it that are shown.
    TombstoneCount,
    /// I1: a comment's replies or children are not those that answer it.
    ReplyCount,
    /// I1: a post's or a comment's likes are not the edges to it that have a `seq`.
    LikeCount,
    /// I1: a post's reposts are not the edges to it that have a `seq`.
    RepostCount,
    /// I1: a child (follow, block, post, comment, like, repost) has waited for the applier for more than a minute.
    StuckPending,
    /// I1: what is wanted of a child and what is applied disagree, and it does not wait for the applier.
    LostPending,
    /// I2: two edges to an account have one `seq`, or one has a `seq` that was never given out.
    FollowerSeq,
    /// I2: two posts of an account have one `seq`, or one has a `seq` that was never given out.
    PostSeq,
    /// I2: two comments of a post have one `seq`, or one has a `seq` that was never given out.
    CommentSeq,
    /// I2: two likes or reposts of one parent have one `seq`, or one has a `seq` that was never given out.
    ReactionSeq,
    /// I2: a like or a repost is of a post or comment that does not exist.
    OrphanReaction,
    /// I2: an edge leads from or to an account that does not exist.
    OrphanEdge,
    /// I2: a post is of an account that does not exist.
    OrphanPost,
    /// I2: a block or a mute is by or of an account that does not exist.
    OrphanBlock,
    /// I2: a bucket of notifications does not count what it holds.
    NotificationCount,
    /// I2: notifications are of an account that does not exist.
    OrphanNotification,
    /// I2: a comment is under a post, or answers a comment, that does not exist.
    OrphanComment,
    /// I2: an earlier version has a number that its post never gave out, or is older than those that are kept.
    RevisionSeq,
    /// I2: an earlier version is of a post that does not exist.
    OrphanRevision,
    /// I3: an account is flagged, or not, against its followers and the threshold.
    OutlierFlag,
    /// I3: the overflow pages of an account are not its edges, each on its page.
    OverflowPages,
    /// I4: the path of a comment is not that of the comment it answers, and that comment.
    CommentPath,
    /// I4: the newest comments that a post keeps are not the newest live ones under it, or not like them.
    RecentComments,
    /// I5: a post or a repost that is not delivered is not among those that readers pull.
    NotPulled,
    /// I5: a delivered post or repost is not in the window of a follower (or its author) that should hold it.
    MissingEntry,
    /// I5: the fan-out of a post or a repost was given up. It is still pulled, at the price of a query for every reader.
    ParkedFanout,
    /// I6: a counted edge stands across a block.
    BlockedEdge,
    /// I1: a request waits for an account that is not private, or has a `seq`, and nothing is to be done about it.
    StrayRequest,
    /// I10: a copy of an account's name is not like its profile, and no job is about to rewrite it.
    NameCopy,
}

impl fmt::Display for DriftKind {
    /// In one word: `follower_count`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in format!("{self:?}").chars().enumerate() {
            if letter.is_ascii_uppercase() && at > 0 {
                f.write_str("_")?;
            }
            write!(f, "{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// Where a drift is, beside its subject: what a repair needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Place {
    /// The subject says it all.
    #[default]
    Subject,
    /// A document of this collection.
    In(&'static str),
    /// A page of the subject's followers.
    Page(i64),
    /// Between the subject and this account.
    With(bson::Uuid),
    /// Reactions of this kind to the subject.
    To(Kind),
    /// An act that is missing in the subject's window.
    Act(timelines::ActPart),
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which invariant.
    pub kind: DriftKind,
    /// The document it is about.
    pub subject: uuid::Uuid,
    /// What is found and what should be.
    pub detail: String,
    pub(crate) place: Place,
}

impl Drift {
    fn new(kind: DriftKind, subject: bson::Uuid, detail: String) -> Self {
        Self { kind, subject: subject.into(), detail, place: Place::Subject }
    }

    fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }
}

/// What was found, by kind: for each how often, and the first few. Its size is bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(BTreeMap<String, Finding>);

/// Examples of one kind that are kept.
const EXAMPLES: usize = 5;

/// Characters of an example that are kept: a job keeps them in its document.
const EXAMPLE_CHARS: usize = 300;

impl Findings {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each kind that was found.
    pub fn kinds(&self) -> impl Iterator<Item = &Finding> {
        self.0.values()
    }

    /// How many were found and not mended.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.kinds().map(|finding| finding.found - finding.repaired).sum()
    }

    fn note(&mut self, drift: &Drift, fixed: Option<&repair::Fixed>) {
        let kind = drift.kind.to_string();
        let finding = self.0.entry(kind).or_insert_with_key(|kind| Finding { kind: kind.clone(), ..Finding::default() });
        finding.found += 1;
        finding.repaired += i64::from(matches!(fixed, Some(repair::Fixed::Done(_))));
        if finding.examples.len() < EXAMPLES {
            let done = fixed.map(|fixed| format!(": {fixed}")).unwrap_or_default();
            let example = format!("{} ({}){done}", drift.subject, drift.detail);
            finding.examples.push(example.chars().take(EXAMPLE_CHARS).collect());
        }
    }
}

impl From<Vec<Finding>> for Findings {
    fn from(findings: Vec<Finding>) -> Self {
        Self(findings.into_iter().map(|finding| (finding.kind.clone(), finding)).collect())
    }
}

impl From<Findings> for Vec<Finding> {
    fn from(findings: Findings) -> Self {
        findings.0.into_values().collect()
    }
}

/// The order of the checks. Children come before what is made of their counters, so that one repair leaves nothing to a second.
const CHECKS: [Stage; 15] = [
    Stage::Accounts,
    Stage::Blocks,
    Stage::Mutes,
    Stage::Requests,
    Stage::Outliers,
    Stage::Posts,
    Stage::Replies,
    Stage::Revisions,
    Stage::Likes,
    Stage::CommentLikes,
    Stage::Reposts,
    Stage::Notifications,
    Stage::Copies,
    Stage::Windows,
    Stage::Pending,
];

/// Documents that one batch of a job reads: about a second.
const DOCUMENTS: usize = 20_000;

/// Checks everything and gives all that is wrong; empty means that every invariant holds. For tests: [`inspect`] is bounded.
pub async fn verify(store: &Store) -> Result<Vec<Drift>> {
    let mut pass = Pass::new(store, false);
    pass.all = Some(Vec::new());
    pass.run_all().await?;
    Ok(pass.all.unwrap_or_default())
}

/// Checks everything and gives what is wrong by kind; empty means that every invariant holds.
pub async fn inspect(store: &Store) -> Result<Findings> {
    let mut pass = Pass::new(store, false);
    pass.run_all().await?;
    Ok(pass.findings)
}

/// Checks everything, mends what is wrong, and says what that was. May be run while services write, and again after a crash.
pub async fn repair(store: &Store) -> Result<Findings> {
    let mut pass = Pass::new(store, true);
    pass.run_all().await?;
    Ok(pass.findings)
}

impl Store {
    /// One batch of a job that checks or repairs. What it finds is added to `findings`.
    pub(crate) async fn check_batch(&self, checkpoint: Option<Checkpoint>, repair: bool, findings: &mut Findings) -> Result<Batch> {
        let at = checkpoint.unwrap_or(Checkpoint::at(CHECKS[0], 1));
        let mut pass = Pass::new(self, repair);
        // A batch of windows begins with a look at all authors.
        let most = if at.stage == Stage::Windows { 10 * DOCUMENTS } else { DOCUMENTS };
        (pass.after, pass.most, pass.findings) = (at.id, most, std::mem::take(findings));
        let stopped = pass.run(at.stage).await?;
        let items = pass.read.load(Ordering::Relaxed);
        *findings = pass.findings;
        let next = || CHECKS.iter().skip_while(|stage| **stage != at.stage).nth(1);
        let then = match stopped {
            Some(id) => Then::On(Checkpoint { id: Some(id), ..at }),
            None => next().map_or(Then::Finished, |stage| Then::On(Checkpoint::at(*stage, at.pass))),
        };
        Ok(Batch { items, then })
    }
}

/// One pass of a check over its collections, from behind a key on, and what becomes of what it finds.
#[derive(Debug)]
struct Pass {
    store: Store,
    repair: bool,
    /// What belongs to this key and those before it is checked.
    after: Option<bson::Uuid>,
    /// Documents after which it stops, at the end of what belongs to one key.
    most: usize,
    read: Arc<AtomicUsize>,
    findings: Findings,
    /// Everything that was found, for whoever asks for it.
    all: Option<Vec<Drift>>,
}

impl Pass {
    fn new(store: &Store, repair: bool) -> Self {
        Self {
            store: store.clone(),
            repair,
            after: None,
            most: usize::MAX,
            read: Arc::default(),
            findings: Findings::default(),
            all: None,
        }
    }

    /// Every check to its end.
    async fn run_all(&mut self) -> Result<()> {
        for stage in CHECKS {
            self.after = None;
            self.run(stage).await?;
        }
        Ok(())
    }

    /// One check. Gives the key behind which it stopped, or nothing at its end.
    async fn run(&mut self, stage: Stage) -> Result<Option<bson::Uuid>> {
        match stage {
            Stage::Accounts => accounts::check(self).await,
            Stage::Blocks => blocks::check(self).await,
            Stage::Mutes => blocks::check_mutes(self).await,
            Stage::Requests => blocks::check_requests(self).await,
            Stage::Outliers => outliers::check(self).await,
            Stage::Posts => comments::check_posts(self).await,
            Stage::Replies => comments::check_replies(self).await,
            Stage::Revisions => revisions::check(self).await,
            Stage::Likes => reactions::check(self, Kind::PostLike).await,
            Stage::CommentLikes => reactions::check(self, Kind::CommentLike).await,
            Stage::Reposts => reactions::check(self, Kind::Repost).await,
            Stage::Notifications => notifications::check(self).await,
            Stage::Copies => copies::check(self).await,
            Stage::Windows => timelines::check(self).await,
            Stage::Pending => pending::check(self).await.map(|()| None),
            // Of other kinds of jobs.
            _ => Ok(None),
        }
    }

    /// A collection in the order of an index whose leading key is `key`, from where the pass is. `of` gives that key.
    async fn stream<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        name: &str,
        key: &str,
        order: Document,
        fields: Document,
        of: fn(&T) -> bson::Uuid,
    ) -> Result<Streamed<T>> {
        // Whatever has no such key is left out.
        let from = self.after.map_or(doc! { "$gte": bson::Uuid::from_bytes([0; 16]) }, |after| doc! { "$gt": after });
        let filter = doc! { key: from };
        let cursor = self.store.coll::<T>(name).find(filter).sort(order).projection(fields).batch_size(ANSWER).await?;
        Ok(Streamed { inner: Box::pin(cursor.boxed().peekable()), of, read: Arc::clone(&self.read) })
    }

    /// All overflow pages, by account and number, from where the pass is.
    async fn pages(&self) -> Result<Streamed<PageDoc>> {
        let filter = doc! { "userId": { "$gt": self.after.unwrap_or(bson::Uuid::from_bytes([0; 16])) } };
        let order = doc! { "userId": 1, "page": 1 };
        let cursor = self.store.coll::<PageDoc>(USER_OVERFLOW).find(filter).sort(order).batch_size(ANSWER).await?;
        Ok(Streamed { inner: Box::pin(cursor.boxed().peekable()), of: |page| page.user_id, read: Arc::clone(&self.read) })
    }

    /// Whether it is time to stop: `done` is the last key of which everything is checked.
    fn stops(&self, done: Option<bson::Uuid>) -> Option<bson::Uuid> {
        done.filter(|_| self.read.load(Ordering::Relaxed) >= self.most)
    }

    /// Takes in what a second look found, and mends it where that is asked for.
    async fn report(&mut self, found: impl IntoIterator<Item = Drift>) -> Result<()> {
        for drift in found {
            let fixed = if self.repair { Some(repair::fix(&self.store, &drift).await?) } else { None };
            if let Some(fixed) = &fixed {
                tracing::info!(kind = %drift.kind, subject = %drift.subject, "drift: {}: {fixed}", drift.detail);
            }
            self.findings.note(&drift, fixed.as_ref());
            if let Some(all) = &mut self.all {
                all.push(drift);
            }
        }
        Ok(())
    }
}

/// A collection that streams by.
struct Streamed<T> {
    inner: Pin<Box<Peekable<BoxStream<'static, mongodb::error::Result<T>>>>>,
    of: fn(&T) -> bson::Uuid,
    read: Arc<AtomicUsize>,
}

impl<T> Streamed<T> {
    /// The key of the next document.
    async fn key(&mut self) -> Result<Option<bson::Uuid>> {
        if let Some(Ok(next)) = self.inner.as_mut().peek().await {
            return Ok(Some((self.of)(next)));
        }
        // A fault comes out, and the end.
        Ok(self.inner.next().await.transpose()?.map(|next| (self.of)(&next)))
    }

    /// The next document.
    async fn next(&mut self) -> Result<Option<T>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        Ok(self.inner.next().await.transpose()?)
    }

    /// The next document if it belongs to `at` or to something before it.
    async fn next_up_to(&mut self, at: bson::Uuid) -> Result<Option<T>> {
        match self.key().await? {
            Some(key) if key.bytes() <= at.bytes() => self.next().await,
            _ => Ok(None),
        }
    }
}

/// The lowest of the keys that come next in several streams.
fn lowest<const N: usize>(keys: [Option<bson::Uuid>; N]) -> Option<bson::Uuid> {
    keys.into_iter().flatten().min_by_key(|key| key.bytes())
}

/// Numbers that must be given out once each, and none beyond the last, in descending order.
#[derive(Debug)]
struct Numbers {
    last: i64,
    below: i64,
    wrong: Option<i64>,
}

impl Numbers {
    fn up_to(last: i64) -> Self {
        Self { last, below: i64::MAX, wrong: None }
    }

    fn take(&mut self, seq: i64) {
        if seq >= self.below || seq > self.last {
            self.wrong.get_or_insert(seq);
        }
        self.below = seq;
    }
}
