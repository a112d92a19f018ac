//! Blocks and mutes: whom one does not want to hear of, and of whom one does not want to be heard.

use actix_web::{HttpResponse, delete, get, put, web::Data};
use rookery_domain::{
    graph::{BlockRefusal, MuteRefusal},
    page::TimeCursor,
};
use rookery_storage::Store;

use super::{
    graph::known,
    users::{UserSincePage, UserSinceResponse},
};
use crate::{
    auth::Viewer,
    error::{Code, Problem, Result},
    extract::{PathUser, UserParam},
    page::{ListParams, ListQuery},
};

/// Block an account
///
/// Removes follows and requests both ways, and hides each of the two from the other; only the blocker still sees the blocked profile. Neither
/// can follow the other while it stands. Repeating it changes nothing.
#[utoipa::path(tag = "blocks", params(UserParam), responses(
    (status = 204, description = "The block stands"),
    (status = 404, description = "There is no such account"),
    (status = 422, description = "`self_block`, or `block_limit_reached`: nobody blocks more than 10,000 accounts"),
))]
#[put("/users/{user}/block")]
pub(crate) async fn block_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let blocked = known(&store, user).await?;
    store.block(viewer.user_id, blocked).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Stop blocking an account
///
/// What the block removed does not come back. Repeating it changes nothing.
#[utoipa::path(tag = "blocks", params(UserParam), responses(
    (status = 204, description = "The caller does not block the account"),
    (status = 404, description = "There is no such account"),
))]
#[delete("/users/{user}/block")]
pub(crate) async fn unblock_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let blocked = known(&store, user).await?;
    store.unblock(viewer.user_id, blocked).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// List the accounts that the caller blocks
///
/// The last one blocked first.
#[utoipa::path(tag = "blocks", params(ListParams), responses(
    (status = 200, description = "A page of accounts", body = UserSincePage),
))]
#[get("/me/blocks")]
pub(crate) async fn list_blocks(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.blocks(viewer.user_id, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(UserSinceResponse::from), UserSincePage::new))
}

/// Mute an account
///
/// Hides what it writes where the caller did not look for it: in the feed and in comments. No follow changes, and the account is not told.
/// Repeating it changes nothing.
#[utoipa::path(tag = "blocks", params(UserParam), responses(
    (status = 204, description = "The caller mutes the account"),
    (status = 404, description = "There is no such account"),
    (status = 422, description = "`self_mute`, or `mute_limit_reached`: nobody mutes more than 10,000 accounts"),
))]
#[put("/users/{user}/mute")]
pub(crate) async fn mute_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let muted = known(&store, user).await?;
    store.mute(viewer.user_id, muted).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Stop muting an account
///
/// Everything that the mute hid is there again. Repeating it changes nothing.
#[utoipa::path(tag = "blocks", params(UserParam), responses(
    (status = 204, description = "The caller does not mute the account"),
    (status = 404, description = "There is no such account"),
))]
#[delete("/users/{user}/mute")]
pub(crate) async fn unmute_user(viewer: Viewer, PathUser(user): PathUser, store: Data<Store>) -> Result<HttpResponse> {
    let muted = known(&store, user).await?;
    store.unmute(viewer.user_id, muted).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// List the accounts that the caller mutes
///
/// The last one muted first, without those whom a block hides.
#[utoipa::path(tag = "blocks", params(ListParams), responses(
    (status = 200, description = "A page of accounts", body = UserSincePage),
))]
#[get("/me/mutes")]
pub(crate) async fn list_mutes(viewer: Viewer, list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.mutes(viewer.user_id, list.cursor.clone(), list.limit).await?;
    Ok(list.answer(page.map(UserSinceResponse::from), UserSincePage::new))
}

impl From<BlockRefusal> for Problem {
    fn from(refusal: BlockRefusal) -> Self {
        match refusal {
            BlockRefusal::SelfBlock => Self::new(Code::SelfBlock),
            BlockRefusal::NotFound => Self::not_found(),
            BlockRefusal::LimitReached => Self::new(Code::BlockLimitReached),
        }
    }
}

impl From<MuteRefusal> for Problem {
    fn from(refusal: MuteRefusal) -> Self {
        match refusal {
            MuteRefusal::SelfMute => Self::new(Code::SelfMute),
            MuteRefusal::NotFound => Self::not_found(),
            MuteRefusal::LimitReached => Self::new(Code::MuteLimitReached),
        }
    }
}
