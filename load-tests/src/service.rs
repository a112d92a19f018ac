//! The programs a run starts for itself: a database, `rookery` and its import, all ended with the run.
//!
//! A run that starts its own service also starts the database under it, so that it knows the address by which the bare driver reaches
//! the very same server. Children are in process groups of their own: Ctrl-C in a terminal reaches this program alone, which ends its
//! loops, reports, and then ends them.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mongodb::{Client, bson::doc, options::ClientOptions};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};
use uuid::Uuid;

use crate::{client::Api, loops::Stop};

/// The name of the database in a server of our own.
pub(crate) const DATABASE: &str = "rookery";

/// The password of every account that a run uses. It protects nothing: the service is on loopback and lives as long as the run.
pub(crate) const PASSWORD: &str = "a load test, nothing else";

/// How long a program may take to start; a database that replays a long log takes most of it.
const START: Duration = Duration::from_mins(1);

/// How often a condition is looked at that something waits for.
const POLL: Duration = Duration::from_millis(20);

/// The `rookery` program: the one given, else the one built beside this program.
///
/// # Errors
/// There is none; says what to build.
pub(crate) fn find_rookery(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("rookery"),
    };
    ensure!(
        path.is_file(),
        "there is no `rookery` at {}: build it (`cargo build --workspace`) or name it by --rookery",
        path.display()
    );
    Ok(path)
}

/// Runs `rookery migrate` and `rookery import --edges`, which shows its progress on this terminal. `environment` says which database.
/// With a password every account gets it; without, `--password-stdin` is not given and none has one.
pub(crate) async fn import(
    rookery: &Path,
    environment: &[(&str, String)],
    edges: &Path,
    mutual: bool,
    password: Option<&str>,
) -> Result<()> {
    let command = |arguments: &[&str]| {
        let mut command = Command::new(rookery);
        // What it prints is progress, not this program's report.
        command.args(arguments).envs(environment.iter().cloned()).stdout(Stdio::from(std::io::stderr())).kill_on_drop(true);
        command
    };
    let status = command(&["migrate"]).stdin(Stdio::null()).status().await.context("cannot run `rookery migrate`")?;
    ensure!(status.success(), "`rookery migrate` failed ({status})");

    let mut import = command(&["import", "--edges"]);
    import.arg(edges).args(mutual.then_some("--mutual")).args(password.map(|_| "--password-stdin"));
    import.stdin(if password.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = import.spawn().context("cannot run `rookery import`")?;
    if let (Some(mut input), Some(password)) = (child.stdin.take(), password) {
        input.write_all(format!("{password}\n").as_bytes()).await.context("`rookery import` does not take the password")?;
    }
    let status = child.wait().await?;
    ensure!(status.success(), "`rookery import` failed ({status})");
    Ok(())
}

/// A database server of our own.
#[derive(Debug)]
pub(crate) struct DatabaseServer {
    child: Child,
    uri: String,
}

impl DatabaseServer {
    /// Starts one with its data under `data_dir/mongo`: `mongod` on the PATH, else `secantusd-rs` on the PATH or in the tool folder.
    pub(crate) async fn start(data_dir: &Path) -> Result<Self> {
        let folder = data_dir.join("mongo");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = data_dir.join("database.log");
        if let Some(mongod) = on_path("mongod") {
            return Self::start_mongod(&mongod, &folder, &log).await;
        }
        let secantusd = on_path("secantusd-rs").or_else(in_tool_folder).context(
            "there is no database to start: neither `mongod` nor `secantusd-rs` is on the PATH or in the tool folder (`make setup` installs one)",
        )?;
        let mut command = Command::new(secantusd);
        command.args(["--port", "0", "--sync-on-commit", "--checkpoint-seconds", "5", "--storage-path"]).arg(&folder);
        let mut child = start(command, &log)?;
        let port = printed_port(&mut child, &log, "listening on 127.0.0.1:").await.context("the database has not started")?;
        Ok(Self { child, uri: uri(port) })
    }

    async fn start_mongod(mongod: &Path, folder: &Path, log: &Path) -> Result<Self> {
        // mongod does not pick a port itself. The listener is closed at once, so the port is free but for a race with a stranger.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(mongod);
        command
            .args(["--bind_ip", "127.0.0.1", "--replSet", "rookery", "--port"])
            .arg(port.to_string())
            .arg("--dbpath")
            .arg(folder);
        let mut child = start(command, log)?;
        let uri = uri(port);
        let mut options = ClientOptions::parse(&uri).await?;
        options.server_selection_timeout = Some(START);
        let admin = Client::with_options(options)?.database("admin");
        let member = doc! { "_id": 0, "host": format!("127.0.0.1:{port}") };
        let began = Instant::now();
        let initiated = admin.run_command(doc! { "replSetInitiate": { "_id": "rookery", "members": [member] } }).await;
        // A folder of an earlier run has been initiated: the primary says so or not.
        while !admin.run_command(doc! { "hello": 1 }).await?.get_bool("isWritablePrimary").unwrap_or(false) {
            if child.try_wait()?.is_some() || began.elapsed() > START {
                bail!("mongod has not become a primary ({initiated:?}){}", tail(log));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(Self { child, uri })
    }

    /// Where it is.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// Ends it and waits for that.
    pub(crate) async fn stop(mut self) -> Result<()> {
        terminate(&mut self.child).await.map(drop)
    }
}

/// The environment by which every `rookery` of a run finds the same database, with cheap password hashes and without rate limits.
pub(crate) fn environment(data_dir: &Path, database: &DatabaseServer, celebrity_threshold: u64) -> Vec<(&'static str, String)> {
    let seed: Vec<u8> = [Uuid::new_v4(), Uuid::new_v4()].iter().flat_map(|id| id.into_bytes()).collect();
    vec![
        ("ROOKERY_LISTEN", "127.0.0.1:0".to_owned()),
        ("ROOKERY_DATA_DIR", data_dir.to_string_lossy().into_owned()),
        ("ROOKERY_MONGODB_URI", database.uri().to_owned()),
        ("ROOKERY_DATABASE", DATABASE.to_owned()),
        ("ROOKERY_SIGNING_KEY", STANDARD.encode(seed)),
        ("ROOKERY_CELEBRITY_THRESHOLD", celebrity_threshold.to_string()),
        ("ROOKERY_PASSWORD_HASH_COST", "test".to_owned()),
        ("ROOKERY_RATE_LIMIT", "off".to_owned()),
        ("ROOKERY_BENCH", "on".to_owned()),
    ]
}

/// A `rookery serve` of our own.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    base_url: String,
    process: u32,
}

impl Service {
    /// Starts it with its log in `logs`, waits for the port it prints and until it is ready.
    pub(crate) async fn start(rookery: &Path, environment: &[(&str, String)], logs: &Path) -> Result<Self> {
        let log = logs.join("service.log");
        let mut command = Command::new(rookery);
        command.arg("serve").envs(environment.iter().cloned());
        let mut child = start(command, &log)?;
        let port = printed_port(&mut child, &log, "http://127.0.0.1:").await.context("the service has not started")?;
        let base_url = format!("http://127.0.0.1:{port}");
        let api = Api::new(&base_url)?;
        let began = Instant::now();
        while !api.is_ready().await {
            if child.try_wait()?.is_some() || began.elapsed() > START {
                bail!("the service has not become ready{}", tail(&log));
            }
            tokio::time::sleep(POLL).await;
        }
        let process = child.id().context("the service has ended")?;
        Ok(Self { child, base_url, process })
    }

    /// Where it is.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Its process number.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Ends it as an operator would and waits for that.
    ///
    /// # Errors
    /// It did not end by itself, or not well.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let status = terminate(&mut self.child).await?;
        ensure!(status.success(), "the service did not end well ({status})");
        Ok(())
    }
}

/// Bytes of memory that a process holds (resident set), as Linux counts them.
pub(crate) fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1_024)
}

/// Runs `rookery verify` on this terminal and gives whether it found no drift.
pub(crate) async fn verify(rookery: &Path, environment: &[(&str, String)], stop: &Stop) -> Result<bool> {
    let mut command = Command::new(rookery);
    command
        .arg("verify")
        .envs(environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .kill_on_drop(true);
    tokio::select! {
        status = command.status() => Ok(status.context("cannot run `rookery verify`")?.success()),
        () = stop.wait() => bail!("`rookery verify` was interrupted"),
    }
}

/// One address, so that the driver does not follow what the server calls itself.
fn uri(port: u16) -> String {
    format!("mongodb://127.0.0.1:{port}/?directConnection=true")
}

/// Starts a program with all it prints in `log`.
fn start(mut command: Command, log: &Path) -> Result<Child> {
    let output = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output).process_group(0).kill_on_drop(true);
    command.spawn().with_context(|| format!("cannot start {program}"))
}

/// Waits until the program prints `before` and a port after it.
async fn printed_port(child: &mut Child, log: &Path, before: &str) -> Result<u16> {
    let began = Instant::now();
    loop {
        if let Some(port) = port_after(&fs::read_to_string(log)?, before) {
            return Ok(port);
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended ({status}) before it printed its address{}", tail(log));
        }
        if began.elapsed() > START {
            bail!("it has not printed `{before}PORT` in {} s{}", START.as_secs(), tail(log));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The number after `before`; none while the line is not complete.
fn port_after(text: &str, before: &str) -> Option<u16> {
    text.match_indices(before).find_map(|(at, _)| {
        let rest = &text[at + before.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        rest[..end].parse().ok().filter(|port| *port != 0)
    })
}

/// The end of a log, for a message.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    format!(". Its last lines:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
}

/// Asks a child to end, and kills it where it has not after 15 s (the service promises 10).
async fn terminate(child: &mut Child) -> Result<ExitStatus> {
    if let Some(process) = child.id() {
        // Signals other than KILL need unsafe code or a crate; a shell has them built in.
        Command::new("sh").args(["-c", &format!("kill -TERM {process}")]).status().await.context("cannot run `sh`")?;
    }
    if let Ok(status) = tokio::time::timeout(Duration::from_secs(15), child.wait()).await {
        return Ok(status?);
    }
    child.kill().await?;
    bail!("a program did not end within 15 s and was killed")
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// `secantusd-rs` as the set-up installs it for all clones; of several versions the last by name.
fn in_tool_folder() -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    let folders = fs::read_dir(cache.join("rookery")).ok()?.filter_map(Result::ok);
    let installed = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("secantus-mdb-"));
    installed.map(|folder| folder.path().join("bin/secantusd-rs")).filter(|path| path.is_file()).max()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;

    #[test]
    fn a_port_is_read_once_its_line_is_complete() {
        let before = "http://127.0.0.1:";
        assert_eq!(port_after("serving at http://127.0.0.1:80", before), None);
        assert_eq!(port_after("serving at http://127.0.0.1:8081\n", before), Some(8_081));
        assert_eq!(port_after("http://127.0.0.1:0 then http://127.0.0.1:9/docs/\n", before), Some(9));
        assert_eq!(port_after("mongodb://127.0.0.1:27017\n", before), None);
    }

    #[test]
    fn the_memory_of_a_process_is_known() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
    }

    #[test]
    fn a_missing_rookery_is_said_with_what_to_do() {
        let error = find_rookery(Some(Path::new("/nowhere/rookery"))).unwrap_err().to_string();
        assert!(error.contains("cargo build --workspace"), "{error}");
    }

    #[tokio::test]
    async fn a_database_of_our_own_serves_transactions_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let server = DatabaseServer::start(folder.path()).await.unwrap();
        let client = Client::with_uri_str(server.uri()).await.unwrap();
        let numbers = client.database(DATABASE).collection("numbers");
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        numbers.insert_one(doc! { "n": 1 }).session(&mut session).await.unwrap();
        session.commit_transaction().await.unwrap();
        assert_eq!(numbers.count_documents(doc! {}).await.unwrap(), 1);
        drop(session);
        client.shutdown().immediate(true).await;
        server.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_program_that_ends_at_once_is_said_with_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such folder; exit 3"]);
        let mut child = start(command, &log).unwrap();
        let error = printed_port(&mut child, &log, "listening on ").await.unwrap_err().to_string();
        assert!(error.contains("no such folder") && error.contains('3'), "{error}");
    }
}
