//! What every answer has, whoever made it: an id, a problem document if it is not a success, a line in the log if it hides a fault, a
//! place in the metrics, safe headers, and a bound on how long it takes.
//!
//! [`observe`] is outermost and sees every answer, those of other middleware included. [`protect`] stands inside CORS, so that its
//! answers carry the CORS headers as well.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration, time::Instant};

use actix_web::{
    Error, HttpResponse,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    error::InternalError,
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
};
use futures::FutureExt as _;
use tracing::{Instrument as _, Span, field};
use uuid::Uuid;

use crate::{
    error::{Code, Problem, chain},
    openapi, telemetry,
};

/// How long a handler may take before the caller is told to come again. Streams are not concerned: it bounds the head of the answer.
const DEADLINE: Duration = Duration::from_secs(15);

/// Answers below this carry tokens beside what the caller chose: compressed, their length would tell how far a guess is right (BREACH).
const TOKEN_PATHS: &str = "/api/v1/auth/";

/// The header that carries the request's id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is known of a request before it is answered.
struct Seen {
    id: String,
    method: Method,
    path: String,
    route: String,
    span: Span,
    started: Instant,
}

/// Gives the request its id and its span, and finishes whatever answer comes back.
pub async fn observe(request: ServiceRequest, next: Next<impl MessageBody + 'static>) -> Result<ServiceResponse<BoxBody>, Error> {
    // Never taken from the caller: two requests must not share one.
    let id = Uuid::now_v7().to_string();
    // The pattern, not the path: a path carries ids, and every id would make a new time series.
    let route = request.match_pattern().unwrap_or_else(|| "unmatched".to_owned());
    let method = request.method().clone();
    let span = tracing::info_span!("request", request_id = id, %method, route, viewer = field::Empty);
    let seen = Seen { id, method, path: request.path().to_owned(), route, span, started: Instant::now() };
    let in_flight = telemetry::InFlight::enter();
    let outcome = next.call(request).instrument(seen.span.clone()).await;
    drop(in_flight);
    match outcome {
        Ok(answer) => {
            let (request, response) = answer.into_parts();
            let document = seen.document(response.status(), response.error());
            Ok(ServiceResponse::new(request, seen.finish(response.map_into_boxed_body(), document)))
        }
        Err(error) => {
            let response = error.error_response();
            let document = seen.document(response.status(), Some(&error));
            Err(InternalError::from_response("answered", seen.finish(response, document)).into())
        }
    }
}

impl Seen {
    /// The problem document of an answer that is not a success, and the one place where a fault is logged.
    fn document(&self, status: StatusCode, error: Option<&Error>) -> Option<Vec<u8>> {
        if !status.is_client_error() && !status.is_server_error() {
            return None;
        }
        let known = error.and_then(Error::as_error::<Problem>);
        let made;
        let problem = if let Some(problem) = known {
            problem
        } else {
            // The framework speaks to the client where the client is at fault; what it says of its own faults is for the log.
            let said = error.filter(|_| status.is_client_error()).map(ToString::to_string);
            made = said.into_iter().fold(Problem::of_status(status), Problem::detail);
            &made
        };
        if status.is_server_error() {
            let fault = match (problem.fault(), error) {
                (Some(fault), _) => chain(fault),
                (None, Some(error)) => error.to_string(),
                (None, None) => problem.to_string(),
            };
            let (code, status) = (problem.code(), status.as_u16());
            self.span.in_scope(|| {
                if code == Code::Internal {
                    tracing::error!(%code, status, fault, "a request failed");
                } else {
                    tracing::warn!(%code, status, fault, "a request could not be answered");
                }
            });
        }
        serde_json::to_vec(&problem.document(&self.id, &self.path)).ok()
    }

    /// Adds what every answer has.
    fn finish(self, mut response: HttpResponse, document: Option<Vec<u8>>) -> HttpResponse {
        if let Some(document) = document {
            response = response.set_body(BoxBody::new(document));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        }
        let (status, headers) = (response.status(), response.headers_mut());
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID, id);
        }
        insert_if_absent(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        insert_if_absent(headers, header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
        if self.path.starts_with(openapi::BASE_PATH) {
            // Most answers depend on who asks; those that may be kept say so themselves.
            insert_if_absent(headers, header::CACHE_CONTROL, "private, no-store");
            headers.append(header::VARY, HeaderValue::from_static("Authorization"));
        }
        let took = self.started.elapsed();
        telemetry::request_answered(&self.method, self.route, status, took);
        self.span.in_scope(|| tracing::debug!(status = status.as_u16(), took_ms = took.as_secs_f64() * 1e3, "answered"));
        response
    }
}

fn insert_if_absent(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    if !headers.contains_key(&name) {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A handler that panicked.
#[derive(Debug, thiserror::Error)]
#[error("a handler panicked: {0}")]
struct Panicked(String);

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
        Self(text.unwrap_or("without a message").to_owned())
    }
}

/// Answers for a handler that takes too long or panics, lets every `GET` be asked for by `HEAD` (the server leaves the body out), and
/// keeps tokens out of compressed answers.
pub async fn protect(
    mut request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if request.method() == Method::HEAD {
        request.head_mut().method = Method::GET;
    }
    if request.path().starts_with(TOKEN_PATHS) {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    match tokio::time::timeout(DEADLINE, AssertUnwindSafe(next.call(request)).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(payload)) => Err(Problem::internal(Panicked::new(&*payload)).into()),
        Err(_elapsed) => Err(Problem::new(Code::Timeout).into()),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::{App, HttpResponse, middleware::from_fn, test as calls, web};

    use super::*;

    #[actix_web::test]
    async fn a_handler_that_panics_is_500_and_says_nothing_of_it() {
        async fn fail() -> HttpResponse {
            panic!("a secret at /src/secret.rs:7")
        }
        let app = App::new().route("/", web::get().to(fail)).wrap(from_fn(protect)).wrap(from_fn(observe));
        let app = calls::init_service(app).await;
        let answer = calls::try_call_service(&app, calls::TestRequest::get().to_request()).await;
        let answer = answer.map_or_else(|error| error.error_response(), |answer| answer.map_into_boxed_body().into());
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let id = answer.headers().get(REQUEST_ID).cloned();
        let body = actix_web::body::to_bytes(answer.into_body()).await.unwrap_or_default();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        assert_eq!(body["code"], "internal");
        assert_eq!(body["requestId"].as_str(), id.as_ref().and_then(|id| id.to_str().ok()));
        assert!(!body.to_string().contains("secret"), "{body}");
    }

    #[actix_web::test]
    async fn what_the_framework_answers_is_a_problem_too() {
        async fn refuse() -> Result<HttpResponse, Error> {
            Err(actix_web::error::ErrorBadRequest("half a request"))
        }
        let app = calls::init_service(App::new().route("/", web::get().to(refuse)).wrap(from_fn(observe))).await;
        let answer = calls::call_service(&app, calls::TestRequest::get().to_request()).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let body: serde_json::Value = calls::read_body_json(answer).await;
        assert_eq!((&body["code"], &body["detail"]), (&"bad_request".into(), &"half a request".into()));
    }
}
