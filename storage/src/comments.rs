//! Comments: writing, deleting and reading them.
//!
//! A comment is a child of its post, and a reply one of the comment it answers too; both are counted by the protocol of
//! [`crate::pending`]. A request inserts a comment `pending` or marks it `removed`, and makes the attempt to apply that unless others'
//! comments under the post wait already: then the post is hot, and the applier takes them all in one update of the post ([`apply`]).
//! What is wanted counts for whoever reads a single comment; what is applied makes the lists and totals ([`list`]). The text is nobody's
//! count: an edit is written at once ([`edit`]).

mod apply;
mod edit;
mod list;
#[cfg(test)]
mod tests;

pub(crate) use self::apply::recent;

use std::collections::HashSet;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::Collection;
use rookery_domain::{
    CommentId, PostId, UserId,
    comments::{
        ChangeCommentRefusal, Comment, CommentRefusal, MAX_DEPTH,
        tree::{CommentState, Node},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store, collections,
    graph::IdDoc,
    posts::{AuthorDoc, SeenPost},
    store::{ANSWER, b, date, timestamp, until_no_conflict},
};

/// A comment as the database holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommentDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub post_id: bson::Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<bson::Uuid>,
    /// The comments above it, from the first level to the parent (a materialised path).
    pub ancestors: Vec<bson::Uuid>,
    pub depth: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<AuthorDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub counters: CommentCountersDoc,
    pub state: CommentStateDoc,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    pub created_at: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<bson::DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_at: Option<bson::DateTime>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CommentCountersDoc {
    pub likes: i64,
    /// Direct replies that are counted as live.
    pub replies: i64,
    /// Direct replies that are shown: live ones and tombstones.
    pub children: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CommentStateDoc {
    Live,
    Removed,
    Tombstone,
}

impl CommentDoc {
    fn node(&self) -> Node {
        Node {
            parent: self.parent_id.map(comment_id),
            depth: self.depth,
            state: match self.state {
                CommentStateDoc::Live => CommentState::Live,
                CommentStateDoc::Removed => CommentState::Removed,
                CommentStateDoc::Tombstone => CommentState::Tombstone,
            },
            seq: self.seq,
            replies: self.counters.replies,
            children: self.counters.children,
        }
    }

    /// Who wrote it, unless it is deleted.
    pub(crate) fn live_author(&self) -> Option<UserId> {
        let author = self.author.as_ref().filter(|_| self.state == CommentStateDoc::Live)?;
        Some(UserId(author.user_id.into()))
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state == CommentStateDoc::Live
    }
}

/// A comment, and the post that it is under.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommentPlace {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub post_id: bson::Uuid,
}

/// A comment that is to be made.
#[derive(Debug, Clone)]
pub struct NewComment {
    /// Its id, made by the caller; it also says when the comment is made. A second call with the same id makes no second comment.
    pub id: CommentId,
    /// The post it stands under.
    pub post: PostId,
    /// The comment it answers.
    pub parent: Option<CommentId>,
    /// Who writes it.
    pub author: UserId,
    /// What is written, as [`rookery_domain::text::comment`] gives it.
    pub text: String,
}

/// Where a comment stands in the tree, and by whom it is.
pub(crate) struct Place {
    author: AuthorDoc,
    ancestors: Vec<bson::Uuid>,
    depth: i32,
}

/// A comment that is written, and what forbids it, if anything does.
pub(crate) type Written = Result<(CommentDoc, Option<CommentRefusal>)>;

impl NewComment {
    /// What is wanted: the comment, pending.
    fn at(self, place: Place) -> CommentDoc {
        CommentDoc {
            id: b(self.id),
            post_id: b(self.post),
            parent_id: self.parent.map(b),
            ancestors: place.ancestors,
            depth: place.depth,
            seq: None,
            author: Some(place.author),
            text: Some(self.text),
            counters: CommentCountersDoc::default(),
            state: CommentStateDoc::Live,
            pending: Some(true),
            created_at: date(self.id.time()),
            edited_at: None,
            purge_at: None,
        }
    }
}

impl Store {
    /// Makes a comment.
    ///
    /// *Write first, check after*: it is inserted, and then post, parent and author are looked at again; where one of them was deleted
    /// meanwhile, the comment is withdrawn. Concurrent calls share the write and the look ([`crate::gather`]).
    pub async fn create_comment(&self, new: NewComment) -> Result<Result<Comment, CommentRefusal>> {
        let (comment, forbidden) = match self.place_for(&new).await? {
            Ok(place) => self.gathered_comments().call(new.at(place)).await??,
            // Refused now, and yet an earlier call with its id may have made it.
            Err(refusal) => match self.comment_doc(new.id).await? {
                Some(earlier) if refusal != CommentRefusal::PostNotFound => {
                    let forbidden = self.what_forbids(&[&earlier]).await?.pop().flatten();
                    (earlier, forbidden)
                }
                _ => return Ok(Err(refusal)),
            },
        };
        match self.settle_written(&comment, forbidden).await? {
            Ok(()) => Ok(Ok(self.shown_comment(comment)?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// A comment under a post that the viewer may see; a deleted one only while it holds replies in their place, and none across a block.
    pub async fn comment(&self, id: CommentId, viewer: Option<UserId>) -> Result<Option<Comment>> {
        match self.comment_doc(id).await? {
            Some(comment) if self.seen_comment(&comment, viewer).await?.is_some() => Ok(Some(self.shown_comment(comment)?)),
            _ => Ok(None),
        }
    }

    /// The post of a comment that the viewer may see; none where they may not see the comment or its post.
    async fn seen_comment(&self, comment: &CommentDoc, viewer: Option<UserId>) -> Result<Option<SeenPost>> {
        if self.is_seen(comment) { self.open_to(comment, viewer).await } else { Ok(None) }
    }

    /// Whether the viewer may see the post of a comment, and no block stands between them and its author.
    pub(crate) async fn is_open_to(&self, comment: &CommentDoc, viewer: Option<UserId>) -> Result<bool> {
        Ok(self.open_to(comment, viewer).await?.is_some())
    }

    async fn open_to(&self, comment: &CommentDoc, viewer: Option<UserId>) -> Result<Option<SeenPost>> {
        let blocked = async {
            match self.standing_author(comment) {
                Some(author) => self.is_blocked(viewer, author).await,
                None => Ok(false),
            }
        };
        let (post, blocked) = tokio::try_join!(self.seen_post(comment.post_id, viewer), blocked)?;
        Ok(post.filter(|_| !blocked))
    }

    /// Deletes a comment on behalf of `by`. It is gone from single reads, lists and the preview when this returns; from totals too,
    /// unless others write the post at the same time: then a moment later.
    pub async fn delete_comment(&self, id: CommentId, by: UserId) -> Result<Result<(), ChangeCommentRefusal>> {
        let Some(comment) = self.comment_doc(id).await? else { return Ok(Err(ChangeCommentRefusal::NotFound)) };
        let mine = comment.author.as_ref().is_some_and(|author| author.user_id == b(by));
        // Their own words everybody may take back, also where they may not read any more.
        let known = if mine { self.post_is_live(comment.post_id).await? } else { self.is_open_to(&comment, Some(by)).await? };
        if comment.state != CommentStateDoc::Live || !known {
            return Ok(Err(ChangeCommentRefusal::NotFound));
        }
        if !mine {
            return Ok(Err(ChangeCommentRefusal::NotYours));
        }
        if !self.mark_comment_removed(id).await? {
            return Ok(Err(ChangeCommentRefusal::NotFound));
        }
        if !self.apply_own(comment.post_id, comment.id).await? {
            // Nobody reads what is deleted, however busy the post is. The applier brings the next one in.
            self.take_from_subset(comment.post_id, comment.id).await?;
        }
        Ok(Ok(()))
    }

    /// Finds the place for a new comment; every reason to refuse it that is known before it is written.
    pub(crate) async fn place_for(&self, new: &NewComment) -> Result<Result<Place, CommentRefusal>> {
        let parent = async {
            match new.parent {
                Some(parent) => self.comment_doc(parent).await,
                None => Ok(None),
            }
        };
        let (post, author, parent) =
            tokio::try_join!(self.seen_post(b(new.post), Some(new.author)), self.summaries([new.author]), parent)?;
        let Some(author) = author.into_values().next() else { return Ok(Err(CommentRefusal::AuthorGone)) };
        let author = AuthorDoc {
            user_id: b(author.id),
            handle: author.handle.as_str().to_owned(),
            display_name: author.display_name,
            avatar_url: author.avatar_url,
        };
        if post.is_none() {
            return Ok(Err(CommentRefusal::PostNotFound));
        }
        if new.parent.is_none() {
            return Ok(Ok(Place { author, ancestors: Vec::new(), depth: 0 }));
        }
        let parent = match parent {
            Some(parent) if parent.post_id == b(new.post) => parent,
            _ => return Ok(Err(CommentRefusal::ParentNotFound)),
        };
        let Some(parent_author) = self.standing_author(&parent) else { return Ok(Err(CommentRefusal::ParentNotFound)) };
        if self.is_blocked(Some(new.author), parent_author).await? {
            return Ok(Err(CommentRefusal::ParentHidden));
        }
        if parent.depth >= MAX_DEPTH {
            return Ok(Err(CommentRefusal::ThreadTooDeep));
        }
        let mut ancestors = parent.ancestors;
        ancestors.push(parent.id);
        Ok(Ok(Place { author, ancestors, depth: parent.depth + 1 }))
    }

    /// Writes comments, and looks after the writes for what forbids them: so of a deletion that races a comment, one sees the other.
    pub(crate) async fn write_and_look(&self, batch: Vec<CommentDoc>) -> Result<Vec<Written>> {
        let written = self.insert_comments(batch).await?;
        let stand: Vec<&CommentDoc> = written.iter().flatten().collect();
        let mut forbidden = self.what_forbids(&stand).await?.into_iter();
        Ok(written.into_iter().map(|comment| comment.map(|comment| (comment, forbidden.next().flatten()))).collect())
    }

    /// Writes what is wanted: these comments, pending. Where an earlier call with the id of one has made it, that one stands.
    async fn insert_comments(&self, batch: Vec<CommentDoc>) -> Result<Vec<Result<CommentDoc>>> {
        let there = self.insert_unless_there(collections::COMMENTS, &batch).await?;
        let mut written = Vec::with_capacity(batch.len());
        for (place, comment) in batch.into_iter().enumerate() {
            if !there.contains(&place) {
                written.push(Ok(comment));
                continue;
            }
            let earlier = self.comment_doc(comment_id(comment.id)).await?;
            // It was withdrawn since.
            written.push(earlier.filter(|earlier| earlier.post_id == comment.post_id).ok_or(Error::Busy));
        }
        Ok(written)
    }

    /// What forbids each of these comments now, if anything does: three reads for all of them.
    async fn what_forbids(&self, comments: &[&CommentDoc]) -> Result<Vec<Option<CommentRefusal>>> {
        // One without an author is a tombstone by now: an earlier call with its id made it, and it was deleted since.
        let author = |comment: &CommentDoc| comment.author.as_ref().map(|author| UserId(author.user_id.into()));
        let posts = comments.iter().map(|comment| comment.post_id).collect();
        let parents = comments.iter().filter_map(|comment| comment.parent_id).collect();
        let authors: HashSet<UserId> = comments.iter().filter_map(|comment| author(comment)).collect();
        let (posts, parents, authors) = tokio::try_join!(
            self.live_among(collections::POSTS, posts),
            self.live_among(collections::COMMENTS, parents),
            self.summaries(authors),
        )?;
        let forbids = |comment: &&CommentDoc| {
            if author(comment).is_some_and(|author| !authors.contains_key(&author)) {
                Some(CommentRefusal::AuthorGone)
            } else if !posts.contains(&comment.post_id) {
                Some(CommentRefusal::PostNotFound)
            } else if comment.parent_id.is_some_and(|parent| !parents.contains(&parent)) {
                Some(CommentRefusal::ParentNotFound)
            } else {
                None
            }
        };
        Ok(comments.iter().map(forbids).collect())
    }

    async fn live_among(&self, name: &str, ids: HashSet<bson::Uuid>) -> Result<HashSet<bson::Uuid>> {
        if ids.is_empty() {
            return Ok(ids);
        }
        let ids: Vec<bson::Uuid> = ids.into_iter().collect();
        let live = doc! { "_id": { "$in": ids }, "state": "live" };
        let found = self.coll::<IdDoc>(name).find(live).projection(doc! { "_id": 1 }).batch_size(ANSWER).await?;
        Ok(found.map_ok(|found| found.id).try_collect().await?)
    }

    /// Withdraws a comment that is written and forbidden; tries to apply one that is not.
    async fn settle_written(&self, comment: &CommentDoc, forbidden: Option<CommentRefusal>) -> Result<Result<(), CommentRefusal>> {
        let Some(refusal) = forbidden else {
            self.apply_own(comment.post_id, comment.id).await?;
            return Ok(Ok(()));
        };
        let withdrawn = until_no_conflict(async || {
            let not_counted = doc! { "_id": comment.id, "seq": { "$exists": false } };
            Ok(self.comment_coll().delete_one(not_counted).await?.deleted_count == 1)
        })
        .await?;
        // Where the applier has counted it, it was there before the parent was deleted, and stays as a reply to what is left of it.
        if withdrawn || self.comment_doc(comment_id(comment.id)).await?.is_none() {
            return Ok(Err(refusal));
        }
        Ok(Ok(()))
    }

    /// Writes what is wanted: these comments gone.
    pub(crate) async fn mark_comments_removed(&self, ids: &[bson::Uuid]) -> Result<()> {
        let live = doc! { "_id": { "$in": ids }, "state": "live" };
        let removed = doc! { "$set": { "state": "removed", "pending": true } };
        until_no_conflict(async || Ok(self.comment_coll().update_many(live.clone(), removed.clone()).await?)).await?;
        Ok(())
    }

    /// Writes what is wanted: the comment gone. False if it is deleted already.
    async fn mark_comment_removed(&self, id: CommentId) -> Result<bool> {
        let removed = doc! { "$set": { "state": "removed", "pending": true } };
        until_no_conflict(async || {
            let live = doc! { "_id": b(id), "state": "live" };
            Ok(self.comment_coll().update_one(live, removed.clone()).await?.matched_count == 1)
        })
        .await
    }

    /// Takes a deleted comment that waits for the applier out of its post's subset.
    async fn take_from_subset(&self, post: bson::Uuid, comment: bson::Uuid) -> Result<()> {
        until_no_conflict(async || {
            let pull = doc! { "$pull": { "recentComments": { "_id": comment } } };
            self.coll::<Document>(collections::POSTS).update_one(doc! { "_id": post }, pull).await?;
            Ok(())
        })
        .await
    }

    /// A request's attempt to apply its own comment; what it leaves is the applier's. True if it is applied.
    async fn apply_own(&self, post: bson::Uuid, comment: bson::Uuid) -> Result<bool> {
        let siblings = doc! { "postId": post, "pending": true };
        self.apply_own_child(
            collections::COMMENTS,
            siblings,
            comment,
            async || Ok(self.apply_comments(post, &[comment]).await? > 0),
        )
        .await
    }

    /// A comment as others see it.
    pub(crate) fn shown_comment(&self, comment: CommentDoc) -> Result<Comment> {
        let deleted = !comment.is_live() || self.is_of_deleting(&comment);
        let (author, text) = match (comment.author, comment.text) {
            _ if deleted => (None, String::new()),
            (Some(author), Some(text)) => (Some(self.summary_of(author)), text),
            _ => {
                let detail = format!("{}: live without its author or text", comment.id);
                return Err(Error::Corrupt { collection: collections::COMMENTS, detail });
            }
        };
        Ok(Comment {
            id: comment_id(comment.id),
            post_id: PostId(comment.post_id.into()),
            parent_id: comment.parent_id.map(comment_id),
            depth: comment.depth,
            author,
            text,
            created_at: timestamp(comment.created_at),
            edited_at: comment.edited_at.filter(|_| !deleted).map(timestamp),
            likes: if deleted { 0 } else { comment.counters.likes },
            replies: comment.counters.replies,
            deleted,
        })
    }

    /// Who wrote a comment that stands: neither deleted nor of an account that is being deleted, whose words are gone at once.
    pub(crate) fn standing_author(&self, comment: &CommentDoc) -> Option<UserId> {
        comment.live_author().filter(|author| !self.is_deleting(*author))
    }

    /// Whether others see it: it stands, or is deleted and holds shown replies in their place. A deletion shows at once, applied or not.
    fn is_seen(&self, comment: &CommentDoc) -> bool {
        self.standing_author(comment).is_some() || (comment.seq.is_some() && comment.counters.children > 0)
    }

    /// Whether it was written by an account that is being deleted.
    fn is_of_deleting(&self, comment: &CommentDoc) -> bool {
        comment.author.as_ref().is_some_and(|author| self.is_deleting(UserId(author.user_id.into())))
    }

    async fn post_is_live(&self, post: bson::Uuid) -> Result<bool> {
        let live = doc! { "_id": post, "state": "live" };
        Ok(self.coll::<Document>(collections::POSTS).find_one(live).projection(doc! { "_id": 1 }).await?.is_some())
    }

    pub(crate) async fn comment_doc(&self, id: CommentId) -> Result<Option<CommentDoc>> {
        Ok(self.comment_coll().find_one(doc! { "_id": b(id) }).await?)
    }

    fn comment_coll(&self) -> Collection<CommentDoc> {
        self.coll(collections::COMMENTS)
    }
}

fn comment_id(id: bson::Uuid) -> CommentId {
    CommentId(id.into())
}
