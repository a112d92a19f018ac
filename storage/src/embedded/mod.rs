//! Finds and runs the database for development and tests.
//!
//! Production brings its own MongoDB; a fresh machine has none, and Debian packages none. So this module looks for one, in order:
//! a `mongod` on the `PATH`; `secantusd-rs`, a MongoDB-wire server over WiredTiger, on the `PATH` or in the tool folder that
//! `make setup` fills; otherwise it fails and names that command. Whatever it finds runs as a child process on a private port of
//! the loopback interface, as a replica set of one (transactions and change streams need one), and acknowledges only what is on
//! the disk.
//!
//! A child must not outlive its parent, however the parent ends: see [`supervisor`] for how. The data folder is locked, so that a
//! second start says what is wrong instead of fighting over the files.

mod server;
mod supervisor;

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

use bson::doc;
use mongodb::{Client, options::ClientOptions};
use tokio::sync::watch;

use self::{
    server::Server,
    supervisor::{State, Supervisor},
};
use crate::{Error, Result};

pub use self::server::SECANTUS_VERSION;

/// How many times in a row the database may end before it first answers. More than one, because a predecessor that is just being
/// killed may hold the data files for a moment; few, because a broken database will not mend itself.
const DEATHS_AT_START: u32 = 5;

/// How long the database may replay its journal. A minute of bulk load at full speed takes a few seconds with the checkpoints
/// asked for here; whoever is not ready after this long is hung.
const START_LIMIT: Duration = Duration::from_mins(10);

/// Where and how large the embedded database is.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The folder for everything of it: `mongo/` (the data), `mongo.log` and `mongo.lock`. Made if it is missing.
    pub data_dir: PathBuf,
    /// Memory for the cache of the storage engine, in MiB. `mongod` takes at least 256.
    pub cache_mb: u32,
}

impl EmbeddedOptions {
    /// Enough for a million edges with their indexes at hand, and little enough for a laptop.
    pub const DEFAULT_CACHE_MB: u32 = 512;

    /// A database under `data_dir` with the default cache.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), cache_mb: Self::DEFAULT_CACHE_MB }
    }
}

/// A running database, restarted when it dies, ended when this is dropped or when this process ends in any way.
///
/// Dropping it stops the database cleanly and blocks until that is done, for ten seconds at most; [`shutdown`](Self::shutdown) does
/// the same without blocking a thread of the runtime. It is tied to no runtime: it may be started in one and used in another.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    state: watch::Receiver<State>,
    /// Dropped to ask the supervisor to stop.
    stop: Option<mpsc::Sender<()>>,
    supervisor: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the database and returns when it answers. After a crash that takes as long as it replays its journal; every two
    /// seconds of waiting are logged.
    ///
    /// # Errors
    /// [`Error::Embedded`], with a text for the operator: no database is installed, the data folder is in use by another process,
    /// `setpriv` is missing, or the database ends at once (with the end of its log).
    pub async fn start(options: EmbeddedOptions) -> Result<Self> {
        let server = Server::find()?;
        let data_dir = std::path::absolute(&options.data_dir).map_err(|e| cannot("use", &options.data_dir, &e))?;
        let files = data_dir.join("mongo");
        // For this user alone: the database asks nobody for a password.
        DirBuilder::new().recursive(true).mode(0o700).create(&files).map_err(|e| cannot("create", &files, &e))?;
        let port = free_port()?;
        let uri = server.uri(port);
        let lock = lock(&data_dir, &uri)?;
        let log = data_dir.join("mongo.log");

        let (state, seen) = watch::channel(State::default());
        let (stop, stopped) = mpsc::channel();
        let program = server.command_line(port, &files, options.cache_mb);
        let supervisor = Supervisor::new(program, port, files, log.clone(), lock, state, stopped)?;
        let thread = std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || supervisor.run())
            .map_err(|e| Error::Embedded(format!("cannot start a thread for the database: {e}")))?;
        let mut embedded = Self { uri, state: seen, stop: Some(stop), supervisor: Some(thread) };

        let settled = embedded.state.wait_for(|state| state.listening || state.deaths >= DEATHS_AT_START);
        // An error of the channel itself means that the supervisor is gone: as bad as not listening.
        let listening = match tokio::time::timeout(START_LIMIT, settled).await {
            Ok(state) => state.is_ok_and(|state| state.listening),
            Err(_) => false,
        };
        if !listening {
            embedded.shutdown().await;
            let end = supervisor::end_of(&log);
            return Err(Error::Embedded(format!("the database {server} does not start; {} ends with:\n{end}", log.display())));
        }
        if let Server::Mongod(_) = server {
            server::initiate(port).await?;
        }
        // Through the very string that everybody will use, so that it waits for a primary.
        let client = Client::with_options(ClientOptions::parse(embedded.uri()).await?)?;
        client.database("admin").run_command(doc! { "ping": 1 }).await?;
        client.shutdown().immediate(true).await;
        Ok(embedded)
    }

    /// The connection string: good for as long as this lives, also after a restart of the database.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The process id of the database, or nothing between its death and its restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state.borrow().pid
    }

    /// Waits until the database runs under another process id than `pid` and takes connections again.
    pub async fn restarted_after(&self, pid: u32) {
        let mut state = self.state.clone();
        // The sender lives as long as the supervisor, which lives as long as `self`.
        let _ = state.wait_for(|state| state.listening && state.pid.is_some_and(|now| now != pid)).await;
    }

    /// Stops the database: asks it to, waits for up to ten seconds, then kills it.
    pub async fn shutdown(mut self) {
        self.stop = None;
        // The supervisor's end closes the channel.
        while self.state.changed().await.is_ok() {}
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(supervisor) = self.supervisor.take()
            && supervisor.join().is_err()
        {
            tracing::error!("the supervisor of the database had panicked");
        }
    }
}

/// Takes the data folder for this process, and leaves there who we are, for whoever comes second. The lock goes with the file
/// handle, hence with the process.
fn lock(data_dir: &Path, uri: &str) -> Result<File> {
    let path = data_dir.join("mongo.lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| cannot("open", &path, &e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            let (id, uri) = holder.trim_end().split_once('\n').unwrap_or_default();
            return Err(Error::Embedded(format!(
                "the data folder {} is in use by another process (id {id}): stop that, use another folder, or share its database \
                 with ROOKERY_MONGODB_URI='{uri}'",
                data_dir.display(),
            )));
        }
        Err(TryLockError::Error(e)) => return Err(cannot("lock", &path, &e)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}\n{uri}", std::process::id())).map_err(|e| cannot("write", &path, &e))?;
    Ok(file)
}

/// A port of the loopback interface that nobody listens on.
///
/// Below the range from which Linux takes the ports of outgoing connections (32768 and up): there, while the database is down, a
/// client's connection could be given this very port, or even connect to itself, and the restart would find it taken.
fn free_port() -> Result<u16> {
    const LOWEST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    // At random, since servers that start at the same time would otherwise all try the same one.
    let random = uuid::Uuid::new_v4().into_bytes();
    let first = u16::from_le_bytes([random[0], random[1]]) % COUNT;
    (0..COUNT)
        .map(|i| LOWEST + (first + i) % COUNT)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or_else(|| Error::Embedded("no port is free for the database".to_owned()))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Embedded(format!("cannot {what} {}: {error}", path.display()))
}
