//! Brings a database to the schema of this version.
//!
//! A fresh database and an old one take the same path: the steps that have not run yet, in order, then the one description of
//! [`crate::collections`] (validators by `collMod`, indexes). Every step may be run again after a crash in its middle. A lock keeps two
//! runners apart. What ran is recorded as a version and a fingerprint of the description, so that a process can tell in one read
//! whether the database is what it works with.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::{options::ValidationAction, options::ValidationLevel};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Error, Result, Store,
    collections::{self, Collection},
    lease::Lease,
    store::{date, now},
};

/// The schema this version works with. A change of the description alone (an index, a field that may be absent) needs no new number:
/// the fingerprint tells. A change that older binaries could not live with does.
pub const VERSION: i32 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct SchemaDoc {
    version: i32,
    description: String,
}

/// Indexes that earlier versions made and this one has another for. They are dropped last, when their successors are there. Only what is
/// named here is dropped: an index that an operator has added stays.
const OBSOLETE: &[(&str, &str)] = &[(collections::FOLLOWS, "pending_1_followeeId_1")];

/// How the database stands to this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is what this version works with.
    Current,
    /// It is empty, or was made by an older version: run [`migrate`].
    Behind(i32),
    /// It was made by a newer version, which this one must not touch.
    Ahead(i32),
}

/// Asks the database for its schema: one read.
pub async fn status(store: &Store) -> Result<Status> {
    let schema = store.coll::<SchemaDoc>(collections::MIGRATIONS).find_one(doc! { "_id": "schema" }).await?;
    Ok(match schema {
        None => Status::Behind(0),
        Some(schema) if schema.version > VERSION => Status::Ahead(schema.version),
        Some(schema) if schema.version == VERSION && schema.description == fingerprint() => Status::Current,
        Some(schema) => Status::Behind(schema.version),
    })
}

/// Refuses a database that is not [`Status::Current`].
///
/// # Errors
/// [`Error::Schema`] with what to do.
pub async fn check(store: &Store) -> Result<()> {
    let (found, advice) = match status(store).await? {
        Status::Current => return Ok(()),
        Status::Behind(found) => (found, "run `rookery migrate`, or serve with `--migrate`"),
        Status::Ahead(found) => (found, "it was made by a newer version; use that one"),
    };
    Err(Error::Schema { found, wanted: VERSION, advice })
}

/// Brings the database to the schema of this version; does nothing where it is there already. Two runners wait for each other.
///
/// # Errors
/// [`Error::Schema`] where the database was made by a newer version, which is left as it is.
pub async fn migrate(store: &Store) -> Result<()> {
    if let Status::Current = status(store).await? {
        return Ok(());
    }
    // The lock's own collection comes first; making it twice is harmless.
    if let Some(locks) = collections::ALL.iter().find(|collection| collection.name == collections::LOCKS) {
        apply(store, locks).await?;
    }
    let lease = Lease::wait(store, "migrate").await?;
    let result = migrate_alone(store).await;
    lease.release().await?;
    result
}

async fn migrate_alone(store: &Store) -> Result<()> {
    match status(store).await? {
        Status::Current => return Ok(()),
        Status::Ahead(found) => {
            return Err(Error::Schema { found, wanted: VERSION, advice: "it was made by a newer version; use that one" });
        }
        Status::Behind(found) => {
            tracing::info!(from = found, to = VERSION, "migrating the database");
            if found == 1 {
                forget_overflow_pages(store).await?;
            }
        }
    }
    for collection in collections::ALL {
        apply(store, collection).await?;
    }
    for (collection, index) in OBSOLETE {
        let collection = store.coll::<Document>(collection);
        if collection.list_index_names().await?.iter().any(|name| name == index) {
            collection.drop_index(*index).await?;
        }
    }
    let set = doc! { "version": VERSION, "description": fingerprint(), "appliedAt": date(now()) };
    store.coll::<Document>(collections::MIGRATIONS).update_one(doc! { "_id": "schema" }, doc! { "$set": set }).upsert(true).await?;
    Ok(())
}

/// From 1 to 2: overflow pages have their account and number in fields of their own. They are copies: whoever serves next builds them anew
/// ([`Store::adopt_pages`]), and until then lists of followers come from the edges.
async fn forget_overflow_pages(store: &Store) -> Result<()> {
    let flagged = doc! { "outlier.since": { "$exists": true } };
    let building = doc! { "$set": { "outlier.state": "building" } };
    store.coll::<Document>(collections::USERS).update_many(flagged, building).await?;
    store.coll::<Document>(collections::USER_OVERFLOW).delete_many(doc! {}).await?;
    Ok(())
}

/// Makes a collection what its description says; whatever is so already stays.
async fn apply(store: &Store, collection: &Collection) -> Result<()> {
    let validator = doc! { "$jsonSchema": (collection.schema)() };
    let created = store
        .db()
        .create_collection(collection.name)
        .validator(validator.clone())
        .validation_action(ValidationAction::Error)
        .validation_level(ValidationLevel::Strict)
        .await;
    match created {
        Ok(()) => {}
        Err(error) if is_namespace_exists(&error) => {
            let modify = doc! { "collMod": collection.name, "validator": validator, "validationAction": "error", "validationLevel": "strict" };
            store.db().run_command(modify).await?;
        }
        Err(error) => return Err(error.into()),
    }
    let indexes = (collection.indexes)();
    if !indexes.is_empty() {
        store.coll::<Document>(collection.name).create_indexes(indexes).await?;
    }
    Ok(())
}

fn is_namespace_exists(error: &mongodb::error::Error) -> bool {
    const NAMESPACE_EXISTS: i32 = 48;
    matches!(error.kind.as_ref(), mongodb::error::ErrorKind::Command(command) if command.code == NAMESPACE_EXISTS)
}

/// A hash of the whole description: 16 bytes in hexadecimal.
fn fingerprint() -> String {
    use std::fmt::Write as _;

    let mut hash = Sha256::new();
    for collection in collections::ALL {
        hash.update(collection.name);
        hash.update((collection.schema)().to_string());
        for index in (collection.indexes)() {
            hash.update(index.keys.to_string());
            hash.update(format!("{:?}", index.options));
        }
    }
    hash.finalize().iter().take(16).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The names of the collections that the database has. For tests.
pub async fn collection_names(store: &Store) -> Result<Vec<String>> {
    let mut names: Vec<String> = store.db().list_collections().await?.map_ok(|spec| spec.name).try_collect().await?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::TestDatabase;

    async fn indexes(store: &Store, collection: &str) -> BTreeSet<String> {
        store.coll::<Document>(collection).list_index_names().await.unwrap().into_iter().collect()
    }

    async fn set_schema(store: &Store, fields: Document) {
        let schema = store.coll::<Document>(collections::MIGRATIONS);
        schema.update_one(doc! { "_id": "schema" }, doc! { "$set": fields }).await.unwrap();
    }

    #[tokio::test]
    async fn an_older_database_gets_what_is_new_loses_what_was_replaced_and_keeps_what_an_operator_added() {
        let db = TestDatabase::new().await;
        let store = db.store();
        assert_eq!(status(store).await.unwrap(), Status::Current);
        let fresh = indexes(store, collections::FOLLOWS).await;
        let follows = store.coll::<Document>(collections::FOLLOWS);
        // As the version before left it, and an operator's own.
        follows.drop_index("pending_1_followeeId_1__id_1").await.unwrap();
        for keys in [doc! { "pending": 1, "followeeId": 1 }, doc! { "wish": 1 }] {
            follows.create_index(mongodb::IndexModel::builder().keys(keys).build()).await.unwrap();
        }
        set_schema(store, doc! { "description": "another" }).await;
        assert_eq!(status(store).await.unwrap(), Status::Behind(VERSION));
        migrate(store).await.unwrap();
        assert_eq!(status(store).await.unwrap(), Status::Current);
        let mut expected = fresh;
        expected.insert("wish_1".to_owned());
        assert_eq!(indexes(store, collections::FOLLOWS).await, expected);
    }

    #[tokio::test]
    async fn overflow_pages_of_version_1_are_forgotten_and_built_anew() {
        let db = TestDatabase::with(crate::Settings { celebrity_threshold: 3, ..crate::Settings::default() }).await;
        let store = db.store();
        let star = crate::testing::user(store).await;
        for _ in 0..4 {
            store.follow(crate::testing::user(store).await, star).await.unwrap().unwrap();
        }
        while store.apply_follows_step().await.unwrap() != crate::pending::Progress::Idle {}
        // As version 1 left it.
        let pages = store.coll::<Document>(collections::USER_OVERFLOW);
        // Emptied first: an index of the same name that is made again has the entries that the dropped one had, on the embedded database.
        pages.delete_many(doc! {}).await.unwrap();
        pages.drop_indexes().await.unwrap();
        let any = doc! { "collMod": collections::USER_OVERFLOW, "validator": {}, "validationLevel": "off" };
        store.db().run_command(any).await.unwrap();
        for page in 0..2_i64 {
            let id = doc! { "userId": crate::store::b(star), "page": page };
            pages.insert_one(doc! { "_id": id, "followers": [], "count": 0_i64 }).await.unwrap();
        }
        store.coll::<Document>(collections::MIGRATIONS).delete_one(doc! { "_id": "overflow_pages" }).await.unwrap();
        set_schema(store, doc! { "version": 1 }).await;
        migrate(store).await.unwrap();
        assert_eq!(pages.count_documents(doc! {}).await.unwrap(), 0);
        assert_eq!(store.adopt_pages().await.unwrap(), 1);
        let drift = crate::verify::verify(store).await.unwrap();
        assert!(drift.is_empty(), "{drift:#?}");
        assert_eq!(pages.count_documents(doc! {}).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
        let db = TestDatabase::new().await;
        let store = db.store();
        set_schema(store, doc! { "version": VERSION + 1 }).await;
        assert_eq!(status(store).await.unwrap(), Status::Ahead(VERSION + 1));
        for outcome in [check(store).await, migrate(store).await] {
            assert!(matches!(outcome, Err(Error::Schema { found, .. }) if found == VERSION + 1));
        }
        assert_eq!(status(store).await.unwrap(), Status::Ahead(VERSION + 1));
    }
}
