//! Lists of followers and followees, as a viewer sees them.
//!
//! Whoever is gone, or hidden from the viewer by a block, is left out, and the page is filled up. The lists of a private account are for
//! its followers and itself; where a block stands, neither of the two sees the other's. No page is a scan that grows with the account:
//! a list of followers is read in ranges of `seq`, known followers from the smaller of two sides.

use std::collections::HashSet;

use bson::{Document, doc};
use futures::{StreamExt as _, TryStreamExt as _};
use rookery_domain::{
    Limit, Page, Timestamp, UserId,
    page::{EdgeCursor, SeqCursor},
    user::UserSummary,
};
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::FOLLOWS,
    graph::{FollowDoc, FollowState},
    seq_page::{self, Extent, Slice, Way},
    store::{b, date, timestamp},
    users::{OutlierState, UserDoc, UserRef},
};

/// Up to so many followers of an account are looked through for those whom a viewer follows; of more, the viewer's followees are asked
/// one by one whether they are among them. Either way a page costs no more for a larger account.
const LOOKED_THROUGH: i64 = 2_000;

/// Pairs of one query: one branch of an `$or` each.
const PAIRS: usize = 100;

/// Queries for pairs at a time: enough to hide the way to the database and back, few enough to leave it to others.
const PAIR_QUERIES: usize = 4;

/// One edge in a list of followers or followees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// The account at the other end.
    pub user: UserSummary,
    /// When the edge was counted.
    pub followed_at: Timestamp,
}

type EdgeCursorKey = (Timestamp, uuid::Uuid);

fn key_of(cursor: EdgeCursor) -> EdgeCursorKey {
    match cursor {
        EdgeCursor::Before(at, id) | EdgeCursor::After(at, id) => (at, id),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FolloweeDoc {
    followee_id: bson::Uuid,
    state: FollowState,
}

impl Store {
    /// An account whose lists the viewer may see; none if there is no such account, a block stands between the two, or it is private and
    /// the viewer does not follow it.
    async fn listed_user(&self, of: &UserRef, viewer: Option<UserId>) -> Result<Option<UserDoc>> {
        let Some(user) = self.user_doc(of).await? else { return Ok(None) };
        let id = UserId(user.id.into());
        let relation = match viewer {
            Some(viewer) if viewer == id => return Ok(Some(user)),
            Some(viewer) => self.relations(viewer, &[id]).await?.remove(&id).unwrap_or_default(),
            None => rookery_domain::user::Relation::default(),
        };
        let seen = !relation.blocked() && (relation.following || !user.settings.private);
        Ok(seen.then_some(user))
    }

    /// A page of the followers of an account, newest first; none if there is no such account, or none whose lists the viewer may see.
    ///
    /// The `seq` of an edge bounds every range, so that a page costs the same however many followers there are and however deep it lies.
    /// Those of an outlier come from its overflow pages; whoever has left since is not shown.
    pub async fn followers(
        &self,
        of: &UserRef,
        viewer: Option<UserId>,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Option<Page<Follow, SeqCursor>>> {
        let Some(user) = self.listed_user(of, viewer).await? else {
            return Ok(None);
        };
        let page = seq_page::newest_first(cursor, limit, user.follower_seq, async |slice| {
            self.shown_followers(viewer, self.followers_in(&user, slice).await?).await
        });
        Ok(Some(page.await?))
    }

    /// The followers of an account with a `seq` in a slice, newest first.
    async fn followers_in(&self, user: &UserDoc, slice: Slice) -> Result<Vec<FollowDoc>> {
        if user.outlier.is_some_and(|outlier| outlier.state == OutlierState::Ready) {
            self.followers_on_pages(user.id, slice).await
        } else {
            self.followers_by_seq(user.id, slice).await
        }
    }

    /// The edges with a `seq` in a slice, from the index, newest first.
    pub(crate) async fn followers_by_seq(&self, followee: bson::Uuid, slice: Slice) -> Result<Vec<FollowDoc>> {
        // By the index alone: a server may read all of the followee's edges for a condition that the index does not have.
        let range = doc! { "followeeId": followee, "seq": { "$gte": slice.from, "$lt": slice.to } };
        let found = self.coll::<FollowDoc>(FOLLOWS).find(range).sort(doc! { "seq": -1 }).await?;
        Ok(found.try_filter(|edge| std::future::ready(edge.state == FollowState::Active)).try_collect().await?)
    }

    /// These followers as a viewer sees them, without those who are gone or hidden.
    async fn shown_followers(&self, viewer: Option<UserId>, edges: Vec<FollowDoc>) -> Result<Vec<(i64, Follow)>> {
        let followers = || edges.iter().map(FollowDoc::follower);
        let (mut users, hidden) = futures::try_join!(self.summaries(followers()), self.hidden_among(viewer, followers()))?;
        let shown = edges.iter().filter(|edge| !hidden.is_blocked(edge.follower())).filter_map(|edge| {
            let user = users.remove(&edge.follower())?;
            Some((edge.seq?, Follow { user, followed_at: timestamp(edge.followed_at?) }))
        });
        Ok(shown.collect())
    }

    /// A page of the followers of an account whom the viewer follows too, in the order of the followers; none where
    /// [`Store::followers`] gives none.
    ///
    /// A small account's followers are looked through in ranges of `seq`. Of a large one the viewer's followees, who are few, are asked
    /// for their edge to it, pair by pair: the number of its followers makes no difference.
    pub async fn known_followers(
        &self,
        of: &UserRef,
        viewer: UserId,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Option<Page<Follow, SeqCursor>>> {
        let Some(user) = self.listed_user(of, Some(viewer)).await? else {
            return Ok(None);
        };
        let page = if user.counters.followers <= LOOKED_THROUGH {
            seq_page::newest_first(cursor, limit, user.follower_seq, async |slice| {
                let mut edges = self.followers_in(&user, slice).await?;
                let known = self.followees_among(viewer, edges.iter().map(FollowDoc::follower)).await?;
                edges.retain(|edge| known.contains(&edge.follower()));
                self.shown_followers(Some(viewer), edges).await
            })
            .await?
        } else {
            let known = self.edges_of_followees(viewer, user.id).await?;
            let total = i64::try_from(known.len()).unwrap_or(i64::MAX);
            let extent = Extent { above: 0, newest: user.follower_seq, total };
            seq_page::page(Way::Down, cursor, limit, extent, async |slice| {
                let inside = |edge: &&FollowDoc| edge.seq.is_some_and(|seq| (slice.from..slice.to).contains(&seq));
                self.shown_followers(Some(viewer), known.iter().filter(inside).cloned().collect()).await
            })
            .await?
        };
        Ok(Some(page))
    }

    /// Whom of `users` the viewer follows.
    async fn followees_among(&self, viewer: UserId, users: impl IntoIterator<Item = UserId>) -> Result<HashSet<UserId>> {
        let users: Vec<bson::Uuid> = users.into_iter().map(b).collect();
        if users.is_empty() {
            return Ok(HashSet::new());
        }
        self.followees_where(doc! { "followerId": b(viewer), "followeeId": { "$in": users } }).await
    }

    async fn followees_where(&self, filter: Document) -> Result<HashSet<UserId>> {
        let fields = doc! { "_id": 0, "followeeId": 1, "state": 1 };
        let found = self.coll::<FolloweeDoc>(FOLLOWS).find(filter).projection(fields).await?;
        let active = found.try_filter(|edge| std::future::ready(edge.state == FollowState::Active));
        Ok(active.map_ok(|edge| UserId(edge.followee_id.into())).try_collect().await?)
    }

    /// The edges to an account from everybody whom the viewer follows.
    async fn edges_of_followees(&self, viewer: UserId, to: bson::Uuid) -> Result<Vec<FollowDoc>> {
        let followees = self.followees_where(doc! { "followerId": b(viewer) }).await?;
        let pairs: Vec<Document> = followees.into_iter().map(|user| doc! { "followerId": b(user), "followeeId": to }).collect();
        let queries = pairs.chunks(PAIRS).map(|pairs| {
            let either = doc! { "$or": pairs };
            async move { self.coll::<FollowDoc>(FOLLOWS).find(either).await?.try_collect::<Vec<FollowDoc>>().await }
        });
        let found: Vec<Vec<FollowDoc>> = futures::stream::iter(queries).buffer_unordered(PAIR_QUERIES).try_collect().await?;
        Ok(found.into_iter().flatten().filter(|edge| edge.state == FollowState::Active).collect())
    }

    /// A page of the accounts that an account follows, newest first; none where [`Store::followers`] gives none.
    pub async fn following(
        &self,
        of: &UserRef,
        viewer: Option<UserId>,
        cursor: Option<EdgeCursor>,
        limit: Limit,
    ) -> Result<Option<Page<Follow, EdgeCursor>>> {
        let Some(user) = self.listed_user(of, viewer).await? else {
            return Ok(None);
        };
        let follower = UserId(user.id.into());
        let newer = matches!(cursor, Some(EdgeCursor::After(..)));
        let mut found = self.shown_following(follower, viewer, cursor.map(key_of), newer, limit.get() + 1).await?;
        let more = found.len() > limit.get();
        found.truncate(limit.get());
        if newer {
            found.reverse();
        }
        let older_exist = match (newer, found.last().map(|(key, _)| *key).or_else(|| cursor.map(key_of))) {
            (false, _) => more,
            (true, Some(key)) => !self.shown_following(follower, viewer, Some(key), false, 1).await?.is_empty(),
            (true, None) => false,
        };
        let next = found.last().filter(|_| older_exist).map(|(key, _)| EdgeCursor::Before(key.0, key.1));
        let first = found.first().map(|(key, _)| *key).or_else(|| cursor.map(key_of));
        let prev = first.map(|key| EdgeCursor::After(key.0, key.1));
        Ok(Some(Page { items: found.into_iter().map(|(_, follow)| follow).collect(), next, prev }))
    }

    /// The `most` accounts that come next in a list of followees, without those who are gone or hidden.
    async fn shown_following(
        &self,
        follower: UserId,
        viewer: Option<UserId>,
        mut from: Option<EdgeCursorKey>,
        newer: bool,
        most: usize,
    ) -> Result<Vec<(EdgeCursorKey, Follow)>> {
        let mut found: Vec<(EdgeCursorKey, Follow)> = Vec::new();
        loop {
            let batch = self.following_slice(follower, from, newer, most).await?;
            let last = batch.len() < most;
            from = batch.last().and_then(FollowDoc::key).or(from);
            let followees = || batch.iter().map(FollowDoc::followee);
            let (mut users, hidden) = futures::try_join!(self.summaries(followees()), self.hidden_among(viewer, followees()))?;
            found.extend(batch.iter().filter(|edge| !hidden.is_blocked(edge.followee())).filter_map(|edge| {
                let key = edge.key()?;
                Some((key, Follow { user: users.remove(&edge.followee())?, followed_at: key.0 }))
            }));
            if last || found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
        }
    }

    async fn following_slice(
        &self,
        follower: UserId,
        from: Option<EdgeCursorKey>,
        newer: bool,
        most: usize,
    ) -> Result<Vec<FollowDoc>> {
        let (less, order) = if newer { ("$gt", 1) } else { ("$lt", -1) };
        let mut filter = doc! { "followerId": b(follower), "state": "active", "followedAt": { "$type": "date" } };
        if let Some((at, id)) = from {
            filter.remove("followedAt");
            let same = doc! { "followedAt": date(at), "_id": { less: b(id) } };
            filter.insert("$or", vec![doc! { "followedAt": { less: date(at) } }, same]);
        }
        let found = self
            .coll::<FollowDoc>(FOLLOWS)
            .find(filter)
            .sort(doc! { "followedAt": order, "_id": order })
            .limit(i64::try_from(most).unwrap_or(i64::MAX))
            .await?;
        Ok(found.try_collect().await?)
    }
}

impl FollowDoc {
    /// The place in a list of followees.
    fn key(&self) -> Option<EdgeCursorKey> {
        Some((timestamp(self.followed_at?), self.id.into()))
    }
}
