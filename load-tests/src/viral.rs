//! The scenario `viral`: everybody comments on one post at the same time, and then likes it.
//!
//! Parts, in this order: many callers comment on the post, every other comment an answer to one and the same, so that there is a long list
//! and a long thread; the first and the last page of each are compared in turns; and as many accounts like the post. It shows that a post
//! that everybody writes under is written once for a batch of them, and that no page costs more because it lies deep.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use uuid::Uuid;

use crate::{
    cast::Troupe,
    client::{Account, Api, PAGE, PostCounts},
    edges::Edge,
    limits::Raw,
    loops::{Driver, Failure, Measured, Plan},
    report::{Goal, Line, Report, median, ratio},
    rest::{PATIENCE, POLL, until_rest},
    turns::{Timed, in_turns, timed},
};

/// Who writes the post, by the number in the graph.
const AUTHOR: u64 = 0;
const FIRST_CALLER: u64 = 1;

/// The goals. They are stated in `docs/load-tests.md`.
const LAST_TO_FIRST: f64 = 1.5;
const APPLIED_WITHIN: Duration = Duration::from_secs(2);

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Callers at a time.
    pub(crate) callers: usize,
    /// Comments, and likes after them, of which each is by another account.
    pub(crate) comments: u64,
    /// Requests for each of two pages that are compared, in one run.
    pub(crate) samples: u64,
    /// Runs of the comparison, of which the median counts.
    pub(crate) runs: usize,
    /// How long the limit is measured.
    pub(crate) limit: Duration,
}

impl Sizes {
    /// Enough for figures to be repeatable.
    pub(crate) const FULL: Self = Self { callers: 32, comments: 10_000, samples: 2_000, runs: 5, limit: Duration::from_secs(3) };

    /// Enough to see that everything works.
    pub(crate) const QUICK: Self = Self { callers: 8, comments: 200, samples: 20, runs: 1, limit: Duration::from_millis(500) };

    /// The graph: an edge list has no accounts without an edge, so everybody follows the author.
    pub(crate) fn edges(self) -> impl Iterator<Item = Edge> {
        (FIRST_CALLER..=self.comments).map(|caller| (caller, AUTHOR))
    }

    fn callers_numbers(self) -> Vec<u64> {
        (FIRST_CALLER..=self.comments).collect()
    }
}

/// What is read from its first to its last page.
#[derive(Debug, Clone, Copy)]
enum Kind {
    List,
    Thread,
}

impl Kind {
    const ALL: [Self; 2] = [Self::List, Self::Thread];

    fn name(self) -> &'static str {
        match self {
            Self::List => "comment_page",
            Self::Thread => "thread_page",
        }
    }
}

/// Where a run writes and reads.
#[derive(Debug, Clone, Copy)]
struct Place {
    post: Uuid,
    /// The comment that every other one answers.
    root: Uuid,
}

/// What of a post is counted, and by which of the service's metrics its batches are.
#[derive(Debug, Clone, Copy)]
enum Counted {
    Comments,
    Likes,
}

impl Counted {
    fn of(self, counts: &PostCounts) -> u64 {
        match self {
            Self::Comments => counts.comments,
            Self::Likes => counts.likes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Comments => "comments",
            Self::Likes => "likes",
        }
    }
}

/// Everything a run works with.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) driver: Driver,
    pub(crate) troupe: Troupe,
    pub(crate) sizes: Sizes,
    pub(crate) raw: Raw,
}

impl Scenario {
    /// Runs every part and adds what it measured to the report, which holds the parts done so far also where this fails.
    ///
    /// # Errors
    /// The setting cannot be made, or the run was interrupted. Failed calls of a measured part are in the report instead.
    pub(crate) async fn run(&self, report: &mut Report) -> Result<()> {
        let author = self.troupe.sign_in(&[AUTHOR]).await?.pop().context("nobody was logged in")?;
        let post = self.api().publish(&author, "A post that everybody has something to say about.").await?;
        let root = self.api().comment(&author, post, "Why?", None).await?;
        let place = Place { post, root };
        report.limits.insert_one_per_s = Some(self.raw.insert_one(&self.driver, self.sizes.callers, self.sizes.limit).await?);
        self.comment_storm(place, report).await.context("comment storm")?;
        self.first_against_last(place, report).await.context("first against last page")?;
        self.like_storm(place, report).await.context("like storm")
    }

    fn api(&self) -> &Api {
        &self.troupe.api
    }

    fn go_on(&self) -> Result<()> {
        ensure!(!self.driver.stop().is_set(), "interrupted");
        Ok(())
    }

    async fn comment_storm(&self, place: Place, report: &mut Report) -> Result<()> {
        let writers = Arc::new(self.troupe.sign_in(&self.sizes.callers_numbers()).await?);
        let api = self.api().clone();
        // The author's own.
        let before = 1;
        self.storm(Counted::Comments, place.post, before, report, move |number| {
            let (api, writers) = (api.clone(), Arc::clone(&writers));
            async move {
                let parent = (number % 2 == 1).then_some(place.root);
                api.comment(in_turn(&writers, number), place.post, &format!("Comment {number}."), parent).await.map(drop)
            }
        })
        .await
    }

    async fn like_storm(&self, place: Place, report: &mut Report) -> Result<()> {
        self.go_on()?;
        // A token lives ten minutes.
        let likers = Arc::new(self.troupe.sign_in(&self.sizes.callers_numbers()).await?);
        let api = self.api().clone();
        self.storm(Counted::Likes, place.post, 0, report, move |number| {
            let (api, likers) = (api.clone(), Arc::clone(&likers));
            async move { api.like_post(in_turn(&likers, number), place.post).await }
        })
        .await
    }

    /// As many calls as there are accounts, all to one post, and then until the post counts them.
    async fn storm<F>(
        &self,
        counted: Counted,
        post: Uuid,
        before: u64,
        report: &mut Report,
        call: impl Fn(u64) -> F + Send + Sync + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let name = counted.name();
        let began_with = self.api().applied_batches(name).await?;
        let accepted = Arc::new(AtomicU64::new(0));
        let (sink, call) = (Arc::clone(&accepted), Arc::new(call));
        let plan = Plan::closed(format!("{name}_storm"), self.sizes.callers, self.sizes.comments);
        let driving = self.driver.drive(plan, move |number| {
            let (sink, call) = (Arc::clone(&sink), Arc::clone(&call));
            async move {
                call(number).await?;
                sink.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        });
        let storm = driving.await;
        let ended = Instant::now();
        report.push(Line::from(&storm).beside(ratio(storm.rate(), report.limits.insert_one_per_s), "insert_one"));
        let accepted = accepted.load(Ordering::Relaxed);
        let answer = self.until_counted(counted, post, before + accepted).await?;
        let mut applied = Measured::new(format!("{name}_applied"));
        applied.record(ended.elapsed(), answer);
        let seconds = (applied.count() == 1).then(|| applied.percentile_ms(100.0) / 1_000.0);
        let line = Line::from(&applied).without_rate();
        report.push(line.ratio(ratio(seconds, APPLIED_WITHIN.as_secs_f64()), "2 s", Goal::AtMost(1.0)));
        let batches = self.api().applied_batches(name).await? - began_with;
        let mut line = Line::new(format!("{name}_batches"));
        line.count = batches;
        report.push(line.beside(ratio(as_f64(batches), as_f64(accepted)), name));
        self.go_on()
    }

    /// Waits until the post counts exactly so many.
    async fn until_counted(&self, counted: Counted, post: Uuid, expected: u64) -> Result<Result<(), Failure>> {
        let began = Instant::now();
        loop {
            let now = counted.of(&self.api().post_counts(post).await?);
            if now == expected {
                return Ok(Ok(()));
            }
            if now > expected || began.elapsed() > PATIENCE {
                return Ok(Err(Failure::wrong(format!("{now} {} instead of {expected}", counted.name()))));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The first and the last page of the list and of the thread, one caller, in turns.
    async fn first_against_last(&self, place: Place, report: &mut Report) -> Result<()> {
        self.go_on()?;
        until_rest(self.driver.stop(), "background work", || async { self.api().background_items().await }).await?;
        for kind in Kind::ALL {
            let (pages, last) = self.last_page(kind, place).await?;
            report.remark(format!("{}: the last full page is number {pages}.", kind.name()));
            let mut all = [Measured::new(format!("{}_first", kind.name())), Measured::new(format!("{}_last", kind.name()))];
            let mut ratios = Vec::new();
            for run in 1..=self.sizes.runs {
                let (api, last) = (self.api().clone(), last.clone());
                let pair = in_turns(&self.driver, &format!("{} run {run}", kind.name()), self.sizes.samples, move |which, _| {
                    let (api, cursor) = (api.clone(), last.clone().filter(|_| which == 1));
                    async move { read_page(&api, kind, place, cursor.as_deref()).await }
                })
                .await;
                ratios.extend(ratio(pair[1].percentile_ms(95.0), pair[0].percentile_ms(95.0)));
                for (sum, one) in all.iter_mut().zip(&pair) {
                    sum.merge(one);
                }
                self.go_on()?;
            }
            report.push(&all[0]);
            report.push(Line::from(&all[1]).ratio(median(ratios), "first, p95", Goal::AtMost(LAST_TO_FIRST)));
        }
        Ok(())
    }

    /// The number of the last full page and its cursor; the walk finds as many comments as there are.
    async fn last_page(&self, kind: Kind, place: Place) -> Result<(usize, Option<String>)> {
        let (mut walked, mut last, mut cursor, mut page_number) = (0_u64, (0, None), None::<String>, 0);
        let total = loop {
            page_number += 1;
            let page = page(self.api(), kind, place, cursor.as_deref()).await?;
            walked += page.0 as u64;
            if page.0 == PAGE {
                last = (page_number, cursor);
            }
            match page.1 {
                Some(next) => cursor = Some(next),
                None => break page.2,
            }
            self.go_on()?;
        };
        ensure!(total.is_none_or(|total| total == walked), "a walk finds {walked} comments and the list says {total:?}");
        ensure!(last.0 > 1, "too few comments for a page beyond the first");
        Ok(last)
    }
}

/// A page: how many items, where it goes on, and the total that it tells.
async fn page(api: &Api, kind: Kind, place: Place, cursor: Option<&str>) -> Result<(usize, Option<String>, Option<u64>), Failure> {
    match kind {
        Kind::List => {
            let page = api.comments(place.post, cursor).await?;
            Ok((page.items.len(), page.next_cursor, Some(page.total)))
        }
        Kind::Thread => {
            let below = api.thread(place.root, cursor).await?;
            Ok((below.items.len(), below.next_cursor, None))
        }
    }
}

async fn read_page(api: &Api, kind: Kind, place: Place, cursor: Option<&str>) -> Timed {
    timed(async {
        let (items, ..) = page(api, kind, place, cursor).await?;
        if items == PAGE { Ok(()) } else { Err(Failure::wrong(format!("a page of {items} instead of {PAGE}"))) }
    })
    .await
}

fn in_turn(accounts: &[Account], number: u64) -> &Account {
    &accounts[usize::try_from(number).unwrap_or(usize::MAX) % accounts.len()]
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_graph_has_an_account_for_each_comment_and_the_author() {
        let sizes = Sizes { comments: 50, ..Sizes::QUICK };
        let callers: HashSet<_> = sizes.edges().map(|(caller, _)| caller).collect();
        assert_eq!(callers, sizes.callers_numbers().into_iter().collect());
        assert!(callers.len() == 50 && sizes.edges().all(|(_, followee)| followee == AUTHOR) && !callers.contains(&AUTHOR));
    }
}
