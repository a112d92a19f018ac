//! The scenario `celebrity`: what accounts with very many followers cost, and what they cost everybody else.
//!
//! Parts, in this order, each with the limit it is held against measured right before it: posts are written and delivered; newcomers
//! storm the largest account; the largest account that is still delivered to writes posts until enough feed entries are delivered;
//! readers read their feeds; all of it at once in open loops at a target rate; and the largest account is compared with a small one,
//! request by request in turns.

mod comparison;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use uuid::Uuid;

use crate::{
    cast::{Cast, Reader, Troupe},
    client::{Account, Api, PAGE},
    limits::Raw,
    loops::{Driver, Failure, Measured, Plan, per_second},
    report::{Goal, Line, Report, ratio},
    rest::{PATIENCE, POLL, until_rest},
    service::resident_bytes,
};

/// How much of everything.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Callers of the closed loops.
    pub(crate) callers: usize,
    /// How long the closed loop of feeds and each open loop last.
    pub(crate) duration: Duration,
    /// How long each limit is measured.
    pub(crate) limit: Duration,
    /// Calls a second of each open loop.
    pub(crate) rate: f64,
    /// Follows of the storm.
    pub(crate) storm: u64,
    /// Feed entries to deliver.
    pub(crate) fan_out_entries: u64,
    /// Readers with 200 follows each.
    pub(crate) readers: u64,
    /// Requests of each kind to each of the two accounts compared, in one run.
    pub(crate) samples: u64,
    /// Runs of the comparison.
    pub(crate) runs: usize,
}

impl Sizes {
    /// Enough for figures to be repeatable.
    pub(crate) fn full() -> Self {
        Self {
            callers: 32,
            duration: Duration::from_secs(10),
            limit: Duration::from_secs(3),
            rate: 50.0,
            storm: 10_000,
            fan_out_entries: 100_000,
            readers: 32,
            samples: 2_000,
            runs: 5,
        }
    }

    /// Enough to see that everything works.
    pub(crate) fn quick() -> Self {
        Self {
            callers: 8,
            duration: Duration::from_secs(2),
            limit: Duration::from_millis(500),
            rate: 20.0,
            storm: 300,
            fan_out_entries: 3_000,
            readers: 6,
            samples: 50,
            runs: 1,
        }
    }
}

/// Everything a run works with.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) driver: Driver,
    pub(crate) troupe: Troupe,
    pub(crate) cast: Cast,
    pub(crate) sizes: Sizes,
    /// The database, where its address is known.
    pub(crate) raw: Option<Raw>,
    /// The service's process, where it is our own.
    pub(crate) process: Option<u32>,
}

/// The goals, but for the comparison's. They are stated in `docs/load-tests.md` with the reason for each.
const STORM_TO_INSERT_ONE: f64 = 0.4;
const EFFECTS_WITHIN: Duration = Duration::from_secs(2);
const FAN_OUT_TO_INSERT_MANY: f64 = 0.6;
const MEMORY_BELOW_BYTES: u64 = 150_000_000;
const FEED_TO_FIND_ONE: f64 = 0.12;

const POSTS_OF_A_CELEBRITY: usize = 10;
const POSTS_OF_AN_AUTHOR: usize = 2;

impl Scenario {
    /// Runs every part and adds what it measured to the report, which holds the parts done so far also where this fails.
    ///
    /// # Errors
    /// The setting cannot be made, or the run was interrupted. Failed calls of a measured part are in the report instead.
    pub(crate) async fn run(&self, report: &mut Report) -> Result<()> {
        self.bare_limits(report).await.context("bare limits")?;
        let mut readers = self.set_up().await.context("setting up")?;
        self.follow_storm(report).await.context("follow storm")?;
        self.fan_out(report).await.context("fan-out")?;
        self.troupe.sign_in_again(&mut readers).await.context("feed")?;
        let readers = Arc::new(readers);
        self.feed(&readers, report).await.context("feed")?;
        self.all_at_once(&readers, report).await.context("all at once")?;
        self.largest_against_small(report).await.context("largest against small")
    }

    /// Readers, and posts for them to find.
    async fn set_up(&self) -> Result<Vec<Reader>> {
        let celebrities = self.troupe.sign_in(&self.cast.celebrities).await?;
        let authors = self.troupe.sign_in(&self.cast.authors).await?;
        self.expect_celebrity(&celebrities[0]).await?;
        let readers = self.troupe.readers(self.sizes.readers, &celebrities, &authors).await?;
        self.write_posts(celebrities, authors).await?;
        Ok(readers)
    }

    fn api(&self) -> &Api {
        &self.troupe.api
    }

    fn go_on(&self) -> Result<()> {
        ensure!(!self.driver.stop().is_set(), "interrupted");
        Ok(())
    }

    async fn bare_limits(&self, report: &mut Report) -> Result<()> {
        let api = self.api().clone();
        let plan = Plan::closed_for("limit: bare HTTP", self.sizes.callers, self.sizes.limit).warm_up(200);
        let bare = self
            .driver
            .drive(plan, move |_| {
                let api = api.clone();
                async move { api.health().await }
            })
            .await;
        if let Some(code) = bare.errors.keys().next() {
            bail!("the service does not answer /healthz ({code})");
        }
        report.limits.http_bare_per_s = Some(bare.rate().round());
        if let Some(raw) = &self.raw {
            self.go_on()?;
            report.limits.find_one_per_s = Some(raw.find_one(&self.driver, self.sizes.callers, self.sizes.limit).await?);
        } else {
            report
                .remark("The address of the database is not known (--mongodb-uri), so the limits of the driver were not measured.");
        }
        Ok(())
    }

    /// The flag may lag behind an import that has just ended.
    async fn expect_celebrity(&self, account: &Account) -> Result<()> {
        let began = Instant::now();
        loop {
            let profile = self.api().profile(account.id).await?;
            if profile.celebrity {
                return Ok(());
            }
            let followers = profile.counts.followers;
            ensure!(
                began.elapsed() < PATIENCE,
                "@{} has {followers} followers and is no celebrity: does the service run with the threshold given here?",
                profile.handle
            );
            self.go_on()?;
            tokio::time::sleep(POLL).await;
        }
    }

    /// What readers will find in their feeds.
    async fn write_posts(&self, celebrities: Vec<Account>, authors: Vec<Account>) -> Result<()> {
        let by_celebrities = celebrities.into_iter().flat_map(|author| vec![author; POSTS_OF_A_CELEBRITY]);
        let by_authors = authors.into_iter().flat_map(|author| vec![author; POSTS_OF_AN_AUTHOR]);
        let writers: Vec<_> = by_celebrities.chain(by_authors).collect();
        let count = writers.len() as u64;
        let plan = Plan::closed("writing posts", self.sizes.callers, count);
        let measured = self.driver.drive(plan, posting(self.api(), writers)).await;
        self.go_on()?;
        if let Some((code, failed)) = measured.errors.iter().next() {
            bail!("{failed} of {count} posts could not be written ({code})");
        }
        self.until_deliveries_rest().await.map(drop)
    }

    async fn follow_storm(&self, report: &mut Report) -> Result<()> {
        self.go_on()?;
        let warm_up = self.sizes.storm / 10;
        let followers = self.troupe.newcomers(self.sizes.storm + warm_up).await?;
        let celebrity = self.celebrity().await?;
        let before = self.until_followers_rest(celebrity.id).await?;
        if let Some(raw) = &self.raw {
            report.limits.insert_one_per_s = Some(raw.insert_one(&self.driver, self.sizes.callers, self.sizes.limit).await?);
            self.go_on()?;
        }
        let accepted = Arc::new(AtomicU64::new(0));
        let plan = Plan::closed("follow_storm", self.sizes.callers, self.sizes.storm).warm_up(warm_up);
        let storm = self.driver.drive(plan, following(self.api(), followers, celebrity.id, &accepted)).await;
        let ended = Instant::now();
        let of_insert = ratio(storm.rate(), report.limits.insert_one_per_s);
        report.push(Line::from(&storm).ratio(of_insert, "insert_one", Goal::AtLeast(STORM_TO_INSERT_ONE)));
        let expected = before + accepted.load(Ordering::Relaxed);
        let mut effects = Measured::new("storm_effects_applied");
        let applied = self.until_applied(celebrity.id, expected).await?;
        effects.record(ended.elapsed(), applied);
        let seconds = (effects.count() == 1).then(|| effects.percentile_ms(100.0) / 1_000.0);
        let line = Line::from(&effects).without_rate();
        report.push(line.ratio(ratio(seconds, EFFECTS_WITHIN.as_secs_f64()), "2 s", Goal::AtMost(1.0)));
        Ok(())
    }

    /// Waits until an account has exactly these followers and none is pending.
    async fn until_applied(&self, account: Uuid, expected: u64) -> Result<Result<(), Failure>> {
        let began = Instant::now();
        loop {
            let followers = self.api().profile(account).await?.counts.followers;
            if followers == expected {
                let pending = match &self.raw {
                    Some(raw) => raw.has_pending_follows(account).await?,
                    None => false,
                };
                if !pending {
                    return Ok(Ok(()));
                }
            }
            if followers > expected || began.elapsed() > PATIENCE {
                return Ok(Err(Failure::wrong(format!("{followers} followers instead of {expected}"))));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn fan_out(&self, report: &mut Report) -> Result<()> {
        self.go_on()?;
        if let Some(raw) = &self.raw {
            report.limits.insert_many_docs_per_s = Some(raw.insert_many(&self.driver, self.sizes.limit).await?);
        }
        let author = self.account(self.cast.broadcaster).await?;
        let followers = self.api().profile(author.id).await?.counts.followers;
        ensure!(followers > 0, "@{} has no followers to deliver to", author.handle);
        let posts = self.sizes.fan_out_entries.div_ceil(followers);
        let before = self.until_deliveries_rest().await?;
        let expected = before + posts * followers;

        let memory_before = self.process.map(resident_bytes).transpose()?;
        let mut memory = Vec::new();
        let began = Instant::now();
        let plan = Plan::closed("fan_out_posts", self.sizes.callers, posts);
        let writing = self.driver.drive(plan, posting(self.api(), vec![author]));
        let watching = async {
            loop {
                memory.extend(self.process.map(resident_bytes).transpose()?);
                let delivered = self.api().fanout_entries().await?;
                if delivered >= expected || began.elapsed() > PATIENCE || self.driver.stop().is_set() {
                    return anyhow::Ok(delivered - before);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let (written, delivered) = tokio::join!(writing, watching);
        let (elapsed, delivered) = (began.elapsed(), delivered?);
        report.push(&written);

        let mut line = Line::new("fan_out_entries");
        line.count = delivered;
        line.rate_per_s = Some(per_second(delivered, elapsed).round());
        if delivered < expected - before && !self.driver.stop().is_set() {
            line.errors = 1;
            report.remark(format!("Of {} feed entries, {delivered} were delivered.", expected - before));
        }
        let of_insert = ratio(line.rate_per_s, report.limits.insert_many_docs_per_s);
        report.push(line.ratio(of_insert, "insert_many", Goal::AtLeast(FAN_OUT_TO_INSERT_MANY)));
        if let (Some(first), Some(peak)) = (memory_before, memory.iter().max().copied()) {
            let mut line = Line::new("fan_out_memory");
            line.count = memory.len() as u64;
            report.push(line.ratio(ratio(megabytes(peak), megabytes(MEMORY_BELOW_BYTES)), "150 MB", Goal::AtMost(1.0)));
            let (first, peak) = (megabytes(first), megabytes(peak));
            report.remark(format!("Memory of the service: {first:.0} MB before the fan-out, at most {peak:.0} MB during it."));
        }
        Ok(())
    }

    async fn feed(&self, readers: &Arc<Vec<Reader>>, report: &mut Report) -> Result<()> {
        self.go_on()?;
        // Fan-outs, and the merging of what the readers have just followed.
        until_rest(self.driver.stop(), "background work", || async { self.api().background_items().await }).await?;
        let caller = readers[0].account.clone();
        match self.api().bench_find_one(&caller).await {
            Ok(()) => {
                let api = self.api().clone();
                let plan = Plan::closed_for("limit: find_one over HTTP", self.sizes.callers, self.sizes.limit).warm_up(200);
                let find_one = self
                    .driver
                    .drive(plan, move |_| {
                        let (api, caller) = (api.clone(), caller.clone());
                        async move { api.bench_find_one(&caller).await }
                    })
                    .await;
                if let Some(code) = find_one.errors.keys().next() {
                    bail!("/bench/find-one failed ({code})");
                }
                report.limits.http_find_one_per_s = Some(find_one.rate().round());
            }
            Err(Failure(code)) if code.starts_with("404") => {
                report.remark("The service has no /bench/find-one (ROOKERY_BENCH=on), so the feed has no ratio.");
            }
            Err(failure) => bail!("/bench/find-one failed ({failure})"),
        }
        let plan = Plan::closed_for("feed_page", self.sizes.callers, self.sizes.duration).warm_up(2 * self.sizes.readers);
        let feed = self.driver.drive(plan, reading(self.api(), readers)).await;
        let of_find = ratio(feed.rate(), report.limits.http_find_one_per_s);
        report.push(Line::from(&feed).ratio(of_find, "http_find_one", Goal::AtLeast(FEED_TO_FIND_ONE)));
        Ok(())
    }

    /// Five open loops side by side, each at the target rate, with a second of warm-up.
    async fn all_at_once(&self, readers: &Arc<Vec<Reader>>, report: &mut Report) -> Result<()> {
        self.go_on()?;
        let rate = self.sizes.rate;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive count far below 2^53")]
        let (warm_up, count) = (rate.ceil() as u64, (rate * self.sizes.duration.as_secs_f64()).ceil() as u64);
        let plan = |name: &str| Plan::open(name, rate, count).warm_up(warm_up);

        let newcomers = self.troupe.newcomers(count + warm_up).await?;
        let celebrities = self.troupe.sign_in(&self.cast.celebrities).await?;
        let authors = self.troupe.sign_in(&self.cast.authors).await?;
        let stormed = celebrities[0].id;
        let walk = self.walk(stormed).await?;
        let accepted = Arc::new(AtomicU64::new(0));
        let before = self.until_followers_rest(stormed).await?;
        let storm = self.driver.drive(plan("open_follow_storm"), following(self.api(), newcomers, stormed, &accepted));
        let by_celebrities = self.driver.drive(plan("open_post_by_celebrity"), posting(self.api(), celebrities));
        let by_authors = self.driver.drive(plan("open_post_by_ordinary"), posting(self.api(), authors));
        let feeds = self.driver.drive(plan("open_feed_page"), reading(self.api(), readers));
        let api = self.api().clone();
        let paging = self.driver.drive(plan("open_follower_page"), move |number| {
            let (api, cursor) = (api.clone(), walk.deep.clone().filter(|_| number % 2 == 1));
            async move { api.followers(stormed, cursor.as_deref()).await.map(drop) }
        });
        let mut measured: [Measured; 5] = tokio::join!(storm, by_celebrities, by_authors, feeds, paging).into();
        if let Err(Failure(code)) = self.until_applied(stormed, before + accepted.load(Ordering::Relaxed)).await? {
            *measured[0].errors.entry(code).or_insert(0) += 1;
        }
        for measured in &measured {
            report.push(measured);
        }
        Ok(())
    }

    async fn account(&self, number: u64) -> Result<Account> {
        self.troupe.sign_in(&[number]).await?.pop().context("nobody was logged in")
    }

    async fn celebrity(&self) -> Result<Account> {
        self.account(self.cast.celebrities[0]).await
    }

    /// Waits until no feed entries are delivered any more, and gives how many were.
    async fn until_deliveries_rest(&self) -> Result<u64> {
        until_rest(self.driver.stop(), "deliveries", || async { self.api().fanout_entries().await }).await
    }

    /// Waits until an account's number of followers stands still, and gives it.
    async fn until_followers_rest(&self, account: Uuid) -> Result<u64> {
        until_rest(self.driver.stop(), "followers", || async { Ok(self.api().profile(account).await?.counts.followers) }).await
    }

    /// Walks a whole list of followers.
    async fn walk(&self, account: Uuid) -> Result<Walk> {
        let mut walk = Walk { followers: 0, deep: None };
        let mut cursor: Option<String> = None;
        loop {
            self.go_on()?;
            let page = self.api().followers(account, cursor.as_deref()).await?;
            walk.followers += page.items.len() as u64;
            if page.items.len() == PAGE && cursor.is_some() {
                walk.deep = cursor;
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(walk),
            }
        }
    }
}

/// A list of followers from end to end.
struct Walk {
    followers: u64,
    /// The cursor of the deepest page that is full, if there is one beyond the first.
    deep: Option<String>,
}

/// A call that posts, by the writers in turns.
fn posting(api: &Api, writers: Vec<Account>) -> impl Fn(u64) -> BoxedCall + Send + Sync + 'static {
    let (api, writers) = (api.clone(), Arc::new(writers));
    move |number| {
        let (api, writers) = (api.clone(), Arc::clone(&writers));
        Box::pin(async move {
            let writer = &writers[in_turn(number, writers.len())];
            api.post(writer, &format!("Post {number} of @{}, written under load.", writer.handle)).await
        })
    }
}

/// A call that reads a feed, by the readers in turns.
fn reading(api: &Api, readers: &Arc<Vec<Reader>>) -> impl Fn(u64) -> BoxedCall + Send + Sync + 'static {
    let (api, readers) = (api.clone(), Arc::clone(readers));
    move |number| {
        let (api, readers) = (api.clone(), Arc::clone(&readers));
        Box::pin(async move {
            let reader = &readers[in_turn(number, readers.len())];
            api.feed(&reader.account, &reader.followed).await
        })
    }
}

/// A call by which the next newcomer follows the account; counts what was accepted, the warm-up included.
fn following(
    api: &Api,
    newcomers: Vec<Account>,
    account: Uuid,
    accepted: &Arc<AtomicU64>,
) -> impl Fn(u64) -> BoxedCall + Send + Sync + 'static {
    let (api, newcomers, accepted) = (api.clone(), Arc::new(newcomers), Arc::clone(accepted));
    move |number| {
        let (api, newcomers, accepted) = (api.clone(), Arc::clone(&newcomers), Arc::clone(&accepted));
        Box::pin(async move {
            api.follow(&newcomers[in_turn(number, newcomers.len())], account).await?;
            accepted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }
}

type BoxedCall = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

fn in_turn(number: u64, count: usize) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX) % count
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory, shown in millions")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
