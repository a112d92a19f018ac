//! Who follows whom, in memory: a synthetic graph from a seed, and the choice of accounts by how many followers they have.
//!
//! A run knows its graph, so that it needs no search in the service for a celebrity, an account with a hundred followers, or the
//! largest account that is still delivered to.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context as _, Result};
use rand::{RngExt as _, SeedableRng as _, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution as _, Zipf};

use crate::edges::Edge;

/// How steeply followers fall with rank. At 0.8 the first of 20,000 accounts that follow 20 each has about half of them as followers
/// and the twentieth about a thousand, which is the shape of the public graphs of developer networks.
const EXPONENT: f64 = 0.8;

/// Edges of a graph in which account `n` is the `n`-th in popularity (from 0) and follows between 1 and twice `mean_follows` others.
/// The same arguments give the same edges on every machine: the generator's output is fixed by its authors.
pub(crate) fn zipf(users: u64, mean_follows: u64, seed: u64) -> Result<Vec<Edge>> {
    anyhow::ensure!(users > 1, "a graph needs at least two accounts");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 accounts")]
    let popularity = Zipf::new(users as f64, EXPONENT)?;
    let mut edges = Vec::new();
    for follower in 0..users {
        let wanted = random.random_range(1..=2 * mean_follows).min(users - 1);
        let mut chosen = HashSet::new();
        // A small graph may not have that many distinct ones within reach: a bounded number of draws, not a number of edges.
        for _ in 0..4 * wanted {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank between 1 and `users`")]
            let followee = popularity.sample(&mut random) as u64 - 1;
            if followee != follower && chosen.insert(followee) {
                edges.push((follower, followee));
            }
            if chosen.len() as u64 == wanted {
                break;
            }
        }
    }
    Ok(edges)
}

/// How many followers each account has; accounts that only follow are there with none.
#[derive(Debug)]
pub(crate) struct Graph {
    edges: Vec<Edge>,
    followers: BTreeMap<u64, u64>,
}

impl Graph {
    /// Counts. The edges are distinct.
    pub(crate) fn new(edges: Vec<Edge>) -> Self {
        let mut followers = BTreeMap::new();
        for &(follower, followee) in &edges {
            followers.entry(follower).or_insert(0);
            *followers.entry(followee).or_insert(0) += 1;
        }
        Self { edges, followers }
    }

    /// The edges.
    pub(crate) fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The accounts.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = u64> {
        self.followers.keys().copied()
    }

    /// How many follow this account.
    pub(crate) fn followers(&self, account: u64) -> u64 {
        self.followers.get(&account).copied().unwrap_or(0)
    }

    /// The accounts with at least `threshold` followers, the largest first.
    pub(crate) fn celebrities(&self, threshold: u64) -> Vec<u64> {
        let mut found: Vec<_> = self.accounts().filter(|account| self.followers(*account) >= threshold).collect();
        found.sort_by_key(|account| (u64::MAX - self.followers(*account), *account));
        found
    }

    /// The account whose number of followers is nearest to `wanted`, among those with fewer than `threshold`.
    pub(crate) fn nearest(&self, wanted: u64, threshold: u64) -> Result<u64> {
        self.accounts()
            .filter(|account| self.followers(*account) < threshold)
            .min_by_key(|account| (self.followers(*account).abs_diff(wanted), *account))
            .with_context(|| format!("no account has fewer than {threshold} followers"))
    }

    /// Up to `count` accounts with fewer than `below` followers, spread evenly over the graph.
    pub(crate) fn ordinary(&self, count: usize, below: u64) -> Vec<u64> {
        let all: Vec<_> = self.accounts().filter(|account| self.followers(*account) < below).collect();
        let step = (all.len() / count.max(1)).max(1);
        all.into_iter().step_by(step).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_graph_on_every_machine() {
        let edges = zipf(2_000, 15, 42).unwrap();
        assert_eq!(edges, zipf(2_000, 15, 42).unwrap());
        assert_ne!(edges, zipf(2_000, 15, 43).unwrap());
        let digest = edges.iter().fold(0_u64, |digest, (a, b)| digest.wrapping_mul(31).wrapping_add(a * 2_003 + b));
        assert_eq!((edges.len(), digest), (31_190, 15_206_589_548_633_861_995));
    }

    #[test]
    fn a_synthetic_graph_has_no_self_follow_and_no_edge_twice() {
        for users in [2, 3, 500] {
            let edges = zipf(users, 20, 7).unwrap();
            assert_eq!(edges.iter().collect::<HashSet<_>>().len(), edges.len());
            assert!(edges.iter().all(|(a, b)| a != b && *a < users && *b < users));
        }
        assert!(zipf(1, 20, 7).is_err());
    }

    #[test]
    fn a_synthetic_graph_has_celebrities_and_a_long_tail() {
        let graph = Graph::new(zipf(2_000, 15, 42).unwrap());
        assert!((10..60).contains(&graph.celebrities(150).len()));
        assert!(graph.ordinary(2_000, 15).len() > 1_000);
        let small = graph.nearest(100, 150).unwrap();
        assert!((80..=120).contains(&graph.followers(small)));
    }

    #[test]
    fn accounts_are_chosen_by_their_followers() {
        let graph = Graph::new(vec![(1, 9), (2, 9), (3, 9), (1, 8), (2, 8), (9, 7)]);
        assert_eq!(graph.celebrities(2), [9, 8]);
        assert_eq!(graph.nearest(100, 3).unwrap(), 8);
        assert_eq!(graph.nearest(0, 3).unwrap(), 1);
        assert_eq!(graph.ordinary(2, 1), [1, 2]);
        assert_eq!(graph.ordinary(9, 2), [1, 2, 3, 7]);
        assert!(graph.nearest(0, 0).is_err());
    }
}
