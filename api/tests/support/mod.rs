//! The service as tests see it: started on a free port over a database of its own, spoken to over TCP, and every answer checked
//! against the OpenAPI document ([`contract`]).

#![expect(dead_code, reason = "every test file is a program of its own and uses its own part of this")]
#![expect(clippy::unwrap_used, reason = "a harness that cannot do what it says fails the test")]

pub(crate) mod browser;
pub(crate) mod contract;
pub(crate) mod proxy;

use std::ops::Deref;

use reqwest::{Method, header::HeaderMap};
use rookery_api::{app::Application, config::Config, workers};
use rookery_storage::{Store, pending::Progress, testing::TestDatabase};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use contract::Contract;

/// A running service. It does no background work by itself: see [`TestApp::settle`].
pub(crate) struct TestApp {
    base: String,
    http: reqwest::Client,
    store: Store,
    stop: CancellationToken,
    running: Option<JoinHandle<std::io::Result<()>>>,
    database: TestDatabase,
}

/// Starts the service as it comes, but that password hashes are cheap.
pub(crate) async fn spawn_app() -> TestApp {
    spawn_app_with(&[]).await
}

/// Starts the service with these variables set.
pub(crate) async fn spawn_app_with(vars: &[(&str, &str)]) -> TestApp {
    let config = config(vars);
    let database = TestDatabase::with(config.settings).await;
    let store = database.store().clone();
    TestApp::start(&config, store, database)
}

/// The configuration of a test: defaults, a free port, cheap hashes, and these variables.
pub(crate) fn config(vars: &[(&str, &str)]) -> Config {
    let fixed = [
        ("ROOKERY_LISTEN", "127.0.0.1:0"),
        ("ROOKERY_PASSWORD_HASH_COST", "test"),
        ("ROOKERY_SIGNING_KEY", "cm9va2VyeS10ZXN0cy1zaWduLXdpdGgtdGhpcy1rZXk="),
    ];
    let lookup = |name: &str| vars.iter().chain(&fixed).find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    Config::from_vars(lookup).unwrap()
}

impl TestApp {
    /// Starts the service over `store`, which stands on `database`.
    pub(crate) fn start(config: &Config, store: Store, database: TestDatabase) -> Self {
        let application = Application::build(config, store.clone(), &[]).unwrap();
        Self {
            base: format!("http://127.0.0.1:{}", application.port()),
            // A redirect is an answer like any other.
            http: reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap(),
            store,
            stop: application.stopper(),
            running: Some(tokio::spawn(application.run_until_stopped())),
            database,
        }
    }

    /// The store that the service works on.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The address of the service.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Somebody without a token.
    pub(crate) fn anonymous(&self) -> Caller {
        Caller { http: self.http.clone(), base: self.base.clone(), token: None }
    }

    /// Somebody with this token.
    pub(crate) fn with_token(&self, token: &str) -> Caller {
        Caller { token: Some(token.to_owned()), ..self.anonymous() }
    }

    /// A new account with this handle, logged in.
    pub(crate) async fn register(&self, handle: &str) -> User {
        let body = json!({ "handle": handle, "email": format!("{handle}@example.org"), "password": PASSWORD });
        let answer = self.anonymous().post("/api/v1/auth/register", &body).expect(201).await.json();
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let (access_token, refresh_token) = (text("/accessToken"), text("/refreshToken"));
        User {
            caller: self.with_token(&access_token),
            id: text("/user/id"),
            handle: text("/user/handle"),
            access_token,
            refresh_token,
        }
    }

    pub(crate) async fn alice(&self) -> User {
        self.register("alice").await
    }

    pub(crate) async fn bob(&self) -> User {
        self.register("bob").await
    }

    pub(crate) async fn carol(&self) -> User {
        self.register("carol").await
    }

    /// Does all background work that there is, in this task: what a test then reads is final, and no test sleeps.
    pub(crate) async fn settle(&self) {
        loop {
            let mut idle = true;
            for work in workers::ALL {
                while let Progress::Did(_) = (work.step)(self.store.clone()).await.unwrap() {
                    idle = false;
                }
            }
            if idle {
                // Not only once a second.
                self.store.flush_stats().await.unwrap();
                return;
            }
        }
    }

    /// Stops the service as `SIGTERM` does, and waits until it has ended.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            running.await.unwrap().unwrap();
        }
    }

    /// Stops the service as `SIGTERM` does, and starts another process, so to speak, on its database.
    pub(crate) async fn restart(&mut self) {
        let store = self.database.second_store().await;
        self.stop().await;
        let application = Application::build(&config(&[]), store.clone(), &[]).unwrap();
        self.base = format!("http://127.0.0.1:{}", application.port());
        self.store = store;
        self.stop = application.stopper();
        self.running = Some(tokio::spawn(application.run_until_stopped()));
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The password of every account of the tests.
pub(crate) const PASSWORD: &str = "correct horse 9 staple";

/// Somebody with an account, who calls with their token: `alice.get("/api/v1/me")`.
pub(crate) struct User {
    caller: Caller,
    pub(crate) id: String,
    pub(crate) handle: String,
    pub(crate) access_token: String,
    pub(crate) refresh_token: String,
}

impl Deref for User {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

/// Somebody who sends requests.
#[derive(Clone)]
pub(crate) struct Caller {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Caller {
    /// A request to be built: `caller.get("/api/v1/feed").send().await`.
    pub(crate) fn request(&self, method: Method, path: &str) -> Request {
        let mut builder = self.http.request(method.clone(), format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            builder = builder.bearer_auth(token);
        }
        Request { method, builder }
    }

    pub(crate) fn get(&self, path: &str) -> Request {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Request {
        self.request(Method::POST, path).json(body)
    }

    pub(crate) fn put(&self, path: &str) -> Request {
        self.request(Method::PUT, path)
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Request {
        self.request(Method::PATCH, path).json(body)
    }

    pub(crate) fn delete(&self, path: &str) -> Request {
        self.request(Method::DELETE, path)
    }
}

/// A request that is being built.
pub(crate) struct Request {
    method: Method,
    builder: reqwest::RequestBuilder,
}

impl Request {
    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.builder = self.builder.json(body);
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    /// A body as it is, whatever it is declared as.
    pub(crate) fn body(mut self, content_type: &str, body: impl Into<reqwest::Body>) -> Self {
        self.builder = self.builder.header("content-type", content_type).body(body);
        self
    }

    /// Sends it and takes any answer: for what is no operation, like a preflight.
    pub(crate) async fn raw(self) -> Answer {
        let response = self.builder.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let path = response.url().path().to_owned();
        Answer { status, headers, path, bytes: response.bytes().await.unwrap().to_vec() }
    }

    /// Sends it and checks the answer against the OpenAPI document.
    pub(crate) async fn send(self) -> Answer {
        let method = self.method.clone();
        let answer = self.raw().await;
        Contract::get().check(&method, &answer);
        answer
    }

    /// Sends it and asks for this status.
    pub(crate) async fn expect(self, status: u16) -> Answer {
        let method = self.method.clone();
        let answer = self.send().await;
        assert_eq!(answer.status, status, "{method} {}: {}", answer.path, answer.text());
        answer
    }
}

/// An answer that agrees with the OpenAPI document.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The path that was asked for.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A header's value, which may be empty, or nothing.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap().to_owned()
    }

    /// The fields that a problem complains about.
    pub(crate) fn fields(&self) -> Vec<String> {
        let body = self.json();
        body["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }
}
