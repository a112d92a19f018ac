//! Likes, reposts and bookmarks: counted once whatever happens at the same time, listed, and gone with what they are to.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use futures::{TryStreamExt as _, future::join_all};
use rookery_domain::{
    CommentId, Limit, PostId, UserId,
    export::Export,
    post::{PostViewer, Visibility},
    reactions::{ReactionRefusal, Target},
};
use rookery_storage::{
    Store,
    comments::NewComment,
    new_id,
    pending::Progress,
    posts::{Deleted, NewPost},
    testing::{TestDatabase, user},
    verify,
};

/// The author of a post, and somebody who likes things.
struct World {
    db: TestDatabase,
    author: UserId,
    fan: UserId,
    post: PostId,
}

impl World {
    async fn new() -> Self {
        let db = TestDatabase::new().await;
        let (author, fan) = (user(db.store()).await, user(db.store()).await);
        let post = publish(db.store(), author).await;
        Self { db, author, fan, post }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    async fn fans(&self, count: usize) -> Vec<UserId> {
        let mut fans = Vec::new();
        for _ in 0..count {
            fans.push(user(self.store()).await);
        }
        fans
    }

    async fn comment(&self, parent: Option<CommentId>) -> CommentId {
        let new = NewComment { id: CommentId(new_id()), post: self.post, parent, author: self.author, text: "A word".to_owned() };
        self.store().create_comment(new).await.unwrap().unwrap().id
    }

    /// Likes, and reposts, by the post's totals.
    async fn totals(&self) -> (i64, i64) {
        let counts = self.store().post(self.post, None).await.unwrap().unwrap().counts;
        (counts.likes, counts.reposts)
    }

    async fn likers(&self, limit: usize) -> Vec<UserId> {
        let (mut likers, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.store().likers(self.post, None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap();
            assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
            likers.extend(page.items.into_iter().map(|user| user.id));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return likers,
            }
        }
    }

    async fn assert_at_rest(&self) {
        settle(self.store()).await;
        let drift = verify::verify(self.store()).await.unwrap();
        assert!(drift.is_empty(), "{drift:#?}");
    }
}

async fn publish(store: &Store, author: UserId) -> PostId {
    publish_for(store, author, Visibility::Public).await
}

async fn publish_for(store: &Store, author: UserId, visibility: Visibility) -> PostId {
    let new = NewPost { id: PostId(new_id()), author, text: "A post".to_owned(), visibility };
    store.create_post(new).await.unwrap().unwrap().id
}

async fn settle(store: &Store) {
    loop {
        let steps = [
            store.jobs_step().await.unwrap(),
            store.apply_follows_step().await.unwrap(),
            store.apply_posts_step().await.unwrap(),
            store.apply_comments_step().await.unwrap(),
            store.apply_reactions_step().await.unwrap(),
            store.sweep_likes_step().await.unwrap(),
            store.merge_step().await.unwrap(),
            store.deliver_step().await.unwrap(),
        ];
        if steps == [Progress::Idle; 8] {
            return;
        }
    }
}

#[tokio::test]
async fn a_hundred_likes_of_one_account_count_once_and_fifty_unlikes_leave_none() {
    let world = World::new().await;
    let store = world.store();
    for _ in 0..2 {
        for liked in join_all((0..50).map(|_| store.like_post(world.post, world.fan))).await {
            assert!(liked.unwrap().unwrap().viewer.liked);
        }
    }
    settle(store).await;
    assert_eq!((world.totals().await.0, world.likers(10).await), (1, vec![world.fan]));
    for unliked in join_all((0..50).map(|_| store.unlike_post(world.post, world.fan))).await {
        assert!(!unliked.unwrap().unwrap().viewer.liked);
    }
    settle(store).await;
    assert_eq!((world.totals().await.0, world.likers(10).await), (0, vec![]));
    world.assert_at_rest().await;
}

#[tokio::test]
async fn the_like_of_a_quiet_post_is_in_the_answer() {
    let world = World::new().await;
    for likes in [1, 1] {
        let reacted = world.store().like_post(world.post, world.fan).await.unwrap().unwrap();
        assert_eq!((reacted.counts.likes, reacted.viewer.liked), (likes, true));
    }
    let undone = world.store().unlike_post(world.post, world.fan).await.unwrap().unwrap();
    assert_eq!((undone.counts.likes, undone.viewer), (0, PostViewer::default()));
}

#[tokio::test]
async fn likes_and_unlikes_of_many_at_once_agree_with_the_list() {
    let world = World::new().await;
    let store = world.store();
    let fans = world.fans(40).await;
    let (stay, leave) = fans.split_at(20);
    for fan in leave {
        store.like_post(world.post, *fan).await.unwrap().unwrap();
    }
    let likes = join_all(stay.iter().map(|fan| store.like_post(world.post, *fan)));
    let unlikes = join_all(leave.iter().map(|fan| store.unlike_post(world.post, *fan)));
    let (likes, unlikes) = futures::join!(likes, unlikes);
    assert!(likes.into_iter().chain(unlikes).all(|answer| answer.unwrap().is_ok()));
    settle(store).await;
    let mut likers = world.likers(7).await;
    likers.sort_unstable();
    assert_eq!((world.totals().await.0, likers), (20, stay.to_vec()));
    world.assert_at_rest().await;
}

#[tokio::test]
async fn exactly_ten_likes_are_one_page_of_ten_newest_first() {
    let world = World::new().await;
    let fans = world.fans(10).await;
    for fan in &fans {
        world.store().like_post(world.post, *fan).await.unwrap().unwrap();
    }
    let newest: Vec<UserId> = fans.into_iter().rev().collect();
    let page = world.store().likers(world.post, None, None, Limit::new(10).unwrap()).await.unwrap().unwrap();
    assert_eq!((page.items.iter().map(|user| user.id).collect::<Vec<_>>(), page.next), (newest.clone(), None));
    assert_eq!(world.likers(3).await, newest);
}

#[tokio::test]
async fn a_block_hides_who_likes_and_forbids_to_like() {
    let world = World::new().await;
    let (store, viewer) = (world.store(), user(world.store()).await);
    store.like_post(world.post, world.fan).await.unwrap().unwrap();
    store.mute(viewer, world.fan).await.unwrap().unwrap();
    let seen_by = async |viewer| {
        let page = store.likers(world.post, Some(viewer), None, Limit::DEFAULT).await.unwrap().unwrap();
        page.items.into_iter().map(|user| user.id).collect::<Vec<_>>()
    };
    assert_eq!(seen_by(viewer).await, [world.fan], "a mute hides no likers");
    store.block(world.fan, viewer).await.unwrap().unwrap();
    assert_eq!(seen_by(viewer).await, []);
    store.block(world.author, viewer).await.unwrap().unwrap();
    for refused in [
        store.like_post(world.post, viewer).await.unwrap(),
        store.repost(world.post, viewer).await.unwrap(),
        store.bookmark(world.post, viewer).await.unwrap(),
    ] {
        assert_eq!(refused, Err(ReactionRefusal::NotFound));
    }
    assert_eq!(world.totals().await, (1, 0));
    // Who liked before may take it back, without learning anything.
    store.block(world.author, world.fan).await.unwrap().unwrap();
    assert_eq!(store.unlike_post(world.post, world.fan).await.unwrap(), Err(ReactionRefusal::NotFound));
    assert_eq!(world.totals().await, (0, 0));
    world.assert_at_rest().await;
}

#[tokio::test]
async fn likes_of_a_comment_are_in_it_and_in_the_copy_that_the_post_keeps() {
    let world = World::new().await;
    let (store, comment) = (world.store(), world.comment(None).await);
    for fan in world.fans(3).await {
        store.like_comment(comment, fan).await.unwrap().unwrap();
    }
    for _ in 0..2 {
        assert_eq!(store.like_comment(comment, world.fan).await.unwrap().unwrap().likes, 4);
    }
    let kept = store.post(world.post, None).await.unwrap().unwrap().recent_comments.remove(0);
    assert_eq!((kept.likes, store.comment(comment, None).await.unwrap().unwrap().likes), (4, 4));
    assert_eq!(store.unlike_comment(comment, world.fan).await.unwrap().unwrap().likes, 3);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn likes_of_a_deleted_comment_go_with_it_also_where_its_place_stays() {
    let world = World::new().await;
    let (store, comment) = (world.store(), world.comment(None).await);
    world.comment(Some(comment)).await;
    store.like_comment(comment, world.fan).await.unwrap().unwrap();
    store.delete_comment(comment, world.author).await.unwrap().unwrap();
    assert_eq!(store.like_comment(comment, world.fan).await.unwrap(), Err(ReactionRefusal::NotFound));
    settle(store).await;
    assert_eq!(store.comment(comment, None).await.unwrap().unwrap().likes, 0);
    assert_eq!(reactions_of(store, world.fan).await, []);
    world.assert_at_rest().await;
}

/// What is held on an account: what it did to what.
async fn reactions_of(store: &Store, user: UserId) -> Vec<(&'static str, Target)> {
    let lines: Vec<Export> = store.export(user).try_collect().await.unwrap();
    let reactions = lines.into_iter().filter_map(|line| match line {
        Export::Like(reaction) => Some(("like", reaction.target)),
        Export::Repost(reaction) => Some(("repost", reaction.target)),
        Export::Bookmark(reaction) => Some(("bookmark", reaction.target)),
        _ => None,
    });
    reactions.collect()
}

#[tokio::test]
async fn what_an_account_did_is_flagged_wherever_the_post_is_shown_and_in_its_export() {
    let world = World::new().await;
    let (store, fan, post) = (world.store(), world.fan, world.post);
    store.follow(fan, world.author).await.unwrap().unwrap();
    store.like_post(post, fan).await.unwrap().unwrap();
    store.repost(post, fan).await.unwrap().unwrap();
    store.bookmark(post, fan).await.unwrap().unwrap();
    let all = Some(PostViewer { liked: true, reposted: true, bookmarked: true });
    let limit = Limit::DEFAULT;
    let author = rookery_storage::users::UserRef::Id(world.author);
    assert_eq!(store.post(post, Some(fan)).await.unwrap().unwrap().viewer, all);
    assert_eq!(store.posts(&[post], Some(fan)).await.unwrap()[0].viewer, all);
    assert_eq!(store.posts_of(&author, Some(fan), None, limit).await.unwrap().unwrap().items[0].viewer, all);
    assert_eq!(store.feed(fan, None, limit).await.unwrap().items[0].post.viewer, all);
    assert_eq!(store.bookmarks(fan, None, limit).await.unwrap().items[0].viewer, all);
    assert_eq!(store.post(post, Some(world.author)).await.unwrap().unwrap().viewer, Some(PostViewer::default()));
    assert_eq!(store.post(post, None).await.unwrap().unwrap().viewer, None);
    let target = Target::Post(post);
    assert_eq!(reactions_of(store, fan).await, [("like", target), ("repost", target), ("bookmark", target)]);
}

#[tokio::test]
async fn bookmarks_are_newest_first_in_full_pages_without_what_may_not_be_seen() {
    let world = World::new().await;
    let (store, fan) = (world.store(), world.fan);
    store.follow(fan, world.author).await.unwrap().unwrap();
    let mut posts = Vec::new();
    for n in 0..12 {
        let visibility = if n % 2 == 0 { Visibility::Followers } else { Visibility::Public };
        let post = publish_for(store, world.author, visibility).await;
        store.bookmark(post, fan).await.unwrap().unwrap();
        posts.insert(0, (post, visibility));
    }
    let walk = async || {
        let (mut shown, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.bookmarks(fan, cursor, Limit::new(2).unwrap()).await.unwrap();
            assert!(page.next.is_none() || page.items.len() == 2, "a short page before the end");
            shown.extend(page.items.into_iter().map(|post| post.id));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return shown,
            }
        }
    };
    assert_eq!(walk().await, posts.iter().map(|(post, _)| *post).collect::<Vec<_>>());
    store.unfollow(fan, world.author).await.unwrap();
    let public: Vec<PostId> = posts.iter().filter(|(_, of)| *of == Visibility::Public).map(|(post, _)| *post).collect();
    assert_eq!(walk().await, public);
    store.mute(fan, world.author).await.unwrap().unwrap();
    assert_eq!(walk().await, []);
    assert_eq!(store.bookmarks(world.author, None, Limit::DEFAULT).await.unwrap().items, []);
}

#[tokio::test]
async fn a_deleted_account_takes_its_reactions_out_of_all_totals() {
    let world = World::new().await;
    let (store, other, comment) = (world.store(), user(world.store()).await, world.comment(None).await);
    for fan in [world.fan, other] {
        store.like_post(world.post, fan).await.unwrap().unwrap();
        store.repost(world.post, fan).await.unwrap().unwrap();
        store.bookmark(world.post, fan).await.unwrap().unwrap();
        store.like_comment(comment, fan).await.unwrap().unwrap();
    }
    assert_eq!(world.totals().await, (2, 2));
    store.delete_account(world.fan).await.unwrap().unwrap();
    assert_eq!(world.likers(5).await, [other], "gone from the list at once");
    settle(store).await;
    assert_eq!(world.totals().await, (1, 1));
    assert_eq!(store.comment(comment, None).await.unwrap().unwrap().likes, 1);
    assert_eq!(reactions_of(store, world.fan).await, []);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_deleted_post_takes_everything_along() {
    let world = World::new().await;
    let (store, comment) = (world.store(), world.comment(None).await);
    store.like_post(world.post, world.fan).await.unwrap().unwrap();
    store.repost(world.post, world.fan).await.unwrap().unwrap();
    store.bookmark(world.post, world.fan).await.unwrap().unwrap();
    store.like_comment(comment, world.fan).await.unwrap().unwrap();
    assert_eq!(store.delete_post(world.post, world.author).await.unwrap(), Deleted::Now);
    assert_eq!(store.like_post(world.post, world.fan).await.unwrap(), Err(ReactionRefusal::NotFound));
    assert_eq!(store.bookmarks(world.fan, None, Limit::DEFAULT).await.unwrap().items, []);
    settle(store).await;
    assert_eq!(reactions_of(store, world.fan).await, []);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_post_for_followers_is_not_reposted_nor_one_of_whom_went_private() {
    let world = World::new().await;
    let store = world.store();
    store.follow(world.fan, world.author).await.unwrap().unwrap();
    let for_followers = publish_for(store, world.author, Visibility::Followers).await;
    for (who, what) in [(world.fan, for_followers), (world.author, for_followers)] {
        assert_eq!(store.repost(what, who).await.unwrap(), Err(ReactionRefusal::NotRepostable));
    }
    let stranger = user(store).await;
    assert_eq!(store.repost(for_followers, stranger).await.unwrap(), Err(ReactionRefusal::NotFound));
    // Of one that was reposted before, the feed shows nothing to strangers any more.
    store.follow(stranger, world.fan).await.unwrap().unwrap();
    store.repost(world.post, world.fan).await.unwrap().unwrap();
    assert_eq!(store.feed(stranger, None, Limit::DEFAULT).await.unwrap().items.len(), 1);
    let private = rookery_storage::profiles::ProfileEdit { private: Some(true), ..Default::default() };
    store.edit_profile(world.author, private).await.unwrap();
    assert_eq!(store.repost(world.post, world.fan).await.unwrap(), Err(ReactionRefusal::NotRepostable));
    assert_eq!(store.feed(stranger, None, Limit::DEFAULT).await.unwrap().items, []);
}

#[tokio::test]
async fn a_repost_made_again_stands_at_its_new_place_in_every_window() {
    let world = World::new().await;
    let (store, reader) = (world.store(), user(world.store()).await);
    store.follow(reader, world.fan).await.unwrap().unwrap();
    settle(store).await;
    let feed = async || {
        let page = store.feed(reader, None, Limit::DEFAULT).await.unwrap();
        page.items.into_iter().map(|item| item.post.id).collect::<Vec<_>>()
    };
    store.repost(world.post, world.fan).await.unwrap().unwrap();
    settle(store).await;
    let between = publish(store, world.fan).await;
    settle(store).await;
    assert_eq!(feed().await, [between, world.post]);
    store.undo_repost(world.post, world.fan).await.unwrap().unwrap();
    // Not read in between: the entry of the first one is still there.
    store.repost(world.post, world.fan).await.unwrap().unwrap();
    settle(store).await;
    assert_eq!(feed().await, [world.post, between]);
    store.undo_repost(world.post, world.fan).await.unwrap().unwrap();
    assert_eq!(feed().await, [between]);
    world.assert_at_rest().await;
}

#[tokio::test]
async fn a_feed_that_was_read_before_shows_new_totals() {
    let world = World::new().await;
    let (store, reader) = (world.store(), user(world.store()).await);
    store.follow(reader, world.author).await.unwrap().unwrap();
    let counts = async || store.feed(reader, None, Limit::DEFAULT).await.unwrap().items[0].post.counts;
    assert_eq!((counts().await.likes, counts().await.reposts), (0, 0));
    store.like_post(world.post, world.fan).await.unwrap().unwrap();
    store.repost(world.post, world.fan).await.unwrap().unwrap();
    assert_eq!((counts().await.likes, counts().await.reposts), (1, 1));
}
