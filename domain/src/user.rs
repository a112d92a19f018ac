//! Accounts as other layers see them.

use crate::{Handle, Timestamp, UserId};

/// An account with everything its profile shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The account's id.
    pub id: UserId,
    /// The unique handle.
    pub handle: Handle,
    /// The name shown beside the handle.
    pub display_name: String,
    /// A few words about the account; may be empty.
    pub bio: String,
    /// An http(s) address of a picture.
    pub avatar_url: Option<String>,
    /// Whether following needs the account's consent.
    pub private: bool,
    /// When the account was made.
    pub created_at: Timestamp,
    /// The account's totals, the same for every viewer.
    pub counts: UserCounts,
    /// Whether the account is flagged as an outlier ([`crate::outlier`]).
    pub celebrity: bool,
}

impl User {
    /// The part of the account that lists and authors show.
    #[must_use]
    pub fn summary(&self) -> UserSummary {
        UserSummary {
            id: self.id,
            handle: self.handle.clone(),
            display_name: self.display_name.clone(),
            avatar_url: self.avatar_url.clone(),
            celebrity: self.celebrity,
        }
    }
}

/// Totals of an account, kept up to date as edges and posts are applied (the computed pattern).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// Accounts that follow this one.
    pub followers: i64,
    /// Accounts that this one follows.
    pub following: i64,
    /// Live posts of this account.
    pub posts: i64,
}

/// The part of an account that is shown wherever it is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSummary {
    /// The account's id.
    pub id: UserId,
    /// The unique handle.
    pub handle: Handle,
    /// The name shown beside the handle.
    pub display_name: String,
    /// An http(s) address of a picture.
    pub avatar_url: Option<String>,
    /// Whether the account is flagged as an outlier.
    pub celebrity: bool,
}

/// An account, and since when somebody stands in some relation to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSince {
    /// The account.
    pub user: UserSummary,
    /// Since when.
    pub since: Timestamp,
}

/// How a viewer and another account stand to each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "six independent facts, named by the HTTP contract")]
pub struct Relation {
    /// The viewer follows the account.
    pub following: bool,
    /// The account follows the viewer.
    pub followed_by: bool,
    /// The viewer has asked to follow the account, which is private.
    pub requested: bool,
    /// The viewer blocks the account.
    pub blocking: bool,
    /// The account blocks the viewer.
    pub blocked_by: bool,
    /// The viewer mutes the account.
    pub muting: bool,
}

impl Relation {
    /// A block stands between the two, whichever of them made it.
    #[must_use]
    pub const fn blocked(self) -> bool {
        self.blocking || self.blocked_by
    }
}
