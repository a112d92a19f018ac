//! What accounts are told of what others do: how it is written ([`Store::tell`], [`Store::tell_together`]), taken back
//! ([`Store::untell`]) and read ([`list`]).
//!
//! Notices are written by the appliers, in the transaction that counts the act: an act is counted once, so it is told once, and what is
//! uncounted is taken back with its count. Comments, replies, mentions and requests are told one by one, fifty to a document (the bucket
//! pattern), under the id of the act. Likes and reposts of one post and follows of one day are told together: their notice holds no
//! actors, for the edges that are counted hold them already. It says that there is something to tell and where it stands in the list, so
//! that a batch of any size costs one small write, and what is taken back needs none.
//!
//! What is shown is decided when it is read: nothing of whom a block, a mute or a deletion hides, nothing about what is gone.

pub(crate) mod list;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::{Handle, NotificationId, Timestamp, UserId, ids, notifications::read_up_to};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Result, Store,
    bulk::Statement,
    collections::{
        NOTIFICATION_GROUPS, NOTIFICATION_MARKS, NOTIFICATIONS, USERS,
        notifications::{BUCKET_SIZE, KEPT},
    },
    error::is_duplicate_key,
    graph::IdDoc,
    reactions::Kind,
    store::{ANSWER, b, date, id_at, new_id, now, until_no_conflict},
};

/// Documents that one batch of a deletion removes.
const SWEEP: i64 = 500;

/// An act that is told by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SingleDoc {
    FollowRequest,
    FollowAccepted,
    Comment,
    Reply,
    Mention,
}

/// One item of a bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemDoc {
    /// What is told: the comment, the post or the edge.
    pub act: bson::Uuid,
    #[serde(rename = "type")]
    pub kind: SingleDoc,
    pub actor_id: bson::Uuid,
    /// Its place in the list.
    pub place: bson::Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_id: Option<bson::Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment_id: Option<bson::Uuid>,
}

/// Up to fifty items of one account.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketDoc {
    #[serde(rename = "_id")]
    pub id: bson::Uuid,
    pub user_id: bson::Uuid,
    pub bucket: i64,
    pub items: Vec<ItemDoc>,
    pub count: i32,
    pub first: bson::Uuid,
    pub last: bson::Uuid,
    pub at: bson::DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<bson::Uuid>,
}

/// Acts that are told together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TogetherDoc {
    Follow,
    Like,
    Repost,
}

/// The notice of acts that are told together.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupDoc {
    #[serde(rename = "type")]
    pub kind: TogetherDoc,
    pub place: bson::Uuid,
    pub target: Option<crate::reactions::TargetDoc>,
    pub target_id: Option<bson::Uuid>,
    pub first: Option<i64>,
    pub last: Option<i64>,
    pub count: Option<i64>,
}

/// What is to be told to one account of one act.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub recipient: UserId,
    pub kind: SingleDoc,
    pub actor: UserId,
    pub act: bson::Uuid,
    pub post: Option<bson::Uuid>,
    pub comment: Option<bson::Uuid>,
}

/// What is to be told to one account of many acts at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Together {
    /// Reactions to what the recipient wrote, counted at one time.
    Reactions { recipient: UserId, kind: Kind, to: bson::Uuid, at: Timestamp },
    /// Follows, counted at one time under these numbers.
    Follows { recipient: UserId, first: i64, last: i64, at: Timestamp },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user_id: bson::Uuid,
    bucket: i64,
    count: i32,
    last: bson::Uuid,
}

#[derive(Debug, Deserialize)]
struct GroupIdDoc {
    #[serde(rename = "_id")]
    id: String,
}

impl Together {
    pub(crate) fn recipient(self) -> UserId {
        match self {
            Self::Reactions { recipient, .. } | Self::Follows { recipient, .. } => recipient,
        }
    }

    fn id(self) -> String {
        match self {
            Self::Reactions { kind, to, .. } => reactions_id(kind, to),
            Self::Follows { recipient, at, .. } => follows_id(recipient, at),
        }
    }

    /// The statement that writes it: made where there is none, moved to the top where there is.
    fn statement(self) -> Statement {
        let (Self::Reactions { at, .. } | Self::Follows { at, .. }) = self;
        let mut fresh = doc! { "userId": b(self.recipient()) };
        let mut most = doc! { "place": b(id_at(at)), "at": date(at) };
        let mut add = Document::new();
        match self {
            Self::Reactions { kind, to, .. } => {
                let (name, target) = match kind {
                    Kind::PostLike => ("like", "post"),
                    Kind::CommentLike => ("like", "comment"),
                    Kind::Repost => ("repost", "post"),
                };
                fresh.extend(doc! { "type": name, "target": target, "targetId": to });
            }
            Self::Follows { first, last, .. } => {
                fresh.extend(doc! { "type": "follow", "first": first });
                most.insert("last", last);
                add.insert("count", last - first + 1);
            }
        }
        let mut update = doc! { "$setOnInsert": fresh, "$max": most };
        if !add.is_empty() {
            update.insert("$inc", add);
        }
        Statement::upsert(doc! { "_id": self.id() }, update)
    }
}

/// The notice of all reactions of one kind to a post or comment.
fn reactions_id(kind: Kind, to: bson::Uuid) -> String {
    match kind {
        Kind::PostLike | Kind::CommentLike => format!("like:{to}"),
        Kind::Repost => format!("repost:{to}"),
    }
}

/// The notice of the follows of one day.
fn follows_id(recipient: UserId, at: Timestamp) -> String {
    format!("follow:{recipient}:{}", &at.to_string()[..10])
}

impl Store {
    /// Writes what is told one by one, in the transaction that counts it. An act that may have been told before is taken back first
    /// ([`Store::untell`]).
    ///
    /// The items of one account go into its open bucket, and into new ones where that is full: one find, one update and one insert for
    /// any number of accounts. Two transactions that tell one account something write the same document, so that only one commits.
    pub(crate) async fn tell(&self, session: &mut ClientSession, told: &[Told]) -> Result<()> {
        if told.is_empty() {
            return Ok(());
        }
        let mut by_user: BTreeMap<UserId, Vec<&Told>> = BTreeMap::new();
        for one in told {
            by_user.entry(one.recipient).or_default().push(one);
        }
        let users: Vec<bson::Uuid> = by_user.keys().copied().map(b).collect();
        let fields = doc! { "userId": 1, "bucket": 1, "count": 1, "last": 1 };
        let buckets = self.coll::<OpenDoc>(NOTIFICATIONS);
        let mut found = buckets.find(doc! { "open": { "$in": users } }).projection(fields).session(&mut *session).await?;
        let found: Vec<OpenDoc> = found.stream(session).try_collect().await?;
        let mut open: HashMap<UserId, OpenDoc> = found.into_iter().map(|bucket| (UserId(bucket.user_id.into()), bucket)).collect();
        let (mut updates, mut inserts) = (Vec::new(), Vec::new());
        for (user, told) in by_user {
            let mut items: Vec<ItemDoc> = Vec::with_capacity(told.len());
            let mut last: Option<Uuid> = open.get(&user).map(|bucket| bucket.last.into());
            for one in told {
                // In order also where another process's clock is ahead, so that buckets do not overlap.
                let place = last.map_or(new_id(), |last| new_id().max(Uuid::from_u128(last.as_u128().saturating_add(1))));
                last = Some(place);
                items.push(one.item(place));
            }
            let open = open.remove(&user);
            let room = open.as_ref().map_or(0, |open| BUCKET_SIZE.saturating_sub(usize::try_from(open.count).unwrap_or(0)));
            let rest = items.split_off(items.len().min(room));
            let mut number = 0;
            if let Some(open) = open {
                number = open.bucket;
                let mut update = Document::new();
                if let Some(newest) = items.last() {
                    let at = date(ids::time_of(newest.place.into()));
                    update.insert("$set", doc! { "last": newest.place, "at": at });
                    update.insert("$inc", doc! { "count": as_i32(items.len()) });
                    let items = bson::serialize_to_bson(&items).map_err(mongodb::error::Error::from)?;
                    update.insert("$push", doc! { "items": { "$each": items } });
                }
                if !rest.is_empty() {
                    update.insert("$unset", doc! { "open": "" });
                }
                updates.push(Statement::update(doc! { "_id": open.id }, update));
            }
            let chunks = rest.chunks(BUCKET_SIZE);
            let newest = number + i64::try_from(chunks.len()).unwrap_or(0);
            for chunk in chunks {
                number += 1;
                inserts.extend(BucketDoc::new(user, number, chunk, number == newest));
            }
        }
        self.update_all(session, NOTIFICATIONS, updates).await?;
        if !inserts.is_empty() {
            self.coll::<BucketDoc>(NOTIFICATIONS).insert_many(inserts).session(session).await?;
        }
        Ok(())
    }

    /// Writes what is told together, in the transaction that counts it: one small document for each account and kind, however many acts.
    pub(crate) async fn tell_together(&self, session: &mut ClientSession, told: &[Together]) -> Result<()> {
        self.update_all(session, NOTIFICATION_GROUPS, told.iter().map(|told| told.statement()).collect()).await?;
        Ok(())
    }

    /// As [`Store::tell_together`], but only what goes with a notice that is there: for imports, which tell nobody anything.
    pub(crate) async fn tell_along(&self, session: &mut ClientSession, told: &[Together]) -> Result<()> {
        let ids: Vec<String> = told.iter().map(|told| told.id()).collect();
        let groups = self.coll::<GroupIdDoc>(NOTIFICATION_GROUPS);
        let these = doc! { "_id": { "$in": ids } };
        let mut found = groups.find(these).projection(doc! { "_id": 1 }).batch_size(ANSWER).session(&mut *session).await?;
        let there: HashSet<String> = found.stream(session).map_ok(|group| group.id).try_collect().await?;
        let told: Vec<Together> = told.iter().copied().filter(|told| there.contains(&told.id())).collect();
        self.tell_together(session, &told).await
    }

    /// Takes back what was told one by one of these acts, whomever it was told, in the transaction that uncounts them.
    pub(crate) async fn untell(&self, session: &mut ClientSession, acts: &[bson::Uuid]) -> Result<()> {
        if acts.is_empty() {
            return Ok(());
        }
        let (these, without) = taking_back(acts, None);
        self.coll::<Document>(NOTIFICATIONS).update_many(these, without).session(session).await?;
        Ok(())
    }

    /// As [`Store::untell`], of acts that are gone already.
    pub(crate) async fn untell_gone(&self, acts: &[bson::Uuid]) -> Result<()> {
        if acts.is_empty() {
            return Ok(());
        }
        let (these, without) = taking_back(acts, None);
        until_no_conflict(async || {
            let buckets = self.coll::<Document>(NOTIFICATIONS);
            Ok(buckets.update_many(these.clone(), without.clone()).await?)
        })
        .await?;
        Ok(())
    }

    /// Brings what is told of mentions up to date after an edit, in the transaction that changes the text: `act` is the post or comment,
    /// `told` what its text tells now, as its first text would have. Whoever is no longer named is no longer told; who was named before
    /// keeps the notice where it stands.
    ///
    /// Only for what is counted: what is not is told by whoever counts it, from the text that it has then.
    pub(crate) async fn retell_mentions(&self, session: &mut ClientSession, act: bson::Uuid, told: &[Told]) -> Result<()> {
        let fields = doc! { "_id": 0, "user": "$userId" };
        let buckets = self.coll::<UserPart>(NOTIFICATIONS);
        let mut found = buckets.find(doc! { "items.act": act }).projection(fields).session(&mut *session).await?;
        let before: HashSet<UserId> = found.stream(session).map_ok(|part| UserId(part.user.into())).try_collect().await?;
        let named: HashSet<UserId> = told.iter().map(|one| one.recipient).collect();
        let no_longer: Vec<bson::Uuid> = before.difference(&named).copied().map(b).collect();
        if !no_longer.is_empty() {
            let (mut these, without) = taking_back(&[act], Some("mention"));
            these.insert("userId", doc! { "$in": no_longer });
            self.coll::<Document>(NOTIFICATIONS).update_many(these, without).session(&mut *session).await?;
        }
        let fresh: Vec<Told> = told.iter().copied().filter(|one| !before.contains(&one.recipient)).collect();
        self.tell(session, &fresh).await
    }

    /// Takes follows, counted at these times, out of the notices of their days, in the transaction that uncounts them.
    pub(crate) async fn untell_follows(&self, session: &mut ClientSession, follows: &[(UserId, Timestamp)]) -> Result<()> {
        let oldest = now().minus(KEPT);
        let mut less: BTreeMap<String, i64> = BTreeMap::new();
        for (followee, at) in follows.iter().filter(|(_, at)| *at >= oldest) {
            *less.entry(follows_id(*followee, *at)).or_default() -= 1;
        }
        if less.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = less.keys().cloned().collect();
        // Follows of that day that were counted before there was a notice are not in it; none is below zero for them.
        let statements = less.into_iter().map(|(id, less)| {
            let left = doc! { "$max": [0, { "$add": ["$count", less] }] };
            Statement::update_many(doc! { "_id": id }, vec![doc! { "$set": { "count": left } }])
        });
        if self.update_all(session, NOTIFICATION_GROUPS, statements.collect()).await? > 0 {
            let over = doc! { "_id": { "$in": ids }, "count": 0 };
            self.coll::<Document>(NOTIFICATION_GROUPS).delete_many(over).session(session).await?;
        }
        Ok(())
    }

    /// Takes back what was told together of reactions to these, in the transaction that takes the last of them back.
    pub(crate) async fn untell_reactions(&self, session: &mut ClientSession, kind: Kind, to: &[bson::Uuid]) -> Result<()> {
        let ids: Vec<String> = to.iter().map(|to| reactions_id(kind, *to)).collect();
        let these = doc! { "_id": { "$in": ids } };
        self.coll::<Document>(NOTIFICATION_GROUPS).delete_many(these).session(session).await?;
        Ok(())
    }

    /// As [`Store::untell_reactions`], of all reactions to posts or comments that are gone.
    pub(crate) async fn untell_reactions_to_gone(&self, to: &[bson::Uuid]) -> Result<()> {
        let ids: Vec<String> =
            [Kind::PostLike, Kind::Repost].into_iter().flat_map(|kind| to.iter().map(move |to| reactions_id(kind, *to))).collect();
        until_no_conflict(async || {
            let these = doc! { "_id": { "$in": &ids } };
            Ok(self.coll::<Document>(NOTIFICATION_GROUPS).delete_many(these).await?)
        })
        .await?;
        Ok(())
    }

    /// Says, after the commit, that something was written for these accounts to be told: the one place from which whoever waits for
    /// notices hears of them. A hint, as all of [`crate::store::Wake`]: who misses it reads.
    pub(crate) fn announce(&self, recipients: impl IntoIterator<Item = UserId>) {
        if recipients.into_iter().next().is_some() {
            self.wake().notices.notify_waiters();
        }
    }

    /// The live accounts that have these handles.
    pub(crate) async fn accounts_named(&self, handles: &HashSet<Handle>) -> Result<HashMap<Handle, UserId>> {
        #[derive(Debug, Deserialize)]
        struct NamedDoc {
            #[serde(rename = "_id")]
            id: bson::Uuid,
            handle: String,
        }
        if handles.is_empty() {
            return Ok(HashMap::new());
        }
        let named: Vec<&str> = handles.iter().map(Handle::as_str).collect();
        let these = doc! { "handle": { "$in": named }, "state": "live" };
        let found = self.coll::<NamedDoc>(USERS).find(these).projection(doc! { "handle": 1 }).batch_size(ANSWER).await?;
        Ok(found.map_ok(|user| (Handle::from_stored(user.handle), UserId(user.id.into()))).try_collect().await?)
    }

    /// Notes that an account has read everything up to a place, and with it what stands there. Reading never goes backwards.
    pub async fn read_notifications(&self, user: UserId, up_to: NotificationId) -> Result<()> {
        let up_to = b(read_up_to(up_to.0, now()));
        let marks = self.coll::<Document>(NOTIFICATION_MARKS);
        let mark = doc! { "$max": { "upTo": up_to } };
        until_no_conflict(async || {
            match marks.update_one(doc! { "_id": b(user) }, mark.clone()).upsert(true).await {
                Ok(_) => Ok(()),
                // Two first calls: the other one made it.
                Err(error) if is_duplicate_key(&error) => {
                    marks.update_one(doc! { "_id": b(user) }, mark.clone()).await?;
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Removes some of what an account was told, for its deletion, and says how many documents that were.
    pub(crate) async fn sweep_notifications_of(&self, user: UserId) -> Result<usize> {
        let own = doc! { "userId": b(user) };
        let buckets = self.coll::<IdDoc>(NOTIFICATIONS);
        let found = buckets.find(own.clone()).limit(SWEEP).batch_size(ANSWER).projection(doc! { "_id": 1 }).await?;
        let found: Vec<bson::Uuid> = found.map_ok(|bucket| bucket.id).try_collect().await?;
        let groups = self.coll::<GroupIdDoc>(NOTIFICATION_GROUPS);
        let together = groups.find(own).limit(SWEEP).batch_size(ANSWER).projection(doc! { "_id": 1 }).await?;
        let together: Vec<String> = together.map_ok(|group| group.id).try_collect().await?;
        until_no_conflict(async || {
            buckets.delete_many(doc! { "_id": { "$in": &found } }).await?;
            groups.delete_many(doc! { "_id": { "$in": &together } }).await?;
            Ok(self.coll::<Document>(NOTIFICATION_MARKS).delete_one(doc! { "_id": b(user) }).await?)
        })
        .await?;
        Ok(found.len() + together.len())
    }
}

#[derive(Debug, Deserialize)]
struct UserPart {
    user: bson::Uuid,
}

impl Told {
    /// That `actor` names somebody in a post, or in a comment under it.
    pub(crate) fn mention(
        recipient: UserId,
        actor: UserId,
        act: bson::Uuid,
        post: Option<bson::Uuid>,
        comment: Option<bson::Uuid>,
    ) -> Self {
        Self { recipient, kind: SingleDoc::Mention, actor, act, post, comment }
    }

    fn item(&self, place: Uuid) -> ItemDoc {
        ItemDoc {
            act: self.act,
            kind: self.kind,
            actor_id: b(self.actor),
            place: b(place),
            post_id: self.post,
            comment_id: self.comment,
        }
    }
}

impl BucketDoc {
    /// A new bucket with these items; none without items.
    fn new(user: UserId, number: i64, items: &[ItemDoc], open: bool) -> Option<Self> {
        let (first, last) = (items.first()?.place, items.last()?.place);
        Some(Self {
            id: b(new_id()),
            user_id: b(user),
            bucket: number,
            items: items.to_vec(),
            count: as_i32(items.len()),
            first,
            last,
            at: date(ids::time_of(last.into())),
            open: open.then(|| b(user)),
        })
    }
}

/// The buckets that hold notices of these acts (of one kind), and the stages that take them out and count what is left.
fn taking_back(acts: &[bson::Uuid], kind: Option<&str>) -> (Document, Vec<Document>) {
    let mut gone = doc! { "$in": ["$$item.act", acts] };
    if let Some(kind) = kind {
        gone = doc! { "$and": [gone, { "$eq": ["$$item.type", kind] }] };
    }
    let left = doc! { "$filter": { "input": "$items", "as": "item", "cond": { "$not": [gone] } } };
    let stages = vec![doc! { "$set": { "items": left } }, doc! { "$set": { "count": { "$size": "$items" } } }];
    (doc! { "items.act": { "$in": acts } }, stages)
}

fn as_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
