//! `rookery verify`.

use rookery_api::config::Config;
use rookery_storage::verify;

use super::Database;

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Mends what does not hold, while services may be writing
    #[arg(long)]
    repair: bool,
}

/// Checks every invariant: one line per kind of drift, with a count and examples. Fails where there is any that was not repaired.
pub(crate) async fn run(config: &Config, options: &Options) -> anyhow::Result<()> {
    let database = Database::open(config).await?;
    database.ready().await?;
    let found = if options.repair { verify::repair(&database.store).await } else { verify::inspect(&database.store).await };
    database.close().await;
    let found = found?;
    for finding in found.kinds() {
        let repaired = if options.repair { format!(", {} repaired", finding.repaired) } else { String::new() };
        let examples = finding.examples.join("; ");
        super::report(&format!("{}: {}{repaired}, for example {examples}", finding.kind, finding.found))?;
    }
    if found.is_empty() {
        return super::report("Every invariant holds.");
    }
    match found.left() {
        0 => super::report("Everything that did not hold is repaired."),
        left => anyhow::bail!("{left} documents are not as they must be"),
    }
}
