//! Timelines: fan-out on write, and the window that each reader's entries make.
//!
//! A post is its own fan-out job, and so is a repost: a worker claims it with a lease, reads the edges of who made it after it is
//! committed, and enters it into the followers' windows batch by batch ([`Store::deliver_step`]). An entry is a hint without content, one per act: entering it twice is
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
    collections::{FOLLOWS, POSTS, REPOSTS, TIMELINE_ENTRIES, TIMELINES, USERS, timelines::ENTRY_LIVES},
    graph::{FollowDoc, FollowState, IdDoc},
    pending::Progress,
    posts::{DeliveryDoc, DeliveryState, PostDoc, PostState},
    reactions::reposts::RepostDoc,
    store::{ANSWER, b, date, now},
};

/// Entries in one insert. Some 20 ms on the embedded database; the memory of a fan-out is one batch, whatever the number of followers.
const BATCH: i64 = 1_000;

/// Batches that a worker delivers of one post before it takes the next: a large fan-out goes to the back of the queue, and does not
/// hold up the small ones behind it.
const TURN: usize = 5;

/// Followees of one reader whose posts are merged together: branches of one query.
const FOLLOWEES: usize = 100;

/// Posts, and reposts, that one step delivers side by side.
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

impl NewEntryDoc {
    fn new(owner: bson::Uuid, act: Act) -> Self {
        Self { owner_id: owner, post_id: b(act.post), actor_id: b(act.actor), slot: b(act.slot), at: date(ids::time_of(act.slot)) }
    }
}

/// One act in a reader's window.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryDoc {
    pub post_id: bson::Uuid,
    pub actor_id: bson::Uuid,
    pub slot: bson::Uuid,
}

impl From<EntryDoc> for Act {
    fn from(entry: EntryDoc) -> Self {
        Self { slot: entry.slot.into(), post: PostId(entry.post_id.into()), actor: UserId(entry.actor_id.into()) }
    }
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

/// A post or a repost that is being delivered.
#[derive(Debug, Clone)]
pub(crate) struct Fanout {
    /// The collection of its document.
    name: &'static str,
    pub act: Act,
    pub delivery: DeliveryDoc,
}

impl From<PostDoc> for Fanout {
    fn from(post: PostDoc) -> Self {
        Self { name: POSTS, act: Act::post(PostId(post.id.into()), post.author_id()), delivery: post.delivery }
    }
}

impl From<RepostDoc> for Fanout {
    fn from(repost: RepostDoc) -> Self {
        Self { name: REPOSTS, act: repost.act(), delivery: repost.delivery }
    }
}

impl Fanout {
    /// Its document as long as the claim on it stands.
    fn held(&self) -> Document {
        let owner = self.delivery.lease.map(|lease| lease.owner);
        doc! { "_id": b(self.act.slot), "delivery.lease.owner": owner, "state": wanted(self.name) }
    }
}

/// How a turn of one fan-out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Every follower has it.
    Done,
    /// There are more followers.
    More,
    /// Somebody else has it now, or it was deleted.
    Lost,
}

impl Store {
    /// One round of a fan-out worker: claims a few posts and delivers a turn of each. The number is that of entries.
    pub async fn deliver_step(&self) -> Result<Progress> {
        let mut claimed = Vec::new();
        // Some of each, so that neither waits for the other.
        for name in [POSTS, REPOSTS] {
            for _ in 0..SIDE_BY_SIDE {
                let Some(next) = self.claim(name).await? else { break };
                claimed.push(next);
            }
        }
        if claimed.is_empty() {
            return Ok(Progress::Idle);
        }
        // Each for itself: a fault with one holds up nobody else.
        let (mut entered, mut fault) = (0, None);
        for (fanout, delivered) in claimed.iter().zip(join_all(claimed.iter().map(|fanout| self.deliver(fanout))).await) {
            match delivered {
                Ok(entries) => entered += entries,
                Err(error) => {
                    self.back_off(fanout).await?;
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
    async fn back_off(&self, fanout: &Fanout) -> Result<()> {
        let attempts = fanout.delivery.attempts;
        let next = if attempts >= ATTEMPTS {
            metrics::counter!("fanout_parked_total").increment(1);
            tracing::error!(act = %fanout.act.slot, attempts, "a fan-out is parked: readers go on pulling the post");
            doc! { "$unset": { "delivery.lease": "", "delivery.runAfter": "" } }
        } else {
            let pause_ms = BACKOFF_MS.saturating_mul(1 << attempts.clamp(0, 16)).min(CLAIM_MS.unsigned_abs());
            doc! {
                "$set": { "delivery.runAfter": date(now().plus(Duration::from_millis(pause_ms))) },
                "$unset": { "delivery.lease": "" },
            }
        };
        self.coll::<Document>(fanout.name).update_one(fanout.held(), next).await?;
        Ok(())
    }

    /// Claims the post that has waited longest.
    #[cfg(test)]
    pub(crate) async fn claim_post(&self) -> Result<Option<Fanout>> {
        self.claim(POSTS).await
    }

    /// Claims the post or repost that has waited longest. The claim is in `runAfter` too: what a crashed worker had comes up again by
    /// itself.
    async fn claim(&self, name: &'static str) -> Result<Option<Fanout>> {
        let at = now();
        let until = at.plus(Duration::from_millis(CLAIM_MS.unsigned_abs()));
        let due = doc! { "delivery.state": "pending", "delivery.runAfter": { "$lte": date(at) }, "state": wanted(name) };
        let claim = doc! {
            "$set": { "delivery.lease": { "owner": bson::Uuid::new(), "until": date(until) }, "delivery.runAfter": date(until) },
            "$inc": { "delivery.attempts": 1 },
        };
        let oldest = doc! { "delivery.runAfter": 1 };
        if name == POSTS {
            let posts = self.coll::<PostDoc>(name);
            let claimed = posts.find_one_and_update(due, claim).sort(oldest).return_document(ReturnDocument::After).await?;
            return Ok(claimed.map(Fanout::from));
        }
        let reposts = self.coll::<RepostDoc>(name);
        let claimed = reposts.find_one_and_update(due, claim).sort(oldest).return_document(ReturnDocument::After).await?;
        Ok(claimed.map(Fanout::from))
    }

    /// Delivers one turn of what is claimed. Gives the number of entries.
    async fn deliver(&self, fanout: &Fanout) -> Result<usize> {
        let mut entered = 0;
        let turn = self.deliver_turn(fanout, &mut entered).await;
        metrics::counter!("fanout_entries_total").increment(entered as u64);
        self.end_turn(fanout, turn?).await?;
        Ok(entered)
    }

    /// Notes on the document how its turn ended, if the claim still stands.
    pub(crate) async fn end_turn(&self, fanout: &Fanout, turn: Turn) -> Result<()> {
        let next = match turn {
            Turn::Done => {
                let lag = now().since(ids::time_of(fanout.act.slot));
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
        self.coll::<Document>(fanout.name).update_one(fanout.held(), next).await?;
        Ok(())
    }

    async fn deliver_turn(&self, fanout: &Fanout, entered: &mut usize) -> Result<Turn> {
        let actor = b(fanout.act.actor);
        let mut next = if let Some(seq) = fanout.delivery.cursor {
            seq + 1
        } else {
            // The edges without a `seq` first: one that gets its `seq` meanwhile is found again above.
            let owners = self.pending_owners(actor).await?;
            for owners in owners.chunks(usize::try_from(BATCH).unwrap_or(1)) {
                *entered += self.enter(owners, fanout.act).await?;
            }
            1
        };
        for _ in 0..TURN {
            // Read before the edges: a follower counted later was pending when this turn began, or follows a post that was there already.
            let last = self.follower_seq(actor).await?;
            if next > last {
                return Ok(Turn::Done);
            }
            let owners = self.counted_owners(actor, next).await?;
            *entered += self.enter(&owners, fanout.act).await?;
            next += BATCH;
            if next > last {
                return Ok(Turn::Done);
            }
            if !self.advance(fanout, next - 1).await? {
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
    pub(crate) async fn advance(&self, fanout: &Fanout, cursor: i64) -> Result<bool> {
        let until = date(now().plus(Duration::from_millis(CLAIM_MS.unsigned_abs())));
        let set = doc! { "$set": { "delivery.cursor": cursor, "delivery.lease.until": until, "delivery.runAfter": until } };
        Ok(self.coll::<Document>(fanout.name).update_one(fanout.held(), set).await?.matched_count == 1)
    }

    /// Enters one act into windows. Entering it again is a no-op.
    pub(crate) async fn enter(&self, owners: &[bson::Uuid], act: Act) -> Result<usize> {
        self.insert_entries(owners.iter().map(|owner| NewEntryDoc::new(*owner, act)).collect()).await
    }

    async fn insert_entries(&self, entries: Vec<NewEntryDoc>) -> Result<usize> {
        if entries.is_empty() {
            return Ok(0);
        }
        // What is there was entered by an earlier attempt, or is of a repost of the same post that was taken back since: its entry
        // becomes the new one's. Never the other way round, for a slow fan-out may still be entering the old one.
        let there = self.insert_unless_there(TIMELINE_ENTRIES, &entries).await?;
        let reposts = there.into_iter().filter_map(|at| entries.get(at)).filter(|entry| entry.slot != entry.post_id);
        let again: Vec<&NewEntryDoc> = reposts.collect();
        let mut by_act: HashMap<Act, Vec<bson::Uuid>> = HashMap::new();
        for entry in &again {
            let act = Act { slot: entry.slot.into(), post: PostId(entry.post_id.into()), actor: UserId(entry.actor_id.into()) };
            by_act.entry(act).or_default().push(entry.owner_id);
        }
        let mut left = false;
        for (Act { slot, post, actor }, owners) in by_act {
            let all = owners.len() as u64;
            let older = doc! { "ownerId": { "$in": owners }, "postId": b(post), "actorId": b(actor), "slot": { "$lt": b(slot) } };
            let newer = doc! { "$set": { "slot": b(slot), "at": date(ids::time_of(slot)) } };
            left |= self.coll::<Document>(TIMELINE_ENTRIES).update_many(older, newer).await?.matched_count < all;
        }
        if left {
            // A reader may have dropped the older one between the two; of the others this is a no-op.
            self.insert_unless_there(TIMELINE_ENTRIES, &again).await?;
        }
        Ok(entries.len())
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
        // Followees who never posted or reposted need no reading. Posts not counted yet are asked for first: one that is counted between the two
        // reads is seen by the second.
        let followees: HashSet<bson::Uuid> = edges.iter().map(|edge| edge.followee_id).collect();
        let uncounted = self.authors_with_uncounted_posts().await?;
        let silent = doc! { "_id": { "$in": followees.into_iter().collect::<Vec<_>>() }, "postSeq": 0, "repostsSince": { "$exists": false } };
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

    /// A batch of the followees' posts and reposts, oldest first, from a slot on; but for those that are pulled for good, which stay
    /// pulled. The second value is where the next batch begins, if there may be one.
    pub(crate) async fn acts_to_merge(&self, edges: &[FollowDoc], from: Uuid) -> Result<(Vec<Act>, Option<Uuid>)> {
        let fields = doc! { "actor": "$author.userId", "post": "$_id", "state": 1, "delivery": "$delivery.state" };
        let posts = self.some_to_merge(POSTS, "author.userId", fields, edges, from);
        let fields = doc! { "actor": "$userId", "post": "$postId", "author": "$authorId", "delivery": "$delivery.state" };
        let reposts = self.some_to_merge(REPOSTS, "userId", fields, edges, from);
        let ((posts, posts_end), (reposts, reposts_end)) = futures::try_join!(posts, reposts)?;
        // Where one of the two was cut short, the other knows more than it does.
        let next = posts_end.into_iter().chain(reposts_end).min();
        // A repost that is taken back, and not applied yet, may be wanted again as it is; one of one's own post goes to nobody.
        let wanted = |doc: &MergeDoc| {
            doc.state != Some(PostState::Deleted) && doc.delivery != DeliveryState::Pull && doc.author != Some(doc.actor)
        };
        let acts = posts.into_iter().chain(reposts).filter(wanted).map(|doc| Act {
            slot: doc.id.into(),
            post: PostId(doc.post.into()),
            actor: UserId(doc.actor.into()),
        });
        let mut acts: Vec<Act> = acts.filter(|act| next.is_none_or(|next| act.slot < next)).collect();
        acts.sort_unstable_by_key(|act| act.slot);
        Ok((acts, next))
    }

    /// The followees' documents in one collection from an id on, and where the next batch begins, if there may be one.
    async fn some_to_merge(
        &self,
        name: &str,
        actor: &str,
        fields: Document,
        edges: &[FollowDoc],
        from: Uuid,
    ) -> Result<(Vec<MergeDoc>, Option<Uuid>)> {
        let branch = |edge: &FollowDoc| doc! { actor: edge.followee_id, "_id": { "$gte": b(from) } };
        let branches: Vec<Document> = edges.iter().map(branch).collect();
        let acts = self.coll::<MergeDoc>(name);
        let found = acts.find(doc! { "$or": branches }).sort(doc! { "_id": 1 }).limit(BATCH).batch_size(ANSWER);
        let found: Vec<MergeDoc> = found.projection(fields).await?.try_collect().await?;
        let full = i64::try_from(found.len()) == Ok(BATCH);
        let next = found.last().filter(|_| full).map(|last| Uuid::from_u128(Uuid::from(last.id).as_u128() + 1));
        Ok((found, next))
    }

    /// Enters acts of followees into the follower's window.
    pub(crate) async fn merge_acts(&self, follower: UserId, acts: &[Act]) -> Result<usize> {
        self.insert_entries(acts.iter().map(|act| NewEntryDoc::new(b(follower), *act)).collect()).await
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

    /// Removes entries of reposts that are gone for good.
    pub(crate) async fn drop_acts(&self, reader: UserId, acts: &[Act]) -> Result<()> {
        // By the slot too: a newer repost of the same post may have taken the entry over meanwhile.
        for act in acts {
            let dead = doc! {
                "ownerId": b(reader), "postId": b(act.post), "actorId": b(act.actor), "slot": b(act.slot),
            };
            self.coll::<EntryDoc>(TIMELINE_ENTRIES).delete_one(dead).await?;
        }
        Ok(())
    }

    /// A reader's entries of some posts: one for each account that brought one of them.
    pub(crate) async fn entries_of(&self, reader: UserId, posts: &[PostId]) -> Result<Vec<EntryDoc>> {
        let posts: Vec<bson::Uuid> = posts.iter().copied().map(b).collect();
        let these = doc! { "ownerId": b(reader), "postId": { "$in": posts } };
        let entries = self.coll::<EntryDoc>(TIMELINE_ENTRIES);
        let found = entries.find(these).batch_size(ANSWER);
        Ok(found.projection(doc! { "_id": 0, "postId": 1, "actorId": 1, "slot": 1 }).await?.try_collect().await?)
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

    /// How many posts and reposts wait for delivery, and how many of them are parked.
    pub async fn fanout_backlog(&self) -> Result<(u64, u64)> {
        let (mut waiting, mut parked) = (0, 0);
        for name in [POSTS, REPOSTS] {
            let acts = self.coll::<Document>(name);
            waiting += acts.count_documents(doc! { "delivery.state": "pending" }).await?;
            parked += acts.count_documents(doc! { "delivery.state": "pending", "delivery.runAfter": { "$exists": false } }).await?;
        }
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

/// The state of what is to be delivered from a collection.
fn wanted(name: &str) -> &'static str {
    if name == POSTS { "live" } else { "active" }
}

/// What the merger needs of a post or a repost.
#[derive(Debug, Deserialize)]
struct MergeDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    actor: bson::Uuid,
    post: bson::Uuid,
    /// Of a repost: whose post it is.
    author: Option<bson::Uuid>,
    /// Of a post.
    state: Option<PostState>,
    delivery: DeliveryState,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FollowerDoc {
    follower_id: bson::Uuid,
    state: FollowState,
}
