//! The graph against the real database: every way to follow, unfollow and block, alone and against each other.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::HashSet;

use futures::future::join_all;
use rookery_domain::{
    Limit, UserId,
    graph::FollowRefusal,
    page::{EdgeCursor, SeqCursor},
};
use rookery_storage::{
    Settings, Store,
    graph::Followed,
    pending::Progress,
    testing::{TestDatabase, user},
    users::UserRef,
    verify,
};

async fn users(store: &Store, n: usize) -> Vec<UserId> {
    join_all((0..n).map(|_| user(store))).await
}

async fn settle(store: &Store) {
    while store.apply_follows_step().await.unwrap() != Progress::Idle {}
}

async fn followers(store: &Store, of: UserId, limit: usize) -> Vec<UserId> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.followers(&UserRef::Id(of), None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap();
        assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
        all.extend(page.items.into_iter().map(|follow| follow.user.id));
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

async fn following(store: &Store, of: UserId, limit: usize) -> Vec<UserId> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.following(&UserRef::Id(of), None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap();
        assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
        all.extend(page.items.into_iter().map(|follow| follow.user.id));
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

/// The standing oracle: counts, walks and invariants agree.
async fn assert_graph(store: &Store, of: UserId, n_followers: usize, n_following: usize) {
    let counts = store.user(&UserRef::Id(of)).await.unwrap().unwrap().counts;
    let counted = (usize::try_from(counts.followers), usize::try_from(counts.following));
    assert_eq!(counted, (Ok(n_followers), Ok(n_following)));
    for limit in [1, 7, 100] {
        if n_followers / limit < 200 {
            assert_eq!(followers(store, of, limit).await.len(), n_followers, "followers by {limit}");
        }
    }
    assert_eq!(following(store, of, 3).await.len(), n_following);
    let drift = verify::verify(store).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}

#[tokio::test]
async fn following_counts_both_accounts_once_however_often_it_is_asked() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (alice, bob) = (user(store).await, user(store).await);
    for _ in 0..3 {
        assert_eq!(store.follow(bob, alice).await.unwrap(), Ok(Followed::Following));
    }
    assert_graph(store, alice, 1, 0).await;
    assert_graph(store, bob, 0, 1).await;
    for _ in 0..3 {
        store.unfollow(bob, alice).await.unwrap();
    }
    assert_graph(store, alice, 0, 0).await;
    assert_graph(store, bob, 0, 0).await;
    assert_eq!(store.apply_follows_step().await.unwrap(), Progress::Idle, "a quiet follow leaves nothing behind");
}

#[tokio::test]
async fn nobody_follows_themselves_or_somebody_who_is_not_there() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let alice = user(store).await;
    assert_eq!(store.follow(alice, alice).await.unwrap(), Err(FollowRefusal::SelfFollow));
    let nobody = UserId(uuid::Uuid::now_v7());
    assert_eq!(store.follow(alice, nobody).await.unwrap(), Err(FollowRefusal::NotFound));
    assert_graph(store, alice, 0, 0).await;
}

#[tokio::test]
async fn fifty_concurrent_follows_of_one_pair_count_once() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (alice, bob) = (user(store).await, user(store).await);
    let other = db.second_store().await;
    for answer in join_all((0..50).map(|n| if n % 2 == 0 { store } else { &other }.follow(bob, alice))).await {
        assert_eq!(answer.unwrap(), Ok(Followed::Following));
    }
    settle(store).await;
    assert_graph(store, alice, 1, 0).await;
    join_all((0..50).map(|_| store.unfollow(bob, alice))).await;
    settle(store).await;
    assert_graph(store, alice, 0, 0).await;
    assert_graph(store, bob, 0, 0).await;
}

#[tokio::test]
async fn follows_and_unfollows_of_one_pair_that_race_leave_counts_and_lists_equal() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (alice, bob) = (user(store).await, user(store).await);
    for _ in 0..10 {
        join_all((0..6).map(|n| async move {
            if n % 2 == 0 {
                store.follow(bob, alice).await.unwrap().unwrap();
            } else {
                store.unfollow(bob, alice).await.unwrap();
            }
        }))
        .await;
        settle(store).await;
        let stands = usize::from(store.follows(bob, alice).await.unwrap());
        assert_graph(store, alice, stands, 0).await;
        assert_graph(store, bob, 0, stands).await;
    }
}

#[tokio::test]
async fn a_block_and_a_follow_that_race_leave_no_edge() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (alice, bob) = (user(store).await, user(store).await);
    for _ in 0..20 {
        let (one, two, three) = tokio::join!(store.follow(bob, alice), store.block(alice, bob), store.follow(alice, bob));
        two.unwrap().unwrap();
        for answer in [one.unwrap(), three.unwrap()] {
            assert!(matches!(answer, Ok(Followed::Following) | Err(FollowRefusal::Blocked)), "{answer:?}");
        }
        settle(store).await;
        assert!(!store.follows(bob, alice).await.unwrap() && !store.follows(alice, bob).await.unwrap());
        assert_graph(store, alice, 0, 0).await;
        assert_eq!(store.follow(bob, alice).await.unwrap(), Err(FollowRefusal::Blocked));
        store.unblock(alice, bob).await.unwrap();
    }
    assert_eq!(store.follow(bob, alice).await.unwrap(), Ok(Followed::Following));
}

#[tokio::test]
async fn the_follow_limit_holds_for_concurrent_follows() {
    let db = TestDatabase::with(Settings { follow_limit: 5, ..Settings::default() }).await;
    let store = db.store();
    let alice = user(store).await;
    let others = users(store, 8).await;
    for other in &others[..5] {
        assert_eq!(store.follow(alice, *other).await.unwrap(), Ok(Followed::Following));
    }
    assert_eq!(store.follow(alice, others[0]).await.unwrap(), Ok(Followed::Following), "whom one follows already is no new follow");
    for answer in join_all(others[5..].iter().map(|other| store.follow(alice, *other))).await {
        assert_eq!(answer.unwrap(), Err(FollowRefusal::LimitReached));
    }
    settle(store).await;
    assert_graph(store, alice, 0, 5).await;
}

#[tokio::test]
async fn lists_lead_both_ways_and_newest_first() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let alice = user(store).await;
    let others = users(store, 12).await;
    for other in &others {
        store.follow(*other, alice).await.unwrap().unwrap();
        store.follow(alice, *other).await.unwrap().unwrap();
    }
    let newest_first: Vec<UserId> = others.iter().rev().copied().collect();
    for limit in [1, 2, 3, 4, 5, 12, 100] {
        assert_eq!(followers(store, alice, limit).await, newest_first);
        assert_eq!(following(store, alice, limit).await, newest_first);
    }
    let (of, five) = (UserRef::Id(alice), Limit::new(5).unwrap());
    let first = store.followers(&of, None, None, five).await.unwrap().unwrap();
    let second = store.followers(&of, None, first.next, five).await.unwrap().unwrap();
    let back = store.followers(&of, None, second.prev, five).await.unwrap().unwrap();
    assert_eq!(back.items, first.items);
    assert_eq!(back.next, first.next);
    let newest = store.followers(&of, None, first.prev, five).await.unwrap().unwrap();
    assert!(newest.items.is_empty() && newest.next.is_some(), "the newest page serves to poll");
    assert!(matches!(newest.prev, Some(SeqCursor::Above(_))));

    let first = store.following(&of, None, None, five).await.unwrap().unwrap();
    let second = store.following(&of, None, first.next, five).await.unwrap().unwrap();
    let back = store.following(&of, None, second.prev, five).await.unwrap().unwrap();
    assert_eq!((&back.items, back.next), (&first.items, first.next));
    let newest = store.following(&of, None, first.prev, five).await.unwrap().unwrap();
    assert!(newest.items.is_empty() && matches!(newest.prev, Some(EdgeCursor::After(..))));
}

/// A small threshold, so that a crowd of 60 makes a celebrity.
async fn star_and_crowd(db: &TestDatabase) -> (UserId, Vec<UserId>) {
    (user(db.store()).await, users(db.store(), 60).await)
}

fn low_threshold() -> Settings {
    Settings { celebrity_threshold: 50, ..Settings::default() }
}

#[tokio::test]
async fn an_account_becomes_a_celebrity_in_one_rush_and_everybody_is_counted() {
    let db = TestDatabase::with(low_threshold()).await;
    let store = db.store();
    let other = db.second_store().await;
    let (star, crowd) = star_and_crowd(&db).await;
    for answer in
        join_all(crowd.iter().enumerate().map(|(n, fan)| if n % 2 == 0 { store } else { &other }.follow(*fan, star))).await
    {
        assert_eq!(answer.unwrap(), Ok(Followed::Following));
    }
    tokio::join!(settle(store), settle(&other));
    settle(store).await;
    assert!(store.user(&UserRef::Id(star)).await.unwrap().unwrap().celebrity);
    assert!(store.is_celebrity(star) || other.is_celebrity(star));
    assert_graph(store, star, 60, 0).await;
}

#[tokio::test]
async fn the_flag_falls_below_80_per_cent_and_comes_back_at_the_threshold() {
    let db = TestDatabase::with(low_threshold()).await;
    let store = db.store();
    let (star, crowd) = star_and_crowd(&db).await;
    let is_celebrity = async || store.user(&UserRef::Id(star)).await.unwrap().unwrap().celebrity;
    let stages: [(bool, std::ops::Range<usize>, usize, bool); 6] = [
        (true, 0..45, 45, false),
        (true, 45..60, 60, true),
        (false, 0..15, 45, true),
        (false, 15..25, 35, false),
        (true, 15..25, 45, false),
        (true, 0..15, 60, true),
    ];
    for (follow, who, followers, celebrity) in stages {
        join_all(crowd[who].iter().map(|fan| async move {
            if follow {
                store.follow(*fan, star).await.unwrap().unwrap();
            } else {
                store.unfollow(*fan, star).await.unwrap();
            }
        }))
        .await;
        settle(store).await;
        assert_eq!(is_celebrity().await, celebrity, "with {followers} followers");
        assert_graph(store, star, followers, 0).await;
    }
}

#[tokio::test]
async fn who_leaves_a_celebrity_is_not_shown_before_the_applier_has_run() {
    let db = TestDatabase::with(low_threshold()).await;
    let store = db.store();
    let (star, crowd) = star_and_crowd(&db).await;
    join_all(crowd.iter().map(|fan| store.follow(*fan, star))).await;
    settle(store).await;
    store.unfollow(crowd[3], star).await.unwrap();
    store.block(star, crowd[4]).await.unwrap().unwrap();
    let shown: HashSet<UserId> = followers(store, star, 7).await.into_iter().collect();
    assert_eq!(shown.len(), 58);
    assert!(!shown.contains(&crowd[3]) && !shown.contains(&crowd[4]));
    settle(store).await;
    assert_graph(store, star, 58, 0).await;
}

#[tokio::test]
async fn an_import_counts_every_edge_and_makes_celebrities() {
    let db = TestDatabase::with(low_threshold()).await;
    let store = db.store();
    let (star, crowd) = star_and_crowd(&db).await;
    let mut pairs: Vec<(UserId, UserId)> = crowd.iter().map(|fan| (*fan, star)).collect();
    pairs.extend(crowd.iter().map(|fan| (star, *fan)));
    assert_eq!(store.import_follows(&pairs).await.unwrap(), 120);
    assert_eq!(store.import_follows(&pairs).await.unwrap(), 0, "a second time changes nothing");
    settle(store).await;
    assert_graph(store, star, 60, 60).await;
    assert!(store.user(&UserRef::Id(star)).await.unwrap().unwrap().celebrity);
}

#[tokio::test]
async fn relationships_tell_both_directions_and_leave_out_strangers_to_the_service() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (alice, bob, carol, dave) = (user(store).await, user(store).await, user(store).await, user(store).await);
    store.follow(alice, bob).await.unwrap().unwrap();
    store.follow(carol, alice).await.unwrap().unwrap();
    store.block(alice, dave).await.unwrap().unwrap();
    let nobody = UserId(uuid::Uuid::now_v7());
    let relations = store.relationships(alice, &[bob, nobody, carol, dave]).await.unwrap();
    assert_eq!(relations.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [bob, carol, dave]);
    assert!(relations[0].1.following && !relations[0].1.followed_by);
    assert!(relations[1].1.followed_by && !relations[1].1.following);
    assert!(relations[2].1.blocking && !relations[2].1.blocked_by);
    assert!(store.relationships(dave, &[alice]).await.unwrap()[0].1.blocked_by);
}

#[tokio::test]
async fn another_threshold_flags_and_clears_accounts_that_nobody_follows_any_more() {
    let db = TestDatabase::with(low_threshold()).await;
    let (star, crowd) = star_and_crowd(&db).await;
    join_all(crowd.iter().map(|fan| db.store().follow(*fan, star))).await;
    settle(db.store()).await;
    db.store().adopt_threshold().await.unwrap();
    for (threshold, changed, celebrity) in [(70, 0, true), (80, 1, false), (60, 1, true), (60, 0, true)] {
        let settings = Settings { celebrity_threshold: threshold, ..Settings::default() };
        let store = Store::connect(db.uri(), db.name(), settings).await.unwrap();
        assert_eq!(store.adopt_threshold().await.unwrap(), changed, "at {threshold}");
        assert_eq!(store.user(&UserRef::Id(star)).await.unwrap().unwrap().celebrity, celebrity, "at {threshold}");
        assert_graph(&store, star, 60, 0).await;
    }
}
