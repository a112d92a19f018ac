//! Deletions against the database: what they leave behind (nothing), whatever crashes or races.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

use bson::Bson;
use futures::future::join_all;
use rookery_domain::{
    CommentId, Email, Handle, Limit, PostId, SessionId, Timestamp,
    comments::{CommentOrder, CommentRefusal},
    graph::{BlockRefusal, FollowRefusal, MuteRefusal},
    post::Visibility,
};

use super::*;
use crate::{
    Settings, collections,
    comments::NewComment,
    graph::NewFollow,
    posts::NewPost,
    sessions::{NewSession, RefreshKey},
    store::{new_id, now},
    testing::TestDatabase,
    users::{Created, NewUser, UserRef},
    verify::verify,
};

const FIRST: Limit = Limit::DEFAULT;

fn new_user(handle: &str) -> NewUser {
    NewUser {
        id: UserId(new_id()),
        handle: Handle::parse(handle).unwrap(),
        email: Some(Email::parse(&format!("{handle}@example.org")).unwrap()),
        display_name: handle.to_owned(),
        password_hash: Some("a hash".to_owned()),
        now: now(),
    }
}

async fn user(store: &Store, handle: &str) -> UserId {
    let new = new_user(handle);
    let id = new.id;
    let created = store.create_user(new).await.unwrap();
    assert!(matches!(created, Created::Now(_)), "{handle}: {created:?}");
    id
}

async fn post(store: &Store, author: UserId, text: &str) -> PostId {
    let new = NewPost { id: PostId(new_id()), author, text: text.to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap().id
}

fn new_comment(author: UserId, post: PostId, parent: Option<CommentId>) -> NewComment {
    NewComment { id: CommentId(new_id()), post, parent, author, text: "A remark".to_owned() }
}

async fn comment(store: &Store, author: UserId, post: PostId, parent: Option<CommentId>) -> CommentId {
    store.create_comment(new_comment(author, post, parent)).await.unwrap().unwrap().id
}

async fn follow(store: &Store, follower: UserId, followee: UserId) {
    store.follow(follower, followee).await.unwrap().unwrap();
}

async fn counts(store: &Store, user: UserId) -> (i64, i64, i64) {
    let counts = store.user(&UserRef::Id(user)).await.unwrap().unwrap().counts;
    (counts.followers, counts.following, counts.posts)
}

/// Every collection in which something still refers to an account. A finished job names it for a month, hints of its posts in others'
/// windows for 60 days, and which sessions were ended for an hour.
async fn traces(store: &Store, user: UserId) -> Vec<String> {
    let mut found = Vec::new();
    for collection in collections::ALL {
        if [collections::JOBS, SESSIONS].contains(&collection.name) {
            continue;
        }
        let mut documents = store.coll::<Document>(collection.name).find(doc! {}).await.unwrap();
        while let Some(mut document) = documents.try_next().await.unwrap() {
            if collection.name == TIMELINE_ENTRIES {
                document.remove("actorId");
            }
            if mentions(&Bson::Document(document.clone()), b(user)) {
                found.push(format!("{}: {document}", collection.name));
            }
        }
    }
    found
}

fn mentions(value: &Bson, id: bson::Uuid) -> bool {
    match value {
        Bson::Document(document) => document.values().any(|value| mentions(value, id)),
        Bson::Array(values) => values.iter().any(|value| mentions(value, id)),
        Bson::Binary(binary) => binary.bytes == id.bytes(),
        Bson::String(text) => text.contains(&id.to_string()),
        _ => false,
    }
}

async fn assert_gone(store: &Store, user: UserId) {
    assert_eq!(traces(store, user).await, Vec::<String>::new());
    assert_eq!(verify(store).await.unwrap(), []);
}

/// Alice, who is to be deleted, with everything that there is, among Bob and Carol.
struct World {
    db: TestDatabase,
    alice: UserId,
    bob: UserId,
    carol: UserId,
    /// Of Alice.
    post: PostId,
    /// Of Bob.
    other: PostId,
    /// Of Alice under Bob's post, and Bob's answer.
    answered: CommentId,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let db = TestDatabase::with(settings).await;
        let store = db.store();
        let (alice, bob, carol) = (user(store, "alice").await, user(store, "bob").await, user(store, "carol").await);
        for (follower, followee) in [(alice, bob), (bob, alice), (carol, alice), (carol, bob)] {
            follow(store, follower, followee).await;
        }
        store.block(alice, user(store, "dave").await).await.unwrap().unwrap();
        let (post, other) = (post(store, alice, "#mine").await, post(store, bob, "for @alice and @carol").await);
        comment(store, bob, post, None).await;
        comment(store, alice, post, None).await;
        let answered = comment(store, alice, other, None).await;
        comment(store, bob, other, Some(answered)).await;
        comment(store, alice, other, None).await;
        store.finish_jobs().await.unwrap();
        store.feed(alice, None, FIRST).await.unwrap();
        Self { db, alice, bob, carol, post, other, answered }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    /// Everything about others is as if Alice had never been, but for what they wrote themselves.
    async fn assert_over(&self) {
        let store = self.store();
        assert_eq!(counts(store, self.bob).await, (1, 0, 1));
        assert_eq!(counts(store, self.carol).await, (0, 1, 0));
        let other = store.post(self.other, None).await.unwrap().unwrap();
        assert_eq!(other.counts.comments, 1, "the answer of Bob alone");
        assert_eq!(other.recent_comments.iter().map(|comment| comment.author.as_ref().unwrap().id).collect::<Vec<_>>(), [self.bob]);
        assert_eq!(other.mentions.iter().map(|user| user.id).collect::<Vec<_>>(), [self.carol]);
        let comments = store.comments(self.other, None, None, CommentOrder::Oldest, None, FIRST).await.unwrap().unwrap();
        assert_eq!(comments.total, 2, "the answer, and what it answers as a tombstone");
        assert_eq!(comments.page.items[0].id, self.answered);
        assert!(comments.page.items[0].deleted && comments.page.items[0].author.is_none());
        assert_gone(store, self.alice).await;
    }
}

#[tokio::test]
async fn a_deleted_account_is_hidden_at_once_and_then_gone() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    let job = store.delete_account(alice).await.unwrap().unwrap();

    for name in [UserRef::Id(alice), UserRef::Handle(Handle::parse("alice").unwrap())] {
        assert_eq!(store.user(&name).await.unwrap(), None);
        assert_eq!(store.user_id(&name).await.unwrap(), None);
    }
    assert!(store.post(world.post, Some(world.bob)).await.unwrap().is_none());
    let left = store.comment(world.answered, Some(world.bob)).await.unwrap().unwrap();
    assert!(left.deleted && left.author.is_none() && left.text.is_empty(), "nothing but the place of what Bob answered");
    let other = store.post(world.other, Some(world.bob)).await.unwrap().unwrap();
    assert_eq!(other.recent_comments.len(), 1);
    assert_eq!(other.mentions.len(), 1);
    let followers = store.followers(&UserRef::Id(world.bob), None, None, FIRST).await.unwrap().unwrap();
    assert_eq!(followers.items.iter().map(|follow| follow.user.id).collect::<Vec<_>>(), [world.carol]);
    assert_eq!(counts(store, world.bob).await, (1, 0, 1), "edges are uncounted at once");
    assert_eq!(store.relationships(world.bob, &[alice]).await.unwrap(), []);
    assert!(store.login_account("alice").await.unwrap().is_none());
    let refused = store.follow(world.carol, alice).await.unwrap();
    assert_eq!(refused, Err(FollowRefusal::NotFound));
    let feed = store.feed(world.bob, None, FIRST).await.unwrap();
    assert_eq!(feed.items.iter().map(|item| item.post.id).collect::<Vec<_>>(), [world.other]);
    user(store, "alice").await;
    assert_eq!(store.delete_account(alice).await.unwrap(), None, "there is nothing to be deleted twice");

    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    let jobs = store.jobs(FIRST, None).await.unwrap().items;
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].id, jobs[0].user, jobs[0].state), (job, alice, rookery_domain::jobs::JobState::Done));
    assert!(jobs[0].finished_at.is_some() && jobs[0].run_after.is_none() && jobs[0].progress > 0);
}

#[tokio::test]
async fn another_process_hides_the_account_from_its_next_refresh_on() {
    let world = World::new().await;
    let second = world.db.second_store().await;
    second.refresh_deleting().await.unwrap();
    // As a process does that is killed after the mark.
    world.store().mark_account(world.alice).await.unwrap().unwrap();
    second.refresh_deleting().await.unwrap();
    assert!(second.post(world.post, Some(world.bob)).await.unwrap().is_none());
    assert!(second.comment(world.answered, None).await.unwrap().unwrap().deleted);
    let comments = second.comments(world.other, None, None, CommentOrder::Newest, None, FIRST).await.unwrap().unwrap();
    let authors = comments.page.items.iter().map(|comment| comment.author.as_ref().map(|author| author.id));
    assert_eq!((authors.collect::<Vec<_>>(), comments.total), (vec![Some(world.bob), None], 2));
    second.finish_jobs().await.unwrap();
    world.assert_over().await;
}

#[tokio::test]
async fn a_deletion_is_finished_wherever_its_worker_was_killed() {
    // After so many batches, the last of them noted or not.
    for (batches, noted) in
        [(0, true), (1, false), (2, true), (3, false), (4, true), (5, false), (6, false), (8, true), (13, false)]
    {
        let world = World::new().await;
        world.store().mark_account(world.alice).await.unwrap().unwrap();
        let mut job = world.store().claim_job().await.unwrap().unwrap();
        for n in 1..=batches {
            let batch = world.store().job_batch(&mut job).await.unwrap();
            let Then::On(checkpoint) = batch.then else { panic!("{batch:?}") };
            if n < batches || noted {
                assert!(world.store().advance_job(&mut job, checkpoint, batch.items).await.unwrap());
            }
        }
        let second = world.db.second_store().await;
        assert!(second.claim_job().await.unwrap().is_none(), "while the claim stands");
        second.lapse_job_claims().await.unwrap();
        second.finish_jobs().await.unwrap();
        world.assert_over().await;
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_claim_notes_nothing() {
    let world = World::new().await;
    let store = world.store();
    store.mark_account(world.alice).await.unwrap().unwrap();
    let mut slow = store.claim_job().await.unwrap().unwrap();
    let batch = store.job_batch(&mut slow).await.unwrap();
    store.lapse_job_claims().await.unwrap();
    let mut fast = store.claim_job().await.unwrap().unwrap();
    let Then::On(checkpoint) = batch.then else { panic!("{batch:?}") };
    assert!(!store.advance_job(&mut slow, checkpoint, 1).await.unwrap());
    assert!(store.advance_job(&mut fast, checkpoint, 1).await.unwrap());
}

#[tokio::test]
async fn a_celebrity_is_deleted_with_its_pages() {
    let world = World::with(Settings { celebrity_threshold: 2, ..Settings::default() }).await;
    let store = world.store();
    assert!(store.user(&UserRef::Id(world.alice)).await.unwrap().unwrap().celebrity);
    store.delete_account(world.alice).await.unwrap().unwrap();
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
}

#[tokio::test]
async fn more_edges_than_one_batch_has_are_removed_and_uncounted() {
    let db = TestDatabase::new().await;
    let store = db.store();
    let alice = user(store, "alice").await;
    let crowd = store.import_users((0..1_700).map(|n| new_user(&format!("fan_{n}"))).collect()).await.unwrap();
    let crowd: Vec<UserId> = crowd.into_values().collect();
    let edges: Vec<_> = crowd.iter().map(|fan| (*fan, alice)).chain(crowd.iter().map(|fan| (alice, *fan))).collect();
    store.import_follows(&edges).await.unwrap();
    store.finish_jobs().await.unwrap();
    // Holes in the numbers, and edges that nobody has applied.
    for fan in &crowd[..300] {
        store.mark_unfollow(*fan, alice).await.unwrap();
    }
    store.finish_jobs().await.unwrap();
    for fan in &crowd[300..310] {
        store.mark_unfollow(*fan, alice).await.unwrap();
    }
    store.delete_account(alice).await.unwrap().unwrap();
    store.finish_jobs().await.unwrap();
    for fan in [crowd[0], crowd[305], crowd[1_000], crowd[1_699]] {
        assert_eq!(counts(store, fan).await, (0, 0, 0));
    }
    assert_gone(store, alice).await;
}

#[tokio::test]
async fn a_follow_that_races_the_deletion_does_not_survive_it() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    // Written before the mark; the request goes on at different times, or never.
    let erin = user(store, "erin").await;
    let pairs = [(erin, alice), (alice, erin)];
    let written = store.write_follows(pairs.map(|(follower, followee)| NewFollow { follower, followee }).to_vec()).await.unwrap();
    store.mark_account(alice).await.unwrap().unwrap();
    assert_eq!(store.settle_follow(written[0]).await.unwrap(), Some(Err(FollowRefusal::NotFound)));
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    // Written by a request that had looked for the account before it was gone.
    let late = store.write_follows(pairs.map(|(follower, followee)| NewFollow { follower, followee }).to_vec()).await.unwrap();
    store.settle_follow(late[0]).await.unwrap();
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    assert_eq!(counts(store, erin).await, (0, 0, 0));
}

#[tokio::test]
async fn a_comment_that_races_the_deletion_does_not_survive_it() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    // Inserted by requests that had looked before the mark, during the job, and after its end; each once going on, once crashing.
    let mut places = Vec::new();
    for _ in 0..6 {
        let new = new_comment(alice, world.other, None);
        let place = store.place_for(&new).await.unwrap().unwrap_or_else(|refusal| panic!("{refusal}"));
        places.push((new, place));
    }
    let mut insert = async || {
        let (new, place) = places.pop().unwrap();
        store.insert_comment(new, place).await.unwrap()
    };
    let before = [insert().await, insert().await];
    store.mark_account(alice).await.unwrap().unwrap();
    assert_eq!(store.settle_comment(&before[0]).await.unwrap(), Err(CommentRefusal::AuthorGone));
    let during = [insert().await, insert().await];
    assert_eq!(store.settle_comment(&during[0]).await.unwrap(), Err(CommentRefusal::AuthorGone));
    store.finish_jobs().await.unwrap();
    let after = [insert().await, insert().await];
    assert_eq!(store.settle_comment(&after[0]).await.unwrap(), Err(CommentRefusal::AuthorGone));
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
}

#[tokio::test]
async fn an_account_is_deleted_while_it_is_busy() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    let crowd = join_all((0..8).map(|n| async move { user(store, &format!("fan_{n}")).await })).await;
    let second = world.db.second_store().await;
    let busy = crowd.iter().map(|fan| {
        let store = if fan.0.as_u128() % 2 == 0 { &second } else { store };
        async {
            for round in 0..6 {
                let _ = store.follow(*fan, alice).await.unwrap();
                let _ = store.follow(alice, *fan).await.unwrap();
                let new = NewPost { id: PostId(new_id()), author: alice, text: "again".to_owned(), visibility: Visibility::Public };
                let made = store.create_post(new).await.unwrap();
                let _ = store.create_comment(new_comment(alice, world.other, None)).await.unwrap();
                if let Some(made) = made {
                    let _ = store.create_comment(new_comment(*fan, made.id, None)).await.unwrap();
                }
                if round == 2 && *fan == crowd[0] {
                    store.delete_account(alice).await.unwrap().unwrap();
                }
            }
        }
    });
    futures::join!(join_all(busy), async {
        for _ in 0..20 {
            second.jobs_step().await.unwrap();
        }
    });
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    for fan in crowd {
        assert_eq!(counts(store, fan).await, (0, 0, 0));
    }
}

#[tokio::test]
async fn no_session_outlives_the_account() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    let open = async |at: Timestamp| {
        let id = SessionId(new_id());
        let refresh = RefreshKey { generation: 1, hash: [7; 32] };
        let new =
            NewSession { id, user: alice, credentials_changed_at: at, user_agent: "A browser".to_owned(), refresh, now: now() };
        (id, store.create_session(new).await.unwrap())
    };
    let (session, opened) = open(now()).await;
    assert!(opened && !store.is_revoked(session).await.unwrap());
    store.delete_account(alice).await.unwrap().unwrap();
    assert!(store.is_revoked(session).await.unwrap());
    let (late, opened) = open(now()).await;
    assert!(!opened && store.is_revoked(late).await.unwrap());
    store.finish_jobs().await.unwrap();
    let named = doc! { "userAgent": { "$ne": "" } };
    assert_eq!(store.coll::<Document>(SESSIONS).count_documents(named).await.unwrap(), 0);
}

#[tokio::test]
async fn a_block_or_a_mute_that_races_the_deletion_does_not_outlive_it() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    let others = join_all((0..8).map(|n| async move { user(store, &format!("other_{n}")).await })).await;
    let mut others = others.into_iter();
    // Marked before the deletion, during it and after it; each both ways, once going on and once crashing.
    let mut mark = async || {
        let [going_on, crashing] = [others.next().unwrap(), others.next().unwrap()];
        for (blocker, blocked) in [(going_on, alice), (alice, going_on), (crashing, alice), (alice, crashing)] {
            assert!(store.mark_block(blocker, blocked).await.unwrap());
        }
        going_on
    };
    let before = mark().await;
    store.mark_account(alice).await.unwrap().unwrap();
    let during = mark().await;
    for other in [before, during] {
        assert_eq!(store.sweep_block(other, alice).await.unwrap(), None, "it is taken back");
        assert_eq!(store.sweep_block(alice, other).await.unwrap(), None);
    }
    mark().await;
    assert_eq!(store.mute(world.bob, alice).await.unwrap(), Err(MuteRefusal::NotFound));
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    let after = mark().await;
    assert_eq!(store.sweep_block(after, alice).await.unwrap(), None);
    assert_eq!(store.sweep_block(alice, after).await.unwrap(), None);
    // What crashed is pending, and the applier looks at the accounts too.
    store.finish_jobs().await.unwrap();
    world.assert_over().await;
    assert_eq!(store.block(world.bob, alice).await.unwrap(), Err(BlockRefusal::NotFound));
    assert_eq!(store.block(alice, world.bob).await.unwrap(), Err(BlockRefusal::NotFound));
    assert_eq!(store.mute(alice, world.bob).await.unwrap(), Err(MuteRefusal::NotFound));
    world.assert_over().await;
}
