//! Load scenarios for Rookery: `seed` loads a graph, `run` drives a scenario and reports what it measured beside what the machine can do.

mod cast;
mod celebrity;
mod churn;
mod client;
mod edges;
mod graph;
mod limits;
mod loops;
mod million;
mod report;
mod rest;
mod service;
mod stage;
mod turns;
mod viral;

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cast::{Cast, Troupe},
    celebrity::{Scenario, Sizes},
    client::Api,
    graph::Graph,
    limits::Raw,
    loops::{Driver, Stop},
    report::Report,
    service::{DATABASE, PASSWORD},
    stage::Stage,
};

/// Accounts that one follows on average in a synthetic graph.
const MEAN_FOLLOWS: u64 = 20;

/// Loads graphs into Rookery, drives load against it, and reports. Talks to 127.0.0.1 alone.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a graph through `rookery import`, which shows its progress.
    Seed(Seed),
    /// Run a scenario.
    #[command(subcommand)]
    Run(Run),
}

#[derive(Debug, Subcommand)]
enum Run {
    /// Follow storms, posts, fan-out, feeds and follower pages around accounts with very many followers.
    Celebrity(Box<CelebrityArguments>),
    /// One account with a million followers beside one with a hundred: everything that is done with either, in turns.
    Million(MillionArguments),
    /// Accounts that become celebrities and cease to be again and again, under many callers of several services; ends with `rookery
    /// verify`.
    Churn(ChurnArguments),
    /// One post that everybody comments on at the same time, its first and its last page of comments in turns, and a storm of likes.
    Viral(ViralArguments),
}

/// Which graph.
#[derive(Debug, Args)]
struct GraphArguments {
    /// An edge list: CSV with the header `id_1,id_2`, plain or gzipped; `id_1` follows `id_2`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["users", "seed"])]
    edges: Option<PathBuf>,
    /// Each line of the edge list means both directions.
    #[arg(long, requires = "edges")]
    mutual: bool,
    /// Accounts of a synthetic graph, whose popularity falls by a Zipf law [default: 20000, with --quick 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    users: Option<u64>,
    /// Seed of the synthetic graph: the same one gives the same graph.
    #[arg(long, value_name = "S", default_value_t = 42)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Seed {
    #[command(flatten)]
    graph: GraphArguments,
    /// Where to write the synthetic graph [default: zipf-N-S.csv in the data folder].
    #[arg(long, value_name = "FILE", conflicts_with = "edges")]
    out: Option<PathBuf>,
    /// The data folder of the service (`ROOKERY_DATA_DIR`). Where `ROOKERY_MONGODB_URI` is set, that database is loaded.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "ROOKERY_DATA_DIR")]
    data_dir: PathBuf,
    /// Give every account the one password by which `run --base-url` logs in; without it nobody can log in to them.
    #[arg(long)]
    with_password: bool,
    /// The `rookery` program [default: beside this one].
    #[arg(long, value_name = "PATH")]
    rookery: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CelebrityArguments {
    #[command(flatten)]
    graph: GraphArguments,
    /// A running service at 127.0.0.1 to drive, with its rate limits off. An edge list must have been loaded into its database before, by
    /// `seed --with-password`; a synthetic graph is made over HTTP.
    #[arg(long, value_name = "URL", conflicts_with_all = ["spawn", "data_dir", "verify"])]
    base_url: Option<String>,
    /// Start a database and a service for the run and end them after it (the default).
    #[arg(long)]
    spawn: bool,
    /// The database of the service at --base-url, to measure the limits of the driver.
    #[arg(long, value_name = "URI", requires = "base_url")]
    mongodb_uri: Option<String>,
    /// The name of that database.
    #[arg(long, value_name = "NAME", default_value = DATABASE)]
    database: String,
    /// An empty or new folder for the data of the run, which is kept [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The `rookery` program [default: beside this one].
    #[arg(long, value_name = "PATH")]
    rookery: Option<PathBuf>,
    /// Followers at which an account is a celebrity; with --base-url, as the service has it [default: 1000, with --quick 150].
    #[arg(long, value_name = "FOLLOWERS", value_parser = clap::value_parser!(u64).range(1..))]
    celebrity_threshold: Option<u64>,
    /// A small run, to see that everything works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Callers of the closed loops [default: 32, with --quick 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    callers: Option<u16>,
    /// Seconds of the closed loop of feeds and of the open loops [default: 10, with --quick 2].
    // A token lives ten minutes, and each part logs in at its start.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=300))]
    duration: Option<u64>,
    /// Calls a second of each of the five open loops [default: 50, with --quick 20].
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// Follows of the storm [default: 10000, with --quick 300].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    storm: Option<u64>,
    /// Feed entries to deliver [default: 100000, with --quick 3000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    fan_out_entries: Option<u64>,
    /// Readers, who follow 200 accounts each [default: 32, with --quick 6].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    readers: Option<u64>,
    /// Requests of each kind to the largest and to the small account in one run [default: 2000, with --quick 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Runs of that comparison, of which the median counts [default: 5, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    runs: Option<u8>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct MillionArguments {
    /// Followers of the largest account [default: 1000000, with --quick 3000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2_000..=10_000_000))]
    followers: Option<u64>,
    /// Requests of each kind to each of the two accounts in one run [default: 2000, with --quick 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    samples: Option<u64>,
    /// Runs, of which the median counts [default: 5, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    runs: Option<u8>,
    /// A small run, to see that everything works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// An empty or new folder for the data of the run, which is kept [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The `rookery` program [default: beside this one].
    #[arg(long, value_name = "PATH")]
    rookery: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct ChurnArguments {
    /// Acts in all [default: 100000, with --quick 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: Option<u64>,
    /// Callers at a time [default: 64, with --quick 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    callers: Option<u16>,
    /// Accounts that hover about the threshold [default: 6, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    celebrities: Option<u64>,
    /// Accounts that follow them and cease to [default: 300, with --quick 60].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    fans: Option<u64>,
    /// Followers at which an account is a celebrity [default: a third of the fans].
    #[arg(long, value_name = "FOLLOWERS", value_parser = clap::value_parser!(u64).range(1..))]
    celebrity_threshold: Option<u64>,
    /// Services that run on the one database.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    services: u8,
    /// An empty or new folder for the data of the run, which is kept [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The `rookery` program [default: beside this one].
    #[arg(long, value_name = "PATH")]
    rookery: Option<PathBuf>,
    /// A small run, to see that everything works.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Args)]
struct ViralArguments {
    /// Comments on the post, each by another account, and likes of it after them [default: 10000, with --quick 200].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    comments: Option<u64>,
    /// Callers at a time [default: 32, with --quick 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    callers: Option<u16>,
    /// Requests for each of two pages that are compared, in one run [default: 2000, with --quick 20].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Runs of that comparison, of which the median counts [default: 5, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    runs: Option<u8>,
    /// A small run, to see that everything works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// An empty or new folder for the data of the run, which is kept [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The `rookery` program [default: beside this one].
    #[arg(long, value_name = "PATH")]
    rookery: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

impl ViralArguments {
    fn sizes(&self) -> viral::Sizes {
        let base = if self.quick { viral::Sizes::QUICK } else { viral::Sizes::FULL };
        viral::Sizes {
            callers: self.callers.map_or(base.callers, usize::from),
            comments: self.comments.unwrap_or(base.comments),
            samples: self.samples.unwrap_or(base.samples),
            runs: self.runs.map_or(base.runs, usize::from),
            limit: base.limit,
        }
    }
}

impl ChurnArguments {
    fn sizes(&self) -> churn::Sizes {
        let or = |given: Option<u64>, full: u64, quick: u64| given.unwrap_or(if self.quick { quick } else { full });
        churn::Sizes {
            operations: or(self.operations, 100_000, 2_000),
            callers: self.callers.map_or(if self.quick { 16 } else { 64 }, usize::from),
            stars: or(self.celebrities, 6, 3),
            fans: or(self.fans, 300, 60),
        }
    }
}

/// What becomes of what was measured.
#[derive(Debug, Args)]
struct OutputArguments {
    /// Write the report to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail where a goal is missed. (Failed calls and wrong answers always fail.)
    #[arg(long)]
    strict: bool,
    /// Run `rookery verify` on the database at the end; drift fails.
    #[arg(long)]
    verify: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=100_000.0).contains(&rate) { Ok(rate) } else { Err("not between 0.1 and 100000".to_owned()) }
}

/// The exit code of a program that was interrupted.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    match command(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            // Without a backtrace: what fails here is the setting, and the chain of causes names it.
            let _ = writeln!(std::io::stderr(), "load-tests: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn command(command: Command) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (sender, stop) = Stop::new();
    let work = async {
        match command {
            Command::Seed(seed) => seed_graph(&seed).await,
            Command::Run(Run::Celebrity(celebrity)) => run_celebrity(&celebrity, &stop).await,
            Command::Run(Run::Million(million)) => run_million(&million, &stop).await,
            Command::Run(Run::Churn(churn)) => run_churn(&churn, &stop).await,
            Command::Run(Run::Viral(viral)) => run_viral(&viral, &stop).await,
        }
    };
    // The first signal ends the loops, and what was measured is reported; the second ends the program, and with it its children.
    let signals = async {
        for _ in 0..2 {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            sender.send_replace(true);
        }
    };
    tokio::select! {
        result = work => result,
        () = signals => Ok(ExitCode::from(INTERRUPTED)),
    }
}

async fn seed_graph(seed: &Seed) -> Result<ExitCode> {
    let rookery = service::find_rookery(seed.rookery.as_deref())?;
    let password = seed.with_password.then_some(PASSWORD);
    let file = if let Some(edges) = &seed.graph.edges {
        edges.clone()
    } else {
        let users = seed.graph.users.context("name a graph: --edges FILE, or --users N")?;
        std::fs::create_dir_all(&seed.data_dir).with_context(|| format!("cannot make {}", seed.data_dir.display()))?;
        let file = seed.out.clone().unwrap_or_else(|| seed.data_dir.join(format!("zipf-{users}-{}.csv", seed.graph.seed)));
        edges::write(&file, graph::zipf(users, MEAN_FOLLOWS, seed.graph.seed)?)?;
        file
    };
    let environment = [("ROOKERY_DATA_DIR", seed.data_dir.to_string_lossy().into_owned())];
    service::import(&rookery, &environment, &file, seed.graph.mutual, password).await?;
    Ok(ExitCode::SUCCESS)
}

impl CelebrityArguments {
    fn sizes(&self) -> Sizes {
        let base = if self.quick { Sizes::quick() } else { Sizes::full() };
        Sizes {
            callers: self.callers.map_or(base.callers, usize::from),
            duration: self.duration.map_or(base.duration, Duration::from_secs),
            limit: base.limit,
            rate: self.rate.unwrap_or(base.rate),
            storm: self.storm.unwrap_or(base.storm),
            fan_out_entries: self.fan_out_entries.unwrap_or(base.fan_out_entries),
            readers: self.readers.unwrap_or(base.readers),
            samples: self.samples.unwrap_or(base.samples),
            runs: self.runs.map_or(base.runs, usize::from),
        }
    }

    fn threshold(&self) -> u64 {
        self.celebrity_threshold.unwrap_or(if self.quick { 150 } else { 1_000 })
    }

    fn graph(&self) -> Result<Graph> {
        let edges = match &self.graph.edges {
            Some(file) => edges::read(file, self.graph.mutual)?,
            None => {
                graph::zipf(self.graph.users.unwrap_or(if self.quick { 2_000 } else { 20_000 }), MEAN_FOLLOWS, self.graph.seed)?
            }
        };
        Ok(Graph::new(edges))
    }
}

async fn run_celebrity(arguments: &CelebrityArguments, stop: &Stop) -> Result<ExitCode> {
    let graph = arguments.graph()?;
    let cast = Cast::choose(&graph, arguments.threshold())?;
    match &arguments.base_url {
        Some(base_url) => against_running(arguments, base_url, &graph, cast, stop).await,
        None => against_our_own(arguments, &graph, cast, stop).await,
    }
}

async fn against_running(
    arguments: &CelebrityArguments,
    base_url: &str,
    graph: &Graph,
    cast: Cast,
    stop: &Stop,
) -> Result<ExitCode> {
    let driver = Driver::new(stop.clone());
    let api = Api::new(base_url)?;
    ensure!(api.is_ready().await, "no service is ready at {base_url}");
    let troupe = if arguments.graph.edges.is_some() {
        Troupe::imported(api, driver.clone())
    } else {
        Troupe::made_over_http(api, driver.clone(), graph).await?
    };
    let raw = match &arguments.mongodb_uri {
        Some(uri) => Some(Raw::connect(uri, &arguments.database).await?),
        None => None,
    };
    let scenario = Scenario { driver, troupe, cast, sizes: arguments.sizes(), raw, process: None };
    play(arguments, scenario, stop).await
}

async fn against_our_own(arguments: &CelebrityArguments, graph: &Graph, cast: Cast, stop: &Stop) -> Result<ExitCode> {
    let (rookery, data_dir) = (arguments.rookery.as_deref(), arguments.data_dir.as_deref());
    let stage = Stage::set(rookery, data_dir, arguments.threshold(), graph.edges().iter().copied(), stop).await?;
    let driver = Driver::new(stop.clone());
    let troupe = Troupe::imported(stage.api()?, driver.clone());
    let raw = Some(Raw::connect(stage.database.uri(), DATABASE).await?);
    let process = Some(stage.service.process());
    let scenario = Scenario { driver, troupe, cast, sizes: arguments.sizes(), raw, process };
    let code = play(arguments, scenario, stop).await?;
    let clean = stage.strike(arguments.output.verify, stop).await?;
    Ok(if clean { code } else { ExitCode::FAILURE })
}

async fn run_million(arguments: &MillionArguments, stop: &Stop) -> Result<ExitCode> {
    let base = if arguments.quick { million::Sizes::QUICK } else { million::Sizes::FULL };
    let sizes = million::Sizes {
        followers: arguments.followers.unwrap_or(base.followers),
        samples: arguments.samples.unwrap_or(base.samples),
        runs: arguments.runs.map_or(base.runs, usize::from),
    };
    let (rookery, data_dir) = (arguments.rookery.as_deref(), arguments.data_dir.as_deref());
    let stage = Stage::set(rookery, data_dir, million::Sizes::THRESHOLD, sizes.edges(), stop).await?;
    let driver = Driver::new(stop.clone());
    let troupe = Troupe::imported(stage.api()?, driver.clone());
    let mut report = Report::new("million");
    let result = million::Scenario { driver, troupe, sizes }.run(&mut report).await;
    let code = conclude(report, result, &arguments.output, stop)?;
    let clean = stage.strike(arguments.output.verify, stop).await?;
    Ok(if clean { code } else { ExitCode::FAILURE })
}

async fn run_churn(arguments: &ChurnArguments, stop: &Stop) -> Result<ExitCode> {
    let sizes = arguments.sizes();
    let threshold = arguments.celebrity_threshold.unwrap_or(sizes.fans.div_ceil(3));
    let (rookery, data_dir) = (arguments.rookery.as_deref(), arguments.data_dir.as_deref());
    let mut stage = Stage::set(rookery, data_dir, threshold, [], stop).await?;
    let mut apis = vec![stage.api()?];
    for _ in 1..arguments.services {
        apis.push(stage.start_another().await?);
    }
    let mut report = Report::new("churn");
    let result = churn::Churn { driver: Driver::new(stop.clone()), apis, sizes }.run(&mut report).await;
    let code = conclude(report, result, &arguments.output, stop)?;
    // What it is for.
    let clean = stage.strike(true, stop).await?;
    Ok(if clean { code } else { ExitCode::FAILURE })
}

async fn run_viral(arguments: &ViralArguments, stop: &Stop) -> Result<ExitCode> {
    let sizes = arguments.sizes();
    let (rookery, data_dir) = (arguments.rookery.as_deref(), arguments.data_dir.as_deref());
    // The author is no celebrity: what is measured is the post.
    let stage = Stage::set(rookery, data_dir, sizes.comments + 1, sizes.edges(), stop).await?;
    let driver = Driver::new(stop.clone());
    let troupe = Troupe::imported(stage.api()?, driver.clone());
    let raw = Raw::connect(stage.database.uri(), DATABASE).await?;
    let mut report = Report::new("viral");
    let scenario = viral::Scenario { driver, troupe, sizes, raw };
    let result = scenario.run(&mut report).await;
    scenario.raw.close().await?;
    let code = conclude(report, result, &arguments.output, stop)?;
    let clean = stage.strike(arguments.output.verify, stop).await?;
    Ok(if clean { code } else { ExitCode::FAILURE })
}

/// Runs the scenario and reports, also what was measured before it was interrupted or failed.
async fn play(arguments: &CelebrityArguments, scenario: Scenario, stop: &Stop) -> Result<ExitCode> {
    let mut report = Report::new("celebrity");
    let result = scenario.run(&mut report).await;
    if let Some(raw) = scenario.raw {
        raw.close().await?;
    }
    conclude(report, result, &arguments.output, stop)
}

/// Prints the report, also of what was measured before the run was interrupted or failed, and says how it ended.
fn conclude(mut report: Report, result: Result<()>, output: &OutputArguments, stop: &Stop) -> Result<ExitCode> {
    let interrupted = stop.is_set();
    if interrupted {
        report.remark("The run was interrupted: this is what was measured until then.");
    }
    let mut screen = std::io::stdout().lock();
    screen.write_all(report.to_text().as_bytes())?;
    screen.flush()?;
    if let Some(path) = &output.json {
        report.write_json(path)?;
    }
    if interrupted {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    result?;
    let failed = report.errors() > 0 || (output.strict && !report.goals_met());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
