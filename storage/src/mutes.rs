//! Mutes: whom an account does not want to hear of. Nobody else is told, and nothing but what the muter is shown depends on them.

use bson::doc;
use rookery_domain::{
    Limit, Page, UserId,
    graph::{MUTE_LIMIT, MuteRefusal},
    page::TimeCursor,
    user::UserSince,
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Store,
    collections::MUTES,
    error::is_duplicate_key,
    store::{b, date, new_id, now},
    user_lists::Edges,
};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MuteDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub muter_id: bson::Uuid,
    pub muted_id: bson::Uuid,
    pub created_at: bson::DateTime,
}

impl Store {
    /// Makes `muter` mute `muted`. Repeating it changes nothing.
    pub async fn mute(&self, muter: UserId, muted: UserId) -> Result<Result<(), MuteRefusal>> {
        if muter == muted {
            return Ok(Err(MuteRefusal::SelfMute));
        }
        let mute = MuteDoc { id: b(new_id()), muter_id: b(muter), muted_id: b(muted), created_at: date(now()) };
        match self.coll::<MuteDoc>(MUTES).insert_one(&mute).await {
            Ok(_) => {}
            // It stands already; but the call that made it may have crashed before it said so.
            Err(error) if is_duplicate_key(&error) => {
                self.relations_changed(&[muter]).await?;
                return Ok(Ok(()));
            }
            Err(error) => return Err(error.into()),
        }
        // Written first and looked after: of a mute and a deletion that race, one sees the other. What a crash leaves in between names
        // nobody and hides nothing; a repair removes it.
        if self.summaries([muter, muted]).await?.len() < 2 {
            self.coll::<MuteDoc>(MUTES).delete_one(doc! { "_id": mute.id }).await?;
            return Ok(Err(MuteRefusal::NotFound));
        }
        // Written first and counted after, so that no number of callers gets past the limit.
        let mutes = self.coll::<MuteDoc>(MUTES).count_documents(doc! { "muterId": b(muter) }).await?;
        if i64::try_from(mutes).unwrap_or(i64::MAX) > MUTE_LIMIT {
            self.coll::<MuteDoc>(MUTES).delete_one(doc! { "_id": mute.id }).await?;
            return Ok(Err(MuteRefusal::LimitReached));
        }
        self.relations_changed(&[muter]).await?;
        Ok(Ok(()))
    }

    /// Makes `muter` no longer mute `muted`. Repeating it changes nothing.
    pub async fn unmute(&self, muter: UserId, muted: UserId) -> Result<()> {
        self.coll::<MuteDoc>(MUTES).delete_one(doc! { "muterId": b(muter), "mutedId": b(muted) }).await?;
        self.relations_changed(&[muter]).await
    }

    /// A page of the accounts that an account mutes, newest first.
    pub async fn mutes(&self, muter: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<UserSince, TimeCursor>> {
        let edges = Edges {
            name: MUTES,
            list: doc! { "muterId": b(muter) },
            key: "_id",
            other: "mutedId",
            first: muter.time(),
            without_blocked: true,
        };
        self.users_since(muter, edges, cursor, limit).await
    }
}
