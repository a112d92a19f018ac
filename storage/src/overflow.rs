//! Outliers: the flag on the heavy account, and the documents in which its followers continue (the outlier pattern).
//!
//! The flag and the pages of an account are made what they should be by one reconcile under that account's applier lease
//! (`Store::reconcile_outlier`). `building` comes first: from then on nobody but the leased applier applies, since a request's own
//! attempt leaves a flagged account alone, and conflicts with the flag where it read the account before. Every write of a page is in
//! a transaction that also holds the lease, so that a holder who lost it cannot overwrite what the next one built. Readers use the
//! pages only while the flag says `ready`, check what they show against the edges, and fall back to the index where a page is missing.

use std::collections::{BTreeMap, HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{
    Timestamp, UserId,
    outlier::{self, Change},
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Store,
    bulk::Statement,
    collections::{FOLLOWS, MIGRATIONS, USER_OVERFLOW, USERS},
    graph::{FollowDoc, IdDoc, LEASE_PREFIX},
    lease::Lease,
    seq_page::Slice,
    store::{b, commit, date, new_id, now, until_no_conflict},
    users::{OutlierState, UserDoc},
};

/// Raised when the form of a page changes: every page is then built anew.
const LAYOUT: i64 = 2;

/// What a page is, in one number: its form, and how many followers it holds.
const fn layout() -> i64 {
    LAYOUT * 1_000 + outlier::PAGE_SIZE
}

/// Pages that one transaction of a build writes: 2,000 edges.
const PAGES_AT_ONCE: i64 = 20;

/// A page. Its `_id` says nothing: it is found by account and number, which a unique index holds. (As one document they could be the `_id`,
/// but there are servers that find such an `_id` by reading the whole collection.)
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub user_id: bson::Uuid,
    pub page: i64,
    pub followers: Vec<PageEntry>,
    pub count: i64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageEntry {
    pub user_id: bson::Uuid,
    pub seq: i64,
    pub at: bson::DateTime,
}

/// What one batch of edges changes on pages.
#[derive(Debug, Default)]
pub(crate) struct PageChanges {
    pushed: BTreeMap<(UserId, i64), Vec<Document>>,
    pulled: BTreeMap<(UserId, i64), Vec<i64>>,
}

impl PageChanges {
    /// A follower of `user` was counted.
    pub(crate) fn push(&mut self, user: UserId, seq: i64, follower: UserId, at: Timestamp) {
        let entry = doc! { "userId": b(follower), "seq": seq, "at": date(at) };
        self.pushed.entry((user, outlier::page_of(seq))).or_default().push(entry);
    }

    /// A follower of `user` was uncounted.
    pub(crate) fn pull(&mut self, user: UserId, seq: i64) {
        self.pulled.entry((user, outlier::page_of(seq))).or_default().push(seq);
    }
}

/// One page of an account.
pub(crate) fn page(user: bson::Uuid, page: i64) -> Document {
    doc! { "userId": user, "page": page }
}

/// All pages of an account from one page to before another.
pub(crate) fn pages(user: bson::Uuid, from: i64, to: i64) -> Document {
    doc! { "userId": user, "page": { "$gte": from, "$lt": to } }
}

impl Store {
    /// Writes what a batch changes, each page once; pages left empty are deleted.
    pub(crate) async fn write_pages(&self, changes: PageChanges, session: &mut ClientSession) -> Result<()> {
        let PageChanges { pushed, pulled } = changes;
        if pushed.is_empty() && pulled.is_empty() {
            return Ok(());
        }
        let mut emptied: BTreeMap<UserId, Vec<i64>> = BTreeMap::new();
        for (user, page) in pulled.keys() {
            emptied.entry(*user).or_default().push(*page);
        }
        let mut statements = Vec::with_capacity(pushed.len() + pulled.len());
        for ((user, number), entries) in pushed {
            let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
            let update = doc! {
                "$push": { "followers": { "$each": entries } },
                "$inc": { "count": count },
                "$setOnInsert": { "_id": b(new_id()) },
            };
            statements.push(Statement::upsert(page(b(user), number), update));
        }
        for ((user, number), seqs) in pulled {
            let count = i64::try_from(seqs.len()).unwrap_or(i64::MAX);
            let update = doc! { "$pull": { "followers": { "seq": { "$in": seqs } } }, "$inc": { "count": -count } };
            statements.push(Statement::update(page(b(user), number), update));
        }
        self.update_all(session, USER_OVERFLOW, statements).await?;
        for (user, pages) in emptied {
            let empty = doc! { "userId": b(user), "page": { "$in": pages }, "count": 0 };
            self.coll::<PageDoc>(USER_OVERFLOW).delete_many(empty).session(&mut *session).await?;
        }
        Ok(())
    }

    /// Makes the flag and the pages of an account what its followers and the threshold say. True: something was done.
    pub(crate) async fn reconcile_outlier(&self, lease: &Lease, user: UserId) -> Result<bool> {
        let Some(account) = self.coll::<UserDoc>(USERS).find_one(doc! { "_id": b(user) }).await? else {
            return self.drop_pages(lease, user).await;
        };
        let flag = account.outlier.map(|outlier| outlier.state);
        let change = outlier::change(account.counters.followers, flag.is_some(), self.settings().celebrity_threshold);
        match (flag, change) {
            (_, Some(Change::Demote)) => {
                let cleared = self.set_flag(lease, user, doc! { "$unset": { "outlier": "" } }).await?;
                if cleared {
                    self.shared().set_celebrity(user, false);
                    self.drop_pages(lease, user).await?;
                }
                Ok(cleared)
            }
            (None, Some(Change::Promote)) => {
                let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
                if !self.set_flag(lease, user, flag).await? {
                    return Ok(false);
                }
                self.shared().set_celebrity(user, true);
                self.build_pages(lease, user).await
            }
            // A crash interrupted the build.
            (Some(OutlierState::Building), _) => self.build_pages(lease, user).await,
            // A crash interrupted a demotion between the flag and the pages.
            (None, None) if lease.inherited => self.drop_pages(lease, user).await,
            (None | Some(OutlierState::Ready), _) => Ok(false),
        }
    }

    pub(crate) async fn set_flag(&self, lease: &Lease, user: UserId, update: Document) -> Result<bool> {
        until_no_conflict(|| async {
            let mut session = self.begin().await?;
            if !lease.hold(&mut session).await? {
                return Ok(false);
            }
            let account = doc! { "_id": b(user), "state": "live" };
            let set = self.coll::<UserDoc>(USERS).update_one(account, update.clone()).session(&mut session).await?;
            commit(session).await?;
            Ok(set.matched_count == 1)
        })
        .await
    }

    /// Writes every page anew from the edges, then raises `ready`. Nobody else applies meanwhile, so that what was read stays true.
    async fn build_pages(&self, lease: &Lease, user: UserId) -> Result<bool> {
        let Some(account) = self.coll::<UserDoc>(USERS).find_one(doc! { "_id": b(user) }).await? else {
            return Ok(false);
        };
        let end = outlier::page_of(account.follower_seq) + 1;
        let mut page = 0;
        while page < end {
            let to = end.min(page + PAGES_AT_ONCE);
            if !until_no_conflict(|| self.build_range(lease, account.id, page, to)).await? {
                return Ok(false);
            }
            page = to;
        }
        // Pages of another size reached further.
        self.drop_pages_from(lease, user, end).await?;
        self.set_flag(lease, user, doc! { "$set": { "outlier.state": "ready" } }).await
    }

    pub(crate) async fn build_range(&self, lease: &Lease, user: bson::Uuid, from: i64, to: i64) -> Result<bool> {
        let mut session = self.begin().await?;
        if !lease.hold(&mut session).await? {
            return Ok(false);
        }
        let range = doc! { "$gte": outlier::seqs_of(from).0, "$lt": outlier::seqs_of(to).0 };
        let edges = doc! { "followeeId": user, "seq": range };
        let mut found = self.coll::<FollowDoc>(FOLLOWS).find(edges).session(&mut session).await?;
        let edges: Vec<FollowDoc> = found.stream(&mut session).try_collect().await?;
        let mut built: BTreeMap<i64, PageDoc> = BTreeMap::new();
        for edge in edges {
            if let (Some(seq), Some(at)) = (edge.seq, edge.followed_at) {
                let page = outlier::page_of(seq);
                let of = built.entry(page).or_insert_with(|| PageDoc {
                    id: b(new_id()),
                    user_id: user,
                    page,
                    followers: Vec::new(),
                    count: 0,
                });
                of.followers.push(PageEntry { user_id: edge.follower_id, seq, at });
                of.count += 1;
            }
        }
        let collection = self.coll::<PageDoc>(USER_OVERFLOW);
        collection.delete_many(pages(user, from, to)).session(&mut session).await?;
        if !built.is_empty() {
            collection.insert_many(built.into_values()).session(&mut session).await?;
        }
        commit(session).await?;
        Ok(true)
    }

    /// Brings the flags to the threshold of this process where it is another than the one the database was last served with. Gives the
    /// number of accounts that changed sides.
    ///
    /// The applier compares an account with the threshold when its followers change; an account that nobody follows or leaves would
    /// keep the flag of the old one. One scan of the accounts, and only where the threshold has changed. A crash in its middle leaves
    /// the old threshold noted, and the next start does it again.
    pub async fn adopt_threshold(&self) -> Result<usize> {
        let threshold = self.settings().celebrity_threshold;
        let notes = self.coll::<Document>(MIGRATIONS);
        let noted = doc! { "_id": "celebrity_threshold" };
        if notes.find_one(doc! { "_id": "celebrity_threshold", "value": threshold }).await?.is_some() {
            return Ok(0);
        }
        let due = doc! { "state": "live", "$or": [
            { "counters.followers": { "$gte": threshold }, "outlier": { "$exists": false } },
            // Whoever has fallen below 80 % of it, rounded up.
            { "counters.followers": { "$lt": (threshold * 4 + 4) / 5 }, "outlier": { "$exists": true } },
        ] };
        let found = self.coll::<IdDoc>(USERS).find(due.clone()).projection(doc! { "_id": 1 }).await?;
        let found: Vec<UserId> = found.map_ok(|user| UserId(user.id.into())).try_collect().await?;
        for user in &found {
            self.drain_follows(*user).await?;
        }
        // Whoever is under another process's lease was left out: the next start asks again.
        if self.coll::<IdDoc>(USERS).find_one(due).projection(doc! { "_id": 1 }).await?.is_some() {
            return Ok(found.len());
        }
        notes.update_one(noted, doc! { "$set": { "value": threshold } }).upsert(true).await?;
        Ok(found.len())
    }

    /// Builds the pages of all outliers anew where they were built with another [`LAYOUT`] or [`outlier::PAGE_SIZE`]. Gives the number of
    /// accounts.
    ///
    /// Under the account's lease: first `building`, so that readers use the index meanwhile, then the pages. A crash in the middle leaves
    /// this not noted, and the next start does it again.
    pub async fn adopt_pages(&self) -> Result<usize> {
        let notes = self.coll::<Document>(MIGRATIONS);
        let noted = doc! { "_id": "overflow_pages" };
        if notes.find_one(doc! { "_id": "overflow_pages", "value": layout() }).await?.is_some() {
            return Ok(0);
        }
        let outliers = doc! { "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } };
        let outliers = self.coll::<IdDoc>(USERS).find(outliers).projection(doc! { "_id": 1 }).await?;
        let outliers: Vec<UserId> = outliers.map_ok(|user| UserId(user.id.into())).try_collect().await?;
        for user in &outliers {
            let Some(lease) = Lease::take(self, &format!("{LEASE_PREFIX}{user}")).await? else {
                // Another process is at it, perhaps with the same work: the next start asks again.
                return Ok(0);
            };
            if self.set_flag(&lease, *user, doc! { "$set": { "outlier.state": "building" } }).await? {
                self.build_pages(&lease, *user).await?;
            }
            lease.release().await?;
        }
        notes.update_one(noted, doc! { "$set": { "value": layout() } }).upsert(true).await?;
        Ok(outliers.len())
    }

    /// Deletes all pages of an account. True: there were some.
    pub(crate) async fn drop_pages(&self, lease: &Lease, user: UserId) -> Result<bool> {
        self.drop_pages_from(lease, user, 0).await
    }

    /// Deletes the pages of an account from one on. True: there were some.
    async fn drop_pages_from(&self, lease: &Lease, user: UserId, from: i64) -> Result<bool> {
        until_no_conflict(|| async {
            let mut session = self.begin().await?;
            if !lease.hold(&mut session).await? {
                return Ok(false);
            }
            let all = pages(b(user), from, i64::MAX);
            let deleted = self.coll::<PageDoc>(USER_OVERFLOW).delete_many(all).session(&mut session).await?;
            commit(session).await?;
            Ok(deleted.deleted_count > 0)
        })
        .await
    }

    /// The edges with a `seq` in a slice, newest first: those that are on the pages and still stand, and those of pages that are empty or not
    /// built yet.
    ///
    /// What stands is asked as one range of the index, beside the pages: a list of numbers costs a server a search for each.
    pub(crate) async fn followers_on_pages(&self, user: bson::Uuid, slice: Slice) -> Result<Vec<FollowDoc>> {
        let (first, end) = (outlier::page_of(slice.from), outlier::page_of(slice.to - 1) + 1);
        let on_pages = async {
            let found = self.coll::<PageDoc>(USER_OVERFLOW).find(pages(user, first, end)).await?;
            let seqs = |page: PageDoc| (page.page, page.followers.into_iter().map(|entry| entry.seq).collect());
            Ok(found.map_ok(seqs).try_collect::<HashMap<i64, HashSet<i64>>>().await?)
        };
        let (pages, mut edges) = futures::try_join!(on_pages, self.followers_by_seq(user, slice))?;
        let listed = |seq: i64| pages.get(&outlier::page_of(seq)).is_none_or(|page| page.contains(&seq));
        edges.retain(|edge| edge.seq.is_some_and(listed));
        Ok(edges)
    }
}
