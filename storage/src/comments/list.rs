//! Pages of the comments under a post, and of the replies to one comment.
//!
//! The order is the sequence number, which the post gives out: a page is a bounded range of `{postId, seq}` or `{parentId, seq}`.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    CommentId, Limit, Page, PostId, UserId,
    comments::{Comment, CommentOrder, CommentPage, CommentRefusal, RECENT_SHOWN},
    page::SeqCursor,
};
use serde::Deserialize;

use super::{CommentDoc, CommentStateDoc};
use crate::{
    Result, Store, collections,
    hidden::Hidden,
    seq_page::{self, Extent, Slice, Way},
    store::b,
};

/// Authors of one query: as many as one command carries comfortably.
const AUTHORS: usize = 1_000;

/// What counting hidden comments needs of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HiddenDoc {
    parent_id: Option<bson::Uuid>,
    seq: Option<i64>,
    state: CommentStateDoc,
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
                Some(parent) if parent.post_id == b(post) && parent.is_seen() && !self.is_of_deleting(&parent) => parent,
                _ => return Ok(Err(CommentRefusal::ParentNotFound)),
            };
            if parent.live_author().is_some_and(|author| hidden.is_blocked(author)) {
                return Ok(Err(CommentRefusal::ParentHidden));
            }
            list = doc! { "parentId": parent.id };
            // A parent is numbered before its replies; one without a number has none that are.
            extent.above = parent.seq.unwrap_or(seen.comment_seq);
            extent.total = parent.counters.children;
        }
        // A deletion shows at once, applied or not.
        self.leave_out_deleting(&mut list);
        list.insert("$nor", [doc! { "state": "removed", "counters.children": 0 }]);
        let onward = match order {
            CommentOrder::Newest => Way::Down,
            CommentOrder::Oldest => Way::Up,
        };
        let is_shown = |comment: &CommentDoc| !comment.live_author().is_some_and(|author| hidden.is_silenced(author));
        let page = seq_page::page(onward, cursor, limit, extent, async |slice| {
            slice.filled(async |slice| self.comments_in(&list, slice).await, is_shown).await
        });
        let (page, hidden) = tokio::try_join!(page, self.hidden_comments(b(post), parent, &hidden))?;
        let Page { items, next, prev } = page;
        let items = items.into_iter().map(|comment| self.shown_comment(comment)).collect::<Result<_>>()?;
        Ok(Ok(CommentPage { page: Page { items, next, prev }, total: extent.total - hidden }))
    }

    /// The newest comments under a post that the viewer may see, as many as a post shows.
    pub(crate) async fn newest_comments(&self, post: PostId, viewer: Option<UserId>) -> Result<Vec<Comment>> {
        let (seen, hidden) = tokio::try_join!(self.seen_post(b(post), viewer), self.hidden_from(viewer))?;
        let (Some(seen), Some(limit)) = (seen, Limit::new(RECENT_SHOWN)) else { return Ok(Vec::new()) };
        let list = doc! { "postId": b(post) };
        let is_shown = |comment: &CommentDoc| comment.live_author().is_some_and(|author| !hidden.is_silenced(author));
        let page = seq_page::newest_first(None, limit, seen.comment_seq, async |slice| {
            slice.filled(async |slice| self.comments_in(&list, slice).await, is_shown).await
        });
        page.await?.items.into_iter().map(|comment| self.shown_comment(comment)).collect()
    }

    async fn comments_in(&self, list: &Document, slice: Slice) -> Result<Vec<(i64, CommentDoc)>> {
        let found = self.comment_coll().find(slice.of(list)).sort(slice.sort()).limit(slice.most).await?;
        let found: Vec<CommentDoc> = found.try_collect().await?;
        Ok(found.into_iter().filter_map(|comment| Some((comment.seq?, comment))).collect())
    }

    /// How many comments of a list are hidden from a viewer: those of the silenced authors, by the index that has authors within a post.
    async fn hidden_comments(&self, post: bson::Uuid, parent: Option<CommentId>, hidden: &Hidden) -> Result<i64> {
        if hidden.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        let silenced: Vec<bson::Uuid> = hidden.silenced().map(b).collect();
        for authors in silenced.chunks(AUTHORS) {
            let theirs = doc! { "postId": post, "author.userId": { "$in": authors } };
            let fields = doc! { "_id": 0, "parentId": 1, "seq": 1, "state": 1 };
            let mut found = self.coll::<HiddenDoc>(collections::COMMENTS).find(theirs).projection(fields).await?;
            while let Some(comment) = found.try_next().await? {
                let listed = parent.is_none() || comment.parent_id == parent.map(b);
                count += i64::from(listed && comment.seq.is_some() && comment.state == CommentStateDoc::Live);
            }
        }
        Ok(count)
    }
}
