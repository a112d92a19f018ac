//! Accounts, sessions, tokens and passwords over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
    time::Duration,
};

use futures::future::join_all;
use rookery_api::{auth::Viewer, config::Config, tokens::Tokens};
use rookery_domain::{Handle, SessionId, UserId};
use rookery_storage::{
    Store, new_id, now,
    testing::TestDatabase,
    users::{NewUser, UserRef},
};
use serde_json::{Value, json};
use support::{Answer, Caller, TestApp, config, proxy::Proxy, spawn_app};

const PASSWORD: &str = "correct horse 9 staple";

fn account(handle: &str) -> Value {
    json!({ "handle": handle, "email": format!("{handle}@example.org"), "password": PASSWORD })
}

/// Somebody with a session.
struct User {
    id: String,
    access: String,
    refresh: String,
    caller: Caller,
}

fn user(app: &TestApp, answer: &Answer) -> User {
    let body = answer.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let access = text(&body["accessToken"]);
    User { id: text(&body["user"]["id"]), refresh: text(&body["refreshToken"]), caller: app.with_token(&access), access }
}

async fn register(app: &TestApp, handle: &str) -> User {
    user(app, &app.anonymous().post("/api/v1/auth/register", &account(handle)).expect(201).await)
}

async fn log_in(app: &TestApp, identifier: &str, password: &str) -> Answer {
    app.anonymous().post("/api/v1/auth/login", &json!({ "identifier": identifier, "password": password })).send().await
}

async fn log_in_again(app: &TestApp, handle: &str) -> User {
    let answer = log_in(app, handle, PASSWORD).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    user(app, &answer)
}

async fn refresh(app: &TestApp, token: &str) -> Answer {
    app.anonymous().post("/api/v1/auth/refresh", &json!({ "refreshToken": token })).send().await
}

async fn change_password(caller: &Caller, current: &str, new: &str) -> Answer {
    caller.put("/api/v1/auth/password").json(&json!({ "currentPassword": current, "newPassword": new })).send().await
}

async fn is_good(caller: &Caller) -> bool {
    caller.get("/api/v1/me").send().await.status == 200
}

async fn session_ids(caller: &Caller) -> Vec<String> {
    let page = caller.get("/api/v1/auth/sessions").expect(200).await.json();
    page["items"].as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

fn tokens(config: &Config) -> Tokens {
    Tokens::new(&config.signing_key().unwrap()).unwrap()
}

#[tokio::test]
async fn registering_gives_an_account_and_a_token_that_works_at_once() {
    let app = spawn_app().await;
    let body = json!({ "handle": "Alice", "email": "Alice@Example.org", "password": PASSWORD, "displayName": " Alice  A. " });
    let answer = app.anonymous().post("/api/v1/auth/register", &body).expect(201).await;
    let made = answer.json();
    assert_eq!(made["tokenType"], "Bearer");
    assert_eq!(made["expiresIn"], 600);
    assert_eq!(made["user"]["handle"], "alice");
    assert_eq!(made["user"]["displayName"], "Alice  A.");
    assert_eq!(made["user"]["counts"], json!({ "followers": 0, "following": 0, "posts": 0 }));
    assert_eq!(answer.header("cache-control"), Some("private, no-store"));
    let me = user(&app, &answer).caller.get("/api/v1/me").expect(200).await.json();
    assert_eq!(me, made["user"]);
}

#[tokio::test]
async fn the_display_name_is_the_handle_as_written_where_there_is_none() {
    let app = spawn_app().await;
    let answer = app.anonymous().post("/api/v1/auth/register", &account("Alice_B")).expect(201).await;
    assert_eq!(answer.json()["user"]["displayName"], "Alice_B");
}

#[tokio::test]
async fn every_field_that_breaks_a_rule_is_named() {
    let app = spawn_app().await;
    let body = json!({ "handle": "not a handle", "email": "nobody", "password": "short", "displayName": "\u{200b}" });
    let answer = app.anonymous().post("/api/v1/auth/register", &body).expect(422).await;
    assert_eq!(answer.code(), "validation_failed");
    assert_eq!(answer.fields(), ["handle", "email", "displayName", "password"]);
    let body = json!({ "handle": "\u{200b}", "email": "alice@example.org", "password": PASSWORD });
    assert_eq!(app.anonymous().post("/api/v1/auth/register", &body).expect(422).await.fields(), ["handle"]);
    let body = json!({ "handle": "alice", "email": "a b@example.org", "password": PASSWORD, "displayName": "a\u{0}b" });
    let answer = app.anonymous().post("/api/v1/auth/register", &body).expect(422).await;
    assert_eq!(answer.fields(), ["email", "displayName"]);
    assert!(!answer.text().contains(PASSWORD));
}

#[tokio::test]
async fn weak_passwords_are_refused() {
    let app = spawn_app().await;
    let long = "zq7-Vw!k2e".repeat(26);
    for (password, code) in [
        ("", "too_short"),
        ("9 letters", "too_short"),
        ("1234567890", "too_common"),
        ("qwertyuiop", "too_common"),
        ("password123", "too_common"),
        ("wintermute_xyz", "too_common"),
        (&*long, "too_long"),
    ] {
        let body = json!({ "handle": "wintermute_xyz", "email": "alice@example.org", "password": password });
        let problem = app.anonymous().post("/api/v1/auth/register", &body).expect(422).await.json();
        assert_eq!(
            (&problem["errors"][0]["field"], &problem["errors"][0]["code"]),
            (&json!("password"), &json!(code)),
            "{password}"
        );
    }
    let body = json!({ "handle": "wintermute_xyz", "email": "alice@example.org", "password": "zq7-Vw!k2e" });
    app.anonymous().post("/api/v1/auth/register", &body).expect(201).await;
}

#[tokio::test]
async fn a_body_of_another_form_makes_no_account() {
    let app = spawn_app().await;
    let with = |change: Value| {
        let mut body = account("alice");
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    let without = |field: &str| {
        let mut body = account("alice");
        body.as_object_mut().unwrap().remove(field);
        body
    };
    for body in [
        without("handle"),
        without("email"),
        without("password"),
        with(json!({ "role": "admin" })),
        with(json!({ "password": 1_234_567_890 })),
        with(json!({ "password": null })),
        with(json!({ "displayName": ["Alice"] })),
    ] {
        app.anonymous().post("/api/v1/auth/register", &body).expect(400).await;
    }
    app.anonymous().get("/api/v1/users/@alice").expect(404).await;
}

#[tokio::test]
async fn a_handle_and_an_address_are_taken_in_any_case_and_look_alikes_are_no_handles() {
    let app = spawn_app().await;
    register(&app, "bob").await;
    let with = |handle: &str, email: &str| json!({ "handle": handle, "email": email, "password": PASSWORD });
    for handle in ["bob", "Bob", "BOB"] {
        let answer = app.anonymous().post("/api/v1/auth/register", &with(handle, "other@example.org")).expect(409).await;
        assert_eq!(answer.code(), "handle_taken");
    }
    for email in ["bob@example.org", "BOB@Example.Org", " bob@example.org "] {
        let answer = app.anonymous().post("/api/v1/auth/register", &with("other", email)).expect(409).await;
        assert_eq!(answer.code(), "email_taken");
    }
    for handle in ["ｂｏｂ", "bоb", "bob\u{0}", "bob ", "b\u{200b}ob", "\u{212a}im", ""] {
        let answer = app.anonymous().post("/api/v1/auth/register", &with(handle, "other@example.org")).expect(422).await;
        assert_eq!(answer.fields(), ["handle"], "{handle:?}");
    }
}

#[tokio::test]
async fn of_many_who_register_one_handle_at_once_one_gets_it() {
    let app = spawn_app().await;
    let register = async |n: usize| {
        let handle = ["bob", "Bob", "BOB"][n % 3];
        let body = json!({ "handle": handle, "email": format!("bob{n}@example.org"), "password": PASSWORD });
        app.anonymous().post("/api/v1/auth/register", &body).send().await
    };
    let answers = join_all((0..9).map(register)).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(made.len(), 1);
    assert!(refused.iter().all(|answer| answer.status == 409 && answer.code() == "handle_taken"));
}

#[tokio::test]
async fn one_logs_in_by_handle_or_address_in_any_case() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    for identifier in ["alice", "ALICE", " Alice ", "alice@example.org", "Alice@EXAMPLE.org"] {
        let answer = log_in(&app, identifier, PASSWORD).await;
        assert_eq!((answer.status, &answer.json()["user"]["id"]), (200, &json!(alice.id)), "{identifier}");
    }
    assert_eq!(session_ids(&alice.caller).await.len(), 6);
}

#[tokio::test]
async fn nobody_learns_from_a_failed_login_who_exists() {
    let app = spawn_app().await;
    register(&app, "alice").await;
    // An account that was imported has no password.
    let imported = NewUser {
        id: UserId(new_id()),
        handle: Handle::parse("imported").unwrap(),
        email: None,
        display_name: "Imported".to_owned(),
        password_hash: None,
        now: now(),
    };
    app.store().create_user(imported).await.unwrap();
    let mut bodies = Vec::new();
    for identifier in ["alice", "alice@example.org", "imported", "nobody", "nobody@example.org", "no handle at all", ""] {
        let answer = log_in(&app, identifier, "not the password").await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_credentials"), "{identifier}");
        let mut body = answer.json();
        body.as_object_mut().unwrap().remove("requestId");
        bodies.push(body);
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn the_eleventh_failed_login_is_refused_unread_whether_or_not_there_is_such_an_account() {
    let app = spawn_app().await;
    register(&app, "alice").await;
    register(&app, "bob").await;
    for identifier in ["alice", "nobody"] {
        for _ in 0..10 {
            assert_eq!(log_in(&app, identifier, "not the password").await.status, 401);
        }
        for identifier in [identifier.to_owned(), identifier.to_uppercase()] {
            let answer = log_in(&app, &identifier, PASSWORD).await;
            assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"));
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((14 * 60..=15 * 60).contains(&wait), "{wait}");
        }
    }
    assert_eq!(log_in(&app, "bob", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn a_login_that_succeeds_forgets_those_that_failed() {
    let app = spawn_app().await;
    register(&app, "alice").await;
    for _ in 0..3 {
        for _ in 0..9 {
            assert_eq!(log_in(&app, "alice", "not the password").await.status, 401);
        }
        assert_eq!(log_in(&app, "alice", PASSWORD).await.status, 200);
    }
}

#[tokio::test]
async fn a_refresh_gives_a_working_pair_and_the_spent_token_ends_the_session() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let other = log_in_again(&app, "alice").await;
    let pair = refresh(&app, &alice.refresh).await.json();
    let (access, next) = (pair["accessToken"].as_str().unwrap(), pair["refreshToken"].as_str().unwrap());
    assert!(is_good(&app.with_token(access)).await);
    assert!(is_good(&alice.caller).await, "the older access token lives until it expires");
    let next = refresh(&app, next).await.json();

    let answer = refresh(&app, &alice.refresh).await;
    assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_refresh_token"));
    assert_eq!(refresh(&app, next["refreshToken"].as_str().unwrap()).await.status, 401);
    for token in [&alice.access, access, next["accessToken"].as_str().unwrap()] {
        assert!(!is_good(&app.with_token(token)).await);
    }
    assert!(is_good(&other.caller).await);
    assert_eq!(refresh(&app, &other.refresh).await.status, 200);
}

#[tokio::test]
async fn of_two_who_spend_one_refresh_token_at_once_one_wins_and_the_session_ends() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let answers = join_all((0..20).map(|_| refresh(&app, &alice.refresh))).await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(won.len(), 1);
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 401)));
    assert!(!is_good(&app.with_token(won[0].json()["accessToken"].as_str().unwrap())).await);
}

#[tokio::test]
async fn what_is_no_refresh_token_of_ours_is_refused_and_harms_nobody() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let foreign_key = config(&[("ROOKERY_SIGNING_KEY", "YW5vdGhlci1rZXktb2Ytc29tZWJvZHktZWxzZS0zMmI=")]);
    let session: SessionId = session_ids(&alice.caller).await[0].parse().unwrap();
    let foreign = tokens(&foreign_key).new_refresh(session, 1).unwrap().token;
    let altered = alice.refresh.replacen(&alice.refresh[30..31], if &alice.refresh[30..31] == "A" { "B" } else { "A" }, 1);
    for token in ["", "garbage", "a.b.c", &alice.access, &foreign, &altered, &format!("{} ", alice.refresh)] {
        let answer = refresh(&app, token).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_refresh_token"), "{token}");
    }
    assert!(!is_good(&app.with_token(&alice.refresh)).await, "a refresh token is no access token");
    assert_eq!(refresh(&app, &alice.refresh).await.status, 200);
}

#[tokio::test]
async fn an_expired_foreign_unsigned_or_altered_access_token_is_401_everywhere() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let session: SessionId = session_ids(&alice.caller).await[0].parse().unwrap();
    let viewer = Viewer { user_id: alice.id.parse().unwrap(), session_id: session };
    let foreign_key = config(&[("ROOKERY_SIGNING_KEY", "YW5vdGhlci1rZXktb2Ytc29tZWJvZHktZWxzZS0zMmI=")]);
    let [head, body, signature] = alice.access.split('.').collect::<Vec<_>>().try_into().unwrap();
    // {"alg":"none","typ":"JWT"}
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    let flipped = format!("{}{}", if signature.starts_with('A') { "B" } else { "A" }, &signature[1..]);
    for token in [
        tokens(&config(&[])).new_access(viewer, now().minus(Duration::from_mins(11))).unwrap(),
        tokens(&foreign_key).new_access(viewer, now()).unwrap(),
        format!("{none}.{body}."),
        format!("{none}.{body}.{signature}"),
        format!("{head}.{body}.{flipped}"),
        format!("{head}.{body}."),
        // A session that never was.
        tokens(&config(&[])).new_access(Viewer { session_id: SessionId(new_id()), ..viewer }, now()).unwrap(),
    ] {
        let caller = app.with_token(&token);
        for path in ["/api/v1/me", "/api/v1/users/@alice"] {
            let answer = caller.get(path).expect(401).await;
            assert_eq!(answer.code(), "invalid_token", "{token}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        }
    }
    let good = tokens(&config(&[])).new_access(viewer, now()).unwrap();
    assert!(is_good(&app.with_token(&good)).await);
}

#[tokio::test]
async fn only_one_bearer_token_is_read_whatever_the_case_of_the_scheme() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let me = || app.anonymous().get("/api/v1/me");
    for scheme in ["Bearer", "bearer", "BEARER"] {
        me().header("authorization", &format!("{scheme} {}", alice.access)).expect(200).await;
    }
    let twice = format!("Bearer {}", alice.access);
    me().header("authorization", &twice).header("authorization", &twice).expect(401).await;
    for header in ["Bearer", "Bearer ", "bearer.x", "Basic YTpi"] {
        me().header("authorization", header).expect(401).await;
    }
    assert_eq!(me().expect(401).await.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn logging_out_stops_both_tokens_at_once_and_no_others() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let other = log_in_again(&app, "alice").await;
    alice.caller.request(reqwest::Method::POST, "/api/v1/auth/logout").expect(204).await;
    assert!(!is_good(&alice.caller).await);
    assert_eq!(change_password(&alice.caller, PASSWORD, "another horse 8 staple").await.status, 401);
    alice.caller.request(reqwest::Method::POST, "/api/v1/auth/logout").expect(401).await;
    assert_eq!(refresh(&app, &alice.refresh).await.status, 401);
    assert!(is_good(&other.caller).await);
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_ended_one_by_one() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let login = app.anonymous().post("/api/v1/auth/login", &json!({ "identifier": "alice", "password": PASSWORD }));
    let other = user(&app, &login.header("user-agent", "Fox/1.0").expect(200).await);
    let page = alice.caller.get("/api/v1/auth/sessions").expect(200).await.json();
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!((&items[0]["userAgent"], &items[0]["current"]), (&json!("Fox/1.0"), &json!(false)));
    assert_eq!(items[1]["current"], true);
    assert_eq!(page["nextCursor"], Value::Null);

    let first = alice.caller.get("/api/v1/auth/sessions?limit=1").expect(200).await;
    assert!(first.header("link").unwrap().contains("rel=\"next\""));
    let next = first.json()["nextCursor"].as_str().unwrap().to_owned();
    let second = alice.caller.get(&format!("/api/v1/auth/sessions?limit=1&cursor={next}")).expect(200).await.json();
    assert_eq!((&second["items"][0], &second["nextCursor"]), (&items[1], &Value::Null));

    let path = format!("/api/v1/auth/sessions/{}", items[0]["id"].as_str().unwrap());
    alice.caller.delete(&path).expect(204).await;
    alice.caller.delete(&path).expect(404).await;
    assert!(!is_good(&other.caller).await);
    assert_eq!(refresh(&app, &other.refresh).await.status, 401);
    assert!(is_good(&alice.caller).await);
    assert_eq!(session_ids(&alice.caller).await, [items[1]["id"].as_str().unwrap()]);
}

#[tokio::test]
async fn sessions_of_others_are_not_there() {
    let app = spawn_app().await;
    let (alice, bob) = (register(&app, "alice").await, register(&app, "bob").await);
    let path = format!("/api/v1/auth/sessions/{}", session_ids(&bob.caller).await[0]);
    alice.caller.delete(&path).expect(404).await;
    alice.caller.delete("/api/v1/auth/sessions/nonsense").expect(400).await;
    assert!(is_good(&bob.caller).await);
}

#[tokio::test]
async fn a_new_password_ends_every_other_session_and_the_old_password() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    let (other, bob) = (log_in_again(&app, "alice").await, register(&app, "bob").await);
    let new = "another horse 8 staple";
    assert_eq!(change_password(&alice.caller, PASSWORD, new).await.status, 204);
    assert!(!is_good(&other.caller).await);
    assert_eq!(refresh(&app, &other.refresh).await.status, 401);
    assert!(is_good(&alice.caller).await && is_good(&bob.caller).await);
    assert_eq!(refresh(&app, &alice.refresh).await.status, 200);
    assert_eq!(log_in(&app, "alice", PASSWORD).await.status, 401);
    assert_eq!(log_in(&app, "alice", new).await.status, 200);
}

#[tokio::test]
async fn a_new_password_needs_the_old_one_and_must_be_strong() {
    let app = spawn_app().await;
    let alice = register(&app, "marmaladefox").await;
    let answer = change_password(&alice.caller, "not the password", "another horse 8 staple").await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "wrong_password"));
    for weak in ["short", "password123", "marmaladefox", "marmaladefox@example.org"] {
        let answer = change_password(&alice.caller, PASSWORD, weak).await;
        assert_eq!((answer.status, answer.fields()), (422, vec!["newPassword".to_owned()]), "{weak}");
    }
    assert_eq!(log_in(&app, "marmaladefox", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn who_holds_a_token_may_not_guess_the_password_either() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    for _ in 0..10 {
        assert_eq!(change_password(&alice.caller, "not the password", "another horse 8 staple").await.status, 403);
    }
    let answer = change_password(&alice.caller, PASSWORD, "another horse 8 staple").await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"));
    assert_eq!(log_in(&app, "alice", PASSWORD).await.status, 200, "the owner can still log in");
}

#[tokio::test]
async fn no_answer_shows_an_address_a_password_or_its_hash() {
    let app = spawn_app().await;
    let alice = register(&app, "alice").await;
    for path in ["/api/v1/me".to_owned(), "/api/v1/users/@alice".to_owned(), format!("/api/v1/users/{}", alice.id)] {
        let text = alice.caller.get(&path).expect(200).await.text();
        for secret in [PASSWORD, "example.org", "argon2", "hash", "role"] {
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_profile_is_found_by_id_and_by_handle_in_any_case() {
    let app = spawn_app().await;
    let (alice, bob) = (register(&app, "alice").await, register(&app, "bob").await);
    let anonymous = app.anonymous().get("/api/v1/users/@ALICE").expect(200).await.json();
    assert_eq!((&anonymous["id"], anonymous.get("viewer")), (&json!(alice.id), None));
    let seen = bob.caller.get(&format!("/api/v1/users/{}", alice.id)).expect(200).await.json();
    assert_eq!(seen["viewer"]["following"], false);
    app.anonymous().get("/api/v1/users/@nobody").expect(404).await;
    app.anonymous().get(&format!("/api/v1/users/{}", new_id())).expect(404).await;
}

#[tokio::test]
async fn a_profile_is_not_there_for_whom_it_blocks_but_for_whom_blocks_it() {
    let app = spawn_app().await;
    let (alice, bob) = (register(&app, "alice").await, register(&app, "bob").await);
    app.store().block(alice.id.parse().unwrap(), bob.id.parse().unwrap()).await.unwrap().unwrap();
    bob.caller.get("/api/v1/users/@alice").expect(404).await;
    let seen = alice.caller.get("/api/v1/users/@bob").expect(200).await.json();
    assert_eq!(seen["viewer"]["blocking"], true);
    app.anonymous().get("/api/v1/users/@alice").expect(200).await;
}

#[tokio::test]
async fn a_token_that_can_not_be_judged_is_no_reason_to_log_in_again() {
    let config = config(&[]);
    let database = TestDatabase::with(config.settings).await;
    let proxy = Proxy::before(database.uri()).await;
    let store = Store::connect(&proxy.uri(), database.name(), config.settings).await.unwrap();
    let app = TestApp::start(&config, store.clone(), database);
    let alice = register(&app, "alice").await;
    proxy.cut();
    let answer = alice.caller.get("/api/v1/me").expect(503).await;
    assert_eq!(answer.code(), "database_unavailable");
    proxy.restore();
    while !is_good(&alice.caller).await {}
}

fn rookery(database: &TestDatabase, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rookery"))
        .args(arguments)
        .env("ROOKERY_MONGODB_URI", database.uri())
        .env("ROOKERY_DATABASE", database.name())
        .env("ROOKERY_SIGNING_KEY", "cm9va2VyeS10ZXN0cy1zaWduLXdpdGgtdGhpcy1rZXk=")
        .env("ROOKERY_PASSWORD_HASH_COST", "test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    command.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    command.wait_with_output().unwrap()
}

#[tokio::test]
async fn an_administrator_is_made_on_the_command_line_and_logs_in() {
    let config = config(&[]);
    let database = TestDatabase::with(config.settings).await;
    let create = |input: &str| rookery(&database, &["admin", "create", "--handle", "Root", "--password-stdin"], input);
    let weak = create("password123\n");
    assert!(!weak.status.success());
    assert!(!String::from_utf8_lossy(&weak.stderr).contains("password123"));
    let made = create(&format!("{PASSWORD}\n"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(!create(&format!("{PASSWORD}\n")).status.success(), "the handle is taken");

    let store = database.store().clone();
    let root = store.user(&UserRef::Handle(Handle::parse("root").unwrap())).await.unwrap().unwrap();
    assert!(store.is_admin(root.id).await.unwrap());
    let app = TestApp::start(&config, store, database);
    assert_eq!(log_in(&app, "root", PASSWORD).await.status, 200);
}
