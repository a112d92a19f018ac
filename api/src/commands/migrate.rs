//! `rookery migrate`.

use rookery_api::config::Config;
use rookery_storage::migrations;

use super::Database;

/// Brings the database to the schema of this version.
pub(crate) async fn run(config: &Config) -> anyhow::Result<()> {
    let database = Database::open(config).await?;
    let outcome = migrations::migrate(&database.store).await;
    database.close().await;
    outcome?;
    super::report(&format!("The database is at schema {}.", migrations::VERSION))
}
