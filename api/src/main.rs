//! The `rookery` command: reads the configuration and hands over to one of the commands.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rookery_api::config::{self, Config, Flags};

/// A social graph and feed on MongoDB.
#[derive(Debug, Parser)]
#[command(name = "rookery", version, after_help = config::help_on_secrets(), max_term_width = 120)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the API and does the background work
    #[command(after_help = config::help_on_secrets())]
    Serve(commands::serve::Options),
    /// Brings the database to the schema of this version
    #[command(after_help = config::help_on_secrets())]
    Migrate,
    /// Does background work alone, beside processes that serve
    #[command(after_help = config::help_on_secrets())]
    Work,
    /// Checks every invariant and exits 1 where one does not hold
    #[command(after_help = config::help_on_secrets())]
    Verify(commands::verify::Options),
    /// Loads an edge list: accounts without passwords, and who follows whom
    #[command(after_help = config::help_on_secrets())]
    Import(commands::import::Options),
    /// Manages administrators
    #[command(subcommand)]
    Admin(commands::admin::Command),
    /// Prints the OpenAPI document
    Openapi,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            commands::report_failure(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    if let Command::Openapi = cli.command {
        return commands::openapi::run();
    }
    let environment = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let config = Config::from_vars(|name| cli.flags.get(name).or_else(|| environment(name)))?;
    rookery_api::telemetry::start_log(&config)?;
    match cli.command {
        Command::Serve(options) => commands::serve::run(&config, &options).await,
        Command::Work => commands::work::run(&config).await,
        Command::Migrate => commands::migrate::run(&config).await,
        Command::Verify(options) => commands::verify::run(&config, &options).await,
        Command::Import(options) => commands::import::run(&config, &options).await,
        Command::Admin(command) => commands::admin::run(&config, &command).await,
        Command::Openapi => Ok(()),
    }
}
