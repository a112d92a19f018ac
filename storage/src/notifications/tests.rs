//! Notices against the database: once for each act whatever crashes or races, gone with it, and what is shown of them.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use futures::future::join_all;
use rookery_domain::{
    CommentId, Limit, NotificationId, PostId,
    notifications::{Notification, NotificationKind, UNREAD_MOST},
    page::TimeCursor,
    post::Visibility,
};

use super::*;
use crate::{
    Settings,
    collections::{FOLLOWS, LIKES},
    comments::NewComment,
    graph::{FollowDoc, Followee},
    pending::Progress,
    posts::NewPost,
    profiles::ProfileEdit,
    reactions::{EdgeState, LikeDoc, TargetDoc},
    testing::{TestDatabase, merges, user},
    verify::verify,
};

struct World {
    db: TestDatabase,
    alice: UserId,
    bob: UserId,
    carol: UserId,
    /// Of Alice.
    post: PostId,
}

impl World {
    async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    async fn with(settings: Settings) -> Self {
        let db = TestDatabase::with(settings).await;
        let (alice, bob, carol) = (user(db.store()).await, user(db.store()).await, user(db.store()).await);
        let post = publish(db.store(), alice, "A post").await;
        Self { db, alice, bob, carol, post }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    /// What Alice sees, page by page.
    async fn told(&self) -> Vec<Notification> {
        walk(self.store(), self.alice, 3).await
    }

    /// Kinds and numbers of actors of what Alice sees, which must agree with what is counted as unread.
    async fn brief(&self) -> Vec<(NotificationKind, i64)> {
        let told = self.told().await;
        let unread = told.iter().filter(|notice| !notice.read).count();
        assert_eq!(self.store().unread_notifications(self.alice).await.unwrap(), unread);
        told.iter().map(|notice| (notice.kind, notice.actor_count)).collect()
    }

    /// Kinds that stand in the documents of Alice, whatever is shown of them.
    async fn kept(&self) -> usize {
        let own = doc! { "userId": b(self.alice) };
        let buckets: Vec<BucketDoc> =
            self.store().coll(NOTIFICATIONS).find(own.clone()).await.unwrap().try_collect().await.unwrap();
        for bucket in &buckets {
            assert_eq!(usize::try_from(bucket.count), Ok(bucket.items.len()));
            assert!(bucket.items.len() <= BUCKET_SIZE);
        }
        let groups = self.store().coll::<Document>(NOTIFICATION_GROUPS).count_documents(own).await.unwrap();
        buckets.iter().map(|bucket| bucket.items.len()).sum::<usize>() + usize::try_from(groups).unwrap()
    }

    async fn comment(&self, author: UserId, text: &str, parent: Option<CommentId>) -> CommentId {
        self.store().create_comment(self.new_comment(author, text, parent)).await.unwrap().unwrap().id
    }

    fn new_comment(&self, author: UserId, text: &str, parent: Option<CommentId>) -> NewComment {
        NewComment { id: CommentId(new_id()), post: self.post, parent, author, text: text.to_owned() }
    }

    /// The first step of a comment: its request crashed after it.
    async fn write_comment(&self, author: UserId) -> CommentId {
        let new = self.new_comment(author, "A remark", None);
        let (id, place) = (new.id, self.store().place_for(&new).await.unwrap().unwrap());
        self.store().insert_comment(new, place).await.unwrap();
        id
    }

    /// The first step of a like.
    async fn write_like(&self, author: UserId) -> bson::Uuid {
        let like = LikeDoc {
            id: b(new_id()),
            user_id: b(author),
            target_id: b(self.post),
            target: TargetDoc::Post,
            state: EdgeState::Active,
            seq: None,
            pending: Some(true),
        };
        self.store().coll::<LikeDoc>(LIKES).insert_one(&like).await.unwrap();
        like.id
    }

    async fn read(&self, up_to: NotificationId) {
        self.store().read_notifications(self.alice, up_to).await.unwrap();
    }
}

async fn handle(store: &Store, user: UserId) -> String {
    store.summaries([user]).await.unwrap().remove(&user).unwrap().handle.as_str().to_owned()
}

async fn publish(store: &Store, author: UserId, text: &str) -> PostId {
    let new = NewPost { id: PostId(new_id()), author, text: text.to_owned(), visibility: Visibility::Public };
    store.create_post(new).await.unwrap().unwrap().id
}

async fn walk(store: &Store, user: UserId, limit: usize) -> Vec<Notification> {
    let (mut told, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.notifications(user, cursor, Limit::new(limit).unwrap()).await.unwrap();
        assert!(page.items.len() == limit || page.next.is_none(), "a page is full unless the list is at its end");
        told.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            assert!(told.is_sorted_by(|one, other| one.id > other.id), "newest first, each once");
            return told;
        }
    }
}

async fn settle(store: &Store) {
    loop {
        let steps = [
            store.apply_follows_step().await.unwrap(),
            store.apply_posts_step().await.unwrap(),
            store.apply_comments_step().await.unwrap(),
            store.apply_reactions_step().await.unwrap(),
        ];
        if steps.iter().all(|step| *step == Progress::Idle) {
            return;
        }
    }
}

async fn set_private(store: &Store, user: UserId, private: bool) {
    let edit = ProfileEdit { private: Some(private), ..ProfileEdit::default() };
    store.edit_profile(user, edit).await.unwrap();
}

#[tokio::test]
async fn every_act_is_told_once_and_gone_when_it_is_undone() {
    use NotificationKind::{Comment, Follow, FollowRequest, Like, Mention, Reply, Repost};
    let world = World::new().await;
    let (store, alice, bob, post) = (world.store(), world.alice, world.bob, world.post);
    let name = format!("see @{}", handle(world.store(), world.alice).await);
    let own = world.comment(alice, &name, None).await;
    for one in [store.like_post(post, alice).await, store.repost(post, alice).await] {
        one.unwrap().unwrap();
    }
    store.like_comment(own, alice).await.unwrap().unwrap();
    publish(store, alice, &name).await;
    assert_eq!(world.brief().await, [], "nobody is told of their own");
    assert_eq!(world.kept().await, 0);

    for _ in 0..2 {
        store.follow(bob, alice).await.unwrap().unwrap();
        store.like_post(post, bob).await.unwrap().unwrap();
        store.repost(post, bob).await.unwrap().unwrap();
        store.like_comment(own, bob).await.unwrap().unwrap();
        let comment = world.comment(bob, &name, None).await;
        let reply = world.comment(bob, &name, Some(own)).await;
        let elsewhere = publish(store, bob, &format!("{name} {name}")).await;
        let other = store.create_comment(NewComment { post: elsewhere, ..world.new_comment(bob, &name, None) });
        let other = other.await.unwrap().unwrap().id;
        settle(store).await;
        let told = [(Mention, 1), (Mention, 1), (Reply, 1), (Comment, 1), (Like, 1), (Repost, 1), (Like, 1), (Follow, 1)];
        assert_eq!(world.brief().await, told);
        let shown = world.told().await;
        assert!(shown.iter().all(|notice| notice.actors.len() == 1 && notice.actors[0].id == bob));
        assert_eq!(shown[0].comment.as_ref().unwrap().id, other);
        assert_eq!(shown[1].post.as_ref().unwrap().id, elsewhere);
        assert_eq!((shown[2].post.as_ref().unwrap().id, shown[2].comment.as_ref().unwrap().id), (post, reply));
        assert_eq!((shown[4].comment.as_ref().unwrap().id, shown[4].comment.as_ref().unwrap().text.as_str()), (own, name.as_str()));
        assert_eq!(shown[5].post.as_ref().unwrap().text, "A post");
        assert!(shown[7].post.is_none() && shown[7].comment.is_none());

        store.unfollow(bob, alice).await.unwrap();
        store.unlike_post(post, bob).await.unwrap().unwrap();
        store.undo_repost(post, bob).await.unwrap().unwrap();
        store.unlike_comment(own, bob).await.unwrap().unwrap();
        for comment in [comment, reply, other] {
            store.delete_comment(comment, bob).await.unwrap().unwrap();
        }
        store.delete_post(elsewhere, bob).await.unwrap();
        assert_eq!(world.brief().await, []);
        settle(store).await;
        // Notices of what the author has done too stay, with nobody in them.
        assert!(world.kept().await <= 3, "{}", world.kept().await);
    }
    set_private(store, alice, true).await;
    store.follow(bob, Followee { id: alice, private: true }).await.unwrap().unwrap();
    assert_eq!(world.brief().await, [(FollowRequest, 1)]);
    store.unfollow(bob, alice).await.unwrap();
    assert_eq!(world.brief().await, []);
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn consent_is_told_to_who_asked_and_the_follow_to_who_consented() {
    use NotificationKind::{Follow, FollowAccepted, FollowRequest};
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    set_private(store, alice, true).await;
    for fan in [world.bob, world.carol] {
        store.follow(fan, alice).await.unwrap().unwrap();
        store.follow(fan, alice).await.unwrap().unwrap();
        settle(store).await;
    }
    assert_eq!(world.brief().await, [(FollowRequest, 1), (FollowRequest, 1)]);
    assert!(store.accept_request(alice, world.bob).await.unwrap());
    assert_eq!(world.brief().await, [(Follow, 1), (FollowRequest, 1)]);
    set_private(store, alice, false).await;
    settle(store).await;
    assert_eq!(world.brief().await, [(Follow, 2)]);
    for fan in [world.bob, world.carol] {
        let told = walk(store, fan, 5).await;
        assert_eq!(told.iter().map(|notice| (notice.kind, notice.actors[0].id)).collect::<Vec<_>>(), [(FollowAccepted, alice)]);
    }
    store.unfollow(world.bob, alice).await.unwrap();
    store.remove_follower(alice, world.carol).await.unwrap();
    for user in [alice, world.bob, world.carol] {
        assert_eq!(walk(store, user, 5).await, []);
    }
    // A request that is made anew after it was taken back.
    set_private(store, alice, true).await;
    for _ in 0..3 {
        store.follow(world.bob, alice).await.unwrap().unwrap();
        store.mark_unfollow(world.bob, alice).await.unwrap();
    }
    store.follow(world.bob, alice).await.unwrap().unwrap();
    settle(store).await;
    assert_eq!(world.brief().await, [(FollowRequest, 1)]);
    store.reject_request(alice, world.bob).await.unwrap();
    assert_eq!((world.brief().await, world.kept().await), (vec![], 0));
}

/// One step of a comment, or of its deletion, or of one of two appliers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Apply,
    ApplyElsewhere,
    Remove,
}

#[tokio::test]
async fn a_comment_is_told_exactly_while_it_stands_whatever_order_its_steps_have_and_wherever_they_end() {
    use Step::{Apply, ApplyElsewhere, Remove, Write};
    let world = World::new().await;
    let (store, second) = (world.store(), world.db.second_store().await);
    let (acts, appliers) = ([Write, Remove], [Apply, ApplyElsewhere, Apply]);
    for acts in [&acts[..1], &acts[..]] {
        for order in merges(acts, &appliers) {
            let mut comment = None;
            for step in &order {
                match step {
                    Write => comment = Some(world.write_comment(world.bob).await),
                    Apply => drop(store.apply_comments_step().await.unwrap()),
                    ApplyElsewhere => drop(second.apply_comments_step().await.unwrap()),
                    Remove => store.mark_comments_removed(&[b(comment.unwrap())]).await.unwrap(),
                }
                let kept = world.kept().await;
                assert!(kept <= 1, "{order:?}");
            }
            let stands = acts.len() == 1;
            assert_eq!(world.brief().await.len(), usize::from(stands && world.kept().await == 1), "{order:?}");
            settle(&second).await;
            assert_eq!((world.brief().await.len(), world.kept().await), (usize::from(stands), usize::from(stands)), "{order:?}");
            if stands {
                store.delete_comment(comment.unwrap(), world.bob).await.unwrap().unwrap();
                assert_eq!(world.kept().await, 0);
            }
        }
    }
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn appliers_that_race_tell_what_a_crash_left_once() {
    let world = World::new().await;
    let (store, second) = (world.store(), world.db.second_store().await);
    let mut comments = Vec::new();
    for _ in 0..30 {
        comments.push(b(world.write_comment(world.bob).await));
    }
    // Both at the same comments at the same time: one of two transactions commits.
    let both = [store, &second];
    join_all((0..20).map(|n| both[n % 2].apply_comments(b(world.post), &comments))).await;
    settle(store).await;
    assert_eq!(world.brief().await.len(), 30);
    assert_eq!(world.kept().await, 30);

    let fans = join_all((0..20).map(|_| user(store))).await;
    for fan in &fans {
        world.write_like(*fan).await;
    }
    join_all((0..6).map(|n| both[n % 2].apply_reactions_step())).await;
    settle(store).await;
    let told = world.told().await;
    assert_eq!((told[0].kind, told[0].actor_count, told[0].actors.len()), (NotificationKind::Like, 20, 5));
    // Likes, comments and follows of one account at once, from everybody.
    let posts = join_all((0..4).map(|_| publish(store, world.alice, "Another post"))).await;
    join_all(fans.iter().enumerate().map(|(n, fan)| {
        let (store, post, world) = (both[n % 2], posts[n % 4], &world);
        async move {
            store.follow(*fan, world.alice).await.unwrap().unwrap();
            store.like_post(post, *fan).await.unwrap().unwrap();
            store.create_comment(NewComment { post, ..world.new_comment(*fan, "hi", None) }).await.unwrap().unwrap();
        }
    }))
    .await;
    settle(store).await;
    let mut counts: BTreeMap<NotificationKind, Vec<i64>> = BTreeMap::new();
    for (kind, count) in world.brief().await {
        counts.entry(kind).or_default().push(count);
    }
    assert_eq!(counts[&NotificationKind::Follow], [20]);
    assert_eq!(counts[&NotificationKind::Comment].len(), 30 + 20);
    counts.get_mut(&NotificationKind::Like).unwrap().sort_unstable();
    assert_eq!(counts[&NotificationKind::Like], [5, 5, 5, 5, 20]);
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn a_storm_of_follows_is_one_notice_that_is_written_once_a_batch() {
    let world = World::with(Settings { celebrity_threshold: 3, ..Settings::default() }).await;
    let store = world.store();
    for _ in 0..4 {
        store.follow(user(store).await, world.alice).await.unwrap().unwrap();
    }
    settle(store).await;
    let (known, mut fans) = (world.told().await.remove(0), Vec::new());
    for _ in 0..600 {
        fans.push(user(store).await);
    }
    let edges: Vec<FollowDoc> = fans.iter().map(|fan| FollowDoc::fresh(*fan, world.alice)).collect();
    store.coll::<FollowDoc>(FOLLOWS).insert_many(edges).await.unwrap();
    settle(store).await;
    assert_eq!(world.kept().await, 1);
    let told = world.told().await;
    assert_eq!((told.len(), told[0].actor_count, told[0].actors.len(), told[0].read), (1, 604, 5, false));
    assert!(told[0].id > known.id, "it stands where its newest act does");
    // The newest five, and none that is hidden, whoever it is.
    world.read(told[0].id).await;
    assert_eq!(store.unread_notifications(world.alice).await.unwrap(), 0);
    for shown in &told[0].actors {
        store.mute(world.alice, shown.id).await.unwrap().unwrap();
    }
    store.block(fans[0], world.alice).await.unwrap().unwrap();
    store.delete_account(fans[1]).await.unwrap().unwrap();
    settle(store).await;
    let left = world.told().await;
    assert_eq!((left[0].actor_count, left[0].actors.len(), left[0].read), (604 - 7, 5, true));
    assert!(left[0].actors.iter().all(|user| !told[0].actors.contains(user)));
    // And when all have left it is gone.
    for edge in fans.chunks(50) {
        join_all(edge.iter().map(|fan| store.mark_unfollow(*fan, world.alice))).await;
    }
    settle(store).await;
    assert_eq!(world.brief().await, [(NotificationKind::Follow, 4)]);
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn follows_of_two_days_are_two_notices_and_leave_their_own() {
    let world = World::new().await;
    let store = world.store();
    let mut fans = Vec::new();
    for n in 0..4 {
        if n == 2 {
            // What stands there is of yesterday.
            let at = now().minus(std::time::Duration::from_hours(24));
            let day = doc! { "$set": { "followedAt": date(at) } };
            store.coll::<Document>(FOLLOWS).update_many(doc! { "followeeId": b(world.alice) }, day).await.unwrap();
            let groups = store.coll::<Document>(NOTIFICATION_GROUPS);
            let mut today = groups.find_one_and_delete(doc! {}).await.unwrap().unwrap();
            today.extend(doc! { "_id": follows_id(world.alice, at), "place": b(id_at(at)), "at": date(at) });
            groups.insert_one(today).await.unwrap();
        }
        let fan = user(store).await;
        store.follow(fan, world.alice).await.unwrap().unwrap();
        fans.push(fan);
    }
    let actors = |told: &[Notification]| -> Vec<Vec<UserId>> {
        told.iter().map(|notice| notice.actors.iter().map(|user| user.id).collect()).collect()
    };
    assert_eq!(actors(&world.told().await), [[fans[3], fans[2]], [fans[1], fans[0]]]);
    store.unfollow(fans[0], world.alice).await.unwrap();
    assert_eq!(world.brief().await.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 1]);
    store.unfollow(fans[1], world.alice).await.unwrap();
    assert_eq!((actors(&world.told().await), world.kept().await), (vec![vec![fans[3], fans[2]]], 1));
    // A follow made again is one of today.
    store.follow(fans[0], world.alice).await.unwrap().unwrap();
    assert_eq!(actors(&world.told().await), [[fans[0], fans[3], fans[2]]]);
}

#[tokio::test]
async fn a_post_with_many_likes_is_one_notice_counted_for_its_viewer() {
    let world = World::new().await;
    let store = world.store();
    let mut fans = Vec::new();
    for _ in 0..300 {
        fans.push(user(store).await);
    }
    for fan in &fans {
        world.write_like(*fan).await;
    }
    world.write_like(world.alice).await;
    settle(store).await;
    let told = world.told().await;
    assert_eq!((told.len(), told[0].actor_count, world.kept().await), (1, 300, 1));
    // The hundred newest are all hidden, some of the oldest too.
    for fan in fans[200..].iter().chain(&fans[..10]) {
        store.mute(world.alice, *fan).await.unwrap().unwrap();
    }
    let left = world.told().await;
    assert_eq!(left[0].actor_count, 190);
    assert_eq!(
        left[0].actors.iter().map(|user| user.id).collect::<Vec<_>>(),
        fans[195..200].iter().rev().copied().collect::<Vec<_>>()
    );
    for fan in &fans {
        store.mute(world.alice, *fan).await.unwrap().unwrap();
    }
    assert_eq!(world.brief().await, [], "what all of whose actors are hidden is not shown");
    store.unmute(world.alice, fans[7]).await.unwrap();
    assert_eq!(world.brief().await, [(NotificationKind::Like, 1)]);
}

#[tokio::test]
async fn a_notice_that_was_read_is_unread_when_another_act_joins_it_that_the_recipient_may_see() {
    let world = World::new().await;
    let (store, alice) = (world.store(), world.alice);
    let unread = async || store.unread_notifications(alice).await.unwrap();
    store.like_post(world.post, world.bob).await.unwrap().unwrap();
    store.follow(world.bob, alice).await.unwrap().unwrap();
    let seen = world.told().await;
    assert_eq!(unread().await, 2);
    let (older, newer) = (seen[1].id, seen[0].id);
    for _ in 0..2 {
        world.read(older).await;
        assert_eq!(unread().await, 1);
    }
    world.read(newer).await;
    world.read(older).await;
    assert_eq!(unread().await, 0, "reading never goes backwards");
    assert_eq!(world.brief().await.len(), 2);

    store.mute(alice, world.carol).await.unwrap().unwrap();
    store.like_post(world.post, world.carol).await.unwrap().unwrap();
    store.follow(world.carol, alice).await.unwrap().unwrap();
    assert_eq!(unread().await, 0, "a muted account makes nothing unread");
    store.unmute(alice, world.carol).await.unwrap();
    assert_eq!(unread().await, 2);
    // What came after somebody looked is not read with what they saw.
    world.read(newer).await;
    assert_eq!(unread().await, 2);
    let second = world.db.second_store().await;
    second.unlike_post(world.post, world.carol).await.unwrap().unwrap();
    assert_eq!(unread().await, 1, "what made it unread is undone");
    // An id that lies in the future reads what is there, and not what comes.
    world.read(NotificationId(Uuid::max())).await;
    assert_eq!((unread().await, second.unread_notifications(alice).await.unwrap()), (0, 0));
    world.comment(world.bob, "hi", None).await;
    assert_eq!(unread().await, 1);
}

#[tokio::test]
async fn buckets_and_notices_of_many_acts_are_one_list_both_ways() {
    let world = World::new().await;
    let store = world.store();
    for n in 0..12 {
        for _ in 0..if n == 3 { 60 } else { 9 } {
            world.comment(world.bob, "hi", None).await;
        }
        let post = publish(store, world.alice, "Another post").await;
        store.like_post(post, world.bob).await.unwrap().unwrap();
    }
    settle(store).await;
    let all = walk(store, world.alice, 100).await;
    assert_eq!(all.len(), 11 * 9 + 60 + 12);
    for limit in [1, 7, 50] {
        assert_eq!(walk(store, world.alice, limit).await, all, "{limit}");
    }
    let buckets: Vec<BucketDoc> = store
        .coll(NOTIFICATIONS)
        .find(doc! { "userId": b(world.alice) })
        .sort(doc! { "bucket": 1 })
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(buckets.iter().map(|bucket| (bucket.bucket, bucket.count)).collect::<Vec<_>>(), [(1, 50), (2, 50), (3, 50), (4, 9)]);
    assert_eq!(buckets.iter().filter(|bucket| bucket.open.is_some()).map(|bucket| bucket.bucket).collect::<Vec<_>>(), [4]);
    assert!(buckets.is_sorted_by(|one, other| one.last.bytes() < other.first.bytes()));
    // From the end back to the beginning, and then polling for what comes.
    let mut cursor = Some(TimeCursor::Before(all.last().unwrap().id.0));
    let page = store.notifications(world.alice, cursor, Limit::new(7).unwrap()).await.unwrap();
    assert!(page.items.is_empty() && page.next.is_none());
    cursor = page.prev;
    let mut back = Vec::new();
    loop {
        let page = store.notifications(world.alice, cursor, Limit::new(7).unwrap()).await.unwrap();
        if page.items.is_empty() {
            break;
        }
        back.splice(0..0, page.items);
        cursor = page.prev;
    }
    assert_eq!(back, all[..all.len()], "each once, in the same order");
}

#[tokio::test]
async fn items_stay_in_order_where_clocks_differ_and_full_buckets_take_no_more() {
    let world = World::new().await;
    let store = world.store();
    world.comment(world.bob, "hi", None).await;
    // Another process's clock is ahead.
    let ahead = b(id_at(now().plus(std::time::Duration::from_secs(3))));
    let set = doc! { "$set": { "last": ahead, "items.0.place": ahead } };
    store.coll::<Document>(NOTIFICATIONS).update_one(doc! {}, set).await.unwrap();
    let told: Vec<Told> = (0..170)
        .map(|_| Told { kind: SingleDoc::Comment, ..Told::mention(world.alice, world.bob, b(new_id()), Some(b(world.post)), None) })
        .collect();
    let mut session = store.begin().await.unwrap();
    store.tell(&mut session, &told).await.unwrap();
    crate::store::commit(session).await.unwrap();
    let all = walk(store, world.alice, 100).await;
    assert_eq!((all.len(), all[170].id.0, world.kept().await), (171, ahead.into(), 171));
    assert_eq!(store.coll::<Document>(NOTIFICATIONS).count_documents(doc! {}).await.unwrap(), 4);
}

#[tokio::test]
async fn counting_what_is_unread_ends_at_a_thousand() {
    let world = World::new().await;
    let store = world.store();
    let told: Vec<Told> =
        (0..1_100).map(|_| Told::mention(world.alice, world.bob, b(new_id()), Some(b(world.post)), None)).collect();
    let mut session = store.begin().await.unwrap();
    store.tell(&mut session, &told).await.unwrap();
    crate::store::commit(session).await.unwrap();
    assert_eq!(store.unread_notifications(world.alice).await.unwrap(), UNREAD_MOST);
    let all = walk(store, world.alice, 100).await;
    world.read(all[30].id).await;
    assert_eq!((all.len(), store.unread_notifications(world.alice).await.unwrap()), (1_100, 30));
}

#[tokio::test]
async fn an_edit_tells_who_is_named_now_and_no_longer_who_is_not() {
    let world = World::new().await;
    let store = world.store();
    let (alice, carol) = (handle(store, world.alice).await, handle(store, world.carol).await);
    let of_carol = publish(store, world.carol, "Of Carol").await;
    // Who answers Carol tells her of that, named or not.
    let new = NewComment { text: format!("@{alice} @{carol}"), post: of_carol, ..world.new_comment(world.bob, "", None) };
    let comment = store.create_comment(new).await.unwrap().unwrap().id;
    let post = publish(store, world.bob, &format!("@{alice} @{carol}")).await;
    let told = async |user: UserId| -> Vec<(NotificationKind, NotificationId)> {
        walk(store, user, 5).await.iter().map(|notice| (notice.kind, notice.id)).collect()
    };
    let (of_alice, before) = (told(world.alice).await, told(world.carol).await);
    let kinds = |told: &[(NotificationKind, NotificationId)]| told.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    assert_eq!(kinds(&of_alice), [NotificationKind::Mention; 2]);
    assert_eq!(kinds(&before), [NotificationKind::Mention, NotificationKind::Comment]);
    let edit = async |text: &str| {
        store.edit_post(post, world.bob, text.to_owned()).await.unwrap();
        store.edit_comment(comment, world.bob, text).await.unwrap().unwrap();
    };
    edit(&format!("Once more, @{alice}")).await;
    assert_eq!(told(world.alice).await, of_alice, "who was named before is not told again");
    assert_eq!(told(world.carol).await, before[1..], "who is named no longer is told of the comment alone");
    edit("nobody").await;
    assert_eq!((told(world.alice).await, told(world.carol).await), (vec![], before[1..].to_vec()));
    edit(&format!("@{carol} and @{alice}")).await;
    assert_eq!(kinds(&told(world.alice).await), [NotificationKind::Mention; 2]);
    assert_eq!(kinds(&told(world.carol).await), [NotificationKind::Mention, NotificationKind::Comment]);
    assert_eq!(verify(store).await.unwrap(), []);
}

#[tokio::test]
async fn an_import_tells_nobody() {
    let world = World::new().await;
    let store = world.store();
    store.import_follows(&[(world.bob, world.alice)]).await.unwrap();
    assert_eq!(world.brief().await, []);
    store.follow(world.carol, world.alice).await.unwrap().unwrap();
    assert_eq!(world.brief().await, [(NotificationKind::Follow, 1)]);
    // Where there is a notice of the day, its numbers go on.
    let late = user(store).await;
    store.import_follows(&[(late, world.alice)]).await.unwrap();
    assert_eq!(world.brief().await, [(NotificationKind::Follow, 2)]);
}

#[tokio::test]
async fn whoever_waits_for_notices_hears_of_them() {
    let world = World::new().await;
    let heard = world.store().wake().notices.notified();
    world.store().like_post(world.post, world.bob).await.unwrap().unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(5), heard).await.unwrap();
}

#[tokio::test]
async fn every_query_on_notices_is_served_by_its_index() {
    let world = World::new().await;
    let store = world.store();
    world.comment(world.bob, "hi", None).await;
    store.like_post(world.post, world.bob).await.unwrap().unwrap();
    let alice = b(world.alice);
    let span = doc! { "$gte": b(Uuid::nil()), "$lt": b(Uuid::max()) };
    let queries = [
        (NOTIFICATIONS, doc! { "userId": alice, "first": &span }, doc! { "first": -1 }, "userId_1_first_-1"),
        (NOTIFICATIONS, doc! { "open": { "$in": [alice] } }, doc! {}, "open_1"),
        (NOTIFICATIONS, doc! { "items.act": { "$in": [alice] } }, doc! {}, "items.act_1"),
        (NOTIFICATION_GROUPS, doc! { "userId": alice, "place": span }, doc! { "place": -1 }, "userId_1_place_-1"),
    ];
    for (name, filter, sort, index) in queries {
        let find = doc! { "explain": { "find": name, "filter": &filter, "sort": sort }, "verbosity": "queryPlanner" };
        let plan = store.db().run_command(find).await.unwrap();
        let plan = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().to_string();
        assert!(plan.contains("IXSCAN") && plan.contains(&format!("\"{index}\"")), "{filter}\n{plan}");
    }
}
