//! Whom to follow: friends of friends, then popular accounts.
//!
//! Nobody's lists are read whole. Of those whom the reader has followed most recently the ones who follow few are asked (who follows
//! thousands says little by each, and costs most to read), each for a bounded slice of newest follows. So the cost does not grow with
//! the reader's follows, nor with the followers of whom they follow.

use std::{collections::BTreeSet, time::Duration};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Timestamp, UserId, ids,
    post::{first_slice, next_slice},
    suggestions::{Reason, Suggestion, rank},
    user::Relation,
};
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{FOLLOWS, USERS},
    graph::FollowState,
    store::{b, date, now, timestamp},
    users::{CountersDoc, UserRef},
};

/// Newest follows of the reader that are looked at.
const FRIENDS: usize = 100;

/// Of these, those who are asked whom they follow.
const ASKED: usize = 30;

/// Newest follows of each that are looked at, about.
const FOLLOWS_EACH: usize = 50;

/// Edges that one answer reads at most, where many follows of one account were made in the same moment.
const EDGES: i64 = 3_000;

/// Candidates that are looked up together.
const PORTION: usize = 100;

/// Portions after which an answer is given as it is.
const PORTIONS: usize = 5;

/// Newest follows of anybody in which popular accounts are looked for where there are no celebrities.
const RECENT: i64 = 1_000;

/// How far back these may lie.
const RECENT_SPAN: Duration = Duration::from_hours(60 * 24);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EdgePart {
    followee_id: bson::Uuid,
    state: FollowState,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FriendDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    counters: CountersDoc,
    created_at: bson::DateTime,
}

impl Store {
    /// Accounts that `reader` may want to follow, at most `limit`: none that they follow, have asked to follow or mute, and none with a
    /// block in between.
    pub async fn suggestions(&self, reader: UserId, limit: Limit) -> Result<Vec<Suggestion>> {
        let Some(user) = self.user(&UserRef::Id(reader)).await? else { return Ok(Vec::new()) };
        let friends = self.newest_follows(reader, user.counts.following, user.created_at).await?;
        let mut known: BTreeSet<UserId> = friends.iter().copied().chain([reader]).collect();
        let shared = rank(self.follows_of_friends(&friends).await?, &known);
        let shared = shared.into_iter().map(|(user, count)| (user, Reason::SharedFollows(count)));
        let mut found = Vec::new();
        self.take_suggestions(reader, shared.collect(), limit, &mut known, &mut found).await?;
        if found.len() < limit.get() {
            let popular = self.popular().await?;
            let popular = popular.into_iter().filter(|user| !known.contains(user)).map(|user| (user, Reason::Popular));
            self.take_suggestions(reader, popular.collect(), limit, &mut BTreeSet::new(), &mut found).await?;
        }
        Ok(found)
    }

    /// Takes candidates that may be suggested, in their order, until there are enough.
    async fn take_suggestions(
        &self,
        reader: UserId,
        candidates: Vec<(UserId, Reason)>,
        limit: Limit,
        seen: &mut BTreeSet<UserId>,
        found: &mut Vec<Suggestion>,
    ) -> Result<()> {
        for portion in candidates.chunks(PORTION).take(PORTIONS) {
            let ids: Vec<UserId> = portion.iter().map(|(user, _)| *user).collect();
            let (relations, mut users) = futures::try_join!(self.relations(reader, &ids), self.summaries(ids.iter().copied()))?;
            seen.extend(ids);
            for (user, reason) in portion {
                if let Some(user) = users.remove(user)
                    && relations.get(&user.id).copied().is_none_or(may_be_suggested)
                {
                    found.push(Suggestion { user, reason: *reason });
                    if found.len() == limit.get() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Whom an account followed last: some [`FRIENDS`], in slices of time that are sized from how many it follows.
    async fn newest_follows(&self, user: UserId, total: i64, since: Timestamp) -> Result<Vec<UserId>> {
        let mut to = now().plus(Duration::from_secs(1));
        let (mut span, mut found) = (first_slice(FRIENDS, total, to.since(since)), Vec::new());
        loop {
            let from = span.map(|span| to.minus(span)).filter(|from| *from > since).unwrap_or(Timestamp::from_millis(0));
            let slice = doc! { "followerId": b(user), "followedAt": { "$gte": date(from), "$lt": date(to) } };
            let edges = self.followees(slice, i64::try_from(FRIENDS).unwrap_or(i64::MAX)).await?;
            span = span.map(|span| next_slice(span, edges.len()));
            found.extend(edges);
            if found.len() >= FRIENDS || from == Timestamp::from_millis(0) {
                found.truncate(FRIENDS);
                return Ok(found);
            }
            to = from;
        }
    }

    /// Whom those of these accounts follow who follow the fewest: one query, with a bounded range for each.
    async fn follows_of_friends(&self, friends: &[UserId]) -> Result<Vec<UserId>> {
        let ids: Vec<bson::Uuid> = friends.iter().copied().map(b).collect();
        let fields = doc! { "counters": 1, "createdAt": 1 };
        let found = self.coll::<FriendDoc>(USERS).find(doc! { "_id": { "$in": ids } }).projection(fields).await?;
        let mut found: Vec<FriendDoc> = found.try_collect().await?;
        found.retain(|friend| friend.counters.following > 0);
        found.sort_by_key(|friend| friend.counters.following);
        found.truncate(ASKED);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let at = now().plus(Duration::from_secs(1));
        let branch = |friend: &FriendDoc| {
            let age = at.since(timestamp(friend.created_at));
            let span = first_slice(FOLLOWS_EACH, friend.counters.following, age);
            let from = span.map_or(Timestamp::from_millis(0), |span| at.minus(span));
            doc! { "followerId": friend.id, "followedAt": { "$gte": date(from), "$lt": date(at) } }
        };
        self.followees(doc! { "$or": found.iter().map(branch).collect::<Vec<_>>() }, EDGES).await
    }

    async fn followees(&self, edges: Document, most: i64) -> Result<Vec<UserId>> {
        let fields = doc! { "_id": 0, "followeeId": 1, "state": 1 };
        let found =
            self.coll::<EdgePart>(FOLLOWS).find(edges).sort(doc! { "followedAt": -1 }).limit(most).projection(fields).await?;
        let active = found.try_filter(|edge| std::future::ready(edge.state == FollowState::Active));
        Ok(active.map_ok(|edge| UserId(edge.followee_id.into())).try_collect().await?)
    }

    /// The celebrities, by their followers; where there are none, whom the newest follows lead to.
    async fn popular(&self) -> Result<Vec<UserId>> {
        let flagged = doc! { "outlier.since": { "$gt": date(Timestamp::from_millis(0)) } };
        let fields = doc! { "counters": 1, "createdAt": 1 };
        let celebrities = self.coll::<FriendDoc>(USERS).find(flagged).limit(EDGES).projection(fields).await?;
        let mut celebrities: Vec<FriendDoc> = celebrities.try_collect().await?;
        celebrities.sort_by_key(|user| std::cmp::Reverse(user.counters.followers));
        let mut popular: Vec<UserId> = celebrities.into_iter().map(|user| UserId(user.id.into())).collect();
        if popular.len() < PORTION {
            let known: BTreeSet<UserId> = popular.iter().copied().collect();
            popular.extend(rank(self.recently_followed().await?, &known).into_iter().map(|(user, _)| user));
        }
        Ok(popular)
    }

    /// Whom the newest follows of anybody lead to.
    async fn recently_followed(&self) -> Result<Vec<UserId>> {
        let at = now();
        let (mut to, mut span) = (at.plus(Duration::from_secs(1)), Duration::from_secs(1));
        let mut found = Vec::new();
        while i64::try_from(found.len()).is_ok_and(|found| found < RECENT) && at.since(to) < RECENT_SPAN {
            let from = to.minus(span);
            let made = doc! { "$gte": b(ids::floor_at(from)), "$lt": b(ids::floor_at(to)) };
            let fields = doc! { "_id": 0, "followeeId": 1, "state": 1 };
            let edges = self.coll::<EdgePart>(FOLLOWS).find(doc! { "_id": made }).limit(RECENT).projection(fields).await?;
            let edges = edges.try_filter(|edge| std::future::ready(edge.state == FollowState::Active));
            found.extend(edges.map_ok(|edge| UserId(edge.followee_id.into())).try_collect::<Vec<_>>().await?);
            (to, span) = (from, span.saturating_mul(8));
        }
        Ok(found)
    }
}

fn may_be_suggested(relation: Relation) -> bool {
    !(relation.following || relation.requested || relation.blocking || relation.blocked_by || relation.muting)
}
