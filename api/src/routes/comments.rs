//! Comments: how they are shown.

use rookery_domain::{CommentId, PostId, Timestamp, comments::Comment};
use serde::Serialize;
use utoipa::ToSchema;

use super::users::UserSummaryResponse;

/// A comment, or what is left of one that was deleted but has replies.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Comment)]
pub struct CommentResponse {
    #[schema(value_type = String, format = Uuid)]
    id: CommentId,
    #[schema(value_type = String, format = Uuid)]
    post_id: PostId,
    /// The comment it answers; null on the first level.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    parent_id: Option<CommentId>,
    /// Its level: 0 for one that answers the post itself.
    depth: i32,
    /// Null once it is deleted.
    #[schema(required)]
    author: Option<UserSummaryResponse>,
    /// Empty once it is deleted.
    text: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    edited_at: Option<Timestamp>,
    counts: CommentCountsResponse,
    /// Only its place in the tree is left.
    deleted: bool,
}

/// Totals of a comment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommentCounts)]
pub struct CommentCountsResponse {
    likes: i64,
    replies: i64,
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
