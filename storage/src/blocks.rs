//! Blocks: edges that forbid other edges.
//!
//! A block is a child too: its mark is written first and is `pending` until its sweep has removed the follows and requests both ways
//! ([`Store::sweep_block`]), by the request or after a crash by the applier. A follow is checked against blocks after it is written, a
//! block sweeps after it is marked, so that of two that race one always sees the other.

use std::collections::{BTreeMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{
    Limit, Page, UserId,
    graph::{BLOCK_LIMIT, BlockRefusal},
    page::TimeCursor,
    user::UserSince,
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Store,
    collections::{BLOCKS, FOLLOWS, USERS},
    error::is_duplicate_key,
    graph::{IdDoc, pair, removal},
    store::{b, commit, date, new_id, now, until_no_conflict},
    user_lists::Edges,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub blocker_id: bson::Uuid,
    pub blocked_id: bson::Uuid,
    pub created_at: bson::DateTime,
    /// The edges between the two have not been swept yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
}

impl Store {
    /// Makes a transaction that removes edges for the blocks between these pairs conflict with one that lifts such a block. It would
    /// not otherwise: a transaction reads a snapshot, and two that write different documents both commit, so that a follow made (and
    /// answered) after the block was lifted would be removed for it all the same. The mark says truly that there may be something to
    /// sweep; the applier clears it.
    pub(crate) async fn hold_blocks(&self, pairs: &[(UserId, UserId)], session: &mut ClientSession) -> Result<()> {
        let pending = doc! { "$set": { "pending": true } };
        self.coll::<BlockDoc>(BLOCKS).update_many(between(pairs), pending).session(session).await?;
        Ok(())
    }

    /// Makes `blocker` block `blocked`: marks it, then removes the follows and requests both ways. Repeating it changes nothing.
    pub async fn block(&self, blocker: UserId, blocked: UserId) -> Result<Result<(), BlockRefusal>> {
        if blocker == blocked {
            return Ok(Err(BlockRefusal::SelfBlock));
        }
        // Written first and counted after, so that no number of callers gets past the limit. One block too many stands for that moment.
        if self.mark_block(blocker, blocked).await? && self.blocks_of(blocker).await? > BLOCK_LIMIT {
            self.unblock(blocker, blocked).await?;
            return Ok(Err(BlockRefusal::LimitReached));
        }
        let Some(edges) = until_no_conflict(|| self.sweep_block(blocker, blocked)).await? else {
            return Ok(Err(BlockRefusal::NotFound));
        };
        for (edge, followee) in edges {
            self.attempt_or_leave(edge, followee).await?;
        }
        Ok(Ok(()))
    }

    /// The first half of a block: its mark, pending until the sweep is done. False: it stands already.
    pub(crate) async fn mark_block(&self, blocker: UserId, blocked: UserId) -> Result<bool> {
        let block = BlockDoc {
            id: b(new_id()),
            blocker_id: b(blocker),
            blocked_id: b(blocked),
            created_at: date(now()),
            pending: Some(true),
        };
        match self.coll::<BlockDoc>(BLOCKS).insert_one(&block).await {
            Ok(_) => Ok(true),
            // If its sweep is still to be done, it is done now.
            Err(error) if is_duplicate_key(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The second half of a block, in one transaction so that a sweep never outlives its block: if this block is still to be swept,
    /// marks the edges both ways removed. Gives those edges and their followees. None: one of the two accounts is gone, and the block with
    /// it.
    ///
    /// A deletion marks the account before it sweeps its blocks, and this looks at the accounts after the block is written: a block
    /// of an account that is found live here was there before the mark, and the deletion's sweep finds it.
    pub(crate) async fn sweep_block(&self, blocker: UserId, blocked: UserId) -> Result<Option<Vec<(bson::Uuid, UserId)>>> {
        // The block stands since its mark; said before the sweep too, since nobody comes back to a block that is swept.
        self.relations_changed(&[blocker, blocked]).await?;
        let mut session = self.begin().await?;
        let mine = doc! { "blockerId": b(blocker), "blockedId": b(blocked), "pending": true };
        let done = doc! { "$unset": { "pending": "" } };
        if self.coll::<BlockDoc>(BLOCKS).update_one(mine, done).session(&mut session).await?.matched_count == 0 {
            return Ok(Some(Vec::new()));
        }
        if !self.are_live(&[blocker, blocked], &mut session).await? {
            let block = doc! { "blockerId": b(blocker), "blockedId": b(blocked) };
            self.coll::<BlockDoc>(BLOCKS).delete_one(block).session(&mut session).await?;
            commit(session).await?;
            return Ok(None);
        }
        let edges = self.remove_between(blocker, blocked, &mut session).await?;
        commit(session).await?;
        self.relations_changed(&[blocker, blocked]).await?;
        Ok(Some(edges))
    }

    /// Whether all of these accounts are there and not being deleted.
    async fn are_live(&self, users: &[UserId], session: &mut ClientSession) -> Result<bool> {
        let ids: Vec<bson::Uuid> = users.iter().copied().map(b).collect();
        let live = doc! { "_id": { "$in": ids }, "state": "live" };
        let mut found = self.coll::<IdDoc>(USERS).find(live).projection(doc! { "_id": 1 }).session(&mut *session).await?;
        Ok(found.stream(session).try_collect::<Vec<_>>().await?.len() == users.len())
    }

    /// Makes `blocker` no longer block `blocked`. A sweep that is still pending is finished first, in the same transaction: else it would
    /// remove a follow made after the block was lifted.
    pub async fn unblock(&self, blocker: UserId, blocked: UserId) -> Result<()> {
        let edges = until_no_conflict(|| async {
            let mut session = self.begin().await?;
            let mine = doc! { "blockerId": b(blocker), "blockedId": b(blocked) };
            let block = self.coll::<BlockDoc>(BLOCKS).find_one_and_delete(mine).session(&mut session).await?;
            let edges = match block {
                Some(BlockDoc { pending: Some(true), .. }) => self.remove_between(blocker, blocked, &mut session).await?,
                _ => Vec::new(),
            };
            commit(session).await?;
            Ok(edges)
        })
        .await?;
        self.relations_changed(&[blocker, blocked]).await?;
        for (edge, followee) in edges {
            self.attempt_or_leave(edge, followee).await?;
        }
        Ok(())
    }

    async fn remove_between(&self, one: UserId, other: UserId, session: &mut ClientSession) -> Result<Vec<(bson::Uuid, UserId)>> {
        let mut removed = Vec::new();
        for (follower, followee) in [(one, other), (other, one)] {
            let mut standing = pair(follower, followee);
            standing.insert("state", doc! { "$in": ["active", "requested"] });
            let edge = self
                .coll::<IdDoc>(FOLLOWS)
                .find_one_and_update(standing, removal())
                .projection(doc! { "_id": 1 })
                .session(&mut *session)
                .await?;
            removed.extend(edge.map(|edge| (edge.id, followee)));
        }
        Ok(removed)
    }

    /// Sweeps of blocks whose request crashed.
    pub(crate) async fn finish_sweeps(&self) -> Result<usize> {
        let pending = self.coll::<BlockDoc>(BLOCKS).find(doc! { "pending": true }).limit(100).await?;
        let pending: Vec<BlockDoc> = pending.try_collect().await?;
        for block in &pending {
            let (blocker, blocked) = (UserId(block.blocker_id.into()), UserId(block.blocked_id.into()));
            until_no_conflict(|| self.sweep_block(blocker, blocked)).await?;
        }
        Ok(pending.len())
    }

    /// Of these (follower, followee) pairs, those between which a block stands, in either direction.
    pub(crate) async fn blocked_pairs(
        &self,
        pairs: &[(UserId, UserId)],
        session: Option<&mut ClientSession>,
    ) -> Result<HashSet<(UserId, UserId)>> {
        let blocks = self.coll::<BlockDoc>(BLOCKS);
        let find = blocks.find(between(pairs));
        let found: Vec<BlockDoc> = match session {
            Some(session) => find.session(&mut *session).await?.stream(session).try_collect().await?,
            None => find.await?.try_collect().await?,
        };
        let mut blocked = HashSet::new();
        for block in found {
            let (one, other) = (UserId(block.blocker_id.into()), UserId(block.blocked_id.into()));
            blocked.extend([(one, other), (other, one)]);
        }
        Ok(blocked)
    }

    /// A page of the accounts that an account blocks, newest first.
    pub async fn blocks(&self, blocker: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<UserSince, TimeCursor>> {
        let edges = Edges {
            name: BLOCKS,
            list: doc! { "blockerId": b(blocker) },
            key: "_id",
            other: "blockedId",
            first: blocker.time(),
            without_blocked: false,
        };
        self.users_since(blocker, edges, cursor, limit).await
    }

    async fn blocks_of(&self, blocker: UserId) -> Result<i64> {
        let count = self.coll::<BlockDoc>(BLOCKS).count_documents(doc! { "blockerId": b(blocker) }).await?;
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// The blocks between these pairs, in either direction.
fn between(pairs: &[(UserId, UserId)]) -> Document {
    let mut by_followee: BTreeMap<UserId, Vec<bson::Uuid>> = BTreeMap::new();
    for (follower, followee) in pairs {
        by_followee.entry(*followee).or_default().push(b(*follower));
    }
    let mut either = Vec::with_capacity(by_followee.len() * 2);
    for (followee, followers) in by_followee {
        either.push(doc! { "blockerId": b(followee), "blockedId": { "$in": &followers } });
        either.push(doc! { "blockedId": b(followee), "blockerId": { "$in": followers } });
    }
    doc! { "$or": either }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

    use rookery_domain::graph::{MUTE_LIMIT, MuteRefusal};

    use super::*;
    use crate::{
        collections::MUTES,
        mutes::MuteDoc,
        testing::{TestDatabase, user},
    };

    #[tokio::test]
    async fn nobody_blocks_or_mutes_more_than_the_limit_and_repeating_is_no_new_one() {
        let db = TestDatabase::new().await;
        let store = db.store();
        let me = user(store).await;
        let others = |n: i64| (0..n).map(|_| UserId(new_id())).collect::<Vec<_>>();
        let (blocked, muted) = (others(BLOCK_LIMIT), others(MUTE_LIMIT));
        let at = date(now());
        let blocks = blocked.iter().map(|other| BlockDoc {
            id: b(new_id()),
            blocker_id: b(me),
            blocked_id: b(*other),
            created_at: at,
            pending: None,
        });
        store.coll::<BlockDoc>(BLOCKS).insert_many(blocks).await.unwrap();
        let mutes = muted.iter().map(|other| MuteDoc { id: b(new_id()), muter_id: b(me), muted_id: b(*other), created_at: at });
        store.coll::<MuteDoc>(MUTES).insert_many(mutes).await.unwrap();
        for _ in 0..2 {
            let other = user(store).await;
            assert_eq!(store.block(me, other).await.unwrap(), Err(BlockRefusal::LimitReached));
            assert_eq!(store.mute(me, other).await.unwrap(), Err(MuteRefusal::LimitReached));
            assert_eq!(store.block(me, blocked[0]).await.unwrap(), Ok(()));
            assert_eq!(store.mute(me, muted[0]).await.unwrap(), Ok(()));
        }
        assert_eq!(store.blocks_of(me).await.unwrap(), BLOCK_LIMIT);
        store.unblock(me, blocked[0]).await.unwrap();
        store.unmute(me, muted[0]).await.unwrap();
        let other = user(store).await;
        assert_eq!(store.block(me, other).await.unwrap(), Ok(()));
        assert_eq!(store.mute(me, other).await.unwrap(), Ok(()));
        assert_eq!(store.block(me, me).await.unwrap(), Err(BlockRefusal::SelfBlock));
        assert_eq!(store.mute(me, me).await.unwrap(), Err(MuteRefusal::SelfMute));
    }
}
