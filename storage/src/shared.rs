//! What a process remembers for all its readers: small sets that nearly every answer needs and that change rarely.
//!
//! A process knows its own changes at once, and those of others from [`Store::refresh_shared`], which a worker calls every 200 ms.
//! Each set may hold more than it should for a moment, never less, but for changes of other processes younger than that: an author
//! too many costs a query that finds nothing, a missing one would hide a post. Nothing here decides a write.

use std::{
    collections::{HashMap, HashSet},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{Timestamp, UserId};
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{FOLLOWS, POSTS, USERS},
    graph::IdDoc,
    store::{date, now},
};

/// How long what this process added itself is kept whatever a refresh found: longer than a refresh can take, so that one that read
/// before the change cannot undo it.
const OWN_KEPT: Duration = Duration::from_secs(30);

/// How far an incremental refresh looks back behind the newest it has seen: other processes' clocks differ, and a document
/// commits after its time was taken.
const LOOK_BACK: Duration = Duration::from_secs(5);

/// A set that a refresh replaces and this process adds to.
#[derive(Debug, Default)]
struct Replaced {
    found: HashSet<UserId>,
    own: HashMap<UserId, Instant>,
}

impl Replaced {
    fn contains(&self, user: &UserId) -> bool {
        self.found.contains(user) || self.own.contains_key(user)
    }

    fn replace(&mut self, found: HashSet<UserId>) {
        self.found = found;
        self.own.retain(|_, at| at.elapsed() < OWN_KEPT);
    }
}

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    sets: RwLock<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    celebrities: HashSet<UserId>,
    /// Own flags and clearings so far: a refresh that read before one of them must not undo it.
    celebrity_changes: u64,
    /// Authors of whom some posts are pulled for good. It only grows.
    pulled: HashSet<UserId>,
    pulled_seen: Option<Timestamp>,
    /// Authors of whom some posts are still to be delivered.
    pending: Replaced,
    /// Readers with follows whose followee's recent posts are not in their window yet.
    unmerged: Replaced,
}

impl Shared {
    // A set is whole after every statement, so that a panic elsewhere while it was held harms nothing.
    fn read(&self) -> RwLockReadGuard<'_, Sets> {
        self.sets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sets> {
        self.sets.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers at once what this process has just flagged or cleared.
    pub(crate) fn set_celebrity(&self, user: UserId, is: bool) {
        let mut sets = self.write();
        sets.celebrity_changes += 1;
        if is {
            sets.celebrities.insert(user);
        } else {
            sets.celebrities.remove(&user);
        }
    }

    /// Remembers at once that readers must pull a post of `author`, for good or until it is delivered.
    pub(crate) fn add_undelivered(&self, author: UserId, for_good: bool) {
        let mut sets = self.write();
        if for_good {
            sets.pulled.insert(author);
        } else {
            sets.pending.own.insert(author, Instant::now());
        }
    }

    /// Remembers at once that `reader` has a new follow.
    pub(crate) fn add_unmerged(&self, reader: UserId) {
        self.write().unmerged.own.insert(reader, Instant::now());
    }

    /// Authors of whom readers must pull.
    pub(crate) fn undelivered(&self) -> Vec<UserId> {
        let sets = self.read();
        let mut authors: Vec<UserId> =
            sets.pulled.iter().chain(&sets.pending.found).chain(sets.pending.own.keys()).copied().collect();
        authors.sort_unstable();
        authors.dedup();
        authors
    }

    /// Whether `reader` has follows that are not merged.
    pub(crate) fn has_unmerged(&self, reader: UserId) -> bool {
        self.read().unmerged.contains(&reader)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PulledDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    pulled_since: bson::DateTime,
}

#[derive(Debug, Deserialize)]
struct OfDoc {
    of: bson::Uuid,
}

impl Store {
    /// Whether the account is flagged as an outlier, as far as this process knows (others' changes within 500 ms).
    #[must_use]
    pub fn is_celebrity(&self, user: UserId) -> bool {
        self.shared().read().celebrities.contains(&user)
    }

    /// Reads again what other processes may have changed: four queries, each over a partial index as small as its answer.
    pub async fn refresh_shared(&self) -> Result<()> {
        let (changes, seen) = {
            let sets = self.shared().read();
            (sets.celebrity_changes, sets.pulled_seen)
        };
        let since = seen.map_or(Timestamp::from_millis(0), |seen| seen.minus(LOOK_BACK));
        let (celebrities, pulled, pending, unmerged) = futures::try_join!(
            self.ids_where(doc! { "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } }),
            self.newly_pulled(since),
            self.of_where(POSTS, doc! { "delivery.state": "pending" }, "$author.userId"),
            self.of_where(FOLLOWS, doc! { "merged": false }, "$followerId"),
        )?;
        let mut sets = self.shared().write();
        if sets.celebrity_changes == changes {
            sets.celebrities = celebrities;
        }
        for user in pulled {
            sets.pulled_seen = sets.pulled_seen.max(Some(crate::store::timestamp(user.pulled_since))).min(Some(now()));
            sets.pulled.insert(UserId(user.id.into()));
        }
        sets.pending.replace(pending);
        sets.unmerged.replace(unmerged);
        Ok(())
    }

    async fn ids_where(&self, filter: Document) -> Result<HashSet<UserId>> {
        let found = self.coll::<IdDoc>(USERS).find(filter).projection(doc! { "_id": 1 }).await?;
        Ok(found.map_ok(|user| UserId(user.id.into())).try_collect().await?)
    }

    async fn newly_pulled(&self, since: Timestamp) -> Result<Vec<PulledDoc>> {
        let filter = doc! { "pulledSince": { "$gte": date(since) } };
        let found = self.coll::<PulledDoc>(USERS).find(filter).projection(doc! { "pulledSince": 1 }).await?;
        Ok(found.try_collect().await?)
    }

    async fn of_where(&self, name: &str, filter: Document, of: &str) -> Result<HashSet<UserId>> {
        let found = self.coll::<OfDoc>(name).find(filter).projection(doc! { "_id": 0, "of": of }).await?;
        Ok(found.map_ok(|doc| UserId(doc.of.into())).try_collect().await?)
    }
}
