//! Outliers: flags against followers, pages against edges, and pages of accounts that are no outliers.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::outlier;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, Place, lowest};
use crate::{
    Result, Store,
    collections::{FOLLOWS, LOCKS, USER_OVERFLOW, USERS},
    graph::{FollowDoc, LEASE_PREFIX},
    overflow::{self, PageDoc},
    store::ANSWER,
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

/// Pages that are compared with their edges at a time: 2,000 followers.
const PAGES: i64 = 20;

/// Flags against followers, pages against edges, and pages of accounts that are no outliers.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let threshold = store.settings().celebrity_threshold;
    let fields = doc! { "state": 1, "counters": 1, "followerSeq": 1, "outlier": 1 };
    let mut users = pass.stream::<AccountDoc>(USERS, "_id", doc! { "_id": 1 }, fields, |user| user.id).await?;
    // By user and page, each a document of its own: what is before the first user is before all its pages.
    let mut pages = pass.pages().await?;
    let mut done = None;
    while let Some(at) = lowest([users.key().await?, pages.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let account = users.next_up_to(at).await?;
        if let Some(account) = &account
            && account.due(threshold).is_some()
        {
            pass.report(recheck_flag(&store, at).await?).await?;
        }
        let flagged = account.as_ref().is_some_and(|account| account.outlier.is_some());
        let end = account.filter(|_| flagged).map_or(0, |account| outlier::page_of(account.follower_seq) + 1);
        let mut next = 0;
        loop {
            // The pages of one slice, and those that should not be there at all.
            let slice = next..end.min(next + PAGES);
            let mut held: BTreeMap<i64, Held> = BTreeMap::new();
            while pages.key().await? == Some(at) && held.len() < usize::try_from(PAGES).unwrap_or(usize::MAX) {
                let Some(page) = pages.next().await? else { break };
                held.insert(page.page, Held::of(&page));
            }
            if slice.is_empty() && held.is_empty() {
                break;
            }
            // With holes between the pages they reach further than the slice.
            let to = held.last_key_value().map_or(slice.end, |(page, _)| slice.end.max(page + 1));
            for page in differing(&store, at, next, to, held, flagged).await? {
                pass.report(check_page(&store, at, page).await?).await?;
            }
            next = to;
        }
        done = Some(at);
    }
    Ok(None)
}

/// What a page holds, or should.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    followers: Vec<(i64, [u8; 16])>,
    count: i64,
}

impl Held {
    fn of(page: &PageDoc) -> Self {
        let mut followers: Vec<_> = page.followers.iter().map(|entry| (entry.seq, entry.user_id.bytes())).collect();
        followers.sort_unstable();
        Self { followers, count: page.count }
    }
}

/// The pages from one to before another that are not what the edges say: a first look, without a snapshot.
async fn differing(
    store: &Store,
    user: bson::Uuid,
    from: i64,
    to: i64,
    mut held: BTreeMap<i64, Held>,
    flagged: bool,
) -> Result<BTreeSet<i64>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct EdgePart {
        follower_id: bson::Uuid,
        seq: i64,
    }
    let mut differing = BTreeSet::new();
    if flagged {
        let range = doc! { "followeeId": user, "seq": { "$gte": outlier::seqs_of(from).0, "$lt": outlier::seqs_of(to).0 } };
        let edges = store.coll::<EdgePart>(FOLLOWS);
        let find = edges.find(range).sort(doc! { "followeeId": 1, "seq": -1 });
        let mut edges = find.projection(doc! { "_id": 0, "followerId": 1, "seq": 1 }).batch_size(ANSWER).await?;
        let mut next = edges.try_next().await?;
        while let Some(page) = next.as_ref().map(|edge| outlier::page_of(edge.seq)) {
            let mut wanted = Held::default();
            while let Some(edge) = next.take_if(|edge| outlier::page_of(edge.seq) == page) {
                wanted.followers.push((edge.seq, edge.follower_id.bytes()));
                wanted.count += 1;
                next = edges.try_next().await?;
            }
            wanted.followers.sort_unstable();
            if held.remove(&page) != Some(wanted) {
                differing.insert(page);
            }
        }
    }
    // Pages without edges.
    differing.extend(held.into_keys());
    Ok(differing)
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
    Ok(account.due(threshold).map(|change| {
        let detail = format!("{followers} followers at a threshold of {threshold}: {change:?} is due");
        Drift::new(DriftKind::OutlierFlag, user, detail)
    }))
}

/// Compares one page with its edges in a snapshot.
async fn check_page(store: &Store, user: bson::Uuid, page: i64) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let account = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).session(&mut session).await?;
    let found = store.coll::<PageDoc>(USER_OVERFLOW).find_one(overflow::page(user, page)).session(&mut session).await?;
    let (from, to) = outlier::seqs_of(page);
    let range = doc! { "followeeId": user, "seq": { "$gte": from, "$lt": to } };
    let mut edges = store.coll::<FollowDoc>(FOLLOWS).find(range).session(&mut session).await?;
    let mut wanted: Vec<(i64, bson::Uuid)> =
        edges.stream(&mut session).map_ok(|edge| (edge.seq.unwrap_or(0), edge.follower_id)).try_collect().await?;
    wanted.sort_unstable_by_key(|(seq, _)| *seq);
    let gone = account.is_none();
    let detail = match (account.and_then(|account| account.outlier).map(|outlier| outlier.state), found) {
        (None, Some(_)) if gone => Some(format!("page {page} of an account that does not exist")),
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
            (on_page.is_empty() || on_page != wanted || !counted)
                .then(|| format!("page {page} holds {} (count {}), edges {}", on_page.len(), found.count, wanted.len()))
        }
    };
    Ok(detail.map(|detail| Drift::new(DriftKind::OverflowPages, user, detail).at(Place::Page(page))))
}
