//! Outliers: flags against followers, pages against edges, and pages of accounts that are no outliers.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::outlier;
use serde::Deserialize;

use super::{Drift, DriftKind, next_up_to, stream};
use crate::{
    Result, Store,
    collections::{FOLLOWS, LOCKS, USER_OVERFLOW, USERS},
    graph::{FollowDoc, LEASE_PREFIX},
    overflow::PageDoc,
    users::{CountersDoc, OutlierDoc, OutlierState, UserState},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: UserState,
    counters: CountersDoc,
    follower_seq: i64,
    outlier: Option<OutlierDoc>,
}

impl AccountDoc {
    /// What is due. An account that is being deleted stays what it was until it is gone.
    fn due(&self, threshold: i64) -> Option<outlier::Change> {
        let change = outlier::change(self.counters.followers, self.outlier.is_some(), threshold);
        change.filter(|_| self.state == UserState::Live)
    }
}

/// Flags against followers, pages against edges, and pages of accounts that are no outliers.
pub(super) async fn check(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = Vec::new();
    let threshold = store.settings().celebrity_threshold;
    let fields = doc! { "state": 1, "counters": 1, "followerSeq": 1, "outlier": 1 };
    let mut users = stream::<AccountDoc>(store, USERS, doc! {}, doc! { "_id": 1 }, fields).await?;
    let mut pages = stream::<PageDoc>(store, USER_OVERFLOW, doc! {}, doc! { "_id": 1 }, doc! {}).await?;
    while let Some(account) = users.try_next().await? {
        if account.due(threshold).is_some() {
            drift.extend(recheck_flag(store, account.id).await?);
        }
        let mut has_pages = false;
        while let Some(page) = next_up_to(&mut pages, |page| page.id.user_id, account.id).await? {
            if page.id.user_id == account.id {
                has_pages = true;
            } else {
                drift.push(of_nobody(&page));
            }
        }
        if has_pages || account.outlier.is_some() {
            for page in 0..=outlier::page_of(account.follower_seq) {
                drift.extend(check_page(store, account.id, page).await?);
            }
        }
    }
    while let Some(page) = pages.try_next().await? {
        drift.push(of_nobody(&page));
    }
    Ok(drift)
}

fn of_nobody(page: &PageDoc) -> Drift {
    Drift {
        kind: DriftKind::OverflowPages,
        subject: page.id.user_id.into(),
        detail: format!("page {} of an account that does not exist", page.id.page),
    }
}

async fn recheck_flag(store: &Store, user: bson::Uuid) -> Result<Option<Drift>> {
    let Some(account) = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).await? else {
        return Ok(None);
    };
    let (followers, threshold) = (account.counters.followers, store.settings().celebrity_threshold);
    // The flag follows the counter by the length of one reconcile: while its lease is held, it is on its way.
    let lease = format!("{LEASE_PREFIX}{user}");
    if store.coll::<Document>(LOCKS).find_one(doc! { "_id": lease }).await?.is_some() {
        return Ok(None);
    }
    Ok(account.due(threshold).map(|change| Drift {
        kind: DriftKind::OutlierFlag,
        subject: user.into(),
        detail: format!("{followers} followers at a threshold of {threshold}: {change:?} is due"),
    }))
}

/// Compares one page with its edges in a snapshot.
async fn check_page(store: &Store, user: bson::Uuid, page: i64) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let account = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).session(&mut session).await?;
    let id = doc! { "_id": { "userId": user, "page": page } };
    let found = store.coll::<PageDoc>(USER_OVERFLOW).find_one(id).session(&mut session).await?;
    let (from, to) = outlier::seqs_of(page);
    let range = doc! { "followeeId": user, "seq": { "$gte": from, "$lt": to } };
    let mut edges = store.coll::<FollowDoc>(FOLLOWS).find(range).session(&mut session).await?;
    let mut wanted: Vec<(i64, bson::Uuid)> =
        edges.stream(&mut session).map_ok(|edge| (edge.seq.unwrap_or(0), edge.follower_id)).try_collect().await?;
    wanted.sort_unstable_by_key(|(seq, _)| *seq);
    let detail = match (account.and_then(|account| account.outlier).map(|outlier| outlier.state), found) {
        // A build writes pages before the flag says ready.
        (Some(OutlierState::Building), _) | (None, None) => None,
        (None, Some(_)) => Some(format!("page {page} of an account that is no outlier")),
        (Some(OutlierState::Ready), None) => {
            (!wanted.is_empty()).then(|| format!("page {page} is missing, {} edges", wanted.len()))
        }
        (Some(OutlierState::Ready), Some(found)) => {
            let mut on_page: Vec<(i64, bson::Uuid)> = found.followers.iter().map(|entry| (entry.seq, entry.user_id)).collect();
            on_page.sort_unstable_by_key(|(seq, _)| *seq);
            let counted = usize::try_from(found.count).is_ok_and(|count| count == on_page.len());
            (on_page != wanted || !counted)
                .then(|| format!("page {page} holds {} (count {}), edges {}", on_page.len(), found.count, wanted.len()))
        }
    };
    Ok(detail.map(|detail| Drift { kind: DriftKind::OverflowPages, subject: user.into(), detail }))
}
