//! Sessions and credentials against the real database: rotation and reuse, what another process knows, races with a change of the
//! password, and the count of failed logins.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures::future::join_all;
use mongodb::Client;
use rookery_domain::{
    Email, Handle, Limit, SessionId, Timestamp, UserId,
    credentials::{ATTEMPTS_WINDOW, MAX_FAILED_ATTEMPTS, SESSION_LIVES, Session},
};
use rookery_storage::{
    Error, Settings, Store,
    credentials::{Attempts, Credentials, Standing},
    now,
    sessions::{NewSession, RefreshKey, Renewed},
    testing::{OwnServer, TestDatabase},
    users::{Created, NewUser},
};
use uuid::Uuid;

fn new_user(handle: &str) -> NewUser {
    NewUser {
        id: UserId(Uuid::now_v7()),
        handle: Handle::parse(handle).unwrap(),
        email: Some(Email::parse(&format!("{handle}@example.org")).unwrap()),
        display_name: handle.to_owned(),
        password_hash: Some(format!("hash of {handle}")),
        now: now(),
    }
}

async fn account(store: &Store, handle: &str) -> UserId {
    match store.create_user(new_user(handle)).await.unwrap() {
        Created::Now(user) => user.id,
        other => panic!("{other:?}"),
    }
}

async fn credentials_of(store: &Store, user: UserId) -> Credentials {
    store.account(user).await.unwrap().unwrap().credentials.unwrap()
}

const FIRST: RefreshKey = RefreshKey { generation: 1, hash: [1; 32] };

/// The token after `key`.
fn after(key: RefreshKey) -> RefreshKey {
    RefreshKey { generation: key.generation + 1, hash: [key.hash[0] + 1; 32] }
}

fn new_session(user: UserId, credentials: &Credentials, at: Timestamp) -> NewSession {
    NewSession {
        id: SessionId(Uuid::now_v7()),
        user,
        credentials_changed_at: credentials.changed_at,
        user_agent: "Fox 1.0".to_owned(),
        refresh: FIRST,
        now: at,
    }
}

async fn open_at(store: &Store, user: UserId, at: Timestamp) -> SessionId {
    let new = new_session(user, &credentials_of(store, user).await, at);
    let id = new.id;
    assert!(store.create_session(new).await.unwrap());
    id
}

async fn open(store: &Store, user: UserId) -> SessionId {
    open_at(store, user, now()).await
}

async fn renew(store: &Store, session: SessionId, spent: RefreshKey) -> Renewed {
    store.renew_session(session, spent, after(spent), now()).await.unwrap()
}

async fn listed(store: &Store, user: UserId) -> Vec<SessionId> {
    let page = store.sessions(user, Limit::MAX, None).await.unwrap();
    page.items.into_iter().map(|session| session.id).collect()
}

async fn raw(database: &TestDatabase, collection: &str) -> mongodb::Collection<Document> {
    Client::with_uri_str(database.uri()).await.unwrap().database(database.name()).collection(collection)
}

#[tokio::test]
async fn each_refresh_token_is_good_once_and_the_next_one_goes_on() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let session = open(store, user).await;
    let mut key = FIRST;
    for _ in 0..3 {
        assert_eq!(renew(store, session, key).await, Renewed::Now(user));
        key = after(key);
    }
    assert!(!store.is_revoked(session).await.unwrap());
}

#[tokio::test]
async fn reuse_of_a_refresh_token_ends_its_session_and_no_other() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let (session, other) = (open(store, user).await, open(store, user).await);
    assert_eq!(renew(store, session, FIRST).await, Renewed::Now(user));
    assert_eq!(renew(store, session, FIRST).await, Renewed::Ended);
    assert_eq!(renew(store, session, after(FIRST)).await, Renewed::Ended, "the current token went with the session");
    assert!(store.is_revoked(session).await.unwrap());
    assert!(!store.is_revoked(other).await.unwrap());
    assert_eq!(listed(store, user).await, [other]);
    assert_eq!(renew(store, other, FIRST).await, Renewed::Now(user));
}

#[tokio::test]
async fn of_twenty_refreshes_with_one_token_one_wins_and_the_session_ends() {
    let database = TestDatabase::new().await;
    let stores = [database.store().clone(), database.second_store().await];
    let user = account(&stores[0], "alice").await;
    let session = open(&stores[0], user).await;
    let calls = (0..20).map(|n| renew(&stores[n % 2], session, FIRST));
    let outcomes = join_all(calls).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Renewed::Now(user)).count(), 1);
    assert_eq!(renew(&stores[0], session, after(FIRST)).await, Renewed::Ended);
    assert_eq!(listed(&stores[0], user).await, []);
}

#[tokio::test]
async fn a_session_that_ran_out_is_neither_renewed_nor_listed() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let session = open_at(store, user, now().minus(SESSION_LIVES)).await;
    assert_eq!(listed(store, user).await, []);
    assert_eq!(renew(store, session, FIRST).await, Renewed::Ended);
}

#[tokio::test]
async fn a_refresh_keeps_a_session_alive_for_another_thirty_days() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let session = open_at(store, user, now().minus(SESSION_LIVES).plus(Duration::from_mins(5))).await;
    assert_eq!(renew(store, session, FIRST).await, Renewed::Now(user));
    let next = store
        .renew_session(session, after(FIRST), after(after(FIRST)), now().plus(SESSION_LIVES).minus(Duration::from_mins(5)))
        .await;
    assert_eq!(next.unwrap(), Renewed::Now(user));
}

#[tokio::test]
async fn a_session_ended_in_one_process_is_ended_in_another_within_half_a_second() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.store(), database.second_store().await);
    let user = account(here, "alice").await;
    let poll = tokio::spawn({
        let there = there.clone();
        async move {
            loop {
                there.refresh_revoked().await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    });
    for _ in 0..3 {
        let session = open(here, user).await;
        assert!(!there.is_revoked(session).await.unwrap());
        assert!(here.revoke_session(user, session).await.unwrap());
        let acknowledged = Instant::now();
        assert!(here.is_revoked(session).await.unwrap(), "at once where it was ended");
        loop {
            let asked = acknowledged.elapsed();
            if there.is_revoked(session).await.unwrap() {
                break;
            }
            assert!(asked < Duration::from_millis(500), "still good {asked:?} after it was ended");
        }
    }
    poll.abort();
}

#[tokio::test]
async fn one_poll_brings_what_others_ended_and_a_first_poll_what_was_ended_before() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.store(), database.second_store().await);
    let user = account(here, "alice").await;
    let (first, second) = (open(here, user).await, open(here, user).await);
    here.revoke_session(user, first).await.unwrap();
    there.refresh_revoked().await.unwrap();
    here.revoke_session(user, second).await.unwrap();
    there.refresh_revoked().await.unwrap();
    // What is remembered needs no database.
    raw(&database, "sessions").await.drop().await.unwrap();
    assert!(there.is_revoked(first).await.unwrap());
    assert!(there.is_revoked(second).await.unwrap());
}

#[tokio::test]
async fn a_poll_reads_nothing_but_what_was_ended_of_late() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    for _ in 0..5 {
        open(store, user).await;
    }
    let ended = open(store, user).await;
    store.revoke_session(user, ended).await.unwrap();
    let since = bson::DateTime::from_millis(now().as_millis() - 5_000);
    let find = doc! { "find": "sessions", "filter": { "revokedAt": { "$gte": since } }, "projection": { "revokedAt": 1 } };
    let explain = doc! { "explain": find, "verbosity": "executionStats" };
    let client = Client::with_uri_str(database.uri()).await.unwrap();
    let explained = client.database(database.name()).run_command(explain).await.unwrap();
    let text = explained.to_string();
    assert!(text.contains("IXSCAN") && text.contains("revokedAt_1"), "{text}");
    let examined = explained.get_document("executionStats").unwrap().get("totalDocsExamined").unwrap();
    assert_eq!(examined.to_string(), "1");
}

#[tokio::test]
async fn who_has_not_polled_reads_the_session_instead() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.store(), database.second_store().await);
    let user = account(here, "alice").await;
    let session = open(here, user).await;
    assert!(!there.is_revoked(session).await.unwrap());
    here.revoke_session(user, session).await.unwrap();
    assert!(there.is_revoked(session).await.unwrap());
    assert!(there.is_revoked(SessionId(Uuid::now_v7())).await.unwrap(), "a session that is not there is not good");
}

#[tokio::test]
async fn who_can_neither_remember_nor_read_does_not_know() {
    let server = OwnServer::start().await;
    let store = server.database(Settings::default()).await.store().clone();
    drop(server);
    assert!(matches!(store.is_revoked(SessionId(Uuid::now_v7())).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_new_password_ends_every_other_session() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let (alice, bob) = (account(store, "alice").await, account(store, "bob").await);
    let (kept, other, third, bobs) =
        (open(store, alice).await, open(store, alice).await, open(store, alice).await, open(store, bob).await);
    let old = credentials_of(store, alice).await;
    assert!(store.change_password(alice, kept, &old, "another hash", now()).await.unwrap());
    for (session, ended) in [(kept, false), (other, true), (third, true), (bobs, false)] {
        assert_eq!(store.is_revoked(session).await.unwrap(), ended);
    }
    assert_eq!(listed(store, alice).await, [kept]);
    assert!(
        !store.change_password(alice, kept, &old, "a third hash", now()).await.unwrap(),
        "the old password is not the current one"
    );
    assert_eq!(renew(store, kept, FIRST).await, Renewed::Now(alice));
    assert_eq!(renew(store, bobs, FIRST).await, Renewed::Now(bob));
}

#[tokio::test]
async fn a_login_with_a_password_that_is_changed_meanwhile_opens_nothing() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let kept = open(store, user).await;
    // The login has checked the old password; before it opens its session, the password is changed and the sessions are ended.
    let old = credentials_of(store, user).await;
    assert!(store.change_password(user, kept, &old, "another hash", now()).await.unwrap());
    let late = new_session(user, &old, now());
    let id = late.id;
    assert!(!store.create_session(late).await.unwrap());
    assert!(store.is_revoked(id).await.unwrap());
    assert_eq!(listed(store, user).await, [kept]);
}

#[tokio::test]
async fn a_session_that_a_crash_left_after_a_new_password_ends_at_its_next_refresh() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let left = open(store, user).await;
    let users = raw(&database, "users").await;
    let changed = doc! { "$set": { "credentials.changedAt": bson::DateTime::from_millis(now().as_millis() + 1) } };
    users.update_one(doc! { "handle": "alice" }, changed).await.unwrap();
    assert_eq!(renew(store, left, FIRST).await, Renewed::Ended);
    assert!(store.is_revoked(left).await.unwrap());
}

#[tokio::test]
async fn a_login_of_an_account_that_is_deleted_meanwhile_opens_nothing() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let (session, credentials) = (open(store, user).await, credentials_of(store, user).await);
    let users = raw(&database, "users").await;
    users.update_one(doc! { "handle": "alice" }, doc! { "$set": { "state": "deleting" } }).await.unwrap();
    store.revoke_all_sessions(user).await.unwrap();
    assert!(store.is_revoked(session).await.unwrap());
    assert!(!store.create_session(new_session(user, &credentials, now())).await.unwrap());
    assert_eq!(listed(store, user).await, []);
}

#[tokio::test]
async fn a_stronger_hash_of_the_same_password_ends_nothing() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let old = credentials_of(store, user).await;
    store.rehash_password(user, &old, "stronger").await.unwrap();
    let new = credentials_of(store, user).await;
    assert_eq!((new.hash.as_str(), new.changed_at), ("stronger", old.changed_at));
    assert!(store.create_session(new_session(user, &old, now())).await.unwrap(), "a login that was under way");
    store.rehash_password(user, &old, "too late").await.unwrap();
    assert_eq!(credentials_of(store, user).await.hash, "stronger");
}

#[tokio::test]
async fn sessions_of_others_are_not_mine_to_end() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let (alice, bob) = (account(store, "alice").await, account(store, "bob").await);
    let session = open(store, bob).await;
    assert!(!store.revoke_session(alice, session).await.unwrap());
    assert!(!store.is_revoked(session).await.unwrap());
    assert!(store.revoke_session(bob, session).await.unwrap());
    assert!(!store.revoke_session(bob, session).await.unwrap(), "it is gone");
}

#[tokio::test]
async fn sessions_are_walked_newest_first_and_back() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "alice").await;
    let ids = |items: &[Session]| items.iter().map(|session| session.id).collect::<Vec<_>>();
    let empty = store.sessions(user, Limit::DEFAULT, None).await.unwrap();
    assert!(empty.items.is_empty() && empty.next.is_none() && empty.prev.is_none());

    let mut all = Vec::new();
    for _ in 0..6 {
        all.insert(0, open(store, user).await);
    }
    let two = Limit::new(2).unwrap();
    let first = store.sessions(user, two, None).await.unwrap();
    let second = store.sessions(user, two, first.next.clone()).await.unwrap();
    let third = store.sessions(user, two, second.next.clone()).await.unwrap();
    assert_eq!([ids(&first.items), ids(&second.items), ids(&third.items)].concat(), all);
    assert_eq!(third.next, None, "the count is a multiple of the limit");

    let back = store.sessions(user, two, third.prev.clone()).await.unwrap();
    assert_eq!(ids(&back.items), all[2..4], "the adjacent ones, not the newest");
    assert!(back.next.is_some());
    let poll = store.sessions(user, two, first.prev.clone()).await.unwrap();
    assert!(poll.items.is_empty());
    let new = open(store, user).await;
    let found = store.sessions(user, two, poll.prev.clone()).await.unwrap();
    assert_eq!(ids(&found.items), [new]);
    assert_eq!(ids(&store.sessions(user, two, poll.next.clone()).await.unwrap().items), all[..2]);
    let session = &found.items[0];
    assert_eq!((session.user_agent.as_str(), session.created_at), ("Fox 1.0", session.last_used_at));
}

#[tokio::test]
async fn ten_failures_lock_an_identifier_out_in_every_process_and_a_login_forgets_them() {
    let database = TestDatabase::new().await;
    let (here, there) = (database.store(), database.second_store().await);
    let start = now();
    let standing = async |of: &str, at| there.attempts(Attempts::Login(of), at).await.unwrap();
    assert_eq!(standing("alice", start).await, Standing::Clean);
    for _ in 1..MAX_FAILED_ATTEMPTS {
        here.count_failed_attempt(Attempts::Login(" ALICE"), start).await.unwrap();
        assert_eq!(standing("alice", start).await, Standing::Failed);
    }
    here.count_failed_attempt(Attempts::Login("alice"), start).await.unwrap();
    assert_eq!(standing("Alice ", start).await, Standing::LockedOut(ATTEMPTS_WINDOW));
    assert_eq!(standing("bob", start).await, Standing::Clean);
    assert_eq!(standing("alice", start.plus(Duration::from_mins(14))).await, Standing::LockedOut(Duration::from_mins(1)));

    let passed = start.plus(ATTEMPTS_WINDOW);
    assert_eq!(standing("alice", passed).await, Standing::Failed);
    for _ in 1..MAX_FAILED_ATTEMPTS {
        here.count_failed_attempt(Attempts::Login("alice"), passed).await.unwrap();
        assert_eq!(standing("alice", passed).await, Standing::Failed, "the count began anew");
    }
    here.count_failed_attempt(Attempts::Login("alice"), passed).await.unwrap();
    assert_eq!(standing("alice", passed).await, Standing::LockedOut(ATTEMPTS_WINDOW));
    here.forget_failed_attempts(Attempts::Login("alice")).await.unwrap();
    assert_eq!(standing("alice", passed).await, Standing::Clean);
}

#[tokio::test]
async fn failures_at_the_same_time_are_all_counted() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let account = Attempts::Account(UserId(Uuid::now_v7()));
    let at = now();
    let fail = async || store.count_failed_attempt(account, at).await.unwrap();
    join_all((1..MAX_FAILED_ATTEMPTS).map(|_| fail())).await;
    assert_eq!(store.attempts(account, at).await.unwrap(), Standing::Failed);
    fail().await;
    assert_eq!(store.attempts(account, at).await.unwrap(), Standing::LockedOut(ATTEMPTS_WINDOW));
}

#[tokio::test]
async fn one_logs_in_by_handle_or_address_in_any_case_but_not_by_a_look_alike() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let user = account(store, "kim").await;
    let found = async |identifier: &str| store.login_account(identifier).await.unwrap().map(|account| account.user.id);
    for identifier in ["kim", "KIM", " Kim ", "kim@example.org", "Kim@Example.ORG"] {
        assert_eq!(found(identifier).await, Some(user), "{identifier}");
    }
    for identifier in ["", "@", "kimm", "\u{212a}im", "ｋｉｍ", "кim", "kim\0", "kim@example.com"] {
        assert_eq!(found(identifier).await, None, "{identifier:?}");
    }
}

#[tokio::test]
async fn only_who_was_made_an_administrator_is_one() {
    let database = TestDatabase::new().await;
    let store = database.store();
    let alice = account(store, "alice").await;
    let Created::Now(root) = store.create_admin(new_user("root")).await.unwrap() else { panic!("the handle is free") };
    assert!(store.is_admin(root.id).await.unwrap());
    assert!(!store.is_admin(alice).await.unwrap());
    let taken = NewUser { email: None, ..new_user("alice") };
    assert_eq!(store.create_admin(taken).await.unwrap(), Created::HandleTaken);
    assert!(!store.is_admin(alice).await.unwrap());
}

#[tokio::test]
async fn the_database_refuses_a_session_that_is_none() {
    let database = TestDatabase::new().await;
    let user = account(database.store(), "alice").await;
    open(database.store(), user).await;
    let sessions = raw(&database, "sessions").await;
    let good = sessions.find_one(doc! {}).await.unwrap().unwrap();
    let id = || bson::Uuid::new();
    for spoil in [
        doc! { "refreshToken": "in the clear" },
        doc! { "refresh": { "generation": 0, "hash": id() } },
        doc! { "userAgent": "x".repeat(301) },
        doc! { "expiresAt": "never" },
    ] {
        let mut bad = good.clone();
        bad.insert("_id", id());
        bad.extend(spoil.clone());
        assert!(sessions.insert_one(bad).await.is_err(), "{spoil}");
    }
    let mut other = good.clone();
    other.insert("_id", id());
    sessions.insert_one(other).await.unwrap();
}
