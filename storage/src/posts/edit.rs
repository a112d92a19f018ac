//! Editing posts, and what they said before.
//!
//! An edit is one transaction: the new text with what is derived from it, the text that it replaces, and the end of the oldest version
//! where there are too many. Its first statement writes the post, so that whatever else writes the post (counting comments and
//! reactions, a delivery, a deletion) and the edit exclude each other, and one of them begins anew. Each writes fields of its own, so no
//! counter is lost; only a live post is edited, and its deletion writes it too, so no version of a deleted post is made after the sweep.
//!
//! Nothing in memory holds texts (the heads of authors and the acts that are still to be delivered are ids): every read of every process
//! has the new text as soon as the transaction is committed.

use std::collections::HashMap;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, PostId, Timestamp, UserId,
    page::SeqCursor,
    post::{Post, REVISIONS_KEPT, Revision},
    text,
};
use serde::Deserialize;

use super::{AuthorDoc, RevisionDoc, docs::MentionPart};
use crate::{
    Result, Store,
    collections::{POST_REVISIONS, POSTS, USERS},
    notifications::Told,
    rename::same,
    seq_page::{self, Extent, Slice, Way},
    store::{b, commit, date, new_id, now, until_no_conflict},
    users::SummaryDoc,
};

/// What became of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// The post says so now, or did already.
    Now(Box<Post>),
    /// There is none, or none that the caller may know of.
    NotFound,
    /// Somebody else wrote it.
    NotYours,
}

/// A text, and what is derived from it.
#[derive(Debug)]
struct Version {
    text: String,
    tags: Vec<String>,
    mentions: Vec<AuthorDoc>,
    at: Timestamp,
}

/// What a post was before it was edited.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BeforeDoc {
    text: String,
    created_at: bson::DateTime,
    edited_at: Option<bson::DateTime>,
    #[serde(default)]
    revision_seq: i64,
    seq: Option<i64>,
    #[serde(default)]
    mentions: Vec<MentionPart>,
}

impl Store {
    /// Gives a post another text, as [`text::post`] gives it, on behalf of `by`, and derives its tags and mentions anew. The text that it
    /// had is kept, unless it is the same: then nothing changes.
    pub async fn edit_post(&self, id: PostId, by: UserId, text: String) -> Result<Edited> {
        let mentions = self.mentioned(&text).await?;
        // No edit is older than its post, whatever the clocks say.
        let version = Version { tags: text::tags(&text), text, mentions, at: now().max(id.time()) };
        if until_no_conflict(|| self.write_version(id, by, &version)).await? {
            self.settle_mentions(id, version.mentions).await?;
        }
        // Where nothing was written there is no such post, or it says so already, or it is somebody else's.
        Ok(match self.post(id, Some(by)).await? {
            Some(post) if post.author.id == by => Edited::Now(Box::new(post)),
            Some(_) => Edited::NotYours,
            None => Edited::NotFound,
        })
    }

    /// Whether there is a live post of `by` that said something else.
    async fn write_version(&self, id: PostId, by: UserId, version: &Version) -> Result<bool> {
        let mentions = version.mentions.iter().map(bson::serialize_to_document).collect::<Result<Vec<_>, _>>();
        let mentions = mentions.map_err(mongodb::error::Error::from)?;
        let mut session = self.begin().await?;
        let other = doc! { "_id": b(id), "author.userId": b(by), "state": "live", "text": { "$ne": &version.text } };
        let change = doc! {
            "$set": { "text": &version.text, "tags": &version.tags, "mentions": mentions },
            "$max": { "editedAt": date(version.at) },
            "$inc": { "revisionSeq": 1_i64 },
        };
        let fields = doc! {
            "_id": 0, "text": 1, "createdAt": 1, "editedAt": 1, "revisionSeq": 1, "seq": 1, "mentions.userId": 1,
        };
        let posts = self.coll::<BeforeDoc>(POSTS);
        let before = posts.find_one_and_update(other, change).projection(fields).session(&mut session).await?;
        let Some(before) = before else {
            session.abort_transaction().await?;
            return Ok(false);
        };
        let revision = RevisionDoc {
            id: b(new_id()),
            post_id: b(id),
            seq: before.revision_seq + 1,
            text: before.text,
            edited_at: before.edited_at.unwrap_or(before.created_at),
        };
        let revisions = self.coll::<RevisionDoc>(POST_REVISIONS);
        revisions.insert_one(&revision).session(&mut session).await?;
        if revision.seq > REVISIONS_KEPT {
            let old = doc! { "postId": b(id), "seq": { "$lte": revision.seq - REVISIONS_KEPT } };
            revisions.delete_many(old).session(&mut session).await?;
        }
        // One that is not counted yet is told by whoever counts it, from what it says then.
        let names = !(before.mentions.is_empty() && version.mentions.is_empty());
        let mut told = Vec::new();
        if before.seq.is_some() && names {
            let mentioned = version.mentions.iter().map(|user| UserId(user.user_id.into())).filter(|user| *user != by);
            told.extend(mentioned.map(|user| Told::mention(user, by, b(id), Some(b(id)), None)));
            self.retell_mentions(&mut session, b(id), &told).await?;
        }
        commit(session).await?;
        self.announce(told.iter().map(|one| one.recipient));
        Ok(true)
    }

    /// Brings the copies of those whom an edit has just mentioned up to date. A rename or a deletion goes through posts that mention its
    /// account once it has changed the account, and rewrites later only what is new; an old post that read the account before and wrote
    /// it after that is found by nobody else. Write first, check after, until what was written is what is read.
    async fn settle_mentions(&self, id: PostId, mut written: Vec<AuthorDoc>) -> Result<()> {
        while !written.is_empty() {
            let ids: Vec<bson::Uuid> = written.iter().map(|copy| copy.user_id).collect();
            let live = doc! { "_id": { "$in": ids }, "state": "live" };
            let found = self.coll::<SummaryDoc>(USERS).find(live).projection(SummaryDoc::projection()).await?;
            let mut profiles: HashMap<bson::Uuid, AuthorDoc> =
                found.map_ok(|user| (user.id, AuthorDoc::from(user))).try_collect().await?;
            let mut rewritten = Vec::new();
            for copy in written {
                match profiles.remove(&copy.user_id) {
                    Some(profile) if same(&profile, &copy) => {}
                    Some(profile) => {
                        self.rewrite_mentions(&[b(id)], &profile).await?;
                        rewritten.push(profile);
                    }
                    None => self.forget_mention(id, copy.user_id).await?,
                }
            }
            written = rewritten;
        }
        Ok(())
    }

    async fn forget_mention(&self, id: PostId, user: bson::Uuid) -> Result<()> {
        let forget = doc! { "$pull": { "mentions": { "userId": user } } };
        let posts = self.coll::<Document>(POSTS);
        until_no_conflict(async || Ok(posts.update_one(doc! { "_id": b(id) }, forget.clone()).await?)).await?;
        Ok(())
    }

    /// A page of what a post said before, newest first, at most [`REVISIONS_KEPT`] in all; none if there is no such post, or none that the
    /// viewer may see.
    pub async fn post_history(
        &self,
        id: PostId,
        viewer: Option<UserId>,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Option<Page<Revision, SeqCursor>>> {
        let Some(seen) = self.seen_post(b(id), viewer).await? else { return Ok(None) };
        let (newest, kept) = (seen.revision_seq, seen.revision_seq.min(REVISIONS_KEPT));
        let extent = Extent { above: newest - kept, newest, total: kept };
        seq_page::page(Way::Down, cursor, limit, extent, async |slice| self.revisions_in(id, slice).await).await.map(Some)
    }

    async fn revisions_in(&self, id: PostId, slice: Slice) -> Result<Vec<(i64, Revision)>> {
        let range = slice.of(&doc! { "postId": b(id) });
        let found = self.coll::<RevisionDoc>(POST_REVISIONS).find(range).sort(slice.sort()).limit(slice.most).await?;
        Ok(found.map_ok(|revision| (revision.seq, revision.into())).try_collect().await?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

    use std::time::Duration;

    use rookery_domain::{Handle, ids, post::Visibility};

    use super::*;
    use crate::{
        posts::NewPost,
        testing::{TestDatabase, user},
        verify::verify,
    };

    async fn named(store: &Store, handle: &str) -> UserId {
        let id = user(store).await;
        store.change_handle(id, &Handle::parse(handle).unwrap()).await.unwrap();
        id
    }

    async fn mentioned(store: &Store, post: PostId) -> Vec<String> {
        let post = store.post(post, None).await.unwrap().unwrap();
        post.mentions.iter().map(|user| user.handle.to_string()).collect()
    }

    /// The edit has read whom it mentions; then comes all of a rename and of a deletion; only then it goes on.
    #[tokio::test]
    async fn an_edit_that_a_rename_and_a_deletion_overtake_names_nobody_by_an_old_name() {
        let db = TestDatabase::new().await;
        let store = db.store();
        let (alice, bob, carol) = (user(store).await, named(store, "bob").await, named(store, "carol").await);
        // Long ago: the second pass of a rename has no reason to look at it.
        let id = PostId(ids::floor_at(now().minus(Duration::from_hours(1))));
        let new = NewPost { id, author: alice, text: "first".to_owned(), visibility: Visibility::Public };
        store.create_post(new).await.unwrap().unwrap();
        let text = "@bob and @carol".to_owned();
        let version = Version { tags: Vec::new(), mentions: store.mentioned(&text).await.unwrap(), text, at: now() };
        store.change_handle(bob, &Handle::parse("robert").unwrap()).await.unwrap();
        store.delete_account(carol).await.unwrap().unwrap();
        store.finish_jobs().await.unwrap();
        assert!(store.write_version(id, alice, &version).await.unwrap());
        assert_eq!(mentioned(store, id).await, ["bob", "carol"], "what the check after the write is for");
        store.settle_mentions(id, version.mentions).await.unwrap();
        assert_eq!(mentioned(store, id).await, ["robert"]);
        while store.deliver_step().await.unwrap() != crate::pending::Progress::Idle {}
        assert_eq!(verify(store).await.unwrap(), []);
    }
}
