//! Who takes part in a scenario: accounts of the graph by their number of followers, and accounts made for the run.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, bail, ensure};
use uuid::Uuid;

use crate::{
    client::{Account, Api},
    graph::Graph,
    loops::{Driver, Failure, Plan},
    service::PASSWORD,
};

/// Calls in flight while accounts are made.
const CALLERS: usize = 32;

/// Celebrities that each reader follows, as the goal of the feed has it.
pub(crate) const CELEBRITIES: usize = 10;
/// Ordinary accounts that each reader follows.
pub(crate) const ORDINARY: usize = 190;
/// Ordinary accounts to choose from, so that readers differ.
const ORDINARY_POOL: usize = 2 * ORDINARY;

/// The accounts of the graph that play a part, by their numbers in the graph.
#[derive(Debug)]
pub(crate) struct Cast {
    /// The ten largest accounts; the first is the one that is stormed.
    pub(crate) celebrities: Vec<u64>,
    /// Ordinary accounts whose posts are read.
    pub(crate) authors: Vec<u64>,
    /// The account with about a hundred followers.
    pub(crate) small: u64,
    /// The largest account below the threshold: the longest fan-out.
    pub(crate) broadcaster: u64,
}

impl Cast {
    /// Chooses.
    ///
    /// # Errors
    /// The graph has not enough accounts at or below the threshold.
    pub(crate) fn choose(graph: &Graph, threshold: u64) -> Result<Self> {
        let mut celebrities = graph.celebrities(threshold);
        ensure!(
            celebrities.len() >= CELEBRITIES,
            "only {} accounts have {threshold} followers or more, {CELEBRITIES} are needed: lower --celebrity-threshold",
            celebrities.len()
        );
        celebrities.truncate(CELEBRITIES);
        let small = graph.nearest(100, threshold)?;
        let broadcaster = graph.nearest(threshold, threshold)?;
        // Half the threshold, so that the readers' follows make no further celebrity.
        let mut authors = graph.ordinary(ORDINARY_POOL + 2, threshold.div_ceil(2));
        authors.retain(|author| *author != small && *author != broadcaster);
        authors.truncate(ORDINARY_POOL);
        ensure!(authors.len() >= ORDINARY, "the graph has only {} ordinary accounts, {ORDINARY} are needed", authors.len());
        Ok(Self { celebrities, authors, small, broadcaster })
    }
}

/// A reader and whom they follow.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) account: Account,
    pub(crate) followed: HashSet<Uuid>,
}

/// The service with the accounts of one graph in it.
#[derive(Debug, Clone)]
pub(crate) struct Troupe {
    pub(crate) api: Api,
    driver: Driver,
    /// What stands before the number of an account in its handle.
    prefix: String,
}

impl Troupe {
    /// Accounts that `rookery import` made: `n` and the number.
    pub(crate) fn imported(api: Api, driver: Driver) -> Self {
        Self { api, driver, prefix: "n".to_owned() }
    }

    /// Makes the graph over HTTP, under handles that no other run has. For small graphs and a service whose store is out of reach.
    pub(crate) async fn made_over_http(api: Api, driver: Driver, graph: &Graph) -> Result<Self> {
        let troupe = Self { prefix: format!("{}n", random_prefix()), api, driver };
        let numbers: Vec<_> = graph.accounts().collect();
        let count = numbers.len() as u64;
        let handles: Vec<_> = numbers.iter().map(|number| troupe.handle(*number)).collect();
        let (api, handles) = (troupe.api.clone(), Arc::new(handles));
        let accounts = gather(&troupe.driver, "registering the graph", count, move |index| {
            let (api, handles) = (api.clone(), Arc::clone(&handles));
            async move { api.register(&handles[position(index)], PASSWORD).await }
        })
        .await?;
        let accounts: std::collections::HashMap<_, _> = numbers.into_iter().zip(accounts).collect();
        let edges: Vec<_> =
            graph.edges().iter().map(|(follower, followee)| (accounts[follower].clone(), accounts[followee].id)).collect();
        let (api, edges) = (troupe.api.clone(), Arc::new(edges));
        let count = edges.len() as u64;
        gather(&troupe.driver, "following in the graph", count, move |index| {
            let (api, edges) = (api.clone(), Arc::clone(&edges));
            async move {
                let (follower, followee) = &edges[position(index)];
                api.follow(follower, *followee).await
            }
        })
        .await?;
        Ok(troupe)
    }

    fn handle(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// Logs accounts of the graph in, in this order. A token lives ten minutes: each part of a run logs its own in.
    pub(crate) async fn sign_in(&self, numbers: &[u64]) -> Result<Vec<Account>> {
        let handles: Arc<Vec<_>> = Arc::new(numbers.iter().map(|number| self.handle(*number)).collect());
        let api = self.api.clone();
        gather(&self.driver, "logging in", handles.len() as u64, move |index| {
            let (api, handles) = (api.clone(), Arc::clone(&handles));
            async move { api.login(&handles[position(index)], PASSWORD).await }
        })
        .await
    }

    /// Logs in again who was logged in before.
    pub(crate) async fn sign_in_again(&self, readers: &mut [Reader]) -> Result<()> {
        for reader in readers {
            reader.account = self.api.login(&reader.account.handle, PASSWORD).await?;
        }
        Ok(())
    }

    /// Registers accounts that follow nobody.
    pub(crate) async fn newcomers(&self, count: u64) -> Result<Vec<Account>> {
        let (api, prefix) = (self.api.clone(), random_prefix());
        gather(&self.driver, "registering newcomers", count, move |index| {
            let (api, handle) = (api.clone(), format!("{prefix}_{index}"));
            async move { api.register(&handle, PASSWORD).await }
        })
        .await
    }

    /// Registers readers, each of whom follows the celebrities and 190 of the authors, each reader others.
    pub(crate) async fn readers(&self, count: u64, celebrities: &[Account], authors: &[Account]) -> Result<Vec<Reader>> {
        let followed_by = |index: usize| {
            // Consecutive authors in a ring, begun elsewhere for each reader: every author has about as many readers.
            let start = index * 7 % authors.len();
            let ordinary = authors.iter().cycle().skip(start).take(ORDINARY);
            celebrities.iter().chain(ordinary).map(|account| account.id).collect::<Vec<_>>()
        };
        let accounts = self.newcomers(count).await?;
        let readers: Vec<_> = accounts
            .into_iter()
            .enumerate()
            .map(|(index, account)| Reader { account, followed: followed_by(index).into_iter().collect() })
            .collect();
        let follows: Vec<_> = readers
            .iter()
            .enumerate()
            .flat_map(|(index, reader)| followed_by(index).into_iter().map(|user| (reader.account.clone(), user)))
            .collect();
        let (api, follows) = (self.api.clone(), Arc::new(follows));
        gather(&self.driver, "readers follow", follows.len() as u64, move |index| {
            let (api, follows) = (api.clone(), Arc::clone(&follows));
            async move {
                let (reader, user) = &follows[position(index)];
                api.follow(reader, *user).await
            }
        })
        .await?;
        Ok(readers)
    }
}

/// Handles that begin so are taken by no other run: 32 random bits.
fn random_prefix() -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("l{}", &random[..8])
}

fn position(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// Makes `count` calls that must all succeed, and gives what they gave in their order.
///
/// # Errors
/// A call failed, or the run was interrupted.
async fn gather<T, F, Fut>(driver: &Driver, name: &str, count: u64, call: F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, Failure>> + Send,
{
    let gathered = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&gathered);
    let call = Arc::new(call);
    let measured = driver
        .drive(Plan::closed(name, CALLERS, count), move |index| {
            let (sink, call) = (Arc::clone(&sink), Arc::clone(&call));
            async move {
                let item = call(index).await?;
                sink.lock().unwrap_or_else(PoisonError::into_inner).push((index, item));
                Ok(())
            }
        })
        .await;
    if let Some((code, failed)) = measured.errors.iter().next() {
        bail!("{name}: {failed} of {count} calls failed ({code})");
    }
    ensure!(measured.count() == count, "{name}: interrupted");
    let mut gathered = std::mem::take(&mut *gathered.lock().unwrap_or_else(PoisonError::into_inner));
    gathered.sort_by_key(|(index, _)| *index);
    Ok(gathered.into_iter().map(|(_, item)| item).collect())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;
    use crate::{graph, loops::Stop};

    #[test]
    fn a_cast_is_chosen_from_both_sides_of_the_threshold() {
        let graph = Graph::new(graph::zipf(2_000, 15, 42).unwrap());
        let cast = Cast::choose(&graph, 150).unwrap();
        assert_eq!(cast.celebrities.len(), CELEBRITIES);
        assert!(cast.celebrities.iter().all(|account| graph.followers(*account) >= 150));
        assert!(cast.authors.len() >= ORDINARY && cast.authors.iter().all(|account| graph.followers(*account) < 75));
        assert!(!cast.authors.contains(&cast.small) && !cast.authors.contains(&cast.broadcaster));
        assert!(graph.followers(cast.broadcaster) < 150);
    }

    #[test]
    fn a_graph_without_celebrities_is_refused_with_what_to_do() {
        let graph = Graph::new(graph::zipf(2_000, 15, 42).unwrap());
        assert!(Cast::choose(&graph, 1_000_000).unwrap_err().to_string().contains("--celebrity-threshold"));
    }

    #[tokio::test]
    async fn what_is_gathered_is_in_the_order_of_the_calls() {
        let driver = Driver::new(Stop::new().1);
        let doubled = gather(&driver, "doubling", 100, |index| async move {
            tokio::time::sleep(std::time::Duration::from_micros(100 - index)).await;
            Ok(index * 2)
        });
        assert_eq!(doubled.await.unwrap(), (0..100).map(|index| index * 2).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_failed_call_is_an_error_of_the_whole() {
        let driver = Driver::new(Stop::new().1);
        let one = |index| async move { if index == 3 { Err(Failure("409 handle_taken".to_owned())) } else { Ok(()) } };
        assert!(gather(&driver, "registering", 10, one).await.unwrap_err().to_string().contains("409 handle_taken"));
    }
}
