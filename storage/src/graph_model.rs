//! The graph against a model of it in memory: whatever is done in whatever order, lists, counts and answers are those of the model.
//!
//! Acts of a few accounts are drawn, among them acts that stop after their first step, as a crash stops them, and rounds of the
//! applier in between; every other act goes through another process's store. A case that fails is made as short as it can be.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use rookery_domain::{
    Limit, UserId,
    graph::{BlockRefusal, FollowRefusal},
};
use tokio::runtime::Runtime;

use crate::{
    Settings, Store,
    graph::{Followed, NewFollow},
    profiles::ProfileEdit,
    testing::{TestDatabase, user},
    users::UserRef,
    verify::verify,
};

/// Accounts in one case: few, so that they meet.
const USERS: usize = 4;

/// What the first account of an act does to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Follow,
    /// Only written: the applier does the rest. Of a public account, for one that is known to be private is asked in another way.
    FollowAndCrash,
    /// Or cancels a request.
    Unfollow,
    UnfollowAndCrash,
    RemoveFollower,
    Accept,
    Reject,
    Block,
    Unblock,
    GoPrivate,
    GoPublic,
    Delete,
    /// A round of the applier, of nobody.
    Apply,
}

const ANY: Limit = Limit::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Requested,
    Active,
}

/// What the graph is, by the rules alone.
#[derive(Debug, Default, Clone)]
struct Model {
    edges: BTreeMap<(usize, usize), Edge>,
    blocks: BTreeSet<(usize, usize)>,
    private: BTreeSet<usize>,
    dead: BTreeSet<usize>,
}

impl Model {
    fn blocked(&self, one: usize, other: usize) -> bool {
        self.blocks.contains(&(one, other)) || self.blocks.contains(&(other, one))
    }

    fn both_live(&self, one: usize, other: usize) -> bool {
        !self.dead.contains(&one) && !self.dead.contains(&other)
    }

    fn follow(&mut self, one: usize, other: usize) -> Result<Followed, FollowRefusal> {
        if one == other {
            return Err(FollowRefusal::SelfFollow);
        }
        if !self.both_live(one, other) {
            return Err(FollowRefusal::NotFound);
        }
        if self.blocked(one, other) {
            return Err(FollowRefusal::Blocked);
        }
        let new = if self.private.contains(&other) { Edge::Requested } else { Edge::Active };
        match self.edges.entry((one, other)).or_insert(new) {
            Edge::Requested => Ok(Followed::Requested),
            Edge::Active => Ok(Followed::Following),
        }
    }

    fn block(&mut self, one: usize, other: usize) -> Result<(), BlockRefusal> {
        if one == other {
            return Err(BlockRefusal::SelfBlock);
        }
        if !self.both_live(one, other) {
            return Err(BlockRefusal::NotFound);
        }
        self.blocks.insert((one, other));
        self.edges.retain(|pair, _| *pair != (one, other) && *pair != (other, one));
        Ok(())
    }

    fn delete(&mut self, one: usize) {
        self.dead.insert(one);
        self.private.remove(&one);
        self.edges.retain(|(follower, followee), _| *follower != one && *followee != one);
        self.blocks.retain(|(blocker, blocked)| *blocker != one && *blocked != one);
    }

    fn go_public(&mut self, one: usize) {
        self.private.remove(&one);
        for ((_, followee), edge) in &mut self.edges {
            if *followee == one {
                *edge = Edge::Active;
            }
        }
    }

    fn of(&self, which: Edge, end: impl Fn(usize, usize) -> Option<usize>) -> BTreeSet<usize> {
        let edges = self.edges.iter().filter(|(_, edge)| **edge == which);
        edges.filter_map(|((follower, followee), _)| end(*follower, *followee)).collect()
    }
}

/// The same acts on a database.
struct World<'a> {
    stores: [&'a Store; 2],
    users: Vec<UserId>,
    model: Model,
}

impl World<'_> {
    async fn act(&mut self, turn: usize, act: Act, one: usize, other: usize) {
        let store = self.stores[turn % 2];
        let (me, you) = (self.users[one], self.users[other]);
        let both_live = self.model.both_live(one, other);
        if self.model.dead.contains(&one) && ![Act::Follow, Act::Block, Act::Delete, Act::Apply].contains(&act) {
            // Its tokens are dead; a follow and a block may have been under way.
            return;
        }
        match act {
            Act::Follow => {
                let followee = store.followee(&UserRef::Id(you)).await.unwrap();
                let answer = match followee {
                    Some(followee) => store.follow(me, followee).await.unwrap(),
                    None => store.follow(me, you).await.unwrap(),
                };
                assert_eq!(answer, self.model.follow(one, other), "{one} follows {other}");
            }
            Act::FollowAndCrash => {
                // One that is refused may stay all the same where what forbids it goes before the applier comes: nobody was answered.
                if self.model.clone().follow(one, other) == Ok(Followed::Following) {
                    store.write_follows(vec![NewFollow { follower: me, followee: you }]).await.unwrap();
                    let _ = self.model.follow(one, other);
                }
            }
            Act::Unfollow => {
                store.unfollow(me, you).await.unwrap();
                self.model.edges.remove(&(one, other));
            }
            Act::UnfollowAndCrash => {
                store.mark_unfollow(me, you).await.unwrap();
                self.model.edges.remove(&(one, other));
            }
            Act::RemoveFollower => {
                store.remove_follower(me, you).await.unwrap();
                if self.model.edges.get(&(other, one)) == Some(&Edge::Active) {
                    self.model.edges.remove(&(other, one));
                }
            }
            Act::Accept => {
                let accepted = store.accept_request(me, you).await.unwrap();
                let edge = self.model.edges.get_mut(&(other, one));
                assert!(!both_live || accepted == edge.is_some(), "{one} accepts {other}: {accepted}");
                if let Some(edge) = edge {
                    *edge = Edge::Active;
                }
            }
            Act::Reject => {
                store.reject_request(me, you).await.unwrap();
                if self.model.edges.get(&(other, one)) == Some(&Edge::Requested) {
                    self.model.edges.remove(&(other, one));
                }
            }
            Act::Block => {
                let (answer, modelled) = (store.block(me, you).await.unwrap(), self.model.block(one, other));
                // A block that stood before a deletion is there until the job comes by.
                assert!(answer == modelled || !both_live && answer == Ok(()), "{one} blocks {other}: {answer:?}");
            }
            Act::Unblock => {
                store.unblock(me, you).await.unwrap();
                self.model.blocks.remove(&(one, other));
            }
            Act::GoPrivate | Act::GoPublic => {
                let private = act == Act::GoPrivate;
                store.edit_profile(me, ProfileEdit { private: Some(private), ..ProfileEdit::default() }).await.unwrap();
                if self.model.dead.contains(&one) {
                    return;
                }
                if private {
                    self.model.private.insert(one);
                } else {
                    self.model.go_public(one);
                }
            }
            Act::Delete => {
                let deleted = store.delete_account(me).await.unwrap();
                assert_eq!(deleted.is_some(), !self.model.dead.contains(&one));
                self.model.delete(one);
            }
            Act::Apply => drop(store.apply_follows_step().await.unwrap()),
        }
    }

    async fn assert_like_the_model(&self) {
        let (store, model) = (self.stores[0], &self.model);
        let numbers = |users: Vec<UserId>| {
            users.into_iter().map(|user| self.users.iter().position(|known| *known == user).unwrap()).collect::<BTreeSet<_>>()
        };
        for (at, user) in self.users.iter().enumerate() {
            let this = UserRef::Id(*user);
            if model.dead.contains(&at) {
                assert_eq!(store.user(&this).await.unwrap(), None);
                continue;
            }
            let followers = store.followers(&this, Some(*user), None, ANY).await.unwrap().unwrap();
            let followers = numbers(followers.items.into_iter().map(|follow| follow.user.id).collect());
            assert_eq!(followers, model.of(Edge::Active, |from, to| (to == at).then_some(from)), "followers of {at}");
            let following = store.following(&this, Some(*user), None, ANY).await.unwrap().unwrap();
            let following = numbers(following.items.into_iter().map(|follow| follow.user.id).collect());
            assert_eq!(following, model.of(Edge::Active, |from, to| (from == at).then_some(to)), "whom {at} follows");
            let counts = store.user(&this).await.unwrap().unwrap().counts;
            let lengths = (i64::try_from(followers.len()).unwrap(), i64::try_from(following.len()).unwrap());
            assert_eq!((counts.followers, counts.following), lengths, "counts of {at}");
            let requests = store.follow_requests(*user, None, ANY).await.unwrap();
            let requests = numbers(requests.items.into_iter().map(|request| request.user.id).collect());
            assert_eq!(requests, model.of(Edge::Requested, |from, to| (to == at).then_some(from)), "requests to {at}");
            let blocks = store.blocks(*user, None, ANY).await.unwrap();
            let blocks = numbers(blocks.items.into_iter().map(|blocked| blocked.user.id).collect());
            let modelled = model.blocks.iter().filter(|(blocker, _)| *blocker == at).map(|(_, blocked)| *blocked);
            assert_eq!(blocks, modelled.collect(), "whom {at} blocks");
            for (user, relation) in store.relationships(*user, &self.users).await.unwrap() {
                let other = self.users.iter().position(|known| *known == user).unwrap();
                let edge = model.edges.get(&(at, other));
                assert_eq!(relation.following, edge == Some(&Edge::Active), "{at} follows {other}");
                assert_eq!(relation.requested, edge == Some(&Edge::Requested), "{at} has asked {other}");
                assert_eq!(relation.followed_by, model.edges.get(&(other, at)) == Some(&Edge::Active));
                assert_eq!(relation.blocking, model.blocks.contains(&(at, other)));
                assert_eq!(relation.blocked_by, model.blocks.contains(&(other, at)));
            }
        }
    }
}

fn act() -> impl Strategy<Value = (Act, usize, usize)> {
    let act = prop_oneof![
        8 => Just(Act::Follow),
        3 => Just(Act::FollowAndCrash),
        3 => Just(Act::Unfollow),
        2 => Just(Act::UnfollowAndCrash),
        1 => Just(Act::RemoveFollower),
        3 => Just(Act::Accept),
        1 => Just(Act::Reject),
        2 => Just(Act::Block),
        2 => Just(Act::Unblock),
        2 => Just(Act::GoPrivate),
        2 => Just(Act::GoPublic),
        1 => Just(Act::Delete),
        2 => Just(Act::Apply),
    ];
    (act, 0..USERS, 0..USERS)
}

/// Every order of acts that is drawn, with this celebrity threshold.
fn assert_like_a_model(threshold: i64, cases: u32) {
    let runtime = Runtime::new().unwrap();
    let (db, second) = runtime.block_on(async {
        let db = TestDatabase::with(Settings { celebrity_threshold: threshold, ..Settings::default() }).await;
        let second = db.second_store().await;
        (db, second)
    });
    let config = Config { cases, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&prop::collection::vec(act(), 1..40), |acts| {
        let case = runtime.block_on(async {
            let mut users = Vec::new();
            for _ in 0..USERS {
                users.push(user(db.store()).await);
            }
            let mut world = World { stores: [db.store(), &second], users, model: Model::default() };
            for (turn, (act, one, other)) in acts.into_iter().enumerate() {
                world.act(turn, act, one, other).await;
            }
            db.store().finish_jobs().await.unwrap();
            world.assert_like_the_model().await;
            verify(db.store()).await.unwrap()
        });
        prop_assert_eq!(case, []);
        Ok(())
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

#[test]
fn whatever_is_done_in_whatever_order_lists_and_counts_are_those_of_a_model() {
    assert_like_a_model(1_000, 32);
}

#[test]
fn so_they_are_where_everybody_becomes_a_celebrity_and_ceases_to_be_one() {
    assert_like_a_model(2, 32);
}
