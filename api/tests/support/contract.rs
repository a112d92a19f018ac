//! The OpenAPI document as a judge: whatever the service answers in any test must be documented.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
};

use jsonschema::{Draft, Validator};
use reqwest::Method;
use serde_json::Value;

use super::Answer;

pub(crate) struct Contract {
    document: Value,
    /// By pointer: building one takes longer than most tests.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Contract {
    pub(crate) fn get() -> &'static Self {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        CONTRACT.get_or_init(|| {
            let document = serde_json::to_value(rookery_api::openapi::document()).unwrap();
            Contract { document, validators: Mutex::default() }
        })
    }

    /// Panics where the answer is not one that the document has for this operation.
    pub(crate) fn check(&self, method: &Method, answer: &Answer) {
        let path = &*answer.path;
        let what = format!("{method} {path} answered {}", answer.status);
        assert_ne!(answer.status, 500, "{what}: {}", answer.text());
        let request_id = answer.header("x-request-id").unwrap_or_else(|| panic!("{what} without X-Request-Id"));
        let content_type = answer.header("content-type").unwrap_or_default().split(';').next().unwrap();
        if answer.status >= 400 {
            assert_eq!(content_type, "application/problem+json", "{what}: {}", answer.text());
            if method != Method::HEAD {
                self.validate("/components/schemas/Problem", &answer.json(), &what);
                let problem = answer.json();
                assert_eq!(problem["requestId"], request_id, "{what}");
                assert_eq!(problem["status"], answer.status, "{what}");
                assert_eq!(problem["instance"], path, "{what}");
            }
            if matches!(answer.status, 429 | 503) {
                assert!(answer.header("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok()), "{what} without Retry-After");
            }
        }
        let Some(operation) = self.operation(method, path) else {
            let page = path.starts_with("/docs");
            assert!(page || matches!(answer.status, 401 | 404 | 405 | 429), "{what}, which is not documented: {}", answer.text());
            return;
        };
        let pointer = format!("{operation}/responses/{}", answer.status);
        let documented =
            self.document.pointer(&pointer).unwrap_or_else(|| panic!("{what}, which is not documented: {}", answer.text()));
        let Some(content) = documented.get("content").and_then(Value::as_object) else {
            assert!(answer.bytes.is_empty(), "{what} with a body that is not documented: {}", answer.text());
            return;
        };
        assert!(content.contains_key(content_type), "{what} as {content_type:?}, which is not documented");
        if method != Method::HEAD && content_type.ends_with("json") && content_type != "application/x-ndjson" {
            let schema = format!("{pointer}/content/{}/schema", content_type.replace('/', "~1"));
            self.validate(&schema, &answer.json(), &what);
        }
    }

    /// The pointer to an operation.
    fn operation(&self, method: &Method, path: &str) -> Option<String> {
        let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
        let paths = self.document["paths"].as_object().unwrap();
        // A literal segment goes before a parameter, as in the routes.
        let mut matching: Vec<_> = paths.keys().filter(|pattern| matches(pattern, path)).collect();
        matching.sort_by_key(|pattern| pattern.matches('{').count());
        let pattern = matching.into_iter().find(|pattern| paths[*pattern].get(&method).is_some())?;
        Some(format!("/paths/{}/{method}", pattern.replace('/', "~1")))
    }

    fn validate(&self, pointer: &str, body: &Value, what: &str) {
        let validator =
            self.validators.lock().unwrap().entry(pointer.to_owned()).or_insert_with(|| self.validator(pointer)).clone();
        let wrong: Vec<_> = validator.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{what}, against {pointer}: {}\n{body:#}", wrong.join("\n"));
    }

    fn validator(&self, pointer: &str) -> Arc<Validator> {
        let mut schema = self.document.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in the document")).clone();
        // So that `#/components/…` resolves.
        schema["components"] = self.document["components"].clone();
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        Arc::new(options.build(&schema).unwrap_or_else(|error| panic!("{pointer} is no schema: {error}")))
    }

    /// Every operation of the document: method, path pattern, and what it says of it.
    pub(crate) fn operations(&self) -> Vec<(String, String, Value)> {
        let paths = self.document["paths"].as_object().unwrap();
        let of_path = |(path, item): (&String, &Value)| {
            let operations = item.as_object().unwrap().iter();
            operations.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation.clone())).collect::<Vec<_>>()
        };
        paths.iter().flat_map(of_path).collect()
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }
}

/// Whether a path is one of a pattern's.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    let fits = |(p, s): (&&str, &&str)| if p.starts_with('{') { !s.is_empty() } else { p == s };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(fits)
}
