//! Posts as other layers see them.

use std::time::Duration;

use crate::{
    PostId, Timestamp,
    comments::Comment,
    user::{Relation, UserSummary},
};

/// Who may see a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Everybody.
    Public,
    /// The author and the author's followers.
    Followers,
}

impl Visibility {
    /// Who may see a post that says so, while its author is private or not: the posts of a private account are for its followers,
    /// whatever they were when they were written.
    #[must_use]
    pub const fn of(says: Self, author_private: bool) -> Self {
        if author_private { Self::Followers } else { says }
    }
}

/// A post with the newest of its comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The post's id, which is also its place in every list of posts.
    pub id: PostId,
    /// Who wrote it: a copy of the author's fields (the extended reference pattern).
    pub author: UserSummary,
    /// What was written.
    pub text: String,
    /// Who may see it.
    pub visibility: Visibility,
    /// The tags in the text, case-folded, each once.
    pub tags: Vec<String>,
    /// The accounts named in the text, each once.
    pub mentions: Vec<UserSummary>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When its text was last changed.
    pub edited_at: Option<Timestamp>,
    /// The post's totals.
    pub counts: PostCounts,
    /// The newest comments, newest first, at most [`crate::comments::RECENT_SHOWN`] (the subset pattern).
    pub recent_comments: Vec<Comment>,
    /// What the viewer has done with it; none for an anonymous reader.
    pub viewer: Option<PostViewer>,
}

/// Totals of a post, kept up to date as its children are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PostCounts {
    /// Live comments of any depth.
    pub comments: i64,
    /// Likes.
    pub likes: i64,
    /// Reposts.
    pub reposts: i64,
    /// Views, an approximation.
    pub views: i64,
}

/// What a post said before it was edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// What was written.
    pub text: String,
    /// When that was written: of the first one, when the post was.
    pub edited_at: Timestamp,
}

/// Earlier versions that are kept of a post, the newest: as many as anybody reads, and a bound on what one post holds (250 KB).
pub const REVISIONS_KEPT: i64 = 50;

/// What a viewer has done with a post.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PostViewer {
    /// The viewer likes it.
    pub liked: bool,
    /// The viewer has reposted it.
    pub reposted: bool,
    /// The viewer has bookmarked it.
    pub bookmarked: bool,
}

/// Whether somebody may see a post, by how they stand to its author; an anonymous reader stands in no relation.
#[must_use]
pub const fn may_see(visibility: Visibility, own: bool, to_author: Relation) -> bool {
    own || (!to_author.blocked() && (matches!(visibility, Visibility::Public) || to_author.following))
}

/// A list of so many posts is read in one slice: it costs less than a second one would.
const ONE_SLICE: i64 = 200;

/// No slice is shorter: ids count milliseconds, and clocks jitter.
pub const SHORTEST_SLICE: Duration = Duration::from_millis(20);

/// How long a slice of an account's posts must be to hold about twice the `wanted` ones, if its `total` posts were spread evenly over the
/// `age` of the account; none if the whole list is one slice.
///
/// Lists without a sequence number are read in time slices of their ids, bounded on both sides, so that a page never costs more
/// because the list is long.
#[must_use]
pub fn first_slice(wanted: usize, total: i64, age: Duration) -> Option<Duration> {
    if total <= ONE_SLICE {
        return None;
    }
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    Some((age / total).saturating_mul(wanted.saturating_mul(2)).max(SHORTEST_SLICE))
}

/// How long the slice after one that came back short must be: twice as long, and more after an empty one, so that years of silence are
/// crossed in a few steps.
#[must_use]
pub const fn next_slice(span: Duration, found: usize) -> Duration {
    span.saturating_mul(if found == 0 { 8 } else { 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_for_followers_is_seen_by_them_and_its_author_alone() {
        let (stranger, follower) = (Relation::default(), Relation { following: true, ..Relation::default() });
        for (own, relation, sees) in [(true, stranger, true), (false, follower, true), (false, stranger, false)] {
            assert_eq!(may_see(Visibility::Followers, own, relation), sees);
            assert!(may_see(Visibility::Public, own, relation));
        }
    }

    #[test]
    fn the_posts_of_a_private_account_are_for_its_followers() {
        assert_eq!(Visibility::of(Visibility::Public, true), Visibility::Followers);
        assert_eq!(Visibility::of(Visibility::Followers, false), Visibility::Followers);
        assert_eq!(Visibility::of(Visibility::Public, false), Visibility::Public);
    }

    #[test]
    fn a_block_either_way_hides_every_post() {
        for blocked in [Relation { blocking: true, ..Relation::default() }, Relation { blocked_by: true, ..Relation::default() }] {
            assert!(!may_see(Visibility::Public, false, blocked));
            assert!(!may_see(Visibility::Followers, false, Relation { following: true, ..blocked }));
        }
    }

    #[test]
    fn a_slice_is_as_long_as_the_posts_are_rare() {
        let day = Duration::from_hours(24);
        assert_eq!(first_slice(20, 200, day * 365), None, "all of it at once");
        assert_eq!(first_slice(20, 1000, day * 1000), Some(day * 40));
        assert_eq!(first_slice(20, 1_000_000, Duration::from_mins(1)), Some(Duration::from_millis(20)));
        let steps = std::iter::successors(Some(Duration::from_secs(1)), |span| Some(next_slice(*span, 0)));
        assert_eq!(steps.take_while(|span| *span < day * 3650).count(), 10, "ten years are crossed in ten steps");
    }
}
