//! Posts as other layers see them.

use crate::{PostId, Timestamp, comments::Comment, user::UserSummary};

/// Who may see a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Everybody.
    Public,
    /// The author and the author's followers.
    Followers,
}

/// A post with the newest of its comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The post's id, which is also its place in every list of posts.
    pub id: PostId,
    /// Who wrote it: a copy of the author's fields (the extended reference pattern).
    pub author: UserSummary,
    /// What was written.
    pub text: String,
    /// Who may see it.
    pub visibility: Visibility,
    /// The tags in the text, case-folded, each once.
    pub tags: Vec<String>,
    /// The accounts named in the text, each once.
    pub mentions: Vec<UserSummary>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When its text was last changed.
    pub edited_at: Option<Timestamp>,
    /// The post's totals.
    pub counts: PostCounts,
    /// The newest comments, newest first, at most [`crate::comments::RECENT_SHOWN`] (the subset pattern).
    pub recent_comments: Vec<Comment>,
    /// What the viewer has done with it; none for an anonymous reader.
    pub viewer: Option<PostViewer>,
}

/// Totals of a post, kept up to date as its children are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PostCounts {
    /// Live comments of any depth.
    pub comments: i64,
    /// Likes.
    pub likes: i64,
    /// Reposts.
    pub reposts: i64,
    /// Views, an approximation.
    pub views: i64,
}

/// What a viewer has done with a post.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PostViewer {
    /// The viewer likes it.
    pub liked: bool,
    /// The viewer has reposted it.
    pub reposted: bool,
    /// The viewer has bookmarked it.
    pub bookmarked: bool,
}
