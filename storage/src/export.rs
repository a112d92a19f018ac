//! Everything that is held on an account, as a stream: in memory is one batch of one cursor, whatever the account has.

use bson::doc;
use futures::{
    FutureExt as _, StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use rookery_domain::{
    CommentId, PostId, UserId,
    export::{Edge, Export},
    ids,
    reactions::{Reaction, Target},
};
use serde::Deserialize;

use crate::{
    Error, Result, Store,
    blocks::BlockDoc,
    collections::{BLOCKS, BOOKMARKS, COMMENTS, FOLLOWS, LIKES, MUTES, POST_REVISIONS, POSTS, REPOSTS, SESSIONS},
    comments::CommentDoc,
    graph::{FollowDoc, FollowState},
    mutes::MuteDoc,
    posts::{PostDoc, PostState, RevisionDoc},
    reactions::{EdgeState, LikeDoc, TargetDoc, bookmarks::BookmarkDoc, reposts::RepostDoc},
    sessions::SessionDoc,
    store::{ANSWER, b, timestamp},
};

type Exported = BoxStream<'static, Result<Export>>;

/// Posts that are looked at together.
const PAGE: usize = 100;

/// What says whether a post was edited.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditedDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: PostState,
    #[serde(default)]
    revision_seq: i64,
}

/// Opens the cursor of one kind.
type Section = fn(Store, UserId) -> BoxFuture<'static, Result<Exported>>;

impl Store {
    /// Streams everything that is held on an account: the account first, then each kind in the order of an index. The cursors are read as
    /// the stream is.
    #[must_use]
    pub fn export(&self, user: UserId) -> Exported {
        let sections: [Section; 14] = [
            |store, user| store.export_account(user).boxed(),
            |store, user| store.export_sessions(user).boxed(),
            |store, user| store.export_follows(user).boxed(),
            |store, user| store.export_followers(user).boxed(),
            |store, user| store.export_blocks(user).boxed(),
            |store, user| store.export_mutes(user).boxed(),
            |store, user| store.export_posts(user).boxed(),
            |store, user| store.export_revisions(user).boxed(),
            |store, user| store.export_comments(user).boxed(),
            |store, user| store.export_likes(user).boxed(),
            |store, user| store.export_reposts(user).boxed(),
            |store, user| store.export_bookmarks(user).boxed(),
            |store, user| store.export_notifications(user).boxed(),
            |store, user| async move { Ok(store.all_stats_of(user).await?.map_ok(Export::Stats).boxed()) }.boxed(),
        ];
        let store = self.clone();
        stream::iter(sections).then(move |section| section(store.clone(), user)).try_flatten().boxed()
    }

    async fn export_account(self, user: UserId) -> Result<Exported> {
        let Some(account) = self.account(user).await? else { return Ok(stream::empty().boxed()) };
        let account = Export::Account { user: Box::new(account.user), email: account.email };
        Ok(stream::iter([Ok(account)]).boxed())
    }

    async fn export_sessions(self, user: UserId) -> Result<Exported> {
        let own = doc! { "userId": b(user), "revokedAt": { "$exists": false } };
        let found = self.coll::<SessionDoc>(SESSIONS).find(own).await?;
        Ok(found.map_ok(|session| Export::Session(session.into())).err_into().boxed())
    }

    async fn export_follows(self, user: UserId) -> Result<Exported> {
        let own = doc! { "followerId": b(user) };
        let found = self.coll::<FollowDoc>(FOLLOWS).find(own).sort(doc! { "followerId": 1, "followeeId": 1 }).await?;
        let standing = found.try_filter(|edge| std::future::ready(edge.state != FollowState::Removed));
        Ok(standing.map_ok(|edge| Export::Follow(edge_of(&edge, edge.followee()))).err_into().boxed())
    }

    async fn export_followers(self, user: UserId) -> Result<Exported> {
        let own = doc! { "followeeId": b(user) };
        let found = self.coll::<FollowDoc>(FOLLOWS).find(own).sort(doc! { "followeeId": 1, "seq": -1 }).await?;
        let standing = found.try_filter(|edge| std::future::ready(edge.state != FollowState::Removed));
        Ok(standing.map_ok(|edge| Export::Follower(edge_of(&edge, edge.follower()))).err_into().boxed())
    }

    /// Whom the account blocks. Who blocks it is theirs.
    async fn export_blocks(self, user: UserId) -> Result<Exported> {
        let found = self.coll::<BlockDoc>(BLOCKS).find(doc! { "blockerId": b(user) }).await?;
        let edge = |block: BlockDoc| Edge {
            user: UserId(block.blocked_id.into()),
            since: Some(timestamp(block.created_at)),
            requested: false,
        };
        Ok(found.map_ok(move |block| Export::Block(edge(block))).err_into().boxed())
    }

    /// Whom the account mutes.
    async fn export_mutes(self, user: UserId) -> Result<Exported> {
        let found = self.coll::<MuteDoc>(MUTES).find(doc! { "muterId": b(user) }).await?;
        let edge =
            |mute: MuteDoc| Edge { user: UserId(mute.muted_id.into()), since: Some(timestamp(mute.created_at)), requested: false };
        Ok(found.map_ok(move |mute| Export::Mute(edge(mute))).err_into().boxed())
    }

    async fn export_posts(self, user: UserId) -> Result<Exported> {
        let own = doc! { "author.userId": b(user) };
        let found = self.coll::<PostDoc>(POSTS).find(own).sort(doc! { "author.userId": 1, "_id": -1 }).await?;
        let live = found.try_filter(|post| std::future::ready(post.is_live()));
        // By the page, so that what the account has done with its own posts costs one query of each kind for all of them.
        let pages = live.try_ready_chunks(PAGE).map_err(|cut| Error::from(cut.1));
        let shown = pages.and_then(move |page| {
            let store = self.clone();
            async move {
                let mut posts: Vec<_> = page.into_iter().map(|post| store.shown(post, Some(user))).collect();
                store.flag(Some(user), &mut posts).await?;
                Ok(stream::iter(posts.into_iter().map(|post| Ok(Export::Post(Box::new(post))))))
            }
        });
        Ok(shown.try_flatten().boxed())
    }

    /// Post by post, the newest version first.
    async fn export_revisions(self, user: UserId) -> Result<Exported> {
        let (own, fields) = (doc! { "author.userId": b(user) }, doc! { "state": 1, "revisionSeq": 1 });
        let posts = self.coll::<EditedDoc>(POSTS);
        let found = posts.find(own).sort(doc! { "author.userId": 1, "_id": -1 }).projection(fields).batch_size(ANSWER).await?;
        let edited = found.try_filter(|post| std::future::ready(post.state == PostState::Live && post.revision_seq > 0));
        let revisions = edited.err_into().and_then(move |post| {
            let store = self.clone();
            async move {
                let of = doc! { "postId": post.id };
                let found = store.coll::<RevisionDoc>(POST_REVISIONS).find(of).sort(doc! { "postId": 1, "seq": -1 }).await?;
                let revision = move |revision: RevisionDoc| Export::Revision(PostId(post.id.into()), revision.into());
                Ok::<_, Error>(found.map_ok(revision).err_into())
            }
        });
        Ok(revisions.try_flatten().boxed())
    }

    async fn export_comments(self, user: UserId) -> Result<Exported> {
        let own = doc! { "author.userId": b(user) };
        let found = self.coll::<CommentDoc>(COMMENTS).find(own).sort(doc! { "author.userId": 1, "_id": 1 }).await?;
        let live = found.try_filter(|comment| std::future::ready(comment.is_live()));
        let shown = live.err_into().and_then(move |comment| {
            let shown = self.shown_comment(comment).map(|comment| Export::Comment(Box::new(comment)));
            std::future::ready(shown)
        });
        Ok(shown.boxed())
    }

    async fn export_likes(self, user: UserId) -> Result<Exported> {
        let found = self.coll::<LikeDoc>(LIKES).find(doc! { "userId": b(user) }).await?;
        let standing = found.try_filter(|like| std::future::ready(like.state == EdgeState::Active));
        let like = |like: LikeDoc| {
            let target = match like.target {
                TargetDoc::Post => Target::Post(PostId(like.target_id.into())),
                TargetDoc::Comment => Target::Comment(CommentId(like.target_id.into())),
            };
            Export::Like(reaction(target, like.id))
        };
        Ok(standing.map_ok(like).err_into().boxed())
    }

    async fn export_reposts(self, user: UserId) -> Result<Exported> {
        let found = self.coll::<RepostDoc>(REPOSTS).find(doc! { "userId": b(user) }).sort(doc! { "userId": 1, "_id": -1 }).await?;
        let standing = found.try_filter(|repost| std::future::ready(repost.state == EdgeState::Active));
        let repost = |repost: RepostDoc| Export::Repost(reaction(Target::Post(repost.act().post), repost.id));
        Ok(standing.map_ok(repost).err_into().boxed())
    }

    async fn export_bookmarks(self, user: UserId) -> Result<Exported> {
        let own = doc! { "userId": b(user) };
        let found = self.coll::<BookmarkDoc>(BOOKMARKS).find(own).sort(doc! { "userId": 1, "_id": -1 }).await?;
        let bookmark = |edge: BookmarkDoc| Export::Bookmark(reaction(Target::Post(PostId(edge.post_id.into())), edge.id));
        Ok(found.map_ok(bookmark).err_into().boxed())
    }
}

fn reaction(target: Target, edge: bson::Uuid) -> Reaction {
    Reaction { target, since: ids::time_of(edge.into()) }
}

fn edge_of(edge: &FollowDoc, user: UserId) -> Edge {
    Edge { user, since: edge.followed_at.map(timestamp), requested: edge.state == FollowState::Requested }
}
