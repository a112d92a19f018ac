//! Posts: making, reading and deleting them, and counting them in their author.
//!
//! A post is a child of its author and follows the protocol of [`crate::pending`]: it is inserted `pending`, which is what makes it
//! exist, and counted afterwards, by the request if nobody else writes the author's document, otherwise by the applier
//! ([`Store::apply_posts_step`]). It is also its own fan-out job: `delivery` says how it reaches the timelines of the followers, and
//! what is not delivered is pulled.

use serde::{Deserialize, Serialize};

/// The version of a post's document that this code writes.
const SCHEMA_VERSION: i32 = 2;

/// A post as the database holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PostDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub schema_version: i32,
    pub author: AuthorDoc,
    pub text: String,
    pub visibility: VisibilityDoc,
    pub tags: Vec<String>,
    pub mentions: Vec<AuthorDoc>,
    pub counters: PostCountersDoc,
    pub comment_seq: i64,
    /// The newest comments, newest first: one more than is shown is kept for each hidden author that costs no second query.
    pub recent_comments: Vec<RecentCommentDoc>,
    pub delivery: DeliveryDoc,
    pub state: PostState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    pub created_at: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<bson::DateTime>,
}

/// A copy of an account's fields, as posts and comments keep it (the extended reference pattern).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthorDoc {
    pub user_id: bson::Uuid,
    pub handle: String,
    pub display_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum VisibilityDoc {
    Public,
    Followers,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct PostCountersDoc {
    pub comments: i64,
    pub tombstones: i64,
    pub likes: i64,
    pub reposts: i64,
    pub views: i64,
}

/// What a comment shows, kept in its post (the subset pattern).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecentCommentDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<bson::Uuid>,
    pub depth: i32,
    pub author: AuthorDoc,
    pub text: String,
    pub created_at: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<bson::DateTime>,
    pub likes: i64,
    pub replies: i64,
}

/// How far a post has come to the timelines of its readers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryDoc {
    pub state: DeliveryState,
    pub attempts: i32,
    /// The highest `seq` of a follower who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<DeliveryLeaseDoc>,
    /// When a worker may claim it; none once it is delivered, pulled for good, or parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_after: Option<bson::DateTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DeliveryState {
    Pull,
    Pending,
    Delivered,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DeliveryLeaseDoc {
    pub owner: bson::Uuid,
    pub until: bson::DateTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PostState {
    Live,
    Deleted,
}
