//! `rookery work`.

use rookery_api::{
    app,
    config::Config,
    workers::{self, Workers},
};
use tokio_util::sync::CancellationToken;

use super::Database;

/// Does background work until it is told to stop. Any number of such processes may run beside those that serve: leases keep them apart.
pub(crate) async fn run(config: &Config) -> anyhow::Result<()> {
    // The embedded database is the serving process's own: one of ours would have nothing to do.
    anyhow::ensure!(config.mongodb_uri.is_some(), "`work` needs ROOKERY_MONGODB_URI: the database of the processes that serve");
    let database = Database::open(config).await?;
    database.ready().await?;
    database.store.adopt_pages().await?;
    database.store.adopt_threshold().await?;
    let stop = CancellationToken::new();
    app::stop_on_signals(stop.clone())?;
    let workers = Workers::start(workers::ALL, &database.store, &stop);
    super::report("Rookery does background work.")?;
    stop.cancelled().await;
    if tokio::time::timeout(app::FINISH_WITHIN, workers.wait()).await.is_err() {
        tracing::warn!("background work did not end in time; its leases will lapse");
    }
    database.close().await;
    Ok(())
}
