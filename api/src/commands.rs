//! The subcommands. What they print is their report, for people; everything else goes to the log.

pub(crate) mod admin;
mod demo;
pub(crate) mod import;
pub(crate) mod migrate;
pub(crate) mod openapi;
pub(crate) mod serve;
pub(crate) mod verify;
pub(crate) mod work;

use std::{
    io::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use rookery_api::config::Config;
use rookery_storage::{
    Store,
    embedded::{Embedded, EmbeddedOptions},
    migrations,
};
use secrecy::ExposeSecret as _;

/// A connected store, and the embedded database if that is what it is connected to.
pub(crate) struct Database {
    pub(crate) store: Store,
    embedded: Option<Embedded>,
}

impl Database {
    /// Connects to the configured database, or starts the embedded one in the data folder.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        let embedded = match &config.mongodb_uri {
            Some(_) => None,
            None => Some(Embedded::start(EmbeddedOptions::new(&config.data_dir)).await?),
        };
        let uri = match (&config.mongodb_uri, &embedded) {
            (Some(uri), _) => uri.expose_secret(),
            (None, Some(embedded)) => embedded.uri(),
            (None, None) => anyhow::bail!("there is no database"),
        };
        let store = Store::connect(uri, &config.database, config.settings).await.context("cannot connect to the database")?;
        Ok(Self { store, embedded })
    }

    /// Makes sure that the database has the schema of this version: an embedded one is brought to it.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        if self.is_embedded() {
            migrations::migrate(&self.store).await?;
        } else {
            migrations::check(&self.store).await?;
        }
        Ok(())
    }

    /// Whether the database is the embedded one, which is nobody else's.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Stops the embedded database.
    pub(crate) async fn close(self) {
        self.store.close().await;
        if let Some(embedded) = self.embedded {
            embedded.shutdown().await;
        }
    }
}

/// One line (or document) of a command's report, on standard output at once.
pub(crate) fn report(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// The last words of a command that failed.
#[expect(clippy::print_stderr, reason = "the report of a command")]
pub(crate) fn report_failure(error: &anyhow::Error) {
    eprintln!("rookery: {error:#}");
}

/// How often a step that nobody watches on a terminal says how far it is.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How far a long step of a command is: a bar on a terminal, elsewhere (a log, a pipe) a line now and then.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: ProgressBar,
    what: &'static str,
    said: Mutex<Instant>,
}

/// Begins to show a step of `total` items.
pub(crate) fn progress(total: usize, what: &'static str) -> Steps {
    let bar = ProgressBar::new(total as u64).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg:>12} [{bar:40}] {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    Steps { bar, what, said: Mutex::new(Instant::now()) }
}

impl Steps {
    /// Counts what was done.
    #[expect(clippy::print_stderr, reason = "the progress of a command")]
    pub(crate) fn inc(&self, items: u64) {
        self.bar.inc(items);
        if !self.bar.is_hidden() {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.elapsed() >= SAID_EVERY {
            *said = Instant::now();
            eprintln!("{}: {} of {}", self.what, self.bar.position(), self.bar.length().unwrap_or_default());
        }
    }

    /// Everything is done.
    pub(crate) fn finish(&self) {
        self.bar.finish();
    }
}
