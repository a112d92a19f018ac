//! The feed: which acts a reader sees, where, and why.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{PostId, UserId, post::Post, user::UserSummary};

/// Something that may put a post into a feed: so far, that somebody wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    /// The place: the id of the post.
    pub slot: Uuid,
    /// The post.
    pub post: PostId,
    /// Who did it.
    pub actor: UserId,
}

/// Brings acts from several sources (a window, posts that are pulled, one's own) into the order of the feed, newest first or oldest
/// first, each post once. The sources overlap: a post that is being delivered is in two of them.
#[must_use]
pub fn merge(acts: impl IntoIterator<Item = Act>, newest_first: bool) -> Vec<Act> {
    let mut by_post: HashMap<PostId, Act> = HashMap::new();
    for act in acts {
        by_post.entry(act.post).and_modify(|known| known.slot = known.slot.min(act.slot)).or_insert(act);
    }
    let mut acts: Vec<Act> = by_post.into_values().collect();
    acts.sort_unstable_by_key(|act| act.slot);
    if newest_first {
        acts.reverse();
    }
    acts
}

/// Why a reader sees a post of `author`, or none if they do not: the reader wrote it, or follows the author now. An entry in a window
/// is a hint; this is the rule.
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
        Act { slot: Uuid::from_u128(slot), post: PostId(Uuid::from_u128(post)), actor: UserId(Uuid::from_u128(1)) }
    }

    #[test]
    fn a_post_from_two_sources_stands_once_at_its_first_place() {
        let merged = merge([act(5, 5), act(7, 7), act(5, 5), act(9, 7)], true);
        assert_eq!(merged, [act(7, 7), act(5, 5)]);
        assert_eq!(merge([act(5, 5), act(7, 7)], false), [act(5, 5), act(7, 7)]);
    }

    #[test]
    fn what_is_not_followed_now_is_not_shown() {
        assert_eq!(reason(false, false, true), None);
        assert_eq!(reason(true, false, false), Some(ReasonKind::Own));
    }
}
