//! One's own account: what of it can be changed.

use actix_web::{HttpResponse, patch, web::Data};
use rookery_domain::{
    Handle,
    text::{self, TextFault},
};
use rookery_storage::{Store, profiles::ProfileEdit, rename::Edited};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::users::UserResponse;
use crate::{
    auth::Viewer,
    error::{Code, Problem, Result},
    extract::Json,
};

/// What is to change; what is not named stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EditProfile, example = json!({ "displayName": "Ada", "bio": "Numbers and engines", "private": true }))]
pub struct EditProfileRequest {
    /// 1 to 30 of a-z, 0-9 and _, in any case; nobody else may have it. The old one is free at once.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    handle: Option<String>,
    /// 1 to 50 characters (grapheme clusters) on one line, at most 500 bytes.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    display_name: Option<String>,
    /// At most 200 characters (grapheme clusters) and 2,000 bytes; may be empty.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    bio: Option<String>,
    /// An http or https address of at most 500 bytes; null for no picture.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "uri")]
    #[expect(clippy::option_option, reason = "absent, null and an address are three things")]
    avatar_url: Option<Option<String>>,
    /// Whether following needs the account's consent. Going public accepts everybody who has asked.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    private: Option<bool>,
}

/// A field that is there, so that null is told from absence.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Change one's own account
///
/// Fields that break a rule are all named together, and then nothing changes. Going private keeps the followers; the posts of a private
/// account are for its followers from then on, also those that were public. A new name or picture is on the profile at once, and
/// on posts and comments within seconds.
#[utoipa::path(tag = "users", responses(
    (status = 200, description = "The account as it is now", body = UserResponse),
    (status = 409, description = "`handle_taken`: nothing is changed"),
    (status = 422, description = "`validation_failed`: `errors` names the fields"),
))]
#[patch("/me")]
pub(crate) async fn edit_me(viewer: Viewer, Json(request): Json<EditProfileRequest>, store: Data<Store>) -> Result<HttpResponse> {
    let mut problem = Problem::new(Code::ValidationFailed);
    let handle = request.handle.as_deref().map(Handle::parse).transpose();
    let mut sound = handle.is_ok();
    if let Err(fault) = &handle {
        problem.add_field("handle", "invalid_handle", fault.to_string());
    }
    let mut kept = |field: &str, read: Option<Result<String, TextFault>>| match read {
        Some(Ok(text)) => Some(text),
        Some(Err(fault)) => {
            sound = false;
            problem.add_field(field, fault.code(), fault.to_string());
            None
        }
        None => None,
    };
    let display_name = kept("displayName", request.display_name.as_deref().map(text::display_name));
    let bio = kept("bio", request.bio.as_deref().map(text::bio));
    let avatar_url = match request.avatar_url {
        Some(Some(url)) => kept("avatarUrl", Some(text::avatar_url(&url))).map(Some),
        absent_or_null => absent_or_null,
    };
    let handle = match handle {
        Ok(handle) if sound => handle,
        _ => return Err(problem),
    };
    let edit = ProfileEdit { handle, display_name, bio, avatar_url, private: request.private };
    // An account that was deleted in this very moment takes its tokens with it.
    match store.edit_profile(viewer.user_id, edit).await? {
        Edited::Now(user) => Ok(HttpResponse::Ok().json(UserResponse::own(user))),
        Edited::HandleTaken => Err(Problem::new(Code::HandleTaken)),
        Edited::Gone => Err(Problem::new(Code::InvalidToken)),
    }
}
