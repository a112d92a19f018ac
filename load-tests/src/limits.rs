//! What the database can do without Rookery: the rates that every figure of the service is held against.
//!
//! The bare driver does the same writes into scratch collections that carry the *live* indexes of the service's collections, with
//! documents made after live ones, so that neither is described twice. The scratch collections lie in a database of their own, which
//! is dropped at the end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use mongodb::{
    Client, Collection, Database, IndexModel,
    bson::{Bson, Document, doc, spec::BinarySubtype},
    error::Error as DriverError,
    options::{Acknowledgment, ClientOptions, ServerAddress, WriteConcern},
};
use uuid::Uuid;

use crate::loops::{Driver, Failure, Measured, Plan};

/// Documents that `find_one` chooses from.
const FIND_DOCUMENTS: i32 = 1_000;
/// Size of one of them: that of a post with its subset of comments.
const FIND_BYTES: usize = 4_096;
/// Documents of one `insert_many`.
const BATCH: u64 = 1_000;

/// The service's database, through the driver.
#[derive(Debug)]
pub(crate) struct Raw {
    client: Client,
    live: Database,
    scratch: Database,
}

impl Raw {
    /// Connects with the write concern of the service: majority, journaled.
    ///
    /// # Errors
    /// An address that is not on this machine, or no database there.
    pub(crate) async fn connect(uri: &str, database: &str) -> Result<Self> {
        let mut options = ClientOptions::parse(uri).await.context("the address of the database does not read")?;
        for host in &options.hosts {
            if !matches!(host, ServerAddress::Tcp { host, .. } if host == "127.0.0.1") {
                bail!("the database at {host} is not at 127.0.0.1: load is sent to this machine alone");
            }
        }
        options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
        options.server_selection_timeout = Some(Duration::from_secs(5));
        let client = Client::with_options(options)?;
        client.database("admin").run_command(doc! { "ping": 1 }).await.context("the database does not answer")?;
        let scratch = client.database(&format!("load_tests_{}", Uuid::new_v4().simple()));
        Ok(Self { live: client.database(database), scratch, client })
    }

    /// `find_one` by `_id` of a document of 4 KB, a second.
    pub(crate) async fn find_one(&self, driver: &Driver, callers: usize, duration: Duration) -> Result<f64> {
        let documents: Collection<Document> = self.scratch.collection("documents");
        let filler = "x".repeat(FIND_BYTES);
        documents.insert_many((0..FIND_DOCUMENTS).map(|number| doc! { "_id": number, "filler": &filler })).await?;
        let call = move |number: u64| {
            let documents = documents.clone();
            async move {
                // Steps of a prime, so that callers do not read in the order of writing.
                let id = i32::try_from(number * 619 % u64::from(FIND_DOCUMENTS.unsigned_abs())).unwrap_or_default();
                documents
                    .find_one(doc! { "_id": id })
                    .await
                    .map_err(|error| failure(&error))?
                    .map(drop)
                    .ok_or_else(|| Failure::wrong("no document"))
            }
        };
        rate(&driver.drive(Plan::closed_for("limit: find_one", callers, duration).warm_up(200), call).await)
    }

    /// `insert_one` of a pending edge to one account into a collection with the indexes of `follows`, a second.
    pub(crate) async fn insert_one(&self, driver: &Driver, callers: usize, duration: Duration) -> Result<f64> {
        let (scratch, mut edge) = self.like("follows").await?;
        // As a follow is written: neither counted nor merged into its follower's timeline yet.
        edge.remove("seq");
        edge.remove("followedAt");
        edge.insert("pending", true);
        edge.insert("merged", false);
        let edge = Arc::new(edge);
        let call = move |_| {
            let (scratch, mut edge) = (scratch.clone(), Document::clone(&edge));
            async move {
                set_ids(&mut edge, &[("_id", Uuid::now_v7()), ("followerId", Uuid::now_v7()), ("wish", Uuid::new_v4())]);
                scratch.insert_one(edge).await.map(drop).map_err(|error| failure(&error))
            }
        };
        rate(&driver.drive(Plan::closed_for("limit: insert_one", callers, duration).warm_up(200), call).await)
    }

    /// Documents a second by `insert_many` of 1,000 feed entries into a collection with the indexes of `timeline_entries`, unordered,
    /// one batch after the other, each batch one post for the same 1,000 owners: the work of a fan-out.
    pub(crate) async fn insert_many(&self, driver: &Driver, duration: Duration) -> Result<f64> {
        let (scratch, entry) = self.like("timeline_entries").await?;
        let owners: Arc<Vec<Uuid>> = Arc::new((0..BATCH).map(|_| Uuid::now_v7()).collect());
        let inserted = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&inserted);
        let call = move |_| {
            let (scratch, entry, owners, counter) = (scratch.clone(), entry.clone(), Arc::clone(&owners), Arc::clone(&counter));
            async move {
                let post = Uuid::now_v7();
                let entries = owners.iter().map(|owner| {
                    let mut entry = entry.clone();
                    set_ids(&mut entry, &[("_id", Uuid::now_v7()), ("ownerId", *owner), ("postId", post), ("slot", post)]);
                    entry
                });
                let result = scratch.insert_many(entries).ordered(false).await.map_err(|error| failure(&error))?;
                counter.fetch_add(result.inserted_ids.len() as u64, Ordering::Relaxed);
                Ok(())
            }
        };
        let measured = driver.drive(Plan::closed_for("limit: insert_many", 1, duration), call).await;
        if inserted.load(Ordering::Relaxed) != measured.count() * BATCH {
            bail!("insert_many did not insert every document");
        }
        #[expect(clippy::cast_precision_loss, reason = "a thousand")]
        Ok(rate(&measured)? * BATCH as f64)
    }

    /// Whether any follow of this account waits to be applied.
    pub(crate) async fn has_pending_follows(&self, account: Uuid) -> Result<bool> {
        let id = mongodb::bson::Uuid::from_bytes(account.into_bytes());
        let found = self.live.collection::<Document>("follows").find_one(doc! { "followeeId": id, "pending": true }).await?;
        Ok(found.is_some())
    }

    /// Drops the scratch collections and closes the connection.
    pub(crate) async fn close(self) -> Result<()> {
        self.scratch.drop().await?;
        self.client.shutdown().immediate(true).await;
        Ok(())
    }

    /// A scratch collection with the indexes of a live one, and a document of the live one to make others after.
    async fn like(&self, name: &str) -> Result<(Collection<Document>, Document)> {
        let live: Collection<Document> = self.live.collection(name);
        let document = live.find_one(doc! {}).await?.with_context(|| format!("`{name}` has no document to make others after"))?;
        let mut indexes: Vec<IndexModel> = live.list_indexes().await?.try_collect().await?;
        indexes.retain(|index| index.keys != doc! { "_id": 1 });
        let scratch: Collection<Document> = self.scratch.collection(name);
        scratch.drop().await?;
        scratch.create_indexes(indexes).await?;
        Ok((scratch, document))
    }
}

fn rate(measured: &Measured) -> Result<f64> {
    if let Some((code, count)) = measured.errors.iter().next() {
        bail!("{}: {count} errors, {code}", measured.name);
    }
    Ok(measured.rate().round())
}

fn failure(error: &DriverError) -> Failure {
    Failure(format!("driver: {error}"))
}

/// Replaces the ids that the document has, at any depth, and adds none that it has not. An `_id` of another type is left to the
/// driver, which makes a new one.
fn set_ids(document: &mut Document, ids: &[(&str, Uuid)]) {
    if !matches!(document.get("_id"), Some(Bson::Binary(_) | Bson::Document(_)) | None) {
        document.remove("_id");
    }
    for (key, value) in document.iter_mut() {
        match value {
            Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
                if let Some((_, id)) = ids.iter().find(|(name, _)| name == key) {
                    binary.bytes = id.into_bytes().to_vec();
                }
            }
            Bson::Document(inner) => set_ids(inner, ids),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use mongodb::bson;

    use super::*;
    use crate::{
        loops::Stop,
        service::{DATABASE, DatabaseServer},
    };

    #[test]
    fn a_document_is_made_after_another_with_new_ids_alone() {
        let uuid = |number: u128| bson::Uuid::from_bytes(number.to_be_bytes());
        let ids = [("_id", Uuid::from_u128(1)), ("ownerId", Uuid::from_u128(2)), ("wish", Uuid::from_u128(3))];

        let mut edge = doc! { "_id": uuid(7), "ownerId": uuid(8), "other": uuid(9), "state": "active" };
        set_ids(&mut edge, &ids);
        assert_eq!(edge, doc! { "_id": uuid(1), "ownerId": uuid(2), "other": uuid(9), "state": "active" });

        let mut compound = doc! { "_id": { "ownerId": uuid(8), "n": 4 } };
        set_ids(&mut compound, &ids);
        assert_eq!(compound, doc! { "_id": { "ownerId": uuid(2), "n": 4 } });

        let mut generated = doc! { "_id": bson::oid::ObjectId::new(), "ownerId": uuid(8) };
        set_ids(&mut generated, &ids);
        assert_eq!(generated, doc! { "ownerId": uuid(2) });
    }

    #[tokio::test]
    async fn limits_are_measured_with_the_live_indexes_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let server = DatabaseServer::start(folder.path()).await.unwrap();
        let raw = Raw::connect(server.uri(), DATABASE).await.unwrap();
        let unique = mongodb::options::IndexOptions::builder().unique(true).build();
        let pending = mongodb::options::IndexOptions::builder().partial_filter_expression(doc! { "pending": true }).build();
        for (name, pair) in [("follows", ["followerId", "followeeId"]), ("timeline_entries", ["ownerId", "postId"])] {
            let live: Collection<Document> = raw.live.collection(name);
            let id = bson::Uuid::new();
            live.insert_one(doc! { "_id": id, pair[0]: id, pair[1]: id, "seq": 1_i64 }).await.unwrap();
            live.create_indexes([
                IndexModel::builder().keys(doc! { pair[0]: 1, pair[1]: 1 }).options(unique.clone()).build(),
                IndexModel::builder().keys(doc! { pair[1]: 1, "_id": 1 }).options(pending.clone()).build(),
            ])
            .await
            .unwrap();
        }

        let driver = Driver::new(Stop::new().1);
        let short = Duration::from_millis(50);
        assert!(raw.find_one(&driver, 4, short).await.unwrap() > 0.0);
        assert!(raw.insert_one(&driver, 4, short).await.unwrap() > 0.0);
        assert!(raw.insert_many(&driver, short).await.unwrap() > 0.0);

        for name in ["follows", "timeline_entries"] {
            let names = async |database: &Database| database.collection::<Document>(name).list_index_names().await.unwrap();
            assert_eq!(names(&raw.scratch).await, names(&raw.live).await);
            assert_eq!(raw.live.collection::<Document>(name).count_documents(doc! {}).await.unwrap(), 1);
        }
        let edge = raw.scratch.collection::<Document>("follows").find_one(doc! {}).await.unwrap().unwrap();
        assert!(edge.get_bool("pending").unwrap() && !edge.contains_key("seq"), "{edge}");

        assert!(!raw.has_pending_follows(Uuid::nil()).await.unwrap());
        assert!(raw.client.list_database_names().await.unwrap().iter().any(|name| name.starts_with("load_tests_")));
        raw.close().await.unwrap();
        let client = Client::with_uri_str(server.uri()).await.unwrap();
        assert!(!client.list_database_names().await.unwrap().iter().any(|name| name.starts_with("load_tests_")));
        server.stop().await.unwrap();
    }

    #[tokio::test]
    async fn no_other_machine_is_measured() {
        for uri in ["mongodb://192.0.2.1/", "mongodb://127.0.0.1,192.0.2.1/", "nonsense"] {
            assert!(Raw::connect(uri, "rookery").await.is_err(), "{uri}");
        }
    }
}
