//! Which database there is on this machine, and how each kind is called.
//!
//! The two kinds differ in their flags and in who makes the replica set: `mongod` must be told, `secantusd-rs` is born one.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bson::{Bson, Document, doc};
use mongodb::{
    Client,
    error::{Error as DriverError, ErrorKind},
    options::ClientOptions,
};

use crate::{Error, Result};

/// The version of `secantus-mdb` that `make setup` installs, and the name of its folder. Its files are tied to it.
pub const SECANTUS_VERSION: &str = "0.5.3-beta.196";

/// Our replica set under `mongod`.
const REPLICA_SET: &str = "rookery";

/// What was found.
#[derive(Debug, Clone)]
pub(super) enum Server {
    Mongod(PathBuf),
    Secantus(PathBuf),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Mongod(path) | Self::Secantus(path)) = self;
        write!(f, "{}", path.display())
    }
}

impl Server {
    /// Looks for a database on this machine, in the order that the module above tells.
    pub(super) fn find() -> Result<Self> {
        let cache = env::var_os("XDG_CACHE_HOME")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        Self::find_in(env::var_os("PATH").as_deref(), cache.as_deref())
    }

    fn find_in(path: Option<&OsStr>, cache: Option<&Path>) -> Result<Self> {
        if let Some(mongod) = on_path(path, "mongod") {
            return Ok(Self::Mongod(mongod));
        }
        let tool = || {
            let bin = cache?.join("rookery").join(format!("secantus-mdb-{SECANTUS_VERSION}")).join("bin").join("secantusd-rs");
            is_program(&bin).then_some(bin)
        };
        on_path(path, "secantusd-rs").or_else(tool).map(Self::Secantus).ok_or_else(|| {
            Error::Embedded(
                "no database is installed: run `make setup` once, or set ROOKERY_MONGODB_URI to a MongoDB that runs".to_owned(),
            )
        })
    }

    /// The program and its arguments.
    pub(super) fn command_line(&self, port: u16, files: &Path, cache_mb: u32) -> Vec<OsString> {
        let port = port.to_string();
        let mut line: Vec<OsString> = Vec::new();
        match self {
            Self::Mongod(mongod) => {
                line.push(mongod.into());
                line.push("--dbpath".into());
                line.push(files.into());
                line.extend(
                    ["--port", &port, "--bind_ip", "127.0.0.1", "--nounixsocket", "--replSet", REPLICA_SET].map(Into::into),
                );
                // The least it takes.
                let cache_gb = (f64::from(cache_mb) / 1024.0).max(0.25);
                line.extend(["--wiredTigerCacheSizeGB", &format!("{cache_gb:.2}")].map(Into::into));
                // Its own choice is a twentieth of the disk.
                line.extend(["--oplogSize", "512", "--quiet"].map(Into::into));
            }
            Self::Secantus(secantusd) => {
                line.push(secantusd.into());
                line.push("--storage-path".into());
                line.push(files.into());
                line.extend(["--host", "127.0.0.1", "--port", &port].map(Into::into));
                line.extend(["--cache-size", &format!("{cache_mb}M")].map(Into::into));
                // Without the first, `kill -9` loses acknowledged writes whatever the write concern; with longer checkpoints a
                // restart replays for longer; the log is allocated in full, so its size is that of an empty database.
                line.extend(["--sync-on-commit", "--checkpoint-seconds", "5", "--log-file-max", "64MB"].map(Into::into));
            }
        }
        line
    }

    /// The connection string for everybody. By the name of the replica set, so that the driver waits for a primary.
    pub(super) fn uri(&self, port: u16) -> String {
        let name = match self {
            Self::Mongod(_) => REPLICA_SET,
            Self::Secantus(_) => "secantus",
        };
        format!("mongodb://127.0.0.1:{port}/?replicaSet={name}")
    }
}

/// Makes a `mongod` a replica set of one, or tells one that is about its new port. Whoever connects by the name of the set waits
/// until it has a primary.
pub(super) async fn initiate(port: u16) -> Result<()> {
    const NOT_YET_INITIALIZED: i32 = 94;
    let host = format!("127.0.0.1:{port}");
    // Direct, because until it is a set there is no primary to wait for.
    let mut options = ClientOptions::parse(format!("mongodb://{host}/?directConnection=true")).await?;
    options.server_selection_timeout = Some(Duration::from_secs(10));
    let client = Client::with_options(options)?;
    let admin = client.database("admin");
    let members = doc! { "_id": 0, "host": &host };
    match admin.run_command(doc! { "replSetGetConfig": 1 }).await {
        Err(error) if code(&error) == Some(NOT_YET_INITIALIZED) => {
            let config = doc! { "_id": REPLICA_SET, "members": [members] };
            admin.run_command(doc! { "replSetInitiate": config }).await?;
        }
        Ok(answer) => {
            let mut config = answer.get_document("config").cloned().unwrap_or_default();
            if member_host(&config) != Some(&host) {
                let version = config.get("version").and_then(Bson::as_i32).unwrap_or(1);
                config.insert("version", version + 1);
                config.insert("members", vec![members]);
                // By force: a set whose only member is not at its address has no primary that could be asked.
                admin.run_command(doc! { "replSetReconfig": config, "force": true }).await?;
            }
        }
        Err(error) => return Err(error.into()),
    }
    client.shutdown().immediate(true).await;
    Ok(())
}

fn member_host(config: &Document) -> Option<&str> {
    config.get_array("members").ok()?.first()?.as_document()?.get_str("host").ok()
}

fn code(error: &DriverError) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

/// The first program of that name on the `PATH`.
pub(super) fn on_path(path: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    env::split_paths(path?).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;

    use super::*;

    /// A folder with an executable file of that name in it.
    fn folder_with(program: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(program);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn a_mongod_on_the_path_is_taken_first() {
        let (mongod, secantus) = (folder_with("mongod"), folder_with("secantusd-rs"));
        let path = env::join_paths([secantus.path(), mongod.path()]).unwrap();
        assert!(matches!(Server::find_in(Some(&path), None).unwrap(), Server::Mongod(_)));
    }

    #[test]
    fn the_path_comes_before_the_tool_folder_and_the_tool_folder_before_giving_up() {
        let on_path = folder_with("secantusd-rs");
        let cache = folder_with(&format!("rookery/secantus-mdb-{SECANTUS_VERSION}/bin/secantusd-rs"));
        let found = Server::find_in(Some(on_path.path().as_os_str()), Some(cache.path())).unwrap();
        assert!(found.to_string().starts_with(on_path.path().to_str().unwrap()));
        let found = Server::find_in(Some(OsStr::new("/nowhere")), Some(cache.path())).unwrap();
        assert!(found.to_string().starts_with(cache.path().to_str().unwrap()));
    }

    #[test]
    fn a_machine_without_a_database_is_told_the_set_up_command() {
        let error = Server::find_in(Some(OsStr::new("/nowhere")), Some(Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains("make setup"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_run_is_not_a_database() {
        let folder = folder_with("mongod");
        fs::set_permissions(folder.path().join("mongod"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Server::find_in(Some(folder.path().as_os_str()), None).is_err());
    }
}
