//! What accounts are told: the accounts are there, and buckets count what they hold. What a notice is about is looked at when it is read.

use std::collections::HashSet;

use bson::doc;
use futures::TryStreamExt as _;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, Place, lowest};
use crate::{
    Result, Store,
    collections::{NOTIFICATION_GROUPS, NOTIFICATIONS, USERS},
    graph::IdDoc,
};

/// Accounts that are looked at together.
const TOGETHER: usize = 100;

/// A bucket, or (with nothing to count) a notice of many acts.
#[derive(Debug, Deserialize)]
struct NoticePart {
    user: bson::Uuid,
    #[serde(default)]
    bucket: i64,
    #[serde(default)]
    count: i64,
    #[serde(default)]
    items: i64,
}

/// Buckets and notices of many acts, in the order of their accounts.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let fields = doc! { "_id": 0, "user": "$userId", "bucket": 1, "count": 1, "items": { "$size": "$items" } };
    let order = doc! { "userId": 1, "bucket": 1 };
    let mut buckets = pass.stream::<NoticePart>(NOTIFICATIONS, "userId", order, fields, |part| part.user).await?;
    let (order, fields) = (doc! { "userId": 1, "place": -1 }, doc! { "_id": 0, "user": "$userId" });
    let mut groups = pass.stream::<NoticePart>(NOTIFICATION_GROUPS, "userId", order, fields, |part| part.user).await?;
    loop {
        let mut users: Vec<bson::Uuid> = Vec::new();
        while users.len() < TOGETHER
            && let Some(at) = lowest([buckets.key().await?, groups.key().await?])
        {
            while let Some(bucket) = buckets.next_up_to(at).await? {
                if bucket.count != bucket.items {
                    pass.report(recheck_count(&store, bucket.user, bucket.bucket).await?).await?;
                }
            }
            while groups.next_up_to(at).await?.is_some() {}
            users.push(at);
        }
        let Some(last) = users.last().copied() else { return Ok(None) };
        let there = store.coll::<IdDoc>(USERS).find(doc! { "_id": { "$in": &users } }).projection(doc! { "_id": 1 }).await?;
        let there: HashSet<[u8; 16]> = there.map_ok(|user| user.id.bytes()).try_collect().await?;
        for user in users.into_iter().filter(|user| !there.contains(&user.bytes())) {
            pass.report(recheck_account(&store, user).await?).await?;
        }
        if let Some(stop) = pass.stops(Some(last)) {
            return Ok(Some(stop));
        }
    }
}

/// Looks at one bucket again, in one read.
async fn recheck_count(store: &Store, user: bson::Uuid, bucket: i64) -> Result<Option<Drift>> {
    let wrong = doc! { "userId": user, "bucket": bucket, "$expr": { "$ne": ["$count", { "$size": "$items" }] } };
    let found = store.coll::<IdDoc>(NOTIFICATIONS).find_one(wrong).projection(doc! { "_id": 1 }).await?;
    Ok(found.map(|found| {
        let detail = format!("bucket {bucket} of {user} does not count its items");
        Drift::new(DriftKind::NotificationCount, found.id, detail)
    }))
}

/// In this order: an account goes after what it was told.
async fn recheck_account(store: &Store, user: bson::Uuid) -> Result<Option<Drift>> {
    if store.coll::<IdDoc>(USERS).find_one(doc! { "_id": user }).projection(doc! { "_id": 1 }).await?.is_some() {
        return Ok(None);
    }
    let mut left = 0;
    for name in [NOTIFICATIONS, NOTIFICATION_GROUPS] {
        left += store.coll::<bson::Document>(name).count_documents(doc! { "userId": user }).await?;
    }
    let detail = format!("{left} documents of what an account that does not exist was told");
    Ok((left > 0).then(|| Drift::new(DriftKind::OrphanNotification, user, detail).at(Place::Subject)))
}
