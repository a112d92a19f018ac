//! The feed.

use crate::{post::Post, user::UserSummary};

/// Why a post is in a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonKind {
    /// The reader follows its author.
    Follow,
    /// The reader follows its author, who is a celebrity.
    Celebrity,
    /// Somebody whom the reader follows has reposted it.
    Repost,
    /// The reader wrote it.
    Own,
}

/// One item of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// The post.
    pub post: Post,
    /// Why it is here.
    pub kind: ReasonKind,
    /// The accounts that brought it, newest first, at most five.
    pub by: Vec<UserSummary>,
}
