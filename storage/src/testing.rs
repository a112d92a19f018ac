//! Test support: a real database for every test of every crate.
//!
//! One server per test process, started by the first test that asks for it, and a fresh, migrated database per call, so that tests
//! run side by side and in any order. The server belongs to the process and not to a test's runtime; it and its folder are gone
//! when the process has ended, in whatever way. With `ROOKERY_TEST_MONGODB_URI` set, that server is used instead.
//!
//! Everything here panics where it cannot do what it says: a test without a database has failed.

use std::{
    fs::DirBuilder,
    os::unix::{fs::DirBuilderExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use bson::doc;
use mongodb::Client;
use rookery_domain::{Handle, UserId};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::OnceCell;

use crate::{
    Settings, Store,
    embedded::{Embedded, EmbeddedOptions},
    new_id,
    users::{Created, NewUser},
};

/// Tests hold little data, and several test processes may run at a time.
const CACHE_MB: u32 = 256;

static SHARED: OnceCell<SharedServer> = OnceCell::const_new();

/// The server that all tests of this process share.
enum SharedServer {
    Own(OwnServer),
    Given(String),
}

impl SharedServer {
    async fn get() -> &'static Self {
        SHARED
            .get_or_init(|| async {
                match std::env::var("ROOKERY_TEST_MONGODB_URI") {
                    Ok(uri) => Self::Given(uri),
                    Err(_) => Self::Own(OwnServer::start().await),
                }
            })
            .await
    }

    fn uri(&self) -> &str {
        match self {
            Self::Own(server) => server.uri(),
            Self::Given(uri) => uri,
        }
    }
}

/// A fresh, migrated database, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    store: Store,
    uri: String,
    name: String,
}

impl TestDatabase {
    /// A database with the default settings on the shared server.
    pub async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    /// A database with these settings on the shared server.
    pub async fn with(settings: Settings) -> Self {
        Self::at(SharedServer::get().await.uri(), settings).await
    }

    async fn at(uri: &str, settings: Settings) -> Self {
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let store = Store::connect(uri, &name, settings).await.expect("the test server answers");
        crate::migrations::migrate(&store).await.expect("a new database can be migrated");
        Self { store, uri: uri.to_owned(), name }
    }

    /// The store on this database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The connection string of the server.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another store on the same database, with connections, a lease owner and a memory of its own: as a second process has it.
    pub async fn second_store(&self) -> Store {
        Store::connect(&self.uri, &self.name, *self.store.settings()).await.expect("the test server answers")
    }
}

impl Drop for TestDatabase {
    /// In a thread and a runtime of its own, since dropping cannot await, and the test's own runtime may be about to end.
    fn drop(&mut self) {
        let (uri, name) = (self.uri.clone(), self.name.clone());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = Client::with_uri_str(uri).await?;
                client.database(&name).drop().await?;
                client.shutdown().immediate(true).await;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        });
        if !matches!(dropping.join(), Ok(Ok(()))) {
            tracing::warn!(database = self.name, "a test database was not dropped");
        }
    }
}

/// A server for one test alone: for tests that kill it.
#[derive(Debug)]
pub struct OwnServer {
    // Dropped in this order: the server stops, then its folder goes.
    embedded: Embedded,
    folder: ScratchFolder,
}

impl OwnServer {
    /// Starts a server in a folder of its own.
    pub async fn start() -> Self {
        let folder = ScratchFolder::create();
        let options = EmbeddedOptions { data_dir: folder.path.clone(), cache_mb: CACHE_MB };
        let embedded = Embedded::start(options).await.unwrap_or_else(|error| panic!("no database for the tests: {error}"));
        Self { embedded, folder }
    }

    /// The connection string, which stays good when the server is killed.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.embedded.uri()
    }

    /// The folder with its data and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// The process id of the server, or nothing between its death and its restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.embedded.pid()
    }

    /// A fresh, migrated database on it.
    pub async fn database(&self, settings: Settings) -> TestDatabase {
        TestDatabase::at(self.uri(), settings).await
    }

    /// Has the server end transactions that are open for longer than `limit` (a minute unless it is told): a process that is killed in
    /// one leaves it open, and whoever writes one of its documents waits for its end. Forgotten when the server restarts.
    pub async fn end_transactions_after(&self, limit: Duration) {
        let client = Client::with_uri_str(self.uri()).await.expect("the server's own connection string");
        let seconds = i32::try_from(limit.as_secs()).expect("a short time");
        let limit = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": seconds };
        client.database("admin").run_command(limit).await.expect("the server takes the parameter");
        client.shutdown().immediate(true).await;
    }

    /// Kills the server with `SIGKILL` and returns at once, with the id of the process that was. It is restarted by itself.
    pub fn kill(&self) -> u32 {
        let id = self.embedded.pid().expect("the server runs");
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("the server can be killed");
        id
    }

    /// Waits until the server runs again after [`kill`](Self::kill).
    pub async fn restarted_after(&self, killed: u32) {
        self.embedded.restarted_after(killed).await;
    }
}

/// A folder under the system's temporary folder, removed with this value or when the process ends, in whatever way.
#[derive(Debug)]
struct ScratchFolder {
    path: PathBuf,
    /// A shell that waits for the end of its input, that is of us, and then removes the folder. A value in a `static` is never
    /// dropped, so somebody else must do it. Not under `/dev/shm`: what is tested is also that data is on the disk.
    janitor: Child,
}

/// Tries for a while, for a server that is being killed may still be writing.
const JANITOR: &str = r#"cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 0.2; done"#;

impl ScratchFolder {
    fn create() -> Self {
        let path = std::env::temp_dir().join(format!("rookery-test-{}", uuid::Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path).expect("a folder can be made in the temporary folder");
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        Self { path, janitor }
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        if self.janitor.wait().is_err() {
            tracing::warn!(folder = %self.path.display(), "a test folder may not have been removed");
        }
    }
}

/// An account with this id whose handle and name say nothing, made at the time of its id.
#[must_use]
pub fn somebody(id: UserId) -> NewUser {
    NewUser {
        id,
        handle: Handle::parse(&id.0.simple().to_string()[2..]).expect("thirty hexadecimal digits"),
        email: None,
        display_name: "Somebody".to_owned(),
        password_hash: None,
        now: id.time(),
    }
}

/// Makes [`somebody`] with this id.
pub async fn user_with(store: &Store, id: UserId) -> UserId {
    let created = store.create_user(somebody(id)).await.expect("the database takes an account");
    assert!(matches!(created, Created::Now(_)), "{created:?}");
    id
}

/// Makes [`somebody`] new.
pub async fn user(store: &Store) -> UserId {
    user_with(store, UserId(new_id())).await
}

/// All orders of two sequences, each in its own order.
#[must_use]
pub fn merges<T: Copy>(one: &[T], other: &[T]) -> Vec<Vec<T>> {
    match (one.split_first(), other.split_first()) {
        (None, _) => vec![other.to_vec()],
        (_, None) => vec![one.to_vec()],
        (Some((a, rest)), Some((c, others))) => {
            let first = merges(rest, other).into_iter().map(|tail| [vec![*a], tail].concat());
            first.chain(merges(one, others).into_iter().map(|tail| [vec![*c], tail].concat())).collect()
        }
    }
}
