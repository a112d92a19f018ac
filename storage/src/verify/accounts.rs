//! Accounts: their counters against the edges and posts that they count, and what readers must pull of their posts.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use rookery_domain::UserId;
use serde::Deserialize;

use super::{Drift, DriftKind, Numbers, next_up_to, stream};
use crate::{
    Result, Store,
    collections::{BLOCKS, FOLLOWS, POSTS, USERS},
    graph::{FollowDoc, IdDoc},
    posts::{DeliveryDoc, DeliveryState, PostState},
    users::CountersDoc,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    counters: CountersDoc,
    follower_seq: i64,
    post_seq: i64,
    pulled_since: Option<bson::DateTime>,
}

/// One end of an edge.
#[derive(Debug, Deserialize)]
struct End {
    user: bson::Uuid,
    seq: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct PostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    state: PostState,
    seq: Option<i64>,
    delivery: DeliveryDoc,
}

impl PostPart {
    fn fields() -> Document {
        doc! { "user": "$author.userId", "state": 1, "seq": 1, "delivery": 1 }
    }

    /// What is wrong with the way in which the post comes to its readers, where `pulled` says that they pull from its author for good.
    fn undelivered(&self, pulled: bool) -> Option<DriftKind> {
        let delivery = &self.delivery;
        match delivery.state {
            _ if self.state != PostState::Live => None,
            DeliveryState::Delivered => None,
            _ if delivery.pull != Some(self.user) => Some(DriftKind::NotPulled),
            DeliveryState::Pull => (!pulled).then_some(DriftKind::NotPulled),
            DeliveryState::Pending => delivery.run_after.is_none().then_some(DriftKind::ParkedFanout),
        }
    }
}

/// Accounts, edges and posts side by side, in one pass; edges and posts without an account give the account that is not there.
pub(super) async fn check(store: &Store) -> Result<Vec<Drift>> {
    let (mut suspects, mut drift) = (Vec::new(), Vec::new());
    let fields = doc! { "counters": 1, "followerSeq": 1, "postSeq": 1, "pulledSince": 1 };
    let mut users = stream::<AccountDoc>(store, USERS, doc! {}, doc! { "_id": 1 }, fields).await?;
    let end = |user: &str| doc! { "_id": 0, "user": user, "seq": 1 };
    let by_followee = doc! { "followeeId": 1, "seq": -1 };
    let mut to = stream::<End>(store, FOLLOWS, doc! {}, by_followee, end("$followeeId")).await?;
    let by_follower = doc! { "followerId": 1, "followeeId": 1 };
    let mut from = stream::<End>(store, FOLLOWS, doc! {}, by_follower, end("$followerId")).await?;
    let by_author = doc! { "author.userId": 1, "_id": -1 };
    let mut posts = stream::<PostPart>(store, POSTS, doc! {}, by_author, PostPart::fields()).await?;
    while let Some(account) = users.try_next().await? {
        let (mut followers, mut last, mut seqs_fit) = (0, account.follower_seq + 1, true);
        while let Some(end) = next_up_to(&mut to, |end| end.user, account.id).await? {
            if end.user != account.id {
                suspects.push(end.user);
            } else if let Some(seq) = end.seq {
                followers += 1;
                seqs_fit &= seq < last;
                last = seq;
            }
        }
        let mut following = 0;
        while let Some(end) = next_up_to(&mut from, |end| end.user, account.id).await? {
            if end.user != account.id {
                suspects.push(end.user);
            } else if end.seq.is_some() {
                following += 1;
            }
        }
        let (mut written, mut last) = (0, account.post_seq + 1);
        while let Some(post) = next_up_to(&mut posts, |post| post.user, account.id).await? {
            if post.user != account.id {
                suspects.push(post.user);
                continue;
            }
            if let Some(seq) = post.seq {
                written += 1;
                // Posts that were made side by side may be numbered in another order: then the second look tells.
                seqs_fit &= seq < last;
                last = seq;
            }
            if post.undelivered(account.pulled_since.is_some()).is_some() {
                drift.extend(recheck_delivery(store, post.id).await?);
            }
        }
        let counters = account.counters;
        if !seqs_fit || (followers, following, written) != (counters.followers, counters.following, counters.posts) {
            suspects.push(account.id);
        }
    }
    for rest in [to, from] {
        suspects.extend(rest.map_ok(|end| end.user).try_collect::<Vec<_>>().await?);
    }
    suspects.extend(posts.map_ok(|post| post.user).try_collect::<Vec<_>>().await?);
    suspects.sort_unstable_by_key(|user| user.bytes());
    suspects.dedup();
    for user in suspects {
        drift.extend(recheck(store, user).await?);
    }
    Ok(drift)
}

/// Counts what belongs to one account in a snapshot.
async fn recheck(store: &Store, user: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let account = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).session(&mut session).await?;
    let last = account.as_ref().map_or((i64::MAX, i64::MAX), |account| (account.follower_seq, account.post_seq));
    let ends = |user: &str| doc! { "_id": 0, "user": user, "seq": 1 };
    let to = count(store, &mut session, FOLLOWS, doc! { "followeeId": user }, ends("$followeeId"), last.0).await?;
    let from = count(store, &mut session, FOLLOWS, doc! { "followerId": user }, ends("$followerId"), i64::MAX).await?;
    // A post whose author is gone is withdrawn by the applier.
    let posts = if account.is_some() {
        doc! {}
    } else {
        doc! { "pending": { "$exists": false } }
    };
    let posts = [doc! { "author.userId": user }, posts].into_iter().flatten().collect();
    let posts = count(store, &mut session, POSTS, posts, ends("$author.userId"), last.1).await?;

    let mut drift = Vec::new();
    let mut report = |kind, detail| drift.push(Drift { kind, subject: user.into(), detail });
    let Some(AccountDoc { counters, .. }) = account else {
        if to.all + from.all > 0 {
            report(DriftKind::OrphanEdge, format!("{} edges to and {} from an account that does not exist", to.all, from.all));
        }
        if posts.all > 0 {
            report(DriftKind::OrphanPost, format!("{} posts of an account that does not exist", posts.all));
        }
        return Ok(drift);
    };
    for (kind, counter, found) in [
        (DriftKind::FollowerCount, counters.followers, to.with_seq),
        (DriftKind::FollowingCount, counters.following, from.with_seq),
        (DriftKind::PostCount, counters.posts, posts.with_seq),
    ] {
        if counter != found {
            report(kind, format!("counter {counter}, with a seq {found}"));
        }
    }
    for (kind, wrong, last) in
        [(DriftKind::FollowerSeq, to.numbers.wrong, last.0), (DriftKind::PostSeq, posts.numbers.wrong, last.1)]
    {
        if let Some(seq) = wrong {
            report(kind, format!("seq {seq} twice or beyond {last}"));
        }
    }
    Ok(drift)
}

/// What was counted of one kind of child.
struct Counted {
    all: usize,
    with_seq: i64,
    numbers: Numbers,
}

async fn count(
    store: &Store,
    session: &mut ClientSession,
    name: &str,
    filter: Document,
    fields: Document,
    last: i64,
) -> Result<Counted> {
    let mut counted = Counted { all: 0, with_seq: 0, numbers: Numbers::default() };
    let mut found = store.coll::<End>(name).find(filter).projection(fields).session(&mut *session).await?;
    let mut stream = found.stream(session);
    while let Some(end) = stream.try_next().await? {
        counted.all += 1;
        if let Some(seq) = end.seq {
            counted.with_seq += 1;
            // Of the edges from an account each has the number of another account.
            if last != i64::MAX {
                counted.numbers.take(seq, last);
            }
        }
    }
    Ok(counted)
}

async fn recheck_delivery(store: &Store, post: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let posts = store.coll::<PostPart>(POSTS);
    let find = posts.find_one(doc! { "_id": post }).projection(PostPart::fields());
    let Some(post) = find.session(&mut session).await? else { return Ok(None) };
    let pulled = doc! { "_id": post.user, "pulledSince": { "$exists": true } };
    let pulled = store.coll::<Document>(USERS).find_one(pulled).session(&mut session).await?.is_some();
    let detail = |kind| match kind {
        DriftKind::ParkedFanout => format!("parked after {} attempts", post.delivery.attempts),
        _ => format!("{:?}, pulled from {:?}, from its author for good: {pulled}", post.delivery.state, post.delivery.pull),
    };
    Ok(post.undelivered(pulled).map(|kind| Drift { kind, subject: post.id.into(), detail: detail(kind) }))
}

/// Blocks whose sweep is done against the edges between the two.
pub(super) async fn check_blocks(store: &Store) -> Result<Vec<Drift>> {
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct BlockPart {
        blocker_id: bson::Uuid,
        blocked_id: bson::Uuid,
    }
    let mut drift = Vec::new();
    let swept = doc! { "pending": { "$exists": false } };
    let fields = doc! { "_id": 0, "blockerId": 1, "blockedId": 1 };
    let mut blocks = stream::<BlockPart>(store, BLOCKS, swept.clone(), doc! { "blockerId": 1, "blockedId": 1 }, fields).await?;
    while let Some(BlockPart { blocker_id, blocked_id }) = blocks.try_next().await? {
        // An edge that is pending under a block is withdrawn by the applier.
        let edge = |follower: bson::Uuid, followee: bson::Uuid| {
            doc! { "followerId": follower, "followeeId": followee, "state": "active", "pending": { "$exists": false } }
        };
        let between = doc! { "$or": [edge(blocker_id, blocked_id), edge(blocked_id, blocker_id)] };
        if store.coll::<IdDoc>(FOLLOWS).find_one(between.clone()).projection(doc! { "_id": 1 }).await?.is_none() {
            continue;
        }
        let mut session = store.begin().await?;
        let mut block = swept.clone();
        block.extend(doc! { "blockerId": blocker_id, "blockedId": blocked_id });
        let stands = store.coll::<Document>(BLOCKS).find_one(block).session(&mut session).await?.is_some();
        let edge = store.coll::<FollowDoc>(FOLLOWS).find_one(between).session(&mut session).await?;
        if let Some(edge) = edge.filter(|_| stands) {
            let detail = format!("{} follows {} across a block", edge.follower(), edge.followee());
            drift.push(Drift { kind: DriftKind::BlockedEdge, subject: UserId(blocker_id.into()).0, detail });
        }
    }
    Ok(drift)
}

/// Requests against the accounts that they are made to, in the order of the accounts.
pub(super) async fn check_requests(store: &Store) -> Result<Vec<Drift>> {
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RequestPart {
        #[serde(rename = "_id")]
        id: bson::Uuid,
        request_of: bson::Uuid,
        seq: Option<i64>,
    }
    let (mut drift, mut asked) = (Vec::new(), None);
    let requests = doc! { "requestOf": { "$exists": true } };
    let fields = doc! { "requestOf": 1, "seq": 1 };
    let mut requests = stream::<RequestPart>(store, FOLLOWS, requests, doc! { "requestOf": 1, "wish": -1 }, fields).await?;
    while let Some(request) = requests.try_next().await? {
        let waits = doc! { "_id": request.request_of, "settings.private": true };
        let private = match asked {
            Some((user, private)) if user == request.request_of => private,
            _ => store.coll::<Document>(USERS).find_one(waits.clone()).await?.is_some(),
        };
        asked = Some((request.request_of, private));
        if private && request.seq.is_none() {
            continue;
        }
        let mut session = store.begin().await?;
        let stands = doc! { "_id": request.id, "state": "requested", "pending": { "$exists": false } };
        let stands = store.coll::<FollowDoc>(FOLLOWS).find_one(stands).session(&mut session).await?;
        // Whoever has gone public is still accepting.
        let waits = doc! { "_id": request.request_of, "$or": [{ "settings.private": true }, { "opening": { "$gte": 1 } }] };
        let waits = store.coll::<Document>(USERS).find_one(waits).session(&mut session).await?.is_some();
        if let Some(edge) = stands.filter(|edge| !waits || edge.seq.is_some()) {
            let detail =
                format!("{} asks {}, which waits for requests: {waits}; seq {:?}", edge.follower(), edge.followee(), edge.seq);
            drift.push(Drift { kind: DriftKind::StrayRequest, subject: request.id.into(), detail });
        }
    }
    Ok(drift)
}
