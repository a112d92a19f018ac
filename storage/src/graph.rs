//! The social graph: follow edges, in a collection indexed both ways. Blocks are in [`crate::blocks`], requests in [`crate::requests`], the
//! lists in [`crate::follow_lists`].
//!
//! The protocol is that of docs/data-model.md. A follow is written first and checked after ([`Store::follow`]); both accounts' counters
//! move in the one transaction of [`Store::apply_follows`], by the difference between what is wanted and what is applied, so that
//! no crash and no race can count an edge twice or not at all. A quiet account is counted in the request; an outlier's edges are
//! taken by the applier in batches under a lease ([`Store::apply_follows_step`]), together with its overflow pages.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::{ClientSession, error::ErrorKind, options::ReturnDocument};
use rookery_domain::{
    Timestamp, UserId,
    graph::{FollowRefusal, Settled, Standing as Facts, settle},
    pending::{Step, step},
    stats::Figures,
    user::Relation,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store,
    blocks::BlockDoc,
    bulk::Statement,
    collections::{BLOCKS, FOLLOWS, MUTES, USERS},
    error::is_duplicate_key,
    lease::{self, Lease},
    mutes::MuteDoc,
    notifications::{SingleDoc, Together, Told},
    overflow::PageChanges,
    pending::{Attempt, Progress, attempt, in_batches},
    stats::Subject,
    store::{ANSWER, b, commit, date, new_id, now, timestamp, until_no_conflict},
    users::UserState,
};

/// Edges that one transaction applies: a batch of 500 takes some 50 ms on the embedded database, and its lease lasts 10 s.
pub(crate) const BATCH: usize = 500;

/// Leases of the applier for one followee.
pub(crate) const LEASE_PREFIX: &str = "follows:";

/// How often a request begins anew because its edge was taken away between its steps, before it says that the database is busy.
const TRIES: usize = 8;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FollowDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub follower_id: bson::Uuid,
    pub followee_id: bson::Uuid,
    pub state: FollowState,
    /// The edge is the n-th follower of the followee; there exactly while both accounts count it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub followed_at: Option<bson::DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// New with each follow: what a backfill was made for.
    pub wish: bson::Uuid,
    /// The followee's recent posts are in the follower's timeline, or are not to be, while the edge is a request.
    pub merged: bool,
    /// The followee, while the edge is a request: the key of that list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_of: Option<bson::Uuid>,
    /// The followee has consented to this wish, which is not applied yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    /// That was an answer to a request, which whoever asked is still to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FollowState {
    Requested,
    Active,
    Removed,
}

/// What a follow came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The edge stands, since now or since earlier.
    Following,
    /// The account is private: the edge waits for its consent.
    Requested,
}

/// An account that is to be followed, as the caller has just read it: that it is private decides how the edge is first written, not what
/// becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followee {
    /// The account.
    pub id: UserId,
    /// Whether it was private.
    pub private: bool,
}

impl From<UserId> for Followee {
    fn from(id: UserId) -> Self {
        Self { id, private: false }
    }
}

/// A follow that is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFollow {
    pub(crate) follower: UserId,
    pub(crate) followee: UserId,
}

/// An edge after its write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) edge: bson::Uuid,
    pub(crate) follower: UserId,
    pub(crate) followee: UserId,
    pub(crate) state: FollowState,
    /// This very call made it pending.
    pub(crate) fresh: bool,
}

/// What stands about an edge after its write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    facts: Facts,
    /// What the edge is, if it is still there and wanted.
    state: Option<FollowState>,
}

/// What applying one edge came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is counted (now, or since earlier) and active.
    Counted,
    /// It waits for the followee's consent, and is not counted.
    Requested,
    /// It is gone, and was wanted to be.
    Gone,
    /// It was wanted, but something forbids it: it is gone.
    Withdrawn(FollowRefusal),
    /// Its followee is, or with it would be, an outlier: only the leased applier may.
    Left,
}

/// Who applies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Applier<'a> {
    /// A request, which has not been answered yet: quiet accounts only, within the follow limit.
    Quiet,
    /// An import, or a deletion of an account: quiet accounts only, without a limit.
    Import,
    /// The applier of this one followee, who holds its lease.
    Leased(&'a Lease, UserId),
}

impl Store {
    /// Makes `follower` follow `followee`, or ask to where that is private. Repeating it answers as the first call.
    ///
    /// Write first, check after: the edge is written, then whatever forbids it is looked for, so that of a follow and a block (or a change
    /// of privacy) that race one always sees the other. Concurrent calls share their writes.
    pub async fn follow(&self, follower: UserId, followee: impl Into<Followee>) -> Result<Result<Followed, FollowRefusal>> {
        let Followee { id: followee, private } = followee.into();
        if follower == followee {
            return Ok(Err(FollowRefusal::SelfFollow));
        }
        let new = NewFollow { follower, followee };
        for _ in 0..TRIES {
            let written = if private { self.write_request(new).await? } else { self.gathered_follows().call(new).await? };
            if written.state == FollowState::Requested && !written.fresh {
                return Ok(Ok(Followed::Requested));
            }
            if let Some(answer) = self.settle_follow(written).await? {
                match answer {
                    Ok(Followed::Following) => self.wake().merger.notify_one(),
                    // It stood for a moment, and a page of the feed may have seen it.
                    Ok(Followed::Requested) | Err(_) => self.relations_changed(&[follower]).await?,
                }
                return Ok(answer);
            }
        }
        Err(Error::Busy)
    }

    /// Counts the edge if its followee is quiet, and in any case finds out whether it may stand, and as what. None: it was taken away
    /// meanwhile.
    pub(crate) async fn settle_follow(&self, written: Written) -> Result<Option<Result<Followed, FollowRefusal>>> {
        if written.fresh && (written.state == FollowState::Requested || !self.is_celebrity(written.followee)) {
            let applied = attempt(self.apply_follows(&[written.edge], Applier::Quiet)).await?;
            match applied {
                Attempt::Applied(outcomes) => match outcomes.get(&written.edge) {
                    Some(Outcome::Counted) => return Ok(Some(Ok(Followed::Following))),
                    Some(Outcome::Requested) => return self.settle_request(written).await,
                    Some(Outcome::Withdrawn(refusal)) => return Ok(Some(Err(*refusal))),
                    Some(Outcome::Left) => self.wake().applier.notify_one(),
                    // Applied or taken away by somebody else: the check below tells which.
                    Some(Outcome::Gone) | None => {}
                },
                Attempt::Left => self.leave_to_applier(|| self.is_applied(written.edge)).await?,
            }
        } else if written.fresh {
            self.wake().applier.notify_one();
        }
        let standing = self.gathered_standings().call(written).await?;
        match (settle(standing.facts, self.settings().follow_limit), standing.state) {
            (Ok(Settled::Follow), Some(FollowState::Active)) => Ok(Some(Ok(Followed::Following))),
            (Ok(_), Some(FollowState::Requested)) => self.settle_request(written).await,
            (Ok(Settled::Request), Some(FollowState::Active)) => {
                // The account has become private meanwhile: a follow without its consent shows its posts for no longer than this.
                until_no_conflict(|| self.apply_quietly(written.edge)).await?;
                self.settle_request(written).await
            }
            (Ok(_), Some(FollowState::Removed) | None) => Ok(None),
            (Err(refusal), _) => {
                let withdrawn = until_no_conflict(|| async {
                    match self.look_to_withdraw(written).await? {
                        Some(look) => self.withdraw(written, look).await,
                        None => Ok(false),
                    }
                })
                .await?;
                if withdrawn {
                    self.wake().applier.notify_one();
                }
                Ok(withdrawn.then_some(Err(refusal)))
            }
        }
    }

    /// Writes a batch of follows: fresh edges in one insert; edges that are there already, and removed, are wanted again.
    pub(crate) async fn write_follows(&self, batch: Vec<NewFollow>) -> Result<Vec<Written>> {
        let docs: Vec<FollowDoc> = batch.iter().map(|new| FollowDoc::fresh(new.follower, new.followee)).collect();
        let mut done: Vec<Option<Written>> = vec![None; batch.len()];
        let there = self.insert_unless_there(FOLLOWS, &docs).await?;
        for (at, (new, doc)) in batch.iter().zip(&docs).enumerate() {
            if !there.contains(&at) {
                done[at] = Some(Written {
                    edge: doc.id,
                    follower: new.follower,
                    followee: new.followee,
                    state: FollowState::Active,
                    fresh: true,
                });
            }
        }
        for (written, new) in done.iter_mut().zip(&batch) {
            if written.is_none() {
                *written = Some(self.follow_again(*new, FollowState::Active).await?);
            }
        }
        let done: Vec<Written> = done.into_iter().flatten().collect();
        let fresh: Vec<UserId> = done.iter().filter(|written| written.fresh).map(|written| written.follower).collect();
        self.relations_changed(&fresh).await?;
        Ok(done)
    }

    /// A follow of a pair that has an edge: makes a removed one wanted again, as a follow or a request, and leaves any other.
    pub(crate) async fn follow_again(&self, new: NewFollow, wanted: FollowState) -> Result<Written> {
        let NewFollow { follower, followee } = new;
        let edges = self.coll::<FollowDoc>(FOLLOWS);
        let as_written = |edge: &FollowDoc, fresh| Written { edge: edge.id, follower, followee, state: edge.state, fresh };
        for _ in 0..TRIES {
            let mut removed = pair(follower, followee);
            removed.insert("state", "removed");
            let mut again = match wanted {
                FollowState::Requested => doc! { "state": "requested", "requestOf": b(followee), "merged": true },
                FollowState::Active | FollowState::Removed => doc! { "state": "active", "merged": false },
            };
            again.extend(doc! { "pending": true, "wish": b(new_id()) });
            let again = doc! { "$set": again };
            let revived = edges.find_one_and_update(removed, again).return_document(ReturnDocument::After).await?;
            if let Some(edge) = revived {
                return Ok(as_written(&edge, true));
            }
            if let Some(edge) = edges.find_one(pair(follower, followee)).await? {
                if edge.state != FollowState::Removed {
                    return Ok(as_written(&edge, false));
                }
                continue;
            }
            let doc = FollowDoc::wanted(new, wanted);
            if self.insert_unless_there(FOLLOWS, std::slice::from_ref(&doc)).await?.is_empty() {
                return Ok(as_written(&doc, true));
            }
        }
        Err(Error::Busy)
    }

    /// Inserts what is not there yet, and gives the places of those that were.
    pub(crate) async fn insert_unless_there<T: Serialize + Send + Sync>(&self, name: &str, docs: &[T]) -> Result<HashSet<usize>> {
        match self.coll::<T>(name).insert_many(docs).ordered(false).await {
            Ok(_) => Ok(HashSet::new()),
            Err(error) if is_duplicate_key(&error) => Ok(crate::error::failed_indexes(&error)),
            Err(error) => Err(error.into()),
        }
    }

    /// What stands about each of these edges now: three reads for the whole batch. They are made after the writes, so that of a block
    /// or a deletion that races a follow, one sees the other.
    pub(crate) async fn standings(&self, batch: Vec<Written>) -> Result<Vec<Standing>> {
        let users: HashSet<UserId> = batch.iter().flat_map(|edge| [edge.follower, edge.followee]).collect();
        let edges: Vec<bson::Uuid> = batch.iter().map(|edge| edge.edge).collect();
        let these = doc! { "_id": { "$in": edges } };
        let fields = doc! { "state": 1, "pending": 1, "accepted": 1 };
        let pairs: Vec<_> = batch.iter().map(|edge| (edge.follower, edge.followee)).collect();
        let (parties, blocked, there) = futures::try_join!(self.parties(users, None), self.blocked_pairs(&pairs, None), async {
            Ok(self.coll::<ThereDoc>(FOLLOWS).find(these).projection(fields).await?)
        })?;
        let there: HashMap<bson::Uuid, ThereDoc> = there.map_ok(|edge| (edge.id, edge)).try_collect().await?;
        let mut standings = Vec::with_capacity(batch.len());
        for edge in batch {
            let following = self.following_of(edge.follower, parties.get(&edge.follower)).await?;
            let found = there.get(&edge.edge);
            let facts = Facts {
                both_live: both_live(&parties, edge.follower, edge.followee),
                blocked: blocked.contains(&(edge.follower, edge.followee)),
                needs_consent: is_private(&parties, edge.followee) && found.is_some_and(ThereDoc::is_unconsented),
                following,
            };
            standings.push(Standing { facts, state: found.map(|edge| edge.state) });
        }
        Ok(standings)
    }

    /// How many accounts an account follows beside the one it is just following. The counter lags behind for edges that are pending, so
    /// near the limit the edges are counted.
    async fn following_of(&self, follower: UserId, party: Option<&Party>) -> Result<i64> {
        const NEAR: i64 = 100;
        let counted = party.map_or(0, |party| party.following);
        if counted < self.settings().follow_limit - NEAR {
            return Ok(counted);
        }
        let filter = doc! { "followerId": b(follower), "state": "active" };
        let edges = self.coll::<Document>(FOLLOWS).count_documents(filter).await?;
        Ok(i64::try_from(edges).unwrap_or(i64::MAX) - 1)
    }

    /// The first half of taking an edge back: asks again, in the transaction that the second half commits, whether something forbids it;
    /// a block that was lifted meanwhile must not cost a follow that came after it. None: nothing stands.
    pub(crate) async fn look_to_withdraw(&self, written: Written) -> Result<Option<Look>> {
        let Written { follower, followee, .. } = written;
        let mut session = self.begin().await?;
        let parties = self.parties([follower, followee], Some(&mut session)).await?;
        let blocked = self.blocked_pairs(&[(follower, followee)], Some(&mut session)).await?;
        let facts = Facts {
            both_live: both_live(&parties, follower, followee),
            blocked: !blocked.is_empty(),
            needs_consent: false,
            following: self.following_of(follower, parties.get(&follower)).await?,
        };
        let forbidden = settle(facts, self.settings().follow_limit).is_err();
        Ok(forbidden.then_some(Look { session, blocked: facts.blocked }))
    }

    /// The second half of taking an edge back. False: the edge is no longer there.
    pub(crate) async fn withdraw(&self, written: Written, look: Look) -> Result<bool> {
        let Look { mut session, blocked } = look;
        if blocked {
            self.hold_blocks(&[(written.follower, written.followee)], &mut session).await?;
        }
        let wanted = doc! { "_id": written.edge, "state": { "$in": ["active", "requested"] } };
        let removed = self.coll::<Document>(FOLLOWS).update_one(wanted, removal()).session(&mut session).await?;
        commit(session).await?;
        Ok(removed.matched_count == 1)
    }

    /// Makes `follower` no longer follow `followee`, or ask to. Repeating it changes nothing.
    pub async fn unfollow(&self, follower: UserId, followee: UserId) -> Result<()> {
        let edge = self.mark_unfollow(follower, followee).await?;
        self.apply_removal(edge, followee).await
    }

    /// Makes `follower` no longer follow `followee`, on behalf of the followee. A request stays, for the followee to accept or reject.
    pub async fn remove_follower(&self, followee: UserId, follower: UserId) -> Result<()> {
        let edge = self.mark_removed(follower, followee, &["active"]).await?;
        self.apply_removal(edge, followee).await
    }

    /// A request's attempt to apply the removal of an edge, if there was one.
    pub(crate) async fn apply_removal(&self, edge: Option<bson::Uuid>, followee: UserId) -> Result<()> {
        match edge {
            Some(edge) => self.attempt_or_leave(edge, followee).await,
            None => Ok(()),
        }
    }

    /// Writes what is wanted: no follow and no request. Gives the edge, if there is one.
    pub(crate) async fn mark_unfollow(&self, follower: UserId, followee: UserId) -> Result<Option<bson::Uuid>> {
        self.mark_removed(follower, followee, &["active", "requested"]).await
    }

    /// Writes what is wanted: the edge gone, if it is in one of these states. Gives the edge, if there is one.
    pub(crate) async fn mark_removed(&self, follower: UserId, followee: UserId, states: &[&str]) -> Result<Option<bson::Uuid>> {
        let mut wanted = pair(follower, followee);
        wanted.insert("state", doc! { "$in": states });
        let edge = self.coll::<IdDoc>(FOLLOWS).find_one_and_update(wanted, removal()).projection(doc! { "_id": 1 }).await?;
        if edge.is_some() {
            self.relations_changed(&[follower]).await?;
        }
        Ok(edge.map(|edge| edge.id))
    }

    /// The one attempt of a request to apply an edge to `followee`; what it leaves, the applier takes.
    pub(crate) async fn attempt_or_leave(&self, edge: bson::Uuid, followee: UserId) -> Result<()> {
        if !self.is_celebrity(followee) {
            match attempt(self.apply_follows(&[edge], Applier::Quiet)).await? {
                Attempt::Applied(outcomes) if outcomes.get(&edge) != Some(&Outcome::Left) => return Ok(()),
                Attempt::Applied(_) => {}
                Attempt::Left => return self.leave_to_applier(|| self.is_applied(edge)).await,
            }
        }
        self.wake().applier.notify_one();
        Ok(())
    }

    pub(crate) async fn is_applied(&self, edge: bson::Uuid) -> Result<bool> {
        let pending = doc! { "_id": edge, "pending": true };
        Ok(self.coll::<IdDoc>(FOLLOWS).find_one(pending).projection(doc! { "_id": 1 }).await?.is_none())
    }

    /// Applies edges in one transaction: moves both accounts' counters by the difference between what each edge wants and what is applied,
    /// gives out `seq`s, keeps the overflow pages, and looks once more for what forbids an edge.
    ///
    /// A transaction, because an edge, two accounts and a page must change together: a counter moved without its edge is drift that
    /// nothing could tell from the truth. Everything that decides is read in it, so that a concurrent writer makes it conflict. Edges that
    /// are not pending (any more) are left out of the answer.
    pub(crate) async fn apply_follows(&self, edges: &[bson::Uuid], applier: Applier<'_>) -> Result<HashMap<bson::Uuid, Outcome>> {
        match self.plan_follows(edges, applier).await? {
            Some(plan) => self.write_plan(plan).await,
            None => Ok(HashMap::new()),
        }
    }

    /// Applies one edge, unless that is the leased applier's.
    async fn apply_quietly(&self, edge: bson::Uuid) -> Result<Option<Outcome>> {
        Ok(self.apply_follows(&[edge], Applier::Quiet).await?.remove(&edge))
    }

    /// The first half of an application: reads everything that decides, in the transaction that the second half commits. None: there
    /// is nothing to apply, or the lease is lost.
    pub(crate) async fn plan_follows(&self, edges: &[bson::Uuid], applier: Applier<'_>) -> Result<Option<Plan>> {
        // Before the accounts, as in a merge.
        let uncounted = match applier {
            Applier::Quiet => None,
            Applier::Import | Applier::Leased(..) => Some(self.authors_with_uncounted_posts().await?),
        };
        let mut session = self.begin().await?;
        if let Applier::Leased(lease, _) = applier
            && !lease.hold(&mut session).await?
        {
            return Ok(None);
        }
        let mut found =
            self.coll::<FollowDoc>(FOLLOWS).find(these(edges, applier)).batch_size(ANSWER).session(&mut session).await?;
        let mut edges: Vec<FollowDoc> = found.stream(&mut session).try_collect().await?;
        if edges.is_empty() {
            return Ok(None);
        }
        // In the order of the wishes, so that whoever asked first comes first; those accepted together share one.
        edges.sort_unstable_by_key(|edge| (edge.wish.bytes(), edge.id.bytes()));
        let both_sides: HashSet<UserId> = edges.iter().flat_map(|edge| [edge.follower(), edge.followee()]).collect();
        let mut parties = match applier {
            // Its followers are taken to be live, which the one statement that counts for all of them checks: reading each of them would
            // cost as much as counting for it.
            Applier::Leased(_, followee) if edges.len() > 1 => {
                let mut parties = self.parties([followee], Some(&mut session)).await?;
                parties.extend(edges.iter().map(|edge| (edge.follower(), Party::taken_to_be_live())));
                parties
            }
            _ => self.parties(both_sides, Some(&mut session)).await?,
        };
        let wanted: Vec<_> =
            edges.iter().filter(|e| e.state != FollowState::Removed).map(|e| (e.follower(), e.followee())).collect();
        let blocked = if wanted.is_empty() { HashSet::new() } else { self.blocked_pairs(&wanted, Some(&mut session)).await? };

        let mut plan = Plan::new(session, uncounted);
        plan.silent = matches!(applier, Applier::Import);
        for edge in &edges {
            let outcome = self.plan_edge(edge, applier, &mut parties, &blocked, &mut plan);
            plan.outcomes.insert(edge.id, outcome);
        }
        Ok(Some(plan))
    }

    /// The second half of an application: writes and commits.
    pub(crate) async fn write_plan(&self, plan: Plan) -> Result<HashMap<bson::Uuid, Outcome>> {
        let Plan { mut session, deltas, counted, mut updates, deletes, pages, blocked, outcomes, unmarked, .. } = plan;
        let (told, untold, uncounted_follows, silent) = (plan.told, plan.untold, plan.uncounted_follows, plan.silent);
        if !blocked.is_empty() {
            self.hold_blocks(&blocked, &mut session).await?;
        }
        let gained_and_lost: Vec<_> = deltas.iter().map(|(user, delta)| (Subject::Account(*user), delta.figures())).collect();
        let (live, users) = statements(deltas);
        for (statement, expected) in live {
            if self.update_all(&mut session, USERS, vec![statement]).await? < expected {
                let gone = "an account that was to follow one more is not live";
                return Err(Error::Conflict(ErrorKind::Custom(Arc::new(gone)).into()));
            }
        }
        if !users.is_empty() {
            self.update_all(&mut session, USERS, users).await?;
        }
        let follows: Vec<Together> = counted.iter().map(|(followee, counted)| counted.told(*followee)).collect();
        updates.extend(counted.into_values().map(Counted::statement));
        if !updates.is_empty() {
            self.update_all(&mut session, FOLLOWS, updates).await?;
        }
        if !deletes.is_empty() {
            let gone = doc! { "_id": { "$in": &deletes } };
            self.coll::<FollowDoc>(FOLLOWS).delete_many(gone).session(&mut session).await?;
        }
        self.write_pages(pages, &mut session).await?;
        self.untell(&mut session, &[untold, deletes].concat()).await?;
        self.untell_follows(&mut session, &uncounted_follows).await?;
        self.tell(&mut session, &told).await?;
        if silent {
            self.tell_along(&mut session, &follows).await?;
        } else {
            self.tell_together(&mut session, &follows).await?;
        }
        commit(session).await?;
        self.note_stats(gained_and_lost);
        self.announce(told.iter().map(|one| one.recipient).chain(follows.iter().map(|follows| follows.recipient())));
        self.relations_changed(&unmarked).await?;
        Ok(outcomes)
    }

    /// Decides on one edge and notes what is to be written.
    fn plan_edge(
        &self,
        edge: &FollowDoc,
        applier: Applier<'_>,
        parties: &mut HashMap<UserId, Party>,
        blocked: &HashSet<(UserId, UserId)>,
        plan: &mut Plan,
    ) -> Outcome {
        let (follower, followee) = (edge.follower(), edge.followee());
        // The limit is the request's to check, in its own first attempt: an edge that was acknowledged is never withdrawn for it.
        let mut facts = Facts {
            both_live: both_live(parties, follower, followee),
            blocked: blocked.contains(&(follower, followee)),
            // Only such as are pending come here.
            needs_consent: is_private(parties, followee) && edge.accepted.is_none(),
            following: 0,
        };
        if let Applier::Quiet = applier
            && edge.seq.is_none()
            && edge.accepted.is_none()
            && edge.state == FollowState::Active
        {
            facts.following = parties.get(&follower).map_or(0, |party| party.following);
        }
        let settled = (edge.state != FollowState::Removed).then(|| settle(facts, self.settings().follow_limit));
        let refusal = settled.and_then(Result::err);
        let wanted = settled == Some(Ok(Settled::Follow));
        let request = settled == Some(Ok(Settled::Request));
        let step = step(wanted, edge.seq.is_some());

        let threshold = self.settings().celebrity_threshold;
        let delta = match step {
            Step::Count => 1,
            Step::Uncount => -1,
            Step::Drop | Step::Clear => 0,
        };
        let on_pages = parties.get(&followee).is_some_and(|party| party.outlier.is_some());
        if let (Applier::Quiet | Applier::Import, Some(party)) = (applier, parties.get(&followee))
            && delta != 0
            && (party.outlier.is_some() || party.followers + delta >= threshold)
        {
            return Outcome::Left;
        }
        if let Some(party) = parties.get_mut(&follower) {
            party.following += delta;
        }
        let mut counted = None;
        if let Some(party) = parties.get_mut(&followee) {
            party.followers += delta;
            if step == Step::Count {
                party.seq += 1;
                party.at = party.at.max(plan.now);
                counted = Some((party.seq, party.at));
            }
        }
        match (step, edge.seq, counted) {
            (Step::Count, _, Some((seq, at))) => {
                let silent = parties.get(&followee).is_some_and(|party| party.posts == 0);
                plan.count(edge, seq, at, silent);
                if on_pages {
                    plan.pages.push(followee, seq, follower, at);
                }
            }
            (Step::Uncount, Some(seq), _) => {
                plan.delta(follower).following -= 1;
                plan.delta(followee).followers -= 1;
                plan.uncounted_follows.extend(edge.followed_at.map(|at| (followee, timestamp(at))));
                if request {
                    plan.updates.push(Statement::update(doc! { "_id": edge.id }, to_request(edge)));
                } else {
                    plan.deletes.push(edge.id);
                }
                if on_pages {
                    plan.pages.pull(followee, seq);
                }
            }
            (Step::Clear, ..) => {
                let (applied, cleared) = (applied(edge), doc! { "pending": "", "accepted": "", "asked": "", "requestOf": "" });
                let update = if applied.is_empty() {
                    doc! { "$unset": cleared }
                } else {
                    doc! { "$set": applied, "$unset": cleared }
                };
                plan.updates.push(Statement::update(doc! { "_id": edge.id }, update));
            }
            (Step::Drop, ..) if request => {
                plan.updates.push(Statement::update(doc! { "_id": edge.id }, to_request(edge)));
            }
            // Never counted, or no account left to count it.
            _ => plan.deletes.push(edge.id),
        }
        if wanted && (edge.state == FollowState::Requested || edge.asked.is_some()) {
            plan.tell(edge, SingleDoc::FollowAccepted, follower, followee);
        }
        if request && edge.state == FollowState::Requested {
            plan.tell(edge, SingleDoc::FollowRequest, followee, follower);
        }
        // Its own request may have crashed before it said so; of a follow that did, the merge says it.
        let promoted = wanted && edge.state == FollowState::Requested;
        if !wanted && matches!(applier, Applier::Leased(..)) || refusal.is_some() || promoted {
            plan.unmarked.push(follower);
        }
        match refusal {
            Some(refusal) => {
                if refusal == FollowRefusal::Blocked {
                    plan.blocked.push((follower, followee));
                }
                Outcome::Withdrawn(refusal)
            }
            None if wanted => Outcome::Counted,
            None if request => Outcome::Requested,
            None => Outcome::Gone,
        }
    }

    /// One round of the applier: finishes sweeps and leases that a crash left, then takes pending edges, each followee's under its lease.
    pub async fn apply_follows_step(&self) -> Result<Progress> {
        let mut done = self.finish_sweeps().await? + self.finish_openings().await?;
        let mut followees: Vec<UserId> = Vec::new();
        for name in lease::abandoned(self, LEASE_PREFIX).await? {
            followees.extend(name.strip_prefix(LEASE_PREFIX).and_then(|id| id.parse::<UserId>().ok()));
        }
        let pending = self
            .coll::<FolloweeDoc>(FOLLOWS)
            .find(doc! { "pending": true })
            .projection(doc! { "_id": 0, "followeeId": 1 })
            .limit(i64::try_from(2 * BATCH).unwrap_or(i64::MAX))
            .await?;
        followees.extend(pending.map_ok(|edge| UserId(edge.followee_id.into())).try_collect::<Vec<_>>().await?);
        followees.sort_unstable();
        followees.dedup();
        for followee in followees {
            done += self.drain_follows(followee).await?;
        }
        Ok(if done == 0 { Progress::Idle } else { Progress::Did(done) })
    }

    /// Applies everything pending to one followee under its lease, and makes its outlier flag and pages what they should be.
    pub(crate) async fn drain_follows(&self, followee: UserId) -> Result<usize> {
        let Some(lease) = Lease::take(self, &format!("{LEASE_PREFIX}{followee}")).await? else {
            return Ok(0);
        };
        let mut done = 0;
        // What a crash left half built comes first: from here on pages are kept as edges are applied.
        done += usize::from(self.reconcile_outlier(&lease, followee).await?);
        loop {
            let pending = self
                .coll::<IdDoc>(FOLLOWS)
                .find(doc! { "pending": true, "followeeId": b(followee) })
                .sort(doc! { "pending": 1, "followeeId": 1, "_id": 1 })
                .projection(doc! { "_id": 1 })
                .limit(i64::try_from(8 * BATCH).unwrap_or(i64::MAX))
                .batch_size(4 * ANSWER)
                .await?;
            let pending: Vec<bson::Uuid> = pending.map_ok(|edge| edge.id).try_collect().await?;
            if pending.is_empty() {
                break;
            }
            let applied = in_batches(&pending, BATCH, |batch| {
                let batch = batch.to_vec();
                let lease = &lease;
                async move { self.apply_follows(&batch, Applier::Leased(lease, followee)).await.map(drop) }
            })
            .await?;
            done += applied;
            self.wake().applied.notify_waiters();
            // Crossing the threshold shows at once, not only when a storm is over.
            done += usize::from(self.reconcile_outlier(&lease, followee).await?);
            if applied == 0 || !lease.renew().await? {
                break;
            }
        }
        lease.release().await?;
        Ok(done)
    }

    /// What the graph needs of `users`, of those that are being deleted too: their counters and pages go down with their edges.
    async fn parties(
        &self,
        users: impl IntoIterator<Item = UserId>,
        session: Option<&mut ClientSession>,
    ) -> Result<HashMap<UserId, Party>> {
        let ids: Vec<bson::Uuid> = users.into_iter().map(b).collect();
        let users = self.coll::<PartyDoc>(USERS);
        let find = users.find(doc! { "_id": { "$in": ids } }).batch_size(ANSWER).projection(
            doc! { "state": 1, "settings": 1, "counters": 1, "followerSeq": 1, "followerAt": 1, "postSeq": 1, "outlier": 1 },
        );
        let found: Vec<PartyDoc> = match session {
            Some(session) => find.session(&mut *session).await?.stream(session).try_collect().await?,
            None => find.await?.try_collect().await?,
        };
        Ok(found.into_iter().map(|user| (UserId(user.id.into()), Party::from(user))).collect())
    }

    /// Whether an active edge leads from `follower` to `followee`, counted or not.
    pub async fn follows(&self, follower: UserId, followee: UserId) -> Result<bool> {
        let mut active = pair(follower, followee);
        active.insert("state", "active");
        Ok(self.coll::<IdDoc>(FOLLOWS).find_one(active).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// How `viewer` stands to each of `users`, in the order asked; whoever is not live is left out.
    pub async fn relationships(&self, viewer: UserId, users: &[UserId]) -> Result<Vec<(UserId, Relation)>> {
        let parties = self.parties(users.iter().copied(), None).await?;
        let relations = self.relations(viewer, users).await?;
        let live = |user: &UserId| parties.get(user).is_some_and(|party| party.live);
        let of = |user: &UserId| live(user).then(|| (*user, relations.get(user).copied().unwrap_or_default()));
        Ok(users.iter().filter_map(of).collect())
    }

    /// How `viewer` stands to each of `users`; nobody is left out, and whoever has no edge either way is absent.
    pub(crate) async fn relations(&self, viewer: UserId, users: &[UserId]) -> Result<HashMap<UserId, Relation>> {
        let (me, ids) = (b(viewer), users.iter().copied().map(b).collect::<Vec<_>>());
        // Pair by pair in the direction to the viewer: the index by followee would be read through all the viewer's followers.
        let mut follows = vec![doc! { "followerId": me, "followeeId": { "$in": &ids } }];
        follows.extend(ids.iter().map(|id| doc! { "followerId": id, "followeeId": me }));
        let follows = doc! { "$or": follows };
        let blocks = doc! { "$or": [
            { "blockerId": me, "blockedId": { "$in": &ids } },
            { "blockedId": me, "blockerId": { "$in": &ids } },
        ] };
        let mutes = doc! { "muterId": me, "mutedId": { "$in": &ids } };
        let (follows, blocks, mutes): (Vec<FollowDoc>, Vec<BlockDoc>, Vec<MuteDoc>) = futures::try_join!(
            async { self.coll::<FollowDoc>(FOLLOWS).find(follows).await?.try_collect().await },
            async { self.coll::<BlockDoc>(BLOCKS).find(blocks).await?.try_collect().await },
            async { self.coll::<MuteDoc>(MUTES).find(mutes).await?.try_collect().await },
        )?;
        let mut relations: HashMap<UserId, Relation> = HashMap::new();
        for edge in follows {
            if edge.follower() == viewer {
                let relation = relations.entry(edge.followee()).or_default();
                relation.following = edge.state == FollowState::Active;
                relation.requested = edge.state == FollowState::Requested;
            } else {
                relations.entry(edge.follower()).or_default().followed_by = edge.state == FollowState::Active;
            }
        }
        for block in blocks {
            if block.blocker_id == me {
                relations.entry(UserId(block.blocked_id.into())).or_default().blocking = true;
            } else {
                relations.entry(UserId(block.blocker_id.into())).or_default().blocked_by = true;
            }
        }
        for mute in mutes {
            relations.entry(UserId(mute.muted_id.into())).or_default().muting = true;
        }
        Ok(relations)
    }

    /// Loads edges between accounts in bulk, through the same two steps as a follow: pending edges in one insert, then applied in
    /// batches. No follow limit holds. Pairs that have an edge already are skipped. Gives the number of new edges.
    pub async fn import_follows(&self, pairs: &[(UserId, UserId)]) -> Result<usize> {
        let docs: Vec<FollowDoc> = pairs.iter().map(|(follower, followee)| FollowDoc::imported(*follower, *followee)).collect();
        let there = self.insert_unless_there(FOLLOWS, &docs).await?;
        let ids: Vec<bson::Uuid> = docs.iter().enumerate().filter(|(at, _)| !there.contains(at)).map(|(_, edge)| edge.id).collect();
        let followers: HashSet<UserId> = pairs.iter().map(|(follower, _)| *follower).collect();
        self.relations_changed(&followers.into_iter().collect::<Vec<_>>()).await?;
        in_batches(&ids, 2 * BATCH, |batch| {
            let batch = batch.to_vec();
            async move { self.apply_follows(&batch, Applier::Import).await.map(drop) }
        })
        .await?;
        Ok(ids.len())
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct IdDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
}

/// An edge as the check after its write sees it.
#[derive(Debug, Deserialize)]
struct ThereDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: FollowState,
    pending: Option<bool>,
    accepted: Option<bool>,
}

impl ThereDoc {
    /// It is wanted but not applied, and a private followee has not said yes to it.
    fn is_unconsented(&self) -> bool {
        self.pending.is_some() && self.accepted.is_none()
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FolloweeDoc {
    followee_id: bson::Uuid,
}

/// What the graph needs of an account.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartyDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: UserState,
    settings: crate::users::SettingsDoc,
    counters: crate::users::CountersDoc,
    follower_seq: i64,
    follower_at: Option<bson::DateTime>,
    post_seq: i64,
    outlier: Option<crate::users::OutlierDoc>,
}

/// One account while a batch is planned: its counters move as edges are decided on.
#[derive(Debug)]
struct Party {
    live: bool,
    private: bool,
    followers: i64,
    following: i64,
    seq: i64,
    at: Timestamp,
    /// Posts ever counted.
    posts: i64,
    outlier: Option<crate::users::OutlierDoc>,
}

impl Party {
    /// An account that was not read. Its counters are not what they are there: nothing may depend on them.
    fn taken_to_be_live() -> Self {
        let at = Timestamp::from_millis(0);
        Self { live: true, private: false, followers: 0, following: 0, seq: 0, at, posts: 0, outlier: None }
    }
}

impl From<PartyDoc> for Party {
    fn from(user: PartyDoc) -> Self {
        Self {
            live: user.state == UserState::Live,
            private: user.settings.private,
            followers: user.counters.followers,
            following: user.counters.following,
            seq: user.follower_seq,
            at: user.follower_at.map_or(Timestamp::from_millis(0), timestamp),
            posts: user.post_seq,
            outlier: user.outlier,
        }
    }
}

/// A transaction that has found that an edge may not stand.
#[derive(Debug)]
pub(crate) struct Look {
    session: ClientSession,
    blocked: bool,
}

/// A transaction that has read, and what it is to write.
#[derive(Debug)]
pub(crate) struct Plan {
    session: ClientSession,
    now: Timestamp,
    deltas: BTreeMap<UserId, Delta>,
    /// Follows that are counted, and nothing else, by their followee.
    counted: BTreeMap<UserId, Counted>,
    updates: Vec<Statement>,
    deletes: Vec<bson::Uuid>,
    pages: PageChanges,
    /// The pairs whose edge goes because a block stands.
    blocked: Vec<(UserId, UserId)>,
    /// Authors of whom some post was not counted when this plan began; none where nobody asked.
    uncounted: Option<HashSet<bson::Uuid>>,
    /// Followers of whom perhaps nobody has said that their relations changed.
    unmarked: Vec<UserId>,
    /// Requests, and answers to them, to be told.
    told: Vec<Told>,
    /// Edges of which it is no longer true what was told.
    untold: Vec<bson::Uuid>,
    /// Follows that are uncounted, and when they were counted.
    uncounted_follows: Vec<(UserId, Timestamp)>,
    /// An import tells nobody that there are new followers.
    silent: bool,
    outcomes: HashMap<bson::Uuid, Outcome>,
}

impl Plan {
    fn new(session: ClientSession, uncounted: Option<HashSet<bson::Uuid>>) -> Self {
        Self {
            session,
            now: now(),
            deltas: BTreeMap::new(),
            counted: BTreeMap::new(),
            updates: Vec::new(),
            deletes: Vec::new(),
            pages: PageChanges::default(),
            blocked: Vec::new(),
            uncounted,
            unmarked: Vec::new(),
            told: Vec::new(),
            untold: Vec::new(),
            uncounted_follows: Vec::new(),
            silent: false,
            outcomes: HashMap::new(),
        }
    }

    /// The edge is counted under this number; `silent`: its followee never had a post counted.
    fn count(&mut self, edge: &FollowDoc, seq: i64, at: Timestamp, silent: bool) {
        self.delta(edge.follower()).following += 1;
        let of = self.delta(edge.followee());
        (of.followers, of.seqs, of.at) = (of.followers + 1, of.seqs + 1, Some(at));
        // There is nothing to merge: no pass of the merger for the hundreds of thousands of follows of an import.
        let merged = silent && self.uncounted.as_ref().is_some_and(|authors| !authors.contains(&edge.followee_id));
        if merged {
            self.unmarked.push(edge.follower());
        }
        let counted = Counted { first: seq, at, merged, edges: Vec::new() };
        self.counted.entry(edge.followee()).or_insert(counted).edges.push(edge.id);
        let also = applied(edge);
        if !also.is_empty() {
            self.updates.push(Statement::update(doc! { "_id": edge.id }, doc! { "$set": also }));
        }
    }

    /// What is told of an edge, in place of what may have been told of it before.
    fn tell(&mut self, edge: &FollowDoc, kind: SingleDoc, recipient: UserId, actor: UserId) {
        self.untold.push(edge.id);
        self.told.push(Told { recipient, kind, actor, act: edge.id, post: None, comment: None });
    }

    fn delta(&mut self, user: UserId) -> &mut Delta {
        self.deltas.entry(user).or_default()
    }
}

/// The edges to one account that a plan counts, in the order of their numbers, which begin with `first`.
#[derive(Debug)]
struct Counted {
    first: i64,
    at: Timestamp,
    merged: bool,
    edges: Vec<bson::Uuid>,
}

impl Counted {
    /// What the followee is told.
    fn told(&self, followee: UserId) -> Together {
        let last = self.first + i64::try_from(self.edges.len()).unwrap_or(i64::MAX) - 1;
        Together::Follows { recipient: followee, first: self.first, last, at: self.at }
    }

    /// One statement for all: each edge's number is the first one and its place in the list. Five hundred statements of one edge
    /// take the server a third longer.
    fn statement(self) -> Statement {
        let mut set = doc! {
            "seq": { "$add": [self.first, { "$indexOfArray": [&self.edges, "$_id"] }] },
            "followedAt": date(self.at),
        };
        if self.merged {
            set.insert("merged", true);
        }
        let stages = vec![doc! { "$set": set }, doc! { "$unset": ["pending", "accepted", "asked", "requestOf"] }];
        Statement::update_many(doc! { "_id": { "$in": self.edges } }, stages)
    }
}

/// The statements that move the counters. Accounts that follow one more, or one less, and whose followers stay, move by one statement
/// together. Those that follow more come first, with how many they are: they must be live, which a plan may have taken for granted.
fn statements(deltas: BTreeMap<UserId, Delta>) -> (Vec<(Statement, i64)>, Vec<Statement>) {
    let mut alike: BTreeMap<i64, Vec<bson::Uuid>> = BTreeMap::new();
    let (mut live, mut others) = (Vec::new(), Vec::new());
    for (user, delta) in deltas {
        match delta {
            Delta { followers: 0, seqs: 0, following, .. } => alike.entry(following).or_default().push(b(user)),
            delta => others.extend(delta.statement(user)),
        }
    }
    alike.remove(&0);
    for (following, users) in alike {
        let update = doc! { "$inc": { "counters.following": following } };
        let mut these = doc! { "_id": { "$in": &users } };
        if following > 0 {
            these.insert("state", "live");
            live.push((Statement::update_many(these, update), i64::try_from(users.len()).unwrap_or(i64::MAX)));
        } else {
            others.push(Statement::update_many(these, update));
        }
    }
    (live, others)
}

/// By how much an account's counters move.
#[derive(Debug, Default)]
struct Delta {
    followers: i64,
    following: i64,
    seqs: i64,
    at: Option<Timestamp>,
}

impl Delta {
    /// The followers that came and went: a number is given to each that came.
    fn figures(&self) -> Figures {
        Figures { new_followers: self.seqs, lost_followers: self.seqs - self.followers, ..Figures::default() }
    }

    /// The statement that moves them, or none where they stay.
    fn statement(self, user: UserId) -> Option<Statement> {
        let mut inc = Document::new();
        for (field, by) in
            [("counters.followers", self.followers), ("counters.following", self.following), ("followerSeq", self.seqs)]
        {
            if by != 0 {
                inc.insert(field, by);
            }
        }
        if inc.is_empty() {
            return None;
        }
        let mut update = doc! { "$inc": inc };
        if let Some(at) = self.at {
            update.insert("$set", doc! { "followerAt": date(at) });
        }
        Some(Statement::update(doc! { "_id": b(user) }, update))
    }
}

impl FollowDoc {
    /// A new edge, as a follow first writes it.
    pub(crate) fn fresh(follower: UserId, followee: UserId) -> Self {
        Self::wanted(NewFollow { follower, followee }, FollowState::Active)
    }

    /// A new edge: a follow, or a request.
    pub(crate) fn wanted(new: NewFollow, state: FollowState) -> Self {
        let NewFollow { follower, followee } = new;
        let request = state == FollowState::Requested;
        Self {
            id: b(new_id()),
            follower_id: b(follower),
            followee_id: b(followee),
            state,
            seq: None,
            followed_at: None,
            pending: Some(true),
            wish: b(new_id()),
            merged: request,
            request_of: request.then(|| b(followee)),
            accepted: None,
            asked: None,
        }
    }

    /// A new edge that its followee, private or not, is taken to have consented to.
    fn imported(follower: UserId, followee: UserId) -> Self {
        Self { accepted: Some(true), ..Self::fresh(follower, followee) }
    }

    pub(crate) fn follower(&self) -> UserId {
        UserId(self.follower_id.into())
    }

    pub(crate) fn followee(&self) -> UserId {
        UserId(self.followee_id.into())
    }
}

/// What a wanted edge becomes beside being counted: a request of an account that is private no longer is a follow, and a new one.
fn applied(edge: &FollowDoc) -> Document {
    match edge.state {
        FollowState::Requested => doc! { "state": "active", "wish": b(new_id()), "merged": false },
        FollowState::Active | FollowState::Removed => Document::new(),
    }
}

/// Makes an edge a request, which nobody counts. One that was a follow stays pending: the account may have become public since this was
/// read, and have accepted all requests before this was one, so that another look must follow the write.
fn to_request(edge: &FollowDoc) -> Document {
    match edge.state {
        FollowState::Requested => doc! { "$unset": { "seq": "", "followedAt": "", "pending": "" } },
        FollowState::Active | FollowState::Removed => doc! {
            "$set": { "state": "requested", "requestOf": edge.followee_id, "merged": true },
            "$unset": { "seq": "", "followedAt": "" },
        },
    }
}

/// The edges that a plan is made for, as far as they are pending. A leased applier takes whatever is pending between the first and the last
/// of its followee: that is one range of an index, where a list of ids is a search for each.
fn these(edges: &[bson::Uuid], applier: Applier<'_>) -> Document {
    let (first, last) = (edges.iter().min_by_key(|edge| edge.bytes()), edges.iter().max_by_key(|edge| edge.bytes()));
    if let (Applier::Leased(_, followee), Some(first), Some(last)) = (applier, first, last) {
        doc! { "pending": true, "followeeId": b(followee), "_id": { "$gte": first, "$lte": last } }
    } else {
        doc! { "_id": { "$in": edges }, "pending": true }
    }
}

fn is_private(parties: &HashMap<UserId, Party>, user: UserId) -> bool {
    parties.get(&user).is_some_and(|party| party.private)
}

fn both_live(parties: &HashMap<UserId, Party>, one: UserId, other: UserId) -> bool {
    [one, other].iter().all(|user| parties.get(user).is_some_and(|party| party.live))
}

pub(crate) fn pair(follower: UserId, followee: UserId) -> Document {
    doc! { "followerId": b(follower), "followeeId": b(followee) }
}

/// An edge is no longer wanted.
pub(crate) fn removal() -> Document {
    doc! { "$set": { "state": "removed", "pending": true }, "$unset": { "requestOf": "", "accepted": "", "asked": "" } }
}
