//! Lists as a viewer sees them: full pages after filtering, both ways, and stable while others write.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::HashSet;

use futures::future::join_all;
use rookery_domain::{Handle, Limit, Page, UserId, user::UserSince};
use rookery_storage::{
    Settings, Store,
    follow_lists::Follow,
    new_id, now,
    pending::Progress,
    profiles::ProfileEdit,
    rename::Edited,
    testing::TestDatabase,
    users::{NewUser, UserRef},
};

async fn users(store: &Store, n: usize) -> Vec<UserId> {
    let ids: Vec<UserId> = (0..n).map(|_| UserId(new_id())).collect();
    let new = ids.iter().map(|id| NewUser {
        id: *id,
        handle: Handle::parse(&id.0.simple().to_string()[2..]).unwrap(),
        email: None,
        display_name: "Somebody".to_owned(),
        password_hash: None,
        now: now(),
    });
    store.import_users(new.collect()).await.unwrap();
    ids
}

async fn settle(store: &Store) {
    while store.apply_follows_step().await.unwrap() != Progress::Idle {}
}

/// Walks down a whole list and back up, and gives its items. Every page but the last is full, and the way back meets what the way
/// down did but for the last page.
async fn walk<T: Clone + PartialEq + std::fmt::Debug, C: Clone>(
    limit: usize,
    page: impl AsyncFn(Option<C>, Limit) -> Page<T, C>,
) -> Vec<T> {
    let size = Limit::new(limit).unwrap();
    let (mut all, mut cursor, mut back) = (Vec::new(), None, None);
    loop {
        let next = page(cursor, size).await;
        assert!(next.next.is_none() || next.items.len() == limit, "a short page before the end");
        assert!(!next.items.is_empty() || all.is_empty(), "next led to an empty page");
        all.extend(next.items);
        back = next.prev.or(back);
        cursor = next.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut again = Vec::new();
    while let Some(cursor) = back {
        let newer = page(Some(cursor), size).await;
        back = newer.prev.filter(|_| !newer.items.is_empty());
        again.splice(0..0, newer.items);
    }
    assert!(all.starts_with(&again) && all.len() - again.len() <= limit, "{all:?} down, {again:?} up");
    all
}

async fn followers(store: &Store, of: UserId, viewer: Option<UserId>, limit: usize) -> Vec<UserId> {
    let page = async |cursor, limit| store.followers(&UserRef::Id(of), viewer, cursor, limit).await.unwrap().unwrap();
    ids(walk(limit, page).await)
}

async fn following(store: &Store, of: UserId, viewer: Option<UserId>, limit: usize) -> Vec<UserId> {
    let page = async |cursor, limit| store.following(&UserRef::Id(of), viewer, cursor, limit).await.unwrap().unwrap();
    ids(walk(limit, page).await)
}

async fn known(store: &Store, of: UserId, viewer: UserId, limit: usize) -> Vec<UserId> {
    let page = async |cursor, limit| store.known_followers(&UserRef::Id(of), viewer, cursor, limit).await.unwrap().unwrap();
    ids(walk(limit, page).await)
}

fn ids(follows: Vec<Follow>) -> Vec<UserId> {
    follows.into_iter().map(|follow| follow.user.id).collect()
}

fn listed(users: Vec<UserSince>) -> Vec<UserId> {
    users.into_iter().map(|user| user.user.id).collect()
}

#[tokio::test]
async fn pages_stay_full_when_many_are_hidden_by_blocks_of_either_side() {
    for threshold in [10_000, 10] {
        let db = TestDatabase::with(Settings { celebrity_threshold: threshold, ..Settings::default() }).await;
        let store = db.store();
        let people = users(store, 32).await;
        let (star, viewer, crowd) = (people[0], people[1], &people[2..]);
        let pairs: Vec<_> = crowd.iter().flat_map(|fan| [(*fan, star), (star, *fan)]).collect();
        store.import_follows(&pairs).await.unwrap();
        settle(store).await;
        for (n, fan) in crowd.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
            let (blocker, blocked) = if n % 3 == 1 { (viewer, *fan) } else { (*fan, viewer) };
            store.block(blocker, blocked).await.unwrap().unwrap();
        }
        let seen: Vec<UserId> = crowd.iter().step_by(3).copied().collect();
        for limit in [1, 3, 5, 10, 100] {
            for found in [followers(store, star, Some(viewer), limit).await, following(store, star, Some(viewer), limit).await] {
                assert_eq!(found.iter().collect::<HashSet<_>>(), seen.iter().collect::<HashSet<_>>());
                assert_eq!(found.len(), seen.len());
            }
        }
        assert_eq!(followers(store, star, None, 7).await.len(), crowd.len(), "blocks of others hide nothing from a stranger");
    }
}

#[tokio::test]
async fn known_followers_are_the_same_from_either_side() {
    /// Enough that the viewer's side is taken.
    const MANY: usize = 2_050;
    let db = TestDatabase::new().await;
    let store = db.store();
    let people = users(store, MANY + 3).await;
    let (star, small, viewer, crowd) = (people[0], people[1], people[2], &people[3..]);
    let few = &crowd[..240];
    let mut pairs: Vec<_> = crowd.iter().map(|fan| (*fan, star)).collect();
    pairs.extend(few.iter().map(|fan| (*fan, small)));
    // Every second of the few, and one who follows neither.
    pairs.extend(few.iter().step_by(2).map(|fan| (viewer, *fan)));
    store.import_follows(&pairs).await.unwrap();
    settle(store).await;
    assert!(known(store, small, few[1], 10).await.is_empty());
    assert!(known(store, star, few[1], 10).await.is_empty());
    store.block(few[0], viewer).await.unwrap().unwrap();
    store.block(viewer, few[2]).await.unwrap().unwrap();
    settle(store).await;
    let expected: HashSet<UserId> = few.iter().step_by(2).skip(2).copied().collect();
    for limit in [7, 40, 100] {
        for of in [small, star] {
            let found = known(store, of, viewer, limit).await;
            assert_eq!((found.len(), found.into_iter().collect::<HashSet<_>>()), (expected.len(), expected.clone()));
        }
    }
    let order = |all: Vec<UserId>| all.into_iter().filter(|user| expected.contains(user)).collect::<Vec<_>>();
    assert_eq!(
        known(store, star, viewer, 50).await,
        order(followers(store, star, None, 100).await),
        "in the order of the followers"
    );
}

#[tokio::test]
async fn the_lists_of_a_private_account_are_for_its_followers_and_itself() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let people = users(store, 3).await;
    let [alice, bob, carol] = people[..] else { panic!("three") };
    store.follow(bob, alice).await.unwrap().unwrap();
    let private = ProfileEdit { private: Some(true), ..ProfileEdit::default() };
    assert!(matches!(store.edit_profile(alice, private).await.unwrap(), Edited::Now(_)));
    store.follow(carol, alice).await.unwrap().unwrap();
    let of = UserRef::Id(alice);
    for (viewer, seen) in [(Some(alice), true), (Some(bob), true), (Some(carol), false), (None, false)] {
        assert_eq!(store.followers(&of, viewer, None, Limit::MAX).await.unwrap().is_some(), seen);
        assert_eq!(store.following(&of, viewer, None, Limit::MAX).await.unwrap().is_some(), seen);
        if let Some(viewer) = viewer {
            assert_eq!(store.known_followers(&of, viewer, None, Limit::MAX).await.unwrap().is_some(), seen);
        }
    }
}

#[tokio::test]
async fn blocks_mutes_and_requests_are_listed_newest_first_both_ways_and_stable_while_others_come() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let people = users(store, 42).await;
    let (alice, crowd) = (people[0], &people[1..]);
    let private = ProfileEdit { private: Some(true), ..ProfileEdit::default() };
    assert!(matches!(store.edit_profile(alice, private).await.unwrap(), Edited::Now(_)));
    let (there, coming) = crowd.split_at(30);
    for other in there {
        store.mute(alice, *other).await.unwrap().unwrap();
        store.follow(*other, alice).await.unwrap().unwrap();
    }
    let expected: Vec<UserId> = there.iter().rev().copied().collect();
    for limit in [1, 4, 7, 15, 100] {
        let mutes = walk(limit, async |cursor, limit| store.mutes(alice, cursor, limit).await.unwrap()).await;
        let requests = walk(limit, async |cursor, limit| store.follow_requests(alice, cursor, limit).await.unwrap()).await;
        assert_eq!(listed(mutes), expected);
        assert_eq!(listed(requests), expected);
    }
    // A walk while others ask and some withdraw shows each that is there throughout exactly once.
    let walking = async {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.follow_requests(alice, cursor, Limit::new(3).unwrap()).await.unwrap();
            all.extend(listed(page.items));
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    };
    let come = join_all(coming.iter().map(async |other| store.follow(*other, alice).await.unwrap().unwrap()));
    let go = join_all(there.iter().take(10).map(async |other| store.unfollow(*other, alice).await.unwrap()));
    let (all, _, _) = futures::join!(walking, come, go);
    let once: HashSet<UserId> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len(), "somebody comes twice");
    assert!(there.iter().skip(10).all(|other| once.contains(other)));
    // Blocks end what they hide, in the list of mutes too.
    for other in there {
        store.block(alice, *other).await.unwrap().unwrap();
    }
    let blocks = walk(4, async |cursor, limit| store.blocks(alice, cursor, limit).await.unwrap()).await;
    assert_eq!(listed(blocks), expected);
    assert!(store.mutes(alice, None, Limit::MAX).await.unwrap().items.is_empty());
    assert_eq!(store.follow_requests(alice, None, Limit::MAX).await.unwrap().items.len(), coming.len());
}
