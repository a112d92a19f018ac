//! For administrators: what goes on behind the requests.

use actix_web::{HttpResponse, get, post, web::Data};
use rookery_domain::{
    JobId, Timestamp, UserId,
    jobs::{Finding, Job, JobKind, JobState},
    outlier::{Outlier, State},
    page::{EdgeCursor, TimeCursor},
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

use super::users::UserSummaryResponse;
use crate::{
    auth::Viewer,
    error::Result,
    page::{ListParams, ListQuery},
    page_of,
};

/// A piece of background work.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Job)]
pub struct JobResponse {
    #[schema(value_type = String, format = Uuid)]
    id: JobId,
    kind: JobKindValue,
    /// Whose account it is about; of `verify` and `repair`, who asked for it.
    #[schema(value_type = String, format = Uuid)]
    user_id: UserId,
    state: JobStateValue,
    /// Attempts in a row that came to nothing.
    attempts: i32,
    /// Documents dealt with so far.
    progress: i64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When a worker may take it; null once it is done or parked.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    run_after: Option<Timestamp>,
    /// When it was done.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    finished_at: Option<Timestamp>,
    /// What `verify` or `repair` has found so far, a kind of drift each; empty where every invariant holds, and for other jobs.
    findings: Vec<FindingResponse>,
}

/// A kind of drift: an invariant that does not hold, and how often.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Finding)]
pub struct FindingResponse {
    /// Which invariant, as `rookery verify` calls it.
    #[schema(example = "follower_count")]
    kind: String,
    /// How often it does not hold.
    found: i64,
    /// How many of them `repair` has mended.
    repaired: i64,
    /// Up to five of them: the id, what is found and what should be, and what was done.
    examples: Vec<String>,
}

impl From<Finding> for FindingResponse {
    fn from(Finding { kind, found, repaired, examples }: Finding) -> Self {
        Self { kind, found, repaired, examples }
    }
}

/// What a job does.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JobKind)]
pub enum JobKindValue {
    /// Removes what a deleted account leaves behind.
    Deletion,
    /// Rewrites the copies of an account's name.
    Rename,
    /// Checks every invariant.
    Verify,
    /// Checks every invariant and mends what does not hold.
    Repair,
}

/// How far a job is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JobState)]
pub enum JobStateValue {
    /// It is being done, or waits for its turn.
    Pending,
    /// It is done.
    Done,
    /// It failed too often and waits for somebody to look at it.
    Parked,
}

page_of! {
    /// Jobs, newest first.
    JobPage of JobResponse
}

impl From<Job> for JobResponse {
    fn from(job: Job) -> Self {
        Self {
            id: job.id,
            kind: match job.kind {
                JobKind::Deletion => JobKindValue::Deletion,
                JobKind::Rename => JobKindValue::Rename,
                JobKind::Verify => JobKindValue::Verify,
                JobKind::Repair => JobKindValue::Repair,
            },
            user_id: job.user,
            state: match job.state {
                JobState::Pending => JobStateValue::Pending,
                JobState::Done => JobStateValue::Done,
                JobState::Parked => JobStateValue::Parked,
            },
            attempts: job.attempts,
            progress: job.progress,
            created_at: job.id.time(),
            run_after: job.run_after,
            finished_at: job.finished_at,
            findings: job.findings.into_iter().map(FindingResponse::from).collect(),
        }
    }
}

/// List the jobs
///
/// Newest first, those that are done for 30 days.
#[utoipa::path(tag = "admin", params(ListParams), responses(
    (status = 200, description = "A page of jobs", body = JobPage),
    (status = 403, description = "`forbidden`: the caller is no administrator"),
))]
#[get("/admin/jobs")]
pub(crate) async fn list_jobs(viewer: Viewer, mut list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    viewer.require_admin(&store).await?;
    let page = store.jobs(list.limit, list.cursor.take()).await?;
    Ok(list.answer(page.map(JobResponse::from), JobPage::new))
}

/// The job that was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckResponse {
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
}

async fn start_check(viewer: Viewer, store: &Store, repair: bool) -> Result<HttpResponse> {
    viewer.require_admin(store).await?;
    let job_id = store.start_check(viewer.user_id, repair).await?;
    Ok(HttpResponse::Accepted().json(CheckResponse { job_id }))
}

/// Check every invariant
///
/// A job reads everything once, beside whatever else goes on; `GET /admin/jobs` has what it has found so far. It changes nothing.
#[utoipa::path(tag = "admin", responses(
    (status = 202, description = "A job does it", body = CheckResponse),
    (status = 403, description = "`forbidden`: the caller is no administrator"),
))]
#[post("/admin/verify")]
pub(crate) async fn start_verify(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    start_check(viewer, &store, false).await
}

/// Check every invariant and mend what does not hold
///
/// As `POST /admin/verify`, and each drift is mended as it is found: counters, numbers and copies are made anew from what they count and
/// copy. It may be run while the service is in use, and again.
#[utoipa::path(tag = "admin", responses(
    (status = 202, description = "A job does it", body = CheckResponse),
    (status = 403, description = "`forbidden`: the caller is no administrator"),
))]
#[post("/admin/repair")]
pub(crate) async fn start_repair(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    start_check(viewer, &store, true).await
}

/// A celebrity.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Outlier)]
pub struct OutlierResponse {
    user: UserSummaryResponse,
    /// How many follow it.
    followers: i64,
    /// On how many pages of their own its followers are kept.
    overflow_pages: i64,
    state: OutlierStateValue,
    /// Since when it is a celebrity.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
}

/// How far the pages of a celebrity are.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OutlierState)]
pub enum OutlierStateValue {
    /// They are being written.
    Building,
    /// They are complete.
    Ready,
}

page_of! {
    /// Celebrities, the last one to become one first.
    OutlierPage of OutlierResponse
}

impl From<Outlier> for OutlierResponse {
    fn from(outlier: Outlier) -> Self {
        Self {
            user: outlier.user.into(),
            followers: outlier.followers,
            overflow_pages: outlier.pages,
            state: match outlier.state {
                State::Building => OutlierStateValue::Building,
                State::Ready => OutlierStateValue::Ready,
            },
            since: outlier.since,
        }
    }
}

/// List the celebrities
///
/// The last one to become one first.
#[utoipa::path(tag = "admin", params(ListParams), responses(
    (status = 200, description = "A page of celebrities", body = OutlierPage),
    (status = 403, description = "`forbidden`: the caller is no administrator"),
))]
#[get("/admin/outliers")]
pub(crate) async fn list_outliers(viewer: Viewer, list: ListQuery<EdgeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    viewer.require_admin(&store).await?;
    let page = store.outliers(list.cursor, list.limit).await?;
    Ok(list.answer(page.map(OutlierResponse::from), OutlierPage::new))
}
