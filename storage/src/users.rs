//! Accounts: making them, and reading them by id, by handle and in bulk.

use std::collections::{HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::{
    ClientSession,
    error::{Error as DriverError, ErrorKind, WriteFailure},
};
use rookery_domain::{
    Email, Handle, Timestamp, UserId,
    user::{User, UserCounts, UserSummary},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Store, collections,
    error::is_duplicate_key,
    graph::{Followee, IdDoc},
    search::SearchDoc,
    store::{b, date, timestamp},
};

/// The version of an account's document that this code writes.
const SCHEMA_VERSION: i32 = 2;

/// An account as the database holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UserDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub schema_version: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub display_name: String,
    pub bio: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub settings: SettingsDoc,
    pub counters: CountersDoc,
    pub follower_seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follower_at: Option<bson::DateTime>,
    pub post_seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulled_since: Option<bson::DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<OutlierDoc>,
    pub state: UserState,
    pub created_at: bson::DateTime,
    pub last_active_at: bson::DateTime,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialsDoc {
    pub hash: String,
    pub changed_at: bson::DateTime,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SettingsDoc {
    pub private: bool,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CountersDoc {
    pub followers: i64,
    pub following: i64,
    pub posts: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum UserState {
    Live,
    Deleting,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OutlierDoc {
    pub state: OutlierState,
    pub since: bson::DateTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OutlierState {
    Building,
    Ready,
}

/// The fields of an account that are shown wherever it is named.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SummaryDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub handle: String,
    pub display_name: String,
    pub avatar_url: Option<String>,
    pub outlier: Option<OutlierDoc>,
}

impl SummaryDoc {
    /// What a query must ask for.
    pub(crate) fn projection() -> Document {
        doc! { "handle": 1, "displayName": 1, "avatarUrl": 1, "outlier": 1 }
    }
}

impl From<SummaryDoc> for UserSummary {
    fn from(user: SummaryDoc) -> Self {
        Self {
            id: UserId(user.id.into()),
            handle: Handle::from_stored(user.handle),
            display_name: user.display_name,
            avatar_url: user.avatar_url,
            celebrity: user.outlier.is_some(),
        }
    }
}

impl TryFrom<UserDoc> for User {
    type Error = Error;

    fn try_from(user: UserDoc) -> Result<Self> {
        let Some(handle) = user.handle else {
            return Err(Error::Corrupt { collection: collections::USERS, detail: format!("{}: live without a handle", user.id) });
        };
        Ok(Self {
            id: UserId(user.id.into()),
            handle: Handle::from_stored(handle),
            display_name: user.display_name,
            bio: user.bio,
            avatar_url: user.avatar_url,
            private: user.settings.private,
            created_at: timestamp(user.created_at),
            counts: UserCounts {
                followers: user.counters.followers,
                following: user.counters.following,
                posts: user.counters.posts,
            },
            celebrity: user.outlier.is_some(),
        })
    }
}

/// An account that is to be made.
#[derive(Debug, Clone)]
pub struct NewUser {
    /// Its id, made by the caller.
    pub id: UserId,
    /// The handle it asks for.
    pub handle: Handle,
    /// Its address; imported accounts have none.
    pub email: Option<Email>,
    /// The name to show.
    pub display_name: String,
    /// The hash of its password in PHC form; without one nobody can log in.
    pub password_hash: Option<String>,
    /// When it is made.
    pub now: Timestamp,
}

/// What became of a new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is made.
    Now(User),
    /// Somebody has the handle.
    HandleTaken,
    /// Somebody has the address.
    EmailTaken,
}

/// What became of an account that was to be written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// It is written.
    Now,
    /// Somebody else has one of its unique values: abort.
    Taken,
    /// There is no such live account.
    Gone,
}

/// How a caller names an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserRef {
    /// By id.
    Id(UserId),
    /// By handle.
    Handle(Handle),
}

impl UserRef {
    pub(crate) fn filter(&self) -> Document {
        match self {
            Self::Id(id) => doc! { "_id": b(*id) },
            Self::Handle(handle) => doc! { "handle": handle.as_str() },
        }
    }
}

impl NewUser {
    pub(crate) fn into_doc(self) -> UserDoc {
        let at = date(self.now);
        UserDoc {
            id: b(self.id),
            schema_version: SCHEMA_VERSION,
            handle: Some(self.handle.as_str().to_owned()),
            email: self.email.map(|email| email.as_str().to_owned()),
            search: SearchDoc::beside(&self.handle, &self.display_name),
            display_name: self.display_name,
            bio: String::new(),
            avatar_url: None,
            credentials: self.password_hash.map(|hash| CredentialsDoc { hash, changed_at: at }),
            role: None,
            settings: SettingsDoc { private: false },
            counters: CountersDoc::default(),
            follower_seq: 0,
            follower_at: None,
            post_seq: 0,
            opening: None,
            pulled_since: None,
            outlier: None,
            state: UserState::Live,
            created_at: at,
            last_active_at: at,
        }
    }
}

impl Store {
    /// Makes an account. Handle and address are unique by their indexes, whatever races.
    pub async fn create_user(&self, new: NewUser) -> Result<Created> {
        self.insert_user(new.into_doc()).await
    }

    pub(crate) async fn insert_user(&self, user: UserDoc) -> Result<Created> {
        match self.coll::<UserDoc>(collections::USERS).insert_one(&user).await {
            Ok(_) => Ok(Created::Now(user.try_into()?)),
            Err(error) if is_duplicate_key(&error) => {
                if violates(&error, "handle") {
                    Ok(Created::HandleTaken)
                } else {
                    Ok(Created::EmailTaken)
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a live account with other unique fields, in a transaction.
    ///
    /// It is removed and inserted anew: the embedded database frees a unique value with its document alone, and sees that two
    /// transactions want one value only where they insert it. On MongoDB it is one more write than an update.
    pub(crate) async fn replace_account(
        &self,
        user: UserId,
        change: impl FnOnce(&mut Document),
        session: &mut ClientSession,
    ) -> Result<Replaced> {
        let users = self.coll::<Document>(collections::USERS);
        let live = doc! { "_id": b(user), "state": "live" };
        let Some(mut account) = users.find_one_and_delete(live).session(&mut *session).await? else { return Ok(Replaced::Gone) };
        change(&mut account);
        match users.insert_one(account).session(session).await {
            Ok(_) => Ok(Replaced::Now),
            Err(error) if is_duplicate_key(&error) => Ok(Replaced::Taken),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes many accounts, and gives the id that each handle has afterwards: accounts that are there already stay as they are.
    pub async fn import_users(&self, new: Vec<NewUser>) -> Result<HashMap<Handle, UserId>> {
        #[derive(Deserialize)]
        struct HandleDoc {
            #[serde(rename = "_id")]
            id: bson::Uuid,
            handle: String,
        }
        let handles: Vec<String> = new.iter().map(|user| user.handle.as_str().to_owned()).collect();
        let docs: Vec<UserDoc> = new.into_iter().map(NewUser::into_doc).collect();
        match self.coll::<UserDoc>(collections::USERS).insert_many(docs).ordered(false).await {
            Ok(_) => {}
            Err(error) if is_duplicate_key(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let found = self
            .coll::<HandleDoc>(collections::USERS)
            .find(doc! { "handle": { "$in": handles }, "state": "live" })
            .projection(doc! { "handle": 1 })
            .await?;
        Ok(found.map_ok(|user| (Handle::from_stored(user.handle), UserId(user.id.into()))).try_collect().await?)
    }

    /// Whether there is no account yet.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.coll::<Document>(collections::USERS).find_one(doc! {}).projection(doc! { "_id": 1 }).await?.is_none())
    }

    /// A live account.
    pub async fn user(&self, user: &UserRef) -> Result<Option<User>> {
        self.user_doc(user).await?.map(User::try_from).transpose()
    }

    /// A live account's document.
    pub(crate) async fn user_doc(&self, user: &UserRef) -> Result<Option<UserDoc>> {
        let mut filter = user.filter();
        filter.insert("state", "live");
        Ok(self.coll(collections::USERS).find_one(filter).await?)
    }

    /// The id of a live account.
    pub async fn user_id(&self, user: &UserRef) -> Result<Option<UserId>> {
        let mut filter = user.filter();
        filter.insert("state", "live");
        let found = self.coll::<IdDoc>(collections::USERS).find_one(filter).projection(doc! { "_id": 1 }).await?;
        Ok(found.map(|user| UserId(user.id.into())))
    }

    /// A live account, as whoever is about to follow it must know it.
    pub async fn followee(&self, user: &UserRef) -> Result<Option<Followee>> {
        #[derive(Deserialize)]
        struct FolloweeDoc {
            #[serde(rename = "_id")]
            id: bson::Uuid,
            settings: SettingsDoc,
        }
        let mut filter = user.filter();
        filter.insert("state", "live");
        let fields = doc! { "settings": 1 };
        let found = self.coll::<FolloweeDoc>(collections::USERS).find_one(filter).projection(fields).await?;
        Ok(found.map(|user| Followee { id: UserId(user.id.into()), private: user.settings.private }))
    }

    /// The private accounts among `ids`.
    pub(crate) async fn private_among(&self, ids: impl IntoIterator<Item = UserId>) -> Result<HashSet<UserId>> {
        let ids: Vec<bson::Uuid> = ids.into_iter().map(b).collect();
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let private = doc! { "_id": { "$in": ids }, "settings.private": true };
        let found = self.coll::<IdDoc>(collections::USERS).find(private).projection(doc! { "_id": 1 }).await?;
        Ok(found.map_ok(|user| UserId(user.id.into())).try_collect().await?)
    }

    /// The live accounts among `ids`, to be shown where they are named.
    pub async fn summaries(&self, ids: impl IntoIterator<Item = UserId>) -> Result<HashMap<UserId, UserSummary>> {
        let ids: Vec<bson::Uuid> = ids.into_iter().map(b).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self
            .coll::<SummaryDoc>(collections::USERS)
            .find(doc! { "_id": { "$in": ids }, "state": "live" })
            .projection(SummaryDoc::projection())
            .await?;
        Ok(found.map_ok(UserSummary::from).map_ok(|user| (user.id, user)).try_collect().await?)
    }
}

/// Whether the duplicate key is one of the index on `field`.
fn violates(error: &DriverError, field: &str) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.message.contains(&format!("{field}_1")),
        _ => false,
    }
}
