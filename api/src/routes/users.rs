//! Accounts: one's own and those of others.

use actix_web::{HttpResponse, get, web::Data};
use rookery_domain::{
    Timestamp, UserId,
    user::{Relation, User, UserSince, UserSummary},
};
use rookery_storage::{Store, users::UserRef};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{MaybeViewer, Viewer},
    error::{Code, Problem, Result},
    extract::{PathUser, UserParam},
    page_of,
};

/// An account with everything its profile shows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = User)]
pub struct UserResponse {
    #[schema(value_type = String, format = Uuid)]
    id: UserId,
    #[schema(example = "ada")]
    handle: String,
    #[schema(example = "Ada")]
    display_name: String,
    /// May be empty.
    bio: String,
    #[schema(required, format = "uri")]
    avatar_url: Option<String>,
    /// Whether following needs the account's consent.
    private: bool,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    counts: UserCountsResponse,
    /// Whether the account has so many followers that its posts are pulled and not pushed.
    celebrity: bool,
    /// How the caller stands to the account; absent without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    viewer: Option<RelationResponse>,
}

/// Totals of an account, the same for every viewer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserCounts)]
pub struct UserCountsResponse {
    followers: i64,
    following: i64,
    posts: i64,
}

/// How the caller and another account stand to each other.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Relation)]
#[expect(clippy::struct_excessive_bools, reason = "six independent facts, named by the HTTP contract")]
pub struct RelationResponse {
    following: bool,
    followed_by: bool,
    requested: bool,
    blocking: bool,
    blocked_by: bool,
    muting: bool,
}

/// The part of an account that is shown wherever it is named.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UserSummary)]
pub struct UserSummaryResponse {
    #[schema(value_type = String, format = Uuid)]
    id: UserId,
    #[schema(example = "ada")]
    handle: String,
    #[schema(example = "Ada")]
    display_name: String,
    #[schema(required, format = "uri")]
    avatar_url: Option<String>,
    celebrity: bool,
}

/// An account, and since when it has been on the list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UserSince)]
pub struct UserSinceResponse {
    user: UserSummaryResponse,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

page_of! {
    /// Accounts, and since when they have been on the list.
    UserSincePage of UserSinceResponse
}

impl From<UserSince> for UserSinceResponse {
    fn from(listed: UserSince) -> Self {
        Self { user: listed.user.into(), created_at: listed.since }
    }
}

impl UserResponse {
    /// The account as a viewer who stands so to it sees it; none for an anonymous one.
    #[must_use]
    pub fn new(user: User, viewer: Option<Relation>) -> Self {
        Self {
            id: user.id,
            handle: user.handle.as_str().to_owned(),
            display_name: user.display_name,
            bio: user.bio,
            avatar_url: user.avatar_url,
            private: user.private,
            created_at: user.created_at,
            counts: UserCountsResponse {
                followers: user.counts.followers,
                following: user.counts.following,
                posts: user.counts.posts,
            },
            celebrity: user.celebrity,
            viewer: viewer.map(RelationResponse::from),
        }
    }

    /// The account as it sees itself: nobody stands in any relation to themselves.
    #[must_use]
    pub fn own(user: User) -> Self {
        Self::new(user, Some(Relation::default()))
    }
}

impl From<Relation> for RelationResponse {
    fn from(relation: Relation) -> Self {
        Self {
            following: relation.following,
            followed_by: relation.followed_by,
            requested: relation.requested,
            blocking: relation.blocking,
            blocked_by: relation.blocked_by,
            muting: relation.muting,
        }
    }
}

impl From<UserSummary> for UserSummaryResponse {
    fn from(user: UserSummary) -> Self {
        Self {
            id: user.id,
            handle: user.handle.as_str().to_owned(),
            display_name: user.display_name,
            avatar_url: user.avatar_url,
            celebrity: user.celebrity,
        }
    }
}

/// Get one's own account
///
/// As others see it: what only its owner may know, such as the e-mail address, is nowhere in the API.
#[utoipa::path(tag = "users", responses((status = 200, description = "The account", body = UserResponse)))]
#[get("/me")]
pub(crate) async fn get_me(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    // An account that was deleted in this very moment takes its tokens with it.
    let user = store.user(&UserRef::Id(viewer.user_id)).await?.ok_or(Problem::new(Code::InvalidToken))?;
    Ok(HttpResponse::Ok().json(UserResponse::own(user)))
}

/// Get an account
///
/// By its id, or by `@` and its handle in any case.
#[utoipa::path(tag = "users", security((), ("bearer" = [])), params(UserParam), responses(
    (status = 200, description = "The account", body = UserResponse),
    (status = 404, description = "There is no such account, or it blocks the caller"),
))]
#[get("/users/{user}")]
pub(crate) async fn get_user(MaybeViewer(viewer): MaybeViewer, user: PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let user = store.user(&user.0).await?.ok_or(Problem::not_found())?;
    let Some(viewer) = viewer else {
        return Ok(HttpResponse::Ok().json(UserResponse::new(user, None)));
    };
    let relation = store.relationships(viewer.user_id, &[user.id]).await?.first().map(|(_, relation)| *relation);
    match relation {
        Some(relation) if !relation.blocked_by => Ok(HttpResponse::Ok().json(UserResponse::new(user, Some(relation)))),
        _ => Err(Problem::not_found()),
    }
}
