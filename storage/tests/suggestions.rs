//! Suggestions cost the same whomever one follows.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

use std::time::{Duration, Instant};

use rookery_domain::{Handle, Limit, UserId, suggestions::Reason};
use rookery_storage::{Settings, Store, new_id, now, pending::Progress, testing::TestDatabase, users::NewUser};

async fn crowd(store: &Store, name: &str, n: usize) -> Vec<UserId> {
    let new = |n| NewUser {
        id: UserId(new_id()),
        handle: Handle::parse(&format!("{name}_{n}")).unwrap(),
        email: None,
        display_name: format!("{name}_{n}"),
        password_hash: None,
        now: now(),
    };
    let mut made: Vec<UserId> = store.import_users((0..n).map(new).collect()).await.unwrap().into_values().collect();
    made.sort_unstable();
    made
}

/// The fastest of many: what the work itself costs, whatever else the machine does.
async fn fastest(store: &Store, reader: UserId) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..30 {
        let began = Instant::now();
        let found = store.suggestions(reader, Limit::DEFAULT).await.unwrap();
        fastest = fastest.min(began.elapsed());
        assert_eq!(found.len(), Limit::DEFAULT.get());
        assert!(matches!(found[0].reason, Reason::SharedFollows(_)));
    }
    fastest
}

#[tokio::test]
async fn who_follows_7_500_accounts_waits_at_most_three_times_as_long_as_who_follows_100() {
    let db = TestDatabase::with(Settings { celebrity_threshold: 1_000, ..Settings::default() }).await;
    let store = db.store();
    let (friends, others) = (crowd(store, "friend", 7_500).await, crowd(store, "other", 200).await);
    let readers = crowd(store, "reader", 2).await;
    // Everybody follows two; the first three are celebrities, who follow hundreds.
    let mut edges: Vec<(UserId, UserId)> = Vec::new();
    for (n, friend) in friends.iter().enumerate() {
        edges.extend([n * 7, n * 11 + 1].map(|at| (*friend, others[at % others.len()])));
    }
    edges.extend(friends[3..1_103].iter().flat_map(|fan| friends[..3].iter().map(|celebrity| (*fan, *celebrity))));
    edges.extend(friends[..3].iter().flat_map(|celebrity| friends[3..503].iter().map(|followee| (*celebrity, *followee))));
    edges.extend(friends[..100].iter().map(|friend| (readers[0], *friend)));
    edges.extend(friends.iter().map(|friend| (readers[1], *friend)));
    for edges in edges.chunks(5_000) {
        store.import_follows(edges).await.unwrap();
    }
    while store.apply_follows_step().await.unwrap() != Progress::Idle {}
    let (few, many) = (fastest(store, readers[0]).await, fastest(store, readers[1]).await);
    assert!(many <= few * 3, "{many:?} against {few:?}");
}
