//! Posts and comments: totals, numbers, the newest comments that a post keeps, and the tree.

use std::collections::VecDeque;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::comments::RECENT_KEPT;
use serde::Deserialize;

use super::{Drift, DriftKind, Numbers, Pass, Place, lowest};
use crate::{
    Result, Store,
    collections::{COMMENTS, POSTS},
    comments::{CommentCountersDoc, CommentDoc, CommentStateDoc},
    posts::{PostCountersDoc, PostState, RecentCommentDoc},
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: PostState,
    counters: PostCountersDoc,
    comment_seq: i64,
    recent_comments: Vec<RecentCommentDoc>,
}

impl PostPart {
    fn fields() -> Document {
        doc! { "state": 1, "counters": 1, "commentSeq": 1, "recentComments": 1 }
    }
}

/// What stands under one post, its comments taken from the newest on.
#[derive(Default)]
struct Under {
    live: i64,
    tombstones: i64,
    newest: VecDeque<CommentDoc>,
    /// Some are deleted, which is not applied yet: the subset has lost them already, and nothing has taken their place.
    being_deleted: bool,
    orphans: usize,
}

impl Under {
    fn take(&mut self, comment: CommentDoc) {
        self.being_deleted |= comment.state == CommentStateDoc::Removed;
        self.orphans += usize::from(comment.pending.is_none());
        if comment.seq.is_none() {
            return;
        }
        match comment.state {
            CommentStateDoc::Tombstone => self.tombstones += 1,
            // Counted until its deletion is applied.
            CommentStateDoc::Live | CommentStateDoc::Removed => self.live += 1,
        }
        if comment.state == CommentStateDoc::Live && self.newest.len() < RECENT_KEPT {
            self.newest.push_back(comment);
        }
    }

    /// What of the post is not so.
    fn differs(&self, post: &PostPart) -> Vec<(DriftKind, String)> {
        let mut wrong = Vec::new();
        let counters = post.counters;
        for (kind, counter, found) in [
            (DriftKind::CommentCount, counters.comments, self.live),
            (DriftKind::TombstoneCount, counters.tombstones, self.tombstones),
        ] {
            if counter != found {
                wrong.push((kind, format!("counter {counter}, with a seq {found}")));
            }
        }
        let kept = &post.recent_comments;
        if !self.being_deleted && (kept.len() != self.newest.len() || !kept.iter().zip(&self.newest).all(alike)) {
            let seqs: Vec<_> = kept.iter().map(|comment| comment.seq).collect();
            let newest: Vec<_> = self.newest.iter().filter_map(|comment| comment.seq).collect();
            wrong.push((DriftKind::RecentComments, format!("keeps {seqs:?}, newest {newest:?}, or their content differs")));
        }
        wrong
    }
}

/// Whether a copy of a comment is like it. The names in it are brought up to date by the rename of their account.
fn alike((kept, comment): (&RecentCommentDoc, &CommentDoc)) -> bool {
    (kept.id, Some(kept.seq), kept.parent_id, kept.depth) == (comment.id, comment.seq, comment.parent_id, comment.depth)
        && (Some(kept.author.user_id), Some(&kept.text))
            == (comment.author.as_ref().map(|author| author.user_id), comment.text.as_ref())
        && (kept.created_at, kept.edited_at) == (comment.created_at, comment.edited_at)
        && (kept.likes, kept.replies) == (comment.counters.likes, comment.counters.replies)
}

/// Posts and what stands under them, side by side in one pass. What stands under a deleted post is being removed.
pub(super) async fn check_posts(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let mut posts = pass.stream::<PostPart>(POSTS, "_id", doc! { "_id": 1 }, PostPart::fields(), |post| post.id).await?;
    let by_post = doc! { "postId": 1, "seq": -1 };
    let mut comments = pass.stream::<CommentDoc>(COMMENTS, "postId", by_post, doc! {}, |comment| comment.post_id).await?;
    let mut done = None;
    while let Some(at) = lowest([posts.key().await?, comments.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let post = posts.next_up_to(at).await?;
        let (mut under, mut numbers) = (Under::default(), Numbers::up_to(post.as_ref().map_or(0, |post| post.comment_seq)));
        while let Some(comment) = comments.next_up_to(at).await? {
            if let Some(seq) = comment.seq {
                numbers.take(seq);
            }
            if is_lost(&comment) {
                pass.report(recheck_lost(&store, comment.id).await?).await?;
            }
            under.take(comment);
        }
        let fits = match post {
            Some(post) => post.state != PostState::Live || (numbers.wrong.is_none() && under.differs(&post).is_empty()),
            None => under.orphans == 0,
        };
        if !fits {
            pass.report(recheck_post(&store, at).await?).await?;
        }
        done = Some(at);
    }
    Ok(None)
}

/// Nobody waits for it, and yet it is not applied. A tombstone may be shown or hidden.
fn is_lost(comment: &CommentDoc) -> bool {
    comment.pending.is_none()
        && match comment.state {
            CommentStateDoc::Live => comment.seq.is_none(),
            CommentStateDoc::Removed => true,
            CommentStateDoc::Tombstone => false,
        }
}

/// Looks at one comment again. One whose post or parent is not there is reported as that.
async fn recheck_lost(store: &Store, id: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let found = store.coll::<CommentDoc>(COMMENTS).find_one(doc! { "_id": id }).session(&mut session).await?;
    let Some(comment) = found.filter(is_lost) else { return Ok(None) };
    let live = doc! { "_id": comment.post_id, "state": "live" };
    if store.coll::<Document>(POSTS).find_one(live).session(&mut session).await?.is_none() {
        return Ok(None);
    }
    if let Some(parent) = comment.parent_id
        && store.coll::<Document>(COMMENTS).find_one(doc! { "_id": parent }).session(&mut session).await?.is_none()
    {
        return Ok(None);
    }
    let detail = format!("a comment in the state {:?} with seq {:?} that nobody applies", comment.state, comment.seq);
    Ok(Some(Drift::new(DriftKind::LostPending, id, detail).at(Place::In(COMMENTS))))
}

/// Looks at one post and what stands under it in a snapshot.
async fn recheck_post(store: &Store, id: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let posts = store.coll::<PostPart>(POSTS);
    let post = posts.find_one(doc! { "_id": id }).projection(PostPart::fields()).session(&mut session).await?;
    let comments = store.coll::<CommentDoc>(COMMENTS);
    let mut found = comments.find(doc! { "postId": id }).sort(doc! { "seq": -1 }).session(&mut session).await?;
    let last = post.as_ref().map_or(0, |post| post.comment_seq);
    let (mut under, mut numbers) = (Under::default(), Numbers::up_to(last));
    let mut stream = found.stream(&mut session);
    while let Some(comment) = stream.try_next().await? {
        if let Some(seq) = comment.seq {
            numbers.take(seq);
        }
        under.take(comment);
    }
    let wrong = match post {
        // The applier deletes what is pending under a post that is gone.
        None if under.orphans > 0 => {
            vec![(DriftKind::OrphanComment, format!("{} comments under a post that does not exist", under.orphans))]
        }
        Some(post) if post.state == PostState::Live => {
            let mut wrong = under.differs(&post);
            wrong.extend(numbers.wrong.map(|seq| (DriftKind::CommentSeq, format!("seq {seq} twice or beyond {last}"))));
            wrong
        }
        _ => Vec::new(),
    };
    Ok(wrong.into_iter().map(|(kind, detail)| Drift::new(kind, id, detail).at(Place::In(POSTS))).collect())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommentPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    post_id: bson::Uuid,
    parent_id: Option<bson::Uuid>,
    ancestors: Vec<bson::Uuid>,
    depth: i32,
    counters: CommentCountersDoc,
}

impl CommentPart {
    fn fields() -> Document {
        doc! { "postId": 1, "parentId": 1, "ancestors": 1, "depth": 1, "counters": 1 }
    }

    /// Whether its own path is wrong by itself: it answers nothing. Otherwise its parent tells.
    fn is_astray(&self) -> bool {
        self.parent_id.is_none() && !(self.ancestors.is_empty() && self.depth == 0)
    }

    /// Whether a reply stands below it as its path says.
    fn holds(&self, reply: &ReplyPart) -> bool {
        let path = self.ancestors.iter().chain([&self.id]);
        reply.ancestors.iter().eq(path) && i32::try_from(reply.ancestors.len()) == Ok(reply.depth)
    }
}

#[derive(Debug, Deserialize)]
struct ReplyPart {
    parent: bson::Uuid,
    post: bson::Uuid,
    ancestors: Vec<bson::Uuid>,
    depth: i32,
    state: CommentStateDoc,
    seq: Option<i64>,
    pending: Option<bool>,
}

impl ReplyPart {
    fn fields() -> Document {
        doc! {
            "_id": 0, "parent": "$parentId", "post": "$postId", "ancestors": 1, "depth": 1, "state": 1, "seq": 1, "pending": 1,
        }
    }

    /// Adds itself to its parent's totals.
    fn add_to(&self, totals: &mut (i64, i64)) {
        if self.seq.is_some() {
            totals.0 += i64::from(self.state != CommentStateDoc::Tombstone);
            totals.1 += 1;
        }
    }
}

/// Comments and their replies, side by side in one pass.
pub(super) async fn check_replies(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let fields = CommentPart::fields();
    let mut comments = pass.stream::<CommentPart>(COMMENTS, "_id", doc! { "_id": 1 }, fields, |comment| comment.id).await?;
    // Those of the first level have no parent.
    let by_parent = doc! { "parentId": 1, "seq": -1 };
    let mut replies = pass.stream::<ReplyPart>(COMMENTS, "parentId", by_parent, ReplyPart::fields(), |reply| reply.parent).await?;
    let mut done = None;
    while let Some(at) = lowest([comments.key().await?, replies.key().await?]) {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let comment = comments.next_up_to(at).await?;
        let mut totals = (0, 0);
        let mut astray = comment.as_ref().is_some_and(CommentPart::is_astray);
        while let Some(reply) = replies.next_up_to(at).await? {
            reply.add_to(&mut totals);
            astray |= comment.as_ref().is_some_and(|comment| !comment.holds(&reply));
        }
        if astray || comment.is_none_or(|comment| totals != (comment.counters.replies, comment.counters.children)) {
            pass.report(recheck_replies(&store, at).await?).await?;
        }
        done = Some(at);
    }
    Ok(None)
}

/// Looks at one comment and its replies in a snapshot.
async fn recheck_replies(store: &Store, id: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let comments = store.coll::<CommentPart>(COMMENTS);
    let comment = comments.find_one(doc! { "_id": id }).projection(CommentPart::fields()).session(&mut session).await?;
    let replies = store.coll::<ReplyPart>(COMMENTS);
    let mut found = replies.find(doc! { "parentId": id }).projection(ReplyPart::fields()).session(&mut session).await?;
    let (mut totals, mut orphans, mut astray) = ((0, 0), 0, 0);
    let mut post = comment.as_ref().map(|comment| comment.post_id);
    let mut stream = found.stream(&mut session);
    while let Some(reply) = stream.try_next().await? {
        reply.add_to(&mut totals);
        orphans += usize::from(reply.pending.is_none());
        astray += usize::from(comment.as_ref().is_some_and(|comment| !comment.holds(&reply)));
        post.get_or_insert(reply.post);
    }
    drop(stream);
    // Under a deleted post they go in any order.
    let live = doc! { "_id": post, "state": "live" };
    if post.is_none() || store.coll::<Document>(POSTS).find_one(live).session(&mut session).await?.is_none() {
        return Ok(Vec::new());
    }
    let mut wrong = Vec::new();
    match comment {
        Some(comment) => {
            let counters = (comment.counters.replies, comment.counters.children);
            if counters != totals {
                wrong.push((DriftKind::ReplyCount, format!("replies and children {counters:?}, with a seq {totals:?}")));
            }
            if astray > 0 || comment.is_astray() {
                let own = comment.is_astray();
                wrong.push((DriftKind::CommentPath, format!("{astray} replies with another path; its own is wrong: {own}")));
            }
        }
        None if orphans > 0 => {
            wrong.push((DriftKind::OrphanComment, format!("{orphans} replies to a comment that does not exist")));
        }
        None => {}
    }
    Ok(wrong.into_iter().map(|(kind, detail)| Drift::new(kind, id, detail).at(Place::In(COMMENTS))).collect())
}
