//! Comments: writing, listing, reading, editing and deleting them.

use actix_web::{HttpResponse, delete, get, patch, post, web::Data};
use rookery_domain::{
    CommentId, Page, PostId, Timestamp,
    comments::{ChangeCommentRefusal, Comment, CommentCursor, CommentOrder, CommentRefusal, ThreadCursor},
    text,
};
use rookery_storage::{Store, comments::NewComment};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::{MaybeViewer, Viewer},
    error::{Code, Problem, Result},
    extract::{IdParam, Json, PathId, Query},
    idempotency::{IdempotencyKey, IdempotencyParam, Made, create_once},
    openapi,
    page::{ListParams, ListQuery},
    routes::users::UserSummaryResponse,
};

/// A new comment.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "text": "So true.", "parentId": "01890000-0000-7000-8000-000000000002" }))]
pub struct CreateCommentRequest {
    /// 1 to 300 characters (grapheme clusters), of at most 3,000 bytes, with something visible among them.
    #[schema(example = "So true.")]
    text: String,
    /// The comment that this one answers, under the same post; absent or null for one that answers the post itself.
    #[schema(format = Uuid, example = "01890000-0000-7000-8000-000000000002")]
    parent_id: Option<String>,
}

/// What is to be changed of a comment.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "text": "So true!" }))]
pub struct EditCommentRequest {
    /// 1 to 300 characters (grapheme clusters), of at most 3,000 bytes, with something visible among them.
    #[schema(example = "So true!")]
    text: String,
}

/// A comment, or what is left of one that was deleted but has replies.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Comment)]
pub struct CommentResponse {
    #[schema(value_type = String, format = Uuid)]
    id: CommentId,
    /// The post it stands under.
    #[schema(value_type = String, format = Uuid)]
    post_id: PostId,
    /// The comment it answers; null on the first level.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    parent_id: Option<CommentId>,
    /// Its level: 0 for one that answers the post itself, at most 100.
    #[schema(minimum = 0, maximum = 100, example = 0)]
    depth: i32,
    /// Who wrote it; null once it is deleted.
    #[schema(required)]
    author: Option<UserSummaryResponse>,
    /// What was written; empty once it is deleted.
    #[schema(example = "So true.")]
    text: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its text was last changed; null if it never was.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    edited_at: Option<Timestamp>,
    counts: CommentCountsResponse,
    /// Whether only its place is left, which keeps its replies together.
    deleted: bool,
}

/// Totals of a comment, the same for every viewer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommentCounts)]
pub struct CommentCountsResponse {
    pub(super) likes: i64,
    /// Direct replies, without deleted ones.
    pub(super) replies: i64,
}

/// Comments under a post, or replies to a comment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CommentPage)]
pub struct CommentPageResponse {
    /// The items, in the order of the list.
    items: Vec<CommentResponse>,
    /// Leads on in the order of the list; null exactly where nothing follows.
    #[schema(required)]
    next_cursor: Option<String>,
    /// Leads back to the adjacent items before the first; null only on an empty list.
    #[schema(required)]
    prev_cursor: Option<String>,
    /// As many items as a walk of the whole list meets, deleted ones that hold replies included.
    total: i64,
}

/// A comment with what it answers and what answers it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommentThread)]
pub struct CommentThreadResponse {
    /// The comments above it, from the first level to the one that it answers.
    ancestors: Vec<CommentResponse>,
    comment: CommentResponse,
    descendants: DescendantsResponse,
}

/// A page of the comments below a comment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Descendants)]
pub struct DescendantsResponse {
    /// Comments of every level below it, each after the one that it answers, otherwise the first written first.
    items: Vec<CommentResponse>,
    /// Leads on to those that follow; null exactly where nothing does.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Which comments to list, and in which order.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct CommentsQuery {
    /// `newest` first, or `oldest` first, which gives every comment before its replies.
    #[serde(default)]
    #[param(inline, default = "newest")]
    sort: CommentSort,
    /// List only the direct replies to this comment.
    #[param(format = Uuid, example = "01890000-0000-7000-8000-000000000002")]
    parent_id: Option<String>,
}

/// The order of a list of comments.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommentSort {
    /// The last written first.
    #[default]
    Newest,
    /// The first written first.
    Oldest,
}

impl From<Comment> for CommentResponse {
    fn from(comment: Comment) -> Self {
        Self {
            id: comment.id,
            post_id: comment.post_id,
            parent_id: comment.parent_id,
            depth: comment.depth,
            author: comment.author.map(UserSummaryResponse::from),
            text: comment.text,
            created_at: comment.created_at,
            edited_at: comment.edited_at,
            counts: CommentCountsResponse { likes: comment.likes, replies: comment.replies },
            deleted: comment.deleted,
        }
    }
}

impl From<CommentRefusal> for Problem {
    fn from(refusal: CommentRefusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            // An account that was deleted in this very moment takes its tokens with it.
            CommentRefusal::AuthorGone => Self::new(Code::InvalidToken),
            CommentRefusal::PostNotFound | CommentRefusal::ParentHidden => Self::not_found().detail(detail),
            CommentRefusal::ParentNotFound => Self::new(Code::ValidationFailed).field("parentId", "not_found", detail),
            CommentRefusal::ThreadTooDeep => Self::new(Code::ThreadTooDeep).detail(detail),
        }
    }
}

impl From<ChangeCommentRefusal> for Problem {
    fn from(refusal: ChangeCommentRefusal) -> Self {
        match refusal {
            ChangeCommentRefusal::NotFound => Self::not_found(),
            ChangeCommentRefusal::NotYours => Self::new(Code::NotYours).detail(refusal.to_string()),
        }
    }
}

/// Comment on a post, or answer a comment
///
/// The comment can be read as soon as this answers. Lists and totals have it at once too, unless many write under the post at the same
/// time: then within a second. A comment under a post or an answer to a comment that is being deleted is refused as if that were gone
/// already.
#[utoipa::path(tag = "comments", params(IdParam, IdempotencyParam), responses(
    (status = 201, description = "The comment", body = CommentResponse, headers(
        ("Location" = String, description = "Where the comment is"),
        ("Idempotency-Replayed" = Option<String>, description = "`true` where the comment was made by an earlier call with the same key"),
    )),
    (status = 404, description = "There is no such post, or none that the caller may see; or a block hides the comment of `parentId`"),
    (status = 422, description = "`validation_failed`: the `text` breaks a rule, or there is no such comment as `parentId` under this post \
        (`not_found`). `thread_too_deep`: the comment to answer is at level 100. `idempotency_key_reused`: the key was used with another body"),
))]
#[post("/posts/{id}/comments")]
pub(crate) async fn create_comment(
    viewer: Viewer,
    PathId(post): PathId<PostId>,
    key: IdempotencyKey,
    Json(request): Json<CreateCommentRequest>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let author = viewer.user_id;
    let parent = parent_id(request.parent_id.as_deref())?;
    create_once(&store, author, key, &request, async |id| {
        let text = comment_text(&request.text)?;
        let comment = store.create_comment(NewComment { id: CommentId(id), post, parent, author, text }).await??;
        Ok(Made { location: format!("{}/comments/{}", openapi::BASE_PATH, comment.id), body: CommentResponse::from(comment) })
    })
    .await
}

/// List the comments under a post
///
/// Comments of every level, or with `parentId` the direct replies to one. A deleted comment is listed while it has replies that are.
/// `total` is the length of the whole list, as the caller sees it. A cursor goes with the `sort` of the list that gave it.
#[utoipa::path(tag = "comments", security((), ("bearer" = [])), params(IdParam, CommentsQuery, ListParams), responses(
    (status = 200, description = "A page of comments", body = CommentPageResponse,
        headers(("Link" = String, description = "The next and the previous page"))),
    (status = 404, description = "There is no such post, or none that the caller may see; or a block hides the comment of `parentId`"),
    (status = 422, description = "`validation_failed`: there is no such comment as `parentId` under this post"),
))]
#[get("/posts/{id}/comments")]
pub(crate) async fn list_comments(
    MaybeViewer(viewer): MaybeViewer,
    PathId(post): PathId<PostId>,
    Query(query): Query<CommentsQuery>,
    list: ListQuery<CommentCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let parent = parent_id(query.parent_id.as_deref())?;
    let order = match query.sort {
        CommentSort::Newest => CommentOrder::Newest,
        CommentSort::Oldest => CommentOrder::Oldest,
    };
    if list.cursor.is_some_and(|cursor| cursor.order != order) {
        return Err(Problem::new(Code::InvalidCursor).detail("The cursor is of a list with another sort"));
    }
    let (viewer, place) = (viewer.map(|viewer| viewer.user_id), list.cursor.map(|cursor| cursor.place));
    let comments = store.comments(post, viewer, parent, order, place, list.limit).await??;
    let (Page { items, next, prev }, total) = (comments.page, comments.total);
    let cursor = |place| CommentCursor { order, place };
    let page = Page { items, next: next.map(cursor), prev: prev.map(cursor) };
    Ok(list.answer(page.map(CommentResponse::from), |items, next_cursor, prev_cursor| CommentPageResponse {
        items,
        next_cursor,
        prev_cursor,
        total,
    }))
}

/// Get a comment
///
/// A deleted comment is there while it has replies, without its text and author.
#[utoipa::path(tag = "comments", security((), ("bearer" = [])), params(IdParam), responses(
    (status = 200, description = "The comment", body = CommentResponse),
    (status = 404, description = "There is no such comment, or none that the caller may see"),
))]
#[get("/comments/{id}")]
pub(crate) async fn get_comment(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<CommentId>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let comment = store.comment(id, viewer.map(|viewer| viewer.user_id)).await?.ok_or(Problem::not_found())?;
    Ok(HttpResponse::Ok().json(CommentResponse::from(comment)))
}

/// Get the thread of a comment
///
/// The comment, those above it, and a page of those below it: a flat list of every level, each comment after the one that it answers.
/// `limit` and `cursor` are those of `descendants`. What the caller does not see in lists is left out above and below, and what answers it
/// is there; a deleted comment is there while it has replies. The order is that of writing, so that new comments come at the end.
#[utoipa::path(tag = "comments", security((), ("bearer" = [])), params(IdParam, ListParams), responses(
    (status = 200, description = "The thread", body = CommentThreadResponse,
        headers(("Link" = Option<String>, description = "The next page of the comments below, where there is one"))),
    (status = 404, description = "There is no such comment, or none that the caller may see"),
))]
#[get("/comments/{id}/thread")]
pub(crate) async fn get_thread(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<CommentId>,
    list: ListQuery<ThreadCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let thread = store.thread(id, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    let ancestors = thread.ancestors.into_iter().map(CommentResponse::from).collect();
    let comment = CommentResponse::from(thread.comment);
    Ok(list.answer(thread.descendants.map(CommentResponse::from), |items, next_cursor, _| CommentThreadResponse {
        ancestors,
        comment,
        descendants: DescendantsResponse { items, next_cursor },
    }))
}

/// Edit a comment
///
/// It has the new text in every read at once, and `editedAt` says when. A text that is the same changes neither. Where it stands, what
/// answers it and who likes it stay as they are.
#[utoipa::path(tag = "comments", params(IdParam), responses(
    (status = 200, description = "The comment", body = CommentResponse),
    (status = 403, description = "`not_yours`: somebody else wrote it"),
    (status = 404, description = "There is no such comment (any more), or none that the caller may see"),
    (status = 422, description = "`validation_failed`: the `text` breaks a rule"),
))]
#[patch("/comments/{id}")]
pub(crate) async fn edit_comment(
    viewer: Viewer,
    PathId(id): PathId<CommentId>,
    Json(request): Json<EditCommentRequest>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let text = comment_text(&request.text)?;
    let comment = store.edit_comment(id, viewer.user_id, &text).await??;
    Ok(HttpResponse::Ok().json(CommentResponse::from(comment)))
}

/// Delete a comment
///
/// Its text is gone from every read at once. Where it has replies, its place in the tree stays until the last of them is deleted.
#[utoipa::path(tag = "comments", params(IdParam), responses(
    (status = 204, description = "It is deleted"),
    (status = 403, description = "`not_yours`: somebody else wrote it"),
    (status = 404, description = "There is no such comment (any more), or none that the caller may see"),
))]
#[delete("/comments/{id}")]
pub(crate) async fn delete_comment(viewer: Viewer, PathId(id): PathId<CommentId>, store: Data<Store>) -> Result<HttpResponse> {
    store.delete_comment(id, viewer.user_id).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Reads `parentId`, in the one spelling that ids have.
fn parent_id(text: Option<&str>) -> Result<Option<CommentId>> {
    text.map(str::parse).transpose().map_err(|_| Problem::new(Code::InvalidId).field("parentId", "invalid_id", "not an id"))
}

/// The text of a comment as it is kept.
fn comment_text(text: &str) -> Result<String> {
    text::comment(text).map_err(|fault| Problem::new(Code::ValidationFailed).field("text", fault.code(), fault.to_string()))
}
