//! The service killed in the middle of its work and started again: nothing acknowledged is lost, and every invariant holds.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::join_all;
use reqwest::{Client, Method, StatusCode};
use rookery_domain::{Limit, PostId, UserId};
use rookery_storage::{
    Settings, Store,
    testing::{OwnServer, TestDatabase, user},
    verify,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// How long a condition may take to come true: leases and claims of the process that was killed last ten seconds, on a machine that is
/// busy with other tests.
const PATIENCE: Duration = Duration::from_mins(1);

/// A `rookery serve` in a process of its own.
struct Service {
    process: Child,
    base: String,
    http: Client,
}

impl Service {
    async fn start(database: &TestDatabase) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rookery"))
            .args(["serve", "--migrate"])
            .env_clear()
            .env("ROOKERY_LISTEN", "127.0.0.1:0")
            .env("ROOKERY_MONGODB_URI", database.uri())
            .env("ROOKERY_DATABASE", database.name())
            .env("ROOKERY_CELEBRITY_THRESHOLD", database.store().settings().celebrity_threshold.to_string())
            .env("ROOKERY_SIGNING_KEY", "cm9va2VyeS10ZXN0cy1zaWduLXdpdGgtdGhpcy1rZXk=")
            .env("ROOKERY_PASSWORD_HASH_COST", "test")
            .env("ROOKERY_RATE_LIMIT", "off")
            .env("ROOKERY_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let base = loop {
            let line = lines.next_line().await.unwrap().expect("the service says where it listens");
            if let Some(at) = line.find("http://") {
                break line[at..].split_whitespace().next().unwrap().to_owned();
            }
        };
        Self { process, base, http: Client::new() }
    }

    /// As a power cut ends it.
    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> reqwest::Result<(StatusCode, Value)> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// A new account, with its token.
    async fn register(&self, handle: &str) -> (UserId, String) {
        let body =
            json!({ "handle": handle, "email": format!("{handle}@example.org"), "password": "correct horse battery staple" });
        let (status, answer) = self.call(Method::POST, "/api/v1/auth/register", None, Some(body)).await.unwrap();
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        (text("/user/id").parse().unwrap(), text("/accessToken"))
    }
}

/// A database on a server of its own, which soon forgets the transactions of a process that was killed.
async fn database(settings: Settings) -> (OwnServer, TestDatabase) {
    let server = OwnServer::start().await;
    server.end_transactions_after(Duration::from_secs(5)).await;
    let database = server.database(settings).await;
    (server, database)
}

async fn users(store: &Store, n: usize) -> Vec<UserId> {
    join_all((0..n).map(|_| user(store))).await
}

/// Waits until nothing is left to do and every invariant holds.
async fn settled(store: &Store) {
    let settled = tokio::time::timeout(PATIENCE, async {
        loop {
            let (waiting, _) = store.fanout_backlog().await.unwrap();
            if waiting == 0 && verify::verify(store).await.unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let settled = settled.await.is_ok();
    assert!(settled, "still: {:?}, {:#?}", store.fanout_backlog().await.unwrap(), verify::verify(store).await.unwrap());
}

/// All of a reader's feed.
async fn feed(store: &Store, reader: UserId) -> Vec<PostId> {
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.feed(reader, cursor, Limit::MAX).await.unwrap();
        seen.extend(page.items.iter().map(|item| item.post.id));
        cursor = page.next;
        if cursor.is_none() {
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_in_whose_middle_the_service_was_killed_reaches_every_follower() {
    const FOLLOWERS: usize = 300;
    /// Posts that are acknowledged before the service is killed: by then some are delivered, and one is being delivered.
    const BEFORE: usize = 20;
    let (_server, database) = database(Settings::default()).await;
    let store = database.store();
    let service = Service::start(&database).await;
    let (author, token) = service.register("author").await;
    let followers = users(store, FOLLOWERS).await;
    let edges: Vec<_> = followers.iter().map(|follower| (*follower, author)).collect();
    assert_eq!(store.import_follows(&edges).await.unwrap(), FOLLOWERS);
    settled(store).await;

    // Posts until the service is gone; what was acknowledged is noted.
    let acknowledged = AtomicUsize::new(0);
    let posting = async {
        let mut posts = Vec::new();
        loop {
            let body = json!({ "text": "In the middle of it" });
            match service.call(Method::POST, "/api/v1/posts", Some(&token), Some(body)).await {
                Ok((StatusCode::CREATED, post)) => {
                    posts.push(post["id"].as_str().unwrap().parse::<PostId>().unwrap());
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok((status, answer)) => panic!("{status}: {answer}"),
                Err(_) => return posts,
            }
        }
    };
    let pid = rustix::process::Pid::from_raw(i32::try_from(service.process.id().unwrap()).unwrap()).unwrap();
    let killing = async {
        while acknowledged.load(Ordering::Relaxed) < BEFORE || store.fanout_backlog().await.unwrap().0 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let (posts, ()) = tokio::join!(posting, killing);
    assert!(posts.len() >= BEFORE);
    service.kill().await;

    let service = Service::start(&database).await;
    settled(store).await;
    store.refresh_shared().await.unwrap();
    for reader in followers.iter().step_by(29).chain([&author]) {
        let feed = feed(store, *reader).await;
        for post in &posts {
            assert!(feed.contains(post), "{reader} misses {post}");
        }
    }
    let (status, answer) = service.call(Method::GET, "/api/v1/feed?limit=100", Some(&token), None).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{answer}");
    service.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follow_storm_in_whose_middle_the_service_was_killed_loses_no_acknowledged_follow() {
    const CALLERS: usize = 16;
    const TARGETS: usize = 40;
    /// Follows that are acknowledged before the service is killed.
    const BEFORE: usize = 250;
    // One of the targets becomes a celebrity meanwhile.
    let (_server, database) = database(Settings { celebrity_threshold: 12, ..Settings::default() }).await;
    let store = database.store();
    let service = Service::start(&database).await;
    let targets = users(store, TARGETS).await;
    let mut callers = Vec::new();
    for n in 0..CALLERS {
        callers.push(service.register(&format!("caller_{n}")).await);
    }
    let acknowledged = AtomicUsize::new(0);
    let storming = join_all(callers.iter().enumerate().map(|(n, (me, token))| {
        let (service, targets, acknowledged) = (&service, &targets, &acknowledged);
        async move {
            let mut told: BTreeMap<(UserId, UserId), bool> = BTreeMap::new();
            for round in 0.. {
                // All begin with the same one.
                let target = targets[if round == 0 { 0 } else { (n + round) % TARGETS }];
                let method = if round % 7 == 6 { Method::DELETE } else { Method::PUT };
                let follows = method == Method::PUT;
                let path = format!("/api/v1/users/{target}/follow");
                let Ok((status, answer)) = service.call(method, &path, Some(token), None).await else {
                    // Nobody knows what became of it.
                    told.remove(&(*me, target));
                    return told;
                };
                assert!(status.is_success(), "{status}: {answer}");
                told.insert((*me, target), follows);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            told
        }
    }));
    let pid = rustix::process::Pid::from_raw(i32::try_from(service.process.id().unwrap()).unwrap()).unwrap();
    let killing = async {
        while acknowledged.load(Ordering::Relaxed) < BEFORE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let (told, ()) = tokio::join!(storming, killing);
    service.kill().await;

    let service = Service::start(&database).await;
    settled(store).await;
    for ((follower, followee), wanted) in told.iter().flatten() {
        assert_eq!(store.follows(*follower, *followee).await.unwrap(), *wanted, "{follower} follows {followee}");
    }
    let token = &callers[0].1;
    let (status, star) = service.call(Method::GET, &format!("/api/v1/users/{}", targets[0]), Some(token), None).await.unwrap();
    assert_eq!(status, StatusCode::OK, "the token that was given before is as good: {star}");
    service.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_service_loses_the_views_that_it_had_not_written_and_no_others() {
    let (_server, database) = database(Settings::default()).await;
    let store = database.store();
    let service = Service::start(&database).await;
    let (author, token) = service.register("author").await;
    let body = json!({ "text": "Read by many" });
    let (status, post) = service.call(Method::POST, "/api/v1/posts", Some(&token), Some(body)).await.unwrap();
    assert_eq!(status, StatusCode::CREATED, "{post}");
    let post: PostId = post["id"].as_str().unwrap().parse().unwrap();
    let view = async |service: &Service, times: usize| {
        for _ in 0..times {
            let (status, answer) = service.call(Method::GET, &format!("/api/v1/posts/{post}"), None, None).await.unwrap();
            assert_eq!(status, StatusCode::OK, "{answer}");
        }
    };
    let views = async || store.post(post, None).await.unwrap().unwrap().counts.views;
    // The service writes them by itself.
    let reach = async |wanted: i64| {
        let reached = tokio::time::timeout(PATIENCE, async {
            while views().await < wanted {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(reached.await.is_ok(), "{} of {wanted}", views().await);
    };
    view(&service, 5).await;
    reach(5).await;
    view(&service, 7).await;
    service.kill().await;
    let before = views().await;
    assert!((5..=12).contains(&before), "{before}");

    let service = Service::start(&database).await;
    view(&service, 3).await;
    reach(before + 3).await;
    assert_eq!(views().await, before + 3);
    // The hours are as the total, but for what the kill came between.
    let stats = format!("/api/v1/users/{author}/stats");
    let counted = tokio::time::timeout(PATIENCE, async {
        loop {
            let (_, answer) = service.call(Method::GET, &stats, Some(&token), None).await.unwrap();
            let hours = answer["items"].as_array().unwrap().clone();
            let counted: i64 = hours.iter().map(|hour| hour["views"].as_i64().unwrap()).sum();
            if counted >= 8 {
                return counted;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!((8..=15).contains(&counted.await.unwrap()));
    settled(store).await;
    service.kill().await;
}
