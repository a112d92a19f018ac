//! For whoever runs the service: is it alive, is it ready, how is it doing, what does it offer.

use actix_web::{HttpRequest, HttpResponse, get, http::header, middleware::DefaultHeaders, web::Data};
use rookery_storage::{Store, migrations};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    app::Lifecycle,
    auth::Viewer,
    error::{Code, Problem, Result},
    openapi::{Methods, Published},
    telemetry,
};

/// How the service is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusResponse {
    /// `ok`, for no other answer has this body.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Is the process alive?
///
/// Asks nothing of the database: a process that cannot reach it must not be restarted for that.
#[utoipa::path(tag = "operations", security(()), responses((status = 200, description = "It is", body = StatusResponse)))]
#[get("/healthz")]
pub(crate) async fn check_health() -> HttpResponse {
    HttpResponse::Ok().json(StatusResponse { status: "ok" })
}

/// Can the service take requests?
///
/// It can where the database answers, its schema is the one this version works with, the background workers are alive, and nobody has
/// asked the process to stop.
#[utoipa::path(tag = "operations", security(()), responses(
    (status = 200, description = "It can", body = StatusResponse),
    (status = 503, description = "Not now: `unavailable` or `database_unavailable`"),
))]
#[get("/readyz")]
pub(crate) async fn check_readiness(lifecycle: Data<Lifecycle>, store: Data<Store>) -> Result<HttpResponse> {
    if lifecycle.stop.is_cancelled() {
        return Err(Problem::new(Code::Unavailable).detail("The service is being stopped"));
    }
    if let Some(worker) = lifecycle.workers.ended() {
        return Err(Problem::new(Code::Unavailable).detail(format!("The {worker} has ended")));
    }
    if migrations::status(&store).await? != migrations::Status::Current {
        return Err(Problem::new(Code::Unavailable).detail("The database does not have the schema of this version"));
    }
    Ok(HttpResponse::Ok().json(StatusResponse { status: "ok" }))
}

/// How the service is doing
///
/// Metrics of this process in the text format of Prometheus. Requests are counted by route pattern.
#[utoipa::path(tag = "operations", security(()), responses((status = 200, description = "The metrics", body = String, content_type = "text/plain")))]
#[get("/metrics")]
pub(crate) async fn get_metrics() -> HttpResponse {
    let metrics = telemetry::metrics();
    // Nobody else does it, and without it histograms grow.
    metrics.run_upkeep();
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(metrics.render())
}

/// What the service offers
///
/// This document: OpenAPI 3.1, as JSON.
#[utoipa::path(tag = "operations", security(()), responses((status = 200, description = "The document", body = Object, content_type = "application/json")))]
#[get("/openapi.json")]
pub(crate) async fn get_openapi(document: Data<Published>) -> HttpResponse {
    HttpResponse::Ok().content_type(header::ContentType::json()).body(document.0.clone())
}

/// What the documentation's page may load: itself, and nothing from elsewhere. (It styles its elements in place and has its icons in
/// `data:` addresses.)
pub(crate) fn docs_headers() -> DefaultHeaders {
    let policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'";
    DefaultHeaders::new().add((header::CONTENT_SECURITY_POLICY, policy))
}

/// Tells a path that does not exist (404) from one that does, but not with this method (405).
pub(crate) async fn refuse_unknown_route(request: HttpRequest, methods: Data<Methods>) -> Result<HttpResponse> {
    match request.resource_map().match_pattern(request.path()) {
        Some(pattern) => Err(Problem::new(Code::MethodNotAllowed).allow(methods.allowed(&pattern).to_owned())),
        None => Err(Problem::not_found()),
    }
}

/// One document of 4 KB by its id: the least that an answer from the database costs. Not part of the API and not in its document.
#[get("/find-one")]
pub(crate) async fn find_one(_viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    let filler = store.bench_find_one().await?;
    Ok(HttpResponse::Ok().json(serde_json::json!({ "filler": filler })))
}
