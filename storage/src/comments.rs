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

use bson::{Document, doc};
use mongodb::Collection;
use rookery_domain::{
    CommentId, Handle, PostId, Timestamp, UserId,
    comments::{
        Comment, CommentRefusal, DeleteCommentRefusal, MAX_DEPTH,
        tree::{CommentState, Node},
    },
    user::UserSummary,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store, collections,
    error::is_duplicate_key,
    pending::{Attempt, attempt},
    posts::AuthorDoc,
    store::{b, date, timestamp, until_no_conflict},
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

    /// Whether others see it: alive, or deleted and holding shown replies in their place. A deletion shows at once, applied or not.
    fn is_seen(&self) -> bool {
        self.state == CommentStateDoc::Live || (self.seq.is_some() && self.counters.children > 0)
    }

    /// What others see of it.
    fn into_comment(self) -> Result<Comment> {
        let deleted = self.state != CommentStateDoc::Live;
        let (author, text) = match (deleted, self.author, self.text) {
            (true, ..) => (None, String::new()),
            (false, Some(author), Some(text)) => (Some(summary(author)), text),
            _ => {
                let detail = format!("{}: live without its author or text", self.id);
                return Err(Error::Corrupt { collection: collections::COMMENTS, detail });
            }
        };
        Ok(Comment {
            id: comment_id(self.id),
            post_id: PostId(self.post_id.into()),
            parent_id: self.parent_id.map(comment_id),
            depth: self.depth,
            author,
            text,
            created_at: timestamp(self.created_at),
            edited_at: self.edited_at.filter(|_| !deleted).map(timestamp),
            likes: self.counters.likes,
            replies: self.counters.replies,
            deleted,
        })
    }
}

/// A comment that is to be made.
#[derive(Debug, Clone)]
pub struct NewComment {
    /// Its id, made by the caller: a second call with the same id makes no second comment.
    pub id: CommentId,
    /// The post it stands under.
    pub post: PostId,
    /// The comment it answers.
    pub parent: Option<CommentId>,
    /// Who writes it.
    pub author: UserSummary,
    /// What is written, normalised and checked.
    pub text: String,
    /// When it is made.
    pub now: Timestamp,
}

/// Where a comment stands in the tree.
struct Place {
    ancestors: Vec<bson::Uuid>,
    depth: i32,
}

impl Store {
    /// Makes a comment.
    ///
    /// *Write first, check after*: it is inserted, and then post and parent are looked at again; where one of them was deleted meanwhile,
    /// the comment is withdrawn.
    pub async fn create_comment(&self, new: NewComment) -> Result<Result<Comment, CommentRefusal>> {
        let place = match self.place_for(&new).await? {
            Ok(place) => place,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let comment = self.insert_comment(new, place).await?;
        match self.settle_comment(&comment).await? {
            Ok(()) => Ok(Ok(comment.into_comment()?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Deletes a comment of `author`. It is gone from single reads and from the preview when this returns; from totals too, unless
    /// others write the post at the same time: then a moment later.
    pub async fn delete_comment(&self, id: CommentId, author: UserId) -> Result<Result<(), DeleteCommentRefusal>> {
        let Some(comment) = self.comment_doc(id).await? else { return Ok(Err(DeleteCommentRefusal::NotFound)) };
        if comment.state != CommentStateDoc::Live || !self.post_is_live(comment.post_id).await? {
            return Ok(Err(DeleteCommentRefusal::NotFound));
        }
        if comment.author.is_none_or(|owner| owner.user_id != b(author)) {
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

    /// A comment under a live post; a deleted one only while it holds replies in their place.
    pub async fn comment(&self, id: CommentId) -> Result<Option<Comment>> {
        match self.comment_doc(id).await? {
            Some(comment) if comment.is_seen() && self.post_is_live(comment.post_id).await? => Ok(Some(comment.into_comment()?)),
            _ => Ok(None),
        }
    }

    /// Finds the place for a new comment; every reason to refuse it that is known before it is written.
    async fn place_for(&self, new: &NewComment) -> Result<Result<Place, CommentRefusal>> {
        if !self.post_is_live(b(new.post)).await? {
            return Ok(Err(CommentRefusal::PostNotFound));
        }
        let Some(parent) = new.parent else { return Ok(Ok(Place { ancestors: Vec::new(), depth: 0 })) };
        let parent = match self.comment_doc(parent).await? {
            Some(parent) if parent.state == CommentStateDoc::Live && parent.post_id == b(new.post) => parent,
            _ => return Ok(Err(CommentRefusal::ParentNotFound)),
        };
        if parent.depth >= MAX_DEPTH {
            return Ok(Err(CommentRefusal::ThreadTooDeep));
        }
        let mut ancestors = parent.ancestors;
        ancestors.push(parent.id);
        Ok(Ok(Place { ancestors, depth: parent.depth + 1 }))
    }

    /// Writes what is wanted: the comment, pending. Where an earlier call with its id has made it, that one stands.
    async fn insert_comment(&self, new: NewComment, place: Place) -> Result<CommentDoc> {
        let comment = CommentDoc {
            id: b(new.id),
            post_id: b(new.post),
            parent_id: new.parent.map(b),
            ancestors: place.ancestors,
            depth: place.depth,
            seq: None,
            author: Some(copy_of(new.author)),
            text: Some(new.text),
            counters: CommentCountersDoc::default(),
            state: CommentStateDoc::Live,
            pending: Some(true),
            created_at: date(new.now),
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
    async fn settle_comment(&self, comment: &CommentDoc) -> Result<Result<(), CommentRefusal>> {
        let refusal = if !self.post_is_live(comment.post_id).await? {
            CommentRefusal::PostNotFound
        } else if !self.parent_is_live(comment).await? {
            CommentRefusal::ParentNotFound
        } else {
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
    ///
    /// Where others' comments wait, the post is hot and no attempt is made: it would only be in the applier's way. Otherwise a conflict
    /// is with something that writes the post once (its delivery, a like), and a second attempt is worth it, so that on a quiet post
    /// everybody sees his own comment counted.
    async fn apply_own(&self, post: bson::Uuid, comment: bson::Uuid) -> Result<bool> {
        for _ in 0..2 {
            let others = doc! { "postId": post, "pending": true, "_id": { "$ne": comment } };
            if self.coll::<Document>(collections::COMMENTS).find_one(others).projection(doc! { "_id": 1 }).await?.is_some() {
                break;
            }
            match attempt(self.apply_comments(post, &[comment])).await? {
                Attempt::Applied(1..) => return Ok(true),
                Attempt::Applied(0) => break,
                Attempt::Left => {}
            }
        }
        self.wake().applier.notify_one();
        Ok(false)
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

    async fn comment_doc(&self, id: CommentId) -> Result<Option<CommentDoc>> {
        Ok(self.comment_coll().find_one(doc! { "_id": b(id) }).await?)
    }

    fn comment_coll(&self) -> Collection<CommentDoc> {
        self.coll(collections::COMMENTS)
    }
}

/// The copy of an author's fields that a comment keeps.
fn copy_of(author: UserSummary) -> AuthorDoc {
    AuthorDoc {
        user_id: b(author.id),
        handle: author.handle.as_str().to_owned(),
        display_name: author.display_name,
        avatar_url: author.avatar_url,
    }
}

fn summary(author: AuthorDoc) -> UserSummary {
    UserSummary {
        id: UserId(author.user_id.into()),
        handle: Handle::from_stored(author.handle),
        display_name: author.display_name,
        avatar_url: author.avatar_url,
        celebrity: false,
    }
}

fn comment_id(id: bson::Uuid) -> CommentId {
    CommentId(id.into())
}
