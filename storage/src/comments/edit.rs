//! Changing the text of a comment.

use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use rookery_domain::{
    CommentId, UserId,
    comments::{ChangeCommentRefusal, Comment},
};

use super::{CommentDoc, CommentStateDoc};
use crate::{
    Result, Store, collections,
    store::{b, commit, date, now, until_no_conflict},
};

impl Store {
    /// Changes the text of a comment on behalf of `by`. The comment and the copy that its post keeps have the new text when this returns.
    /// A text that is the same changes nothing, also not when it was edited.
    ///
    /// `text` is as [`rookery_domain::text::comment`] gives it.
    pub async fn edit_comment(&self, id: CommentId, by: UserId, text: &str) -> Result<Result<Comment, ChangeCommentRefusal>> {
        let Some(comment) = self.comment_doc(id).await? else { return Ok(Err(ChangeCommentRefusal::NotFound)) };
        // Who may not read what stands under a post any more does not write there either.
        if comment.state != CommentStateDoc::Live || self.seen_comment(&comment, Some(by)).await?.is_none() {
            return Ok(Err(ChangeCommentRefusal::NotFound));
        }
        if comment.live_author() != Some(by) {
            return Ok(Err(ChangeCommentRefusal::NotYours));
        }
        if comment.text.as_deref() == Some(text) {
            return Ok(Ok(self.shown_comment(comment)?));
        }
        match until_no_conflict(|| self.edit_comment_once(id, by, text)).await? {
            Some(edited) => Ok(Ok(self.shown_comment(edited)?)),
            None => Ok(Err(ChangeCommentRefusal::NotFound)),
        }
    }

    /// None: it was deleted meanwhile.
    ///
    /// A transaction, because nothing would ever mend a copy that kept another text than its comment. Whoever makes a copy at the same
    /// time writes the comment too (its number, or that it came back), so that one of the two begins anew with what the other wrote.
    pub(super) async fn edit_comment_once(&self, id: CommentId, by: UserId, text: &str) -> Result<Option<CommentDoc>> {
        let mut session = self.begin().await?;
        let own = doc! { "_id": b(id), "state": "live", "author.userId": b(by) };
        let edited_at = date(now());
        let edit = doc! { "$set": { "text": text, "editedAt": edited_at } };
        let edited =
            self.comment_coll().find_one_and_update(own, edit).return_document(ReturnDocument::After).session(&mut session).await?;
        let Some(edited) = edited else {
            session.abort_transaction().await?;
            return Ok(None);
        };
        let keeping = doc! { "_id": edited.post_id, "recentComments._id": edited.id };
        let this = doc! { "$eq": ["$$one._id", edited.id] };
        // A literal: a text that begins with `$` is no field.
        let changed = doc! { "$mergeObjects": ["$$one", { "text": { "$literal": text }, "editedAt": edited_at }] };
        let each = doc! { "$map": { "input": "$recentComments", "as": "one", "in": { "$cond": [this, changed, "$$one"] } } };
        let change = vec![doc! { "$set": { "recentComments": each } }];
        self.coll::<Document>(collections::POSTS).update_one(keeping, change).session(&mut session).await?;
        commit(session).await?;
        Ok(Some(edited))
    }
}
