//! Posts: making, reading and deleting them, and counting them in their author.
//!
//! A post is a child of its author and follows the protocol of [`crate::pending`]: it is inserted `pending`, which is what makes it
//! exist, and counted afterwards, by the request if nobody else writes the author's document, otherwise by the applier
//! ([`Store::apply_posts_step`]). It is also its own fan-out job: `delivery` says how it reaches the timelines of the followers, and
//! what is not delivered is pulled.

mod docs;
mod seen;

use std::collections::{BTreeMap, HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::{ClientSession, options::ReturnDocument};
use rookery_domain::{
    CommentId, Handle, Limit, Page, PostId, Timestamp, UserId,
    comments::{Comment, RECENT_KEPT, RECENT_SHOWN},
    fanout::{self, Delivery},
    feed::Act,
    page::TimeCursor,
    pending::{Step, step},
    post::{Post, PostCounts, PostViewer, Visibility, may_see},
    text,
    user::{Relation, UserSummary},
};

pub(crate) use self::docs::{
    AuthorDoc, DeliveryDoc, DeliveryState, PostCountersDoc, PostDoc, PostState, RecentCommentDoc, VisibilityDoc,
};
use self::docs::{MentionsDoc, PendingDoc, PostSeqDoc, WriterDoc};
pub(crate) use self::seen::SeenPost;
use crate::{
    Result, Store,
    collections::{BOOKMARKS, LIKES, POSTS, REPOSTS, USERS},
    error::is_duplicate_key,
    hidden::Hidden,
    notifications::Told,
    pending::{Attempt, Progress, attempt, in_batches},
    store::{b, commit, date, now, timestamp, until_no_conflict},
    time_page::{self, Extent},
    users::{SummaryDoc, UserRef},
};

/// Pending posts that one step takes up: a step stays short, so that other work gets its turn.
const STEP: i64 = 500;

/// Posts of one author that one transaction counts.
const BATCH: usize = 100;

/// Comments of deleted posts that one step removes.
const SWEEP: i64 = 500;

/// A post that is to be made.
#[derive(Debug, Clone)]
pub struct NewPost {
    /// Its id, made by the caller; it also says when the post is made.
    pub id: PostId,
    /// Who writes it.
    pub author: UserId,
    /// What is written, as [`text::post`] gives it.
    pub text: String,
    /// Who is to see it. The posts of a private account are for followers whatever is asked.
    pub visibility: Visibility,
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone from every read.
    Now,
    /// There is none, or none that the caller may know of.
    NotFound,
    /// Somebody else wrote it.
    NotYours,
}

/// What counting posts in their author came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// All of them are counted.
    All,
    /// There is no live author: they must be withdrawn.
    AuthorGone,
    /// One of them changed meanwhile: none is counted.
    Changed,
}

impl Store {
    /// Makes a post; none if its author is gone. Repeating it with the same id makes nothing new.
    ///
    /// Five database commands: the author, the insert, and a transaction of three; one more where the text has mentions, and one
    /// in the life of an author whose posts begin to be pulled. None of them grows with the author's followers.
    pub async fn create_post(&self, new: NewPost) -> Result<Option<Post>> {
        let Some(writer) = self.writer(new.author).await? else {
            return Ok(None);
        };
        let mentions = self.mentioned(&new.text).await?;
        let delivery = fanout::delivery(self.settings().feed_model, writer.outlier.is_some());
        if delivery == Delivery::Pull && writer.pulled_since.is_none() {
            // Before the insert: readers pull from the authors marked so, and must never miss one. The time is that of the mark, not of the
            // post, whose id may have been made long before: others look for marks that are newer than those they know.
            self.mark_pulled(writer.id, now()).await?;
        }
        let (id, author) = (new.id, new.author);
        let mut post = new.into_doc(writer, mentions, delivery);
        match self.coll::<PostDoc>(POSTS).insert_one(&post).await {
            Ok(_) => {}
            // An earlier call with this id made it. If it is gone again, that call's answer is still the answer.
            Err(error) if is_duplicate_key(&error) => {
                post = self.coll(POSTS).find_one(doc! { "_id": b(id) }).await?.unwrap_or(post);
            }
            Err(error) => return Err(error.into()),
        }
        // Before the answer, so that the next read of this process has it.
        match post.delivery.state {
            DeliveryState::Pull => self.shared().add_pulled(Act::post(id, author)),
            DeliveryState::Pending => self.shared().add_pending(Act::post(id, author)),
            DeliveryState::Delivered => {}
        }
        if post.seq.is_none() {
            // Whom it mentions is known here: the applier looks.
            match attempt(self.count_posts(author, &[post.id], !post.mentions.is_empty())).await? {
                Attempt::Applied(Counted::All) => {}
                Attempt::Applied(Counted::AuthorGone) => {
                    self.withdraw_posts(&[post.id]).await?;
                    return Ok(None);
                }
                Attempt::Applied(Counted::Changed) | Attempt::Left => self.leave_to_applier(|| self.has_seq(post.id, true)).await?,
            }
        }
        if post.delivery.state == DeliveryState::Pending {
            self.wake().deliverer.notify_one();
        }
        Ok(Some(self.shown(post, Some(author))))
    }

    /// A live post that the viewer may see, with its newest comments that the viewer may see.
    pub async fn post(&self, id: PostId, viewer: Option<UserId>) -> Result<Option<Post>> {
        let Some(mut post) = self.posts(&[id], viewer).await?.pop() else { return Ok(None) };
        let kept = i64::try_from(RECENT_KEPT).unwrap_or(i64::MAX);
        if viewer.is_some() && post.recent_comments.len() < RECENT_SHOWN && post.counts.comments > kept {
            // So many of the kept ones are hidden that older ones come in.
            post.recent_comments = self.newest_comments(id, viewer).await?;
        }
        Ok(Some(post))
    }

    /// The live posts among `ids` that the viewer may see, in the order asked, each once.
    pub async fn posts(&self, ids: &[PostId], viewer: Option<UserId>) -> Result<Vec<Post>> {
        let wanted: Vec<bson::Uuid> = ids.iter().copied().map(b).collect();
        let found = self.coll::<PostDoc>(POSTS).find(doc! { "_id": { "$in": wanted }, "state": "live" }).await?;
        let found: Vec<PostDoc> = found.try_collect().await?;
        let authors: HashSet<UserId> = found.iter().map(PostDoc::author_id).collect();
        let (relations, private, hidden) = futures::try_join!(
            self.relations_to_authors(viewer, &authors),
            self.private_among(authors.clone()),
            self.hidden_in(viewer, &found),
        )?;
        let mut seen: HashMap<PostId, PostDoc> = found
            .into_iter()
            .filter(|post| {
                let author = post.author_id();
                let relation = relations.get(&author).copied().unwrap_or_default();
                let visibility = Visibility::of(post.visibility.into(), private.contains(&author));
                !self.is_deleting(author) && may_see(visibility, viewer == Some(author), relation)
            })
            .map(|post| (PostId(post.id.into()), post))
            .collect();
        let shown = ids.iter().filter_map(|id| seen.remove(id)).map(|post| self.shown_without(post, viewer, &hidden));
        let mut shown: Vec<Post> = shown.collect();
        self.flag(viewer, &mut shown).await?;
        Ok(shown)
    }

    /// A page of the posts of an account, newest first: those that the viewer may see. None if there is no such account, or it blocks
    /// the viewer.
    ///
    /// A post that is not counted yet is there too: its place is its id, which it has from the start, and who has just written it looks
    /// for it here. So the list may for a moment be longer than the total says.
    ///
    /// Read in time slices of the ids, bounded on both sides: a page costs the same however many posts there are.
    pub async fn posts_of(
        &self,
        author: &UserRef,
        viewer: Option<UserId>,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Option<Page<Post, TimeCursor>>> {
        let Some(author) = self.user(author).await? else {
            return Ok(None);
        };
        let own = viewer == Some(author.id);
        let relations = self.relations_to_authors(viewer, &HashSet::from([author.id])).await?;
        let relation = relations.get(&author.id).copied().unwrap_or_default();
        if relation.blocked_by {
            return Ok(None);
        }
        let for_followers = may_see(Visibility::Followers, own, relation);
        if !for_followers && (author.private || !may_see(Visibility::Public, own, relation)) {
            return Ok(Some(Page::empty()));
        }
        let mut filter = doc! { "author.userId": b(author.id), "state": "live" };
        if !for_followers {
            filter.insert("visibility", "public");
        }
        let extent = Extent { first: author.created_at, total: author.counts.posts, now: now() };
        let page = time_page::newest_first(cursor, limit, extent, async |slice| {
            let found = self.coll::<PostDoc>(POSTS).find(slice.of(&filter)).sort(slice.sort()).limit(slice.most).await?;
            Ok(found.map_ok(|post| (post.id.into(), post)).try_collect().await?)
        });
        let page = page.await?;
        let hidden = self.hidden_in(viewer, &page.items).await?;
        let mut page = page.map(|post| self.shown_without(post, viewer, &hidden));
        self.flag(viewer, &mut page.items).await?;
        Ok(Some(page))
    }

    /// Deletes a post on behalf of `by`: it is gone from every read at once. What stood under it goes with the applier's next steps,
    /// and its document last.
    pub async fn delete_post(&self, id: PostId, by: UserId) -> Result<Deleted> {
        let live = doc! { "_id": b(id), "author.userId": b(by), "state": "live" };
        let mark = doc! { "$set": { "state": "deleted", "pending": true } };
        let marked = until_no_conflict(async || Ok(self.coll::<PostDoc>(POSTS).update_one(live.clone(), mark.clone()).await?));
        if marked.await?.matched_count == 0 {
            // What the caller may not see is as if it were not there.
            return Ok(if self.posts(&[id], Some(by)).await?.iter().any(|post| post.author.id != by) {
                Deleted::NotYours
            } else {
                Deleted::NotFound
            });
        }
        match attempt(self.uncount_posts(by, &[b(id)])).await? {
            // The rest of it: what stands under the post.
            Attempt::Applied(()) => self.wake().applier.notify_one(),
            Attempt::Left => self.leave_to_applier(|| self.has_seq(b(id), false)).await?,
        }
        Ok(Deleted::Now)
    }

    /// Writes what is wanted: these posts gone. They are gone from every read at once.
    pub(crate) async fn mark_posts_deleted(&self, ids: &[bson::Uuid]) -> Result<()> {
        let live = doc! { "_id": { "$in": ids }, "state": "live" };
        let mark = doc! { "$set": { "state": "deleted", "pending": true } };
        until_no_conflict(async || Ok(self.coll::<PostDoc>(POSTS).update_many(live.clone(), mark.clone()).await?)).await?;
        Ok(())
    }

    /// Takes up some of the pending posts: counts those that are new, withdraws those whose author is gone, and finishes deletions.
    pub async fn apply_posts_step(&self) -> Result<Progress> {
        let pending: Vec<PendingDoc> = self
            .coll(POSTS)
            .find(doc! { "pending": true })
            .sort(doc! { "_id": 1 })
            .limit(STEP)
            .projection(doc! { "author.userId": 1, "state": 1, "seq": 1 })
            .await?
            .try_collect()
            .await?;
        let mut by_author: BTreeMap<UserId, Vec<PendingDoc>> = BTreeMap::new();
        for post in pending {
            by_author.entry(UserId(post.author.user_id.into())).or_default().push(post);
        }
        let mut done = 0;
        for (author, posts) in by_author {
            let due = |wanted: Step| {
                let due = posts.iter().filter(move |post| step(post.state == PostState::Live, post.seq.is_some()) == wanted);
                due.map(|post| post.id).collect::<Vec<_>>()
            };
            done += in_batches(&due(Step::Count), BATCH, |batch| self.count_or_withdraw(author, batch.to_vec())).await?;
            in_batches(&due(Step::Uncount), BATCH, |batch| {
                let batch = batch.to_vec();
                async move { self.uncount_posts(author, &batch).await }
            })
            .await?;
            done += self.clear_posts(&due(Step::Clear)).await?;
            for post in posts.iter().filter(|post| post.state == PostState::Deleted) {
                done += self.finish_deletion(post.id).await?;
            }
        }
        self.wake().applied.notify_waiters();
        // Where nothing could be done, all of it met conflicts: a pause, and the next round finds it again.
        Ok(if done == 0 { Progress::Idle } else { Progress::Did(done) })
    }

    /// Whether a post is counted, or not (any more), as `wanted`.
    async fn has_seq(&self, id: bson::Uuid, wanted: bool) -> Result<bool> {
        let counted = doc! { "_id": id, "seq": { "$exists": true } };
        Ok(self.coll::<Document>(POSTS).find_one(counted).projection(doc! { "_id": 1 }).await?.is_some() == wanted)
    }

    /// A live account, as far as a new post of it needs to know.
    async fn writer(&self, id: UserId) -> Result<Option<WriterDoc>> {
        let shown = doc! { "handle": 1, "displayName": 1, "avatarUrl": 1, "settings": 1, "outlier": 1, "pulledSince": 1 };
        Ok(self.coll(USERS).find_one(doc! { "_id": b(id), "state": "live" }).projection(shown).await?)
    }

    /// The accounts that a text mentions, in its order.
    async fn mentioned(&self, text: &str) -> Result<Vec<AuthorDoc>> {
        let handles: Vec<Handle> = text::mentions(text);
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let named: Vec<&str> = handles.iter().map(Handle::as_str).collect();
        let found = self
            .coll::<SummaryDoc>(USERS)
            .find(doc! { "handle": { "$in": named }, "state": "live" })
            .projection(SummaryDoc::projection())
            .await?;
        let mut found: HashMap<String, AuthorDoc> = found
            .map_ok(|user| {
                let copy = AuthorDoc {
                    user_id: user.id,
                    handle: user.handle.clone(),
                    display_name: user.display_name,
                    avatar_url: user.avatar_url,
                };
                (user.handle, copy)
            })
            .try_collect()
            .await?;
        Ok(handles.iter().filter_map(|handle| found.remove(handle.as_str())).collect())
    }

    /// Notes that some posts of an account are pulled for good.
    pub(crate) async fn mark_pulled(&self, author: bson::Uuid, at: Timestamp) -> Result<()> {
        let unmarked = doc! { "_id": author, "pulledSince": { "$exists": false } };
        until_no_conflict(async || {
            let mark = doc! { "$set": { "pulledSince": date(at) } };
            self.coll::<Document>(USERS).update_one(unmarked.clone(), mark).await?;
            Ok(())
        })
        .await
    }

    /// Counts new posts in their author and gives each the next `seq`; tells those whom they mention, if they may be `mentioning`
    /// somebody.
    ///
    /// A transaction, because a post has a `seq` exactly while its author counts it. The author must be live and each post still
    /// wanted and uncounted, in the same snapshot.
    async fn count_posts(&self, author: UserId, ids: &[bson::Uuid], mentioning: bool) -> Result<Counted> {
        let more = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let mut session = self.begin().await?;
        let counting = self
            .coll::<PostSeqDoc>(USERS)
            .find_one_and_update(
                doc! { "_id": b(author), "state": "live" },
                doc! { "$inc": { "counters.posts": more, "postSeq": more } },
            )
            .projection(doc! { "postSeq": 1 })
            .return_document(ReturnDocument::After)
            .session(&mut session)
            .await?;
        let Some(PostSeqDoc { post_seq }) = counting else {
            session.abort_transaction().await?;
            return Ok(Counted::AuthorGone);
        };
        // Numbered in the order of `ids`, by one statement.
        let seq = doc! { "$add": [post_seq - more + 1, { "$indexOfArray": [ids, "$_id"] }] };
        let counted = self
            .coll::<PostDoc>(POSTS)
            .update_many(
                doc! { "_id": { "$in": ids }, "state": "live", "seq": { "$exists": false } },
                vec![doc! { "$set": { "seq": { "$toLong": seq } } }, doc! { "$unset": "pending" }],
            )
            .session(&mut session)
            .await?;
        if usize::try_from(counted.matched_count) != Ok(ids.len()) {
            session.abort_transaction().await?;
            return Ok(Counted::Changed);
        }
        let told = if mentioning { self.mentions_in(&mut session, author, ids).await? } else { Vec::new() };
        self.tell(&mut session, &told).await?;
        commit(session).await?;
        self.announce(told.iter().map(|one| one.recipient));
        Ok(Counted::All)
    }

    /// What the mentions in posts of an author tell.
    async fn mentions_in(&self, session: &mut ClientSession, author: UserId, ids: &[bson::Uuid]) -> Result<Vec<Told>> {
        let these = doc! { "_id": { "$in": ids }, "mentions.0": { "$exists": true } };
        let fields = doc! { "mentions.userId": 1 };
        let mut found = self.coll::<MentionsDoc>(POSTS).find(these).projection(fields).session(&mut *session).await?;
        let found: Vec<MentionsDoc> = found.stream(session).try_collect().await?;
        let told = found.iter().flat_map(|post| {
            let mentioned = post.mentions.iter().map(|user| UserId(user.user_id.into()));
            mentioned.filter(|user| *user != author).map(|user| Told::mention(user, author, post.id, Some(post.id), None))
        });
        Ok(told.collect())
    }

    /// Counts new posts, or takes them back where their author is gone.
    async fn count_or_withdraw(&self, author: UserId, ids: Vec<bson::Uuid>) -> Result<()> {
        match self.count_posts(author, &ids, true).await? {
            Counted::All => Ok(()),
            Counted::AuthorGone => self.withdraw_posts(&ids).await,
            // One by one, so that the one that changed does not hold up the others; it is found again in the next round.
            Counted::Changed => {
                for id in ids {
                    self.count_posts(author, &[id], true).await?;
                }
                Ok(())
            }
        }
    }

    /// Takes back posts that nobody counts. They are marked rather than removed: a comment may stand under them already.
    async fn withdraw_posts(&self, ids: &[bson::Uuid]) -> Result<()> {
        let uncounted = doc! { "_id": { "$in": ids }, "seq": { "$exists": false } };
        let mark = doc! { "$set": { "state": "deleted", "pending": true } };
        until_no_conflict(async || {
            self.coll::<PostDoc>(POSTS).update_many(uncounted.clone(), mark.clone()).await?;
            Ok(())
        })
        .await?;
        self.wake().applier.notify_one();
        Ok(())
    }

    /// Takes deleted posts from their author's count; those that are not in it (any more) make no difference.
    ///
    /// A transaction for the same reason as in [`Store::count_posts`].
    pub(crate) async fn uncount_posts(&self, author: UserId, ids: &[bson::Uuid]) -> Result<()> {
        let mut session = self.begin().await?;
        let uncounted = self
            .coll::<PostDoc>(POSTS)
            .update_many(
                doc! { "_id": { "$in": ids }, "state": "deleted", "seq": { "$exists": true } },
                doc! { "$unset": { "seq": "" } },
            )
            .session(&mut session)
            .await?;
        let less = i64::try_from(uncounted.modified_count).unwrap_or(i64::MAX);
        if less == 0 {
            return Ok(session.abort_transaction().await?);
        }
        self.coll::<Document>(USERS)
            .update_one(doc! { "_id": b(author) }, doc! { "$inc": { "counters.posts": -less } })
            .session(&mut session)
            .await?;
        self.untell(&mut session, ids).await?;
        commit(session).await
    }

    /// Clears the mark of posts that are counted and wanted.
    async fn clear_posts(&self, ids: &[bson::Uuid]) -> Result<usize> {
        if ids.is_empty() {
            return Ok(0);
        }
        let agree = doc! { "_id": { "$in": ids }, "state": "live", "seq": { "$exists": true } };
        let clear = doc! { "$unset": { "pending": "" } };
        let cleared = until_no_conflict(async || Ok(self.coll::<PostDoc>(POSTS).update_many(agree.clone(), clear.clone()).await?));
        Ok(usize::try_from(cleared.await?.modified_count).unwrap_or(usize::MAX))
    }

    /// Removes some of what stands under a deleted post; once nothing is found, and nobody counts the post, the post itself. Whatever
    /// is written under it meanwhile finds the mark and takes itself back. Gives the number of documents removed.
    async fn finish_deletion(&self, id: bson::Uuid) -> Result<usize> {
        let swept = self.sweep_under_posts(&[id]).await?;
        if swept > 0 {
            return Ok(swept);
        }
        let uncounted = doc! { "_id": id, "state": "deleted", "seq": { "$exists": false } };
        let removed = until_no_conflict(async || Ok(self.coll::<PostDoc>(POSTS).delete_one(uncounted.clone()).await?));
        Ok(usize::from(removed.await?.deleted_count == 1))
    }

    /// Removes some of what stands under deleted posts, and says how many documents that were.
    pub(crate) async fn sweep_under_posts(&self, ids: &[bson::Uuid]) -> Result<usize> {
        let mut swept = self.sweep_comments(ids, SWEEP).await?;
        self.untell_reactions_to_gone(ids).await?;
        for (name, field) in [(LIKES, "targetId"), (REPOSTS, "postId"), (BOOKMARKS, "postId")] {
            swept += self.sweep_edges(name, field, ids).await?;
        }
        Ok(swept)
    }

    /// How a viewer stands to the authors of some posts; whoever is absent stands in no relation.
    async fn relations_to_authors(&self, viewer: Option<UserId>, authors: &HashSet<UserId>) -> Result<HashMap<UserId, Relation>> {
        let Some(viewer) = viewer else {
            return Ok(HashMap::new());
        };
        let others: Vec<UserId> = authors.iter().copied().filter(|author| *author != viewer).collect();
        if others.is_empty() { Ok(HashMap::new()) } else { self.relations(viewer, &others).await }
    }

    /// Who is hidden from a viewer of those who comment on these posts or are named in them.
    pub(crate) async fn hidden_in(&self, viewer: Option<UserId>, posts: &[PostDoc]) -> Result<Hidden> {
        self.hidden_among(viewer, named_in(posts)).await
    }

    /// Who is hidden from a viewer of those whom these posts name, their authors among them.
    pub(crate) async fn hidden_in_feed(&self, viewer: UserId, posts: &[PostDoc]) -> Result<Hidden> {
        self.hidden_among(Some(viewer), named_in(posts).chain(posts.iter().map(PostDoc::author_id))).await
    }

    /// The post as it is shown to a viewer from whom nobody is hidden.
    pub(crate) fn shown(&self, post: PostDoc, viewer: Option<UserId>) -> Post {
        self.shown_without(post, viewer, &Hidden::default())
    }

    /// The post as it is shown to a viewer: without comments of those who are silenced, and without naming anybody across a block.
    pub(crate) fn shown_without(&self, post: PostDoc, viewer: Option<UserId>, hidden: &Hidden) -> Post {
        let id = PostId(post.id.into());
        let of = |copy: &AuthorDoc| UserId(copy.user_id.into());
        let silenced = |user: UserId| hidden.is_silenced(user) || self.is_deleting(user);
        let recent = post.recent_comments.into_iter().filter(|comment| !silenced(of(&comment.author))).take(RECENT_SHOWN);
        let mentions = post.mentions.into_iter().filter(|user| !hidden.is_blocked(of(user)) && !self.is_deleting(of(user)));
        Post {
            id,
            author: self.summary_of(post.author),
            text: post.text,
            visibility: post.visibility.into(),
            tags: post.tags,
            mentions: mentions.map(|user| self.summary_of(user)).collect(),
            created_at: timestamp(post.created_at),
            edited_at: post.edited_at.map(timestamp),
            counts: PostCounts::from(post.counters),
            recent_comments: recent.map(|comment| self.recent_comment(id, comment)).collect(),
            viewer: viewer.map(|_| PostViewer::default()),
        }
    }

    fn recent_comment(&self, post: PostId, comment: RecentCommentDoc) -> Comment {
        Comment {
            id: CommentId(comment.id.into()),
            post_id: post,
            parent_id: comment.parent_id.map(|id| CommentId(id.into())),
            depth: comment.depth,
            author: Some(self.summary_of(comment.author)),
            text: comment.text,
            created_at: timestamp(comment.created_at),
            edited_at: comment.edited_at.map(timestamp),
            likes: comment.likes,
            replies: comment.replies,
            deleted: false,
        }
    }

    /// An account as its copy in a post or comment shows it. The flag is not copied: it comes from what this process remembers.
    pub(crate) fn summary_of(&self, copy: AuthorDoc) -> UserSummary {
        let id = UserId(copy.user_id.into());
        UserSummary {
            id,
            handle: Handle::from_stored(copy.handle),
            display_name: copy.display_name,
            avatar_url: copy.avatar_url,
            celebrity: self.is_celebrity(id),
        }
    }
}

/// Whom posts name beside their authors: those who wrote their newest comments, and those whom they mention.
fn named_in(posts: &[PostDoc]) -> impl Iterator<Item = UserId> {
    let copies = posts.iter().flat_map(|post| post.recent_comments.iter().map(|comment| &comment.author).chain(&post.mentions));
    copies.map(|copy| UserId(copy.user_id.into()))
}
