//! Copies of an account's name and picture in posts and comments against its profile.

use std::collections::{HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, lowest};
use crate::{
    Result, Store,
    collections::{COMMENTS, JOBS, POSTS, USERS},
    posts::AuthorDoc,
};

/// A profile: absent names are those of an account that is being deleted.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    handle: Option<String>,
    display_name: String,
    avatar_url: Option<String>,
}

impl Profile {
    fn fields() -> Document {
        doc! { "handle": 1, "displayName": 1, "avatarUrl": 1 }
    }

    /// Whether a copy is like it. What names an account that is being deleted goes with it.
    fn is_like(&self, copy: &AuthorDoc) -> bool {
        self.handle.as_ref().is_none_or(|handle| {
            (handle, &self.display_name, &self.avatar_url) == (&copy.handle, &copy.display_name, &copy.avatar_url)
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopyPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    author: AuthorDoc,
    #[serde(default)]
    mentions: Vec<AuthorDoc>,
    #[serde(default)]
    recent_comments: Vec<RecentPart>,
}

#[derive(Debug, Deserialize)]
struct RecentPart {
    author: AuthorDoc,
}

/// Accounts with their posts and comments, side by side in one pass; of each post also whom it names beside its author.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let mut users = pass.stream::<Profile>(USERS, "_id", doc! { "_id": 1 }, Profile::fields(), |user| user.id).await?;
    let order = || doc! { "author.userId": 1, "_id": 1 };
    let fields = doc! { "author": 1, "mentions": 1, "recentComments.author": 1 };
    let mut posts = pass.stream::<CopyPart>(POSTS, "author.userId", order(), fields, |copy| copy.author.user_id).await?;
    let fields = doc! { "author": 1 };
    let mut comments = pass.stream::<CopyPart>(COMMENTS, "author.userId", order(), fields, |copy| copy.author.user_id).await?;
    // Of those whom other posts name.
    let mut named = Named::default();
    let mut done = None;
    while let Some(at) = lowest([users.key().await?, posts.key().await?, comments.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            named.check(pass).await?;
            return Ok(Some(stop));
        }
        let profile = users.next_up_to(at).await?;
        let is_like = |copy: &AuthorDoc| profile.as_ref().is_none_or(|profile| profile.is_like(copy));
        let mut suspect = false;
        while let Some(post) = posts.next_up_to(at).await? {
            suspect |= !is_like(&post.author);
            for copy in post.mentions.into_iter().chain(post.recent_comments.into_iter().map(|comment| comment.author)) {
                named.add(post.id, copy);
            }
            if named.copies.len() >= Named::TOGETHER {
                named.check(pass).await?;
            }
        }
        while let Some(comment) = comments.next_up_to(at).await? {
            suspect |= !is_like(&comment.author);
        }
        if suspect {
            pass.report(recheck(&store, at, None).await?).await?;
        }
        done = Some(at);
    }
    named.check(pass).await?;
    Ok(None)
}

/// Copies of accounts whose profiles are still to be looked at.
#[derive(Debug, Default)]
struct Named {
    /// Each with the post in which it was first seen.
    copies: Vec<(bson::Uuid, AuthorDoc)>,
    seen: HashSet<(bson::Uuid, String, String, Option<String>)>,
}

impl Named {
    /// Different copies that are looked at together, by one query.
    const TOGETHER: usize = 500;

    fn add(&mut self, post: bson::Uuid, copy: AuthorDoc) {
        if self.seen.insert((copy.user_id, copy.handle.clone(), copy.display_name.clone(), copy.avatar_url.clone())) {
            self.copies.push((post, copy));
        }
    }

    async fn check(&mut self, pass: &mut Pass) -> Result<()> {
        self.seen.clear();
        let copies = std::mem::take(&mut self.copies);
        let ids: Vec<bson::Uuid> = copies.iter().map(|(_, copy)| copy.user_id).collect();
        let users = pass.store.coll::<Profile>(USERS);
        let found = users.find(doc! { "_id": { "$in": ids } }).projection(Profile::fields()).await?;
        let found: HashMap<bson::Uuid, Profile> = found.map_ok(|user| (user.id, user)).try_collect().await?;
        let store = pass.store.clone();
        for (post, copy) in copies {
            if found.get(&copy.user_id).is_some_and(|profile| !profile.is_like(&copy)) {
                pass.report(recheck(&store, copy.user_id, Some(post)).await?).await?;
            }
        }
        Ok(())
    }
}

/// Looks for a copy that is not like the profile again, of those in newest comments only under `post`, in one snapshot with what may be about to rewrite it.
async fn recheck(store: &Store, user: bson::Uuid, post: Option<bson::Uuid>) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let users = store.coll::<Profile>(USERS);
    let find = users.find_one(doc! { "_id": user }).projection(Profile::fields());
    let Some(profile) = find.session(&mut session).await? else { return Ok(None) };
    let Some(handle) = &profile.handle else { return Ok(None) };
    let renamed = doc! { "state": "pending", "kind": "rename", "payload.userId": user };
    if store.coll::<Document>(JOBS).find_one(renamed).session(&mut session).await?.is_some() {
        return Ok(None);
    }
    let (name, picture) = (&profile.display_name, &profile.avatar_url);
    let unlike = |prefix: &str| {
        let field = |field: &str| format!("{prefix}{field}");
        vec![
            doc! { (field("handle")): { "$ne": handle } },
            doc! { (field("displayName")): { "$ne": name } },
            doc! { (field("avatarUrl")): { "$ne": picture } },
        ]
    };
    let own = doc! { "author.userId": user, "$or": unlike("author.") };
    let mentioned = doc! { "$elemMatch": { "userId": user, "$or": unlike("") } };
    let mut copies = vec![(POSTS, own.clone()), (COMMENTS, own), (POSTS, doc! { "mentions.userId": user, "mentions": mentioned })];
    if let Some(post) = post {
        let kept = doc! { "$elemMatch": { "author.userId": user, "$or": unlike("author.") } };
        copies.push((POSTS, doc! { "_id": post, "recentComments": kept }));
    }
    for (name, copies) in copies {
        let found = store.coll::<Document>(name).find_one(copies).projection(doc! { "_id": 1 }).session(&mut session).await?;
        if found.is_some() {
            let detail = format!("a copy in {name} is not like the profile of @{handle}");
            return Ok(Some(Drift::new(DriftKind::NameCopy, user, detail)));
        }
    }
    Ok(None)
}
