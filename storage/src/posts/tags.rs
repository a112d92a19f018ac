//! Posts by tag.
//!
//! Nothing counts the posts of a tag, and a viewer may see few of them: those for followers, of muted accounts and across a block are
//! left out. So a page is read in parts of time whose length follows from what *stands* in the index, shown or not: a part that holds
//! more than is asked for makes the next one shorter, one that holds less makes it longer. What is hidden costs its own reading, and no
//! part is read twice.

use std::time::Duration;

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, Timestamp, UserId, ids,
    page::TimeCursor,
    post::{Post, SHORTEST_SLICE, next_slice},
};
use uuid::Uuid;

use super::{Found, PostDoc};
use crate::{
    Result, Store,
    collections::POSTS,
    store::{ANSWER, now},
    time_page::{self, Extent, Slice},
};

/// The length of the first part for each post that is asked for. A tag is taken to be a busy one: what is rarer is found in a few longer
/// parts (ten years of silence in nine), while a first part of a day could hold a million posts.
const FIRST_PART_EACH: Duration = Duration::from_secs(1);

/// Before all posts: 2020.
const FIRST: Timestamp = Timestamp::from_millis(1_577_836_800_000);

/// Posts that are read together at most where most of them are hidden.
const MOST: i64 = 200;

/// The rest of a slice that is read in parts.
#[derive(Debug, Clone, Copy)]
struct Walk {
    rest: Slice,
    span: Duration,
    now: Timestamp,
}

impl Walk {
    fn new(slice: Slice, now: Timestamp) -> Self {
        let wanted = u32::try_from(slice.most).unwrap_or(u32::MAX);
        Self { rest: slice, span: FIRST_PART_EACH.saturating_mul(wanted), now }
    }

    /// The part that comes next; none at the end.
    fn part(&self) -> Option<Slice> {
        let Slice { mut from, mut to, .. } = self.rest;
        if from >= to {
            return None;
        }
        if self.rest.newest_first {
            let start = ids::time_of(to).min(self.now).minus(self.span);
            if start > FIRST {
                from = from.max(ids::floor_at(start));
            }
        } else {
            let end = ids::time_of(from).max(FIRST).plus(self.span);
            if end < self.now {
                to = to.min(ids::floor_at(end));
            }
        }
        Some(Slice { from, to, ..self.rest })
    }

    /// Goes on behind a part of which `found` posts were read, the last of them this one where there are more.
    fn go_on(&mut self, part: Slice, found: usize, cut: Option<Uuid>) {
        let end = match (cut, self.rest.newest_first) {
            (Some(last), true) => last,
            (Some(last), false) => Uuid::from_u128(last.as_u128().saturating_add(1)),
            (None, true) => part.from,
            (None, false) => part.to,
        };
        let (later, earlier) = if self.rest.newest_first { (part.to, end) } else { (end, part.from) };
        // As long as those stood that were read, or as the part was.
        let held = if cut.is_some() { ids::time_of(later).min(self.now).since(ids::time_of(earlier)) } else { self.span };
        self.span = next_slice(held, found).max(SHORTEST_SLICE);
        if self.rest.newest_first {
            self.rest.to = end;
        } else {
            self.rest.from = end;
        }
    }
}

impl Store {
    /// A page of the posts with a tag, as [`rookery_domain::text::tag`] gives it, newest first: those that the viewer may see, without
    /// those of accounts that the viewer mutes. A tag that nobody has used is an empty list.
    pub async fn posts_with_tag(
        &self,
        tag: &str,
        viewer: Option<UserId>,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Page<Post, TimeCursor>> {
        let at = now();
        // The whole list as one slice: it is divided here.
        let extent = Extent { first: at, total: 0, now: at };
        let tagged = async |slice: Slice| self.tagged_in(tag, viewer, Walk::new(slice, at)).await;
        let mut page = time_page::newest_first(cursor, limit, extent, tagged).await?;
        self.flag(viewer, &mut page.items).await?;
        Ok(page)
    }

    /// The first posts of a slice that the viewer sees, as many as it asks for.
    async fn tagged_in(&self, tag: &str, viewer: Option<UserId>, mut walk: Walk) -> Result<Vec<(Uuid, Post)>> {
        let (most, mut ask) = (usize::try_from(walk.rest.most).unwrap_or(usize::MAX), walk.rest.most);
        let mut found = Vec::new();
        while found.len() < most
            && let Some(part) = walk.part()
        {
            // No condition but those of the index: see docs/access-patterns.md.
            let posts = self.coll::<PostDoc>(POSTS);
            let posts = posts.find(part.of(&doc! { "tags": tag })).sort(part.sort()).limit(ask).batch_size(ANSWER).await?;
            let posts: Vec<PostDoc> = posts.try_collect().await?;
            let cut = posts.last().filter(|_| i64::try_from(posts.len()) == Ok(ask)).map(|post| Uuid::from(post.id));
            walk.go_on(part, posts.len(), cut);
            let seen = self.seen_among(viewer, posts, Found::Met).await?;
            found.extend(seen.into_iter().map(|post| (post.id.0, post)));
            if cut.is_some() {
                ask = (2 * ask).min(MOST.max(walk.rest.most));
            }
        }
        found.truncate(most);
        Ok(found)
    }
}
