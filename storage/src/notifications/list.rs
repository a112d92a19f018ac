//! What an account was told, newest first, and how much of it is unread.
//!
//! Two kinds of documents hold one list, ordered by the time in a place: a page reads the range of both, lets the rules take out what is
//! not to be seen, and fills itself up. Who acted in notices of many acts is read from the edges that are counted, from the newest on, by
//! ranges of their numbers.

use std::collections::{HashMap, HashSet};

use bson::doc;
use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use rookery_domain::{
    CommentId, Limit, NotificationId, Page, PostId, Timestamp, UserId,
    export::{Export, Told},
    ids,
    notifications::{ACTORS_SHOWN, Notification, NotificationKind, Subject, UNREAD_MOST, is_read},
    page::TimeCursor,
    post::{Visibility, may_see},
    user::UserSummary,
};
use serde::Deserialize;
use uuid::Uuid;

use super::{BucketDoc, GroupDoc, ItemDoc, SingleDoc, TogetherDoc};
use crate::{
    Result, Store,
    collections::{
        COMMENTS, FOLLOWS, LIKES, NOTIFICATION_GROUPS, NOTIFICATION_MARKS, NOTIFICATIONS, POSTS, REPOSTS,
        notifications::{BUCKET_SIZE, KEPT},
    },
    hidden::Hidden,
    posts::{PostCountersDoc, VisibilityDoc},
    reactions::TargetDoc,
    store::{ANSWER, b, now, timestamp},
    time_page::{self, Extent, Slice},
    user_lists::ABOUT,
};

/// Accounts that a viewer hides, of each kind, up to which notices of many acts are counted without all of them.
const FEW_HIDDEN: usize = 500;

/// Numbers in the first range of edges to one parent: some more than are shown.
const FIRST_SPAN: i64 = 16;

/// Branches of one query.
const BRANCHES: usize = 100;

/// Where the search for a bucket that began before a range goes at first.
const A_DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// One notice as it is written.
#[derive(Debug, Clone)]
enum Entry {
    One(ItemDoc),
    Group(GroupDoc),
}

/// A post as notices need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    author: bson::Uuid,
    text: String,
    visibility: VisibilityDoc,
    counters: PostCountersDoc,
    #[serde(default)]
    like_seq: i64,
    #[serde(default)]
    repost_seq: i64,
}

/// A live comment as notices need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommentPart {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    author: bson::Uuid,
    post_id: bson::Uuid,
    text: String,
    likes: i64,
    #[serde(default)]
    like_seq: i64,
}

#[derive(Debug, Deserialize)]
struct EdgeStateDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    state: String,
}

/// An edge that is counted.
#[derive(Debug, Deserialize)]
struct ActDoc {
    #[serde(rename = "_id")]
    id: bson::Uuid,
    user: bson::Uuid,
    parent: bson::Uuid,
    seq: i64,
    state: String,
    at: Option<bson::DateTime>,
}

/// Everything that notices are about and that the viewer may see.
#[derive(Debug, Default)]
struct Subjects {
    posts: HashMap<bson::Uuid, PostPart>,
    comments: HashMap<bson::Uuid, CommentPart>,
    /// The state of edges.
    edges: HashMap<bson::Uuid, String>,
}

/// The edges that one notice of many acts stands for, and what was found of them.
#[derive(Debug)]
struct Acts {
    edges: &'static str,
    user: &'static str,
    key: &'static str,
    at: &'static str,
    parent: bson::Uuid,
    /// Every number is larger.
    above: i64,
    /// Numbers from here on were looked at.
    from: i64,
    last: i64,
    total: i64,
    /// Who acted that the viewer may see, newest first.
    actors: Vec<(UserSummary, Timestamp)>,
    /// Who is counted and not shown, of those who were looked at.
    left_out: HashSet<UserId>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkDoc {
    up_to: bson::Uuid,
}

#[derive(Debug, Deserialize)]
struct PairDoc {
    user: bson::Uuid,
    parent: bson::Uuid,
    seq: Option<i64>,
}

impl Store {
    /// A page of what an account was told, newest first: full unless the list is at its end.
    pub async fn notifications(
        &self,
        user: UserId,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Page<Notification, TimeCursor>> {
        let mark = self.read_mark(user).await?;
        self.notifications_above(user, mark, Uuid::nil(), cursor, limit).await
    }

    /// How many notifications an account has not read, up to a thousand.
    pub async fn unread_notifications(&self, user: UserId) -> Result<usize> {
        let mark = self.read_mark(user).await?;
        // What stands at the mark or below is read, and not even looked at.
        let floor = Uuid::from_u128(mark.as_u128().saturating_add(1));
        let (mut unread, mut cursor) = (0, None);
        loop {
            let page = self.notifications_above(user, mark, floor, cursor, Limit::MAX).await?;
            unread += page.items.iter().filter(|notice| !notice.read).count();
            cursor = page.next;
            if cursor.is_none() || unread >= UNREAD_MOST {
                return Ok(unread.min(UNREAD_MOST));
            }
        }
    }

    /// Everything that an account was told, as it is kept, for its export.
    pub(crate) async fn export_notifications(self, user: UserId) -> Result<BoxStream<'static, Result<Export>>> {
        let own = doc! { "userId": b(user) };
        let buckets = self.coll::<BucketDoc>(NOTIFICATIONS).find(own.clone()).sort(doc! { "userId": 1, "bucket": 1 }).await?;
        let items = buckets.map_ok(|bucket| stream::iter(bucket.items.into_iter().map(|item| Ok(item.told())))).try_flatten();
        let groups = self.coll::<GroupDoc>(NOTIFICATION_GROUPS).find(own).sort(doc! { "userId": 1, "place": -1 }).await?;
        let told = items.chain(groups.map_ok(|group| group.told()));
        Ok(told.map_ok(Export::Notification).err_into().boxed())
    }

    async fn read_mark(&self, user: UserId) -> Result<Uuid> {
        let mark = self.coll::<MarkDoc>(NOTIFICATION_MARKS).find_one(doc! { "_id": b(user) }).await?;
        Ok(mark.map_or(Uuid::nil(), |mark| mark.up_to.into()))
    }

    async fn notifications_above(
        &self,
        user: UserId,
        mark: Uuid,
        floor: Uuid,
        cursor: Option<TimeCursor>,
        limit: Limit,
    ) -> Result<Page<Notification, TimeCursor>> {
        let now = now();
        let extent = Extent { first: user.time().max(now.minus(KEPT)), total: ABOUT, now };
        time_page::newest_first(cursor, limit, extent, async |slice| {
            if slice.to <= floor {
                return Ok(Vec::new());
            }
            let slice = Slice { from: slice.from.max(floor), ..slice };
            let read = async |slice: Slice| self.entries_in(user, slice).await;
            slice.filled(read, async |entries| self.shown_notices(user, mark, entries).await).await
        })
        .await
    }

    /// The first notices of a slice, in its order, as many as it asks for.
    async fn entries_in(&self, user: UserId, slice: Slice) -> Result<Vec<(Uuid, Entry)>> {
        let together = async {
            let filter = slice.of_key(&doc! { "userId": b(user) }, "place");
            let groups = self.coll::<GroupDoc>(NOTIFICATION_GROUPS);
            let found = groups.find(filter).sort(slice.sort_by_key("place")).limit(slice.most).batch_size(ANSWER).await?;
            Ok(found.map_ok(|group| (group.place.into(), Entry::Group(group))).try_collect::<Vec<_>>().await?)
        };
        let (items, mut entries) = futures::try_join!(self.items_in(user, slice), together)?;
        entries.extend(items.into_iter().map(|item| (item.place.into(), Entry::One(item))));
        entries.sort_by_key(|(place, _)| *place);
        if slice.newest_first {
            entries.reverse();
        }
        entries.truncate(usize::try_from(slice.most).unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// The first items of a slice out of the buckets that have some.
    async fn items_in(&self, user: UserId, slice: Slice) -> Result<Vec<ItemDoc>> {
        let most = usize::try_from(slice.most).unwrap_or(usize::MAX);
        let within = |bucket: BucketDoc| {
            bucket.items.into_iter().filter(|item| {
                let place: Uuid = item.place.into();
                slice.from <= place && place < slice.to
            })
        };
        let mut items: Vec<ItemDoc> = Vec::new();
        if !slice.newest_first {
            items.extend(self.bucket_across(user, slice.from).await?.into_iter().flat_map(within));
        }
        // A few at a time: a busy account has hundreds of them in a slice.
        let at_once = most / BUCKET_SIZE + 2;
        let mut rest = slice;
        while items.len() < most {
            let buckets = self.coll::<BucketDoc>(NOTIFICATIONS);
            let filter = rest.of_key(&doc! { "userId": b(user) }, "first");
            let limit = i64::try_from(at_once).unwrap_or(i64::MAX);
            let found: Vec<BucketDoc> =
                buckets.find(filter).sort(rest.sort_by_key("first")).limit(limit).await?.try_collect().await?;
            let (full, last) = (found.len() == at_once, found.last().map(|bucket| Uuid::from(bucket.first)));
            items.extend(found.into_iter().flat_map(within));
            match last {
                Some(last) if full && slice.newest_first => rest.to = last,
                Some(last) if full => rest.from = Uuid::from_u128(last.as_u128().saturating_add(1)),
                _ => break,
            }
        }
        if slice.newest_first && items.len() < most {
            items.extend(self.bucket_across(user, slice.from).await?.into_iter().flat_map(within));
        }
        Ok(items)
    }

    /// The bucket that begins before a place and may reach beyond it: the newest that begins before. Looked for in ranges that grow, so
    /// that it costs the same however many there are.
    async fn bucket_across(&self, user: UserId, place: Uuid) -> Result<Option<BucketDoc>> {
        let buckets = self.coll::<BucketDoc>(NOTIFICATIONS);
        // Older than an item of it can be.
        let oldest = now().minus(2 * KEPT).max(user.time());
        let (mut to, mut span) = (place, A_DAY_MS);
        while ids::time_of(to) > oldest {
            let from = ids::floor_at(Timestamp::from_millis(ids::time_of(to).as_millis().saturating_sub(span)));
            let range = doc! { "userId": b(user), "first": { "$gte": b(from), "$lt": b(to) } };
            if let Some(bucket) = buckets.find_one(range).sort(doc! { "first": -1 }).await? {
                return Ok(Some(bucket));
            }
            (to, span) = (from, span.saturating_mul(8));
        }
        Ok(None)
    }

    /// Those of some notices that the viewer may see, as they are shown.
    async fn shown_notices(&self, viewer: UserId, mark: Uuid, entries: Vec<(Uuid, Entry)>) -> Result<Vec<(Uuid, Notification)>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let hidden = self.hidden_if_few(viewer, FEW_HIDDEN);
        let (subjects, hidden) = futures::try_join!(self.subjects_of(viewer, &entries), hidden)?;
        let single_actors = entries.iter().filter_map(|(_, entry)| match entry {
            Entry::One(item) => Some(UserId(item.actor_id.into())),
            Entry::Group(_) => None,
        });
        let single_actors: HashSet<UserId> = single_actors.collect();
        let mut acts: Vec<(usize, Acts)> = entries
            .iter()
            .enumerate()
            .filter_map(|(at, (_, entry))| match entry {
                Entry::Group(group) => Some((at, subjects.acts_of(viewer, group)?)),
                Entry::One(_) => None,
            })
            .collect();
        let singles = self.visible_among(viewer, hidden.as_ref(), single_actors);
        let groups = self.find_actors(viewer, hidden.as_ref(), &mut acts);
        let (actors, counts) = futures::try_join!(singles, groups)?;
        let mut found: HashMap<usize, (Acts, i64)> =
            acts.into_iter().zip(counts).map(|((at, acts), count)| (at, (acts, count))).collect();
        let shown = entries.into_iter().enumerate().filter_map(|(at, (place, entry))| {
            let notice = match entry {
                Entry::One(item) => subjects.shown_item(&item, mark, &actors)?,
                Entry::Group(group) => {
                    let (acts, count) = found.remove(&at)?;
                    subjects.shown_group(&group, acts, count, mark)?
                }
            };
            Some((place, notice))
        });
        Ok(shown.collect())
    }

    /// What notices are about, as far as it stands and the viewer may see it.
    async fn subjects_of(&self, viewer: UserId, entries: &[(Uuid, Entry)]) -> Result<Subjects> {
        let (mut posts, mut comments, mut edges) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (_, entry) in entries {
            match entry {
                Entry::One(item) => match item.kind {
                    SingleDoc::FollowRequest | SingleDoc::FollowAccepted => drop(edges.insert(item.act)),
                    SingleDoc::Comment | SingleDoc::Reply | SingleDoc::Mention => {
                        posts.extend(item.post_id);
                        comments.extend(item.comment_id);
                    }
                },
                Entry::Group(GroupDoc { target: Some(TargetDoc::Post), target_id, .. }) => posts.extend(*target_id),
                Entry::Group(GroupDoc { target: Some(TargetDoc::Comment), target_id, .. }) => comments.extend(*target_id),
                Entry::Group(_) => {}
            }
        }
        let (comments, edges) = futures::try_join!(self.live_comments(comments), self.states_of(edges))?;
        posts.extend(comments.values().map(|comment| comment.post_id));
        let posts = self.visible_posts(viewer, posts).await?;
        Ok(Subjects { posts, comments, edges })
    }

    async fn live_comments(&self, ids: HashSet<bson::Uuid>) -> Result<HashMap<bson::Uuid, CommentPart>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let these = doc! { "_id": { "$in": ids.into_iter().collect::<Vec<_>>() }, "state": "live" };
        let fields = doc! { "author": "$author.userId", "postId": 1, "text": 1, "likes": "$counters.likes", "likeSeq": 1 };
        let found = self.coll::<CommentPart>(COMMENTS).find(these).projection(fields).batch_size(ANSWER).await?;
        let found = found.try_filter(|comment| std::future::ready(!self.is_deleting(UserId(comment.author.into()))));
        Ok(found.map_ok(|comment| (comment.id, comment)).try_collect().await?)
    }

    async fn states_of(&self, edges: HashSet<bson::Uuid>) -> Result<HashMap<bson::Uuid, String>> {
        if edges.is_empty() {
            return Ok(HashMap::new());
        }
        let these = doc! { "_id": { "$in": edges.into_iter().collect::<Vec<_>>() } };
        let found = self.coll::<EdgeStateDoc>(FOLLOWS).find(these).projection(doc! { "state": 1 }).batch_size(ANSWER).await?;
        Ok(found.map_ok(|edge| (edge.id, edge.state)).try_collect().await?)
    }

    /// The live posts among `ids` that the viewer may see.
    async fn visible_posts(&self, viewer: UserId, ids: HashSet<bson::Uuid>) -> Result<HashMap<bson::Uuid, PostPart>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let these = doc! { "_id": { "$in": ids.into_iter().collect::<Vec<_>>() }, "state": "live" };
        let fields = doc! {
            "author": "$author.userId", "text": 1, "visibility": 1, "counters": 1, "likeSeq": 1, "repostSeq": 1,
        };
        let found = self.coll::<PostPart>(POSTS).find(these).projection(fields).batch_size(ANSWER).await?;
        let mut found: Vec<PostPart> = found.try_collect().await?;
        let others: HashSet<UserId> =
            found.iter().map(|post| UserId(post.author.into())).filter(|author| *author != viewer).collect();
        let asked: Vec<UserId> = others.iter().copied().collect();
        let relations = async { if asked.is_empty() { Ok(HashMap::new()) } else { self.relations(viewer, &asked).await } };
        let (relations, private) = futures::try_join!(relations, self.private_among(others))?;
        found.retain(|post| {
            let author = UserId(post.author.into());
            let visibility = Visibility::of(post.visibility.into(), private.contains(&author));
            let relation = relations.get(&author).copied().unwrap_or_default();
            !self.is_deleting(author) && may_see(visibility, author == viewer, relation)
        });
        Ok(found.into_iter().map(|post| (post.id, post)).collect())
    }

    /// Those of `users` who may be shown to the viewer as acting; `few` are all whom the viewer hides, where they are few.
    async fn visible_among(
        &self,
        viewer: UserId,
        few: Option<&Hidden>,
        users: HashSet<UserId>,
    ) -> Result<HashMap<UserId, UserSummary>> {
        let asked = async {
            match few {
                Some(_) => Ok(Hidden::default()),
                None => self.hidden_among(Some(viewer), users.iter().copied()).await,
            }
        };
        let (mut found, asked) = futures::try_join!(self.summaries(users.iter().copied()), asked)?;
        let hidden = few.unwrap_or(&asked);
        found.retain(|user, _| *user != viewer && !hidden.is_silenced(*user) && !self.is_deleting(*user));
        Ok(found)
    }

    /// Finds who acted, from the newest edges on, until enough are visible, and gives how many there are that the viewer may see.
    async fn find_actors(&self, viewer: UserId, few: Option<&Hidden>, acts: &mut [(usize, Acts)]) -> Result<Vec<i64>> {
        let mut span = FIRST_SPAN;
        loop {
            let mut open: Vec<&mut Acts> = acts.iter_mut().map(|(_, acts)| acts).filter(|acts| acts.wants_more()).collect();
            if open.is_empty() {
                break;
            }
            let mut found = Vec::new();
            for edges in [LIKES, REPOSTS, FOLLOWS] {
                let these: Vec<&Acts> = open.iter().filter(|acts| acts.edges == edges).map(|acts| &**acts).collect();
                for some in these.chunks(BRANCHES) {
                    found.extend(self.edges_below(some, span).await?.into_iter().map(|act| (edges, act)));
                }
            }
            let users: HashSet<UserId> = found.iter().map(|(_, act)| UserId(act.user.into())).collect();
            let visible = self.visible_among(viewer, few, users).await?;
            // Newest first, within each.
            found.sort_by_key(|(_, act)| -act.seq);
            for acts in &mut open {
                let (edges, parent) = (acts.edges, acts.parent);
                let (above, from) = (acts.above, acts.from);
                for (_, act) in found.iter().filter(|(name, act)| *name == edges && act.parent == parent) {
                    if act.seq <= above || act.seq >= from {
                        continue;
                    }
                    let user = UserId(act.user.into());
                    match visible.get(&user).filter(|_| act.state == "active") {
                        Some(summary) => acts.actors.push((summary.clone(), act.at())),
                        None => drop(acts.left_out.insert(user)),
                    }
                }
                acts.from = acts.from.saturating_sub(span).max(acts.above + 1);
            }
            span = span.saturating_mul(4);
        }
        self.leave_out_of_counts(viewer, few, acts).await?;
        Ok(acts.iter().map(|(_, acts)| acts.count()).collect())
    }

    /// The edges of some notices, of one collection, with the next lower numbers.
    async fn edges_below(&self, acts: &[&Acts], span: i64) -> Result<Vec<ActDoc>> {
        let Some(any) = acts.first() else { return Ok(Vec::new()) };
        let branch = |acts: &&Acts| {
            let from = acts.from.saturating_sub(span).max(acts.above + 1);
            doc! { acts.key: acts.parent, "seq": { "$gte": from, "$lt": acts.from } }
        };
        let these = doc! { "$or": acts.iter().map(branch).collect::<Vec<_>>() };
        let fields = doc! {
            "user": format!("${}", any.user), "parent": format!("${}", any.key), "seq": 1, "state": 1, "at": format!("${}", any.at),
        };
        let found = self.coll::<ActDoc>(any.edges).find(these).projection(fields).batch_size(ANSWER).await?;
        Ok(found.try_collect().await?)
    }

    /// Finds, for notices of more acts than were looked at, which of the accounts that the viewer does not see are among them.
    async fn leave_out_of_counts(&self, viewer: UserId, few: Option<&Hidden>, acts: &mut [(usize, Acts)]) -> Result<()> {
        let mut unseen: HashSet<UserId> = few.into_iter().flat_map(Hidden::silenced).chain(self.deleting().all()).collect();
        unseen.insert(viewer);
        let unseen: Vec<UserId> = unseen.into_iter().collect();
        for edges in [LIKES, REPOSTS, FOLLOWS] {
            let of_these = |acts: &Acts| acts.edges == edges && !acts.is_exhausted();
            let these: Vec<&Acts> = acts.iter().map(|(_, acts)| acts).filter(|acts| of_these(acts)).collect();
            let Some(any) = these.first() else { continue };
            let (user, key) = (any.user, any.key);
            let parents: Vec<bson::Uuid> = these.iter().map(|acts| acts.parent).collect::<HashSet<_>>().into_iter().collect();
            let mut pairs: Vec<PairDoc> = Vec::new();
            for users in unseen.chunks(BRANCHES) {
                let branch = |one: &UserId| doc! { user: b(*one), key: { "$in": &parents } };
                let these = doc! { "$or": users.iter().map(branch).collect::<Vec<_>>() };
                let fields = doc! { "_id": 0, "user": format!("${user}"), "parent": format!("${key}"), "seq": 1 };
                let found = self.coll::<PairDoc>(edges).find(these).projection(fields).batch_size(ANSWER).await?;
                pairs.extend(found.try_collect::<Vec<_>>().await?);
            }
            for (_, acts) in acts.iter_mut().filter(|(_, acts)| of_these(acts)) {
                let counted = |pair: &&PairDoc| {
                    pair.parent == acts.parent && pair.seq.is_some_and(|seq| acts.above < seq && seq <= acts.last)
                };
                let out: Vec<UserId> = pairs.iter().filter(counted).map(|pair| UserId(pair.user.into())).collect();
                acts.left_out.extend(out);
            }
        }
        Ok(())
    }
}

impl ItemDoc {
    fn told(&self) -> Told {
        Told {
            id: NotificationId(self.place.into()),
            kind: self.kind.into(),
            actor: Some(UserId(self.actor_id.into())),
            post: self.post_id.map(|post| PostId(post.into())),
            comment: self.comment_id.map(|comment| CommentId(comment.into())),
        }
    }
}

impl GroupDoc {
    fn told(&self) -> Told {
        let target = |wanted: TargetDoc| self.target_id.filter(|_| self.target == Some(wanted));
        Told {
            id: NotificationId(self.place.into()),
            kind: self.kind.into(),
            actor: None,
            post: target(TargetDoc::Post).map(|post| PostId(post.into())),
            comment: target(TargetDoc::Comment).map(|comment| CommentId(comment.into())),
        }
    }
}

impl From<SingleDoc> for NotificationKind {
    fn from(kind: SingleDoc) -> Self {
        match kind {
            SingleDoc::FollowRequest => Self::FollowRequest,
            SingleDoc::FollowAccepted => Self::FollowAccepted,
            SingleDoc::Comment => Self::Comment,
            SingleDoc::Reply => Self::Reply,
            SingleDoc::Mention => Self::Mention,
        }
    }
}

impl From<TogetherDoc> for NotificationKind {
    fn from(kind: TogetherDoc) -> Self {
        match kind {
            TogetherDoc::Follow => Self::Follow,
            TogetherDoc::Like => Self::Like,
            TogetherDoc::Repost => Self::Repost,
        }
    }
}

impl Subjects {
    /// The edges that a notice of many acts stands for; none if what they are to is gone.
    fn acts_of(&self, viewer: UserId, group: &GroupDoc) -> Option<Acts> {
        let (above, last, total) = match (group.kind, group.target) {
            (TogetherDoc::Follow, _) => (group.first? - 1, group.last?, group.count?),
            (TogetherDoc::Like, Some(TargetDoc::Comment)) => {
                let comment = self.comments.get(&group.target_id?)?;
                self.posts.get(&comment.post_id)?;
                (0, comment.like_seq, comment.likes)
            }
            (TogetherDoc::Like, _) => {
                let post = self.posts.get(&group.target_id?)?;
                (0, post.like_seq, post.counters.likes)
            }
            (TogetherDoc::Repost, _) => {
                let post = self.posts.get(&group.target_id?)?;
                (0, post.repost_seq, post.counters.reposts)
            }
        };
        let (edges, user, key, at) = match group.kind {
            TogetherDoc::Follow => (FOLLOWS, "followerId", "followeeId", "followedAt"),
            TogetherDoc::Like => (LIKES, "userId", "targetId", "countedAt"),
            TogetherDoc::Repost => (REPOSTS, "userId", "postId", "countedAt"),
        };
        let parent = group.target_id.unwrap_or(b(viewer));
        Some(Acts {
            edges,
            user,
            key,
            at,
            parent,
            above,
            from: last.saturating_add(1),
            last,
            total,
            actors: Vec::new(),
            left_out: HashSet::new(),
        })
    }

    /// One act as it is shown; none if it, or what it is about, is not to be seen.
    fn shown_item(&self, item: &ItemDoc, mark: Uuid, actors: &HashMap<UserId, UserSummary>) -> Option<Notification> {
        let actor = actors.get(&UserId(item.actor_id.into()))?.clone();
        let stands = match item.kind {
            SingleDoc::FollowRequest => self.edge_is(item.act, "requested"),
            SingleDoc::FollowAccepted => self.edge_is(item.act, "active"),
            // They have what they are about.
            SingleDoc::Comment | SingleDoc::Reply | SingleDoc::Mention => true,
        };
        // What it is about must be there: each of the two that it names.
        let post = item.post_id.map(|post| self.posts.get(&post));
        let comment = item.comment_id.map(|comment| self.comments.get(&comment));
        if !stands || post.is_some_and(|post| post.is_none()) || comment.is_some_and(|comment| comment.is_none()) {
            return None;
        }
        let place: Uuid = item.place.into();
        Some(Notification {
            id: NotificationId(place),
            kind: item.kind.into(),
            read: place <= mark,
            actors: vec![actor],
            actor_count: 1,
            post: post.flatten().map(PostPart::subject),
            comment: comment.flatten().map(CommentPart::subject),
        })
    }

    /// Many acts as they are shown; none if none of them is to be seen.
    fn shown_group(&self, group: &GroupDoc, acts: Acts, count: i64, mark: Uuid) -> Option<Notification> {
        let (_, newest) = acts.actors.first()?;
        let place: Uuid = group.place.into();
        let read = is_read(place, *newest, mark);
        let (mut post, mut comment) = (None, None);
        match (group.target, group.target_id) {
            (Some(TargetDoc::Post), Some(id)) => post = self.posts.get(&id),
            (Some(TargetDoc::Comment), Some(id)) => {
                comment = self.comments.get(&id);
                post = comment.and_then(|comment| self.posts.get(&comment.post_id));
            }
            _ => {}
        }
        Some(Notification {
            id: NotificationId(place),
            kind: group.kind.into(),
            read,
            actors: acts.actors.into_iter().take(ACTORS_SHOWN).map(|(user, _)| user).collect(),
            actor_count: count,
            post: post.map(PostPart::subject),
            comment: comment.map(CommentPart::subject),
        })
    }

    fn edge_is(&self, edge: bson::Uuid, state: &str) -> bool {
        self.edges.get(&edge).is_some_and(|found| found == state)
    }
}

impl Acts {
    /// All of them were looked at.
    fn is_exhausted(&self) -> bool {
        self.from <= self.above + 1
    }

    fn wants_more(&self) -> bool {
        self.actors.len() < ACTORS_SHOWN && !self.is_exhausted()
    }

    /// How many the viewer may see.
    fn count(&self) -> i64 {
        let found = i64::try_from(self.actors.len()).unwrap_or(i64::MAX);
        if self.is_exhausted() {
            return found;
        }
        (self.total - i64::try_from(self.left_out.len()).unwrap_or(i64::MAX)).max(found)
    }
}

impl ActDoc {
    /// When it was counted; of an edge that was counted before that was noted, when it was made.
    fn at(&self) -> Timestamp {
        self.at.map_or_else(|| ids::time_of(self.id.into()), timestamp)
    }
}

impl PostPart {
    fn subject(&self) -> Subject<PostId> {
        Subject { id: PostId(self.id.into()), text: self.text.clone() }
    }
}

impl CommentPart {
    fn subject(&self) -> Subject<CommentId> {
        Subject { id: CommentId(self.id.into()), text: self.text.clone() }
    }
}
