//! Each kind of drift, written around the store, is reported as that kind and as no other.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use rookery_domain::{CommentId, PostId, UserId, ids, post::Visibility};

use super::*;
use crate::{
    Settings,
    collections::{BLOCKS, COMMENTS, FOLLOWS, POST_REVISIONS, POSTS, TIMELINE_ENTRIES, TIMELINES, USER_OVERFLOW, USERS},
    comments::NewComment,
    pending::Progress,
    posts::NewPost,
    store::{b, date, new_id, now},
    testing::{TestDatabase, user},
};

/// A small world at rest: Alice, an outlier with two pages' worth of nothing special, writes; Bob follows her and comments.
pub(super) struct World {
    pub(super) db: TestDatabase,
    pub(super) alice: UserId,
    pub(super) bob: UserId,
    /// The posts of Bob, whom Alice follows.
    pub(super) posts: Vec<PostId>,
    /// Under the first post; the second one answers the first.
    pub(super) comments: Vec<CommentId>,
}

impl World {
    pub(super) async fn new() -> Self {
        let db = TestDatabase::with(Settings { celebrity_threshold: 3, ..Settings::default() }).await;
        let store = db.store();
        let (alice, bob) = (user(store).await, user(store).await);
        for fan in [bob, user(store).await, user(store).await] {
            store.follow(fan, alice).await.unwrap().unwrap();
        }
        store.follow(alice, bob).await.unwrap().unwrap();
        settle(store).await;
        let mut posts = Vec::new();
        for _ in 0..3 {
            let new = NewPost { id: PostId(new_id()), author: bob, text: "A post".to_owned(), visibility: Visibility::Public };
            posts.push(store.create_post(new).await.unwrap().unwrap().id);
        }
        let mut comments: Vec<CommentId> = Vec::new();
        for n in 0..17 {
            let parent = if n == 1 { Some(comments[0]) } else { None };
            let new = NewComment { id: CommentId(new_id()), post: posts[0], parent, author: alice, text: "A comment".to_owned() };
            comments.push(store.create_comment(new).await.unwrap().unwrap().id);
        }
        settle(store).await;
        let world = Self { db, alice, bob, posts, comments };
        assert_eq!(verify(world.db.store()).await.unwrap(), []);
        world
    }

    pub(super) async fn update(&self, name: &str, filter: Document, update: Document) {
        let done = self.db.store().coll::<Document>(name).update_one(filter, update).await.unwrap();
        assert_eq!(done.modified_count, 1);
    }

    pub(super) async fn set(&self, name: &str, id: impl Into<uuid::Uuid>, update: Document) {
        self.update(name, doc! { "_id": b(id) }, update).await;
    }

    pub(super) async fn delete(&self, name: &str, filter: Document) {
        assert_eq!(self.db.store().coll::<Document>(name).delete_one(filter).await.unwrap().deleted_count, 1);
    }

    /// A copy of a document under an id of its own and with these fields.
    pub(super) async fn copy(&self, name: &str, filter: Document, mut fields: Document) -> uuid::Uuid {
        let id = new_id();
        fields.insert("_id", b(id));
        self.copy_as(name, filter, fields).await;
        id
    }

    /// A copy of a document with these fields, its `_id` among them.
    pub(super) async fn copy_as(&self, name: &str, filter: Document, fields: Document) {
        let documents = self.db.store().coll::<Document>(name);
        let mut document = documents.find_one(filter).await.unwrap().unwrap();
        for (field, value) in fields {
            match value {
                Bson::Null => drop(document.remove(field)),
                value => drop(document.insert(field, value)),
            }
        }
        documents.insert_one(document).await.unwrap();
    }

    pub(super) fn edge(&self) -> Document {
        doc! { "followerId": b(self.bob), "followeeId": b(self.alice) }
    }

    /// What is reported, each kind once.
    pub(super) async fn assert_reported(&self, kinds: &[DriftKind]) {
        let drift = verify(self.db.store()).await.unwrap();
        assert_eq!(drift.iter().map(|one| one.kind).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), kinds, "{drift:#?}");
    }
}

pub(super) async fn settle(store: &Store) {
    loop {
        let done = [
            store.apply_follows_step().await.unwrap(),
            store.apply_posts_step().await.unwrap(),
            store.apply_comments_step().await.unwrap(),
            store.apply_reactions_step().await.unwrap(),
            store.merge_step().await.unwrap(),
            store.deliver_step().await.unwrap(),
        ];
        if done == [Progress::Idle; 6] {
            return;
        }
    }
}

#[tokio::test]
async fn counters_of_an_account_that_drift_are_reported() {
    let world = World::new().await;
    world.set(USERS, world.bob, doc! { "$inc": { "counters.followers": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::FollowerCount]).await;
    world.set(USERS, world.bob, doc! { "$inc": { "counters.followers": -1_i64, "counters.following": -1_i64 } }).await;
    world.assert_reported(&[DriftKind::FollowingCount]).await;
    world.set(USERS, world.bob, doc! { "$inc": { "counters.following": 1_i64, "counters.posts": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::PostCount]).await;
}

#[tokio::test]
async fn numbers_that_are_given_out_twice_or_too_high_are_reported() {
    let world = World::new().await;
    let (edge, post, comment) = (world.edge(), world.posts[1], world.comments[3]);
    // Off the pages, where a follower is known by its number too.
    world.set(USERS, world.bob, doc! { "$set": { "followerSeq": 0_i64 } }).await;
    world.assert_reported(&[DriftKind::FollowerSeq]).await;
    world.set(USERS, world.bob, doc! { "$set": { "followerSeq": 1_i64 } }).await;
    world.set(POSTS, post, doc! { "$set": { "seq": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::PostSeq]).await;
    world.set(POSTS, post, doc! { "$set": { "seq": 9_i64 } }).await;
    world.assert_reported(&[DriftKind::PostSeq]).await;
    world.set(POSTS, post, doc! { "$set": { "seq": 2_i64 } }).await;
    // Not among those that the post keeps.
    world.set(COMMENTS, world.comments[1], doc! { "$set": { "seq": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::CommentSeq]).await;
    world.set(COMMENTS, world.comments[1], doc! { "$set": { "seq": 2_i64 } }).await;
    // Posts that were counted in another order than that of their ids are as good.
    world.set(POSTS, world.posts[0], doc! { "$set": { "seq": 2_i64 } }).await;
    world.set(POSTS, post, doc! { "$set": { "seq": 1_i64 } }).await;
    world.assert_reported(&[]).await;
    world.update(FOLLOWS, edge, doc! { "$set": { "seq": 2_i64 } }).await;
    world.assert_reported(&[DriftKind::FollowerSeq, DriftKind::OverflowPages]).await;
    world.set(COMMENTS, comment, doc! { "$set": { "seq": 99_i64 } }).await;
    let kinds = [DriftKind::FollowerSeq, DriftKind::CommentSeq, DriftKind::OverflowPages, DriftKind::RecentComments];
    world.assert_reported(&kinds).await;
}

#[tokio::test]
async fn what_belongs_to_nobody_is_reported() {
    let world = World::new().await;
    let nobody = b(new_id());
    let edge = world.copy(FOLLOWS, world.edge(), doc! { "followerId": nobody, "followeeId": nobody, "seq": Bson::Null }).await;
    world.assert_reported(&[DriftKind::OrphanEdge]).await;
    world.delete(FOLLOWS, doc! { "_id": b(edge) }).await;
    let post = world.copy(POSTS, doc! { "_id": b(world.posts[1]) }, doc! {}).await;
    world.set(POSTS, post, doc! { "$set": { "author.userId": nobody } }).await;
    world.assert_reported(&[DriftKind::OrphanPost]).await;
    world.delete(POSTS, doc! { "_id": b(post) }).await;
    let comment = doc! { "_id": b(world.comments[2]) };
    let lost = world.copy(COMMENTS, comment.clone(), doc! { "postId": nobody }).await;
    world.assert_reported(&[DriftKind::OrphanComment]).await;
    // One that waits for the applier is deleted by it.
    world.set(COMMENTS, lost, doc! { "$set": { "pending": true }, "$unset": { "seq": "" } }).await;
    world.assert_reported(&[]).await;
    settle(world.db.store()).await;
    let fields = doc! { "parentId": nobody, "seq": Bson::Null };
    world.copy(COMMENTS, comment, fields).await;
    world.assert_reported(&[DriftKind::OrphanComment]).await;
}

#[tokio::test]
async fn totals_of_a_post_and_of_a_comment_that_drift_are_reported() {
    let world = World::new().await;
    let post = world.posts[0];
    world.set(POSTS, post, doc! { "$inc": { "counters.comments": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::CommentCount]).await;
    world.set(POSTS, post, doc! { "$inc": { "counters.comments": -1_i64, "counters.tombstones": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::TombstoneCount]).await;
    world.set(POSTS, post, doc! { "$inc": { "counters.tombstones": -1_i64 } }).await;
    // The first comment is not among those that the post keeps.
    world.set(COMMENTS, world.comments[0], doc! { "$inc": { "counters.replies": -1_i64 } }).await;
    world.assert_reported(&[DriftKind::ReplyCount]).await;
    world.set(COMMENTS, world.comments[0], doc! { "$inc": { "counters.replies": 1_i64, "counters.children": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::ReplyCount]).await;
    world.set(COMMENTS, world.comments[0], doc! { "$inc": { "counters.children": -1_i64 } }).await;
    world.set(COMMENTS, world.comments[1], doc! { "$set": { "depth": 2 } }).await;
    world.assert_reported(&[DriftKind::CommentPath]).await;
}

#[tokio::test]
async fn newest_comments_that_are_not_the_newest_or_not_like_them_are_reported() {
    let world = World::new().await;
    let newest = *world.comments.last().unwrap();
    world.set(POSTS, world.posts[0], doc! { "$pop": { "recentComments": 1 } }).await;
    world.assert_reported(&[DriftKind::RecentComments]).await;
    // What is deleted and not applied leaves the subset before the next one comes in.
    let pull = doc! { "$pull": { "recentComments": { "_id": b(newest) } } };
    world.set(POSTS, world.posts[0], pull).await;
    world.set(COMMENTS, newest, doc! { "$set": { "state": "removed", "pending": true } }).await;
    world.assert_reported(&[]).await;
    settle(world.db.store()).await;
    world.assert_reported(&[]).await;
    let newest = world.comments[world.comments.len() - 2];
    world.set(COMMENTS, newest, doc! { "$set": { "text": "Another comment" } }).await;
    world.assert_reported(&[DriftKind::RecentComments]).await;
}

#[tokio::test]
async fn flags_and_pages_that_drift_are_reported() {
    let world = World::new().await;
    world.set(USERS, world.bob, doc! { "$set": { "outlier": { "state": "ready", "since": date(now()) } } }).await;
    world.assert_reported(&[DriftKind::OutlierFlag, DriftKind::OverflowPages]).await;
    world.set(USERS, world.bob, doc! { "$unset": { "outlier": "" } }).await;
    let page = doc! { "userId": b(world.alice), "page": 0_i64 };
    world.update(USER_OVERFLOW, page.clone(), doc! { "$pop": { "followers": 1 } }).await;
    world.assert_reported(&[DriftKind::OverflowPages]).await;
    world.delete(USER_OVERFLOW, page).await;
    world.assert_reported(&[DriftKind::OverflowPages]).await;
    // Behind the last account.
    let nobody =
        doc! { "_id": b(new_id()), "userId": bson::Uuid::from_bytes([0xff; 16]), "page": 0_i64, "followers": [], "count": 0_i64 };
    let of_alice = doc! { "$set": { "outlier.state": "building" } };
    world.set(USERS, world.alice, of_alice).await;
    world.assert_reported(&[]).await;
    world.db.store().coll::<Document>(USER_OVERFLOW).insert_one(nobody).await.unwrap();
    world.assert_reported(&[DriftKind::OverflowPages]).await;
}

#[tokio::test]
async fn posts_that_their_readers_cannot_see_are_reported() {
    let world = World::new().await;
    let post = world.posts[0];
    world.set(POSTS, post, doc! { "$set": { "delivery.state": "pending", "delivery.runAfter": date(now()) } }).await;
    world.assert_reported(&[DriftKind::NotPulled]).await;
    world.set(POSTS, post, doc! { "$set": { "delivery.pull": b(world.bob) } }).await;
    world.assert_reported(&[]).await;
    world.set(POSTS, post, doc! { "$unset": { "delivery.runAfter": "" } }).await;
    world.assert_reported(&[DriftKind::ParkedFanout]).await;
    world.set(POSTS, post, doc! { "$set": { "delivery.state": "pull" } }).await;
    world.assert_reported(&[DriftKind::NotPulled]).await;
    world.set(USERS, world.bob, doc! { "$set": { "pulledSince": date(now()) } }).await;
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn a_hole_in_a_window_is_reported_where_the_window_is_to_be_complete() {
    let world = World::new().await;
    let (alice, bob) = (b(world.alice), b(world.bob));
    let entry = |owner: bson::Uuid, post: PostId| doc! { "ownerId": owner, "postId": b(post) };
    world.delete(TIMELINE_ENTRIES, entry(alice, world.posts[0])).await;
    world.assert_reported(&[DriftKind::MissingEntry]).await;
    // Below the window it is pulled.
    let trimmed = doc! { "_id": alice, "completeSince": b(world.posts[1]), "lastReadAt": date(now()) };
    world.db.store().coll::<Document>(TIMELINES).insert_one(trimmed).await.unwrap();
    world.assert_reported(&[]).await;
    world.delete(TIMELINE_ENTRIES, entry(alice, world.posts[2])).await;
    world.assert_reported(&[DriftKind::MissingEntry]).await;
    // So it is where the follow is not merged.
    let edge = doc! { "followerId": alice, "followeeId": bob };
    world.update(FOLLOWS, edge, doc! { "$set": { "merged": false } }).await;
    world.assert_reported(&[]).await;
    world.delete(TIMELINE_ENTRIES, entry(bob, world.posts[1])).await;
    world.assert_reported(&[DriftKind::MissingEntry]).await;
}

#[tokio::test]
async fn a_follow_across_a_block_is_reported() {
    let world = World::new().await;
    let block = doc! { "_id": b(new_id()), "blockerId": b(world.alice), "blockedId": b(world.bob), "createdAt": date(now()) };
    world.db.store().coll::<Document>(BLOCKS).insert_one(block).await.unwrap();
    world.assert_reported(&[DriftKind::BlockedEdge]).await;
    // A sweep that is to be done will take it.
    world.update(BLOCKS, doc! {}, doc! { "$set": { "pending": true } }).await;
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn a_request_to_an_account_that_is_not_private_is_reported() {
    let world = World::new().await;
    let store = world.db.store();
    world.set(USERS, world.alice, doc! { "$set": { "settings.private": true } }).await;
    let carol = user(store).await;
    store.follow(carol, world.alice).await.unwrap().unwrap();
    settle(store).await;
    world.assert_reported(&[]).await;
    world.set(USERS, world.alice, doc! { "$set": { "settings.private": false } }).await;
    world.assert_reported(&[DriftKind::StrayRequest]).await;
    // Whoever has just gone public is still accepting.
    world.set(USERS, world.alice, doc! { "$set": { "opening": 1_i64 } }).await;
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn what_the_applier_does_not_take_for_a_minute_is_reported() {
    let world = World::new().await;
    let wish = b(ids::floor_at(now().minus(std::time::Duration::from_secs(70))));
    let edge = world.edge();
    world.update(FOLLOWS, edge.clone(), doc! { "$set": { "pending": true } }).await;
    world.assert_reported(&[]).await;
    world.update(FOLLOWS, edge, doc! { "$set": { "wish": wish } }).await;
    world.assert_reported(&[DriftKind::StuckPending]).await;
    // An applier that runs meanwhile is waited for.
    let (drift, ()) = tokio::join!(verify(world.db.store()), settle(world.db.store()));
    assert_eq!(drift.unwrap(), []);
}

#[tokio::test]
async fn versions_of_nothing_and_numbers_that_were_never_given_out_are_reported() {
    let world = World::new().await;
    let post = world.posts[1];
    for text in ["second", "third"] {
        world.db.store().edit_post(post, world.bob, text.to_owned()).await.unwrap();
    }
    world.assert_reported(&[]).await;
    let first = doc! { "postId": b(post), "seq": 1_i64 };
    let lost = world.copy(POST_REVISIONS, first.clone(), doc! { "postId": b(new_id()) }).await;
    world.assert_reported(&[DriftKind::OrphanRevision]).await;
    world.delete(POST_REVISIONS, doc! { "_id": b(lost) }).await;
    world.set(POSTS, post, doc! { "$set": { "revisionSeq": 1_i64 } }).await;
    world.assert_reported(&[DriftKind::RevisionSeq]).await;
    // Fifty more that left the first one behind.
    world.set(POSTS, post, doc! { "$set": { "revisionSeq": 51_i64 } }).await;
    world.assert_reported(&[DriftKind::RevisionSeq]).await;
    world.delete(POST_REVISIONS, first).await;
    world.assert_reported(&[]).await;
}
