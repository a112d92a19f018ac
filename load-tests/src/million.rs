//! The scenario `million`: one account with a million followers beside one with a hundred, everything that a person does with either,
//! in turns. It shows what the document model promises: no request costs more because an account has more followers.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use uuid::Uuid;

use crate::{
    cast::Troupe,
    client::{Account, Api, PAGE},
    edges::Edge,
    loops::{Driver, Failure, Measured},
    report::{Goal, Line, Report, median, ratio},
    rest::until_rest,
    turns::{Timed, in_turns, timed, warm_up},
};

/// The account with the many followers, by its number in the graph.
const LARGEST: u64 = 0;
/// The account that the largest is compared with, and how many followers it has.
const SMALL: u64 = 1;
const SMALL_FOLLOWERS: u64 = 100;
/// The account that the strangers follow, who follow neither of the two: an edge list has no accounts without an edge.
const ANYBODY: u64 = 2;
const FIRST_FOLLOWER: u64 = 3;

/// Two of the followers, who are compared as readers of suggestions: how many accounts they follow, celebrities among them.
const READERS: [(u64, u64); 2] = [(FIRST_FOLLOWER + SMALL_FOLLOWERS, 100), (FIRST_FOLLOWER + SMALL_FOLLOWERS + 1, 7_500)];
/// How many strangers each of those whom the readers follow follows. They overlap, so that some are shared.
const SHARED: u64 = 3;

/// The page that is compared beside the first: at twenty a page, followers 19,981 to 20,000.
const DEEP_PAGE: u64 = 1_000;

/// The goal, for the 95th percentile of each kind of request. It is stated in `docs/load-tests.md`.
const LARGEST_TO_SMALL: f64 = 1.5;
/// The same for suggestions, of who follows many to who follows few.
const MANY_TO_FEW: f64 = 3.0;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Followers of the largest account.
    pub(crate) followers: u64,
    /// Requests of each kind to each of the two accounts, in one run.
    pub(crate) samples: u64,
    /// Runs, of which the median counts.
    pub(crate) runs: usize,
}

impl Sizes {
    /// As the goal has it.
    pub(crate) const FULL: Self = Self { followers: 1_000_000, samples: 2_000, runs: 5 };

    /// Enough to see that everything works.
    pub(crate) const QUICK: Self = Self { followers: 3_000, samples: 50, runs: 1 };

    /// Followers at which an account is a celebrity in this scenario.
    pub(crate) const THRESHOLD: u64 = 1_000;

    /// Accounts that follow neither of the two, each of whom takes part in one pair of calls of a kind.
    fn strangers(self) -> u64 {
        self.samples + warm_up(self.samples)
    }

    /// The graph: who follows whom.
    pub(crate) fn edges(self) -> impl Iterator<Item = Edge> {
        let followers = FIRST_FOLLOWER..FIRST_FOLLOWER + self.followers;
        let first_stranger = followers.end;
        let strangers = first_stranger..first_stranger + self.strangers();
        let of_small = followers.clone().take(usize::try_from(SMALL_FOLLOWERS).unwrap_or(usize::MAX));
        let friends = move |most: u64| {
            let friends = followers.start..followers.start + most.min(self.followers / 3);
            friends.filter(|friend| READERS.iter().all(|(reader, _)| reader != friend))
        };
        // The largest account is the other celebrity, whom they follow already.
        let follows_of = move |(reader, follows): (u64, u64)| {
            [ANYBODY].into_iter().chain(friends(follows - 2)).map(move |friend| (reader, friend))
        };
        let farthest = READERS[1].1.min(self.followers / 3);
        let of_friends =
            friends(READERS[1].1).flat_map(move |friend| (1..=SHARED).map(move |step| (friend, friend + farthest + step)));
        followers
            .map(|follower| (follower, LARGEST))
            .chain(of_small.map(|follower| (follower, SMALL)))
            .chain(strangers.map(|stranger| (stranger, ANYBODY)))
            .chain(READERS.into_iter().flat_map(follows_of))
            .chain(of_friends)
    }

    fn stranger_numbers(self) -> Vec<u64> {
        let first = FIRST_FOLLOWER + self.followers;
        (first..first + self.strangers()).collect()
    }
}

/// What is done with an account.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Profile,
    FirstPage,
    DeepPage,
    Relationship,
    Follow,
    Unfollow,
    Post,
    Suggestions,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Profile,
        Self::FirstPage,
        Self::DeepPage,
        Self::Relationship,
        Self::Follow,
        Self::Unfollow,
        Self::Post,
        Self::Suggestions,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::FirstPage => "first_follower_page",
            Self::DeepPage => "follower_page_1000",
            Self::Relationship => "relationship",
            Self::Follow => "follow",
            Self::Unfollow => "unfollow",
            Self::Post => "post",
            Self::Suggestions => "suggestions",
        }
    }

    /// The two that are compared.
    fn pair(self) -> [&'static str; 2] {
        match self {
            Self::Suggestions => ["few", "many"],
            _ => ["small", "largest"],
        }
    }

    fn most(self) -> f64 {
        match self {
            Self::Suggestions => MANY_TO_FEW,
            _ => LARGEST_TO_SMALL,
        }
    }
}

/// Everything a run works with.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) driver: Driver,
    pub(crate) troupe: Troupe,
    pub(crate) sizes: Sizes,
}

/// Who takes part in one run: a token lives ten minutes, a run a few.
struct Players {
    api: Api,
    /// The small account and the largest.
    accounts: [Account; 2],
    /// Who follows few and who follows many.
    readers: [Account; 2],
    strangers: Vec<Account>,
    /// Where their deep pages begin.
    deep: [Option<String>; 2],
}

impl Scenario {
    /// Runs every kind of request against both accounts and adds what it measured to the report.
    ///
    /// # Errors
    /// The setting is not what it should be, or the run was interrupted. Failed calls of a measured part are in the report instead.
    pub(crate) async fn run(&self, report: &mut Report) -> Result<()> {
        let mut deep = [None, None];
        let numbers = [SMALL, LARGEST];
        let mut followers = [0; 2];
        for (which, account) in self.troupe.sign_in(&numbers).await?.iter().enumerate() {
            followers[which] = self.until_followers_rest(account.id).await?;
            deep[which] = self.deep_cursor(account.id).await?;
        }
        ensure!(followers == [SMALL_FOLLOWERS, self.sizes.followers], "other numbers of followers than were loaded: {followers:?}");
        ensure!(
            self.api().profile(self.troupe.sign_in(&[LARGEST]).await?[0].id).await?.celebrity,
            "the largest account is no celebrity"
        );
        report.remark(format!("Compared: {} followers (largest) and {} (small).", followers[1], followers[0]));

        let mut all = Kind::ALL.map(|kind| kind.pair().map(|which| Measured::new(format!("{}_{which}", kind.name()))));
        let mut ratios = Kind::ALL.map(|_| Vec::new());
        for run in 1..=self.sizes.runs {
            let accounts = self.two(numbers).await?;
            let readers = self.two(READERS.map(|(reader, _)| reader)).await?;
            let strangers = self.troupe.sign_in(&self.sizes.stranger_numbers()).await?;
            let players = Arc::new(Players { api: self.api().clone(), accounts, readers, strangers, deep: deep.clone() });
            for (at, kind) in Kind::ALL.into_iter().enumerate() {
                // What the kind before has left to do in the background would be measured with this one.
                until_rest(self.driver.stop(), "background work", || async { self.api().background_items().await }).await?;
                let players = Arc::clone(&players);
                let name = format!("{} run {run}", kind.name());
                let pair = in_turns(&self.driver, &name, self.sizes.samples, move |which, number| {
                    let players = Arc::clone(&players);
                    async move { players.call(kind, which, number).await }
                })
                .await;
                ratios[at].extend(ratio(pair[1].percentile_ms(95.0), pair[0].percentile_ms(95.0)));
                for (sum, one) in all[at].iter_mut().zip(&pair) {
                    sum.merge(one);
                }
                ensure!(!self.driver.stop().is_set(), "interrupted");
            }
        }
        for ((kind, [small, largest]), ratios) in Kind::ALL.into_iter().zip(&all).zip(ratios) {
            report.push(small);
            let of = format!("{}, p95", kind.pair()[0]);
            report.push(Line::from(largest).ratio(median(ratios), &of, Goal::AtMost(kind.most())));
        }
        // Everybody who followed left again.
        for (which, account) in self.troupe.sign_in(&numbers).await?.iter().enumerate() {
            let now = self.until_followers_rest(account.id).await?;
            ensure!(now == followers[which], "@{} has {now} followers at the end instead of {}", account.handle, followers[which]);
        }
        Ok(())
    }

    async fn two(&self, numbers: [u64; 2]) -> Result<[Account; 2]> {
        let mut accounts = self.troupe.sign_in(&numbers).await?.into_iter();
        Ok([accounts.next().context("nobody")?, accounts.next().context("nobody")?])
    }

    fn api(&self) -> &Api {
        &self.troupe.api
    }

    async fn until_followers_rest(&self, account: Uuid) -> Result<u64> {
        until_rest(self.driver.stop(), "followers", || async { Ok(self.api().profile(account).await?.counts.followers) }).await
    }

    /// The cursor of page 1,000, or of the last full page where there are fewer.
    async fn deep_cursor(&self, account: Uuid) -> Result<Option<String>> {
        let (mut deep, mut cursor): (_, Option<String>) = (None, None);
        for _ in 0..DEEP_PAGE {
            let page = self.api().followers(account, cursor.as_deref()).await?;
            if page.items.len() == PAGE {
                deep = cursor;
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
            ensure!(!self.driver.stop().is_set(), "interrupted");
        }
        Ok(deep)
    }
}

impl Players {
    async fn call(&self, kind: Kind, which: usize, number: u64) -> Timed {
        let (api, account) = (&self.api, &self.accounts[which]);
        let stranger = &self.strangers[usize::try_from(number).unwrap_or(usize::MAX) % self.strangers.len()];
        match kind {
            Kind::Profile => {
                timed(async {
                    let profile = api.profile(account.id).await?;
                    if profile.handle == account.handle { Ok(()) } else { Err(Failure::wrong("another profile")) }
                })
                .await
            }
            Kind::FirstPage => timed(async { api.followers(account.id, None).await.map(drop) }).await,
            Kind::DeepPage => timed(async { api.followers(account.id, self.deep[which].as_deref()).await.map(drop) }).await,
            Kind::Relationship => timed(api.relationship(stranger, account.id)).await,
            Kind::Follow => {
                let followed = timed(api.follow(stranger, account.id)).await;
                // So that the small account stays small.
                both(followed, api.unfollow(stranger, account.id).await)
            }
            Kind::Unfollow => {
                let followed = api.follow(stranger, account.id).await;
                both(timed(api.unfollow(stranger, account.id)).await, followed)
            }
            Kind::Post => timed(api.post(account, "A post, measured.")).await,
            Kind::Suggestions => timed(api.suggestions(&self.readers[which])).await,
        }
    }
}

/// What was timed, or the fault of what belongs to it and was not.
fn both((latency, timed): (Duration, Result<(), Failure>), untimed: Result<(), Failure>) -> Timed {
    (latency, timed.and(untimed))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_graph_has_the_two_accounts_and_strangers_who_follow_neither() {
        let sizes = Sizes { followers: 500, samples: 20, runs: 1 };
        let mut followers: HashMap<u64, u64> = HashMap::new();
        for (_, followee) in sizes.edges() {
            *followers.entry(followee).or_insert(0) += 1;
        }
        let of = |account: u64| followers.get(&account).copied().unwrap_or_default();
        assert_eq!([LARGEST, SMALL, ANYBODY].map(of), [500, SMALL_FOLLOWERS, 24]);
        let accounts = FIRST_FOLLOWER..FIRST_FOLLOWER + 500;
        assert!(followers.keys().all(|account| *account <= ANYBODY || accounts.contains(account)), "all there are");
        let follows = |reader: u64| sizes.edges().filter(|(follower, _)| *follower == reader).count();
        // A third of all, for there are few.
        assert_eq!(READERS.map(|(reader, _)| follows(reader)), [100, 166]);
        let distinct: std::collections::HashSet<Edge> = sizes.edges().collect();
        assert_eq!(distinct.len(), sizes.edges().count());
        let strangers = sizes.stranger_numbers();
        assert!(sizes.edges().all(|(follower, followee)| followee == ANYBODY || !strangers.contains(&follower)));
        assert!(sizes.edges().all(|(follower, _)| follower > ANYBODY));
    }
}
