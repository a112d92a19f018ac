//! Reactions: likes, reposts and bookmarks, and the lists that come of them.

use actix_web::{HttpResponse, delete, get, put, web::Data};
use rookery_domain::{
    CommentId, PostId,
    page::{SeqCursor, TimeCursor},
    reactions::{CommentReacted, Reacted, ReactionRefusal},
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    comments::CommentCountsResponse,
    posts::{PostCountsResponse, PostPage, PostResponse, PostViewerResponse},
    users::UserSummaryResponse,
};
use crate::{
    auth::{MaybeViewer, Viewer},
    error::{Code, Problem, Result},
    extract::{IdParam, PathId},
    page::{ListParams, ListQuery},
    page_of,
};

/// A post after a reaction of the caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PostReaction)]
pub struct ReactedResponse {
    counts: PostCountsResponse,
    viewer: PostViewerResponse,
}

/// A comment after a reaction of the caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommentReaction)]
pub struct CommentReactedResponse {
    counts: CommentCountsResponse,
}

page_of! {
    /// Accounts that reacted to a post.
    ReactingUserPage of UserSummaryResponse
}

impl From<ReactionRefusal> for Problem {
    fn from(refusal: ReactionRefusal) -> Self {
        match refusal {
            // An account that was deleted in this very moment takes its tokens with it.
            ReactionRefusal::UserGone => Self::new(Code::InvalidToken),
            ReactionRefusal::NotFound => Self::not_found(),
            ReactionRefusal::NotRepostable => Self::new(Code::NotRepostable).detail(refusal.to_string()),
        }
    }
}

impl From<Reacted> for ReactedResponse {
    fn from(reacted: Reacted) -> Self {
        Self { counts: reacted.counts.into(), viewer: reacted.viewer.into() }
    }
}

impl From<CommentReacted> for CommentReactedResponse {
    fn from(reacted: CommentReacted) -> Self {
        Self { counts: CommentCountsResponse { likes: reacted.likes, replies: reacted.replies } }
    }
}

fn answer(reacted: Reacted) -> HttpResponse {
    HttpResponse::Ok().json(ReactedResponse::from(reacted))
}

/// Like a post
///
/// Repeating it changes nothing. The caller's own flag is set when this answers; the total has the like too, unless many like the post
/// at the same time: then within a second.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[put("/posts/{id}/like")]
pub(crate) async fn like_post(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.like_post(id, viewer.user_id).await??))
}

/// Take a like of a post back
///
/// Repeating it changes nothing. It is taken back also where the post may not be seen any more; the answer then is 404.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[delete("/posts/{id}/like")]
pub(crate) async fn unlike_post(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.unlike_post(id, viewer.user_id).await??))
}

/// Repost a post
///
/// Repeating it changes nothing. The post comes into the feeds of the caller's followers, at the time of the first repost by somebody
/// whom they follow, unless they follow its author: then it stands where it stood.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
    (status = 422, description = "`not_repostable`: the post is for followers, or its author is private now"),
))]
#[put("/posts/{id}/repost")]
pub(crate) async fn repost_post(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.repost(id, viewer.user_id).await??))
}

/// Take a repost back
///
/// It is gone from all feeds at once, and with it the post where nobody else brought it. Repeating it changes nothing. It is taken back
/// also where the post may not be seen any more; the answer then is 404.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[delete("/posts/{id}/repost")]
pub(crate) async fn undo_repost(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.undo_repost(id, viewer.user_id).await??))
}

/// Bookmark a post
///
/// Nobody but the caller knows of it. Repeating it changes nothing, and does not move the bookmark.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[put("/posts/{id}/bookmark")]
pub(crate) async fn bookmark_post(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.bookmark(id, viewer.user_id).await??))
}

/// Take a bookmark back
///
/// Repeating it changes nothing. It is taken back also where the post may not be seen any more; the answer then is 404.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The post's totals, and what the caller has done with it", body = ReactedResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[delete("/posts/{id}/bookmark")]
pub(crate) async fn remove_bookmark(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(answer(store.remove_bookmark(id, viewer.user_id).await??))
}

/// List who likes a post
///
/// The newest like first, without those whom a block hides from the caller.
#[utoipa::path(tag = "reactions", security((), ("bearer" = [])), params(IdParam, ListParams), responses(
    (status = 200, description = "A page of accounts", body = ReactingUserPage),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[get("/posts/{id}/likes")]
pub(crate) async fn list_likes(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<PostId>,
    list: ListQuery<SeqCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.likers(id, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(UserSummaryResponse::from), ReactingUserPage::new))
}

/// List who has reposted a post
///
/// The newest repost first, without those whom a block hides from the caller.
#[utoipa::path(tag = "reactions", security((), ("bearer" = [])), params(IdParam, ListParams), responses(
    (status = 200, description = "A page of accounts", body = ReactingUserPage),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[get("/posts/{id}/reposts")]
pub(crate) async fn list_reposts(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<PostId>,
    list: ListQuery<SeqCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.reposters(id, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(UserSummaryResponse::from), ReactingUserPage::new))
}

/// List the caller's bookmarks
///
/// Posts, the newest bookmark first. What the caller may not see (any more), and what is by somebody whom the caller mutes, is left out
/// while that is so.
#[utoipa::path(tag = "reactions", params(ListParams), responses((status = 200, description = "A page of posts", body = PostPage)))]
#[get("/me/bookmarks")]
pub(crate) async fn list_bookmarks(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.bookmarks(viewer.user_id, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(PostResponse::from), PostPage::new))
}

/// Like a comment
///
/// Repeating it changes nothing.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The comment's totals", body = CommentReactedResponse),
    (status = 404, description = "There is no such comment, or none that the caller may see"),
))]
#[put("/comments/{id}/like")]
pub(crate) async fn like_comment(viewer: Viewer, PathId(id): PathId<CommentId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(HttpResponse::Ok().json(CommentReactedResponse::from(store.like_comment(id, viewer.user_id).await??)))
}

/// Take a like of a comment back
///
/// Repeating it changes nothing. It is taken back also where the comment may not be seen any more; the answer then is 404.
#[utoipa::path(tag = "reactions", params(IdParam), responses(
    (status = 200, description = "The comment's totals", body = CommentReactedResponse),
    (status = 404, description = "There is no such comment, or none that the caller may see"),
))]
#[delete("/comments/{id}/like")]
pub(crate) async fn unlike_comment(viewer: Viewer, PathId(id): PathId<CommentId>, store: Data<Store>) -> Result<HttpResponse> {
    Ok(HttpResponse::Ok().json(CommentReactedResponse::from(store.unlike_comment(id, viewer.user_id).await??)))
}
