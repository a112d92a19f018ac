//! What stands under a post is for those who may see the post: the part of it that decides that, and that lists need.

use bson::doc;
use rookery_domain::{
    UserId,
    post::{Visibility, may_see},
    user::Relation,
};
use serde::Deserialize;

use super::{PostCountersDoc, VisibilityDoc};
use crate::{Error, Result, Store, collections::POSTS};

/// What is said of a live post that the viewer may see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenPost {
    pub author: UserId,
    /// For whom it is now, which its author may have changed by going private.
    pub visibility: Visibility,
    pub counters: PostCountersDoc,
    /// The last numbers given to its comments, likes and reposts.
    pub comment_seq: i64,
    pub like_seq: i64,
    pub repost_seq: i64,
    /// How often it was edited.
    pub revision_seq: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenPostDoc {
    author: SeenAuthorDoc,
    visibility: VisibilityDoc,
    counters: PostCountersDoc,
    comment_seq: i64,
    #[serde(default)]
    like_seq: i64,
    #[serde(default)]
    repost_seq: i64,
    #[serde(default)]
    revision_seq: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenAuthorDoc {
    user_id: bson::Uuid,
}

impl Store {
    /// What is said of a live post, if the viewer may see it.
    pub(crate) async fn seen_post(&self, post: bson::Uuid, viewer: Option<UserId>) -> Result<Option<SeenPost>> {
        let parts = doc! {
            "author.userId": 1, "visibility": 1, "counters": 1, "commentSeq": 1, "likeSeq": 1, "repostSeq": 1, "revisionSeq": 1,
        };
        let live = doc! { "_id": post, "state": "live" };
        let Some(post) = self.coll::<SeenPostDoc>(POSTS).find_one(live).projection(parts).await? else {
            return Ok(None);
        };
        let author = UserId(post.author.user_id.into());
        if self.is_deleting(author) {
            return Ok(None);
        }
        let relation = async {
            match viewer {
                Some(viewer) if viewer != author => {
                    Ok::<_, Error>(self.relations(viewer, &[author]).await?.remove(&author).unwrap_or_default())
                }
                _ => Ok(Relation::default()),
            }
        };
        let (relation, private) = tokio::try_join!(relation, self.private_among([author]))?;
        let visibility = Visibility::of(post.visibility.into(), private.contains(&author));
        Ok(may_see(visibility, viewer == Some(author), relation).then_some(SeenPost {
            author,
            visibility,
            counters: post.counters,
            comment_seq: post.comment_seq,
            like_seq: post.like_seq,
            repost_seq: post.repost_seq,
            revision_seq: post.revision_seq,
        }))
    }
}
