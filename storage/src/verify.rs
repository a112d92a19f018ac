//! Checks the invariants of docs/data-model.md against what the database holds.
//!
//! Collections are read in the order of an index and joined as they stream by, so that memory stays constant whatever their size. A
//! service may be writing meanwhile: whatever looks wrong is looked at again in one snapshot before it is reported.

use std::collections::{BTreeMap, HashMap};

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use rookery_domain::{UserId, outlier};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Result, Store,
    collections::{FOLLOWS, USER_OVERFLOW, USERS},
    graph::FollowDoc,
    overflow::PageDoc,
    users::{CountersDoc, OutlierDoc, OutlierState},
};

/// A kind of drift: which invariant does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftKind {
    /// I1: an account's followers are not the edges to it that have a `seq`.
    FollowerCount,
    /// I1: an account's followees are not the edges from it that have a `seq`.
    FollowingCount,
    /// I2: two edges to an account have one `seq`, or one has a `seq` that was never given out.
    FollowerSeq,
    /// I2: an edge leads from or to an account that does not exist.
    OrphanEdge,
    /// I3: an account is flagged, or not, against its followers and the threshold.
    OutlierFlag,
    /// I3: the overflow pages of an account are not its edges, each on its page.
    OverflowPages,
}

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Which invariant.
    pub kind: DriftKind,
    /// The document it is about.
    pub subject: uuid::Uuid,
    /// What is found and what should be.
    pub detail: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    counters: CountersDoc,
    follower_seq: i64,
    outlier: Option<OutlierDoc>,
}

/// Checks everything and gives what is wrong; empty means that every invariant holds.
pub async fn verify(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = Vec::new();
    for user in suspects(store).await? {
        drift.extend(recheck_counts(store, user).await?);
    }
    drift.extend(flags_and_pages(store).await?);
    Ok(drift)
}

/// Groups what was found: for each kind how often, and the first few.
#[must_use]
pub fn summary(drift: &[Drift]) -> BTreeMap<DriftKind, (usize, Vec<&Drift>)> {
    let mut kinds: BTreeMap<DriftKind, (usize, Vec<&Drift>)> = BTreeMap::new();
    for one in drift {
        let (count, examples) = kinds.entry(one.kind).or_default();
        *count += 1;
        if examples.len() < 5 {
            examples.push(one);
        }
    }
    kinds
}

/// A whole collection in the order of an index, one document at a time.
async fn stream<T: DeserializeOwned + Send + Sync + 'static>(
    store: &Store,
    name: &str,
    filter: Document,
    order: Document,
    fields: Document,
) -> Result<std::pin::Pin<Box<futures::stream::Peekable<BoxStream<'static, mongodb::error::Result<T>>>>>> {
    let cursor = store.coll::<T>(name).find(filter).sort(order).projection(fields).await?;
    Ok(Box::pin(cursor.boxed().peekable()))
}

/// Accounts whose counters do not look like their edges, in one pass over accounts and edges side by side; edges without an account
/// give the account that is not there.
async fn suspects(store: &Store) -> Result<Vec<UserId>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct End {
        user: bson::Uuid,
        seq: Option<i64>,
    }
    let mut users =
        stream::<AccountDoc>(store, USERS, doc! {}, doc! { "_id": 1 }, doc! { "counters": 1, "followerSeq": 1, "outlier": 1 })
            .await?;
    let mut to = stream::<End>(
        store,
        FOLLOWS,
        doc! {},
        doc! { "followeeId": 1, "seq": -1 },
        doc! { "_id": 0, "user": "$followeeId", "seq": 1 },
    )
    .await?;
    let mut from = stream::<End>(
        store,
        FOLLOWS,
        doc! {},
        doc! { "followerId": 1, "followeeId": 1 },
        doc! { "_id": 0, "user": "$followerId", "seq": 1 },
    )
    .await?;
    let mut suspects = Vec::new();
    while let Some(account) = users.try_next().await? {
        let (mut followers, mut last, mut seqs_fit) = (0, account.follower_seq + 1, true);
        while let Some(end) = to.as_mut().next_if(|end| before(end, |end: &End| end.user, account.id)).await {
            let end = end?;
            if end.user != account.id {
                suspects.push(UserId(end.user.into()));
            } else if let Some(seq) = end.seq {
                followers += 1;
                seqs_fit &= seq < last;
                last = seq;
            }
        }
        let mut following = 0;
        while let Some(end) = from.as_mut().next_if(|end| before(end, |end: &End| end.user, account.id)).await {
            let end = end?;
            if end.user != account.id {
                suspects.push(UserId(end.user.into()));
            } else if end.seq.is_some() {
                following += 1;
            }
        }
        if !seqs_fit || followers != account.counters.followers || following != account.counters.following {
            suspects.push(UserId(account.id.into()));
        }
    }
    for rest in [to, from] {
        suspects.extend(rest.map_ok(|end| UserId(end.user.into())).try_collect::<Vec<_>>().await?);
    }
    suspects.dedup();
    Ok(suspects)
}

/// Whether the next document belongs to `at` or to something before it; a fault counts as such, so that it comes out.
fn before<T>(next: &mongodb::error::Result<T>, of: impl Fn(&T) -> bson::Uuid, at: bson::Uuid) -> bool {
    next.as_ref().map_or(true, |next| of(next).bytes() <= at.bytes())
}

/// Counts the edges of one account in a snapshot.
async fn recheck_counts(store: &Store, user: UserId) -> Result<Vec<Drift>> {
    let id = crate::store::b(user);
    let mut session = store.begin().await?;
    let account = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": id }).session(&mut session).await?;
    let mut found = store.coll::<FollowDoc>(FOLLOWS).find(doc! { "followeeId": id }).session(&mut session).await?;
    let (mut seqs, mut edges) = (HashMap::<i64, usize>::new(), 0_usize);
    let mut stream = found.stream(&mut session);
    while let Some(edge) = stream.try_next().await? {
        edges += 1;
        if let Some(seq) = edge.seq {
            *seqs.entry(seq).or_default() += 1;
        }
    }
    drop(stream);
    let (mut following, mut outgoing) = (0_i64, 0_usize);
    let mut found = store.coll::<FollowDoc>(FOLLOWS).find(doc! { "followerId": id }).session(&mut session).await?;
    let mut stream = found.stream(&mut session);
    while let Some(edge) = stream.try_next().await? {
        outgoing += 1;
        following += i64::from(edge.seq.is_some());
    }
    drop(stream);
    let mut drift = Vec::new();
    let mut report = |kind, detail| drift.push(Drift { kind, subject: user.0, detail });
    let Some(account) = account else {
        if edges + outgoing > 0 {
            report(DriftKind::OrphanEdge, format!("{edges} edges to and {outgoing} from an account that does not exist"));
        }
        return Ok(drift);
    };
    let followers: i64 = seqs.values().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).sum();
    if followers != account.counters.followers {
        report(DriftKind::FollowerCount, format!("counter {}, edges {followers}", account.counters.followers));
    }
    if following != account.counters.following {
        report(DriftKind::FollowingCount, format!("counter {}, edges {following}", account.counters.following));
    }
    if let Some((seq, _)) = seqs.iter().find(|(seq, n)| **n > 1 || **seq > account.follower_seq) {
        report(DriftKind::FollowerSeq, format!("seq {seq} twice or beyond {}", account.follower_seq));
    }
    Ok(drift)
}

/// Flags against followers, pages against edges, and pages of accounts that are no outliers.
async fn flags_and_pages(store: &Store) -> Result<Vec<Drift>> {
    let mut drift = Vec::new();
    let fields = doc! { "counters": 1, "followerSeq": 1, "outlier": 1 };
    let mut users = stream::<AccountDoc>(store, USERS, doc! {}, doc! { "_id": 1 }, fields).await?;
    let mut pages = stream::<PageDoc>(store, USER_OVERFLOW, doc! {}, doc! { "_id": 1 }, doc! {}).await?;
    while let Some(account) = users.try_next().await? {
        let threshold = store.settings().celebrity_threshold;
        if outlier::change(account.counters.followers, account.outlier.is_some(), threshold).is_some() {
            drift.extend(recheck_flag(store, account.id).await?);
        }
        let mut has_pages = false;
        while let Some(page) = pages.as_mut().next_if(|page| before(page, |page: &PageDoc| page.id.user_id, account.id)).await {
            let page = page?;
            if page.id.user_id == account.id {
                has_pages = true;
            } else {
                drift.push(Drift {
                    kind: DriftKind::OverflowPages,
                    subject: page.id.user_id.into(),
                    detail: format!("page {} of an account that does not exist", page.id.page),
                });
            }
        }
        if has_pages || account.outlier.is_some() {
            for page in 0..=outlier::page_of(account.follower_seq) {
                drift.extend(check_page(store, account.id, page).await?);
            }
        }
    }
    Ok(drift)
}

async fn recheck_flag(store: &Store, user: bson::Uuid) -> Result<Option<Drift>> {
    let Some(account) = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).await? else {
        return Ok(None);
    };
    let (followers, threshold) = (account.counters.followers, store.settings().celebrity_threshold);
    // The flag follows the counter by the length of one reconcile: while its lease is held, it is on its way.
    let lease = format!("{}{user}", crate::graph::LEASE_PREFIX);
    if store.coll::<Document>(crate::collections::LOCKS).find_one(doc! { "_id": lease }).await?.is_some() {
        return Ok(None);
    }
    Ok(outlier::change(followers, account.outlier.is_some(), threshold).map(|change| Drift {
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
