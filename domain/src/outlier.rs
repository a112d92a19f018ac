//! Outliers: which accounts are flagged as celebrities, and on which overflow page a follower stands.

use crate::{Timestamp, user::UserSummary};

/// Followers on one overflow page: the bound of the array that holds them. Three pages of a list: with 500, reading one costs the embedded
/// database more than everything else in a page of followers.
pub const PAGE_SIZE: i64 = 100;

/// What the reconcile of one account has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Raise the flag and build the pages.
    Promote,
    /// Clear the flag and delete the pages.
    Demote,
}

/// How far the pages of an outlier are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// They are being written; lists of followers come from the edges meanwhile.
    Building,
    /// They are what the edges say.
    Ready,
}

/// An account that is flagged as an outlier, as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlier {
    /// The account.
    pub user: UserSummary,
    /// How many follow it.
    pub followers: i64,
    /// On how many overflow pages they stand.
    pub pages: i64,
    /// How far these are.
    pub state: State,
    /// Since when it is flagged.
    pub since: Timestamp,
}

/// Whether an account changes sides. It becomes an outlier at `threshold` followers and stays one until it falls below 80 % of
/// that: the gap (hysteresis) keeps an account that hovers about the threshold from being rebuilt at every follow.
#[must_use]
pub const fn change(followers: i64, is_outlier: bool, threshold: i64) -> Option<Change> {
    if !is_outlier && followers >= threshold {
        Some(Change::Promote)
    } else if is_outlier && followers * 5 < threshold * 4 {
        Some(Change::Demote)
    } else {
        None
    }
}

/// The page on which the follower with this `seq` stands.
#[must_use]
pub const fn page_of(seq: i64) -> i64 {
    seq / PAGE_SIZE
}

/// The `seq`s of a page: from the first to before the second.
#[must_use]
pub const fn seqs_of(page: i64) -> (i64, i64) {
    (page * PAGE_SIZE, (page + 1) * PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_hovers_about_the_threshold_changes_once() {
        assert_eq!(change(49, false, 50), None);
        assert_eq!(change(50, false, 50), Some(Change::Promote));
        assert_eq!(change(49, true, 50), None);
        assert_eq!(change(40, true, 50), None);
        assert_eq!(change(39, true, 50), Some(Change::Demote));
    }

    #[test]
    fn a_page_holds_exactly_its_seqs() {
        for seq in [1, 99, 100, 101, 1_000_000] {
            let (first, end) = seqs_of(page_of(seq));
            assert!(first <= seq && seq < end);
            assert_eq!(end - first, PAGE_SIZE);
        }
    }
}
