//! One's own account: what of it can be changed.

use actix_web::{HttpResponse, patch, web::Data};
use rookery_domain::text::{self, TextFault};
use rookery_storage::{Store, profiles::ProfileEdit};
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
/// account are for its followers from then on, also those that were public.
#[utoipa::path(tag = "users", responses(
    (status = 200, description = "The account as it is now", body = UserResponse),
    (status = 422, description = "`validation_failed`: `errors` names the fields"),
))]
#[patch("/me")]
pub(crate) async fn edit_me(viewer: Viewer, Json(request): Json<EditProfileRequest>, store: Data<Store>) -> Result<HttpResponse> {
    let mut problem = Problem::new(Code::ValidationFailed);
    let mut sound = true;
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
    if !sound {
        return Err(problem);
    }
    let edit = ProfileEdit { display_name, bio, avatar_url, private: request.private };
    // An account that was deleted in this very moment takes its tokens with it.
    let user = store.edit_profile(viewer.user_id, edit).await?.ok_or(Problem::new(Code::InvalidToken))?;
    Ok(HttpResponse::Ok().json(UserResponse::own(user)))
}
