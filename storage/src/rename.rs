//! Renaming an account: the new name on the profile at once, and a job that rewrites the copies of it.
//!
//! Posts and comments keep a copy of their author's name (the extended reference pattern), posts also those of whom they mention and of
//! the authors of their newest comments. The job goes through them in the order of their ids, and reads the profile anew for each
//! batch: of two renames that race, whichever job is last at a copy writes the newer name. It looks at the profile again after each
//! batch, for two jobs may be at one copy at the same time. A second pass is made over what was made since the job was asked for: who
//! read the old name before and wrote it after the first pass came by.

#[cfg(test)]
mod tests;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{Handle, JobId, Timestamp, UserId, ids, jobs::JobKind, page::LATE_MS, user::User};

use crate::{
    Result, Store,
    collections::{COMMENTS, POSTS, USERS},
    comments::CommentPlace,
    graph::IdDoc,
    jobs::{Batch, Checkpoint, Stage, Then},
    posts::AuthorDoc,
    search::SearchDoc,
    store::{b, commit, until_no_conflict},
    users::{Replaced, SummaryDoc, UserRef},
};

/// Copies that one batch rewrites: some 100 ms.
const COPIES: i64 = 1_000;

/// What became of a change of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// It is made; the account as it is then.
    Now(User),
    /// Somebody else has the handle: nothing is changed.
    HandleTaken,
    /// There is no such live account.
    Gone,
}

impl Store {
    /// Gives an account another handle: unique by its index, whatever races, and on the profile at once. The copies follow by a job.
    pub async fn change_handle(&self, user: UserId, handle: &Handle) -> Result<Edited> {
        until_no_conflict(|| self.change_handle_once(user, handle)).await
    }

    async fn change_handle_once(&self, user: UserId, handle: &Handle) -> Result<Edited> {
        // A transaction, so that a crash cannot leave the copies without the job that rewrites them.
        let mut session = self.begin().await?;
        let set = |account: &mut Document| {
            account.insert("handle", handle.as_str());
            // It may be absent where the name was like the old handle.
            let name = SearchDoc::of(account.get_str("displayName").unwrap_or_default());
            account.insert("search", doc! { "name": name.name, "keys": name.keys });
        };
        match self.replace_account(user, set, &mut session).await? {
            Replaced::Now => {}
            Replaced::Taken => return Ok(Edited::HandleTaken),
            Replaced::Gone => return Ok(Edited::Gone),
        }
        self.enqueue_rename(user, &mut session).await?;
        commit(session).await?;
        self.wake().jobs.notify_one();
        Ok(self.user(&UserRef::Id(user)).await?.map_or(Edited::Gone, Edited::Now))
    }

    /// Asks for the job that rewrites the copies of an account's name and picture, in the transaction that writes them to the
    /// profile. Wake the worker (`wake().jobs`) after the commit.
    pub(crate) async fn enqueue_rename(&self, user: UserId, session: &mut ClientSession) -> Result<JobId> {
        self.insert_job(JobKind::Rename, user, session).await
    }

    /// One batch of the job, which was asked for at `asked`.
    pub(crate) async fn rename_batch(&self, user: UserId, checkpoint: Option<Checkpoint>, asked: Timestamp) -> Result<Batch> {
        let at = checkpoint.unwrap_or(Checkpoint::at(Stage::Posts, 1));
        loop {
            // An account that was deleted meanwhile takes its copies with it.
            let Some(profile) = self.profile(user).await? else { return Ok(Batch { items: 0, then: Then::Finished }) };
            let batch = match at.stage {
                Stage::Comments => self.rename_comments(&profile, at, asked).await?,
                Stage::Mentions => self.rename_mentions(&profile, at, asked).await?,
                _ => self.rename_posts(&profile, at, asked).await?,
            };
            // Write first, check after: the newer name may have been written before this older one.
            let now = self.profile(user).await?;
            if now.is_none_or(|now| same(&now, &profile)) {
                return Ok(batch);
            }
        }
    }

    async fn profile(&self, user: UserId) -> Result<Option<AuthorDoc>> {
        let live = doc! { "_id": b(user), "state": "live" };
        let found = self.coll::<SummaryDoc>(USERS).find_one(live).projection(SummaryDoc::projection()).await?;
        Ok(found.map(AuthorDoc::from))
    }

    async fn rename_posts(&self, profile: &AuthorDoc, at: Checkpoint, asked: Timestamp) -> Result<Batch> {
        let own = doc! { "author.userId": profile.user_id, "_id": { "$gt": begin(at, asked) } };
        let posts = self.coll::<IdDoc>(POSTS).find(own).sort(doc! { "_id": 1 }).limit(COPIES).projection(doc! { "_id": 1 }).await?;
        let posts: Vec<bson::Uuid> = posts.map_ok(|post| post.id).try_collect().await?;
        let set = doc! { "$set": { "author": literal(profile)? } };
        self.rewrite(POSTS, doc! { "_id": { "$in": &posts } }, vec![set]).await?;
        Ok(batch(&posts, at, Some(Stage::Comments)))
    }

    async fn rename_comments(&self, profile: &AuthorDoc, at: Checkpoint, asked: Timestamp) -> Result<Batch> {
        let own = doc! { "author.userId": profile.user_id, "_id": { "$gt": begin(at, asked) } };
        let comments = self.coll::<CommentPlace>(COMMENTS);
        let comments = comments.find(own).sort(doc! { "_id": 1 }).limit(COPIES).projection(doc! { "postId": 1 }).await?;
        let comments: Vec<CommentPlace> = comments.try_collect().await?;
        let ids: Vec<bson::Uuid> = comments.iter().map(|comment| comment.id).collect();
        // Only where it still names its author: it may have become a tombstone since it was read.
        let these = doc! { "_id": { "$in": &ids }, "author.userId": profile.user_id };
        self.rewrite(COMMENTS, these, vec![doc! { "$set": { "author": literal(profile)? } }]).await?;
        // After the comments themselves: who fills up a subset from them meanwhile meets this write of the post, or has the new name.
        let mut posts: Vec<bson::Uuid> = comments.iter().map(|comment| comment.post_id).collect();
        posts.sort_unstable_by_key(|post| post.bytes());
        posts.dedup();
        let keeping = doc! { "_id": { "$in": posts }, "recentComments.author.userId": profile.user_id };
        let by_author = doc! { "$eq": ["$$one.author.userId", profile.user_id] };
        let renamed = doc! { "$mergeObjects": ["$$one", { "author": literal(profile)? }] };
        let each = doc! { "$map": { "input": "$recentComments", "as": "one", "in": { "$cond": [by_author, renamed, "$$one"] } } };
        self.rewrite(POSTS, keeping, vec![doc! { "$set": { "recentComments": each } }]).await?;
        Ok(batch(&ids, at, Some(Stage::Mentions)))
    }

    async fn rename_mentions(&self, profile: &AuthorDoc, at: Checkpoint, asked: Timestamp) -> Result<Batch> {
        // By the index on whom posts mention alone; what was rewritten in an earlier batch is left out here.
        let mentioning = doc! { "mentions.userId": profile.user_id };
        let begin = begin(at, asked);
        let posts = self.coll::<IdDoc>(POSTS).find(mentioning).projection(doc! { "_id": 1 }).await?;
        let posts = posts.try_filter(|post| std::future::ready(post.id.bytes() > begin.bytes()));
        let mut posts: Vec<bson::Uuid> = posts.map_ok(|post| post.id).try_collect().await?;
        posts.sort_unstable_by_key(|post| post.bytes());
        posts.truncate(usize::try_from(COPIES).unwrap_or(usize::MAX));
        self.rewrite_mentions(&posts, profile).await?;
        Ok(batch(&posts, at, None))
    }

    /// Writes the copy of a profile anew in posts that mention it.
    pub(crate) async fn rewrite_mentions(&self, posts: &[bson::Uuid], profile: &AuthorDoc) -> Result<()> {
        let mentioned = doc! { "$eq": ["$$one.userId", profile.user_id] };
        let each =
            doc! { "$map": { "input": "$mentions", "as": "one", "in": { "$cond": [mentioned, literal(profile)?, "$$one"] } } };
        self.rewrite(POSTS, doc! { "_id": { "$in": posts } }, vec![doc! { "$set": { "mentions": each } }]).await
    }

    async fn rewrite(&self, name: &str, which: Document, change: Vec<Document>) -> Result<()> {
        until_no_conflict(async || Ok(self.coll::<Document>(name).update_many(which.clone(), change.clone()).await?)).await?;
        Ok(())
    }
}

/// The id behind which a batch begins.
fn begin(at: Checkpoint, asked: Timestamp) -> bson::Uuid {
    // What is made while a clock lags, or commits late, has an id from before.
    let start = if at.pass == 1 { uuid::Uuid::nil() } else { ids::floor_at(Timestamp::from_millis(asked.as_millis() - LATE_MS)) };
    at.id.unwrap_or(b(start))
}

/// A batch that dealt with these documents, in ascending order; `next` is the stage that follows, or nothing the next pass.
fn batch(ids: &[bson::Uuid], at: Checkpoint, next: Option<Stage>) -> Batch {
    let then = match (ids.last(), next) {
        (Some(last), _) if i64::try_from(ids.len()) == Ok(COPIES) => Then::On(Checkpoint { id: Some(*last), ..at }),
        (_, Some(stage)) => Then::On(Checkpoint::at(stage, at.pass)),
        (_, None) if at.pass == 1 => Then::On(Checkpoint::at(Stage::Posts, 2)),
        (_, None) => Then::Finished,
    };
    Batch { items: ids.len(), then }
}

pub(crate) fn same(one: &AuthorDoc, other: &AuthorDoc) -> bool {
    (&one.handle, &one.display_name, &one.avatar_url) == (&other.handle, &other.display_name, &other.avatar_url)
}

/// The copy inside a pipeline: as a literal, for a name that begins with `$` is no field.
fn literal(profile: &AuthorDoc) -> Result<Document> {
    let copy = bson::serialize_to_document(profile).map_err(mongodb::error::Error::from)?;
    Ok(doc! { "$literal": copy })
}
