//! What a process remembers for all its readers: small sets that nearly every answer needs and that change rarely.
//!
//! A process knows its own changes at once, and those of others from [`Store::refresh_shared`], which a worker calls every 200 ms.
//! Nothing here decides a write: it saves reads, and chooses between two ways of which both are correct.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::UserId;
use serde::Deserialize;

use crate::{Result, Store, collections};

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    celebrities: RwLock<Celebrities>,
}

#[derive(Debug, Default)]
struct Celebrities {
    users: HashSet<UserId>,
    /// Own changes so far: a refresh that read before one of them must not undo it.
    changes: u64,
}

impl Shared {
    /// Remembers at once what this process has just flagged or cleared.
    pub(crate) fn set_celebrity(&self, user: UserId, is: bool) {
        // A set is whole after every statement, so that a panic elsewhere while it was held harms nothing.
        let mut celebrities = self.celebrities.write().unwrap_or_else(PoisonError::into_inner);
        celebrities.changes += 1;
        if is {
            celebrities.users.insert(user);
        } else {
            celebrities.users.remove(&user);
        }
    }
}

impl Store {
    /// Whether the account is flagged as an outlier, as far as this process knows (others' changes within 500 ms).
    #[must_use]
    pub fn is_celebrity(&self, user: UserId) -> bool {
        self.shared().celebrities.read().unwrap_or_else(PoisonError::into_inner).users.contains(&user)
    }

    /// Reads again what other processes may have changed: one query over the partial index of the flag.
    pub async fn refresh_shared(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct IdDoc {
            #[serde(rename = "_id")]
            id: bson::Uuid,
        }
        let changes = self.shared().celebrities.read().unwrap_or_else(PoisonError::into_inner).changes;
        let flagged = doc! { "outlier.since": { "$gt": bson::DateTime::from_millis(0) } };
        let found = self.coll::<IdDoc>(collections::USERS).find(flagged).projection(doc! { "_id": 1 }).await?;
        let users = found.map_ok(|user| UserId(user.id.into())).try_collect().await?;
        let mut celebrities = self.shared().celebrities.write().unwrap_or_else(PoisonError::into_inner);
        if celebrities.changes == changes {
            celebrities.users = users;
        }
        Ok(())
    }
}
