//! Registering, logging in and out, sessions and the password.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web::Data};
use rookery_domain::{
    Email, Handle, SessionId, Timestamp, UserId,
    credentials::{ACCESS_TOKEN_LIVES, PasswordFault, Session},
    page::TimeCursor,
    text,
    user::User,
};
use rookery_storage::{
    Store, new_id, now,
    users::{Created, NewUser},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    auth::{Auth, TokenPair, Viewer, user_agent},
    error::{Code, Problem, Result},
    extract::{IdParam, Json, PathId},
    page::{ListParams, ListQuery},
    page_of,
    routes::users::UserResponse,
};

/// A new account.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "handle": "ada", "email": "ada@example.org", "password": "correct horse 9 staple", "displayName": "Ada"
}))]
pub struct RegisterRequest {
    /// 1 to 30 of `a-z`, `0-9` and `_`, in any case; kept in lower case.
    #[schema(pattern = "^[A-Za-z0-9_]{1,30}$")]
    handle: String,
    /// Told to nobody.
    #[schema(max_length = 254)]
    email: String,
    /// 10 to 256 characters, and not among the first that anybody would try.
    #[schema(value_type = String, format = Password)]
    password: SecretString,
    /// 1 to 50 characters; the handle as written if there is none.
    display_name: Option<String>,
}

/// A login.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "identifier": "ada", "password": "correct horse 9 staple" }))]
pub struct LoginRequest {
    /// Handle or e-mail address, in any case.
    identifier: String,
    /// The password.
    #[schema(value_type = String, format = Password)]
    password: SecretString,
}

/// A refresh token to be spent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "refreshToken": "AZrX…" }))]
pub struct RefreshRequest {
    /// The newest refresh token of the session.
    #[schema(value_type = String, format = Password)]
    refresh_token: SecretString,
}

/// A new password.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({ "currentPassword": "correct horse 9 staple", "newPassword": "another horse 8 staple" }))]
pub struct PasswordRequest {
    /// The password so far.
    #[schema(value_type = String, format = Password)]
    current_password: SecretString,
    /// 10 to 256 characters, and not among the first that anybody would try.
    #[schema(value_type = String, format = Password)]
    new_password: SecretString,
}

/// The tokens of a session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokensResponse {
    /// A JWT, good for `expiresIn` seconds: send it as `Authorization: Bearer …`.
    access_token: String,
    /// Good once and for 30 days: spend it at `POST /auth/refresh` before the access token expires.
    refresh_token: String,
    #[schema(example = "Bearer")]
    token_type: &'static str,
    /// Seconds until the access token expires.
    #[schema(example = 600)]
    expires_in: u64,
}

/// An account and the tokens of its new session.
#[derive(Serialize, ToSchema)]
pub struct LoginResponse {
    user: UserResponse,
    #[serde(flatten)]
    tokens: TokensResponse,
}

/// A login on one device.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionResponse {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When its tokens were last refreshed.
    #[schema(value_type = String, format = DateTime)]
    last_used_at: Timestamp,
    /// What the client called itself; may be empty.
    #[schema(example = "Mozilla/5.0")]
    user_agent: String,
    /// Whether it is the session of this request.
    current: bool,
}

page_of! {
    /// Sessions of the caller, newest first.
    SessionPage of SessionResponse
}

impl From<TokenPair> for TokensResponse {
    fn from(pair: TokenPair) -> Self {
        let expires_in = ACCESS_TOKEN_LIVES.as_secs();
        Self { access_token: pair.access, refresh_token: pair.refresh, token_type: "Bearer", expires_in }
    }
}

impl LoginResponse {
    fn new(user: User, pair: TokenPair) -> Self {
        Self { user: UserResponse::own(user), tokens: pair.into() }
    }
}

impl SessionResponse {
    fn new(session: Session, viewer: Viewer) -> Self {
        Self {
            id: session.id,
            created_at: session.created_at,
            last_used_at: session.last_used_at,
            user_agent: session.user_agent,
            current: session.id == viewer.session_id,
        }
    }
}

/// Register an account
///
/// Makes an account and its first session. Fields that break a rule are all named together.
#[utoipa::path(tag = "auth", security(()), request_body = RegisterRequest, responses(
    (status = 201, description = "The account and its tokens", body = LoginResponse),
    (status = 409, description = "`handle_taken` or `email_taken`"),
    (status = 422, description = "`validation_failed`: `errors` names the fields, for a password by `too_short`, `too_long` or `too_common`"),
))]
#[post("/auth/register")]
pub(crate) async fn register_user(
    request: HttpRequest,
    store: Data<Store>,
    auth: Data<Auth>,
    Json(body): Json<RegisterRequest>,
) -> Result<HttpResponse> {
    let handle = Handle::parse(&body.handle);
    let email = Email::parse(&body.email);
    let display_name = text::display_name(body.display_name.as_deref().unwrap_or(&body.handle));
    let own_display_name = body.display_name.is_some();
    let known = [Some(body.handle), Some(body.email), body.display_name];
    let hash = auth.hash_new(&body.password, known.into_iter().flatten().collect()).await?;
    let (handle, email, display_name, password_hash) = match (handle, email, display_name, hash) {
        (Ok(handle), Ok(email), Ok(display_name), Ok(hash)) => (handle, email, display_name, hash),
        (handle, email, display_name, hash) => {
            let mut problem = Problem::new(Code::ValidationFailed);
            if let Err(fault) = &handle {
                problem = problem.field("handle", "invalid_handle", fault.to_string());
            }
            if let Err(fault) = email {
                problem = problem.field("email", "invalid_email", fault.to_string());
            }
            // One that was taken from the handle would name the same fault twice.
            if let (Err(fault), true) = (display_name, own_display_name) {
                problem = problem.field("displayName", fault.code(), fault.to_string());
            }
            if let Err(fault) = hash {
                problem = refuse_password(problem, "password", fault);
            }
            return Err(problem);
        }
    };
    let now = now();
    let id = UserId(new_id());
    let new = NewUser { id, handle, email: Some(email), display_name, password_hash: Some(password_hash), now };
    let user = match store.create_user(new).await? {
        Created::Now(user) => user,
        Created::HandleTaken => return Err(Problem::new(Code::HandleTaken)),
        Created::EmailTaken => return Err(Problem::new(Code::EmailTaken)),
    };
    let pair = auth.open_session(&store, user.id, now, user_agent(&request)).await?;
    Ok(HttpResponse::Created().json(LoginResponse::new(user, pair)))
}

fn refuse_password(problem: Problem, field: &str, fault: PasswordFault) -> Problem {
    problem.field(field, fault.code(), fault.to_string())
}

/// Log in
///
/// Opens a session. An unknown identifier and a wrong password are answered alike. After 10 failed logins for one identifier within 15
/// minutes the next are refused until these have passed.
#[utoipa::path(tag = "auth", security(()), request_body = LoginRequest, responses(
    (status = 200, description = "The account and its tokens", body = LoginResponse),
    (status = 401, description = "`invalid_credentials`"),
    (status = 429, description = "`too_many_attempts`, or too many requests: wait as long as `Retry-After` says"),
))]
#[post("/auth/login")]
pub(crate) async fn log_in(
    request: HttpRequest,
    store: Data<Store>,
    auth: Data<Auth>,
    Json(body): Json<LoginRequest>,
) -> Result<HttpResponse> {
    let proven = auth.prove_login(&store, &body.identifier, &body.password).await?;
    let pair = auth.open_session(&store, proven.user.id, proven.credentials.changed_at, user_agent(&request)).await?;
    Ok(HttpResponse::Ok().json(LoginResponse::new(proven.user, pair)))
}

/// Refresh the tokens of a session
///
/// Spends the refresh token and gives a new pair. A token that was spent before ends the whole session, for somebody must have copied
/// it; so it is with two tabs that spend one token at the same time: let one tab refresh for all.
#[utoipa::path(tag = "auth", security(()), request_body = RefreshRequest, responses(
    (status = 200, description = "The new tokens", body = TokensResponse),
    (status = 401, description = "`invalid_refresh_token`: log in again"),
))]
#[post("/auth/refresh")]
pub(crate) async fn refresh_session(
    store: Data<Store>,
    auth: Data<Auth>,
    Json(body): Json<RefreshRequest>,
) -> Result<HttpResponse> {
    let pair = auth.refresh_session(&store, body.refresh_token.expose_secret()).await?;
    Ok(HttpResponse::Ok().json(TokensResponse::from(pair)))
}

/// Log out
///
/// Ends the session of this request: its access and refresh tokens stop working at once.
#[utoipa::path(tag = "auth", responses((status = 204, description = "The session has ended")))]
#[post("/auth/logout")]
pub(crate) async fn log_out(viewer: Viewer, store: Data<Store>) -> Result<HttpResponse> {
    // One that somebody else has ended in this very moment has ended as well.
    store.revoke_session(viewer.user_id, viewer.session_id).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// List one's sessions
///
/// Those that are live, newest first.
#[utoipa::path(tag = "auth", params(ListParams), responses((status = 200, description = "A page of sessions", body = SessionPage)))]
#[get("/auth/sessions")]
pub(crate) async fn list_sessions(viewer: Viewer, mut list: ListQuery<TimeCursor>, store: Data<Store>) -> Result<HttpResponse> {
    let page = store.sessions(viewer.user_id, list.limit, list.cursor.take()).await?;
    Ok(list.answer(page.map(|session| SessionResponse::new(session, viewer)), SessionPage::new))
}

/// End one of one's sessions
///
/// Its access and refresh tokens stop working at once.
#[utoipa::path(tag = "auth", params(IdParam), responses(
    (status = 204, description = "The session has ended"),
    (status = 404, description = "The caller has no such live session"),
))]
#[delete("/auth/sessions/{id}")]
pub(crate) async fn revoke_session(viewer: Viewer, id: PathId<SessionId>, store: Data<Store>) -> Result<HttpResponse> {
    if store.revoke_session(viewer.user_id, id.0).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::not_found())
    }
}

/// Change the password
///
/// Every other session stops working at once; this one stays.
#[utoipa::path(tag = "auth", request_body = PasswordRequest, responses(
    (status = 204, description = "The password is changed"),
    (status = 403, description = "`wrong_password`"),
    (status = 422, description = "`validation_failed`: the new password is `too_short`, `too_long` or `too_common`"),
    (status = 429, description = "`too_many_attempts`, or too many requests: wait as long as `Retry-After` says"),
))]
#[put("/auth/password")]
pub(crate) async fn change_password(
    viewer: Viewer,
    store: Data<Store>,
    auth: Data<Auth>,
    Json(body): Json<PasswordRequest>,
) -> Result<HttpResponse> {
    let proven = auth.prove_viewer(&store, viewer, &body.current_password).await?;
    let hash = proven
        .hash_new(&body.new_password)
        .await?
        .map_err(|fault| refuse_password(Problem::new(Code::ValidationFailed), "newPassword", fault))?;
    if !store.change_password(viewer.user_id, viewer.session_id, &proven.credentials, &hash, now()).await? {
        return Err(Problem::new(Code::WrongPassword));
    }
    Ok(HttpResponse::NoContent().finish())
}
