//! Mending what a check found, one drift at a time, while services write.
//!
//! Each mend reads the truth again in a transaction that writes what it mends, and goes under the leases of the appliers, so that
//! it conflicts with whoever moves the same counter; most of them do nothing but mark a child as pending and let its applier take it.
//! What is made anew is made from the children, which are the truth: counters, numbers, subsets and pages are not. All of it may
//! be done again.

use std::{collections::VecDeque, fmt, time::Duration};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{
    PostId, UserId,
    comments::{RECENT_KEPT, TOMBSTONE_KEPT},
    feed::Act,
    ids, outlier,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Drift, DriftKind, Place};
use crate::{
    Error, Result, Store,
    bulk::Statement,
    collections::{BLOCKS, COMMENTS, FOLLOWS, LIKES, POSTS, REPOSTS, USERS},
    comments::{CommentCountersDoc, CommentDoc, CommentStateDoc, recent},
    graph::{FollowDoc, IdDoc, LEASE_PREFIX},
    jobs::Then,
    lease::Lease,
    posts::{DeliveryState, RecentCommentDoc},
    reactions::Kind,
    store::{b, commit, date, now, until_no_conflict},
    users::{CountersDoc, OutlierDoc},
};

/// What became of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fixed {
    /// It is mended; what was done.
    Done(&'static str),
    /// It is not; why.
    Left(&'static str),
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(what) => f.write_str(what),
            Self::Left(why) => write!(f, "left: {why}"),
        }
    }
}

/// How long a repair waits for the lease of an account or a post: an applier holds one for as long as a storm lasts.
const PATIENCE: Duration = Duration::from_secs(30);

const BUSY: Fixed = Fixed::Left("somebody is writing it all the time; run the repair again");

/// Mends a drift.
pub(super) async fn fix(store: &Store, drift: &Drift) -> Result<Fixed> {
    match mend(store, drift, b(drift.subject)).await {
        // One that is busy must not keep the others waiting.
        Err(Error::Conflict(_) | Error::Busy) => Ok(BUSY),
        other => other,
    }
}

async fn mend(store: &Store, drift: &Drift, subject: bson::Uuid) -> Result<Fixed> {
    let user = UserId(drift.subject);
    match (drift.kind, drift.place) {
        (
            DriftKind::FollowerCount
            | DriftKind::FollowingCount
            | DriftKind::PostCount
            | DriftKind::FollowerSeq
            | DriftKind::PostSeq,
            _,
        ) => recount_account(store, user).await,
        (DriftKind::CommentCount | DriftKind::TombstoneCount | DriftKind::CommentSeq | DriftKind::RecentComments, _) => {
            recount_post(store, subject).await
        }
        (DriftKind::ReplyCount, _) => {
            until_no_conflict(|| recount_replies(store, subject)).await?;
            Ok(Fixed::Done("counted from the replies"))
        }
        (DriftKind::CommentPath, _) => {
            until_no_conflict(|| write_paths(store, subject)).await?;
            Ok(Fixed::Done("written from the comment that is answered"))
        }
        (DriftKind::LostPending, Place::In(name)) => {
            mark_pending(store, name, subject).await?;
            apply(store, name, subject).await
        }
        (DriftKind::StuckPending, Place::In(name)) => apply(store, name, subject).await,
        (DriftKind::OrphanEdge, _) => store.delete_edges_of(user).await.map(|()| Fixed::Done("removed and uncounted")),
        (DriftKind::OrphanPost, _) => {
            store.delete_all_posts_of(user).await.map(|()| Fixed::Done("removed with what is under them"))
        }
        (DriftKind::OrphanBlock, Place::In(name)) => {
            store.coll::<Document>(name).delete_one(doc! { "_id": subject }).await?;
            Ok(Fixed::Done("removed"))
        }
        (DriftKind::OrphanComment, Place::In(POSTS)) => {
            while store.sweep_comments(&[subject], 500).await? > 0 {}
            Ok(Fixed::Done("removed"))
        }
        (DriftKind::OrphanComment, _) => {
            until_no_conflict(|| bury(store, subject)).await?;
            Ok(Fixed::Done("a tombstone stands in the lost comment's place"))
        }
        (DriftKind::OutlierFlag, _) => {
            let lease = lease_of(store, user).await?;
            let done = store.reconcile_outlier(&lease, user).await;
            lease.release().await?;
            done.map(|_| Fixed::Done("flag and pages made from the followers"))
        }
        (DriftKind::OverflowPages, Place::Page(page)) => {
            let lease = lease_of(store, user).await?;
            let done = rebuild_page(store, &lease, user, page).await;
            lease.release().await?;
            done
        }
        (DriftKind::LikeCount | DriftKind::RepostCount | DriftKind::ReactionSeq, Place::To(kind)) => {
            recount_reactions(store, kind, subject).await
        }
        (DriftKind::OrphanReaction, Place::To(kind)) => {
            while store.sweep_edges(kind.edges(), kind.parent(), &[subject]).await? > 0 {}
            Ok(Fixed::Done("removed"))
        }
        (DriftKind::NotPulled, Place::In(REPOSTS)) => pull(store, REPOSTS, "active", "$userId", subject).await,
        (DriftKind::NotPulled, _) => pull(store, POSTS, "live", "$author.userId", subject).await,
        (DriftKind::ParkedFanout, Place::In(name)) => {
            let parked = doc! { "_id": subject, "delivery.state": "pending", "delivery.runAfter": { "$exists": false } };
            let again = doc! { "$set": { "delivery.runAfter": date(now()), "delivery.attempts": 0 } };
            store.coll::<Document>(name).update_one(parked, again).await?;
            store.wake().deliverer.notify_one();
            Ok(Fixed::Done("it is delivered again from where it was given up"))
        }
        (DriftKind::MissingEntry, Place::Act(act)) => {
            // An entry is a hint: whether it is shown is decided when it is read.
            store
                .enter(&[subject], Act { slot: act.slot.into(), post: PostId(act.post.into()), actor: UserId(act.actor.into()) })
                .await?;
            Ok(Fixed::Done("entered"))
        }
        (DriftKind::BlockedEdge, Place::With(other)) => sweep_again(store, user, UserId(other.into())).await,
        (DriftKind::StrayRequest, _) => {
            mark_pending(store, FOLLOWS, subject).await?;
            apply(store, FOLLOWS, subject).await
        }
        (DriftKind::NameCopy, _) => {
            let mut checkpoint = None;
            while let Then::On(next) = store.rename_batch(user, checkpoint, now()).await?.then {
                checkpoint = Some(next);
            }
            Ok(Fixed::Done("every copy rewritten from the profile"))
        }
        _ => Ok(Fixed::Left("nothing is known that mends it")),
    }
}

/// Takes a lease, waiting for whoever holds it, but not for ever.
async fn lease(store: &Store, name: &str) -> Result<Lease> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Lease::take(store, name).await? {
            Some(lease) => return Ok(lease),
            None if Instant::now() > until => return Err(Error::Busy),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Takes the applier's lease of an account.
async fn lease_of(store: &Store, user: UserId) -> Result<Lease> {
    lease(store, &format!("{LEASE_PREFIX}{user}")).await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountPart {
    follower_seq: i64,
    post_seq: i64,
    outlier: Option<OutlierDoc>,
}

/// A child with its number.
#[derive(Debug, Deserialize)]
struct Numbered {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    seq: i64,
}

/// Gives numbers that stand twice to the next that nobody has, in one pass upwards: of two that share one, the younger moves. What waits
/// for a free number is kept in memory, and the one before.
#[derive(Debug)]
struct Renumbered<T> {
    last: i64,
    held: Option<(bson::Uuid, T)>,
    waiting: VecDeque<(bson::Uuid, T)>,
}

impl<T> Renumbered<T> {
    fn new() -> Self {
        Self { last: 0, held: None, waiting: VecDeque::new() }
    }

    /// Takes the next one in the order of the numbers, and gives those that are settled, with their numbers and whether these are new.
    fn take(&mut self, id: bson::Uuid, item: T, seq: i64, settled: &mut Vec<(bson::Uuid, T, i64, bool)>) {
        if seq > self.last || self.held.is_none() {
            self.settle_held(settled);
            self.fill_up_to(seq, settled);
            (self.last, self.held) = (seq, Some((id, item)));
            return;
        }
        match self.held.take() {
            Some(held) if held.0.bytes() > id.bytes() => {
                self.waiting.push_back(held);
                self.held = Some((id, item));
            }
            held => {
                self.held = held;
                self.waiting.push_back((id, item));
            }
        }
    }

    /// Settles those that are left above the last number.
    fn finish(mut self, above: i64, settled: &mut Vec<(bson::Uuid, T, i64, bool)>) -> i64 {
        self.settle_held(settled);
        self.last = self.last.max(above);
        self.fill_up_to(i64::MAX, settled);
        self.last
    }

    fn settle_held(&mut self, settled: &mut Vec<(bson::Uuid, T, i64, bool)>) {
        if let Some((id, item)) = self.held.take() {
            settled.push((id, item, self.last, false));
        }
    }

    fn fill_up_to(&mut self, seq: i64, settled: &mut Vec<(bson::Uuid, T, i64, bool)>) {
        while self.last + 1 < seq
            && let Some((id, item)) = self.waiting.pop_front()
        {
            self.last += 1;
            settled.push((id, item, self.last, true));
        }
    }
}

/// Counters and numbers of an account from its edges and posts; then flag and pages, which follow from them.
async fn recount_account(store: &Store, user: UserId) -> Result<Fixed> {
    let lease = lease_of(store, user).await?;
    let done = recount_and_reconcile(store, &lease, user).await;
    lease.release().await?;
    // What was left to it meanwhile.
    store.wake().applier.notify_one();
    done
}

async fn recount_and_reconcile(store: &Store, lease: &Lease, user: UserId) -> Result<Fixed> {
    let Some(pages) = until_no_conflict(|| recount_leased(store, lease, user)).await? else { return Ok(BUSY) };
    for page in pages {
        until_no_conflict(|| store.build_range(lease, b(user), page, page + 1)).await?;
    }
    store.reconcile_outlier(lease, user).await?;
    Ok(Fixed::Done("counted and numbered from the edges and posts"))
}

/// A transaction that writes the account, as everybody does who moves a counter of it: of two, one conflicts. Gives the pages on which
/// followers have other numbers. None: the lease is lost.
async fn recount_leased(store: &Store, lease: &Lease, user: UserId) -> Result<Option<Vec<i64>>> {
    let mut session = store.begin().await?;
    if !lease.hold(&mut session).await? {
        return Ok(None);
    }
    let account = store.coll::<AccountPart>(USERS).find_one(doc! { "_id": b(user) }).session(&mut session).await?;
    let Some(account) = account else { return Ok(Some(Vec::new())) };
    let of = doc! { "followeeId": b(user), "seq": { "$gte": 1 } };
    let order = doc! { "followeeId": 1, "seq": 1 };
    let (followers, follower_seq, moved) = renumber(store, &mut session, FOLLOWS, of, order, account.follower_seq).await?;
    let mut pages: Vec<i64> = moved.iter().flat_map(|(_, from, to)| [outlier::page_of(*from), outlier::page_of(*to)]).collect();
    pages.sort_unstable();
    pages.dedup();
    if account.outlier.is_none() {
        pages.clear();
    }
    update_seqs(store, &mut session, FOLLOWS, moved).await?;
    let from = doc! { "followerId": b(user) };
    let mut following = 0;
    let mut edges = store.coll::<FollowDoc>(FOLLOWS).find(from).session(&mut session).await?;
    let mut stream = edges.stream(&mut session);
    while let Some(edge) = stream.try_next().await? {
        following += i64::from(edge.seq.is_some());
    }
    drop(stream);
    let of = doc! { "author.userId": b(user), "seq": { "$gte": 1 } };
    let (posts, post_seq, moved) = renumber(store, &mut session, POSTS, of, doc! { "seq": 1 }, account.post_seq).await?;
    update_seqs(store, &mut session, POSTS, moved).await?;
    let counters =
        bson::serialize_to_document(&CountersDoc { followers, following, posts }).map_err(mongodb::error::Error::from)?;
    let set = doc! { "$set": { "counters": counters, "followerSeq": follower_seq, "postSeq": post_seq } };
    store.coll::<Document>(USERS).update_one(doc! { "_id": b(user) }, set).session(&mut session).await?;
    commit(session).await?;
    Ok(Some(pages))
}

/// Those that get another number: their ids, the old and the new one.
type Moved = Vec<(bson::Uuid, i64, i64)>;

/// Counts children and finds those that need another number. Gives how many there are, the last number, and the moves.
async fn renumber(
    store: &Store,
    session: &mut ClientSession,
    name: &str,
    of: Document,
    order: Document,
    last: i64,
) -> Result<(i64, i64, Moved)> {
    let children = store.coll::<Numbered>(name);
    let find = children.find(of).sort(order).projection(doc! { "seq": 1 });
    let mut found = find.session(&mut *session).await?;
    let mut stream = found.stream(session);
    let (mut renumbered, mut settled, mut count, mut moved) = (Renumbered::new(), Vec::new(), 0, Moved::new());
    while let Some(Numbered { id, seq }) = stream.try_next().await? {
        renumbered.take(id, seq, seq, &mut settled);
        count += 1;
        moved.extend(settled.drain(..).filter(|(.., new)| *new).map(|(id, old, seq, _)| (id, old, seq)));
    }
    let last = renumbered.finish(last, &mut settled);
    moved.extend(settled.into_iter().filter(|(.., new)| *new).map(|(id, old, seq, _)| (id, old, seq)));
    Ok((count, last, moved))
}

async fn update_seqs(store: &Store, session: &mut ClientSession, name: &str, moved: Moved) -> Result<()> {
    let statement = |(id, _, seq): (bson::Uuid, i64, i64)| Statement::update(doc! { "_id": id }, doc! { "$set": { "seq": seq } });
    let statements: Vec<Statement> = moved.into_iter().map(statement).collect();
    if !statements.is_empty() {
        store.update_all(session, name, statements).await?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    comment_seq: i64,
}

/// Totals, numbers and newest comments of a post from what stands under it.
async fn recount_post(store: &Store, post: bson::Uuid) -> Result<Fixed> {
    let lease = lease(store, &format!("comments:{post}")).await?;
    let done = until_no_conflict(|| recount_post_once(store, post)).await;
    lease.release().await?;
    done?;
    Ok(Fixed::Done("counted, numbered and kept from the comments"))
}

/// A transaction that writes the post, as every application does that moves a total of it: of two, one conflicts.
async fn recount_post_once(store: &Store, post: bson::Uuid) -> Result<()> {
    let mut session = store.begin().await?;
    let live = doc! { "_id": post, "state": "live" };
    let fields = doc! { "commentSeq": 1 };
    let posts = store.coll::<PostPart>(POSTS);
    let part = posts.find_one(live.clone()).projection(fields).session(&mut session).await?;
    let Some(part) = part else { return Ok(()) };
    let mut totals = Totals::default();
    let (mut renumbered, mut settled, mut moved) = (Renumbered::new(), Vec::new(), Moved::new());
    let comments = store.coll::<CommentDoc>(COMMENTS);
    let find = comments.find(doc! { "postId": post, "seq": { "$gte": 1 } });
    let mut found = find.sort(doc! { "postId": 1, "seq": 1 }).session(&mut session).await?;
    let mut stream = found.stream(&mut session);
    while let Some(comment) = stream.try_next().await? {
        let seq = comment.seq.unwrap_or_default();
        renumbered.take(comment.id, comment, seq, &mut settled);
        totals.add(&mut settled, &mut moved);
    }
    drop(stream);
    let last = renumbered.finish(part.comment_seq, &mut settled);
    totals.add(&mut settled, &mut moved);
    update_seqs(store, &mut session, COMMENTS, moved).await?;
    let mut newest = Vec::new();
    for comment in totals.newest.iter().rev() {
        newest.extend(recent(comment)?);
    }
    let newest = newest.iter().map(bson::serialize_to_document).collect::<Result<Vec<_>, _>>();
    let newest = newest.map_err(mongodb::error::Error::from)?;
    let set = doc! {
        "counters.comments": totals.live, "counters.tombstones": totals.tombstones, "commentSeq": last, "recentComments": newest,
    };
    store.coll::<Document>(POSTS).update_one(live, doc! { "$set": set }).session(&mut session).await?;
    commit(session).await
}

#[derive(Debug, Default)]
struct Totals {
    live: i64,
    tombstones: i64,
    /// The newest live ones, the newest last.
    newest: VecDeque<CommentDoc>,
}

impl Totals {
    fn add(&mut self, settled: &mut Vec<(bson::Uuid, CommentDoc, i64, bool)>, moved: &mut Moved) {
        for (id, comment, seq, new) in settled.drain(..) {
            if new {
                moved.push((id, comment.seq.unwrap_or_default(), seq));
            }
            match comment.state {
                CommentStateDoc::Tombstone => self.tombstones += 1,
                // Counted until its deletion is applied.
                CommentStateDoc::Live | CommentStateDoc::Removed => self.live += 1,
            }
            if comment.state == CommentStateDoc::Live {
                self.newest.push_back(CommentDoc { seq: Some(seq), ..comment });
                if self.newest.len() > RECENT_KEPT {
                    self.newest.pop_front();
                }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyPart {
    post_id: bson::Uuid,
    ancestors: Vec<bson::Uuid>,
    depth: i32,
    state: CommentStateDoc,
    seq: Option<i64>,
}

/// The replies to a comment: how many are live and how many are shown, the lowest number, and one of them.
async fn replies(
    store: &Store,
    session: &mut ClientSession,
    comment: bson::Uuid,
) -> Result<(i64, i64, Option<i64>, Option<ReplyPart>)> {
    let (mut live, mut shown, mut lowest, mut one) = (0, 0, None::<i64>, None);
    let mut found = store.coll::<ReplyPart>(COMMENTS).find(doc! { "parentId": comment }).session(&mut *session).await?;
    let mut stream = found.stream(session);
    while let Some(reply) = stream.try_next().await? {
        if let Some(seq) = reply.seq {
            live += i64::from(reply.state != CommentStateDoc::Tombstone);
            shown += 1;
            lowest = Some(lowest.map_or(seq, |lowest| lowest.min(seq)));
        }
        one.get_or_insert(reply);
    }
    Ok((live, shown, lowest, one))
}

/// A transaction that writes the comment, and the copy of its total that its post may keep.
async fn recount_replies(store: &Store, comment: bson::Uuid) -> Result<()> {
    let mut session = store.begin().await?;
    let found = store.coll::<CommentDoc>(COMMENTS).find_one(doc! { "_id": comment }).session(&mut session).await?;
    let Some(CommentDoc { post_id, .. }) = found else { return Ok(()) };
    let (live, shown, ..) = replies(store, &mut session, comment).await?;
    let set = doc! { "$set": { "counters.replies": live, "counters.children": shown } };
    store.coll::<Document>(COMMENTS).update_one(doc! { "_id": comment }, set).session(&mut session).await?;
    keep_copies(store, &mut session, post_id, |copy| (copy.id == comment).then(|| copy.replies = live)).await?;
    commit(session).await
}

/// Writes the paths of all that answers a comment, and its own if it answers nothing, with their levels in the copies that the post
/// keeps. What stands below those is found by its own parent.
async fn write_paths(store: &Store, comment: bson::Uuid) -> Result<()> {
    let mut session = store.begin().await?;
    let comments = store.coll::<CommentDoc>(COMMENTS);
    let Some(found) = comments.find_one(doc! { "_id": comment }).session(&mut session).await? else { return Ok(()) };
    let mut path = found.ancestors;
    if found.parent_id.is_none() {
        path.clear();
    }
    let depth = i32::try_from(path.len()).unwrap_or(i32::MAX);
    // Written also where it is right: who changes it at the same time, for what answers it, conflicts.
    let own = doc! { "$set": { "ancestors": &path, "depth": depth } };
    comments.update_one(doc! { "_id": comment }, own).session(&mut session).await?;
    path.push(comment);
    let below = doc! { "$set": { "ancestors": &path, "depth": depth + 1 } };
    comments.update_many(doc! { "parentId": comment }, below).session(&mut session).await?;
    keep_copies(store, &mut session, found.post_id, |copy| {
        let right = if copy.id == comment { depth } else { depth + 1 };
        let of_these = copy.id == comment || copy.parent_id == Some(comment);
        (of_these && copy.depth != right).then(|| copy.depth = right)
    })
    .await?;
    commit(session).await
}

/// Puts a tombstone in the place of a comment that is lost and that others answer: what they wrote stays, and where. Its number is
/// the next below its replies that nobody has, for a comment stands before its replies; else a new one.
async fn bury(store: &Store, lost: bson::Uuid) -> Result<()> {
    let mut session = store.begin().await?;
    let there = store.coll::<IdDoc>(COMMENTS).find_one(doc! { "_id": lost }).session(&mut session).await?;
    let (live, shown, lowest, reply) = replies(store, &mut session, lost).await?;
    let (None, Some(reply)) = (there, reply) else { return Ok(()) };
    let post = doc! { "_id": reply.post_id, "state": "live" };
    let part = store.coll::<PostPart>(POSTS).find_one(post.clone()).session(&mut session).await?;
    let Some(part) = part else { return Ok(()) };
    let mut seq = None;
    if let Some(lowest) = lowest {
        let mut free = lowest - 1;
        let below = doc! { "postId": reply.post_id, "seq": { "$gte": 1, "$lt": lowest } };
        let comments = store.coll::<Numbered>(COMMENTS);
        let find = comments.find(below).sort(doc! { "postId": 1, "seq": -1 }).projection(doc! { "seq": 1 });
        let mut found = find.session(&mut session).await?;
        let mut stream = found.stream(&mut session);
        while let Some(taken) = stream.try_next().await? {
            if taken.seq < free {
                break;
            }
            free = taken.seq - 1;
        }
        drop(stream);
        seq = Some(if free > 0 { free } else { part.comment_seq + 1 });
    }
    let mut ancestors = reply.ancestors;
    ancestors.retain(|ancestor| *ancestor != lost);
    let tombstone = CommentDoc {
        id: lost,
        post_id: reply.post_id,
        parent_id: ancestors.last().copied(),
        ancestors,
        depth: (reply.depth - 1).max(0),
        seq,
        author: None,
        text: None,
        counters: CommentCountersDoc { likes: 0, replies: live, children: shown },
        state: CommentStateDoc::Tombstone,
        pending: None,
        created_at: date(ids::time_of(lost.into())),
        edited_at: None,
        purge_at: seq.is_none().then(|| date(now().plus(TOMBSTONE_KEPT))),
    };
    store.coll::<CommentDoc>(COMMENTS).insert_one(&tombstone).session(&mut session).await?;
    if let Some(seq) = seq {
        let count = doc! { "$inc": { "counters.tombstones": 1_i64 }, "$max": { "commentSeq": seq } };
        store.coll::<Document>(POSTS).update_one(post, count).session(&mut session).await?;
        if let Some(above) = tombstone.parent_id {
            let child = doc! { "$inc": { "counters.children": 1_i64 } };
            store.coll::<Document>(COMMENTS).update_one(doc! { "_id": above }, child).session(&mut session).await?;
        }
    }
    commit(session).await
}

/// Total and numbers of a post's or a comment's reactions of one kind from the edges.
async fn recount_reactions(store: &Store, kind: Kind, parent: bson::Uuid) -> Result<Fixed> {
    let lease = lease(store, &format!("{}:{parent}", kind.edges())).await?;
    let done = until_no_conflict(|| recount_reactions_once(store, kind, parent)).await;
    lease.release().await?;
    done?;
    Ok(Fixed::Done("counted and numbered from the edges"))
}

/// A transaction that writes the parent, as every application does that moves its total: of two, one conflicts.
async fn recount_reactions_once(store: &Store, kind: Kind, parent: bson::Uuid) -> Result<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Part {
        #[serde(default)]
        last: i64,
        post_id: Option<bson::Uuid>,
    }
    let mut session = store.begin().await?;
    let live = doc! { "_id": parent, "state": "live" };
    let fields = doc! { "_id": 0, "last": format!("${}", kind.last_seq()), "postId": 1 };
    let parents = store.coll::<Part>(kind.parents());
    let part = parents.find_one(live.clone()).projection(fields).session(&mut session).await?;
    let Some(part) = part else { return Ok(()) };
    let mut of = kind.of_this();
    of.extend(doc! { kind.parent(): parent, "seq": { "$gte": 1 } });
    let order = doc! { kind.parent(): 1, "seq": 1 };
    let (total, last, moved) = renumber(store, &mut session, kind.edges(), of, order, part.last).await?;
    update_seqs(store, &mut session, kind.edges(), moved).await?;
    let set = doc! { "$set": { kind.counter(): total, kind.last_seq(): last } };
    store.coll::<Document>(kind.parents()).update_one(live, set).session(&mut session).await?;
    if let Some(post) = part.post_id {
        keep_copies(store, &mut session, post, |copy| (copy.id == parent).then(|| copy.likes = total)).await?;
    }
    commit(session).await
}

/// Changes the copies of comments that a post keeps. `change` does nothing with one that stays as it is.
async fn keep_copies(
    store: &Store,
    session: &mut ClientSession,
    post: bson::Uuid,
    change: impl Fn(&mut RecentCommentDoc) -> Option<()>,
) -> Result<()> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Keeper {
        recent_comments: Vec<RecentCommentDoc>,
    }
    let posts = store.coll::<Keeper>(POSTS);
    let keeper = posts.find_one(doc! { "_id": post }).projection(doc! { "recentComments": 1 });
    let Some(Keeper { recent_comments: mut kept }) = keeper.session(&mut *session).await? else { return Ok(()) };
    if kept.iter_mut().filter_map(change).count() > 0 {
        let kept = kept.iter().map(bson::serialize_to_document).collect::<Result<Vec<_>, _>>();
        let kept = kept.map_err(mongodb::error::Error::from)?;
        let set = doc! { "$set": { "recentComments": kept } };
        store.coll::<Document>(POSTS).update_one(doc! { "_id": post }, set).session(session).await?;
    }
    Ok(())
}

/// Writes one page anew from its edges, or removes the pages of an account that should have none.
async fn rebuild_page(store: &Store, lease: &Lease, user: UserId, page: i64) -> Result<Fixed> {
    let account = store.coll::<AccountPart>(USERS).find_one(doc! { "_id": b(user) }).await?;
    if account.and_then(|account| account.outlier).is_none() {
        store.drop_pages(lease, user).await?;
        return Ok(Fixed::Done("removed"));
    }
    let built = until_no_conflict(|| store.build_range(lease, b(user), page, page + 1)).await?;
    Ok(if built { Fixed::Done("made anew from the edges") } else { BUSY })
}

/// Marks an act that is not delivered as one that readers pull, and who did it first where they pull for good.
async fn pull(store: &Store, name: &str, wanted: &str, user: &str, act: bson::Uuid) -> Result<Fixed> {
    #[derive(Deserialize)]
    struct Part {
        user: bson::Uuid,
        state: DeliveryState,
    }
    let fields = doc! { "_id": 0, "user": user, "state": "$delivery.state" };
    let undelivered = doc! { "_id": act, "state": wanted, "delivery.state": { "$ne": "delivered" } };
    let Some(part) = store.coll::<Part>(name).find_one(undelivered.clone()).projection(fields).await? else {
        return Ok(Fixed::Done("delivered meanwhile"));
    };
    let mut set = doc! { "delivery.pull": part.user };
    if part.state == DeliveryState::Pull {
        store.mark_pulled(part.user, now()).await?;
        // By which processes tell the heads of their authors.
        set.insert("delivery.pulledAt", date(now()));
    }
    store.coll::<Document>(name).update_one(undelivered, doc! { "$set": set }).await?;
    store.wake().refresher.notify_one();
    Ok(Fixed::Done("readers pull it"))
}

/// Does the sweep of a block once more.
async fn sweep_again(store: &Store, blocker: UserId, blocked: UserId) -> Result<Fixed> {
    let block = doc! { "blockerId": b(blocker), "blockedId": b(blocked) };
    let pending = doc! { "$set": { "pending": true } };
    until_no_conflict(async || Ok(store.coll::<Document>(BLOCKS).update_one(block.clone(), pending.clone()).await?)).await?;
    for (edge, _) in until_no_conflict(|| store.sweep_block(blocker, blocked)).await?.unwrap_or_default() {
        apply(store, FOLLOWS, edge).await?;
    }
    Ok(Fixed::Done("the block is swept again"))
}

/// Lets the applier of a child come.
async fn mark_pending(store: &Store, name: &str, child: bson::Uuid) -> Result<()> {
    let pending = doc! { "$set": { "pending": true } };
    until_no_conflict(async || Ok(store.coll::<Document>(name).update_one(doc! { "_id": child }, pending.clone()).await?)).await?;
    Ok(())
}

/// Applies a child that is pending, as its applier does.
async fn apply(store: &Store, name: &str, child: bson::Uuid) -> Result<Fixed> {
    let until = Instant::now() + PATIENCE;
    loop {
        match name {
            FOLLOWS => {
                if let Some(edge) = store.coll::<FollowDoc>(FOLLOWS).find_one(doc! { "_id": child }).await? {
                    store.drain_follows(edge.followee()).await?;
                }
            }
            POSTS => drop(store.apply_posts_step().await?),
            COMMENTS => drop(store.apply_comments_step().await?),
            LIKES | REPOSTS => drop(store.apply_reactions_step().await?),
            _ => drop(store.finish_sweeps().await?),
        }
        let pending = doc! { "_id": child, "pending": true };
        if store.coll::<IdDoc>(name).find_one(pending).projection(doc! { "_id": 1 }).await?.is_none() {
            return Ok(Fixed::Done("applied"));
        }
        if Instant::now() > until {
            return Ok(Fixed::Left("the applier does not get on with it"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renumbered(seqs: &[(u8, i64)], last: i64) -> (Vec<(u8, i64)>, i64) {
        let (mut renumbered, mut settled) = (Renumbered::new(), Vec::new());
        for (id, seq) in seqs {
            renumbered.take(bson::Uuid::from_bytes([*id; 16]), (), *seq, &mut settled);
        }
        let last = renumbered.finish(last, &mut settled);
        (settled.into_iter().map(|(id, (), seq, _)| (id.bytes()[0], seq)).collect(), last)
    }

    #[test]
    fn of_two_with_one_number_the_younger_gets_the_next_that_is_free() {
        assert_eq!(renumbered(&[(1, 1), (2, 2), (3, 4)], 4), (vec![(1, 1), (2, 2), (3, 4)], 4));
        assert_eq!(renumbered(&[(2, 1), (1, 1), (3, 4)], 4), (vec![(1, 1), (2, 2), (3, 4)], 4));
        assert_eq!(renumbered(&[(1, 1), (2, 1), (3, 1), (4, 2)], 2), (vec![(1, 1), (4, 2), (2, 3), (3, 4)], 4));
        assert_eq!(renumbered(&[(1, 1), (2, 9)], 4), (vec![(1, 1), (2, 9)], 9));
        assert_eq!(renumbered(&[(1, 1), (2, 1)], 7), (vec![(1, 1), (2, 8)], 8));
    }
}
