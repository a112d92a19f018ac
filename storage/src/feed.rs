//! Reading the home feed: skeleton, hydrate, rules, page.
//!
//! The posts are the truth, and a reader's window is a hint: whatever is not delivered is pulled, whatever lies below the window is
//! pulled from everybody followed, and what is shown is decided by what is followed *now*. So celebrities, fan-outs in flight or
//! parked, new follows and the three models are one rule.
//!
//! The order of the reads is what makes it whole: undelivered posts before the entries (a post that is being delivered is in one of
//! them). The window's start may be read at any time: what lies below it is deleted an hour after it was raised.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, PostId, Timestamp, UserId,
    feed::{Act, FeedItem, merge, reason},
    ids,
    page::TimeCursor,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::POSTS,
    heads::Head,
    posts::PostDoc,
    relations::Relations,
    store::{b, now},
    time_page::{self, Extent, Slice},
    timelines::{TimelineDoc, window_start},
};

/// Acts that one source gives for one slice at most: a slice that holds more is cut there.
const MOST: usize = 300;

/// Branches of one `$or`: one for each author that is pulled.
const BRANCHES: usize = 100;

/// Of how many readers it is remembered what they saw last.
const READERS: u64 = 100_000;

/// A reader of whom nothing is remembered is taken to have so many items in all.
const UNKNOWN_TOTAL: f64 = 1_000.0;

/// A reader is never taken to have fewer items in all: a list of so few would be read in one slice, and one that reaches below the
/// window asks everybody followed.
const LEAST_TOTAL: f64 = 201.0;

/// What one read of a feed knows before it reads any slice.
struct Reader {
    id: UserId,
    /// Whom the reader follows.
    relations: Arc<Relations>,
    /// The slot down to which the window is complete.
    since: Uuid,
    /// Followed authors of whom some posts are pulled for good, oneself among them, and the newest of those posts.
    heads: Vec<(UserId, Arc<Head>)>,
    /// Acts of followed authors that are still to be delivered, one's own among them.
    pending: Vec<Act>,
}

#[derive(Debug, Deserialize)]
struct ActDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    author: ActorDoc,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ActorDoc {
    user_id: bson::Uuid,
}

impl From<ActDoc> for Act {
    fn from(post: ActDoc) -> Self {
        Self { slot: post.id.into(), post: PostId(post.id.into()), actor: UserId(post.author.user_id.into()) }
    }
}

/// What a reader's last page looked like. It says how to ask, never what is answered.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Items per millisecond in it.
    per_ms: f64,
    /// When the newest item of the newest page was made.
    newest: Timestamp,
}

fn last_seen() -> &'static moka::sync::Cache<UserId, Seen> {
    static SEEN: OnceLock<moka::sync::Cache<UserId, Seen>> = OnceLock::new();
    SEEN.get_or_init(|| moka::sync::Cache::new(READERS))
}

impl Store {
    /// A page of a reader's home feed, newest first.
    ///
    /// Three database commands where the process knows the reader's relations: the timeline, the entries of one slice, the posts.
    pub async fn feed(&self, reader: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<FeedItem, TimeCursor>> {
        let (at, newest) = (now(), cursor.is_none());
        let timeline = self.timeline(reader).await?;
        let reader = self.reader(reader, timeline).await?;
        let seen = last_seen().get(&reader.id);
        // Below the window everybody followed is asked: no slice reaches there before what lies above is used up.
        let first = ids::time_of(reader.since);
        // The first slice begins above the newest item that the reader has seen: a feed in which nothing happened since costs no slices.
        let upto = seen.filter(|_| newest).map_or(at, |seen| seen.newest.min(at));
        let age_ms = upto.since(first).as_millis().max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "an estimate of how long a slice should be"
        )]
        let total = seen.map_or(UNKNOWN_TOTAL, |seen| seen.per_ms * age_ms as f64).max(LEAST_TOTAL) as i64;
        let extent = Extent { first, total, now: upto };
        let page = time_page::newest_first(cursor, limit, extent, async |slice| self.feed_slice(&reader, slice).await).await?;
        if let (Some(first), Some(last)) = (page.items.first(), page.items.last())
            && page.items.len() > 1
        {
            let (first, last) = (first.post.id.time(), last.post.id.time());
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let per_ms = page.items.len() as f64 / first.since(last).as_millis().max(1) as f64;
            let newest = if newest { first } else { seen.map_or(at, |seen| seen.newest) };
            last_seen().insert(reader.id, Seen { per_ms, newest });
        }
        if newest && timeline.is_none_or(|timeline| timeline.is_stale(at)) {
            self.note_read(reader.id, timeline).await?;
        }
        Ok(page)
    }

    async fn reader(&self, id: UserId, timeline: Option<TimelineDoc>) -> Result<Reader> {
        let relations = self.reader_relations(id, timeline.as_ref()).await?;
        let (pulled, pending) = self.shared().undelivered(relations.followees().iter().chain([&id]));
        let heads = self.heads(pulled).await?;
        Ok(Reader { id, relations, since: window_start(id, timeline, now()), heads, pending })
    }

    /// The items of one slice that the reader sees, in the slice's order, at most as many as it asks for.
    async fn feed_slice(&self, reader: &Reader, slice: Slice) -> Result<Vec<(Uuid, FeedItem)>> {
        let most = usize::try_from(slice.most).unwrap_or(MOST);
        let (mut from, mut to, mut found) = (slice.from, slice.to, Vec::new());
        loop {
            let (acts, cut) = self.acts(reader, Slice { from, to, ..slice }).await?;
            // In portions a little larger than what is missing: a few of them are gone or hidden.
            let mut acts = acts.into_iter().peekable();
            while acts.peek().is_some() && found.len() < most {
                let portion: Vec<Act> = acts.by_ref().take(most - found.len() + 2).collect();
                found.extend(self.shown_acts(reader, &portion).await?);
            }
            match cut {
                Some(at) if found.len() < most && slice.newest_first => to = at,
                Some(at) if found.len() < most => from = at,
                _ => break,
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// The skeleton of a slice: acts from every source, in order, each post once. If a source gave as much as it may, the slice is cut
    /// there, and the second value says where to go on.
    async fn acts(&self, reader: &Reader, slice: Slice) -> Result<(Vec<Act>, Option<Uuid>)> {
        let Slice { from, to, newest_first, .. } = slice;
        let heads = reader.heads.iter().flat_map(|(author, head)| {
            head.within(slice).into_iter().map(|post| Act { slot: post, post: PostId(post), actor: *author })
        });
        let pending = reader.pending.iter().copied().filter(|act| (from..to).contains(&act.slot));
        let mut sources = vec![(merge(heads.chain(pending), newest_first), false)];
        // Below their heads the authors are asked.
        let deep: Vec<&(UserId, Arc<Head>)> = reader.heads.iter().filter(|(_, head)| from < head.from()).collect();
        if let Some(end) = deep.iter().map(|(_, head)| head.from()).max() {
            let authors: Vec<UserId> = deep.iter().map(|(author, _)| *author).collect();
            sources.push(self.posts_in("delivery.pull", &authors, Slice { to: to.min(end), ..slice }).await?);
        }
        if !reader.relations.unmerged.is_empty() {
            sources.push(self.posts_in("author.userId", &reader.relations.unmerged, slice).await?);
        }
        let entries = self.entries(reader.id, from, to, newest_first, MOST).await?;
        let cut = entries.len() == MOST;
        let entries = entries.into_iter().map(|entry| Act {
            slot: entry.slot.into(),
            post: PostId(entry.post_id.into()),
            actor: UserId(entry.actor_id.into()),
        });
        sources.push((entries.collect(), cut));
        if from < reader.since {
            let everybody: Vec<UserId> = reader.relations.followees().iter().copied().chain([reader.id]).collect();
            sources.push(self.posts_in("author.userId", &everybody, Slice { to: to.min(reader.since), ..slice }).await?);
        }
        // Where a source was cut short, the others know more than it does: the slice ends at the nearest cut.
        let end_of = |(acts, cut): &(Vec<Act>, bool)| acts.last().filter(|_| *cut).map(|act| act.slot);
        let ends = sources.iter().filter_map(end_of);
        let cut = if newest_first { ends.max() } else { ends.min() };
        let inside = |act: &Act| match cut {
            Some(end) if newest_first => act.slot >= end,
            Some(end) => act.slot <= end,
            None => true,
        };
        let silenced = |actor: UserId| reader.relations.hidden.as_ref().is_some_and(|hidden| hidden.is_silenced(actor));
        let followed = |act: &Act| act.actor == reader.id || reader.relations.follows(act.actor) && !silenced(act.actor);
        let acts = merge(sources.into_iter().flat_map(|(acts, _)| acts).filter(inside).filter(followed), newest_first);
        // The next part begins behind the cut.
        let next = cut.map(|end| if newest_first { end } else { Uuid::from_u128(end.as_u128() + 1) });
        Ok((acts, next))
    }

    /// Posts of the authors in a slice, by the index that leads with `field`: one branch of equality and range for each, since a list of
    /// authors under a range is read through all their posts. True: there are more.
    async fn posts_in(&self, field: &str, authors: &[UserId], slice: Slice) -> Result<(Vec<Act>, bool)> {
        let mut found: Vec<Act> = Vec::new();
        let mut cut = false;
        for authors in authors.chunks(BRANCHES) {
            let branch = |author: &UserId| slice.of(&doc! { field: b(*author) });
            let branches: Vec<Document> = authors.iter().map(branch).collect();
            let posts = self
                .coll::<ActDoc>(POSTS)
                .find(doc! { "$or": branches })
                .sort(slice.sort())
                .limit(i64::try_from(MOST).unwrap_or(i64::MAX))
                .batch_size(u32::try_from(MOST).unwrap_or(u32::MAX))
                .projection(doc! { "author.userId": 1 })
                .await?;
            let posts: Vec<Act> = posts.map_ok(Act::from).try_collect().await?;
            cut |= posts.len() == MOST;
            found.extend(posts);
        }
        let mut found = merge(found, slice.newest_first);
        if found.len() > MOST {
            // No branch was cut, but all of them together are.
            cut = true;
            found.truncate(MOST);
        }
        Ok((found, cut))
    }

    /// Hydrates acts of followed authors; what is gone for good leaves the window in passing.
    async fn shown_acts(&self, reader: &Reader, acts: &[Act]) -> Result<Vec<(Uuid, FeedItem)>> {
        let ids: Vec<bson::Uuid> = acts.iter().map(|act| b(act.post)).collect();
        let found = self.coll::<PostDoc>(POSTS).find(doc! { "_id": { "$in": ids } }).await?;
        let live = found.try_filter(|post| std::future::ready(post.is_live() && !self.is_deleting(post.author_id())));
        let posts: Vec<PostDoc> = live.try_collect().await?;
        let hidden = match &reader.relations.hidden {
            Some(hidden) => Cow::Borrowed(hidden),
            None => Cow::Owned(self.hidden_in_feed(reader.id, &posts).await?),
        };
        let mut posts: HashMap<PostId, PostDoc> = posts.into_iter().map(|post| (PostId(post.id.into()), post)).collect();
        let (mut shown, mut dead) = (Vec::with_capacity(acts.len()), Vec::new());
        for act in acts {
            let Some(post) = posts.remove(&act.post) else {
                self.shared().heads.forget(act.actor, act.slot);
                dead.push(act.post);
                continue;
            };
            let (own, following) = (act.actor == reader.id, reader.relations.follows(act.actor));
            if let Some(kind) = reason(own, following, self.is_celebrity(act.actor))
                && !hidden.is_silenced(act.actor)
            {
                let post = self.shown_without(post, Some(reader.id), &hidden);
                shown.push((act.slot, FeedItem { kind, by: vec![post.author.clone()], post }));
            }
        }
        if !dead.is_empty() {
            self.drop_entries(reader.id, &dead).await?;
        }
        Ok(shown)
    }
}
