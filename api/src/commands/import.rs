//! `rookery import`.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use flate2::read::MultiGzDecoder;
use rookery_api::{auth::Auth, config::Config};
use rookery_domain::{
    Handle, UserId,
    edge_list::{Edge, parse},
};
use rookery_storage::{Store, new_id, now, pending::Progress, users::NewUser};

use super::{Database, progress};

/// Flags of `import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The list: a header `id_1,id_2`, then a line for each edge (`id_1` follows `id_2`); gzipped or plain
    #[arg(long, value_name = "FILE")]
    edges: PathBuf,
    /// Each line means both directions
    #[arg(long)]
    mutual: bool,
    /// Gives every new account the password on the first line of standard input. For load tests alone: whoever knows it is all of them
    #[arg(long)]
    password_stdin: bool,
}

/// Accounts, and edges, that one call of the store takes.
const BATCH: usize = 1_000;

/// Loads an edge list through the store's own write path. A bad line loads nothing; a second run loads what is missing.
pub(crate) async fn run(config: &Config, options: &Options) -> anyhow::Result<()> {
    let edges = read(&options.edges, options.mutual)?;
    let password = options.password_stdin.then(super::admin::read_password).transpose()?;
    let hash = match password {
        Some(password) => Some(Auth::new(config)?.hash_new(&password, Vec::new()).await??),
        None => None,
    };
    let database = Database::open(config).await?;
    database.ready().await?;
    let outcome = load(&database.store, edges, hash.as_deref()).await;
    database.close().await;
    outcome
}

fn read(path: &Path, mutual: bool) -> anyhow::Result<Vec<Edge>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let shown = path.display();
    let mut file = BufReader::new(File::open(path).with_context(|| format!("cannot open {shown}"))?);
    let gzipped = file.fill_buf().with_context(|| format!("cannot read {shown}"))?.starts_with(&GZIP);
    let reader: Box<dyn Read> = if gzipped { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    parse(BufReader::new(reader), mutual).with_context(|| format!("{shown}: nothing was loaded"))
}

async fn load(store: &Store, mut edges: Vec<Edge>, hash: Option<&str>) -> anyhow::Result<()> {
    let mut numbers: Vec<u64> = edges.iter().flat_map(|(follower, followee)| [*follower, *followee]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let bar = progress(numbers.len(), "accounts");
    let mut accounts: HashMap<u64, UserId> = HashMap::with_capacity(numbers.len());
    for numbers in numbers.chunks(BATCH) {
        let users = numbers.iter().map(|number| new_user(*number, hash)).collect::<anyhow::Result<Vec<_>>>()?;
        let ids = store.import_users(users).await?;
        for number in numbers {
            let id = ids.get(&handle(*number)?).with_context(|| format!("account n{number} was not made"))?;
            accounts.insert(*number, *id);
        }
        bar.inc(numbers.len() as u64);
    }
    bar.finish();

    // Side by side by followee, so that a batch writes few accounts more than once.
    edges.sort_unstable_by_key(|(follower, followee)| (*followee, *follower));
    let bar = progress(edges.len(), "follows");
    let mut made = 0;
    for edges in edges.chunks(BATCH) {
        let pairs: Vec<(UserId, UserId)> =
            edges.iter().map(|(follower, followee)| (accounts[follower], accounts[followee])).collect();
        made += store.import_follows(&pairs).await?;
        store.flush_stats_step().await?;
        bar.inc(edges.len() as u64);
    }
    bar.finish();
    finish(store, made).await?;
    super::report(&format!("Loaded {} accounts and {made} new follows.", numbers.len()))
}

/// What an import leaves to background work: the edges of celebrities, and their posts for new followers.
pub(super) async fn finish(store: &Store, about: usize) -> anyhow::Result<()> {
    let bar = progress(about, "settling");
    loop {
        let applied = store.apply_follows_step().await?;
        let merged = store.merge_step().await?;
        if let Progress::Did(merged) = merged {
            bar.inc(merged as u64);
        }
        if (applied, merged) == (Progress::Idle, Progress::Idle) {
            break;
        }
    }
    bar.finish();
    Ok(())
}

fn handle(number: u64) -> anyhow::Result<Handle> {
    Ok(Handle::parse(&format!("n{number}"))?)
}

fn new_user(number: u64, hash: Option<&str>) -> anyhow::Result<NewUser> {
    Ok(NewUser {
        id: UserId(new_id()),
        handle: handle(number)?,
        email: None,
        display_name: format!("Number {number}"),
        password_hash: hash.map(str::to_owned),
        now: now(),
    })
}
