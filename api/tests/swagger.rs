//! Swagger UI as a person uses it, in a real browser.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use serde_json::Value;
use support::{browser::Page, spawn_app};

/// Opens an operation, sends it as it is filled in, and gives back the status and the body that the page shows.
async fn try_out(page: &mut Page, operation: &str) -> (String, Value) {
    let block = format!("#operations-{operation}");
    page.wait_for(&format!("!!document.querySelector({block:?})")).await;
    page.click(&format!("{block} .opblock-summary-control")).await;
    page.click(&format!("{block} .execute")).await;
    let shown = format!("{block} .live-responses-table .response");
    let text = |part: &str| format!("document.querySelector({:?})?.textContent.trim()", format!("{shown} {part}"));
    let status = page.wait_for(&text(".response-col_status")).await.as_str().unwrap().to_owned();
    let body = page.wait_for(&text(".highlight-code code")).await;
    let body = body.as_str().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{operation}: {error}: {body}")))
}

#[tokio::test]
async fn a_reader_of_the_documentation_registers_authorises_and_posts() {
    let app = spawn_app().await;
    let mut page = Page::open(&format!("{}/docs/", app.base())).await;

    // What is filled in is the example of the document: it must be one that works.
    let (status, answer) = try_out(&mut page, "auth-register_user").await;
    assert_eq!(status, "201", "{answer}");
    let handle = answer["user"]["handle"].as_str().unwrap().to_owned();

    page.click(".auth-wrapper .authorize").await;
    page.fill(".auth-container input", answer["accessToken"].as_str().unwrap()).await;
    page.click(".auth-btn-wrapper .authorize").await;
    page.click(".auth-btn-wrapper .btn-done").await;

    let (status, post) = try_out(&mut page, "posts-create_post").await;
    page.screenshot().await;
    assert_eq!(status, "201", "{post}");
    assert_eq!(post["author"]["handle"], handle);
    let path = format!("/api/v1/posts/{}", post["id"].as_str().unwrap());
    assert_eq!(app.anonymous().get(&path).expect(200).await.json()["text"], post["text"]);

    // The page remembers the token.
    page.reload().await;
    let (status, me) = try_out(&mut page, "users-get_me").await;
    assert_eq!((status.as_str(), &me["handle"]), ("200", &Value::from(handle)));

    let foreign: Vec<_> = page.requested.iter().filter(|url| !url.starts_with(app.base()) && !url.starts_with("data:")).collect();
    assert!(foreign.is_empty(), "requests to elsewhere: {foreign:?}");
    assert!(page.complaints.is_empty(), "{:?}", page.complaints);
}
