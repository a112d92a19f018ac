//! Timelines: fan-out on write, and the window that each reader's entries make.
//!
//! A post is its own fan-out job: a worker claims it with a lease, reads its author's edges after it is committed, and enters it into
//! the followers' windows batch by batch ([`Store::deliver_step`]). An entry is a hint without content, one per act: entering it twice is
//! a no-op, and whether it is shown is decided when it is read. A window is complete down to `completeSince`; a follow brings the
//! followee's posts down to there ([`Store::merge_step`]), and until it has, readers pull that followee.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bson::{Document, doc};
use futures::{TryStreamExt as _, future::join_all};
use mongodb::options::ReturnDocument;
use rookery_domain::{PostId, Timestamp, UserId, feed::Act, ids};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::{FOLLOWS, POSTS, TIMELINE_ENTRIES, TIMELINES, USERS, timelines::ENTRY_LIVES},
    error::is_duplicate_key,
    graph::{FollowDoc, FollowState, IdDoc},
    pending::Progress,
    posts::{DeliveryState, PostDoc, PostState},
    store::{ANSWER, b, date, now},
};

/// Entries in one insert. Some 20 ms on the embedded database; the memory of a fan-out is one batch, whatever the number of followers.
const BATCH: i64 = 1_000;

/// Batches that a worker delivers of one post before it takes the next: a large fan-out goes to the back of the queue, and does not
/// hold up the small ones behind it.
const TURN: usize = 5;

/// Followees of one reader whose posts are merged together: branches of one query.
const FOLLOWEES: usize = 100;

/// Posts that one step delivers side by side.
const SIDE_BY_SIDE: usize = 4;

/// How long a claim lasts: long against a turn, short against a reader's patience after a crash (who pulls the post meanwhile).
const CLAIM_MS: i64 = 10_000;

/// Attempts in a row without progress after which a fan-out is parked: some two minutes. Readers go on pulling the post, and the counter
/// `fanout_parked_total` shows it.
const ATTEMPTS: i32 = 10;

/// The pause after the first failed attempt; each further one doubles it, up to the claim's length.
const BACKOFF_MS: u64 = 100;

/// Entries that a window keeps: forty pages. What is older is pulled.
const WINDOW: u64 = 800;

/// How long before its time an entry is no longer relied on: clocks differ, and a page is read within minutes.
const RUN_OUT_MARGIN: Duration = Duration::from_hours(24);

/// How far back the window of a new reader reaches.
const BEFORE_REGISTRATION: Duration = Duration::from_hours(14 * 24);

/// How often a reader's window is looked at for trimming.
const TRIM_EVERY: Duration = Duration::from_hours(1);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewEntryDoc {
    owner_id: bson::Uuid,
    post_id: bson::Uuid,
    actor_id: bson::Uuid,
    slot: bson::Uuid,
    at: bson::DateTime,
}

/// One act in a reader's window.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryDoc {
    pub post_id: bson::Uuid,
    pub actor_id: bson::Uuid,
    pub slot: bson::Uuid,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimelineDoc {
    pub complete_since: bson::Uuid,
    last_read_at: bson::DateTime,
    /// New with each change of whom the reader follows; none before the first.
    pub relations: Option<bson::Uuid>,
}

impl TimelineDoc {
    /// Whether it is time to note a read and to trim.
    pub(crate) fn is_stale(&self, at: Timestamp) -> bool {
        at.since(crate::store::timestamp(self.last_read_at)) >= TRIM_EVERY
    }
}

/// How a turn of one fan-out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Every follower has it.
    Done,
    /// There are more followers.
    More,
    /// Somebody else has the post now, or it was deleted.
    Lost,
}

impl Store {
    /// One round of a fan-out worker: claims a few posts and delivers a turn of each. The number is that of entries.
    pub async fn deliver_step(&self) -> Result<Progress> {
        let mut claimed = Vec::new();
        while claimed.len() < SIDE_BY_SIDE
            && let Some(post) = self.claim_post().await?
        {
            claimed.push(post);
        }
        if claimed.is_empty() {
            return Ok(Progress::Idle);
        }
        // Each for itself: a fault with one holds up nobody else.
        let (mut entered, mut fault) = (0, None);
        for (post, delivered) in claimed.iter().zip(join_all(claimed.iter().map(|post| self.deliver(post))).await) {
            match delivered {
                Ok(entries) => entered += entries,
                Err(error) => {
                    self.back_off(post).await?;
                    fault = Some(error);
                }
            }
        }
        match fault {
            Some(fault) => Err(fault),
            // A post without followers is work too.
            None => Ok(Progress::Did(entered.max(1))),
        }
    }

    /// Puts a failed fan-out off, for longer each time, and parks it in the end: then it has no `runAfter`.
    async fn back_off(&self, post: &PostDoc) -> Result<()> {
        let attempts = post.delivery.attempts;
        let next = if attempts >= ATTEMPTS {
            metrics::counter!("fanout_parked_total").increment(1);
            tracing::error!(post = %post.id, attempts, "a fan-out is parked: readers go on pulling the post");
            doc! { "$unset": { "delivery.lease": "", "delivery.runAfter": "" } }
        } else {
            let pause_ms = BACKOFF_MS.saturating_mul(1 << attempts.clamp(0, 16)).min(CLAIM_MS.unsigned_abs());
            doc! {
                "$set": { "delivery.runAfter": date(now().plus(Duration::from_millis(pause_ms))) },
                "$unset": { "delivery.lease": "" },
            }
        };
        self.coll::<PostDoc>(POSTS).update_one(held(post), next).await?;
        Ok(())
    }

    /// Claims the post that has waited longest. The claim is in `runAfter` too: a crashed worker's post comes up again by itself.
    pub(crate) async fn claim_post(&self) -> Result<Option<PostDoc>> {
        let at = now();
        let until = at.plus(Duration::from_millis(CLAIM_MS.unsigned_abs()));
        let due = doc! { "delivery.state": "pending", "delivery.runAfter": { "$lte": date(at) }, "state": "live" };
        let claim = doc! {
            "$set": { "delivery.lease": { "owner": bson::Uuid::new(), "until": date(until) }, "delivery.runAfter": date(until) },
            "$inc": { "delivery.attempts": 1 },
        };
        let claimed = self
            .coll::<PostDoc>(POSTS)
            .find_one_and_update(due, claim)
            .sort(doc! { "delivery.runAfter": 1 })
            .return_document(ReturnDocument::After)
            .await?;
        Ok(claimed)
    }

    /// Delivers one turn of a claimed post. Gives the number of entries.
    async fn deliver(&self, post: &PostDoc) -> Result<usize> {
        let mut entered = 0;
        let turn = self.deliver_turn(post, &mut entered).await;
        metrics::counter!("fanout_entries_total").increment(entered as u64);
        self.end_turn(post, turn?).await?;
        Ok(entered)
    }

    /// Notes on the post how its turn ended, if the claim still stands.
    pub(crate) async fn end_turn(&self, post: &PostDoc, turn: Turn) -> Result<()> {
        let next = match turn {
            Turn::Done => {
                let lag = now().since(ids::time_of(post.id.into()));
                metrics::histogram!("fanout_lag_seconds").record(lag.as_secs_f64());
                doc! {
                    "$set": { "delivery.state": "delivered" },
                    "$unset": { "delivery.pull": "", "delivery.lease": "", "delivery.runAfter": "", "delivery.cursor": "" },
                }
            }
            Turn::More => {
                doc! { "$set": { "delivery.runAfter": date(now()), "delivery.attempts": 0 }, "$unset": { "delivery.lease": "" } }
            }
            Turn::Lost => return Ok(()),
        };
        self.coll::<PostDoc>(POSTS).update_one(held(post), next).await?;
        Ok(())
    }

    async fn deliver_turn(&self, post: &PostDoc, entered: &mut usize) -> Result<Turn> {
        let (author, slot) = (post.author.user_id, post.id);
        let mut next = if let Some(seq) = post.delivery.cursor {
            seq + 1
        } else {
            // The edges without a `seq` first: one that gets its `seq` meanwhile is found again above.
            let owners = self.pending_owners(author).await?;
            for owners in owners.chunks(usize::try_from(BATCH).unwrap_or(1)) {
                *entered += self.enter(owners, author, slot).await?;
            }
            1
        };
        for _ in 0..TURN {
            // Read before the edges: a follower counted later was pending when this turn began, or follows a post that was there already.
            let last = self.follower_seq(author).await?;
            if next > last {
                return Ok(Turn::Done);
            }
            let owners = self.counted_owners(author, next).await?;
            *entered += self.enter(&owners, author, slot).await?;
            next += BATCH;
            if next > last {
                return Ok(Turn::Done);
            }
            if !self.advance(post, next - 1).await? {
                return Ok(Turn::Lost);
            }
        }
        Ok(Turn::More)
    }

    /// The readers whose follow of `author` is not counted (or is being taken back into the count), and the author.
    pub(crate) async fn pending_owners(&self, author: bson::Uuid) -> Result<Vec<bson::Uuid>> {
        let pending = doc! { "pending": true, "followeeId": author };
        let mut owners = self.owners(pending).await?;
        owners.push(author);
        Ok(owners)
    }

    /// A batch of the readers whose follow of `author` is counted, from a `seq` on.
    pub(crate) async fn counted_owners(&self, author: bson::Uuid, from: i64) -> Result<Vec<bson::Uuid>> {
        self.owners(doc! { "followeeId": author, "seq": { "$gte": from, "$lt": from + BATCH } }).await
    }

    async fn owners(&self, edges: Document) -> Result<Vec<bson::Uuid>> {
        // By the index alone: a server may read all of the author's edges for a condition that the index does not have.
        let edges = self
            .coll::<FollowerDoc>(FOLLOWS)
            .find(edges)
            .projection(doc! { "_id": 0, "followerId": 1, "state": 1 })
            .batch_size(ANSWER)
            .await?;
        let active = edges.try_filter(|edge| std::future::ready(edge.state == FollowState::Active));
        Ok(active.map_ok(|edge| edge.follower_id).try_collect().await?)
    }

    pub(crate) async fn follower_seq(&self, user: bson::Uuid) -> Result<i64> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct SeqDoc {
            follower_seq: i64,
        }
        let found = self.coll::<SeqDoc>(USERS).find_one(doc! { "_id": user }).projection(doc! { "followerSeq": 1 }).await?;
        Ok(found.map_or(0, |user| user.follower_seq))
    }

    /// Notes how far a fan-out has come, if the claim still stands, and renews it.
    pub(crate) async fn advance(&self, post: &PostDoc, cursor: i64) -> Result<bool> {
        let until = date(now().plus(Duration::from_millis(CLAIM_MS.unsigned_abs())));
        let set = doc! { "$set": { "delivery.cursor": cursor, "delivery.lease.until": until, "delivery.runAfter": until } };
        Ok(self.coll::<PostDoc>(POSTS).update_one(held(post), set).await?.matched_count == 1)
    }

    /// Enters one act into windows. Entering it again is a no-op.
    pub(crate) async fn enter(&self, owners: &[bson::Uuid], actor: bson::Uuid, post: bson::Uuid) -> Result<usize> {
        let at = date(ids::time_of(post.into()));
        let entries =
            owners.iter().map(|owner| NewEntryDoc { owner_id: *owner, post_id: post, actor_id: actor, slot: post, at }).collect();
        self.insert_entries(entries).await
    }

    async fn insert_entries(&self, entries: Vec<NewEntryDoc>) -> Result<usize> {
        if entries.is_empty() {
            return Ok(0);
        }
        match self.coll::<NewEntryDoc>(TIMELINE_ENTRIES).insert_many(&entries).ordered(false).await {
            Ok(_) => Ok(entries.len()),
            // Entered by an earlier attempt.
            Err(error) if is_duplicate_key(&error) => Ok(entries.len()),
            Err(error) => Err(error.into()),
        }
    }

    /// One round of the worker that brings followees' recent posts into the windows of new followers. The number is that of follows.
    pub async fn merge_step(&self) -> Result<Progress> {
        const EDGES: i64 = 1_000;
        // By the index alone. Not before the edge is applied: the two would write the same document.
        let unmerged = self.coll::<FollowDoc>(FOLLOWS).find(doc! { "merged": false }).limit(EDGES).batch_size(ANSWER).await?;
        let applied = unmerged.try_filter(|edge| std::future::ready(edge.state == FollowState::Active && edge.pending.is_none()));
        let edges: Vec<FollowDoc> = applied.try_collect().await?;
        if edges.is_empty() {
            return Ok(Progress::Idle);
        }
        // Followees who never posted need no reading. Posts not counted yet are asked for first: one that is counted between the two
        // reads is seen by the second.
        let followees: HashSet<bson::Uuid> = edges.iter().map(|edge| edge.followee_id).collect();
        let uncounted = self.authors_with_uncounted_posts().await?;
        let silent = doc! { "_id": { "$in": followees.into_iter().collect::<Vec<_>>() }, "postSeq": 0 };
        let silent = self.coll::<IdDoc>(USERS).find(silent).projection(doc! { "_id": 1 }).await?;
        let silent: HashSet<bson::Uuid> = silent.map_ok(|user| user.id).try_collect().await?;
        let (silent, others): (Vec<FollowDoc>, Vec<FollowDoc>) =
            edges.into_iter().partition(|edge| silent.contains(&edge.followee_id) && !uncounted.contains(&edge.followee_id));
        let done = silent.len() + others.len();
        if !silent.is_empty() {
            self.mark_merged(&silent).await?;
        }
        let mut by_follower: HashMap<UserId, Vec<FollowDoc>> = HashMap::new();
        for edge in others {
            by_follower.entry(edge.follower()).or_default().push(edge);
        }
        for (follower, edges) in by_follower {
            for edges in edges.chunks(FOLLOWEES) {
                self.merge(follower, edges).await?;
            }
        }
        Ok(Progress::Did(done))
    }

    /// Authors of whom some post is not counted (any more, or yet).
    pub(crate) async fn authors_with_uncounted_posts(&self) -> Result<HashSet<bson::Uuid>> {
        let authors = self.coll::<Document>(POSTS).distinct("author.userId", doc! { "pending": true }).await?;
        Ok(authors.into_iter().filter_map(|id| bson::deserialize_from_bson(id).ok()).collect())
    }

    /// Enters the posts of one reader's new followees down to the reader's `completeSince`, then marks the edges.
    async fn merge(&self, follower: UserId, edges: &[FollowDoc]) -> Result<()> {
        let mut from = self.complete_since(follower).await?;
        loop {
            let (acts, next) = self.acts_to_merge(edges, from).await?;
            self.merge_acts(follower, &acts).await?;
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.mark_merged(edges).await
    }

    /// A batch of the followees' posts, oldest first, from an id on; but for those that are pulled for good, which stay pulled. The second
    /// value is where the next batch begins, if there may be one.
    pub(crate) async fn acts_to_merge(&self, edges: &[FollowDoc], from: Uuid) -> Result<(Vec<Act>, Option<Uuid>)> {
        let branch = |edge: &FollowDoc| doc! { "author.userId": edge.followee_id, "_id": { "$gte": b(from) } };
        let branches: Vec<Document> = edges.iter().map(branch).collect();
        let fields = doc! { "author": "$author.userId", "state": 1, "delivery": "$delivery.state" };
        let posts = self.coll::<MergeDoc>(POSTS);
        let found =
            posts.find(doc! { "$or": branches }).sort(doc! { "_id": 1 }).limit(BATCH).batch_size(ANSWER).projection(fields).await?;
        let found: Vec<MergeDoc> = found.try_collect().await?;
        let full = i64::try_from(found.len()) == Ok(BATCH);
        let next = found.last().filter(|_| full).map(|last| Uuid::from_u128(Uuid::from(last.id).as_u128() + 1));
        let wanted = found.into_iter().filter(|post| post.state == PostState::Live && post.delivery != DeliveryState::Pull);
        let act = |post: MergeDoc| Act { slot: post.id.into(), post: PostId(post.id.into()), actor: UserId(post.author.into()) };
        Ok((wanted.map(act).collect(), next))
    }

    /// Enters acts of followees into the follower's window.
    pub(crate) async fn merge_acts(&self, follower: UserId, acts: &[Act]) -> Result<usize> {
        let entry = |act: &Act| NewEntryDoc {
            owner_id: b(follower),
            post_id: b(act.post),
            actor_id: b(act.actor),
            slot: act.slot.into(),
            at: date(ids::time_of(act.slot)),
        };
        self.insert_entries(acts.iter().map(entry).collect()).await
    }

    /// Marks edges merged, those that are still the follows that the posts were read for. Before that it says that their followers'
    /// relations changed, in case a follow's request crashed before it did: until an edge is merged nobody keeps it.
    pub(crate) async fn mark_merged(&self, edges: &[FollowDoc]) -> Result<()> {
        let followers: HashSet<UserId> = edges.iter().map(FollowDoc::follower).collect();
        self.relations_changed(&followers.into_iter().collect::<Vec<_>>()).await?;
        // A wish is of one edge alone.
        let (ids, wishes): (Vec<_>, Vec<_>) = edges.iter().map(|edge| (edge.id, edge.wish)).unzip();
        let these = doc! { "_id": { "$in": ids }, "wish": { "$in": wishes }, "merged": false };
        self.coll::<FollowDoc>(FOLLOWS).update_many(these, doc! { "$set": { "merged": true } }).await?;
        Ok(())
    }

    /// The slot down to which a reader's window is complete.
    pub(crate) async fn complete_since(&self, reader: UserId) -> Result<Uuid> {
        Ok(window_start(reader, self.timeline(reader).await?, now()))
    }

    pub(crate) async fn timeline(&self, reader: UserId) -> Result<Option<TimelineDoc>> {
        Ok(self.coll::<TimelineDoc>(TIMELINES).find_one(doc! { "_id": b(reader) }).await?)
    }

    /// A reader's entries in a range of slots, newest first or oldest first, at most `most`.
    pub(crate) async fn entries(
        &self,
        reader: UserId,
        from: Uuid,
        to: Uuid,
        newest_first: bool,
        most: usize,
    ) -> Result<Vec<EntryDoc>> {
        let range = doc! { "ownerId": b(reader), "slot": { "$gte": b(from), "$lt": b(to) } };
        let found = self
            .coll::<EntryDoc>(TIMELINE_ENTRIES)
            .find(range)
            .sort(doc! { "slot": if newest_first { -1 } else { 1 } })
            .limit(i64::try_from(most).unwrap_or(i64::MAX))
            // All of it in one answer.
            .batch_size(u32::try_from(most).unwrap_or(u32::MAX))
            .projection(doc! { "_id": 0, "postId": 1, "actorId": 1, "slot": 1 })
            .await?;
        Ok(found.try_collect().await?)
    }

    /// Removes entries of posts that are gone for good. Those of authors no longer followed stay: a follow may bring them back.
    pub(crate) async fn drop_entries(&self, reader: UserId, posts: &[PostId]) -> Result<()> {
        let posts: Vec<bson::Uuid> = posts.iter().copied().map(b).collect();
        let dead = doc! { "ownerId": b(reader), "postId": { "$in": posts } };
        self.coll::<EntryDoc>(TIMELINE_ENTRIES).delete_many(dead).await?;
        Ok(())
    }

    /// Notes that a reader has read, and cuts the window to its length; `seen` is the timeline as this read found it.
    pub(crate) async fn note_read(&self, reader: UserId, seen: Option<TimelineDoc>) -> Result<()> {
        let at = now();
        let Some(seen) = seen else {
            let since = b(window_start(reader, None, at));
            let read = doc! { "$setOnInsert": { "lastReadAt": date(at), "completeSince": since } };
            self.coll::<Document>(TIMELINES).update_one(doc! { "_id": b(reader) }, read).upsert(true).await?;
            return Ok(());
        };
        // Of several reads at a time one goes on.
        let this = doc! { "_id": b(reader), "lastReadAt": seen.last_read_at };
        let read = doc! { "$set": { "lastReadAt": date(at) } };
        if self.coll::<Document>(TIMELINES).update_one(this, read).await?.matched_count == 1 {
            self.trim_timeline(reader, WINDOW, at).await?;
        }
        Ok(())
    }

    /// Deletes what lies below the window's start as the *last* trim left it, then raises the start to its newest `keep` entries.
    ///
    /// So a start is raised an hour before what lies below is deleted, and a page that has read the one before the other finds its window
    /// whole, in whatever order it reads them.
    pub async fn trim_timeline(&self, reader: UserId, keep: u64, at: Timestamp) -> Result<()> {
        if let Some(timeline) = self.timeline(reader).await? {
            self.drop_below(reader, timeline.complete_since).await?;
        }
        self.raise_complete_since(reader, keep, at).await?;
        Ok(())
    }

    /// Raises the start of a window to its newest `keep` entries. Gives it, if the window had so many.
    pub(crate) async fn raise_complete_since(&self, reader: UserId, keep: u64, at: Timestamp) -> Result<Option<bson::Uuid>> {
        let oldest = self
            .coll::<EntryDoc>(TIMELINE_ENTRIES)
            .find_one(doc! { "ownerId": b(reader) })
            .sort(doc! { "slot": -1 })
            .skip(keep.saturating_sub(1))
            .projection(doc! { "_id": 0, "postId": 1, "actorId": 1, "slot": 1 })
            .await?;
        let Some(EntryDoc { slot, .. }) = oldest else { return Ok(None) };
        let raise = doc! { "$max": { "completeSince": slot }, "$setOnInsert": { "lastReadAt": date(at) } };
        self.coll::<Document>(TIMELINES).update_one(doc! { "_id": b(reader) }, raise).upsert(true).await?;
        Ok(Some(slot))
    }

    /// Deletes entries below a slot.
    pub(crate) async fn drop_below(&self, reader: UserId, slot: bson::Uuid) -> Result<()> {
        let below = doc! { "ownerId": b(reader), "slot": { "$lt": slot } };
        self.coll::<EntryDoc>(TIMELINE_ENTRIES).delete_many(below).await?;
        Ok(())
    }

    /// How many posts wait for delivery, and how many of them are parked.
    pub async fn fanout_backlog(&self) -> Result<(u64, u64)> {
        let posts = self.coll::<Document>(POSTS);
        let waiting = posts.count_documents(doc! { "delivery.state": "pending" }).await?;
        let parked = posts.count_documents(doc! { "delivery.state": "pending", "delivery.runAfter": { "$exists": false } }).await?;
        Ok((waiting, parked))
    }
}

/// The slot down to which a window is complete: two weeks before the registration where nothing was trimmed yet (nobody follows anybody
/// before, and each follow brings posts down to there, so that a new reader's first pages come from the window); and never so far down
/// that entries may have run out.
pub(crate) fn window_start(reader: UserId, timeline: Option<TimelineDoc>, at: Timestamp) -> Uuid {
    let untrimmed = || ids::floor_at(reader.time().minus(BEFORE_REGISTRATION));
    let trimmed = timeline.map_or_else(untrimmed, |timeline| timeline.complete_since.into());
    trimmed.max(ids::floor_at(at.minus(ENTRY_LIVES.saturating_sub(RUN_OUT_MARGIN))))
}

/// The post as long as the claim on it stands.
fn held(post: &PostDoc) -> Document {
    let owner = post.delivery.lease.map(|lease| lease.owner);
    doc! { "_id": post.id, "delivery.lease.owner": owner, "state": "live" }
}

/// What the merger needs of a post.
#[derive(Debug, Deserialize)]
struct MergeDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    author: bson::Uuid,
    state: PostState,
    delivery: DeliveryState,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FollowerDoc {
    follower_id: bson::Uuid,
    state: FollowState,
}
