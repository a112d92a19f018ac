//! For administrators: checks and repairs as jobs, and the list of celebrities.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use rookery_domain::{Handle, UserId};
use rookery_storage::{new_id, now, users::NewUser};
use serde_json::{Value, json};
use support::{Caller, PASSWORD, TestApp, spawn_app, spawn_app_with};

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

async fn job(admin: &Caller, id: &Value) -> Value {
    let jobs = admin.get("/api/v1/admin/jobs").expect(200).await.json();
    jobs["items"].as_array().unwrap().iter().find(|job| job["id"] == *id).unwrap().clone()
}

#[tokio::test]
async fn a_check_and_a_repair_are_jobs_that_say_what_they_found() {
    let app = spawn_app().await;
    let admin = admin(&app).await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    bob.put(&format!("/api/v1/users/{}/follow", alice.id)).expect(200).await;
    for path in ["/api/v1/admin/verify", "/api/v1/admin/repair"] {
        let asked = admin.post(path, &json!({})).expect(202).await.json();
        assert_eq!(job(&admin, &asked["jobId"]).await["state"], "pending");
        app.settle().await;
        let done = job(&admin, &asked["jobId"]).await;
        assert_eq!((&done["state"], &done["findings"]), (&json!("done"), &json!([])), "{done}");
        assert!(path.ends_with(done["kind"].as_str().unwrap()), "{done}");
        assert!(done["progress"].as_i64().unwrap() > 0, "{done}");
    }
}

#[tokio::test]
async fn celebrities_are_listed_for_administrators() {
    let app = spawn_app_with(&[("ROOKERY_CELEBRITY_THRESHOLD", "2")]).await;
    let admin = admin(&app).await;
    let (alice, bob, carol) = (app.alice().await, app.bob().await, app.carol().await);
    for (follower, followee) in [(&bob, &alice), (&carol, &alice), (&alice, &bob), (&carol, &bob)] {
        follower.put(&format!("/api/v1/users/{}/follow", followee.id)).expect(200).await;
        app.settle().await;
    }
    let list = admin.get("/api/v1/admin/outliers").expect(200).await.json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|one| &one["user"]["id"]).collect::<Vec<_>>(), [&json!(bob.id), &json!(alice.id)]);
    for one in items {
        assert_eq!((&one["followers"], &one["overflowPages"], &one["state"]), (&json!(2), &json!(1), &json!("ready")), "{one}");
        assert_eq!(one["user"]["celebrity"], true);
        assert!(one["since"].is_string());
    }
    let first = admin.get("/api/v1/admin/outliers?limit=1").expect(200).await.json();
    let next = first["nextCursor"].as_str().unwrap();
    let second = admin.get(&format!("/api/v1/admin/outliers?limit=1&cursor={next}")).expect(200).await.json();
    assert_eq!((&second["items"][0], &second["nextCursor"]), (&items[1], &Value::Null));
    let back = second["prevCursor"].as_str().unwrap();
    let back = admin.get(&format!("/api/v1/admin/outliers?limit=1&cursor={back}")).expect(200).await.json();
    assert_eq!(back["items"], first["items"]);
}

#[tokio::test]
async fn administration_is_for_administrators() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    assert_eq!(alice.get("/api/v1/admin/outliers").expect(403).await.code(), "forbidden");
    app.anonymous().get("/api/v1/admin/outliers").expect(401).await;
    for path in ["/api/v1/admin/verify", "/api/v1/admin/repair"] {
        assert_eq!(alice.post(path, &json!({})).expect(403).await.code(), "forbidden");
        app.anonymous().post(path, &json!({})).expect(401).await;
    }
    assert_eq!(app.store().jobs(rookery_domain::Limit::DEFAULT, None).await.unwrap().items, [], "nothing was asked for");
}
