//! Texts over HTTP: what is measured, refused, normalised and found in them. The rules themselves are tested in `domain`.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use serde_json::{Value, json};
use support::{Answer, User, spawn_app};

const FLAG: &str = "\u{1f1e9}\u{1f1ea}";
const KEYCAP: &str = "1\u{fe0f}\u{20e3}";
const STACKED: &str = "q\u{301}\u{323}";
const FAMILY: &str = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466}";
const JAMO: &str = "\u{1112}\u{1161}\u{11ab}";

async fn post(user: &User, text: &str) -> Answer {
    user.post("/api/v1/posts", &json!({ "text": text })).send().await
}

/// The code of what is wrong with the text.
async fn fault(user: &User, text: &str) -> String {
    let answer = post(user, text).await;
    assert_eq!((answer.status, answer.fields()), (422, vec!["text".to_owned()]), "{text:?}");
    answer.json()["errors"][0]["code"].as_str().unwrap().to_owned()
}

async fn publish(user: &User, text: &str) -> Value {
    let answer = post(user, text).await;
    assert_eq!(answer.status, 201, "{text:?}: {}", answer.text());
    answer.json()
}

fn handles(post: &Value) -> Vec<&str> {
    post["mentions"].as_array().unwrap().iter().map(|user| user["handle"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_limit_counts_grapheme_clusters_up_to_a_ceiling_of_bytes() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    for unit in ["a", "\u{e9}", "\u{6f22}", FLAG, KEYCAP, STACKED, JAMO] {
        publish(&alice, &unit.repeat(500)).await;
        assert_eq!(fault(&alice, &unit.repeat(501)).await, "too_long", "{unit:?}");
    }
    publish(&alice, &FAMILY.repeat(200)).await;
    assert_eq!(fault(&alice, &FAMILY.repeat(201)).await, "too_many_bytes");
    assert_eq!(post(&alice, &format!("a{}", "\u{200d}".repeat(1_000_000))).await.status, 413);
}

#[tokio::test]
async fn controls_and_lone_surrogates_are_refused() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    for code in [0x00, 0x01, 0x08, 0x0b, 0x0c, 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x9f] {
        assert_eq!(fault(&alice, &format!("a{}b", char::from(code))).await, "control_character", "U+{code:04X}");
    }
    for escape in ["\\ud800", "\\udc00", "\\ud800\\ud800"] {
        let body = format!("{{\"text\":\"a{escape}b\"}}");
        let answer = alice.request(reqwest::Method::POST, "/api/v1/posts").body("application/json", body).send().await;
        assert_eq!(answer.status, 400, "{escape}");
    }
}

/// Every call that takes a text, by the field it is in.
async fn written(user: &User, post: &str, text: &str) -> Vec<(&'static str, Answer)> {
    let (path, body) = (format!("/api/v1/posts/{post}"), json!({ "text": text }));
    vec![
        ("text", user.post("/api/v1/posts", &body).send().await),
        ("text", user.patch(&path, &body).send().await),
        ("text", user.post(&format!("{path}/comments"), &body).send().await),
        ("bio", user.patch("/api/v1/me", &json!({ "bio": text })).send().await),
        ("displayName", user.patch("/api/v1/me", &json!({ "displayName": text })).send().await),
    ]
}

#[tokio::test]
async fn one_set_of_rules_holds_for_every_text() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    let post = publish(&alice, "first").await["id"].as_str().unwrap().to_owned();
    let tall = format!("q{}", "\u{301}".repeat(2500));
    for (text, code) in [
        ("a\u{0}b", "control_character"),
        ("a\u{10}b", "control_character"),
        ("\u{85}", "control_character"),
        ("\u{200b}\u{202e}", "empty"),
        (&*"\u{e9}".repeat(501), "too_long"),
        (&*tall, "too_many_bytes"),
    ] {
        for (field, answer) in written(&alice, &post, text).await {
            assert_eq!((answer.status, answer.fields()), (422, vec![field.to_owned()]), "{field}: {text:?}");
            // What is too long for a post is too heavy for a name before it is counted.
            let code = if (field, code) == ("displayName", "too_long") { "too_many_bytes" } else { code };
            assert_eq!(answer.json()["errors"][0]["code"], code, "{field}: {text:?}");
        }
    }
    for (field, answer) in written(&alice, &post, " \u{200b}cafe\u{301} \u{1f426} \u{a0}\n").await {
        assert!([200, 201].contains(&answer.status), "{field}: {}", answer.text());
        assert_eq!(answer.json()[field], "\u{200b}caf\u{e9} \u{1f426}", "{field}");
    }
    // What is searched for is read like what is stored, and nothing in it is refused or has a meaning.
    let found =
        async |q: &str| alice.get(&format!("/api/v1/users?q={q}")).expect(200).await.json()["items"].as_array().unwrap().len();
    assert_eq!(found("%E2%80%8Bcafe%CC%81").await, 1);
    assert_eq!(found("%00").await + found("%08").await + found(".*").await + found("%24where").await, 0);
}

#[tokio::test]
async fn a_text_with_nothing_visible_is_refused() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    for blank in ["", " ", "\n\n\t", "\u{a0}", "\u{200b}", "\u{2060}", "\u{feff}", "\u{202e}\u{202d}", "\u{200e}\n\u{200f}"] {
        assert_eq!(fault(&alice, blank).await, "empty", "{blank:?}");
    }
}

#[tokio::test]
async fn a_text_comes_back_trimmed_composed_and_otherwise_as_it_was() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    assert_eq!(publish(&alice, " \n cafe\u{301} \n ").await["text"], "caf\u{e9}");
    assert_eq!(publish(&alice, "a\r\nb\rc\n\td").await["text"], "a\nb\nc\n\td");
    let markup = "<script>alert(1)</script> & \"quotes\" 'n' \\ {\"$gt\": \"\"} \u{2028} \u{1f426}";
    assert_eq!(publish(&alice, markup).await["text"], markup);
}

#[tokio::test]
async fn mentions_are_the_accounts_that_there_are_each_once() {
    let app = spawn_app().await;
    let (alice, _bob, _long) = (app.alice().await, app.bob().await, app.register("bob_x").await);
    for frame in ["@bob", "@bob.", "(@BOB)", "hey @bob, you", "\u{201c}@bob\u{201d}", "@bob @Bob @bob"] {
        assert_eq!(handles(&publish(&alice, frame).await), ["bob"], "{frame:?}");
    }
    assert_eq!(handles(&publish(&alice, "@bob_x before @bob").await), ["bob_x", "bob"]);
    assert!(handles(&publish(&alice, "a@bob.com a@bob @nobody @bob_y @ @@").await).is_empty());
}

#[tokio::test]
async fn tags_are_folded_and_each_once() {
    let app = spawn_app().await;
    let alice = app.alice().await;
    assert_eq!(publish(&alice, "#One (#one), #ÉTÉ #日本語 #2024 no#tag").await["tags"], json!(["one", "été", "日本語"]));
    let many: String = (0..40).flat_map(|n| [format!("@u{n} "), format!("#t{n} ")]).collect();
    assert_eq!(publish(&alice, &many).await["tags"].as_array().unwrap().len(), 40);
}
