//! Reading the home feed: skeleton, hydrate, rules, page.
//!
//! The posts are the truth, and a reader's window is a hint: whatever is not delivered is pulled, whatever lies below the window is
//! pulled from everybody followed, and what is shown is decided by what is followed *now*. So celebrities, fan-outs in flight or
//! parked, new follows and the three models are one rule.
//!
//! The order of the reads is what makes it whole: undelivered posts before the entries (a post that is being delivered is in one of
//! them), and the entries before `completeSince` (a window that is being trimmed is never taken for a complete one).

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, OnceLock, PoisonError},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, PostId, UserId,
    feed::{Act, FeedItem, merge, reason},
    ids,
    page::TimeCursor,
};
use serde::Deserialize;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{
    Error, Result, Store,
    collections::{FOLLOWS, POSTS},
    graph::FollowState,
    posts::PostDoc,
    store::{b, now},
    time_page::{self, Extent, Slice},
    timelines::{TimelineDoc, window_start},
};

/// Acts that one source gives for one slice at most: a slice that holds more is cut there.
const MOST: usize = 300;

/// Branches of one `$or`: one for each author that is pulled.
const BRANCHES: usize = 100;

/// How many readers' densities are remembered.
const READERS: u64 = 100_000;

/// A reader without a remembered density is taken to have so many items in all.
const UNKNOWN_TOTAL: f64 = 1_000.0;

/// A reader is never taken to have fewer items in all: a list of so few would be read in one slice, and one that reaches below the
/// window asks everybody followed.
const LEAST_TOTAL: f64 = 201.0;

/// What one read of a feed knows before it reads any slice.
struct Reader {
    id: UserId,
    /// Accounts known to be followed; others are asked for as they come up.
    follows: HashSet<UserId>,
    /// Followed authors of whom undelivered posts are pulled, oneself among them.
    undelivered: Vec<UserId>,
    /// Followed authors whose recent posts are not in the window: all of their posts are pulled.
    unmerged: Vec<UserId>,
    /// Everybody followed, read when the window's end is reached.
    everybody: OnceCell<Vec<UserId>>,
    /// The reader's window, as last read.
    timeline: Mutex<Option<TimelineDoc>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EdgeDoc {
    followee_id: bson::Uuid,
    merged: bool,
    state: FollowState,
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

/// Items per millisecond that each reader's last page had.
fn densities() -> &'static moka::sync::Cache<UserId, f64> {
    static DENSITIES: OnceLock<moka::sync::Cache<UserId, f64>> = OnceLock::new();
    DENSITIES.get_or_init(|| moka::sync::Cache::new(READERS))
}

impl Store {
    /// A page of a reader's home feed, newest first.
    pub async fn feed(&self, reader: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<FeedItem, TimeCursor>> {
        let (at, newest) = (now(), cursor.is_none());
        let reader = self.reader(reader).await?;
        // Below the window everybody followed is asked: no slice reaches there before what lies above is used up.
        let first = ids::time_of(window_start(reader.id, None, at));
        let age_ms = at.since(first).as_millis().max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "an estimate of how long a slice should be"
        )]
        let total = densities().get(&reader.id).map_or(UNKNOWN_TOTAL, |density| density * age_ms as f64).max(LEAST_TOTAL) as i64;
        let extent = Extent { first, total, now: at };
        let page = time_page::newest_first(cursor, limit, extent, async |slice| self.feed_slice(&reader, slice).await).await?;
        if let (Some(first), Some(last)) = (page.items.first(), page.items.last())
            && page.items.len() > 1
        {
            let span_ms = first.post.id.time().since(last.post.id.time()).as_millis().max(1);
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            densities().insert(reader.id, page.items.len() as f64 / span_ms as f64);
        }
        if newest && reader.timeline.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|timeline| timeline.is_stale(at)) {
            self.note_read(reader.id).await?;
        }
        Ok(page)
    }

    /// Which of the authors that must be pulled the reader follows: one query, two where some follows are fresh.
    async fn reader(&self, id: UserId) -> Result<Reader> {
        /// Beyond so many authors it is cheaper to read whom the reader follows.
        const FEW: usize = 500;
        let undelivered = self.shared().undelivered();
        let me = b(id);
        let mut filter = doc! { "followerId": me };
        if undelivered.len() <= FEW {
            let authors: Vec<bson::Uuid> = undelivered.iter().copied().map(b).collect();
            filter.insert("followeeId", doc! { "$in": authors });
        }
        let edges = async { if undelivered.is_empty() { Ok(Vec::new()) } else { self.edges(filter).await } };
        let fresh = async {
            // The set in memory only spares the query: it may name too many readers.
            if self.shared().has_unmerged(id) {
                self.edges(doc! { "merged": false, "followerId": me }).await
            } else {
                Ok(Vec::new())
            }
        };
        let (edges, fresh) = futures::try_join!(edges, fresh)?;
        let followees: HashSet<UserId> = edges.iter().map(|edge| UserId(edge.followee_id.into())).collect();
        let unmerged: Vec<UserId> =
            edges.iter().filter(|edge| !edge.merged).chain(&fresh).map(|edge| UserId(edge.followee_id.into())).collect();
        let unmerged: HashSet<UserId> = unmerged.into_iter().collect();
        let pulled = undelivered.into_iter().filter(|author| *author == id || followees.contains(author));
        Ok(Reader {
            id,
            undelivered: pulled.filter(|author| !unmerged.contains(author)).collect(),
            follows: followees.union(&unmerged).copied().collect(),
            unmerged: unmerged.into_iter().collect(),
            everybody: OnceCell::new(),
            timeline: Mutex::new(None),
        })
    }

    /// The active ones among these edges. The filter says only what the index has: a server may read all of a reader's edges for more.
    async fn edges(&self, filter: Document) -> Result<Vec<EdgeDoc>> {
        let fields = doc! { "_id": 0, "followeeId": 1, "merged": 1, "state": 1 };
        let found = self.coll::<EdgeDoc>(FOLLOWS).find(filter).projection(fields).await?;
        Ok(found.try_filter(|edge| std::future::ready(edge.state == FollowState::Active)).try_collect().await?)
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
        let mut sources = vec![
            self.posts_in("delivery.pull", &reader.undelivered, slice).await?,
            self.posts_in("author.userId", &reader.unmerged, slice).await?,
        ];
        let entries = self.entries(reader.id, from, to, newest_first, MOST).await?;
        let timeline = self.timeline(reader.id).await?;
        let since = window_start(reader.id, timeline, now());
        *reader.timeline.lock().unwrap_or_else(PoisonError::into_inner) = timeline;
        let cut = entries.len() == MOST;
        let entries = entries.into_iter().map(|entry| Act {
            slot: entry.slot.into(),
            post: PostId(entry.post_id.into()),
            actor: UserId(entry.actor_id.into()),
        });
        sources.push((entries.collect(), cut));
        if from < since {
            let everybody = reader.everybody.get_or_try_init(|| self.everybody(reader.id)).await?;
            sources.push(self.posts_in("author.userId", everybody, Slice { to: to.min(since), ..slice }).await?);
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
        let acts = merge(sources.into_iter().flat_map(|(acts, _)| acts).filter(inside), newest_first);
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

    async fn everybody(&self, reader: UserId) -> Result<Vec<UserId>> {
        let edges = self.edges(doc! { "followerId": b(reader) }).await?;
        Ok(edges.into_iter().map(|edge| UserId(edge.followee_id.into())).chain([reader]).collect())
    }

    /// Hydrates acts and applies the rules; what is gone for good leaves the window in passing.
    async fn shown_acts(&self, reader: &Reader, acts: &[Act]) -> Result<Vec<(Uuid, FeedItem)>> {
        let ids: Vec<bson::Uuid> = acts.iter().map(|act| b(act.post)).collect();
        let unknown: HashSet<UserId> = acts.iter().map(|act| act.actor).filter(|actor| !reader.knows(*actor)).collect();
        let posts = async {
            let found = self.coll::<PostDoc>(POSTS).find(doc! { "_id": { "$in": ids }, "state": "live" }).await?;
            let posts: HashMap<PostId, PostDoc> = found.map_ok(|post| (PostId(post.id.into()), post)).try_collect().await?;
            Ok::<_, Error>(posts)
        };
        let followed = async {
            if unknown.is_empty() {
                return Ok::<_, Error>(HashSet::new());
            }
            let actors: Vec<bson::Uuid> = unknown.into_iter().map(b).collect();
            let edges = doc! { "followerId": b(reader.id), "followeeId": { "$in": actors } };
            Ok(self.edges(edges).await?.into_iter().map(|edge| UserId(edge.followee_id.into())).collect::<HashSet<_>>())
        };
        let (mut posts, followed) = futures::try_join!(posts, followed)?;
        let (mut shown, mut dead) = (Vec::with_capacity(acts.len()), Vec::new());
        for act in acts {
            let Some(post) = posts.remove(&act.post) else {
                dead.push(act.post);
                continue;
            };
            let (own, author) = (act.actor == reader.id, act.actor);
            let following = reader.follows.contains(&author) || followed.contains(&author);
            if let Some(kind) = reason(own, following, self.is_celebrity(author)) {
                let post = self.shown(post, Some(reader.id));
                shown.push((act.slot, FeedItem { kind, by: vec![post.author.clone()], post }));
            }
        }
        if !dead.is_empty() {
            self.drop_entries(reader.id, &dead).await?;
        }
        Ok(shown)
    }
}

impl Reader {
    /// Whether it is known without asking that the reader sees the posts of `actor`.
    fn knows(&self, actor: UserId) -> bool {
        actor == self.id || self.follows.contains(&actor)
    }
}
