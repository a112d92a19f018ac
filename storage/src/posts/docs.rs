//! The documents of posts, as the database holds them.

use rookery_domain::{UserId, fanout::Delivery, post::Visibility, text};
use serde::{Deserialize, Serialize};

use super::NewPost;
use crate::{
    store::{b, date, now},
    users::{OutlierDoc, SettingsDoc},
};

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

/// How far a post or a repost has come to the timelines of its readers.
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
    /// Who made it, while readers pull it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<bson::Uuid>,
    /// When it was inserted, if it is pulled for good: the id may be older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulled_at: Option<bson::DateTime>,
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

/// What a post needs of its author.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriterDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub handle: String,
    pub display_name: String,
    pub avatar_url: Option<String>,
    pub settings: SettingsDoc,
    pub outlier: Option<OutlierDoc>,
    pub pulled_since: Option<bson::DateTime>,
}

/// What the applier needs of a pending post.
#[derive(Debug, Deserialize)]
pub(super) struct PendingDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub author: PendingAuthorDoc,
    pub state: PostState,
    pub seq: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingAuthorDoc {
    pub user_id: bson::Uuid,
}

/// Whom a post mentions.
#[derive(Debug, Deserialize)]
pub(super) struct MentionsDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub mentions: Vec<PendingAuthorDoc>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PostSeqDoc {
    pub post_seq: i64,
}

impl DeliveryDoc {
    /// That of a new act of `actor`.
    pub(crate) fn new(actor: bson::Uuid, delivery: Delivery) -> Self {
        let at = date(now());
        Self {
            state: match delivery {
                Delivery::Pull => DeliveryState::Pull,
                Delivery::Push => DeliveryState::Pending,
            },
            run_after: (delivery == Delivery::Push).then_some(at),
            pull: Some(actor),
            pulled_at: (delivery == Delivery::Pull).then_some(at),
            ..Self::done()
        }
    }

    /// That of an act which goes to nobody.
    pub(crate) const fn done() -> Self {
        Self {
            state: DeliveryState::Delivered,
            attempts: 0,
            cursor: None,
            lease: None,
            run_after: None,
            pull: None,
            pulled_at: None,
        }
    }
}

impl PostDoc {
    pub(crate) fn is_live(&self) -> bool {
        self.state == PostState::Live
    }

    pub(crate) fn author_id(&self) -> UserId {
        UserId(self.author.user_id.into())
    }
}

impl NewPost {
    pub(super) fn into_doc(self, writer: WriterDoc, mentions: Vec<AuthorDoc>, delivery: Delivery) -> PostDoc {
        let at = date(self.id.time());
        let for_followers = writer.settings.private || self.visibility == Visibility::Followers;
        PostDoc {
            id: b(self.id),
            schema_version: SCHEMA_VERSION,
            author: AuthorDoc {
                user_id: writer.id,
                handle: writer.handle,
                display_name: writer.display_name,
                avatar_url: writer.avatar_url,
            },
            tags: text::tags(&self.text),
            text: self.text,
            visibility: if for_followers { VisibilityDoc::Followers } else { VisibilityDoc::Public },
            mentions,
            counters: PostCountersDoc::default(),
            comment_seq: 0,
            recent_comments: Vec::new(),
            delivery: DeliveryDoc::new(writer.id, delivery),
            state: PostState::Live,
            pending: Some(true),
            seq: None,
            created_at: at,
            edited_at: None,
        }
    }
}

impl From<VisibilityDoc> for Visibility {
    fn from(visibility: VisibilityDoc) -> Self {
        match visibility {
            VisibilityDoc::Public => Self::Public,
            VisibilityDoc::Followers => Self::Followers,
        }
    }
}
