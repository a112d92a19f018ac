//! Requests to follow the caller's account while it is private.

use actix_web::{HttpResponse, delete, get, put, web::Data};
use rookery_domain::page::TimeCursor;
use rookery_storage::Store;

use super::{
    graph::known,
    users::{UserSincePage, UserSinceResponse},
};
use crate::{
    auth::Viewer,
    error::{Problem, Result},
    extract::{PathUser, UserParam},
    page::{ListParams, ListQuery},
};

/// List who asks to follow the caller
///
/// The last who asked first.
#[utoipa::path(tag = "requests", params(ListParams), responses(
    (status = 200, description = "A page of accounts", body = UserSincePage),
))]
#[get("/me/follow-requests")]
pub(crate) async fn list_follow_requests(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.follow_requests(viewer.user_id, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(UserSinceResponse::from), UserSincePage::new))
}

/// Accept a request
///
/// From then on the account follows the caller. Repeating it changes nothing.
#[utoipa::path(tag = "requests", params(UserParam), responses(
    (status = 204, description = "The account follows the caller"),
    (status = 404, description = "There is no such account, or it never asked"),
))]
#[put("/me/follow-requests/{user}")]
pub(crate) async fn accept_follow_request(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let follower = known(&store, user).await?;
    if store.accept_request(viewer.user_id, follower).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::not_found())
    }
}

/// Reject a request
///
/// The account is not told, and may ask again. Repeating it changes nothing, and a request that was accepted stays accepted.
#[utoipa::path(tag = "requests", params(UserParam), responses(
    (status = 204, description = "There is no request of that account"),
    (status = 404, description = "There is no such account"),
))]
#[delete("/me/follow-requests/{user}")]
pub(crate) async fn reject_follow_request(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let follower = known(&store, user).await?;
    store.reject_request(viewer.user_id, follower).await?;
    Ok(HttpResponse::NoContent().finish())
}
