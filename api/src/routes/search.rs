//! Accounts by the beginning of their names, or by their ids.

use actix_web::{HttpResponse, get, web::Data};
use rookery_domain::{Page, page::HandleCursor};
use rookery_storage::Store;
use serde::Deserialize;

use super::users::UserSummaryResponse;
use crate::{
    auth::MaybeViewer,
    error::{Code, Problem, Result},
    extract::{Query, parse_ids},
    page::{ListParams, ListQuery},
    page_of,
};

/// Which accounts: one of the two.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UserQuery {
    /// How their handle or display name begins, whatever its case and accents. Taken literally: there are no patterns.
    #[param(example = "ada")]
    q: Option<String>,
    /// At most 100 ids, separated by commas.
    #[param(example = "01890000-0000-7000-8000-000000000001")]
    ids: Option<String>,
}

page_of! {
    /// Accounts.
    UserPage of UserSummaryResponse
}

/// Find accounts
///
/// With `q`: whose handle or display name begins so, in the order of their handles. With `ids`: these, in the order asked and not paged;
/// what is unknown is left out. Accounts with a block between them and the caller are left out of both.
#[utoipa::path(tag = "users", security((), ("bearer" = [])), params(UserQuery, ListParams), responses(
    (status = 200, description = "A page of accounts", body = UserPage),
))]
#[get("/users")]
pub(crate) async fn list_users(
    MaybeViewer(viewer): MaybeViewer,
    Query(query): Query<UserQuery>,
    mut list: ListQuery<HandleCursor>,
    store: Data<Store>,
) -> Result<HttpResponse> {
    let viewer = viewer.map(|viewer| viewer.user_id);
    let page = match (query.q, query.ids) {
        (Some(q), None) if !q.is_empty() => store.search_users(&q, viewer, list.cursor.take(), list.limit).await?,
        (None, Some(ids)) => Page { items: store.users(&parse_ids(&ids)?, viewer).await?, next: None, prev: None },
        _ => return Err(Problem::new(Code::InvalidQuery).detail("Give either `q`, with something in it, or `ids`")),
    };
    Ok(list.answer(page.map(UserSummaryResponse::from), UserPage::new))
}
