//! The protocol of requests with its steps forced into every order that matters: against going public and private, a block, a
//! cancellation, and a crash after any of the steps.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::HashMap;

use bson::{Document, doc};
use futures::future::join_all;
use rookery_domain::{Limit, UserId, graph::FollowRefusal};

use crate::{
    Settings, Store,
    collections::{FOLLOWS, USERS},
    graph::{Applier, FollowDoc, FollowState, Followed, NewFollow, Outcome, Plan, Written, pair},
    pending::Progress,
    profiles::ProfileEdit,
    rename::Edited,
    store::{b, new_id, until_no_conflict},
    testing::{TestDatabase, merges, somebody, user},
    users::{UserDoc, UserRef},
    verify,
};

/// The first half of a change of privacy: the mark.
async fn mark_private(store: &Store, user: UserId, private: bool) {
    let edit = ProfileEdit { private: Some(private), ..ProfileEdit::default() };
    store.mark_edited(user, edit).await.unwrap().unwrap();
}

async fn set_private(store: &Store, user: UserId, private: bool) {
    let edit = ProfileEdit { private: Some(private), ..ProfileEdit::default() };
    assert!(matches!(store.edit_profile(user, edit).await.unwrap(), Edited::Now(_)));
}

async fn edge(store: &Store, follower: UserId, followee: UserId) -> Option<FollowDoc> {
    store.coll::<FollowDoc>(FOLLOWS).find_one(pair(follower, followee)).await.unwrap()
}

async fn account(store: &Store, user: UserId) -> UserDoc {
    store.coll::<UserDoc>(USERS).find_one(doc! { "_id": b(user) }).await.unwrap().unwrap()
}

async fn drain(store: &Store) {
    while store.apply_follows_step().await.unwrap() != Progress::Idle {}
}

async fn assert_verified(store: &Store) {
    let drift = verify::verify(store).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}

/// How the two stand at rest.
async fn at_rest(store: &Store, follower: UserId, followee: UserId) -> Option<FollowState> {
    drain(store).await;
    let edge = edge(store, follower, followee).await;
    let followers = account(store, followee).await.counters.followers;
    let counted = edge.as_ref().is_some_and(|edge| edge.seq.is_some());
    assert_eq!(followers, i64::from(counted), "{edge:?}");
    if let Some(edge) = &edge {
        assert!(edge.pending.is_none() && edge.accepted.is_none(), "{edge:?}");
        assert_eq!(edge.seq.is_some(), edge.state == FollowState::Active, "{edge:?}");
        assert_eq!(edge.request_of.is_some(), edge.state == FollowState::Requested, "{edge:?}");
    }
    edge.map(|edge| edge.state)
}

/// One database step of an act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A request to follow, of one who knows that the account is private.
    Ask,
    /// A follow by one who believes that the account is public.
    Write,
    /// The first half of an attempt to apply it.
    Read,
    /// The second half, and where that does not tell, the check.
    Settle,
    GoPublic,
    AcceptAll,
    Consent,
    GoPrivate,
    Accept,
    Cancel,
    Mark,
    Sweep,
    /// A round of the applier.
    Apply,
}
use Step::{Accept, AcceptAll, Apply, Ask, Cancel, Consent, GoPrivate, GoPublic, Mark, Read, Settle, Sweep, Write};

/// All orders of two acts, each as far as it comes before it crashes, and with a round of the applier at every place between.
fn orders(one: &[Step], other: &[Step]) -> Vec<Vec<Step>> {
    let mut orders = Vec::new();
    for one in (1..=one.len()).map(|steps| &one[..steps]) {
        for other in (1..=other.len()).map(|steps| &other[..steps]) {
            for order in merges(one, other) {
                orders.extend((1..order.len()).map(|at| [&order[..at], &[Apply], &order[at..]].concat()));
                orders.push(order);
            }
        }
    }
    orders
}

/// Bob, who asks Alice.
struct Pair<'a> {
    store: &'a Store,
    alice: UserId,
    bob: UserId,
    written: Option<Written>,
    plan: Option<Plan>,
    answer: Option<Result<Followed, FollowRefusal>>,
}

impl<'a> Pair<'a> {
    async fn new(store: &'a Store, private: bool) -> Self {
        let (alice, bob) = (user(store).await, user(store).await);
        if private {
            set_private(store, alice, true).await;
        }
        Self { store, alice, bob, written: None, plan: None, answer: None }
    }

    async fn advance(&mut self, step: Step) {
        let (store, alice, bob) = (self.store, self.alice, self.bob);
        let new = NewFollow { follower: bob, followee: alice };
        match step {
            Ask => self.written = Some(store.write_request(new).await.unwrap()),
            Write => self.written = Some(store.write_follows(vec![new]).await.unwrap()[0]),
            Read => {
                let edge = self.written.unwrap().edge;
                self.plan = store.plan_follows(&[edge], Applier::Quiet).await.unwrap();
            }
            Settle => self.answer = self.settle().await,
            GoPublic => mark_private(store, alice, false).await,
            AcceptAll => while until_no_conflict(|| store.accept_batch(alice)).await.unwrap().is_some() {},
            Consent => store.consent_to_pending(alice).await.unwrap(),
            GoPrivate => mark_private(store, alice, true).await,
            Accept => drop(store.mark_accepted(alice, bob).await.unwrap()),
            Cancel => drop(store.mark_unfollow(bob, alice).await.unwrap()),
            Mark => drop(store.mark_block(alice, bob).await.unwrap()),
            Sweep => drop(until_no_conflict(|| store.sweep_block(alice, bob)).await.unwrap()),
            Apply => drop(store.apply_follows_step().await.unwrap()),
        }
    }

    async fn settle(&mut self) -> Option<Result<Followed, FollowRefusal>> {
        let written = self.written.unwrap();
        let outcome = match self.plan.take() {
            Some(plan) => match self.store.write_plan(plan).await {
                Ok(outcomes) => outcomes.get(&written.edge).copied(),
                Err(error) => {
                    assert!(error.is_conflict(), "{error}");
                    None
                }
            },
            None => None,
        };
        match outcome {
            Some(Outcome::Counted) => Some(Ok(Followed::Following)),
            Some(Outcome::Requested) => Some(Ok(Followed::Requested)),
            Some(Outcome::Withdrawn(refusal)) => Some(Err(refusal)),
            Some(Outcome::Gone | Outcome::Left) | None => {
                self.store.settle_follow(Written { fresh: false, ..written }).await.unwrap()
            }
        }
    }
}

#[tokio::test]
async fn no_order_of_a_request_and_going_public_leaves_a_request_behind() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for request in [[Ask, Read, Settle], [Write, Read, Settle]] {
        for order in orders(&request, &[GoPublic, AcceptAll]) {
            let mut pair = Pair::new(store, true).await;
            for step in &order {
                pair.advance(*step).await;
            }
            drop(pair.plan.take());
            assert_eq!(at_rest(store, pair.bob, pair.alice).await, Some(FollowState::Active), "{order:?}");
            assert!(account(store, pair.alice).await.opening.is_none(), "{order:?}");
        }
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn no_order_of_a_follow_and_going_private_counts_without_consent_or_takes_an_answer_back() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for order in orders(&[Write, Read, Settle], &[Consent, GoPrivate]) {
        let mut pair = Pair::new(store, false).await;
        let mut before_private = None;
        for step in &order {
            if *step == Consent {
                before_private = pair.answer;
            }
            pair.advance(*step).await;
        }
        drop(pair.plan.take());
        let end = at_rest(store, pair.bob, pair.alice).await;
        match pair.answer {
            // What was answered before the account began to go private stands. (What was answered meanwhile may be asked for again.)
            Some(Ok(Followed::Following)) if before_private.is_some() || !order.contains(&GoPrivate) => {
                assert_eq!(end, Some(FollowState::Active), "{order:?}");
            }
            Some(Ok(Followed::Requested)) => assert_eq!(end, Some(FollowState::Requested), "{order:?}"),
            Some(Ok(Followed::Following)) | None => {
                assert!(matches!(end, Some(FollowState::Active | FollowState::Requested)), "{order:?}: {end:?}");
            }
            Some(Err(refusal)) => panic!("{order:?}: {refusal:?}"),
        }
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn no_order_of_a_request_and_a_block_leaves_an_edge() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for request in [[Ask, Read, Settle], [Write, Read, Settle]] {
        for order in orders(&request, &[Mark, Sweep]) {
            let mut pair = Pair::new(store, true).await;
            for step in &order {
                pair.advance(*step).await;
            }
            drop(pair.plan.take());
            assert_eq!(at_rest(store, pair.bob, pair.alice).await, None, "{order:?}");
        }
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn no_order_of_an_acceptance_and_a_block_leaves_an_edge() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for order in orders(&[Accept, Read, Settle], &[Mark, Sweep]) {
        let mut pair = Pair::new(store, true).await;
        pair.advance(Ask).await;
        drain(store).await;
        for step in &order {
            pair.advance(*step).await;
        }
        drop(pair.plan.take());
        assert_eq!(at_rest(store, pair.bob, pair.alice).await, None, "{order:?}");
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn whatever_the_order_of_an_acceptance_and_a_cancellation_the_edge_is_gone() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for order in orders(&[Accept, Read], &[Cancel]) {
        let mut pair = Pair::new(store, true).await;
        pair.advance(Ask).await;
        drain(store).await;
        for step in &order {
            pair.advance(*step).await;
        }
        // The attempt that read before the cancellation is committed after it: it must not count what is gone.
        if let Some(plan) = pair.plan.take() {
            let written = store.write_plan(plan).await;
            assert!(written.is_ok() || written.is_err_and(|error| error.is_conflict()));
        }
        assert_eq!(at_rest(store, pair.bob, pair.alice).await, None, "{order:?}");
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn an_opening_accepts_nobody_once_the_account_is_private_again() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let mut pair = Pair::new(store, true).await;
    mark_private(store, pair.alice, false).await;
    mark_private(store, pair.alice, true).await;
    pair.advance(Ask).await;
    assert_eq!(store.accept_batch(pair.alice).await.unwrap(), None);
    assert_eq!(at_rest(store, pair.bob, pair.alice).await, Some(FollowState::Requested));
}

#[tokio::test]
async fn who_is_removed_by_a_private_account_must_ask_again_even_before_that_is_applied() {
    let db = TestDatabase::new().await;
    let store = db.store();
    for step in [Ask, Write] {
        let mut pair = Pair::new(store, false).await;
        store.follow(pair.bob, pair.alice).await.unwrap().unwrap();
        set_private(store, pair.alice, true).await;
        assert_eq!(at_rest(store, pair.bob, pair.alice).await, Some(FollowState::Active), "going private keeps the followers");
        store.mark_removed(pair.bob, pair.alice, &["active"]).await.unwrap();
        pair.advance(step).await;
        assert_eq!(store.settle_follow(pair.written.unwrap()).await.unwrap(), Some(Ok(Followed::Requested)), "{step:?}");
        assert!(!store.follows(pair.bob, pair.alice).await.unwrap());
        assert_eq!(at_rest(store, pair.bob, pair.alice).await, Some(FollowState::Requested), "{step:?}");
    }
    assert_verified(store).await;
}

#[tokio::test]
async fn an_opening_that_crashed_is_finished_batch_by_batch() {
    /// More than one batch.
    const MANY: usize = 1_100;
    let db = TestDatabase::new().await;
    let store = db.store();
    let alice = user(store).await;
    set_private(store, alice, true).await;
    let crowd: Vec<UserId> = (0..MANY).map(|_| UserId(new_id())).collect();
    store.import_users(crowd.iter().map(|id| somebody(*id)).collect()).await.unwrap();
    let asks = crowd.iter().map(|bob| FollowDoc::wanted(NewFollow { follower: *bob, followee: alice }, FollowState::Requested));
    store.coll::<FollowDoc>(FOLLOWS).insert_many(asks).await.unwrap();
    drain(store).await;
    assert_eq!(account(store, alice).await.counters.followers, 0);
    mark_private(store, alice, false).await;
    assert!(store.accept_batch(alice).await.unwrap().is_some_and(|accepted| accepted < MANY));
    // It crashes.
    drain(store).await;
    let after = account(store, alice).await;
    assert_eq!((after.counters.followers, after.opening), (i64::try_from(MANY).unwrap(), None));
    let left = doc! { "followeeId": b(alice), "state": "requested" };
    assert_eq!(store.coll::<Document>(FOLLOWS).count_documents(left).await.unwrap(), 0);
    assert_verified(store).await;
}

#[tokio::test]
async fn requests_count_against_the_limit_of_follows() {
    let db = TestDatabase::with(Settings { follow_limit: 3, ..Settings::default() }).await;
    let store = db.store();
    let bob = user(store).await;
    let mut answers = HashMap::new();
    for n in 0..5 {
        let alice = user(store).await;
        set_private(store, alice, true).await;
        let followee = store.followee(&UserRef::Id(alice)).await.unwrap().unwrap();
        answers.insert(n, store.follow(bob, followee).await.unwrap());
        drain(store).await;
        assert_eq!(edge(store, bob, alice).await.is_some(), n < 3);
    }
    for n in 0..5 {
        let expected = if n < 3 { Ok(Followed::Requested) } else { Err(FollowRefusal::LimitReached) };
        assert_eq!(answers[&n], expected, "{n}");
    }
}

#[tokio::test]
async fn whatever_races_every_request_ends_as_the_account_stands() {
    let db = TestDatabase::new().await;
    let (store, other) = (db.store(), db.second_store().await);
    for round in 0..12 {
        let alice = user(store).await;
        let fans = join_all((0..4).map(|_| user(store))).await;
        set_private(store, alice, round % 2 == 0).await;
        let acts = fans.iter().enumerate().map(|(n, fan)| {
            let (store, fan) = (if n % 2 == 0 { store } else { &other }, *fan);
            async move {
                store.follow(fan, alice).await.unwrap().unwrap();
                match n {
                    0 => drop(store.accept_request(alice, fan).await.unwrap()),
                    1 => store.unfollow(fan, alice).await.unwrap(),
                    2 => store.reject_request(alice, fan).await.unwrap(),
                    _ => {}
                }
            }
        });
        let toggles = async {
            for private in [round % 2 != 0, round % 2 == 0, round % 3 == 0] {
                set_private(&other, alice, private).await;
            }
        };
        futures::join!(join_all(acts), toggles);
        drain(store).await;
        let private = account(store, alice).await.settings.private;
        let waiting = store.follow_requests(alice, None, Limit::MAX).await.unwrap().items.len();
        let listed = store.followers(&UserRef::Id(alice), Some(alice), None, Limit::MAX).await.unwrap().unwrap().items.len();
        assert!(private || waiting == 0, "round {round}: {waiting} wait for a public account");
        assert_eq!(account(store, alice).await.counters.followers, i64::try_from(listed).unwrap(), "round {round}");
        for fan in &fans {
            let edge = edge(store, *fan, alice).await;
            assert!(edge.as_ref().is_none_or(|edge| edge.pending.is_none()), "round {round}: {edge:?}");
        }
    }
    assert_verified(store).await;
}
