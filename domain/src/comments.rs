//! Comments: what other layers see of them, the subset kept in the post, and the tree.

use crate::{CommentId, PostId, Timestamp, user::UserSummary};

/// Comments of the subset that a post shows.
pub const RECENT_SHOWN: usize = 10;
/// Comments of the subset that a post keeps: five spares, so that a few hidden authors cost no second query.
pub const RECENT_KEPT: usize = 15;
/// The deepest level of replies; the first level is 0.
pub const MAX_DEPTH: i32 = 100;

/// A comment, or what is left of one that was deleted but has replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The comment's id.
    pub id: CommentId,
    /// The post it stands under.
    pub post_id: PostId,
    /// The comment it answers; none on the first level.
    pub parent_id: Option<CommentId>,
    /// Its level: 0 for one that answers the post itself.
    pub depth: i32,
    /// Who wrote it: a copy of the author's fields. None once it is deleted.
    pub author: Option<UserSummary>,
    /// What was written; empty once it is deleted.
    pub text: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When its text was last changed.
    pub edited_at: Option<Timestamp>,
    /// Likes of the comment.
    pub likes: i64,
    /// Live direct replies.
    pub replies: i64,
    /// Whether only its place in the tree is left.
    pub deleted: bool,
}
