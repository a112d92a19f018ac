//! What the caller is told of what others do.

use actix_web::{HttpResponse, get, put, web::Data};
use rookery_domain::{
    CommentId, NotificationId, PostId, Timestamp,
    notifications::{Notification, NotificationKind, Subject},
    page::TimeCursor,
};
use rookery_storage::Store;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::users::UserSummaryResponse;
use crate::{
    auth::Viewer,
    error::{Code, Problem, Result},
    extract::Json,
    page::{ListParams, ListQuery},
    page_of,
};

/// What the caller is told: one act, or several of a kind.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Notification)]
pub struct NotificationResponse {
    /// Its place in the list. Another act that joins the notification moves it to the top, under a new id.
    #[schema(value_type = String, format = Uuid)]
    id: NotificationId,
    r#type: NotificationType,
    /// When it was told; of several acts the newest.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Whether the caller has read it, with every act that it tells.
    read: bool,
    /// Who acted, newest first, at most 5.
    actors: Vec<UserSummaryResponse>,
    /// How many accounts acted that the caller may see.
    #[schema(minimum = 1)]
    actor_count: i64,
    /// The post that it is about, or that the comment stands under.
    #[schema(required)]
    post: Option<NotificationPost>,
    /// The comment that it is about.
    #[schema(required)]
    comment: Option<NotificationComment>,
}

/// What kind of act a notification tells.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = NotificationType)]
pub enum NotificationType {
    /// Accounts follow the caller: those of one day (UTC) together.
    Follow,
    /// An account asks to follow the caller.
    FollowRequest,
    /// An account that the caller had asked to follow has consented, or has gone public.
    FollowAccepted,
    /// A comment under a post of the caller.
    Comment,
    /// An answer to a comment of the caller.
    Reply,
    /// Accounts like a post or a comment of the caller: those of one post or comment together.
    Like,
    /// Accounts have reposted a post of the caller: those of one post together.
    Repost,
    /// A post or a comment names the caller.
    Mention,
}

/// A post that a notification is about.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotificationPost {
    #[schema(value_type = String, format = Uuid)]
    id: PostId,
    text: String,
}

/// A comment that a notification is about.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotificationComment {
    #[schema(value_type = String, format = Uuid)]
    id: CommentId,
    text: String,
}

/// How many notifications are unread.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnreadCount)]
pub struct UnreadCountResponse {
    #[schema(minimum = 0, maximum = 1000, example = 3)]
    count: usize,
}

/// How far the caller has read.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadNotificationsRequest {
    /// The id of the newest notification that was seen.
    #[schema(format = Uuid, example = "01890000-0000-7000-8000-000000000001")]
    up_to: String,
}

page_of! {
    /// What the caller is told.
    NotificationPage of NotificationResponse
}

/// List notifications
///
/// What others did that concerns the caller, newest first: follows and requests, consent to the caller's own requests, comments and
/// replies, likes, reposts and mentions. Likes of one post or comment, reposts of one post and follows of one day (UTC) are one
/// notification, which stands at the time of its newest act and comes to the top, unread and under a new id, when another one joins it.
/// Nobody is told of their own acts, and nobody twice of one comment: it is a `reply`, else a `comment`, else a `mention`.
///
/// What is undone or deleted is gone from the next read, and so is everything by accounts that the caller blocks or mutes or that block
/// the caller, and whatever the caller may not see. Notifications are kept for 90 days.
#[utoipa::path(tag = "notifications", params(ListParams), responses(
    (status = 200, description = "A page of notifications", body = NotificationPage),
))]
#[get("/notifications")]
pub(crate) async fn list_notifications(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.notifications(viewer.user_id, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(NotificationResponse::from), NotificationPage::new))
}

/// Count unread notifications
///
/// As many as the list shows with `read: false`; from 1,000 on it counts no further.
#[utoipa::path(tag = "notifications", responses(
    (status = 200, description = "The number", body = UnreadCountResponse),
))]
#[get("/notifications/unread-count")]
pub(crate) async fn count_unread_notifications(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    let count = store.unread_notifications(viewer.user_id).await?;
    Ok(HttpResponse::Ok().json(UnreadCountResponse { count }))
}

/// Mark notifications as read
///
/// Everything up to the notification that `upTo` names, as it stood when the caller saw it: what has come since stays unread, also
/// where it joined that notification. Reading never goes backwards, and repeating it changes nothing. The id may be that of a
/// notification that is gone; one that lies in the future reads what is there now.
#[utoipa::path(tag = "notifications", request_body = ReadNotificationsRequest, responses(
    (status = 204, description = "They are read"),
))]
#[put("/notifications/read")]
pub(crate) async fn read_notifications(
    viewer: Viewer,
    body: Json<ReadNotificationsRequest>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let up_to = body.0.up_to.parse().map_err(|_| Problem::new(Code::InvalidId).field("upTo", "invalid_id", "must be an id"))?;
    store.read_notifications(viewer.user_id, up_to).await?;
    Ok(HttpResponse::NoContent().finish())
}

impl From<NotificationKind> for NotificationType {
    fn from(kind: NotificationKind) -> Self {
        match kind {
            NotificationKind::Follow => Self::Follow,
            NotificationKind::FollowRequest => Self::FollowRequest,
            NotificationKind::FollowAccepted => Self::FollowAccepted,
            NotificationKind::Comment => Self::Comment,
            NotificationKind::Reply => Self::Reply,
            NotificationKind::Like => Self::Like,
            NotificationKind::Repost => Self::Repost,
            NotificationKind::Mention => Self::Mention,
        }
    }
}

impl From<Notification> for NotificationResponse {
    fn from(notice: Notification) -> Self {
        Self {
            id: notice.id,
            r#type: notice.kind.into(),
            created_at: notice.created_at(),
            read: notice.read,
            actors: notice.actors.into_iter().map(UserSummaryResponse::from).collect(),
            actor_count: notice.actor_count,
            post: notice.post.map(|Subject { id, text }| NotificationPost { id, text }),
            comment: notice.comment.map(|Subject { id, text }| NotificationComment { id, text }),
        }
    }
}
