//! For administrators: what goes on behind the requests.

use actix_web::{HttpResponse, get, web::Data};
use rookery_domain::{
    JobId, Timestamp, UserId,
    jobs::{Job, JobKind, JobState},
    page::TimeCursor,
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

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
    /// Whose account it is about.
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
