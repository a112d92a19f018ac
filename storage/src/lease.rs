//! Leases: which process does a piece of background work.
//!
//! A lease is a document of `locks` with an end and an owner, a name made anew each time it is taken. It keeps two workers from doing
//! the same work twice at the same time; it never is what makes that work correct, since a process may be stopped for longer than its
//! lease lasts. Where that matters the holder's transaction writes the lease document too ([`Lease::hold`]), so that one who lost it
//! conflicts instead of committing (fencing). A lease that ran out without being given back is work that a crash left unfinished
//! ([`abandoned`]).

use std::time::Duration;

use bson::doc;
use futures::TryStreamExt as _;
use mongodb::{ClientSession, options::ReturnDocument};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store, collections,
    error::is_duplicate_key,
    store::{date, now},
};

/// How long a lease lasts unless it is renewed: long against a batch, short against a person's patience after a crash.
pub(crate) const LASTS: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
struct LockDoc {
    #[serde(rename = "_id")]
    name: String,
    owner: bson::Uuid,
    until: bson::DateTime,
}

/// A lease that is held. Give it back with [`Lease::release`]; one that is dropped runs out.
#[derive(Debug)]
pub(crate) struct Lease {
    store: Store,
    name: String,
    owner: bson::Uuid,
    /// The holder before did not give it back.
    pub(crate) inherited: bool,
}

impl Lease {
    /// Takes the lease if it is free or has run out.
    pub(crate) async fn take(store: &Store, name: &str) -> Result<Option<Self>> {
        let at = now();
        let free = doc! { "_id": name, "until": { "$lt": date(at) } };
        let owner = bson::Uuid::new();
        let mine = doc! { "$set": { "owner": owner, "until": date(at.plus(LASTS)) } };
        let taken = store
            .coll::<LockDoc>(collections::LOCKS)
            .find_one_and_update(free, mine)
            .upsert(true)
            .return_document(ReturnDocument::Before)
            .await;
        let lease = |inherited| Some(Self { store: store.clone(), name: name.to_owned(), owner, inherited });
        match taken {
            Ok(before) => Ok(lease(before.is_some())),
            // The upsert found it held.
            Err(error) if is_duplicate_key(&error) => Ok(None),
            Err(error) => match Error::from(error) {
                // Two took it at the same time; the other has it.
                Error::Conflict(_) => Ok(None),
                other => Err(other),
            },
        }
    }

    /// Takes the lease, waiting for whoever holds it.
    pub(crate) async fn wait(store: &Store, name: &str) -> Result<Self> {
        loop {
            if let Some(lease) = Self::take(store, name).await? {
                return Ok(lease);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Extends the lease inside a transaction, and makes the transaction conflict with whoever took the lease meanwhile. False means
    /// it is lost: abort.
    pub(crate) async fn hold(&self, session: &mut ClientSession) -> Result<bool> {
        let held = self
            .store
            .coll::<LockDoc>(collections::LOCKS)
            .update_one(self.mine(), doc! { "$set": { "until": date(now().plus(LASTS)) } })
            .session(session)
            .await?;
        Ok(held.matched_count == 1)
    }

    /// Extends the lease. False means it is lost.
    pub(crate) async fn renew(&self) -> Result<bool> {
        let until = doc! { "$set": { "until": date(now().plus(LASTS)) } };
        Ok(self.store.coll::<LockDoc>(collections::LOCKS).update_one(self.mine(), until).await?.matched_count == 1)
    }

    /// Gives the lease back: the work it stood for is done.
    pub(crate) async fn release(self) -> Result<()> {
        self.store.coll::<LockDoc>(collections::LOCKS).delete_one(self.mine()).await?;
        Ok(())
    }

    fn mine(&self) -> bson::Document {
        doc! { "_id": &self.name, "owner": self.owner }
    }
}

/// The names, with this beginning, of leases that ran out without being given back: their holder crashed.
pub(crate) async fn abandoned(store: &Store, prefix: &str) -> Result<Vec<String>> {
    // The collection is as small as the number of workers; the names sort by their beginning.
    let end = format!("{prefix}\u{10ffff}");
    let filter = doc! { "_id": { "$gte": prefix, "$lt": end }, "until": { "$lt": date(now()) } };
    let locks = store.coll::<LockDoc>(collections::LOCKS).find(filter).await?;
    Ok(locks.map_ok(|lock| lock.name).try_collect().await?)
}
