//! Applying likes and reposts to the post or comment that they are to.
//!
//! The edges of a batch are applied in one transaction with one update of their parent: its total, its last number and the numbers of
//! the edges must change together, or a crash would leave a list that disagrees with its total. What is counted for the first time is
//! known there ([`Store::apply_reactions`]), which is the place for whatever else must happen exactly once with it.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _};
use mongodb::{ClientSession, options::ReturnDocument};
use rookery_domain::{
    PostId, UserId,
    pending::{Step, step},
    stats::Figures,
};
use serde::Deserialize;

use super::{EdgeState, Kind};
use crate::{
    Result, Store,
    collections::{COMMENTS, LIKES, POSTS},
    graph::IdDoc,
    lease::Lease,
    notifications::Together,
    pending::{Progress, in_batches},
    stats::Subject,
    store::{ANSWER, b, commit, date, now, until_no_conflict},
};

/// Edges in one transaction: enough that a hot post costs few updates, few enough that a transaction stays within milliseconds.
const BATCH: usize = 500;

/// Edges to one parent in one step, so that a lease is never held for long.
const STEP: i64 = 2_000;

/// Parents that a step takes up side by side.
const SIDE_BY_SIDE: usize = 8;

/// Deleted comments whose likes one step removes, and likes of one comment in one command.
const COMMENTS_SWEPT: i64 = 50;
const LIKES_SWEPT: i64 = 1_000;

/// What applying needs of an edge.
#[derive(Debug, Deserialize)]
struct PendingEdge {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    state: EdgeState,
    seq: Option<i64>,
}

/// What applying needs of the parent it has just written.
#[derive(Debug, Deserialize)]
struct Parent {
    total: i64,
    last: i64,
    author: bson::Uuid,
    /// Of a comment.
    post: Option<bson::Uuid>,
}

#[derive(Debug, Deserialize)]
struct UserPart {
    user: bson::Uuid,
}

impl Store {
    /// Applies pending likes and reposts, up to 2,000 of each parent that has any. A parent that somebody else is at is left to them.
    pub async fn apply_reactions_step(&self) -> Result<Progress> {
        let (mut applied, mut fault) = (0, None);
        for kind in Kind::ALL {
            let parents = self.coll::<Document>(kind.edges()).distinct(kind.parent(), kind.pending()).await?;
            let parents = parents.into_iter().filter_map(|id| bson::deserialize_from_bson::<bson::Uuid>(id).ok());
            let mut done =
                futures::stream::iter(parents).map(|parent| self.apply_reactions_to(kind, parent)).buffer_unordered(SIDE_BY_SIDE);
            while let Some(did) = done.next().await {
                match did {
                    Ok(did) => applied += did,
                    // One that cannot be read must not keep the others waiting.
                    Err(error) => fault = Some(error),
                }
            }
        }
        self.wake().applied.notify_waiters();
        match fault {
            Some(fault) => Err(fault),
            None if applied == 0 => Ok(Progress::Idle),
            None => Ok(Progress::Did(applied)),
        }
    }

    /// Removes likes of deleted comments.
    pub async fn sweep_likes_step(&self) -> Result<Progress> {
        let comments = self.coll::<IdDoc>(COMMENTS);
        let found = comments.find(doc! { "likesLeft": true }).limit(COMMENTS_SWEPT).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::Uuid> = found.map_ok(|comment| comment.id).try_collect().await?;
        for comment in &found {
            if self.sweep_edges(LIKES, "targetId", &[*comment]).await? == 0 {
                let swept = doc! { "$unset": { "likesLeft": "" } };
                until_no_conflict(async || Ok(comments.update_one(doc! { "_id": comment }, swept.clone()).await?)).await?;
            }
        }
        Ok(if found.is_empty() { Progress::Idle } else { Progress::Did(found.len()) })
    }

    /// Removes some edges to parents that are gone, whether they were counted or not, and says how many.
    pub(crate) async fn sweep_edges(&self, name: &str, parent: &str, parents: &[bson::Uuid]) -> Result<usize> {
        let edges = self.coll::<IdDoc>(name);
        let found = edges
            .find(doc! { parent: { "$in": parents } })
            .limit(LIKES_SWEPT)
            .batch_size(ANSWER)
            .projection(doc! { "_id": 1 })
            .await?;
        let found: Vec<bson::Uuid> = found.map_ok(|edge| edge.id).try_collect().await?;
        if !found.is_empty() {
            until_no_conflict(async || Ok(edges.delete_many(doc! { "_id": { "$in": &found } }).await?)).await?;
        }
        Ok(found.len())
    }

    async fn apply_reactions_to(&self, kind: Kind, parent: bson::Uuid) -> Result<usize> {
        let Some(lease) = Lease::take(self, &format!("{}:{parent}", kind.edges())).await? else { return Ok(0) };
        let applied = self.apply_leased_reactions(kind, parent).await;
        lease.release().await?;
        applied
    }

    async fn apply_leased_reactions(&self, kind: Kind, parent: bson::Uuid) -> Result<usize> {
        let pending = self
            .coll::<IdDoc>(kind.edges())
            .find(kind.pending_of(parent))
            .limit(STEP)
            .batch_size(ANSWER)
            .projection(doc! { "_id": 1 })
            .await?;
        let mut pending: Vec<bson::Uuid> = pending.map_ok(|edge| edge.id).try_collect().await?;
        // The first asked first.
        pending.sort_unstable_by_key(|id| id.bytes());
        self.withdraw_reactions_of_nobody(kind, &pending).await?;
        let applied = AtomicUsize::new(0);
        in_batches(&pending, BATCH, |batch| {
            let (batch, applied) = (batch.to_vec(), &applied);
            async move {
                applied.fetch_add(self.apply_reactions(kind, parent, &batch).await?, Ordering::Relaxed);
                Ok(())
            }
        })
        .await?;
        Ok(applied.into_inner())
    }

    /// Makes those that are not counted and whose account is no longer live unwanted: the request that wrote them crashed before it
    /// looked. An account that is found live here may be deleted in this moment; then what is here was there before, and the deletion's
    /// sweep finds it.
    async fn withdraw_reactions_of_nobody(&self, kind: Kind, ids: &[bson::Uuid]) -> Result<()> {
        let uncounted = doc! { "_id": { "$in": ids }, "state": "active", "seq": { "$exists": false } };
        let fields = doc! { "_id": 0, "user": "$userId" };
        let users = self.coll::<UserPart>(kind.edges()).find(uncounted.clone()).projection(fields).batch_size(ANSWER).await?;
        let users: HashSet<UserId> = users.map_ok(|part| UserId(part.user.into())).try_collect().await?;
        let live = self.summaries(users.iter().copied()).await?;
        let gone: Vec<bson::Uuid> = users.iter().filter(|user| !live.contains_key(user)).map(|user| b(*user)).collect();
        if !gone.is_empty() {
            let mut orphans = uncounted;
            orphans.insert("userId", doc! { "$in": gone });
            self.coll::<Document>(kind.edges()).update_many(orphans, doc! { "$set": { "state": "removed" } }).await?;
        }
        Ok(())
    }

    /// Writes what is wanted: these edges gone.
    pub(crate) async fn unwant_reactions(&self, kind: Kind, ids: &[bson::Uuid]) -> Result<()> {
        let standing = doc! { "_id": { "$in": ids }, "state": "active" };
        let removal = doc! { "$set": { "state": "removed", "pending": true } };
        until_no_conflict(async || Ok(self.coll::<Document>(kind.edges()).update_many(standing.clone(), removal.clone()).await?))
            .await?;
        Ok(())
    }

    /// Applies those of `ids`, edges to one parent, that are pending, in one transaction, and says how many that were. If the parent is
    /// not live they are deleted.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if somebody else wrote the parent or one of the edges at the same time: nothing is changed.
    pub(crate) async fn apply_reactions(&self, kind: Kind, parent: bson::Uuid, ids: &[bson::Uuid]) -> Result<usize> {
        let mut session = self.begin().await?;
        let these = doc! { "_id": { "$in": ids }, kind.parent(): parent, "pending": true };
        let edges = self.coll::<PendingEdge>(kind.edges());
        let fields = doc! { "user": "$userId", "state": 1, "seq": 1 };
        let mut found = edges.find(these).projection(fields).sort(doc! { "_id": 1 }).session(&mut session).await?;
        let batch: Vec<PendingEdge> = found.stream(&mut session).try_collect().await?;
        let due = |wanted: Step| -> Vec<bson::Uuid> {
            let due = batch.iter().filter(|edge| step(edge.state == EdgeState::Active, edge.seq.is_some()) == wanted);
            due.map(|edge| edge.id).collect()
        };
        // What is counted now is counted for the first time, and once: this transaction commits or nothing of it happened.
        let (counted, mut gone) = (due(Step::Count), due(Step::Uncount));
        let mut author = None;
        let moved = as_i64(counted.len()) - as_i64(gone.len());
        let mut told = None;
        if !counted.is_empty() || !gone.is_empty() {
            let Some(written) = self.write_parent(&mut session, kind, parent, moved, as_i64(counted.len())).await? else {
                session.abort_transaction().await?;
                let orphans = doc! { "_id": { "$in": ids }, kind.parent(): parent, "pending": true };
                let deleted = self.coll::<Document>(kind.edges()).delete_many(orphans).await?.deleted_count;
                return Ok(usize::try_from(deleted).unwrap_or(usize::MAX));
            };
            author = Some(UserId(written.author.into()));
            if let (Some(post), true) = (written.post, moved != 0) {
                self.write_kept_likes(&mut session, post, parent, moved).await?;
            }
            if !counted.is_empty() {
                // The number of each follows from its place among `counted`, by one statement.
                let (first, at) = (written.last - as_i64(counted.len()) + 1, now());
                let seq = doc! { "$toLong": { "$add": [first, { "$indexOfArray": [&counted, "$_id"] }] } };
                let number = vec![doc! { "$set": { "seq": seq, "countedAt": date(at) } }, doc! { "$unset": "pending" }];
                edges.update_many(doc! { "_id": { "$in": &counted } }, number).session(&mut session).await?;
                // Nobody is told of their own.
                if batch.iter().any(|edge| edge.user != written.author && counted.contains(&edge.id)) {
                    let recipient = UserId(written.author.into());
                    let reactions = Together::Reactions { recipient, kind, to: parent, at };
                    self.tell_together(&mut session, &[reactions]).await?;
                    told = Some(recipient);
                }
            }
            if written.total == 0 {
                self.untell_reactions(&mut session, kind, &[parent]).await?;
            }
        }
        gone.extend(due(Step::Drop));
        if !gone.is_empty() {
            edges.delete_many(doc! { "_id": { "$in": gone } }).session(&mut session).await?;
        }
        let agreed = due(Step::Clear);
        if !agreed.is_empty() {
            let clear = doc! { "$unset": { "pending": "" } };
            edges.update_many(doc! { "_id": { "$in": agreed } }, clear).session(&mut session).await?;
        }
        if batch.is_empty() {
            session.abort_transaction().await?;
        } else {
            commit(session).await?;
            metrics::counter!("applied_batches_total", "child" => kind.edges()).increment(1);
            self.note_likes(kind, parent, author, as_i64(counted.len()));
            self.announce(told);
        }
        Ok(batch.len())
    }

    /// Counts likes received: of a post in its own statistics, of posts and comments in those of who wrote them.
    fn note_likes(&self, kind: Kind, parent: bson::Uuid, author: Option<UserId>, likes: i64) {
        let received = Figures { likes, ..Figures::default() };
        let post = (kind == Kind::PostLike).then_some((Subject::Post(PostId(parent.into())), received));
        let author = author.filter(|_| kind != Kind::Repost);
        let author = author.map(|author| (Subject::Account(author), received));
        self.note_stats(post.into_iter().chain(author));
    }

    /// Moves the total of a live parent, and gives out numbers. None: there is no such.
    async fn write_parent(
        &self,
        session: &mut ClientSession,
        kind: Kind,
        parent: bson::Uuid,
        moved: i64,
        given: i64,
    ) -> Result<Option<Parent>> {
        let live = doc! { "_id": parent, "state": "live" };
        let add = doc! { "$inc": { kind.counter(): moved, kind.last_seq(): given } };
        let fields = doc! {
            "_id": 0, "total": format!("${}", kind.counter()), "last": format!("${}", kind.last_seq()),
            "author": "$author.userId", "post": "$postId",
        };
        let parents = self.coll::<Parent>(kind.parents());
        let written = parents.find_one_and_update(live, add).projection(fields).return_document(ReturnDocument::After);
        Ok(written.session(session).await?)
    }

    /// Brings the copy of a comment that its post keeps up to date, if it keeps one.
    async fn write_kept_likes(&self, session: &mut ClientSession, post: bson::Uuid, comment: bson::Uuid, moved: i64) -> Result<()> {
        let keeping = doc! { "_id": post, "recentComments._id": comment };
        let this = doc! { "$eq": ["$$one._id", comment] };
        let liked = doc! { "$mergeObjects": ["$$one", { "likes": { "$add": ["$$one.likes", moved] } }] };
        let each = doc! { "$map": { "input": "$recentComments", "as": "one", "in": { "$cond": [this, liked, "$$one"] } } };
        let change = vec![doc! { "$set": { "recentComments": each } }];
        self.coll::<Document>(POSTS).update_one(keeping, change).session(session).await?;
        Ok(())
    }
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
