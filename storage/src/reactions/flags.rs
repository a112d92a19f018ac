//! What a viewer has done with the posts of a page: one query of each kind for all of them.

use std::collections::{HashMap, HashSet};

use bson::doc;
use futures::TryStreamExt as _;
use rookery_domain::{
    PostId, UserId,
    post::{Post, PostViewer},
};
use serde::Deserialize;

use super::EdgeState;
use crate::{
    Result, Store,
    collections::{BOOKMARKS, LIKES, REPOSTS},
    store::{ANSWER, b},
};

#[derive(Debug, Deserialize)]
struct FlagDoc {
    post: bson::Uuid,
    /// Bookmarks have none.
    state: Option<EdgeState>,
}

/// What of a span of posts is read before each post is asked for by itself: what fits into one answer.
pub(super) const SPAN: i64 = 100;

impl Store {
    /// What a viewer has done with these posts; those with which nothing was done may be absent. As soon as it was answered, counted or
    /// not.
    pub(crate) async fn viewer_flags(&self, viewer: Option<UserId>, posts: &[PostId]) -> Result<HashMap<PostId, PostViewer>> {
        let mut flags: HashMap<PostId, PostViewer> = HashMap::new();
        let Some(viewer) = viewer.filter(|_| !posts.is_empty()) else { return Ok(flags) };
        let ids: Vec<bson::Uuid> = posts.iter().copied().map(b).collect();
        let (liked, reposted, bookmarked) = futures::try_join!(
            self.flagged(LIKES, "targetId", viewer, &ids),
            self.flagged(REPOSTS, "postId", viewer, &ids),
            self.flagged(BOOKMARKS, "postId", viewer, &ids),
        )?;
        for post in liked {
            flags.entry(post).or_default().liked = true;
        }
        for post in reposted {
            flags.entry(post).or_default().reposted = true;
        }
        for post in bookmarked {
            flags.entry(post).or_default().bookmarked = true;
        }
        Ok(flags)
    }

    /// Sets the viewer's flags on posts that are about to be shown.
    pub(crate) async fn flag(&self, viewer: Option<UserId>, posts: &mut [Post]) -> Result<()> {
        let ids: Vec<PostId> = posts.iter().map(|post| post.id).collect();
        let flags = self.viewer_flags(viewer, &ids).await?;
        for post in posts {
            post.viewer = viewer.map(|_| flags.get(&post.id).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// A page's posts were made within a span of time, and in few of those does a viewer react to more than there are on a page: one
    /// range of what they did with posts of that span costs a fraction of a search for each post.
    async fn flagged(&self, name: &str, field: &str, viewer: UserId, posts: &[bson::Uuid]) -> Result<HashSet<PostId>> {
        let of_page: HashSet<[u8; 16]> = posts.iter().map(|post| post.bytes()).collect();
        let bounds = of_page.iter().min().zip(of_page.iter().max());
        let Some((oldest, newest)) =
            bounds.map(|(oldest, newest)| (bson::Uuid::from_bytes(*oldest), bson::Uuid::from_bytes(*newest)))
        else {
            return Ok(HashSet::new());
        };
        let edges = self.coll::<FlagDoc>(name);
        let fields = doc! { "_id": 0, "post": format!("${field}"), "state": 1 };
        let span = doc! { "userId": b(viewer), field: { "$gte": oldest, "$lte": newest } };
        let found = edges.find(span).projection(fields.clone()).limit(SPAN).await?;
        let mut found: Vec<FlagDoc> = found.try_collect().await?;
        if found.len() >= usize::try_from(SPAN).unwrap_or_default() {
            let these = doc! { "userId": b(viewer), field: { "$in": posts } };
            found = edges.find(these).projection(fields).batch_size(ANSWER).await?.try_collect().await?;
        }
        let standing = found.iter().filter(|edge| edge.state != Some(EdgeState::Removed) && of_page.contains(&edge.post.bytes()));
        Ok(standing.map(|edge| PostId(edge.post.into())).collect())
    }
}
