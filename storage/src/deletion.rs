//! Deleting an account: a mark that hides it at once, and a job that removes what it leaves behind.
//!
//! *Mark first, sweep after.* One transaction marks the account, frees its handle and address, and asks for the job. From then on nothing
//! reads the account; what writes for it or to it looks after its own write whether the account is live, and takes itself back. So what the
//! job does not find in its second sweep takes itself back, or is taken back by the applier, and the account goes last. Every child
//! goes by the protocol of [`crate::pending`], so that the counts of partners move exactly once for each, whatever crashes or
//! races; the request itself takes the first few hundred of each kind, so that a small account is gone from counts when it is answered.
//!
//! Posts and comments that the job has not come to yet are hidden by a set in memory of the accounts that are being deleted: what this
//! process deletes is in it before the answer, what others delete within 500 ms ([`Store::refresh_deleting`]).

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _};
use rookery_domain::{JobId, UserId, jobs::JobKind};
use serde::Deserialize;

use crate::{
    Error, Result, Store,
    collections::{
        BLOCKS, BOOKMARKS, COMMENTS, FOLLOWS, LIKES, MUTES, POSTS, REPOSTS, SESSIONS, STATS_HOURLY, TIMELINE_ENTRIES, TIMELINES,
        USER_OVERFLOW, USERS,
    },
    comments::CommentPlace,
    credentials::Attempts,
    graph::{Applier, FollowDoc, IdDoc},
    jobs::{Batch, Checkpoint, Stage, Then},
    overflow::pages,
    pending::{Attempt, attempt, in_batches},
    reactions::{Kind, LikeDoc, TargetDoc, reposts::RepostDoc},
    store::{ANSWER, b, commit, until_no_conflict},
    users::Replaced,
};

/// Edges that one batch of the job removes: two transactions.
const EDGES: i64 = 1_000;

/// Edges of each side, and posts, that the request itself takes: one transaction each.
const AT_ONCE: i64 = 500;

/// The range of numbers in which the request looks for followers: with holes between them, since some have left.
const NEWEST: i64 = 4 * AT_ONCE;

/// Edges in one transaction.
const EDGE_BATCH: usize = 500;

/// Posts that one batch removes.
const POSTS_BATCH: i64 = 100;

/// Comments that one batch removes: each may be under a post of its own, which is a transaction of its own.
const COMMENTS_BATCH: i64 = 200;

/// Likes or reposts that one batch removes, each in a transaction of its own: they are of different posts.
const REACTIONS_BATCH: i64 = 200;

/// Comments in one transaction, if they are under one post.
const COMMENTS_OF_POST: usize = 200;

/// Posts whose comments are removed side by side.
const SIDE_BY_SIDE: usize = 8;

/// Documents without parents that one batch removes.
const ENTRIES: i64 = 2_000;

/// How long what this process marked itself is kept whatever a refresh found: longer than a refresh can take.
const OWN_KEPT: Duration = Duration::from_secs(30);

/// The order of the job: what could let the account act comes first, what refers to it last. It is gone through twice.
const STAGES: [Stage; 13] = [
    Stage::Sessions,
    Stage::Followers,
    Stage::Following,
    Stage::Blocks,
    Stage::Posts,
    Stage::Comments,
    Stage::Likes,
    Stage::Reposts,
    Stage::Bookmarks,
    Stage::Mentions,
    Stage::Notifications,
    Stage::Timeline,
    Stage::Stats,
];

/// Sweeps before the account itself goes.
const PASSES: i32 = 2;

/// The accounts that are being deleted, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Deleting {
    accounts: RwLock<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    found: HashSet<UserId>,
    own: HashMap<UserId, Instant>,
}

impl Deleting {
    fn add(&self, user: UserId) {
        self.accounts.write().unwrap_or_else(PoisonError::into_inner).own.insert(user, Instant::now());
    }

    fn replace(&self, found: HashSet<UserId>) {
        let mut accounts = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        accounts.found = found;
        accounts.own.retain(|_, at| at.elapsed() < OWN_KEPT);
    }

    fn contains(&self, user: UserId) -> bool {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.found.contains(&user) || accounts.own.contains_key(&user)
    }

    /// All of them that this process knows of.
    pub(crate) fn all(&self) -> HashSet<UserId> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.found.iter().chain(accounts.own.keys()).copied().collect()
    }
}

#[derive(Debug, Deserialize)]
struct SeqDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    seq: i64,
}

#[derive(Debug, Deserialize)]
struct EntryIdDoc {
    #[serde(rename = "_id")]
    id: bson::oid::ObjectId,
}

impl Store {
    /// Deletes an account: hidden at once, its sessions ended, its handle and address free; the rest is a job. None: there is no such live
    /// account.
    pub async fn delete_account(&self, user: UserId) -> Result<Option<JobId>> {
        let Some(job) = until_no_conflict(|| self.mark_account(user)).await? else { return Ok(None) };
        self.deleting().add(user);
        self.revoke_all_sessions(user).await?;
        // The account is deleted whatever comes of this: the job takes what is left.
        if let Err(fault) = self.delete_first_children(user).await {
            tracing::warn!(user = %user, error = &fault as &dyn std::error::Error, "a deletion is left to its job");
        }
        self.wake().jobs.notify_one();
        self.wake().applier.notify_one();
        Ok(Some(job))
    }

    /// Marks the account and asks for the job. A transaction, for a mark without a job would never be swept, and a job without a mark
    /// would find a live account.
    pub(crate) async fn mark_account(&self, user: UserId) -> Result<Option<JobId>> {
        let mut session = self.begin().await?;
        let mark = |account: &mut Document| {
            account.extend(doc! { "state": "deleting", "displayName": "", "bio": "" });
            for personal in ["handle", "email", "search", "credentials", "avatarUrl", "role", "opening"] {
                account.remove(personal);
            }
        };
        if self.replace_account(user, mark, &mut session).await? != Replaced::Now {
            return Ok(None);
        }
        let job = self.insert_job(JobKind::Deletion, user, &mut session).await?;
        commit(session).await?;
        Ok(Some(job))
    }

    /// What the request itself takes of each kind.
    async fn delete_first_children(&self, user: UserId) -> Result<()> {
        let posts = self.newest_posts(user).await?;
        self.mark_posts_deleted(&posts).await?;
        // A bounded range: a server may read all followers of a celebrity before it limits.
        let newest = self.follower_seq(b(user)).await?.saturating_sub(NEWEST);
        for edges in [doc! { "followerId": b(user) }, doc! { "followeeId": b(user), "seq": { "$gt": newest } }] {
            let first = self.coll::<IdDoc>(FOLLOWS).find(edges).limit(AT_ONCE).projection(doc! { "_id": 1 }).await?;
            let first: Vec<bson::Uuid> = first.map_ok(|edge| edge.id).try_collect().await?;
            self.unwant_edges(&first).await?;
            self.apply_unwanted(&first).await?;
        }
        Ok(())
    }

    async fn newest_posts(&self, user: UserId) -> Result<Vec<bson::Uuid>> {
        let own = doc! { "author.userId": b(user) };
        let posts =
            self.coll::<IdDoc>(POSTS).find(own).sort(doc! { "_id": -1 }).limit(AT_ONCE).projection(doc! { "_id": 1 }).await?;
        Ok(posts.map_ok(|post| post.id).try_collect().await?)
    }

    /// One batch of the job.
    pub(crate) async fn deletion_batch(&self, user: UserId, checkpoint: Option<Checkpoint>) -> Result<Batch> {
        let at = checkpoint.unwrap_or(Checkpoint::at(STAGES[0], 1));
        // A process that begins with the job knows of the account from here on.
        self.deleting().add(user);
        let done = match at.stage {
            Stage::Sessions => self.delete_sessions(user).await?,
            Stage::Followers => return self.delete_followers(user, at).await,
            Stage::Following => self.delete_following(user).await?,
            Stage::Blocks => self.delete_blocks(user).await?,
            Stage::Posts => self.delete_posts_of(user).await?,
            Stage::Comments => self.delete_comments_of(user).await?,
            Stage::Likes => self.delete_likes_of(user).await?,
            Stage::Reposts => self.delete_reposts_of(user).await?,
            Stage::Bookmarks => self.delete_some(BOOKMARKS, doc! { "userId": b(user) }).await?,
            Stage::Mentions => self.delete_mentions(user).await?,
            // What it was told; what others were told of it goes with its acts.
            Stage::Notifications => match self.sweep_notifications_of(user).await? {
                0 => Did::Nothing,
                swept => Did::Some(swept),
            },
            Stage::Timeline => self.delete_timeline(user).await?,
            Stage::Stats => self.delete_some(STATS_HOURLY, doc! { "subject": b(user) }).await?,
            Stage::Account => {
                let gone = self.delete_parent(user).await?;
                return Ok(Batch { items: usize::from(gone), then: if gone { Then::Finished } else { Then::Wait } });
            }
            // Of other kinds of jobs.
            _ => Did::Nothing,
        };
        Ok(done.batch(at))
    }

    /// Ends the sessions again: a login may have raced the mark, or a crash followed it. Their documents stay for the hour in which other
    /// processes ask which sessions were ended; without what the client called itself.
    async fn delete_sessions(&self, user: UserId) -> Result<Did> {
        self.revoke_all_sessions(user).await?;
        let named = doc! { "userId": b(user) };
        self.coll::<Document>(SESSIONS).update_many(named, doc! { "$set": { "userAgent": "" } }).await?;
        self.forget_failed_attempts(Attempts::Account(user)).await?;
        Ok(Did::Nothing)
    }

    /// Edges to the account, in ranges of their numbers, then those without one.
    async fn delete_followers(&self, user: UserId, at: Checkpoint) -> Result<Batch> {
        let last = self.follower_seq(b(user)).await?;
        let (mut from, mut span) = (at.seq.unwrap_or(1), EDGES);
        let mut edges: Vec<bson::Uuid> = Vec::new();
        while edges.len() < EDGE_BATCH && from <= last {
            let range = doc! { "followeeId": b(user), "seq": { "$gte": from, "$lt": from.saturating_add(span) } };
            let fields = doc! { "seq": 1 };
            let found = self.coll::<SeqDoc>(FOLLOWS).find(range).sort(doc! { "seq": 1 }).limit(EDGES).projection(fields).await?;
            let found: Vec<SeqDoc> = found.try_collect().await?;
            from = match found.last() {
                Some(edge) if i64::try_from(found.len()) == Ok(EDGES) => edge.seq + 1,
                _ => from.saturating_add(span),
            };
            span = span.saturating_mul(2);
            edges.extend(found.into_iter().map(|edge| edge.id));
        }
        if !edges.is_empty() {
            let items = self.delete_edges(&edges).await?;
            let then = Then::On(Checkpoint { seq: Some(from), ..at });
            return Ok(Batch { items, then });
        }
        Ok(self.delete_edges_where(doc! { "followeeId": b(user) }).await?.batch(at))
    }

    /// Edges from the account: no more than one may follow.
    async fn delete_following(&self, user: UserId) -> Result<Did> {
        self.delete_edges_where(doc! { "followerId": b(user) }).await
    }

    async fn delete_edges_where(&self, edges: Document) -> Result<Did> {
        let found = self.coll::<IdDoc>(FOLLOWS).find(edges).limit(EDGES).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::Uuid> = found.map_ok(|edge| edge.id).try_collect().await?;
        if found.is_empty() {
            return Ok(Did::Nothing);
        }
        Ok(Did::some(self.delete_edges(&found).await?))
    }

    /// Removes edges, by the wanted-and-applied protocol. Gives how many are gone: others may be at the rest.
    async fn delete_edges(&self, edges: &[bson::Uuid]) -> Result<usize> {
        self.unwant_edges(edges).await?;
        self.apply_unwanted(edges).await?;
        // To a celebrity only the leased applier applies.
        let left = self.edges_left(edges).await?;
        if left.is_empty() {
            return Ok(edges.len());
        }
        let followees: HashSet<UserId> = left.iter().map(FollowDoc::followee).collect();
        for followee in followees {
            self.drain_follows(followee).await?;
        }
        Ok(edges.len() - self.edges_left(edges).await?.len())
    }

    /// Removes every edge to and from an account that does not exist, and uncounts it at the other end.
    pub(crate) async fn delete_edges_of(&self, user: UserId) -> Result<()> {
        for edges in [doc! { "followeeId": b(user) }, doc! { "followerId": b(user) }] {
            until_nothing(|| self.delete_edges_where(edges.clone())).await?;
        }
        Ok(())
    }

    /// Removes every post of an account that does not exist, and what stands under them.
    pub(crate) async fn delete_all_posts_of(&self, user: UserId) -> Result<()> {
        until_nothing(|| self.delete_posts_of(user)).await
    }

    async fn edges_left(&self, edges: &[bson::Uuid]) -> Result<Vec<FollowDoc>> {
        Ok(self.coll::<FollowDoc>(FOLLOWS).find(doc! { "_id": { "$in": edges } }).await?.try_collect().await?)
    }

    /// Writes what is wanted: these edges gone.
    async fn unwant_edges(&self, edges: &[bson::Uuid]) -> Result<()> {
        if edges.is_empty() {
            return Ok(());
        }
        let standing = doc! { "_id": { "$in": edges }, "state": { "$in": ["active", "requested"] } };
        let removal = doc! { "$set": { "state": "removed", "pending": true } };
        until_no_conflict(async || {
            Ok(self.coll::<Document>(FOLLOWS).update_many(standing.clone(), removal.clone()).await?.matched_count)
        })
        .await?;
        let followers: HashSet<UserId> = self.edges_left(edges).await?.iter().map(FollowDoc::follower).collect();
        self.relations_changed(&followers.into_iter().collect::<Vec<_>>()).await
    }

    /// Applies edges that are no longer wanted, but for those to celebrities.
    async fn apply_unwanted(&self, edges: &[bson::Uuid]) -> Result<()> {
        in_batches(edges, EDGE_BATCH, |batch| {
            let batch = batch.to_vec();
            async move { self.apply_follows(&batch, Applier::Import).await.map(drop) }
        })
        .await?;
        Ok(())
    }

    /// Blocks, then mutes.
    async fn delete_blocks(&self, user: UserId) -> Result<Did> {
        let blocks = doc! { "$or": [{ "blockerId": b(user) }, { "blockedId": b(user) }] };
        let mutes = doc! { "$or": [{ "muterId": b(user) }, { "mutedId": b(user) }] };
        match self.delete_some(BLOCKS, blocks).await? {
            Did::Nothing => self.delete_some(MUTES, mutes).await,
            did => Ok(did),
        }
    }

    /// Removes documents that nobody counts.
    async fn delete_some(&self, name: &str, which: Document) -> Result<Did> {
        let found = self.coll::<IdDoc>(name).find(which).limit(EDGES).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::Uuid> = found.map_ok(|doc| doc.id).try_collect().await?;
        if found.is_empty() {
            return Ok(Did::Nothing);
        }
        until_no_conflict(async || Ok(self.coll::<Document>(name).delete_many(doc! { "_id": { "$in": &found } }).await?)).await?;
        Ok(Did::Some(found.len()))
    }

    /// Posts, each after what stands under it.
    async fn delete_posts_of(&self, user: UserId) -> Result<Did> {
        let own = doc! { "author.userId": b(user) };
        let posts = self.coll::<IdDoc>(POSTS).find(own).limit(POSTS_BATCH).projection(doc! { "_id": 1 }).await?;
        let posts: Vec<bson::Uuid> = posts.map_ok(|post| post.id).try_collect().await?;
        if posts.is_empty() {
            return Ok(Did::Nothing);
        }
        self.mark_posts_deleted(&posts).await?;
        let swept = self.sweep_under_posts(&posts).await?;
        if swept > 0 {
            return Ok(Did::Some(swept));
        }
        in_batches(&posts, posts.len(), |batch| {
            let batch = batch.to_vec();
            async move { self.uncount_posts(user, &batch).await }
        })
        .await?;
        let uncounted = doc! { "_id": { "$in": posts }, "state": "deleted", "seq": { "$exists": false } };
        let removed =
            until_no_conflict(async || Ok(self.coll::<Document>(POSTS).delete_many(uncounted.clone()).await?.deleted_count));
        Ok(Did::some(usize::try_from(removed.await?).unwrap_or(usize::MAX)))
    }

    /// Comments under others' posts. They leave totals, subset and tree as if their author had deleted each of them: one with replies
    /// stays as a tombstone, which names nobody.
    async fn delete_comments_of(&self, user: UserId) -> Result<Did> {
        let own = doc! { "author.userId": b(user) };
        let comments = self.coll::<CommentPlace>(COMMENTS);
        let found = comments.find(own).limit(COMMENTS_BATCH).projection(doc! { "postId": 1 }).await?;
        let found: Vec<CommentPlace> = found.try_collect().await?;
        if found.is_empty() {
            return Ok(Did::Nothing);
        }
        let ids: Vec<bson::Uuid> = found.iter().map(|comment| comment.id).collect();
        self.mark_comments_removed(&ids).await?;
        let mut by_post: BTreeMap<[u8; 16], Vec<bson::Uuid>> = BTreeMap::new();
        for comment in &found {
            by_post.entry(comment.post_id.bytes()).or_default().push(comment.id);
        }
        let applied = futures::stream::iter(by_post)
            .map(|(post, ids)| async move {
                in_batches(&ids, COMMENTS_OF_POST, |batch| {
                    let batch = batch.to_vec();
                    async move { self.apply_comments(bson::Uuid::from_bytes(post), &batch).await.map(drop) }
                })
                .await
            })
            .buffer_unordered(SIDE_BY_SIDE);
        Ok(Did::some(applied.try_fold(0, async |sum, applied| Ok(sum + applied)).await?))
    }

    /// Likes, which leave the totals of posts and comments.
    async fn delete_likes_of(&self, user: UserId) -> Result<Did> {
        let own = doc! { "userId": b(user) };
        let found = self.coll::<LikeDoc>(LIKES).find(own).limit(REACTIONS_BATCH).batch_size(ANSWER).await?;
        let found: Vec<LikeDoc> = found.try_collect().await?;
        let edges = found.iter().map(|like| match like.target {
            TargetDoc::Post => (Kind::PostLike, like.target_id, like.id),
            TargetDoc::Comment => (Kind::CommentLike, like.target_id, like.id),
        });
        self.delete_reactions(edges.collect()).await
    }

    /// Reposts, which leave the totals of posts, and all feeds.
    async fn delete_reposts_of(&self, user: UserId) -> Result<Did> {
        let own = doc! { "userId": b(user) };
        let found = self.coll::<RepostDoc>(REPOSTS).find(own).limit(REACTIONS_BATCH).batch_size(ANSWER).await?;
        let found: Vec<RepostDoc> = found.try_collect().await?;
        self.delete_reactions(found.iter().map(|repost| (Kind::Repost, repost.post_id, repost.id)).collect()).await
    }

    /// Removes edges of one account, each to a parent of its own, by the wanted-and-applied protocol. A conflict leaves one for the
    /// applier.
    async fn delete_reactions(&self, edges: Vec<(Kind, bson::Uuid, bson::Uuid)>) -> Result<Did> {
        if edges.is_empty() {
            return Ok(Did::Nothing);
        }
        for kind in Kind::ALL {
            let ids: Vec<bson::Uuid> = edges.iter().filter(|edge| edge.0 == kind).map(|edge| edge.2).collect();
            if !ids.is_empty() {
                self.unwant_reactions(kind, &ids).await?;
            }
        }
        let applied = futures::stream::iter(edges)
            .map(|(kind, parent, edge)| async move { attempt(self.apply_reactions(kind, parent, &[edge])).await })
            .buffer_unordered(SIDE_BY_SIDE);
        let items = applied.try_fold(0, async |sum, done| Ok(sum + usize::from(done != Attempt::Left)));
        Ok(Did::some(items.await?))
    }

    /// Copies of the account in others' posts. What they wrote stays as they wrote it.
    async fn delete_mentions(&self, user: UserId) -> Result<Did> {
        let mentioning = doc! { "mentions.userId": b(user) };
        let posts = self.coll::<IdDoc>(POSTS).find(mentioning).limit(EDGES).projection(doc! { "_id": 1 }).await?;
        let posts: Vec<bson::Uuid> = posts.map_ok(|post| post.id).try_collect().await?;
        if posts.is_empty() {
            return Ok(Did::Nothing);
        }
        let these = doc! { "_id": { "$in": &posts } };
        let forget = doc! { "$pull": { "mentions": { "userId": b(user) } } };
        until_no_conflict(async || Ok(self.coll::<Document>(POSTS).update_many(these.clone(), forget.clone()).await?)).await?;
        Ok(Did::Some(posts.len()))
    }

    /// The account's own window. Entries of its posts in others' windows are hints to nothing and run out by themselves.
    async fn delete_timeline(&self, user: UserId) -> Result<Did> {
        let own = doc! { "ownerId": b(user) };
        let entries = self.coll::<EntryIdDoc>(TIMELINE_ENTRIES);
        let found = entries.find(own).limit(ENTRIES).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::oid::ObjectId> = found.map_ok(|entry| entry.id).try_collect().await?;
        if found.is_empty() {
            self.coll::<Document>(TIMELINES).delete_one(doc! { "_id": b(user) }).await?;
            return Ok(Did::Nothing);
        }
        entries.delete_many(doc! { "_id": { "$in": &found } }).await?;
        Ok(Did::Some(found.len()))
    }

    /// The account itself, and what is left of its overflow pages. False: somebody else holds the lease under which these go.
    async fn delete_parent(&self, user: UserId) -> Result<bool> {
        let marked = doc! { "_id": b(user), "state": "deleting" };
        until_no_conflict(async || Ok(self.coll::<Document>(USERS).delete_one(marked.clone()).await?)).await?;
        self.drain_follows(user).await?;
        let left = self.coll::<Document>(USER_OVERFLOW).find_one(pages(b(user), 0, i64::MAX)).projection(doc! { "_id": 1 }).await?;
        Ok(left.is_none())
    }

    /// Whether an account is being deleted, as far as this process knows (its own deletions at once, others' within 500 ms). What it
    /// wrote is hidden.
    pub(crate) fn is_deleting(&self, user: UserId) -> bool {
        self.deleting().contains(user)
    }

    /// Reads again which accounts are being deleted. To be run every 200 ms.
    pub async fn refresh_deleting(&self) -> Result<()> {
        let found = self.coll::<IdDoc>(USERS).find(doc! { "state": "deleting" }).projection(doc! { "_id": 1 }).await?;
        self.deleting().replace(found.map_ok(|user| UserId(user.id.into())).try_collect().await?);
        Ok(())
    }
}

/// Repeats batches until nothing is left; where others are at it for long, that is a fault ([`Error::Busy`]).
async fn until_nothing<F: Future<Output = Result<Did>>>(mut batch: impl FnMut() -> F) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(50);
    let mut waited = 0;
    loop {
        match batch().await? {
            Did::Nothing => return Ok(()),
            Did::Some(_) => waited = 0,
            Did::Waits if waited > 600 => return Err(Error::Busy),
            Did::Waits => {
                waited += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What a batch of one stage did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    /// There is nothing left of the stage.
    Nothing,
    /// So many documents are gone.
    Some(usize),
    /// Others are at what is left.
    Waits,
}

impl Did {
    fn some(items: usize) -> Self {
        if items == 0 { Self::Waits } else { Self::Some(items) }
    }

    fn batch(self, at: Checkpoint) -> Batch {
        match self {
            Self::Nothing => Batch { items: 0, then: Then::On(next(at)) },
            Self::Some(items) => Batch { items, then: Then::On(at) },
            Self::Waits => Batch { items: 0, then: Then::Wait },
        }
    }
}

/// The stage that follows.
fn next(at: Checkpoint) -> Checkpoint {
    let here = STAGES.iter().position(|stage| *stage == at.stage);
    match here.and_then(|here| STAGES.get(here + 1)) {
        Some(stage) => Checkpoint::at(*stage, at.pass),
        None if at.pass < PASSES => Checkpoint::at(STAGES[0], at.pass + 1),
        None => Checkpoint::at(Stage::Account, at.pass),
    }
}
