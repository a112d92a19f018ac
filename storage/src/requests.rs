//! Follow requests: edges to private accounts, which wait for consent.
//!
//! A request is an edge in the state `requested`, never counted, in no list but its followee's ([`Store::follow_requests`]). It is written
//! as one where the account is known to be private, so that it shows nothing for no moment; a follow that meets an account that has just
//! become private is made one by whoever applies it. Either way it stays `pending` until a transaction that began after the write has
//! seen the account private: an account that goes public first marks itself `opening` and then accepts what is there, so that of the
//! two one always sees the other, and no request is left behind. Each batch of those acceptances moves the mark, and a change back to
//! private removes it: the two conflict, and no request made after it is accepted by an opening that came before.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{Limit, Page, UserId, graph::FollowRefusal, page::TimeCursor, user::UserSince};
use serde::Deserialize;

use crate::{
    Result, Store,
    collections::{FOLLOWS, USERS},
    graph::{BATCH, FollowDoc, FollowState, Followed, IdDoc, NewFollow, Written, pair},
    store::{b, commit, new_id, until_no_conflict},
    user_lists::Edges,
};

/// Accounts whose opening one round of the applier goes on with.
const OPENINGS: i64 = 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    follower_id: bson::Uuid,
}

impl Store {
    /// Writes a follow of an account that is private, as the caller has just read: an edge that is there already stays what it is.
    pub(crate) async fn write_request(&self, new: NewFollow) -> Result<Written> {
        let NewFollow { follower, followee } = new;
        let edge = FollowDoc::wanted(new, FollowState::Requested);
        if self.insert_unless_there(FOLLOWS, std::slice::from_ref(&edge)).await?.is_empty() {
            return Ok(Written { edge: edge.id, follower, followee, state: FollowState::Requested, fresh: true });
        }
        self.follow_again(new, FollowState::Requested).await
    }

    /// What is left to find out about a request after it was written: whether the requester may follow one more. Requests count with the
    /// follows, or the consent of many would take somebody past the limit. None: it was taken away meanwhile.
    pub(crate) async fn settle_request(&self, written: Written) -> Result<Option<Result<Followed, FollowRefusal>>> {
        // Where it was a follow a moment ago, the look after the write is still to come.
        self.wake().applier.notify_one();
        let wanted = doc! { "followerId": b(written.follower), "state": { "$in": ["active", "requested"] } };
        let edges = self.coll::<Document>(FOLLOWS).count_documents(wanted).await?;
        if i64::try_from(edges).unwrap_or(i64::MAX) <= self.settings().follow_limit {
            return Ok(Some(Ok(Followed::Requested)));
        }
        let edge = self.mark_removed(written.follower, written.followee, &["requested"]).await?;
        let withdrawn = edge.is_some();
        self.apply_removal(edge, written.followee).await?;
        Ok(withdrawn.then_some(Err(FollowRefusal::LimitReached)))
    }

    /// Accepts a request. False: there is neither a request nor a follow of that account.
    pub async fn accept_request(&self, followee: UserId, follower: UserId) -> Result<bool> {
        let Some(edge) = self.mark_accepted(followee, follower).await? else {
            // An earlier call has accepted it.
            return self.follows(follower, followee).await;
        };
        // From here on it is a follow that was just written: whatever forbids it is looked for as it is applied.
        self.attempt_or_leave(edge, followee).await?;
        self.wake().merger.notify_one();
        Ok(true)
    }

    /// Writes what is wanted: a follow, with consent. Gives the edge, if it was a request.
    pub(crate) async fn mark_accepted(&self, followee: UserId, follower: UserId) -> Result<Option<bson::Uuid>> {
        let mut request = pair(follower, followee);
        request.insert("state", "requested");
        let edge = until_no_conflict(async || {
            let edges = self.coll::<IdDoc>(FOLLOWS);
            Ok(edges.find_one_and_update(request.clone(), acceptance()).projection(doc! { "_id": 1 }).await?)
        });
        let edge = edge.await?;
        if edge.is_some() {
            self.relations_changed(&[follower]).await?;
        }
        Ok(edge.map(|edge| edge.id))
    }

    /// Rejects a request; where there is none, nothing changes. A follow that was accepted stays.
    pub async fn reject_request(&self, followee: UserId, follower: UserId) -> Result<()> {
        let edge = self.mark_removed(follower, followee, &["requested"]).await?;
        self.apply_removal(edge, followee).await
    }

    /// A page of those who ask to follow an account, newest first.
    pub async fn follow_requests(
        &self,
        followee: UserId,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Page<UserSince, TimeCursor>> {
        let edges = Edges {
            name: FOLLOWS,
            list: doc! { "requestOf": b(followee) },
            key: "wish",
            other: "followerId",
            first: followee.time(),
            without_blocked: true,
        };
        self.users_since(followee, edges, cursor, limit).await
    }

    /// Consents to every follow of an account that is written and not applied: it was made, and perhaps answered, while the account was
    /// public, and must not become a request when the account goes private.
    pub(crate) async fn consent_to_pending(&self, user: UserId) -> Result<()> {
        let pending = doc! { "pending": true, "followeeId": b(user), "state": "active" };
        until_no_conflict(async || {
            let consent = doc! { "$set": { "accepted": true } };
            self.coll::<Document>(FOLLOWS).update_many(pending.clone(), consent).await?;
            Ok(())
        })
        .await
    }

    /// Accepts a batch of the requests of an account that has gone public; the mark goes with the last of them. None: there is no mark
    /// (any more).
    ///
    /// A transaction, because a batch must not be accepted after the account has gone private again: it moves the mark that this removes.
    pub(crate) async fn accept_batch(&self, user: UserId) -> Result<Option<usize>> {
        let mut session = self.begin().await?;
        let users = self.coll::<Document>(USERS);
        let opening = doc! { "_id": b(user), "opening": { "$gte": 1 }, "state": "live" };
        let moved = users.update_one(opening, doc! { "$inc": { "opening": 1 } }).session(&mut session).await?;
        if moved.matched_count == 0 {
            session.abort_transaction().await?;
            return Ok(None);
        }
        let mut found = self
            .coll::<RequestDoc>(FOLLOWS)
            .find(doc! { "requestOf": b(user) })
            .projection(doc! { "followerId": 1 })
            .limit(i64::try_from(BATCH).unwrap_or(i64::MAX))
            .session(&mut session)
            .await?;
        let requests: Vec<RequestDoc> = found.stream(&mut session).try_collect().await?;
        if requests.is_empty() {
            users.update_one(doc! { "_id": b(user) }, doc! { "$unset": { "opening": "" } }).session(&mut session).await?;
            commit(session).await?;
            return Ok(None);
        }
        let (ids, followers): (Vec<_>, Vec<_>) =
            requests.iter().map(|request| (request.id, UserId(request.follower_id.into()))).unzip();
        let these = doc! { "_id": { "$in": ids }, "state": "requested" };
        self.coll::<Document>(FOLLOWS).update_many(these, acceptance()).session(&mut session).await?;
        commit(session).await?;
        self.relations_changed(&followers).await?;
        Ok(Some(followers.len()))
    }

    /// Accepts everything that waits for an account that has gone public, batch by batch, and gives the number.
    pub(crate) async fn finish_opening(&self, user: UserId) -> Result<usize> {
        let mut done = 0;
        while let Some(accepted) = until_no_conflict(|| self.accept_batch(user)).await? {
            done += accepted;
        }
        Ok(done)
    }

    /// Openings that a crash, or their number, has left to the applier.
    pub(crate) async fn finish_openings(&self) -> Result<usize> {
        let users = self.coll::<IdDoc>(USERS);
        let opening = users.find(doc! { "opening": { "$gte": 1 } }).projection(doc! { "_id": 1 }).limit(OPENINGS).await?;
        let opening: Vec<IdDoc> = opening.try_collect().await?;
        let mut done = 0;
        for user in opening {
            done += self.finish_opening(UserId(user.id.into())).await?;
        }
        Ok(done)
    }
}

/// A request becomes a follow with consent, and a new one.
fn acceptance() -> Document {
    doc! {
        "$set": { "state": "active", "accepted": true, "asked": true, "pending": true, "wish": b(new_id()), "merged": false },
        "$unset": { "requestOf": "" },
    }
}
