//! Comments against the database, with the steps of requests and of the applier forced into every order that matters.

#![expect(clippy::unwrap_used, reason = "in a test a fault is a failure")]

mod editing;
mod reading;

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use futures::{TryStreamExt as _, future::join_all};
use rookery_domain::{
    Handle, Limit, Page,
    comments::{CommentOrder, CommentPage, RECENT_KEPT},
    page::SeqCursor,
    post::Visibility,
};

use super::*;
use crate::{
    pending::Progress,
    posts::{NewPost, RecentCommentDoc},
    store::{new_id, now},
    testing::TestDatabase,
    users::NewUser,
};

/// The steps of a request that writes a comment, one by one.
impl Store {
    pub(crate) async fn insert_comment(&self, new: NewComment, place: Place) -> Result<CommentDoc> {
        self.insert_comments(vec![new.at(place)]).await?.remove(0)
    }

    pub(crate) async fn settle_comment(&self, comment: &CommentDoc) -> Result<Result<(), CommentRefusal>> {
        let forbidden = self.what_forbids(&[comment]).await?.remove(0);
        self.settle_written(comment, forbidden).await
    }
}

/// One post, and what is done under it.
struct World {
    db: TestDatabase,
    post: PostId,
    bob: UserId,
}

impl World {
    async fn new() -> Self {
        let db = TestDatabase::new().await;
        let bob = user(db.store(), "bob").await;
        let post = post(db.store(), user(db.store(), "alice").await).await;
        Self { db, post, bob }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    fn new_comment(&self, text: &str, parent: Option<CommentId>) -> NewComment {
        NewComment { id: CommentId(new_id()), post: self.post, parent, author: self.bob, text: text.to_owned() }
    }

    async fn comment(&self, text: &str, parent: Option<CommentId>) -> CommentId {
        self.store().create_comment(self.new_comment(text, parent)).await.unwrap().unwrap().id
    }

    /// What a request does before it makes its attempt, and a crash leaves.
    async fn insert(&self, text: &str, parent: Option<CommentId>) -> CommentDoc {
        let new = self.new_comment(text, parent);
        let place = self.store().place_for(&new).await.unwrap().unwrap_or_else(|refusal| panic!("{refusal}"));
        self.store().insert_comment(new, place).await.unwrap()
    }

    /// What a request does that looked for the post before it was deleted.
    async fn insert_unseen(&self, text: &str) {
        let bob = self.store().summaries([self.bob]).await.unwrap().remove(&self.bob).unwrap();
        let author =
            AuthorDoc { user_id: b(bob.id), handle: bob.handle.to_string(), display_name: bob.display_name, avatar_url: None };
        let place = Place { author, ancestors: Vec::new(), depth: 0 };
        self.store().insert_comment(self.new_comment(text, None), place).await.unwrap();
    }

    async fn delete(&self, id: CommentId) {
        self.store().delete_comment(id, self.bob).await.unwrap().unwrap();
    }

    async fn delete_post(&self) {
        let deleted = doc! { "$set": { "state": "deleted" } };
        self.posts().update_one(doc! { "_id": b(self.post) }, deleted).await.unwrap();
    }

    async fn drain(&self) {
        while self.store().apply_comments_step().await.unwrap() != Progress::Idle {}
    }

    /// Lets the minute pass after which hidden tombstones go.
    async fn age_tombstones(&self) {
        let past = doc! { "$set": { "purgeAt": bson::DateTime::from_millis(0) } };
        self.store().comment_coll().update_many(doc! { "purgeAt": { "$exists": true } }, past).await.unwrap();
    }

    async fn doc(&self, id: CommentId) -> Option<CommentDoc> {
        self.store().comment_doc(id).await.unwrap()
    }

    async fn all(&self) -> Vec<CommentDoc> {
        self.store().comment_coll().find(doc! { "postId": b(self.post) }).await.unwrap().try_collect().await.unwrap()
    }

    fn posts(&self) -> Collection<Document> {
        self.store().coll(collections::POSTS)
    }

    async fn list(&self, parent: Option<CommentId>, order: CommentOrder, cursor: Option<SeqCursor>, limit: usize) -> CommentPage {
        let limit = Limit::new(limit).unwrap();
        self.store().comments(self.post, None, parent, order, cursor, limit).await.unwrap().unwrap()
    }

    async fn walk(&self, parent: Option<CommentId>, order: CommentOrder, limit: usize) -> Vec<Comment> {
        let (mut walked, mut cursor) = (Vec::new(), None);
        loop {
            let Page { items, next, .. } = self.list(parent, order, cursor, limit).await.page;
            assert!(items.len() == limit || next.is_none(), "a page is full unless the list is at its end");
            walked.extend(items);
            cursor = next;
            if cursor.is_none() {
                return walked;
            }
        }
    }

    async fn subset(&self) -> Vec<RecentCommentDoc> {
        let post = self.store().coll::<crate::posts::PostDoc>(collections::POSTS).find_one(doc! { "_id": b(self.post) }).await;
        post.unwrap().unwrap().recent_comments
    }

    /// Counts everything anew: with nothing pending, totals, lists, subset and tree must agree. Returns how many are live and how many
    /// are shown tombstones.
    async fn check(&self) -> (usize, usize) {
        let all = self.all().await;
        assert!(all.iter().all(|comment| comment.pending.is_none()), "nothing is pending");
        assert!(all.iter().all(|comment| comment.state != CommentStateDoc::Removed), "everything deleted is applied");
        let mut shown: Vec<&CommentDoc> = all.iter().filter(|comment| comment.seq.is_some()).collect();
        shown.sort_by_key(|comment| comment.seq);
        let live: Vec<&CommentDoc> = shown.iter().copied().filter(|comment| comment.state == CommentStateDoc::Live).collect();
        assert_eq!(
            live.len(),
            all.iter().filter(|comment| comment.state == CommentStateDoc::Live).count(),
            "every live one is counted"
        );

        let post = self.store().coll::<crate::posts::PostDoc>(collections::POSTS).find_one(doc! { "_id": b(self.post) }).await;
        let post = post.unwrap().unwrap();
        assert_eq!(usize::try_from(post.counters.comments), Ok(live.len()), "comments");
        assert_eq!(usize::try_from(post.counters.tombstones), Ok(shown.len() - live.len()), "tombstones");
        let numbers: BTreeSet<i64> = shown.iter().filter_map(|comment| comment.seq).collect();
        assert_eq!(numbers.len(), shown.len(), "no number twice");
        assert!(numbers.last().is_none_or(|last| *last <= post.comment_seq));

        let newest: Vec<bson::Uuid> = live.iter().rev().take(RECENT_KEPT).map(|comment| comment.id).collect();
        assert_eq!(post.recent_comments.iter().map(|comment| comment.id).collect::<Vec<_>>(), newest, "the subset");
        let by_id: BTreeMap<bson::Uuid, &CommentDoc> = all.iter().map(|comment| (comment.id, comment)).collect();
        for comment in &post.recent_comments {
            let original = by_id[&comment.id];
            assert_eq!(
                (Some(comment.seq), comment.replies, comment.likes),
                (original.seq, original.counters.replies, original.counters.likes),
                "a copy is like its original"
            );
            assert_eq!((Some(&comment.text), comment.edited_at), (original.text.as_ref(), original.edited_at));
        }
        for comment in &all {
            let children = shown.iter().filter(|child| child.parent_id == Some(comment.id)).count();
            let replies = live.iter().filter(|child| child.parent_id == Some(comment.id)).count();
            let counters = comment.counters;
            assert_eq!((usize::try_from(counters.replies), usize::try_from(counters.children)), (Ok(replies), Ok(children)));
            let (hidden, deleted) = (comment.seq.is_none(), comment.state == CommentStateDoc::Tombstone);
            assert_eq!(hidden, comment.purge_at.is_some(), "what is hidden is to be purged, and nothing else");
            assert!(!deleted || (comment.text.is_none() && comment.author.is_none() && hidden == (children == 0)));
        }
        let ids = |comments: &[Comment]| comments.iter().map(|comment| b(comment.id)).collect::<Vec<_>>();
        let walked = self.walk(None, CommentOrder::Oldest, 7).await;
        assert_eq!(ids(&walked), shown.iter().map(|comment| comment.id).collect::<Vec<_>>(), "the list");
        assert_eq!(
            self.list(None, CommentOrder::Newest, None, 1).await.total,
            i64::try_from(walked.len()).unwrap(),
            "the list's total"
        );
        (live.len(), shown.len() - live.len())
    }
}

async fn user(store: &Store, handle: &str) -> UserId {
    let id = UserId(new_id());
    let new = NewUser {
        id,
        handle: Handle::parse(handle).unwrap(),
        email: None,
        display_name: handle.to_owned(),
        password_hash: None,
        now: now(),
    };
    store.create_user(new).await.unwrap();
    id
}

async fn post(store: &Store, author: UserId) -> PostId {
    let id = PostId(new_id());
    let new = NewPost { id, author, text: "a post".to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap();
    id
}

#[tokio::test]
async fn a_comment_is_counted_listed_and_previewed_at_once() {
    let world = World::new().await;
    let id = world.comment("nice", None).await;
    assert_eq!(world.check().await, (1, 0));
    let comment = world.store().comment(id, None).await.unwrap().unwrap();
    assert_eq!((comment.text.as_str(), comment.parent_id, comment.depth, comment.deleted), ("nice", None, 0, false));
    assert_eq!(comment.author.map(|author| (author.id, author.handle.to_string())), Some((world.bob, "bob".to_owned())));
}

#[tokio::test]
async fn a_deleted_comment_leaves_the_subset_and_the_next_comes_in() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..40 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    assert_eq!(world.check().await, (40, 0));
    // From the newest, one from below the subset, then until it cannot be full any more.
    for id in made.iter().rev().take(18).chain([&made[0], &made[20], &made[10]]) {
        world.delete(*id).await;
        world.check().await;
    }
    for id in made[1..10].iter().chain(&made[11..20]) {
        world.delete(*id).await;
    }
    assert_eq!(world.check().await, (1, 0));
    assert_eq!(world.subset().await.len(), 1);
}

#[tokio::test]
async fn replies_count_in_the_comment_they_answer_and_in_its_copy() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    let reply = world.comment("reply", Some(root)).await;
    let deeper = world.comment("deeper", Some(reply)).await;
    assert_eq!(world.check().await, (3, 0));
    let seen = world.store().comment(deeper, None).await.unwrap().unwrap();
    assert_eq!((seen.parent_id, seen.depth), (Some(reply), 2));
    assert_eq!(world.doc(deeper).await.unwrap().ancestors, [b(root), b(reply)]);
    assert_eq!(world.store().comment(root, None).await.unwrap().unwrap().replies, 1);
    world.delete(deeper).await;
    assert_eq!(world.store().comment(reply, None).await.unwrap().unwrap().replies, 0);
    assert_eq!(world.check().await, (2, 0));
}

#[tokio::test]
async fn a_deleted_comment_with_replies_keeps_its_place_and_goes_with_its_last_reply() {
    let world = World::new().await;
    let root = world.comment("regretted", None).await;
    let middle = world.comment("also regretted", Some(root)).await;
    let tip = world.comment("kept", Some(middle)).await;
    world.delete(middle).await;
    world.delete(root).await;
    assert_eq!(world.check().await, (1, 2));
    let seen = world.store().comment(root, None).await.unwrap().unwrap();
    assert_eq!((seen.deleted, seen.text.as_str(), seen.author), (true, "", None));
    assert_eq!(world.walk(None, CommentOrder::Oldest, 10).await.iter().map(|c| c.deleted).collect::<Vec<_>>(), [true, true, false]);
    world.delete(tip).await;
    assert_eq!(world.check().await, (0, 0));
    assert_eq!(world.store().comment(root, None).await.unwrap(), None);
    world.age_tombstones().await;
    for _ in 0..3 {
        world.store().purge_tombstones_step().await.unwrap();
        world.age_tombstones().await;
    }
    assert_eq!(world.all().await.len(), 0, "from the leaves up, everything is purged");
    assert_eq!(world.store().purge_tombstones_step().await.unwrap(), Progress::Idle);
}

#[tokio::test]
async fn only_its_author_deletes_a_comment_and_only_once() {
    let world = World::new().await;
    let id = world.comment("mine", None).await;
    let carol = user(world.store(), "carol").await;
    assert_eq!(world.store().delete_comment(id, carol).await.unwrap(), Err(ChangeCommentRefusal::NotYours));
    world.delete(id).await;
    for who in [world.bob, carol] {
        assert_eq!(world.store().delete_comment(id, who).await.unwrap(), Err(ChangeCommentRefusal::NotFound));
    }
    assert_eq!(world.check().await, (0, 0));
}

#[tokio::test]
async fn a_hundred_concurrent_comments_are_each_counted_once() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    let made =
        join_all((0..100).map(|n| world.store().create_comment(world.new_comment(&n.to_string(), (n % 3 == 0).then_some(root)))))
            .await;
    let made: BTreeSet<CommentId> = made.into_iter().map(|made| made.unwrap().unwrap().id).collect();
    world.drain().await;
    assert_eq!((made.len(), world.check().await), (100, (101, 0)));
}

#[tokio::test]
async fn comments_that_wait_take_one_update_of_the_post() {
    let world = World::new().await;
    for n in 0..30 {
        world.insert(&n.to_string(), None).await;
    }
    let ids: Vec<bson::Uuid> = world.all().await.iter().map(|comment| comment.id).collect();
    assert_eq!(world.store().apply_comments(b(world.post), &ids).await.unwrap(), 30);
    assert_eq!(world.check().await, (30, 0));
    assert_eq!(world.store().apply_comments(b(world.post), &ids).await.unwrap(), 0, "a second time there is nothing to do");
}

#[tokio::test]
async fn concurrent_deletes_and_replies_leave_exact_totals() {
    let world = World::new().await;
    let mut roots = Vec::new();
    for n in 0..10 {
        roots.push(world.comment(&n.to_string(), None).await);
    }
    let replies = join_all(roots.iter().flat_map(|root| {
        [(0, *root), (1, *root), (2, *root)]
            .map(|(n, root)| world.store().create_comment(world.new_comment(&n.to_string(), Some(root))))
    }));
    let deletes = join_all(roots.iter().flat_map(|root| [*root; 4]).map(|root| world.store().delete_comment(root, world.bob)));
    let (replies, deletes, ()) = tokio::join!(replies, deletes, world.drain());
    world.drain().await;
    let accepted = replies.into_iter().filter(|reply| reply.as_ref().unwrap().is_ok()).count();
    assert_eq!(deletes.into_iter().filter(|deleted| deleted.as_ref().unwrap().is_ok()).count(), 10, "each is deleted once");
    let (live, _) = world.check().await;
    assert_eq!(live, accepted, "every reply that was accepted is there, and no other");
}

#[tokio::test]
async fn a_comment_deleted_before_it_was_counted_changes_no_total() {
    let world = World::new().await;
    let id = comment_id(world.insert("regretted", None).await.id);
    assert_eq!(world.store().comment(id, None).await.unwrap().unwrap().text, "regretted", "a single read knows it at once");
    assert_eq!(world.walk(None, CommentOrder::Newest, 5).await, [], "a list does not");
    assert!(world.store().mark_comment_removed(id).await.unwrap());
    assert_eq!(world.store().comment(id, None).await.unwrap(), None);
    world.drain().await;
    assert_eq!(world.check().await, (0, 0));
}

#[tokio::test]
async fn what_a_crash_left_pending_is_applied_by_the_step() {
    let world = World::new().await;
    let kept = world.comment("kept", None).await;
    let counted = world.comment("counted", None).await;
    let inserted = comment_id(world.insert("inserted", None).await.id);
    assert!(world.store().mark_comment_removed(counted).await.unwrap());
    world.drain().await;
    assert_eq!(world.check().await, (2, 0));
    assert_eq!(world.walk(None, CommentOrder::Oldest, 5).await.iter().map(|c| c.id).collect::<Vec<_>>(), [kept, inserted]);
}

#[tokio::test]
async fn a_repeated_request_makes_no_second_comment() {
    let world = World::new().await;
    let new = world.new_comment("once", None);
    let place = world.store().place_for(&new).await.unwrap().unwrap_or_else(|refusal| panic!("{refusal}"));
    world.store().insert_comment(new.clone(), place).await.unwrap();
    // The process died here; the request comes again, and again.
    for _ in 0..2 {
        let made = world.store().create_comment(new.clone()).await.unwrap().unwrap();
        assert_eq!((made.id, made.text.as_str()), (new.id, "once"));
    }
    assert_eq!(world.check().await, (1, 0));
}

#[tokio::test]
async fn a_repeated_reply_is_found_though_its_parent_was_deleted_meanwhile() {
    let world = World::new().await;
    let parent = world.comment("parent", None).await;
    let new = world.new_comment("reply", Some(parent));
    world.store().create_comment(new.clone()).await.unwrap().unwrap();
    // The process died before it kept the answer.
    world.delete(parent).await;
    assert_eq!(world.store().create_comment(new.clone()).await.unwrap().unwrap().id, new.id);
    assert_eq!(world.check().await, (1, 1));
}

#[tokio::test]
async fn a_reply_waits_for_a_parent_that_is_not_counted() {
    let world = World::new().await;
    let parent = world.insert("parent", None).await;
    let reply = world.insert("reply", Some(comment_id(parent.id))).await;
    assert_eq!(world.store().apply_comments(b(world.post), &[reply.id]).await.unwrap(), 0);
    assert_eq!(world.doc(comment_id(reply.id)).await.unwrap().pending, Some(true));
    assert!(!world.store().apply_own(reply.post_id, reply.id).await.unwrap());
    world.drain().await;
    assert_eq!(world.check().await, (2, 0));
    let order: Vec<bson::Uuid> = world.walk(None, CommentOrder::Oldest, 5).await.iter().map(|c| b(c.id)).collect();
    assert_eq!(order, [parent.id, reply.id]);
}

#[tokio::test]
async fn a_reply_accepted_while_its_parent_was_deleted_shows_what_is_left_of_it() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    let parent = world.comment("parent", Some(root)).await;
    // Accepted: after its insert the parent was live.
    let reply = world.insert("reply", Some(parent)).await;
    assert_eq!(world.store().what_forbids(&[&reply]).await.unwrap(), [None]);
    for id in [parent, root] {
        assert!(world.store().mark_comment_removed(id).await.unwrap());
        assert_eq!(world.store().apply_comments(b(world.post), &[b(id)]).await.unwrap(), 1);
    }
    assert_eq!(world.walk(None, CommentOrder::Newest, 5).await, [], "both are hidden");
    world.age_tombstones().await;
    world.store().purge_tombstones_step().await.unwrap();
    assert!(world.doc(parent).await.is_some() && world.doc(root).await.is_some(), "what is answered is not purged");
    world.drain().await;
    assert_eq!(world.check().await, (1, 2));
    world.age_tombstones().await;
    assert_eq!(world.store().purge_tombstones_step().await.unwrap(), Progress::Idle, "what is shown again is not to be purged");
}

#[tokio::test]
async fn a_reply_written_after_its_parent_was_deleted_is_withdrawn() {
    let world = World::new().await;
    let parent = world.comment("parent", None).await;
    let new = world.new_comment("late", Some(parent));
    let place = world.store().place_for(&new).await.unwrap().unwrap_or_else(|refusal| panic!("{refusal}"));
    world.delete(parent).await;
    let late = world.store().insert_comment(new, place).await.unwrap();
    assert_eq!(world.store().settle_comment(&late).await.unwrap(), Err(CommentRefusal::ParentNotFound));
    assert!(world.doc(comment_id(late.id)).await.is_none(), "nothing of it is left");
    assert_eq!(world.check().await, (0, 0));
}

#[tokio::test]
async fn a_reply_counted_before_it_could_be_withdrawn_stays() {
    let world = World::new().await;
    let parent = world.comment("parent", None).await;
    let reply = world.insert("reply", Some(parent)).await;
    world.drain().await;
    world.delete(parent).await;
    assert_eq!(world.store().settle_comment(&reply).await.unwrap(), Ok(()));
    assert_eq!(world.check().await, (1, 1));
}

#[tokio::test]
async fn a_comment_written_after_its_post_was_deleted_is_withdrawn() {
    let world = World::new().await;
    let late = world.insert("late", None).await;
    world.delete_post().await;
    assert_eq!(world.store().settle_comment(&late).await.unwrap(), Err(CommentRefusal::PostNotFound));
    assert_eq!(world.all().await.len(), 0);
    let refused = world.store().create_comment(world.new_comment("later", None)).await.unwrap();
    assert_eq!(refused, Err(CommentRefusal::PostNotFound));
}

#[tokio::test]
async fn pending_comments_of_a_deleted_post_are_deleted() {
    let world = World::new().await;
    let counted = world.comment("counted", None).await;
    world.insert("crashed", None).await;
    world.delete_post().await;
    assert_eq!(world.store().comment(counted, None).await.unwrap(), None, "hidden with its post");
    assert_eq!(world.store().delete_comment(counted, world.bob).await.unwrap(), Err(ChangeCommentRefusal::NotFound));
    world.drain().await;
    assert_eq!(world.all().await.len(), 1, "the counted one is the sweep's");
}

#[tokio::test]
async fn the_comments_of_a_deleted_post_are_swept_in_bounded_batches() {
    let world = World::new().await;
    for n in 0..5 {
        world.comment(&n.to_string(), None).await;
    }
    world.delete_post().await;
    let swept = [
        world.store().sweep_comments(&[b(world.post)], 3).await.unwrap(),
        world.store().sweep_comments(&[b(world.post)], 3).await.unwrap(),
        world.store().sweep_comments(&[b(world.post)], 3).await.unwrap(),
    ];
    assert_eq!((swept, world.all().await.len()), ([3, 2, 0], 0));
}

#[tokio::test]
async fn a_deleted_post_goes_after_its_comments() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    world.comment("reply", Some(root)).await;
    world.delete(root).await;
    let author = world.store().post(world.post, None).await.unwrap().unwrap().author.id;
    world.store().delete_post(world.post, author).await.unwrap();
    world.insert_unseen("written while it was deleted").await;
    while world.store().apply_posts_step().await.unwrap() != Progress::Idle {}
    world.insert_unseen("written after the last sweep").await;
    world.drain().await;
    assert_eq!(world.all().await.len(), 0);
    assert_eq!(world.posts().count_documents(doc! { "_id": b(world.post) }).await.unwrap(), 0);
}

#[tokio::test]
async fn comments_are_for_those_who_may_see_their_post() {
    let world = World::new().await;
    let (alice, carol) = (user(world.store(), "ada").await, user(world.store(), "carol").await);
    let id = PostId(new_id());
    let hidden = NewPost { id, author: alice, text: "for followers".to_owned(), visibility: Visibility::Followers };
    world.store().create_post(hidden).await.unwrap().unwrap();
    let own = NewComment { post: id, author: alice, ..world.new_comment("own", None) };
    let own = world.store().create_comment(own).await.unwrap().unwrap().id;
    let foreign = NewComment { post: id, author: carol, ..world.new_comment("foreign", None) };
    assert_eq!(world.store().create_comment(foreign).await.unwrap(), Err(CommentRefusal::PostNotFound));
    assert_eq!(world.store().delete_comment(own, carol).await.unwrap(), Err(ChangeCommentRefusal::NotFound));
    for (viewer, sees) in [(None, false), (Some(carol), false), (Some(alice), true)] {
        assert_eq!(world.store().comment(own, viewer).await.unwrap().is_some(), sees);
        let page = world.store().comments(id, viewer, None, CommentOrder::Newest, None, Limit::DEFAULT).await.unwrap();
        assert_eq!(page.is_ok(), sees);
    }
    assert_eq!(world.store().delete_comment(own, alice).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn nobody_without_an_account_comments() {
    let world = World::new().await;
    let new = NewComment { author: UserId(new_id()), ..world.new_comment("from nowhere", None) };
    assert_eq!(world.store().create_comment(new).await.unwrap(), Err(CommentRefusal::AuthorGone));
}

#[tokio::test]
async fn a_comment_that_meets_a_write_of_its_post_is_left_to_the_applier() {
    let world = World::new().await;
    let mut session = world.store().begin().await.unwrap();
    let view = doc! { "$inc": { "counters.views": 1 } };
    world.posts().update_one(doc! { "_id": b(world.post) }, view).session(&mut session).await.unwrap();
    let id = world.comment("meanwhile", None).await;
    assert_eq!(world.doc(id).await.unwrap().pending, Some(true));
    crate::store::commit(session).await.unwrap();
    world.drain().await;
    assert_eq!(world.check().await, (1, 0));
}

#[tokio::test]
async fn a_deletion_that_waits_leaves_the_preview_and_the_list_at_once() {
    let world = World::new().await;
    let gone = world.comment("gone", None).await;
    let stays = world.comment("stays", None).await;
    world.insert("somebody else's, waiting", None).await;
    world.delete(gone).await;
    assert_eq!(world.doc(gone).await.unwrap().state, CommentStateDoc::Removed, "it waits too");
    assert_eq!(world.subset().await.iter().map(|comment| comment.id).collect::<Vec<_>>(), [b(stays)]);
    assert_eq!(world.walk(None, CommentOrder::Newest, 5).await.iter().map(|c| c.id).collect::<Vec<_>>(), [stays]);
    world.drain().await;
    assert_eq!(world.check().await, (2, 0));
}

#[tokio::test]
async fn a_lease_that_another_holds_leaves_the_post_to_it() {
    let world = World::new().await;
    world.insert("waiting", None).await;
    let lease = crate::lease::Lease::take(world.store(), &format!("comments:{}", b(world.post))).await.unwrap().unwrap();
    assert_eq!(world.store().apply_comments_step().await.unwrap(), Progress::Idle);
    lease.release().await.unwrap();
    assert_eq!(world.store().apply_comments_step().await.unwrap(), Progress::Did(1));
}

#[tokio::test]
async fn a_reply_needs_a_living_parent_under_the_same_post_and_not_too_deep() {
    let world = World::new().await;
    let elsewhere = post(world.store(), world.bob).await;
    let stranger = NewComment { post: elsewhere, ..world.new_comment("stranger", None) };
    let stranger = world.store().create_comment(stranger).await.unwrap().unwrap().id;
    let gone = world.comment("gone", None).await;
    world.delete(gone).await;
    for parent in [stranger, gone, CommentId(new_id())] {
        let refused = world.store().create_comment(world.new_comment("lost", Some(parent))).await.unwrap();
        assert_eq!(refused, Err(CommentRefusal::ParentNotFound));
    }
    assert_eq!(world.check().await, (0, 0));
    let mut parent = None;
    for _ in 0..=MAX_DEPTH {
        parent = Some(world.comment("deeper", parent).await);
    }
    let refused = world.store().create_comment(world.new_comment("too deep", parent)).await.unwrap();
    assert_eq!(refused, Err(CommentRefusal::ThreadTooDeep));
    assert_eq!(world.check().await, (101, 0));
}

#[tokio::test]
async fn pages_lead_both_ways_and_end_exactly() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..6 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    let ids = |page: &CommentPage| page.page.items.iter().map(|comment| comment.id).collect::<Vec<_>>();
    let first = world.list(None, CommentOrder::Newest, None, 3).await;
    let second = world.list(None, CommentOrder::Newest, first.page.next, 3).await;
    assert_eq!((ids(&first), ids(&second)), (vec![made[5], made[4], made[3]], vec![made[2], made[1], made[0]]));
    assert_eq!(second.page.next, None, "also where the count is a multiple of the limit");
    let back = world.list(None, CommentOrder::Newest, second.page.prev, 3).await;
    assert_eq!(ids(&back), ids(&first), "the adjacent ones");
    assert_eq!(back.page.next, first.page.next);
    // The newest page polls for what comes.
    let poll = world.list(None, CommentOrder::Newest, first.page.prev, 3).await;
    assert_eq!((ids(&poll), poll.page.prev), (vec![], first.page.prev));
    assert_eq!(
        ids(&world.list(None, CommentOrder::Newest, poll.page.next, 6).await),
        made.iter().rev().copied().collect::<Vec<_>>()
    );
    let new = world.comment("new", None).await;
    assert_eq!(ids(&world.list(None, CommentOrder::Newest, poll.page.prev, 3).await), [new]);
    // A place outlives the comments around it.
    for id in &made[..3] {
        world.delete(*id).await;
    }
    let empty = world.list(None, CommentOrder::Newest, first.page.next, 3).await;
    assert_eq!((ids(&empty), empty.page.next), (vec![], None));
    assert_eq!(ids(&world.list(None, CommentOrder::Newest, empty.page.prev, 2).await), [made[4], made[3]]);
    // The other order.
    let oldest = world.list(None, CommentOrder::Oldest, None, 3).await;
    assert_eq!(ids(&oldest), made[3..6]);
    let last = world.list(None, CommentOrder::Oldest, oldest.page.next, 3).await;
    assert_eq!((ids(&last), last.page.next), (vec![new], None));
    assert_eq!(ids(&world.list(None, CommentOrder::Oldest, last.page.prev, 2).await), made[4..6]);
    let none = World::new().await.list(None, CommentOrder::Newest, None, 3).await;
    assert_eq!((none.page, none.total), (Page::empty(), 0));
}

#[tokio::test]
async fn a_place_beyond_all_numbers_is_no_fault() {
    let world = World::new().await;
    world.comment("one", None).await;
    for cursor in [SeqCursor::Below(i64::MIN), SeqCursor::Below(i64::MAX), SeqCursor::Above(i64::MIN), SeqCursor::Above(i64::MAX)] {
        for order in [CommentOrder::Newest, CommentOrder::Oldest] {
            assert!(world.list(None, order, Some(cursor), 3).await.page.items.len() <= 1);
        }
    }
}

#[tokio::test]
async fn replies_are_paged_below_their_parent_however_sparse_they_are() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    let mut replies = Vec::new();
    for n in 0..4 {
        replies.push(world.comment(&n.to_string(), Some(root)).await);
        // As if many others had been counted in between.
        let skip = doc! { "$inc": { "commentSeq": 10_000_i64 << (4 * n) } };
        world.posts().update_one(doc! { "_id": b(world.post) }, skip).await.unwrap();
    }
    let oldest = world.walk(Some(root), CommentOrder::Oldest, 3).await;
    assert_eq!(oldest.iter().map(|comment| comment.id).collect::<Vec<_>>(), replies);
    replies.reverse();
    let newest = world.walk(Some(root), CommentOrder::Newest, 2).await;
    assert_eq!(newest.iter().map(|comment| comment.id).collect::<Vec<_>>(), replies);
    assert_eq!(world.list(Some(root), CommentOrder::Newest, None, 1).await.total, 4);
    let unknown =
        world.store().comments(world.post, None, Some(CommentId(new_id())), CommentOrder::Newest, None, Limit::DEFAULT).await;
    assert_eq!(unknown.unwrap(), Err(CommentRefusal::ParentNotFound));
}

#[tokio::test]
async fn a_walk_while_others_write_meets_everything_that_was_there_once() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..24 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    let (mut walked, mut cursor) = (Vec::new(), None);
    for n in 0.. {
        let page = world.list(None, CommentOrder::Newest, cursor, 4).await.page;
        walked.extend(page.items.iter().map(|comment| comment.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        // Every third goes, one that was met and one that will be, and new ones come.
        for at in [n * 3, 23 - n * 3] {
            if let Some(id) = made.get(at) {
                world.store().delete_comment(*id, world.bob).await.unwrap().ok();
            }
        }
        world.comment("new", None).await;
    }
    let met: BTreeSet<CommentId> = walked.iter().copied().collect();
    assert_eq!(met.len(), walked.len(), "nothing twice");
    for id in made {
        let alive = world.store().comment(id, None).await.unwrap().is_some();
        assert!(!alive || met.contains(&id), "what was there throughout is met");
    }
}
