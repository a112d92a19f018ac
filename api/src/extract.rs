//! Extractors: what handlers take from a request, each with its own problem where it cannot be taken.
//!
//! The framework's own would answer in plain text, read an id in five spellings and ignore a field they do not know.

use std::{future::Ready, str::FromStr};

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header,
    web::{self, BytesMut},
};
use futures::{StreamExt as _, future::LocalBoxFuture};
use rookery_domain::{Handle, Limit, text};
use rookery_storage::users::UserRef;
use serde::de::{DeserializeOwned, IgnoredAny};
use utoipa::IntoParams;

use crate::error::{Code, Problem};

/// The largest body: 13 times that of the longest post (500 graphemes of at most 10 bytes), for JSON may write each byte of it as an
/// escape of six, and a client may indent.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// A body of JSON, at most [`MAX_BODY_BYTES`] long. Its type denies unknown fields.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let declared = is_json(request);
        let mut payload = payload.take();
        Box::pin(async move {
            declared?;
            parse(&read(&mut payload).await?).map(Self)
        })
    }
}

/// Refuses what is not declared as JSON in UTF-8, as it stands.
fn is_json(request: &HttpRequest) -> Result<(), Problem> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = header(header::CONTENT_TYPE).split(';').map(str::trim);
    let json = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    let charset = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let utf8 = charset.is_none_or(|(_, value)| value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8"));
    let plain = matches!(header(header::CONTENT_ENCODING), "" | "identity");
    if json && utf8 && plain {
        Ok(())
    } else {
        Err(Problem::new(Code::UnsupportedMediaType).detail("Send `Content-Type: application/json`, in UTF-8 and not compressed"))
    }
}

async fn read(payload: &mut Payload) -> Result<BytesMut, Problem> {
    let mut body = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Code::BadRequest).detail("The body ends before its end"))?;
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(Problem::new(Code::PayloadTooLarge).detail(format!("A body has at most {MAX_BODY_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice::<IgnoredAny>(body).map_err(|error| Problem::new(Code::InvalidJson).detail(error.to_string()))?;
    if body.trim_ascii_start().first() != Some(&b'{') {
        // serde would take an array for a struct, its items for the fields in their order.
        return Err(Problem::new(Code::InvalidBody).detail("The body must be an object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| mismatch(error.path().to_string(), error.inner()))
}

/// The problem of a body that is not that of this request, naming the field.
fn mismatch(path: String, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    if !error.is_data() {
        // What only a full reading finds, like half of a surrogate pair.
        return Problem::new(Code::InvalidJson).detail(text);
    }
    // serde has no other way to tell than its text: "missing field `text`", "unknown field `x`, expected …", "invalid type: …".
    let named = || text.split('`').nth(1).unwrap_or_default().to_owned();
    let (code, field) = match text.split(' ').next() {
        Some("missing") => ("missing", within(&path, &named())),
        Some("unknown") if text.starts_with("unknown field") => ("unknown", named()),
        Some("duplicate") => ("duplicate", named()),
        _ => ("wrong_type", path),
    };
    // Without the position, which says nothing to a client that made the body from an object.
    let detail = text.split(" at line ").next().unwrap_or_default().to_owned();
    let problem = Problem::new(Code::InvalidBody).detail(detail.clone());
    problem.field(field, code, detail)
}

fn within(path: &str, field: &str) -> String {
    if path.is_empty() || path == "." { field.to_owned() } else { format!("{path}.{field}") }
}

/// The one id in the path, in the one spelling that its type reads.
#[derive(Debug, Clone)]
pub struct PathId<T>(pub T);

impl<T: FromStr> FromRequest for PathId<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let text = web::Path::<String>::from_request(request, payload).into_inner();
        std::future::ready(text.ok().and_then(|text| text.parse().ok()).map(Self).ok_or(Problem::new(Code::InvalidId)))
    }
}

/// The account in the path: an id, or `@` and a handle in any case.
#[derive(Debug, Clone)]
pub struct PathUser(pub UserRef);

impl FromRequest for PathUser {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let text = web::Path::<String>::from_request(request, payload).into_inner();
        let user = text.ok().and_then(|text| match text.strip_prefix('@') {
            Some(handle) => Handle::parse(handle).ok().map(UserRef::Handle),
            None => text.parse().ok().map(UserRef::Id),
        });
        std::future::ready(user.map(Self).ok_or(Problem::new(Code::InvalidId)))
    }
}

/// The tag in the path, folded as in posts.
#[derive(Debug, Clone)]
pub struct PathTag(pub String);

impl FromRequest for PathTag {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let name = web::Path::<String>::from_request(request, payload).into_inner();
        let tag = name.ok().and_then(|name| text::tag(&name));
        std::future::ready(tag.map(Self).ok_or_else(|| {
            let rule = "a tag is of letters, digits and `_`, at least one of them a letter, without `#`";
            Problem::new(Code::ValidationFailed).field("tag", "invalid_tag", rule)
        }))
    }
}

/// The parameters of the query, as far as `T` knows them; others are ignored.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = web::Query::<T>::from_query(request.query_string());
        std::future::ready(
            query.map(|query| Self(query.into_inner())).map_err(|error| Problem::new(Code::InvalidQuery).detail(error.to_string())),
        )
    }
}

/// The ids of `?ids=a,b,...`: at most 100, in the order asked.
///
/// # Errors
/// `invalid_id` for one that is none, `invalid_query` for too many.
pub fn parse_ids<T: FromStr>(text: &str) -> Result<Vec<T>, Problem> {
    let ids: Vec<_> = text.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > Limit::MAX.get() {
        return Err(Problem::new(Code::InvalidQuery).detail(format!("At most {} ids", Limit::MAX.get())));
    }
    ids.into_iter().map(|id| id.parse().map_err(|_| Problem::new(Code::InvalidId))).collect()
}

/// For the documentation: an account in the path.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a parameter that `PathUser` reads")]
pub struct UserParam {
    /// The account: its id, or `@` and its handle in any case.
    #[param(example = "@ada")]
    user: String,
}

/// For the documentation: a tag in the path.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a parameter that `PathTag` reads")]
pub struct TagParam {
    /// The tag without its `#`, in any case.
    #[param(example = "rookery")]
    tag: String,
}

/// For the documentation: an id in the path.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it describes a parameter that `PathId` reads")]
pub struct IdParam {
    /// The id.
    #[param(example = "01890000-0000-7000-8000-000000000001", format = Uuid)]
    id: String,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its form matters")]
    struct Sample {
        text: String,
        parent_id: Option<u32>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its form matters")]
    struct Inner {
        name: String,
    }

    fn refused(body: &str) -> (String, Vec<(String, String)>) {
        let problem = parse::<Sample>(body.as_bytes()).unwrap_err();
        let document = serde_json::json!(problem.document("", ""));
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let fields = document["errors"].as_array().unwrap().iter().map(|error| (text(&error["field"]), text(&error["code"])));
        (text(&document["code"]), fields.collect())
    }

    fn field(name: &str, code: &str) -> (String, Vec<(String, String)>) {
        ("invalid_body".to_owned(), vec![(name.to_owned(), code.to_owned())])
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        assert_eq!(refused("{}"), field("text", "missing"));
        assert_eq!(refused(r#"{"text":"a","colour":1}"#), field("colour", "unknown"));
        assert_eq!(refused(r#"{"text":7}"#), field("text", "wrong_type"));
        assert_eq!(refused(r#"{"text":null}"#), field("text", "wrong_type"));
        assert_eq!(refused(r#"{"text":"a","parentId":-1}"#), field("parentId", "wrong_type"));
        assert_eq!(refused(r#"{"text":"a","text":"b"}"#), field("text", "duplicate"));
        assert_eq!(refused(r#"{"text":"a","inner":{}}"#), field("inner.name", "missing"));
        assert_eq!(refused(r#"{"text":"a","inner":{"name":[]}}"#), field("inner.name", "wrong_type"));
    }

    #[test]
    fn a_body_of_another_form_has_no_field_to_name() {
        for body in ["[]", "[\"a\"]", "null", "\"text\"", " 1"] {
            assert_eq!(refused(body), ("invalid_body".to_owned(), vec![]), "{body}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_apart() {
        let deep = format!(r#"{{"text":"a","inner":{}1{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
        for body in ["", "{", "{\"text\": ", "{\"text\":\"a\"} x", "{\"text\":\"\\ud800\"}", "\u{feff}{\"text\":\"a\"}"] {
            assert_eq!(refused(body).0, "invalid_json", "{body}");
        }
        assert!(parse::<serde_json::Value>(deep.as_bytes()).is_err());
        assert!(parse::<Sample>(b"{\"text\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_hundred_ids_are_enough() {
        let ids = |n: usize| vec!["7"; n].join(",");
        assert_eq!(parse_ids::<u32>(&ids(100)).unwrap().len(), 100);
        assert_eq!(parse_ids::<u32>(&ids(101)).unwrap_err().code(), Code::InvalidQuery);
        assert_eq!(parse_ids::<u32>("7,x").unwrap_err().code(), Code::InvalidId);
        assert!(parse_ids::<u32>("").unwrap().is_empty());
    }
}
