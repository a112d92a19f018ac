//! Suggestions: whom to follow, and why.

use std::collections::{BTreeMap, BTreeSet};

use crate::{UserId, user::UserSummary};

/// Why an account is suggested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// So many of those whom the reader follows follow it.
    SharedFollows(usize),
    /// Many follow it.
    Popular,
}

/// An account to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The account.
    pub user: UserSummary,
    /// Why it is suggested.
    pub reason: Reason,
}

/// Ranks followees by how many of these edges lead to each: most first, and those with as many in the order of their ids. Whom `known`
/// holds is left out.
pub fn rank(followees: impl IntoIterator<Item = UserId>, known: &BTreeSet<UserId>) -> Vec<(UserId, usize)> {
    let mut counts: BTreeMap<UserId, usize> = BTreeMap::new();
    for followee in followees.into_iter().filter(|followee| !known.contains(followee)) {
        *counts.entry(followee).or_default() += 1;
    }
    let mut ranked: Vec<(UserId, usize)> = counts.into_iter().collect();
    // Stable: equals stay in the order of their ids.
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn more_shared_follows_come_first() {
        let id = |n: u128| UserId(Uuid::from_u128(n));
        let ranked = rank([3, 1, 2, 3, 4, 4, 3].map(id), &BTreeSet::from([id(4)]));
        assert_eq!(ranked, [(id(3), 3), (id(1), 1), (id(2), 1)]);
    }
}
