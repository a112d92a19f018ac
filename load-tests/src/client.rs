//! The service over HTTP, as far as the scenarios use it; every answer is checked for its status and its content.
//!
//! It talks to 127.0.0.1 and to nothing else: load is never sent to a machine that did not ask for it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use reqwest::{RequestBuilder, Url, redirect::Policy};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::loops::Failure;

/// Items of a page in every scenario.
pub(crate) const PAGE: usize = 20;

/// A call that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The counter of `/metrics` that the fan-out is measured by.
const FANOUT_ENTRIES: &str = "fanout_entries_total";

/// The counter of `/metrics` that tells the transactions which counted children in their post.
const APPLIED_BATCHES: &str = "applied_batches_total";

/// The counter of `/metrics` that stands still when nothing is left to do.
const BACKGROUND_ITEMS: &str = "worker_items_total";

/// A service. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    base: Arc<str>,
}

/// Somebody who is logged in.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) id: Uuid,
    pub(crate) handle: String,
    token: String,
}

/// What a profile says.
#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    pub(crate) handle: String,
    pub(crate) celebrity: bool,
    pub(crate) counts: Counts,
}

/// The counts of a profile.
#[derive(Debug, Deserialize)]
pub(crate) struct Counts {
    pub(crate) followers: u64,
}

/// A page of followers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FollowerPage {
    pub(crate) items: Vec<Follower>,
    pub(crate) next_cursor: Option<String>,
}

/// One follower in a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Follower {
    user: Summary,
    /// RFC 3339 in UTC with milliseconds, so that the order of texts is the order of times.
    followed_at: String,
}

#[derive(Debug, Deserialize)]
struct Summary {
    id: Uuid,
    handle: String,
}

#[derive(Debug, Deserialize)]
struct FeedPage {
    items: Vec<FeedItem>,
}

#[derive(Debug, Deserialize)]
struct FeedItem {
    post: Post,
}

#[derive(Debug, Deserialize)]
struct Post {
    id: Uuid,
    author: Summary,
    text: String,
}

/// What is counted under a post.
#[derive(Debug, Deserialize)]
pub(crate) struct PostCounts {
    pub(crate) comments: u64,
    pub(crate) likes: u64,
}

#[derive(Debug, Deserialize)]
struct CountedPost {
    counts: PostCounts,
}

#[derive(Debug, Deserialize)]
struct Reacted {
    viewer: ReactedViewer,
}

#[derive(Debug, Deserialize)]
struct ReactedViewer {
    liked: bool,
}

/// A page of comments.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommentPage {
    pub(crate) items: Vec<Comment>,
    pub(crate) next_cursor: Option<String>,
    pub(crate) total: u64,
}

/// A page of what stands below a comment.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descendants {
    pub(crate) items: Vec<Comment>,
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    comment: Comment,
    descendants: Descendants,
}

/// A comment in a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Comment {
    id: Uuid,
    post_id: Uuid,
    parent_id: Option<Uuid>,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Relationships {
    items: Vec<Relationship>,
}

#[derive(Debug, Deserialize)]
struct Relationship {
    id: Uuid,
    following: bool,
}

#[derive(Debug, Deserialize)]
struct Followed {
    state: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Login {
    user: Summary,
    access_token: String,
}

impl From<Login> for Account {
    fn from(login: Login) -> Self {
        Self { id: login.user.id, handle: login.user.handle, token: login.access_token }
    }
}

impl Api {
    /// The service at this address.
    ///
    /// # Errors
    /// An address that is not `http://127.0.0.1:PORT`.
    pub(crate) fn new(base_url: &str) -> Result<Self> {
        let url = Url::parse(base_url).with_context(|| format!("`{base_url}` is not a URL"))?;
        if url.scheme() != "http" || url.host_str() != Some("127.0.0.1") || url.path() != "/" || !url.username().is_empty() {
            bail!("`{base_url}` is not http://127.0.0.1:PORT: load is sent to this machine alone");
        }
        // A proxy or a redirect would lead elsewhere.
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT).build()?;
        Ok(Self { http, base: base_url.trim_end_matches('/').into() })
    }

    /// Whether the service says that it is ready.
    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.http.get(format!("{}/readyz", self.base)).send().await;
        answer.is_ok_and(|answer| answer.status().as_u16() == 200)
    }

    /// The process's own health: a handler that does nothing.
    pub(crate) async fn health(&self) -> Result<(), Failure> {
        let answer = self.send(self.http.get(format!("{}/healthz", self.base)), 200).await?;
        answer.bytes().await.map(drop).map_err(|error| transport(&error))
    }

    /// One `find_one` through the whole stack. There only where the service runs with `ROOKERY_BENCH=on`.
    pub(crate) async fn bench_find_one(&self, caller: &Account) -> Result<(), Failure> {
        let request = self.http.get(format!("{}/bench/find-one", self.base)).bearer_auth(&caller.token);
        let value: Value = self.json(request, 200).await?;
        check(value.is_object(), "a document that is not an object")
    }

    /// Feed entries delivered since the service started. A counter that does not show has not counted yet.
    pub(crate) async fn fanout_entries(&self) -> Result<u64, Failure> {
        self.counter(FANOUT_ENTRIES).await
    }

    /// What all background loops have dealt with since the service started.
    pub(crate) async fn background_items(&self) -> Result<u64, Failure> {
        self.counter(BACKGROUND_ITEMS).await
    }

    /// How often the service has written a parent to count children of this kind since it started.
    pub(crate) async fn applied_batches(&self, of: &str) -> Result<u64, Failure> {
        self.counter(&format!("{APPLIED_BATCHES}{{child=\"{of}\"}}")).await
    }

    async fn counter(&self, name: &str) -> Result<u64, Failure> {
        let answer = self.send(self.http.get(format!("{}/metrics", self.base)), 200).await?;
        let text = answer.text().await.map_err(|error| transport(&error))?;
        sum_of_metric(&text, name)
    }

    /// Makes an account.
    pub(crate) async fn register(&self, handle: &str, password: &str) -> Result<Account, Failure> {
        let body = json!({"handle": handle, "email": format!("{handle}@load.example"), "password": password});
        let login: Login = self.json(self.http.post(self.url("/auth/register")).json(&body), 201).await?;
        check(login.user.handle == handle, "an account with another handle")?;
        Ok(login.into())
    }

    /// Logs in.
    pub(crate) async fn login(&self, handle: &str, password: &str) -> Result<Account, Failure> {
        let body = json!({"identifier": handle, "password": password});
        let login: Login = self.json(self.http.post(self.url("/auth/login")).json(&body), 200).await?;
        check(login.user.handle == handle, "another account")?;
        Ok(login.into())
    }

    /// Follows a public account.
    pub(crate) async fn follow(&self, caller: &Account, user: Uuid) -> Result<(), Failure> {
        let request = self.http.put(self.url(&format!("/users/{user}/follow"))).bearer_auth(&caller.token);
        let followed: Followed = self.json(request, 200).await?;
        check(followed.state == "following", "a public account that is not followed at once")
    }

    /// Follows somebody no more.
    pub(crate) async fn unfollow(&self, caller: &Account, user: Uuid) -> Result<(), Failure> {
        self.done(self.http.delete(self.url(&format!("/users/{user}/follow"))), caller).await
    }

    /// Blocks an account.
    pub(crate) async fn block(&self, caller: &Account, user: Uuid) -> Result<(), Failure> {
        self.done(self.http.put(self.url(&format!("/users/{user}/block"))), caller).await
    }

    /// Stops blocking an account.
    pub(crate) async fn unblock(&self, caller: &Account, user: Uuid) -> Result<(), Failure> {
        self.done(self.http.delete(self.url(&format!("/users/{user}/block"))), caller).await
    }

    /// Deletes the caller's account.
    pub(crate) async fn delete_account(&self, caller: &Account, password: &str) -> Result<(), Failure> {
        let request = self.http.delete(self.url("/me")).bearer_auth(&caller.token).json(&json!({"password": password}));
        let deleted: Value = self.json(request, 202).await?;
        check(deleted["jobId"].is_string(), "a deletion without its job")
    }

    /// A call that is answered by nothing but its being done.
    async fn done(&self, request: RequestBuilder, caller: &Account) -> Result<(), Failure> {
        self.send(request.bearer_auth(&caller.token), 204).await.map(drop)
    }

    /// Asks how the caller stands to an account, and checks that the caller does not follow it.
    pub(crate) async fn relationship(&self, caller: &Account, user: Uuid) -> Result<(), Failure> {
        let request = self.http.get(self.url("/relationships")).query(&[("ids", user)]).bearer_auth(&caller.token);
        let list: Relationships = self.json(request, 200).await?;
        check(
            matches!(list.items.as_slice(), [one] if one.id == user && !one.following),
            "another relationship than that of a stranger",
        )
    }

    /// Writes a post.
    pub(crate) async fn post(&self, caller: &Account, text: &str) -> Result<(), Failure> {
        self.publish(caller, text).await.map(drop)
    }

    /// Writes a post and gives its id.
    pub(crate) async fn publish(&self, caller: &Account, text: &str) -> Result<Uuid, Failure> {
        let request = self.http.post(self.url("/posts")).bearer_auth(&caller.token).json(&json!({"text": text}));
        let post: Post = self.json(request, 201).await?;
        check(post.text == text && post.author.id == caller.id, "another post than was written")?;
        Ok(post.id)
    }

    /// What is counted under a post.
    pub(crate) async fn post_counts(&self, post: Uuid) -> Result<PostCounts, Failure> {
        let post: CountedPost = self.json(self.http.get(self.url(&format!("/posts/{post}"))), 200).await?;
        Ok(post.counts)
    }

    /// Likes a post.
    pub(crate) async fn like_post(&self, caller: &Account, post: Uuid) -> Result<(), Failure> {
        let request = self.http.put(self.url(&format!("/posts/{post}/like"))).bearer_auth(&caller.token);
        let reacted: Reacted = self.json(request, 200).await?;
        check(reacted.viewer.liked, "a post that was liked and is not")
    }

    /// Comments on a post, or answers a comment, and gives the new comment's id.
    pub(crate) async fn comment(&self, caller: &Account, post: Uuid, text: &str, parent: Option<Uuid>) -> Result<Uuid, Failure> {
        let body = json!({"text": text, "parentId": parent});
        let request = self.http.post(self.url(&format!("/posts/{post}/comments"))).bearer_auth(&caller.token).json(&body);
        let made: Comment = self.json(request, 201).await?;
        check(made.text == text && made.post_id == post && made.parent_id == parent, "another comment than was written")?;
        Ok(made.id)
    }

    /// Reads a page of the comments under a post and checks that it is full (or the last), of this post, and has none twice.
    pub(crate) async fn comments(&self, post: Uuid, cursor: Option<&str>) -> Result<CommentPage, Failure> {
        let page: CommentPage = self.page(&format!("/posts/{post}/comments"), cursor).await?;
        check(page.items.len() == PAGE || page.next_cursor.is_none(), "a page of comments that is short but not the last")?;
        check(page.items.iter().all(|comment| comment.post_id == post), "a comment of another post")?;
        check(each_once(&page.items), "a comment twice on a page")?;
        Ok(page)
    }

    /// Reads a page of what stands below a comment that nothing but direct answers stand below, and checks it as one of comments.
    pub(crate) async fn thread(&self, comment: Uuid, cursor: Option<&str>) -> Result<Descendants, Failure> {
        let thread: Thread = self.page(&format!("/comments/{comment}/thread"), cursor).await?;
        let below = thread.descendants;
        check(thread.comment.id == comment, "another comment's thread")?;
        check(below.items.len() == PAGE || below.next_cursor.is_none(), "a page of a thread that is short but not the last")?;
        check(below.items.iter().all(|answer| answer.parent_id == Some(comment)), "an answer to another comment")?;
        check(each_once(&below.items), "a comment twice on a page")?;
        Ok(below)
    }

    async fn page<T: DeserializeOwned>(&self, path: &str, cursor: Option<&str>) -> Result<T, Failure> {
        let mut request = self.http.get(self.url(path)).query(&[("limit", PAGE)]);
        if let Some(cursor) = cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        self.json(request, 200).await
    }

    /// Reads a profile.
    pub(crate) async fn profile(&self, user: Uuid) -> Result<Profile, Failure> {
        self.json(self.http.get(self.url(&format!("/users/{user}"))), 200).await
    }

    /// Reads a page of followers and checks that it is full (or the last), newest first, and names nobody twice.
    pub(crate) async fn followers(&self, user: Uuid, cursor: Option<&str>) -> Result<FollowerPage, Failure> {
        let page: FollowerPage = self.page(&format!("/users/{user}/followers"), cursor).await?;
        check(page.items.len() == PAGE || page.next_cursor.is_none(), "a page of followers that is short but not the last")?;
        check(page.items.is_sorted_by(|a, b| a.followed_at >= b.followed_at), "followers that are not newest first")?;
        let distinct: HashSet<_> = page.items.iter().map(|item| item.user.id).collect();
        check(distinct.len() == page.items.len(), "a follower twice on a page")?;
        Ok(page)
    }

    /// Reads the first page of the home feed and checks that it is full, newest first, has no post twice, and none by an author whom
    /// the reader does not follow. (In these scenarios nobody reposts, so that a post's id is its place.)
    pub(crate) async fn feed(&self, reader: &Account, followed: &HashSet<Uuid>) -> Result<(), Failure> {
        let request = self.http.get(self.url("/feed")).query(&[("limit", PAGE)]).bearer_auth(&reader.token);
        let page: FeedPage = self.json(request, 200).await?;
        check(page.items.len() == PAGE, format!("a feed page of {} instead of {PAGE}", page.items.len()))?;
        check(page.items.is_sorted_by(|a, b| a.post.id > b.post.id), "a feed that is not newest first, each post once")?;
        check(page.items.iter().all(|item| followed.contains(&item.post.author.id)), "a post by an author who is not followed")
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/v1{path}", self.base)
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder, expected: u16) -> Result<T, Failure> {
        let answer = self.send(request, expected).await?;
        let body = answer.bytes().await.map_err(|error| transport(&error))?;
        serde_json::from_slice(&body).map_err(|error| Failure::wrong(format!("a body that does not decode ({error})")))
    }

    /// Sends, and turns a status that is not the expected one into the code of the problem document.
    async fn send(&self, request: RequestBuilder, expected: u16) -> Result<reqwest::Response, Failure> {
        let answer = request.send().await.map_err(|error| transport(&error))?;
        let status = answer.status().as_u16();
        if status == expected {
            return Ok(answer);
        }
        let problem: Option<Value> = answer.json().await.ok();
        let code = problem.as_ref().and_then(|problem| problem.get("code")?.as_str()).unwrap_or("no problem code");
        Err(Failure(format!("{status} {code}")))
    }
}

fn check(holds: bool, otherwise: impl std::fmt::Display) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::wrong(otherwise)) }
}

fn each_once(comments: &[Comment]) -> bool {
    comments.iter().map(|comment| comment.id).collect::<HashSet<_>>().len() == comments.len()
}

fn transport(error: &reqwest::Error) -> Failure {
    let kind = if error.is_timeout() {
        "timeout"
    } else if error.is_connect() {
        "no_connection"
    } else {
        "connection_lost"
    };
    Failure(kind.to_owned())
}

/// The sum over all label sets of one metric in the Prometheus text format.
fn sum_of_metric(text: &str, name: &str) -> Result<u64, Failure> {
    let mut sum = 0.0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])) else { continue };
        let value = rest.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        sum += value.ok_or_else(|| Failure::wrong(format!("a metric that does not read: {line}")))?;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter: whole, not negative, below 2^53")]
    Ok(sum as u64)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A service that gives every caller the same answer.
    async fn answering(status: &str, body: &str) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap_or_else(|error| panic!("{error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4_096];
                let read = stream.read(&mut request).await;
                assert!(read.is_ok_and(|length| length > 0));
                assert!(stream.write_all(answer.as_bytes()).await.is_ok());
            }
        });
        Api::new(&format!("http://127.0.0.1:{port}")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn account() -> Account {
        Account { id: Uuid::nil(), handle: "alice".to_owned(), token: "token".to_owned() }
    }

    fn item(post: u128, author: u128) -> Value {
        json!({"post": {"id": Uuid::from_u128(post), "text": "hello", "author": {"id": Uuid::from_u128(author), "handle": "bob"}}})
    }

    #[test]
    fn no_other_machine_is_called() {
        assert!(Api::new("http://127.0.0.1:8080").is_ok());
        assert!(Api::new("http://127.0.0.1:8080/").is_ok());
        for url in [
            "https://127.0.0.1:8080",
            "http://localhost:8080",
            "http://192.0.2.1:8080",
            "http://example.com",
            "http://127.0.0.1:8080/api",
            "http://127.0.0.1@example.com/",
            "127.0.0.1:8080",
        ] {
            assert!(Api::new(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn an_error_is_named_by_its_problem_code() {
        let api = answering("503 Service Unavailable", r#"{"code":"database_unavailable"}"#).await;
        assert_eq!(api.follow(&account(), Uuid::nil()).await, Err(Failure("503 database_unavailable".to_owned())));
        let api = answering("502 Bad Gateway", "<html>").await;
        assert_eq!(api.follow(&account(), Uuid::nil()).await, Err(Failure("502 no problem code".to_owned())));
    }

    #[tokio::test]
    async fn a_right_status_with_a_wrong_content_is_an_error() {
        let api = answering("200 OK", r#"{"state":"requested"}"#).await;
        assert!(api.follow(&account(), Uuid::nil()).await.is_err_and(|failure| failure.0.starts_with("wrong_answer")));
        let api = answering("200 OK", "[]").await;
        assert!(api.follow(&account(), Uuid::nil()).await.is_err_and(|failure| failure.0.starts_with("wrong_answer")));
    }

    #[tokio::test]
    async fn a_service_that_is_gone_is_an_error() {
        let api = Api::new("http://127.0.0.1:1").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(api.health().await, Err(Failure("no_connection".to_owned())));
    }

    #[tokio::test]
    async fn comments_are_checked_for_their_post_and_for_being_there_once() {
        let (post, root) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let comment = |id: u128, post: Uuid, parent: Uuid| json!({"id": Uuid::from_u128(id), "postId": post, "parentId": parent, "text": "x"});
        let two = |one: Value, other: Value| json!({"items": [one, other], "nextCursor": null, "total": 2});
        for (page, right) in [
            (two(comment(3, post, root), comment(4, post, root)), true),
            (two(comment(3, post, root), comment(3, post, root)), false),
            (two(comment(3, post, root), comment(4, root, root)), false),
            (json!({"items": [comment(3, post, root)], "nextCursor": "x", "total": 2}), false),
        ] {
            let api = answering("200 OK", &page.to_string()).await;
            assert_eq!(api.comments(post, None).await.is_ok(), right, "{page}");
        }
        for (below, right) in [(comment(3, post, root), true), (comment(3, post, post), false)] {
            let thread = json!({"comment": comment(2, post, post), "descendants": {"items": [below], "nextCursor": null}});
            let api = answering("200 OK", &thread.to_string()).await;
            assert_eq!(api.thread(root, None).await.is_ok(), right, "{thread}");
        }
    }

    #[tokio::test]
    async fn a_feed_is_checked_for_length_order_and_authors() {
        let followed = HashSet::from([Uuid::from_u128(7)]);
        let full: Vec<_> = (1..=20).rev().map(|post| item(post, 7)).collect();
        let mut twice = full.clone();
        twice[4] = twice[3].clone();
        let mut foreign = full.clone();
        foreign[9] = item(11, 8);
        let reversed: Vec<_> = full.iter().rev().cloned().collect();
        for (items, right) in
            [(full.clone(), true), (full[1..].to_vec(), false), (twice, false), (foreign, false), (reversed, false)]
        {
            let api = answering("200 OK", &json!({"items": items}).to_string()).await;
            assert_eq!(api.feed(&account(), &followed).await.is_ok(), right, "{items:?}");
        }
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE fanout_entries_total counter\nfanout_entries_total{worker=\"a b\"} 3\n\
                    fanout_entries_total{worker=\"c\"} 4\nfanout_entries_total_more 9\n";
        assert_eq!(sum_of_metric(text, FANOUT_ENTRIES), Ok(7));
        assert_eq!(sum_of_metric("", FANOUT_ENTRIES), Ok(0));
        assert!(sum_of_metric("fanout_entries_total x\n", FANOUT_ENTRIES).is_err());
        let text = "applied_batches_total{child=\"comments\"} 5\napplied_batches_total{child=\"likes\"} 6\n";
        assert_eq!(sum_of_metric(text, "applied_batches_total{child=\"comments\"}"), Ok(5));
    }
}
