//! Notifications over HTTP: what clients are told, how much of it is unread, and what they are refused.

#![expect(clippy::unwrap_used, reason = "in a test a fault is a failure")]

mod support;

use serde_json::{Value, json};

use support::{User, spawn_app};

const LIST: &str = "/api/v1/notifications";

fn id(of: &Value) -> String {
    of["id"].as_str().unwrap().to_owned()
}

async fn publish(by: &User, text: &str) -> String {
    id(&by.post("/api/v1/posts", &json!({ "text": text })).expect(201).await.json())
}

async fn told(user: &User) -> Vec<Value> {
    let body = user.get(&format!("{LIST}?limit=100")).expect(200).await.json();
    let items = body["items"].as_array().unwrap().clone();
    assert_eq!(unread(user).await, items.iter().filter(|item| item["read"] == false).count());
    items
}

async fn unread(user: &User) -> usize {
    let count = user.get(&format!("{LIST}/unread-count")).expect(200).await.json();
    usize::try_from(count["count"].as_u64().unwrap()).unwrap()
}

async fn read(user: &User, up_to: &Value) -> u16 {
    user.request("PUT".parse().unwrap(), &format!("{LIST}/read")).json(&json!({ "upTo": up_to })).send().await.status
}

#[tokio::test]
async fn a_notification_says_who_did_what_to_what() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let post = publish(&alice, "a post").await;
    for fan in [&bob, &carol] {
        fan.put(&format!("/api/v1/posts/{post}/like")).expect(200).await;
    }
    let comment = bob.post(&format!("/api/v1/posts/{post}/comments"), &json!({ "text": "nice, @alice" })).expect(201).await.json();
    let [comment_told, likes] = &told(&alice).await[..] else { panic!("two notifications") };
    assert_eq!((&comment_told["type"], &comment_told["actorCount"]), (&json!("comment"), &json!(1)));
    assert_eq!(comment_told["post"], json!({ "id": post, "text": "a post" }));
    assert_eq!(comment_told["comment"], json!({ "id": id(&comment), "text": "nice, @alice" }));
    assert_eq!((&likes["type"], &likes["actorCount"], &likes["comment"]), (&json!("like"), &json!(2), &Value::Null));
    assert_eq!(likes["actors"].as_array().unwrap().iter().map(|user| &user["handle"]).collect::<Vec<_>>(), ["carol", "bob"]);

    // A new name is there at once: it is read from the profile.
    bob.patch("/api/v1/me", &json!({ "handle": "robert", "displayName": "Robert" })).expect(200).await;
    assert_eq!(told(&alice).await[0]["actors"][0]["handle"], "robert");
    bob.delete("/api/v1/me").json(&json!({ "password": support::PASSWORD })).expect(202).await;
    let left = told(&alice).await;
    assert_eq!((left.len(), &left[0]["actorCount"], &left[0]["actors"][0]["handle"]), (1, &json!(1), &json!("carol")));
    app.settle().await;
    assert_eq!(told(&alice).await, left);
    alice.delete(&format!("/api/v1/posts/{post}")).expect(204).await;
    assert_eq!(told(&alice).await, Vec::<Value>::new());
}

#[tokio::test]
async fn reading_goes_up_to_what_was_seen_and_never_back() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let (one, other) = (publish(&alice, "one").await, publish(&alice, "other").await);
    for post in [&one, &other] {
        bob.put(&format!("/api/v1/posts/{post}/like")).expect(200).await;
    }
    let seen = told(&alice).await;
    assert_eq!(read(&alice, &seen[1]["id"]).await, 204);
    assert_eq!(unread(&alice).await, 1);
    assert_eq!(read(&alice, &seen[0]["id"]).await, 204);
    assert_eq!(read(&alice, &seen[1]["id"]).await, 204);
    assert_eq!(unread(&alice).await, 0);
    carol.put(&format!("/api/v1/posts/{one}/like")).expect(200).await;
    let now = told(&alice).await;
    assert_eq!((&now[0]["read"], &now[1]["read"]), (&json!(false), &json!(true)));
    assert_eq!((&now[0]["post"]["id"], &now[1]["id"]), (&json!(one), &seen[0]["id"]));
    assert_eq!(read(&alice, &seen[0]["id"]).await, 204);
    assert_eq!(unread(&alice).await, 1, "what came since is not read");
    assert_eq!(told(&bob).await, Vec::<Value>::new());
}

#[tokio::test]
async fn what_is_no_place_is_refused() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    for up_to in [json!("zzz"), json!(""), json!(7), Value::Null] {
        assert_eq!(read(&alice, &up_to).await, 400, "{up_to}");
    }
    let bodies = [json!({}), json!({ "upTo": "01890000-0000-7000-8000-00000000dead", "from": 1 })];
    for body in bodies {
        let call = alice.request("PUT".parse().unwrap(), &format!("{LIST}/read")).json(&body);
        assert_eq!(call.expect(400).await.code(), "invalid_body");
    }
    let garbled = alice.request("PUT".parse().unwrap(), &format!("{LIST}/read")).json(&json!({ "upTo": "zzz" })).expect(400).await;
    assert_eq!((garbled.code(), garbled.fields()), ("invalid_id".to_owned(), vec!["upTo".to_owned()]));
    assert_eq!(alice.get(&format!("{LIST}?cursor=x")).expect(400).await.code(), "invalid_cursor");
    let empty = alice.get(LIST).expect(200).await.json();
    assert_eq!((&empty["items"], &empty["nextCursor"], &empty["prevCursor"]), (&json!([]), &Value::Null, &Value::Null));
}

#[tokio::test]
async fn what_a_blocked_account_answers_is_not_told_and_comes_back_with_the_block() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let post = publish(&carol, "a post").await;
    let comments = format!("/api/v1/posts/{post}/comments");
    let own = id(&alice.post(&comments, &json!({ "text": "mine" })).expect(201).await.json());
    bob.post(&comments, &json!({ "text": "a reply, @alice", "parentId": own })).expect(201).await;
    assert_eq!(told(&alice).await[0]["type"], "reply");
    let block = format!("/api/v1/users/{}/block", bob.id);
    alice.put(&block).expect(204).await;
    assert_eq!(told(&alice).await, Vec::<Value>::new());
    bob.post("/api/v1/posts", &json!({ "text": "hey @alice" })).expect(201).await;
    assert_eq!(told(&alice).await, Vec::<Value>::new());
    alice.delete(&block).expect(204).await;
    let types: Vec<Value> = told(&alice).await.iter().map(|item| item["type"].clone()).collect();
    assert_eq!(types, ["mention", "reply"]);
}
