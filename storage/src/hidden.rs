//! Whom a viewer does not see.
//!
//! A block hides each of the two from the other everywhere, a mute hides the author from the muter where they did not look for them: the
//! table in docs/api-design.md says where. Lists ask for the few accounts that they are about to show ([`Store::hidden_among`]), by the
//! last key of an index each way, so that the number of one's blocks makes no difference. Only what is counted for a viewer needs
//! everybody ([`Store::hidden_from`]).

use std::collections::HashSet;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::UserId;
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{BLOCKS, MUTES},
    store::b,
};

/// Accounts that a viewer does not see, or not everywhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hidden {
    blocked: HashSet<UserId>,
    muted: HashSet<UserId>,
}

impl Hidden {
    /// A block stands between the two, in either direction.
    pub(crate) fn is_blocked(&self, user: UserId) -> bool {
        self.blocked.contains(&user)
    }

    /// What the account writes is not shown where the viewer did not look for it: it is muted, or a block stands.
    pub(crate) fn is_silenced(&self, user: UserId) -> bool {
        self.muted.contains(&user) || self.is_blocked(user)
    }

    /// Everybody who is silenced, each once.
    pub(crate) fn silenced(&self) -> impl Iterator<Item = UserId> {
        self.blocked.union(&self.muted).copied()
    }

    /// Learns of more accounts.
    pub(crate) fn extend(&mut self, more: Self) {
        self.blocked.extend(more.blocked);
        self.muted.extend(more.muted);
    }

    /// How many accounts are hidden.
    pub(crate) fn len(&self) -> usize {
        self.blocked.len() + self.muted.len()
    }
}

#[derive(Debug, Deserialize)]
struct OtherDoc {
    other: bson::Uuid,
}

impl Store {
    /// Who of `users` is hidden from a viewer; from an anonymous one nobody is.
    pub(crate) async fn hidden_among(&self, viewer: Option<UserId>, users: impl IntoIterator<Item = UserId>) -> Result<Hidden> {
        let Some(viewer) = viewer else { return Ok(Hidden::default()) };
        let users: HashSet<UserId> = users.into_iter().filter(|user| *user != viewer).collect();
        if users.is_empty() {
            return Ok(Hidden::default());
        }
        let these: Vec<bson::Uuid> = users.into_iter().map(b).collect();
        self.hidden_where(viewer, &doc! { "$in": these }).await
    }

    /// Everybody who is hidden from a viewer.
    pub(crate) async fn hidden_from(&self, viewer: Option<UserId>) -> Result<Hidden> {
        match viewer {
            Some(viewer) => self.hidden_where(viewer, &doc! {}).await,
            None => Ok(Hidden::default()),
        }
    }

    /// Everybody who is hidden from a viewer, if they are few enough to be kept: at most this many of each kind.
    pub(crate) async fn hidden_if_few(&self, viewer: UserId, most: usize) -> Result<Option<Hidden>> {
        let limit = i64::try_from(most + 1).unwrap_or(i64::MAX);
        let hidden = self.hidden_up_to(viewer, &doc! {}, limit).await?;
        Ok((hidden.blocked.len() <= most && hidden.muted.len() <= most).then_some(hidden))
    }

    /// Whether a block stands between the viewer and this account.
    pub(crate) async fn is_blocked(&self, viewer: Option<UserId>, user: UserId) -> Result<bool> {
        Ok(self.hidden_among(viewer, [user]).await?.is_blocked(user))
    }

    async fn hidden_where(&self, viewer: UserId, other: &Document) -> Result<Hidden> {
        // No limit.
        self.hidden_up_to(viewer, other, 0).await
    }

    async fn hidden_up_to(&self, viewer: UserId, other: &Document, limit: i64) -> Result<Hidden> {
        let (blocking, blocked_by, muted) = futures::try_join!(
            self.others(BLOCKS, "blockerId", viewer, "blockedId", other, limit),
            self.others(BLOCKS, "blockedId", viewer, "blockerId", other, limit),
            self.others(MUTES, "muterId", viewer, "mutedId", other, limit),
        )?;
        Ok(Hidden { blocked: blocking.into_iter().chain(blocked_by).collect(), muted })
    }

    async fn others(
        &self,
        name: &str,
        mine: &str,
        viewer: UserId,
        theirs: &str,
        other: &Document,
        limit: i64,
    ) -> Result<HashSet<UserId>> {
        let mut filter = doc! { mine: b(viewer) };
        if !other.is_empty() {
            filter.insert(theirs, other.clone());
        }
        let fields = doc! { "_id": 0, "other": format!("${theirs}") };
        let found = self.coll::<OtherDoc>(name).find(filter).projection(fields).limit(limit).await?;
        Ok(found.map_ok(|doc| UserId(doc.other.into())).try_collect().await?)
    }
}
