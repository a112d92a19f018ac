//! The life of an account over HTTP: found, suggested, exported, deleted.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use rookery_domain::{Handle, UserId};
use rookery_storage::{new_id, now, users::NewUser, verify::verify};
use serde_json::{Value, json};
use support::{Caller, PASSWORD, TestApp, User, spawn_app};

async fn get(caller: &Caller, path: &str) -> Value {
    caller.get(&format!("/api/v1{path}")).expect(200).await.json()
}

async fn named(app: &TestApp, handle: &str, name: &str) -> String {
    let body = json!({ "handle": handle, "email": format!("{handle}@example.org"), "password": PASSWORD, "displayName": name });
    let user = app.anonymous().post("/api/v1/auth/register", &body).expect(201).await.json();
    user["user"]["id"].as_str().unwrap().to_owned()
}

async fn follow(follower: &User, followee: &str) {
    follower.put(&format!("/api/v1/users/{followee}/follow")).expect(200).await;
}

async fn publish(author: &User, text: &str) -> String {
    let post = author.post("/api/v1/posts", &json!({ "text": text })).expect(201).await.json();
    post["id"].as_str().unwrap().to_owned()
}

async fn comment(author: &User, post: &str) -> String {
    let made = author.post(&format!("/api/v1/posts/{post}/comments"), &json!({ "text": "A remark" })).expect(201).await.json();
    made["id"].as_str().unwrap().to_owned()
}

fn handles(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|user| user["handle"].as_str().unwrap()).collect()
}

/// A walk along `nextCursor`, each page full, and back along `prevCursor`.
async fn walk(caller: &Caller, path: &str, limit: usize) -> Vec<String> {
    let (mut all, mut at) = (Vec::new(), format!("{path}&limit={limit}"));
    let mut last = Value::Null;
    loop {
        let page = get(caller, &at).await;
        all.extend(handles(&page).into_iter().map(str::to_owned));
        last = if page["prevCursor"].is_null() { last } else { page["prevCursor"].clone() };
        let Some(next) = page["nextCursor"].as_str() else { break };
        assert_eq!(page["items"].as_array().unwrap().len(), limit, "a short page before the end");
        at = format!("{path}&limit={limit}&cursor={next}");
    }
    let mut back: Vec<String> = Vec::new();
    while let Some(prev) = last.as_str() {
        let page = get(caller, &format!("{path}&limit={limit}&cursor={prev}")).await;
        last = if handles(&page).is_empty() { Value::Null } else { page["prevCursor"].clone() };
        back.splice(0..0, handles(&page).into_iter().map(str::to_owned));
    }
    assert!(all.starts_with(&back) && all.len() - back.len() <= limit, "{back:?} of {all:?}");
    all
}

async fn delete_account(user: &User) -> Value {
    user.delete("/api/v1/me").json(&json!({ "password": PASSWORD })).expect(202).await.json()
}

#[tokio::test]
async fn accounts_are_found_by_the_beginning_of_handle_or_name_in_the_order_of_their_handles() {
    let app = spawn_app().await;
    for (handle, name) in [
        ("zed_2", "Zoë Änderson"),
        ("zed_1", "Other"),
        ("a_zoe", "ZOE"),
        ("b", "Zoet"),
        ("ander", "Anders"),
        ("weird", ".* (a+)+$ 100%"),
        ("m", "Straße"),
    ] {
        named(&app, handle, name).await;
    }
    let caller = app.anonymous();
    for (query, found) in [
        ("zed", vec!["zed_1", "zed_2"]),
        ("ZED_1", vec!["zed_1"]),
        ("z", vec!["a_zoe", "b", "zed_1", "zed_2"]),
        ("zo", vec!["a_zoe", "b", "zed_2"]),
        ("zoe", vec!["a_zoe", "b", "zed_2"]),
        ("ZO%C3%8B", vec!["a_zoe", "b", "zed_2"]),
        ("zo%C3%AB%20a", vec!["zed_2"]),
        ("zoet", vec!["b"]),
        ("strass", vec!["m"]),
        ("ed", vec![]),
        ("anders", vec!["ander"]),
        (".*", vec!["weird"]),
        (".*%20(a%2B)%2B$%20100%25", vec!["weird"]),
        ("%5Ez", vec![]),
        ("_", vec![]),
        ("%CC%81", vec![]),
    ] {
        assert_eq!(handles(&get(&caller, &format!("/users?q={query}")).await), found, "{query}");
        assert_eq!(walk(&caller, &format!("/users?q={query}"), 2).await, found, "{query} by 2");
        assert_eq!(walk(&caller, &format!("/users?q={query}"), 1).await, found, "{query} by 1");
    }
    for (bad, code) in
        [("", "invalid_query"), ("?q=", "invalid_query"), ("?q=a&ids=", "invalid_query"), ("?q=a&cursor=x", "invalid_cursor")]
    {
        assert_eq!(caller.get(&format!("/api/v1/users{bad}")).expect(400).await.code(), code, "{bad}");
    }
}

#[tokio::test]
async fn accounts_are_read_by_their_ids_in_the_order_asked() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let path = format!("/users?ids={},{},{},{}", carol.id, new_id(), alice.id, bob.id);
    assert_eq!(handles(&get(&app.anonymous(), &path).await), ["carol", "alice", "bob"]);
    let parse = |user: &User| user.id.parse::<UserId>().unwrap();
    app.store().block(parse(&bob), parse(&alice)).await.unwrap().unwrap();
    for (viewer, seen) in [(&alice, vec!["carol", "alice"]), (&bob, vec!["carol", "bob"])] {
        assert_eq!(handles(&get(viewer, &path).await), seen, "a block hides both ways");
    }
    assert_eq!(handles(&get(&alice, "/users?q=bob").await), Vec::<&str>::new());
    assert_eq!(handles(&get(&bob, "/users?q=a").await), Vec::<&str>::new());
    let many = vec![new_id().to_string(); 101].join(",");
    assert_eq!(app.anonymous().get(&format!("/api/v1/users?ids={many}")).expect(400).await.code(), "invalid_query");
    assert_eq!(app.anonymous().get("/api/v1/users?ids=zzz").expect(400).await.code(), "invalid_id");
}

#[tokio::test]
async fn suggestions_are_friends_of_friends_by_shared_follows_and_then_the_popular() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    let (often, once, star) = (app.register("often").await, app.register("once").await, app.register("star").await);
    let (blocked, blocking) = (app.register("blocked").await, app.register("blocking").await);
    let fan = app.register("fan").await;
    follow(&fan, &star.id).await;
    for friend in [&bob, &carol] {
        follow(&alice, &friend.id).await;
        follow(friend, &often.id).await;
        follow(friend, &alice.id).await;
    }
    for other in [&once, &carol, &blocked, &blocking] {
        follow(&bob, &other.id).await;
    }
    let parse = |user: &User| user.id.parse::<UserId>().unwrap();
    app.store().block(parse(&alice), parse(&blocked)).await.unwrap().unwrap();
    app.store().block(parse(&blocking), parse(&alice)).await.unwrap().unwrap();
    app.settle().await;
    let page = get(&alice, "/me/suggestions").await;
    assert_eq!(handles(&page), ["often", "once", "star"]);
    let reasons: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["reason"].clone()).collect();
    let shared = |count: u32| json!({ "type": "shared_follows", "count": count });
    assert_eq!(reasons, [shared(2), shared(1), json!({ "type": "popular" })]);
    assert_eq!(handles(&get(&alice, "/me/suggestions?limit=1").await), ["often"]);
    delete_account(&often).await;
    assert_eq!(handles(&get(&alice, "/me/suggestions").await), ["once", "star"]);
    // Who follows nobody is told of those whom others follow.
    assert!(handles(&get(&once, "/me/suggestions").await).contains(&"star"));
}

#[tokio::test]
async fn an_export_holds_everything_a_line_each() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    follow(&alice, &bob.id).await;
    follow(&bob, &alice.id).await;
    let posts = [publish(&alice, "words of mine").await, publish(&alice, "and more").await];
    let remark = comment(&alice, &publish(&bob, "others' words").await).await;
    let blocked = app.register("blocked").await;
    let parse = |user: &User| user.id.parse::<UserId>().unwrap();
    app.store().block(parse(&alice), parse(&blocked)).await.unwrap().unwrap();
    app.settle().await;
    let answer = alice.get("/api/v1/me/export").expect(200).await;
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).map(|line| line["data"].clone()).collect::<Vec<_>>();
    assert_eq!(lines[0]["type"], "account");
    assert_eq!((&lines[0]["data"]["id"], &lines[0]["data"]["email"]), (&json!(alice.id), &json!("alice@example.org")));
    assert_eq!(of("session").len(), 1);
    for (kind, user) in [("follow", &bob), ("follower", &bob), ("block", &blocked)] {
        assert_eq!(of(kind).iter().map(|edge| edge["userId"].clone()).collect::<Vec<_>>(), [json!(user.id)], "{kind}");
    }
    assert_eq!(of("post").iter().map(|post| post["id"].clone()).collect::<Vec<_>>(), [json!(posts[1]), json!(posts[0])]);
    assert_eq!(of("comment").iter().map(|comment| comment["id"].clone()).collect::<Vec<_>>(), [json!(remark)]);
    let hours = of("stats");
    let sum = |figure: &str| hours.iter().map(|hour| hour[figure].as_i64().unwrap()).sum::<i64>();
    assert_eq!((sum("posts"), sum("newFollowers"), sum("views")), (2, 1, 0));
    assert_eq!(lines.len(), 8 + hours.len());
    assert!(!answer.text().contains("others' words") && !answer.text().contains("argon2"), "what is others' or secret stays");
}

#[tokio::test]
async fn a_deleted_account_is_gone_from_every_path_at_once() {
    let app = spawn_app().await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    follow(&alice, &bob.id).await;
    follow(&carol, &bob.id).await;
    follow(&bob, &alice.id).await;
    let (post, other) = (publish(&alice, "farewell").await, publish(&bob, "for @alice").await);
    let remark = comment(&alice, &other).await;
    comment(&bob, &post).await;
    app.settle().await;
    let wrong = alice.delete("/api/v1/me").json(&json!({ "password": "not the password" })).expect(403).await;
    assert_eq!(wrong.code(), "wrong_password");
    get(&alice, "/me").await;
    assert_eq!(alice.delete("/api/v1/me").json(&json!({})).expect(400).await.code(), "invalid_body");

    let job = delete_account(&alice).await["jobId"].as_str().unwrap().to_owned();
    for path in ["/me", "/feed", "/auth/sessions"] {
        assert_eq!(alice.get(&format!("/api/v1{path}")).expect(401).await.code(), "invalid_token");
    }
    let refresh = json!({ "refreshToken": alice.refresh_token });
    app.anonymous().post("/api/v1/auth/refresh", &refresh).expect(401).await;
    let login = json!({ "identifier": "alice", "password": PASSWORD });
    app.anonymous().post("/api/v1/auth/login", &login).expect(401).await;
    for path in [
        format!("/users/{}", alice.id),
        "/users/@alice".to_owned(),
        format!("/users/{}/posts", alice.id),
        format!("/users/{}/followers", alice.id),
        format!("/users/{}/following", alice.id),
        format!("/posts/{post}"),
        format!("/posts/{post}/comments"),
        format!("/comments/{remark}"),
    ] {
        assert_eq!(bob.get(&format!("/api/v1{path}")).expect(404).await.code(), "not_found", "{path}");
    }
    let follow = format!("/api/v1/users/{}/follow", alice.id);
    bob.put(&follow).expect(404).await;
    bob.delete(&follow).expect(404).await;
    assert_eq!(get(&bob, &format!("/users/{}/followers", bob.id)).await["items"].as_array().unwrap().len(), 1);
    let counts = get(&bob, "/me").await["counts"].clone();
    assert_eq!(counts, json!({ "followers": 1, "following": 0, "posts": 1 }));
    let shown = get(&bob, &format!("/posts/{other}")).await;
    assert_eq!((&shown["recentComments"], &shown["mentions"]), (&json!([]), &json!([])));
    assert_eq!(get(&bob, &format!("/posts/{other}/comments")).await["items"], json!([]));
    assert_eq!(handles(&get(&bob, "/users?q=ali").await), Vec::<&str>::new());
    assert_eq!(get(&bob, &format!("/users?ids={}", alice.id)).await["items"], json!([]));
    assert_eq!(get(&bob, &format!("/posts?ids={post}")).await["items"], json!([]));
    assert_eq!(get(&bob, &format!("/relationships?ids={}", alice.id)).await["items"], json!([]));
    let feed = get(&bob, "/feed").await;
    assert_eq!(feed["items"].as_array().unwrap().iter().map(|item| item["post"]["id"].clone()).collect::<Vec<_>>(), [json!(other)]);

    let again = app.alice().await;
    assert_ne!(again.id, alice.id);
    app.settle().await;
    assert_eq!(get(&bob, &format!("/posts/{other}")).await["counts"]["comments"], 0);
    assert_eq!(get(&again, "/me").await["counts"], json!({ "followers": 0, "following": 0, "posts": 0 }));
    assert_eq!(verify(app.store()).await.unwrap(), []);

    let admin = admin(&app).await;
    let jobs = get(&admin, "/admin/jobs").await;
    assert_eq!((&jobs["items"][0]["id"], &jobs["items"][0]["state"]), (&json!(job), &json!("done")));
    assert_eq!(jobs["items"][0]["userId"], json!(alice.id));
    assert_eq!(bob.get("/api/v1/admin/jobs").expect(403).await.code(), "forbidden");
}

async fn admin(app: &TestApp) -> Caller {
    // With the hash of an account that registered.
    let root = app.register("root_before").await;
    let password_hash = app.store().account(root.id.parse().unwrap()).await.unwrap().unwrap().credentials.unwrap().hash;
    let new = NewUser {
        id: UserId(new_id()),
        handle: Handle::parse("root").unwrap(),
        email: None,
        display_name: "Root".to_owned(),
        password_hash: Some(password_hash),
        now: now(),
    };
    app.store().create_admin(new).await.unwrap();
    let login = json!({ "identifier": "root", "password": PASSWORD });
    let tokens = app.anonymous().post("/api/v1/auth/login", &login).expect(200).await.json();
    app.with_token(tokens["accessToken"].as_str().unwrap())
}
