//! What an account takes with it: everything that the service holds on it, one thing at a time.

use crate::{
    CommentId, Email, NotificationId, PostId, Timestamp, UserId,
    comments::Comment,
    credentials::Session,
    notifications::NotificationKind,
    post::{Post, Revision},
    reactions::Reaction,
    stats::HourlyStats,
    user::User,
};

/// One thing.
#[derive(Debug, Clone)]
pub enum Export {
    /// The account itself.
    Account {
        /// As its profile shows it.
        user: Box<User>,
        /// The address, told to nobody else.
        email: Option<Email>,
    },
    /// A login.
    Session(Session),
    /// An account that it follows or has asked to follow.
    Follow(Edge),
    /// An account that follows it or has asked to.
    Follower(Edge),
    /// An account that it blocks.
    Block(Edge),
    /// An account that it mutes.
    Mute(Edge),
    /// A post that it wrote.
    Post(Box<Post>),
    /// What a post of it said before.
    Revision(PostId, Revision),
    /// A comment that it wrote.
    Comment(Box<Comment>),
    /// A post or a comment that it likes.
    Like(Reaction),
    /// A post that it has reposted.
    Repost(Reaction),
    /// A post that it has bookmarked.
    Bookmark(Reaction),
    /// What happened to it in one hour.
    Stats(HourlyStats),
    /// Something that it was told.
    Notification(Told),
}

/// What an account was told, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Its place in the list of notifications.
    pub id: NotificationId,
    /// What kind of act it tells.
    pub kind: NotificationKind,
    /// Who acted; none where it tells many acts.
    pub actor: Option<UserId>,
    /// The post that it is about.
    pub post: Option<PostId>,
    /// The comment that it is about.
    pub comment: Option<CommentId>,
}

/// A relation to another account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The account at the other end.
    pub user: UserId,
    /// Since when; none while it is not counted.
    pub since: Option<Timestamp>,
    /// Whether it waits for consent.
    pub requested: bool,
}
