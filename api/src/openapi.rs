//! The OpenAPI document: collected from the routes, never written by hand.
//!
//! Handlers say what is theirs alone. What every operation has in common is added here ([`complete`]): the answers that any of them may
//! give, and the problem document as the body of every answer that is not a success.

use std::collections::BTreeMap;

use actix_web::{App, web::Bytes};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, ResponseBuilder, Type,
        path::{Operation, PathItem},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_actix_web::AppExt as _;

use crate::{
    error::{Code, FieldError, ProblemDocument},
    routes,
};

/// Where version 1 of the API lives.
pub const BASE_PATH: &str = "/api/v1";

/// Where the document is served.
pub const DOCUMENT_PATH: &str = "/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Rookery",
        description = "A social graph and feed: follows, posts, comments, reactions and a home feed on MongoDB.\n\n\
            **Try it:** `POST /auth/register`, copy the `accessToken` into *Authorize*, and go on from there.\n\n\
            Ids are UUIDs of version 7, times RFC 3339 in UTC with milliseconds. `{user}` is an id or `@handle`. \
            Lists take `limit` and `cursor` and answer with `items`, `nextCursor`, `prevCursor` and a `Link` header. \
            Every answer that is not a success is a problem document (RFC 9457): decide by its `code`, \
            and name its `requestId` when you report it. Every answer carries `X-Request-Id`, and those below `/api/v1` \
            `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` (seconds until the limit is whole again).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/", description = "This server")),
    tags(
        (name = "auth", description = "Accounts, sessions and tokens"),
        (name = "users", description = "Profiles"),
        (name = "posts", description = "Writing, reading, editing and deleting posts"),
        (name = "comments", description = "Comments and replies"),
        (name = "reactions", description = "Likes, reposts and bookmarks"),
        (name = "graph", description = "Following and followers"),
        (name = "requests", description = "Requests to follow a private account"),
        (name = "blocks", description = "Blocking and muting"),
        (name = "feed", description = "The home feed"),
        (name = "notifications", description = "What others did that concerns the caller"),
        (name = "admin", description = "For administrators (`rookery admin create` makes one)"),
        (name = "operations", description = "Health, readiness, metrics and this document"),
    ),
    components(schemas(ProblemDocument<'static>, FieldError, Code)),
    modifiers(&Bearer),
    security(("bearer" = []))
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("An access token, from registering, logging in or refreshing; it lives 10 minutes."));
        document.components.get_or_insert_default().add_security_scheme("bearer", SecurityScheme::Http(scheme.build()));
    }
}

/// The document of this version.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let app = App::new().into_utoipa_app().openapi(Document::openapi()).configure(routes::configure);
    let (_, mut document) = app.split_for_parts();
    complete(&mut document);
    document
}

/// Adds to every operation what they have in common.
fn complete(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations_mut(item) {
            let takes_input =
                operation.parameters.as_ref().is_some_and(|list| !list.is_empty()) || operation.request_body.is_some();
            if takes_input {
                add(operation, "400", "The request is malformed");
            }
            if operation.request_body.is_some() {
                add(operation, "413", "The body is too large");
                add(operation, "415", "The body is not declared as JSON");
            }
            if path.starts_with(BASE_PATH) {
                add(operation, "401", "There is no token where one is needed, or the token is not valid");
                add(operation, "429", "Too many requests: wait as long as `Retry-After` says");
            }
            add(operation, "500", "A bug");
            add(operation, "503", "The service or its database does not answer now: come again after `Retry-After`");
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.content.is_empty()
                    && status.starts_with(['4', '5'])
                {
                    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
                    response.content.insert("application/problem+json".to_owned(), RefOr::T(problem));
                    if matches!(&**status, "429" | "503") {
                        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
                        let header = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds to wait")).build();
                        response.headers.insert("Retry-After".to_owned(), RefOr::T(header));
                    }
                }
            }
        }
    }
}

fn add(operation: &mut Operation, status: &str, description: &str) {
    let response = || RefOr::T(ResponseBuilder::new().description(description).build());
    operation.responses.responses.entry(status.to_owned()).or_insert_with(response);
}

fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().flatten()
}

/// The document as it is served.
#[derive(Debug, Clone)]
pub struct Published(pub Bytes);

/// The methods of every path, as `Allow` names them, by path pattern.
#[derive(Debug)]
pub struct Methods(BTreeMap<String, String>);

impl Methods {
    /// The methods that the document has.
    #[must_use]
    pub fn of(document: &utoipa::openapi::OpenApi) -> Self {
        let allow = |item: &PathItem| {
            let methods = [
                // Every GET can be asked for by HEAD.
                ("GET, HEAD", &item.get),
                ("PUT", &item.put),
                ("POST", &item.post),
                ("DELETE", &item.delete),
                ("PATCH", &item.patch),
            ];
            methods.iter().filter(|(_, operation)| operation.is_some()).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        Self(document.paths.paths.iter().map(|(path, item)| (path.clone(), allow(item))).collect())
    }

    /// The methods of a pattern. One that is not in the document is a page, which can only be read.
    #[must_use]
    pub fn allowed(&self, pattern: &str) -> &str {
        self.0.get(pattern).map_or("GET, HEAD", String::as_str)
    }
}
