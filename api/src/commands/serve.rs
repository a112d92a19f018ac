//! `rookery serve`.

use rookery_api::{
    app::{self, Application},
    config::Config,
    workers,
};
use rookery_storage::migrations;

use super::{Database, demo};

/// Flags of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Brings a shared database to the schema of this version first; the embedded one always is
    #[arg(long)]
    migrate: bool,
    /// Makes a demo world where the database is empty: 2,000 accounts, with posts, comments and celebrities
    #[arg(long)]
    demo: bool,
}

/// Serves until it is told to stop.
pub(crate) async fn run(config: &Config, options: &Options) -> anyhow::Result<()> {
    let mut config = config.clone();
    if options.demo {
        // A celebrity of 2,000 accounts has fewer followers than one of the world.
        config.settings.celebrity_threshold = config.settings.celebrity_threshold.min(demo::THRESHOLD);
    }
    let config = &config;
    let database = Database::open(config).await?;
    let outcome = serve(config, options, &database).await;
    database.close().await;
    outcome
}

async fn serve(config: &Config, options: &Options, database: &Database) -> anyhow::Result<()> {
    if options.migrate {
        migrations::migrate(&database.store).await?;
    } else {
        database.ready().await?;
    }
    database.store.adopt_pages().await?;
    database.store.adopt_threshold().await?;
    if options.demo && demo::make(config, &database.store).await? {
        super::report("The demo world is made.")?;
    }
    let application = Application::build(config, database.store.clone(), workers::ALL)?;
    app::stop_on_signals(application.stopper())?;
    for address in application.addresses() {
        super::report(&format!("Rookery listens on http://{address} and shows its API at http://{address}/docs/"))?;
    }
    if options.demo {
        super::report(&format!("Log in as `{}` with the password `{}`.", demo::HANDLE, demo::PASSWORD))?;
    }
    application.run_until_stopped().await?;
    Ok(())
}
