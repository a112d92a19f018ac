//! The embedded database: it starts, comes back, keeps what it acknowledged, and never outlives its parent.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bson::{Document, doc};
use mongodb::{
    Client,
    options::{Acknowledgment, ClientOptions, WriteConcern},
};
use rookery_storage::{
    embedded::{Embedded, EmbeddedOptions, SECANTUS_VERSION},
    testing::{OwnServer, TestDatabase},
};

/// Set in the process that [`parent`] starts from this very binary: where the database shall be, or empty.
const BE_THE_PARENT: &str = "ROOKERY_TEST_BE_THE_PARENT";

async fn client(uri: &str) -> Client {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    Client::with_options(options).unwrap()
}

/// Whether the process runs: a zombie does not.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let started = Instant::now();
    while !met() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn it_starts_answers_and_runs_transactions() {
    let server = OwnServer::start().await;
    let client = client(server.uri()).await;
    let things = client.database("test").collection::<Document>("things");
    let others = client.database("test").collection::<Document>("others");
    let mut session = client.start_session().await.unwrap();
    for (commit, expected) in [(false, 0), (true, 1)] {
        session.start_transaction().await.unwrap();
        things.insert_one(doc! { "n": 1 }).session(&mut session).await.unwrap();
        others.insert_one(doc! { "n": 1 }).session(&mut session).await.unwrap();
        if commit {
            session.commit_transaction().await.unwrap();
        } else {
            session.abort_transaction().await.unwrap();
        }
        assert_eq!(things.count_documents(doc! {}).await.unwrap(), expected);
        assert_eq!(others.count_documents(doc! {}).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_killed_database_comes_back_on_its_port_with_all_it_acknowledged() {
    let server = OwnServer::start().await;
    let client = client(server.uri()).await;
    let things = client.database("test").collection::<Document>("things");
    // Killed in the middle of writes; what fails from then on was never acknowledged.
    let (mut acknowledged, mut killed) = (Vec::new(), None);
    for n in 0_i64.. {
        match things.insert_one(doc! { "_id": n }).await {
            Ok(_) => acknowledged.push(n),
            Err(error) => assert!(killed.is_some(), "a write failed before the database was killed: {error}"),
        }
        match killed {
            None if n == 300 => killed = Some(server.kill()),
            Some(_) if acknowledged.last() == Some(&n) && n > 400 => break,
            _ => {}
        }
    }
    server.restarted_after(killed.unwrap()).await;
    let mut found = things.distinct("_id", doc! {}).await.unwrap();
    found.retain(|id| acknowledged.contains(&id.as_i64().unwrap()));
    assert_eq!(found.len(), acknowledged.len());
}

#[tokio::test]
async fn a_second_start_on_the_same_folder_is_refused_and_told_who_has_it() {
    let server = OwnServer::start().await;
    let error = Embedded::start(EmbeddedOptions::new(server.folder())).await.unwrap_err().to_string();
    assert!(error.contains(server.folder().to_str().unwrap()), "{error}");
    assert!(error.contains("in use by another process"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    assert!(error.contains(&format!("ROOKERY_MONGODB_URI='{}'", server.uri())), "{error}");
    client(server.uri()).await.database("test").run_command(doc! { "ping": 1 }).await.unwrap();
}

#[tokio::test]
async fn a_stopped_database_is_gone_and_its_data_is_there_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let first = Embedded::start(EmbeddedOptions::new(folder.path())).await.unwrap();
    let pid = first.pid().unwrap();
    let writer = client(first.uri()).await;
    writer.database("test").collection("things").insert_one(doc! { "_id": 1 }).await.unwrap();
    writer.shutdown().immediate(true).await;
    first.shutdown().await;
    assert!(!runs(pid));

    let second = Embedded::start(EmbeddedOptions::new(folder.path())).await.unwrap();
    let reader = client(second.uri()).await;
    let things = reader.database("test").collection::<Document>("things");
    assert_eq!(things.count_documents(doc! {}).await.unwrap(), 1);
    let pid = second.pid().unwrap();
    drop(second);
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_database_that_cannot_start_says_why() {
    let server = OwnServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(server.folder().join("mongo"), folder.path().join("mongo")).unwrap();
    let error = Embedded::start(EmbeddedOptions::new(folder.path())).await.unwrap_err().to_string();
    assert!(error.contains("does not start"), "{error}");
    assert!(error.contains("mongo.log ends with:\n"), "{error}");
    assert!(error.contains("busy"), "the end of the log is part of the message: {error}");
}

/// Starts another process that has a database, in `folder` or in a scratch folder of its own: the process, the database's id and
/// its folder.
fn parent(folder: Option<&Path>) -> (Child, u32, PathBuf) {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "be_the_parent_that_is_killed", "--nocapture"])
        .env(BE_THE_PARENT, folder.unwrap_or(Path::new("")))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (database, folder) = lines
        .find_map(|line| {
            let (_, rest) = line.split_once("database ")?;
            let (database, folder) = rest.split_once(" in ")?;
            Some((database.parse().unwrap(), folder.into()))
        })
        .unwrap();
    (parent, database, folder)
}

/// Not a test of its own: what [`parent`] runs.
#[tokio::test]
async fn be_the_parent_that_is_killed() {
    let Some(folder) = std::env::var_os(BE_THE_PARENT) else { return };
    let (_one, _other, pid, folder) = if folder.is_empty() {
        let server = OwnServer::start().await;
        let (pid, folder) = (server.pid(), server.folder().to_owned());
        (Some(server), None, pid, folder)
    } else {
        let embedded = Embedded::start(EmbeddedOptions::new(&folder)).await.unwrap();
        let pid = embedded.pid();
        (None, Some(embedded), pid, folder.into())
    };
    #[expect(clippy::print_stdout, reason = "tells the process that started this one")]
    {
        println!("database {} in {}", pid.unwrap(), folder.display());
    }
    std::future::pending::<()>().await;
}

#[test]
fn the_database_and_the_scratch_folder_go_when_the_parent_is_killed() {
    let (mut parent, database, folder) = parent(None);
    assert!(runs(database) && folder.exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until("the database outlives its parent", || !runs(database));
    wait_until("the folder outlives the parent", || !folder.exists());
}

#[tokio::test]
async fn a_killed_process_can_be_started_again_at_once_on_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut parent, _, _) = parent(Some(folder.path()));
    parent.kill().unwrap();
    parent.wait().unwrap();
    Embedded::start(EmbeddedOptions::new(folder.path())).await.unwrap().shutdown().await;
}

#[test]
fn a_server_started_in_a_runtime_that_has_ended_still_serves_and_restarts() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let server = runtime().block_on(OwnServer::start());
    let pid = server.kill();
    runtime().block_on(async {
        server.restarted_after(pid).await;
        let client = client(server.uri()).await;
        client.database("test").run_command(doc! { "ping": 1 }).await.unwrap();
        client.shutdown().immediate(true).await;
    });
}

#[tokio::test]
async fn test_databases_are_apart_and_dropped_in_the_end() {
    let (one, other) = (TestDatabase::new().await, TestDatabase::new().await);
    assert_ne!(one.name(), other.name());
    assert_eq!(one.uri(), other.uri());
    one.second_store().await.ping().await.unwrap();
    let client = client(one.uri()).await;
    client.database(one.name()).collection("things").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert!(client.list_database_names().await.unwrap().contains(&one.name().to_owned()));
    let name = one.name().to_owned();
    drop(one);
    assert!(!client.list_database_names().await.unwrap().contains(&name));
}

#[test]
fn the_set_up_script_installs_the_version_that_is_looked_for() {
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/setup.sh")).unwrap();
    assert!(script.contains(&format!("SECANTUS_VERSION={SECANTUS_VERSION}\n")));
}
