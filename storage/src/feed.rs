//! Reading the home feed: skeleton, hydrate, rules, page.
//!
//! The posts are the truth, and a reader's window is a hint: whatever is not delivered is pulled, whatever lies below the window is
//! pulled from everybody followed, and what is shown is decided by what is followed *now*. So celebrities, fan-outs in flight or
//! parked, new follows and the three models are one rule.
//!
//! A post of somebody whom the reader does not follow stands at the first of the reposts that count for the reader. Which these are is
//! decided by the reposts themselves, and a slice may hold later ones alone: so each such post is asked for all of them
//! ([`Store::reposts_for`]). The window, and what is known of undelivered acts, only say whose reposts to ask for.
//!
//! The order of the reads is what makes it whole: undelivered posts before the entries (a post that is being delivered is in one of
//! them). The window's start may be read at any time: what lies below it is deleted an hour after it was raised.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Limit, Page, PostId, Timestamp, UserId,
    feed::{Act, FeedItem, ReasonKind, merge, place_of_reposts, reason},
    ids,
    page::TimeCursor,
    post::Visibility,
    user::UserSummary,
};
use uuid::Uuid;

use crate::{
    Error, Result, Store,
    collections::{POSTS, REPOSTS},
    heads::Head,
    hidden::Hidden,
    posts::PostDoc,
    relations::Relations,
    shared::ActDoc,
    store::{ANSWER, b, now},
    time_page::{self, Extent, Slice},
    timelines::{TimelineDoc, window_start},
};

/// Acts that one source gives for one slice at most: a slice that holds more is cut there.
const MOST: usize = 300;

/// Branches of one `$or`: one for each author that is pulled.
const BRANCHES: usize = 100;

/// Of how many readers it is remembered what they saw last.
const READERS: u64 = 100_000;

/// A reader of whom nothing is remembered is taken to have so many items in all.
const UNKNOWN_TOTAL: f64 = 1_000.0;

/// A reader is never taken to have fewer items in all: a list of so few would be read in one slice, and one that reaches below the
/// window asks everybody followed.
const LEAST_TOTAL: f64 = 201.0;

/// What one read of a feed knows before it reads any slice.
struct Reader {
    id: UserId,
    /// Whom the reader follows.
    relations: Arc<Relations>,
    /// The slot down to which the window is complete.
    since: Uuid,
    /// Followees of whom some acts are pulled for good, oneself among them, and the newest of those acts.
    heads: Vec<(UserId, Arc<Head>)>,
    /// Acts of followees that are still to be delivered, one's own among them.
    pending: Vec<Act>,
}

impl Reader {
    /// Whether what this account does may come to the reader: it is followed now, or the reader itself.
    fn follows(&self, actor: UserId) -> bool {
        actor == self.id || self.relations.follows(actor)
    }

    /// Everybody whose acts may come to the reader.
    fn everybody(&self) -> Vec<UserId> {
        self.relations.followees().iter().copied().chain([self.id]).collect()
    }
}

/// Which acts of accounts are asked for.
#[derive(Debug, Clone, Copy)]
enum Reach {
    /// Those that are pulled.
    Pulled,
    /// All of them.
    All,
}

/// Acts of one source, and whether it was cut short.
type Source = (Vec<Act>, bool);

/// What a reader's last page looked like. It says how to ask, never what is answered.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Items per millisecond in it.
    per_ms: f64,
    /// When the newest item of the newest page was made.
    newest: Timestamp,
}

fn last_seen() -> &'static moka::sync::Cache<UserId, Seen> {
    static SEEN: OnceLock<moka::sync::Cache<UserId, Seen>> = OnceLock::new();
    SEEN.get_or_init(|| moka::sync::Cache::new(READERS))
}

impl Store {
    /// A page of a reader's home feed, newest first.
    ///
    /// Three database commands where the process knows the reader's relations: the timeline, the entries of one slice, the posts; and
    /// beside the last what the reader has done with them, three more. Where some stand at a repost there are five more.
    pub async fn feed(&self, reader: UserId, cursor: Option<TimeCursor>, limit: Limit) -> Result<Page<FeedItem, TimeCursor>> {
        let (at, newest) = (now(), cursor.is_none());
        let timeline = self.timeline(reader).await?;
        let reader = self.reader(reader, timeline).await?;
        let seen = last_seen().get(&reader.id);
        // Below the window everybody followed is asked: no slice reaches there before what lies above is used up.
        let first = ids::time_of(reader.since);
        // The first slice begins above the newest item that the reader has seen: a feed in which nothing happened since costs no slices.
        let upto = seen.filter(|_| newest).map_or(at, |seen| seen.newest.min(at));
        let age_ms = upto.since(first).as_millis().max(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "an estimate of how long a slice should be"
        )]
        let total = seen.map_or(UNKNOWN_TOTAL, |seen| seen.per_ms * age_ms as f64).max(LEAST_TOTAL) as i64;
        let extent = Extent { first, total, now: upto };
        let page = time_page::newest_first(cursor, limit, extent, async |slice| self.feed_slice(&reader, slice).await).await?;
        if let (Some(first), Some(last)) = (page.items.first(), page.items.last())
            && page.items.len() > 1
        {
            let (first, last) = (ids::time_of(first.slot), ids::time_of(last.slot));
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let per_ms = page.items.len() as f64 / first.since(last).as_millis().max(1) as f64;
            let newest = if newest { first } else { seen.map_or(at, |seen| seen.newest) };
            last_seen().insert(reader.id, Seen { per_ms, newest });
        }
        if newest && timeline.is_none_or(|timeline| timeline.is_stale(at)) {
            self.note_read(reader.id, timeline).await?;
        }
        Ok(page)
    }

    async fn reader(&self, id: UserId, timeline: Option<TimelineDoc>) -> Result<Reader> {
        let relations = self.reader_relations(id, timeline.as_ref()).await?;
        let (pulled, pending) = self.shared().undelivered(relations.followees().iter().chain([&id]));
        let heads = self.heads(pulled).await?;
        Ok(Reader { id, relations, since: window_start(id, timeline, now()), heads, pending })
    }

    /// The items of one slice that the reader sees, in the slice's order, at most as many as it asks for.
    async fn feed_slice(&self, reader: &Reader, slice: Slice) -> Result<Vec<(Uuid, FeedItem)>> {
        let most = usize::try_from(slice.most).unwrap_or(MOST);
        let (mut from, mut to, mut found) = (slice.from, slice.to, Vec::new());
        loop {
            let (acts, cut) = self.acts(reader, Slice { from, to, ..slice }).await?;
            // In portions a little larger than what is missing: a few of them are gone or hidden.
            let mut acts = acts.into_iter().peekable();
            while acts.peek().is_some() && found.len() < most {
                let portion: Vec<Act> = acts.by_ref().take(most - found.len() + 2).collect();
                found.extend(self.shown_acts(reader, &portion).await?);
            }
            match cut {
                Some(at) if found.len() < most && slice.newest_first => to = at,
                Some(at) if found.len() < most => from = at,
                _ => break,
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// The skeleton of a slice: acts from every source, in order, each once. If a source gave as much as it may, the slice is cut
    /// there, and the second value says where to go on.
    async fn acts(&self, reader: &Reader, slice: Slice) -> Result<(Vec<Act>, Option<Uuid>)> {
        let Slice { from, to, newest_first, .. } = slice;
        let heads = reader.heads.iter().flat_map(|(_, head)| head.within(slice));
        let pending = reader.pending.iter().copied().filter(|act| (from..to).contains(&act.slot));
        let mut sources: Vec<Source> = vec![(merge(heads.chain(pending), newest_first), false)];
        // Below their heads the accounts are asked.
        let deep: Vec<&(UserId, Arc<Head>)> = reader.heads.iter().filter(|(_, head)| from < head.from()).collect();
        if let Some(end) = deep.iter().map(|(_, head)| head.from()).max() {
            let authors: Vec<UserId> = deep.iter().map(|(author, _)| *author).collect();
            sources.extend(self.acts_of(Reach::Pulled, &authors, Slice { to: to.min(end), ..slice }).await?);
        }
        if !reader.relations.unmerged.is_empty() {
            sources.extend(self.acts_of(Reach::All, &reader.relations.unmerged, slice).await?);
        }
        let entries = self.entries(reader.id, from, to, newest_first, MOST).await?;
        let cut = entries.len() == MOST;
        sources.push((entries.into_iter().map(Act::from).collect(), cut));
        if from < reader.since {
            sources.extend(self.acts_of(Reach::All, &reader.everybody(), Slice { to: to.min(reader.since), ..slice }).await?);
        }
        // Where a source was cut short, the others know more than it does: the slice ends at the nearest cut.
        let end_of = |(acts, cut): &Source| acts.last().filter(|_| *cut).map(|act| act.slot);
        let ends = sources.iter().filter_map(end_of);
        let cut = if newest_first { ends.max() } else { ends.min() };
        let inside = |act: &Act| match cut {
            Some(end) if newest_first => act.slot >= end,
            Some(end) => act.slot <= end,
            None => true,
        };
        let silenced = |actor: UserId| reader.relations.hidden.as_ref().is_some_and(|hidden| hidden.is_silenced(actor));
        let followed = |act: &Act| reader.follows(act.actor) && !silenced(act.actor);
        let acts = merge(sources.into_iter().flat_map(|(acts, _)| acts).filter(inside).filter(followed), newest_first);
        // The next part begins behind the cut.
        let next = cut.map(|end| if newest_first { end } else { Uuid::from_u128(end.as_u128() + 1) });
        Ok((acts, next))
    }

    /// Acts of some accounts in a slice: their posts, and their reposts.
    async fn acts_of(&self, reach: Reach, users: &[UserId], slice: Slice) -> Result<[Source; 2]> {
        let (post, repost) = match reach {
            Reach::Pulled => ("delivery.pull", "delivery.pull"),
            Reach::All => ("author.userId", "userId"),
        };
        let (posts, reposts) =
            futures::try_join!(self.acts_in(POSTS, post, users, slice), self.acts_in(REPOSTS, repost, users, slice))?;
        Ok([posts, reposts])
    }

    /// Acts in a slice by the index of the collection `name` that leads with `field`: one branch of equality and range for each account,
    /// since a list of accounts under a range is read through all their acts. True: there are more.
    async fn acts_in(&self, name: &str, field: &str, users: &[UserId], slice: Slice) -> Result<Source> {
        let mut found: Vec<Act> = Vec::new();
        let mut cut = false;
        for users in users.chunks(BRANCHES) {
            let branch = |user: &UserId| slice.of(&doc! { field: b(*user) });
            let branches: Vec<Document> = users.iter().map(branch).collect();
            let acts = self
                .coll::<ActDoc>(name)
                .find(doc! { "$or": branches })
                .sort(slice.sort())
                .limit(i64::try_from(MOST).unwrap_or(i64::MAX))
                .batch_size(u32::try_from(MOST).unwrap_or(u32::MAX))
                .projection(ActDoc::fields(name))
                .await?;
            let acts: Vec<Act> = acts.map_ok(Act::from).try_collect().await?;
            cut |= acts.len() == MOST;
            found.extend(acts);
        }
        let mut found = merge(found, slice.newest_first);
        if found.len() > MOST {
            // No branch was cut, but all of them together are.
            cut = true;
            found.truncate(MOST);
        }
        Ok((found, cut))
    }

    /// Hydrates acts of followees: gives those that are the places of their posts. What is gone for good leaves the window in passing.
    async fn shown_acts(&self, reader: &Reader, acts: &[Act]) -> Result<Vec<(Uuid, FeedItem)>> {
        let mut wanted: Vec<PostId> = acts.iter().map(|act| act.post).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let ids: Vec<bson::Uuid> = wanted.iter().copied().map(b).collect();
        let posts = async {
            let found = self.coll::<PostDoc>(POSTS).find(doc! { "_id": { "$in": ids } }).batch_size(ANSWER).await?;
            let live = found.try_filter(|post| std::future::ready(post.is_live() && !self.is_deleting(post.author_id())));
            Ok::<Vec<PostDoc>, Error>(live.try_collect().await?)
        };
        let (posts, flags) = futures::try_join!(posts, self.viewer_flags(Some(reader.id), &wanted))?;
        let mut hidden = match &reader.relations.hidden {
            Some(hidden) => Cow::Borrowed(hidden),
            None => Cow::Owned(self.hidden_in_feed(reader.id, &posts).await?),
        };
        let strange = |post: &&PostDoc| !reader.follows(post.author_id()) && !hidden.is_silenced(post.author_id());
        let strangers: Vec<&PostDoc> = posts.iter().filter(strange).collect();
        let reposts =
            if strangers.is_empty() { Brought::default() } else { self.reposts_for(reader, acts, &strangers, &mut hidden).await? };
        let mut posts: HashMap<PostId, PostDoc> = posts.into_iter().map(|post| (PostId(post.id.into()), post)).collect();
        let (mut shown, mut dead) = (Vec::with_capacity(acts.len()), Vec::new());
        let authors: HashMap<PostId, UserId> = posts.iter().map(|(id, post)| (*id, post.author_id())).collect();
        for act in acts {
            let Some(author) = authors.get(&act.post).copied() else {
                self.shared().heads.forget(act);
                dead.push(act.post);
                continue;
            };
            let own_place = reason(author == reader.id, reader.relations.follows(author), self.is_celebrity(author));
            let (slot, kind, by) = match (own_place, reposts.places.get(&act.post)) {
                (Some(kind), _) => (act.post.0, kind, Vec::new()),
                (None, Some((slot, by))) => (*slot, ReasonKind::Repost, by.clone()),
                (None, None) => continue,
            };
            // Of the acts on a post one is its place.
            if slot != act.slot || hidden.is_silenced(author) {
                continue;
            }
            let Some(post) = posts.remove(&act.post) else { continue };
            let mut post = self.shown_without(post, Some(reader.id), &hidden);
            post.viewer = Some(flags.get(&post.id).copied().unwrap_or_default());
            let by = if kind == ReasonKind::Repost { by } else { vec![post.author.clone()] };
            shown.push((slot, FeedItem { slot, kind, by, post }));
        }
        if !dead.is_empty() {
            self.drop_entries(reader.id, &dead).await?;
        }
        if !reposts.dead.is_empty() {
            self.drop_acts(reader.id, &reposts.dead).await?;
        }
        Ok(shown)
    }

    /// The reposts that bring posts of strangers to the reader, by what stands now. `hidden` learns of who made them.
    ///
    /// Whose reposts to ask for: those that the window knows of, whatever their place in it; those of whom some acts are not in it; and
    /// where a post is older than the window, everybody, since its first repost may be too. What was undelivered was looked at before the
    /// window is.
    async fn reposts_for(
        &self,
        reader: &Reader,
        acts: &[Act],
        strangers: &[&PostDoc],
        hidden: &mut Cow<'_, Hidden>,
    ) -> Result<Brought> {
        let authors = strangers.iter().map(|post| post.author_id());
        let posts: Vec<PostId> = strangers.iter().map(|post| PostId(post.id.into())).collect();
        let (private, entries) = futures::try_join!(self.private_among(authors), self.entries_of(reader.id, &posts))?;
        let public =
            |post: &&&PostDoc| Visibility::of(post.visibility.into(), private.contains(&post.author_id())) == Visibility::Public;
        let public: HashSet<PostId> = strangers.iter().filter(public).map(|post| PostId(post.id.into())).collect();
        let mut users: BTreeSet<UserId> = acts.iter().map(|act| act.actor).collect();
        let entries = entries.into_iter().map(Act::from).filter(|act| reader.follows(act.actor) && act.slot != act.post.0);
        let entries: Vec<Act> = entries.collect();
        users.extend(entries.iter().map(|act| act.actor));
        users.extend(reader.pending.iter().filter(|act| public.contains(&act.post)).map(|act| act.actor));
        users.extend(reader.heads.iter().map(|(actor, _)| *actor));
        users.extend(&reader.relations.unmerged);
        if posts.iter().any(|post| post.0 < reader.since) {
            users.extend(reader.everybody());
        }
        let users: Vec<UserId> = users.into_iter().filter(|user| !hidden.is_silenced(*user) && !self.is_deleting(*user)).collect();
        if reader.relations.hidden.is_none() {
            let these = self.hidden_among(Some(reader.id), users.iter().copied()).await?;
            hidden.to_mut().extend(these);
        }
        let found = self.reposts_between(&users, &posts).await?;
        let mut standing: HashMap<PostId, Vec<Act>> = HashMap::new();
        for repost in found.iter().filter(|repost| repost.stands && public.contains(&repost.act.post)) {
            if reader.follows(repost.act.actor) && !hidden.is_silenced(repost.act.actor) {
                standing.entry(repost.act.post).or_default().push(repost.act);
            }
        }
        // Of what was asked for and is not there at all, nothing can come back: a new repost is another act.
        let known: HashSet<(PostId, UserId)> = found.iter().map(|repost| (repost.act.post, repost.act.actor)).collect();
        let asked = |act: &&Act| users.binary_search(&act.actor).is_ok() && posts.contains(&act.post);
        let gone = |act: &&Act| act.slot != act.post.0 && asked(act) && !known.contains(&(act.post, act.actor));
        let dead: Vec<Act> = entries.iter().filter(gone).copied().collect();
        for act in acts.iter().filter(gone) {
            self.shared().heads.forget(act);
        }
        let places: HashMap<PostId, (Uuid, Vec<UserId>)> =
            standing.into_iter().filter_map(|(post, acts)| Some((post, place_of_reposts(&acts)?))).collect();
        let summaries = self.summaries(places.values().flat_map(|(_, by)| by.iter().copied()).collect::<HashSet<_>>()).await?;
        let named = |(post, (slot, by)): (PostId, (Uuid, Vec<UserId>))| {
            (post, (slot, by.iter().filter_map(|user| summaries.get(user).cloned()).collect()))
        };
        Ok(Brought { places: places.into_iter().map(named).collect(), dead })
    }
}

/// What reposts bring to a reader.
#[derive(Debug, Default)]
struct Brought {
    /// Where each post stands, and who brought it, newest first.
    places: HashMap<PostId, (Uuid, Vec<UserSummary>)>,
    /// Entries of reposts that are gone.
    dead: Vec<Act>,
}
