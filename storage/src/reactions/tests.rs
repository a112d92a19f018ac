//! What requests that crashed leave, and what hot parents cost.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use rookery_domain::post::Visibility;

use super::*;
use crate::{
    pending::Progress,
    posts::{Deleted, NewPost},
    testing::{TestDatabase, user},
    verify,
};

async fn post(store: &Store) -> (PostId, UserId) {
    let author = user(store).await;
    let new = NewPost { id: PostId(new_id()), author, text: "A post".to_owned(), visibility: Visibility::Public };
    (store.create_post(new).await.unwrap().unwrap().id, author)
}

/// The first half of a like: its request crashed before it looked at anything.
async fn write_like(store: &Store, post: PostId, user: UserId) {
    let wish = Wish::like(user, b(post), TargetDoc::Post, user);
    store.coll::<NewEdge>(LIKES).insert_one(wish.edge).await.unwrap();
}

async fn edges(store: &Store) -> u64 {
    store.coll::<Document>(LIKES).count_documents(doc! {}).await.unwrap()
}

async fn assert_verified(store: &Store) {
    let drift = verify::verify(store).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}

#[tokio::test]
async fn two_hundred_likes_that_wait_are_one_update_of_their_post() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (post, _) = post(store).await;
    for _ in 0..200 {
        write_like(store, post, user(store).await).await;
    }
    let pending = store.coll::<IdDoc>(LIKES).find(doc! {}).await.unwrap();
    let ids: Vec<bson::Uuid> =
        futures::TryStreamExt::try_collect::<Vec<IdDoc>>(pending).await.unwrap().iter().map(|edge| edge.id).collect();
    // One transaction, and it writes the post once.
    assert_eq!(store.apply_reactions(Kind::PostLike, b(post), &ids).await.unwrap(), 200);
    assert_eq!(store.apply_reactions_step().await.unwrap(), Progress::Idle);
    assert_eq!(store.post(post, None).await.unwrap().unwrap().counts.likes, 200);
    assert_verified(store).await;
}

#[tokio::test]
async fn a_request_leaves_its_like_to_the_applier_where_others_wait() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (post, _) = post(store).await;
    let (waiting, comes) = (user(store).await, user(store).await);
    write_like(store, post, waiting).await;
    let reacted = store.like_post(post, comes).await.unwrap().unwrap();
    assert_eq!((reacted.viewer.liked, reacted.counts.likes), (true, 0));
    assert_eq!(store.apply_reactions_step().await.unwrap(), Progress::Did(2));
    assert_eq!(store.post(post, None).await.unwrap().unwrap().counts.likes, 2);
}

#[tokio::test]
async fn a_like_that_a_crash_left_is_dropped_where_its_account_or_post_is_gone() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let ((kept, _), (gone, author)) = (post(store).await, post(store).await);
    let (left, fan) = (user(store).await, user(store).await);
    store.delete_account(left).await.unwrap().unwrap();
    write_like(store, kept, left).await;
    write_like(store, gone, fan).await;
    assert_eq!(store.delete_post(gone, author).await.unwrap(), Deleted::Now);
    while store.apply_reactions_step().await.unwrap() != Progress::Idle {}
    assert_eq!((edges(store).await, store.post(kept, None).await.unwrap().unwrap().counts.likes), (0, 0));
    store.finish_jobs().await.unwrap();
    assert_verified(store).await;
}

#[tokio::test]
async fn an_unlike_of_a_like_not_yet_counted_changes_nothing() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let ((post, _), fan) = (post(store).await, user(store).await);
    write_like(store, post, fan).await;
    let undone = store.unlike_post(post, fan).await.unwrap().unwrap();
    assert_eq!((undone.counts.likes, edges(store).await), (0, 0));
    // And a like before the removal was applied is as if it had never been taken back.
    store.like_post(post, fan).await.unwrap().unwrap();
    let removed = doc! { "$set": { "state": "removed", "pending": true } };
    store.coll::<Document>(LIKES).update_one(doc! { "userId": b(fan) }, removed).await.unwrap();
    let again = store.like_post(post, fan).await.unwrap().unwrap();
    assert_eq!((again.counts.likes, again.viewer.liked, edges(store).await), (1, true, 1));
    assert_verified(store).await;
}

#[tokio::test]
async fn flags_are_right_whatever_else_was_bookmarked_in_the_span_of_a_page() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let reader = user(store).await;
    // What is in the span besides: none, as much as is read together, and more.
    for beside in [0, flags::SPAN - 3, flags::SPAN - 2, flags::SPAN, 2 * flags::SPAN] {
        let mut page = vec![PostId(new_id()), PostId(new_id())];
        let others = (0..beside).map(|_| b(new_id())).collect::<Vec<_>>();
        page.extend([PostId(new_id()), PostId(new_id())]);
        let marked = [page[0], page[3]];
        let bookmark = |post: bson::Uuid| doc! { "_id": b(new_id()), "userId": b(reader), "postId": post };
        let bookmarks: Vec<Document> = others.into_iter().chain(marked.map(b)).map(bookmark).collect();
        store.coll::<Document>(crate::collections::BOOKMARKS).insert_many(bookmarks).await.unwrap();
        let flags = store.viewer_flags(Some(reader), &page).await.unwrap();
        let found: Vec<bool> = page.iter().map(|post| flags.get(post).is_some_and(|flags| flags.bookmarked)).collect();
        assert_eq!(found, [true, false, false, true], "{beside} beside");
    }
}
