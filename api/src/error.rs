//! Problems: the one form of every answer that is not a success, and the one table from code to status.
//!
//! A [`Problem`] is what a client is told (RFC 9457). A fault behind it is for the log alone: it travels in the problem as its source
//! and is written once, where the request ends ([`crate::middleware::observe`]), which also adds the request's id and path.

use std::{borrow::Cow, error::Error as StdError, fmt, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};
use rookery_storage::Error as StorageError;
use serde::Serialize;
use utoipa::ToSchema;

/// What handlers give back.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// Everything that can go wrong for a caller, by its stable name: the variant in `snake_case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is malformed in a way that has no code of its own.
    BadRequest,
    /// The body is not JSON.
    InvalidJson,
    /// A field is missing, unknown, given twice or of the wrong type.
    InvalidBody,
    /// An id in the path or the query is no id.
    InvalidId,
    /// `limit` is not a whole number from 1 to 100.
    InvalidLimit,
    /// `cursor` is not a cursor of this list.
    InvalidCursor,
    /// A parameter of the query cannot be read.
    InvalidQuery,
    /// A header cannot be read.
    InvalidHeader,
    /// The idempotency key is not 1 to 255 visible ASCII characters.
    InvalidIdempotencyKey,
    /// There is no token.
    Unauthenticated,
    /// The token is expired, revoked, foreign or no token at all.
    InvalidToken,
    /// No account has this identifier and this password.
    InvalidCredentials,
    /// The refresh token is unknown, expired or was used before.
    InvalidRefreshToken,
    /// The caller may not do this.
    Forbidden,
    /// The password given as proof is wrong.
    WrongPassword,
    /// Somebody else made it.
    NotYours,
    /// A block stands between the two accounts.
    Blocked,
    /// There is nothing here, or nothing that the caller may know of.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// Another account has this handle.
    HandleTaken,
    /// Another account has this e-mail address.
    EmailTaken,
    /// The body is too large.
    PayloadTooLarge,
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// A field breaks a rule; `errors` says which.
    ValidationFailed,
    /// Nobody follows themselves.
    SelfFollow,
    /// Nobody blocks themselves.
    SelfBlock,
    /// Nobody mutes themselves.
    SelfMute,
    /// The caller follows as many accounts as anybody may.
    FollowLimitReached,
    /// The caller blocks as many accounts as anybody may.
    BlockLimitReached,
    /// The caller mutes as many accounts as anybody may.
    MuteLimitReached,
    /// The thread is as deep as a thread may be.
    ThreadTooDeep,
    /// The post is for the followers of its author.
    NotRepostable,
    /// The idempotency key was used with another body.
    IdempotencyKeyReused,
    /// Too many requests.
    RateLimited,
    /// Too many failed logins for this identifier.
    TooManyAttempts,
    /// A bug.
    Internal,
    /// The service does not take requests now.
    Unavailable,
    /// The database does not answer.
    DatabaseUnavailable,
    /// The answer took too long.
    Timeout,
}

impl Code {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest
            | Self::InvalidJson
            | Self::InvalidBody
            | Self::InvalidId
            | Self::InvalidLimit
            | Self::InvalidCursor
            | Self::InvalidQuery
            | Self::InvalidHeader
            | Self::InvalidIdempotencyKey => StatusCode::BAD_REQUEST,
            Self::Unauthenticated | Self::InvalidToken | Self::InvalidCredentials | Self::InvalidRefreshToken => {
                StatusCode::UNAUTHORIZED
            }
            Self::Forbidden | Self::WrongPassword | Self::NotYours | Self::Blocked => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::HandleTaken | Self::EmailTaken => StatusCode::CONFLICT,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::ValidationFailed
            | Self::SelfFollow
            | Self::SelfBlock
            | Self::SelfMute
            | Self::FollowLimitReached
            | Self::BlockLimitReached
            | Self::MuteLimitReached
            | Self::ThreadTooDeep
            | Self::NotRepostable
            | Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited | Self::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable | Self::DatabaseUnavailable | Self::Timeout => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The same sentence for every occurrence.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request is malformed",
            Self::InvalidJson => "The body is not JSON",
            Self::InvalidBody => "The body does not have the form of this request",
            Self::InvalidId => "Not an id",
            Self::InvalidLimit => "The limit is not a whole number from 1 to 100",
            Self::InvalidCursor => "Not a cursor of this list",
            Self::InvalidQuery => "A parameter of the query cannot be read",
            Self::InvalidHeader => "A header cannot be read",
            Self::InvalidIdempotencyKey => "The idempotency key is not 1 to 255 visible ASCII characters",
            Self::Unauthenticated => "A token is needed",
            Self::InvalidToken => "The token is not valid",
            Self::InvalidCredentials => "No account has this identifier and this password",
            Self::InvalidRefreshToken => "The refresh token is not valid",
            Self::Forbidden => "Not allowed",
            Self::WrongPassword => "The password is wrong",
            Self::NotYours => "Somebody else made it",
            Self::Blocked => "A block stands between the two accounts",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::HandleTaken => "The handle is taken",
            Self::EmailTaken => "The e-mail address is taken",
            Self::PayloadTooLarge => "The body is too large",
            Self::UnsupportedMediaType => "The body must be JSON",
            Self::ValidationFailed => "A field breaks a rule",
            Self::SelfFollow | Self::SelfBlock | Self::SelfMute => "That is your own account",
            Self::FollowLimitReached => "You follow as many accounts as anybody may",
            Self::BlockLimitReached => "You block as many accounts as anybody may",
            Self::MuteLimitReached => "You mute as many accounts as anybody may",
            Self::ThreadTooDeep => "The thread is too deep",
            Self::NotRepostable => "The post cannot be reposted",
            Self::IdempotencyKeyReused => "The idempotency key was used with another body",
            Self::RateLimited => "Too many requests",
            Self::TooManyAttempts => "Too many failed logins",
            Self::Internal => "Something is wrong on our side",
            Self::Unavailable => "The service does not take requests now",
            Self::DatabaseUnavailable => "The database does not answer",
            Self::Timeout => "The answer took too long",
        }
    }

    /// The code of an answer that the framework made.
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::PAYLOAD_TOO_LARGE => Self::PayloadTooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::UnsupportedMediaType,
            StatusCode::TOO_MANY_REQUESTS => Self::RateLimited,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            status if status.is_server_error() => Self::Internal,
            _ => Self::BadRequest,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The wire name is made by serde from the variant; `fmt::Formatter` is a serializer of unit variants.
        self.serialize(f)
    }
}

/// One field that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The field, as the client spells it; `profile.name` within an object.
    #[schema(example = "text")]
    pub field: String,
    /// What is wrong, by a stable name.
    #[schema(example = "too_long")]
    pub code: String,
    /// What is wrong, for people.
    #[schema(example = "at most 500 characters")]
    pub detail: String,
}

/// An answer that is not a success.
#[derive(Debug)]
pub struct Problem {
    code: Code,
    detail: Option<Cow<'static, str>>,
    errors: Vec<FieldError>,
    allow: Option<String>,
    retry_after: Option<Duration>,
    fault: Option<Box<dyn StdError + Send + Sync>>,
}

impl Problem {
    /// The problem of this code, with nothing more to say than the code's title.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, detail: None, errors: Vec::new(), allow: None, retry_after: None, fault: None }
    }

    /// Nothing here, or nothing that the caller may know of.
    #[must_use]
    pub const fn not_found() -> Self {
        Self::new(Code::NotFound)
    }

    /// A bug: the client learns nothing, the log everything.
    #[must_use]
    pub fn internal(fault: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { fault: Some(fault.into()), ..Self::new(Code::Internal) }
    }

    /// The problem of an answer that the framework made.
    #[must_use]
    pub fn of_status(status: StatusCode) -> Self {
        Self::new(Code::of(status))
    }

    /// Says what is the matter this time, for people.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Names a field that is not as it must be; may be called for several.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>, code: impl Into<String>, detail: impl Into<String>) -> Self {
        self.add_field(field, code, detail);
        self
    }

    /// Names one more field that is not as it must be.
    pub fn add_field(&mut self, field: impl Into<String>, code: impl Into<String>, detail: impl Into<String>) {
        self.errors.push(FieldError { field: field.into(), code: code.into(), detail: detail.into() });
    }

    /// Names the methods that the path has (`GET, HEAD`).
    #[must_use]
    pub fn allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// When to come again. Answers of status 429 and 503 that do not say it ask for one second.
    #[must_use]
    pub const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What is behind it, for the log.
    #[must_use]
    pub fn fault(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.fault.as_deref()
    }

    /// The document of this problem in the answer to one request.
    #[must_use]
    pub fn document<'a>(&'a self, request_id: &'a str, instance: &'a str) -> ProblemDocument<'a> {
        ProblemDocument {
            r#type: format!("urn:rookery:problem:{}", self.code),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: self.detail.as_deref().unwrap_or(self.code.title()),
            instance,
            code: self.code,
            request_id,
            errors: &self.errors,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail.as_deref().unwrap_or(self.code.title()))
    }
}

impl StdError for Problem {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.fault.as_ref().map(|fault| &**fault as &(dyn StdError + 'static))
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    /// Status and headers; the body is made where the request's id is known.
    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::new(self.status_code());
        let headers = response.headers_mut();
        if let Some(allow) = self.allow.as_deref().and_then(|methods| HeaderValue::from_str(methods).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        match self.code.status() {
            StatusCode::UNAUTHORIZED => {
                let invalid = matches!(self.code, Code::InvalidToken);
                let challenge = if invalid { "Bearer error=\"invalid_token\"" } else { "Bearer" };
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let wait = self.retry_after.unwrap_or(Duration::from_secs(1));
                headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait).max(1)));
            }
            _ => {}
        }
        response
    }
}

/// Seconds, rounded up: a caller who waits as long as told must not be refused again.
#[must_use]
pub const fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + (span.subsec_nanos() > 0) as u64
}

/// An error and everything behind it, outermost first: for the log.
#[must_use]
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Self {
        let code = match &error {
            StorageError::Unavailable(_) | StorageError::Timeout(_) | StorageError::Conflict(_) | StorageError::Busy => {
                Code::DatabaseUnavailable
            }
            StorageError::Corrupt { .. } | StorageError::Schema { .. } | StorageError::Refused(_) | StorageError::Embedded(_) => {
                Code::Internal
            }
        };
        Self { fault: Some(error.into()), ..Self::new(code) }
    }
}

/// The body of every answer that is not a success (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemDocument<'a> {
    /// A URN made of the code.
    #[schema(example = "urn:rookery:problem:not_found")]
    r#type: String,
    /// What kind of problem it is: the same sentence for the same code.
    #[schema(example = "Not found")]
    title: &'a str,
    /// The status of the answer.
    #[schema(example = 404)]
    status: u16,
    /// What is the matter this time.
    detail: &'a str,
    /// The path that was asked for.
    #[schema(example = "/api/v1/users/@nobody")]
    instance: &'a str,
    /// The stable name of the problem: decide by this.
    code: Code,
    /// The id of the request, as in `X-Request-Id`: name it when you report a problem.
    request_id: &'a str,
    /// The fields that are not as they must be; empty where the problem is not about fields.
    errors: &'a [FieldError],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_name_is_the_variant_in_snake_case() {
        assert_eq!(Code::HandleTaken.to_string(), "handle_taken");
        assert_eq!(serde_json::json!(Code::DatabaseUnavailable), "database_unavailable");
    }

    #[test]
    fn a_fault_is_not_in_the_document() {
        let problem = Problem::from(StorageError::Embedded("/home/x: mongod is gone".to_owned()));
        let body = serde_json::json!(problem.document("r", "/x"));
        assert_eq!(body["code"], "internal");
        assert!(!body.to_string().contains("mongod"));
        assert!(problem.fault().is_some());
    }

    #[test]
    fn waiting_as_long_as_told_is_enough() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
    }
}
