//! Likes and reposts: totals and numbers.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use serde::Deserialize;

use super::{Drift, DriftKind, Numbers, Pass, Place, lowest};
use crate::{
    Result, Store,
    reactions::{EdgeState, Kind},
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
    #[serde(rename = "_id")]
    id: bson::Uuid,
    parent: bson::Uuid,
    /// Of likes: what kind of parent it is.
    target: Option<String>,
    state: EdgeState,
    seq: Option<i64>,
    pending: Option<bool>,
}

impl EdgePart {
    fn fields(kind: Kind) -> Document {
        doc! { "parent": format!("${}", kind.parent()), "target": 1, "state": 1, "seq": 1, "pending": 1 }
    }

    /// Whether it is to a parent of this kind: likes of posts and of comments stand in one collection.
    fn is_of(&self, kind: Kind) -> bool {
        self.target.as_deref() == kind.target()
    }

    /// Nobody waits for it, and yet it is not applied.
    fn is_lost(&self) -> bool {
        self.pending.is_none() && (self.state == EdgeState::Removed || self.seq.is_none())
    }
}

/// Parents of one kind and their edges, side by side in one pass. What is to a parent that is not live is being removed.
pub(super) async fn check(pass: &mut Pass, kind: Kind) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let fields = ParentPart::fields(kind);
    let mut parents = pass.stream::<ParentPart>(kind.parents(), "_id", doc! { "_id": 1 }, fields, |parent| parent.id).await?;
    let (order, fields) = (doc! { kind.parent(): 1, "seq": -1 }, EdgePart::fields(kind));
    let mut edges = pass.stream::<EdgePart>(kind.edges(), kind.parent(), order, fields, |edge| edge.parent).await?;
    let mut done = None;
    while let Some(at) = lowest([parents.key().await?, edges.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let parent = parents.next_up_to(at).await?.filter(ParentPart::is_live);
        let (mut total, mut orphans) = (0, false);
        let mut numbers = Numbers::up_to(parent.as_ref().map_or(i64::MAX, |parent| parent.last));
        while let Some(edge) = edges.next_up_to(at).await? {
            if !edge.is_of(kind) {
                continue;
            }
            orphans = parent.is_none();
            if !orphans && edge.is_lost() {
                pass.report(recheck_edge(&store, kind, edge.id).await?).await?;
            }
            if let Some(seq) = edge.seq {
                total += 1;
                numbers.take(seq);
            }
        }
        if orphans || parent.is_some_and(|parent| numbers.wrong.is_some() || total != parent.total) {
            pass.report(recheck(&store, kind, at).await?).await?;
        }
        done = Some(at);
    }
    Ok(None)
}

/// Looks at one edge again, in one read.
async fn recheck_edge(store: &Store, kind: Kind, id: bson::Uuid) -> Result<Option<Drift>> {
    let edges = store.coll::<EdgePart>(kind.edges());
    let edge = edges.find_one(doc! { "_id": id }).projection(EdgePart::fields(kind)).await?;
    Ok(edge.filter(EdgePart::is_lost).map(|edge| {
        let detail = format!("a reaction in the state {:?} with seq {:?} that nobody applies", edge.state, edge.seq);
        Drift::new(DriftKind::LostPending, id, detail).at(Place::In(kind.edges()))
    }))
}

/// Looks at one parent and its edges in a snapshot.
async fn recheck(store: &Store, kind: Kind, id: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let parents = store.coll::<ParentPart>(kind.parents());
    let parent = parents.find_one(doc! { "_id": id }).projection(ParentPart::fields(kind)).session(&mut session).await?;
    let edges = store.coll::<EdgePart>(kind.edges());
    let find = edges.find(doc! { kind.parent(): id }).sort(doc! { kind.parent(): 1, "seq": -1 });
    let mut found = find.projection(EdgePart::fields(kind)).session(&mut session).await?;
    let last = parent.as_ref().map_or(i64::MAX, |parent| parent.last);
    let (mut total, mut orphans, mut numbers) = (0, 0, Numbers::up_to(last));
    let mut stream = found.stream(&mut session);
    while let Some(edge) = stream.try_next().await? {
        if !edge.is_of(kind) {
            continue;
        }
        if let Some(seq) = edge.seq {
            total += 1;
            numbers.take(seq);
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
    Ok(wrong.into_iter().map(|(which, detail)| Drift::new(which, id, detail).at(Place::To(kind))).collect())
}
