//! The database killed in mid storm and restarted: what was acknowledged is there, and every invariant holds.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rookery_domain::{CommentId, PostId, UserId, post::Visibility};
use rookery_storage::{
    Result, Settings, Store,
    comments::NewComment,
    new_id,
    pending::Progress,
    posts::NewPost,
    testing::{OwnServer, user},
    verify,
};

/// Callers that storm side by side, each an account of its own.
const CALLERS: usize = 16;

/// Acts that are acknowledged between one kill and the next.
const BETWEEN: usize = 200;

/// What one caller was told. Where a call failed, nobody knows what became of it.
#[derive(Debug, Default)]
struct Told {
    follows: BTreeMap<(UserId, UserId), Option<bool>>,
    posts: BTreeMap<PostId, Option<bool>>,
    comments: BTreeMap<CommentId, Option<bool>>,
}

/// Follows, posts and comments until it is told to stop, and notes what was acknowledged.
async fn storm(
    store: Store,
    me: UserId,
    others: Vec<UserId>,
    target: PostId,
    seed: u64,
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Told {
    let (mut told, mut random) = (Told::default(), StdRng::seed_from_u64(seed));
    let (mut posts, mut comments): (Vec<PostId>, Vec<CommentId>) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let other = others[random.random_range(0..others.len())];
        let fault = match random.random_range(0..8) {
            0..=2 if other != me => {
                let done = store.follow(me, other).await;
                told.follows.insert((me, other), done.as_ref().ok().map(|_| true));
                done.map(|answer| assert!(answer.is_ok(), "{answer:?}"))
            }
            3 => {
                let done = store.unfollow(me, other).await;
                told.follows.insert((me, other), done.as_ref().ok().map(|()| false));
                done
            }
            4 | 5 => {
                let id = PostId(new_id());
                let new = NewPost { id, author: me, text: "In the storm".to_owned(), visibility: Visibility::Public };
                let done = store.create_post(new).await;
                told.posts.insert(id, done.as_ref().ok().map(|_| true));
                posts.push(id);
                done.map(|post| assert!(post.is_some()))
            }
            6 if !posts.is_empty() && random.random_bool(0.3) => {
                let id = posts.swap_remove(random.random_range(0..posts.len()));
                let done = store.delete_post(id, me).await;
                told.posts.insert(id, done.as_ref().ok().map(|_| false));
                done.map(drop)
            }
            6 if !comments.is_empty() && random.random_bool(0.3) => {
                let id = comments.swap_remove(random.random_range(0..comments.len()));
                let done = store.delete_comment(id, me).await;
                told.comments.insert(id, done.as_ref().ok().map(|_| false));
                done.map(drop)
            }
            _ => {
                let id = CommentId(new_id());
                let new = NewComment { id, post: target, parent: None, author: me, text: "In the storm".to_owned() };
                let done = store.create_comment(new).await;
                told.comments.insert(id, done.as_ref().ok().map(|_| true));
                comments.push(id);
                done.map(|answer| assert!(answer.is_ok(), "{answer:?}"))
            }
        };
        match fault {
            Ok(()) => drop(acknowledged.fetch_add(1, Ordering::Relaxed)),
            // Its next call meets the same database, which is being restarted.
            Err(fault) => assert!(fault.retryable(), "{fault:?}"),
        }
    }
    told
}

/// All background work for as long as it is told to: as the workers of a service, which go on after a fault.
async fn work(store: Store, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        if !matches!(step(&store).await, Ok(false)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// One step of everything. True: there was nothing to do.
async fn step(store: &Store) -> Result<bool> {
    let (applied, delivered) = futures::try_join!(apply(store), deliver(store))?;
    Ok(applied && delivered)
}

/// One step of each applier. True: there was nothing to do.
async fn apply(store: &Store) -> Result<bool> {
    let steps = [
        store.apply_follows_step().await?,
        store.apply_posts_step().await?,
        store.apply_comments_step().await?,
        store.apply_reactions_step().await?,
    ];
    Ok(steps == [Progress::Idle; 4])
}

/// One step of what brings posts into windows. True: there was nothing to do.
async fn deliver(store: &Store) -> Result<bool> {
    Ok([store.merge_step().await?, store.deliver_step().await?] == [Progress::Idle; 2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_the_death_of_the_database_in_mid_storm() {
    let server = OwnServer::start().await;
    let db = server.database(Settings { celebrity_threshold: 8, ..Settings::default() }).await;
    let store = db.store();
    let mut users = Vec::new();
    for _ in 0..CALLERS {
        users.push(user(store).await);
    }
    let target = PostId(new_id());
    let new = NewPost { id: target, author: users[0], text: "A post".to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap();

    let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
            tokio::spawn(storm(store.clone(), users[n], users.clone(), target, n as u64, acknowledged, stop))
        })
        .collect();
    let workers = tokio::spawn(work(store.clone(), Arc::clone(&stop)));
    for kill in 1..=2 {
        while acknowledged.load(Ordering::Relaxed) < kill * BETWEEN {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let killed = server.kill();
        server.restarted_after(killed).await;
    }
    while acknowledged.load(Ordering::Relaxed) < 3 * BETWEEN {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut told = Told::default();
    for caller in callers {
        let Told { follows, posts, comments } = caller.await.unwrap();
        told.follows.extend(follows);
        told.posts.extend(posts);
        told.comments.extend(comments);
    }
    workers.await.unwrap();

    for ((follower, followee), wanted) in &told.follows {
        if let Some(wanted) = wanted {
            assert_eq!(store.follows(*follower, *followee).await.unwrap(), *wanted, "{follower} follows {followee}");
        }
    }
    for (post, wanted) in &told.posts {
        if let Some(wanted) = wanted {
            assert_eq!(store.post(*post, None).await.unwrap().is_some(), *wanted, "{post}");
        }
    }
    for (comment, wanted) in &told.comments {
        if let Some(wanted) = wanted {
            assert_eq!(store.comment(*comment, None).await.unwrap().is_some(), *wanted, "{comment}");
        }
    }
    // Leases and claims of work that a fault broke off have to run out.
    let settled = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            while !step(store).await.unwrap() {}
            if store.fanout_backlog().await.unwrap().0 == 0 && verify::verify(store).await.unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let settled = settled.await.is_ok();
    assert!(settled, "still: {:#?}", verify::verify(store).await.unwrap());
}
