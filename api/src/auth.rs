//! Who is asking: extractors over what the authentication middleware found.

use std::future::{Ready, ready};

use actix_web::{
    Error, FromRequest, HttpMessage as _, HttpRequest,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::header,
    middleware::Next,
};
use rookery_domain::{SessionId, UserId};

use crate::error::{Code, Problem};

/// A caller with a valid token. As an extractor it answers 401 where there is none; it stands first among a handler's arguments, so
/// that 401 comes before anything else is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer {
    /// The account.
    pub user_id: UserId,
    /// The login that the token belongs to.
    pub session_id: SessionId,
}

/// A caller with a valid token, or nobody in particular.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaybeViewer(pub Option<Viewer>);

/// Reads the token, if there is one, and leaves a [`Viewer`] for the extractors. No token is recognised yet.
pub async fn authenticate(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if request.headers().contains_key(header::AUTHORIZATION) {
        return Err(Problem::new(Code::InvalidToken).into());
    }
    next.call(request).await
}

impl FromRequest for Viewer {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(request.extensions().get::<Self>().copied().ok_or(Problem::new(Code::Unauthenticated)))
    }
}

impl FromRequest for MaybeViewer {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Viewer>().copied())))
    }
}
