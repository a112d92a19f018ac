//! Reactions: what an account does with somebody's post or comment besides answering it.

use crate::{
    CommentId, PostId, Timestamp,
    post::{PostCounts, PostViewer},
};

/// A post after somebody reacted to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reacted {
    /// The post's totals.
    pub counts: PostCounts,
    /// What the caller has done with it.
    pub viewer: PostViewer,
}

/// A comment after somebody liked it, or took that back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommentReacted {
    /// Likes of the comment.
    pub likes: i64,
    /// Live direct replies.
    pub replies: i64,
}

/// Why a reaction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReactionRefusal {
    /// The account that reacts is gone.
    #[error("there is no such account")]
    UserGone,
    /// The post or comment is absent, deleted, or not for this viewer.
    #[error("there is no such thing, or none that you may see")]
    NotFound,
    /// The post is for the followers of its author.
    #[error("a post for followers cannot be reposted")]
    NotRepostable,
}

/// What a reaction is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A post.
    Post(PostId),
    /// A comment.
    Comment(CommentId),
}

/// A reaction, and since when it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    /// What it is to.
    pub target: Target,
    /// Since when.
    pub since: Timestamp,
}
