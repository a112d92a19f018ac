//! Taking everything along.

use actix_web::{
    HttpResponse, get,
    web::{Bytes, Data},
};
use futures::TryStreamExt as _;
use rookery_domain::{
    CommentId, NotificationId, PostId, SessionId, Timestamp, UserId,
    credentials::Session,
    export::{Edge, Export, Told},
    reactions::{Reaction, Target},
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    comments::CommentResponse,
    notifications::NotificationType,
    posts::{PostResponse, RevisionResponse},
    stats::HourlyStatsResponse,
    users::UserResponse,
};
use crate::{
    auth::Viewer,
    error::{Problem, Result},
};

/// One line of an export: what it is, and its data.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
#[schema(as = ExportLine)]
pub enum ExportLineResponse {
    /// The account itself: the first line.
    Account(ExportedAccount),
    /// A login.
    Session(ExportedSession),
    /// An account that the caller follows or has asked to follow.
    Follow(ExportedEdge),
    /// An account that follows the caller or has asked to.
    Follower(ExportedEdge),
    /// An account that the caller blocks.
    Block(ExportedEdge),
    /// An account that the caller mutes.
    Mute(ExportedEdge),
    /// A post of the caller.
    Post(Box<PostResponse>),
    /// What a post of the caller said before.
    Revision(ExportedRevision),
    /// A comment of the caller.
    Comment(Box<CommentResponse>),
    /// A post or a comment that the caller likes.
    Like(ExportedReaction),
    /// A post that the caller has reposted.
    Repost(ExportedReaction),
    /// A post that the caller has bookmarked.
    Bookmark(ExportedReaction),
    /// Something that the caller was told.
    Notification(ExportedNotification),
    /// What happened to the account in one hour.
    Stats(HourlyStatsResponse),
}

/// The account as only its owner sees it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedAccount {
    #[serde(flatten)]
    user: UserResponse,
    #[schema(required)]
    email: Option<String>,
}

/// A login on one device.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedSession {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    last_used_at: Timestamp,
    user_agent: String,
}

/// A relation to another account.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedEdge {
    #[schema(value_type = String, format = Uuid)]
    user_id: UserId,
    /// Null while it is not counted yet.
    #[schema(value_type = Option<String>, format = DateTime, required)]
    since: Option<Timestamp>,
    /// Whether it waits for consent.
    requested: bool,
}

/// What the caller was told, as it is kept: also where the list leaves it out.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedNotification {
    #[schema(value_type = String, format = Uuid)]
    id: NotificationId,
    #[serde(rename = "type")]
    kind: NotificationType,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Who acted; null where it tells many acts.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    actor_id: Option<UserId>,
    #[schema(required, value_type = Option<String>, format = Uuid)]
    post_id: Option<PostId>,
    #[schema(required, value_type = Option<String>, format = Uuid)]
    comment_id: Option<CommentId>,
}

impl From<Told> for ExportedNotification {
    fn from(told: Told) -> Self {
        Self {
            id: told.id,
            kind: told.kind.into(),
            created_at: told.id.time(),
            actor_id: told.actor,
            post_id: told.post,
            comment_id: told.comment,
        }
    }
}

/// What a post said before.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedRevision {
    #[schema(value_type = String, format = Uuid)]
    post_id: PostId,
    #[serde(flatten)]
    revision: RevisionResponse,
}

/// A reaction to a post or a comment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedReaction {
    /// The post; absent where it is to a comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid, nullable = false)]
    post_id: Option<PostId>,
    /// The comment; absent where it is to a post.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid, nullable = false)]
    comment_id: Option<CommentId>,
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
}

impl From<Reaction> for ExportedReaction {
    fn from(reaction: Reaction) -> Self {
        let (post_id, comment_id) = match reaction.target {
            Target::Post(post) => (Some(post), None),
            Target::Comment(comment) => (None, Some(comment)),
        };
        Self { post_id, comment_id, since: reaction.since }
    }
}

impl From<Edge> for ExportedEdge {
    fn from(edge: Edge) -> Self {
        Self { user_id: edge.user, since: edge.since, requested: edge.requested }
    }
}

impl From<Session> for ExportedSession {
    fn from(session: Session) -> Self {
        Self { id: session.id, created_at: session.created_at, last_used_at: session.last_used_at, user_agent: session.user_agent }
    }
}

impl From<Export> for ExportLineResponse {
    fn from(export: Export) -> Self {
        match export {
            Export::Account { user, email } => {
                let email = email.map(|email| email.as_str().to_owned());
                Self::Account(ExportedAccount { user: UserResponse::own(*user), email })
            }
            Export::Session(session) => Self::Session(session.into()),
            Export::Follow(edge) => Self::Follow(edge.into()),
            Export::Follower(edge) => Self::Follower(edge.into()),
            Export::Block(edge) => Self::Block(edge.into()),
            Export::Mute(edge) => Self::Mute(edge.into()),
            Export::Post(post) => Self::Post(Box::new((*post).into())),
            Export::Revision(post_id, revision) => Self::Revision(ExportedRevision { post_id, revision: revision.into() }),
            Export::Comment(comment) => Self::Comment(Box::new((*comment).into())),
            Export::Like(reaction) => Self::Like(reaction.into()),
            Export::Repost(reaction) => Self::Repost(reaction.into()),
            Export::Bookmark(reaction) => Self::Bookmark(reaction.into()),
            Export::Notification(told) => Self::Notification(told.into()),
            Export::Stats(hour) => Self::Stats(hour.into()),
        }
    }
}

/// Lines that are sent together: some 16 KB.
const LINES: usize = 32;

/// Export everything held on one's account
///
/// JSON lines (`{"type", "data"}`), streamed as they are read: the account first, then sessions, follows, followers, blocks, mutes, posts, what
/// edited posts said before, comments, likes, reposts, bookmarks, notifications and the statistics of each hour. Whoever reads slowly gets what is there
/// when it is read. A stream that breaks off ends without the last chunk.
#[utoipa::path(tag = "users", responses(
    (status = 200, description = "Everything, one thing to a line", body = ExportLineResponse, content_type = "application/x-ndjson"),
))]
#[get("/me/export")]
pub(crate) async fn export_me(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    let lines = store.export(viewer.user_id).map_err(Problem::from).and_then(|export| std::future::ready(line(export)));
    let chunks = lines.try_ready_chunks(LINES).map_ok(|lines| Bytes::from(lines.concat())).map_err(|cut| cut.1);
    Ok(HttpResponse::Ok().content_type("application/x-ndjson").streaming(chunks))
}

fn line(export: Export) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&ExportLineResponse::from(export)).map_err(Problem::internal)?;
    line.push(b'\n');
    Ok(line)
}
