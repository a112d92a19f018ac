//! What holds for every answer, whatever was asked.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use std::{
    collections::BTreeSet,
    process::Stdio,
    time::{Duration, Instant},
};

use reqwest::Method;
use rookery_storage::{Store, testing::TestDatabase};
use serde_json::{Value, json};
use support::{TestApp, config, proxy::Proxy, spawn_app, spawn_app_with};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

// Problems

#[tokio::test]
async fn an_unknown_path_is_404_for_every_method() {
    let app = spawn_app().await;
    for path in ["/api/v1/nothing", "/api/v1/users/a/b/c/d", "/nothing", "/api/v1/", "/api/v1", "/", "/docs/nothing", "/healthz/"] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::HEAD, Method::OPTIONS] {
            let docs = path.starts_with("/docs") && !matches!(method, Method::GET | Method::HEAD);
            app.anonymous().request(method, path).expect(if docs { 405 } else { 404 }).await;
        }
    }
}

#[tokio::test]
async fn a_known_path_with_another_method_is_405_and_says_which_methods_there_are() {
    let app = spawn_app().await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, Method::from_bytes(b"BREW").unwrap()]
    {
        let answer = app.anonymous().request(method, "/healthz").expect(405).await;
        assert_eq!(answer.code(), "method_not_allowed");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }
}

#[tokio::test]
async fn what_can_be_got_can_be_asked_for_by_head() {
    let app = spawn_app().await;
    let (got, asked) = (
        app.anonymous().get("/openapi.json").expect(200).await,
        app.anonymous().request(Method::HEAD, "/openapi.json").expect(200).await,
    );
    assert_eq!(got.header("content-length"), asked.header("content-length"));
    assert!(asked.bytes.is_empty());
}

#[tokio::test]
async fn a_problem_has_every_member_and_its_own_request_id() {
    let app = spawn_app().await;
    let answer = app.anonymous().get("/api/v1/nothing?secret=1").expect(404).await;
    let body = answer.json();
    for member in ["type", "title", "status", "detail", "instance", "code", "requestId", "errors"] {
        assert!(!body[member].is_null(), "{member}");
    }
    assert_eq!(body["instance"], "/api/v1/nothing");
}

#[tokio::test]
async fn a_problem_stays_one_when_html_is_asked_for() {
    let app = spawn_app().await;
    app.anonymous().get("/api/v1/nothing").header("accept", "text/html").expect(404).await;
}

#[tokio::test]
async fn request_ids_differ_and_are_never_the_callers() {
    let app = spawn_app().await;
    let mut ids = BTreeSet::new();
    for path in ["/healthz", "/healthz", "/api/v1/nothing", "/docs/", "/docs"] {
        let answer = app.anonymous().get(path).header("x-request-id", "mine").send().await;
        assert!(ids.insert(answer.header("x-request-id").unwrap().to_owned()));
    }
    assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'7'), "{ids:?}");
}

#[tokio::test]
async fn answers_are_safe_to_show_and_not_to_keep() {
    let app = spawn_app().await;
    let answer = app.anonymous().get("/api/v1/nothing").expect(404).await;
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("private, no-store"));
    let vary: Vec<_> = answer.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(vary.join(", ").contains("Authorization"), "{vary:?}");
}

// Bodies

/// Something to post to that needs no token.
const REGISTER: &str = "/api/v1/auth/register";

fn account() -> Value {
    json!({ "handle": "ada", "email": "ada@example.org", "password": support::PASSWORD })
}

#[tokio::test]
async fn a_body_that_is_no_json_is_400() {
    let app = spawn_app().await;
    for body in [&b""[..], b"{", b"{not json}", b"{\"handle\": \"a\"", b"[1,2", b"\xff\xfe", b"{\"handle\":\"a\"} x"] {
        let answer = app.anonymous().request(Method::POST, REGISTER).body("application/json", body).expect(400).await;
        assert_eq!(answer.code(), "invalid_json", "{body:?}");
    }
    let deep = format!(r#"{{"handle":{}{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
    app.anonymous().request(Method::POST, REGISTER).body("application/json", deep).expect(400).await;
}

#[tokio::test]
async fn a_body_of_another_form_is_400_and_names_the_field() {
    let app = spawn_app().await;
    for (change, field) in [
        (json!({ "handle": 7 }), "handle"),
        (json!({ "handle": null }), "handle"),
        (json!({ "email": ["x"] }), "email"),
        (json!({ "displayName": true }), "displayName"),
        (json!({ "isAdmin": true }), "isAdmin"),
    ] {
        let mut body = account();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = app.anonymous().post(REGISTER, &body).expect(400).await;
        assert_eq!((answer.code().as_str(), answer.fields()), ("invalid_body", vec![field.to_owned()]), "{body}");
    }
    let mut body = account();
    body.as_object_mut().unwrap().remove("email");
    assert_eq!(app.anonymous().post(REGISTER, &body).expect(400).await.fields(), ["email"]);
    for body in [json!([]), json!(null), json!("text"), json!([1])] {
        assert_eq!(app.anonymous().post(REGISTER, &body).expect(400).await.code(), "invalid_body", "{body}");
    }
}

#[tokio::test]
async fn another_media_type_is_415_and_a_charset_is_not_one() {
    let app = spawn_app().await;
    let send = |content_type: &str| app.anonymous().request(Method::POST, REGISTER).body(content_type, account().to_string());
    for other in
        ["text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"]
    {
        send(other).expect(415).await;
    }
    send("application/json; charset=latin1").expect(415).await;
    send("application/json").header("content-encoding", "gzip").expect(415).await;
    send("Application/JSON; charset=\"UTF-8\"").expect(201).await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_however_large() {
    let app = spawn_app().await;
    for size in [65_537, 4_000_000, 40_000_000] {
        let body = format!(r#"{{"handle":"{}"}}"#, "a".repeat(size));
        app.anonymous().request(Method::POST, REGISTER).body("application/json", body).expect(413).await;
    }
}

#[tokio::test]
async fn answers_are_compressed_but_not_where_there_are_tokens() {
    let app = spawn_app().await;
    let packed = app.anonymous().get("/openapi.json").header("accept-encoding", "gzip").raw().await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let request = app.anonymous().post(REGISTER, &account()).header("accept-encoding", "gzip");
    assert_eq!(request.expect(201).await.header("content-encoding"), None);
}

// Rate limits

fn remaining(answer: &support::Answer) -> u32 {
    answer.header("ratelimit-remaining").unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_answer_of_the_api_says_how_the_limit_stands() {
    let app = spawn_app().await;
    let answer = app.anonymous().get("/api/v1/nothing").expect(404).await;
    assert_eq!(answer.header("ratelimit-limit"), Some("1500"));
    assert_eq!((remaining(&answer), answer.header("ratelimit-reset")), (1499, Some("1")));
}

#[tokio::test]
async fn every_user_has_a_bucket_of_their_own() {
    let app = spawn_app().await;
    let (alice, bob) = (app.alice().await, app.bob().await);
    let answers = futures::future::join_all((0..20).map(|_| alice.get("/api/v1/me").expect(200))).await;
    assert_eq!(answers[0].header("ratelimit-limit"), Some("600"));
    assert!(answers.iter().any(|answer| remaining(answer) < 599));
    assert_eq!(remaining(&bob.get("/api/v1/me").expect(200).await), 599);
}

#[tokio::test]
async fn a_refused_token_is_charged_to_its_address() {
    let app = spawn_app().await;
    let guess = |_| app.with_token("a.b.c").get("/api/v1/me").expect(401);
    let answers = futures::future::join_all((0..20).map(guess)).await;
    assert_eq!(answers[0].header("ratelimit-limit"), Some("1500"));
    assert!(answers.iter().any(|answer| remaining(answer) < 1499));
}

#[tokio::test]
async fn a_forged_forwarded_address_gets_no_new_bucket() {
    let app = spawn_app().await;
    let send = |n: u8| app.anonymous().get("/api/v1/nothing").header("x-forwarded-for", &format!("203.0.113.{n}")).send();
    let answers = futures::future::join_all((0..20).map(send)).await;
    assert!(answers.iter().any(|answer| remaining(answer) < 1499), "twenty addresses, and each of them looks new");
}

#[tokio::test]
async fn a_proxy_that_is_trusted_says_who_is_calling() {
    let app = spawn_app_with(&[("ROOKERY_TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    let send = |n: u8| app.anonymous().get("/api/v1/nothing").header("x-forwarded-for", &format!("203.0.113.{n}")).send();
    let answers = futures::future::join_all((0..20).map(send)).await;
    assert!(answers.iter().all(|answer| remaining(answer) == 1499));
}

// CORS

#[tokio::test]
async fn pages_of_configured_origins_may_call_and_others_may_not() {
    let app = spawn_app_with(&[("ROOKERY_CORS_ORIGINS", "https://app.example, http://localhost:3000")]).await;
    let from = |origin: &'static str| app.anonymous().get("/api/v1/nothing").header("origin", origin).send();
    let answer = from("https://app.example").await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let exposed = answer.header("access-control-expose-headers").unwrap().to_owned();
    for header in
        ["x-request-id", "retry-after", "ratelimit-remaining", "link", "location", "idempotency-replayed", "etag", "x-feed-model"]
    {
        assert!(exposed.contains(header), "{header} in {exposed}");
    }
    assert_eq!(from("https://evil.example").await.header("access-control-allow-origin"), None);
}

fn preflight(app: &TestApp, origin: &str) -> support::Request {
    let request = app.anonymous().request(Method::OPTIONS, "/api/v1/posts").header("origin", origin);
    request
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,idempotency-key")
}

#[tokio::test]
async fn a_preflight_is_answered_before_anything_else() {
    let app = spawn_app_with(&[("ROOKERY_CORS_ORIGINS", "https://app.example")]).await;
    let answer = preflight(&app, "https://app.example").raw().await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("idempotency-key"));
    assert_eq!(preflight(&app, "https://evil.example").raw().await.code(), "bad_request");
}

#[tokio::test]
async fn without_configured_origins_there_is_no_cors() {
    let app = spawn_app().await;
    assert_eq!(preflight(&app, "https://app.example").send().await.header("access-control-allow-origin"), None);
    let any = spawn_app_with(&[("ROOKERY_CORS_ORIGINS", "*")]).await;
    assert_eq!(preflight(&any, "https://app.example").raw().await.header("access-control-allow-origin"), Some("*"));
}

// Operations

#[tokio::test]
async fn metrics_name_routes_and_no_paths() {
    let app = spawn_app().await;
    app.anonymous().get("/api/v1/01890000-0000-7000-8000-00000000dead").expect(404).await;
    app.anonymous().get("/healthz").expect(200).await;
    let text = app.anonymous().get("/metrics").expect(200).await.text();
    assert!(text.contains(r#"http_request_duration_seconds_count{method="GET",route="/healthz",status="200"}"#), "{text}");
    assert!(text.contains(r#"route="unmatched",status="404""#), "{text}");
    assert!(!text.contains("dead"), "an id in a label");
}

#[tokio::test]
async fn the_documentation_loads_nothing_from_elsewhere() {
    let app = spawn_app().await;
    assert_eq!(app.anonymous().get("/docs").expect(307).await.header("location"), Some("/docs/"));
    let page = app.anonymous().get("/docs/").expect(200).await;
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'self';"));
    let text = page.text();
    let assets: Vec<_> =
        text.split("src=\"").chain(text.split("href=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let assets: Vec<_> = assets.into_iter().filter(|asset| asset.starts_with("./") || asset.contains("//")).collect();
    assert!(assets.len() >= 4, "{assets:?}");
    for asset in assets {
        app.anonymous().get(&format!("/docs/{}", asset.strip_prefix("./").unwrap())).expect(200).await;
    }
}

#[tokio::test]
async fn a_database_that_is_gone_is_503_until_it_is_back() {
    let database = TestDatabase::new().await;
    let proxy = Proxy::before(database.uri()).await;
    let config = config(&[]);
    let store = Store::connect(&proxy.uri(), database.name(), config.settings).await.unwrap();
    let app = TestApp::start(&config, store, database);
    app.anonymous().get("/readyz").expect(200).await;

    proxy.cut();
    let answer = app.anonymous().get("/readyz").expect(503).await;
    assert_eq!(answer.code(), "database_unavailable");
    assert!(!answer.text().contains("mongo") && !answer.text().contains("127.0.0.1"), "{}", answer.text());
    app.anonymous().get("/healthz").expect(200).await;

    proxy.restore();
    let start = Instant::now();
    while app.anonymous().get("/readyz").send().await.status != 200 {
        assert!(start.elapsed() < Duration::from_secs(15), "the service does not resume");
    }
}

#[tokio::test]
async fn a_service_that_is_being_stopped_finishes_what_it_has() {
    let mut app = spawn_app().await;
    let port = app.base().rsplit(':').next().unwrap().to_owned();
    // A request whose body is half there when the stop comes.
    let mut slow = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
    let body = account().to_string();
    let head =
        format!("POST {REGISTER} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let (sent, rest) = body.split_at(9);
    slow.write_all(format!("{head}{sent}").as_bytes()).await.unwrap();
    app.anonymous().get("/readyz").expect(200).await;
    let started = Instant::now();
    let finish = async {
        slow.write_all(rest.as_bytes()).await.unwrap();
        let mut answer = String::new();
        slow.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let ((), answer) = tokio::join!(app.stop(), finish);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

// The program itself

struct Program {
    child: Child,
    address: String,
    _database: TestDatabase,
}

/// Starts `rookery serve` on a database of its own and waits until it says where it listens.
async fn rookery_serve() -> Program {
    let database = TestDatabase::new().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_rookery"))
        .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "text"])
        .env("ROOKERY_MONGODB_URI", database.uri())
        .env("ROOKERY_DATABASE", database.name())
        .env("ROOKERY_SIGNING_KEY", "cm9va2VyeS10ZXN0cy1zaWduLXdpdGgtdGhpcy1rZXk=")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    let address = line.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(line.ends_with(&format!("http://{address}/docs/")), "{line}");
    Program { child, address, _database: database }
}

#[tokio::test]
async fn the_program_stops_within_ten_seconds_of_sigterm_whoever_is_connected() {
    let mut program = rookery_serve().await;
    let client = reqwest::Client::new();
    let url = format!("http://{}/readyz", program.address);
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    // One connection that is kept for later, one that has never asked for anything.
    let _idle = TcpStream::connect(&program.address).await.unwrap();

    let pid = i32::try_from(program.child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM).unwrap();
    let status = tokio::time::timeout(Duration::from_secs(10), program.child.wait()).await.expect("it stops in time").unwrap();
    assert!(status.success(), "{status}");
    assert!(client.get(&url).send().await.is_err());
}

#[tokio::test]
async fn a_schema_that_is_behind_is_refused_and_migrated_when_asked() {
    let database = TestDatabase::new().await;
    let name = format!("{}_empty", database.name());
    let run = |args: &'static [&'static str]| {
        Command::new(env!("CARGO_BIN_EXE_rookery"))
            .args(args)
            .env("ROOKERY_MONGODB_URI", database.uri())
            .env("ROOKERY_DATABASE", &name)
            .env("ROOKERY_SIGNING_KEY", "cm9va2VyeS10ZXN0cy1zaWduLXdpdGgtdGhpcy1rZXk=")
            .output()
    };
    let refused = run(&["serve", "--listen", "127.0.0.1:0"]).await.unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("rookery migrate"), "{said}");
    assert!(run(&["migrate"]).await.unwrap().status.success());
    let store = Store::connect(database.uri(), &name, *database.store().settings()).await.unwrap();
    rookery_storage::migrations::check(&store).await.unwrap();
    store.drop_database().await.unwrap();
}

#[tokio::test]
async fn the_program_says_what_is_wrong_with_its_configuration() {
    let output = Command::new(env!("CARGO_BIN_EXE_rookery")).args(["serve", "--feed-model", "psuh"]).output().await.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ROOKERY_FEED_MODEL") && said.contains("psuh"), "{said}");
}

#[tokio::test]
async fn every_variable_is_in_the_help() {
    let output = Command::new(env!("CARGO_BIN_EXE_rookery")).args(["serve", "--help"]).output().await.unwrap();
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for variable in rookery_api::config::VARIABLES {
        assert!(help.contains(variable.name), "{}", variable.name);
    }
}
