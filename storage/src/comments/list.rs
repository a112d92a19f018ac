//! Pages of the comments under a post, of the replies to one comment, and of all that stands below one.
//!
//! The order is the sequence number, which the post gives out: a page is a bounded range of `{postId, seq}`, `{parentId, seq}` or
//! `{ancestors, seq}`, and nothing else is asked of the database with it: a further condition would make it read the whole list. What is
//! not shown is left out of what comes back.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    CommentId, Limit, Page, PostId, UserId,
    comments::{Comment, CommentOrder, CommentPage, CommentRefusal, RECENT_SHOWN, Thread, ThreadCursor},
    page::SeqCursor,
};
use serde::Deserialize;

use super::{CommentCountersDoc, CommentDoc, CommentStateDoc};
use crate::{
    Result, Store, collections,
    hidden::Hidden,
    posts::SeenPost,
    seq_page::{self, Extent, Slice, Way},
    store::{ANSWER, b},
};

/// Authors of one query: as many as one command carries comfortably.
const AUTHORS: usize = 1_000;

/// What counting those that are not listed needs of a comment.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedDoc {
    parent_id: Option<bson::Uuid>,
    seq: Option<i64>,
    state: CommentStateDoc,
    author: CountedAuthorDoc,
    counters: CommentCountersDoc,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountedAuthorDoc {
    user_id: bson::Uuid,
}

impl Store {
    /// The comments of every level under a post that the viewer may see, or the direct replies to one of them. A tombstone is listed
    /// while it has shown replies. Pages are full unless the list is at its end.
    pub async fn comments(
        &self,
        post: PostId,
        viewer: Option<UserId>,
        parent: Option<CommentId>,
        order: CommentOrder,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Result<CommentPage, CommentRefusal>> {
        let (seen, hidden) = tokio::try_join!(self.seen_post(b(post), viewer), self.hidden_from(viewer))?;
        let Some(seen) = seen else { return Ok(Err(CommentRefusal::PostNotFound)) };
        let mut list = doc! { "postId": b(post) };
        let total = seen.counters.comments + seen.counters.tombstones;
        let mut extent = Extent { above: 0, newest: seen.comment_seq, total };
        if let Some(parent) = parent {
            let parent = match self.comment_doc(parent).await? {
                Some(parent) if parent.post_id == b(post) && self.is_seen(&parent) => parent,
                _ => return Ok(Err(CommentRefusal::ParentNotFound)),
            };
            if self.standing_author(&parent).is_some_and(|author| hidden.is_blocked(author)) {
                return Ok(Err(CommentRefusal::ParentHidden));
            }
            list = doc! { "parentId": parent.id };
            // A parent is numbered before its replies; one without a number has none that are.
            extent.above = parent.seq.unwrap_or(seen.comment_seq);
            extent.total = parent.counters.children;
        }
        let onward = match order {
            CommentOrder::Newest => Way::Down,
            CommentOrder::Oldest => Way::Up,
        };
        let page = seq_page::page(onward, cursor, limit, extent, async |slice| {
            let show = async |read: Vec<(i64, CommentDoc)>| {
                Ok(read.into_iter().filter(|(_, comment)| self.is_listed(comment, &hidden)).collect())
            };
            slice.filled(async |slice| self.comments_in(&list, slice).await, show).await
        });
        let (page, left_out) = tokio::try_join!(page, self.left_out_of_total(b(post), parent, &hidden))?;
        let Page { items, next, prev } = page;
        let items = items.into_iter().map(|comment| self.shown_comment(comment)).collect::<Result<_>>()?;
        Ok(Ok(CommentPage { page: Page { items, next, prev }, total: extent.total - left_out }))
    }

    /// A comment that the viewer may see, those above it, and a page of those below it, each after the one that it answers: an ancestor
    /// is numbered before its descendants. None if there is no such comment, or none for this viewer.
    pub async fn thread(
        &self,
        id: CommentId,
        viewer: Option<UserId>,
        cursor: Option<ThreadCursor>,
        limit: Limit,
    ) -> Result<Option<Thread>> {
        let Some(comment) = self.comment_doc(id).await? else { return Ok(None) };
        let Some(seen) = self.seen_comment(&comment, viewer).await? else { return Ok(None) };
        let (ancestors, descendants) =
            tokio::try_join!(self.ancestors(&comment, viewer), self.descendants(&comment, seen, viewer, cursor, limit))?;
        Ok(Some(Thread { ancestors, comment: self.shown_comment(comment)?, descendants }))
    }

    /// The comments above one, from the first level down.
    async fn ancestors(&self, comment: &CommentDoc, viewer: Option<UserId>) -> Result<Vec<Comment>> {
        if comment.ancestors.is_empty() {
            return Ok(Vec::new());
        }
        let above = self.comment_coll().find(doc! { "_id": { "$in": &comment.ancestors } }).await?;
        let mut above: Vec<CommentDoc> = above.try_collect().await?;
        above.sort_unstable_by_key(|comment| comment.depth);
        let hidden = self.hidden_among(viewer, above.iter().filter_map(CommentDoc::live_author)).await?;
        above.into_iter().filter(|comment| self.is_listed(comment, &hidden)).map(|comment| self.shown_comment(comment)).collect()
    }

    /// A page of the comments of every level below one.
    ///
    /// Nothing says how many they are. The first range is made for a thread to itself, and where others write between its comments the
    /// next ones grow: a page never reads more than a few times what it shows, however long the thread is.
    async fn descendants(
        &self,
        comment: &CommentDoc,
        seen: SeenPost,
        viewer: Option<UserId>,
        cursor: Option<ThreadCursor>,
        limit: Limit,
    ) -> Result<Page<Comment, ThreadCursor>> {
        let (Some(above), true) = (comment.seq, comment.counters.children > 0) else { return Ok(Page::empty()) };
        let list = doc! { "ancestors": comment.id };
        let extent = Extent { above, newest: seen.comment_seq, total: seen.comment_seq.saturating_sub(above) };
        let cursor = cursor.map(|ThreadCursor(seq)| SeqCursor::Above(seq));
        let page = seq_page::page(Way::Up, cursor, limit, extent, async |slice| {
            self.comments_shown_in(&list, slice, viewer, |comment, hidden| self.is_listed(comment, hidden)).await
        });
        let Page { items, next, .. } = page.await?;
        let items = items.into_iter().map(|comment| self.shown_comment(comment)).collect::<Result<_>>()?;
        // Going on is the one direction.
        let next = next.and_then(|next| match next {
            SeqCursor::Above(seq) => Some(ThreadCursor(seq)),
            SeqCursor::Below(_) => None,
        });
        Ok(Page { items, next, prev: None })
    }

    /// The newest comments under a post that the viewer may see, as many as a post shows, however many are hidden above them.
    pub(crate) async fn newest_comments(&self, post: PostId, viewer: Option<UserId>) -> Result<Vec<Comment>> {
        let (Some(seen), Some(limit)) = (self.seen_post(b(post), viewer).await?, Limit::new(RECENT_SHOWN)) else {
            return Ok(Vec::new());
        };
        let list = doc! { "postId": b(post) };
        let page = seq_page::newest_first(None, limit, seen.comment_seq, async |slice| {
            let is_shown = |comment: &CommentDoc, hidden: &Hidden| {
                self.standing_author(comment).is_some_and(|author| !hidden.is_silenced(author))
            };
            self.comments_shown_in(&list, slice, viewer, is_shown).await
        });
        page.await?.items.into_iter().map(|comment| self.shown_comment(comment)).collect()
    }

    /// The comments of a slice that are shown, as many as it asks for. Who is hidden from the viewer is asked batch by batch, so that the
    /// number of those whom they block or mute makes no difference.
    async fn comments_shown_in(
        &self,
        list: &Document,
        slice: Slice,
        viewer: Option<UserId>,
        is_shown: impl Fn(&CommentDoc, &Hidden) -> bool,
    ) -> Result<Vec<(i64, CommentDoc)>> {
        let show = async |read: Vec<(i64, CommentDoc)>| {
            let hidden = self.hidden_among(viewer, read.iter().filter_map(|(_, comment)| comment.live_author())).await?;
            Ok(read.into_iter().filter(|(_, comment)| is_shown(comment, &hidden)).collect())
        };
        slice.filled(async |slice| self.comments_in(list, slice).await, show).await
    }

    async fn comments_in(&self, list: &Document, slice: Slice) -> Result<Vec<(i64, CommentDoc)>> {
        let found = self.comment_coll().find(slice.of(list)).sort(slice.sort()).limit(slice.most).batch_size(ANSWER).await?;
        let found: Vec<CommentDoc> = found.try_collect().await?;
        Ok(found.into_iter().filter_map(|comment| Some((comment.seq?, comment))).collect())
    }

    /// Whether a counted comment has its place in the lists of a viewer: it stands and its author is not silenced, or it is deleted and
    /// holds replies in theirs. What is left of a deleted one is nobody's.
    fn is_listed(&self, comment: &CommentDoc, hidden: &Hidden) -> bool {
        match self.standing_author(comment) {
            Some(author) => !hidden.is_silenced(author),
            None => self.is_seen(comment),
        }
    }

    /// How many of a list are counted in its total and yet not listed for a viewer: those of silenced authors, by the index that has
    /// authors within a post, and those whose deletion waits to be applied.
    async fn left_out_of_total(&self, post: bson::Uuid, parent: Option<CommentId>, hidden: &Hidden) -> Result<i64> {
        let deleting = self.deleting().all();
        let is_counted = |comment: &CountedDoc| comment.seq.is_some() && (parent.is_none() || comment.parent_id == parent.map(b));
        let fields = doc! { "_id": 0, "parentId": 1, "seq": 1, "state": 1, "author.userId": 1, "counters": 1 };
        let comments = self.coll::<CountedDoc>(collections::COMMENTS);
        let mut left_out = 0;
        // A deletion that is not applied is as rare as it is short.
        let waiting = doc! { "state": "removed", "postId": post };
        let mut found = comments.find(waiting).projection(fields.clone()).await?;
        while let Some(comment) = found.try_next().await? {
            left_out += i64::from(is_counted(&comment) && comment.counters.children == 0);
        }
        let authors: Vec<bson::Uuid> =
            hidden.silenced().filter(|author| !deleting.contains(author)).chain(deleting.iter().copied()).map(b).collect();
        for authors in authors.chunks(AUTHORS) {
            let theirs = doc! { "postId": post, "author.userId": { "$in": authors } };
            let mut found = comments.find(theirs).projection(fields.clone()).batch_size(ANSWER).await?;
            while let Some(comment) = found.try_next().await? {
                // What those leave who are being deleted holds their replies.
                let holds_replies = comment.counters.children > 0 && deleting.contains(&UserId(comment.author.user_id.into()));
                let stands = comment.state == CommentStateDoc::Live;
                left_out += i64::from(stands && is_counted(&comment) && !holds_replies);
            }
        }
        Ok(left_out)
    }
}
