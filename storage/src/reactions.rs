//! Likes and reposts: edges that a post or comment counts. (Bookmarks, which nobody counts, are in [`bookmarks`].)
//!
//! They follow the protocol of [`crate::pending`]: a request writes what is wanted of its edge, looks after the write for what forbids
//! it, and makes the attempt to apply it unless others' edges to the same parent wait ([`apply`]). Concurrent requests share the write
//! and the look ([`crate::gather`]). What is wanted counts for the flags of whoever looks at a post; what is applied makes the lists
//! and totals ([`list`]). A repost is its own fan-out job, as a post is ([`crate::timelines`]).

mod apply;
pub mod bookmarks;
mod flags;
mod list;
pub(crate) mod reposts;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use bson::{Document, doc};
use rookery_domain::{
    CommentId, PostId, UserId, fanout,
    post::{PostCounts, Visibility},
    reactions::{CommentReacted, Reacted, ReactionRefusal},
};
use serde::{Deserialize, Serialize};

use self::reposts::RepostDoc;
use crate::{
    Error, Result, Store,
    collections::{COMMENTS, LIKES, POSTS, REPOSTS},
    graph::IdDoc,
    posts::{DeliveryDoc, PostCountersDoc},
    store::{b, new_id, until_no_conflict},
};

/// How often a request begins anew where another call for the same edge was between its two steps.
const TRIES: usize = 20;

/// A kind of counted reaction: which edges, and where their parent counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    PostLike,
    CommentLike,
    Repost,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::PostLike, Self::CommentLike, Self::Repost];

    /// The collection of the edges.
    pub(crate) const fn edges(self) -> &'static str {
        match self {
            Self::PostLike | Self::CommentLike => LIKES,
            Self::Repost => REPOSTS,
        }
    }

    /// The field of an edge that names its parent.
    pub(crate) const fn parent(self) -> &'static str {
        match self {
            Self::PostLike | Self::CommentLike => "targetId",
            Self::Repost => "postId",
        }
    }

    /// The collection of the parents.
    pub(crate) const fn parents(self) -> &'static str {
        match self {
            Self::PostLike | Self::Repost => POSTS,
            Self::CommentLike => COMMENTS,
        }
    }

    /// The parent's total.
    pub(crate) const fn counter(self) -> &'static str {
        match self {
            Self::PostLike | Self::CommentLike => "counters.likes",
            Self::Repost => "counters.reposts",
        }
    }

    /// The last number that the parent gave.
    pub(crate) const fn last_seq(self) -> &'static str {
        match self {
            Self::PostLike | Self::CommentLike => "likeSeq",
            Self::Repost => "repostSeq",
        }
    }

    /// Of likes: what an edge says of its parent.
    pub(crate) const fn target(self) -> Option<&'static str> {
        match self {
            Self::PostLike => Some("post"),
            Self::CommentLike => Some("comment"),
            Self::Repost => None,
        }
    }

    fn pair(self, user: UserId, parent: bson::Uuid) -> Document {
        doc! { "userId": b(user), self.parent(): parent }
    }

    /// The edges of this kind, of all in their collection.
    pub(crate) fn of_this(self) -> Document {
        self.target().map_or_else(Document::new, |target| doc! { "target": target })
    }

    /// Those that wait for the applier.
    fn pending(self) -> Document {
        let mut pending = doc! { "pending": true };
        pending.extend(self.of_this());
        pending
    }

    /// Those of one parent.
    fn pending_of(self, parent: bson::Uuid) -> Document {
        let mut pending = self.pending();
        pending.insert(self.parent(), parent);
        pending
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EdgeState {
    Active,
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TargetDoc {
    Post,
    Comment,
}

/// A like as the database holds it. Its id says when it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LikeDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub user_id: bson::Uuid,
    pub target_id: bson::Uuid,
    pub target: TargetDoc,
    pub state: EdgeState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
}

/// An edge that is to be written, of either collection.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum NewEdge {
    Like(LikeDoc),
    Repost(Box<RepostDoc>),
}

/// A reaction that somebody asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    kind: Kind,
    user: UserId,
    parent: bson::Uuid,
    /// Who made what is reacted to.
    author: UserId,
    edge: NewEdge,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The edge, if this wish wrote it; none: it stands already.
    edge: Option<bson::Uuid>,
    /// The account that reacts is live.
    live: bool,
    /// A block stands between the two.
    blocked: bool,
}

impl Wish {
    fn like(user: UserId, parent: bson::Uuid, target: TargetDoc, author: UserId) -> Self {
        let edge = LikeDoc {
            id: b(new_id()),
            user_id: b(user),
            target_id: parent,
            target,
            state: EdgeState::Active,
            seq: None,
            pending: Some(true),
        };
        let kind = if target == TargetDoc::Post { Kind::PostLike } else { Kind::CommentLike };
        Self { kind, user, parent, author, edge: NewEdge::Like(edge) }
    }
}

impl Store {
    /// Makes an account like a post; again makes no difference.
    pub async fn like_post(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        let Some(seen) = self.seen_post(b(post), Some(user)).await? else { return Ok(Err(ReactionRefusal::NotFound)) };
        match self.react(Wish::like(user, b(post), TargetDoc::Post, seen.author)).await? {
            Ok(()) => self.reacted(post, user).await,
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Takes a like of a post back, also where the post may not be seen any more: then it is taken back and not found.
    pub async fn unlike_post(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        self.take_back(Kind::PostLike, b(post), user).await?;
        self.reacted_to_seen(post, user).await
    }

    /// Makes an account repost a post; again makes no difference. Its followers have it in their feeds from their next read on.
    pub async fn repost(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        let Some(seen) = self.seen_post(b(post), Some(user)).await? else { return Ok(Err(ReactionRefusal::NotFound)) };
        if seen.visibility != Visibility::Public {
            return Ok(Err(ReactionRefusal::NotRepostable));
        }
        let Some(reposter) = self.reposter(user).await? else { return Ok(Err(ReactionRefusal::UserGone)) };
        let delivery = fanout::delivery(self.settings().feed_model, reposter.outlier.is_some());
        self.mark_reposter(&reposter, delivery).await?;
        let edge = RepostDoc {
            id: reposts::place_after(post),
            user_id: b(user),
            post_id: b(post),
            author_id: b(seen.author),
            state: EdgeState::Active,
            seq: None,
            pending: Some(true),
            // One's own post stands at its own place in every feed that one's repost would come to.
            delivery: if user == seen.author { DeliveryDoc::done() } else { DeliveryDoc::new(b(user), delivery) },
        };
        let wish = Wish { kind: Kind::Repost, user, parent: b(post), author: seen.author, edge: NewEdge::Repost(Box::new(edge)) };
        match self.react(wish).await? {
            Ok(()) => self.reacted(post, user).await,
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Takes a repost back, as [`Store::unlike_post`] a like. It is gone from every feed at once.
    pub async fn undo_repost(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        self.take_back(Kind::Repost, b(post), user).await?;
        self.reacted_to_seen(post, user).await
    }

    /// Makes an account like a comment; again makes no difference.
    pub async fn like_comment(&self, comment: CommentId, user: UserId) -> Result<Result<CommentReacted, ReactionRefusal>> {
        let author = match self.comment_doc(comment).await? {
            Some(found) if self.is_open_to(&found, Some(user)).await? => self.standing_author(&found),
            _ => None,
        };
        let Some(author) = author else { return Ok(Err(ReactionRefusal::NotFound)) };
        match self.react(Wish::like(user, b(comment), TargetDoc::Comment, author)).await? {
            Ok(()) => self.comment_reacted(comment, user).await,
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Takes a like of a comment back, as [`Store::unlike_post`] one of a post.
    pub async fn unlike_comment(&self, comment: CommentId, user: UserId) -> Result<Result<CommentReacted, ReactionRefusal>> {
        self.take_back(Kind::CommentLike, b(comment), user).await?;
        self.comment_reacted(comment, user).await
    }

    /// Writes the edge of a wish and tries to apply it; takes it back where something forbids it.
    async fn react(&self, wish: Wish) -> Result<Result<(), ReactionRefusal>> {
        let Wish { kind, user, parent, .. } = wish;
        let granted = self.gathered_wishes().call(wish).await?;
        if !granted.live || granted.blocked {
            self.take_back(kind, parent, user).await?;
            return Ok(Err(if granted.live { ReactionRefusal::NotFound } else { ReactionRefusal::UserGone }));
        }
        if let Some(edge) = granted.edge {
            self.apply_own_edge(kind, parent, edge).await?;
        }
        Ok(Ok(()))
    }

    /// Writes what is wanted: the edge gone. Tries to apply that.
    async fn take_back(&self, kind: Kind, parent: bson::Uuid, user: UserId) -> Result<()> {
        let mut standing = kind.pair(user, parent);
        standing.insert("state", "active");
        let removal = doc! { "$set": { "state": "removed", "pending": true } };
        let removed = until_no_conflict(async || {
            let edges = self.coll::<IdDoc>(kind.edges());
            Ok(edges.find_one_and_update(standing.clone(), removal.clone()).projection(doc! { "_id": 1 }).await?)
        });
        if let Some(edge) = removed.await? {
            self.apply_own_edge(kind, parent, edge.id).await?;
        }
        Ok(())
    }

    async fn apply_own_edge(&self, kind: Kind, parent: bson::Uuid, edge: bson::Uuid) -> Result<bool> {
        self.apply_own_child(kind.edges(), kind.pending_of(parent), edge, || async {
            Ok(self.apply_reactions(kind, parent, &[edge]).await? > 0)
        })
        .await
    }

    /// Writes the edges of a batch of wishes, and looks after the writes for what forbids them: so of a block or a deletion that races a
    /// reaction, one sees the other.
    pub(crate) async fn grant(&self, batch: Vec<Wish>) -> Result<Vec<Granted>> {
        let mut edges: Vec<Option<bson::Uuid>> = vec![None; batch.len()];
        for name in [LIKES, REPOSTS] {
            let (places, docs): (Vec<usize>, Vec<&NewEdge>) =
                batch.iter().enumerate().filter(|(_, wish)| wish.kind.edges() == name).map(|(at, wish)| (at, &wish.edge)).unzip();
            if docs.is_empty() {
                continue;
            }
            let there = self.insert_unless_there(name, &docs).await?;
            for (at, place) in places.into_iter().enumerate() {
                edges[place] =
                    if there.contains(&at) { self.want_again(&batch[place]).await? } else { Some(batch[place].edge.id()) };
            }
        }
        // Before the answer, so that the next read of this process has it.
        for (wish, edge) in batch.iter().zip(&edges) {
            if let NewEdge::Repost(repost) = &wish.edge
                && *edge == Some(repost.id)
            {
                self.remember_repost(repost);
            }
        }
        let users: HashSet<UserId> = batch.iter().map(|wish| wish.user).collect();
        let pairs: Vec<(UserId, UserId)> =
            batch.iter().filter(|wish| wish.user != wish.author).map(|wish| (wish.user, wish.author)).collect();
        let blocked = async { if pairs.is_empty() { Ok(HashSet::new()) } else { self.blocked_pairs(&pairs, None).await } };
        let (live, blocked) = futures::try_join!(self.summaries(users), blocked)?;
        let granted = batch.iter().zip(edges).map(|(wish, edge)| Granted {
            edge,
            live: live.contains_key(&wish.user),
            blocked: blocked.contains(&(wish.user, wish.author)),
        });
        Ok(granted.collect())
    }

    /// Makes a removed edge wanted again that the applier has not come to: as if it had never been removed. None: it stands already.
    async fn want_again(&self, wish: &Wish) -> Result<Option<bson::Uuid>> {
        let edges = self.coll::<EdgePart>(wish.kind.edges());
        let pair = wish.kind.pair(wish.user, wish.parent);
        let mut removed = pair.clone();
        removed.insert("state", "removed");
        let again = doc! { "$set": { "state": "active", "pending": true } };
        for _ in 0..TRIES {
            let revived = until_no_conflict(async || Ok(edges.find_one_and_update(removed.clone(), again.clone()).await?));
            if let Some(edge) = revived.await? {
                return Ok(Some(edge.id));
            }
            match edges.find_one(pair.clone()).await? {
                Some(edge) if edge.state == EdgeState::Active => return Ok(None),
                // Removed since: again.
                Some(_) => {}
                None => {
                    if self.insert_unless_there(wish.kind.edges(), std::slice::from_ref(&wish.edge)).await?.is_empty() {
                        return Ok(Some(wish.edge.id()));
                    }
                }
            }
        }
        Err(Error::Busy)
    }

    /// The answer to a reaction to a post that the caller may see.
    async fn reacted(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        #[derive(Debug, Deserialize)]
        struct CountersPart {
            counters: PostCountersDoc,
        }
        let live = doc! { "_id": b(post), "state": "live" };
        let counters = async {
            let found = self.coll::<CountersPart>(POSTS).find_one(live).projection(doc! { "_id": 0, "counters": 1 }).await?;
            Ok(found.map(|post| PostCounts::from(post.counters)))
        };
        let this = [post];
        let (counts, mut flags) = futures::try_join!(counters, self.viewer_flags(Some(user), &this))?;
        let viewer = flags.remove(&post).unwrap_or_default();
        Ok(counts.map(|counts| Reacted { counts, viewer }).ok_or(ReactionRefusal::NotFound))
    }

    async fn reacted_to_seen(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        if self.seen_post(b(post), Some(user)).await?.is_none() {
            return Ok(Err(ReactionRefusal::NotFound));
        }
        self.reacted(post, user).await
    }

    async fn comment_reacted(&self, comment: CommentId, user: UserId) -> Result<Result<CommentReacted, ReactionRefusal>> {
        let comment = self.comment(comment, Some(user)).await?.filter(|comment| !comment.deleted);
        let reacted = comment.map(|comment| CommentReacted { likes: comment.likes, replies: comment.replies });
        Ok(reacted.ok_or(ReactionRefusal::NotFound))
    }
}

/// What a request asks of an edge.
#[derive(Debug, Deserialize)]
struct EdgePart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: EdgeState,
}

impl NewEdge {
    fn id(&self) -> bson::Uuid {
        match self {
            Self::Like(like) => like.id,
            Self::Repost(repost) => repost.id,
        }
    }
}

impl From<PostCountersDoc> for PostCounts {
    fn from(counters: PostCountersDoc) -> Self {
        Self { comments: counters.comments, likes: counters.likes, reposts: counters.reposts, views: counters.views }
    }
}
