//! Edits, and what they race.

use super::*;

impl World {
    async fn edit(&self, id: CommentId, text: &str) -> Result<Comment, ChangeCommentRefusal> {
        self.store().edit_comment(id, self.bob, text).await.unwrap()
    }

    /// The text of a comment and of its copy in the post, if there is one.
    async fn texts(&self, id: CommentId) -> (Option<String>, Option<String>) {
        let copy = self.subset().await.into_iter().find(|copy| copy.id == b(id)).map(|copy| copy.text);
        (self.doc(id).await.and_then(|doc| doc.text), copy)
    }
}

#[tokio::test]
async fn an_edit_shows_wherever_the_comment_does() {
    let world = World::new().await;
    let id = world.comment("frist", None).await;
    let reply = world.comment("reply", Some(id)).await;
    let edited = world.edit(id, "$first").await.unwrap();
    assert_eq!((edited.text.as_str(), edited.replies, edited.deleted), ("$first", 1, false));
    assert!(edited.edited_at.is_some_and(|at| at >= edited.created_at));
    assert_eq!(world.store().comment(id, None).await.unwrap().as_ref(), Some(&edited));
    assert_eq!(world.walk(None, CommentOrder::Oldest, 5).await[0], edited);
    assert_eq!(world.store().post(world.post, None).await.unwrap().unwrap().recent_comments[1], edited);
    assert_eq!(world.store().thread(reply, None, None, Limit::DEFAULT).await.unwrap().unwrap().ancestors, [edited.clone()]);
    // The same again is no edit.
    assert_eq!(world.edit(id, "$first").await.unwrap(), edited);
    assert_eq!(world.check().await, (2, 0));
}

#[tokio::test]
async fn a_comment_below_the_subset_is_edited_and_comes_back_as_it_is_then() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..20 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    world.edit(made[3], "edited").await.unwrap();
    assert_eq!(world.texts(made[3]).await, (Some("edited".to_owned()), None));
    for id in &made[5..10] {
        world.delete(*id).await;
    }
    assert_eq!(world.texts(made[3]).await, (Some("edited".to_owned()), Some("edited".to_owned())));
    assert_eq!(world.check().await, (15, 0));
}

#[tokio::test]
async fn only_its_author_edits_a_comment_that_is_there_for_them() {
    let world = World::new().await;
    let id = world.comment("mine", None).await;
    let carol = user(world.store(), "carol").await;
    let by = async |who| world.store().edit_comment(id, who, "hers").await.unwrap().map(|comment| comment.text);
    assert_eq!(by(carol).await, Err(ChangeCommentRefusal::NotYours));
    // A block makes it unknown, and so does one by the author of the post.
    world.store().block(world.bob, carol).await.unwrap().unwrap();
    assert_eq!(by(carol).await, Err(ChangeCommentRefusal::NotFound));
    let alice = world.store().post(world.post, None).await.unwrap().unwrap().author.id;
    world.store().block(alice, world.bob).await.unwrap().unwrap();
    assert_eq!(world.edit(id, "theirs").await, Err(ChangeCommentRefusal::NotFound));
    world.store().unblock(alice, world.bob).await.unwrap();
    assert_eq!(world.edit(CommentId(new_id()), "nobody's").await, Err(ChangeCommentRefusal::NotFound));
    let reply = world.comment("reply", Some(id)).await;
    world.delete(id).await;
    assert_eq!(world.edit(id, "too late").await, Err(ChangeCommentRefusal::NotFound), "also where its place is left");
    world.delete_post().await;
    assert_eq!(world.edit(reply, "too late").await, Err(ChangeCommentRefusal::NotFound));
    assert_eq!(world.doc(id).await.unwrap().text, None);
}

#[tokio::test]
async fn an_edit_between_a_deletion_and_its_application_finds_nothing() {
    let world = World::new().await;
    let id = world.comment("regretted", None).await;
    assert!(world.store().mark_comment_removed(id).await.unwrap());
    // The request had found it live.
    assert!(world.store().edit_comment_once(id, world.bob, "changed").await.unwrap().is_none());
    world.drain().await;
    assert_eq!(world.check().await, (0, 0));
}

#[tokio::test]
async fn an_edit_of_a_comment_that_is_not_counted_is_in_the_copy_that_is_made_of_it() {
    let world = World::new().await;
    let id = comment_id(world.insert("frist", None).await.id);
    assert_eq!(world.edit(id, "first").await.unwrap().text, "first");
    world.drain().await;
    assert_eq!(world.texts(id).await, (Some("first".to_owned()), Some("first".to_owned())));
    assert_eq!(world.check().await, (1, 0));
}

/// What an edit waits for: a transaction that has written the comment, as a like, a count or a copy of it does.
#[tokio::test]
async fn an_edit_that_meets_another_write_of_the_comment_begins_anew() {
    let world = World::new().await;
    let id = world.comment("frist", None).await;
    let mut session = world.store().begin().await.unwrap();
    let like = doc! { "$inc": { "counters.likes": 1 } };
    world.store().comment_coll().update_one(doc! { "_id": b(id) }, like).session(&mut session).await.unwrap();
    assert!(world.store().edit_comment_once(id, world.bob, "first").await.unwrap_err().is_conflict());
    let copy = doc! { "$inc": { "recentComments.0.likes": 1 } };
    world.posts().update_one(doc! { "_id": b(world.post) }, copy).session(&mut session).await.unwrap();
    let (edited, committed) = tokio::join!(world.edit(id, "first"), crate::store::commit(session));
    committed.unwrap();
    let edited = edited.unwrap();
    assert_eq!((edited.text.as_str(), edited.likes), ("first", 1));
    assert_eq!(world.subset().await[0].likes, 1);
    assert_eq!(world.check().await, (1, 0));
}

#[tokio::test]
async fn edits_likes_replies_deletions_and_renames_at_once_leave_every_copy_like_its_comment() {
    let world = World::new().await;
    let store = world.store();
    let mut made = Vec::new();
    for n in 0..24 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    let mut fans = Vec::new();
    for _ in 0..4 {
        fans.push(crate::testing::user(store).await);
    }
    // From the middle of the subset, so that what is below comes back while it is edited.
    let edits = join_all(
        made[4..16]
            .iter()
            .flat_map(|id| (0..3).map(move |n| (*id, n)))
            .map(|(id, n)| async move { store.edit_comment(id, world.bob, &format!("edit {n}")).await.unwrap() }),
    );
    let likes = join_all(made[4..16].iter().flat_map(|id| fans.iter().map(move |fan| store.like_comment(*id, *fan))));
    let replies = join_all(made[8..14].iter().map(|id| store.create_comment(world.new_comment("reply", Some(*id)))));
    let deletes = join_all(made[12..24].iter().map(|id| store.delete_comment(*id, world.bob)));
    let rename = async {
        for name in ["robert", "bobby"] {
            let handle = Handle::parse(name).unwrap();
            assert!(matches!(store.change_handle(world.bob, &handle).await.unwrap(), crate::rename::Edited::Now(_)));
            store.finish_jobs().await.unwrap();
        }
    };
    let (edits, likes, replies, deletes, (), ()) = tokio::join!(edits, likes, replies, deletes, rename, world.drain());
    drop((likes, replies));
    assert!(edits.iter().take(24).all(Result::is_ok), "those that nobody deletes are edited");
    assert!(deletes.into_iter().all(|deleted| deleted.unwrap().is_ok()));
    while store.apply_reactions_step().await.unwrap() != Progress::Idle {}
    store.finish_jobs().await.unwrap();
    world.drain().await;
    world.check().await;
    for id in &made[4..12] {
        let comment = world.doc(*id).await.unwrap();
        assert!(comment.text.as_deref().is_some_and(|text| text.starts_with("edit ")) && comment.edited_at.is_some());
        assert_eq!(comment.counters.likes, 4);
    }
    let names: BTreeSet<String> = world.subset().await.into_iter().map(|copy| copy.author.handle).collect();
    assert_eq!(names, BTreeSet::from(["bobby".to_owned()]));
    let drift = crate::verify::verify(store).await.unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}
