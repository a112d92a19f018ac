//! Who sees what: the table of docs/api-design.md, walked cell by cell.

#![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::{Answer, Caller, TestApp, User, spawn_app};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api-design.md");

/// The columns of the table.
const VIEWERS: [&str; 6] = ["anonymous", "stranger", "follower", "muter", "blocker", "blocked"];

/// The rows of the table under *Who sees what*: what, and for each viewer how.
fn table() -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let section = text.split("## Who sees what").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = section.lines().filter(|line| line.starts_with('|')).map(cells);
    assert_eq!(rows.next().unwrap()[1..], VIEWERS);
    let rows = rows.skip(1).map(|mut row| (row.remove(0), row));
    rows.inspect(|(what, cells)| assert_eq!(cells.len(), VIEWERS.len(), "{what}")).collect()
}

/// Everybody and everything that the table speaks of.
struct World {
    app: TestApp,
    author: User,
    /// Whom every viewer follows, and who follows the author and is followed by them.
    third: User,
    public: String,
    for_followers: String,
    /// The post of the third, which names the author.
    other_post: String,
    /// The author's comment under it.
    comment: String,
    /// The third's reply to that.
    reply: String,
    /// The third's comment which the author's comment answers.
    root: String,
    /// The author's post that the third has reposted.
    reposted: String,
    /// The author's comment under their own posts.
    under_public: String,
    under_for_followers: String,
    /// The author's posts that name every viewer.
    naming: String,
    naming_for_followers: String,
}

fn id(of: &Value) -> String {
    of["id"].as_str().unwrap().to_owned()
}

async fn publish(by: &User, text: &str, visibility: &str) -> String {
    id(&by.post("/api/v1/posts", &json!({ "text": text, "visibility": visibility })).expect(201).await.json())
}

async fn comment(by: &User, post: &str, parent: Option<&str>) -> String {
    let body = json!({ "text": "a word", "parentId": parent });
    id(&by.post(&format!("/api/v1/posts/{post}/comments"), &body).expect(201).await.json())
}

async fn follow(who: &User, whom: &User) {
    who.put(&format!("/api/v1/users/{}/follow", whom.id)).expect(200).await;
}

async fn react(who: &User, post: &str, verb: &str, status: u16) {
    who.put(&format!("/api/v1/posts/{post}/{verb}")).expect(status).await;
}

impl World {
    async fn new() -> (Self, Vec<Option<User>>) {
        let app = spawn_app().await;
        let (author, third) = (app.register("author").await, app.register("third").await);
        follow(&third, &author).await;
        follow(&author, &third).await;
        let public = publish(&author, "for all #topic", "public").await;
        let for_followers = publish(&author, "for friends #topic", "followers").await;
        for post in [&public, &for_followers] {
            author.patch(&format!("/api/v1/posts/{post}"), &json!({ "text": "said better #topic" })).expect(200).await;
        }
        let other_post = publish(&third, "hello @author", "public").await;
        let root = comment(&third, &other_post, None).await;
        let of_author = comment(&author, &other_post, Some(&root)).await;
        let reply = comment(&third, &other_post, Some(&of_author)).await;
        let under_public = comment(&author, &public, None).await;
        let under_for_followers = comment(&author, &for_followers, None).await;
        let reposted = publish(&author, "for all, and further", "public").await;
        react(&third, &reposted, "repost", 200).await;
        react(&third, &public, "like", 200).await;
        react(&author, &public, "repost", 200).await;
        react(&third, &for_followers, "like", 200).await;
        react(&author, &other_post, "like", 200).await;
        react(&author, &other_post, "repost", 200).await;
        let mut viewers = vec![None];
        for name in &VIEWERS[1..] {
            let viewer = app.register(name).await;
            follow(&viewer, &third).await;
            if ["follower", "muter"].contains(name) {
                follow(&viewer, &author).await;
            }
            // Before anything hides them.
            react(&viewer, &public, "bookmark", 200).await;
            let follows = ["follower", "muter"].contains(name);
            react(&viewer, &for_followers, "bookmark", if follows { 200 } else { 404 }).await;
            react(&author, &publish(&viewer, "by a viewer", "public").await, "like", 200).await;
            let (who, verb, whom) = match *name {
                "muter" => (&viewer, "mute", &author),
                "blocker" => (&viewer, "block", &author),
                "blocked" => (&author, "block", &viewer),
                _ => {
                    viewers.push(Some(viewer));
                    continue;
                }
            };
            who.put(&format!("/api/v1/users/{}/{verb}", whom.id)).expect(204).await;
            viewers.push(Some(viewer));
        }
        let names = format!("for @{}", VIEWERS[1..].join(" @"));
        let naming = publish(&author, &names, "public").await;
        let naming_for_followers = publish(&author, &names, "followers").await;
        app.settle().await;
        let world = Self {
            app,
            author,
            third,
            public,
            for_followers,
            other_post,
            comment: of_author,
            reply,
            root,
            reposted,
            under_public,
            under_for_followers,
            naming,
            naming_for_followers,
        };
        (world, viewers)
    }

    /// What a viewer meets at one surface; none if there is no such surface.
    async fn probe(&self, what: &str, viewer: Option<&User>) -> Option<String> {
        let anonymous = self.app.anonymous();
        let caller: &Caller = viewer.map_or(&anonymous, |user| user);
        let get = async |path: String| caller.get(&format!("/api/v1/{path}")).send().await;
        let (author, third) = (&self.author.id, &self.third.id);
        Some(match what {
            "profile" | "private author: profile" => alone(&get(format!("users/{author}")).await, author),
            "followers and followees of the author" | "private author: followers and followees" => {
                let followers = among(&get(format!("users/{author}/followers")).await, "user", third);
                assert_eq!(followers, among(&get(format!("users/{author}/following")).await, "user", third));
                followers
            }
            "known followers of the author" | "private author: known followers" => {
                among(&get(format!("users/{author}/known-followers")).await, "user", third)
            }
            "posts of the author: a public post" | "private author: posts" => {
                among(&get(format!("users/{author}/posts")).await, "", &self.public)
            }
            "posts of the author: a followers-only post" => {
                among(&get(format!("users/{author}/posts")).await, "", &self.for_followers)
            }
            "a public post" | "private author: a post that was public" => {
                alone(&get(format!("posts/{}", self.public)).await, &self.public)
            }
            "a public post, by ids" | "private author: the same by ids" => {
                among(&get(format!("posts?ids={}", self.public)).await, "", &self.public)
            }
            "comments under a public post" | "private author: comments under it" => {
                let single = alone(&get(format!("comments/{}", self.under_public)).await, &self.under_public);
                let list = get(format!("posts/{}/comments", self.public)).await;
                // A muter reads single comments, and the author's own are no exception in lists.
                let listed = if single == "shown" { list.status == 200 } else { list.status == 404 };
                assert!(listed, "{what}: {single}, and the list {}", list.status);
                single
            }
            "what a public post said before" | "private author: what it said before" => self.history(caller, &self.public).await,
            "what a followers-only post said before" => self.history(caller, &self.for_followers).await,
            "posts by tag: a public post" | "private author: posts by tag" => {
                among(&get("tags/topic/posts".to_owned()).await, "", &self.public)
            }
            "posts by tag: a followers-only post" => among(&get("tags/topic/posts".to_owned()).await, "", &self.for_followers),
            "a followers-only post" => alone(&get(format!("posts/{}", self.for_followers)).await, &self.for_followers),
            "a followers-only post, by ids" => {
                among(&get(format!("posts?ids={}", self.for_followers)).await, "", &self.for_followers)
            }
            "comments under a followers-only post" => {
                alone(&get(format!("comments/{}", self.under_for_followers)).await, &self.under_for_followers)
            }
            "a comment by the author under another's post" => {
                alone(&get(format!("comments/{}", self.comment)).await, &self.comment)
            }
            "the same in the list of comments, and in its total" => {
                let page = get(format!("posts/{}/comments?limit=100", self.other_post)).await;
                let body = page.json();
                assert_eq!(body["total"], body["items"].as_array().unwrap().len(), "{what}");
                among(&page, "", &self.comment)
            }
            "the same in the post's newest comments" => {
                let post = get(format!("posts/{}", self.other_post)).await.json();
                is_in(&post["recentComments"], "", &self.comment)
            }
            "the replies to that comment" => {
                among(&get(format!("posts/{}/comments?parentId={}", self.other_post, self.comment)).await, "", &self.reply)
            }
            "the thread of that comment" => {
                let thread = get(format!("comments/{}/thread", self.comment)).await;
                if thread.status != 200 {
                    return Some(thread.status.to_string());
                }
                assert_eq!(thread.json()["comment"]["id"], *self.comment);
                is_in(&thread.json()["descendants"]["items"], "", &self.reply)
            }
            "that comment above and below others in their threads" => {
                let below = get(format!("comments/{}/thread", self.root)).await.json();
                let above = get(format!("comments/{}/thread", self.reply)).await.json();
                let met = is_in(&below["descendants"]["items"], "", &self.comment);
                assert_eq!(met, is_in(&above["ancestors"], "", &self.comment));
                met
            }
            "an answer to that comment in the thread above it" => {
                let thread = get(format!("comments/{}/thread", self.root)).await.json();
                is_in(&thread["descendants"]["items"], "", &self.reply)
            }
            "the author named in another's post" => {
                is_in(&get(format!("posts/{}", self.other_post)).await.json()["mentions"], "", author)
            }
            "the author among another's followers and followees" => {
                let followers = among(&get(format!("users/{third}/followers")).await, "user", author);
                assert_eq!(followers, among(&get(format!("users/{third}/following")).await, "user", author));
                followers
            }
            "the author among another's known followers" => {
                among(&get(format!("users/{third}/known-followers")).await, "user", author)
            }
            "the feed: a public post" => among(&get("feed?limit=100".to_owned()).await, "post", &self.public),
            "the feed: a followers-only post" => among(&get("feed?limit=100".to_owned()).await, "post", &self.for_followers),
            "the feed: the author's comment among the newest of another's post" => {
                let feed = get("feed?limit=100".to_owned()).await;
                if feed.status != 200 {
                    return Some(feed.status.to_string());
                }
                let body = feed.json();
                let item = body["items"].as_array().unwrap().iter().find(|item| item["post"]["id"] == self.other_post.as_str());
                is_in(&item.unwrap()["post"]["recentComments"], "", &self.comment)
            }
            "statistics of the author" | "private author: statistics" => {
                get(format!("users/{author}/stats")).await.status.to_string()
            }
            "relationship to the author" => among(&get(format!("relationships?ids={author}")).await, "", author),
            "commenting on a public post" => self.write(caller, &self.public, None).await,
            "replying to the author's comment" => self.write(caller, &self.other_post, Some(&self.comment)).await,
            "following the author" | "private author: following" => {
                let path = format!("/api/v1/users/{author}/follow");
                let answer = caller.put(&path).send().await;
                if viewer.is_some_and(|user| user.handle == "stranger") {
                    caller.delete(&path).expect(204).await;
                }
                answer.status.to_string()
            }
            _ => return self.probe_reactions(what, caller).await,
        })
    }

    /// The same at the surfaces of likes, reposts and bookmarks.
    async fn probe_reactions(&self, what: &str, caller: &Caller) -> Option<String> {
        let get = async |path: String| caller.get(&format!("/api/v1/{path}")).send().await;
        let (author, third) = (&self.author.id, &self.third.id);
        Some(match what {
            "the author's post in the feed, reposted by one whom all follow"
            | "private author: reposted by one whom all follow" => {
                among(&get("feed?limit=100".to_owned()).await, "post", &self.reposted)
            }
            "the author among who likes and who has reposted another's post" => {
                let likes = among(&get(format!("posts/{}/likes", self.other_post)).await, "", author);
                assert_eq!(likes, among(&get(format!("posts/{}/reposts", self.other_post)).await, "", author));
                likes
            }
            "who likes and who has reposted a public post" | "private author: who likes and who has reposted it" => {
                let likes = among(&get(format!("posts/{}/likes", self.public)).await, "", third);
                assert_eq!(likes, among(&get(format!("posts/{}/reposts", self.public)).await, "", author));
                likes
            }
            "who likes and who has reposted a followers-only post" => {
                let likes = get(format!("posts/{}/likes", self.for_followers)).await;
                assert_eq!(likes.status, get(format!("posts/{}/reposts", self.for_followers)).await.status);
                among(&likes, "", third)
            }
            "notifications: a public post that names the viewer" | "private author: notifications: a post that was public" => {
                told(caller, &["post"], &self.naming).await
            }
            "notifications: a followers-only post that names the viewer" => {
                told(caller, &["post"], &self.naming_for_followers).await
            }
            "notifications: the author likes a post of the viewer" => told(caller, &["actors", "0"], author).await,
            "bookmarks: a public post" => among(&get("me/bookmarks?limit=100".to_owned()).await, "", &self.public),
            "bookmarks: a followers-only post" => among(&get("me/bookmarks?limit=100".to_owned()).await, "", &self.for_followers),
            "liking and bookmarking a public post" => self.like(caller, &format!("posts/{}", self.public), true).await,
            "liking and bookmarking a followers-only post" => {
                self.like(caller, &format!("posts/{}", self.for_followers), true).await
            }
            "liking the author's comment" => self.like(caller, &format!("comments/{}", self.comment), false).await,
            "reposting a public post" | "private author: reposting" => self.repost(caller, &self.public).await,
            "reposting a followers-only post" => self.repost(caller, &self.for_followers).await,
            _ => return None,
        })
    }

    /// What a post said before.
    async fn history(&self, caller: &Caller, post: &str) -> String {
        let answer = caller.get(&format!("/api/v1/posts/{post}/history")).send().await;
        if answer.status != 200 {
            return answer.status.to_string();
        }
        assert_eq!(answer.json()["items"].as_array().unwrap().len(), 1);
        "shown".to_owned()
    }

    /// Likes something and takes that back; a bookmark, if it is one's to make, stays.
    async fn like(&self, caller: &Caller, what: &str, and_bookmark: bool) -> String {
        let path = format!("/api/v1/{what}/like");
        let answer = caller.put(&path).send().await;
        if answer.status == 200 {
            caller.delete(&path).expect(200).await;
        }
        if and_bookmark {
            assert_eq!(caller.put(&format!("/api/v1/{what}/bookmark")).send().await.status, answer.status);
        }
        answer.status.to_string()
    }

    /// Reposts a post, and takes it back.
    async fn repost(&self, caller: &Caller, post: &str) -> String {
        let path = format!("/api/v1/posts/{post}/repost");
        let answer = caller.put(&path).send().await;
        if answer.status == 200 {
            caller.delete(&path).expect(200).await;
        }
        answer.status.to_string()
    }

    /// Writes a comment, and takes it back.
    async fn write(&self, caller: &Caller, post: &str, parent: Option<&str>) -> String {
        let body = json!({ "text": "a word", "parentId": parent });
        let answer = caller.post(&format!("/api/v1/posts/{post}/comments"), &body).send().await;
        if answer.status == 201 {
            caller.delete(&format!("/api/v1/comments/{}", id(&answer.json()))).expect(204).await;
        }
        answer.status.to_string()
    }
}

/// Whether a caller is told of a thing, which stands there in each notification; what is shown and what is counted must agree.
async fn told(caller: &Caller, path: &[&str], id: &str) -> String {
    let list = caller.get("/api/v1/notifications?limit=100").send().await;
    let count = caller.get("/api/v1/notifications/unread-count").send().await;
    assert_eq!(list.status, count.status);
    if list.status != 200 {
        return list.status.to_string();
    }
    let body = list.json();
    let items = body["items"].as_array().unwrap();
    assert_eq!(count.json()["count"], items.len());
    let pointer = format!("/{}/id", path.join("/"));
    let like = |item: &Value| path[0] != "actors" || item["type"] == "like";
    let there = items.iter().any(|item| like(item) && item.pointer(&pointer).is_some_and(|found| *found == *id));
    (if there { "shown" } else { "left out" }).to_owned()
}

/// How a thing is met that is asked for alone.
fn alone(answer: &Answer, id: &str) -> String {
    if answer.status != 200 {
        return answer.status.to_string();
    }
    assert_eq!(answer.json()["id"], *id);
    "shown".to_owned()
}

/// How a thing is met in a list, each of whose items holds it in the field `of` (or is it).
fn among(answer: &Answer, of: &str, id: &str) -> String {
    if answer.status == 200 { is_in(&answer.json()["items"], of, id) } else { answer.status.to_string() }
}

fn is_in(items: &Value, of: &str, id: &str) -> String {
    let there = items.as_array().unwrap().iter().any(|item| if of.is_empty() { item["id"] == *id } else { item[of]["id"] == *id });
    (if there { "shown" } else { "left out" }).to_owned()
}

#[tokio::test]
async fn everybody_sees_what_the_table_says() {
    let (world, viewers) = World::new().await;
    let rows = table();
    let names: BTreeSet<_> = rows.iter().map(|(what, _)| what).collect();
    assert!(rows.len() == names.len() && rows.len() >= 30, "every row once, and all of them");
    let mut wrong = Vec::new();
    let mut private = false;
    for (what, cells) in &rows {
        if what.starts_with("private author: ") != private {
            assert!(!private, "rows of a private author come last");
            private = true;
            world.author.patch("/api/v1/me", &json!({ "private": true })).expect(200).await;
        }
        for ((name, viewer), expected) in VIEWERS.iter().zip(&viewers).zip(cells) {
            let met = world.probe(what, viewer.as_ref()).await.unwrap_or_else(|| panic!("a row that nothing walks: {what}"));
            if met != *expected {
                wrong.push(format!("{what}, {name}: {met}, and the table says {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn the_author_sees_their_own_posts_private_or_not() {
    let (world, _) = World::new().await;
    for private in [false, true] {
        world.author.patch("/api/v1/me", &json!({ "private": private })).expect(200).await;
        for post in [&world.public, &world.for_followers] {
            assert_eq!(alone(&world.author.get(&format!("/api/v1/posts/{post}")).send().await, post), "shown");
            let own = world.author.get(&format!("/api/v1/users/{}/posts", world.author.id)).send().await;
            assert_eq!(among(&own, "", post), "shown");
        }
    }
}
