//! Likes and reposts: totals, numbers, and that what is not delivered is pulled.

use std::collections::HashSet;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use serde::Deserialize;

use super::{Drift, DriftKind, Numbers, next_up_to, stream};
use crate::{
    Result, Store,
    collections::{REPOSTS, USERS},
    posts::DeliveryState,
    reactions::{EdgeState, Kind, reposts::RepostDoc},
};

#[derive(Debug, Deserialize)]
struct ParentPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: String,
    total: i64,
    #[serde(default)]
    last: i64,
}

impl ParentPart {
    fn fields(kind: Kind) -> Document {
        doc! { "state": 1, "total": format!("${}", kind.counter()), "last": format!("${}", kind.last_seq()) }
    }

    fn is_live(&self) -> bool {
        self.state == "live"
    }
}

#[derive(Debug, Deserialize)]
struct EdgePart {
    parent: bson::Uuid,
    seq: Option<i64>,
    pending: Option<bool>,
}

impl EdgePart {
    fn fields(kind: Kind) -> Document {
        doc! { "_id": 0, "parent": format!("${}", kind.parent()), "seq": 1, "pending": 1 }
    }
}

/// Parents of each kind and their edges, side by side in one pass. What is to a parent that is not live is being removed.
pub(super) async fn check(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = Vec::new();
    for kind in Kind::ALL {
        let mut suspects = Vec::new();
        let parents = stream::<ParentPart>(store, kind.parents(), doc! {}, doc! { "_id": 1 }, ParentPart::fields(kind));
        let mut parents = parents.await?;
        let order = doc! { kind.parent(): 1, "seq": -1 };
        let mut edges = stream::<EdgePart>(store, kind.edges(), kind.of_this(), order, EdgePart::fields(kind)).await?;
        while let Some(parent) = parents.try_next().await? {
            let (mut total, mut last, mut seqs_fit) = (0, parent.last + 1, true);
            while let Some(edge) = next_up_to(&mut edges, |edge| edge.parent, parent.id).await? {
                if edge.parent != parent.id {
                    suspects.push(edge.parent);
                } else if let Some(seq) = edge.seq {
                    total += 1;
                    seqs_fit &= seq < last;
                    last = seq;
                }
            }
            if parent.is_live() && (!seqs_fit || total != parent.total) {
                suspects.push(parent.id);
            }
        }
        while let Some(edge) = edges.try_next().await? {
            suspects.push(edge.parent);
        }
        suspects.dedup();
        for parent in suspects {
            drift.extend(recheck(store, kind, parent).await?);
        }
    }
    Ok(drift)
}

/// Looks at one parent and its edges in a snapshot.
async fn recheck(store: &Store, kind: Kind, id: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let parents = store.coll::<ParentPart>(kind.parents());
    let parent = parents.find_one(doc! { "_id": id }).projection(ParentPart::fields(kind)).session(&mut session).await?;
    let edges = store.coll::<EdgePart>(kind.edges());
    let mut found = edges.find(doc! { kind.parent(): id }).projection(EdgePart::fields(kind)).session(&mut session).await?;
    let (mut total, mut orphans, mut numbers) = (0, 0, Numbers::default());
    let last = parent.as_ref().map_or(i64::MAX, |parent| parent.last);
    let mut stream = found.stream(&mut session);
    while let Some(edge) = stream.try_next().await? {
        if let Some(seq) = edge.seq {
            total += 1;
            numbers.take(seq, last);
        }
        orphans += usize::from(edge.pending.is_none());
    }
    let mut wrong = Vec::new();
    match parent {
        // The applier deletes what is pending to a parent that is gone.
        None if orphans > 0 => {
            wrong.push((DriftKind::OrphanReaction, format!("{orphans} in {} to what does not exist", kind.edges())));
        }
        Some(parent) if parent.is_live() => {
            if parent.total != total {
                let which = if kind == Kind::Repost { DriftKind::RepostCount } else { DriftKind::LikeCount };
                wrong.push((which, format!("counter {}, with a seq {total}", parent.total)));
            }
            wrong.extend(numbers.wrong.map(|seq| (DriftKind::ReactionSeq, format!("seq {seq} twice or beyond {last}"))));
        }
        _ => {}
    }
    Ok(wrong.into_iter().map(|(kind, detail)| Drift { kind, subject: id.into(), detail }).collect())
}

/// Reposts that are not delivered: whether readers pull them.
pub(super) async fn check_delivery(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = Vec::new();
    // Accounts of whom it is known that readers pull from them: they are few.
    let mut pulled = HashSet::new();
    let undelivered = doc! { "delivery.state": { "$ne": "delivered" } };
    let mut reposts = store.coll::<RepostDoc>(REPOSTS).find(undelivered).await?;
    while let Some(repost) = reposts.try_next().await? {
        let user = repost.user_id;
        if !pulled.contains(&user) && is_pulled(store, user, None).await? {
            pulled.insert(user);
        }
        if wrong(&repost, pulled.contains(&user)).is_some() {
            drift.extend(recheck_delivery(store, repost.id).await?);
        }
    }
    Ok(drift)
}

fn wrong(repost: &RepostDoc, pulled: bool) -> Option<DriftKind> {
    let delivery = &repost.delivery;
    match delivery.state {
        _ if repost.state != EdgeState::Active => None,
        DeliveryState::Delivered => None,
        _ if delivery.pull != Some(repost.user_id) => Some(DriftKind::NotPulled),
        DeliveryState::Pull => (!pulled).then_some(DriftKind::NotPulled),
        DeliveryState::Pending => delivery.run_after.is_none().then_some(DriftKind::ParkedFanout),
    }
}

async fn recheck_delivery(store: &Store, id: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let reposts = store.coll::<RepostDoc>(REPOSTS);
    let Some(repost) = reposts.find_one(doc! { "_id": id }).session(&mut session).await? else { return Ok(None) };
    let pulled = is_pulled(store, repost.user_id, Some(&mut session)).await?;
    let detail = format!("a repost, {:?}, pulled from {:?}, for good: {pulled}", repost.delivery.state, repost.delivery.pull);
    Ok(wrong(&repost, pulled).map(|kind| Drift { kind, subject: id.into(), detail }))
}

async fn is_pulled(store: &Store, user: bson::Uuid, session: Option<&mut mongodb::ClientSession>) -> Result<bool> {
    let users = store.coll::<Document>(USERS);
    let find = users.find_one(doc! { "_id": user, "pulledSince": { "$exists": true } }).projection(doc! { "_id": 1 });
    let found = match session {
        Some(session) => find.session(session).await?,
        None => find.await?,
    };
    Ok(found.is_some())
}
