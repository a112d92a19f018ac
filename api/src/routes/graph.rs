//! The social graph: following, and the lists that come of it.

use actix_web::{HttpResponse, delete, get, put, web::Data};
use rookery_domain::{
    Timestamp, UserId,
    graph::FollowRefusal,
    page::{EdgeCursor, SeqCursor},
    user::Relation,
};
use rookery_storage::{Store, follow_lists::Follow, graph::Followed, users::UserRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::users::{RelationResponse, UserSummaryResponse};
use crate::{
    auth::{MaybeViewer, Viewer},
    error::{Code, Problem, Result},
    extract::{PathUser, Query, UserParam, parse_ids},
    page::{ListParams, ListQuery},
    page_of,
};

/// What a follow came to.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FollowState)]
pub struct FollowResponse {
    state: FollowStateValue,
}

/// Whether the follow stands, or waits for the account's consent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FollowStateName)]
pub enum FollowStateValue {
    /// The follow stands.
    Following,
    /// The account is private and has not consented yet.
    Requested,
}

/// One edge in a list of followers or followees.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Follow)]
pub struct EdgeResponse {
    /// The account at the other end.
    user: UserSummaryResponse,
    /// When the follow was counted.
    #[schema(value_type = String, format = DateTime)]
    followed_at: Timestamp,
}

page_of! {
    /// Followers or followees.
    FollowPage of EdgeResponse
}

/// How the caller stands to some accounts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Relationships)]
pub struct RelationshipsResponse {
    items: Vec<RelationshipResponse>,
}

/// How the caller stands to one account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Relationship)]
pub struct RelationshipResponse {
    #[schema(value_type = String, format = Uuid)]
    id: UserId,
    #[serde(flatten)]
    relation: RelationResponse,
}

/// Some accounts by their ids.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UserIds {
    /// At most 100 ids, separated by commas.
    #[param(example = "01890000-0000-7000-8000-000000000001")]
    ids: String,
}

/// Follow an account
///
/// Repeating it answers as the first call. The counts of both accounts move before the answer, but for those of a celebrity, which
/// follow within a second; the caller's feed has the account's posts from the next read on.
#[utoipa::path(tag = "graph", params(UserParam), responses(
    (status = 200, description = "The follow stands", body = FollowResponse),
    (status = 202, description = "The account is private: the follow waits for its consent", body = FollowResponse),
    (status = 403, description = "`blocked`: one of the two blocks the other"),
    (status = 404, description = "There is no such account"),
    (status = 422, description = "`self_follow`, or `follow_limit_reached`: nobody follows more than 7,500 accounts"),
))]
#[put("/users/{user}/follow")]
pub(crate) async fn follow_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let followee = store.followee(&user).await?.ok_or(Problem::not_found())?;
    match store.follow(viewer.user_id, followee).await? {
        Ok(Followed::Following) => Ok(HttpResponse::Ok().json(FollowResponse { state: FollowStateValue::Following })),
        Ok(Followed::Requested) => Ok(HttpResponse::Accepted().json(FollowResponse { state: FollowStateValue::Requested })),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Stop following an account
///
/// Takes back a request too. Repeating it changes nothing.
#[utoipa::path(tag = "graph", params(UserParam), responses(
    (status = 204, description = "The caller does not follow the account"),
    (status = 404, description = "There is no such account"),
))]
#[delete("/users/{user}/follow")]
pub(crate) async fn unfollow_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let followee = known(&store, user).await?;
    store.unfollow(viewer.user_id, followee).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Remove a follower
///
/// Repeating it changes nothing. The account may follow again, or ask to.
#[utoipa::path(tag = "graph", params(UserParam), responses(
    (status = 204, description = "The account does not follow the caller"),
    (status = 404, description = "There is no such account"),
))]
#[delete("/me/followers/{user}")]
pub(crate) async fn remove_follower(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let follower = known(&store, user).await?;
    store.remove_follower(viewer.user_id, follower).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// List the followers of an account
///
/// Newest first, without those whom a block hides from the caller. A page costs the same however many there are and however deep it lies.
#[utoipa::path(tag = "graph", security((), ("bearer" = [])), params(UserParam, ListParams), responses(
    (status = 200, description = "A page of followers", body = FollowPage),
    (status = 404, description = "There is no such account, a block stands between it and the caller, or it is private and the caller does not follow it"),
))]
#[get("/users/{user}/followers")]
pub(crate) async fn list_followers(
    MaybeViewer(viewer): MaybeViewer,
    PathUser(user): PathUser,
    list: ListQuery<SeqCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.followers(&user, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(EdgeResponse::from), FollowPage::new))
}

/// List the accounts that an account follows
///
/// Newest first, without those whom a block hides from the caller.
#[utoipa::path(tag = "graph", security((), ("bearer" = [])), params(UserParam, ListParams), responses(
    (status = 200, description = "A page of followees", body = FollowPage),
    (status = 404, description = "There is no such account, a block stands between it and the caller, or it is private and the caller does not follow it"),
))]
#[get("/users/{user}/following")]
pub(crate) async fn list_following(
    MaybeViewer(viewer): MaybeViewer,
    PathUser(user): PathUser,
    list: ListQuery<EdgeCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.following(&user, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(EdgeResponse::from), FollowPage::new))
}

/// List the followers of an account whom the caller follows
///
/// In the order of the followers. The larger the account, the more it is the caller's followees who are looked through.
#[utoipa::path(tag = "graph", params(UserParam, ListParams), responses(
    (status = 200, description = "A page of followers", body = FollowPage),
    (status = 404, description = "There is no such account, a block stands between it and the caller, or it is private and the caller does not follow it"),
))]
#[get("/users/{user}/known-followers")]
pub(crate) async fn list_known_followers(
    viewer: Viewer,
    PathUser(user): PathUser,
    list: ListQuery<SeqCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let page = store.known_followers(&user, viewer.user_id, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(EdgeResponse::from), FollowPage::new))
}

/// Tell how the caller stands to some accounts
///
/// In the order asked, without those that do not exist.
#[utoipa::path(tag = "graph", params(UserIds), responses(
    (status = 200, description = "How the caller stands to each", body = RelationshipsResponse),
))]
#[get("/relationships")]
pub(crate) async fn list_relationships(viewer: Viewer, Query(asked): Query<UserIds>, store: Data<Store>) -> Result<HttpResponse> {
    let ids = parse_ids(&asked.ids)?;
    let items = store.relationships(viewer.user_id, &ids).await?.into_iter().map(RelationshipResponse::from).collect();
    Ok(HttpResponse::Ok().json(RelationshipsResponse { items }))
}

/// The id of the account in the path.
pub(super) async fn known(store: &Store, user: UserRef) -> Result<UserId> {
    store.user_id(&user).await?.ok_or(Problem::not_found())
}

impl From<FollowRefusal> for Problem {
    fn from(refusal: FollowRefusal) -> Self {
        match refusal {
            FollowRefusal::SelfFollow => Self::new(Code::SelfFollow),
            FollowRefusal::Blocked => Self::new(Code::Blocked),
            FollowRefusal::LimitReached => Self::new(Code::FollowLimitReached),
            FollowRefusal::NotFound => Self::not_found(),
        }
    }
}

impl From<Follow> for EdgeResponse {
    fn from(follow: Follow) -> Self {
        Self { user: follow.user.into(), followed_at: follow.followed_at }
    }
}

impl From<(UserId, Relation)> for RelationshipResponse {
    fn from((id, relation): (UserId, Relation)) -> Self {
        Self { id, relation: relation.into() }
    }
}
