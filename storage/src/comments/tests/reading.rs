//! What each viewer is shown: lists and their totals, threads, and the newest comments of a post.

use std::collections::HashMap;

use super::*;
use crate::testing;

/// One post under which several write, and whom viewers do not see.
struct Crowd {
    world: World,
    /// Who write, by a letter.
    authors: HashMap<char, UserId>,
    made: Vec<(String, CommentId)>,
}

impl Crowd {
    async fn new(letters: &str) -> Self {
        let world = World::new().await;
        let mut authors = HashMap::new();
        for letter in letters.chars() {
            authors.insert(letter, user(world.store(), &format!("{letter}_{letter}")).await);
        }
        Self { world, authors, made: Vec::new() }
    }

    fn store(&self) -> &Store {
        self.world.store()
    }

    fn id(&self, name: &str) -> CommentId {
        self.made.iter().find(|(made, _)| made == name).unwrap_or_else(|| panic!("{name}")).1
    }

    /// The first letter of a comment's name says who writes it.
    async fn write(&mut self, name: &str, parent: Option<&str>) -> CommentId {
        let author = self.authors[&name.chars().next().unwrap()];
        let parent = parent.map(|parent| self.id(parent));
        let new = NewComment { author, ..self.world.new_comment(name, parent) };
        let id = self.store().create_comment(new).await.unwrap().unwrap().id;
        self.made.push((name.to_owned(), id));
        id
    }

    async fn delete(&self, name: &str) {
        let author = self.authors[&name.chars().next().unwrap()];
        self.store().delete_comment(self.id(name), author).await.unwrap().unwrap();
    }

    /// What a viewer meets: names, and `-` for what is left of a deleted one.
    fn names(&self, comments: &[Comment]) -> String {
        let name = |comment: &Comment| {
            let (made, _) = self.made.iter().find(|(_, id)| *id == comment.id).unwrap();
            assert_eq!(comment.text, if comment.deleted { "" } else { made });
            assert_eq!(comment.author.is_none(), comment.deleted);
            if comment.deleted { "-".to_owned() } else { made.clone() }
        };
        comments.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    /// Walks a list in both orders, each in both directions, and asks for its total on each page.
    async fn list(&self, viewer: Option<UserId>, parent: Option<&str>) -> String {
        let parent = parent.map(|parent| self.id(parent));
        let mut walks = Vec::new();
        for order in [CommentOrder::Oldest, CommentOrder::Newest] {
            let page = async |cursor: Option<SeqCursor>| {
                let limit = Limit::new(2).unwrap();
                self.store().comments(self.world.post, viewer, parent, order, cursor, limit).await.unwrap().unwrap()
            };
            let (mut walked, mut pages, mut totals) = (Vec::new(), Vec::new(), BTreeSet::new());
            let mut cursor = None;
            loop {
                let CommentPage { page: Page { items, next, prev }, total } = page(cursor).await;
                assert!(items.len() == 2 || next.is_none(), "a page is full unless the list is at its end");
                walked.extend(items.clone());
                pages.push((items, prev));
                totals.insert(total);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            for two in pages.windows(2) {
                assert_eq!(page(two[1].1).await.page.items, two[0].0, "back to the adjacent page");
            }
            assert_eq!(totals, BTreeSet::from([i64::try_from(walked.len()).unwrap()]), "the total is what a walk meets");
            walks.push(walked);
        }
        walks[1].reverse();
        assert_eq!(walks[0], walks[1], "one list in both orders");
        self.names(&walks[0])
    }

    /// Walks a thread: the names above, that of the comment, and those below.
    async fn thread(&self, viewer: Option<UserId>, name: &str) -> Option<String> {
        let (mut below, mut cursor) = (Vec::new(), None);
        loop {
            let thread = self.store().thread(self.id(name), viewer, cursor, Limit::new(2).unwrap()).await.unwrap()?;
            let Page { items, next, .. } = thread.descendants;
            assert!(items.len() == 2 || next.is_none(), "a page is full unless the thread is at its end");
            below.extend(items);
            cursor = next;
            if cursor.is_none() {
                let mut known = BTreeSet::from([thread.comment.id]);
                let all: BTreeSet<CommentId> = below.iter().map(|comment| comment.id).collect();
                for comment in &below {
                    let parent = comment.parent_id.unwrap();
                    assert!(known.contains(&parent) || !all.contains(&parent), "a parent comes before its replies");
                    known.insert(comment.id);
                }
                assert_eq!(known.len(), below.len() + 1, "each once");
                let (above, below) = (self.names(&thread.ancestors), self.names(&below));
                return Some(format!("{above} < {} < {below}", self.names(&[thread.comment])));
            }
        }
    }
}

#[tokio::test]
async fn every_viewer_walks_as_many_comments_as_the_total_says() {
    let mut crowd = Crowd::new("abcm").await;
    for (name, parent) in [
        ("a1", None),
        ("b1", None),
        ("c1", Some("a1")),
        ("m1", Some("a1")),
        ("b2", Some("m1")),
        ("a2", Some("b2")),
        ("m2", None),
        ("c2", Some("a1")),
        ("c3", Some("c1")),
    ] {
        crowd.write(name, parent).await;
    }
    crowd.delete("b2").await;
    assert_eq!(crowd.list(None, None).await, "a1 b1 c1 m1 - a2 m2 c2 c3");
    assert_eq!(crowd.list(None, Some("a1")).await, "c1 m1 c2");
    // One mutes, one blocks, one is blocked.
    let viewers = [user(crowd.store(), "muter").await, user(crowd.store(), "blocker").await, user(crowd.store(), "blocked").await];
    let muted = crowd.authors[&'m'];
    crowd.store().mute(viewers[0], muted).await.unwrap().unwrap();
    crowd.store().block(viewers[1], muted).await.unwrap().unwrap();
    crowd.store().block(muted, viewers[2]).await.unwrap().unwrap();
    for viewer in viewers {
        assert_eq!(crowd.list(Some(viewer), None).await, "a1 b1 c1 - a2 c2 c3", "what is left of an answer stays");
        assert_eq!(crowd.list(Some(viewer), Some("a1")).await, "c1 c2");
    }
    assert_eq!(crowd.list(Some(viewers[0]), Some("m1")).await, "-", "who mutes may look");
    assert_eq!(crowd.list(Some(muted), None).await, "a1 b1 c1 m1 - a2 m2 c2 c3", "everybody sees their own");

    // A deletion that is not applied: somebody else's comment waits.
    crowd.world.insert("waiting", None).await;
    crowd.delete("c2").await;
    crowd.delete("a1").await;
    assert_eq!(crowd.world.doc(crowd.id("c2")).await.unwrap().state, CommentStateDoc::Removed);
    assert_eq!(crowd.list(None, None).await, "- b1 c1 m1 - a2 m2 c3");
    assert_eq!(crowd.list(Some(viewers[0]), Some("a1")).await, "c1");
    crowd.world.drain().await;
    crowd.made.extend(
        crowd
            .world
            .all()
            .await
            .iter()
            .filter(|c| c.text.as_deref() == Some("waiting"))
            .map(|c| ("waiting".into(), comment_id(c.id))),
    );
    assert_eq!(crowd.list(None, None).await, "- b1 c1 m1 - a2 m2 c3 waiting");

    // An account that is being deleted: what it wrote is as good as deleted.
    crowd.store().delete_account(crowd.authors[&'c']).await.unwrap().unwrap();
    assert_eq!(crowd.list(None, None).await, "- b1 - m1 - a2 m2 waiting", "c3 is gone, and c1 holds its place until c3 is");
    assert_eq!(crowd.list(Some(viewers[1]), None).await, "- b1 - - a2 waiting");
    crowd.store().finish_jobs().await.unwrap();
    crowd.world.drain().await;
    assert_eq!(crowd.list(None, None).await, "- b1 m1 - a2 m2 waiting");
    crowd.world.check().await;
}

#[tokio::test]
async fn a_thread_has_what_stands_above_and_below_a_comment_each_parent_first() {
    let mut crowd = Crowd::new("abm").await;
    for (name, parent) in [
        ("a1", None),
        ("m1", Some("a1")),
        ("b1", Some("m1")),
        ("a2", None),
        ("b2", Some("b1")),
        ("m2", Some("b1")),
        ("a3", Some("m2")),
        ("b3", Some("a1")),
        ("a4", Some("b2")),
    ] {
        crowd.write(name, parent).await;
    }
    assert_eq!(crowd.thread(None, "b1").await.as_deref(), Some("a1 m1 < b1 < b2 m2 a3 a4"));
    assert_eq!(crowd.thread(None, "a1").await.as_deref(), Some(" < a1 < m1 b1 b2 m2 a3 b3 a4"));
    assert_eq!(crowd.thread(None, "a4").await.as_deref(), Some("a1 m1 b1 b2 < a4 < "));
    assert_eq!(crowd.thread(None, "a2").await.as_deref(), Some(" < a2 < "));
    // A hidden author is left out above and below; what answers them is another's word.
    let (muter, blocker) = (user(crowd.store(), "muter").await, user(crowd.store(), "blocker").await);
    crowd.store().mute(muter, crowd.authors[&'m']).await.unwrap().unwrap();
    crowd.store().block(blocker, crowd.authors[&'m']).await.unwrap().unwrap();
    for viewer in [muter, blocker] {
        assert_eq!(crowd.thread(Some(viewer), "b1").await.as_deref(), Some("a1 < b1 < b2 a3 a4"));
    }
    assert_eq!(crowd.thread(Some(muter), "m2").await.as_deref(), Some("a1 b1 < m2 < a3"), "a muted comment is there alone");
    assert_eq!(crowd.thread(Some(blocker), "m2").await, None);
    // Deleted ones hold the tree together, and go with the last that they hold.
    crowd.delete("b1").await;
    crowd.delete("m2").await;
    assert_eq!(crowd.thread(None, "b1").await.as_deref(), Some("a1 m1 < - < b2 - a3 a4"));
    assert_eq!(crowd.thread(Some(blocker), "a3").await.as_deref(), Some("a1 - - < a3 < "), "what is left is nobody's");
    crowd.delete("a3").await;
    assert_eq!(crowd.thread(None, "b1").await.as_deref(), Some("a1 m1 < - < b2 a4"));
    crowd.delete("a4").await;
    crowd.delete("b2").await;
    assert_eq!((crowd.thread(None, "b1").await, crowd.thread(None, "m2").await), (None, None));
    assert_eq!(crowd.thread(None, "a1").await.as_deref(), Some(" < a1 < m1 b3"));
    assert_eq!(crowd.world.check().await, (4, 0));
}

#[tokio::test]
async fn a_thread_is_for_those_who_may_see_its_post_and_goes_with_it() {
    let mut crowd = Crowd::new("a").await;
    crowd.write("a1", None).await;
    crowd.write("a2", Some("a1")).await;
    let author = crowd.store().post(crowd.world.post, None).await.unwrap().unwrap().author.id;
    let blocked = user(crowd.store(), "blocked").await;
    crowd.store().block(author, blocked).await.unwrap().unwrap();
    assert_eq!(crowd.thread(Some(blocked), "a1").await, None);
    assert!(crowd.thread(None, "a1").await.is_some());
    crowd.store().delete_post(crowd.world.post, author).await.unwrap();
    assert_eq!(crowd.thread(None, "a1").await, None);
}

#[tokio::test]
async fn a_page_of_a_thread_stays_where_it_is_while_others_write() {
    let mut crowd = Crowd::new("a").await;
    crowd.write("a0", None).await;
    for n in 1..8 {
        crowd.write(&format!("a{n}"), Some("a0")).await;
    }
    let page = async |cursor| {
        let thread = crowd.store().thread(crowd.id("a0"), None, cursor, Limit::new(3).unwrap()).await.unwrap().unwrap();
        (thread.descendants.items.iter().map(|comment| comment.text.clone()).collect::<Vec<_>>(), thread.descendants.next)
    };
    let (first, next) = page(None).await;
    assert_eq!(first, ["a1", "a2", "a3"]);
    let second = page(next).await;
    crowd.delete("a3").await;
    crowd.delete("a1").await;
    let late = NewComment { author: crowd.authors[&'a'], ..crowd.world.new_comment("late", Some(crowd.id("a2"))) };
    crowd.store().create_comment(late).await.unwrap().unwrap();
    assert_eq!(page(next).await, second, "a place outlives the comment it was made from");
    assert_eq!(page(second.1).await, (vec!["a7".to_owned(), "late".to_owned()], None));
}

#[tokio::test]
async fn a_thread_among_others_is_found_however_sparse_it_is() {
    let world = World::new().await;
    let root = world.comment("root", None).await;
    let mut parent = root;
    let mut made = Vec::new();
    for n in 0..5 {
        parent = world.comment(&n.to_string(), Some(parent)).await;
        made.push(parent);
        // As if many others had been counted in between.
        let skip = doc! { "$inc": { "commentSeq": 1_000_i64 << (4 * n) } };
        world.posts().update_one(doc! { "_id": b(world.post) }, skip).await.unwrap();
    }
    for limit in [1, 2, 5, 6] {
        let (mut walked, mut cursor) = (Vec::new(), None);
        loop {
            let page = world.store().thread(root, None, cursor, Limit::new(limit).unwrap()).await.unwrap().unwrap().descendants;
            walked.extend(page.items.iter().map(|comment| comment.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(walked, made);
    }
}

/// Writes a thread as if its comments had been counted one after the other: a root and what answers it, in chains of ten.
async fn long_thread(world: &World, count: i64) -> CommentId {
    let root = world.comment("root", None).await;
    let template = world.doc(root).await.unwrap();
    let mut comments: Vec<CommentDoc> = Vec::new();
    for seq in 2..count + 2 {
        let above = comments.last().filter(|_| (seq - 2) % 10 != 0).unwrap_or(&template);
        let mut ancestors = above.ancestors.clone();
        ancestors.push(above.id);
        let (parent_id, depth) = (Some(above.id), above.depth + 1);
        let counters =
            CommentCountersDoc { children: i64::from((seq - 2) % 10 != 9), replies: i64::from((seq - 2) % 10 != 9), likes: 0 };
        comments.push(CommentDoc { id: b(new_id()), seq: Some(seq), parent_id, ancestors, depth, counters, ..template.clone() });
    }
    world.store().comment_coll().insert_many(&comments).await.unwrap();
    let direct = count / 10;
    let totals = doc! { "$inc": { "counters.replies": direct, "counters.children": direct } };
    world.store().coll::<Document>(collections::COMMENTS).update_one(doc! { "_id": b(root) }, totals).await.unwrap();
    let newest: Vec<_> = comments.iter().rev().take(RECENT_KEPT).filter_map(|comment| recent(comment).unwrap()).collect();
    let newest: Vec<_> = newest.iter().map(|comment| bson::serialize_to_document(comment).unwrap()).collect();
    let counted = doc! { "$inc": { "counters.comments": count, "commentSeq": count }, "$set": { "recentComments": newest } };
    world.posts().update_one(doc! { "_id": b(world.post) }, counted).await.unwrap();
    root
}

/// The plan of a query on comments, and how many documents it looks at.
async fn plan(world: &World, filter: Document, sort: Document) -> (String, i64) {
    let find = doc! { "explain": { "find": "comments", "filter": filter, "sort": sort }, "verbosity": "executionStats" };
    let plan = world.store().db().run_command(find).await.unwrap();
    let examined = plan.get_document("executionStats").unwrap().get("totalDocsExamined").unwrap();
    let examined = examined.as_i64().or_else(|| examined.as_i32().map(i64::from)).unwrap();
    (plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().to_string(), examined)
}

#[tokio::test]
async fn ten_thousand_comments_are_paged_and_no_page_reads_them_all() {
    let world = World::new().await;
    let root = long_thread(&world, 10_000).await;
    let (mut walked, mut cursor) = (Vec::new(), None);
    loop {
        let page = world.store().thread(root, None, cursor, Limit::MAX).await.unwrap().unwrap().descendants;
        assert!(page.items.len() == 100 || page.next.is_none());
        walked.extend(page.items.iter().map(|comment| comment.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((walked.len(), walked.iter().collect::<BTreeSet<_>>().len()), (10_000, 10_000));
    for order in [CommentOrder::Newest, CommentOrder::Oldest] {
        assert_eq!(world.walk(None, order, 100).await.len(), 10_001);
    }
    assert_eq!(world.walk(Some(root), CommentOrder::Oldest, 100).await.len(), 1_000);

    // What a page asks for is a short range of its index, and that is all that is looked at.
    let range = doc! { "$gte": 5_000_i64, "$lt": 5_032_i64 };
    let (post, first) = (b(world.post), b(root));
    for (filter, sort, index, examined) in [
        (doc! { "postId": post, "seq": &range }, doc! { "seq": -1 }, "postId_1_seq_-1", 32),
        (doc! { "postId": post, "seq": &range }, doc! { "seq": 1 }, "postId_1_seq_-1", 32),
        (doc! { "parentId": first, "seq": &range }, doc! { "seq": -1 }, "parentId_1_seq_-1", 3),
        (doc! { "ancestors": first, "seq": &range }, doc! { "seq": 1 }, "ancestors_1_seq_1", 32),
        (doc! { "postId": post, "author.userId": { "$in": [b(world.bob)] } }, doc! {}, "postId_1_author.userId_1", 10_001),
        (doc! { "pending": true, "postId": post }, doc! { "depth": 1, "_id": 1 }, "pending_1_postId_1_depth_1__id_1", 0),
        (doc! { "state": "removed", "postId": post }, doc! {}, "state_1_postId_1", 0),
        (doc! { "purgeAt": { "$lte": date(now()) } }, doc! { "purgeAt": 1 }, "purgeAt_1", 0),
        (doc! { "likesLeft": true }, doc! {}, "likesLeft_1", 0),
    ] {
        let (plan, looked_at) = plan(&world, filter.clone(), sort).await;
        assert!(plan.contains("IXSCAN") && plan.contains(&format!("\"{index}\"")), "{filter}\n{plan}");
        assert!(looked_at <= examined, "{filter} looks at {looked_at} documents\n{plan}");
    }
}

#[tokio::test]
async fn a_hidden_authors_comments_make_room_for_the_next_ones() {
    let mut crowd = Crowd::new("am").await;
    for n in 0..12 {
        crowd.write(&format!("a{n}"), None).await;
    }
    let viewer = user(crowd.store(), "viewer").await;
    crowd.store().mute(viewer, crowd.authors[&'m']).await.unwrap().unwrap();
    let (post, newest_by_a) = (crowd.world.post, "a11 a10 a9 a8 a7 a6 a5 a4 a3 a2");
    let alone =
        async |crowd: &Crowd, viewer| crowd.names(&crowd.store().post(post, viewer).await.unwrap().unwrap().recent_comments);
    let listed = async |crowd: &Crowd, viewer| crowd.names(&crowd.store().posts(&[post], viewer).await.unwrap()[0].recent_comments);
    // As long as the spare five last, also where a post is one of many.
    for n in 0..5 {
        crowd.write(&format!("m{n}"), None).await;
        assert_eq!(
            (alone(&crowd, Some(viewer)).await, listed(&crowd, Some(viewer)).await),
            (newest_by_a.into(), newest_by_a.into())
        );
    }
    assert_eq!(alone(&crowd, None).await, "m4 m3 m2 m1 m0 a11 a10 a9 a8 a7");
    // Beyond them the post alone reads on, however many there are.
    for n in 5..40 {
        crowd.write(&format!("m{n}"), Some(if n % 2 == 0 { "m1" } else { "a0" })).await;
    }
    assert_eq!((alone(&crowd, Some(viewer)).await, listed(&crowd, Some(viewer)).await), (newest_by_a.into(), String::new()));
    crowd.delete("a11").await;
    crowd.write("a12", Some("m39")).await;
    assert_eq!(alone(&crowd, Some(viewer)).await, "a12 a10 a9 a8 a7 a6 a5 a4 a3 a2");
    // What those wrote who are being deleted is nobody's to read, without a token either.
    crowd.store().delete_account(crowd.authors[&'m']).await.unwrap().unwrap();
    for viewer in [None, Some(viewer)] {
        assert_eq!(alone(&crowd, viewer).await, "a12 a10 a9 a8 a7 a6 a5 a4 a3 a2");
    }
    crowd.store().finish_jobs().await.unwrap();
    crowd.world.drain().await;
    assert_eq!((listed(&crowd, None).await, crowd.world.check().await.0), ("a12 a10 a9 a8 a7 a6 a5 a4 a3 a2".into(), 12));
}

#[tokio::test]
async fn a_preview_from_which_many_were_just_deleted_is_filled_from_below() {
    let world = World::new().await;
    let mut made = Vec::new();
    for n in 0..30 {
        made.push(world.comment(&n.to_string(), None).await);
    }
    world.insert("somebody else's, waiting", None).await;
    for id in &made[18..] {
        world.delete(*id).await;
    }
    assert_eq!(world.subset().await.len(), 3, "none of the deletions is applied");
    let shown = world.store().post(world.post, None).await.unwrap().unwrap().recent_comments;
    let expected: Vec<CommentId> = made[8..18].iter().rev().copied().collect();
    assert_eq!(shown.iter().map(|comment| comment.id).collect::<Vec<_>>(), expected);
    world.drain().await;
    assert_eq!(world.check().await, (19, 0));
}

#[tokio::test]
async fn two_hundred_who_comment_at_once_write_the_post_once() {
    let world = World::new().await;
    // The post is hot: somebody's comment waits already.
    world.insert("waiting", None).await;
    let mut writers = Vec::new();
    for _ in 0..20 {
        writers.push(testing::user(world.store()).await);
    }
    let mut events = world.posts().watch().await.unwrap();
    let calls = (0..200).map(|n| {
        let new = NewComment { author: writers[n % 20], ..world.new_comment(&n.to_string(), None) };
        world.store().create_comment(new)
    });
    let made: BTreeSet<CommentId> = join_all(calls).await.into_iter().map(|made| made.unwrap().unwrap().id).collect();
    assert_eq!(made.len(), 200);
    assert_eq!(world.store().apply_comments_step().await.unwrap(), Progress::Did(201));
    assert_eq!(world.check().await, (201, 0));
    // Everything that was written to posts comes before this.
    let last = world.posts().update_one(doc! { "_id": b(world.post) }, doc! { "$inc": { "counters.views": 1 } }).await;
    assert_eq!(last.unwrap().modified_count, 1);
    let mut writes = 0;
    loop {
        let event = events.try_next().await.unwrap().unwrap();
        let changed = event.update_description.unwrap().updated_fields;
        if changed.keys().any(|key| key.contains("views")) {
            break;
        }
        writes += 1;
    }
    assert_eq!(writes, 1);
}
