//! The connection to one database, handed to everybody as a cheap clone.

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use bson::doc;
use mongodb::{
    Client, ClientSession, Collection, Database,
    error::ErrorKind,
    options::{Acknowledgment, ClientOptions, WriteConcern},
};
use rookery_domain::{Timestamp, fanout::FeedModel};
use tokio::sync::Notify;

use crate::{
    Error, Result,
    comments::{self, CommentDoc},
    deletion::Deleting,
    gather::Gather,
    graph::{NewFollow, Standing, Written},
    reactions::{Granted, Wish},
    sessions::Revoked,
    shared::Shared,
    stats::Tally,
};

/// Documents in one answer of the server, where a list may be longer than its own habit of a hundred: each further answer is a round
/// trip.
pub(crate) const ANSWER: u32 = 1_000;

/// How long what was counted in memory may take to be written when the process ends: it is to be gone within ten seconds, of which
/// requests and background work may take eight.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the store decides by; the same in every process of one deployment, but for the feed model.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Followers at which an account becomes an outlier.
    pub celebrity_threshold: i64,
    /// How many accounts one may follow.
    pub follow_limit: i64,
    /// How this process delivers new posts.
    pub feed_model: FeedModel,
}

impl Default for Settings {
    fn default() -> Self {
        Self { celebrity_threshold: 10_000, follow_limit: 7_500, feed_model: FeedModel::Hybrid }
    }
}

/// The database, its settings and what this process remembers of it. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    db: Database,
    settings: Settings,
    wake: Wake,
    shared: Shared,
    follows: Gather<NewFollow, Written>,
    standings: Gather<Written, Standing>,
    wishes: Gather<Wish, Granted>,
    comments: Gather<CommentDoc, comments::Written>,
    revoked: Revoked,
    deleting: Deleting,
    tally: Tally,
}

/// Hints that there is background work. A hint may be lost: polling finds what it missed.
#[derive(Debug, Default)]
pub struct Wake {
    /// Children were left pending.
    pub applier: Notify,
    /// The applier has just applied something.
    pub applied: Notify,
    /// Posts are to be delivered.
    pub deliverer: Notify,
    /// Follows are to be merged.
    pub merger: Notify,
    /// Jobs are to be done.
    pub jobs: Notify,
    /// What the process remembers of others should be read again now.
    pub refresher: Notify,
    /// Much is counted that is not in the database yet.
    pub stats: Notify,
    /// Accounts were told something.
    pub notices: Notify,
}

impl Store {
    /// Connects to `database` at `uri` and asks it once whether it is there.
    ///
    /// What is acknowledged is written with `w: majority, j: true`. Reads go to the primary, so that a read that follows a write
    /// sees it. A server that does not answer within two seconds is a fault ([`Error::Unavailable`]), not a reason to wait.
    pub async fn connect(uri: &str, database: &str, settings: Settings) -> Result<Self> {
        let mut options = ClientOptions::parse(uri).await?;
        options.app_name = Some("rookery".to_owned());
        options.server_selection_timeout = Some(Duration::from_secs(2));
        options.connect_timeout = Some(Duration::from_secs(2));
        options.max_pool_size.get_or_insert(128);
        options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
        let client = Client::with_options(options)?;
        let db = client.database(database);
        db.run_command(doc! { "ping": 1 }).await?;
        let inner = Arc::new_cyclic(|weak| Inner {
            client,
            db,
            settings,
            wake: Wake::default(),
            shared: Shared::default(),
            revoked: Revoked::default(),
            deleting: Deleting::default(),
            tally: Tally::default(),
            follows: gather(weak, |store, batch| async move { store.write_follows(batch).await }),
            standings: gather(weak, |store, batch| async move { store.standings(batch).await }),
            wishes: gather(weak, |store, batch| async move { store.grant(batch).await }),
            comments: gather(weak, |store, batch| async move { store.write_and_look(batch).await }),
        });
        Ok(Self { inner })
    }

    /// The settings given at the start.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The hints for background work.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.inner.wake
    }

    /// What this process remembers for all readers.
    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Where concurrent follows meet to be written together.
    pub(crate) fn gathered_follows(&self) -> &Gather<NewFollow, Written> {
        &self.inner.follows
    }

    /// Where concurrent follows meet to be checked together.
    pub(crate) fn gathered_standings(&self) -> &Gather<Written, Standing> {
        &self.inner.standings
    }

    /// Where concurrent reactions meet to be written and checked together.
    pub(crate) fn gathered_wishes(&self) -> &Gather<Wish, Granted> {
        &self.inner.wishes
    }

    /// Where concurrent comments meet to be written and looked after together.
    pub(crate) fn gathered_comments(&self) -> &Gather<CommentDoc, comments::Written> {
        &self.inner.comments
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        self.inner.db.run_command(doc! { "ping": 1 }).await?;
        Ok(())
    }

    /// Drops the whole database. For tests.
    pub async fn drop_database(&self) -> Result<()> {
        Ok(self.inner.db.drop().await?)
    }

    /// Adds to the database what was counted in memory, and closes every connection. Stop the workers first.
    pub async fn close(&self) {
        match tokio::time::timeout(LAST_WORDS, self.flush_stats()).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => tracing::warn!(error = &fault as &dyn std::error::Error, "the last statistics were not written"),
            Err(_) => tracing::warn!("the last statistics were not written in time"),
        }
        self.inner.client.clone().shutdown().immediate(true).await;
    }

    /// What this process remembers of ended sessions.
    pub(crate) fn revoked(&self) -> &Revoked {
        &self.inner.revoked
    }

    /// What this process remembers of accounts that are being deleted.
    pub(crate) fn deleting(&self) -> &Deleting {
        &self.inner.deleting
    }

    /// What this process has counted and not added to the database yet.
    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    pub(crate) fn db(&self) -> &Database {
        &self.inner.db
    }

    /// A collection by the name constant of [`crate::collections`].
    pub(crate) fn coll<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.inner.db.collection(name)
    }

    /// Begins a transaction. Commit it with [`commit`]; one that is dropped is aborted.
    ///
    /// Used only where documents must change together and no other way holds; each place says why.
    pub(crate) async fn begin(&self) -> Result<ClientSession> {
        let mut session = self.inner.client.start_session().await?;
        session.start_transaction().await?;
        Ok(session)
    }
}

/// A gathering place whose batches need the store. It holds the store weakly: the store's end is its end.
fn gather<I, O, F>(weak: &Weak<Inner>, run: impl Fn(Store, Vec<I>) -> F + Send + 'static) -> Gather<I, O>
where
    I: Send + 'static,
    O: Send + 'static,
    F: Future<Output = Result<Vec<O>>> + Send,
{
    let weak = Weak::clone(weak);
    Gather::start(move |batch| {
        let store = weak.upgrade().map(|inner| run(Store { inner }, batch));
        async move {
            match store {
                Some(run) => run.await,
                None => Err(Error::Unavailable(ErrorKind::Shutdown.into())),
            }
        }
    })
}

/// Commits. An unknown result is asked for again: a commit that was done is done once.
pub(crate) async fn commit(mut session: ClientSession) -> Result<()> {
    let mut tries = 0;
    loop {
        match session.commit_transaction().await {
            Err(error) if error.contains_label("UnknownTransactionCommitResult") && tries < 3 => tries += 1,
            other => return Ok(other?),
        }
    }
}

/// Runs a transaction again as long as it meets write conflicts, with a growing pause; for work that must be done now (a block's
/// sweep, a withdrawal), not for work that the applier may do later. Gives up with the conflict after about two seconds.
pub(crate) async fn until_no_conflict<T, F: Future<Output = Result<T>>>(mut once: impl FnMut() -> F) -> Result<T> {
    let mut pause_ms = 2;
    loop {
        match once().await {
            Err(Error::Conflict(_)) if pause_ms <= 512 => {
                // A little randomness, so that two that met do not meet again.
                let jitter = u64::from(uuid::Uuid::new_v4().as_bytes()[0]) % (pause_ms + 1);
                tokio::time::sleep(Duration::from_millis(pause_ms + jitter)).await;
                pause_ms *= 2;
            }
            other => return other,
        }
    }
}

/// Now, cut to milliseconds.
#[must_use]
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A new id, later than every other that this process made.
#[must_use]
pub fn new_id() -> uuid::Uuid {
    uuid::Uuid::now_v7()
}

/// A new id of this time, later than those of earlier milliseconds.
pub(crate) fn id_at(at: Timestamp) -> uuid::Uuid {
    let mut random = [0; 10];
    random.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..10]);
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(at.as_millis()).unwrap_or_default(), &random).into_uuid()
}

/// The form in which an id stands in a document: Binary subtype 4. (A bare `uuid::Uuid` would become subtype 0 or a string.)
pub(crate) fn b(id: impl Into<uuid::Uuid>) -> bson::Uuid {
    bson::Uuid::from_uuid_1(id.into())
}

/// A point in time as a document holds it.
pub(crate) fn date(at: Timestamp) -> bson::DateTime {
    bson::DateTime::from_millis(at.as_millis())
}

/// A point in time out of a document.
pub(crate) fn timestamp(at: bson::DateTime) -> Timestamp {
    Timestamp::from_millis(at.timestamp_millis())
}
