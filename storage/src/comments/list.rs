//! Pages of the comments under a post, and of the replies to one comment.
//!
//! The order is the sequence number, which the post gives out: a page is a bounded range of `{postId, seq}` or `{parentId, seq}`.

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::{
    CommentId, Limit, Page, PostId, UserId,
    comments::{CommentOrder, CommentPage, CommentRefusal},
    page::SeqCursor,
};

use super::CommentDoc;
use crate::{
    Result, Store,
    seq_page::{self, Extent, Way},
    store::b,
};

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
        let Some(seen) = self.seen_post(b(post), viewer).await? else { return Ok(Err(CommentRefusal::PostNotFound)) };
        let mut list = doc! { "postId": b(post) };
        let total = seen.counters.comments + seen.counters.tombstones;
        let mut extent = Extent { above: 0, newest: seen.comment_seq, total };
        if let Some(parent) = parent {
            let parent = match self.comment_doc(parent).await? {
                Some(parent) if parent.post_id == b(post) && parent.is_seen() && !self.is_of_deleting(&parent) => parent,
                _ => return Ok(Err(CommentRefusal::ParentNotFound)),
            };
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
        let page = seq_page::page(onward, cursor, limit, extent, async |slice| {
            let found = self.comment_coll().find(slice.of(&list)).sort(slice.sort()).limit(slice.most).await?;
            let found: Vec<CommentDoc> = found.try_collect().await?;
            Ok(found.into_iter().filter_map(|comment| Some((comment.seq?, comment))).collect())
        });
        let Page { items, next, prev } = page.await?;
        let items = items.into_iter().map(|comment| self.shown_comment(comment)).collect::<Result<_>>()?;
        Ok(Ok(CommentPage { page: Page { items, next, prev }, total: extent.total }))
    }
}
