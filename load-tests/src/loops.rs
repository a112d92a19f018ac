//! Driving calls, in a closed loop or an open one, and what was measured.
//!
//! A *closed* loop has so many callers, each of which begins its next call when the last is answered: it finds the highest rate, and a
//! stall of the service hides itself, because nobody calls while it lasts. An *open* loop begins calls when a schedule says so, as
//! users do, and measures each from its **intended** start, so that a call kept waiting by a stall, or by callers that are all busy,
//! counts its wait: latency corrected for coordinated omission (Gil Tene, "How NOT to Measure Latency"; wrk2 does the same).

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// Calls in flight at once in an open loop. Enough for a stall of a second at some hundred calls a second; what waits beyond it is
/// measured from its intended start all the same.
pub(crate) const OPEN_LOOP_CALLERS: usize = 128;

/// Why a call failed: the service's problem code, `wrong_answer: …` for an answer that is not what it should be, or the fault of the
/// transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// An answer with the right status and the wrong content.
    pub(crate) fn wrong(what: impl fmt::Display) -> Self {
        Self(format!("wrong_answer: {what}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Whether the run is to end early.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop, and what sets it.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it was asked for.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked for.
    pub(crate) async fn wait(&self) {
        if self.0.clone().wait_for(|set| *set).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Calls(u64),
    After(Duration),
}

/// What to drive and how.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    name: String,
    callers: usize,
    /// Calls a second of an open loop; none for a closed one.
    rate: Option<f64>,
    warm_up: u64,
    end: End,
}

impl Plan {
    /// A closed loop of `count` calls.
    pub(crate) fn closed(name: impl Into<String>, callers: usize, count: u64) -> Self {
        Self { name: name.into(), callers, rate: None, warm_up: 0, end: End::Calls(count) }
    }

    /// A closed loop that lasts so long.
    pub(crate) fn closed_for(name: impl Into<String>, callers: usize, duration: Duration) -> Self {
        Self { name: name.into(), callers, rate: None, warm_up: 0, end: End::After(duration) }
    }

    /// An open loop of `count` calls at `rate` calls a second.
    pub(crate) fn open(name: impl Into<String>, rate: f64, count: u64) -> Self {
        Self { name: name.into(), callers: OPEN_LOOP_CALLERS, rate: Some(rate), warm_up: 0, end: End::Calls(count) }
    }

    /// Calls that come first and are not measured.
    #[must_use]
    pub(crate) fn warm_up(mut self, calls: u64) -> Self {
        self.warm_up = calls;
        self
    }
}

/// What was measured.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// Microseconds, of the calls that were answered as they should be.
    pub(crate) latency: Histogram<u64>,
    /// Failures by code.
    pub(crate) errors: BTreeMap<String, u64>,
    /// From the first measured call to the last answer.
    pub(crate) elapsed: Duration,
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        // A minute is above every timeout of a call; three digits are within 0.1 %.
        let latency =
            Histogram::new_with_bounds(1, 60_000_000, 3).unwrap_or_else(|_| unreachable!("constant bounds that are valid"));
        Self { name: name.into(), latency, errors: BTreeMap::new(), elapsed: Duration::ZERO }
    }

    /// Takes in one call.
    pub(crate) fn record(&mut self, latency: Duration, answer: Result<(), Failure>) {
        match answer {
            Ok(()) => self.latency.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
            Err(Failure(code)) => *self.errors.entry(code).or_insert(0) += 1,
        }
    }

    /// Takes in the calls of another run of the same thing.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latency.add(&other.latency).unwrap_or_else(|_| unreachable!("both have the same bounds"));
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_insert(0) += count;
        }
        self.elapsed += other.elapsed;
    }

    /// Calls answered as they should be.
    pub(crate) fn count(&self) -> u64 {
        self.latency.len()
    }

    /// Calls that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Calls answered as they should be, a second; zero where nothing was measured.
    pub(crate) fn rate(&self) -> f64 {
        per_second(self.count(), self.elapsed)
    }

    /// Milliseconds that `percent` of the calls did not exceed.
    pub(crate) fn percentile_ms(&self, percent: f64) -> f64 {
        millis(self.latency.value_at_quantile(percent / 100.0))
    }
}

/// So many in this time, a second; zero in no time.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds far below 2^53")]
pub(crate) fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

/// When call number `ticket` of an open loop should begin, after its start.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn intended(ticket: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(ticket as f64 / rate)
}

/// Drives plans and shows how they go on standard error.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    stop: Stop,
    bars: MultiProgress,
}

struct Run {
    plan: Plan,
    /// Tickets given out.
    next: AtomicU64,
    /// Open loop: one permit for each ticket that is due.
    due: Semaphore,
    started: Instant,
    measured_from: OnceLock<Instant>,
    measured: Mutex<Measured>,
}

impl Run {
    fn measured(&self) -> MutexGuard<'_, Measured> {
        // A caller that panicked ends the run anyway.
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tickets there are in all, if that is what ends the run.
    fn total(&self) -> Option<u64> {
        match self.plan.end {
            End::Calls(count) => Some(self.plan.warm_up + count),
            End::After(_) => None,
        }
    }

    /// The next ticket and the moment its call is measured from; none at the end.
    async fn take(&self, stop: &Stop) -> Option<(u64, Instant)> {
        if self.plan.rate.is_some() {
            self.due.acquire().await.ok()?.forget();
        }
        let over = match (self.plan.end, self.measured_from.get()) {
            (End::After(duration), Some(from)) => from.elapsed() >= duration,
            _ => false,
        };
        if over || stop.is_set() {
            return None;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        if self.total().is_some_and(|total| ticket >= total) {
            return None;
        }
        let from = self.plan.rate.map_or_else(Instant::now, |rate| self.started + intended(ticket, rate));
        if ticket >= self.plan.warm_up {
            self.measured_from.get_or_init(|| from);
        }
        Some((ticket, from))
    }

    fn record(&self, ticket: u64, from: Instant, answer: Result<(), Failure>) {
        if ticket < self.plan.warm_up {
            return;
        }
        let latency = from.elapsed();
        let mut measured = self.measured();
        measured.record(latency, answer);
        measured.elapsed = self.measured_from.get().map_or(Duration::ZERO, Instant::elapsed);
    }

    /// Gives out permits as tickets become due. A thread of its own: the runtime's timer knows whole milliseconds, which would be
    /// counted as latency.
    fn dispatch(&self, rate: f64, stop: &Stop) {
        for ticket in 0..self.total().unwrap_or(0) {
            let due = self.started + intended(ticket, rate);
            while let Some(wait) = due.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) {
                std::thread::sleep(wait.min(Duration::from_millis(50)));
                if stop.is_set() {
                    break;
                }
            }
            if stop.is_set() {
                break;
            }
            self.due.add_permits(1);
        }
        // Every caller comes to its end.
        self.due.add_permits(self.plan.callers);
    }
}

impl Driver {
    /// A driver that ends what it drives when `stop` is set.
    pub(crate) fn new(stop: Stop) -> Self {
        Self { stop, bars: MultiProgress::new() }
    }

    /// Whether the run is to end early.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Calls `call` with the numbers of calls from 0 as the plan says, and measures. Ends early, with what was measured until then,
    /// when the stop is set; calls that are under way are finished.
    pub(crate) async fn drive<F, Fut>(&self, plan: Plan, call: F) -> Measured
    where
        F: Fn(u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send,
    {
        let callers = plan.callers;
        let rate = plan.rate;
        let run = Arc::new(Run {
            measured: Mutex::new(Measured::new(plan.name.clone())),
            plan,
            next: AtomicU64::new(0),
            due: Semaphore::new(0),
            started: Instant::now(),
            measured_from: OnceLock::new(),
        });
        let call = Arc::new(call);
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let (run, call, stop) = (Arc::clone(&run), Arc::clone(&call), self.stop.clone());
            tasks.spawn(async move {
                while let Some((ticket, from)) = run.take(&stop).await {
                    let answer = call(ticket).await;
                    run.record(ticket, from, answer);
                }
            });
        }
        if let Some(rate) = rate {
            let (run, stop) = (Arc::clone(&run), self.stop.clone());
            std::thread::spawn(move || run.dispatch(rate, &stop));
        }
        let bar = self.bars.add(new_bar(&run));
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Some(_) => {}
                },
                _ = tick.tick() => show(&bar, &run),
            }
        }
        bar.finish_and_clear();
        run.measured().clone()
    }
}

fn new_bar(run: &Run) -> ProgressBar {
    let length = match run.plan.end {
        End::Calls(count) => run.plan.warm_up + count,
        End::After(duration) => u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    };
    let style =
        ProgressStyle::with_template("{prefix:28} {bar:24} {percent:>3}% {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_prefix(run.plan.name.clone())
}

fn show(bar: &ProgressBar, run: &Run) {
    let (rate, p99_ms, failed) = {
        let measured = run.measured();
        (measured.rate(), measured.percentile_ms(99.0), measured.failed())
    };
    bar.set_message(format!("{rate:.0}/s, p99 {p99_ms:.1} ms, {failed} errors"));
    bar.set_position(match run.plan.end {
        End::Calls(_) => run.next.load(Ordering::Relaxed),
        End::After(_) => run.measured_from.get().map_or(0, |from| u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver() -> (watch::Sender<bool>, Driver) {
        let (sender, stop) = Stop::new();
        (sender, Driver::new(stop))
    }

    /// A service that answers nobody until 300 ms after the first call, and everybody at once from then on.
    fn stalling() -> impl Fn(u64) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> + Send + Sync + 'static {
        let first = Arc::new(OnceLock::new());
        move |_| {
            let open = *first.get_or_init(|| Instant::now() + Duration::from_millis(300));
            Box::pin(async move {
                tokio::time::sleep_until(open.into()).await;
                Ok(())
            })
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_loop_counts_the_wait_of_every_call_a_stall_held_up() {
        let (_sender, driver) = driver();
        let measured = driver.drive(Plan::open("stall", 100.0, 40), stalling()).await;
        assert_eq!(measured.count(), 40);
        // Calls 0 to 20 should have begun 200 ms or less into the stall, so each waited for 100 ms or more, on any machine.
        assert!(measured.latency.len() - measured.latency.count_between(0, 99_000) >= 20);
        // The schedule was kept: call 39 did not begin before its time.
        assert!(measured.elapsed >= Duration::from_millis(389), "{:?}", measured.elapsed);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_loop_counts_the_wait_for_a_free_caller() {
        let (_sender, driver) = driver();
        let plan = Plan { callers: 1, ..Plan::open("one caller", 1_000.0, 4) };
        let slow = |_| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(())
        };
        let measured = driver.drive(plan, slow).await;
        // The fourth was due after 3 ms and could begin after 150.
        assert!(measured.percentile_ms(100.0) >= 190.0, "{}", measured.percentile_ms(100.0));
    }

    #[tokio::test]
    async fn a_closed_loop_makes_as_many_calls_as_it_should_each_number_once() {
        let (_sender, driver) = driver();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let call = move |number| {
            record.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            async move { if number % 10 == 0 { Err(Failure("every_tenth".to_owned())) } else { Ok(()) } }
        };
        let measured = driver.drive(Plan::closed("count", 7, 80).warm_up(20), call).await;
        let mut numbers = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert_eq!((measured.count(), measured.failed()), (72, 8));
        assert_eq!(measured.errors["every_tenth"], 8);
    }

    #[tokio::test]
    async fn a_stop_ends_every_loop_with_what_was_measured() {
        for plan in [
            Plan::closed("calls", 4, u64::MAX / 2),
            Plan::closed_for("time", 4, Duration::from_hours(1)),
            Plan::open("open", 500.0, 1_000_000),
        ] {
            let (sender, driver) = driver();
            let call = move |number| {
                if number == 20 {
                    sender.send_replace(true);
                }
                async {
                    tokio::task::yield_now().await;
                    Ok(())
                }
            };
            let measured = driver.drive(plan, call).await;
            assert!((20..10_000).contains(&measured.count()), "{}: {}", measured.name, measured.count());
        }
    }

    #[test]
    fn calls_are_due_at_even_intervals_from_the_start() {
        assert_eq!(intended(0, 200.0), Duration::ZERO);
        assert_eq!(intended(1, 200.0), Duration::from_millis(5));
        assert_eq!(intended(1_000, 200.0), Duration::from_secs(5));
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_calls() {
        let mut measured = Measured::new("a hundred");
        for ms in 1..=100 {
            measured.record(Duration::from_millis(ms), Ok(()));
        }
        measured.elapsed = Duration::from_secs(2);
        for (percent, ms) in [(50.0, 50.0), (95.0, 95.0), (99.0, 99.0), (100.0, 100.0)] {
            assert!((measured.percentile_ms(percent) - ms).abs() <= ms * 0.001, "p{percent}: {}", measured.percentile_ms(percent));
        }
        assert!((measured.rate() - 50.0).abs() < f64::EPSILON);
    }

    #[test]
    fn runs_are_merged_call_by_call() {
        let mut all = Measured::new("all");
        for ms in [10, 20] {
            let mut one = Measured::new("one");
            one.record(Duration::from_millis(ms), Ok(()));
            one.record(Duration::from_millis(ms), Err(Failure("timeout".to_owned())));
            one.elapsed = Duration::from_secs(1);
            all.merge(&one);
        }
        assert_eq!((all.count(), all.failed(), all.elapsed), (2, 2, Duration::from_secs(2)));
        assert!(all.percentile_ms(100.0) >= 20.0);
    }

    #[test]
    fn nothing_measured_is_a_rate_of_zero() {
        assert!(Measured::new("nothing").rate().abs() < f64::EPSILON);
    }
}
