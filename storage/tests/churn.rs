//! Celebrities under churn: accounts that hover about the threshold while many callers of two processes follow, unfollow, block and
//! delete, and both processes apply. After it every invariant holds.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rookery_domain::{Limit, UserId, jobs::JobState};
use rookery_storage::{
    Settings, Store,
    pending::Progress,
    testing::{TestDatabase, user},
    users::UserRef,
    verify,
};

const THRESHOLD: i64 = 12;
const STARS: usize = 4;
const FANS: usize = 40;
const CALLERS: usize = 32;

/// What share of the acts about celebrities are follows, so that they hover about the threshold, rise above it, or fall below.
#[derive(Debug, Clone, Copy)]
enum Tide {
    Rises,
    Hovers,
    Falls,
}

impl Tide {
    fn follows(self) -> f64 {
        match self {
            Self::Rises => 0.85,
            Self::Hovers => 0.4,
            Self::Falls => 0.1,
        }
    }
}

struct Churn<'a> {
    stores: [&'a Store; 2],
    stars: Mutex<Vec<UserId>>,
    fans: Mutex<Vec<UserId>>,
    /// Sides changed, as one process sees it.
    changes: AtomicUsize,
    over: AtomicBool,
}

impl Churn<'_> {
    async fn call(&self, caller: usize, calls: usize, tide: Tide) {
        let store = self.stores[caller % 2];
        let mut random = StdRng::seed_from_u64(caller as u64 * 7_919 + tide as u64);
        for _ in 0..calls {
            let draw = |of: &Mutex<Vec<UserId>>, random: &mut StdRng| {
                let of = of.lock().unwrap();
                // The first of them far more often than the last.
                let at = random.random_range(0..of.len()).min(random.random_range(0..of.len()));
                (at, of[at])
            };
            let (number, fan) = draw(&self.fans, &mut random);
            let (star_number, star) = draw(&self.stars, &mut random);
            match random.random_range(0..100) {
                0..80 if random.random_bool(tide.follows()) => drop(store.follow(fan, star).await.unwrap()),
                0..80 => store.unfollow(fan, star).await.unwrap(),
                80..84 => drop(store.follow(star, fan).await.unwrap()),
                84..86 => drop(store.block(star, fan).await.unwrap()),
                86..96 => store.unblock(star, fan).await.unwrap(),
                96..98 => store.remove_follower(star, fan).await.unwrap(),
                98 => {
                    store.delete_account(fan).await.unwrap();
                    self.fans.lock().unwrap()[number] = user(store).await;
                }
                _ if random.random_bool(0.1) => {
                    store.delete_account(star).await.unwrap();
                    self.stars.lock().unwrap()[star_number] = user(store).await;
                }
                _ => {}
            }
        }
    }

    /// What a service does in the background.
    async fn work(&self, store: &Store) {
        let mut known: HashSet<UserId> = HashSet::new();
        while !self.over.load(Ordering::SeqCst) {
            store.apply_follows_step().await.unwrap();
            store.jobs_step().await.unwrap();
            store.merge_step().await.unwrap();
            store.refresh_shared().await.unwrap();
            store.refresh_deleting().await.unwrap();
            let now: HashSet<UserId> =
                self.stars.lock().unwrap().iter().copied().filter(|star| store.is_celebrity(*star)).collect();
            self.changes.fetch_add(now.symmetric_difference(&known).count(), Ordering::SeqCst);
            known = now;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn settle(stores: [&Store; 2]) {
    loop {
        let mut idle = true;
        for store in stores {
            let done = [
                store.jobs_step().await.unwrap(),
                store.apply_follows_step().await.unwrap(),
                store.apply_posts_step().await.unwrap(),
                store.merge_step().await.unwrap(),
            ];
            idle &= done == [Progress::Idle; 4];
        }
        let jobs = stores[0].jobs(Limit::MAX, None).await.unwrap();
        if idle && jobs.next.is_none() && jobs.items.iter().all(|job| job.state == JobState::Done) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celebrities_that_come_and_go_under_many_callers_and_two_processes_leave_no_drift() {
    let db = TestDatabase::with(Settings { celebrity_threshold: THRESHOLD, ..Settings::default() }).await;
    let second = db.second_store().await;
    let stores = [db.store(), &second];
    let make = async |count: usize| join_all((0..count).map(|_| user(db.store()))).await;
    let churn = Churn {
        stores,
        stars: Mutex::new(make(STARS).await),
        fans: Mutex::new(make(FANS).await),
        changes: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    let storms = async {
        for tide in [Tide::Rises, Tide::Hovers, Tide::Rises, Tide::Falls] {
            join_all((0..CALLERS).map(|caller| churn.call(caller, 20, tide))).await;
        }
        churn.over.store(true, Ordering::SeqCst);
    };
    futures::join!(storms, churn.work(stores[0]), churn.work(stores[1]));
    settle(stores).await;
    let drift = verify::verify(db.store()).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
    assert!(churn.changes.load(Ordering::SeqCst) >= STARS, "hardly anybody changed sides");
    let stars = churn.stars.lock().unwrap().clone();
    for star in stars {
        let this = UserRef::Id(star);
        let counts = db.store().user(&this).await.unwrap().unwrap().counts;
        let (mut walked, mut cursor) = (0, None);
        loop {
            let page = db.store().followers(&this, None, cursor, Limit::new(7).unwrap()).await.unwrap().unwrap();
            walked += page.items.len();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(i64::try_from(walked), Ok(counts.followers));
    }
}
