//! Requests, blocks, mutes and one's own profile over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use rookery_storage::new_id;
use serde_json::{Value, json};
use support::{User, spawn_app};

async fn relation(viewer: &User, to: &User) -> Value {
    let answer = viewer.get(&format!("/api/v1/relationships?ids={}", to.id)).expect(200).await.json();
    let mut relation = answer["items"][0].clone();
    relation.as_object_mut().unwrap().remove("id");
    relation
}

/// A relation in which exactly these hold.
fn only(names: &[&str]) -> Value {
    let all = ["following", "followedBy", "requested", "blocking", "blockedBy", "muting"];
    all.iter().map(|name| ((*name).to_owned(), Value::from(names.contains(name)))).collect::<serde_json::Map<_, _>>().into()
}

async fn listed(viewer: &User, list: &str) -> Vec<String> {
    let page = viewer.get(&format!("/api/v1/me/{list}")).expect(200).await.json();
    page["items"].as_array().unwrap().iter().map(|item| item["user"]["handle"].as_str().unwrap().to_owned()).collect()
}

async fn set_private(user: &User, private: bool) {
    let me = user.patch("/api/v1/me", &json!({ "private": private })).expect(200).await.json();
    assert_eq!(me["private"], private);
}

#[tokio::test]
async fn a_request_is_listed_accepted_rejected_cancelled_and_never_counted_before() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    set_private(&alice, true).await;
    let follow = format!("/api/v1/users/{}/follow", alice.id);
    for _ in 0..2 {
        assert_eq!(bob.put(&follow).expect(202).await.json(), json!({ "state": "requested" }));
    }
    carol.put(&follow).expect(202).await;
    assert_eq!(listed(&alice, "follow-requests").await, ["carol", "bob"]);
    assert_eq!(relation(&bob, &alice).await, only(&["requested"]));
    assert_eq!(relation(&alice, &bob).await, only(&[]));
    app.settle().await;
    assert_eq!(alice.get("/api/v1/me").expect(200).await.json()["counts"]["followers"], 0);
    // Removing a follower is not rejecting.
    alice.delete(&format!("/api/v1/me/followers/{}", bob.id)).expect(204).await;
    let asked = |user: &User| format!("/api/v1/me/follow-requests/{}", user.id);
    for _ in 0..2 {
        alice.put(&asked(&bob)).expect(204).await;
        alice.delete(&asked(&bob)).expect(204).await;
        alice.delete(&asked(&carol)).expect(204).await;
    }
    alice.put(&asked(&carol)).expect(404).await;
    alice.put(&format!("/api/v1/me/follow-requests/{}", new_id())).expect(404).await;
    assert_eq!(relation(&bob, &alice).await, only(&["following"]));
    assert_eq!(bob.put(&follow).expect(200).await.json(), json!({ "state": "following" }));
    assert!(listed(&alice, "follow-requests").await.is_empty());
    carol.put(&follow).expect(202).await;
    carol.delete(&follow).expect(204).await;
    assert!(listed(&alice, "follow-requests").await.is_empty());
    carol.put(&follow).expect(202).await;
    set_private(&alice, false).await;
    app.settle().await;
    assert_eq!(relation(&carol, &alice).await, only(&["following"]));
    assert_eq!(alice.get("/api/v1/me").expect(200).await.json()["counts"]["followers"], 2);
}

#[tokio::test]
async fn blocks_and_mutes_are_told_listed_lifted_and_refused_to_oneself() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    bob.put("/api/v1/users/@alice/follow").expect(200).await;
    for _ in 0..2 {
        alice.put("/api/v1/users/@Bob/block").expect(204).await;
        alice.put("/api/v1/users/@carol/mute").expect(204).await;
    }
    assert_eq!(relation(&alice, &bob).await, only(&["blocking"]));
    assert_eq!(relation(&bob, &alice).await, only(&["blockedBy"]));
    assert_eq!(relation(&alice, &carol).await, only(&["muting"]));
    assert_eq!(relation(&carol, &alice).await, only(&[]), "nobody is told that they are muted");
    assert_eq!((listed(&alice, "blocks").await, listed(&alice, "mutes").await), (vec!["bob".to_owned()], vec!["carol".to_owned()]));
    assert_eq!(bob.put("/api/v1/users/@alice/follow").expect(403).await.code(), "blocked");
    assert_eq!(alice.put("/api/v1/users/@bob/follow").expect(403).await.code(), "blocked");
    for _ in 0..2 {
        alice.delete("/api/v1/users/@bob/block").expect(204).await;
        alice.delete("/api/v1/users/@carol/mute").expect(204).await;
    }
    assert!(listed(&alice, "blocks").await.is_empty() && listed(&alice, "mutes").await.is_empty());
    assert_eq!(alice.put("/api/v1/users/@alice/block").expect(422).await.code(), "self_block");
    assert_eq!(alice.put("/api/v1/users/@alice/mute").expect(422).await.code(), "self_mute");
    for verb in ["block", "mute"] {
        alice.put(&format!("/api/v1/users/@nobody/{verb}")).expect(404).await;
    }
}

#[tokio::test]
async fn a_profile_changes_as_a_whole_and_only_in_what_is_named() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let edit = json!({ "displayName": " Ada ", "bio": "Numbers", "avatarUrl": "https://example.org/a.png" });
    let me = alice.patch("/api/v1/me", &edit).expect(200).await.json();
    assert_eq!(
        (&me["displayName"], &me["bio"], &me["avatarUrl"]),
        (&json!("Ada"), &json!("Numbers"), &json!("https://example.org/a.png"))
    );
    let me = alice.patch("/api/v1/me", &json!({ "avatarUrl": null })).expect(200).await.json();
    assert_eq!((&me["displayName"], &me["bio"], &me["avatarUrl"]), (&json!("Ada"), &json!("Numbers"), &Value::Null));
    assert_eq!(alice.patch("/api/v1/me", &json!({})).expect(200).await.json(), me);
    let wrong = json!({ "displayName": "", "bio": "b".repeat(201), "avatarUrl": "javascript:alert(1)", "private": true });
    let refused = alice.patch("/api/v1/me", &wrong).expect(422).await;
    assert_eq!(
        (refused.code().as_str(), refused.fields()),
        ("validation_failed", vec!["displayName".to_owned(), "bio".to_owned(), "avatarUrl".to_owned()])
    );
    for (body, field) in [
        (json!({ "displayName": null }), "displayName"),
        (json!({ "bio": 7 }), "bio"),
        (json!({ "private": null }), "private"),
        (json!({ "counts": { "followers": 9 } }), "counts"),
    ] {
        assert_eq!(alice.patch("/api/v1/me", &body).expect(400).await.fields(), [field]);
    }
    assert_eq!(alice.get("/api/v1/me").expect(200).await.json(), me);
}

#[tokio::test]
async fn a_post_shows_ten_comments_however_many_of_the_newest_are_hidden() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let post = carol.post("/api/v1/posts", &json!({ "text": "hello" })).expect(201).await.json();
    let path = format!("/api/v1/posts/{}", post["id"].as_str().unwrap());
    let mut shown = Vec::new();
    for n in 0..30 {
        let by = if n < 15 { &carol } else { &bob };
        let comment = by.post(&format!("{path}/comments"), &json!({ "text": format!("{n}") })).expect(201).await.json();
        if n < 15 {
            shown.insert(0, comment["id"].clone());
        }
    }
    app.settle().await;
    for verb in ["mute", "block"] {
        alice.put(&format!("/api/v1/users/{}/{verb}", bob.id)).expect(204).await;
        let seen = alice.get(&path).expect(200).await.json();
        let recent: Vec<Value> = seen["recentComments"].as_array().unwrap().iter().map(|comment| comment["id"].clone()).collect();
        assert_eq!(recent, shown[..10]);
        assert_eq!(seen["counts"]["comments"], 30, "the same for every viewer");
        let page = alice.get(&format!("{path}/comments?limit=15")).expect(200).await.json();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["total"], &page["nextCursor"]), (15, &json!(15), &Value::Null));
    }
}

#[tokio::test]
async fn a_rename_shows_on_the_profile_at_once_and_on_every_copy_when_its_job_is_done() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = alice.post("/api/v1/posts", &json!({ "text": "hello @bob" })).expect(201).await.json();
    let path = format!("/api/v1/posts/{}", post["id"].as_str().unwrap());
    bob.post(&format!("{path}/comments"), &json!({ "text": "hello back" })).expect(201).await;

    let taken = alice.patch("/api/v1/me", &json!({ "handle": "Bob", "bio": "never written" })).expect(409).await;
    assert_eq!(taken.code(), "handle_taken");
    let me = alice.get("/api/v1/me").expect(200).await.json();
    assert_eq!((&me["handle"], &me["bio"]), (&json!("alice"), &json!("")), "nothing is changed");
    assert_eq!(alice.patch("/api/v1/me", &json!({ "handle": "no spaces" })).expect(422).await.fields(), ["handle"]);

    let me = alice.patch("/api/v1/me", &json!({ "handle": "Countess", "displayName": "Zoë" })).expect(200).await.json();
    assert_eq!((&me["handle"], &me["displayName"]), (&json!("countess"), &json!("Zoë")));
    bob.patch("/api/v1/me", &json!({ "handle": "robert" })).expect(200).await;
    let anonymous = app.anonymous();
    assert_eq!(anonymous.get("/api/v1/users/@countess").expect(200).await.json()["id"], alice.id.as_str());
    anonymous.get("/api/v1/users/@alice").expect(404).await;
    let found = anonymous.get("/api/v1/users?q=zoe").expect(200).await.json();
    assert_eq!(found["items"][0]["handle"], "countess", "searches know the new name");

    app.settle().await;
    let post = anonymous.get(&path).expect(200).await.json();
    assert_eq!((&post["author"]["handle"], &post["author"]["displayName"]), (&json!("countess"), &json!("Zoë")));
    assert_eq!(post["mentions"][0]["handle"], "robert");
    assert_eq!(post["recentComments"][0]["author"]["handle"], "robert");
}
