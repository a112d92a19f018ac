//! Earlier versions of posts: each of a post that is there, with a number that the post has given out, and no more than are kept.

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::post::REVISIONS_KEPT;
use serde::Deserialize;

use super::{Drift, DriftKind, Pass, lowest};
use crate::{
    Result, Store,
    collections::{POST_REVISIONS, POSTS},
    posts::PostState,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: PostState,
    #[serde(default)]
    revision_seq: i64,
}

impl PostPart {
    /// Whether it keeps a version with this number. What a deleted post leaves is being removed.
    fn keeps(&self, seq: i64) -> bool {
        self.state != PostState::Live || (seq <= self.revision_seq && seq > self.revision_seq - REVISIONS_KEPT)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RevisionPart {
    post_id: bson::Uuid,
    seq: i64,
}

/// Posts and their earlier versions, side by side in one pass. That no number stands twice is the index's.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let fields = doc! { "state": 1, "revisionSeq": 1 };
    let mut posts = pass.stream::<PostPart>(POSTS, "_id", doc! { "_id": 1 }, fields, |post| post.id).await?;
    let (order, fields) = (doc! { "postId": 1, "seq": -1 }, doc! { "_id": 0, "postId": 1, "seq": 1 });
    let mut revisions = pass.stream::<RevisionPart>(POST_REVISIONS, "postId", order, fields, |revision| revision.post_id).await?;
    let mut done = None;
    while let Some(at) = lowest([posts.key().await?, revisions.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let post = posts.next_up_to(at).await?;
        let mut suspect = false;
        while let Some(revision) = revisions.next_up_to(at).await? {
            suspect |= !post.as_ref().is_some_and(|post| post.keeps(revision.seq));
        }
        if suspect {
            pass.report(recheck(&store, at).await?).await?;
        }
        done = Some(at);
    }
    Ok(None)
}

/// Looks at one post and its versions in a snapshot.
async fn recheck(store: &Store, id: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let post = store.coll::<PostPart>(POSTS).find_one(doc! { "_id": id }).session(&mut session).await?;
    let mut found = store.coll::<RevisionPart>(POST_REVISIONS).find(doc! { "postId": id }).session(&mut session).await?;
    let seqs: Vec<i64> = found.stream(&mut session).map_ok(|revision| revision.seq).try_collect().await?;
    Ok(match post {
        None if !seqs.is_empty() => {
            let detail = format!("{} earlier versions of a post that does not exist", seqs.len());
            Some(Drift::new(DriftKind::OrphanRevision, id, detail))
        }
        Some(post) => seqs.into_iter().find(|seq| !post.keeps(*seq)).map(|seq| {
            let detail = format!("an earlier version has the number {seq}, of {} given out", post.revision_seq);
            Drift::new(DriftKind::RevisionSeq, id, detail)
        }),
        None => None,
    })
}
