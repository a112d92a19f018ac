//! Blocks whose sweep is done against the edges between the two, and requests against the accounts that they are made to.

use std::collections::HashSet;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, Place, Streamed};
use crate::{
    Result, Store,
    collections::{BLOCKS, FOLLOWS, MUTES, USERS},
    graph::{FollowDoc, IdDoc},
};

/// Blocks that are looked at together.
const TOGETHER: usize = 100;

/// One account against another.
#[derive(Debug, Clone, Deserialize)]
struct Against {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    by: bson::Uuid,
    of: bson::Uuid,
    pending: Option<bool>,
}

/// Blocks: both accounts are there, and no counted edge stands between them.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let fields = doc! { "by": "$blockerId", "of": "$blockedId", "pending": 1 };
    let mut blocks = pass.stream::<Against>(BLOCKS, "_id", doc! { "_id": 1 }, fields, |block| block.id).await?;
    let store = pass.store.clone();
    loop {
        let some = some(&mut blocks).await?;
        let Some(last) = some.last().map(|block| block.id) else { return Ok(None) };
        check_ends(pass, BLOCKS, &some).await?;
        let either: Vec<Document> = some.iter().flat_map(|block| [edge(block.by, block.of), edge(block.of, block.by)]).collect();
        let mut suspects: HashSet<[[u8; 16]; 2]> = HashSet::new();
        let mut edges = store.coll::<FollowDoc>(FOLLOWS).find(doc! { "$or": either }).await?;
        while let Some(edge) = edges.try_next().await? {
            let (one, other) = (edge.follower_id.bytes(), edge.followee_id.bytes());
            suspects.extend([[one, other], [other, one]]);
        }
        for block in some {
            if block.pending.is_none() && suspects.contains(&[block.by.bytes(), block.of.bytes()]) {
                pass.report(recheck(&store, &block).await?).await?;
            }
        }
        if let Some(stop) = pass.stops(Some(last)) {
            return Ok(Some(stop));
        }
    }
}

/// Mutes: both accounts are there.
pub(super) async fn check_mutes(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let fields = doc! { "by": "$muterId", "of": "$mutedId" };
    let mut mutes = pass.stream::<Against>(MUTES, "_id", doc! { "_id": 1 }, fields, |mute| mute.id).await?;
    loop {
        let some = some(&mut mutes).await?;
        let Some(last) = some.last().map(|mute| mute.id) else { return Ok(None) };
        check_ends(pass, MUTES, &some).await?;
        if let Some(stop) = pass.stops(Some(last)) {
            return Ok(Some(stop));
        }
    }
}

async fn some(all: &mut Streamed<Against>) -> Result<Vec<Against>> {
    let mut some = Vec::new();
    while some.len() < TOGETHER
        && let Some(next) = all.next().await?
    {
        some.push(next);
    }
    Ok(some)
}

/// An edge that a sweep should have taken: one that is pending under a block is withdrawn by the applier.
fn edge(follower: bson::Uuid, followee: bson::Uuid) -> Document {
    doc! { "followerId": follower, "followeeId": followee, "state": "active", "pending": { "$exists": false } }
}

async fn recheck(store: &Store, block: &Against) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let swept = doc! { "_id": block.id, "pending": { "$exists": false } };
    let stands = store.coll::<Document>(BLOCKS).find_one(swept).session(&mut session).await?.is_some();
    let between = doc! { "$or": [edge(block.by, block.of), edge(block.of, block.by)] };
    let edge = store.coll::<FollowDoc>(FOLLOWS).find_one(between).session(&mut session).await?;
    Ok(edge.filter(|_| stands).map(|edge| {
        let detail = format!("{} follows {} across a block", edge.follower(), edge.followee());
        Drift::new(DriftKind::BlockedEdge, block.by, detail).at(Place::With(block.of))
    }))
}

/// Whether the accounts at both ends are there. Who blocks looks after the write; so an account that is not there after a block that is
/// swept, or a mute, will not be.
async fn check_ends(pass: &mut Pass, name: &'static str, some: &[Against]) -> Result<()> {
    let store = pass.store.clone();
    let ends: Vec<bson::Uuid> = some.iter().flat_map(|one| [one.by, one.of]).collect();
    let there = store.coll::<IdDoc>(USERS).find(doc! { "_id": { "$in": ends } }).projection(doc! { "_id": 1 }).await?;
    let there: HashSet<[u8; 16]> = there.map_ok(|user| user.id.bytes()).try_collect().await?;
    for one in some.iter().filter(|one| one.pending.is_none()) {
        let gone = [one.by, one.of].into_iter().find(|end| !there.contains(&end.bytes()));
        let Some(gone) = gone else { continue };
        // In this order: an account goes after its blocks.
        let account = store.coll::<IdDoc>(USERS).find_one(doc! { "_id": gone }).await?;
        let stands = store.coll::<IdDoc>(name).find_one(doc! { "_id": one.id }).await?;
        if account.is_none() && stands.is_some() {
            let detail = format!("{name}: {} and {}, of whom {gone} does not exist", one.by, one.of);
            pass.report([Drift::new(DriftKind::OrphanBlock, one.id, detail).at(Place::In(name))]).await?;
        }
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    request_of: bson::Uuid,
    seq: Option<i64>,
}

/// Requests, in the order of the accounts that are asked: they wait for somebody who answers, and nobody counts them.
pub(super) async fn check_requests(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let (order, fields) = (doc! { "requestOf": 1, "wish": -1 }, doc! { "requestOf": 1, "seq": 1 });
    let mut requests = pass.stream::<RequestPart>(FOLLOWS, "requestOf", order, fields, |request| request.request_of).await?;
    let mut done = None;
    while let Some(asked) = requests.key().await? {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let private = store.coll::<Document>(USERS).find_one(doc! { "_id": asked, "settings.private": true }).await?.is_some();
        while let Some(request) = requests.next_up_to(asked).await? {
            if !private || request.seq.is_some() {
                pass.report(recheck_request(&store, &request).await?).await?;
            }
        }
        done = Some(asked);
    }
    Ok(None)
}

async fn recheck_request(store: &Store, request: &RequestPart) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let stands = doc! { "_id": request.id, "state": "requested", "pending": { "$exists": false } };
    let stands = store.coll::<FollowDoc>(FOLLOWS).find_one(stands).session(&mut session).await?;
    // Whoever has gone public is still accepting.
    let waits = doc! { "_id": request.request_of, "$or": [{ "settings.private": true }, { "opening": { "$gte": 1 } }] };
    let waits = store.coll::<Document>(USERS).find_one(waits).session(&mut session).await?.is_some();
    Ok(stands.filter(|edge| !waits || edge.seq.is_some()).map(|edge| {
        let detail = format!("{} asks {}, which waits for requests: {waits}; seq {:?}", edge.follower(), edge.followee(), edge.seq);
        Drift::new(DriftKind::StrayRequest, request.id, detail)
    }))
}
