//! The subcommands. What they print is their report, for people; everything else goes to the log.

pub(crate) mod admin;
mod demo;
pub(crate) mod import;
pub(crate) mod migrate;
pub(crate) mod openapi;
pub(crate) mod serve;
pub(crate) mod verify;
pub(crate) mod work;

use std::{io::Write as _, time::Duration};

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

/// A progress bar for a step of `total` items; without a terminal it prints nothing.
pub(crate) fn progress(total: usize, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg:>12} [{bar:40}] {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
