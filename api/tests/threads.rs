//! Threads, edits and long discussions over HTTP.

#![expect(clippy::unwrap_used, reason = "in a test a fault is a failure")]

mod support;

use std::collections::BTreeSet;

use futures::{StreamExt as _, future::join_all, stream};
use serde_json::{Value, json};

use support::{Caller, TestApp, User, spawn_app, spawn_app_with};

const UNKNOWN: &str = "01890000-0000-7000-8000-00000000dead";

fn id(of: &Value) -> &str {
    of["id"].as_str().unwrap()
}

fn ids(items: &Value) -> Vec<&str> {
    items.as_array().unwrap().iter().map(id).collect()
}

async fn publish(by: &User) -> String {
    id(&by.post("/api/v1/posts", &json!({ "text": "a post" })).expect(201).await.json()).to_owned()
}

async fn comment(by: &User, post: &str, text: &str, parent: Option<&str>) -> String {
    let body = json!({ "text": text, "parentId": parent });
    id(&by.post(&format!("/api/v1/posts/{post}/comments"), &body).expect(201).await.json()).to_owned()
}

async fn delete(by: &User, comment: &str) {
    by.delete(&format!("/api/v1/comments/{comment}")).expect(204).await;
}

async fn read(by: &Caller, path: &str) -> Value {
    by.get(&format!("/api/v1/{path}")).expect(200).await.json()
}

/// Walks a list of comments, and checks on the way that pages are full, that the total stays, and that nothing comes twice.
async fn walk(by: &Caller, post: &str, query: &str) -> (Vec<String>, i64) {
    let (mut walked, mut cursor, mut totals) = (Vec::new(), String::new(), BTreeSet::new());
    loop {
        let page = read(by, &format!("posts/{post}/comments?limit=10&{query}{cursor}")).await;
        let items = ids(&page["items"]);
        assert!(items.len() == 10 || page["nextCursor"].is_null(), "a page is full unless it is the last");
        walked.extend(items.into_iter().map(str::to_owned));
        totals.insert(page["total"].as_i64().unwrap());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(walked.iter().collect::<BTreeSet<_>>().len(), walked.len(), "each once");
    assert_eq!(totals, BTreeSet::from([i64::try_from(walked.len()).unwrap()]), "the total is that of the walk, on each page");
    (walked, *totals.first().unwrap())
}

/// Walks what stands below a comment.
async fn walk_thread(by: &Caller, comment: &str, limit: usize) -> Vec<String> {
    let (mut walked, mut cursor) = (Vec::new(), String::new());
    loop {
        let thread = read(by, &format!("comments/{comment}/thread?limit={limit}{cursor}")).await;
        let below = &thread["descendants"];
        assert!(ids(&below["items"]).len() == limit || below["nextCursor"].is_null(), "a page is full unless it is the last");
        walked.extend(ids(&below["items"]).into_iter().map(str::to_owned));
        match below["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return walked,
        }
    }
}

#[tokio::test]
async fn a_thread_shows_ancestors_the_comment_and_descendants() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let root = comment(&bob, &post, "root", None).await;
    let middle = comment(&alice, &post, "middle", Some(&root)).await;
    comment(&bob, &post, "sibling", Some(&root)).await;
    let first = comment(&bob, &post, "first leaf", Some(&middle)).await;
    let second = comment(&alice, &post, "second leaf", Some(&middle)).await;
    let tip = comment(&bob, &post, "tip", Some(&first)).await;
    let anonymous = app.anonymous();
    let thread = read(&anonymous, &format!("comments/{middle}/thread")).await;
    assert_eq!(ids(&thread["ancestors"]), [&root]);
    assert_eq!(thread["comment"], read(&anonymous, &format!("comments/{middle}")).await);
    let below = json!({ "items": thread["descendants"]["items"], "nextCursor": null });
    assert_eq!((ids(&below["items"]), &thread["descendants"]), (vec![&*first, &second, &tip], &below));
    assert_eq!(read(&anonymous, &format!("comments/{middle}/thread")).await, thread, "the same when it is read again");
    // In pages.
    let page = anonymous.get(&format!("/api/v1/comments/{middle}/thread?limit=2")).expect(200).await;
    let next = page.json()["descendants"]["nextCursor"].as_str().unwrap().to_owned();
    let link = format!("</api/v1/comments/{middle}/thread?limit=2&cursor={next}>; rel=\"next\"");
    assert_eq!(page.header("link"), Some(link.as_str()));
    assert_eq!(walk_thread(&anonymous, &middle, 2).await, [&*first, &second, &tip]);
    // Of others' lists no cursor is good, and no thread's is good for a list.
    let list = read(&anonymous, &format!("posts/{post}/comments?limit=2")).await["nextCursor"].as_str().unwrap().to_owned();
    for path in [format!("comments/{middle}/thread?cursor={list}"), format!("posts/{post}/comments?cursor={next}")] {
        assert_eq!(anonymous.get(&format!("/api/v1/{path}")).expect(400).await.code(), "invalid_cursor");
    }
    anonymous.get(&format!("/api/v1/comments/{middle}/thread?limit=101")).expect(400).await;
    anonymous.get(&format!("/api/v1/comments/{UNKNOWN}/thread")).expect(404).await;
    for garbled in ["zzz", "487623987434987263434343", "5f43a1b2c3d4e5f60718293a"] {
        anonymous.get(&format!("/api/v1/comments/{garbled}/thread")).expect(400).await;
    }
}

#[tokio::test]
async fn a_cursor_goes_with_the_sort_it_was_made_in() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    for n in 0..5 {
        comment(&bob, &post, &n.to_string(), None).await;
    }
    let path = format!("posts/{post}/comments?limit=2");
    for (one, other) in [("newest", "oldest"), ("oldest", "newest")] {
        let first = read(&bob, &format!("{path}&sort={one}")).await;
        for cursor in ["nextCursor", "prevCursor"] {
            let cursor = first[cursor].as_str().unwrap();
            read(&bob, &format!("{path}&sort={one}&cursor={cursor}")).await;
            let refused = bob.get(&format!("/api/v1/{path}&sort={other}&cursor={cursor}")).expect(400).await;
            assert_eq!(refused.code(), "invalid_cursor");
        }
    }
    // Without a sort it is that of the newest.
    let first = read(&bob, &path).await;
    read(&bob, &format!("{path}&sort=newest&cursor={}", first["nextCursor"].as_str().unwrap())).await;
}

#[tokio::test]
async fn an_edited_comment_is_new_everywhere_at_once() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    bob.put(&format!("/api/v1/users/{}/follow", alice.id)).expect(200).await;
    let post = publish(&alice).await;
    let root = comment(&bob, &post, "frist", None).await;
    comment(&alice, &post, "indeed", Some(&root)).await;
    let path = format!("/api/v1/comments/{root}");
    let edited = bob.patch(&path, &json!({ "text": " first\r\n" })).expect(200).await.json();
    assert_eq!((&edited["text"], &edited["counts"]), (&json!("first"), &json!({ "likes": 0, "replies": 1 })));
    assert!(edited["editedAt"].as_str().unwrap() >= edited["createdAt"].as_str().unwrap());
    app.settle().await;
    let feed = read(&bob, "feed").await;
    for (seen, at) in [
        (read(&bob, &format!("comments/{root}")).await, ""),
        (read(&bob, &format!("posts/{post}/comments?sort=oldest")).await, "/items/0"),
        (read(&bob, &format!("posts/{post}")).await, "/recentComments/1"),
        (feed, "/items/0/post/recentComments/1"),
        (read(&bob, &format!("comments/{root}/thread")).await, "/comment"),
    ] {
        assert_eq!(seen.pointer(at), Some(&edited), "{at}");
    }
    assert_eq!(read(&bob, &format!("posts/{post}")).await["counts"]["comments"], 2);
    assert_eq!(bob.patch(&path, &json!({ "text": "first" })).expect(200).await.json(), edited, "the same text is no edit");
}

#[tokio::test]
async fn an_edit_that_cannot_be_is_refused_and_changes_nothing() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let mine = comment(&bob, &post, "mine", None).await;
    let path = format!("/api/v1/comments/{mine}");
    for (body, status, code, field) in [
        (json!({}), 400, "invalid_body", "text"),
        (json!({ "text": 7 }), 400, "invalid_body", "text"),
        (json!({ "text": "a", "parentId": null }), 400, "invalid_body", "parentId"),
        (json!({ "text": " \u{200b}\n" }), 422, "validation_failed", "text"),
        (json!({ "text": "\u{0}" }), 422, "validation_failed", "text"),
        (json!({ "text": "x".repeat(301) }), 422, "validation_failed", "text"),
        (json!({ "text": format!("x{}", "\u{200d}".repeat(3_000)) }), 422, "validation_failed", "text"),
    ] {
        let refused = bob.patch(&path, &body).expect(status).await;
        assert_eq!((refused.code().as_str(), refused.fields()), (code, vec![field.to_owned()]), "{body}");
    }
    let text = json!({ "text": "another" });
    assert_eq!(alice.patch(&path, &text).expect(403).await.code(), "not_yours");
    app.anonymous().patch(&path, &text).expect(401).await;
    bob.patch(&format!("/api/v1/comments/{UNKNOWN}"), &text).expect(404).await;
    bob.patch("/api/v1/comments/zzz", &text).expect(400).await;
    assert_eq!(read(&bob, &format!("comments/{mine}")).await["text"], "mine");
    // A flag is one character: 300 of them are a comment, and one more is none.
    let flag = "\u{1f1e9}\u{1f1ea}";
    bob.patch(&path, &json!({ "text": flag.repeat(301) })).expect(422).await;
    assert_eq!(bob.patch(&path, &json!({ "text": flag.repeat(300) })).expect(200).await.json()["text"], *flag.repeat(300));
    delete(&bob, &mine).await;
    bob.patch(&path, &text).expect(404).await;
}

#[tokio::test]
async fn twenty_deletes_at_once_count_once() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let gone = comment(&bob, &post, "gone", None).await;
    comment(&bob, &post, "stays", None).await;
    let answers = join_all((0..20).map(|_| bob.delete(&format!("/api/v1/comments/{gone}")).send())).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 204).count(), 1);
    assert!(answers.iter().all(|answer| [204, 404].contains(&answer.status)));
    app.settle().await;
    assert_eq!(read(&bob, &format!("posts/{post}")).await["counts"]["comments"], 1);
    assert_eq!(walk(&bob, &post, "").await.1, 1);
}

#[tokio::test]
async fn every_surface_counts_the_same_comments() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    bob.put(&format!("/api/v1/users/{}/follow", alice.id)).expect(200).await;
    let post = publish(&alice).await;
    bob.put(&format!("/api/v1/posts/{post}/bookmark")).expect(200).await;
    let (root, reply) = (comment(&bob, &post, "root", None).await, comment(&bob, &post, "other", None).await);
    let answer = comment(&alice, &post, "answer", Some(&root)).await;
    app.settle().await;
    let same = async |count: i64, newest: &[&str]| {
        let feed = read(&bob, "feed").await["items"][0]["post"].clone();
        let by_ids = read(&bob, &format!("posts?ids={post}")).await["items"][0].clone();
        let own = read(&bob, &format!("users/{}/posts", alice.id)).await["items"][0].clone();
        let bookmarked = read(&bob, "me/bookmarks").await["items"][0].clone();
        for seen in [read(&bob, &format!("posts/{post}")).await, feed, by_ids, own, bookmarked] {
            assert_eq!((&seen["counts"]["comments"], ids(&seen["recentComments"])), (&json!(count), newest.to_vec()));
        }
    };
    same(3, &[&answer, &reply, &root]).await;
    delete(&bob, &reply).await;
    same(2, &[&answer, &root]).await;
    delete(&bob, &root).await;
    same(1, &[&answer]).await;
    assert_eq!(read(&bob, &format!("comments/{root}")).await["counts"]["replies"], 1);
    delete(&alice, &answer).await;
    same(0, &[]).await;
    bob.get(&format!("/api/v1/comments/{root}")).expect(404).await;
    assert_eq!(walk(&bob, &post, "").await, (vec![], 0));
}

#[tokio::test]
async fn deleting_half_of_thirty_leaves_fifteen_on_full_pages() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let mut made = Vec::new();
    for n in 0..30 {
        made.push(comment(&bob, &post, &n.to_string(), None).await);
    }
    for gone in made.iter().step_by(2) {
        delete(&bob, gone).await;
    }
    let kept: Vec<String> = made.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(walk(&bob, &post, "sort=oldest").await, (kept, 15));
    assert_eq!(read(&bob, &format!("posts/{post}")).await["counts"]["comments"], 15);
}

#[tokio::test]
async fn nested_comments_are_paged_as_the_limit_says() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let mut made: Vec<String> = Vec::new();
    for n in 0..60_usize {
        // Each answers one of the ten before it, the first ten the post.
        let parent = n.checked_sub(10).map(|at| made[at + n % 3].clone());
        made.push(comment(&bob, &post, &n.to_string(), parent.as_deref()).await);
    }
    assert_eq!(walk(&bob, &post, "sort=oldest").await, (made.clone(), 60));
    made.reverse();
    assert_eq!(walk(&bob, &post, "").await.0, made);
    made.reverse();
    let mut all = BTreeSet::new();
    for root in &made[..10] {
        let below = walk_thread(&bob, root, 7).await;
        assert!(below.iter().all(|comment| all.insert(comment.clone())), "in the thread of one root alone");
        assert_eq!(below, walk_thread(&bob, root, 100).await);
    }
    assert_eq!(all.len(), 50);
}

#[tokio::test]
async fn twelve_hundred_comments_by_many_at_once_are_walked_completely() {
    let app = spawn_app_with(&[("ROOKERY_RATE_LIMIT", "off")]).await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    let made: Vec<String> = stream::iter(0..1_200)
        .map(|n| {
            let (by, post) = (if n % 2 == 0 { &alice } else { &bob }, &post);
            async move { comment(by, post, &n.to_string(), None).await }
        })
        .buffer_unordered(100)
        .collect()
        .await;
    app.settle().await;
    for sort in ["newest", "oldest"] {
        let (walked, total) = walk(&app.anonymous(), &post, &format!("sort={sort}")).await;
        assert_eq!((walked.iter().collect::<BTreeSet<_>>(), total), (made.iter().collect(), 1_200));
    }
    let seen = read(&app.anonymous(), &format!("posts/{post}")).await;
    assert_eq!((&seen["counts"]["comments"], ids(&seen["recentComments"]).len()), (&json!(1_200), 10));
    bob.get(&format!("/api/v1/posts/{post}/comments?limit=1000000")).expect(400).await;
}

#[tokio::test]
async fn a_deleted_post_takes_everything_under_it() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let (post, other) = (publish(&alice).await, publish(&alice).await);
    let root = comment(&bob, &post, "root", None).await;
    let reply = comment(&alice, &post, "reply", Some(&root)).await;
    comment(&bob, &other, "elsewhere", None).await;
    alice.delete(&format!("/api/v1/posts/{post}")).expect(204).await;
    for settled in [false, true] {
        for path in [format!("comments/{root}"), format!("comments/{reply}/thread"), format!("posts/{post}/comments")] {
            app.anonymous().get(&format!("/api/v1/{path}")).expect(404).await;
        }
        bob.post(&format!("/api/v1/posts/{post}/comments"), &json!({ "text": "late" })).expect(404).await;
        assert_eq!(read(&bob, &format!("posts/{other}")).await["counts"]["comments"], 1, "{settled}");
        app.settle().await;
    }
    assert_eq!(read(&bob, &format!("users/{}", alice.id)).await["counts"]["posts"], 1);
}

#[tokio::test]
async fn the_only_comment_by_somebody_blocked_is_in_the_counts_and_in_no_list() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let carol = app.carol().await;
    let post = publish(&alice).await;
    let word = comment(&bob, &post, "a word", None).await;
    carol.put(&format!("/api/v1/users/{}/block", bob.id)).expect(204).await;
    let seen = read(&carol, &format!("posts/{post}")).await;
    // Counts are the same for every viewer, the total of a list is the viewer's own.
    assert_eq!((&seen["counts"]["comments"], &seen["recentComments"]), (&json!(1), &json!([])));
    assert_eq!(walk(&carol, &post, "").await.1, 0);
    assert_eq!(walk(&app.anonymous(), &post, "").await, (vec![word.clone()], 1));
    for verb in ["comments", "thread"] {
        let path = if verb == "thread" { format!("comments/{word}/thread") } else { format!("comments/{word}") };
        carol.get(&format!("/api/v1/{path}")).expect(404).await;
    }
    carol.patch(&format!("/api/v1/comments/{word}"), &json!({ "text": "hers" })).expect(404).await;
    carol.delete(&format!("/api/v1/users/{}/block", bob.id)).expect(204).await;
    assert_eq!(walk(&carol, &post, "").await.1, 1);
}

#[tokio::test]
async fn a_post_with_the_longest_comments_stays_small_and_takes_more() {
    let app: TestApp = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let post = publish(&alice).await;
    // Nine bytes for each of the 300 characters; ten are the most.
    let long = "e\u{301}\u{301}\u{301}\u{301}".repeat(300);
    for _ in 0..18 {
        comment(&bob, &post, &long, None).await;
    }
    let newest = comment(&bob, &post, "one more", None).await;
    let seen = app.anonymous().get(&format!("/api/v1/posts/{post}")).expect(200).await;
    assert!(seen.bytes.len() < 100_000, "{} bytes", seen.bytes.len());
    assert_eq!((&seen.json()["counts"]["comments"], ids(&seen.json()["recentComments"])[0]), (&json!(19), &*newest));
}
