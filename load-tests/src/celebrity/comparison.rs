//! The largest account against a small one, request by request in turns: what depends on the number of followers shows as a ratio.

use std::{sync::Arc, time::Instant};

use anyhow::Result;

use super::Scenario;
use crate::{
    client::{Account, Api},
    loops::{Failure, Measured},
    report::{Goal, Line, Report, median, ratio},
    turns::in_turns,
};

/// The goal, for the 95th percentile of each kind of request. It is stated in `docs/load-tests.md`.
const LARGEST_TO_SMALL: f64 = 1.5;

impl Scenario {
    pub(super) async fn largest_against_small(&self, report: &mut Report) -> Result<()> {
        self.go_on()?;
        let celebrity = self.celebrity().await?;
        let small = self.account(self.cast.small).await?;
        let mut walked = Measured::new("follower_walk");
        let mut pages = Vec::new();
        for account in [&small, &celebrity] {
            let followers = self.until_followers_rest(account.id).await?;
            let began = Instant::now();
            let walk = self.walk(account.id).await?;
            let same = walk.followers == followers;
            let wrong = || Failure::wrong(format!("a walk of {} followers where the profile says {followers}", walk.followers));
            walked.record(began.elapsed(), same.then_some(()).ok_or_else(wrong));
            pages.push(walk);
        }
        report.push(Line::from(&walked).without_rate());
        let note = format!("Compared: {} followers (largest) and {} (small).", pages[1].followers, pages[0].followers);
        report.remark(note);

        let names = ["first_follower_page", "deep_follower_page", "profile", "post"];
        let mut all = names.map(|name| [Measured::new(format!("{name}_small")), Measured::new(format!("{name}_largest"))]);
        let mut ratios = names.map(|_| Vec::new());
        for run in 0..self.sizes.runs {
            // A token lives ten minutes, a run a few.
            let accounts = Arc::new([self.account(self.cast.small).await?, self.celebrity().await?]);
            for (kind, name) in names.iter().enumerate() {
                self.until_deliveries_rest().await?;
                let calls = Calls {
                    api: self.api().clone(),
                    accounts: Arc::clone(&accounts),
                    deep: [pages[0].deep.clone(), pages[1].deep.clone()],
                };
                let calls = Arc::new(calls);
                let pair = in_turns(&self.driver, &format!("{name} run {}", run + 1), self.sizes.samples, move |which, _| {
                    let calls = Arc::clone(&calls);
                    async move {
                        let began = Instant::now();
                        let answer = calls.make(kind, which).await;
                        (began.elapsed(), answer)
                    }
                })
                .await;
                ratios[kind].extend(ratio(pair[1].percentile_ms(95.0), pair[0].percentile_ms(95.0)));
                for (sum, one) in all[kind].iter_mut().zip(&pair) {
                    sum.merge(one);
                }
            }
            if self.driver.stop().is_set() {
                break;
            }
        }
        for ([small, largest], ratios) in all.iter().zip(ratios) {
            report.push(small);
            let line = Line::from(largest).ratio(median(ratios), "small, p95", Goal::AtMost(LARGEST_TO_SMALL));
            report.push(line);
        }
        Ok(())
    }
}

/// The calls that are compared, for the small account (0) and the largest (1).
struct Calls {
    api: Api,
    accounts: Arc<[Account; 2]>,
    deep: [Option<String>; 2],
}

impl Calls {
    async fn make(&self, kind: usize, which: usize) -> Result<(), Failure> {
        let account = &self.accounts[which];
        match kind {
            0 => self.api.followers(account.id, None).await.map(drop),
            1 => self.api.followers(account.id, self.deep[which].as_deref()).await.map(drop),
            2 => {
                let profile = self.api.profile(account.id).await?;
                if profile.handle == account.handle { Ok(()) } else { Err(Failure::wrong("another profile")) }
            }
            _ => self.api.post(account, "A post, measured.").await,
        }
    }
}
