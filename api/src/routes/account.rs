//! One's own account: closing it.

use actix_web::{HttpResponse, delete, web::Data};
use rookery_domain::JobId;
use rookery_storage::Store;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::{Auth, Viewer},
    error::{Code, Problem, Result},
    extract::Json,
};

/// A proof that it is the owner who closes the account.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "password": "correct horse 9 staple" }))]
pub struct DeleteAccountRequest {
    /// The password.
    #[schema(value_type = String, format = Password)]
    password: SecretString,
}

/// The job that removes what is left of the account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionResponse {
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
}

/// Delete one's account
///
/// There is no way back. The account, its posts and its comments are gone from every read when this is answered, its tokens are dead, and
/// its handle and e-mail address free. Counts of others follow: for the first 500 followers and followees at once, for the rest with
/// the job.
#[utoipa::path(tag = "users", request_body = DeleteAccountRequest, responses(
    (status = 202, description = "The account is deleted; a job removes what is left of it", body = DeletionResponse),
    (status = 403, description = "`wrong_password`"),
    (status = 429, description = "`too_many_attempts`, or too many requests: wait as long as `Retry-After` says"),
))]
#[delete("/me")]
pub(crate) async fn delete_me(
    viewer: Viewer,
    store: Data<Store>,
    auth: Data<Auth>,
    Json(body): Json<DeleteAccountRequest>,
) -> Result<HttpResponse> {
    auth.prove_viewer(&store, viewer, &body.password).await?;
    // One that was deleted in this very moment takes its tokens with it.
    let job_id = store.delete_account(viewer.user_id).await?.ok_or(Problem::new(Code::InvalidToken))?;
    Ok(HttpResponse::Accepted().json(DeletionResponse { job_id }))
}
