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
use rookery_domain::{PostId, Timestamp, UserId, feed::Act};
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{POSTS, REPOSTS, USERS},
    graph::IdDoc,
    heads::Heads,
    relations::Known,
    store::{date, now},
};

/// How long what this process added itself is kept whatever a refresh found: longer than a refresh can take, so that one that read
/// before the change cannot undo it.
const OWN_KEPT: Duration = Duration::from_secs(30);

/// How far an incremental refresh looks back behind the newest it has seen: other processes' clocks differ, and a document
/// commits after its time was taken.
const LOOK_BACK: Duration = Duration::from_secs(5);

/// Posts and reposts that are still to be delivered, by who made them. A refresh replaces what it found, and this process adds its own.
#[derive(Debug, Default)]
struct Pending {
    found: HashMap<UserId, Vec<Act>>,
    own: HashMap<UserId, Vec<(Act, Instant)>>,
}

/// What a process remembers for all its readers.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    sets: RwLock<Sets>,
    /// The newest posts and reposts of accounts who are pulled.
    pub heads: Heads,
    /// Whom readers follow.
    pub known: Known,
}

#[derive(Debug, Default)]
struct Sets {
    celebrities: HashSet<UserId>,
    /// Own flags and clearings so far: a refresh that read before one of them must not undo it.
    celebrity_changes: u64,
    /// Accounts of whom some posts or reposts are pulled for good. It only grows.
    pulled: HashSet<UserId>,
    pulled_seen: Option<Timestamp>,
    pending: Pending,
    /// When the last refresh that ended well began.
    refreshed: Option<Timestamp>,
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

    /// Remembers at once an act of this process that readers must pull for good.
    pub(crate) fn add_pulled(&self, act: Act) {
        self.write().pulled.insert(act.actor);
        self.heads.add(act);
    }

    /// Remembers at once an act of this process that readers must pull until it is delivered.
    pub(crate) fn add_pending(&self, act: Act) {
        self.write().pending.own.entry(act.actor).or_default().push((act, Instant::now()));
    }

    /// Of these accounts, those of whom some acts are pulled for good, and the acts of all of them that are still to be delivered.
    pub(crate) fn undelivered<'a>(&self, actors: impl Iterator<Item = &'a UserId>) -> (Vec<UserId>, Vec<Act>) {
        let (mut pulled, mut pending) = (Vec::new(), Vec::new());
        let sets = self.read();
        for actor in actors {
            if sets.pulled.contains(actor) {
                pulled.push(*actor);
            }
            let found = sets.pending.found.get(actor).into_iter().flatten();
            let own = sets.pending.own.get(actor).into_iter().flatten().map(|(act, _)| act);
            pending.extend(found.chain(own).copied());
        }
        (pulled, pending)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PulledDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    pulled_since: bson::DateTime,
}

/// A post or a repost as an act.
#[derive(Debug, Deserialize)]
pub(crate) struct ActDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    post: bson::Uuid,
    actor: bson::Uuid,
}

impl ActDoc {
    /// The fields of a document of the collection `name`, [`POSTS`] or [`REPOSTS`].
    pub(crate) fn fields(name: &str) -> Document {
        if name == POSTS {
            doc! { "post": "$_id", "actor": "$author.userId" }
        } else {
            doc! { "post": "$postId", "actor": "$userId" }
        }
    }
}

impl From<ActDoc> for Act {
    fn from(doc: ActDoc) -> Self {
        Self { slot: doc.id.into(), post: PostId(doc.post.into()), actor: UserId(doc.actor.into()) }
    }
}

impl Store {
    /// Whether the account is flagged as an outlier, as far as this process knows (others' changes within 500 ms).
    #[must_use]
    pub fn is_celebrity(&self, user: UserId) -> bool {
        self.shared().read().celebrities.contains(&user)
    }

    /// Reads again what other processes may have changed: six queries, each over a partial index as small as its answer.
    pub async fn refresh_shared(&self) -> Result<()> {
        let began = now();
        let (changes, seen, refreshed) = {
            let sets = self.shared().read();
            (sets.celebrity_changes, sets.pulled_seen, sets.refreshed)
        };
        let since = seen.map_or(Timestamp::from_millis(0), |seen| seen.minus(LOOK_BACK));
        // A head that was read before the last refresh is complete down to there.
        let posted = doc! { "delivery.pulledAt": { "$gte": date(refreshed.unwrap_or(began).minus(LOOK_BACK)) } };
        let waiting = doc! { "delivery.state": "pending" };
        let (celebrities, pulled, pending, pending_reposts, posted, reposted) = futures::try_join!(
            self.ids_where(doc! { "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } }),
            self.newly_pulled(since),
            self.acts_where(POSTS, waiting.clone()),
            self.acts_where(REPOSTS, waiting),
            self.acts_where(POSTS, posted.clone()),
            self.acts_where(REPOSTS, posted),
        )?;
        let mut found: HashMap<UserId, Vec<Act>> = HashMap::new();
        for act in pending.into_iter().chain(pending_reposts) {
            found.entry(act.actor).or_default().push(act);
        }
        for act in posted.into_iter().chain(reposted) {
            self.shared().heads.add(act);
        }
        self.shared().heads.drop_old();
        let mut sets = self.shared().write();
        if sets.celebrity_changes == changes {
            sets.celebrities = celebrities;
        }
        for user in pulled {
            sets.pulled_seen = sets.pulled_seen.max(Some(crate::store::timestamp(user.pulled_since))).min(Some(now()));
            sets.pulled.insert(UserId(user.id.into()));
        }
        sets.pending.found = found;
        sets.pending.own.retain(|_, acts| {
            acts.retain(|(_, at)| at.elapsed() < OWN_KEPT);
            !acts.is_empty()
        });
        sets.refreshed = Some(began);
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

    /// The posts or reposts, as `name` says, that match a filter.
    async fn acts_where(&self, name: &str, filter: Document) -> Result<Vec<Act>> {
        let found = self.coll::<ActDoc>(name).find(filter).projection(ActDoc::fields(name)).await?;
        Ok(found.map_ok(Act::from).try_collect().await?)
    }
}
