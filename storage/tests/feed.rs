//! Feeds under everything at once, driven by a seed: follows, posts, deletions and all background work in any order, on two processes
//! with different feed models. At any moment the feed of every reader is what a feed computed in memory is.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use rookery_domain::{Limit, Page, PostId, UserId, fanout::FeedModel, feed::FeedItem, page::TimeCursor, post::Visibility};
use rookery_storage::{
    Settings, Store, new_id, now,
    pending::Progress,
    posts::{Deleted, NewPost},
    testing::{TestDatabase, user},
    verify,
};

/// Few, so that they meet; with this threshold two or three of them are celebrities, and some become so or cease to be meanwhile.
const USERS: usize = 7;
const THRESHOLD: i64 = 4;

/// Acts of one run. A look at a feed is one in sixteen of them.
const ACTS: usize = 120;

/// What the database should hold.
#[derive(Debug, Default)]
struct Oracle {
    follows: BTreeSet<(UserId, UserId)>,
    posts: BTreeMap<PostId, UserId>,
}

impl Oracle {
    /// The posts of whom the reader follows, and their own, newest first.
    fn feed(&self, reader: UserId) -> Vec<PostId> {
        let seen = |author: UserId| author == reader || self.follows.contains(&(reader, author));
        self.posts.iter().rev().filter(|(_, author)| seen(**author)).map(|(post, _)| *post).collect()
    }
}

fn ids(page: &Page<FeedItem, TimeCursor>) -> Vec<PostId> {
    page.items.iter().map(|item| item.post.id).collect()
}

/// Walks down the whole feed in pages of any size, and back up again.
async fn assert_feed(store: &Store, reader: UserId, expected: &[PostId], random: &mut StdRng, at: &str) {
    let mut limit = || random.random_range(1..=12);
    let (mut down, mut cursor) = (Vec::new(), None);
    let last = loop {
        let limit = limit();
        let page = store.feed(reader, cursor, Limit::new(limit).unwrap()).await.unwrap();
        assert!(page.next.is_none() || page.items.len() == limit, "{at}: a short page before the end");
        down.extend(ids(&page));
        if page.next.is_none() {
            break page;
        }
        cursor = page.next;
    };
    assert_eq!(down, expected, "{at}: down");
    let mut up = ids(&last);
    let mut cursor = last.prev;
    while let Some(from) = cursor {
        let page = store.feed(reader, Some(from), Limit::new(limit()).unwrap()).await.unwrap();
        if page.items.is_empty() {
            break;
        }
        up.splice(0..0, ids(&page));
        cursor = page.prev;
    }
    assert_eq!(up, expected, "{at}: and back up");
}

/// One act of background work.
async fn work(store: &Store, users: &[UserId], random: &mut StdRng) -> &'static str {
    match random.random_range(0..6) {
        0 => {
            store.apply_follows_step().await.unwrap();
            "apply follows"
        }
        1 => {
            store.apply_posts_step().await.unwrap();
            "apply posts"
        }
        2 | 3 => {
            store.deliver_step().await.unwrap();
            "deliver"
        }
        4 => {
            store.merge_step().await.unwrap();
            "merge"
        }
        _ => {
            let reader = *users.choose(random).unwrap();
            store.trim_timeline(reader, random.random_range(1..6), now()).await.unwrap();
            "trim"
        }
    }
}

async fn run(seed: u64) {
    let models = [FeedModel::Hybrid, FeedModel::Push, FeedModel::Pull];
    let mut random = StdRng::seed_from_u64(seed);
    let model = |random: &mut StdRng| *models.choose(random).unwrap();
    let settings = Settings { celebrity_threshold: THRESHOLD, feed_model: model(&mut random), ..Settings::default() };
    let db = TestDatabase::with(settings).await;
    let other = Settings { feed_model: model(&mut random), ..settings };
    let stores = [db.store().clone(), Store::connect(db.uri(), db.name(), other).await.unwrap()];
    let mut users = Vec::new();
    for _ in 0..USERS {
        users.push(user(&stores[0]).await);
    }
    let mut oracle = Oracle::default();
    let mut trace = Vec::new();
    for act in 0..ACTS {
        let store = &stores[random.random_range(0..2)];
        // The first few are followed by most: they become celebrities.
        let one = *users.choose(&mut random).unwrap();
        let other = users[random.random_range(0..USERS).min(random.random_range(0..USERS))];
        let done = match random.random_range(0..16) {
            0..=3 if one != other => {
                store.follow(one, other).await.unwrap().unwrap();
                oracle.follows.insert((one, other));
                "follow"
            }
            4 => {
                store.unfollow(one, other).await.unwrap();
                oracle.follows.remove(&(one, other));
                "unfollow"
            }
            5..=7 => {
                let new =
                    NewPost { id: PostId(new_id()), author: other, text: "A post".to_owned(), visibility: Visibility::Public };
                let post = store.create_post(new).await.unwrap().unwrap();
                oracle.posts.insert(post.id, other);
                "post"
            }
            8 => {
                let posts: Vec<(PostId, UserId)> = oracle.posts.iter().map(|(post, author)| (*post, *author)).collect();
                if let Some((post, author)) = posts.choose(&mut random) {
                    assert_eq!(store.delete_post(*post, *author).await.unwrap(), Deleted::Now);
                    oracle.posts.remove(post);
                }
                "delete"
            }
            9 => {
                let reader = *users.choose(&mut random).unwrap();
                for store in &stores {
                    store.refresh_shared().await.unwrap();
                }
                let at = format!("seed {seed}, act {act}, after {trace:?}");
                assert_feed(store, reader, &oracle.feed(reader), &mut random, &at).await;
                "read"
            }
            _ => work(store, &users, &mut random).await,
        };
        trace.push(done);
    }
    // And at rest, for everybody in both processes.
    loop {
        let mut idle = true;
        for store in &stores {
            let steps = [
                store.apply_follows_step().await.unwrap(),
                store.apply_posts_step().await.unwrap(),
                store.merge_step().await.unwrap(),
                store.deliver_step().await.unwrap(),
            ];
            idle &= steps == [Progress::Idle; 4];
        }
        if idle {
            break;
        }
    }
    for store in &stores {
        store.refresh_shared().await.unwrap();
        for reader in &users {
            assert_feed(store, *reader, &oracle.feed(*reader), &mut random, &format!("seed {seed}, at rest")).await;
        }
    }
    let drift = verify::verify(&stores[0]).await.unwrap();
    assert!(drift.is_empty(), "seed {seed}: {drift:#?}");
}

#[tokio::test]
async fn whatever_happened_a_feed_is_what_is_followed_now_on_seed_1() {
    run(1).await;
}

#[tokio::test]
async fn whatever_happened_a_feed_is_what_is_followed_now_on_seed_2() {
    run(2).await;
}

#[tokio::test]
async fn whatever_happened_a_feed_is_what_is_followed_now_on_seed_3() {
    run(3).await;
}

#[tokio::test]
async fn whatever_happened_a_feed_is_what_is_followed_now_on_seed_4() {
    run(4).await;
}
