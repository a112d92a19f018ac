//! The protocol of the feed with its steps forced into every order that matters.
//!
//! One reader and one author. Fan-out, follows with their merge, unfollows, deletions and the trim of the window are cut into their
//! database steps and run in the orders that break a weaker protocol, one test for each clause, and in schedules that a seed draws for
//! the programs of the model in docs/data-model.md. After *every* step, not only at rest, the feed must be exactly the live posts of
//! the author if the reader follows now. Where the order of writes inside one function matters, one of them is made to fail.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::time::Duration;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use rookery_domain::{Limit, PostId, UserId, fanout::FeedModel, ids, post::Visibility};
use uuid::Uuid;

use crate::{
    Error, Settings, Store,
    collections::{FOLLOWS, POSTS, TIMELINE_ENTRIES, TIMELINES, USERS},
    graph::{Applier, FollowDoc, NewFollow},
    pending::Progress,
    posts::{Deleted, NewPost, PostDoc, PostState},
    store::{b, date, new_id, now},
    testing::{TestDatabase, user, user_with},
    timelines::{Fanout, Turn},
    verify,
};

/// Rita reads, Alice writes.
struct World {
    db: TestDatabase,
    alice: UserId,
    rita: UserId,
}

impl World {
    async fn new() -> Self {
        Self::of(TestDatabase::new().await).await
    }

    async fn of(db: TestDatabase) -> Self {
        let rita = user(db.store()).await;
        let alice = user(db.store()).await;
        Self { db, alice, rita }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    async fn post(&self) -> PostId {
        post(self.store(), self.alice, PostId(new_id())).await
    }

    /// The first step of a follow, and what it knows of the edge afterwards. The rest of a follow only counts it.
    async fn write_follow(&self) -> FollowDoc {
        let written = self.store().write_follows(vec![NewFollow { follower: self.rita, followee: self.alice }]).await.unwrap()[0];
        self.store().coll::<FollowDoc>(FOLLOWS).find_one(doc! { "_id": written.edge }).await.unwrap().unwrap()
    }

    async fn follow(&self) {
        self.store().follow(self.rita, self.alice).await.unwrap().unwrap();
    }

    async fn unfollow(&self) {
        self.store().unfollow(self.rita, self.alice).await.unwrap();
    }

    async fn merge(&self) {
        while self.store().merge_step().await.unwrap() != Progress::Idle {}
    }

    async fn deliver(&self) {
        while self.store().deliver_step().await.unwrap() != Progress::Idle {}
    }

    async fn claim(&self) -> Fanout {
        self.store().claim_post().await.unwrap().unwrap()
    }

    /// Whom a fan-out enters the post for, read in its order: the follows that are not counted, then those that are.
    async fn owners(&self) -> Vec<bson::Uuid> {
        let mut owners = self.store().pending_owners(b(self.alice)).await.unwrap();
        owners.extend(self.store().counted_owners(b(self.alice), 1).await.unwrap());
        owners
    }

    async fn enter(&self, owners: &[bson::Uuid], post: &Fanout) {
        self.store().enter(owners, post.act).await.unwrap();
    }

    async fn end(&self, post: &Fanout) {
        self.store().end_turn(post, Turn::Done).await.unwrap();
    }

    /// Lets every claim run out, as time does after a crash.
    async fn claims_run_out(&self) {
        let past = doc! { "$set": { "delivery.runAfter": bson::DateTime::from_millis(0) } };
        let claimed = doc! { "delivery.state": "pending", "delivery.runAfter": { "$exists": true } };
        self.store().coll::<Document>(POSTS).update_many(claimed, past).await.unwrap();
    }

    async fn delete(&self, post: PostId) {
        assert_eq!(self.store().delete_post(post, self.alice).await.unwrap(), Deleted::Now);
    }

    /// Makes every write into a collection fail, or no more.
    async fn break_writes(&self, name: &str, broken: bool) {
        let schema = crate::collections::ALL.iter().find(|collection| collection.name == name).unwrap().schema;
        let nothing = doc! { "_id": { "$exists": false } };
        let validator = if broken {
            nothing
        } else {
            doc! { "$jsonSchema": schema() }
        };
        self.store().db().run_command(doc! { "collMod": name, "validator": validator }).await.unwrap();
    }

    async fn entries(&self) -> u64 {
        let mine = doc! { "ownerId": b(self.rita) };
        self.store().coll::<Document>(TIMELINE_ENTRIES).count_documents(mine).await.unwrap()
    }

    async fn doc(&self, post: PostId) -> Option<PostDoc> {
        self.store().coll::<PostDoc>(POSTS).find_one(doc! { "_id": b(post) }).await.unwrap()
    }

    /// The feed, read in pages of this size.
    async fn walk(&self, store: &Store, limit: usize) -> Vec<PostId> {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.feed(self.rita, cursor, Limit::new(limit).unwrap()).await.unwrap();
            assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
            seen.extend(page.items.iter().map(|item| item.post.id));
            cursor = page.next;
            if cursor.is_none() {
                return seen;
            }
        }
    }

    async fn feed(&self) -> Vec<PostId> {
        self.walk(self.store(), 20).await
    }

    /// What the feed must be: the live posts of Alice if Rita follows her now.
    async fn oracle(&self) -> Vec<PostId> {
        if !self.store().follows(self.rita, self.alice).await.unwrap() {
            return Vec::new();
        }
        let live = doc! { "author.userId": b(self.alice), "state": "live" };
        let posts = self.store().coll::<PostDoc>(POSTS).find(live).sort(doc! { "_id": -1 }).await.unwrap();
        posts.map_ok(|post| PostId(post.id.into())).try_collect().await.unwrap()
    }

    /// The feed of Rita, whom `limit` posts a page are enough to see all of it, is what it must be.
    async fn assert_feed(&self, at: &str) {
        let expected = self.oracle().await;
        assert_eq!(self.feed().await, expected, "{at}");
        assert_eq!(self.walk(self.store(), 1).await, expected, "{at}, post by post");
    }

    /// With everything done, the feed is what it must be and every invariant holds.
    async fn assert_at_rest(&self) {
        self.settle().await;
        self.assert_verified().await;
    }

    /// Does everything that is to be done in the background. The feed is what it must be then.
    async fn settle(&self) {
        self.claims_run_out().await;
        loop {
            let follows = self.store().apply_follows_step().await.unwrap();
            let posts = self.store().apply_posts_step().await.unwrap();
            self.merge().await;
            self.deliver().await;
            if (follows, posts) == (Progress::Idle, Progress::Idle) {
                break;
            }
        }
        self.assert_feed("at rest").await;
    }

    async fn assert_verified(&self) {
        let drift = verify::verify(self.store()).await.unwrap();
        assert!(drift.is_empty(), "{drift:#?}");
    }
}

async fn post(store: &Store, author: UserId, id: PostId) -> PostId {
    let new = NewPost { id, author, text: "A post".to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap().id
}

/// An id of so long ago.
fn id_of(ago: Duration) -> Uuid {
    Uuid::from_u128(ids::floor_at(now().minus(ago)).as_u128() | (new_id().as_u128() & u128::from(u64::MAX)) | (7 << 76))
}

const DAY: Duration = Duration::from_hours(24);

// Fan-out.

#[tokio::test]
async fn a_post_is_in_the_feed_at_every_step_of_its_delivery() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    world.assert_feed("before").await;
    let id = world.post().await;
    world.assert_feed("not claimed").await;
    let post = world.claim().await;
    world.assert_feed("claimed").await;
    let owners = world.owners().await;
    world.enter(&owners, &post).await;
    world.assert_feed("entered and still pulled").await;
    world.end(&post).await;
    world.assert_feed("delivered").await;
    assert_eq!((world.feed().await, world.entries().await), (vec![id], 1));
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_post_whose_entries_cannot_be_written_is_not_taken_for_delivered() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    world.post().await;
    world.break_writes(TIMELINE_ENTRIES, true).await;
    assert!(world.store().deliver_step().await.is_err());
    world.assert_feed("after a fan-out that failed").await;
    world.break_writes(TIMELINE_ENTRIES, false).await;
    world.assert_at_rest().await;
    assert_eq!(world.entries().await, 1);
}

#[tokio::test]
async fn a_fan_out_that_always_fails_is_parked_and_holds_up_no_other() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    let poisoned = world.post().await;
    world.break_writes(TIMELINE_ENTRIES, true).await;
    for attempt in 1..=10 {
        assert_eq!(world.store().fanout_backlog().await.unwrap(), (1, 0), "before attempt {attempt}");
        let before = date(now());
        assert!(world.store().deliver_step().await.is_err());
        let delivery = world.doc(poisoned).await.unwrap().delivery;
        assert!(delivery.run_after.is_none_or(|at| at > before), "put off after attempt {attempt}");
        world.claims_run_out().await;
    }
    assert_eq!(world.store().fanout_backlog().await.unwrap(), (1, 1));
    world.break_writes(TIMELINE_ENTRIES, false).await;
    let next = world.post().await;
    world.deliver().await;
    assert_eq!(world.feed().await, [next, poisoned], "it stays pulled");
    world.assert_feed("with a parked fan-out").await;
    assert_eq!(world.store().fanout_backlog().await.unwrap(), (1, 1));
}

#[tokio::test]
async fn a_fan_out_whose_worker_crashed_is_claimed_again_and_enters_nothing_twice() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    world.post().await;
    let post = world.claim().await;
    let owners = world.owners().await;
    world.enter(&owners, &post).await;
    assert!(world.store().claim_post().await.unwrap().is_none(), "the claim has not run out");
    world.assert_feed("after the crash").await;
    world.claims_run_out().await;
    world.deliver().await;
    assert_eq!(world.entries().await, 1);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_worker_that_lost_its_claim_changes_nothing_of_the_post() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    world.post().await;
    let stopped = world.claim().await;
    world.claims_run_out().await;
    let post = world.claim().await;
    assert!(!world.store().advance(&stopped, 1).await.unwrap());
    world.end(&stopped).await;
    let pending = world.doc(post.act.post).await.unwrap();
    assert_eq!(pending.delivery.lease.unwrap().owner, post.delivery.lease.unwrap().owner);
    assert!(pending.delivery.pull.is_some(), "nobody has the post yet, and it is pulled");
    world.assert_feed("after the stopped worker woke").await;
    let owners = world.owners().await;
    world.enter(&owners, &post).await;
    world.end(&post).await;
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_deletion_in_mid_delivery_leaves_no_ghost() {
    for step in 0..4 {
        let world = World::new().await;
        world.follow().await;
        world.merge().await;
        let id = world.post().await;
        let mut post = None;
        let mut owners = Vec::new();
        for at in 0..4 {
            if at == step {
                world.delete(id).await;
                assert!(world.feed().await.is_empty(), "deleted before step {at}");
            }
            match at {
                0 => post = world.store().claim_post().await.unwrap(),
                1 => owners = world.owners().await,
                2 => {
                    if let Some(post) = &post {
                        world.enter(&owners, post).await;
                    }
                }
                _ => {
                    if let Some(post) = &post {
                        world.end(post).await;
                    }
                }
            }
            world.assert_feed(&format!("deleted before step {step}, after step {at}")).await;
        }
        world.assert_at_rest().await;
        assert!(world.doc(id).await.is_none(), "its document is gone");
        assert_eq!(world.entries().await, 0, "and the entry that came late, since it was read");
    }
}

// Follows and merges.

#[tokio::test]
async fn a_post_made_just_before_a_follow_is_merged_though_its_fan_out_did_not_see_the_edge() {
    let world = World::new().await;
    world.post().await;
    let post = world.claim().await;
    let owners = world.owners().await;
    world.write_follow().await;
    world.assert_feed("followed").await;
    world.enter(&owners, &post).await;
    world.end(&post).await;
    assert_eq!(world.entries().await, 0);
    world.assert_feed("delivered to others").await;
    world.store().apply_follows_step().await.unwrap();
    world.merge().await;
    assert_eq!(world.entries().await, 1);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_post_made_while_a_follow_is_merged_reaches_its_reader_through_its_fan_out() {
    let world = World::new().await;
    let edge = world.write_follow().await;
    let (old, _) = world.store().acts_to_merge(std::slice::from_ref(&edge), world.rita.0).await.unwrap();
    assert!(old.is_empty());
    world.post().await;
    world.assert_feed("posted").await;
    world.deliver().await;
    world.assert_feed("delivered").await;
    world.store().merge_acts(world.rita, &old).await.unwrap();
    world.store().mark_merged(std::slice::from_ref(&edge)).await.unwrap();
    assert_eq!(world.entries().await, 1);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_first_post_made_while_a_follow_of_somebody_silent_is_merged_is_not_lost() {
    let world = World::new().await;
    world.follow().await;
    // Delivered to those who followed before, and not counted yet: the author still looks silent.
    let id = world.post().await;
    let uncount = doc! { "$unset": { "seq": "" }, "$set": { "pending": true } };
    world.store().coll::<Document>(POSTS).update_one(doc! { "_id": b(id) }, uncount).await.unwrap();
    let silent = doc! { "$set": { "postSeq": 0_i64, "counters.posts": 0_i64 } };
    world.store().coll::<Document>(USERS).update_one(doc! { "_id": b(world.alice) }, silent).await.unwrap();
    let post = world.claim().await;
    world.enter(&[b(world.alice)], &post).await;
    world.end(&post).await;
    world.assert_feed("unmerged").await;
    world.merge().await;
    world.assert_feed("merged").await;
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_first_post_made_while_an_import_counts_a_follow_is_not_lost() {
    let world = World::new().await;
    let edge = FollowDoc::fresh(world.rita, world.alice);
    world.store().coll::<FollowDoc>(FOLLOWS).insert_one(&edge).await.unwrap();
    let plan = world.store().plan_follows(&[edge.id], Applier::Import).await.unwrap().unwrap();
    let id = world.post().await;
    // The plan took her for silent; the account that it writes says otherwise.
    assert!(matches!(world.store().write_plan(plan).await, Err(Error::Conflict(_))));
    world.deliver().await;
    world.settle().await;
    assert_eq!(world.feed().await, [id]);
    world.assert_verified().await;
}

#[tokio::test]
async fn an_imported_follow_of_somebody_silent_needs_no_merge() {
    let world = World::new().await;
    world.store().import_follows(&[(world.rita, world.alice)]).await.unwrap();
    assert_eq!(world.store().merge_step().await.unwrap(), Progress::Idle);
    let id = world.post().await;
    world.deliver().await;
    assert_eq!((world.feed().await, world.entries().await), (vec![id], 1));
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_follow_whose_posts_cannot_be_entered_is_not_taken_for_merged() {
    let world = World::new().await;
    world.post().await;
    world.deliver().await;
    world.follow().await;
    world.break_writes(TIMELINE_ENTRIES, true).await;
    assert!(world.store().merge_step().await.is_err());
    world.assert_feed("after a merge that failed").await;
    world.break_writes(TIMELINE_ENTRIES, false).await;
    world.merge().await;
    assert_eq!(world.entries().await, 1);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_refollow_brings_in_what_was_posted_meanwhile() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    for unapplied in [false, true] {
        if unapplied {
            // The edge is still there, with its seq.
            world.store().mark_unfollow(world.rita, world.alice).await.unwrap();
        } else {
            world.unfollow().await;
        }
        world.post().await;
        world.deliver().await;
        world.assert_feed("unfollowed").await;
        world.write_follow().await;
        world.assert_feed("followed again").await;
        world.store().apply_follows_step().await.unwrap();
        world.merge().await;
        world.assert_feed("merged again").await;
    }
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_merge_marks_only_the_follow_that_it_was_made_for() {
    let world = World::new().await;
    let first = world.write_follow().await;
    let (old, _) = world.store().acts_to_merge(std::slice::from_ref(&first), world.rita.0).await.unwrap();
    // Not applied in between, so that it is the same document.
    world.store().mark_unfollow(world.rita, world.alice).await.unwrap();
    world.post().await;
    world.deliver().await;
    let second = world.write_follow().await;
    assert_eq!(first.id, second.id);
    world.store().merge_acts(world.rita, &old).await.unwrap();
    world.store().mark_merged(std::slice::from_ref(&first)).await.unwrap();
    world.assert_feed("the first follow's merge has ended").await;
    assert_eq!(world.entries().await, 0);
    world.assert_at_rest().await;
    assert_eq!(world.entries().await, 1);
}

#[tokio::test]
async fn an_entry_is_shown_only_while_its_author_is_followed() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    let id = world.post().await;
    let post = world.claim().await;
    let owners = world.owners().await;
    world.unfollow().await;
    world.assert_feed("unfollowed in mid delivery").await;
    world.enter(&owners, &post).await;
    assert_eq!((world.feed().await, world.entries().await), (vec![], 1));
    world.end(&post).await;
    world.assert_feed("delivered after that").await;
    world.follow().await;
    assert_eq!(world.feed().await, [id]);
    world.assert_at_rest().await;
}

// The window.

#[tokio::test]
async fn a_window_that_is_being_trimmed_is_never_taken_for_a_complete_one() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    for _ in 0..4 {
        world.post().await;
    }
    world.deliver().await;
    let slot = world.store().raise_complete_since(world.rita, 2, now()).await.unwrap().unwrap();
    assert_eq!(world.entries().await, 4);
    world.assert_feed("raised").await;
    world.store().drop_below(world.rita, slot).await.unwrap();
    assert_eq!(world.entries().await, 2);
    world.assert_feed("dropped").await;
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_trim_that_cannot_raise_the_window_deletes_nothing() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    for _ in 0..4 {
        world.post().await;
    }
    world.deliver().await;
    world.feed().await;
    world.break_writes(TIMELINES, true).await;
    assert!(world.store().trim_timeline(world.rita, 2, now()).await.is_err());
    world.break_writes(TIMELINES, false).await;
    assert_eq!(world.entries().await, 4);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_post_that_is_delivered_below_a_trimmed_window_is_shown_once() {
    let world = World::new().await;
    world.follow().await;
    world.merge().await;
    let early = world.post().await;
    let late = world.post().await;
    let claimed = [world.claim().await, world.claim().await];
    let (early, late): (Vec<&Fanout>, Vec<&Fanout>) =
        claimed.iter().partition(|post| post.act.post == early && post.act.post != late);
    let owners = world.owners().await;
    world.enter(&owners, late[0]).await;
    world.end(late[0]).await;
    let slot = world.store().raise_complete_since(world.rita, 1, now()).await.unwrap().unwrap();
    world.store().drop_below(world.rita, slot).await.unwrap();
    world.assert_feed("the window begins above the early post").await;
    world.enter(&owners, early[0]).await;
    world.assert_feed("entered below the window").await;
    world.end(early[0]).await;
    world.assert_at_rest().await;
}

#[tokio::test]
async fn what_is_older_than_an_entry_may_be_is_pulled() {
    let db = TestDatabase::new().await;
    let rita = user_with(db.store(), UserId(id_of(DAY * 90))).await;
    let alice = user_with(db.store(), UserId(id_of(DAY * 89))).await;
    let world = World { db, alice, rita };
    world.follow().await;
    let old = post(world.store(), alice, PostId(id_of(DAY * 70))).await;
    let new = post(world.store(), alice, PostId(id_of(DAY))).await;
    world.deliver().await;
    world.merge().await;
    // What the TTL index does, sooner or later.
    let run_out = doc! { "at": { "$lt": date(now().minus(DAY * 60)) } };
    world.store().coll::<Document>(TIMELINE_ENTRIES).delete_many(run_out).await.unwrap();
    assert_eq!(world.feed().await, [new, old]);
    world.assert_at_rest().await;
}

// Two processes.

#[tokio::test]
async fn a_post_of_an_earlier_id_is_pulled_by_a_process_that_has_seen_later_ones() {
    let db = TestDatabase::with(Settings { feed_model: FeedModel::Pull, ..Settings::default() }).await;
    let mut world = World::of(db).await;
    // Registered before all of it, so that it is in her window.
    world.rita = user_with(world.store(), UserId(id_of(DAY))).await;
    let carol = user(world.store()).await;
    world.follow().await;
    let other = world.db.second_store().await;
    // A retry, half a minute later, of a request that was to make a post with an id of its own.
    let id = PostId(id_of(Duration::from_secs(30)));
    post(world.store(), carol, PostId(new_id())).await;
    other.refresh_shared().await.unwrap();
    world.merge().await;
    post(world.store(), world.alice, id).await;
    other.refresh_shared().await.unwrap();
    assert_eq!(world.walk(&other, 20).await, [id]);
}

#[tokio::test]
async fn a_slice_that_is_cut_over_many_authors_loses_no_post() {
    /// In three queries, none of which gives as much as it may. Together they give more than one source may, most of it of no use.
    const AUTHORS: usize = 210;
    let mut world = World::of(TestDatabase::with(Settings { feed_model: FeedModel::Pull, ..Settings::default() }).await).await;
    // Registered long ago, so that all posts are in one slice of her feed.
    world.rita = user_with(world.store(), UserId(id_of(DAY * 10))).await;
    let mut authors = Vec::new();
    for _ in 0..AUTHORS {
        authors.push(user(world.store()).await);
    }
    let pairs: Vec<_> = authors.iter().map(|author| (world.rita, *author)).collect();
    world.store().import_follows(&pairs).await.unwrap();
    world.merge().await;
    let (mut live, mut dead) = (Vec::new(), Vec::new());
    for author in &authors {
        live.insert(0, post(world.store(), *author, PostId(new_id())).await);
    }
    for post in &live {
        // Deleted, and not swept yet: nothing of it is shown.
        let seen = world.doc(*post).await.unwrap();
        dead.push(PostDoc { id: b(new_id()), state: PostState::Deleted, seq: None, pending: Some(true), ..seen });
    }
    world.store().coll::<PostDoc>(POSTS).insert_many(dead).await.unwrap();
    assert_eq!(world.walk(world.store(), 100).await, live);
}

#[tokio::test]
async fn what_one_process_keeps_of_a_reader_ends_with_a_change_that_another_acknowledged() {
    let world = World::new().await;
    let other = world.db.second_store().await;
    world.feed().await;
    world.follow().await;
    world.merge().await;
    let id = world.post().await;
    world.deliver().await;
    // Read twice: the second page is made of what the first one kept.
    for _ in 0..2 {
        assert_eq!(world.walk(&other, 20).await, [id]);
    }
    world.unfollow().await;
    assert_eq!(world.walk(&other, 20).await, []);
    assert_eq!(world.walk(&other, 20).await, []);
    world.follow().await;
    assert_eq!(world.walk(&other, 20).await, [id]);
    world.store().block(world.alice, world.rita).await.unwrap().unwrap();
    assert_eq!(world.walk(&other, 20).await, []);
    world.store().unblock(world.alice, world.rita).await.unwrap();
    world.assert_at_rest().await;
}

#[tokio::test]
async fn what_is_kept_of_a_reader_ends_with_what_a_crashed_request_left() {
    let world = World::new().await;
    let id = world.post().await;
    world.deliver().await;
    assert_eq!([world.feed().await, world.feed().await], [[], []], "nothing is followed, and that is kept");
    // A follow, and later an unfollow, that crash after their write.
    let edge = FollowDoc::fresh(world.rita, world.alice);
    world.store().coll::<FollowDoc>(FOLLOWS).insert_one(&edge).await.unwrap();
    world.settle().await;
    assert_eq!([world.feed().await, world.feed().await], [[id], [id]]);
    let removed = doc! { "$set": { "state": "removed", "pending": true } };
    world.store().coll::<Document>(FOLLOWS).update_one(doc! { "_id": edge.id }, removed).await.unwrap();
    world.settle().await;
    assert_eq!(world.feed().await, []);
    world.assert_verified().await;
}

#[tokio::test]
async fn a_head_is_told_of_each_new_post_and_hands_over_to_the_database_below_it() {
    /// More than a head holds.
    const POSTS_OF_ALICE: usize = 230;
    let mut world = World::of(TestDatabase::with(Settings { feed_model: FeedModel::Pull, ..Settings::default() }).await).await;
    world.rita = user_with(world.store(), UserId(id_of(DAY))).await;
    world.follow().await;
    let mut posts = Vec::new();
    for _ in 0..POSTS_OF_ALICE {
        posts.insert(0, world.post().await);
    }
    let other = world.db.second_store().await;
    other.refresh_shared().await.unwrap();
    world.merge().await;
    assert_eq!(world.walk(&other, 100).await, posts);
    // The other process has a head of hers now.
    posts.insert(0, world.post().await);
    assert_eq!(world.walk(world.store(), 100).await, posts, "at once in the process that made it");
    other.refresh_shared().await.unwrap();
    assert_eq!(world.walk(&other, 100).await, posts, "after a refresh in the other");
    let gone = posts.remove(3);
    world.delete(gone).await;
    assert_eq!(world.walk(&other, 7).await, posts);
    world.assert_at_rest().await;
}

// The programs of the model.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Post(usize),
    Fanout(usize),
    Follow,
    Unfollow,
    Delete(usize),
    /// Down to the newest entry.
    Trim,
}

/// How far an act is.
enum State {
    Start,
    Claimed(Box<Fanout>),
    Owners(Box<Fanout>, Vec<bson::Uuid>),
    Entered(Box<Fanout>),
    Edge(Box<FollowDoc>),
    Read(Box<FollowDoc>, Vec<rookery_domain::feed::Act>),
    Filled(Box<FollowDoc>),
    Raised(bson::Uuid),
}

/// Makes the next database step of an act; none ends it.
async fn advance(world: &World, act: Act, state: State, ids: &[PostId]) -> Option<State> {
    let store = world.store();
    match (act, state) {
        (Act::Post(n), _) => {
            post(store, world.alice, ids[n]).await;
            None
        }
        (Act::Fanout(_), State::Start) => store.claim_post().await.unwrap().map(|post| State::Claimed(Box::new(post))),
        (_, State::Claimed(post)) => Some(State::Owners(post, world.owners().await)),
        (_, State::Owners(post, owners)) => {
            world.enter(&owners, &post).await;
            Some(State::Entered(post))
        }
        (_, State::Entered(post)) => {
            world.end(&post).await;
            None
        }
        (Act::Follow, State::Start) => Some(State::Edge(Box::new(world.write_follow().await))),
        (_, State::Edge(edge)) => {
            let from = store.complete_since(world.rita).await.unwrap();
            let (posts, _) = store.acts_to_merge(std::slice::from_ref(&*edge), from).await.unwrap();
            Some(State::Read(edge, posts))
        }
        (_, State::Read(edge, posts)) => {
            store.merge_acts(world.rita, &posts).await.unwrap();
            Some(State::Filled(edge))
        }
        (_, State::Filled(edge)) => {
            store.mark_merged(std::slice::from_ref(&*edge)).await.unwrap();
            None
        }
        (Act::Unfollow, _) => {
            store.mark_unfollow(world.rita, world.alice).await.unwrap();
            None
        }
        (Act::Delete(n), _) => {
            world.delete(ids[n]).await;
            None
        }
        (Act::Trim, State::Start) => store.raise_complete_since(world.rita, 1, now()).await.unwrap().map(State::Raised),
        (_, State::Raised(slot)) => {
            store.drop_below(world.rita, slot).await.unwrap();
            None
        }
    }
}

#[tokio::test]
async fn whatever_the_schedule_the_feed_is_what_it_must_be_after_every_step() {
    use Act::{Delete, Fanout, Follow, Post, Trim, Unfollow};
    /// Acts, each with those that must have ended before it may begin.
    const PROGRAMS: [&[(Act, &[usize])]; 5] = [
        &[(Post(0), &[]), (Fanout(0), &[0]), (Follow, &[]), (Post(1), &[0]), (Fanout(1), &[3])],
        &[(Follow, &[]), (Unfollow, &[0]), (Post(0), &[0]), (Fanout(0), &[2]), (Follow, &[1])],
        &[(Follow, &[]), (Unfollow, &[]), (Post(0), &[]), (Fanout(0), &[2]), (Follow, &[1])],
        &[(Follow, &[]), (Post(0), &[]), (Fanout(0), &[1]), (Post(1), &[1]), (Fanout(1), &[3]), (Trim, &[])],
        &[(Follow, &[]), (Post(0), &[]), (Fanout(0), &[1]), (Delete(0), &[1]), (Unfollow, &[0])],
    ];
    /// Schedules for each program.
    const SCHEDULES: u64 = 8;
    let db = TestDatabase::new().await;
    let mut world = World::of(db).await;
    for seed in 0..SCHEDULES * PROGRAMS.len() as u64 {
        let program = PROGRAMS[usize::try_from(seed).unwrap() % PROGRAMS.len()];
        let mut random = StdRng::seed_from_u64(seed);
        world.rita = user(world.store()).await;
        world.alice = user(world.store()).await;
        let ids = [PostId(new_id()), PostId(new_id())];
        let mut states: Vec<Option<State>> = program.iter().map(|_| Some(State::Start)).collect();
        let mut trace = Vec::new();
        loop {
            let may_run = |n: &usize| states[*n].is_some() && program[*n].1.iter().all(|before| states[*before].is_none());
            let can: Vec<usize> = (0..program.len()).filter(may_run).collect();
            let Some(n) = can.choose(&mut random).copied() else { break };
            let state = states[n].take().unwrap();
            if !matches!(state, State::Start) && random.random_bool(0.1) {
                trace.push(format!("{:?} crashes", program[n].0));
                if let Fanout(_) | Trim = program[n].0 {
                    // It is done again from the start.
                    world.claims_run_out().await;
                    states[n] = Some(State::Start);
                }
            } else if random.random_bool(0.15) {
                trace.push("the appliers".to_owned());
                states[n] = Some(state);
                crate::store::until_no_conflict(|| world.store().apply_follows_step()).await.unwrap();
                world.store().apply_posts_step().await.unwrap();
            } else {
                trace.push(format!("{:?}", program[n].0));
                states[n] = advance(&world, program[n].0, state, &ids).await;
            }
            assert_eq!(world.feed().await, world.oracle().await, "seed {seed} after {trace:#?}");
        }
        world.settle().await;
    }
    world.assert_verified().await;
}
