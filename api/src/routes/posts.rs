//! Posts: writing, reading, editing and deleting them, one by one, by author and by tag.

use actix_web::{HttpResponse, delete, get, patch, post, web::Data};
use rookery_domain::{
    PostId, Timestamp,
    page::{SeqCursor, TimeCursor},
    post::{Post, PostCounts, PostViewer, Revision, Visibility},
    text,
};
use rookery_storage::{
    Store,
    posts::{Deleted, Edited, NewPost},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{comments::CommentResponse, users::UserSummaryResponse};
use crate::{
    auth::{MaybeViewer, Viewer},
    error::{Code, Problem, Result},
    extract::{IdParam, Json, PathId, PathTag, PathUser, Query, TagParam, UserParam, parse_ids},
    idempotency::{IdempotencyKey, IdempotencyParam, Made, create_once},
    openapi,
    page::{ListParams, ListQuery},
    page_of,
};

/// A new post.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreatePost, example = json!({ "text": "hello #world, hello @ada" }))]
pub struct CreatePostRequest {
    /// 1 to 500 grapheme clusters, at most 5,000 bytes. `#tags` and `@mentions` are found in it.
    #[schema(example = "hello #world, hello @ada")]
    text: String,
    #[serde(default)]
    visibility: VisibilityValue,
}

/// What a post is to say.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EditPost, example = json!({ "text": "hello #world, hello @ada and @grace" }))]
pub struct EditPostRequest {
    /// 1 to 500 grapheme clusters, at most 5,000 bytes. `#tags` and `@mentions` are found in it anew.
    #[schema(example = "hello #world, hello @ada and @grace")]
    text: String,
}

/// Who may see a post.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Visibility)]
pub enum VisibilityValue {
    /// Everybody.
    #[default]
    Public,
    /// The author and the author's followers.
    Followers,
}

/// A post with its newest comments.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Post)]
pub struct PostResponse {
    #[schema(value_type = String, format = Uuid)]
    id: PostId,
    author: UserSummaryResponse,
    #[schema(example = "hello #world")]
    text: String,
    visibility: VisibilityValue,
    /// Without their `#`, case-folded, each once.
    #[schema(example = json!(["world"]))]
    tags: Vec<String>,
    /// The accounts named in the text, each once.
    mentions: Vec<UserSummaryResponse>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its text was last changed; null where it never was.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    edited_at: Option<Timestamp>,
    counts: PostCountsResponse,
    /// The newest comments of any depth, newest first, at most 10.
    recent_comments: Vec<CommentResponse>,
    /// What the caller has done with it; absent without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    viewer: Option<PostViewerResponse>,
}

/// Totals of a post, the same for every viewer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PostCounts)]
pub struct PostCountsResponse {
    comments: i64,
    likes: i64,
    reposts: i64,
    /// How often others than its author have read it by itself (`GET /posts/{id}`); lists and feeds do not count. An approximation, which is
    /// a few seconds late and never falls.
    views: i64,
}

/// What the caller has done with a post.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PostViewer)]
pub struct PostViewerResponse {
    liked: bool,
    reposted: bool,
    bookmarked: bool,
}

page_of! {
    /// Posts.
    PostPage of PostResponse
}

/// What a post said before it was edited.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Revision)]
pub struct RevisionResponse {
    #[schema(example = "hello #wrold")]
    text: String,
    /// When this was written; of the first version, when the post was.
    #[schema(value_type = String, format = DateTime)]
    edited_at: Timestamp,
}

page_of! {
    /// What a post said before.
    RevisionPage of RevisionResponse
}

/// Some posts by their ids.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PostIds {
    /// At most 100 ids, separated by commas.
    #[param(example = "01890000-0000-7000-8000-000000000001")]
    ids: String,
}

/// Write a post
///
/// The posts of a private account are for its followers, whatever is asked.
#[utoipa::path(tag = "posts", params(IdempotencyParam), responses(
    (status = 201, description = "The post", body = PostResponse, headers(
        ("Location" = String, description = "Where the post is"),
        ("Idempotency-Replayed" = Option<String>, description = "`true` where the post was made by an earlier call with the same key"),
    )),
    (status = 422, description = "`validation_failed`: the text breaks a rule. `idempotency_key_reused`: the key was used with another body"),
))]
#[post("/posts")]
pub(crate) async fn create_post(
    viewer: Viewer,
    key: IdempotencyKey,
    Json(request): Json<CreatePostRequest>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let author = viewer.user_id;
    create_once(&store, author, key, &request, async |id| {
        let text = text_of(&request.text)?;
        let new = NewPost { id: PostId(id), author, text, visibility: request.visibility.into() };
        // An account that was deleted in this very moment takes its tokens with it.
        let post = store.create_post(new).await?.ok_or(Problem::new(Code::InvalidToken))?;
        Ok(Made { location: format!("{}/posts/{}", openapi::BASE_PATH, post.id), body: PostResponse::from(post) })
    })
    .await
}

/// Get a post
///
/// With its totals and its newest comments; with a token also what the viewer has done with it. This is what counts as a view, unless the
/// caller wrote the post; the total has it a few seconds later.
#[utoipa::path(tag = "posts", security((), ("bearer" = [])), params(IdParam), responses(
    (status = 200, description = "The post", body = PostResponse),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[get("/posts/{id}")]
pub(crate) async fn get_post(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<PostId>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let post = store.post(id, viewer).await?.ok_or(Problem::not_found())?;
    store.note_view(&post, viewer);
    Ok(HttpResponse::Ok().json(PostResponse::from(post)))
}

/// Get some posts by their ids
///
/// In the order asked, each once, without those that do not exist or that the caller may not see. The list is not paged.
#[utoipa::path(tag = "posts", security((), ("bearer" = [])), params(PostIds), responses((status = 200, description = "The posts", body = PostPage)))]
#[get("/posts")]
pub(crate) async fn list_posts(
    MaybeViewer(viewer): MaybeViewer,
    Query(asked): Query<PostIds>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let ids = parse_ids(&asked.ids)?;
    let posts = store.posts(&ids, viewer.map(|viewer| viewer.user_id)).await?;
    Ok(HttpResponse::Ok().json(PostPage::new(posts.into_iter().map(PostResponse::from).collect(), None, None)))
}

/// Change the text of a post
///
/// Tags and mentions are derived anew, `editedAt` is set, and what the post said before is in its history. A text that is the same as
/// before changes nothing. Who may see the post, its place in lists and its totals stay as they are.
#[utoipa::path(tag = "posts", params(IdParam), responses(
    (status = 200, description = "The post as it is now", body = PostResponse),
    (status = 403, description = "`not_yours`: somebody else wrote it"),
    (status = 404, description = "There is no such post (any more), or none that the caller may see"),
    (status = 422, description = "`validation_failed`: the text breaks a rule"),
))]
#[patch("/posts/{id}")]
pub(crate) async fn edit_post(
    viewer: Viewer,
    PathId(id): PathId<PostId>,
    Json(request): Json<EditPostRequest>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    match store.edit_post(id, viewer.user_id, text_of(&request.text)?).await? {
        Edited::Now(post) => Ok(HttpResponse::Ok().json(PostResponse::from(*post))),
        Edited::NotFound => Err(Problem::not_found()),
        Edited::NotYours => Err(Problem::new(Code::NotYours)),
    }
}

/// List what a post said before
///
/// Its earlier versions, newest first, without the text that it has now: the newest 50 are kept. Whoever may see the post sees its history.
#[utoipa::path(tag = "posts", security((), ("bearer" = [])), params(IdParam, ListParams), responses(
    (status = 200, description = "A page of earlier versions; empty where it was never edited", body = RevisionPage),
    (status = 404, description = "There is no such post, or none that the caller may see"),
))]
#[get("/posts/{id}/history")]
pub(crate) async fn list_post_history(
    MaybeViewer(viewer): MaybeViewer,
    PathId(id): PathId<PostId>,
    list: ListQuery<SeqCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.post_history(id, viewer, list.cursor, list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(RevisionResponse::from), RevisionPage::new))
}

/// Delete a post
///
/// It is gone from every list and read at once, and with it what stands under it.
#[utoipa::path(tag = "posts", params(IdParam), responses(
    (status = 204, description = "It is deleted"),
    (status = 403, description = "`not_yours`: somebody else wrote it"),
    (status = 404, description = "There is no such post (any more), or none that the caller may see"),
))]
#[delete("/posts/{id}")]
pub(crate) async fn delete_post(viewer: Viewer, PathId(id): PathId<PostId>, store: Data<Store>) -> Result<HttpResponse> {
    match store.delete_post(id, viewer.user_id).await? {
        Deleted::Now => Ok(HttpResponse::NoContent().finish()),
        Deleted::NotFound => Err(Problem::not_found()),
        Deleted::NotYours => Err(Problem::new(Code::NotYours)),
    }
}

/// List the posts of an account
///
/// Newest first: those that the caller may see.
#[utoipa::path(tag = "posts", security((), ("bearer" = [])), params(UserParam, ListParams), responses(
    (status = 200, description = "A page of posts", body = PostPage),
    (status = 404, description = "There is no such account, or it blocks the caller"),
))]
#[get("/users/{user}/posts")]
pub(crate) async fn list_user_posts(
    MaybeViewer(viewer): MaybeViewer,
    PathUser(user): PathUser,
    list: ListQuery<TimeCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.posts_of(&user, viewer, list.cursor.clone(), list.limit).await?.ok_or(Problem::not_found())?;
    Ok(list.answer(page.map(PostResponse::from), PostPage::new))
}

/// List the posts with a tag
///
/// Newest first: those that the caller may see, without those of accounts that the caller mutes. The tag is folded as in posts, so that its
/// case makes no difference. One that nobody has used is an empty list.
#[utoipa::path(tag = "posts", security((), ("bearer" = [])), params(TagParam, ListParams), responses(
    (status = 200, description = "A page of posts", body = PostPage),
    (status = 422, description = "`validation_failed`: no text can have such a tag"),
))]
#[get("/tags/{tag}/posts")]
pub(crate) async fn list_tag_posts(
    MaybeViewer(viewer): MaybeViewer,
    PathTag(tag): PathTag,
    list: ListQuery<TimeCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = store.posts_with_tag(&tag, viewer, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(PostResponse::from), PostPage::new))
}

/// A text of a request as it is stored.
fn text_of(text: &str) -> Result<String> {
    text::post(text).map_err(|fault| Problem::new(Code::ValidationFailed).field("text", fault.code(), fault.to_string()))
}

impl From<Revision> for RevisionResponse {
    fn from(revision: Revision) -> Self {
        Self { text: revision.text, edited_at: revision.edited_at }
    }
}

impl From<Post> for PostResponse {
    fn from(post: Post) -> Self {
        Self {
            id: post.id,
            author: post.author.into(),
            text: post.text,
            visibility: post.visibility.into(),
            tags: post.tags,
            mentions: post.mentions.into_iter().map(UserSummaryResponse::from).collect(),
            created_at: post.created_at,
            edited_at: post.edited_at,
            counts: post.counts.into(),
            recent_comments: post.recent_comments.into_iter().map(CommentResponse::from).collect(),
            viewer: post.viewer.map(PostViewerResponse::from),
        }
    }
}

impl From<PostCounts> for PostCountsResponse {
    fn from(counts: PostCounts) -> Self {
        Self { comments: counts.comments, likes: counts.likes, reposts: counts.reposts, views: counts.views }
    }
}

impl From<PostViewer> for PostViewerResponse {
    fn from(viewer: PostViewer) -> Self {
        Self { liked: viewer.liked, reposted: viewer.reposted, bookmarked: viewer.bookmarked }
    }
}

impl From<Visibility> for VisibilityValue {
    fn from(visibility: Visibility) -> Self {
        match visibility {
            Visibility::Public => Self::Public,
            Visibility::Followers => Self::Followers,
        }
    }
}

impl From<VisibilityValue> for Visibility {
    fn from(visibility: VisibilityValue) -> Self {
        match visibility {
            VisibilityValue::Public => Self::Public,
            VisibilityValue::Followers => Self::Followers,
        }
    }
}
