//! Pages of the comments under a post, and of the replies to one comment.
//!
//! The order is the sequence number. Numbers are given out by the post, so every page is a bounded range of `{postId, seq}` or
//! `{parentId, seq}`, sized by the density of the list and doubled where it comes back short: the first page of ten and the last of
//! ten thousand cost the same.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    CommentId, Limit, Page, PostId,
    comments::{Comment, CommentOrder, CommentPage, CommentRefusal, first_span},
    page::SeqCursor,
};
use serde::Deserialize;

use super::CommentDoc;
use crate::{Error, Result, Store, collections, store::b};

/// The part of a post that its lists of comments need.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    comment_seq: i64,
    counters: PartCounters,
}

#[derive(Debug, Deserialize)]
struct PartCounters {
    comments: i64,
    tombstones: i64,
}

/// A list and the numbers between which its items are.
struct List<'a> {
    store: &'a Store,
    /// Whose comments: those of a post or of a parent.
    of: Document,
    /// Every item's number is above this one.
    above: i64,
    /// The highest number given out.
    highest: i64,
    total: i64,
}

impl Store {
    /// The comments of every level under a live post, or the direct replies to one of them. A tombstone is listed while it has shown
    /// replies. Pages are full unless the list is at its end.
    pub async fn comments(
        &self,
        post: PostId,
        parent: Option<CommentId>,
        order: CommentOrder,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Result<CommentPage, CommentRefusal>> {
        let part = self
            .coll::<PostPart>(collections::POSTS)
            .find_one(doc! { "_id": b(post), "state": "live" })
            .projection(doc! { "commentSeq": 1, "counters.comments": 1, "counters.tombstones": 1 })
            .await?;
        let Some(part) = part else { return Ok(Err(CommentRefusal::PostNotFound)) };
        let mut list = List {
            store: self,
            of: doc! { "postId": b(post) },
            above: 0,
            highest: part.comment_seq,
            total: part.counters.comments + part.counters.tombstones,
        };
        if let Some(parent) = parent {
            let parent = match self.comment_doc(parent).await? {
                Some(parent) if parent.post_id == b(post) && parent.is_seen() => parent,
                _ => return Ok(Err(CommentRefusal::ParentNotFound)),
            };
            list.of = doc! { "parentId": parent.id };
            // A parent is numbered before its replies; one without a number has none that are.
            list.above = parent.seq.unwrap_or(part.comment_seq);
            // It may have been counted since the post was read.
            list.highest = list.highest.max(list.above);
            list.total = parent.counters.children;
        }
        let total = list.total;
        Ok(Ok(CommentPage { page: list.page(order, cursor, limit).await?, total }))
    }
}

/// The way along the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

impl Way {
    const fn of(cursor: SeqCursor) -> Self {
        match cursor {
            SeqCursor::Below(_) => Self::Down,
            SeqCursor::Above(_) => Self::Up,
        }
    }

    const fn back(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// The cursor that goes this way from `seq`, without it.
    const fn from(self, seq: i64) -> SeqCursor {
        match self {
            Self::Down => SeqCursor::Below(seq),
            Self::Up => SeqCursor::Above(seq),
        }
    }

    /// The number one step further this way.
    const fn step(self, seq: i64) -> i64 {
        match self {
            Self::Down => seq.saturating_sub(1),
            Self::Up => seq.saturating_add(1),
        }
    }
}

impl List<'_> {
    async fn page(&self, order: CommentOrder, cursor: Option<SeqCursor>, limit: Limit) -> Result<Page<Comment, SeqCursor>> {
        let onward = match order {
            CommentOrder::Newest => Way::Down,
            CommentOrder::Oldest => Way::Up,
        };
        let start = match onward {
            Way::Down => self.highest.saturating_add(1),
            Way::Up => self.above,
        };
        let (way, place) = match cursor {
            Some(cursor @ (SeqCursor::Below(seq) | SeqCursor::Above(seq))) => (Way::of(cursor), seq),
            None => (onward, start),
        };
        // A page that leads on looks one further; one that leads back asks whether its way on still leads anywhere.
        let (found, more, last) = if way == onward {
            let mut found = self.read(way, place, limit.get() + 1).await?;
            let more = found.len() > limit.get();
            found.truncate(limit.get());
            let last = found.last().map(number).transpose()?.unwrap_or(place);
            (found, more, last)
        } else {
            let mut found = self.read(way, place, limit.get()).await?;
            found.reverse();
            let last = found.last().map(number).transpose()?.unwrap_or(way.step(place));
            let more = !self.read(onward, last, 1).await?.is_empty();
            (found, more, last)
        };
        let first = match found.first() {
            Some(first) => Some(number(first)?),
            // Nothing there (yet): the way back is that of the cursor, or leads to what is before its place.
            None if way == onward => cursor.map(|_| onward.step(place)),
            None => Some(place),
        };
        let items = found.into_iter().map(CommentDoc::into_comment).collect::<Result<_>>()?;
        Ok(Page { items, next: more.then(|| onward.from(last)), prev: first.map(|first| onward.back().from(first)) })
    }

    /// Up to `wanted` listed comments from `place` on, without it.
    async fn read(&self, way: Way, place: i64, wanted: usize) -> Result<Vec<CommentDoc>> {
        let mut place = place.clamp(self.above, self.highest.saturating_add(1));
        let mut span = first_span(wanted, self.highest - self.above, self.total);
        let mut found = Vec::new();
        while found.len() < wanted {
            let (low, high) = match way {
                Way::Down => (place.saturating_sub(span).max(self.above + 1), place - 1),
                Way::Up => (place + 1, place.saturating_add(span).min(self.highest)),
            };
            if low > high {
                break;
            }
            let mut filter = self.of.clone();
            filter.insert("seq", doc! { "$gte": low, "$lte": high });
            // A deletion shows at once, applied or not.
            filter.insert("$nor", [doc! { "state": "removed", "counters.children": 0 }]);
            let sort = match way {
                Way::Down => doc! { "seq": -1 },
                Way::Up => doc! { "seq": 1 },
            };
            let limit = i64::try_from(wanted - found.len()).unwrap_or(i64::MAX);
            let mut next = self.store.comment_coll().find(filter).sort(sort).limit(limit).await?;
            while let Some(comment) = next.try_next().await? {
                found.push(comment);
            }
            place = match way {
                Way::Down => low,
                Way::Up => high,
            };
            span = span.saturating_mul(2);
        }
        Ok(found)
    }
}

fn number(comment: &CommentDoc) -> Result<i64> {
    let missing =
        || Error::Corrupt { collection: collections::COMMENTS, detail: format!("{}: listed without a number", comment.id) };
    comment.seq.ok_or_else(missing)
}
