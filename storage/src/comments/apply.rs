//! Applying comments to their post and to the comments they answer, and clearing away what is left of deleted ones.
//!
//! All comments of a batch are applied in one transaction with one update of their post: the post's totals and subset, the totals of
//! the comments they answer and their own numbers must change together, or a crash would leave a list that disagrees with its total.
//! The transaction writes the post whenever a total moves, so that two of them on one post never both commit.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{
    CommentId, PostId, UserId,
    comments::{
        RECENT_KEPT, TOMBSTONE_KEPT, missing_from_subset,
        tree::{Moved, Settled, Tree},
    },
    notifications::{NotificationKind, told_of_comment},
    stats::Figures,
    text,
};
use serde::Deserialize;

use super::{CommentDoc, comment_id};
use crate::{
    Error, Result, Store, collections,
    lease::Lease,
    notifications::{SingleDoc, Told},
    pending::{Progress, in_batches},
    posts::RecentCommentDoc,
    reactions::Kind,
    seq_page::first_span,
    stats::Subject,
    store::{ANSWER, b, commit, date, now, until_no_conflict},
};

/// Comments in one transaction: enough that a hot post costs few updates, few enough that a transaction stays within milliseconds.
const BATCH: usize = 500;
/// Comments of one post in one step, so that a lease is never held for long.
const STEP: i64 = 2_000;
/// Tombstones that one step looks at.
const PURGED_AT_ONCE: i64 = 500;

/// What one comment tells.
fn told_of_one(
    comment: &CommentDoc,
    author: UserId,
    answered: Option<UserId>,
    post_author: UserId,
    mentioned: impl IntoIterator<Item = UserId>,
) -> Vec<Told> {
    let told = told_of_comment(author, answered, post_author, mentioned).into_iter().map(|(recipient, kind)| Told {
        recipient,
        kind: match kind {
            NotificationKind::Reply => SingleDoc::Reply,
            NotificationKind::Comment => SingleDoc::Comment,
            _ => SingleDoc::Mention,
        },
        actor: author,
        act: comment.id,
        post: Some(comment.post_id),
        comment: Some(comment.id),
    });
    told.collect()
}

/// The part of a post that its comments write.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    author: AuthorIdPart,
    comment_seq: i64,
    counters: PartCounters,
    recent_comments: Vec<RecentCommentDoc>,
}

#[derive(Debug, Deserialize)]
struct PartCounters {
    comments: i64,
}

#[derive(Debug, Deserialize)]
struct AuthorPart {
    author: AuthorIdPart,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorIdPart {
    user_id: bson::Uuid,
}

#[derive(Debug, Deserialize)]
struct IdDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
}

impl Store {
    /// Applies pending comments, up to 2,000 of each post that has any. A post that somebody else is at is left to them.
    pub async fn apply_comments_step(&self) -> Result<Progress> {
        let posts = self.coll::<Document>(collections::COMMENTS).distinct("postId", doc! { "pending": true }).await?;
        let (mut applied, mut fault) = (0, None);
        for post in posts {
            let bson::Bson::Binary(post) = post else { continue };
            let post =
                post.to_uuid().map_err(|error| Error::Corrupt { collection: collections::COMMENTS, detail: error.to_string() })?;
            match self.apply_comments_of(post).await {
                Ok(did) => applied += did,
                // One that cannot be read must not keep the others waiting.
                Err(error) => fault = Some(error),
            }
        }
        self.wake().applied.notify_waiters();
        match fault {
            Some(fault) => Err(fault),
            None if applied == 0 => Ok(Progress::Idle),
            None => Ok(Progress::Did(applied)),
        }
    }

    /// Deletes tombstones that were hidden for a minute and that nothing answers any more.
    pub async fn purge_tombstones_step(&self) -> Result<Progress> {
        let comments = self.coll::<IdDoc>(collections::COMMENTS);
        let at = now();
        let due = doc! { "purgeAt": { "$lte": date(at) } };
        let found = comments.find(due).sort(doc! { "purgeAt": 1 }).limit(PURGED_AT_ONCE).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::Uuid> = found.map_ok(|comment| comment.id).try_collect().await?;
        if found.is_empty() {
            return Ok(Progress::Idle);
        }
        // Also one that itself is hidden, or not applied yet, and may be shown again.
        let answered = comments.distinct("parentId", doc! { "parentId": { "$in": &found } }).await?;
        // A request that read it while it was live has found by now that it is not, and withdrawn its reply: nothing can be added.
        let gone = doc! {
            "_id": { "$in": &found, "$nin": &answered }, "purgeAt": { "$lte": date(at) }, "likesLeft": { "$exists": false },
        };
        comments.delete_many(gone).await?;
        let later = doc! { "$set": { "purgeAt": date(at.plus(TOMBSTONE_KEPT)) } };
        comments.update_many(doc! { "_id": { "$in": answered }, "purgeAt": { "$lte": date(at) } }, later).await?;
        Ok(Progress::Did(found.len()))
    }

    /// Deletes up to `limit` comments of posts that are deleted, those without likes, and likes of the others; says how many documents
    /// that were.
    pub(crate) async fn sweep_comments(&self, posts: &[bson::Uuid], limit: i64) -> Result<usize> {
        let comments = self.coll::<IdDoc>(collections::COMMENTS);
        let found = comments
            .find(doc! { "postId": { "$in": posts } })
            .limit(limit)
            .batch_size(ANSWER)
            .projection(doc! { "_id": 1 })
            .await?;
        let found: Vec<bson::Uuid> = found.map_ok(|comment| comment.id).try_collect().await?;
        if found.is_empty() {
            return Ok(0);
        }
        // Likes first: nothing would lead to those of a comment that is gone.
        let likes = self.sweep_edges(collections::LIKES, "targetId", &found).await?;
        if likes > 0 {
            return Ok(likes);
        }
        self.untell_gone(&found).await?;
        self.untell_reactions_to_gone(&found).await?;
        let gone = doc! { "_id": { "$in": &found } };
        until_no_conflict(async || Ok(comments.delete_many(gone.clone()).await?)).await?;
        Ok(found.len())
    }

    async fn apply_comments_of(&self, post: bson::Uuid) -> Result<usize> {
        let Some(lease) = Lease::take(self, &format!("comments:{post}")).await? else { return Ok(0) };
        let applied = self.apply_leased(post).await;
        lease.release().await?;
        applied
    }

    async fn apply_leased(&self, post: bson::Uuid) -> Result<usize> {
        let pending = self
            .coll::<IdDoc>(collections::COMMENTS)
            .find(doc! { "postId": post, "pending": true })
            .sort(doc! { "depth": 1, "_id": 1 })
            .limit(STEP)
            .projection(doc! { "_id": 1 })
            .await?;
        let pending: Vec<bson::Uuid> = pending.map_ok(|comment| comment.id).try_collect().await?;
        self.withdraw_orphans(&pending).await?;
        let applied = AtomicUsize::new(0);
        in_batches(&pending, BATCH, |batch| {
            let (batch, applied) = (batch.to_vec(), &applied);
            async move {
                applied.fetch_add(self.apply_comments(post, &batch).await?, Ordering::Relaxed);
                Ok(())
            }
        })
        .await?;
        Ok(applied.into_inner())
    }

    /// Makes those that are not counted and whose author is no longer live unwanted: the request that wrote them crashed before it looked.
    /// An author who is found live here may be deleted in this moment; then what is here was there before, and the deletion's sweep
    /// finds it.
    async fn withdraw_orphans(&self, ids: &[bson::Uuid]) -> Result<()> {
        let uncounted = doc! { "_id": { "$in": ids }, "state": "live", "seq": { "$exists": false } };
        let fields = doc! { "_id": 0, "author.userId": 1 };
        let authors = self.coll::<AuthorPart>(collections::COMMENTS).find(uncounted.clone()).projection(fields).await?;
        let authors: HashSet<UserId> = authors.map_ok(|part| UserId(part.author.user_id.into())).try_collect().await?;
        let live = self.summaries(authors.iter().copied()).await?;
        let gone: Vec<bson::Uuid> = authors.iter().filter(|author| !live.contains_key(author)).map(|author| b(*author)).collect();
        if !gone.is_empty() {
            let mut orphans = uncounted;
            orphans.insert("author.userId", doc! { "$in": gone });
            self.comment_coll().update_many(orphans, doc! { "$set": { "state": "removed", "pending": true } }).await?;
        }
        Ok(())
    }

    /// Applies those of `ids` that are pending, in one transaction, and says how many that were; replies to a comment that is not
    /// applied yet are left. If the post is deleted they are deleted.
    ///
    /// # Errors
    /// [`Error::Conflict`] if somebody else wrote the post or one of the comments at the same time: nothing is changed.
    pub(crate) async fn apply_comments(&self, post: bson::Uuid, ids: &[bson::Uuid]) -> Result<usize> {
        let mut session = self.begin().await?;
        let live = doc! { "_id": post, "state": "live" };
        let part = self
            .coll::<PostPart>(collections::POSTS)
            .find_one(live)
            .projection(doc! { "author.userId": 1, "commentSeq": 1, "counters.comments": 1, "recentComments": 1 })
            .session(&mut session)
            .await?;
        let Some(part) = part else {
            drop(session);
            let orphans = doc! { "_id": { "$in": ids }, "postId": post };
            self.untell_gone(ids).await?;
            return Ok(usize::try_from(self.comment_coll().delete_many(orphans).await?.deleted_count).unwrap_or(usize::MAX));
        };
        let batch = self.load(&mut session, doc! { "_id": { "$in": ids }, "postId": post, "pending": true }).await?;
        let mut authors: HashMap<CommentId, UserId> = HashMap::new();
        let mut tree = Tree::new(batch.iter().map(|comment| (comment_id(comment.id), comment.node())));
        loop {
            let asked = tree.unknown();
            if asked.is_empty() {
                break;
            }
            let found = self.load(&mut session, doc! { "_id": { "$in": uuids(&asked) } }).await?;
            authors.extend(authors_of(&found));
            tree.learn(&asked, found.iter().map(|comment| (comment_id(comment.id), comment.node())));
        }
        let settled = tree.settle(part.comment_seq);
        let applied = batch.len() - settled.waiting.len();
        if applied > 0 {
            authors.extend(authors_of(&batch));
            let told = self.told_of(UserId(part.author.user_id.into()), &batch, &settled, &authors).await?;
            self.write_comments(&mut session, &settled).await?;
            let author = UserId(part.author.user_id.into());
            self.write_post(&mut session, post, part, &batch, &settled).await?;
            self.tell(&mut session, &told).await?;
            commit(session).await?;
            metrics::counter!("applied_batches_total", "child" => collections::COMMENTS).increment(1);
            let received = Figures { comments: i64::try_from(settled.counted.len()).unwrap_or(i64::MAX), ..Figures::default() };
            self.note_stats([(Subject::Post(PostId(post.into())), received), (Subject::Account(author), received)]);
            self.announce(told.iter().map(|one| one.recipient));
        }
        Ok(applied)
    }

    /// What is told of the comments that a batch counts: they are counted once, and told with it.
    async fn told_of(
        &self,
        post_author: UserId,
        batch: &[CommentDoc],
        settled: &Settled,
        authors: &HashMap<CommentId, UserId>,
    ) -> Result<Vec<Told>> {
        let by_id: HashMap<CommentId, &CommentDoc> = batch.iter().map(|comment| (comment_id(comment.id), comment)).collect();
        // In the order of their numbers.
        let counted: Vec<&CommentDoc> = settled.counted.iter().filter_map(|id| by_id.get(id).copied()).collect();
        let handles = |comment: &CommentDoc| text::mentions(comment.text.as_deref().unwrap_or_default());
        let named = self.accounts_named(&counted.iter().flat_map(|comment| handles(comment)).collect()).await?;
        let mut told = Vec::new();
        for comment in counted {
            let Some(author) = comment.live_author() else { continue };
            let answered = comment.parent_id.and_then(|parent| authors.get(&comment_id(parent)).copied());
            let mentioned = handles(comment).into_iter().filter_map(|handle| named.get(&handle).copied());
            told.extend(told_of_one(comment, author, answered, post_author, mentioned));
        }
        Ok(told)
    }

    /// Brings what is told of a comment up to date with its text, in the transaction that changed that from `before`. One that is not
    /// counted yet is told by whoever counts it, from what it says then.
    pub(super) async fn retell_comment(
        &self,
        session: &mut ClientSession,
        comment: &CommentDoc,
        before: &str,
    ) -> Result<Vec<Told>> {
        let handles = text::mentions(comment.text.as_deref().unwrap_or_default());
        let (Some(author), Some(_)) = (comment.live_author(), comment.seq) else { return Ok(Vec::new()) };
        if handles.is_empty() && text::mentions(before).is_empty() {
            return Ok(Vec::new());
        }
        let named = self.accounts_named(&handles.iter().cloned().collect()).await?;
        let fields = doc! { "_id": 0, "author.userId": 1 };
        let posts = self.coll::<AuthorPart>(collections::POSTS);
        let post = posts.find_one(doc! { "_id": comment.post_id }).projection(fields.clone()).session(&mut *session).await?;
        let Some(post) = post else { return Ok(Vec::new()) };
        let answered = match comment.parent_id {
            Some(parent) => {
                let live = doc! { "_id": parent, "author": { "$exists": true } };
                let comments = self.coll::<AuthorPart>(collections::COMMENTS);
                comments.find_one(live).projection(fields).session(&mut *session).await?
            }
            None => None,
        };
        let user = |part: AuthorPart| UserId(part.author.user_id.into());
        let mentioned = handles.into_iter().filter_map(|handle| named.get(&handle).copied());
        let told = told_of_one(comment, author, answered.map(user), user(post), mentioned);
        self.retell_mentions(session, comment.id, &told).await?;
        Ok(told)
    }

    async fn load(&self, session: &mut ClientSession, filter: Document) -> Result<Vec<CommentDoc>> {
        let mut found = self.comment_coll().find(filter).session(&mut *session).await?;
        Ok(found.stream(session).try_collect().await?)
    }

    /// Writes what became of the comments, those of one fate at a time.
    async fn write_comments(&self, session: &mut ClientSession, settled: &Settled) -> Result<()> {
        let comments = self.comment_coll();
        if !settled.numbered.is_empty() {
            let (ids, seqs): (Vec<CommentId>, Vec<i64>) = settled.numbered.iter().copied().unzip();
            let ids = uuids(&ids);
            // The number of each stands where its id does.
            let seq = doc! { "$arrayElemAt": [seqs, { "$indexOfArray": [&ids, "$_id"] }] };
            let number = vec![doc! { "$set": { "seq": seq } }, doc! { "$unset": ["pending", "purgeAt"] }];
            comments.update_many(doc! { "_id": { "$in": ids } }, number).session(&mut *session).await?;
        }
        let gone: Vec<CommentId> = settled.buried.iter().chain(&settled.dropped).copied().collect();
        if !gone.is_empty() {
            self.untell_reactions(session, Kind::CommentLike, &uuids(&gone)).await?;
        }
        let purge_at = date(now().plus(TOMBSTONE_KEPT));
        if !settled.buried.is_empty() {
            // Their likes go by and by; who likes one meanwhile finds no live comment.
            let left = doc! { "$cond": [{ "$gt": ["$counters.likes", 0] }, true, "$$REMOVE"] };
            let bury = vec![
                doc! { "$set": { "state": "tombstone", "counters.likes": 0, "likesLeft": left } },
                doc! { "$unset": ["text", "author", "editedAt", "pending"] },
            ];
            comments.update_many(doc! { "_id": { "$in": uuids(&settled.buried) } }, bury).session(&mut *session).await?;
            self.untell(session, &uuids(&settled.buried)).await?;
        }
        let writes = [
            (&settled.hidden, doc! { "$set": { "purgeAt": purge_at }, "$unset": { "seq": "" } }),
            (&settled.cleared, doc! { "$unset": { "pending": "" } }),
        ];
        for (ids, change) in writes {
            if !ids.is_empty() {
                comments.update_many(doc! { "_id": { "$in": uuids(ids) } }, change).session(&mut *session).await?;
            }
        }
        let mut alike: BTreeMap<Moved, Vec<CommentId>> = BTreeMap::new();
        for (id, moved) in &settled.moved {
            alike.entry(*moved).or_default().push(*id);
        }
        for (moved, ids) in alike {
            let add = doc! { "$inc": { "counters.replies": moved.replies, "counters.children": moved.children } };
            comments.update_many(doc! { "_id": { "$in": uuids(&ids) } }, add).session(&mut *session).await?;
        }
        if !settled.dropped.is_empty() {
            // They lived for a moment: their likes are few.
            let likes = doc! { "targetId": { "$in": uuids(&settled.dropped) } };
            self.coll::<Document>(collections::LIKES).delete_many(likes).session(&mut *session).await?;
            comments.delete_many(doc! { "_id": { "$in": uuids(&settled.dropped) } }).session(&mut *session).await?;
        }
        Ok(())
    }

    /// Writes the post once: its totals, and its newest comments where they changed.
    async fn write_post(
        &self,
        session: &mut ClientSession,
        post: bson::Uuid,
        part: PostPart,
        batch: &[CommentDoc],
        settled: &Settled,
    ) -> Result<()> {
        let comments = part.counters.comments + settled.comments;
        let mut recent = part.recent_comments;
        let kept_before: Vec<bson::Uuid> = recent.iter().map(|comment| comment.id).collect();
        recent.retain(|comment| !settled.buried.contains(&comment_id(comment.id)));
        recent.splice(0..0, newest(batch, settled)?);
        recent.truncate(RECENT_KEPT);
        let missing = missing_from_subset(recent.len(), comments);
        if missing > 0 {
            let below = recent.last().map_or(settled.last_seq + 1, |comment| comment.seq);
            recent.extend(self.newest_below(session, post, below, missing, comments).await?);
        }
        let mut replies_moved = false;
        for comment in &mut recent {
            // Those that were just read know already.
            let known = !kept_before.contains(&comment.id);
            if let Some(moved) = settled.moved.get(&comment_id(comment.id)).filter(|moved| !known && moved.replies != 0) {
                comment.replies += moved.replies;
                replies_moved = true;
            }
        }
        let mut change = Document::new();
        if replies_moved || !recent.iter().map(|comment| comment.id).eq(kept_before) {
            let recent = recent.iter().map(bson::serialize_to_document).collect::<Result<Vec<_>, _>>();
            let recent = recent.map_err(mongodb::error::Error::from)?;
            change.insert("$set", doc! { "recentComments": recent });
        }
        let given = settled.last_seq - part.comment_seq;
        if given != 0 || settled.comments != 0 || settled.tombstones != 0 {
            let add = doc! {
                "commentSeq": given, "counters.comments": settled.comments, "counters.tombstones": settled.tombstones,
            };
            change.insert("$inc", add);
        }
        if !change.is_empty() {
            let posts = self.coll::<Document>(collections::POSTS);
            posts.update_one(doc! { "_id": post, "state": "live" }, change).session(session).await?;
        }
        Ok(())
    }

    /// The newest `wanted` live comments numbered below `seq`.
    async fn newest_below(
        &self,
        session: &mut ClientSession,
        post: bson::Uuid,
        seq: i64,
        wanted: usize,
        live: i64,
    ) -> Result<Vec<RecentCommentDoc>> {
        let (mut found, mut below, mut span) = (Vec::new(), seq, first_span(wanted, seq, live));
        while found.len() < wanted && below > 1 {
            let from = below.saturating_sub(span).max(1);
            // The range alone, which is short: with a condition on the state all comments of the post would be read.
            let filter = doc! { "postId": post, "seq": { "$gte": from, "$lt": below } };
            let comments = self.comment_coll();
            let next = comments.find(filter).sort(doc! { "seq": -1 }).batch_size(ANSWER);
            let mut next = next.session(&mut *session).await?;
            while let Some(comment) = next.stream(session).try_next().await? {
                if comment.is_live() && found.len() < wanted {
                    found.extend(recent(&comment)?);
                }
            }
            (below, span) = (from, span.saturating_mul(2));
        }
        if !found.is_empty() {
            // A like that is counted at the same time knows nothing of this copy: both must not commit.
            let ids: Vec<bson::Uuid> = found.iter().map(|comment| comment.id).collect();
            let kept = doc! { "$set": { "keptAt": date(now()) } };
            self.comment_coll().update_many(doc! { "_id": { "$in": ids } }, kept).session(session).await?;
        }
        Ok(found)
    }
}

/// Those that a batch counted, as the subset keeps them, newest first.
fn newest(batch: &[CommentDoc], settled: &Settled) -> Result<Vec<RecentCommentDoc>> {
    let numbers: BTreeMap<CommentId, i64> = settled.numbered.iter().copied().collect();
    let mut newest = Vec::new();
    for id in settled.counted.iter().rev().take(RECENT_KEPT) {
        if let Some(mut comment) = batch.iter().find(|comment| comment_id(comment.id) == *id).cloned() {
            comment.seq = numbers.get(id).copied();
            comment.counters.replies += settled.moved.get(id).map_or(0, |moved| moved.replies);
            newest.extend(recent(&comment)?);
        }
    }
    Ok(newest)
}

/// A comment as the subset keeps it; none if it is not counted.
pub(crate) fn recent(comment: &CommentDoc) -> Result<Option<RecentCommentDoc>> {
    let Some(seq) = comment.seq else { return Ok(None) };
    let (Some(author), Some(text)) = (comment.author.clone(), comment.text.clone()) else {
        let detail = format!("{}: live without its author or text", comment.id);
        return Err(Error::Corrupt { collection: collections::COMMENTS, detail });
    };
    Ok(Some(RecentCommentDoc {
        id: comment.id,
        seq,
        parent_id: comment.parent_id,
        depth: comment.depth,
        author,
        text,
        created_at: comment.created_at,
        edited_at: comment.edited_at,
        likes: comment.counters.likes,
        replies: comment.counters.replies,
    }))
}

fn authors_of(comments: &[CommentDoc]) -> impl Iterator<Item = (CommentId, UserId)> {
    comments.iter().filter_map(|comment| Some((comment_id(comment.id), comment.live_author()?)))
}

fn uuids(ids: &[CommentId]) -> Vec<bson::Uuid> {
    ids.iter().map(|id| b(*id)).collect()
}
