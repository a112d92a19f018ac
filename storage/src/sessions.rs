//! Sessions: opening, renewing and ending them, and what this process remembers of those that were ended.
//!
//! An access token is believed without a look at the database until it expires; what stands against the token of an ended session is
//! the set of ended sessions in every process's memory. The process that ends a session knows it before it answers; the others
//! read what was ended since they last asked ([`Store::refresh_revoked`], run five times a second). Whoever has not asked for
//! half a second does not trust its memory and reads the session ([`Store::is_revoked`]): a stopped poll costs time, never safety.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use bson::{Binary, Document, doc, spec::BinarySubtype};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, SessionId, Timestamp, UserId,
    credentials::{ACCESS_TOKEN_LIVES, SESSION_LIVES, Session},
    page::TimeCursor,
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Store, collections,
    store::{b, date, now, timestamp},
    time_page::{self, Extent},
};

/// How old this process's knowledge of ended sessions may be: the bound within which a session ended in one process is ended in all.
const MAX_KNOWLEDGE_AGE: Duration = Duration::from_millis(500);
/// How far each poll reaches back behind the last: the bound of the difference between two processes' clocks, and of the time
/// between setting `revokedAt` and its commit.
const OVERLAP: Duration = Duration::from_secs(5);
/// How long an ended session is remembered: until its last access token has expired by any process's clock.
const REMEMBERED: Duration = ACCESS_TOKEN_LIVES.saturating_add(Duration::from_mins(1));
/// How long the document of an ended session is kept: well past [`REMEMBERED`], for processes that start meanwhile.
const REVOKED_KEPT: Duration = Duration::from_hours(1);

/// A session as the database holds it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user_id: bson::Uuid,
    /// The `changedAt` of the credentials that were proven.
    proven_at: bson::DateTime,
    created_at: bson::DateTime,
    last_used_at: bson::DateTime,
    expires_at: bson::DateTime,
    user_agent: String,
    refresh: RefreshDoc,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<bson::DateTime>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RefreshDoc {
    generation: i64,
    hash: Binary,
}

impl From<RefreshKey> for RefreshDoc {
    fn from(key: RefreshKey) -> Self {
        Self { generation: i64::from(key.generation), hash: binary(key.hash) }
    }
}

impl From<SessionDoc> for Session {
    fn from(session: SessionDoc) -> Self {
        Self {
            id: SessionId(session.id.into()),
            created_at: timestamp(session.created_at),
            last_used_at: timestamp(session.last_used_at),
            user_agent: session.user_agent,
        }
    }
}

/// What is kept of the refresh token that is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshKey {
    /// Which token of its session it is, from 1.
    pub generation: u32,
    /// SHA-256 of its random part.
    pub hash: [u8; 32],
}

/// A session that is to be opened.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id, made by the caller.
    pub id: SessionId,
    /// Whose it is.
    pub user: UserId,
    /// When the credentials that were proven were last changed.
    pub credentials_changed_at: Timestamp,
    /// What the client calls itself, cleaned.
    pub user_agent: String,
    /// Its first refresh token.
    pub refresh: RefreshKey,
    /// When it is opened.
    pub now: Timestamp,
}

/// What became of a refresh token that this service once gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It was the current one and is spent now; the session is this account's.
    Now(UserId),
    /// It was not the current one (any more), so that somebody holds a copy; or the account is gone, or its password was changed. The
    /// session is ended.
    Ended,
}

impl Store {
    /// Opens a session for an account whose credentials were just proven. False means that the account was deleted or its password
    /// changed meanwhile: the session is ended again and the proof is worth nothing.
    pub async fn create_session(&self, new: NewSession) -> Result<bool> {
        let at = date(new.now);
        let session = SessionDoc {
            id: b(new.id),
            user_id: b(new.user),
            proven_at: date(new.credentials_changed_at),
            created_at: at,
            last_used_at: at,
            expires_at: date(new.now.plus(SESSION_LIVES)),
            user_agent: new.user_agent,
            refresh: new.refresh.into(),
            revoked_at: None,
        };
        self.coll::<SessionDoc>(collections::SESSIONS).insert_one(session).await?;
        // Write first, check after: whoever changes the password or deletes the account writes that first and then ends the
        // sessions it finds. Either it finds this one, or what it wrote is seen here.
        if self.proves(new.user, date(new.credentials_changed_at)).await? {
            return Ok(true);
        }
        self.revoke(doc! { "_id": b(new.id) }).await?;
        Ok(false)
    }

    /// Whether an account is live and what proved it at `proven_at` still does.
    async fn proves(&self, user: UserId, proven_at: bson::DateTime) -> Result<bool> {
        let proven = doc! { "_id": b(user), "state": "live", "credentials.changedAt": { "$lte": proven_at } };
        Ok(self.coll::<Document>(collections::USERS).find_one(proven).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// The live sessions of an account, newest first.
    pub async fn sessions(&self, user: UserId, limit: Limit, cursor: Option<TimeCursor>) -> Result<Page<Session, TimeCursor>> {
        let now = now();
        let mut filter = live(now);
        filter.insert("userId", b(user));
        // So few that one slice holds them all.
        let extent = Extent { first: now.minus(SESSION_LIVES), total: 0, now };
        time_page::newest_first(cursor, limit, extent, async |slice| {
            let sessions = self.coll::<SessionDoc>(collections::SESSIONS);
            let found = sessions.find(slice.of(&filter)).sort(slice.sort()).limit(slice.most).await?;
            Ok(found.map_ok(|session| (session.id.into(), session.into())).try_collect().await?)
        })
        .await
    }

    /// Spends a refresh token that this service gave out, and makes `next` the current one: one conditional write, so that of two
    /// calls with one token one wins. The other, like every later one, ends the session: of the two who hold the token one may be a
    /// thief, and nobody can tell which (RFC 9700, 4.14.2).
    pub async fn renew_session(&self, session: SessionId, spent: RefreshKey, next: RefreshKey, now: Timestamp) -> Result<Renewed> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Owner {
            user_id: bson::Uuid,
            proven_at: bson::DateTime,
        }
        let mut filter = live(now);
        filter.insert("_id", b(session));
        filter.insert("refresh.generation", i64::from(spent.generation));
        filter.insert("refresh.hash", binary(spent.hash));
        let next = RefreshDoc::from(next);
        let set = doc! { "$set": {
            "refresh": { "generation": next.generation, "hash": next.hash },
            "lastUsedAt": date(now),
            "expiresAt": date(now.plus(SESSION_LIVES)),
        } };
        let renewed = self
            .coll::<Owner>(collections::SESSIONS)
            .find_one_and_update(filter, set)
            .projection(doc! { "userId": 1, "provenAt": 1 })
            .await?;
        if let Some(owner) = renewed {
            let user = UserId(owner.user_id.into());
            // A crash between a change of the password (or a deletion) and the end of its sessions leaves them to be found here.
            if self.proves(user, owner.proven_at).await? {
                return Ok(Renewed::Now(user));
            }
        }
        self.revoke(doc! { "_id": b(session) }).await?;
        Ok(Renewed::Ended)
    }

    /// Ends one session of an account. False means that the account has no such live session.
    pub async fn revoke_session(&self, user: UserId, session: SessionId) -> Result<bool> {
        self.revoke(doc! { "_id": b(session), "userId": b(user) }).await
    }

    /// Lets one session go on under credentials that are about to change.
    pub(crate) async fn keep_session(&self, user: UserId, session: SessionId, changed_at: Timestamp) -> Result<()> {
        let own = doc! { "_id": b(session), "userId": b(user) };
        let proven = doc! { "$set": { "provenAt": date(changed_at) } };
        self.coll::<SessionDoc>(collections::SESSIONS).update_one(own, proven).await?;
        Ok(())
    }

    /// Ends every session of an account but one.
    pub(crate) async fn revoke_other_sessions(&self, user: UserId, kept: SessionId) -> Result<()> {
        self.revoke(doc! { "userId": b(user), "_id": { "$ne": b(kept) } }).await?;
        Ok(())
    }

    /// Ends every session of an account: after its deletion was marked.
    pub async fn revoke_all_sessions(&self, user: UserId) -> Result<()> {
        self.revoke(doc! { "userId": b(user) }).await?;
        Ok(())
    }

    /// Ends the live sessions that match, and remembers them. Whether there were any.
    async fn revoke(&self, which: Document) -> Result<bool> {
        let at = now();
        let mut filter = live(at);
        filter.extend(which.clone());
        let set = doc! { "$set": { "revokedAt": date(at), "expiresAt": date(at.plus(REVOKED_KEPT)) } };
        let sessions = self.coll::<RevokedDoc>(collections::SESSIONS);
        let ended = sessions.update_many(filter, set).await?.modified_count > 0;
        if ended {
            // Read after the write: which sessions it met is not known before. What others ended meanwhile does no harm.
            let mut revoked = which;
            revoked.insert("revokedAt", doc! { "$gte": date(at.minus(OVERLAP)) });
            let revoked = sessions.find(revoked).projection(RevokedDoc::projection()).await?;
            self.revoked().add(revoked.try_collect::<Vec<_>>().await?);
        }
        Ok(ended)
    }

    /// Whether a session was ended, in whatever process, more than half a second ago or in this one. A lookup in memory, unless
    /// [`Store::refresh_revoked`] has not been run within half a second: then one read, and [`Error::Unavailable`] where the database is.
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    pub async fn is_revoked(&self, session: SessionId) -> Result<bool> {
        if let Some(known) = self.revoked().knows(session, Instant::now()) {
            return Ok(known);
        }
        let not_revoked = doc! { "_id": b(session), "revokedAt": { "$exists": false } };
        let found = self.coll::<Document>(collections::SESSIONS).find_one(not_revoked).projection(doc! { "_id": 1 }).await?;
        Ok(found.is_none())
    }

    /// Reads which sessions were ended since the last call, in whatever process. To be run every 200 ms.
    pub async fn refresh_revoked(&self) -> Result<()> {
        // What is committed now is found: the age of the knowledge counts from before the question.
        let (asked, at) = (Instant::now(), now());
        let since = self.revoked().asked_at().map_or(at.minus(REMEMBERED), |last| last.minus(OVERLAP));
        let ended = self
            .coll::<RevokedDoc>(collections::SESSIONS)
            .find(doc! { "revokedAt": { "$gte": date(since) } })
            .projection(RevokedDoc::projection())
            .await?;
        self.revoked().refresh(ended.try_collect::<Vec<_>>().await?, asked, at);
        Ok(())
    }
}

/// What a session is while nobody ended it and it has not run out. (Documents that ran out are deleted a minute later or so.)
fn live(now: Timestamp) -> Document {
    doc! { "revokedAt": { "$exists": false }, "expiresAt": { "$gt": date(now) } }
}

fn binary(bytes: [u8; 32]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// What is remembered of an ended session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RevokedDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    revoked_at: bson::DateTime,
}

impl RevokedDoc {
    fn projection() -> Document {
        doc! { "revokedAt": 1 }
    }
}

/// The sessions that were ended of late, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// When each was ended.
    sessions: HashMap<SessionId, Timestamp>,
    /// When the database was last asked and answered, by the clock that never jumps and by the one that documents have.
    asked: Option<(Instant, Timestamp)>,
}

impl Revoked {
    /// Whether the session was ended; none where the memory is too old to tell.
    fn knows(&self, session: SessionId, now: Instant) -> Option<bool> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.sessions.contains_key(&session) {
            return Some(true);
        }
        let (asked, _) = known.asked?;
        (now.saturating_duration_since(asked) <= MAX_KNOWLEDGE_AGE).then_some(false)
    }

    fn asked_at(&self) -> Option<Timestamp> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).asked.map(|(_, at)| at)
    }

    fn add(&self, ended: Vec<RevokedDoc>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.sessions.extend(ended.into_iter().map(|session| (SessionId(session.id.into()), timestamp(session.revoked_at))));
    }

    fn refresh(&self, ended: Vec<RevokedDoc>, asked: Instant, at: Timestamp) {
        self.add(ended);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.asked = Some((asked, at));
        known.sessions.retain(|_, ended_at| *ended_at > at.minus(REMEMBERED));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn ended(id: u128, at: Timestamp) -> RevokedDoc {
        RevokedDoc { id: b(Uuid::from_u128(id)), revoked_at: date(at) }
    }

    #[test]
    fn an_ended_session_is_forgotten_when_its_tokens_have_expired() {
        let (revoked, start, at) = (Revoked::default(), Instant::now(), Timestamp::from_millis(1_764_000_000_000));
        let session = SessionId(Uuid::from_u128(1));
        revoked.add(vec![ended(1, at)]);
        assert_eq!(revoked.knows(session, start), Some(true), "before anything was asked");
        revoked.refresh(Vec::new(), start, at.plus(ACCESS_TOKEN_LIVES));
        assert_eq!(revoked.knows(session, start), Some(true), "while a token may live");
        revoked.refresh(Vec::new(), start, at.plus(REMEMBERED));
        assert_eq!(revoked.knows(session, start), Some(false), "when none can");
    }

    #[test]
    fn old_knowledge_says_nothing_about_a_session_that_may_have_been_ended_since() {
        let (revoked, start, at) = (Revoked::default(), Instant::now(), Timestamp::from_millis(1_764_000_000_000));
        let session = SessionId(Uuid::from_u128(2));
        assert_eq!(revoked.knows(session, start), None);
        revoked.refresh(vec![ended(1, at)], start, at);
        assert_eq!(revoked.knows(session, start + MAX_KNOWLEDGE_AGE), Some(false));
        assert_eq!(revoked.knows(session, start + MAX_KNOWLEDGE_AGE + Duration::from_millis(1)), None);
    }
}
