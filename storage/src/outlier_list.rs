//! The list of outliers, for administrators.

use std::collections::HashMap;

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _};
use rookery_domain::{
    Limit, Page, Timestamp,
    outlier::{Outlier, State},
    page::EdgeCursor,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::{USER_OVERFLOW, USERS},
    overflow::pages,
    store::{ANSWER, b, date, timestamp},
    users::{CountersDoc, OutlierDoc, OutlierState, SummaryDoc},
};

/// Accounts whose pages are counted side by side.
const SIDE_BY_SIDE: usize = 4;

#[derive(Debug, Deserialize)]
struct FlaggedDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    outlier: OutlierDoc,
}

#[derive(Debug, Deserialize)]
struct OutlierPart {
    #[serde(flatten)]
    summary: SummaryDoc,
    counters: CountersDoc,
}

impl Store {
    /// A page of the accounts that are flagged as outliers, the last one flagged first.
    ///
    /// All of them are read for a page, by the index that holds nothing else: every process reads them several times a second.
    pub async fn outliers(&self, cursor: Option<EdgeCursor>, limit: Limit) -> Result<Page<Outlier, EdgeCursor>> {
        let flagged = doc! { "state": "live", "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } };
        let users = self.coll::<FlaggedDoc>(USERS);
        let found = users.find(flagged).projection(doc! { "outlier": 1 }).batch_size(ANSWER).await?;
        let key = |user: FlaggedDoc| (timestamp(user.outlier.since), Uuid::from(user.id));
        let mut keys: Vec<(Timestamp, Uuid)> = found.map_ok(key).try_collect().await?;
        keys.sort_unstable_by(|one, other| other.cmp(one));
        let (from, to) = slice(&keys, cursor, limit.get());
        let shown = &keys[from..to];

        let ids: Vec<bson::Uuid> = shown.iter().map(|(_, id)| b(*id)).collect();
        let mut fields = SummaryDoc::projection();
        fields.insert("counters", 1);
        let accounts = self.coll::<OutlierPart>(USERS);
        let accounts = accounts.find(doc! { "_id": { "$in": ids }, "state": "live" }).projection(fields).await?;
        let accounts: HashMap<Uuid, OutlierPart> = accounts.map_ok(|user| (user.summary.id.into(), user)).try_collect().await?;
        let accounts = accounts.into_values().map(|account| self.outlier(account));
        let found: Vec<Option<Outlier>> = futures::stream::iter(accounts).buffer_unordered(SIDE_BY_SIDE).try_collect().await?;
        let mut items: Vec<Outlier> = found.into_iter().flatten().collect();
        items.sort_unstable_by_key(|outlier| std::cmp::Reverse((outlier.since, outlier.user.id)));
        // Cursors are places in the list as it was read: who lost the flag meanwhile leaves a gap and not an end.
        let at = |index: usize| keys[index];
        let next = match (from < to, cursor) {
            (true, _) => Some(EdgeCursor::Before(at(to - 1).0, at(to - 1).1)),
            // With nothing newer, what the caller came from comes next.
            (false, Some(EdgeCursor::After(at, id))) => Some(EdgeCursor::Before(at, above(id))),
            (false, _) => None,
        };
        let next = next.filter(|_| to < keys.len());
        let prev = if from < to { Some(EdgeCursor::After(at(from).0, at(from).1)) } else { cursor.map(turned) };
        Ok(Page { items, next, prev })
    }

    /// None: it is no outlier any more.
    async fn outlier(&self, account: OutlierPart) -> Result<Option<Outlier>> {
        let OutlierPart { summary, counters } = account;
        let Some(OutlierDoc { state, since }) = summary.outlier else { return Ok(None) };
        let of = pages(summary.id, 0, i64::MAX);
        let count = self.coll::<Document>(USER_OVERFLOW).count_documents(of).await?;
        Ok(Some(Outlier {
            user: summary.into(),
            followers: counters.followers,
            pages: i64::try_from(count).unwrap_or(i64::MAX),
            state: match state {
                OutlierState::Building => State::Building,
                OutlierState::Ready => State::Ready,
            },
            since: timestamp(since),
        }))
    }
}

/// The places of a page in keys that descend.
fn slice(keys: &[(Timestamp, Uuid)], cursor: Option<EdgeCursor>, most: usize) -> (usize, usize) {
    match cursor {
        None => (0, keys.len().min(most)),
        Some(EdgeCursor::Before(at, id)) => {
            let from = keys.partition_point(|key| *key >= (at, id));
            (from, keys.len().min(from + most))
        }
        Some(EdgeCursor::After(at, id)) => {
            let to = keys.partition_point(|key| *key > (at, id));
            (to.saturating_sub(most), to)
        }
    }
}

/// The id behind which this one comes in a descending order.
fn above(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}

/// Back to where the caller came from.
fn turned(cursor: EdgeCursor) -> EdgeCursor {
    match cursor {
        EdgeCursor::Before(at, id) | EdgeCursor::After(at, id) => EdgeCursor::After(at, id),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

    use rookery_domain::UserId;

    use super::*;
    use crate::{
        Settings,
        pending::Progress,
        testing::{TestDatabase, user},
    };

    #[tokio::test]
    async fn outliers_are_listed_the_last_one_flagged_first_in_pages_both_ways() {
        let db = TestDatabase::with(Settings { celebrity_threshold: 2, ..Settings::default() }).await;
        let store = db.store();
        let mut stars: Vec<UserId> = Vec::new();
        let fans = [user(store).await, user(store).await];
        for _ in 0..5 {
            let star = user(store).await;
            for fan in fans {
                store.follow(fan, star).await.unwrap().unwrap();
            }
            while store.apply_follows_step().await.unwrap() != Progress::Idle {}
            stars.insert(0, star);
        }
        let limit = Limit::new(2).unwrap();
        let (mut shown, mut cursor) = (Vec::new(), None);
        let last = loop {
            let page = store.outliers(cursor, limit).await.unwrap();
            shown.extend(page.items.clone());
            cursor = page.next;
            if cursor.is_none() {
                break page;
            }
        };
        assert_eq!(shown.iter().map(|outlier| outlier.user.id).collect::<Vec<_>>(), stars);
        assert!(shown.iter().all(|outlier| (outlier.followers, outlier.pages, outlier.state) == (2, 1, State::Ready)));
        assert!(shown.iter().all(|outlier| outlier.user.celebrity));
        let back = store.outliers(last.prev, limit).await.unwrap();
        assert_eq!(back.items, shown[2..4]);
        assert!(back.next.is_some());
        let newest = store.outliers(store.outliers(None, limit).await.unwrap().prev, limit).await.unwrap();
        assert!(newest.items.is_empty() && newest.prev.is_some() && newest.next.is_some(), "{newest:?}");
    }
}
