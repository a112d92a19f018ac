//! The scenario `churn`: celebrities that come and go.
//!
//! Many callers follow, unfollow, block, unblock and delete accounts, over a skewed set of fans and a few accounts that hover about the
//! threshold: what they are drawn to alternates, so that each is promoted and demoted again and again while it is being followed. The
//! callers are spread over two services on one database. What is refused as it must be (a follow across a block, a token of an account
//! that has just been deleted) is counted apart; everything else that fails is an error.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use rand::{RngExt as _, SeedableRng as _, rngs::Xoshiro256PlusPlus};

use crate::{
    cast::Troupe,
    client::{Account, Api},
    loops::{Driver, Failure, Measured, Plan},
    report::Report,
    rest::until_rest,
    service::PASSWORD,
};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Acts in all.
    pub(crate) operations: u64,
    /// Callers at a time.
    pub(crate) callers: usize,
    /// Accounts that hover about the threshold.
    pub(crate) stars: u64,
    /// Accounts that follow them, at least one and a half times the threshold.
    pub(crate) fans: u64,
}

/// The share of follows among follows and unfollows while celebrities rise, and while they fall. Each act flips a fan's follow at random, so
/// that about this share of the fans follow after a while.
const RISING: f64 = 0.7;
const FALLING: f64 = 0.15;

/// A token lives ten minutes.
const TOKEN_KEPT: Duration = Duration::from_mins(8);

/// How often the celebrities are looked at for a change of sides.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// An account that may be deleted and replaced.
#[derive(Debug)]
struct Seat {
    account: Account,
    signed_in: Instant,
}

/// Everything a run works with.
#[derive(Debug, Clone)]
pub(crate) struct Churn {
    pub(crate) driver: Driver,
    /// The services, on one database.
    pub(crate) apis: Vec<Api>,
    pub(crate) sizes: Sizes,
}

/// What is shared by the callers.
struct Stage {
    churn: Churn,
    stars: Vec<Mutex<Seat>>,
    fans: Vec<Mutex<Seat>>,
    measured: Mutex<BTreeMap<&'static str, Measured>>,
    refused: Mutex<BTreeMap<String, u64>>,
}

impl Churn {
    /// Runs it and adds what it measured to the report.
    ///
    /// # Errors
    /// The setting cannot be made, or background work does not come to rest. Failed acts are in the report instead.
    pub(crate) async fn run(&self, report: &mut Report) -> Result<()> {
        let troupe = Troupe::imported(self.apis[0].clone(), self.driver.clone());
        let seats = |accounts: Vec<Account>| {
            accounts.into_iter().map(|account| Mutex::new(Seat { account, signed_in: Instant::now() })).collect::<Vec<_>>()
        };
        let stage = Arc::new(Stage {
            churn: self.clone(),
            stars: seats(troupe.newcomers(self.sizes.stars).await?),
            fans: seats(troupe.newcomers(self.sizes.fans).await?),
            measured: Mutex::default(),
            refused: Mutex::default(),
        });
        let began = Instant::now();
        let acting = {
            let stage = Arc::clone(&stage);
            self.driver.drive(Plan::closed("churn", self.sizes.callers, self.sizes.operations), move |number| {
                let stage = Arc::clone(&stage);
                async move { stage.act(number).await }
            })
        };
        tokio::pin!(acting);
        let mut sides = Sides::default();
        let all = loop {
            tokio::select! {
                all = &mut acting => break all,
                () = tokio::time::sleep(LOOK_EVERY) => sides.look(&stage).await,
            }
        };
        report.push(&all);
        for measured in lock(&stage.measured).values_mut() {
            measured.elapsed = began.elapsed();
            report.push(&*measured);
        }
        report.remark(format!("Of {} celebrities sides were changed at least {} times.", self.sizes.stars, sides.changes));
        let mut refused = String::new();
        for (code, count) in lock(&stage.refused).iter() {
            let _ = write!(refused, "{}{count} × {code}", if refused.is_empty() { "" } else { ", " });
        }
        report.remark(format!("Refused as it must be: {refused}."));
        if !self.driver.stop().is_set() {
            for api in &self.apis {
                until_rest(self.driver.stop(), "background work", || api.background_items()).await?;
            }
        }
        Ok(())
    }
}

/// On which side of the threshold the celebrities are, as a profile says.
#[derive(Debug, Default)]
struct Sides {
    known: BTreeMap<usize, (uuid::Uuid, bool)>,
    changes: u64,
}

impl Sides {
    async fn look(&mut self, stage: &Stage) {
        for (number, star) in stage.stars.iter().enumerate() {
            let id = lock(star).account.id;
            // One that is just being deleted is looked at the next time.
            let Ok(profile) = stage.churn.apis[0].profile(id).await else { continue };
            let before = self.known.insert(number, (id, profile.celebrity));
            self.changes += u64::from(before.is_some_and(|before| before == (id, !profile.celebrity)));
        }
    }
}

impl Stage {
    /// One act, drawn by its number.
    async fn act(&self, number: u64) -> Result<(), Failure> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        let api = &self.churn.apis[usize::try_from(number).unwrap_or(0) % self.churn.apis.len()];
        // The first of the fans far more often than the last.
        let fan = &self.fans[random.random_range(0..self.fans.len()).min(random.random_range(0..self.fans.len()))];
        let star_number = random.random_range(0..self.stars.len());
        let star = &self.stars[star_number];
        // As long as it takes that most fans have been drawn for each celebrity; every other one the other way round.
        let tide = number / (self.churn.sizes.fans * self.churn.sizes.stars).max(1) + star_number as u64;
        let follows = if tide.is_multiple_of(2) { RISING } else { FALLING };
        let (by_fan, by_star) = (self.signed_in(api, fan).await, self.signed_in(api, star).await);
        let began = Instant::now();
        let (name, answer) = match random.random_range(0..1_000) {
            0..850 if random.random_bool(follows) => ("follow", api.follow(&by_fan, by_star.id).await),
            0..850 => ("unfollow", api.unfollow(&by_fan, by_star.id).await),
            850..890 => ("follow_back", api.follow(&by_star, by_fan.id).await),
            890..910 => ("block", api.block(&by_star, by_fan.id).await),
            910..990 => ("unblock", api.unblock(&by_star, by_fan.id).await),
            990..999 => ("delete_fan", self.replace(api, fan, &by_fan).await),
            _ => ("delete_celebrity", self.replace(api, star, &by_star).await),
        };
        let answer = match answer {
            Err(Failure(code)) if is_expected(&code) => {
                *lock(&self.refused).entry(format!("{code} ({name})")).or_insert(0) += 1;
                Ok(())
            }
            other => other,
        };
        let took = began.elapsed();
        lock(&self.measured).entry(name).or_insert_with(|| Measured::new(name)).record(took, answer.clone());
        answer
    }

    /// Deletes an account, and registers another in its place.
    async fn replace(&self, api: &Api, seat: &Mutex<Seat>, account: &Account) -> Result<(), Failure> {
        api.delete_account(account, PASSWORD).await?;
        let handle = format!("c{}", &uuid::Uuid::new_v4().simple().to_string()[..16]);
        let account = api.register(&handle, PASSWORD).await?;
        *lock(seat) = Seat { account, signed_in: Instant::now() };
        Ok(())
    }

    /// Who has the seat, with a token that is still good.
    async fn signed_in(&self, api: &Api, seat: &Mutex<Seat>) -> Account {
        let (account, old) = {
            let seat = lock(seat);
            (seat.account.clone(), seat.signed_in.elapsed() > TOKEN_KEPT)
        };
        if !old {
            return account;
        }
        match api.login(&account.handle, PASSWORD).await {
            Ok(again) => {
                let mut seat = lock(seat);
                if seat.account.id == again.id {
                    *seat = Seat { account: again.clone(), signed_in: Instant::now() };
                }
                again
            }
            // It has just been deleted: what it does next says so.
            Err(_) => account,
        }
    }
}

/// What is refused under churn as it must be: a follow across a block, what is done to an account that has just been deleted or by it.
fn is_expected(code: &str) -> bool {
    ["403 blocked", "404 not_found", "401 invalid_token"].contains(&code)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
