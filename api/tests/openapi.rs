//! The OpenAPI document: committed as it is generated, and complete.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use std::collections::BTreeSet;

use rookery_api::openapi::BASE_PATH;
use serde_json::Value;
use support::{contract::Contract, spawn_app};

/// Operations that need no token. What is not here answers 401 to a caller without one.
const PUBLIC: &[&str] = &[
    "check_health",
    "check_readiness",
    "get_metrics",
    "get_openapi",
    "register_user",
    "log_in",
    "refresh_session",
    "get_user",
    "list_users",
    "list_followers",
    "list_following",
    "list_posts",
    "get_post",
    "list_user_posts",
    "list_post_history",
    "list_tag_posts",
    "list_comments",
    "get_comment",
    "get_thread",
    "list_likes",
    "list_reposts",
];

fn id(operation: &Value) -> &str {
    operation["operationId"].as_str().unwrap_or_default()
}

#[test]
fn the_committed_document_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let generated = rookery_api::openapi::document().to_pretty_json().unwrap();
    assert!(committed.trim_end() == generated, "openapi/openapi.json is not what the code says: run `make openapi`");
}

#[test]
fn every_operation_is_described() {
    let mut ids = BTreeSet::new();
    let tags = Contract::get().document()["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap());
    let tags: BTreeSet<_> = tags.collect();
    for (method, path, operation) in Contract::get().operations() {
        let what = format!("{method} {path}");
        let text = |field: &str| operation[field].as_str().unwrap_or_default().trim().to_owned();
        assert!(!id(&operation).is_empty() && ids.insert(id(&operation).to_owned()), "{what}: an operationId of its own");
        assert!(!text("summary").is_empty(), "{what}: a summary");
        assert!(!text("description").is_empty(), "{what}: a description (a second paragraph of the handler's comment)");
        let tag = operation["tags"][0].as_str().unwrap_or_default();
        assert!(tags.contains(tag), "{what}: a tag that the document describes, not {tag:?}");
        let statuses: Vec<_> = operation["responses"].as_object().unwrap().keys().cloned().collect();
        assert!(statuses.iter().any(|status| status.starts_with(['2', '3'])), "{what}: a success");
        let api = path.starts_with(BASE_PATH);
        assert!(!api || statuses.iter().any(|status| status.starts_with('4')), "{what}: an answer for callers at fault");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(!response["description"].as_str().unwrap_or_default().is_empty(), "{what} {status}: a description");
        }
    }
}

#[test]
fn every_operation_says_who_may_call_it() {
    for (method, path, operation) in Contract::get().operations() {
        // Without a word of its own, the document's holds: a token is needed. `{}` is "no token".
        let public =
            operation["security"].as_array().is_some_and(|schemes| schemes.iter().any(|scheme| scheme == &serde_json::json!({})));
        let listed = PUBLIC.contains(&id(&operation));
        assert_eq!(public, listed, "{method} {path}: `security` and the list of public operations disagree");
    }
}

#[test]
fn every_body_has_an_example_and_no_unknown_fields() {
    let document = Contract::get().document();
    for (method, path, operation) in Contract::get().operations() {
        let Some(body) = operation.pointer("/requestBody/content/application~1json") else { continue };
        let name = body["schema"]["$ref"].as_str().unwrap_or_default();
        let schema =
            document.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{method} {path}: a named request type"));
        let whole = [&body["example"], &body["examples"], &schema["example"], &schema["examples"]].iter().any(|e| !e.is_null());
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let by_field = required.iter().all(|field| !schema["properties"][field.as_str().unwrap()]["example"].is_null());
        assert!(
            whole || by_field,
            "{method} {path}: an example of its body, `#[schema(example = …)]` on {name} or on each field that it must have"
        );
        assert_eq!(schema["additionalProperties"], false, "{method} {path}: `#[serde(deny_unknown_fields)]` on {name}");
    }
}

#[test]
fn every_parameter_of_a_path_is_declared_and_every_parameter_is_described() {
    for (method, path, operation) in Contract::get().operations() {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let declared: BTreeSet<_> =
            parameters.iter().filter(|p| p["in"] == "path").map(|p| p["name"].as_str().unwrap().to_owned()).collect();
        let in_path: BTreeSet<_> =
            path.split('/').filter_map(|part| Some(part.strip_prefix('{')?.strip_suffix('}')?.to_owned())).collect();
        assert_eq!(declared, in_path, "{method} {path}");
        for parameter in parameters {
            assert!(parameter["description"].is_string(), "{method} {path}: a description of {}", parameter["name"]);
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn check(node: &Value, document: &Value) {
        match node {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    let found = target.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
                    assert!(found.is_some(), "{target} leads nowhere");
                }
                fields.values().for_each(|value| check(value, document));
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, document)),
            _ => {}
        }
    }
    check(Contract::get().document(), Contract::get().document());
}

#[tokio::test]
async fn without_a_token_401_comes_before_anything_else_is_looked_at() {
    let app = spawn_app().await;
    for (method, path, operation) in Contract::get().operations() {
        if PUBLIC.contains(&id(&operation)) {
            continue;
        }
        let garbled = path.replace(['{', '}'], "%00");
        let method = method.parse().unwrap();
        let request =
            app.anonymous().request(method, &format!("{garbled}?limit=0&cursor=x&ids=%00")).body("text/plain", "{".repeat(100_000));
        request.expect(401).await;
    }
}

#[tokio::test]
async fn a_bad_token_is_401_even_where_none_is_needed() {
    let app = spawn_app().await;
    for (method, path, _) in Contract::get().operations() {
        if !path.starts_with(BASE_PATH) {
            continue;
        }
        for header in ["Bearer x", "Bearer ", "Bearer", "Basic YTpi", "x", "bearer a.b.c, Bearer d.e.f"] {
            let request = app.anonymous().request(method.parse().unwrap(), &path).header("authorization", header);
            assert_eq!(request.expect(401).await.code(), "invalid_token", "{header}");
        }
    }
}
