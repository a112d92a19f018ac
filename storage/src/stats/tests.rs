//! The tally against the database: exact after each step, few writes, and what a crash, a conflict and a deletion leave.

#![expect(clippy::unwrap_used, reason = "in a test a fault is a failure")]

use futures::{StreamExt as _, future::join_all};
use mongodb::Collection;
use rookery_domain::{CommentId, export::Export, post::Visibility, stats::HOURS_OF_DAY};

use super::*;
use crate::{
    Settings,
    comments::NewComment,
    posts::NewPost,
    store::commit,
    testing::{OwnServer, TestDatabase, user},
};

/// Alice, who has written a post, and Bob.
struct World {
    db: TestDatabase,
    alice: UserId,
    bob: UserId,
    post: Post,
}

impl World {
    async fn new() -> Self {
        Self::on(TestDatabase::new().await).await
    }

    async fn on(db: TestDatabase) -> Self {
        let (alice, bob) = (user(db.store()).await, user(db.store()).await);
        let post = publish(db.store(), alice).await;
        Self { db, alice, bob, post }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    fn posts(&self) -> Collection<Document> {
        self.store().coll(POSTS)
    }

    fn buckets(&self) -> Collection<Document> {
        self.store().coll(STATS_HOURLY)
    }

    async fn views(&self) -> i64 {
        self.store().post(self.post.id, None).await.unwrap().unwrap().counts.views
    }

    /// Views of the post and of its author, as the buckets have them.
    async fn bucket_views(&self) -> (i64, i64) {
        let of = async |id: bson::Uuid| sum(self.store(), id).await.views;
        (of(b(self.post.id)).await, of(b(self.alice)).await)
    }

    /// All background work, and a step at its end.
    async fn settle(&self) {
        let store = self.store();
        loop {
            let done = [
                store.apply_follows_step().await.unwrap(),
                store.apply_posts_step().await.unwrap(),
                store.apply_comments_step().await.unwrap(),
                store.apply_reactions_step().await.unwrap(),
                store.jobs_step().await.unwrap(),
            ];
            if done.iter().all(|did| *did == Progress::Idle) {
                break;
            }
        }
        store.flush_stats().await.unwrap();
    }
}

async fn publish(store: &Store, author: UserId) -> Post {
    let new = NewPost { id: PostId(new_id()), author, text: "A word".to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap()
}

/// The figures of all hours of one account or post.
async fn sum(store: &Store, subject: bson::Uuid) -> Figures {
    let buckets = store.coll::<BucketDoc>(STATS_HOURLY).find(doc! { "subject": subject }).await.unwrap();
    let buckets: Vec<BucketDoc> = buckets.try_collect().await.unwrap();
    buckets.iter().flat_map(BucketDoc::hours).fold(Figures::default(), |mut sum, hour| {
        sum.add(hour.figures);
        sum
    })
}

fn waiting(store: &Store) -> usize {
    store.tally().noted().counts.len()
}

#[tokio::test]
async fn many_views_of_one_post_are_one_write_of_it_and_none_is_lost() {
    let world = World::new().await;
    world.store().flush_stats().await.unwrap();
    let these = [doc! { "$match": { "documentKey._id": b(world.post.id) } }];
    let mut writes = world.posts().watch().pipeline(these).await.unwrap();
    let viewers = (0..32).map(|n| {
        let (store, post) = (world.store().clone(), world.post.clone());
        tokio::spawn(async move {
            for _ in 0..25 {
                store.note_view(&post, (n % 2 == 0).then(|| UserId(new_id())));
                tokio::task::yield_now().await;
            }
        })
    });
    join_all(viewers).await;
    assert_eq!((world.views().await, world.store().tally().noted().counts.views.len()), (0, 1));
    world.store().flush_stats().await.unwrap();
    assert_eq!(world.store().flush_stats().await.unwrap(), 0);
    assert_eq!(world.views().await, 800);
    assert_eq!(world.bucket_views().await, (800, 800));
    // A write that ends the list of them.
    let end = doc! { "$set": { "counters.tombstones": 0_i64 }, "$inc": { "counters.likes": 1_i64 } };
    world.posts().update_one(doc! { "_id": b(world.post.id) }, end).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let event = writes.next().await.unwrap().unwrap();
        let changed = event.update_description.unwrap().updated_fields;
        if changed.contains_key("counters.likes") {
            break;
        }
        seen.push(changed);
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test]
async fn a_step_less_than_a_second_after_another_writes_nothing() {
    let world = World::new().await;
    world.store().flush_stats().await.unwrap();
    world.store().note_view(&world.post, None);
    // However slow this test is.
    world.store().tally().noted().stepped = Some(Instant::now() + Duration::from_hours(1));
    assert_eq!(world.store().flush_stats_step().await.unwrap(), Progress::Idle);
    assert_eq!(world.views().await, 0);
    world.store().tally().noted().stepped = Some(Instant::now().checked_sub(APART).unwrap());
    assert!(matches!(world.store().flush_stats_step().await.unwrap(), Progress::Did(_)));
    assert_eq!(world.views().await, 1);
}

#[tokio::test]
async fn a_full_tally_asks_for_a_step_and_an_overfull_one_takes_nothing_new_and_says_so() {
    let world = World::new().await;
    let view = Figures { views: 1, ..Figures::default() };
    for _ in 0..FULL {
        world.store().note_stats([(Subject::Post(PostId(new_id())), view)]);
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), world.store().wake().stats.notified()).await;
    assert!(asked.is_ok());

    let (mut noted, hour) = (Noted::default(), Hour::of(now()));
    let of = |n| Subject::Post(PostId(uuid::Uuid::from_u128(n)));
    for n in [1, 2, 3, 1, 2, 3] {
        noted.note(of(n), hour, view, 2);
    }
    noted.note_view(PostId(new_id()), 2);
    assert_eq!((noted.counts.hours.len(), noted.counts.views.len(), noted.refused), (2, 0, 3));
    assert_eq!(noted.counts.hours[&(of(1), hour)].views, 2);
}

#[tokio::test]
async fn what_a_killed_process_has_not_added_is_lost_and_nothing_else() {
    let world = World::new().await;
    let killed = world.db.second_store().await;
    for _ in 0..3 {
        killed.note_view(&world.post, None);
    }
    killed.flush_stats().await.unwrap();
    for _ in 0..5 {
        killed.note_view(&world.post, None);
    }
    drop(killed);
    // The next process.
    let restarted = world.db.second_store().await;
    restarted.flush_stats().await.unwrap();
    assert_eq!((world.views().await, world.bucket_views().await), (3, (3, 3)));
    restarted.note_view(&world.post, None);
    restarted.close().await;
    assert_eq!((world.views().await, world.bucket_views().await), (4, (4, 4)), "a clean end adds what is left");
}

#[tokio::test]
async fn first_writes_and_reads_that_race_make_one_bucket_and_lose_nothing() {
    let world = World::new().await;
    world.store().flush_stats().await.unwrap();
    world.buckets().delete_many(doc! {}).await.unwrap();
    let mut stores = Vec::new();
    for _ in 0..6 {
        stores.push(world.db.second_store().await);
    }
    let span = Span::new(None, Some(now().plus(Duration::from_hours(2))), now()).unwrap();
    for store in &stores {
        for _ in 0..7 {
            store.note_view(&world.post, None);
        }
    }
    let race = stores.iter().map(|store| async {
        let (flushed, read) = futures::join!(store.flush_stats(), store.stats_of(world.alice, span));
        flushed.unwrap();
        let views: i64 = read.unwrap().iter().map(|hour| hour.figures.views).sum();
        assert!(views % 7 == 0 && views <= 42, "{views}");
    });
    join_all(race).await;
    // What met another's first write more often than a step tries is added by the next.
    for store in &stores {
        store.flush_stats().await.unwrap();
        assert_eq!(waiting(store), 0);
    }
    assert_eq!((world.views().await, world.bucket_views().await), (42, (42, 42)));
}

#[tokio::test]
async fn a_step_that_meets_a_transaction_on_the_post_adds_its_views_once() {
    let world = World::new().await;
    world.store().flush_stats().await.unwrap();
    for _ in 0..4 {
        let mut session = world.store().begin().await.unwrap();
        let comment = doc! { "$inc": { "counters.tombstones": 0_i64, "commentSeq": 1_i64 } };
        world.posts().update_one(doc! { "_id": b(world.post.id) }, comment).session(&mut session).await.unwrap();
        world.store().note_view(&world.post, None);
        let store = world.store().clone();
        let mut step = tokio::spawn(async move { store.flush_stats().await });
        // A server makes it wait for the transaction, or tells it of the conflict.
        if let Ok(told) = tokio::time::timeout(Duration::from_millis(500), &mut step).await {
            told.unwrap().unwrap();
            assert_eq!(world.store().tally().noted().counts.views.len(), 1, "kept for the next step");
            commit(session).await.unwrap();
        } else {
            commit(session).await.unwrap();
            step.await.unwrap().unwrap();
        }
    }
    world.store().flush_stats().await.unwrap();
    assert_eq!((world.views().await, waiting(world.store()), world.bucket_views().await), (4, 0, (4, 4)));
}

#[tokio::test]
async fn steps_and_comments_of_one_post_at_the_same_time_are_all_counted() {
    let world = World::new().await;
    let comments = join_all((0..24).map(|n| {
        let new = NewComment {
            id: CommentId(new_id()),
            post: world.post.id,
            parent: None,
            author: if n % 2 == 0 { world.bob } else { world.alice },
            text: "A word".to_owned(),
        };
        world.store().create_comment(new)
    }));
    let views = async {
        for _ in 0..24 {
            world.store().note_view(&world.post, None);
            world.store().flush_stats().await.unwrap();
        }
    };
    let (comments, ()) = futures::join!(comments, views);
    assert!(comments.into_iter().all(|comment| comment.unwrap().is_ok()));
    world.settle().await;
    let counts = world.store().post(world.post.id, None).await.unwrap().unwrap().counts;
    assert_eq!((counts.comments, counts.views), (24, 24));
    let figures = Figures { views: 24, comments: 24, ..Figures::default() };
    assert_eq!(sum(world.store(), b(world.post.id)).await, figures);
    assert_eq!(sum(world.store(), b(world.alice)).await, Figures { posts: 1, ..figures });
    assert_eq!(crate::verify::verify(world.store()).await.unwrap(), []);
}

#[tokio::test]
async fn what_the_database_refuses_is_kept_and_the_rest_is_added() {
    let world = World::new().await;
    world.store().flush_stats().await.unwrap();
    let validate = async |validator: Document| {
        world.store().db().run_command(doc! { "collMod": STATS_HOURLY, "validator": validator }).await.unwrap();
    };
    validate(doc! { "subject": { "$ne": b(world.post.id) } }).await;
    for _ in 0..2 {
        world.store().note_view(&world.post, None);
        world.store().flush_stats().await.unwrap();
    }
    assert_eq!((world.views().await, world.bucket_views().await), (2, (0, 2)));
    assert!(waiting(world.store()) > 0);
    validate(doc! {}).await;
    world.store().flush_stats().await.unwrap();
    assert_eq!((world.views().await, world.bucket_views().await, waiting(world.store())), (2, (2, 2), 0));
}

#[tokio::test]
async fn while_the_database_is_away_everything_is_kept_and_then_added_once() {
    let server = OwnServer::start().await;
    let world = World::on(server.database(Settings::default()).await).await;
    world.store().note_view(&world.post, None);
    world.store().flush_stats().await.unwrap();
    let killed = server.kill();
    for _ in 0..3 {
        world.store().note_view(&world.post, None);
        // It fails unless the server is back already.
        drop(world.store().flush_stats().await);
    }
    server.restarted_after(killed).await;
    while waiting(world.store()) > 0 {
        drop(world.store().flush_stats().await);
    }
    assert_eq!((world.views().await, world.bucket_views().await), (4, (4, 4)));
}

#[tokio::test]
async fn figures_count_what_came_and_nothing_lowers_them() {
    let world = World::new().await;
    let (store, alice, bob, post) = (world.store(), world.alice, world.bob, world.post.id);
    for _ in 0..2 {
        store.follow(bob, alice).await.unwrap().unwrap();
        world.settle().await;
        store.unfollow(bob, alice).await.unwrap();
        store.like_post(post, bob).await.unwrap().unwrap();
        world.settle().await;
        store.unlike_post(post, bob).await.unwrap().unwrap();
        world.settle().await;
    }
    let comment = |author| NewComment { id: CommentId(new_id()), post, parent: None, author, text: "A word".to_owned() };
    let made = store.create_comment(comment(bob)).await.unwrap().unwrap();
    store.like_comment(made.id, alice).await.unwrap().unwrap();
    world.settle().await;
    store.delete_comment(made.id, bob).await.unwrap().unwrap();
    let gone = publish(store, alice).await;
    store.delete_post(gone.id, alice).await.unwrap();
    store.note_view(&world.post, Some(alice));
    world.settle().await;
    let of_post = Figures { likes: 2, comments: 1, ..Figures::default() };
    assert_eq!(sum(store, b(post)).await, of_post);
    assert_eq!(sum(store, b(alice)).await, Figures { posts: 2, new_followers: 2, lost_followers: 2, ..of_post });
    assert_eq!(sum(store, b(bob)).await, Figures { likes: 1, ..Figures::default() }, "of the comment");
    assert_eq!(sum(store, b(gone.id)).await, Figures::default());
}

#[tokio::test]
async fn a_deleted_post_is_not_touched_and_has_no_buckets_whoever_comes_late() {
    let world = World::new().await;
    let late = world.db.second_store().await;
    world.store().note_view(&world.post, None);
    late.note_view(&world.post, None);
    world.store().flush_stats().await.unwrap();
    assert_eq!(world.bucket_views().await, (1, 1));
    world.store().delete_post(world.post.id, world.alice).await.unwrap();
    let deleted = world.posts().find_one(doc! { "_id": b(world.post.id) }).await.unwrap();
    late.note_view(&world.post, None);
    late.flush_stats().await.unwrap();
    assert_eq!(world.posts().find_one(doc! { "_id": b(world.post.id) }).await.unwrap(), deleted, "marked, and not written");
    world.settle().await;
    assert_eq!(world.posts().count_documents(doc! { "_id": b(world.post.id) }).await.unwrap(), 0);
    late.note_view(&world.post, None);
    late.flush_stats().await.unwrap();
    assert_eq!(world.bucket_views().await, (0, 4), "what its author received stays");
    assert_eq!(waiting(&late), 0);
}

#[tokio::test]
async fn a_deleted_account_has_no_buckets_whoever_comes_late() {
    let world = World::new().await;
    let late = world.db.second_store().await;
    world.store().follow(world.bob, world.alice).await.unwrap().unwrap();
    late.note_view(&world.post, None);
    world.settle().await;
    assert_eq!(sum(world.store(), b(world.alice)).await.new_followers, 1);
    world.store().delete_account(world.alice).await.unwrap().unwrap();
    // Between the mark and the job, and after it.
    late.flush_stats().await.unwrap();
    late.note_view(&world.post, None);
    world.settle().await;
    late.flush_stats().await.unwrap();
    for of in [b(world.alice), b(world.post.id)] {
        assert_eq!(world.buckets().count_documents(doc! { "subject": of }).await.unwrap(), 0);
    }
    assert_eq!(world.views_of_nobody().await, 0);
}

impl World {
    /// Buckets whose account or post is not there.
    async fn views_of_nobody(&self) -> u64 {
        let live = [
            self.store().coll::<Document>(USERS).distinct("_id", doc! {}).await.unwrap(),
            self.posts().distinct("_id", doc! {}).await.unwrap(),
        ];
        self.buckets().count_documents(doc! { "subject": { "$nin": live.concat() } }).await.unwrap()
    }
}

#[tokio::test]
async fn a_span_gives_its_hours_in_their_order_and_no_others() {
    let world = World::new().await;
    let store = world.store();
    store.flush_stats().await.unwrap();
    world.buckets().delete_many(doc! {}).await.unwrap();
    // Hours of three days, each with its own number of views.
    let day = Hour::of(now()).day().minus(Duration::from_hours(48));
    let hours = [0, 5, HOURS_OF_DAY - 1, HOURS_OF_DAY, 2 * HOURS_OF_DAY + 7];
    for (n, place) in (1..).zip(hours) {
        let figures = Figures { views: n, likes: 1, ..Figures::default() };
        store.tally().noted().note(Subject::Account(world.alice), Hour::in_day(day, place), figures, MOST);
    }
    store.flush_stats().await.unwrap();
    assert_eq!(world.buckets().count_documents(doc! {}).await.unwrap(), 3, "a document a day");
    let of = async |from: i64, to: i64| {
        let at = |minutes: i64| Timestamp::from_millis(day.as_millis() + minutes * 60_000);
        let span = Span::new(Some(at(from)), Some(at(to)), now()).unwrap();
        let found = store.stats_of(world.alice, span).await.unwrap();
        found.iter().map(|hour| (hour.hour.start().since(day).as_secs() / 3600, hour.figures.views)).collect::<Vec<_>>()
    };
    assert_eq!(of(0, 72 * 60).await, [(0, 1), (5, 2), (23, 3), (24, 4), (55, 5)]);
    assert_eq!(of(5 * 60 + 59, 24 * 60).await, [(5, 2), (23, 3)]);
    assert_eq!(of(6 * 60, 24 * 60 + 1).await, [(23, 3), (24, 4)]);
    assert_eq!(of(-60, 0).await, []);
    // A second step adds to the same places.
    store.tally().noted().note(
        Subject::Account(world.alice),
        Hour::in_day(day, 5),
        Figures { views: 8, ..Figures::default() },
        MOST,
    );
    store.flush_stats().await.unwrap();
    assert_eq!(of(5 * 60, 6 * 60).await, [(5, 10)]);
    let exported: Vec<Export> = store.export(world.alice).try_collect().await.unwrap();
    let exported = exported.into_iter().filter_map(|line| if let Export::Stats(hour) = line { Some(hour) } else { None });
    assert_eq!(exported.map(|hour| hour.figures.views).collect::<Vec<_>>(), [1, 10, 3, 4, 5]);
}

#[tokio::test]
async fn a_span_is_one_range_of_the_index() {
    let world = World::new().await;
    world.settle().await;
    let span = Span::new(None, None, now()).unwrap().days();
    let days = doc! { "subject": b(world.alice), "day": { "$gte": date(span.0), "$lte": date(span.1) } };
    let find = doc! { "find": STATS_HOURLY, "filter": days, "sort": { "subject": 1, "day": 1 } };
    let plan = world.store().db().run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.unwrap();
    let plan = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().to_string();
    assert!(plan.contains("IXSCAN") && plan.contains("\"subject_1_day_1\"") && !plan.contains("\"SORT\""), "{plan}");
    // Of the deletion of posts.
    let find = doc! { "find": STATS_HOURLY, "filter": { "subject": { "$in": [b(world.alice)] } } };
    let plan = world.store().db().run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.unwrap();
    assert!(plan.get_document("queryPlanner").unwrap().to_string().contains("\"subject_1_day_1\""));
}

#[tokio::test]
async fn the_database_refuses_a_bucket_that_is_none() {
    let world = World::new().await;
    let day = date(Hour::of(now()).day());
    let bucket = |more: Document| {
        let mut bucket = doc! { "_id": b(new_id()), "subject": b(new_id()), "kind": "post", "day": day };
        bucket.extend(more);
        bucket
    };
    world.buckets().insert_one(bucket(doc! { "views": { "0": 1_i64, "23": 7_i64 } })).await.unwrap();
    for wrong in [
        doc! { "views": { "24": 1_i64 } },
        doc! { "views": { "0": 0_i64 } },
        doc! { "views": 1_i64 },
        doc! { "shares": { "0": 1_i64 } },
        doc! { "kind": "tag" },
    ] {
        assert!(world.buckets().insert_one(bucket(wrong.clone())).await.is_err(), "{wrong}");
    }
}
