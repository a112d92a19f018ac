//! Checks the invariants of docs/data-model.md against what the database holds.
//!
//! Collections are read in the order of an index and joined as they stream by, so that memory stays constant whatever their size. A
//! service may be writing meanwhile: whatever looks wrong is looked at again in one snapshot before it is reported.

mod accounts;
mod comments;
mod outliers;
mod pending;
mod reactions;
#[cfg(test)]
mod tests;
mod timelines;

use std::{collections::BTreeMap, pin::Pin};

use bson::Document;
use futures::{
    StreamExt as _,
    stream::{BoxStream, Peekable},
};
use serde::de::DeserializeOwned;

use crate::{Result, Store};

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
    /// I2: a comment is under a post, or answers a comment, that does not exist.
    OrphanComment,
    /// I3: an account is flagged, or not, against its followers and the threshold.
    OutlierFlag,
    /// I3: the overflow pages of an account are not its edges, each on its page.
    OverflowPages,
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
}

/// Checks everything and gives what is wrong; empty means that every invariant holds.
pub async fn verify(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = accounts::check(store).await?;
    drift.extend(accounts::check_blocks(store).await?);
    drift.extend(accounts::check_requests(store).await?);
    drift.extend(outliers::check(store).await?);
    drift.extend(comments::check_posts(store).await?);
    drift.extend(comments::check_replies(store).await?);
    drift.extend(reactions::check(store).await?);
    drift.extend(reactions::check_delivery(store).await?);
    drift.extend(timelines::check(store).await?);
    drift.extend(pending::check(store).await?);
    Ok(drift)
}

/// Groups what was found: for each kind how often, and the first few.
#[must_use]
pub fn summary(drift: &[Drift]) -> BTreeMap<DriftKind, (usize, Vec<&Drift>)> {
    let mut kinds: BTreeMap<DriftKind, (usize, Vec<&Drift>)> = BTreeMap::new();
    for one in drift {
        let (count, examples) = kinds.entry(one.kind).or_default();
        *count += 1;
        if examples.len() < 5 {
            examples.push(one);
        }
    }
    kinds
}

/// A collection that streams by.
type Streamed<T> = Pin<Box<Peekable<BoxStream<'static, mongodb::error::Result<T>>>>>;

/// A whole collection in the order of an index, one document at a time.
async fn stream<T: DeserializeOwned + Send + Sync + 'static>(
    store: &Store,
    name: &str,
    filter: Document,
    order: Document,
    fields: Document,
) -> Result<Streamed<T>> {
    let cursor = store.coll::<T>(name).find(filter).sort(order).projection(fields).await?;
    Ok(Box::pin(cursor.boxed().peekable()))
}

/// The next document if it belongs to `at` or to something before it.
async fn next_up_to<T>(stream: &mut Streamed<T>, of: impl Fn(&T) -> bson::Uuid, at: bson::Uuid) -> Result<Option<T>> {
    // A fault counts as such a document, so that it comes out.
    let before = |next: &mongodb::error::Result<T>| next.as_ref().map_or(true, |next| of(next).bytes() <= at.bytes());
    Ok(stream.as_mut().next_if(before).await.transpose()?)
}

/// Numbers that must be given out once each, and none beyond the last.
#[derive(Debug, Default)]
struct Numbers {
    given: std::collections::HashSet<i64>,
    wrong: Option<i64>,
}

impl Numbers {
    fn take(&mut self, seq: i64, last: i64) {
        if !self.given.insert(seq) || seq > last {
            self.wrong.get_or_insert(seq);
        }
    }
}
