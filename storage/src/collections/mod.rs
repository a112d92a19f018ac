//! Every collection as data: its name, its validator and its indexes, in one description that migrations apply.
//!
//! The validators are strict (`validationAction: error`, no additional properties) and bound every array and text, so that the
//! database refuses a bad document even where the code has a bug, and no document can grow without end. The indexes are those that
//! docs/access-patterns.md names, each for a query; there is no other list of them.

mod comments;
mod graph;
mod idempotency;
mod jobs;
pub(crate) mod notifications;
mod operations;
pub(crate) mod posts;
mod reactions;
mod sessions;
mod stats;
pub(crate) mod timelines;
mod users;

use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::{IndexModel, options::IndexOptions};

/// Accounts.
pub const USERS: &str = "users";
/// Followers of outliers, a page of 500 to a document.
pub const USER_OVERFLOW: &str = "user_overflow";
/// Follow edges.
pub const FOLLOWS: &str = "follows";
/// Block edges.
pub const BLOCKS: &str = "blocks";
/// Mute edges.
pub const MUTES: &str = "mutes";
/// Posts.
pub const POSTS: &str = "posts";
/// What edited posts said before.
pub const POST_REVISIONS: &str = "post_revisions";
/// Comments.
pub const COMMENTS: &str = "comments";
/// Likes of posts and of comments.
pub const LIKES: &str = "likes";
/// Reposts.
pub const REPOSTS: &str = "reposts";
/// Bookmarks.
pub const BOOKMARKS: &str = "bookmarks";
/// Acts in readers' windows: one post by one actor to a document.
pub const TIMELINE_ENTRIES: &str = "timeline_entries";
/// How far down each reader's window is complete.
pub const TIMELINES: &str = "timelines";
/// What accounts are told one by one, fifty to a document.
pub const NOTIFICATIONS: &str = "notifications";
/// What accounts are told together: the likes or reposts of one post, the follows of one day.
pub const NOTIFICATION_GROUPS: &str = "notification_groups";
/// How far accounts have read what they were told.
pub const NOTIFICATION_MARKS: &str = "notification_marks";
/// What happened to accounts and posts, by the hour: one day of one of them to a document.
pub const STATS_HOURLY: &str = "stats_hourly";
/// Keys of requests that may be repeated, and their answers.
pub const IDEMPOTENCY_KEYS: &str = "idempotency_keys";
/// Logins.
pub const SESSIONS: &str = "sessions";
/// Failed logins of late, by identifier.
pub const LOGIN_ATTEMPTS: &str = "login_attempts";
/// Background work that outlives its request.
pub const JOBS: &str = "jobs";
/// Which schema the database has, and with which settings it was last run.
pub const MIGRATIONS: &str = "migrations";
/// Leases of background work.
pub const LOCKS: &str = "locks";

/// One collection.
#[derive(Debug, Clone, Copy)]
pub struct Collection {
    /// Its name: a plural in `snake_case`.
    pub name: &'static str,
    /// The `$jsonSchema` that every document must match.
    pub schema: fn() -> Document,
    /// Its indexes besides `_id`.
    pub indexes: fn() -> Vec<IndexModel>,
}

/// All of them.
pub const ALL: &[Collection] = &[
    users::USERS,
    graph::FOLLOWS,
    graph::BLOCKS,
    graph::MUTES,
    graph::USER_OVERFLOW,
    posts::POSTS,
    posts::POST_REVISIONS,
    timelines::TIMELINE_ENTRIES,
    timelines::TIMELINES,
    comments::COMMENTS,
    reactions::LIKES,
    reactions::REPOSTS,
    reactions::BOOKMARKS,
    notifications::NOTIFICATIONS,
    notifications::NOTIFICATION_GROUPS,
    notifications::NOTIFICATION_MARKS,
    stats::STATS_HOURLY,
    idempotency::IDEMPOTENCY_KEYS,
    sessions::SESSIONS,
    sessions::LOGIN_ATTEMPTS,
    jobs::JOBS,
    operations::MIGRATIONS,
    operations::LOCKS,
];

/// No indexes besides `_id`.
fn no_indexes() -> Vec<IndexModel> {
    Vec::new()
}

/// An object with exactly these fields.
fn object<const R: usize, const O: usize>(required: [(&str, Document); R], optional: [(&str, Document); O]) -> Document {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let mut properties = Document::new();
    for (name, schema) in required.into_iter().chain(optional) {
        properties.insert(name, schema);
    }
    let mut object = doc! { "bsonType": "object", "additionalProperties": false, "properties": properties };
    if !names.is_empty() {
        // An empty `required` is refused by the server.
        object.insert("required", names);
    }
    object
}

/// A hash.
fn binary() -> Document {
    doc! { "bsonType": "binData" }
}

/// A UUID.
fn id() -> Document {
    doc! { "bsonType": "binData" }
}

/// A point in time.
fn date() -> Document {
    doc! { "bsonType": "date" }
}

/// A whole number that is never below `least`.
fn int_from(least: i64) -> Document {
    doc! { "bsonType": ["int", "long"], "minimum": least }
}

/// A total: never below zero.
fn count() -> Document {
    int_from(0)
}

fn boolean() -> Document {
    doc! { "bsonType": "bool" }
}

/// A text of at most `most` characters (code points; the domain's limits are in grapheme clusters and bytes).
fn string(most: i32) -> Document {
    doc! { "bsonType": "string", "maxLength": most }
}

/// One of a few words.
fn one_of<const N: usize>(words: [&str; N]) -> Document {
    doc! { "enum": words.to_vec() }
}

/// An array of at most `most` elements; 500 is the bound of every array in the database.
fn array(of: Document, most: i32) -> Document {
    doc! { "bsonType": "array", "items": of, "maxItems": most }
}

/// Copies of an author's fields as posts and comments keep them (the extended reference pattern).
fn author() -> Document {
    object([("userId", id()), ("handle", string(30)), ("displayName", string(500))], [("avatarUrl", string(500))])
}

fn index(keys: Document) -> IndexModel {
    IndexModel::builder().keys(keys).build()
}

fn unique(keys: Document) -> IndexModel {
    IndexModel::builder().keys(keys).options(IndexOptions::builder().unique(true).build()).build()
}

/// Unique among the documents that have the field.
fn unique_where_set(field: &str) -> IndexModel {
    let options = IndexOptions::builder().unique(true).sparse(true).build();
    IndexModel::builder().keys(doc! { field: 1 }).options(options).build()
}

/// An index of the documents that match a filter; a query must say the filter to use it.
fn partial(keys: Document, filter: impl Into<Bson>) -> IndexModel {
    let Bson::Document(filter) = filter.into() else { return index(keys) };
    let options = IndexOptions::builder().partial_filter_expression(filter).build();
    IndexModel::builder().keys(keys).options(options).build()
}

/// Deletes documents `after` the time in `field`.
fn ttl(field: &str, after: Duration) -> IndexModel {
    let options = IndexOptions::builder().expire_after(after).build();
    IndexModel::builder().keys(doc! { field: 1 }).options(options).build()
}
