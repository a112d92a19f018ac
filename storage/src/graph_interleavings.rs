//! The protocol of follows and blocks with its steps forced into every order that matters.
//!
//! A request is cut into the database steps that it is made of, and they are run here in the orders in which requests, the applier and
//! crashes could run them: those that break a weaker protocol, one test for each clause; all orders of a follow against a block; and
//! schedules that a seed draws for the programs of the model in docs/data-model.md, checked against what the acts would do one after
//! the other.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::HashMap;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rookery_domain::{UserId, graph::FollowRefusal};

use crate::{
    Settings, Store,
    collections::{BLOCKS, FOLLOWS, LOCKS, USER_OVERFLOW, USERS},
    graph::{Applier, FollowDoc, FollowState, Followed, IdDoc, LEASE_PREFIX, NewFollow, Outcome, Plan, Written},
    lease::Lease,
    overflow::PageDoc,
    pending::Progress,
    store::{b, date, now},
    testing::{TestDatabase, merges, user},
    users::{OutlierState, UserDoc},
    verify,
};

type Answer = Result<Followed, FollowRefusal>;

const FOLLOWING: Option<Answer> = Some(Ok(Followed::Following));
const BLOCKED: Option<Answer> = Some(Err(FollowRefusal::Blocked));

/// Bob, who follows Alice or tries to.
struct World {
    db: TestDatabase,
    alice: UserId,
    bob: UserId,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    /// An account is an outlier from five followers on, and no longer below four.
    async fn with_low_threshold() -> Self {
        Self::with(Settings { celebrity_threshold: 5, ..Settings::default() }).await
    }

    async fn with(settings: Settings) -> Self {
        let db = TestDatabase::with(settings).await;
        let (alice, bob) = (user(db.store()).await, user(db.store()).await);
        Self { db, alice, bob }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    /// The first step of Bob's follow.
    async fn write(&self) -> Written {
        write(self.store(), self.bob, self.alice).await
    }

    /// The second step as it is for a quiet account: one attempt to apply, and where that does not tell, the check.
    async fn settle(&self, written: Written) -> Option<Answer> {
        self.store().settle_follow(written).await.unwrap()
    }

    /// The second step as it is where no attempt is made.
    async fn check(&self, written: Written) -> Option<Answer> {
        self.settle(Written { fresh: false, ..written }).await
    }

    async fn unfollow_unapplied(&self) {
        self.store().mark_unfollow(self.bob, self.alice).await.unwrap();
    }

    async fn mark_block(&self) {
        self.store().mark_block(self.alice, self.bob).await.unwrap();
    }

    async fn sweep_block(&self) {
        self.store().sweep_block(self.alice, self.bob).await.unwrap();
    }

    async fn unblock(&self) {
        self.store().unblock(self.alice, self.bob).await.unwrap();
    }

    async fn follow(&self) -> Answer {
        self.store().follow(self.bob, self.alice).await.unwrap()
    }

    /// Alice gets so many followers more, all of them applied.
    async fn crowd(&self, n: usize) -> Vec<UserId> {
        let mut crowd = Vec::new();
        for _ in 0..n {
            let fan = user(self.store()).await;
            self.store().follow(fan, self.alice).await.unwrap().unwrap();
            crowd.push(fan);
        }
        self.drain().await;
        crowd
    }

    async fn drain(&self) {
        while self.store().apply_follows_step().await.unwrap() != Progress::Idle {}
    }

    async fn edge(&self) -> Option<FollowDoc> {
        edge(self.store(), self.bob, self.alice).await
    }

    async fn account(&self) -> UserDoc {
        self.store().coll::<UserDoc>(USERS).find_one(doc! { "_id": b(self.alice) }).await.unwrap().unwrap()
    }

    async fn set(&self, update: Document) {
        self.store().coll::<Document>(USERS).update_one(doc! { "_id": b(self.alice) }, update).await.unwrap();
    }

    /// What deleting the account does first.
    async fn mark_deleting(&self) {
        self.set(doc! { "$set": { "state": "deleting" } }).await;
    }

    async fn lease(&self) -> Lease {
        Lease::take(self.store(), &format!("{LEASE_PREFIX}{}", self.alice)).await.unwrap().unwrap()
    }

    /// Lets every lease run out, as time does after a crash.
    async fn leases_run_out(&self) {
        let past = doc! { "$set": { "until": bson::DateTime::from_millis(0) } };
        self.store().coll::<Document>(LOCKS).update_many(doc! {}, past).await.unwrap();
    }

    async fn pages(&self) -> Vec<PageDoc> {
        self.store().coll::<PageDoc>(USER_OVERFLOW).find(doc! {}).await.unwrap().try_collect().await.unwrap()
    }

    async fn flag(&self) -> Option<OutlierState> {
        self.account().await.outlier.map(|outlier| outlier.state)
    }

    /// At rest Bob follows Alice or not, she counts so many followers, and every invariant holds.
    async fn assert_at_rest(&self, following: bool, followers: i64) {
        self.drain().await;
        assert_eq!(self.edge().await.is_some(), following, "the edge");
        assert_eq!(self.account().await.counters.followers, followers, "the counter");
        assert_verified(self.store()).await;
    }
}

async fn write(store: &Store, follower: UserId, followee: UserId) -> Written {
    store.write_follows(vec![NewFollow { follower, followee }]).await.unwrap()[0]
}

async fn edge(store: &Store, follower: UserId, followee: UserId) -> Option<FollowDoc> {
    let pair = doc! { "followerId": b(follower), "followeeId": b(followee) };
    store.coll::<FollowDoc>(FOLLOWS).find_one(pair).await.unwrap()
}

async fn assert_verified(store: &Store) {
    let drift = verify::verify(store).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}

// What is wanted and what is applied are two things.

#[tokio::test]
async fn an_unfollow_of_a_follow_that_is_not_applied_yet_moves_no_counter() {
    let world = World::new().await;
    world.write().await;
    world.unfollow_unapplied().await;
    let edge = world.edge().await.unwrap();
    assert_eq!((edge.state, edge.seq, edge.pending), (FollowState::Removed, None, Some(true)));
    world.assert_at_rest(false, 0).await;
    assert_eq!(world.account().await.follower_seq, 0, "no number was given out");
}

#[tokio::test]
async fn a_follow_before_the_removal_was_applied_is_as_if_never_unfollowed() {
    let world = World::new().await;
    world.follow().await.unwrap();
    let before = world.edge().await.unwrap();
    world.unfollow_unapplied().await;
    let written = world.write().await;
    assert!(written.fresh);
    assert_eq!(world.settle(written).await, FOLLOWING);
    world.assert_at_rest(true, 1).await;
    let after = world.edge().await.unwrap();
    assert_eq!((after.id, after.seq, after.followed_at), (before.id, before.seq, before.followed_at));
    assert!(after.wish != before.wish && !after.merged, "but its author's posts are brought in anew");
    assert_eq!(world.account().await.follower_seq, 1);
}

#[tokio::test]
async fn who_leaves_an_outlier_and_comes_back_before_that_was_applied_stands_on_the_same_page() {
    let world = World::with_low_threshold().await;
    world.follow().await.unwrap();
    world.crowd(5).await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
    let before = world.edge().await.unwrap();
    world.unfollow_unapplied().await;
    let written = world.write().await;
    assert_eq!(world.check(written).await, FOLLOWING);
    world.assert_at_rest(true, 6).await;
    assert_eq!(world.edge().await.unwrap().seq, before.seq);
    assert_eq!(world.pages().await[0].count, 6);
    // And gone for good: off the page.
    world.unfollow_unapplied().await;
    world.assert_at_rest(false, 5).await;
    assert_eq!(world.pages().await[0].count, 5);
}

#[tokio::test]
async fn a_removal_that_two_appliers_see_is_applied_once() {
    let world = World::new().await;
    world.follow().await.unwrap();
    world.unfollow_unapplied().await;
    let id = world.edge().await.unwrap().id;
    let one = world.store().plan_follows(&[id], Applier::Quiet).await.unwrap().unwrap();
    let other = world.store().plan_follows(&[id], Applier::Quiet).await.unwrap().unwrap();
    assert_eq!(world.store().write_plan(one).await.unwrap()[&id], Outcome::Gone);
    assert!(world.store().write_plan(other).await.is_err_and(|error| error.is_conflict()));
    world.assert_at_rest(false, 0).await;
}

// A follow against a block.

#[tokio::test]
async fn the_applier_withdraws_what_a_crashed_follow_left_under_a_block() {
    let world = World::new().await;
    world.mark_block().await;
    world.sweep_block().await;
    world.write().await;
    world.assert_at_rest(false, 0).await;
    world.unblock().await;
    world.assert_at_rest(false, 0).await;
}

#[tokio::test]
async fn the_applier_counts_what_a_crashed_follow_left() {
    let world = World::new().await;
    world.write().await;
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn a_block_that_crashed_before_its_sweep_is_finished_by_the_applier() {
    let world = World::new().await;
    world.follow().await.unwrap();
    world.mark_block().await;
    world.assert_at_rest(false, 0).await;
}

#[tokio::test]
async fn a_follow_finds_a_block_that_came_between_its_write_and_its_check() {
    for attempt in [true, false] {
        let world = World::new().await;
        let written = world.write().await;
        world.mark_block().await;
        world.sweep_block().await;
        let settled = if attempt { world.settle(written).await } else { world.check(written).await };
        // The sweep may have taken the edge away already: then it begins anew, and is refused.
        assert!(settled == BLOCKED || settled.is_none() && world.follow().await == Err(FollowRefusal::Blocked), "{settled:?}");
        world.assert_at_rest(false, 0).await;
        world.unblock().await;
        world.assert_at_rest(false, 0).await;
    }
}

#[tokio::test]
async fn a_follow_made_after_a_block_was_lifted_is_not_withdrawn_for_it() {
    let world = World::new().await;
    world.mark_block().await;
    world.sweep_block().await;
    let early = world.write().await;
    let look = world.store().look_to_withdraw(early).await.unwrap().unwrap();
    world.unblock().await;
    let late = world.write().await;
    assert_eq!(world.check(late).await, FOLLOWING);
    // The early follow has seen the block in its snapshot. It must not commit what it made of it.
    let withdrawn = world.store().withdraw(early, look).await;
    assert!(withdrawn.as_ref().is_err_and(crate::Error::is_conflict), "{withdrawn:?}");
    assert!(world.store().look_to_withdraw(early).await.unwrap().is_none());
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn the_applier_too_withdraws_nothing_for_a_block_that_is_lifted_meanwhile() {
    let world = World::new().await;
    world.mark_block().await;
    world.sweep_block().await;
    let early = world.write().await;
    let plan = world.store().plan_follows(&[early.edge], Applier::Import).await.unwrap().unwrap();
    world.unblock().await;
    let late = world.write().await;
    assert_eq!(world.check(late).await, FOLLOWING);
    let written = world.store().write_plan(plan).await;
    assert!(written.as_ref().is_err_and(crate::Error::is_conflict), "{written:?}");
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn a_stale_look_at_a_swept_edge_withdraws_nothing() {
    let world = World::new().await;
    let early = world.write().await;
    world.mark_block().await;
    let look = world.store().look_to_withdraw(early).await.unwrap().unwrap();
    world.sweep_block().await;
    world.unblock().await;
    let late = world.write().await;
    assert_eq!(world.settle(late).await, FOLLOWING);
    let withdrawn = world.store().withdraw(early, look).await;
    assert!(withdrawn.as_ref().is_err_and(crate::Error::is_conflict), "{withdrawn:?}");
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn a_sweep_that_comes_late_leaves_a_follow_made_after_the_block_was_lifted() {
    let world = World::new().await;
    world.follow().await.unwrap();
    world.mark_block().await;
    world.unblock().await;
    world.follow().await.unwrap();
    world.sweep_block().await;
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn lifting_a_block_finishes_its_sweep_first() {
    let world = World::new().await;
    world.follow().await.unwrap();
    world.mark_block().await;
    world.unblock().await;
    world.sweep_block().await;
    world.assert_at_rest(false, 0).await;
}

#[tokio::test]
async fn a_follow_whose_edge_was_taken_away_begins_anew() {
    let world = World::new().await;
    world.mark_block().await;
    let written = world.write().await;
    // Finishes the sweep, which takes the edge.
    world.unblock().await;
    assert_eq!(world.check(written).await, None, "nothing forbids it, and yet it is not there");
    world.follow().await.unwrap();
    world.assert_at_rest(true, 1).await;
}

#[tokio::test]
async fn no_order_of_a_follow_and_a_block_leaves_an_edge_or_a_wrong_answer() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Step {
        Write,
        Check,
        Mark,
        Sweep,
        Apply,
    }
    use Step::{Apply, Check, Mark, Sweep, Write};

    let db = TestDatabase::new().await;
    let store = db.store();
    let mut orders = Vec::new();
    // Without its second step an act has crashed.
    for follow in [&[Write, Check][..], &[Write]] {
        for block in [&[Mark, Sweep][..], &[Mark]] {
            for order in merges(follow, block) {
                orders.extend((1..order.len()).map(|at| [&order[..at], &[Apply], &order[at..]].concat()));
                orders.push(order);
            }
        }
    }
    for (n, order) in orders.iter().enumerate() {
        let (alice, bob) = (user(store).await, user(store).await);
        // Either of the two may be the one who blocks.
        let (blocker, blocked) = if n % 2 == 0 { (alice, bob) } else { (bob, alice) };
        let (mut written, mut answer) = (None, None);
        for step in order {
            match step {
                Write => written = Some(write(store, bob, alice).await),
                Check => {
                    let settled = store.settle_follow(written.unwrap()).await.unwrap();
                    answer = Some(match settled {
                        Some(answer) => answer,
                        None => store.follow(bob, alice).await.unwrap(),
                    });
                }
                Mark => drop(store.mark_block(blocker, blocked).await.unwrap()),
                Sweep => drop(store.sweep_block(blocker, blocked).await.unwrap()),
                Apply => drop(store.apply_follows_step().await.unwrap()),
            }
        }
        let at = |step| order.iter().position(|one| *one == step);
        if let (Some(check), Some(mark)) = (at(Check), at(Mark)) {
            let expected = if check < mark { Ok(Followed::Following) } else { Err(FollowRefusal::Blocked) };
            assert_eq!(answer, Some(expected), "{order:?}");
        }
        while store.apply_follows_step().await.unwrap() != Progress::Idle {}
        assert!(edge(store, bob, alice).await.is_none(), "{order:?}");
    }
    assert_verified(store).await;
}

// A follow against the deletion of an account.

#[tokio::test]
async fn a_follow_finds_the_mark_of_a_deletion_that_came_between_its_write_and_its_check() {
    for attempt in [true, false] {
        let world = World::new().await;
        let written = world.write().await;
        world.mark_deleting().await;
        let settled = if attempt { world.settle(written).await } else { world.check(written).await };
        assert_eq!(settled, Some(Err(FollowRefusal::NotFound)));
        world.assert_at_rest(false, 0).await;
    }
}

#[tokio::test]
async fn the_applier_counts_nothing_in_an_account_that_is_being_deleted() {
    let world = World::new().await;
    world.write().await;
    world.mark_deleting().await;
    world.assert_at_rest(false, 0).await;
}

#[tokio::test]
async fn an_application_that_looked_before_the_mark_of_a_deletion_is_not_committed_after_it() {
    let world = World::new().await;
    let written = world.write().await;
    let plan = world.store().plan_follows(&[written.edge], Applier::Quiet).await.unwrap().unwrap();
    world.mark_deleting().await;
    assert!(world.store().write_plan(plan).await.is_err_and(|error| error.is_conflict()));
    assert_eq!(world.check(written).await, Some(Err(FollowRefusal::NotFound)));
    world.assert_at_rest(false, 0).await;
}

#[tokio::test]
async fn who_leaves_an_outlier_that_is_being_deleted_leaves_its_page_too() {
    let world = World::with_low_threshold().await;
    world.follow().await.unwrap();
    world.crowd(5).await;
    world.mark_deleting().await;
    world.store().unfollow(world.bob, world.alice).await.unwrap();
    world.assert_at_rest(false, 5).await;
    assert_eq!(world.pages().await[0].count, 5);
}

// Promotion and demotion under fire.

#[tokio::test]
async fn pages_that_were_built_with_another_size_are_built_anew_once() {
    let world = World::with_low_threshold().await;
    let store = world.store();
    world.crowd(6).await;
    let notes = store.coll::<Document>(crate::collections::MIGRATIONS);
    // As a version left it that had all six on two pages of three.
    let pages = store.coll::<Document>(USER_OVERFLOW);
    let mut page = pages.find_one(doc! {}).await.unwrap().unwrap();
    page.insert("page", 1_i64);
    pages.delete_many(doc! {}).await.unwrap();
    pages.insert_one(page).await.unwrap();
    notes.delete_one(doc! { "_id": "overflow_pages" }).await.unwrap();
    assert_eq!(store.adopt_pages().await.unwrap(), 1);
    assert_eq!(store.adopt_pages().await.unwrap(), 0);
    world.assert_at_rest(false, 6).await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
}

#[tokio::test]
async fn of_a_batch_in_which_one_follower_is_being_deleted_all_others_are_counted() {
    let world = World::with_low_threshold().await;
    world.crowd(6).await;
    let store = world.store();
    let mut written = Vec::new();
    for _ in 0..5 {
        let fan = user(store).await;
        written.push(write(store, fan, world.alice).await);
    }
    let gone = written[2];
    let deleting = doc! { "$set": { "state": "deleting" } };
    store.coll::<Document>(USERS).update_one(doc! { "_id": b(gone.follower) }, deleting).await.unwrap();
    let edges: Vec<_> = written.iter().map(|edge| edge.edge).collect();
    let lease = world.lease().await;
    // A batch takes its followers to be live, and finds out as it counts.
    let plan = store.plan_follows(&edges, Applier::Leased(&lease, world.alice)).await.unwrap().unwrap();
    assert!(store.write_plan(plan).await.is_err_and(|error| error.is_conflict()));
    lease.release().await.unwrap();
    world.drain().await;
    assert!(edge(store, gone.follower, world.alice).await.is_none());
    assert_eq!(world.account().await.counters.followers, 10);
    assert_eq!(world.account().await.follower_seq, 10, "no number was given out for it");
    assert_verified(store).await;
}

#[tokio::test]
async fn a_batch_gives_out_its_numbers_in_the_order_of_the_wishes_whatever_the_edges_were() {
    let world = World::new().await;
    let store = world.store();
    let mut written = Vec::new();
    for n in 0..5 {
        let fan = user(store).await;
        let new = NewFollow { follower: fan, followee: world.alice };
        // The second and the fourth ask an account that they take to be private.
        written.push(if n % 2 == 1 { store.write_request(new).await.unwrap() } else { write(store, fan, world.alice).await });
    }
    world.drain().await;
    for (n, written) in (1_i64..).zip(&written) {
        let edge = edge(store, written.follower, world.alice).await.unwrap();
        assert_eq!((edge.state, edge.seq, edge.pending), (FollowState::Active, Some(n), None));
        assert!(edge.request_of.is_none() && edge.followed_at.is_some());
    }
    assert_eq!(world.account().await.counters.followers, 5);
    assert_verified(store).await;
}

#[tokio::test]
async fn only_the_applier_takes_an_account_over_the_threshold() {
    let world = World::with_low_threshold().await;
    world.crowd(4).await;
    let written = world.write().await;
    for applier in [Applier::Quiet, Applier::Import] {
        let outcomes = world.store().apply_follows(&[written.edge], applier).await.unwrap();
        assert_eq!(outcomes[&written.edge], Outcome::Left);
    }
    assert_eq!(world.settle(written).await, FOLLOWING, "it is there, and counted later");
    assert_eq!((world.account().await.counters.followers, world.flag().await), (4, None));
    world.assert_at_rest(true, 5).await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
}

#[tokio::test]
async fn a_quiet_attempt_that_read_the_account_before_it_was_promoted_is_not_committed() {
    let world = World::with_low_threshold().await;
    let crowd = world.crowd(3).await;
    let written = world.write().await;
    let follow = world.store().plan_follows(&[written.edge], Applier::Quiet).await.unwrap().unwrap();
    let leaving = world.store().mark_unfollow(crowd[0], world.alice).await.unwrap().unwrap();
    let unfollow = world.store().plan_follows(&[leaving], Applier::Quiet).await.unwrap().unwrap();
    let lease = world.lease().await;
    let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
    assert!(world.store().set_flag(&lease, world.alice, flag).await.unwrap());
    for plan in [follow, unfollow] {
        assert!(world.store().write_plan(plan).await.is_err_and(|error| error.is_conflict()));
    }
    lease.release().await.unwrap();
    world.assert_at_rest(true, 3).await;
}

#[tokio::test]
async fn while_pages_are_being_built_only_the_holder_of_the_lease_applies() {
    let world = World::with_low_threshold().await;
    let crowd = world.crowd(4).await;
    let lease = world.lease().await;
    let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
    assert!(world.store().set_flag(&lease, world.alice, flag).await.unwrap());
    let written = world.write().await;
    let leaving = world.store().mark_unfollow(crowd[0], world.alice).await.unwrap().unwrap();
    for applier in [Applier::Quiet, Applier::Import] {
        let outcomes = world.store().apply_follows(&[written.edge, leaving], applier).await.unwrap();
        assert_eq!((outcomes[&written.edge], outcomes[&leaving]), (Outcome::Left, Outcome::Left));
    }
    assert_eq!(world.settle(written).await, FOLLOWING);
    assert_eq!(world.store().drain_follows(world.alice).await.unwrap(), 0, "somebody else holds the lease");
    lease.release().await.unwrap();
    world.assert_at_rest(true, 4).await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
}

#[tokio::test]
async fn an_attempt_that_read_the_flag_before_a_demotion_leaves_its_edge_to_the_applier() {
    let world = World::with_low_threshold().await;
    let crowd = world.crowd(5).await;
    let written = world.write().await;
    let leaving = world.store().mark_unfollow(crowd[0], world.alice).await.unwrap().unwrap();
    let follow = world.store().plan_follows(&[written.edge], Applier::Quiet).await.unwrap().unwrap();
    let unfollow = world.store().plan_follows(&[leaving], Applier::Quiet).await.unwrap().unwrap();
    for fan in &crowd[1..4] {
        world.store().mark_unfollow(*fan, world.alice).await.unwrap().unwrap();
    }
    // Another process has the lease and demotes her, in the middle of what the two have read.
    let other = world.db.second_store().await;
    let lease = Lease::take(&other, &format!("{LEASE_PREFIX}{}", world.alice)).await.unwrap().unwrap();
    let pending: Vec<bson::Uuid> = others_pending(world.store(), &[written.edge, leaving]).await;
    other.apply_follows(&pending, Applier::Leased(&lease, world.alice)).await.unwrap();
    assert!(other.reconcile_outlier(&lease, world.alice).await.unwrap());
    assert_eq!((world.flag().await, world.pages().await.len()), (None, 0));
    assert_eq!(world.store().write_plan(follow).await.unwrap()[&written.edge], Outcome::Left);
    assert_eq!(world.store().write_plan(unfollow).await.unwrap()[&leaving], Outcome::Left);
    lease.release().await.unwrap();
    world.assert_at_rest(true, 2).await;
    assert_eq!(world.flag().await, None);
}

/// What is pending but for these.
async fn others_pending(store: &Store, but: &[bson::Uuid]) -> Vec<bson::Uuid> {
    let pending = doc! { "pending": true, "_id": { "$nin": but } };
    let found = store.coll::<IdDoc>(FOLLOWS).find(pending).projection(doc! { "_id": 1 }).await.unwrap();
    found.map_ok(|edge| edge.id).try_collect().await.unwrap()
}

#[tokio::test]
async fn who_is_blocked_while_the_pages_are_being_built_is_on_none_of_them() {
    let world = World::with_low_threshold().await;
    let crowd = world.crowd(5).await;
    let lease = world.lease().await;
    // As after a crash in the middle of a build.
    world.set(doc! { "$set": { "outlier.state": "building" } }).await;
    assert!(world.store().build_range(&lease, b(world.alice), 0, 1).await.unwrap());
    world.store().block(world.alice, crowd[2]).await.unwrap().unwrap();
    assert_eq!(world.account().await.counters.followers, 5, "only the holder of the lease applies");
    lease.release().await.unwrap();
    world.assert_at_rest(false, 4).await;
    assert_eq!((world.flag().await, world.pages().await[0].count), (Some(OutlierState::Ready), 4));
}

#[tokio::test]
async fn an_account_that_is_deleted_while_it_is_promoted_leaves_no_page() {
    let world = World::with_low_threshold().await;
    world.crowd(4).await;
    let lease = world.lease().await;
    let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
    assert!(world.store().set_flag(&lease, world.alice, flag).await.unwrap());
    world.store().mark_account(world.alice).await.unwrap().unwrap();
    // The builder does not know.
    assert!(world.store().build_range(&lease, b(world.alice), 0, 1).await.unwrap());
    let ready = doc! { "$set": { "outlier.state": "ready" } };
    assert!(!world.store().set_flag(&lease, world.alice, ready).await.unwrap());
    // The job comes to its end only when the builder is done.
    for _ in 0..50 {
        world.store().jobs_step().await.unwrap();
    }
    assert_eq!(world.pages().await.len(), 1);
    lease.release().await.unwrap();
    world.store().finish_jobs().await.unwrap();
    assert_eq!(world.pages().await.len(), 0);
    assert_verified(world.store()).await;
}

#[tokio::test]
async fn a_build_that_a_crash_interrupted_is_made_anew_and_whole() {
    let world = World::with_low_threshold().await;
    let crowd = world.crowd(4).await;
    let lease = world.lease().await;
    let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
    assert!(world.store().set_flag(&lease, world.alice, flag).await.unwrap());
    assert!(world.store().build_range(&lease, b(world.alice), 0, 1).await.unwrap());
    assert_eq!(world.pages().await[0].count, 4);
    // It crashes. While nobody applies, one leaves and one comes.
    drop(lease);
    world.store().unfollow(crowd[1], world.alice).await.unwrap();
    world.follow().await.unwrap();
    assert_eq!(world.store().drain_follows(world.alice).await.unwrap(), 0, "the lease has not run out");
    world.leases_run_out().await;
    world.assert_at_rest(true, 4).await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
}

#[tokio::test]
async fn who_lost_the_lease_in_the_middle_of_a_build_writes_nothing_more() {
    let world = World::with_low_threshold().await;
    world.crowd(4).await;
    let stopped = world.lease().await;
    let flag = doc! { "$set": { "outlier": { "state": "building", "since": date(now()) } } };
    assert!(world.store().set_flag(&stopped, world.alice, flag.clone()).await.unwrap());
    // The process stands still for longer than its lease lasts, and the next one finishes and goes on.
    world.leases_run_out().await;
    let written = world.write().await;
    world.drain().await;
    assert_eq!(world.flag().await, Some(OutlierState::Ready));
    assert_eq!(world.pages().await[0].count, 5);
    let store = world.store();
    assert!(!store.build_range(&stopped, b(world.alice), 0, 1).await.unwrap());
    assert!(!store.set_flag(&stopped, world.alice, flag).await.unwrap());
    assert!(!stopped.renew().await.unwrap());
    store.mark_unfollow(world.bob, world.alice).await.unwrap();
    assert!(store.plan_follows(&[written.edge], Applier::Leased(&stopped, world.alice)).await.unwrap().is_none());
    stopped.release().await.unwrap();
    world.assert_at_rest(false, 4).await;
}

#[tokio::test]
async fn a_demotion_that_crashed_before_its_pages_were_deleted_is_finished() {
    let world = World::with_low_threshold().await;
    world.crowd(5).await;
    assert_eq!(world.pages().await.len(), 1);
    let lease = world.lease().await;
    assert!(world.store().set_flag(&lease, world.alice, doc! { "$unset": { "outlier": "" } }).await.unwrap());
    // Below the threshold, so that it is not raised again at once.
    let fan = doc! { "followeeId": b(world.alice), "seq": 1_i64 };
    let fan = world.store().coll::<FollowDoc>(FOLLOWS).find_one(fan).await.unwrap().unwrap();
    world.store().mark_unfollow(fan.follower(), world.alice).await.unwrap();
    world.store().apply_follows(&[fan.id], Applier::Leased(&lease, world.alice)).await.unwrap();
    drop(lease);
    assert!(!verify::verify(world.store()).await.unwrap().is_empty(), "pages of an account that is no outlier");
    assert_eq!(world.store().apply_follows_step().await.unwrap(), Progress::Idle, "the lease has not run out");
    world.leases_run_out().await;
    world.assert_at_rest(false, 4).await;
    assert!(world.pages().await.is_empty() && world.flag().await.is_none());
}

// The programs of the model.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Follow,
    Unfollow,
    Block,
    Unblock,
}

/// What an act answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Done,
    Refused,
}

/// How far an act is.
#[expect(clippy::large_enum_variant, reason = "a few of them at a time, in a test")]
enum Act {
    Next,
    Written(Written),
    Planned(Written, Plan),
    Marked,
}

/// Makes the next database step of an act. The answer ends it.
async fn advance(store: &Store, kind: Kind, (alice, bob): (UserId, UserId), act: Act) -> (Act, Option<Said>) {
    let said = |answer: Result<(), FollowRefusal>| Some(if answer.is_ok() { Said::Done } else { Said::Refused });
    match (kind, act) {
        (Kind::Follow, Act::Next) => (Act::Written(write(store, bob, alice).await), None),
        (Kind::Follow, Act::Written(written)) if written.fresh => {
            match store.plan_follows(&[written.edge], Applier::Quiet).await.unwrap() {
                Some(plan) => (Act::Planned(written, plan), None),
                None => (Act::Written(Written { fresh: false, ..written }), None),
            }
        }
        (Kind::Follow, Act::Planned(written, plan)) => match store.write_plan(plan).await {
            Ok(outcomes) => match outcomes[&written.edge] {
                Outcome::Counted => (Act::Next, said(Ok(()))),
                Outcome::Withdrawn(refusal) => (Act::Next, said(Err(refusal))),
                Outcome::Requested => unreachable!("nobody is private here"),
                Outcome::Gone | Outcome::Left => (Act::Written(Written { fresh: false, ..written }), None),
            },
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                (Act::Written(Written { fresh: false, ..written }), None)
            }
        },
        (Kind::Follow, Act::Written(written)) => {
            (Act::Next, store.settle_follow(written).await.unwrap().and_then(|answer| said(answer.map(drop))))
        }
        (Kind::Unfollow, _) => {
            store.mark_unfollow(bob, alice).await.unwrap();
            (Act::Next, Some(Said::Done))
        }
        (Kind::Block, Act::Next) => {
            store.mark_block(alice, bob).await.unwrap();
            (Act::Marked, None)
        }
        (Kind::Block, _) => {
            crate::store::until_no_conflict(|| store.sweep_block(alice, bob)).await.unwrap();
            (Act::Next, Some(Said::Done))
        }
        (Kind::Unblock, _) => {
            store.unblock(alice, bob).await.unwrap();
            (Act::Next, Some(Said::Done))
        }
        (Kind::Follow, Act::Marked) => unreachable!("a follow marks no block"),
    }
}

/// When each act began, and when it ended with which answer.
type Spans = HashMap<usize, (usize, Option<(usize, Said)>)>;

/// Whether the acts, each in one piece, have an order that contradicts neither real time nor any answer and leads to this end. `span`
/// is the time of each one's beginning and end with its answer; one that began and did not end has crashed: it happened, or not.
fn linearizable(kinds: &[Kind], spans: &Spans, end: (bool, bool)) -> bool {
    fn search(kinds: &[Kind], spans: &Spans, done: &mut Vec<usize>, (following, blocked): (bool, bool), end: (bool, bool)) -> bool {
        if spans.iter().all(|(act, (_, ended))| ended.is_none() || done.contains(act)) && (following, blocked) == end {
            return true;
        }
        let next: Vec<usize> = spans.keys().copied().filter(|act| !done.contains(act)).collect();
        next.iter().any(|act| {
            let (began, ended) = spans[act];
            // Whoever ended before this one began must have had its turn.
            if next.iter().any(|other| spans[other].1.is_some_and(|(end, _)| end < began)) {
                return false;
            }
            let (said, state) = match kinds[*act] {
                Kind::Follow if blocked => (Said::Refused, (following, blocked)),
                Kind::Follow => (Said::Done, (true, blocked)),
                Kind::Unfollow => (Said::Done, (false, blocked)),
                Kind::Block => (Said::Done, (false, true)),
                Kind::Unblock => (Said::Done, (following, false)),
            };
            if ended.is_some_and(|(_, answer)| answer != said) {
                return false;
            }
            done.push(*act);
            let found = search(kinds, spans, done, state, end);
            done.pop();
            found
        })
    }
    search(kinds, spans, &mut Vec::new(), (false, false), end)
}

#[tokio::test]
async fn whatever_the_schedule_some_order_of_the_acts_explains_every_answer_and_the_end() {
    use Kind::{Block, Follow, Unblock, Unfollow};
    const PROGRAMS: [&[Kind]; 7] = [
        &[Follow, Unfollow, Follow],
        &[Follow, Block],
        &[Follow, Follow, Block],
        &[Follow, Block, Unblock, Follow],
        &[Follow, Unfollow, Block, Follow],
        &[Follow, Follow, Unfollow, Unfollow],
        &[Block, Follow, Unblock, Block],
    ];
    /// Schedules for each program.
    const SCHEDULES: u64 = 12;
    let db = TestDatabase::new().await;
    let store = db.store();
    for seed in 0..SCHEDULES * PROGRAMS.len() as u64 {
        let program = PROGRAMS[usize::try_from(seed).unwrap() % PROGRAMS.len()];
        let mut random = StdRng::seed_from_u64(seed);
        let (alice, bob) = (user(store).await, user(store).await);
        let mut running: Vec<(usize, Act)> = (0..program.len()).map(|act| (act, Act::Next)).collect();
        let mut spans: HashMap<usize, (usize, Option<(usize, Said)>)> = HashMap::new();
        let (mut trace, mut applying) = (Vec::new(), None);
        let mut time = 0;
        while !running.is_empty() {
            time += 1;
            match random.random_range(0..10) {
                0 => {
                    trace.push("the applier".to_owned());
                    store.apply_follows_step().await.unwrap();
                }
                // The applier reads, and writes some steps later.
                1 => match applying.take() {
                    None => {
                        let pending = doc! { "pending": true, "followeeId": b(alice) };
                        let pending = store.coll::<IdDoc>(FOLLOWS).find(pending).await.unwrap();
                        let pending: Vec<bson::Uuid> = pending.map_ok(|edge| edge.id).try_collect().await.unwrap();
                        applying = store.plan_follows(&pending, Applier::Import).await.unwrap();
                        trace.push(format!("an applier reads {}", pending.len()));
                    }
                    Some(plan) => {
                        let written = store.write_plan(plan).await.map(drop);
                        trace.push(format!("that applier writes: {written:?}"));
                        assert!(written.is_ok() || written.is_err_and(|error| error.is_conflict()));
                    }
                },
                2 if random.random_bool(0.3) => {
                    let at = random.random_range(0..running.len());
                    if spans.contains_key(&running[at].0) {
                        trace.push(format!("{:?}{} crashes", program[running[at].0], running[at].0));
                        running.swap_remove(at);
                    }
                }
                _ => {
                    let at = random.random_range(0..running.len());
                    let (n, act) = running.swap_remove(at);
                    let span = spans.entry(n).or_insert((time, None));
                    let (act, said) = Box::pin(advance(store, program[n], (alice, bob), act)).await;
                    trace.push(format!("{:?}{n} {said:?}", program[n]));
                    match said {
                        Some(said) => span.1 = Some((time, said)),
                        None => running.push((n, act)),
                    }
                }
            }
        }
        drop(applying);
        while store.apply_follows_step().await.unwrap() != Progress::Idle {}
        let following = edge(store, bob, alice).await;
        assert!(
            following.as_ref().is_none_or(|edge| edge.state == FollowState::Active && edge.seq.is_some() && edge.pending.is_none()),
            "seed {seed}: {following:?} at rest"
        );
        let block = doc! { "blockerId": b(alice), "blockedId": b(bob) };
        let blocked = store.coll::<Document>(BLOCKS).find_one(block).await.unwrap().is_some();
        assert!(
            linearizable(program, &spans, (following.is_some(), blocked)),
            "seed {seed}: following {}, blocked {blocked}, after {trace:#?}",
            following.is_some()
        );
    }
    assert_verified(store).await;
}
