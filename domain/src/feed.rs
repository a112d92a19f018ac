//! The feed: which acts a reader sees, where, and why.

use uuid::Uuid;

use crate::{PostId, UserId, post::Post, user::UserSummary};

/// Something that may put a post into a feed: that somebody wrote it, or reposted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Act {
    /// The place: the id of the post, or of the repost.
    pub slot: Uuid,
    /// The post.
    pub post: PostId,
    /// Who did it.
    pub actor: UserId,
}

impl Act {
    /// That its author wrote it.
    #[must_use]
    pub const fn post(post: PostId, author: UserId) -> Self {
        Self { slot: post.0, post, actor: author }
    }
}

/// Brings acts from several sources (a window, acts that are pulled, one's own) into the order of the feed, newest first or oldest
/// first, each act once. The sources overlap: an act that is being delivered is in two of them.
#[must_use]
pub fn merge(acts: impl IntoIterator<Item = Act>, newest_first: bool) -> Vec<Act> {
    let mut acts: Vec<Act> = acts.into_iter().collect();
    acts.sort_unstable_by_key(|act| (act.slot, act.post, act.actor));
    acts.dedup();
    if newest_first {
        acts.reverse();
    }
    acts
}

/// Where a post stands that somebody wrote whom the reader does not follow, and who brought it: the accounts of its reposts, newest
/// first, at most [`MOST_BY`]. `reposts` are those by the accounts that the reader follows now and sees, and the reader's own, in any
/// order; the first of them makes the place, and later ones do not move it. None: there are none.
#[must_use]
pub fn place_of_reposts(reposts: &[Act]) -> Option<(Uuid, Vec<UserId>)> {
    let slot = reposts.iter().map(|act| act.slot).min()?;
    let mut newest: Vec<&Act> = reposts.iter().collect();
    newest.sort_unstable_by_key(|act| std::cmp::Reverse(act.slot));
    Some((slot, newest.into_iter().take(MOST_BY).map(|act| act.actor).collect()))
}

/// Accounts that an item names as those who brought it.
pub const MOST_BY: usize = 5;

/// Why a reader sees a post of `author` at the post's own place, or none if not there: the reader wrote it, or follows the author now.
/// An entry in a window is a hint; this is the rule.
#[must_use]
pub const fn reason(own: bool, following: bool, celebrity: bool) -> Option<ReasonKind> {
    match (own, following, celebrity) {
        (true, ..) => Some(ReasonKind::Own),
        (false, true, true) => Some(ReasonKind::Celebrity),
        (false, true, false) => Some(ReasonKind::Follow),
        (false, false, _) => None,
    }
}

/// Why a post is in a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonKind {
    /// The reader follows its author.
    Follow,
    /// The reader follows its author, who is a celebrity.
    Celebrity,
    /// Somebody whom the reader follows has reposted it.
    Repost,
    /// The reader wrote it.
    Own,
}

/// One item of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// Its place: the id of the post, or of the repost that brought it.
    pub slot: Uuid,
    /// The post.
    pub post: Post,
    /// Why it is here.
    pub kind: ReasonKind,
    /// The accounts that brought it, newest first, at most five.
    pub by: Vec<UserSummary>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(slot: u128, post: u128) -> Act {
        by(slot, post, 1)
    }

    fn by(slot: u128, post: u128, actor: u128) -> Act {
        Act { slot: Uuid::from_u128(slot), post: PostId(Uuid::from_u128(post)), actor: UserId(Uuid::from_u128(actor)) }
    }

    #[test]
    fn an_act_from_two_sources_stands_once() {
        let merged = merge([act(5, 5), act(7, 7), act(5, 5), act(9, 7)], true);
        assert_eq!(merged, [act(9, 7), act(7, 7), act(5, 5)]);
        assert_eq!(merge([act(5, 5), act(7, 7)], false), [act(5, 5), act(7, 7)]);
    }

    #[test]
    fn the_first_repost_makes_the_place_and_the_newest_are_named() {
        assert_eq!(place_of_reposts(&[]), None);
        let reposts: Vec<Act> = [13, 11, 17, 12, 16, 14, 15].map(|slot| by(slot, 5, slot)).to_vec();
        let named: Vec<UserId> = [17, 16, 15, 14, 13].map(|id| UserId(Uuid::from_u128(id))).to_vec();
        assert_eq!(place_of_reposts(&reposts), Some((Uuid::from_u128(11), named)));
    }

    #[test]
    fn what_is_not_followed_now_is_not_shown() {
        assert_eq!(reason(false, false, true), None);
        assert_eq!(reason(true, false, false), Some(ReasonKind::Own));
    }
}
