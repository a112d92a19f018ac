//! Keeps the database process: starts it, notices its death, starts it again, stops it.
//!
//! **Ending with the parent.** The kernel does that: `setpriv --pdeathsig KILL` asks it to kill the child when the *thread* that
//! made the child ends. So one thread of the operating system, which lives exactly as long as the [`Embedded`](super::Embedded)
//! handle, makes the child and waits for it. The parent may be killed in the moment before the request reaches the kernel; the shell
//! in between therefore looks whether its parent is still us before it becomes the database. `SIGKILL`, because nothing that hangs
//! may stay, and because a database that loses nothing that it acknowledged loses nothing by that. `setpriv` is part of util-linux,
//! which Debian always has; where it is missing, starting fails and says so.
//!
//! **One port.** The database comes back where it was, so that the driver's connection string stays good.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use super::server::on_path;
use crate::{Error, Result};

/// How soon a death, a readiness or a request to stop is noticed. Twenty wake-ups a second cost nothing that could be measured.
const TICK: Duration = Duration::from_millis(50);
/// The pause before the first restart; doubled with each death, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A database that cannot start is not worth more than one try in this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After this long a death is a new event and the pause short again.
const STEADY: Duration = Duration::from_secs(10);
/// How often waiting is logged.
const PROGRESS: Duration = Duration::from_secs(2);
/// How long a clean stop may take. What it has not written by then is in its journal.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Above this many bytes the log is put aside at the next start, in place of the one put aside before.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;

/// Becomes the database (`$2` and on), but only while our process (`$1`) is still its parent.
const GUARD: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// What others may know of the process.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Its id while it runs.
    pub(super) pid: Option<u32>,
    /// Whether it takes connections: it does not while it replays its journal.
    pub(super) listening: bool,
    /// How many times it ended unasked.
    pub(super) deaths: u32,
}

pub(super) struct Supervisor {
    setpriv: PathBuf,
    program: Vec<OsString>,
    address: SocketAddr,
    folder: PathBuf,
    log: PathBuf,
    /// Held until the database has ended.
    _lock: File,
    state: watch::Sender<State>,
    /// Closed to stop.
    stop: Receiver<()>,
}

impl Supervisor {
    pub(super) fn new(
        program: Vec<OsString>,
        port: u16,
        folder: PathBuf,
        log: PathBuf,
        lock: File,
        state: watch::Sender<State>,
        stop: Receiver<()>,
    ) -> Result<Self> {
        let setpriv = on_path(env::var_os("PATH").as_deref(), "setpriv").ok_or_else(|| {
            Error::Embedded(
                "`setpriv` (Debian: package util-linux) is not on the PATH; without it the database could outlive this process. \
                 Install it, or set ROOKERY_MONGODB_URI to a MongoDB that runs"
                    .to_owned(),
            )
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { setpriv, program, address, folder, log, _lock: lock, state, stop })
    }

    /// Runs until it is asked to stop. Must have a thread to itself: the database ends with it.
    pub(super) fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let started = Instant::now();
            match self.spawn() {
                Ok(mut child) => {
                    self.state.send_modify(|state| state.pid = Some(child.id()));
                    let ended = self.watch(&mut child);
                    self.state.send_modify(|state| {
                        state.pid = None;
                        state.listening = false;
                        state.deaths += u32::from(ended.is_some());
                    });
                    let Some(status) = ended else { return };
                    tracing::error!(%status, log = %self.log.display(), "the database has died");
                }
                Err(error) => {
                    self.state.send_modify(|state| state.deaths += 1);
                    tracing::error!(%error, log = %self.log.display(), "the database cannot be started");
                }
            }
            if started.elapsed() > STEADY {
                pause = FIRST_PAUSE;
            }
            if self.asked_to_stop_within(pause) {
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
            tracing::info!("starting the database again");
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        if fs::metadata(&self.log).is_ok_and(|meta| meta.len() > LOG_LIMIT) {
            fs::rename(&self.log, self.log.with_extension("log.1"))?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        Command::new(&self.setpriv)
            .args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", GUARD, "sh"])
            .arg(std::process::id().to_string())
            .args(&self.program)
            // Flags decide, and not what the environment says or a configuration that lies about in the current or the home folder.
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", env::var_os("PATH").as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Not in the terminal's group: Ctrl-C is for us, and we stop the database last.
            .process_group(0)
            .spawn()
    }

    /// Waits for the child's end: by itself (then its status), or because it was asked to (then nothing).
    fn watch(&self, child: &mut Child) -> Option<ExitStatus> {
        let started = Instant::now();
        let mut said = started;
        let mut listening = false;
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Some(status),
                // Cannot happen to a child of ours; if it does, nothing is known of it and it must go.
                Err(error) => {
                    tracing::error!(%error, "the database cannot be waited for");
                    stop(child);
                    return None;
                }
            }
            if !listening {
                let seconds = started.elapsed().as_secs_f32();
                if TcpStream::connect_timeout(&self.address, TICK).is_ok() {
                    listening = true;
                    self.state.send_modify(|state| state.listening = true);
                    tracing::info!(pid = child.id(), port = self.address.port(), seconds, "the database takes connections");
                } else if said.elapsed() >= PROGRESS {
                    said = Instant::now();
                    tracing::info!(seconds, "waiting for the database to replay its journal");
                }
            }
            if self.asked_to_stop_within(TICK) {
                stop(child);
                return None;
            }
        }
    }

    fn asked_to_stop_within(&self, time: Duration) -> bool {
        !matches!(self.stop.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

/// Asks the child to end, waits, and insists. Only this thread reaps it, so its id cannot have passed to another process.
fn stop(child: &mut Child) {
    if let Err(error) = kill_process(Pid::from_child(child), Signal::TERM) {
        tracing::warn!(%error, "the database cannot be asked to stop");
    }
    let asked = Instant::now();
    while asked.elapsed() < STOP_LIMIT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    tracing::warn!(seconds = STOP_LIMIT.as_secs(), "the database has not stopped in time and is killed");
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        tracing::error!(%error, "the database cannot be killed");
    }
}

/// The last lines of the log, for an error message.
pub(super) fn end_of(log: &Path) -> String {
    const BYTES: u64 = 2048;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    read().unwrap_or_else(|error| format!("(cannot be read: {error})"))
}
