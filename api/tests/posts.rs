//! Posts and idempotency keys over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use futures::future::join_all;
use rookery_domain::{PostId, UserId, post::Visibility};
use rookery_storage::{
    idempotency::{Answer as Kept, Claim, KeyedRequest, LEASE},
    new_id, now,
    posts::NewPost,
};
use serde_json::{Value, json};
use support::{Answer, Caller, TestApp, User, spawn_app};

const UNKNOWN: &str = "01890000-0000-7000-8000-00000000dead";

async fn publish(user: &User, text: &str) -> Value {
    user.post("/api/v1/posts", &json!({ "text": text })).expect(201).await.json()
}

fn id(post: &Value) -> &str {
    post["id"].as_str().unwrap()
}

fn path(post: &Value) -> String {
    format!("/api/v1/posts/{}", id(post))
}

async fn page(reader: &Caller, path: &str) -> Value {
    reader.get(path).expect(200).await.json()
}

async fn posts_of(reader: &Caller, user: &User) -> Vec<String> {
    ids(&page(reader, &format!("/api/v1/users/{}/posts?limit=100", user.id)).await)
}

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|post| id(post).to_owned()).collect()
}

async fn count(app: &TestApp, user: &User) -> i64 {
    page(&app.anonymous(), &format!("/api/v1/users/{}", user.id)).await["counts"]["posts"].as_i64().unwrap()
}

#[tokio::test]
async fn a_post_has_every_documented_field() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let answer = alice.post("/api/v1/posts", &json!({ "text": "hello #World, hello @BOB" })).expect(201).await;
    let post = answer.json();
    assert_eq!(answer.header("location"), Some(&*path(&post)));
    let author = json!({ "id": alice.id, "handle": "alice", "displayName": "alice", "avatarUrl": null, "celebrity": false });
    let mention = json!({ "id": bob.id, "handle": "bob", "displayName": "bob", "avatarUrl": null, "celebrity": false });
    let expected = json!({
        "id": post["id"], "author": author, "text": "hello #World, hello @BOB", "visibility": "public", "tags": ["world"],
        "mentions": [mention], "createdAt": post["createdAt"], "editedAt": null,
        "counts": { "comments": 0, "likes": 0, "reposts": 0, "views": 0 }, "recentComments": [],
        "viewer": { "liked": false, "reposted": false, "bookmarked": false },
    });
    assert_eq!(post, expected);
    assert_eq!(page(&alice, &path(&post)).await, expected);
    let seen = page(&app.anonymous(), &path(&post)).await;
    assert_eq!(seen.get("viewer"), None);
}

#[tokio::test]
async fn what_is_no_post_is_refused_and_leaves_nothing() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let anonymous = app.anonymous();
    assert_eq!(anonymous.post("/api/v1/posts", &json!({ "nonsense": 1 })).expect(401).await.code(), "unauthenticated");
    for body in [json!({}), json!({ "text": 5 }), json!({ "text": null }), json!({ "text": "a", "visibility": "secret" })] {
        alice.post("/api/v1/posts", &body).expect(400).await;
    }
    for body in [json!({ "text": "a", "id": UNKNOWN }), json!({ "text": "a", "createdAt": "1999-01-01T00:00:00.000Z" })] {
        assert_eq!(alice.post("/api/v1/posts", &body).expect(400).await.code(), "invalid_body");
    }
    let refused = alice.post("/api/v1/posts", &json!({ "text": " " })).expect(422).await;
    assert_eq!((refused.code(), refused.fields()), ("validation_failed".to_owned(), vec!["text".to_owned()]));
    assert_eq!(refused.json()["errors"][0]["code"], "empty");
    assert!(posts_of(&anonymous, &alice).await.is_empty());
    assert_eq!(count(&app, &alice).await, 0);
}

#[tokio::test]
async fn posts_by_ids_are_in_the_order_asked_without_the_unknown() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let (first, second) = (publish(&alice, "1").await, publish(&bob, "2").await);
    let list = page(&bob, &format!("/api/v1/posts?ids={},{UNKNOWN},{}", id(&second), id(&first))).await;
    assert_eq!(ids(&list), [id(&second), id(&first)]);
    assert_eq!((&list["nextCursor"], &list["prevCursor"]), (&Value::Null, &Value::Null));
    let many = |n: usize| format!("/api/v1/posts?ids={}", vec![UNKNOWN; n].join(","));
    assert!(ids(&page(&bob, &many(100)).await).is_empty());
    for path in [many(101), "/api/v1/posts?ids=zzz".to_owned(), "/api/v1/posts?ids=%00,$ne".to_owned(), "/api/v1/posts".to_owned()]
    {
        bob.get(&path).expect(400).await;
    }
}

#[tokio::test]
async fn only_the_author_deletes_and_only_once() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice, "mine").await;
    app.anonymous().delete(&path(&post)).expect(401).await;
    assert_eq!(bob.delete(&path(&post)).expect(403).await.code(), "not_yours");
    assert_eq!(page(&bob, &path(&post)).await["text"], "mine");
    alice.delete(&path(&post)).expect(204).await;
    for caller in [&alice, &bob] {
        caller.get(&path(&post)).expect(404).await;
        caller.delete(&path(&post)).expect(404).await;
    }
    assert!(posts_of(&bob, &alice).await.is_empty());
    assert_eq!(count(&app, &alice).await, 0);
}

#[tokio::test]
async fn ids_that_are_none_are_told_from_ids_of_nothing() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    alice.get(&format!("/api/v1/posts/{UNKNOWN}")).expect(404).await;
    for garbled in ["487623987434987263434343", "zzz", "5f43a1b2c3d4e5f60718293a", "..%2Fx", "-1", "%00"] {
        alice.get(&format!("/api/v1/posts/{garbled}")).expect(400).await;
        alice.delete(&format!("/api/v1/posts/{garbled}")).expect(400).await;
    }
}

#[tokio::test]
async fn a_post_for_followers_is_hidden_from_others() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let body = json!({ "text": "for few", "visibility": "followers" });
    let post = alice.post("/api/v1/posts", &body).expect(201).await.json();
    assert_eq!(post["visibility"], "followers");
    bob.get(&path(&post)).expect(404).await;
    bob.delete(&path(&post)).expect(404).await;
    app.anonymous().get(&path(&post)).expect(404).await;
    assert!(posts_of(&bob, &alice).await.is_empty());
    assert_eq!(posts_of(&alice, &alice).await, [id(&post)]);
    let user = |user: &User| UserId(user.id.parse().unwrap());
    app.store().follow(user(&bob), user(&alice)).await.unwrap().unwrap();
    assert_eq!(page(&bob, &path(&post)).await["text"], "for few");
    assert_eq!(posts_of(&bob, &alice).await, [id(&post)]);
}

#[tokio::test]
async fn the_posts_of_an_account_are_paged_newest_first() {
    let app = spawn_app().await;
    let (alice, reader) = (app.alice().await, app.anonymous());
    app.anonymous().get("/api/v1/users/@nobody/posts").expect(404).await;
    let mut made = Vec::new();
    for n in 0..6 {
        made.insert(0, id(&publish(&alice, &n.to_string()).await).to_owned());
    }
    let first = reader.get("/api/v1/users/@ALICE/posts?limit=3").expect(200).await;
    let link = first.header("link").unwrap().to_owned();
    let first = first.json();
    let next = first["nextCursor"].as_str().unwrap();
    assert!(link.contains("rel=\"next\"") && link.contains(next));
    let second = page(&reader, &format!("/api/v1/users/@alice/posts?limit=3&cursor={next}")).await;
    assert_eq!((ids(&first), ids(&second)), (made[..3].to_vec(), made[3..].to_vec()));
    assert_eq!(second["nextCursor"], Value::Null, "a multiple of the limit");
    let prev = second["prevCursor"].as_str().unwrap();
    let back = page(&reader, &format!("/api/v1/users/@alice/posts?limit=2&cursor={prev}")).await;
    assert_eq!(ids(&back), made[1..3], "the adjacent newer ones");
}

#[tokio::test]
async fn an_edit_shows_everywhere_and_keeps_a_history() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let post = publish(&alice, "first #one @bob").await;
    let history = format!("{}/history", path(&post));
    let none = page(&app.anonymous(), &history).await;
    assert_eq!(none, json!({ "items": [], "nextCursor": null, "prevCursor": null }));
    let second = alice.patch(&path(&post), &json!({ "text": " second #Two @carol\r\n" })).expect(200).await.json();
    assert_eq!((&second["text"], &second["tags"]), (&json!("second #Two @carol"), &json!(["two"])));
    assert_eq!(second["mentions"].as_array().unwrap().iter().map(|user| user["id"].clone()).collect::<Vec<_>>(), [json!(carol.id)]);
    assert!(second["editedAt"].as_str().unwrap() >= post["createdAt"].as_str().unwrap());
    for unchanged in ["id", "author", "visibility", "createdAt", "counts"] {
        assert_eq!(second[unchanged], post[unchanged], "{unchanged}");
    }
    assert_eq!(alice.patch(&path(&post), &json!({ "text": "second #Two @carol" })).expect(200).await.json(), second, "the same");
    alice.patch(&path(&post), &json!({ "text": "third" })).expect(200).await;
    let first = bob.get(&format!("{history}?limit=1")).expect(200).await;
    let link = first.header("link").unwrap().to_owned();
    let first = first.json();
    assert!(link.contains("rel=\"next\"") && link.contains("rel=\"prev\""));
    assert_eq!(first["items"], json!([{ "text": "second #Two @carol", "editedAt": second["editedAt"] }]));
    let rest = page(&bob, &format!("{history}?cursor={}", first["nextCursor"].as_str().unwrap())).await;
    assert_eq!(rest["items"], json!([{ "text": "first #one @bob", "editedAt": post["createdAt"] }]));
    assert_eq!(rest["nextCursor"], Value::Null);
    alice.delete(&path(&post)).expect(204).await;
    for caller in [&*alice, &*bob, &app.anonymous()] {
        caller.get(&history).expect(404).await;
    }
    alice.patch(&path(&post), &json!({ "text": "late" })).expect(404).await;
    app.settle().await;
}

#[tokio::test]
async fn an_edit_is_refused_like_a_post_and_by_others_not_at_all_or_not_known() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice, "mine").await;
    let hidden = json!({ "text": "for few", "visibility": "followers" });
    let hidden = alice.post("/api/v1/posts", &hidden).expect(201).await.json();
    let edit = json!({ "text": "his" });
    app.anonymous().patch(&path(&post), &json!({ "nonsense": 1 })).expect(401).await;
    assert_eq!(bob.patch(&path(&post), &edit).expect(403).await.code(), "not_yours");
    bob.patch(&path(&hidden), &edit).expect(404).await;
    bob.get(&format!("{}/history", path(&hidden))).expect(404).await;
    alice.patch(&format!("/api/v1/posts/{UNKNOWN}"), &edit).expect(404).await;
    alice.patch("/api/v1/posts/zzz", &edit).expect(400).await;
    for body in [json!({}), json!({ "text": 5 }), json!({ "text": "a", "visibility": "followers" })] {
        assert_eq!(alice.patch(&path(&post), &body).expect(400).await.code(), "invalid_body");
    }
    for (text, code) in [("\u{200b}", "empty"), ("a\u{10}b", "control_character"), (&*"a".repeat(501), "too_long")] {
        let refused = alice.patch(&path(&post), &json!({ "text": text })).expect(422).await;
        assert_eq!((refused.fields(), &refused.json()["errors"][0]["code"]), (vec!["text".to_owned()], &json!(code)));
    }
    assert_eq!(page(&bob, &path(&post)).await, post, "nothing of it has changed");
    // Whom she blocks does not know of it any more.
    alice.put(&format!("/api/v1/users/{}/block", bob.id)).expect(204).await;
    bob.patch(&path(&post), &edit).expect(404).await;
    bob.get(&format!("{}/history", path(&post))).expect(404).await;
}

#[tokio::test]
async fn posts_are_found_by_their_tags_in_any_case() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let reader = app.anonymous();
    let mut made = Vec::new();
    for text in ["#Straße", "(#STRASSE), and #strasse.", "end #straẞe", "#strasse #ÉTÉ"] {
        made.insert(0, id(&publish(&alice, text).await).to_owned());
    }
    publish(&alice, "#strassen strasse a#strasse").await;
    let tagged = |tag: &str, query: &str| format!("/api/v1/tags/{tag}/posts{query}");
    for spelling in ["strasse", "STRASSE", "stra%C3%9Fe", "Stra%E1%BA%9Ee"] {
        assert_eq!(ids(&page(&reader, &tagged(spelling, "")).await), made, "{spelling}");
    }
    for composed_or_not in ["%C3%A9t%C3%A9", "E%CC%81te%CC%81"] {
        assert_eq!(ids(&page(&bob, &tagged(composed_or_not, "")).await), made[..1]);
    }
    let first = page(&reader, &tagged("strasse", "?limit=2")).await;
    let next = first["nextCursor"].as_str().unwrap();
    let second = page(&reader, &tagged("strasse", &format!("?limit=2&cursor={next}"))).await;
    assert_eq!((ids(&first), ids(&second)), (made[..2].to_vec(), made[2..].to_vec()));
    assert_eq!(second["nextCursor"], Value::Null, "a multiple of the limit");
    let back = tagged("strasse", &format!("?limit=2&cursor={}", second["prevCursor"].as_str().unwrap()));
    assert_eq!(ids(&page(&reader, &back).await), made[..2]);
    let empty = page(&reader, &tagged("unused", "")).await;
    assert_eq!(empty, json!({ "items": [], "nextCursor": null, "prevCursor": null }));
    for impossible in ["2024", "_", "%23strasse", "a-b", "a%20b", "%F0%9F%90%A6", "%00", "%FF"] {
        let refused = reader.get(&tagged(impossible, "")).expect(422).await;
        assert_eq!((refused.code(), refused.fields()), ("validation_failed".to_owned(), vec!["tag".to_owned()]), "{impossible}");
        assert_eq!(refused.json()["errors"][0]["code"], "invalid_tag");
    }
    reader.get(&tagged("strasse", "?limit=0")).expect(400).await;
    reader.get(&tagged("strasse", "?cursor=x")).expect(400).await;
}

#[tokio::test]
async fn the_server_sets_id_and_time() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let mut posts = Vec::new();
    for n in 0..5 {
        posts.push(publish(&alice, &n.to_string()).await);
    }
    let key = |post: &Value| (id(post).to_owned(), post["createdAt"].as_str().unwrap().to_owned());
    assert!(posts.windows(2).all(|two| key(&two[0]) < key(&two[1])), "ids and times agree in order");
}

// Idempotency keys

async fn with_key(user: &User, key: &str, text: &str) -> Answer {
    user.post("/api/v1/posts", &json!({ "text": text })).header("Idempotency-Key", key).send().await
}

#[tokio::test]
async fn the_same_key_gives_the_same_post() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let (first, again) = (with_key(&alice, "k", "once").await, with_key(&alice, "k", "once").await);
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.bytes, again.bytes);
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), (None, Some("true")));
    assert_eq!(count(&app, &alice).await, 1);
}

#[tokio::test]
async fn twenty_calls_at_once_with_one_key_make_one_post() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let answers = join_all((0..20).map(|_| with_key(&alice, "k", "once"))).await;
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.bytes == answers[0].bytes));
    let replayed = answers.iter().filter(|answer| answer.header("idempotency-replayed") == Some("true")).count();
    assert_eq!(replayed, 19);
    assert_eq!(posts_of(&alice, &alice).await.len(), 1);
    assert_eq!(count(&app, &alice).await, 1);
}

#[tokio::test]
async fn a_key_with_another_body_is_refused() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    with_key(&alice, "k", "once").await;
    let other = with_key(&alice, "k", "twice").await;
    assert_eq!((other.status, other.code()), (422, "idempotency_key_reused".to_owned()));
    let spelled_out = json!({ "visibility": "public", "text": "once" });
    let same = alice.post("/api/v1/posts", &spelled_out).header("Idempotency-Key", "k").expect(201).await;
    assert_eq!(same.header("idempotency-replayed"), Some("true"), "another spelling of the same body");
    assert_eq!(count(&app, &alice).await, 1);
}

#[tokio::test]
async fn the_keys_of_two_users_do_not_meet() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let (hers, his) = (with_key(&alice, "k", "same").await, with_key(&bob, "k", "same").await);
    assert_ne!(hers.json()["id"], his.json()["id"]);
    assert_eq!(his.header("idempotency-replayed"), None);
}

#[tokio::test]
async fn a_refusal_does_not_use_up_the_key() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    assert_eq!(with_key(&alice, "k", "\u{200b}").await.status, 422);
    let corrected = with_key(&alice, "k", "corrected").await;
    assert_eq!((corrected.status, corrected.header("idempotency-replayed")), (201, None));
}

#[tokio::test]
async fn a_key_is_1_to_255_visible_ascii_characters() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    for key in ["", "with space", &"a".repeat(256), "caf\u{e9}"] {
        let refused = with_key(&alice, key, "x").await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_idempotency_key".to_owned()), "{key:?}");
    }
    assert_eq!(with_key(&alice, &"~".repeat(255), "x").await.status, 201);
    let anonymous = app.anonymous().post("/api/v1/posts", &json!({ "text": "x" })).header("Idempotency-Key", "");
    anonymous.expect(401).await;
}

/// The claim of a call with key `k` that came `before` now and of which nothing was heard since.
async fn earlier_call(app: &TestApp, user: &User, text: &str, before: std::time::Duration) -> rookery_storage::idempotency::Made {
    let body = json!({ "text": text, "visibility": "public" }).to_string();
    let request = KeyedRequest::new(user.id.parse().unwrap(), "/api/v1/posts", "k", body.as_bytes());
    match app.store().claim_key(&request, new_id(), now().minus(before)).await.unwrap() {
        Claim::Mine(made) => made,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_call_that_died_is_taken_over_with_its_id() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let died = earlier_call(&app, &alice, "once", LEASE).await;
    let answers = join_all((0..5).map(|_| with_key(&alice, "k", "once"))).await;
    assert!(answers.iter().all(|answer| answer.status == 201 && answer.json()["id"] == died.resource.to_string()));
    assert_eq!(count(&app, &alice).await, 1);
}

#[tokio::test]
async fn a_call_that_died_after_its_insert_made_the_post() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let died = earlier_call(&app, &alice, "once", LEASE).await;
    let author = UserId(alice.id.parse().unwrap());
    let new = NewPost { id: PostId(died.resource), author, text: "once".to_owned(), visibility: Visibility::Public };
    app.store().create_post(new).await.unwrap().unwrap();
    let answer = with_key(&alice, "k", "once").await;
    assert_eq!((answer.status, answer.json()["id"].as_str()), (201, Some(&*died.resource.to_string())));
    assert_eq!(count(&app, &alice).await, 1);
    assert_eq!(posts_of(&alice, &alice).await.len(), 1);
}

#[tokio::test]
async fn a_call_waits_for_the_one_before_it() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let before = earlier_call(&app, &alice, "once", std::time::Duration::ZERO).await;
    let body = publish(&alice, "the answer of the other call").await;
    let kept = Kept { status: 201, location: Some("/there".to_owned()), body: body.to_string() };
    let (waited, ()) = tokio::join!(with_key(&alice, "k", "once"), async {
        app.store().keep_answer(&before, kept.clone()).await.unwrap();
    });
    assert_eq!((waited.json(), waited.header("location")), (body, Some("/there")));
    assert_eq!(waited.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn a_call_that_failed_hands_its_id_to_the_next() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let failed = earlier_call(&app, &alice, "once", std::time::Duration::ZERO).await;
    app.store().release_key(&failed, now()).await.unwrap();
    assert_eq!(with_key(&alice, "k", "once").await.json()["id"], failed.resource.to_string());
}
