//! Comments over HTTP: what clients are told, and what they are refused.

#![expect(clippy::unwrap_used, reason = "in a test a fault is a failure")]

mod support;

use futures::future::join_all;
use serde_json::{Value, json};

use support::{TestApp, User, spawn_app, spawn_app_with};

const UNKNOWN: &str = "01890000-0000-7000-8000-00000000dead";

fn id(of: &Value) -> &str {
    of["id"].as_str().unwrap()
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(id).collect()
}

async fn publish(by: &User) -> String {
    id(&by.post("/api/v1/posts", &json!({ "text": "a post" })).expect(201).await.json()).to_owned()
}

/// Where the comments of a post are.
fn under(post: &str) -> String {
    format!("/api/v1/posts/{post}/comments")
}

async fn comment(by: &User, post: &str, text: &str, parent: Option<&str>) -> Value {
    by.post(&under(post), &json!({ "text": text, "parentId": parent })).expect(201).await.json()
}

async fn list(app: &TestApp, post: &str, query: &str) -> Value {
    app.anonymous().get(&format!("{}?{query}", under(post))).expect(200).await.json()
}

#[tokio::test]
async fn a_comment_shows_everywhere_as_it_was_answered() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let answer = bob.post(&under(&post), &json!({ "text": "  nice\r\none " })).expect(201).await;
    let made = answer.json();
    assert_eq!(answer.header("location"), Some(format!("/api/v1/comments/{}", id(&made)).as_str()));
    assert_eq!((&made["postId"], &made["text"]), (&json!(post), &json!("nice\none")));
    assert_eq!((&made["parentId"], &made["depth"], &made["editedAt"]), (&Value::Null, &json!(0), &Value::Null));
    assert_eq!((&made["author"]["handle"], &made["deleted"]), (&json!("bob"), &json!(false)));
    assert_eq!(made["counts"], json!({ "likes": 0, "replies": 0 }));
    assert_eq!(app.anonymous().get(&format!("/api/v1/comments/{}", id(&made))).expect(200).await.json(), made);
    let page = list(&app, &post, "").await;
    assert_eq!((&page["items"], &page["total"], &page["nextCursor"]), (&json!([made]), &json!(1), &Value::Null));
    let seen = app.anonymous().get(&format!("/api/v1/posts/{post}")).expect(200).await.json();
    assert_eq!((&seen["recentComments"], &seen["counts"]["comments"]), (&json!([made]), &json!(1)));
}

#[tokio::test]
async fn lists_go_both_ways_in_both_orders() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(id(&comment(&bob, &post, &n.to_string(), None).await).to_owned());
    }
    let reply = comment(&alice, &post, "reply", Some(&made[1])).await;
    let first = app.anonymous().get(&format!("{}?limit=2&sort=oldest", under(&post))).expect(200).await;
    let page = first.json();
    assert_eq!((ids(&page), &page["total"]), (vec![&*made[0], &*made[1]], &json!(6)));
    assert!(
        first.header("link").unwrap().contains(&format!("?sort=oldest&limit=2&cursor={}", page["nextCursor"].as_str().unwrap()))
    );
    let next = list(&app, &post, &format!("limit=2&sort=oldest&cursor={}", page["nextCursor"].as_str().unwrap())).await;
    assert_eq!(ids(&next), [&*made[2], &*made[3]]);
    let back = list(&app, &post, &format!("limit=2&sort=oldest&cursor={}", next["prevCursor"].as_str().unwrap())).await;
    assert_eq!(ids(&back), ids(&page));
    assert_eq!(ids(&list(&app, &post, "limit=2").await), [id(&reply), &*made[4]], "newest first unless asked otherwise");
    let replies = list(&app, &post, &format!("parentId={}", made[1])).await;
    assert_eq!((ids(&replies), &replies["total"]), (vec![id(&reply)], &json!(1)));
    let parent = app.anonymous().get(&format!("/api/v1/comments/{}", made[1])).expect(200).await.json();
    assert_eq!((&parent["counts"]["replies"], &reply["depth"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_deleted_comment_with_replies_keeps_its_place_without_text_and_author() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let root = comment(&bob, &post, "regretted", None).await;
    let reply = comment(&alice, &post, "kept", Some(id(&root))).await;
    let path = format!("/api/v1/comments/{}", id(&root));
    assert_eq!(alice.delete(&path).expect(403).await.code(), "not_yours");
    app.anonymous().delete(&path).expect(401).await;
    bob.delete(&path).expect(204).await;
    bob.delete(&path).expect(404).await;
    let seen = app.anonymous().get(&path).expect(200).await.json();
    assert_eq!((&seen["deleted"], &seen["text"], &seen["author"]), (&json!(true), &json!(""), &Value::Null));
    assert_eq!(list(&app, &post, "").await["total"], 2);
    let post_seen = app.anonymous().get(&format!("/api/v1/posts/{post}")).expect(200).await.json();
    assert_eq!((&post_seen["counts"]["comments"], &post_seen["recentComments"]), (&json!(1), &json!([reply])));
    alice.delete(&format!("/api/v1/comments/{}", id(&reply))).expect(204).await;
    app.anonymous().get(&path).expect(404).await;
    assert_eq!(list(&app, &post, "").await["total"], 0);
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_leaves_nothing() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let (post, elsewhere) = (publish(&alice).await, publish(&alice).await);
    let stranger = comment(&bob, &elsewhere, "stranger", None).await;
    for (body, status, code, field) in [
        (json!({}), 400, "invalid_body", "text"),
        (json!({ "text": 7 }), 400, "invalid_body", "text"),
        (json!({ "text": "a", "colour": "red" }), 400, "invalid_body", "colour"),
        (json!({ "text": "a", "parentId": "zzz" }), 400, "invalid_id", "parentId"),
        (json!({ "text": "a", "parentId": UNKNOWN }), 422, "validation_failed", "parentId"),
        (json!({ "text": "a", "parentId": id(&stranger) }), 422, "validation_failed", "parentId"),
        (json!({ "text": " \u{200b}\n" }), 422, "validation_failed", "text"),
        (json!({ "text": "\u{0}" }), 422, "validation_failed", "text"),
        (json!({ "text": "x".repeat(301) }), 422, "validation_failed", "text"),
    ] {
        let refused = bob.post(&under(&post), &body).expect(status).await;
        assert_eq!((refused.code().as_str(), refused.fields()), (code, vec![field.to_owned()]), "{body}");
    }
    bob.post(&under(UNKNOWN), &json!({ "text": "a" })).expect(404).await;
    bob.post(&under("zzz"), &json!({ "text": "a" })).expect(400).await;
    app.anonymous().post(&under(&post), &json!({ "text": "a" })).expect(401).await;
    for (query, status) in [("sort=sideways", 400), ("parentId=zzz", 400), ("limit=0", 400), ("cursor=garbled", 400)] {
        app.anonymous().get(&format!("{}?{query}", under(&post))).expect(status).await;
    }
    app.anonymous().get(&format!("{}?parentId={UNKNOWN}", under(&post))).expect(422).await;
    app.anonymous().get(&under(UNKNOWN)).expect(404).await;
    app.anonymous().get(&format!("/api/v1/comments/{UNKNOWN}")).expect(404).await;
    app.anonymous().get("/api/v1/comments/zzz").expect(400).await;
    bob.delete(&format!("/api/v1/comments/{UNKNOWN}")).expect(404).await;
    assert_eq!(list(&app, &post, "").await["items"], json!([]));
}

#[tokio::test]
async fn calls_with_one_key_make_one_comment() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let body = json!({ "text": "once" });
    let path = under(&post);
    let call = |body| bob.post(&path, body).header("idempotency-key", "k-1");
    let answers = join_all((0..8).map(|_| call(&body).expect(201))).await;
    assert!(answers.iter().all(|answer| answer.bytes == answers[0].bytes), "all get the same answer");
    assert_eq!(answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none()).count(), 1);
    assert_eq!(call(&json!({ "text": "twice" })).expect(422).await.code(), "idempotency_key_reused");
    app.settle().await;
    assert_eq!(list(&app, &post, "").await["total"], 1);
}

#[tokio::test]
async fn two_hundred_who_comment_at_once_are_all_counted() {
    let app = spawn_app_with(&[("ROOKERY_RATE_LIMIT", "off")]).await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let path = under(&post);
    let made = join_all((0..200).map(|n| {
        let (bob, path) = (&bob, &path);
        async move { id(&bob.post(path, &json!({ "text": n.to_string() })).expect(201).await.json()).to_owned() }
    }))
    .await;
    app.settle().await;
    let seen = app.anonymous().get(&format!("/api/v1/posts/{post}")).expect(200).await.json();
    assert_eq!((&seen["counts"]["comments"], seen["recentComments"].as_array().unwrap().len()), (&json!(200), 10));
    let (mut walked, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&app, &post, &format!("limit=100{cursor}")).await;
        assert_eq!(page["total"], 200);
        walked.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    walked.sort();
    let mut made = made;
    made.sort();
    assert_eq!(walked, made);
}
