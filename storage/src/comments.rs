//! Comments: writing, deleting and reading them.
//!
//! A comment is a child of its post, and a reply one of the comment it answers too; both are counted by the protocol of
//! [`crate::pending`]. A request inserts a comment `pending` or marks it `removed`, and makes the attempt to apply that unless others'
//! comments under the post wait already: then the post is hot, and the applier takes them all in one update of the post ([`apply`]).
//! What is wanted counts for whoever reads a single comment; what is applied makes the lists and totals ([`list`]).

mod apply;
mod list;
#[cfg(test)]
mod tests;

pub(crate) use self::apply::recent;

use bson::{Document, doc};
use mongodb::Collection;
use rookery_domain::{
    CommentId, PostId, UserId,
    comments::{
        Comment, CommentRefusal, DeleteCommentRefusal, MAX_DEPTH,
        tree::{CommentState, Node},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store, collections,
    error::is_duplicate_key,
    posts::AuthorDoc,
    store::{b, date, timestamp, until_no_conflict},
    users::UserRef,
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

    /// Whether others see it: alive, or deleted and holding shown replies in their place. A deletion shows at once, applied or not.
    fn is_seen(&self) -> bool {
        self.state == CommentStateDoc::Live || (self.seq.is_some() && self.counters.children > 0)
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

impl Store {
    /// Makes a comment.
    ///
    /// *Write first, check after*: it is inserted, and then post and parent are looked at again; where one of them was deleted meanwhile,
    /// the comment is withdrawn.
    pub async fn create_comment(&self, new: NewComment) -> Result<Result<Comment, CommentRefusal>> {
        let comment = match self.place_for(&new).await? {
            Ok(place) => self.insert_comment(new, place).await?,
            // Refused now, and yet an earlier call with its id may have made it.
            Err(refusal) => match self.comment_doc(new.id).await? {
                Some(earlier) if refusal != CommentRefusal::PostNotFound => earlier,
                _ => return Ok(Err(refusal)),
            },
        };
        match self.settle_comment(&comment).await? {
            Ok(()) => Ok(Ok(self.shown_comment(comment)?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// A comment under a post that the viewer may see; a deleted one only while it holds replies in their place, and none across a block.
    pub async fn comment(&self, id: CommentId, viewer: Option<UserId>) -> Result<Option<Comment>> {
        match self.comment_doc(id).await? {
            Some(comment) if comment.is_seen() && !self.is_of_deleting(&comment) && self.is_open_to(&comment, viewer).await? => {
                Ok(Some(self.shown_comment(comment)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether the viewer may see the post of a comment, and no block stands between them and its author.
    pub(crate) async fn is_open_to(&self, comment: &CommentDoc, viewer: Option<UserId>) -> Result<bool> {
        let blocked = async {
            match comment.live_author() {
                Some(author) => self.is_blocked(viewer, author).await,
                None => Ok(false),
            }
        };
        let (post, blocked) = tokio::try_join!(self.seen_post(comment.post_id, viewer), blocked)?;
        Ok(post.is_some() && !blocked)
    }

    /// Deletes a comment on behalf of `by`. It is gone from single reads, lists and the preview when this returns; from totals too,
    /// unless others write the post at the same time: then a moment later.
    pub async fn delete_comment(&self, id: CommentId, by: UserId) -> Result<Result<(), DeleteCommentRefusal>> {
        let Some(comment) = self.comment_doc(id).await? else { return Ok(Err(DeleteCommentRefusal::NotFound)) };
        let mine = comment.author.as_ref().is_some_and(|author| author.user_id == b(by));
        // Their own words everybody may take back, also where they may not read any more.
        let known = if mine { self.post_is_live(comment.post_id).await? } else { self.is_open_to(&comment, Some(by)).await? };
        if comment.state != CommentStateDoc::Live || !known {
            return Ok(Err(DeleteCommentRefusal::NotFound));
        }
        if !mine {
            return Ok(Err(DeleteCommentRefusal::NotYours));
        }
        if !self.mark_comment_removed(id).await? {
            return Ok(Err(DeleteCommentRefusal::NotFound));
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
            Some(parent) if parent.state == CommentStateDoc::Live && parent.post_id == b(new.post) => parent,
            _ => return Ok(Err(CommentRefusal::ParentNotFound)),
        };
        if let Some(parent_author) = parent.live_author()
            && self.is_blocked(Some(new.author), parent_author).await?
        {
            return Ok(Err(CommentRefusal::ParentHidden));
        }
        if parent.depth >= MAX_DEPTH {
            return Ok(Err(CommentRefusal::ThreadTooDeep));
        }
        let mut ancestors = parent.ancestors;
        ancestors.push(parent.id);
        Ok(Ok(Place { author, ancestors, depth: parent.depth + 1 }))
    }

    /// Writes what is wanted: the comment, pending. Where an earlier call with its id has made it, that one stands.
    pub(crate) async fn insert_comment(&self, new: NewComment, place: Place) -> Result<CommentDoc> {
        let comment = CommentDoc {
            id: b(new.id),
            post_id: b(new.post),
            parent_id: new.parent.map(b),
            ancestors: place.ancestors,
            depth: place.depth,
            seq: None,
            author: Some(place.author),
            text: Some(new.text),
            counters: CommentCountersDoc::default(),
            state: CommentStateDoc::Live,
            pending: Some(true),
            created_at: date(new.id.time()),
            edited_at: None,
            purge_at: None,
        };
        match self.comment_coll().insert_one(&comment).await {
            Ok(_) => Ok(comment),
            Err(error) if is_duplicate_key(&error) => {
                let earlier = self.comment_doc(new.id).await?;
                earlier.filter(|earlier| earlier.post_id == comment.post_id).ok_or_else(|| error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether an inserted comment may stand, and tries to apply it.
    pub(crate) async fn settle_comment(&self, comment: &CommentDoc) -> Result<Result<(), CommentRefusal>> {
        let checks =
            tokio::try_join!(self.post_is_live(comment.post_id), self.parent_is_live(comment), self.author_is_live(comment))?;
        let refusal = match checks {
            (_, _, false) => CommentRefusal::AuthorGone,
            (false, ..) => CommentRefusal::PostNotFound,
            (true, false, _) => CommentRefusal::ParentNotFound,
            (true, true, true) => {
                self.apply_own(comment.post_id, comment.id).await?;
                return Ok(Ok(()));
            }
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
        let deleted = comment.state != CommentStateDoc::Live;
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
            likes: comment.counters.likes,
            replies: comment.counters.replies,
            deleted,
        })
    }

    /// Whether it was written by an account that is being deleted.
    pub(crate) fn is_of_deleting(&self, comment: &CommentDoc) -> bool {
        comment.author.as_ref().is_some_and(|author| self.is_deleting(UserId(author.user_id.into())))
    }

    async fn author_is_live(&self, comment: &CommentDoc) -> Result<bool> {
        // One without an author is a tombstone by now: an earlier call with its id made it, and it was deleted since.
        let Some(author) = &comment.author else { return Ok(true) };
        Ok(self.user_id(&UserRef::Id(UserId(author.user_id.into()))).await?.is_some())
    }

    async fn parent_is_live(&self, comment: &CommentDoc) -> Result<bool> {
        let Some(parent) = comment.parent_id else { return Ok(true) };
        let live = doc! { "_id": parent, "state": "live" };
        Ok(self.coll::<Document>(collections::COMMENTS).find_one(live).projection(doc! { "_id": 1 }).await?.is_some())
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
