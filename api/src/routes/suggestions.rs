//! Whom to follow.

use actix_web::{HttpResponse, get, web::Data};
use rookery_domain::{
    Page,
    page::SeqCursor,
    suggestions::{Reason, Suggestion},
};
use rookery_storage::Store;
use serde::Serialize;
use utoipa::ToSchema;

use super::users::UserSummaryResponse;
use crate::{
    auth::Viewer,
    error::Result,
    page::{ListParams, ListQuery},
    page_of,
};

/// An account that the caller may want to follow.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Suggestion)]
pub struct SuggestionResponse {
    #[serde(flatten)]
    user: UserSummaryResponse,
    reason: ReasonResponse,
}

/// Why an account is suggested.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = SuggestionReason)]
pub enum ReasonResponse {
    /// Some of those whom the caller follows follow it.
    SharedFollows {
        /// How many of those who were asked.
        count: usize,
    },
    /// Many follow it.
    Popular,
}

page_of! {
    /// Suggestions, the best first.
    SuggestionPage of SuggestionResponse
}

impl From<Suggestion> for SuggestionResponse {
    fn from(suggestion: Suggestion) -> Self {
        let reason = match suggestion.reason {
            Reason::SharedFollows(count) => ReasonResponse::SharedFollows { count },
            Reason::Popular => ReasonResponse::Popular,
        };
        Self { user: suggestion.user.into(), reason }
    }
}

/// Suggest whom to follow
///
/// Whom those follow whom the caller follows, by how many of them do, then popular accounts. It is a sample of recent follows, made anew for each
/// request: the list is not paged (both cursors are null), and `limit` says how many are wanted.
#[utoipa::path(tag = "graph", params(ListParams), responses(
    (status = 200, description = "Suggestions, the best first", body = SuggestionPage),
))]
#[get("/me/suggestions")]
pub(crate) async fn list_suggestions(viewer: Viewer, list: ListQuery<SeqCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let items = store.suggestions(viewer.user_id, list.limit).await?;
    let page = Page { items, next: None, prev: None };
    Ok(list.answer(page.map(SuggestionResponse::from), SuggestionPage::new))
}
