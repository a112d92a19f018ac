//! Accounts: their counters against the edges and posts that they count, and what readers must pull of their posts.

use bson::{Document, doc};
use futures::TryStreamExt as _;
use mongodb::ClientSession;
use serde::Deserialize;

use super::{Drift, DriftKind, Numbers, Pass, Place, lowest};
use crate::{
    Result, Store,
    collections::{FOLLOWS, POSTS, REPOSTS, USERS},
    graph::FollowState,
    posts::{DeliveryDoc, DeliveryState, PostState},
    reactions::EdgeState,
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
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    state: FollowState,
    seq: Option<i64>,
    pending: Option<bool>,
}

impl End {
    fn fields(user: &str) -> Document {
        doc! { "user": format!("${user}"), "state": 1, "seq": 1, "pending": 1 }
    }

    /// Nobody waits for it, and yet it is not applied. What is wrong with a request is looked for among the requests.
    fn is_lost(&self) -> bool {
        let agree = match self.state {
            FollowState::Active => self.seq.is_some(),
            FollowState::Requested => true,
            FollowState::Removed => false,
        };
        self.pending.is_none() && !agree
    }
}

#[derive(Debug, Deserialize)]
struct PostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    state: PostState,
    seq: Option<i64>,
    pending: Option<bool>,
    delivery: DeliveryDoc,
}

impl PostPart {
    fn fields() -> Document {
        doc! { "user": "$author.userId", "state": 1, "seq": 1, "pending": 1, "delivery": 1 }
    }

    /// Nobody waits for it, and yet it is not applied.
    fn is_lost(&self) -> bool {
        self.pending.is_none() && (self.state == PostState::Deleted || self.seq.is_none())
    }

    fn undelivered(&self, pulled: bool) -> Option<DriftKind> {
        if self.state == PostState::Live { undelivered(&self.delivery, self.user, pulled) } else { None }
    }
}

#[derive(Debug, Deserialize)]
struct RepostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    state: EdgeState,
    delivery: DeliveryDoc,
}

impl RepostPart {
    fn fields() -> Document {
        doc! { "user": "$userId", "state": 1, "delivery": 1 }
    }

    fn undelivered(&self, pulled: bool) -> Option<DriftKind> {
        if self.state == EdgeState::Active { undelivered(&self.delivery, self.user, pulled) } else { None }
    }
}

/// What is wrong with the way in which an act comes to its readers, where `pulled` says that they pull from its account for good.
fn undelivered(delivery: &DeliveryDoc, user: bson::Uuid, pulled: bool) -> Option<DriftKind> {
    match delivery.state {
        DeliveryState::Delivered => None,
        _ if delivery.pull != Some(user) => Some(DriftKind::NotPulled),
        DeliveryState::Pull => (!pulled).then_some(DriftKind::NotPulled),
        DeliveryState::Pending => delivery.run_after.is_none().then_some(DriftKind::ParkedFanout),
    }
}

/// Accounts, edges and posts side by side, in one pass; edges and posts without an account give the account that is not there.
pub(super) async fn check(pass: &mut Pass) -> Result<Option<bson::Uuid>> {
    let store = pass.store.clone();
    let fields = doc! { "counters": 1, "followerSeq": 1, "postSeq": 1, "pulledSince": 1 };
    let mut users = pass.stream::<AccountDoc>(USERS, "_id", doc! { "_id": 1 }, fields, |user| user.id).await?;
    let by_followee = doc! { "followeeId": 1, "seq": -1 };
    let mut to = pass.stream::<End>(FOLLOWS, "followeeId", by_followee, End::fields("followeeId"), |end| end.user).await?;
    let by_follower = doc! { "followerId": 1, "followeeId": 1 };
    let mut from = pass.stream::<End>(FOLLOWS, "followerId", by_follower, End::fields("followerId"), |end| end.user).await?;
    let by_author = doc! { "author.userId": 1, "_id": -1 };
    let mut posts = pass.stream::<PostPart>(POSTS, "author.userId", by_author, PostPart::fields(), |post| post.user).await?;
    let by_user = doc! { "userId": 1, "_id": -1 };
    let mut reposts = pass.stream::<RepostPart>(REPOSTS, "userId", by_user, RepostPart::fields(), |repost| repost.user).await?;
    let mut done = None;
    while let Some(at) = lowest([users.key().await?, to.key().await?, from.key().await?, posts.key().await?, reposts.key().await?])
    {
        if let Some(stop) = pass.stops(done) {
            return Ok(Some(stop));
        }
        let account = users.next_up_to(at).await?;
        let (follower_seq, post_seq) = account.as_ref().map_or((0, 0), |account| (account.follower_seq, account.post_seq));
        let (mut followers, mut numbers) = (0, Numbers::up_to(follower_seq));
        while let Some(end) = to.next_up_to(at).await? {
            if account.is_some() && end.is_lost() {
                pass.report(recheck_edge(&store, end.id).await?).await?;
            }
            if let Some(seq) = end.seq {
                followers += 1;
                numbers.take(seq);
            }
        }
        let mut following = 0;
        while let Some(end) = from.next_up_to(at).await? {
            following += i64::from(end.seq.is_some());
        }
        // Posts that were made side by side may be numbered in another order: then the second look tells.
        let (mut written, mut seqs) = (0, Numbers::up_to(post_seq));
        while let Some(post) = posts.next_up_to(at).await? {
            if let Some(seq) = post.seq {
                written += 1;
                seqs.take(seq);
            }
            let Some(account) = &account else { continue };
            if post.is_lost() || post.undelivered(account.pulled_since.is_some()).is_some() {
                pass.report(recheck_post(&store, post.id).await?).await?;
            }
        }
        while let Some(repost) = reposts.next_up_to(at).await? {
            let Some(account) = &account else { continue };
            if repost.undelivered(account.pulled_since.is_some()).is_some() {
                pass.report(recheck_repost(&store, repost.id).await?).await?;
            }
        }
        let numbers_fit = numbers.wrong.is_none() && seqs.wrong.is_none();
        let counted = account.map(|AccountDoc { counters, .. }| (counters.followers, counters.following, counters.posts));
        if !numbers_fit || counted != Some((followers, following, written)) {
            pass.report(recheck(&store, at).await?).await?;
        }
        done = Some(at);
    }
    Ok(None)
}

/// Counts what belongs to one account in a snapshot.
async fn recheck(store: &Store, user: bson::Uuid) -> Result<Vec<Drift>> {
    let mut session = store.begin().await?;
    let account = store.coll::<AccountDoc>(USERS).find_one(doc! { "_id": user }).session(&mut session).await?;
    let (follower_seq, post_seq) = account.as_ref().map_or((0, 0), |account| (account.follower_seq, account.post_seq));
    let by_seq = Some(doc! { "seq": -1 });
    let to = count(store, &mut session, FOLLOWS, doc! { "followeeId": user }, by_seq.clone(), follower_seq).await?;
    let from = count(store, &mut session, FOLLOWS, doc! { "followerId": user }, None, 0).await?;
    let mut of_author = doc! { "author.userId": user };
    if account.is_none() {
        // A post whose author is gone is withdrawn by the applier.
        of_author.insert("pending", doc! { "$exists": false });
    }
    let posts = count(store, &mut session, POSTS, of_author, by_seq, post_seq).await?;

    let mut drift = Vec::new();
    let mut report = |kind, detail| drift.push(Drift::new(kind, user, detail));
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
        [(DriftKind::FollowerSeq, to.numbers.wrong, follower_seq), (DriftKind::PostSeq, posts.numbers.wrong, post_seq)]
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

/// Counts children. In the order of their numbers these are looked at too; of the edges from an account each has the number of another
/// account.
async fn count(
    store: &Store,
    session: &mut ClientSession,
    name: &str,
    filter: Document,
    by_seq: Option<Document>,
    last: i64,
) -> Result<Counted> {
    #[derive(Deserialize)]
    struct Child {
        seq: Option<i64>,
    }
    let mut counted = Counted { all: 0, with_seq: 0, numbers: Numbers::up_to(last) };
    let numbered = by_seq.is_some();
    let children = store.coll::<Child>(name);
    let find = children.find(filter).projection(doc! { "_id": 0, "seq": 1 });
    let mut found = find.sort(by_seq.unwrap_or_default()).session(&mut *session).await?;
    let mut stream = found.stream(session);
    while let Some(child) = stream.try_next().await? {
        counted.all += 1;
        if let Some(seq) = child.seq {
            counted.with_seq += 1;
            if numbered {
                counted.numbers.take(seq);
            }
        }
    }
    Ok(counted)
}

/// Looks at one edge again, in one read.
async fn recheck_edge(store: &Store, id: bson::Uuid) -> Result<Option<Drift>> {
    let edge = store.coll::<End>(FOLLOWS).find_one(doc! { "_id": id }).projection(End::fields("followeeId")).await?;
    Ok(edge.filter(End::is_lost).map(|edge| {
        let detail = format!("a follow in the state {:?} with seq {:?} that nobody applies", edge.state, edge.seq);
        Drift::new(DriftKind::LostPending, id, detail).at(Place::In(FOLLOWS))
    }))
}

async fn recheck_post(store: &Store, post: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let posts = store.coll::<PostPart>(POSTS);
    let find = posts.find_one(doc! { "_id": post }).projection(PostPart::fields());
    let Some(post) = find.session(&mut session).await? else { return Ok(None) };
    if post.is_lost() {
        let detail = format!("a post in the state {:?} with seq {:?} that nobody applies", post.state, post.seq);
        return Ok(Some(Drift::new(DriftKind::LostPending, post.id, detail).at(Place::In(POSTS))));
    }
    let pulled = is_pulled(store, &mut session, post.user).await?;
    Ok(post.undelivered(pulled).map(|kind| badly_delivered(kind, post.id, &post.delivery, pulled).at(Place::In(POSTS))))
}

async fn recheck_repost(store: &Store, repost: bson::Uuid) -> Result<Option<Drift>> {
    let mut session = store.begin().await?;
    let reposts = store.coll::<RepostPart>(REPOSTS);
    let find = reposts.find_one(doc! { "_id": repost }).projection(RepostPart::fields());
    let Some(repost) = find.session(&mut session).await? else { return Ok(None) };
    let pulled = is_pulled(store, &mut session, repost.user).await?;
    Ok(repost.undelivered(pulled).map(|kind| badly_delivered(kind, repost.id, &repost.delivery, pulled).at(Place::In(REPOSTS))))
}

/// Whether readers pull from an account for good.
async fn is_pulled(store: &Store, session: &mut ClientSession, user: bson::Uuid) -> Result<bool> {
    let pulled = doc! { "_id": user, "pulledSince": { "$exists": true } };
    Ok(store.coll::<Document>(USERS).find_one(pulled).session(session).await?.is_some())
}

fn badly_delivered(kind: DriftKind, act: bson::Uuid, delivery: &DeliveryDoc, pulled: bool) -> Drift {
    let detail = match kind {
        DriftKind::ParkedFanout => format!("parked after {} attempts", delivery.attempts),
        _ => format!("{:?}, pulled from {:?}, from its account for good: {pulled}", delivery.state, delivery.pull),
    };
    Drift::new(kind, act, detail)
}
