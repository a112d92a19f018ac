//! Credentials: what a login is checked against, changing it, and how often it failed of late.

use std::time::Duration;

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use rookery_domain::{
    Email, Handle, Timestamp, UserId,
    credentials::{ATTEMPTS_WINDOW, MAX_FAILED_ATTEMPTS},
    user::User,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{
    Result, Store, collections,
    error::is_duplicate_key,
    store::{b, date, timestamp},
    users::{Created, CredentialsDoc, NewUser, UserDoc},
};

/// The one role there is.
const ADMIN: &str = "admin";

/// What a password is checked against.
#[derive(Clone)]
pub struct Credentials {
    /// The hash in PHC form.
    pub hash: String,
    /// When the password was last changed.
    pub changed_at: Timestamp,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("hash", &"…").field("changed_at", &self.changed_at).finish()
    }
}

impl From<CredentialsDoc> for Credentials {
    fn from(credentials: CredentialsDoc) -> Self {
        Self { hash: credentials.hash, changed_at: timestamp(credentials.changed_at) }
    }
}

/// Whose failed attempts are counted.
///
/// Logins are counted by what was typed, known or not, so that the count tells nothing about who exists. Proofs by somebody who is
/// logged in already are counted by account, so that failed logins from outside do not keep an owner from changing the password.
#[derive(Debug, Clone, Copy)]
pub enum Attempts<'a> {
    /// Of logins with this identifier.
    Login(&'a str),
    /// Of proofs by this account.
    Account(UserId),
}

impl Attempts<'_> {
    /// The document's `_id`: a hash, since what is typed into a login form may be anything, a password included.
    fn key(&self) -> Binary {
        let hash = match self {
            Self::Login(identifier) => Sha256::new().chain_update("login:").chain_update(normalised(identifier)),
            Self::Account(user) => Sha256::new().chain_update("account:").chain_update(user.0.as_bytes()),
        };
        Binary { subtype: BinarySubtype::Generic, bytes: hash.finalize().to_vec() }
    }
}

/// Whatever the case and the space about it, it is counted as the same identifier.
fn normalised(identifier: &str) -> String {
    identifier.trim().to_lowercase()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttemptsDoc {
    window_start: bson::DateTime,
}

impl Store {
    /// The live account with this handle or e-mail address, in any case, and what its password is checked against: none where it
    /// has no password.
    pub async fn login_account(&self, identifier: &str) -> Result<Option<(User, Option<Credentials>)>> {
        // Not in the folded form: only ASCII is folded in handles.
        let mut filter = match (Handle::parse(identifier.trim()), Email::parse(identifier)) {
            (Ok(handle), _) => doc! { "handle": handle.as_str() },
            (_, Ok(email)) => doc! { "email": email.as_str() },
            _ => return Ok(None),
        };
        filter.insert("state", "live");
        self.with_credentials(filter).await
    }

    /// A live account and what its password is checked against.
    pub async fn credentials(&self, user: UserId) -> Result<Option<(User, Option<Credentials>)>> {
        self.with_credentials(doc! { "_id": b(user), "state": "live" }).await
    }

    async fn with_credentials(&self, filter: Document) -> Result<Option<(User, Option<Credentials>)>> {
        let Some(mut user) = self.coll::<UserDoc>(collections::USERS).find_one(filter).await? else { return Ok(None) };
        let credentials = user.credentials.take().map(Credentials::from);
        Ok(Some((user.try_into()?, credentials)))
    }

    /// Sets a new password where `old` is still the current one. False means that it is not (any more).
    ///
    /// End the other sessions after this, not before: see [`Store::create_session`].
    pub async fn change_password(&self, user: UserId, old: &Credentials, new_hash: &str, now: Timestamp) -> Result<bool> {
        self.set_credentials(user, old, new_hash, now).await
    }

    /// Stores the same password under a stronger hash. It is no change of the password: sessions stay. One that was changed meanwhile
    /// is left alone.
    pub async fn rehash_password(&self, user: UserId, old: &Credentials, new_hash: &str) -> Result<()> {
        self.set_credentials(user, old, new_hash, old.changed_at).await?;
        Ok(())
    }

    async fn set_credentials(&self, user: UserId, old: &Credentials, hash: &str, changed_at: Timestamp) -> Result<bool> {
        let current =
            doc! { "_id": b(user), "state": "live", "credentials.hash": &old.hash, "credentials.changedAt": date(old.changed_at) };
        let set = doc! { "$set": { "credentials": { "hash": hash, "changedAt": date(changed_at) } } };
        Ok(self.coll::<Document>(collections::USERS).update_one(current, set).await?.matched_count == 1)
    }

    /// Makes an account with the role of an administrator.
    pub async fn create_admin(&self, new: NewUser) -> Result<Created> {
        let mut user = new.into_doc();
        user.role = Some(ADMIN.to_owned());
        self.insert_user(user).await
    }

    /// Whether a live account is an administrator's.
    pub async fn is_admin(&self, user: UserId) -> Result<bool> {
        let admin = doc! { "_id": b(user), "state": "live", "role": ADMIN };
        Ok(self.coll::<Document>(collections::USERS).find_one(admin).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// How long to wait, where too many attempts have failed of late. One read.
    pub async fn locked_out(&self, attempts: Attempts<'_>, now: Timestamp) -> Result<Option<Duration>> {
        let filter = doc! { "_id": attempts.key(), "count": { "$gte": MAX_FAILED_ATTEMPTS } };
        let found = self.coll::<AttemptsDoc>(collections::LOGIN_ATTEMPTS).find_one(filter).await?;
        Ok(found.map(|failed| timestamp(failed.window_start).plus(ATTEMPTS_WINDOW).since(now)).filter(|wait| !wait.is_zero()))
    }

    /// Counts a failed attempt; the first after a window has passed begins the next.
    pub async fn count_failed_attempt(&self, attempts: Attempts<'_>, now: Timestamp) -> Result<()> {
        let running = doc! { "$gt": ["$windowStart", date(now.minus(ATTEMPTS_WINDOW))] };
        let counted = |then: Bson, other: Bson| doc! { "$cond": [running.clone(), then, other] };
        let set = doc! { "$set": {
            "count": counted(doc! { "$add": ["$count", 1] }.into(), Bson::Int64(1)),
            "windowStart": counted("$windowStart".into(), date(now).into()),
        } };
        let attempts_of = self.coll::<Document>(collections::LOGIN_ATTEMPTS);
        let count = || attempts_of.update_one(doc! { "_id": attempts.key() }, vec![set.clone()]).upsert(true);
        match count().await {
            // Two began the count at the same time; now it is there.
            Err(error) if is_duplicate_key(&error) => count().await?,
            other => other?,
        };
        Ok(())
    }

    /// Forgets failed attempts: the owner was here.
    pub async fn forget_failed_attempts(&self, attempts: Attempts<'_>) -> Result<()> {
        self.coll::<Document>(collections::LOGIN_ATTEMPTS).delete_one(doc! { "_id": attempts.key() }).await?;
        Ok(())
    }
}
