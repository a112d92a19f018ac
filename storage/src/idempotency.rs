//! Idempotency keys: of any number of calls with one key, one makes the resource and all get its answer.
//!
//! The key's document is the place where the calls meet, whatever process they reach. It holds the id that the resource is to have
//! and a lease: who inserted the document makes the resource, the others wait for the answer. If the maker crashes, its lease
//! runs out and another call takes over *with the same id*, so that what the first has inserted is found, not made again.

use std::time::Duration;

use bson::{Binary, Document, doc, spec::BinarySubtype};
use rookery_domain::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::IDEMPOTENCY_KEYS,
    error::is_duplicate_key,
    store::{b, date, timestamp, until_no_conflict},
};

/// How long a call has for making the resource before another may take over: long against a request, short against the patience
/// of a client whose first call died.
pub const LEASE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyDoc {
    #[serde(rename = "_id")]
    id: Binary,
    request_hash: Binary,
    resource_id: bson::Uuid,
    owner: bson::Uuid,
    until: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
    created_at: bson::DateTime,
}

/// What was answered, to be answered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The path of the new resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The body, JSON.
    pub body: String,
}

/// A key of one caller for one path, and what is asked for with it.
#[derive(Debug, Clone)]
pub struct KeyedRequest {
    /// A hash of caller, path and key.
    key: [u8; 32],
    /// A hash of the parsed body.
    request: [u8; 32],
}

impl KeyedRequest {
    /// Names a request by its caller, path, key and parsed body. Only hashes are kept.
    #[must_use]
    pub fn new(caller: Uuid, path: &str, key: &str, body: &[u8]) -> Self {
        let mut scope = Sha256::new_with_prefix(caller.as_bytes());
        // A path cannot hold a zero byte: the parts cannot run into each other.
        scope.update(path.as_bytes());
        scope.update([0]);
        scope.update(key.as_bytes());
        Self { key: scope.finalize().into(), request: Sha256::digest(body).into() }
    }
}

/// What a call with a key has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Make the resource, with this id, then [`Store::keep_answer`], [`Store::give_up_key`] or [`Store::release_key`].
    Mine(Made),
    /// Give the same answer again.
    Answered(Answer),
    /// Another call is making it; ask again.
    Busy,
    /// The key was used for something else.
    Reused,
}

/// A claim that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The id of the resource.
    pub resource: Uuid,
    key: [u8; 32],
    owner: bson::Uuid,
}

impl Store {
    /// Claims a key. `resource` is the id that the new resource gets, unless an earlier call with the key has chosen one.
    pub async fn claim_key(&self, request: &KeyedRequest, resource: Uuid, now: Timestamp) -> Result<Claim> {
        let keys = self.coll::<KeyDoc>(IDEMPOTENCY_KEYS);
        let until = date(now.plus(LEASE));
        loop {
            let Some(held) = keys.find_one(doc! { "_id": hash(request.key) }).await? else {
                let fresh = KeyDoc {
                    id: hash(request.key),
                    request_hash: hash(request.request),
                    resource_id: b(resource),
                    owner: bson::Uuid::new(),
                    until,
                    answer: None,
                    created_at: date(now),
                };
                match keys.insert_one(&fresh).await {
                    Ok(_) => return Ok(Claim::Mine(fresh.made(request.key))),
                    // Another call was quicker: see what it wants.
                    Err(error) if is_duplicate_key(&error) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            if held.request_hash != hash(request.request) {
                return Ok(Claim::Reused);
            }
            if let Some(answer) = held.answer {
                return Ok(Claim::Answered(answer));
            }
            if timestamp(held.until) > now {
                return Ok(Claim::Busy);
            }
            // Its lease ran out: the first who writes this takes over.
            let (abandoned, owner) = (held.made(request.key), bson::Uuid::new());
            let take = doc! { "$set": { "owner": owner, "until": until } };
            let taken = until_no_conflict(async || Ok(keys.update_one(abandoned.open(), take.clone()).await?));
            if taken.await?.matched_count == 1 {
                return Ok(Claim::Mine(Made { owner, ..abandoned }));
            }
        }
    }

    /// Keeps the answer of a call that made its resource. If another call took over and was quicker, its answer holds and is given back.
    pub async fn keep_answer(&self, made: &Made, answer: Answer) -> Result<Answer> {
        let keys = self.coll::<KeyDoc>(IDEMPOTENCY_KEYS);
        let open = doc! { "_id": hash(made.key), "resourceId": b(made.resource), "answer": { "$exists": false } };
        let keep = doc! { "$set": { "answer": bson::serialize_to_document(&answer).map_err(mongodb::error::Error::from)? } };
        let kept = until_no_conflict(async || Ok(keys.update_one(open.clone(), keep.clone()).await?));
        if kept.await?.matched_count == 1 {
            return Ok(answer);
        }
        let held = keys.find_one(doc! { "_id": hash(made.key) }).await?;
        Ok(held.and_then(|held| held.answer).unwrap_or(answer))
    }

    /// Frees the key of a call that was refused: only success uses it up.
    pub async fn give_up_key(&self, made: &Made) -> Result<()> {
        let keys = self.coll::<KeyDoc>(IDEMPOTENCY_KEYS);
        until_no_conflict(async || Ok(keys.delete_one(made.open()).await?)).await?;
        Ok(())
    }

    /// Hands the key of a call that failed to the next one, which goes on with the same id: what was made so far is found.
    pub async fn release_key(&self, made: &Made, now: Timestamp) -> Result<()> {
        let keys = self.coll::<KeyDoc>(IDEMPOTENCY_KEYS);
        let over = doc! { "$set": { "until": date(now) } };
        until_no_conflict(async || Ok(keys.update_one(made.open(), over.clone()).await?)).await?;
        Ok(())
    }
}

impl Made {
    /// The key's document as long as nobody took over and nothing is answered.
    fn open(&self) -> Document {
        doc! { "_id": hash(self.key), "owner": self.owner, "answer": { "$exists": false } }
    }
}

impl KeyDoc {
    fn made(&self, key: [u8; 32]) -> Made {
        Made { resource: self.resource_id.into(), key, owner: self.owner }
    }
}

fn hash(bytes: [u8; 32]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}
