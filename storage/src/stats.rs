//! Views and statistics by the hour (the approximation and the bucket pattern).
//!
//! What happens is counted in memory, in the tally of the process ([`Tally`]), and added to the database in steps
//! ([`Store::flush_stats`]): views to `counters.views` of their post, everything to the day's bucket of its account and post. However
//! many read a post, its document is written at most once a second by each process.
//!
//! It is an approximation by contract. A process that is killed loses what it has not added yet, a step of about two seconds. Nothing is
//! added twice: what the server says it has not done is kept for the next step, each statement by itself, and what the server was sent
//! and did not answer is *in doubt* and forgotten (`stats_lost_total` counts it). A step asks first whether the database answers at
//! all, so that only a connection which breaks between that and the reply leaves any doubt.
//!
//! *Write first, check after*, as everywhere: a bucket that is written while its account or post is being deleted is either found by the
//! deletion's sweep, or found to be nobody's by the look that follows each write.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    PostId, Timestamp, UserId,
    post::Post,
    stats::{Figures, Hour, HourlyStats, Span},
};
use serde::Deserialize;

use crate::{
    Error, Result, Store,
    bulk::Statement,
    collections::{POSTS, STATS_HOURLY, USERS},
    error::{is_unsent, may_pass},
    graph::IdDoc,
    pending::Progress,
    store::{ANSWER, b, date, new_id, now, timestamp, until_no_conflict},
};

/// Steps of one process are at least so far apart, and so are its writes of one post.
const APART: Duration = Duration::from_secs(1);

/// Entries at which the tally asks for a step before its time: about a megabyte.
const FULL: usize = 10_000;

/// Entries beyond which nothing new is taken, so that memory is bounded also where no step succeeds: some 20 MB. It takes requests
/// about 200,000 different posts in a process whose steps all fail.
const MOST: usize = 200_000;

/// Statements in one command. A server does them one after the other, and a command must stay well within its deadline.
const PART: usize = 500;

/// How often a step tries what met a conflict, before it leaves that to the next step.
const TRIES: usize = 3;

/// Whom statistics are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    Account(UserId),
    Post(PostId),
}

impl Subject {
    fn id(self) -> bson::Uuid {
        match self {
            Self::Account(user) => b(user),
            Self::Post(post) => b(post),
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Account(_) => "account",
            Self::Post(_) => "post",
        }
    }
}

/// What a process has counted and not added to the database yet.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    noted: Mutex<Noted>,
    /// Steps are made one at a time: the last one, at the end of the process, waits for the one that is being made.
    step: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Noted {
    counts: Counts,
    /// When the last step began.
    stepped: Option<Instant>,
    /// What was not taken since, because there was too much.
    refused: u64,
}

#[derive(Debug, Default)]
struct Counts {
    /// What is to be added to the totals of posts. Apart from the hours, for the two are written apart.
    views: HashMap<PostId, i64>,
    hours: HashMap<(Subject, Hour), Figures>,
    /// Whose buckets were written, and of whom nobody has looked since whether they are still there.
    unchecked: HashSet<Subject>,
}

impl Counts {
    fn len(&self) -> usize {
        self.views.len() + self.hours.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.unchecked.is_empty()
    }

    fn add_hour(&mut self, subject: Subject, hour: Hour, figures: Figures) {
        self.hours.entry((subject, hour)).or_default().add(figures);
    }
}

impl Tally {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Whole between any two statements: a panic elsewhere leaves it as it should be.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.noted().stepped.is_none_or(|at| at.elapsed() >= APART)
    }

    /// Begins a step with everything that is noted.
    fn take(&self) -> Taken<'_> {
        let mut noted = self.noted();
        noted.stepped = Some(Instant::now());
        let refused = std::mem::take(&mut noted.refused);
        if refused > 0 {
            tracing::error!(refused, "statistics were not counted: too much waits to be written");
        }
        metrics::gauge!("stats_tally_entries").set(u32::try_from(noted.counts.len()).map_or(f64::INFINITY, f64::from));
        Taken { tally: self, counts: std::mem::take(&mut noted.counts) }
    }
}

impl Noted {
    /// Adds to one figure, or refuses what would be one entry too many.
    fn note(&mut self, subject: Subject, hour: Hour, figures: Figures, most: usize) {
        let room = self.counts.len() < most;
        match self.counts.hours.entry((subject, hour)) {
            Entry::Occupied(mut there) => there.get_mut().add(figures),
            Entry::Vacant(place) if room => {
                place.insert(figures);
            }
            Entry::Vacant(_) => self.refuse(),
        }
    }

    fn note_view(&mut self, post: PostId, most: usize) {
        let room = self.counts.len() < most;
        match self.counts.views.entry(post) {
            Entry::Occupied(mut there) => *there.get_mut() += 1,
            Entry::Vacant(place) if room => {
                place.insert(1);
            }
            Entry::Vacant(_) => self.refuse(),
        }
    }

    fn refuse(&mut self) {
        self.refused += 1;
        metrics::counter!("stats_lost_total").increment(1);
    }
}

/// What a step has taken and not written yet. What is left of it when the step ends, in whatever way, goes back to the tally.
#[derive(Debug)]
struct Taken<'a> {
    tally: &'a Tally,
    counts: Counts,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Counts { views, hours, unchecked } = std::mem::take(&mut self.counts);
        let mut noted = self.tally.noted();
        for (post, more) in views {
            *noted.counts.views.entry(post).or_default() += more;
        }
        for ((subject, hour), figures) in hours {
            noted.counts.add_hour(subject, hour, figures);
        }
        noted.counts.unchecked.extend(unchecked);
    }
}

/// What became of statements that were sent together.
#[derive(Debug, Default)]
struct Added {
    /// The places of those that did nothing.
    left: Vec<usize>,
    /// Whether some of them may do something when they are tried again at once.
    again: bool,
}

/// The bucket of one subject and day.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BucketDoc {
    day: bson::DateTime,
    views: BTreeMap<String, i64>,
    new_followers: BTreeMap<String, i64>,
    lost_followers: BTreeMap<String, i64>,
    posts: BTreeMap<String, i64>,
    likes: BTreeMap<String, i64>,
    comments: BTreeMap<String, i64>,
}

impl Default for BucketDoc {
    fn default() -> Self {
        let none = BTreeMap::new;
        Self {
            day: bson::DateTime::from_millis(0),
            views: none(),
            new_followers: none(),
            lost_followers: none(),
            posts: none(),
            likes: none(),
            comments: none(),
        }
    }
}

impl BucketDoc {
    /// The hours in which something happened, in their order.
    fn hours(&self) -> Vec<HourlyStats> {
        let day = timestamp(self.day);
        let of = |place: i64| {
            let at = |figure: &BTreeMap<String, i64>| figure.get(&place.to_string()).copied().unwrap_or_default();
            let figures = Figures {
                views: at(&self.views),
                new_followers: at(&self.new_followers),
                lost_followers: at(&self.lost_followers),
                posts: at(&self.posts),
                likes: at(&self.likes),
                comments: at(&self.comments),
            };
            HourlyStats { hour: Hour::in_day(day, place), figures }
        };
        (0..rookery_domain::stats::HOURS_OF_DAY).map(of).filter(|hour| !hour.figures.is_empty()).collect()
    }
}

impl Store {
    /// Counts a view: somebody who did not write it has read a post by itself. Lists and feeds do not count.
    pub fn note_view(&self, post: &Post, viewer: Option<UserId>) {
        if viewer == Some(post.author.id) {
            return;
        }
        let view = Figures { views: 1, ..Figures::default() };
        self.note(Some(post.id), [(Subject::Post(post.id), view), (Subject::Account(post.author.id), view)]);
    }

    /// Counts what an applier has just committed, in this hour. Figures count what came: what is taken back later lowers none.
    pub(crate) fn note_stats(&self, happened: impl IntoIterator<Item = (Subject, Figures)>) {
        self.note(None, happened);
    }

    fn note(&self, viewed: Option<PostId>, happened: impl IntoIterator<Item = (Subject, Figures)>) {
        let hour = Hour::of(now());
        let mut noted = self.tally().noted();
        if let Some(post) = viewed {
            noted.note_view(post, MOST);
        }
        for (subject, figures) in happened.into_iter().filter(|(_, figures)| !figures.is_empty()) {
            noted.note(subject, hour, figures, MOST);
        }
        let early = noted.counts.len() >= FULL && noted.stepped.is_none_or(|at| at.elapsed() >= APART);
        drop(noted);
        if early {
            self.wake().stats.notify_one();
        }
    }

    /// Adds to the database what was counted since, unless the last time is less than a second ago.
    pub async fn flush_stats_step(&self) -> Result<Progress> {
        if !self.tally().is_due() {
            return Ok(Progress::Idle);
        }
        Ok(match self.flush_stats().await? {
            0 => Progress::Idle,
            added => Progress::Did(added),
        })
    }

    /// Adds to the database what was counted since, at once, and says how many entries of the tally that were.
    pub async fn flush_stats(&self) -> Result<usize> {
        let _alone = self.tally().step.lock().await;
        let mut taken = self.tally().take();
        let before = taken.counts.len();
        let written = self.write_stats(&mut taken).await;
        let added = before - taken.counts.len();
        drop(taken);
        if written.is_err() {
            // A fault is told again by the very next step, and not hidden by one that is not due.
            self.tally().noted().stepped = None;
        }
        written.map(|()| added)
    }

    async fn write_stats(&self, taken: &mut Taken<'_>) -> Result<()> {
        if taken.counts.is_empty() {
            return Ok(());
        }
        // What is not sent is in no doubt: where the database is away, nothing is lost.
        self.ping().await?;
        self.add_views(taken).await?;
        self.add_hours(taken).await?;
        self.remove_buckets_of_nobody(taken).await
    }

    /// Adds views to the totals of live posts: one statement a post, one command for hundreds of them.
    async fn add_views(&self, taken: &mut Taken<'_>) -> Result<()> {
        for _ in 0..TRIES {
            let mut again = false;
            let all: Vec<(PostId, i64)> = taken.counts.views.iter().map(|(post, views)| (*post, *views)).collect();
            for part in all.chunks(PART) {
                let add = |(post, views): &(PostId, i64)| {
                    let live = doc! { "_id": b(*post), "state": "live" };
                    Statement::update(live, doc! { "$inc": { "counters.views": views } })
                };
                // From here on they are sent: only what is known not to be written comes back.
                for (post, _) in part {
                    taken.counts.views.remove(post);
                }
                let (added, fault) = self.add(POSTS, part.iter().map(add).collect()).await;
                taken.counts.views.extend(added.left.iter().map(|at| part[*at]));
                again |= added.again;
                fault.map_or(Ok(()), Err)?;
            }
            if !again {
                break;
            }
        }
        Ok(())
    }

    /// Adds figures to the buckets of their days: one upsert for each subject and day.
    async fn add_hours(&self, taken: &mut Taken<'_>) -> Result<()> {
        for _ in 0..TRIES {
            let mut again = false;
            let mut buckets: BTreeMap<(Subject, Timestamp), Vec<(Hour, Figures)>> = BTreeMap::new();
            for ((subject, hour), figures) in &taken.counts.hours {
                buckets.entry((*subject, hour.day())).or_default().push((*hour, *figures));
            }
            let buckets: Vec<_> = buckets.into_iter().collect();
            for part in buckets.chunks(PART) {
                let statements = part.iter().map(|((subject, day), hours)| bucket_statement(*subject, *day, hours)).collect();
                for ((subject, _), hours) in part {
                    taken.counts.unchecked.insert(*subject);
                    for (hour, _) in hours {
                        taken.counts.hours.remove(&(*subject, *hour));
                    }
                }
                let (added, fault) = self.add(STATS_HOURLY, statements).await;
                for at in added.left {
                    let ((subject, _), hours) = &part[at];
                    for (hour, figures) in hours {
                        taken.counts.add_hour(*subject, *hour, *figures);
                    }
                }
                again |= added.again;
                fault.map_or(Ok(()), Err)?;
            }
            if !again {
                break;
            }
        }
        Ok(())
    }

    /// Runs statements each for itself, and says which of them did nothing. With a fault the rest of the step can wait.
    async fn add(&self, collection: &'static str, statements: Vec<Statement>) -> (Added, Option<Error>) {
        let all = statements.len();
        let failed = match self.update_each(collection, statements).await {
            Ok(failed) => failed,
            Err(error) if is_unsent(&error) => {
                return (Added { left: (0..all).collect(), again: false }, Some(error.into()));
            }
            Err(error) => {
                tracing::warn!(collection, entries = all, "statistics are in doubt and forgotten: the database did not answer");
                metrics::counter!("stats_lost_total").increment(all as u64);
                return (Added::default(), Some(error.into()));
            }
        };
        let mut added = Added::default();
        for failure in failed {
            if may_pass(failure.code) {
                added.again = true;
            } else {
                // A bug. It is kept, and said each time, until somebody mends it.
                tracing::error!(collection, code = failure.code, detail = failure.errmsg, "the database refuses statistics");
            }
            added.left.push(failure.index);
        }
        (added, None)
    }

    /// Removes the buckets, of those just written, whose account or post is no longer live. One that is found live here may be deleted in
    /// this moment; then its bucket was there before, and the deletion's sweep finds it.
    async fn remove_buckets_of_nobody(&self, taken: &mut Taken<'_>) -> Result<()> {
        let all: Vec<Subject> = taken.counts.unchecked.iter().copied().collect();
        let (accounts, posts): (Vec<_>, Vec<_>) = all.into_iter().partition(|subject| matches!(subject, Subject::Account(_)));
        for (name, subjects) in [(USERS, accounts), (POSTS, posts)] {
            for part in subjects.chunks(ANSWER as usize) {
                let ids: Vec<bson::Uuid> = part.iter().map(|subject| subject.id()).collect();
                let live = doc! { "_id": { "$in": &ids }, "state": "live" };
                let found = self.coll::<IdDoc>(name).find(live).projection(doc! { "_id": 1 }).batch_size(ANSWER).await?;
                let found: HashSet<[u8; 16]> = found.map_ok(|doc| doc.id.bytes()).try_collect().await?;
                let gone: Vec<bson::Uuid> = ids.into_iter().filter(|id| !found.contains(&id.bytes())).collect();
                if !gone.is_empty() {
                    let theirs = doc! { "subject": { "$in": gone } };
                    let buckets = self.coll::<Document>(STATS_HOURLY);
                    until_no_conflict(async || Ok(buckets.delete_many(theirs.clone()).await?)).await?;
                }
                for subject in part {
                    taken.counts.unchecked.remove(subject);
                }
            }
        }
        Ok(())
    }

    /// What happened to an account in the hours of a span, the earliest first; hours in which nothing did are left out.
    pub async fn stats_of(&self, user: UserId, span: Span) -> Result<Vec<HourlyStats>> {
        let (first, last) = span.days();
        let days = doc! { "subject": b(user), "day": { "$gte": date(first), "$lte": date(last) } };
        let buckets = self.coll::<BucketDoc>(STATS_HOURLY).find(days).sort(doc! { "subject": 1, "day": 1 }).await?;
        let buckets: Vec<BucketDoc> = buckets.try_collect().await?;
        Ok(buckets.iter().flat_map(BucketDoc::hours).filter(|hour| span.touches(hour.hour)).collect())
    }

    /// Everything that is kept of an account's hours, as it is read.
    pub(crate) async fn all_stats_of(
        &self,
        user: UserId,
    ) -> Result<impl futures::Stream<Item = Result<HourlyStats>> + Send + use<>> {
        let own = doc! { "subject": b(user) };
        let buckets = self.coll::<BucketDoc>(STATS_HOURLY).find(own).sort(doc! { "subject": 1, "day": 1 }).await?;
        let hours = buckets.map_ok(|bucket| futures::stream::iter(bucket.hours().into_iter().map(Ok)));
        Ok(hours.try_flatten().map_err(|error: mongodb::error::Error| error.into()))
    }
}

/// Adds to one bucket, and makes it where it is the first of its day. Nothing but additions: of two first writes neither replaces the
/// other.
fn bucket_statement(subject: Subject, day: Timestamp, hours: &[(Hour, Figures)]) -> Statement {
    let mut add = Document::new();
    for (hour, figures) in hours {
        let each = [
            ("views", figures.views),
            ("newFollowers", figures.new_followers),
            ("lostFollowers", figures.lost_followers),
            ("posts", figures.posts),
            ("likes", figures.likes),
            ("comments", figures.comments),
        ];
        for (figure, count) in each.into_iter().filter(|(_, count)| *count != 0) {
            add.insert(format!("{figure}.{}", hour.place()), count);
        }
    }
    let made = doc! { "_id": b(new_id()), "kind": subject.kind() };
    Statement::upsert(doc! { "subject": subject.id(), "day": date(day) }, doc! { "$inc": add, "$setOnInsert": made })
}
