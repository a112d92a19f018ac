//! Windows: each delivered post has an entry for every merged follower, and its author, whose window covers it.

use std::collections::HashSet;

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _};
use rookery_domain::UserId;
use serde::Deserialize;

use super::{Drift, DriftKind, next_up_to, stream};
use crate::{
    Result, Store,
    collections::{FOLLOWS, POSTS, TIMELINE_ENTRIES, TIMELINES, USERS},
    graph::IdDoc,
    store::{b, now},
    timelines::{EntryDoc, TimelineDoc, window_start},
};

/// Authors in one query: one branch of equality and range for each.
const BRANCHES: usize = 100;

/// Posts whose entries are looked up at a time.
const POSTS_AT_ONCE: usize = 500;

/// The authors that have delivered posts, as a Bloom filter: who is not in it needs no query, and its size does not grow with them.
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

    async fn load(store: &Store) -> Result<Self> {
        #[derive(Deserialize)]
        struct Author {
            user: bson::Uuid,
        }
        let mut authors = Self(vec![0; usize::try_from(Self::BITS / 64).unwrap_or(usize::MAX)]);
        let fields = doc! { "_id": 0, "user": "$author.userId" };
        let delivered = doc! { "delivery.state": "delivered" };
        let mut posts = store.coll::<Author>(POSTS).find(delivered).projection(fields).await?;
        while let Some(author) = posts.try_next().await? {
            for (word, bit) in Self::places(author.user).map(Self::word) {
                authors.0[word] |= bit;
            }
        }
        Ok(authors)
    }

    fn may_hold(&self, author: bson::Uuid) -> bool {
        Self::places(author).map(Self::word).iter().all(|(word, bit)| self.0[*word] & bit != 0)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EdgePart {
    follower_id: bson::Uuid,
    followee_id: bson::Uuid,
}

/// An act that should be in a window.
#[derive(Debug, Clone, Copy, Deserialize)]
struct ActPart {
    #[serde(rename = "_id")]
    post: bson::Uuid,
    actor: bson::Uuid,
}

/// Readers and whom they follow, side by side in one pass. What is kept in memory is one reader's followees.
pub(super) async fn check(store: &Store) -> Result<Vec<Drift>> {
    let authors = Authors::load(store).await?;
    let mut drift = Vec::new();
    let mut readers = stream::<IdDoc>(store, USERS, doc! {}, doc! { "_id": 1 }, doc! { "_id": 1 }).await?;
    let merged = doc! { "state": "active", "merged": true };
    let by_follower = doc! { "followerId": 1, "followeeId": 1 };
    let fields = doc! { "_id": 0, "followerId": 1, "followeeId": 1 };
    let mut edges = stream::<EdgePart>(store, FOLLOWS, merged, by_follower, fields).await?;
    while let Some(IdDoc { id: reader }) = readers.try_next().await? {
        let mut of: Vec<bson::Uuid> = if authors.may_hold(reader) { vec![reader] } else { Vec::new() };
        while let Some(edge) = next_up_to(&mut edges, |edge| edge.follower_id, reader).await? {
            if edge.follower_id == reader && authors.may_hold(edge.followee_id) {
                of.push(edge.followee_id);
            }
        }
        for act in missing(store, reader, &of).await? {
            drift.extend(recheck(store, reader, act).await?);
        }
    }
    Ok(drift)
}

/// Delivered posts of these authors that the reader's window covers and does not hold.
async fn missing(store: &Store, reader: bson::Uuid, of: &[bson::Uuid]) -> Result<Vec<ActPart>> {
    let mut missing = Vec::new();
    if of.is_empty() {
        return Ok(missing);
    }
    let user = UserId(reader.into());
    let since = b(window_start(user, store.timeline(user).await?, now()));
    for authors in of.chunks(BRANCHES) {
        let branch = |author: &bson::Uuid| {
            doc! { "author.userId": author, "_id": { "$gte": since }, "state": "live", "delivery.state": "delivered" }
        };
        let delivered = doc! { "$or": authors.iter().map(branch).collect::<Vec<_>>() };
        let posts = store.coll::<ActPart>(POSTS).find(delivered).projection(doc! { "actor": "$author.userId" }).await?;
        let mut posts = posts.try_chunks(POSTS_AT_ONCE);
        while let Some(acts) = posts.next().await {
            let acts = acts.map_err(|error| error.1)?;
            let ids: Vec<bson::Uuid> = acts.iter().map(|act| act.post).collect();
            let held = doc! { "ownerId": reader, "postId": { "$in": ids } };
            let held = store.coll::<EntryDoc>(TIMELINE_ENTRIES).find(held).await?;
            let held: HashSet<(bson::Uuid, bson::Uuid)> =
                held.map_ok(|entry| (entry.post_id, entry.actor_id)).try_collect().await?;
            missing.extend(acts.into_iter().filter(|act| !held.contains(&(act.post, act.actor))));
        }
    }
    Ok(missing)
}

/// Looks for one entry again in a snapshot, with everything that says that it should be there.
async fn recheck(store: &Store, reader: bson::Uuid, act: ActPart) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let post = doc! { "_id": act.post, "state": "live", "delivery.state": "delivered" };
    let edge = doc! { "followerId": reader, "followeeId": act.actor, "state": "active", "merged": true };
    let entry = doc! { "ownerId": reader, "postId": act.post, "actorId": act.actor };
    let timeline = store.coll::<TimelineDoc>(TIMELINES).find_one(doc! { "_id": reader }).session(&mut session).await?;
    let since = window_start(UserId(reader.into()), timeline, now());
    let delivered = store.coll::<Document>(POSTS).find_one(post).session(&mut session).await?.is_some();
    let merged = reader == act.actor || store.coll::<Document>(FOLLOWS).find_one(edge).session(&mut session).await?.is_some();
    let held = store.coll::<Document>(TIMELINE_ENTRIES).find_one(entry).session(&mut session).await?.is_some();
    let wanted = delivered && merged && uuid::Uuid::from(act.post) >= since;
    Ok((wanted && !held).then(|| Drift {
        kind: DriftKind::MissingEntry,
        subject: reader.into(),
        detail: format!("post {} by {} is delivered and not in the window", act.post, act.actor),
    }))
}
