//! Windows: each delivered post or repost has an entry for every merged follower, and who made it, whose window covers it.

use std::collections::{HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::UserId;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, Place};
use crate::{
    Result, Store,
    collections::{FOLLOWS, POSTS, REPOSTS, TIMELINE_ENTRIES, TIMELINES, USERS},
    graph::{FollowState, IdDoc},
    store::{ANSWER, b, now},
    timelines::{TimelineDoc, window_start},
};

/// Authors in one query: one branch of equality and range for each.
const BRANCHES: usize = 100;

/// The accounts that post or repost, as a Bloom filter: who is not in it needs no query, and its size does not grow with them.
struct Authors(Vec<u64>);

impl Authors {
    /// Bits: 1 MiB. With 400,000 authors one in a hundred of the others is asked for in vain.
    const BITS: u64 = 1 << 23;

    fn places(author: bson::Uuid) -> [u64; 2] {
        // The multiplier of Knuth's multiplicative hashing: 2^64 divided by the golden ratio.
        let hash = uuid::Uuid::from(author).as_u64_pair().1.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [(hash >> 41) % Self::BITS, (hash >> 18) % Self::BITS]
    }

    fn word(place: u64) -> (usize, u64) {
        (usize::try_from(place / 64).unwrap_or(usize::MAX), 1 << (place % 64))
    }

    /// Whoever ever had a post counted: a first look need not find what is being counted in this moment.
    async fn load(store: &Store) -> Result<Self> {
        let mut authors = Self(vec![0; usize::try_from(Self::BITS / 64).unwrap_or(usize::MAX)]);
        let users = store.coll::<IdDoc>(USERS);
        let acting = doc! { "$or": [{ "postSeq": { "$gte": 1 } }, { "repostsSince": { "$exists": true } }] };
        let mut users = users.find(acting).projection(doc! { "_id": 1 }).batch_size(ANSWER).await?;
        while let Some(author) = users.try_next().await? {
            for (word, bit) in Self::places(author.id).map(Self::word) {
                authors.0[word] |= bit;
            }
        }
        Ok(authors)
    }

    fn may_hold(&self, author: bson::Uuid) -> bool {
        Self::places(author).map(Self::word).iter().all(|(word, bit)| self.0[*word] & bit != 0)
    }
}

/// The delivered acts of accounts, as far back as any window reaches. Many readers follow the same accounts, so they are kept, up to a
/// number of acts; then the keeping begins anew.
#[derive(Default)]
struct Delivered {
    acts: HashMap<bson::Uuid, Vec<ActPart>>,
    kept: usize,
}

impl Delivered {
    /// 16 MB of ids.
    const MOST: usize = 1_000_000;

    /// The acts of these authors that a window from `since` on should hold.
    async fn by(&mut self, store: &Store, authors: &[bson::Uuid], since: bson::Uuid) -> Result<HashSet<ActPart>> {
        if self.kept > Self::MOST {
            *self = Self::default();
        }
        let unknown: Vec<bson::Uuid> = authors.iter().copied().filter(|author| !self.acts.contains_key(author)).collect();
        let oldest = b(window_start(UserId(uuid::Uuid::nil()), None, now()));
        for authors in unknown.chunks(BRANCHES) {
            self.acts.extend(authors.iter().map(|author| (*author, Vec::new())));
            // An author takes the place of some acts.
            self.kept += 4 * authors.len();
            for (name, actor, state, post) in SOURCES {
                let branch = |author: &bson::Uuid| {
                    doc! { actor: author, "_id": { "$gte": oldest }, "state": state, "delivery.state": "delivered" }
                };
                let delivered = doc! { "$or": authors.iter().map(branch).collect::<Vec<_>>() };
                let fields = doc! { "_id": 0, "slot": "$_id", "post": post, "actor": format!("${actor}"), "author": "$authorId" };
                let mut acts = store.coll::<DeliveredPart>(name).find(delivered).projection(fields).batch_size(ANSWER).await?;
                while let Some(act) = acts.try_next().await? {
                    // A repost of one's own post goes to nobody.
                    if act.author != Some(act.act.actor) {
                        self.acts.entry(act.act.actor).or_default().push(act.act);
                        self.kept += 1;
                    }
                }
            }
        }
        let acts = authors.iter().flat_map(|actor| self.acts.get(actor).into_iter().flatten().copied());
        Ok(acts.filter(|act| act.slot.bytes() >= since.bytes()).collect())
    }
}

/// Where acts come from: the collection, who did it, the state in which it is wanted, and which post.
const SOURCES: [(&str, &str, &str, &str); 2] = [(POSTS, "author.userId", "live", "$_id"), (REPOSTS, "userId", "active", "$postId")];

#[derive(Debug, Deserialize)]
struct DeliveredPart {
    #[serde(flatten)]
    act: ActPart,
    /// Of a repost: whose post it is.
    author: Option<bson::Uuid>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EdgePart {
    follower_id: bson::Uuid,
    followee_id: bson::Uuid,
    state: FollowState,
    merged: bool,
}

#[derive(Debug, Deserialize)]
struct WindowPart {
    #[serde(rename = "_id")]
    reader: bson::Uuid,
    #[serde(flatten)]
    timeline: TimelineDoc,
}

#[derive(Debug, Deserialize)]
struct EntryPart {
    owner: bson::Uuid,
    #[serde(flatten)]
    act: ActPart,
}

/// An act that should be in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct ActPart {
    pub slot: bson::Uuid,
    pub post: bson::Uuid,
    pub actor: bson::Uuid,
}

/// Readers, whom they follow, and their windows with what they hold, side by side in one pass. What is kept in memory is what one
/// reader's window should hold, and what is kept of [`Delivered`].
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let authors = Authors::load(&store).await?;
    let mut delivered = Delivered::default();
    let mut readers = pass.stream::<IdDoc>(USERS, "_id", doc! { "_id": 1 }, doc! { "_id": 1 }, |user| user.id).await?;
    let (order, fields) =
        (doc! { "followerId": 1, "followeeId": 1 }, doc! { "_id": 0, "followerId": 1, "followeeId": 1, "state": 1, "merged": 1 });
    let mut edges = pass.stream::<EdgePart>(FOLLOWS, "followerId", order, fields, |edge| edge.follower_id).await?;
    let mut windows = pass.stream::<WindowPart>(TIMELINES, "_id", doc! { "_id": 1 }, doc! {}, |window| window.reader).await?;
    let order = doc! { "ownerId": 1, "slot": -1 };
    let fields = doc! { "_id": 0, "owner": "$ownerId", "slot": 1, "post": "$postId", "actor": "$actorId" };
    let mut entries = pass.stream::<EntryPart>(TIMELINE_ENTRIES, "ownerId", order, fields, |entry| entry.owner).await?;
    while let Some(IdDoc { id: reader }) = readers.next().await? {
        let mut of: Vec<bson::Uuid> = if authors.may_hold(reader) { vec![reader] } else { Vec::new() };
        while let Some(edge) = edges.next_up_to(reader).await? {
            let merged = edge.state == FollowState::Active && edge.merged;
            if edge.follower_id == reader && merged && authors.may_hold(edge.followee_id) {
                of.push(edge.followee_id);
            }
        }
        let mut timeline = None;
        while let Some(window) = windows.next_up_to(reader).await? {
            timeline = (window.reader == reader).then_some(window.timeline);
        }
        let since = b(window_start(UserId(reader.into()), timeline, now()));
        let mut missing = delivered.by(&store, &of, since).await?;
        while let Some(entry) = entries.next_up_to(reader).await? {
            missing.remove(&entry.act);
        }
        for act in missing {
            pass.report(recheck(&store, reader, act).await?).await?;
        }
        if let Some(stop) = pass.stops(Some(reader)) {
            return Ok(Some(stop));
        }
    }
    Ok(None)
}

/// Looks for one entry again in a snapshot, with everything that says that it should be there.
async fn recheck(store: &Store, reader: bson::Uuid, act: ActPart) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let (name, _, state, _) = if act.slot == act.post { SOURCES[0] } else { SOURCES[1] };
    let done = doc! { "_id": act.slot, "state": state, "delivery.state": "delivered" };
    let live = doc! { "_id": act.post, "state": "live" };
    let edge = doc! { "followerId": reader, "followeeId": act.actor, "state": "active", "merged": true };
    let entry = doc! { "ownerId": reader, "postId": act.post, "actorId": act.actor, "slot": act.slot };
    let timeline = store.coll::<TimelineDoc>(TIMELINES).find_one(doc! { "_id": reader }).session(&mut session).await?;
    let since = window_start(UserId(reader.into()), timeline, now());
    let delivered = store.coll::<Document>(name).find_one(done).session(&mut session).await?.is_some()
        && store.coll::<Document>(POSTS).find_one(live).session(&mut session).await?.is_some();
    let merged = reader == act.actor || store.coll::<Document>(FOLLOWS).find_one(edge).session(&mut session).await?.is_some();
    let held = store.coll::<Document>(TIMELINE_ENTRIES).find_one(entry).session(&mut session).await?.is_some();
    let wanted = delivered && merged && uuid::Uuid::from(act.slot) >= since;
    Ok((wanted && !held).then(|| {
        let detail = format!("post {}, brought by {} as {}, is delivered and not in the window", act.post, act.actor, act.slot);
        Drift::new(DriftKind::MissingEntry, reader, detail).at(Place::Act(act))
    }))
}
