//! Children that wait for the applier: none for longer than a minute.

use std::{collections::HashMap, time::Duration};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::Cursor;
use rookery_domain::{Timestamp, ids};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Drift, DriftKind, Pass, Place};
use crate::{
    Result, Store,
    collections::{BLOCKS, COMMENTS, FOLLOWS, LIKES, POSTS, REPOSTS},
    store::{ANSWER, now, timestamp},
};

/// How long a child may wait: an idle machine takes a second, the longest storm that was measured a few.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long those that are older than that are watched before they are reported: a child says when it was made, but not when what is
/// wanted of it last changed, and an applier that runs takes it within this.
const WATCHED: Duration = Duration::from_secs(3);

/// How often they are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Late children that are watched together, and kept in memory.
const TOGETHER: usize = 5_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChildPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: Option<String>,
    /// Of follows: new each time that the follow is wanted.
    wish: Option<bson::Uuid>,
    /// Of others; likes and reposts have nothing but their id.
    created_at: Option<bson::DateTime>,
}

impl ChildPart {
    fn fields() -> Document {
        doc! { "state": 1, "wish": 1, "createdAt": 1 }
    }

    fn made(&self) -> Timestamp {
        match (self.created_at, self.wish) {
            (Some(at), _) => timestamp(at),
            (None, wish) => ids::time_of(wish.unwrap_or(self.id).into()),
        }
    }
}

/// What a late child was when it was first seen: the wanted state, and of a follow the wish.
type Seen = (Option<String>, Option<bson::Uuid>);

/// Children that were made long ago and are pending through all of a while.
pub(super) async fn check(pass: &mut Pass) -> Result<()> {
    let store = pass.store.clone();
    for name in [FOLLOWS, BLOCKS, POSTS, COMMENTS, LIKES, REPOSTS] {
        let children = store.coll::<ChildPart>(name);
        let find = children.find(doc! { "pending": true });
        let mut pending = find.projection(ChildPart::fields()).batch_size(ANSWER).await?;
        loop {
            let mut late = late(&mut pending).await?;
            if late.is_empty() {
                break;
            }
            let until = Instant::now() + WATCHED;
            while !late.is_empty() && Instant::now() < until {
                tokio::time::sleep(LOOK_EVERY).await;
                retain_pending(&store, name, &mut late).await?;
            }
            for (id, (state, _)) in late {
                let id = bson::Uuid::from_bytes(id);
                let detail = format!("pending in {name}, {}", state.as_deref().unwrap_or("to be swept"));
                pass.report([Drift::new(DriftKind::StuckPending, id, detail).at(Place::In(name))]).await?;
            }
        }
    }
    Ok(())
}

/// The next late ones.
async fn late(pending: &mut Cursor<ChildPart>) -> Result<HashMap<[u8; 16], Seen>> {
    let before = now().minus(PATIENCE);
    let mut late = HashMap::new();
    while late.len() < TOGETHER
        && let Some(child) = pending.try_next().await?
    {
        if child.made() < before {
            late.insert(child.id.bytes(), (child.state, child.wish));
        }
    }
    Ok(late)
}

/// Keeps those that still wait for what they waited for.
async fn retain_pending(store: &Store, name: &str, late: &mut HashMap<[u8; 16], Seen>) -> Result<()> {
    let ids: Vec<bson::Uuid> = late.keys().map(|id| bson::Uuid::from_bytes(*id)).collect();
    let children = store.coll::<ChildPart>(name);
    let find = children.find(doc! { "_id": { "$in": ids }, "pending": true });
    let still = find.projection(ChildPart::fields()).batch_size(ANSWER).await?;
    let still: HashMap<[u8; 16], Seen> = still.map_ok(|child| (child.id.bytes(), (child.state, child.wish))).try_collect().await?;
    late.retain(|id, seen| still.get(id) == Some(seen));
    Ok(())
}
