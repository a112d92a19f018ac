//! Whom a reader follows, kept in memory and never older than the last change that was acknowledged.
//!
//! Every page of a feed needs all of it, and on some databases reading two hundred edges costs more than the rest of the page. So a
//! process keeps what it read together with the `relations` mark of the reader's timeline, which the page reads anyway: whoever changes
//! an edge sets a new mark after the write and before the answer, in whatever process, and what was read under an older mark is not used.
//! A request that crashed between the two is made good by the applier, which finds its edge pending.

use std::sync::Arc;

use bson::doc;
use futures::TryStreamExt as _;
use moka::sync::Cache;
use rookery_domain::UserId;
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{FOLLOWS, TIMELINES},
    graph::FollowState,
    store::{b, new_id},
    timelines::TimelineDoc,
};

/// Followees kept for all readers together: 32 MB.
const MOST: u64 = 2_000_000;

/// Edges in one answer of the server: all that most readers have, where its own habit is a hundred.
const BATCH: u32 = 8_000;

/// What a process keeps of readers' relations.
#[derive(Debug)]
pub(crate) struct Known(Cache<UserId, Arc<Marked>>);

/// Relations, and the mark that they were read under.
#[derive(Debug)]
struct Marked {
    mark: Option<bson::Uuid>,
    relations: Arc<Relations>,
}

/// How a reader stands to others, as far as the feed depends on it.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    /// In order.
    followees: Vec<UserId>,
    /// Followees whose recent posts are not in the window yet.
    pub unmerged: Vec<UserId>,
}

impl Default for Known {
    fn default() -> Self {
        let weight =
            |_: &UserId, of: &Arc<Marked>| u32::try_from(of.relations.followees.len()).unwrap_or(u32::MAX).saturating_add(8);
        Self(Cache::builder().max_capacity(MOST).weigher(weight).build())
    }
}

impl Relations {
    /// Everybody whom the reader follows.
    pub(crate) fn followees(&self) -> &[UserId] {
        &self.followees
    }

    /// Whether the reader follows this account.
    pub(crate) fn follows(&self, user: UserId) -> bool {
        self.followees.binary_search(&user).is_ok()
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EdgeDoc {
    followee_id: bson::Uuid,
    merged: bool,
    state: FollowState,
}

impl Store {
    /// Says that the relations of these readers have changed: after the write, before the answer. One command, whatever their number.
    /// A reader who never read a feed has no timeline to mark, and nothing is kept of such.
    pub(crate) async fn relations_changed(&self, readers: &[UserId]) -> Result<()> {
        if readers.is_empty() {
            return Ok(());
        }
        let readers: Vec<bson::Uuid> = readers.iter().copied().map(b).collect();
        let mark = doc! { "$set": { "relations": b(new_id()) } };
        self.coll::<TimelineDoc>(TIMELINES).update_many(doc! { "_id": { "$in": readers } }, mark).await?;
        Ok(())
    }

    /// How a reader stands to others now. `timeline` is the reader's, read before this call.
    pub(crate) async fn reader_relations(&self, reader: UserId, timeline: Option<&TimelineDoc>) -> Result<Arc<Relations>> {
        let known = &self.shared().known;
        if let (Some(timeline), Some(marked)) = (timeline, known.0.get(&reader))
            && marked.mark == timeline.relations
        {
            return Ok(Arc::clone(&marked.relations));
        }
        let relations = Arc::new(self.read_relations(reader).await?);
        // A merge sets no mark: what is merged stays so until the next follow, but what is not will be soon.
        if let Some(timeline) = timeline
            && relations.unmerged.is_empty()
        {
            known.0.insert(reader, Arc::new(Marked { mark: timeline.relations, relations: Arc::clone(&relations) }));
        }
        Ok(relations)
    }

    async fn read_relations(&self, reader: UserId) -> Result<Relations> {
        let fields = doc! { "_id": 0, "followeeId": 1, "merged": 1, "state": 1 };
        // By the reader alone, and the state looked at here: see docs/access-patterns.md.
        let mut edges =
            self.coll::<EdgeDoc>(FOLLOWS).find(doc! { "followerId": b(reader) }).projection(fields).batch_size(BATCH).await?;
        let mut relations = Relations::default();
        while let Some(edge) = edges.try_next().await? {
            if edge.state == FollowState::Active {
                let followee = UserId(edge.followee_id.into());
                relations.followees.push(followee);
                if !edge.merged {
                    relations.unmerged.push(followee);
                }
            }
        }
        relations.followees.sort_unstable();
        Ok(relations)
    }
}
