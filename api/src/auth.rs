//! Who is asking: the middleware that reads tokens, the extractors over what it found, and the proof that opens a session.

use std::future::{Ready, ready};

use actix_web::{
    Error, FromRequest, HttpMessage as _, HttpRequest,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::header::{self, HeaderMap},
    middleware::Next,
    web::Data,
};
use rookery_domain::{
    Email, SessionId, Timestamp, UserId,
    credentials::{self, PasswordFault},
    user::User,
};
use rookery_storage::{
    Store,
    credentials::{Account, Attempts, Credentials, Standing},
    new_id, now,
    sessions::{NewSession, Renewed},
};
use secrecy::SecretString;

use crate::{
    config::Config,
    error::{Code, Problem, Result},
    passwords::{Compared, Passwords, Turn},
    tokens::Tokens,
};

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

/// Reads the token, if there is one, and leaves a [`Viewer`] for the extractors. A header that holds no good token is refused
/// everywhere, also where none is needed: a client must not mistake an anonymous answer for its own.
pub async fn authenticate(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if request.headers().contains_key(header::AUTHORIZATION) {
        let (Some(auth), Some(store)) = (request.app_data::<Data<Auth>>(), request.app_data::<Data<Store>>()) else {
            return Err(Problem::internal("the application has no keys to read tokens with").into());
        };
        let viewer = bearer(request.headers()).and_then(|token| auth.tokens.read_access(token));
        let viewer = viewer.ok_or(Problem::new(Code::InvalidToken))?;
        if store.is_revoked(viewer.session_id).await.map_err(Problem::from)? {
            return Err(Problem::new(Code::InvalidToken).into());
        }
        request.extensions_mut().insert(viewer);
    }
    next.call(request).await
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

impl FromRequest for Viewer {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(request.extensions().get::<Self>().copied().ok_or(Problem::new(Code::Unauthenticated)))
    }
}

impl Viewer {
    /// Refuses whoever is no administrator. The role is read each time: it may have been taken away since the token was made.
    ///
    /// # Errors
    /// `forbidden`.
    pub async fn require_admin(self, store: &Store) -> Result<()> {
        if store.is_admin(self.user_id).await? { Ok(()) } else { Err(Problem::new(Code::Forbidden)) }
    }
}

impl FromRequest for MaybeViewer {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Viewer>().copied())))
    }
}

/// The keys and the hasher of this process.
pub struct Auth {
    tokens: Tokens,
    passwords: Passwords,
}

/// The tokens of a session, just made.
pub struct TokenPair {
    /// The access token.
    pub access: String,
    /// The refresh token that is the current one from now on.
    pub refresh: String,
}

/// A password that was shown to be the account's.
pub struct Proven {
    /// The account.
    pub user: User,
    /// Its address.
    pub email: Option<Email>,
    /// What was proven.
    pub credentials: Credentials,
    turn: Turn,
}

impl Auth {
    /// Keys and costs as configured.
    ///
    /// # Errors
    /// The signing key cannot be read or made.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Ok(Self { tokens: Tokens::new(&config.signing_key()?)?, passwords: Passwords::new(config.password_hash_cost)? })
    }

    /// Judges and hashes the password of a new account, of which these words are known.
    ///
    /// # Errors
    /// Faults alone: what is wrong with the password is a value.
    pub async fn hash_new(&self, password: &SecretString, known: Vec<String>) -> Result<Result<String, PasswordFault>> {
        let turn = self.passwords.turn().await?;
        hash_strong(&turn, password, known).await
    }

    /// Proves a login by handle or e-mail address.
    ///
    /// # Errors
    /// `invalid_credentials`, after the same time whether or not there is such an account; `too_many_attempts` without a look at the
    /// password.
    pub async fn prove_login(&self, store: &Store, identifier: &str, password: &SecretString) -> Result<Proven> {
        let turn = self.passwords.turn().await?;
        let attempts = Attempts::Login(identifier);
        let (standing, account) = futures::try_join!(store.attempts(attempts, now()), store.login_account(identifier))?;
        prove(store, turn, attempts, standing, account, password).await?.ok_or(Problem::new(Code::InvalidCredentials))
    }

    /// Proves that who is logged in knows the password.
    ///
    /// # Errors
    /// `wrong_password`; `too_many_attempts` without a look at the password.
    pub async fn prove_viewer(&self, store: &Store, viewer: Viewer, password: &SecretString) -> Result<Proven> {
        let turn = self.passwords.turn().await?;
        let attempts = Attempts::Account(viewer.user_id);
        let (standing, account) = futures::try_join!(store.attempts(attempts, now()), store.account(viewer.user_id))?;
        prove(store, turn, attempts, standing, account, password).await?.ok_or(Problem::new(Code::WrongPassword))
    }

    /// Opens a session for an account whose credentials, last changed at `changed_at`, were proven.
    ///
    /// # Errors
    /// `invalid_credentials` where they were changed meanwhile, or the account deleted.
    pub async fn open_session(&self, store: &Store, user: UserId, changed_at: Timestamp, user_agent: String) -> Result<TokenPair> {
        let (viewer, now) = (Viewer { user_id: user, session_id: SessionId(new_id()) }, now());
        let refresh = self.tokens.new_refresh(viewer.session_id, 1)?;
        let new =
            NewSession { id: viewer.session_id, user, credentials_changed_at: changed_at, user_agent, refresh: refresh.key, now };
        if !store.create_session(new).await? {
            return Err(Problem::new(Code::InvalidCredentials));
        }
        Ok(TokenPair { access: self.tokens.new_access(viewer, now)?, refresh: refresh.token })
    }

    /// Spends a refresh token.
    ///
    /// # Errors
    /// `invalid_refresh_token`; where it was spent before, the session is ended as well.
    pub async fn refresh_session(&self, store: &Store, token: &str) -> Result<TokenPair> {
        let refused = || Problem::new(Code::InvalidRefreshToken);
        let (session_id, spent) = self.tokens.read_refresh(token).ok_or_else(refused)?;
        let generation = spent.generation.checked_add(1).ok_or_else(refused)?;
        let (next, now) = (self.tokens.new_refresh(session_id, generation)?, now());
        match store.renew_session(session_id, spent, next.key, now).await? {
            Renewed::Now(user_id) => {
                Ok(TokenPair { access: self.tokens.new_access(Viewer { user_id, session_id }, now)?, refresh: next.token })
            }
            Renewed::Ended => Err(refused()),
        }
    }
}

impl Proven {
    /// Judges and hashes a new password for the account.
    ///
    /// # Errors
    /// Faults alone: what is wrong with the password is a value.
    pub async fn hash_new(&self, password: &SecretString) -> Result<Result<String, PasswordFault>> {
        let mut known = vec![self.user.handle.as_str().to_owned(), self.user.display_name.clone()];
        known.extend(self.email.as_ref().map(|email| email.as_str().to_owned()));
        hash_strong(&self.turn, password, known).await
    }
}

async fn hash_strong(turn: &Turn, password: &SecretString, known: Vec<String>) -> Result<Result<String, PasswordFault>> {
    match turn.check(password, known).await? {
        Some(fault) => Ok(Err(fault)),
        None => turn.hash(password).await.map(Ok),
    }
}

/// Compares a password, and counts how that went. None is a wrong one, or no account.
///
/// All of it within one turn: of many attempts at the same time, no more than there are cores pass before the first failures count.
async fn prove(
    store: &Store,
    turn: Turn,
    attempts: Attempts<'_>,
    standing: Standing,
    account: Option<Account>,
    password: &SecretString,
) -> Result<Option<Proven>> {
    if let Standing::LockedOut(wait) = standing {
        return Err(Problem::new(Code::TooManyAttempts).retry_after(wait));
    }
    let hash = account.as_ref().and_then(|account| account.credentials.as_ref()).map(|credentials| credentials.hash.as_str());
    let (Compared::Same { stronger }, Some(Account { user, email, credentials: Some(credentials) })) =
        (turn.compare(password, hash).await?, account)
    else {
        store.count_failed_attempt(attempts, now()).await?;
        return Ok(None);
    };
    if standing == Standing::Failed {
        store.forget_failed_attempts(attempts).await?;
    }
    if let Some(stronger) = stronger {
        store.rehash_password(user.id, &credentials, &stronger).await?;
    }
    Ok(Some(Proven { user, email, credentials, turn }))
}

/// What the client calls itself, as it is kept.
#[must_use]
pub fn user_agent(request: &HttpRequest) -> String {
    let header = request.headers().get(header::USER_AGENT);
    header.map(|value| credentials::user_agent(&String::from_utf8_lossy(value.as_bytes()))).unwrap_or_default()
}
