//! Each kind of drift, written around the store, is mended by a repair, which says so, and after which nothing is found.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::sync::atomic::AtomicBool;

use bson::{Bson, Document, doc};
use futures::future::join_all;
use rookery_domain::{CommentId, PostId, UserId, ids, jobs::JobState, post::Visibility};

use super::{
    tests::{World, settle},
    *,
};
use crate::{
    Settings,
    collections::{BLOCKS, COMMENTS, FOLLOWS, LIKES, MUTES, POSTS, REPOSTS, TIMELINE_ENTRIES, USERS},
    comments::{CommentDoc, NewComment},
    graph::FollowDoc,
    posts::NewPost,
    store::{b, date, new_id, now},
    testing::{TestDatabase, user},
    users::UserDoc,
};

impl World {
    /// What a repair says of each kind: how many were found and mended.
    async fn repaired(&self) -> Vec<(String, i64, i64)> {
        let found = repair(self.db.store()).await.unwrap();
        assert!(found.kinds().all(|finding| !finding.examples.is_empty()));
        found.kinds().map(|finding| (finding.kind.clone(), finding.found, finding.repaired)).collect()
    }

    /// The drift is reported, and mended as what it is, and then there is none. The order of kinds is that of their names.
    async fn assert_mended(&self, kinds: &[DriftKind]) {
        let mut sorted = kinds.to_vec();
        sorted.sort_unstable();
        self.assert_reported(&sorted).await;
        let mut names: Vec<String> = kinds.iter().map(DriftKind::to_string).collect();
        names.sort_unstable();
        let repaired = self.repaired().await;
        assert_eq!(repaired.iter().map(|(kind, ..)| kind.clone()).collect::<Vec<_>>(), names, "{repaired:?}");
        assert!(repaired.iter().all(|(_, found, mended)| found == mended), "{repaired:?}");
        self.assert_reported(&[]).await;
        assert_eq!(self.repaired().await, [], "a second repair finds nothing to do");
    }

    async fn account(&self, user: UserId) -> UserDoc {
        self.db.store().coll::<UserDoc>(USERS).find_one(doc! { "_id": b(user) }).await.unwrap().unwrap()
    }

    async fn comment(&self, id: CommentId) -> CommentDoc {
        self.db.store().coll::<CommentDoc>(COMMENTS).find_one(doc! { "_id": b(id) }).await.unwrap().unwrap()
    }
}

fn inc(field: &str, by: i64) -> Document {
    doc! { "$inc": { field: by } }
}

#[tokio::test]
async fn counters_are_made_from_what_they_count() {
    let world = World::new().await;
    let (bob, post) = (world.bob, world.posts[0]);
    for (field, kind) in [
        ("counters.followers", DriftKind::FollowerCount),
        ("counters.following", DriftKind::FollowingCount),
        ("counters.posts", DriftKind::PostCount),
    ] {
        for by in [1, -1] {
            world.set(USERS, bob, inc(field, by)).await;
            world.assert_mended(&[kind]).await;
        }
    }
    for (field, kind) in [("counters.comments", DriftKind::CommentCount), ("counters.tombstones", DriftKind::TombstoneCount)] {
        world.set(POSTS, post, inc(field, 1)).await;
        world.assert_mended(&[kind]).await;
    }
    for field in ["counters.replies", "counters.children"] {
        world.set(COMMENTS, world.comments[0], inc(field, 1)).await;
        world.assert_mended(&[DriftKind::ReplyCount]).await;
    }
    // One that the post keeps a copy of.
    world.set(COMMENTS, world.comments[9], inc("counters.replies", 1)).await;
    world.set(POSTS, post, doc! { "$set": { "recentComments.7.replies": 1_i64 } }).await;
    world.assert_mended(&[DriftKind::ReplyCount]).await;
}

#[tokio::test]
async fn numbers_that_are_given_out_twice_are_given_out_anew() {
    let world = World::new().await;
    world.set(USERS, world.bob, doc! { "$set": { "followerSeq": 0_i64 } }).await;
    world.assert_mended(&[DriftKind::FollowerSeq]).await;
    for (seq, mended) in [(1_i64, 2), (9, 9)] {
        world.set(POSTS, world.posts[1], doc! { "$set": { "seq": seq } }).await;
        world.assert_mended(&[DriftKind::PostSeq]).await;
        let post = doc! { "_id": b(world.posts[1]), "seq": mended };
        assert_eq!(world.db.store().coll::<Document>(POSTS).count_documents(post).await.unwrap(), 1);
    }
    world.set(COMMENTS, world.comments[1], doc! { "$set": { "seq": 1_i64 } }).await;
    world.assert_mended(&[DriftKind::CommentSeq]).await;
    assert_eq!(world.comment(world.comments[1]).await.seq, Some(2), "of two the younger moves, to where it was");
    // On the pages too, where a follower is known by its number.
    world.update(FOLLOWS, world.edge(), doc! { "$set": { "seq": 2_i64 } }).await;
    world.assert_reported(&[DriftKind::FollowerSeq, DriftKind::OverflowPages]).await;
    assert_eq!(world.repaired().await, [("follower_seq".to_owned(), 1, 1)], "the pages are made with the numbers");
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn what_nobody_would_apply_any_more_is_applied() {
    let world = World::new().await;
    let store = world.db.store();
    let lost = |unset: Document| doc! { "$unset": unset };
    let carol = user(store).await;
    store.follow(carol, world.bob).await.unwrap().unwrap();
    let edge = doc! { "followerId": b(carol), "followeeId": b(world.bob) };
    world.update(FOLLOWS, edge.clone(), doc! { "$set": { "state": "removed" } }).await;
    world.assert_mended(&[DriftKind::LostPending]).await;
    assert_eq!(store.coll::<FollowDoc>(FOLLOWS).count_documents(edge.clone()).await.unwrap(), 0);
    // Written, and its mark lost before it was counted.
    let id = b(new_id());
    let new = doc! { "_id": id, "followerId": b(carol), "followeeId": b(world.bob), "state": "active", "wish": b(new_id()), "merged": false };
    store.coll::<Document>(FOLLOWS).insert_one(new).await.unwrap();
    world.assert_mended(&[DriftKind::LostPending]).await;
    assert_eq!(world.account(carol).await.counters.following, 1);
    world.set(POSTS, world.posts[2], doc! { "$set": { "state": "deleted" } }).await;
    world.assert_mended(&[DriftKind::LostPending]).await;
    assert_eq!(world.account(world.bob).await.counters.posts, 2);
    // Uncounted and forgotten: its number is lost with its count.
    world.set(COMMENTS, world.comments[3], lost(doc! { "seq": "" })).await;
    world.set(POSTS, world.posts[0], inc("counters.comments", -1)).await;
    world.set(POSTS, world.posts[0], doc! { "$pull": { "recentComments": { "_id": b(world.comments[3]) } } }).await;
    let reported = verify(store).await.unwrap();
    assert!(reported.iter().any(|drift| drift.kind == DriftKind::LostPending), "{reported:#?}");
    world.repaired().await;
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn what_belongs_to_nobody_is_removed_and_uncounted() {
    let world = World::new().await;
    let store = world.db.store();
    let nobody = b(new_id());
    // A follow of Bob that he counts, by an account that is not there; and one to it.
    let of_alice = doc! { "followerId": b(world.alice), "followeeId": b(world.bob) };
    world.copy(FOLLOWS, of_alice.clone(), doc! { "followerId": nobody, "seq": 2_i64 }).await;
    world.copy(FOLLOWS, of_alice, doc! { "followeeId": nobody, "seq": 1_i64 }).await;
    world.set(USERS, world.bob, doc! { "$inc": { "counters.followers": 1_i64, "followerSeq": 1_i64 } }).await;
    world.set(USERS, world.alice, inc("counters.following", 1)).await;
    world.assert_mended(&[DriftKind::OrphanEdge]).await;
    assert_eq!(world.account(world.bob).await.counters.followers, 1);
    assert_eq!(world.account(world.alice).await.counters.following, 1);
    let post = world.copy(POSTS, doc! { "_id": b(world.posts[1]) }, doc! {}).await;
    world.set(POSTS, post, doc! { "$set": { "author.userId": nobody } }).await;
    world.assert_mended(&[DriftKind::OrphanPost]).await;
    let comment = doc! { "_id": b(world.comments[2]) };
    world.copy(COMMENTS, comment.clone(), doc! { "postId": nobody }).await;
    world.assert_mended(&[DriftKind::OrphanComment]).await;
    let block = doc! { "_id": b(new_id()), "blockerId": b(world.alice), "blockedId": nobody, "createdAt": date(now()) };
    store.coll::<Document>(BLOCKS).insert_one(block).await.unwrap();
    world.assert_mended(&[DriftKind::OrphanBlock]).await;
    let mute = doc! { "_id": b(new_id()), "muterId": nobody, "mutedId": b(world.bob), "createdAt": date(now()) };
    store.coll::<Document>(MUTES).insert_one(mute).await.unwrap();
    world.assert_mended(&[DriftKind::OrphanBlock]).await;
}

#[tokio::test]
async fn a_lost_comment_that_is_answered_leaves_a_tombstone_in_its_place() {
    let world = World::new().await;
    world.delete(COMMENTS, doc! { "_id": b(world.comments[0]) }).await;
    world.assert_mended(&[DriftKind::CommentCount, DriftKind::OrphanComment]).await;
    let buried = world.comment(world.comments[0]).await;
    assert_eq!((buried.seq, buried.text, buried.counters.children), (Some(1), None, 1));
    // A reply that nobody counts, to nobody.
    let fields = doc! { "parentId": b(new_id()), "seq": Bson::Null };
    world.copy(COMMENTS, doc! { "_id": b(world.comments[2]) }, fields).await;
    world.assert_reported(&[DriftKind::OrphanComment]).await;
    world.repaired().await;
    world.repaired().await;
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn the_path_of_a_comment_is_written_from_what_it_answers() {
    let world = World::new().await;
    let (root, reply, other) = (world.comments[0], world.comments[1], world.comments[2]);
    for path in [vec![], vec![b(other)], vec![b(other), b(root)]] {
        world.set(COMMENTS, reply, doc! { "$set": { "ancestors": path } }).await;
        world.assert_mended(&[DriftKind::CommentPath]).await;
        assert_eq!(world.comment(reply).await.ancestors, [b(root)]);
    }
    // One that answers nothing, and with it what answers it.
    world.set(COMMENTS, root, doc! { "$set": { "ancestors": [b(other)], "depth": 1 } }).await;
    world.assert_mended(&[DriftKind::CommentPath]).await;
    let (root, reply) = (world.comment(root).await, world.comment(reply).await);
    // With the copy that the post keeps.
    let (newest, copy) = (world.comments[16], doc! { "_id": b(world.posts[0]) });
    world.set(COMMENTS, newest, doc! { "$set": { "ancestors": [b(other)], "depth": 1 } }).await;
    world.update(POSTS, copy, doc! { "$set": { "recentComments.0.depth": 1 } }).await;
    world.assert_mended(&[DriftKind::CommentPath]).await;
    assert_eq!((root.ancestors, root.depth, reply.ancestors, reply.depth), (vec![], 0, vec![root.id], 1));
}

#[tokio::test]
async fn newest_comments_are_taken_from_the_comments() {
    let world = World::new().await;
    world.set(POSTS, world.posts[0], doc! { "$pop": { "recentComments": 1 } }).await;
    world.assert_mended(&[DriftKind::RecentComments]).await;
    world.set(COMMENTS, world.comments[16], doc! { "$set": { "text": "Another comment" } }).await;
    world.assert_mended(&[DriftKind::RecentComments]).await;
    world.set(POSTS, world.posts[0], doc! { "$set": { "recentComments": [] } }).await;
    world.assert_mended(&[DriftKind::RecentComments]).await;
}

#[tokio::test]
async fn flags_and_pages_are_made_from_the_followers() {
    let world = World::new().await;
    let store = world.db.store();
    world.set(USERS, world.bob, doc! { "$set": { "outlier": { "state": "ready", "since": date(now()) } } }).await;
    world.assert_reported(&[DriftKind::OutlierFlag, DriftKind::OverflowPages]).await;
    assert_eq!(world.repaired().await, [("outlier_flag".to_owned(), 1, 1)], "an account that is no outlier has no pages");
    world.assert_reported(&[]).await;
    // Not flagged, and its pages are there.
    world.set(USERS, world.alice, doc! { "$unset": { "outlier": "" } }).await;
    world.assert_reported(&[DriftKind::OutlierFlag, DriftKind::OverflowPages]).await;
    world.repaired().await;
    world.assert_reported(&[]).await;
    assert!(world.account(world.alice).await.outlier.is_some());
    let page = |user: bson::Uuid, page: i64| doc! { "userId": user, "page": page };
    world.update(USER_OVERFLOW, page(b(world.alice), 0), doc! { "$pop": { "followers": 1 } }).await;
    world.assert_mended(&[DriftKind::OverflowPages]).await;
    world.update(USER_OVERFLOW, page(b(world.alice), 0), inc("count", 1)).await;
    world.assert_mended(&[DriftKind::OverflowPages]).await;
    world.delete(USER_OVERFLOW, page(b(world.alice), 0)).await;
    world.assert_mended(&[DriftKind::OverflowPages]).await;
    // Of an ordinary account, of nobody, and far behind the last follower.
    for (user, number) in [(b(world.bob), 0), (b(new_id()), 3), (bson::Uuid::from_bytes([0xff; 16]), 0), (b(world.alice), 77)] {
        let mut stray = page(user, number);
        stray.extend(doc! { "_id": b(new_id()), "followers": [], "count": 0_i64 });
        store.coll::<Document>(USER_OVERFLOW).insert_one(stray).await.unwrap();
        world.assert_mended(&[DriftKind::OverflowPages]).await;
    }
}

#[tokio::test]
async fn posts_that_their_readers_cannot_see_are_pulled_delivered_or_entered() {
    let world = World::new().await;
    let (post, store) = (world.posts[0], world.db.store());
    let pull = doc! { "$set": { "delivery.state": "pull" } };
    world.set(POSTS, post, pull).await;
    world.assert_mended(&[DriftKind::NotPulled]).await;
    assert!(world.account(world.bob).await.pulled_since.is_some());
    let parked =
        doc! { "$set": { "delivery.state": "pending", "delivery.pull": b(world.bob) }, "$unset": { "delivery.pulledAt": "" } };
    world.set(POSTS, post, parked).await;
    world.assert_mended(&[DriftKind::ParkedFanout]).await;
    settle(store).await;
    let pending = doc! { "$set": { "delivery.state": "pending", "delivery.runAfter": date(now()) } };
    world.set(POSTS, post, pending).await;
    world.assert_mended(&[DriftKind::NotPulled]).await;
    settle(store).await;
    for owner in [world.alice, world.bob] {
        let entry = doc! { "ownerId": b(owner), "postId": b(world.posts[1]) };
        world.delete(TIMELINE_ENTRIES, entry).await;
    }
    world.assert_reported(&[DriftKind::MissingEntry]).await;
    assert_eq!(world.repaired().await, [("missing_entry".to_owned(), 2, 2)]);
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn reactions_are_counted_numbered_delivered_and_entered_anew() {
    let world = World::new().await;
    let store = world.db.store();
    let (post, comment) = (world.posts[0], world.comments[16]);
    for user in [world.alice, world.bob] {
        store.like_post(post, user).await.unwrap().unwrap();
    }
    store.like_comment(comment, world.bob).await.unwrap().unwrap();
    // Of a post of whom Bob does not follow himself: his followers have it in their windows.
    let new = NewPost { id: PostId(new_id()), author: world.alice, text: "A post".to_owned(), visibility: Visibility::Public };
    let other = store.create_post(new).await.unwrap().unwrap().id;
    store.repost(other, world.bob).await.unwrap().unwrap();
    settle(store).await;
    world.assert_reported(&[]).await;
    for by in [1, -1] {
        world.set(POSTS, post, inc("counters.likes", by)).await;
        world.assert_mended(&[DriftKind::LikeCount]).await;
        world.set(POSTS, other, inc("counters.reposts", by)).await;
        world.assert_mended(&[DriftKind::RepostCount]).await;
    }
    // With the copy that its post keeps.
    world.set(COMMENTS, comment, inc("counters.likes", 1)).await;
    world.update(POSTS, doc! { "_id": b(post) }, inc("recentComments.0.likes", 1)).await;
    world.assert_mended(&[DriftKind::LikeCount]).await;
    world.update(POSTS, doc! { "_id": b(post) }, inc("recentComments.0.likes", 1)).await;
    world.assert_mended(&[DriftKind::RecentComments]).await;
    let like = doc! { "targetId": b(post), "userId": b(world.bob) };
    for (seq, mended) in [(1_i64, 2_i64), (9, 9)] {
        world.update(LIKES, like.clone(), doc! { "$set": { "seq": seq } }).await;
        world.assert_mended(&[DriftKind::ReactionSeq]).await;
        let mut numbered = like.clone();
        numbered.insert("seq", mended);
        assert_eq!(store.coll::<Document>(LIKES).count_documents(numbered).await.unwrap(), 1);
    }
    for target in [post.into(), uuid::Uuid::from(comment)] {
        world.copy(LIKES, doc! { "targetId": b(target) }, doc! { "targetId": b(new_id()) }).await;
        world.assert_mended(&[DriftKind::OrphanReaction]).await;
    }
    world.copy(REPOSTS, doc! { "postId": b(other) }, doc! { "postId": b(new_id()) }).await;
    world.assert_mended(&[DriftKind::OrphanReaction]).await;
    // Taken back, and its mark lost.
    world.update(LIKES, like.clone(), doc! { "$set": { "state": "removed" } }).await;
    world.assert_mended(&[DriftKind::LostPending]).await;
    assert_eq!(store.coll::<Document>(LIKES).count_documents(like).await.unwrap(), 0);
    let long_ago = b(ids::floor_at(now().minus(std::time::Duration::from_secs(70))));
    let waits = doc! { "_id": long_ago, "userId": b(user(store).await), "seq": Bson::Null, "pending": true };
    world.copy_as(LIKES, doc! { "targetId": b(comment) }, waits).await;
    world.assert_mended(&[DriftKind::StuckPending]).await;
    // Nobody would find it any more.
    world.delete(TIMELINE_ENTRIES, doc! { "ownerId": b(world.alice), "actorId": b(world.bob), "postId": b(other) }).await;
    world.assert_mended(&[DriftKind::MissingEntry]).await;
    let repost = doc! { "postId": b(other) };
    world.update(REPOSTS, repost.clone(), doc! { "$set": { "delivery.state": "pull" } }).await;
    world.assert_mended(&[DriftKind::NotPulled]).await;
    let parked =
        doc! { "$set": { "delivery.state": "pending", "delivery.pull": b(world.bob) }, "$unset": { "delivery.pulledAt": "" } };
    world.update(REPOSTS, repost, parked).await;
    world.assert_mended(&[DriftKind::ParkedFanout]).await;
}

#[tokio::test]
async fn edges_across_a_block_and_requests_of_nobody_are_settled() {
    let world = World::new().await;
    let store = world.db.store();
    let block = doc! { "_id": b(new_id()), "blockerId": b(world.alice), "blockedId": b(world.bob), "createdAt": date(now()) };
    store.coll::<Document>(BLOCKS).insert_one(block).await.unwrap();
    world.assert_mended(&[DriftKind::BlockedEdge]).await;
    let counters = world.account(world.alice).await.counters;
    assert_eq!((counters.followers, counters.following), (2, 0), "both edges are gone");
    let (carol, dora) = (user(store).await, user(store).await);
    world.set(USERS, carol, doc! { "$set": { "settings.private": true } }).await;
    store.follow(dora, crate::graph::Followee { id: carol, private: true }).await.unwrap().unwrap();
    settle(store).await;
    // One that is counted although nobody consented.
    let edge = doc! { "followerId": b(dora), "followeeId": b(carol) };
    world.update(FOLLOWS, edge.clone(), doc! { "$set": { "seq": 1_i64, "followedAt": date(now()) } }).await;
    world.set(USERS, carol, doc! { "$inc": { "counters.followers": 1_i64, "followerSeq": 1_i64 } }).await;
    world.set(USERS, dora, inc("counters.following", 1)).await;
    world.assert_mended(&[DriftKind::StrayRequest]).await;
    assert_eq!(world.account(carol).await.counters.followers, 0);
    // One that waits for an account that is not private.
    world.set(USERS, carol, doc! { "$set": { "settings.private": false } }).await;
    world.assert_mended(&[DriftKind::StrayRequest]).await;
    assert!(store.follows(dora, carol).await.unwrap());
}

#[tokio::test]
async fn what_has_waited_for_long_is_applied() {
    let world = World::new().await;
    let long_ago = ids::floor_at(now().minus(std::time::Duration::from_secs(70)));
    let wait = doc! { "$set": { "pending": true, "wish": b(long_ago) } };
    world.update(FOLLOWS, world.edge(), wait).await;
    world.assert_mended(&[DriftKind::StuckPending]).await;
    let since = doc! { "$set": { "pending": true, "createdAt": date(ids::time_of(long_ago)) } };
    world.set(POSTS, world.posts[0], since.clone()).await;
    world.set(COMMENTS, world.comments[2], doc! { "$set": { "pending": true } }).await;
    world.assert_mended(&[DriftKind::StuckPending]).await;
}

#[tokio::test]
async fn names_that_are_not_those_of_the_profile_are_rewritten() {
    let world = World::new().await;
    let store = world.db.store();
    let rename = |path: &str| doc! { "$set": { path: "Somebody else" } };
    world.set(POSTS, world.posts[1], rename("author.displayName")).await;
    world.assert_mended(&[DriftKind::NameCopy]).await;
    world.set(COMMENTS, world.comments[1], rename("author.displayName")).await;
    world.assert_mended(&[DriftKind::NameCopy]).await;
    world.set(POSTS, world.posts[0], rename("recentComments.3.author.displayName")).await;
    world.assert_mended(&[DriftKind::NameCopy]).await;
    let alice = world.account(world.alice).await;
    let mention = doc! { "userId": alice.id, "handle": alice.handle.unwrap(), "displayName": "Somebody else" };
    world.set(POSTS, world.posts[2], doc! { "$set": { "mentions": [mention] } }).await;
    world.assert_mended(&[DriftKind::NameCopy]).await;
    // While a job is about to rewrite the copies, they are as they should be.
    let handle = rookery_domain::Handle::parse("renamed").unwrap();
    store.change_handle(world.bob, &handle).await.unwrap();
    world.assert_reported(&[]).await;
    store.finish_jobs().await.unwrap();
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn everything_at_once_is_mended_in_small_batches_that_stop_anywhere() {
    let world = World::new().await;
    let store = world.db.store();
    world.set(USERS, world.bob, inc("counters.followers", 1)).await;
    world.set(USERS, world.alice, inc("counters.posts", 1)).await;
    world.set(POSTS, world.posts[0], inc("counters.comments", 3)).await;
    world.set(COMMENTS, world.comments[0], inc("counters.children", 3)).await;
    world.delete(USER_OVERFLOW, doc! {}).await;
    world.delete(TIMELINE_ENTRIES, doc! { "ownerId": b(world.alice) }).await;
    world.set(POSTS, world.posts[1], doc! { "$set": { "author.displayName": "Somebody else" } }).await;
    let kinds = [
        DriftKind::FollowerCount,
        DriftKind::PostCount,
        DriftKind::CommentCount,
        DriftKind::ReplyCount,
        DriftKind::OverflowPages,
        DriftKind::MissingEntry,
        DriftKind::NameCopy,
    ];
    world.assert_reported(&kinds).await;
    // A pass that stops after each key finds the same.
    let mut found = Findings::default();
    let mut stops = 0;
    for repair in [false, true] {
        for stage in CHECKS {
            let mut after = None;
            loop {
                let mut pass = Pass::new(store, repair);
                (pass.after, pass.most, pass.findings) = (after, 1, std::mem::take(&mut found));
                after = pass.run(stage).await.unwrap();
                found = pass.findings;
                stops += 1;
                if after.is_none() {
                    break;
                }
            }
        }
    }
    assert!(stops > 30, "{stops}");
    assert_eq!(found.kinds().map(|finding| (finding.found, finding.repaired)).collect::<Vec<_>>(), [(2, 1); 7], "{found:#?}");
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn a_job_checks_and_another_repairs_and_both_say_what_they_found() {
    let world = World::new().await;
    let store = world.db.store();
    for _ in 0..7 {
        let fan = user(store).await;
        world.set(USERS, fan, inc("counters.followers", 1)).await;
    }
    for (repair, repaired) in [(false, 0), (true, 7)] {
        let id = store.start_check(world.alice, repair).await.unwrap();
        store.finish_jobs().await.unwrap();
        let job = store.jobs(rookery_domain::Limit::DEFAULT, None).await.unwrap().items.remove(0);
        assert_eq!((job.id, job.state, job.user), (id, JobState::Done, world.alice));
        assert!(job.progress > 0);
        let [finding] = &job.findings[..] else { panic!("{job:?}") };
        assert_eq!((finding.kind.as_str(), finding.found, finding.repaired), ("follower_count", 7, repaired));
        assert_eq!(finding.examples.len(), 5, "a job's document is bounded");
    }
    world.assert_reported(&[]).await;
}

#[tokio::test]
async fn a_repair_beside_follows_comments_and_deletions_takes_nothing_from_them() {
    let db = TestDatabase::with(Settings { celebrity_threshold: 6, ..Settings::default() }).await;
    let (store, second) = (db.store(), db.second_store().await);
    let stars = [user(store).await, user(store).await];
    let crowd = join_all((0..12).map(|_| user(store))).await;
    let new = NewPost { id: PostId(new_id()), author: stars[0], text: "A post".to_owned(), visibility: Visibility::Public };
    let post = store.create_post(new).await.unwrap().unwrap().id;
    let over = AtomicBool::new(false);
    let busy = crowd.iter().enumerate().map(|(n, fan)| {
        let store = if n % 2 == 0 { store } else { &second };
        async move {
            for round in 0..15 {
                for star in stars {
                    if (n + round) % 3 == 0 {
                        store.unfollow(*fan, star).await.unwrap();
                    } else {
                        let _ = store.follow(*fan, star).await.unwrap();
                    }
                }
                let new = NewComment { id: CommentId(new_id()), post, parent: None, author: *fan, text: "A comment".to_owned() };
                let comment = store.create_comment(new).await.unwrap().unwrap().id;
                if round % 2 == 0 {
                    let _ = store.delete_comment(comment, *fan).await.unwrap();
                }
            }
        }
    });
    let serving = async {
        join_all(busy).await;
        over.store(true, Ordering::SeqCst);
    };
    let applying = async {
        while !over.load(Ordering::SeqCst) {
            second.apply_follows_step().await.unwrap();
            second.apply_comments_step().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // Counters are pushed off their places all the while.
    let mending = async {
        let mut rounds = 0;
        while !over.load(Ordering::SeqCst) {
            let off = doc! { "$inc": { "counters.followers": 3_i64, "counters.following": 1_i64 } };
            let any = doc! { "_id": b(stars[rounds % 2]) };
            crate::store::until_no_conflict(async || {
                Ok(store.coll::<Document>(USERS).update_one(any.clone(), off.clone()).await?)
            })
            .await
            .unwrap();
            let off = doc! { "$inc": { "counters.comments": -1_i64 } };
            let this = doc! { "_id": b(post), "counters.comments": { "$gte": 1 } };
            crate::store::until_no_conflict(async || {
                Ok(store.coll::<Document>(POSTS).update_one(this.clone(), off.clone()).await?)
            })
            .await
            .unwrap();
            repair(store).await.unwrap();
            rounds += 1;
        }
        rounds
    };
    let ((), (), rounds) = futures::join!(serving, applying, mending);
    assert!(rounds > 0);
    settle(store).await;
    let left = repair(store).await.unwrap();
    assert_eq!(left.left(), 0, "{left:#?}");
    assert_eq!(verify(store).await.unwrap(), []);
}
