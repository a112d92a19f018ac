//! `rookery verify`.

use rookery_api::config::Config;
use rookery_storage::verify;

use super::Database;

/// Checks every invariant: one line per kind of drift, with a count and examples. Fails where there is any.
pub(crate) async fn run(config: &Config) -> anyhow::Result<()> {
    let database = Database::open(config).await?;
    database.ready().await?;
    let drift = verify::verify(&database.store).await?;
    for (kind, (count, examples)) in verify::summary(&drift) {
        let examples: Vec<String> = examples.iter().map(|one| format!("{} ({})", one.subject, one.detail)).collect();
        super::report(&format!("{kind:?}: {count}, for example {}", examples.join("; ")))?;
    }
    database.close().await;
    if drift.is_empty() {
        return super::report("Every invariant holds.");
    }
    anyhow::bail!("{} documents are not as they must be", drift.len())
}
