//! Bookmarks: posts that an account keeps for itself. Nobody counts them, so that an edge is inserted and deleted, and that is all.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, PostId, UserId,
    page::TimeCursor,
    post::Post,
    reactions::{Reacted, ReactionRefusal},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::BOOKMARKS,
    error::is_duplicate_key,
    store::{b, new_id, now},
    time_page::{self, Extent, Slice},
    user_lists::ABOUT,
};

/// A bookmark as the database holds it. Its id says when it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BookmarkDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub user_id: bson::Uuid,
    pub post_id: bson::Uuid,
}

impl Store {
    /// Makes an account bookmark a post; again makes no difference, and does not move it.
    pub async fn bookmark(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        if self.seen_post(b(post), Some(user)).await?.is_none() {
            return Ok(Err(ReactionRefusal::NotFound));
        }
        let bookmark = BookmarkDoc { id: b(new_id()), user_id: b(user), post_id: b(post) };
        match self.coll::<BookmarkDoc>(BOOKMARKS).insert_one(&bookmark).await {
            Ok(_) => {}
            Err(error) if is_duplicate_key(&error) => return self.reacted(post, user).await,
            Err(error) => return Err(error.into()),
        }
        // Looked at after the write: of a deletion that races it, one sees the other.
        let (live, seen) = futures::try_join!(self.summaries([user]), self.reacted(post, user))?;
        if live.is_empty() || seen.is_err() {
            self.coll::<BookmarkDoc>(BOOKMARKS).delete_one(doc! { "_id": bookmark.id }).await?;
        }
        Ok(if live.is_empty() { Err(ReactionRefusal::UserGone) } else { seen })
    }

    /// Takes a bookmark back, also where the post may not be seen any more: then it is taken back and not found.
    pub async fn remove_bookmark(&self, post: PostId, user: UserId) -> Result<Result<Reacted, ReactionRefusal>> {
        let mine = doc! { "userId": b(user), "postId": b(post) };
        self.coll::<Document>(BOOKMARKS).delete_one(mine).await?;
        self.reacted_to_seen(post, user).await
    }

    /// A page of the posts that an account has bookmarked, the newest bookmark first. What it may not see (any more) is left out, and so
    /// are posts of those whom it mutes.
    pub async fn bookmarks(&self, user: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<Post, TimeCursor>> {
        let mine = doc! { "userId": b(user) };
        let extent = Extent { first: user.time(), total: ABOUT, now: now() };
        time_page::newest_first(cursor, limit, extent, async |slice| {
            let read = async |slice: Slice| {
                let found = self.coll::<BookmarkDoc>(BOOKMARKS).find(slice.of(&mine)).sort(slice.sort()).limit(slice.most).await?;
                Ok(found.map_ok(|edge| (edge.id.into(), PostId(edge.post_id.into()))).try_collect().await?)
            };
            slice.filled(read, async |edges| self.shown_bookmarks(user, edges).await).await
        })
        .await
    }

    async fn shown_bookmarks(&self, user: UserId, edges: Vec<(Uuid, PostId)>) -> Result<Vec<(Uuid, Post)>> {
        let ids: Vec<PostId> = edges.iter().map(|(_, post)| *post).collect();
        let posts = self.posts(&ids, Some(user)).await?;
        let hidden = self.hidden_among(Some(user), posts.iter().map(|post| post.author.id)).await?;
        let mut posts = posts.into_iter().filter(|post| !hidden.is_silenced(post.author.id)).peekable();
        // In the order of the edges, each post once.
        let shown = edges.into_iter().filter_map(|(key, id)| Some((key, posts.next_if(|post| post.id == id)?)));
        Ok(shown.collect())
    }
}
