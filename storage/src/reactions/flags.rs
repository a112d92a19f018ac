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

    async fn flagged(&self, name: &str, field: &str, viewer: UserId, posts: &[bson::Uuid]) -> Result<HashSet<PostId>> {
        let mine = doc! { "userId": b(viewer), field: { "$in": posts } };
        let fields = doc! { "_id": 0, "post": format!("${field}"), "state": 1 };
        let found = self.coll::<FlagDoc>(name).find(mine).projection(fields).batch_size(ANSWER).await?;
        let standing = found.try_filter(|edge| std::future::ready(edge.state != Some(EdgeState::Removed)));
        Ok(standing.map_ok(|edge| PostId(edge.post.into())).try_collect().await?)
    }
}
