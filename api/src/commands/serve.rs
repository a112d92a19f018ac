//! `rookery serve`.

use rookery_api::{
    app::{self, Application},
    config::Config,
};
use rookery_storage::migrations;

use super::Database;

/// Flags of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Brings a shared database to the schema of this version first; the embedded one always is
    #[arg(long)]
    migrate: bool,
}

/// Serves until it is told to stop.
pub(crate) async fn run(config: &Config, options: &Options) -> anyhow::Result<()> {
    let database = Database::open(config).await?;
    let outcome = serve(config, options, &database).await;
    database.close().await;
    outcome
}

async fn serve(config: &Config, options: &Options, database: &Database) -> anyhow::Result<()> {
    if options.migrate || database.is_embedded() {
        migrations::migrate(&database.store).await?;
    } else {
        migrations::check(&database.store).await?;
    }
    let application = Application::build(config, database.store.clone())?;
    app::stop_on_signals(application.stopper())?;
    for address in application.addresses() {
        super::report(&format!("Rookery listens on http://{address} and shows its API at http://{address}/docs/"))?;
    }
    application.run_until_stopped().await?;
    Ok(())
}
