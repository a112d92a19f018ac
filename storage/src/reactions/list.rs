//! Who likes a post, and who has reposted it.
//!
//! The order is the sequence number, which the post gives out: a page is a bounded range of an index, the newest first.

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::{Limit, Page, PostId, UserId, page::SeqCursor, user::UserSummary};
use serde::Deserialize;

use super::{EdgeState, Kind};
use crate::{
    Result, Store,
    posts::SeenPost,
    seq_page::{self, Extent, Slice, Way},
    store::{ANSWER, b},
};

#[derive(Debug, Deserialize)]
struct ListedDoc {
    user: bson::Uuid,
    seq: i64,
    state: EdgeState,
}

impl Store {
    /// A page of those who like a post, newest first, without those whom a block hides from the viewer; none if there is no such post, or
    /// none that the viewer may see.
    pub async fn likers(
        &self,
        post: PostId,
        viewer: Option<UserId>,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Option<Page<UserSummary, SeqCursor>>> {
        let Some(seen) = self.seen_post(b(post), viewer).await? else { return Ok(None) };
        self.reacting_users(Kind::PostLike, post, seen, viewer, cursor, limit).await.map(Some)
    }

    /// A page of those who have reposted a post, as [`Store::likers`].
    pub async fn reposters(
        &self,
        post: PostId,
        viewer: Option<UserId>,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Option<Page<UserSummary, SeqCursor>>> {
        let Some(seen) = self.seen_post(b(post), viewer).await? else { return Ok(None) };
        self.reacting_users(Kind::Repost, post, seen, viewer, cursor, limit).await.map(Some)
    }

    async fn reacting_users(
        &self,
        kind: Kind,
        post: PostId,
        seen: SeenPost,
        viewer: Option<UserId>,
        cursor: Option<SeqCursor>,
        limit: Limit,
    ) -> Result<Page<UserSummary, SeqCursor>> {
        let (newest, total) = match kind {
            Kind::Repost => (seen.repost_seq, seen.counters.reposts),
            Kind::PostLike | Kind::CommentLike => (seen.like_seq, seen.counters.likes),
        };
        let extent = Extent { above: 0, newest, total };
        seq_page::page(Way::Down, cursor, limit, extent, async |slice| {
            self.shown_users(viewer, self.edges_in(kind, b(post), slice).await?).await
        })
        .await
    }

    /// The edges with a `seq` in a slice.
    async fn edges_in(&self, kind: Kind, parent: bson::Uuid, slice: Slice) -> Result<Vec<(i64, UserId)>> {
        let range = slice.of(&doc! { kind.parent(): parent });
        let fields = doc! { "_id": 0, "user": "$userId", "seq": 1, "state": 1 };
        let found =
            self.coll::<ListedDoc>(kind.edges()).find(range).sort(slice.sort()).projection(fields).batch_size(ANSWER).await?;
        // Whoever has taken it back is not shown, applied or not.
        let standing = found.try_filter(|edge| std::future::ready(edge.state == EdgeState::Active));
        Ok(standing.map_ok(|edge| (edge.seq, UserId(edge.user.into()))).try_collect().await?)
    }

    async fn shown_users(&self, viewer: Option<UserId>, edges: Vec<(i64, UserId)>) -> Result<Vec<(i64, UserSummary)>> {
        let users = || edges.iter().map(|(_, user)| *user);
        let (mut summaries, hidden) = futures::try_join!(self.summaries(users()), self.hidden_among(viewer, users()))?;
        let shown = edges
            .iter()
            .filter(|(_, user)| !hidden.is_blocked(*user))
            .filter_map(|(seq, user)| Some((*seq, summaries.remove(user)?)));
        Ok(shown.collect())
    }
}
