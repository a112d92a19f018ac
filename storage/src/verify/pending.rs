//! Children that wait for the applier: none for longer than a minute.

use std::{collections::HashSet, time::Duration};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{Timestamp, ids};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Drift, DriftKind};
use crate::{
    Result, Store,
    collections::{BLOCKS, COMMENTS, FOLLOWS, LIKES, POSTS, REPOSTS},
    store::{now, timestamp},
};

/// How long a child may wait: an idle machine takes a second, the longest storm that was measured a few.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long those that are older than that are watched before they are reported: a child says when it was made, but not when what is
/// wanted of it last changed, and an applier that runs takes it within this.
const WATCHED: Duration = Duration::from_secs(3);

/// How often they are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
    fn made(&self) -> Timestamp {
        match (self.created_at, self.wish) {
            (Some(at), _) => timestamp(at),
            (None, wish) => ids::time_of(wish.unwrap_or(self.id).into()),
        }
    }
}

/// Children that were made long ago and are pending through all of a while. Those that are kept in memory are the late ones.
pub(super) async fn check(store: &Store) -> Result<Vec<Drift>> {
    let until = Instant::now() + WATCHED;
    let mut late = late(store).await?;
    while !late.is_empty() && Instant::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        let still = self::late(store).await?;
        late.retain(|child| still.contains(child));
    }
    let report = |(name, id, state): (&str, bson::Uuid, Option<String>)| Drift {
        kind: DriftKind::StuckPending,
        subject: id.into(),
        detail: format!("pending in {name}, {}", state.as_deref().unwrap_or("to be swept")),
    };
    Ok(late.into_iter().map(report).collect())
}

async fn late(store: &Store) -> Result<HashSet<(&'static str, bson::Uuid, Option<String>)>> {
    let before = now().minus(PATIENCE);
    let mut late = HashSet::new();
    for name in [FOLLOWS, BLOCKS, POSTS, COMMENTS, LIKES, REPOSTS] {
        let fields: Document = doc! { "state": 1, "wish": 1, "createdAt": 1 };
        let mut pending = store.coll::<ChildPart>(name).find(doc! { "pending": true }).projection(fields).await?;
        while let Some(child) = pending.try_next().await? {
            if child.made() < before {
                late.insert((name, child.id, child.state));
            }
        }
    }
    Ok(late)
}
