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
    collections::{POSTS, USERS},
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

/// Posts that are still to be delivered, by their author. A refresh replaces what it found, and this process adds its own.
#[derive(Debug, Default)]
struct Pending {
    found: HashMap<UserId, Vec<PostId>>,
    own: HashMap<UserId, Vec<(PostId, Instant)>>,
}

/// What a process remembers for all its readers.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    sets: RwLock<Sets>,
    /// The newest posts of authors who are pulled.
    pub heads: Heads,
    /// Whom readers follow.
    pub known: Known,
}

#[derive(Debug, Default)]
struct Sets {
    celebrities: HashSet<UserId>,
    /// Own flags and clearings so far: a refresh that read before one of them must not undo it.
    celebrity_changes: u64,
    /// Authors of whom some posts are pulled for good. It only grows.
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

    /// Remembers at once a post of this process that readers must pull for good.
    pub(crate) fn add_pulled(&self, author: UserId, post: PostId) {
        self.write().pulled.insert(author);
        self.heads.add(author, post.0);
    }

    /// Remembers at once a post of this process that readers must pull until it is delivered.
    pub(crate) fn add_pending(&self, author: UserId, post: PostId) {
        self.write().pending.own.entry(author).or_default().push((post, Instant::now()));
    }

    /// Of these authors, those of whom some posts are pulled for good, and the acts of all of them that are still to be delivered.
    pub(crate) fn undelivered<'a>(&self, authors: impl Iterator<Item = &'a UserId>) -> (Vec<UserId>, Vec<Act>) {
        let (mut pulled, mut pending) = (Vec::new(), Vec::new());
        let sets = self.read();
        for author in authors {
            if sets.pulled.contains(author) {
                pulled.push(*author);
            }
            let found = sets.pending.found.get(author).into_iter().flatten();
            let own = sets.pending.own.get(author).into_iter().flatten().map(|(post, _)| post);
            pending.extend(found.chain(own).map(|post| Act { slot: post.0, post: *post, actor: *author }));
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

#[derive(Debug, Deserialize)]
struct UndeliveredDoc {
    post: bson::Uuid,
    author: bson::Uuid,
}

impl Store {
    /// Whether the account is flagged as an outlier, as far as this process knows (others' changes within 500 ms).
    #[must_use]
    pub fn is_celebrity(&self, user: UserId) -> bool {
        self.shared().read().celebrities.contains(&user)
    }

    /// Reads again what other processes may have changed: four queries, each over a partial index as small as its answer.
    pub async fn refresh_shared(&self) -> Result<()> {
        let began = now();
        let (changes, seen, refreshed) = {
            let sets = self.shared().read();
            (sets.celebrity_changes, sets.pulled_seen, sets.refreshed)
        };
        let since = seen.map_or(Timestamp::from_millis(0), |seen| seen.minus(LOOK_BACK));
        // A head that was read before the last refresh is complete down to there.
        let posted = doc! { "delivery.pulledAt": { "$gte": date(refreshed.unwrap_or(began).minus(LOOK_BACK)) } };
        let (celebrities, pulled, pending, posted) = futures::try_join!(
            self.ids_where(doc! { "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } }),
            self.newly_pulled(since),
            self.undelivered_where(doc! { "delivery.state": "pending" }),
            self.undelivered_where(posted),
        )?;
        let mut found: HashMap<UserId, Vec<PostId>> = HashMap::new();
        for (author, post) in pending {
            found.entry(author).or_default().push(post);
        }
        for (author, post) in posted {
            self.shared().heads.add(author, post.0);
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
        sets.pending.own.retain(|_, posts| {
            posts.retain(|(_, at)| at.elapsed() < OWN_KEPT);
            !posts.is_empty()
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

    async fn undelivered_where(&self, filter: Document) -> Result<Vec<(UserId, PostId)>> {
        let fields = doc! { "_id": 0, "post": "$_id", "author": "$author.userId" };
        let found = self.coll::<UndeliveredDoc>(POSTS).find(filter).projection(fields).await?;
        Ok(found.map_ok(|post| (UserId(post.author.into()), PostId(post.post.into()))).try_collect().await?)
    }
}
