//! Reposts as acts of a feed: their documents, their places, and who has reposted what.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{PostId, Timestamp, UserId, fanout::Delivery, feed::Act};
use serde::{Deserialize, Serialize};

use super::EdgeState;
use crate::{
    Result, Store,
    collections::{REPOSTS, USERS},
    posts::{DeliveryDoc, DeliveryState},
    store::{ANSWER, b, date, id_at, new_id, now, until_no_conflict},
    users::OutlierDoc,
};

/// Accounts in one query: one branch of equality for each.
const BRANCHES: usize = 100;

/// A repost as the database holds it. Its id says when it was made, and is its place in feeds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RepostDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub user_id: bson::Uuid,
    pub post_id: bson::Uuid,
    /// Whose post it is.
    pub author_id: bson::Uuid,
    pub state: EdgeState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    pub delivery: DeliveryDoc,
}

impl RepostDoc {
    /// The act that it is in feeds.
    pub(crate) fn act(&self) -> Act {
        Act { slot: self.id.into(), post: PostId(self.post_id.into()), actor: UserId(self.user_id.into()) }
    }
}

/// What a repost needs of the account that makes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReposterDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    pub outlier: Option<OutlierDoc>,
    pulled_since: Option<bson::DateTime>,
    reposts_since: Option<bson::DateTime>,
}

/// A repost of which it matters whether it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reposted {
    pub act: Act,
    /// It is wanted; if not, the applier has not come to it yet.
    pub stands: bool,
}

#[derive(Debug, Deserialize)]
struct RepostedDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    post: bson::Uuid,
    state: EdgeState,
}

/// A new id that stands after the post, also where the clock of whoever wrote that is ahead.
pub(super) fn place_after(post: PostId) -> bson::Uuid {
    let id = new_id();
    if id > post.0 {
        return b(id);
    }
    b(id_at(Timestamp::from_millis(post.time().as_millis() + 1)))
}

impl Store {
    /// A live account, as far as a new repost of it needs to know.
    pub(super) async fn reposter(&self, id: UserId) -> Result<Option<ReposterDoc>> {
        let shown = doc! { "outlier": 1, "pulledSince": 1, "repostsSince": 1 };
        Ok(self.coll(USERS).find_one(doc! { "_id": b(id), "state": "live" }).projection(shown).await?)
    }

    /// Notes on an account, before its first repost, that it has some, and before the first that is pulled for good, that it has such:
    /// who reads its acts must never miss one.
    pub(super) async fn mark_reposter(&self, reposter: &ReposterDoc, delivery: Delivery) -> Result<()> {
        if delivery == Delivery::Pull && reposter.pulled_since.is_none() {
            self.mark_pulled(reposter.id, now()).await?;
        }
        if reposter.reposts_since.is_some() {
            return Ok(());
        }
        let unmarked = doc! { "_id": reposter.id, "repostsSince": { "$exists": false } };
        let mark = doc! { "$set": { "repostsSince": date(now()) } };
        until_no_conflict(async || Ok(self.coll::<Document>(USERS).update_one(unmarked.clone(), mark.clone()).await?)).await?;
        Ok(())
    }

    /// Remembers at once, in this process, a repost that readers pull, for good or until it is delivered.
    pub(super) fn remember_repost(&self, repost: &RepostDoc) {
        match repost.delivery.state {
            DeliveryState::Pull => self.shared().add_pulled(repost.act()),
            DeliveryState::Pending => {
                self.shared().add_pending(repost.act());
                self.wake().deliverer.notify_one();
            }
            DeliveryState::Delivered => {}
        }
    }

    /// The reposts that some of these accounts have made of these posts: pair by pair, for who reposts much and what is reposted by many
    /// would both be read through.
    pub(crate) async fn reposts_between(&self, users: &[UserId], posts: &[PostId]) -> Result<Vec<Reposted>> {
        let posts: Vec<bson::Uuid> = posts.iter().copied().map(b).collect();
        let mut reposts = Vec::new();
        for users in users.chunks(BRANCHES) {
            let branch = |user: &UserId| doc! { "userId": b(*user), "postId": { "$in": &posts } };
            let these = doc! { "$or": users.iter().map(branch).collect::<Vec<_>>() };
            let fields = doc! { "user": "$userId", "post": "$postId", "state": 1 };
            let found = self.coll::<RepostedDoc>(REPOSTS).find(these).projection(fields).batch_size(ANSWER).await?;
            let found: Vec<RepostedDoc> = found.try_collect().await?;
            reposts.extend(found.into_iter().map(|repost| Reposted {
                act: Act { slot: repost.id.into(), post: PostId(repost.post.into()), actor: UserId(repost.user.into()) },
                stands: repost.state == EdgeState::Active,
            }));
        }
        Ok(reposts)
    }
}
