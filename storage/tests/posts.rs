//! Posts against the real database: what is counted is counted once, whatever races or crashes, and a walk sees each post once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::HashSet, time::Duration};

use bson::{Document, doc};
use mongodb::{
    Client, Database,
    options::{Acknowledgment, ClientOptions, WriteConcern},
};
use rookery_domain::{
    CommentId, Handle, Limit, Page, PostId, Timestamp, UserId,
    fanout::FeedModel,
    ids,
    page::TimeCursor,
    post::{Post, Visibility},
    user::User,
};
use rookery_storage::{
    Settings, Store,
    comments::NewComment,
    pending::Progress,
    posts::{Deleted, Edited, NewPost},
    testing::TestDatabase,
    users::{Created, NewUser, UserRef},
    verify::verify,
};
use uuid::Uuid;

/// A database, the store on it, and a look at its documents.
struct World {
    store: Store,
    raw: Database,
    _db: TestDatabase,
}

impl World {
    async fn new() -> Self {
        Self::with(FeedModel::Hybrid).await
    }

    async fn with(feed_model: FeedModel) -> Self {
        let db = TestDatabase::with(Settings { feed_model, ..Settings::default() }).await;
        let mut options = ClientOptions::parse(db.uri()).await.unwrap();
        options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).build());
        let raw = Client::with_options(options).unwrap().database(db.name());
        Self { store: db.store().clone(), raw, _db: db }
    }

    async fn user(&self, handle: &str) -> UserId {
        let handle = Handle::parse(handle).unwrap();
        let id = UserId(Uuid::now_v7());
        let new = NewUser {
            id,
            display_name: handle.to_string(),
            handle,
            email: None,
            password_hash: None,
            now: Timestamp::from_millis(ids::time_of(id.0).as_millis() - 1000),
        };
        assert!(matches!(self.store.create_user(new).await.unwrap(), Created::Now(_)));
        id
    }

    async fn profile(&self, id: UserId) -> User {
        self.store.user(&UserRef::Id(id)).await.unwrap().unwrap()
    }

    async fn count(&self, author: UserId) -> i64 {
        self.profile(author).await.counts.posts
    }

    async fn publish(&self, author: UserId, text: &str) -> Post {
        self.store.create_post(new_post(author, text)).await.unwrap().unwrap()
    }

    /// The document of a post.
    async fn doc(&self, id: PostId) -> Option<Document> {
        self.raw.collection("posts").find_one(doc! { "_id": raw(id.0) }).await.unwrap()
    }

    async fn set(&self, collection: &str, id: Uuid, update: Document) {
        let updated = self.raw.collection::<Document>(collection).update_one(doc! { "_id": raw(id) }, update).await.unwrap();
        assert_eq!(updated.matched_count, 1);
    }

    /// A post as it is between its insert and its counting: what a crash leaves.
    async fn uncounted(&self, author: UserId, text: &str) -> PostId {
        let post = self.publish(author, text).await;
        let uncount = doc! { "$unset": { "seq": "" }, "$set": { "pending": true } };
        self.set("posts", post.id.0, uncount).await;
        self.set("users", author.0, doc! { "$inc": { "counters.posts": -1_i64, "postSeq": -1_i64 } }).await;
        post.id
    }

    /// Runs the applier until it finds nothing.
    async fn settle(&self) {
        while self.store.apply_posts_step().await.unwrap() != Progress::Idle {}
        assert_eq!(self.raw.collection::<Document>("posts").count_documents(doc! { "pending": true }).await.unwrap(), 0);
    }

    async fn page(&self, author: UserId, cursor: Option<TimeCursor>, limit: usize) -> Page<Post, TimeCursor> {
        self.store.posts_of(&UserRef::Id(author), None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap()
    }

    /// All posts of an account, page by page; every page but the last is full.
    async fn walk(&self, author: UserId, limit: usize) -> Vec<PostId> {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page(author, cursor, limit).await;
            seen.extend(page.items.iter().map(|post| post.id));
            if page.next.is_none() {
                return seen;
            }
            assert_eq!(page.items.len(), limit);
            cursor = page.next;
        }
    }

    /// Counters agree with documents: the standing oracle.
    async fn verify(&self, author: UserId) {
        let counted = doc! { "author.userId": raw(author.0), "seq": { "$exists": true } };
        let counted = self.raw.collection::<Document>("posts").count_documents(counted).await.unwrap();
        assert_eq!(self.count(author).await, i64::try_from(counted).unwrap());
        assert_eq!(self.walk(author, 7).await.len(), usize::try_from(counted).unwrap());
    }
}

fn raw(id: Uuid) -> bson::Uuid {
    bson::Uuid::from_uuid_1(id)
}

fn new_post(author: UserId, text: &str) -> NewPost {
    NewPost { id: PostId(Uuid::now_v7()), author, text: text.to_owned(), visibility: Visibility::Public }
}

fn ids_of(posts: &[Post]) -> Vec<PostId> {
    posts.iter().map(|post| post.id).collect()
}

#[tokio::test]
async fn a_post_is_read_as_it_was_made() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let made = world.publish(alice, "hello #World @bob @nobody @Bob").await;
    assert_eq!(made.tags, ["world"]);
    assert_eq!(made.mentions.iter().map(|user| user.id).collect::<Vec<_>>(), [bob]);
    assert_eq!(made.author, world.profile(alice).await.summary());
    assert_eq!(made.created_at, made.id.time());
    assert_eq!(world.store.post(made.id, Some(alice)).await.unwrap().unwrap(), made);
    assert_eq!(world.store.post(made.id, None).await.unwrap().unwrap().viewer, None);
    assert_eq!(world.count(alice).await, 1);
}

#[tokio::test]
async fn a_quiet_author_is_counted_in_the_request() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.publish(alice, "one").await;
    let doc = world.doc(post.id).await.unwrap();
    assert_eq!(doc.get_i64("seq").unwrap(), 1);
    assert!(!doc.contains_key("pending"));
    assert_eq!(world.store.apply_posts_step().await.unwrap(), Progress::Idle);
}

#[tokio::test]
async fn a_post_that_a_crash_left_uncounted_is_counted_once() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.publish(alice, "before").await;
    let left: Vec<PostId> = [world.uncounted(alice, "1").await, world.uncounted(alice, "2").await].into();
    assert_eq!(world.count(alice).await, 1);
    assert!(world.store.post(left[0], None).await.unwrap().is_some(), "a single read knows it at once");
    assert_eq!(world.walk(alice, 5).await.len(), 3, "and so does the list");
    // Two processes take it up at the same time.
    let (one, two) = tokio::join!(world.store.apply_posts_step(), world.store.apply_posts_step());
    one.unwrap();
    two.unwrap();
    world.settle().await;
    assert_eq!(world.count(alice).await, 3);
    world.verify(alice).await;
}

#[tokio::test]
async fn posts_written_at_once_are_all_counted() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    futures::future::join_all((0..40).map(|n| world.store.create_post(new_post(alice, &n.to_string())))).await;
    world.settle().await;
    assert_eq!(world.count(alice).await, 40);
    let posts = world.raw.collection::<Document>("posts");
    let seqs = posts.distinct("seq", doc! {}).await.unwrap();
    assert_eq!(seqs.len(), 40, "each has a number of its own");
    world.verify(alice).await;
}

#[tokio::test]
async fn making_a_post_again_with_its_id_makes_nothing_new() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let new = new_post(alice, "once");
    let made = futures::future::join_all((0..8).map(|_| world.store.create_post(new.clone()))).await;
    let made: Vec<Post> = made.into_iter().map(|post| post.unwrap().unwrap()).collect();
    assert!(made.iter().all(|post| *post == made[0]));
    world.settle().await;
    assert_eq!(world.count(alice).await, 1);
    world.verify(alice).await;
}

#[tokio::test]
async fn nobody_posts_for_an_account_that_is_gone() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.set("users", alice.0, doc! { "$set": { "state": "deleting" } }).await;
    assert_eq!(world.store.create_post(new_post(alice, "late")).await.unwrap(), None);
    assert_eq!(world.raw.collection::<Document>("posts").count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test]
async fn a_post_whose_author_goes_between_insert_and_count_is_withdrawn() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.uncounted(alice, "late").await;
    world.set("users", alice.0, doc! { "$set": { "state": "deleting" } }).await;
    // The request's retry with the same id meets the document, and then no author.
    let step = world.store.apply_posts_step().await.unwrap();
    assert_eq!(step, Progress::Did(1));
    assert_eq!(world.store.post(post, None).await.unwrap(), None, "hidden at once");
    world.settle().await;
    assert_eq!(world.doc(post).await, None);
}

#[tokio::test]
async fn posting_and_deleting_the_author_at_once_leaves_no_uncounted_post() {
    let world = World::new().await;
    for round in 0..10 {
        let author = world.user(&format!("author_{round}")).await;
        let posts = (0..5).map(|n| world.store.create_post(new_post(author, &n.to_string())));
        let deletion = world.set("users", author.0, doc! { "$set": { "state": "deleting" } });
        let (posts, ()) = tokio::join!(futures::future::join_all(posts), deletion);
        world.settle().await;
        let kept = doc! { "author.userId": raw(author.0) };
        let kept = world.raw.collection::<Document>("posts").count_documents(kept).await.unwrap();
        let author: Document = world.raw.collection("users").find_one(doc! { "_id": raw(author.0) }).await.unwrap().unwrap();
        assert_eq!(author.get_document("counters").unwrap().get_i64("posts").unwrap(), i64::try_from(kept).unwrap());
        assert!(posts.iter().filter(|post| post.as_ref().unwrap().is_some()).count() >= usize::try_from(kept).unwrap());
    }
}

#[tokio::test]
async fn twenty_deletes_at_once_count_once() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.publish(alice, "stays").await;
    let post = world.publish(alice, "goes").await;
    let answers = futures::future::join_all((0..20).map(|_| world.store.delete_post(post.id, alice))).await;
    let now = answers.iter().filter(|answer| *answer.as_ref().unwrap() == Deleted::Now).count();
    assert_eq!((now, answers.len()), (1, 20));
    assert_eq!(world.store.post(post.id, Some(alice)).await.unwrap(), None);
    assert_eq!(world.walk(alice, 5).await.len(), 1);
    world.settle().await;
    assert_eq!(world.count(alice).await, 1);
    assert_eq!(world.doc(post.id).await, None);
    world.verify(alice).await;
}

#[tokio::test]
async fn a_deletion_that_a_crash_left_marked_is_finished() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let (counted, uncounted) = (world.publish(alice, "counted").await.id, world.uncounted(alice, "not").await);
    for post in [counted, uncounted] {
        world.set("posts", post.0, doc! { "$set": { "state": "deleted", "pending": true } }).await;
        assert_eq!(world.store.post(post, None).await.unwrap(), None, "hidden by the mark alone");
    }
    world.settle().await;
    assert_eq!(world.count(alice).await, 0);
    assert_eq!(world.raw.collection::<Document>("posts").count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test]
async fn deleting_while_posting_counts_neither() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    for _ in 0..10 {
        let new = new_post(alice, "passing");
        let (made, deleted) = tokio::join!(world.store.create_post(new.clone()), world.store.delete_post(new.id, alice));
        made.unwrap();
        if deleted.unwrap() == Deleted::NotFound {
            assert_eq!(world.store.delete_post(new.id, alice).await.unwrap(), Deleted::Now);
        }
    }
    world.settle().await;
    assert_eq!(world.count(alice).await, 0);
    assert_eq!(world.raw.collection::<Document>("posts").count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test]
async fn only_the_author_deletes() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let post = world.publish(alice, "mine").await;
    assert_eq!(world.store.delete_post(post.id, bob).await.unwrap(), Deleted::NotYours);
    let hidden = NewPost { visibility: Visibility::Followers, ..new_post(alice, "for few") };
    world.store.create_post(hidden.clone()).await.unwrap();
    assert_eq!(world.store.delete_post(hidden.id, bob).await.unwrap(), Deleted::NotFound, "bob may not know of it");
    assert_eq!(world.store.delete_post(PostId(Uuid::now_v7()), bob).await.unwrap(), Deleted::NotFound);
    assert_eq!(world.count(alice).await, 2);
}

#[tokio::test]
async fn a_post_for_followers_is_read_by_them_and_its_author() {
    let world = World::new().await;
    let (alice, bob, carol) = (world.user("alice").await, world.user("bob").await, world.user("carol").await);
    world.store.follow(bob, alice).await.unwrap().unwrap();
    let new = NewPost { visibility: Visibility::Followers, ..new_post(alice, "for few") };
    let post = world.store.create_post(new).await.unwrap().unwrap();
    for (viewer, sees) in [(Some(alice), true), (Some(bob), true), (Some(carol), false), (None, false)] {
        assert_eq!(world.store.post(post.id, viewer).await.unwrap().is_some(), sees, "{viewer:?}");
        let page = world.store.posts_of(&UserRef::Id(alice), viewer, None, Limit::DEFAULT).await.unwrap().unwrap();
        assert_eq!(page.items.len(), usize::from(sees), "{viewer:?}");
    }
}

#[tokio::test]
async fn a_block_hides_posts_from_both() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let (hers, his) = (world.publish(alice, "hers").await.id, world.publish(bob, "his").await.id);
    world.store.block(alice, bob).await.unwrap().unwrap();
    assert_eq!(world.store.posts(&[hers, his], Some(bob)).await.unwrap().len(), 1);
    assert_eq!(world.store.posts(&[hers, his], Some(alice)).await.unwrap().len(), 1);
    let list = async |of, viewer| world.store.posts_of(&UserRef::Id(of), Some(viewer), None, Limit::DEFAULT).await.unwrap();
    assert_eq!(list(alice, bob).await, None, "whom she blocks finds no such account");
    assert_eq!(list(bob, alice).await, Some(Page::empty()));
}

#[tokio::test]
async fn posts_by_ids_come_in_the_order_asked_without_the_unknown() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let (one, two) = (world.publish(alice, "1").await.id, world.publish(alice, "2").await.id);
    let asked = [two, PostId(Uuid::now_v7()), one, two];
    assert_eq!(ids_of(&world.store.posts(&asked, None).await.unwrap()), [two, one]);
}

#[tokio::test]
async fn every_page_is_full_and_the_last_one_says_so() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    assert_eq!(world.page(alice, None, 3).await, Page::empty());
    let mut made = Vec::new();
    for n in 0..12 {
        made.insert(0, world.publish(alice, &n.to_string()).await.id);
    }
    for limit in [1, 2, 3, 4, 5, 6, 12, 100] {
        assert_eq!(world.walk(alice, limit).await, made, "by {limit}");
    }
}

#[tokio::test]
async fn prev_leads_to_the_adjacent_newer_posts() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let mut made = Vec::new();
    for n in 0..9 {
        made.insert(0, world.publish(alice, &n.to_string()).await.id);
    }
    let first = world.page(alice, None, 3).await;
    let second = world.page(alice, first.next.clone(), 3).await;
    let third = world.page(alice, second.next.clone(), 3).await;
    assert_eq!((ids_of(&third.items), third.next.clone()), (made[6..].to_vec(), None));
    let back = world.page(alice, third.prev, 3).await;
    assert_eq!(ids_of(&back.items), made[3..6]);
    assert_eq!(ids_of(&world.page(alice, back.next, 3).await.items), made[6..]);
    assert_eq!(ids_of(&world.page(alice, back.prev, 3).await.items), made[..3]);
    // Polling from the newest page: nothing yet, then what came.
    let polled = world.page(alice, first.prev, 3).await;
    assert!(polled.items.is_empty());
    assert_eq!(ids_of(&world.page(alice, polled.next, 3).await.items), made[..3], "the way back down");
    let new = world.publish(alice, "new").await.id;
    assert_eq!(ids_of(&world.page(alice, polled.prev, 3).await.items), [new]);
}

#[tokio::test]
async fn a_post_that_commits_late_is_found_by_who_goes_on_from_a_newer_one() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.publish(alice, "first").await;
    let late = new_post(alice, "its id is older");
    world.publish(alice, "shown").await;
    let page = world.page(alice, None, 5).await;
    assert_eq!(page.items.len(), 2);
    world.store.create_post(late.clone()).await.unwrap();
    let newer = world.page(alice, page.prev, 5).await;
    assert_eq!(ids_of(&newer.items), [late.id]);
    assert!(world.page(alice, newer.prev, 5).await.items.is_empty(), "nothing comes twice");
}

#[tokio::test]
async fn a_cursor_outlives_its_post() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let mut made = Vec::new();
    for n in 0..6 {
        made.insert(0, world.publish(alice, &n.to_string()).await.id);
    }
    let page = world.page(alice, None, 2).await;
    for gone in [1, 2] {
        world.store.delete_post(made[gone], alice).await.unwrap();
    }
    world.settle().await;
    assert_eq!(ids_of(&world.page(alice, page.next, 2).await.items), made[3..5]);
}

#[tokio::test]
async fn a_long_history_with_bursts_and_silences_is_walked_without_a_gap() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let now = ids::time_of(Uuid::now_v7()).as_millis();
    let day = 86_400_000;
    // 300 posts within five minutes three years ago, one two years ago, 300 over the last month, a few at once.
    let old = (0..300).map(|n| now - 3 * 365 * day + n * 1000);
    let month = (0..300).map(|n| now - 30 * day + n * day / 10);
    let times = old.chain([now - 2 * 365 * day]).chain(month).chain([now - 5, now - 4, now - 3]);
    let template = world.doc(world.publish(alice, "x").await.id).await.unwrap();
    world.settle().await;
    let docs: Vec<Document> = times
        .enumerate()
        .map(|(n, at)| {
            let at_seconds = u64::try_from(at / 1000).unwrap();
            let nanos = u32::try_from(at % 1000).unwrap() * 1_000_000;
            let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, at_seconds, nanos));
            let mut post = template.clone();
            post.insert("_id", raw(id));
            post.insert("seq", i64::try_from(n).unwrap() + 2);
            post
        })
        .collect();
    let mut all: Vec<PostId> = docs.iter().map(|post| PostId(post.get("_id").and_then(uuid_of).unwrap())).collect();
    all.push(PostId(template.get("_id").and_then(uuid_of).unwrap()));
    all.sort_unstable_by(|a, b| b.cmp(a));
    world.raw.collection("posts").insert_many(docs).await.unwrap();
    let years_ago = bson::DateTime::from_millis(now - 4 * 365 * day);
    let update = doc! { "$set": { "counters.posts": 605_i64, "postSeq": 605_i64, "createdAt": years_ago } };
    world.set("users", alice.0, update).await;
    for limit in [20, 100] {
        assert_eq!(world.walk(alice, limit).await, all, "by {limit}");
    }
    // And up again, from the oldest.
    let (mut seen, mut cursor) = (Vec::new(), Some(TimeCursor::Before(all[600].0)));
    for _ in 0..20 {
        let page = world.page(alice, cursor, 50).await;
        if page.items.is_empty() {
            break;
        }
        cursor = page.prev;
        seen.extend(ids_of(&page.items));
    }
    let seen_once: HashSet<PostId> = seen.iter().copied().collect();
    assert_eq!(seen_once.len(), seen.len());
    assert_eq!(seen_once, all.iter().copied().collect());
}

fn uuid_of(value: &bson::Bson) -> Option<Uuid> {
    match value {
        bson::Bson::Binary(binary) => Uuid::from_slice(&binary.bytes).ok(),
        _ => None,
    }
}

#[tokio::test]
async fn a_walk_while_others_write_shows_each_lasting_post_once() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let mut lasting = Vec::new();
    for n in 0..30 {
        lasting.insert(0, world.publish(alice, &n.to_string()).await.id);
    }
    let writing = async {
        for _ in 0..15 {
            let passing = world.publish(alice, "passing").await;
            world.store.delete_post(passing.id, alice).await.unwrap();
            world.publish(alice, "new").await;
            world.store.apply_posts_step().await.unwrap();
        }
    };
    let walking = async {
        for limit in [2, 3, 5] {
            let seen = world.walk(alice, limit).await;
            let once: HashSet<PostId> = seen.iter().copied().collect();
            assert_eq!(once.len(), seen.len());
            let lasting_seen: Vec<PostId> = seen.into_iter().filter(|id| lasting.contains(id)).collect();
            assert_eq!(lasting_seen, lasting);
        }
    };
    tokio::join!(writing, walking);
}

#[tokio::test]
async fn the_feed_model_decides_how_a_post_is_delivered() {
    for (model, state, claimable) in
        [(FeedModel::Hybrid, "pending", true), (FeedModel::Push, "pending", true), (FeedModel::Pull, "pull", false)]
    {
        let world = World::with(model).await;
        let alice = world.user("alice").await;
        let post = world.publish(alice, "x").await;
        let doc = world.doc(post.id).await.unwrap();
        let delivery = doc.get_document("delivery").unwrap();
        assert_eq!((delivery.get_str("state").unwrap(), delivery.contains_key("runAfter")), (state, claimable));
    }
}

#[tokio::test]
async fn an_outlier_is_marked_as_pulled_before_its_first_post_and_only_once() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let since = bson::DateTime::now();
    let outlier = doc! { "$set": { "outlier": { "state": "ready", "since": since } } };
    world.set("users", alice.0, outlier).await;
    let first = world.publish(alice, "1").await;
    let pulled_since = async || {
        let user: Document = world.raw.collection("users").find_one(doc! { "_id": raw(alice.0) }).await.unwrap().unwrap();
        *user.get_datetime("pulledSince").unwrap()
    };
    let marked = pulled_since().await;
    assert!(marked >= since);
    world.publish(alice, "2").await;
    assert_eq!(pulled_since().await, marked);
    let doc = world.doc(first.id).await.unwrap();
    assert_eq!(doc.get_document("delivery").unwrap().get_str("state").unwrap(), "pull");
}

#[tokio::test]
async fn posts_of_a_private_account_are_for_followers() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.set("users", alice.0, doc! { "$set": { "settings.private": true } }).await;
    assert_eq!(world.publish(alice, "x").await.visibility, Visibility::Followers);
}

impl World {
    async fn edit(&self, post: PostId, by: UserId, text: &str) -> Post {
        match self.store.edit_post(post, by, text.to_owned()).await.unwrap() {
            Edited::Now(post) => *post,
            other => panic!("{other:?}"),
        }
    }

    /// What the post said before, newest first, walked by pages.
    async fn history(&self, post: PostId, limit: usize) -> Vec<String> {
        let (mut texts, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.store.post_history(post, None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap();
            texts.extend(page.items.into_iter().map(|revision| revision.text));
            cursor = page.next;
            if cursor.is_none() {
                return texts;
            }
        }
    }

    async fn revisions(&self) -> u64 {
        self.raw.collection::<Document>("post_revisions").count_documents(doc! {}).await.unwrap()
    }
}

#[tokio::test]
async fn an_edit_derives_everything_anew_and_keeps_what_it_replaces() {
    let world = World::new().await;
    let (alice, bob, carol) = (world.user("alice").await, world.user("bob").await, world.user("carol").await);
    let post = world.publish(alice, "#one for @bob").await;
    let edited = world.edit(post.id, alice, "#Two for @carol and @BOB, a@bob.com").await;
    assert_eq!((edited.text.as_str(), &*edited.tags), ("#Two for @carol and @BOB, a@bob.com", &["two".to_owned()][..]));
    assert_eq!(edited.mentions.iter().map(|user| user.id).collect::<Vec<_>>(), [carol, bob]);
    assert_eq!(
        (edited.id, edited.created_at, edited.counts, edited.visibility),
        (post.id, post.created_at, post.counts, post.visibility)
    );
    let first = edited.edited_at.unwrap();
    assert!(first >= post.created_at);
    assert_eq!(world.store.post(post.id, Some(alice)).await.unwrap(), Some(edited));
    let again = world.edit(post.id, alice, "three").await;
    assert!(again.tags.is_empty() && again.mentions.is_empty() && again.edited_at >= Some(first));
    let history = world.store.post_history(post.id, Some(bob), None, Limit::DEFAULT).await.unwrap().unwrap();
    let versions: Vec<_> = history.items.iter().map(|revision| (revision.text.as_str(), revision.edited_at)).collect();
    assert_eq!(versions, [("#Two for @carol and @BOB, a@bob.com", first), ("#one for @bob", post.created_at)]);
    assert_eq!(verify(&world.store).await.unwrap(), []);
}

#[tokio::test]
async fn an_edit_that_changes_nothing_is_none() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.publish(alice, "the same").await;
    assert_eq!(world.edit(post.id, alice, "the same").await, post);
    let edited = world.edit(post.id, alice, "another").await;
    assert_eq!(world.edit(post.id, alice, "another").await, edited);
    assert_eq!(world.history(post.id, 5).await, ["the same"]);
}

#[tokio::test]
async fn only_the_author_edits() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let (seen, unknown) = (world.publish(alice, "mine").await.id, PostId(Uuid::now_v7()));
    let hidden = NewPost { visibility: Visibility::Followers, ..new_post(alice, "for few") };
    world.store.create_post(hidden.clone()).await.unwrap();
    for (post, by, text, expected) in [
        (seen, bob, "his", Edited::NotYours),
        (seen, bob, "mine", Edited::NotYours),
        (hidden.id, bob, "his", Edited::NotFound),
        (unknown, alice, "hers", Edited::NotFound),
    ] {
        assert_eq!(world.store.edit_post(post, by, text.to_owned()).await.unwrap(), expected);
    }
    assert_eq!(world.revisions().await, 0);
    assert_eq!(world.store.post(seen, None).await.unwrap().unwrap().text, "mine");
    world.store.delete_post(seen, alice).await.unwrap();
    assert_eq!(world.store.edit_post(seen, alice, "late".to_owned()).await.unwrap(), Edited::NotFound);
    assert_eq!(world.store.post_history(seen, Some(alice), None, Limit::DEFAULT).await.unwrap(), None);
}

#[tokio::test]
async fn the_newest_50_versions_are_kept_and_walked_both_ways() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.publish(alice, "0").await.id;
    assert_eq!(world.store.post_history(post, None, None, Limit::DEFAULT).await.unwrap(), Some(Page::empty()));
    for n in 1..=50 {
        world.edit(post, alice, &n.to_string()).await;
    }
    let texts = |range: std::ops::Range<i32>| range.rev().map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(world.history(post, 10).await, texts(0..50), "a multiple of the limit");
    for n in 51..=53 {
        world.edit(post, alice, &n.to_string()).await;
    }
    for limit in [1, 7, 50, 100] {
        assert_eq!(world.history(post, limit).await, texts(3..53), "by {limit}");
    }
    assert_eq!(world.revisions().await, 50);
    let page =
        async |cursor, limit| world.store.post_history(post, None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap();
    let first = page(None, 4).await;
    let second = page(first.next, 4).await;
    assert_eq!(page(second.prev, 4).await.items, first.items);
    // From the newest page on: nothing yet, then what came.
    assert!(page(first.prev, 4).await.items.is_empty());
    world.edit(post, alice, "54").await;
    assert_eq!(page(first.prev, 4).await.items.iter().map(|revision| revision.text.as_str()).collect::<Vec<_>>(), ["53"]);
    assert_eq!(verify(&world.store).await.unwrap(), []);
}

#[tokio::test]
async fn edits_at_once_lose_no_version() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.publish(alice, "0").await.id;
    let texts: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
    let edits = texts.iter().map(|text| world.store.edit_post(post, alice, text.clone()));
    assert!(futures::future::join_all(edits).await.into_iter().all(|edited| matches!(edited, Ok(Edited::Now(_)))));
    let mut versions = world.history(post, 100).await;
    versions.push(world.store.post(post, None).await.unwrap().unwrap().text);
    versions.sort_unstable_by_key(|text| text.parse::<i32>().unwrap());
    assert_eq!(versions, (0..=10).map(|n| n.to_string()).collect::<Vec<_>>(), "each once");
    assert_eq!(verify(&world.store).await.unwrap(), []);
}

#[tokio::test]
async fn an_edit_and_a_deletion_at_once_leave_no_version_of_a_deleted_post() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    for round in 0..10 {
        let post = world.publish(alice, "0").await.id;
        world.edit(post, alice, "1").await;
        let edit = world.store.edit_post(post, alice, "2".to_owned());
        let (edited, deleted) = if round % 2 == 0 {
            tokio::join!(edit, world.store.delete_post(post, alice))
        } else {
            let (deleted, edited) = tokio::join!(world.store.delete_post(post, alice), edit);
            (edited, deleted)
        };
        assert!(matches!(edited.unwrap(), Edited::Now(_) | Edited::NotFound));
        assert_eq!(deleted.unwrap(), Deleted::Now);
        assert_eq!(world.store.post(post, None).await.unwrap(), None);
        world.settle().await;
        assert_eq!((world.doc(post).await, world.revisions().await), (None, 0));
    }
    assert_eq!(world.count(alice).await, 0);
}

#[tokio::test]
async fn edits_while_others_comment_and_like_lose_no_counter() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let post = world.publish(alice, "0").await.id;
    let mut readers = Vec::new();
    for n in 0..12 {
        readers.push(world.user(&format!("reader_{n}")).await);
    }
    let editing = async {
        for n in 1..=12 {
            world.edit(post, alice, &n.to_string()).await;
        }
    };
    let others = readers.iter().map(async |reader| {
        let new = NewComment { id: CommentId(Uuid::now_v7()), post, parent: None, author: *reader, text: "a word".to_owned() };
        world.store.create_comment(new).await.unwrap().unwrap();
        world.store.like_post(post, *reader).await.unwrap().unwrap();
    });
    let applying = async {
        for _ in 0..20 {
            world.store.apply_comments_step().await.unwrap();
            world.store.apply_reactions_step().await.unwrap();
        }
    };
    tokio::join!(editing, futures::future::join_all(others), applying);
    while world.store.apply_comments_step().await.unwrap() != Progress::Idle {}
    while world.store.apply_reactions_step().await.unwrap() != Progress::Idle {}
    let read = world.store.post(post, None).await.unwrap().unwrap();
    assert_eq!((read.text.as_str(), read.counts.comments, read.counts.likes), ("12", 12, 12));
    assert_eq!(world.history(post, 5).await, (0..12).rev().map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(verify(&world.store).await.unwrap(), []);
}

#[tokio::test]
async fn every_process_reads_an_edit_at_once_wherever_the_post_is_shown() {
    for model in [FeedModel::Push, FeedModel::Pull] {
        let world = World::with(model).await;
        let other = world._db.second_store().await;
        let (alice, bob) = (world.user("alice").await, world.user("bob").await);
        world.store.follow(bob, alice).await.unwrap().unwrap();
        // Delivered, and still to be delivered: in entries, in heads, in memory.
        let delivered = world.publish(alice, "#old first").await.id;
        while world.store.deliver_step().await.unwrap() != Progress::Idle {}
        let undelivered = world.publish(alice, "#old second").await.id;
        for store in [&world.store, &other] {
            store.refresh_shared().await.unwrap();
            assert_eq!(store.feed(bob, None, Limit::DEFAULT).await.unwrap().items.len(), 2);
        }
        for (n, post) in [delivered, undelivered].into_iter().enumerate() {
            let text = format!("#new {n}");
            world.edit(post, alice, &text).await;
            for store in [&world.store, &other] {
                let feed = store.feed(bob, None, Limit::DEFAULT).await.unwrap().items.into_iter().map(|item| item.post);
                let author = UserRef::Id(alice);
                let own = store.posts_of(&author, Some(bob), None, Limit::DEFAULT).await.unwrap().unwrap().items;
                let tagged = store.posts_with_tag("new", Some(bob), None, Limit::DEFAULT).await.unwrap().items;
                let single = store.post(post, Some(bob)).await.unwrap();
                let mut shown = [feed.collect(), own, tagged, single.into_iter().collect::<Vec<_>>()].into_iter();
                assert!(
                    shown.all(|posts| posts.iter().any(|shown| shown.id == post && shown.text == text && shown.tags == ["new"]))
                );
                let old = store.posts_with_tag("old", Some(bob), None, Limit::DEFAULT).await.unwrap().items;
                assert!(old.iter().all(|shown| shown.id != post));
            }
        }
    }
}

// Posts by tag.

impl World {
    /// The posts with a tag as a viewer meets them, page by page, each page full; and back from the last one to the newest.
    async fn tagged(&self, tag: &str, viewer: Option<UserId>, limit: usize) -> Vec<PostId> {
        let limit = Limit::new(limit).unwrap();
        let (mut down, mut cursor, mut up) = (Vec::new(), None, Vec::new());
        let mut last = loop {
            let page = self.store.posts_with_tag(tag, viewer, cursor, limit).await.unwrap();
            down.extend(ids_of(&page.items));
            if page.next.is_none() {
                break page.prev;
            }
            assert_eq!(page.items.len(), limit.get(), "a page is full unless the list is at its end");
            cursor = page.next;
        };
        while let Some(cursor) = last {
            let page = self.store.posts_with_tag(tag, viewer, Some(cursor), limit).await.unwrap();
            if page.items.is_empty() {
                break;
            }
            up.splice(0..0, ids_of(&page.items));
            last = page.prev;
        }
        assert!(down.starts_with(&up) && down.len() - up.len() <= limit.get(), "{} up, {} down", up.len(), down.len());
        down
    }

    /// Copies of a post at these times, in milliseconds, by this author.
    async fn copies(&self, of: PostId, author: UserId, times: impl Iterator<Item = i64>) -> Vec<PostId> {
        let template = self.doc(of).await.unwrap();
        let docs: Vec<Document> = times
            .map(|at| {
                let nanos = u32::try_from(at % 1000).unwrap() * 1_000_000;
                let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, u64::try_from(at / 1000).unwrap(), nanos));
                let mut post = template.clone();
                post.insert("_id", raw(id));
                post.get_document_mut("author").unwrap().insert("userId", raw(author.0));
                post
            })
            .collect();
        let ids = docs.iter().map(|post| PostId(post.get("_id").and_then(uuid_of).unwrap())).collect();
        self.raw.collection("posts").insert_many(docs).await.unwrap();
        ids
    }
}

#[tokio::test]
async fn posts_with_a_tag_are_those_that_the_viewer_may_see_newest_first() {
    let world = World::new().await;
    let mut users = Vec::new();
    for name in ["alice", "bob", "carol", "dave", "erin"] {
        users.push(world.user(name).await);
    }
    let [alice, bob, carol, dave, erin] = users[..] else { panic!() };
    world.store.follow(bob, alice).await.unwrap().unwrap();
    let public = world.publish(alice, "#Tag").await.id;
    let for_followers = NewPost { visibility: Visibility::Followers, ..new_post(alice, "(#TAG)") };
    let for_followers = world.store.create_post(for_followers).await.unwrap().unwrap().id;
    let of_dave = world.publish(dave, "#tag and #tag").await.id;
    let of_private = world.publish(erin, "#tag").await.id;
    world.set("users", erin.0, doc! { "$set": { "settings.private": true } }).await;
    let deleted = world.publish(dave, "#tag").await.id;
    world.store.delete_post(deleted, dave).await.unwrap();
    world.publish(dave, "#tagged tag a#tag").await;
    world.store.block(carol, dave).await.unwrap().unwrap();
    world.store.mute(bob, dave).await.unwrap().unwrap();
    for (viewer, seen) in [
        (None, vec![of_dave, public]),
        (Some(alice), vec![of_dave, for_followers, public]),
        (Some(bob), vec![for_followers, public]),
        (Some(carol), vec![public]),
        (Some(dave), vec![of_dave, public]),
        (Some(erin), vec![of_private, of_dave, public]),
    ] {
        for limit in [1, 2, 3, 20] {
            assert_eq!(world.tagged("tag", viewer, limit).await, seen, "{viewer:?}");
        }
    }
    world.edit(public, alice, "no more").await;
    assert_eq!(world.tagged("tag", None, 5).await, [of_dave]);
    assert_eq!(world.store.posts_with_tag("unused", None, None, Limit::DEFAULT).await.unwrap(), Page::empty());
}

#[tokio::test]
async fn pages_of_a_tag_are_full_whatever_is_hidden_and_however_the_posts_lie_in_time() {
    let world = World::new().await;
    let (alice, spammer, reader) = (world.user("alice").await, world.user("spammer").await, world.user("reader").await);
    let template = world.publish(alice, "#tag").await.id;
    world.settle().await;
    let now = ids::time_of(template.0).as_millis();
    let day = 86_400_000;
    // Bursts and silences: three years ago one a second, one two years ago, one a day for two months, some in one millisecond.
    let old = (0..150).map(|n| now - 3 * 365 * day + n * 1000);
    let daily = (1..60).map(|n| now - n * day);
    let times = old.chain([now - 2 * 365 * day]).chain(daily).chain(std::iter::repeat_n(now - 5, 30));
    let mut seen = world.copies(template, alice, times).await;
    seen.push(template);
    seen.sort_unstable_by(|a, b| b.cmp(a));
    // A thousand of a muted account among the newest, and a thousand over a day long ago.
    let spam = (0..1000).map(|n| now - 1000 + n / 2).chain((0..1000).map(|n| now - 100 * day + n * day / 1000));
    world.copies(template, spammer, spam).await;
    world.store.mute(reader, spammer).await.unwrap().unwrap();
    for limit in [20, 100] {
        assert_eq!(world.tagged("tag", Some(reader), limit).await, seen, "by {limit}");
    }
    assert_eq!(world.tagged("tag", None, 100).await.len(), seen.len() + 2000);
}

#[tokio::test]
async fn a_walk_along_a_tag_while_others_write_shows_each_lasting_post_once() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let mut lasting = Vec::new();
    for n in 0..20 {
        lasting.insert(0, world.publish(alice, &format!("#tag {n}")).await.id);
    }
    let writing = async {
        for n in 0..10 {
            let passing = world.publish(alice, "#tag passing").await;
            world.edit(passing.id, alice, &format!("#other {n}")).await;
            world.publish(alice, "#tag new").await;
            world.edit(lasting[n], alice, &format!("still #tag {n}")).await;
        }
    };
    let walking = async {
        for limit in [2, 3, 5] {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = world.store.posts_with_tag("tag", None, cursor, Limit::new(limit).unwrap()).await.unwrap();
                seen.extend(ids_of(&page.items));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
            assert_eq!(seen.into_iter().filter(|id| lasting.contains(id)).collect::<Vec<_>>(), lasting);
        }
    };
    tokio::join!(writing, walking);
}

#[tokio::test]
async fn the_answer_to_a_post_names_nobody_across_a_block() {
    let world = World::new().await;
    let (alice, bob, carol) = (world.user("alice").await, world.user("bob").await, world.user("carol").await);
    world.store.block(bob, alice).await.unwrap().unwrap();
    let named = |post: &Post| post.mentions.iter().map(|user| user.id).collect::<Vec<_>>();
    let post = world.publish(alice, "@bob and @carol").await;
    assert_eq!(named(&post), [carol]);
    assert_eq!(named(&world.edit(post.id, alice, "@carol and @bob").await), [carol]);
    assert_eq!(named(&world.store.post(post.id, Some(carol)).await.unwrap().unwrap()), [carol, bob], "others see both");
}

/// The stages of the plan by which the server answers a query.
async fn plan(world: &World, name: &str, filter: Document, sort: Document) -> String {
    let find = doc! { "explain": { "find": name, "filter": filter, "sort": sort }, "verbosity": "queryPlanner" };
    let plan = world.raw.run_command(find).await.unwrap();
    plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().to_string()
}

#[tokio::test]
async fn every_query_on_posts_is_served_by_its_index() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    world.publish(alice, "x").await;
    let author = raw(alice.0);
    let span = doc! { "$gte": raw(Uuid::nil()), "$lt": raw(Uuid::max()) };
    let queries = [
        (doc! { "author.userId": author, "_id": &span, "state": "live" }, doc! { "_id": -1 }, "author.userId_1__id_-1"),
        (doc! { "delivery.pull": { "$in": [author] }, "_id": &span }, doc! { "_id": -1 }, "delivery.pull_1__id_-1"),
        (doc! { "tags": "x", "_id": &span }, doc! { "_id": -1 }, "tags_1__id_-1"),
        (doc! { "tags": "x", "_id": span }, doc! { "_id": 1 }, "tags_1__id_-1"),
        (doc! { "pending": true }, doc! { "_id": 1 }, "pending_1__id_1"),
        (
            doc! { "delivery.state": "pending", "delivery.runAfter": { "$lte": bson::DateTime::now() } },
            doc! { "delivery.runAfter": 1 },
            "delivery.state_1_delivery.runAfter_1",
        ),
    ];
    let revisions = doc! { "postId": author, "seq": { "$gte": 1, "$lt": 51 } };
    let history = plan(&world, "post_revisions", revisions, doc! { "seq": -1 }).await;
    assert!(history.contains("IXSCAN") && history.contains("\"postId_1_seq_-1\""), "{history}");
    for (filter, sort, index) in queries {
        let plan = plan(&world, "posts", filter.clone(), sort).await;
        assert!(plan.contains("IXSCAN") && plan.contains(&format!("\"{index}\"")), "{filter}\n{plan}");
    }
}

#[tokio::test]
async fn wake_ups_are_hints_for_the_workers() {
    let world = World::new().await;
    let alice = world.user("alice").await;
    let hinted = |notify: &'static str| {
        let store = world.store.clone();
        async move {
            let wake = store.wake();
            let hint = if notify == "deliverer" { &wake.deliverer } else { &wake.applier };
            tokio::time::timeout(Duration::from_secs(5), hint.notified()).await.is_ok()
        }
    };
    let post = world.publish(alice, "x").await;
    assert!(hinted("deliverer").await);
    world.store.delete_post(post.id, alice).await.unwrap();
    assert!(hinted("applier").await);
}
