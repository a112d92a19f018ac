//! A headless Chromium, driven over its `DevTools` protocol. The protocol runs over a pair of pipes (`--remote-debugging-pipe`): no port,
//! no WebSocket, no driver beside the browser.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// How long the page may take for one step, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_mins(1);

/// The browser reads commands from descriptor 3 and writes answers to 4; what it prints is of no interest.
const ON_PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// A page in a browser of its own.
pub(crate) struct Page {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// Every address that the page has asked for.
    pub(crate) requested: Vec<String>,
    /// What the browser complained of, violations of the content security policy among it.
    pub(crate) complaints: Vec<String>,
    _browser: Child,
    _profile: TempDir,
}

impl Page {
    pub(crate) async fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new("/bin/sh")
            .args(["-c", ON_PIPES, "sh"])
            .arg(std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned()))
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,1600"])
            .args(["--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (to, from) = (browser.stdin.take().unwrap(), BufReader::new(browser.stdout.take().unwrap()));
        let (requested, complaints) = (Vec::new(), Vec::new());
        let mut page = Self { to, from, session: None, calls: 0, requested, complaints, _browser: browser, _profile: profile };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" })).await["targetId"].clone();
        let attached = page.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await;
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        page.call("Page.navigate", json!({ "url": url })).await;
        page
    }

    /// Calls a method of the protocol; what happens in the page meanwhile is noted.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{call}\0").as_bytes()).await.expect("chromium runs: is it installed?");
        loop {
            let mut bytes = Vec::new();
            let read = self.from.read_until(0, &mut bytes);
            let length = tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{method} takes too long")).unwrap();
            assert!(length > 0, "chromium has ended, or is not installed");
            let message: Value = serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap()).unwrap();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            match message["method"].as_str() {
                Some("Network.requestWillBeSent") => {
                    self.requested.push(message["params"]["request"]["url"].as_str().unwrap().to_owned());
                }
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.complaints.push(message["params"]["entry"].to_string());
                }
                Some("Runtime.exceptionThrown") => self.complaints.push(message["params"].to_string()),
                _ => {}
            }
        }
    }

    /// Waits until this expression is true of the page, and gives back its value.
    pub(crate) async fn wait_for(&mut self, expression: &str) -> Value {
        let promise = format!(
            "new Promise(done => {{ const look = () => {{ const it = {expression}; it ? done(it) : setTimeout(look, 20) }}; look() }})"
        );
        self.evaluate(&promise).await
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Clicks what the selector finds, once it is there.
    pub(crate) async fn click(&mut self, selector: &str) {
        self.wait_for(&format!("!!document.querySelector({selector:?})")).await;
        self.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
    }

    /// Types into what the selector finds, over what is there.
    pub(crate) async fn fill(&mut self, selector: &str, text: &str) {
        self.wait_for(&format!("!!document.querySelector({selector:?})")).await;
        self.evaluate(&format!("(it => {{ it.focus(); it.select() }})(document.querySelector({selector:?}))")).await;
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    pub(crate) async fn reload(&mut self) {
        self.call("Page.reload", json!({})).await;
    }

    /// A picture of the page, for people: written to the file that `SCREENSHOT` names, if it does.
    pub(crate) async fn screenshot(&mut self) {
        use base64::{Engine as _, engine::general_purpose::STANDARD};

        if let Ok(file) = std::env::var("SCREENSHOT") {
            let picture = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await;
            std::fs::write(file, STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
        }
    }
}
