//! `rookery admin`.

use std::io::BufRead as _;

use anyhow::Context as _;
use rookery_api::{
    auth::Auth,
    config::{self, Config},
};
use rookery_domain::{Handle, UserId};
use rookery_storage::{
    new_id, now,
    users::{Created, NewUser},
};
use secrecy::SecretString;

use super::Database;

/// What is done about administrators.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an account that is an administrator
    #[command(after_help = config::help_on_secrets())]
    Create(Create),
}

/// Flags of `admin create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// The handle of the new account
    #[arg(long, value_name = "HANDLE")]
    handle: String,
    /// Reads the password from the first line of standard input: there is no other way, since a flag would show it to everybody who
    /// lists processes
    #[arg(long, required = true)]
    password_stdin: bool,
}

/// Does what is asked.
pub(crate) async fn run(config: &Config, command: &Command) -> anyhow::Result<()> {
    let Command::Create(options) = command;
    let handle = Handle::parse(&options.handle)?;
    let password = read_password()?;
    let database = Database::open(config).await?;
    let outcome = create(config, &database, handle, &password).await;
    database.close().await;
    outcome
}

async fn create(config: &Config, database: &Database, handle: Handle, password: &SecretString) -> anyhow::Result<()> {
    database.ready().await?;
    let hash = Auth::new(config)?.hash_new(password, vec![handle.as_str().to_owned()]).await??;
    let new = NewUser {
        id: UserId(new_id()),
        display_name: handle.as_str().to_owned(),
        handle,
        email: None,
        password_hash: Some(hash),
        now: now(),
    };
    match database.store.create_admin(new).await? {
        Created::Now(user) => super::report(&format!("@{} is an administrator ({}).", user.handle, user.id)),
        Created::HandleTaken | Created::EmailTaken => anyhow::bail!("the handle is taken"),
    }
}

pub(crate) fn read_password() -> anyhow::Result<SecretString> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("cannot read the password from standard input")?;
    let password = line.strip_suffix('\n').unwrap_or(&line);
    Ok(SecretString::from(password.strip_suffix('\r').unwrap_or(password)))
}
