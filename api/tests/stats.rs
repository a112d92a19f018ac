//! Views and statistics over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use futures::future::join_all;
use serde_json::{Value, json};
use support::{Caller, User, spawn_app};

const UNKNOWN: &str = "01890000-0000-7000-8000-00000000dead";

const FIGURES: [&str; 6] = ["views", "newFollowers", "lostFollowers", "posts", "likes", "comments"];

async fn publish(user: &User, text: &str) -> String {
    let post = user.post("/api/v1/posts", &json!({ "text": text })).expect(201).await.json();
    format!("/api/v1/posts/{}", post["id"].as_str().unwrap())
}

async fn read(reader: &Caller, post: &str) -> i64 {
    reader.get(post).expect(200).await.json()["counts"]["views"].as_i64().unwrap()
}

/// The statistics of somebody, by themselves.
async fn stats(of: &User, span: &str) -> Vec<Value> {
    let answer = of.get(&format!("/api/v1/users/{}/stats{span}", of.id)).expect(200).await.json();
    answer["items"].as_array().unwrap().clone()
}

/// The figures of all hours together, in the order of [`FIGURES`].
fn sums(hours: &[Value]) -> [i64; 6] {
    FIGURES.map(|figure| hours.iter().map(|hour| hour[figure].as_i64().unwrap()).sum())
}

#[tokio::test]
async fn what_came_is_in_the_hour_in_which_it_came() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    assert!(stats(&alice, "").await.is_empty());
    let post = publish(&alice, "hello").await;
    let follow = format!("/api/v1/users/{}/follow", alice.id);
    bob.put(&follow).expect(200).await;
    bob.put(&format!("{post}/like")).expect(200).await;
    bob.post(&format!("{post}/comments"), &json!({ "text": "a word" })).expect(201).await;
    app.settle().await;
    bob.delete(&follow).expect(204).await;
    bob.delete(&format!("{post}/like")).expect(200).await;
    for reader in [&*bob, &app.anonymous(), &*alice] {
        read(reader, &post).await;
    }
    app.settle().await;
    let hours = stats(&alice, "").await;
    assert_eq!(sums(&hours), [2, 1, 1, 1, 1, 1]);
    let starts: Vec<&str> = hours.iter().map(|hour| hour["hour"].as_str().unwrap()).collect();
    assert!(starts.iter().all(|hour| hour.ends_with(":00:00.000Z")) && starts.is_sorted(), "{starts:?}");
    assert_eq!(alice.get("/api/v1/users/@ALICE/stats").expect(200).await.json()["items"], json!(hours), "by the handle too");
    assert!(stats(&bob, "").await.is_empty(), "what one does oneself is in nobody's but the other's");
}

#[tokio::test]
async fn only_single_reads_by_others_are_views() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    bob.put(&format!("/api/v1/users/{}/follow", alice.id)).expect(200).await;
    let post = publish(&alice, "hello #world").await;
    app.settle().await;
    let id = post.rsplit('/').next().unwrap();
    for list in ["/api/v1/feed", &format!("/api/v1/users/{}/posts", alice.id), &format!("/api/v1/posts?ids={id}")] {
        assert_eq!(bob.get(list).expect(200).await.json()["items"].as_array().unwrap().len(), 1, "{list}");
    }
    bob.put(&format!("{post}/like")).expect(200).await;
    read(&alice, &post).await;
    app.settle().await;
    assert_eq!(read(&app.anonymous(), &post).await, 0);
    app.settle().await;
    // A post that is not shown is not read.
    alice.put(&format!("/api/v1/users/{}/block", bob.id)).expect(204).await;
    bob.get(&post).expect(404).await;
    app.settle().await;
    assert_eq!(read(&alice, &post).await, 1);
    assert_eq!(sums(&stats(&alice, "").await)[0], 1);
}

#[tokio::test]
async fn views_of_many_at_once_are_exact_after_the_next_step_and_never_fall() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice, "hello").await;
    let mut before = 0;
    for round in 1..=3 {
        let readers = (0..20).map(|n| {
            let reader = if n % 2 == 0 { app.anonymous() } else { (*bob).clone() };
            let post = post.clone();
            async move { read(&reader, &post).await }
        });
        let seen = join_all(readers).await;
        assert!(seen.iter().all(|views| *views >= before), "{seen:?}");
        app.settle().await;
        before = read(&alice, &post).await;
        assert_eq!(before, 20 * round);
    }
}

#[tokio::test]
async fn a_clean_end_adds_what_was_counted_and_the_next_process_goes_on() {
    let mut app = spawn_app().await;
    let alice = app.alice().await;
    let post = publish(&alice, "hello").await;
    for _ in 0..3 {
        read(&app.anonymous(), &post).await;
    }
    app.restart().await;
    let alice = app.with_token(&alice.access_token);
    assert_eq!(read(&alice, &post).await, 3);
    read(&app.anonymous(), &post).await;
    app.settle().await;
    assert_eq!(read(&alice, &post).await, 4);
    let hours = alice.get("/api/v1/users/@alice/stats").expect(200).await.json()["items"].clone();
    assert_eq!(sums(hours.as_array().unwrap())[..4], [4, 0, 0, 1]);
}

#[tokio::test]
async fn a_span_that_is_none_is_refused() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let ask = async |query: &str| alice.get(&format!("/api/v1/users/{}/stats?{query}", alice.id)).expect(400).await;
    for (query, field) in [
        ("from=yesterday&to=2030-01-01T00:00:00Z", "from"),
        ("to=2030-01-01", "to"),
        ("to=2030-01-01T00:00:00+01:00", "to"),
        ("from=", "from"),
        ("from=2030-01-01T00:00:00Z&to=2020-01-01T00:00:00Z", "from"),
        ("from=2999-01-01T00:00:00Z", "from"),
        ("from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00.001Z", "from"),
    ] {
        let refused = ask(query).await;
        assert_eq!((refused.code(), refused.fields()), ("invalid_query".to_owned(), vec![field.to_owned()]), "{query}");
    }
    for query in [
        "?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z",
        "?from=2026-01-01T00:00:00.5%2B01:00&to=2026-01-02T00:00:00Z",
        "?to=2020-01-01T00:00:00Z",
        "?from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z",
    ] {
        assert!(stats(&alice, query).await.is_empty(), "{query}");
    }
}

#[tokio::test]
async fn statistics_are_for_the_account_alone() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let path = format!("/api/v1/users/{}/stats", alice.id);
    app.anonymous().get(&path).expect(401).await;
    assert_eq!(bob.get(&path).expect(403).await.code(), "forbidden");
    // Whatever else is wrong with the call.
    bob.get(&format!("{path}?from=yesterday")).expect(403).await;
    alice.patch("/api/v1/me", &json!({ "private": true })).expect(200).await;
    bob.get(&path).expect(403).await;
    alice.put(&format!("/api/v1/users/{}/block", carol.id)).expect(204).await;
    carol.get(&path).expect(404).await;
    bob.get(&format!("/api/v1/users/{UNKNOWN}/stats")).expect(404).await;
    bob.get("/api/v1/users/@nobody/stats").expect(404).await;
    let password = json!({ "password": support::PASSWORD });
    alice.request(reqwest::Method::DELETE, "/api/v1/me").json(&password).expect(202).await;
    bob.get(&path).expect(404).await;
}

#[tokio::test]
async fn an_export_has_the_hours_of_the_account() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    publish(&alice, "hello").await;
    app.settle().await;
    let export = alice.get("/api/v1/me/export").expect(200).await.text();
    let lines: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hours: Vec<&Value> = lines.iter().filter(|line| line["type"] == "stats").map(|line| &line["data"]).collect();
    assert_eq!(json!(hours), json!(stats(&alice, "").await));
    assert_eq!(hours.len(), 1);
}
