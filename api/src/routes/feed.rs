//! The home feed.

use actix_web::{
    HttpResponse, get,
    http::header::{HeaderName, HeaderValue},
    web::Data,
};
use rookery_domain::{
    feed::{FeedItem, ReasonKind},
    page::TimeCursor,
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

use super::{posts::PostResponse, users::UserSummaryResponse};
use crate::{
    auth::Viewer,
    error::Result,
    page::{ListParams, ListQuery},
    page_of,
};

/// One item of a feed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FeedItem)]
pub struct FeedItemResponse {
    post: PostResponse,
    reason: ReasonResponse,
}

/// Why a post is in the feed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FeedReason)]
pub struct ReasonResponse {
    r#type: ReasonValue,
    /// The accounts that brought it: its author, or those who reposted it, newest first, at most 5.
    by: Vec<UserSummaryResponse>,
}

/// What brought a post into the feed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FeedReasonType)]
pub enum ReasonValue {
    /// The caller follows its author.
    Follow,
    /// The caller follows its author, who is a celebrity.
    Celebrity,
    /// Somebody whom the caller follows has reposted it.
    Repost,
    /// The caller wrote it.
    #[serde(rename = "self")]
    Own,
}

page_of! {
    /// Items of a feed.
    FeedPage of FeedItemResponse
}

/// Read the home feed
///
/// The posts of the accounts that the caller follows now and the caller's own, and what these accounts or the caller have reposted, newest
/// first, each post once, down to the very first one. A post by somebody whom the caller does not follow stands at the time of its first
/// repost by an account that the caller follows now, or by the caller. Whatever is deleted, taken back, or no longer followed, is gone
/// from the next read.
#[utoipa::path(tag = "feed", params(ListParams), responses(
    (status = 200, description = "A page of the feed", body = FeedPage, headers(
        ("X-Feed-Model" = String, description = "How new posts are delivered: `hybrid`, `push` or `pull`"),
    )),
))]
#[get("/feed")]
pub(crate) async fn get_feed(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.feed(viewer.user_id, list.cursor.clone(), list.limit).await?;
    let mut answer = list.answer(page.map(FeedItemResponse::from), FeedPage::new);
    let model = HeaderValue::from_static(store.settings().feed_model.as_str());
    answer.headers_mut().insert(HeaderName::from_static("x-feed-model"), model);
    Ok(answer)
}

impl From<FeedItem> for FeedItemResponse {
    fn from(item: FeedItem) -> Self {
        let r#type = match item.kind {
            ReasonKind::Follow => ReasonValue::Follow,
            ReasonKind::Celebrity => ReasonValue::Celebrity,
            ReasonKind::Repost => ReasonValue::Repost,
            ReasonKind::Own => ReasonValue::Own,
        };
        let by = item.by.into_iter().map(UserSummaryResponse::from).collect();
        Self { post: item.post.into(), reason: ReasonResponse { r#type, by } }
    }
}
