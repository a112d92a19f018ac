//! Pages of accounts to which somebody stands in a relation of which only they know: whom they block, whom they mute, who asks to follow.
//!
//! Such a list is ordered by the time in an id. Accounts that are gone or hidden are left out, and the page is filled up.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{Limit, Page, Timestamp, UserId, ids, page::TimeCursor, user::UserSince};
use serde::Deserialize;

use crate::{
    Result, Store,
    hidden::Hidden,
    store::now,
    time_page::{self, Extent},
};

/// A list whose length nobody counts is taken to have so many items: lists are mostly short, and the slices of a longer one soon fit.
pub(crate) const ABOUT: i64 = 300;

/// A list of edges that belong to one account.
#[derive(Debug, Clone)]
pub(crate) struct Edges {
    /// The collection.
    pub name: &'static str,
    /// What all edges of the list have in common, by the index that `key` continues.
    pub list: Document,
    /// The field whose id is the place in the list.
    pub key: &'static str,
    /// The field of the account at the other end.
    pub other: &'static str,
    /// Nothing in the list is older.
    pub first: Timestamp,
    /// Whether accounts are left out between whom and the owner a block stands.
    pub without_blocked: bool,
}

#[derive(Debug, Deserialize)]
struct EndDoc {
    key: bson::Uuid,
    user: bson::Uuid,
}

impl Store {
    /// A page of the list, newest first.
    pub(crate) async fn users_since(
        &self,
        owner: UserId,
        edges: Edges,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Page<UserSince, TimeCursor>> {
        let edges = &edges;
        let extent = Extent { first: edges.first, total: ABOUT, now: now() };
        time_page::newest_first(cursor, limit, extent, async |slice| {
            let read = async |slice: time_page::Slice| {
                let filter = slice.of_key(&edges.list, edges.key);
                let fields = doc! { "_id": 0, "key": format!("${}", edges.key), "user": format!("${}", edges.other) };
                let ends = self.coll::<EndDoc>(edges.name);
                let found = ends.find(filter).projection(fields).sort(slice.sort_by_key(edges.key)).limit(slice.most).await?;
                Ok(found.map_ok(|end| (end.key.into(), UserId(end.user.into()))).try_collect().await?)
            };
            slice.filled(read, async |ends| self.shown_since(owner, edges.without_blocked, ends).await).await
        })
        .await
    }

    async fn shown_since(
        &self,
        owner: UserId,
        without_blocked: bool,
        ends: Vec<(uuid::Uuid, UserId)>,
    ) -> Result<Vec<(uuid::Uuid, UserSince)>> {
        let users = || ends.iter().map(|(_, user)| *user);
        let hidden = async { if without_blocked { self.hidden_among(Some(owner), users()).await } else { Ok(Hidden::default()) } };
        let (mut summaries, hidden) = futures::try_join!(self.summaries(users()), hidden)?;
        let shown = ends
            .into_iter()
            .filter(|(_, user)| !hidden.is_blocked(*user))
            .filter_map(|(key, user)| Some((key, UserSince { user: summaries.remove(&user)?, since: ids::time_of(key) })));
        Ok(shown.collect())
    }
}
