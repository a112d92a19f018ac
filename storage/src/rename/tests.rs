//! Renames against the database: unique handles, and copies that follow whatever crashes or races.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

use futures::future::join_all;
use rookery_domain::{CommentId, Limit, PostId, comments::CommentOrder, post::Visibility};

use super::*;
use crate::{
    comments::NewComment,
    posts::NewPost,
    store::{new_id, now},
    testing::TestDatabase,
    users::{Created, NewUser},
    verify::verify,
};

fn handle(name: &str) -> Handle {
    Handle::parse(name).unwrap()
}

async fn user(store: &Store, name: &str) -> UserId {
    let id = UserId(new_id());
    let display_name = format!("$name of {name}");
    let new = NewUser { id, handle: handle(name), email: None, display_name, password_hash: None, now: now() };
    assert!(matches!(store.create_user(new).await.unwrap(), Created::Now(_)));
    id
}

async fn post(store: &Store, author: UserId, text: &str) -> PostId {
    let new = NewPost { id: PostId(new_id()), author, text: text.to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap().id
}

async fn comment(store: &Store, author: UserId, post: PostId, parent: Option<CommentId>) -> CommentId {
    let new = NewComment { id: CommentId(new_id()), post, parent, author, text: "A remark".to_owned() };
    store.create_comment(new).await.unwrap().unwrap().id
}

/// Every name under which an account stands in posts and comments.
async fn copies(store: &Store, user: UserId) -> Vec<String> {
    let (mut names, me) = (Vec::new(), b(user));
    let posts = store.coll::<crate::posts::PostDoc>(POSTS).find(doc! {}).await.unwrap();
    for post in posts.try_collect::<Vec<_>>().await.unwrap() {
        let recent = post.recent_comments.into_iter().map(|comment| comment.author);
        let all = recent.chain(post.mentions).chain([post.author]);
        names.extend(all.filter(|copy| copy.user_id == me).map(|copy| copy.handle));
    }
    let comments = store.coll::<crate::comments::CommentDoc>(COMMENTS).find(doc! {}).await.unwrap();
    for comment in comments.try_collect::<Vec<_>>().await.unwrap() {
        names.extend(comment.author.filter(|copy| copy.user_id == me).map(|copy| copy.handle));
    }
    names
}

/// Ada with a post, comments on it and on Bob's, and a mention by Bob.
async fn world(store: &Store) -> (UserId, UserId, PostId) {
    let (ada, bob) = (user(store, "ada").await, user(store, "bob").await);
    let own = post(store, ada, "mine").await;
    let other = post(store, bob, "for @ada and @bob").await;
    comment(store, ada, own, None).await;
    let first = comment(store, ada, other, None).await;
    comment(store, bob, other, Some(first)).await;
    store.finish_jobs().await.unwrap();
    assert_eq!(copies(store, ada).await, ["ada"; 6]);
    (ada, bob, other)
}

#[tokio::test]
async fn a_new_handle_is_on_the_profile_at_once_and_on_every_copy_after_the_job() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (ada, bob, other) = world(store).await;
    let Edited::Now(renamed) = store.change_handle(ada, &handle("Lovelace")).await.unwrap() else { panic!("refused") };
    assert_eq!(renamed.handle, handle("lovelace"));
    assert!(store.user(&UserRef::Handle(handle("ada"))).await.unwrap().is_none());
    user(store, "ada").await;
    store.finish_jobs().await.unwrap();
    assert_eq!(copies(store, ada).await, ["lovelace"; 6]);
    assert_eq!(copies(store, bob).await, ["bob"; 4], "nobody else is renamed");
    let comments = store.comments(other, None, None, CommentOrder::Oldest, None, Limit::DEFAULT).await.unwrap().unwrap();
    let author = comments.page.items[0].author.clone().unwrap();
    assert_eq!((author.handle, author.display_name), (handle("lovelace"), "$name of ada".to_owned()));
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn a_handle_that_somebody_has_is_refused() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (ada, ..) = world(store).await;
    assert_eq!(store.change_handle(ada, &handle("BOB")).await.unwrap(), Edited::HandleTaken);
    assert_eq!(store.change_handle(UserId(new_id()), &handle("nobody")).await.unwrap(), Edited::Gone);
    assert!(store.jobs(Limit::DEFAULT, None).await.unwrap().items.is_empty(), "what is refused makes no job");
    let taken = join_all(["ada_1", "ada_1", "ada_1"].map(|name| async move {
        let id = user(store, &new_id().simple().to_string()[4..]).await;
        store.change_handle(id, &handle(name)).await.unwrap()
    }));
    let won = taken.await.into_iter().filter(|renamed| matches!(renamed, Edited::Now(_))).count();
    assert_eq!(won, 1, "of many who want one handle at a time");
}

#[tokio::test]
async fn what_was_written_under_the_old_name_meanwhile_is_rewritten_by_the_second_pass() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (ada, _, other) = world(store).await;
    // A request has read the old name.
    let new = NewComment { id: CommentId(new_id()), post: other, parent: None, author: ada, text: "late".to_owned() };
    let place = store.place_for(&new).await.unwrap().unwrap_or_else(|refusal| panic!("{refusal}"));
    store.change_handle(ada, &handle("lovelace")).await.unwrap();
    let mut job = store.claim_job().await.unwrap().unwrap();
    while job.checkpoint.is_none_or(|at| at.pass == 1) {
        let batch = store.job_batch(&mut job).await.unwrap();
        let Then::On(checkpoint) = batch.then else { panic!("{batch:?}") };
        assert!(store.advance_job(&mut job, checkpoint, batch.items).await.unwrap());
    }
    let late = store.insert_comment(new, place).await.unwrap();
    store.settle_comment(&late).await.unwrap().unwrap();
    // Its worker is killed, and another goes on.
    let second = db.second_store().await;
    second.lapse_job_claims().await.unwrap();
    second.finish_jobs().await.unwrap();
    assert_eq!(copies(store, ada).await, ["lovelace"; 8]);
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn of_two_renames_the_later_one_is_on_every_copy() {
    let db = TestDatabase::new().await;
    let (store, second) = (db.store(), db.second_store().await);
    let (ada, ..) = world(store).await;
    store.change_handle(ada, &handle("first")).await.unwrap();
    let newer = handle("second");
    let (worked, renamed) = futures::join!(store.jobs_step(), second.change_handle(ada, &newer));
    assert!(worked.is_ok() && matches!(renamed.unwrap(), Edited::Now(_)));
    let worked = futures::join!(store.jobs_step(), second.jobs_step());
    assert!(worked.0.is_ok() && worked.1.is_ok());
    store.finish_jobs().await.unwrap();
    assert_eq!(copies(store, ada).await, ["second"; 6]);
}

#[tokio::test]
async fn more_copies_than_one_batch_has_are_rewritten() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let (ada, _, other) = world(store).await;
    let comments = store.coll::<Document>(COMMENTS);
    let sample = comments.find_one(doc! { "author.userId": b(ada), "postId": b(other) }).await.unwrap().unwrap();
    let more = (0..2_300).map(|_| {
        let mut copy = sample.clone();
        copy.insert("_id", b(new_id()));
        copy
    });
    comments.insert_many(more).await.unwrap();
    store.change_handle(ada, &handle("lovelace")).await.unwrap();
    store.finish_jobs().await.unwrap();
    assert_eq!(copies(store, ada).await, vec!["lovelace"; 2_306]);
}
