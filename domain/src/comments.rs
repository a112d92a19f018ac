//! Comments: what other layers see of them, and the subset kept in the post.
//!
//! What counting and deleting do to the tree is in [`tree`].

pub mod tree;

use std::time::Duration;

use crate::{
    CommentId, Page, PostId, Timestamp,
    page::{Cursor, SeqCursor},
    user::UserSummary,
};

/// Comments of the subset that a post shows.
pub const RECENT_SHOWN: usize = 10;
/// Comments of the subset that a post keeps: five spares, so that a few hidden authors cost no second query.
pub const RECENT_KEPT: usize = 15;
/// The deepest level of replies; the first level is 0.
pub const MAX_DEPTH: i32 = 100;
/// How long a hidden tombstone stays: a reply that was accepted while its parent was being deleted must find it, and no request lives
/// that long.
pub const TOMBSTONE_KEPT: Duration = Duration::from_mins(1);

/// A comment, or what is left of one that was deleted but has replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The comment's id.
    pub id: CommentId,
    /// The post it stands under.
    pub post_id: PostId,
    /// The comment it answers; none on the first level.
    pub parent_id: Option<CommentId>,
    /// Its level: 0 for one that answers the post itself.
    pub depth: i32,
    /// Who wrote it: a copy of the author's fields. None once it is deleted.
    pub author: Option<UserSummary>,
    /// What was written; empty once it is deleted.
    pub text: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When its text was last changed.
    pub edited_at: Option<Timestamp>,
    /// Likes of the comment.
    pub likes: i64,
    /// Live direct replies.
    pub replies: i64,
    /// Whether only its place in the tree is left.
    pub deleted: bool,
}

/// A page of the comments under a post or of the replies to one comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentPage {
    /// The comments, in the order asked for.
    pub page: Page<Comment, SeqCursor>,
    /// How many a walk of the whole list meets: live comments, and tombstones that are shown.
    pub total: i64,
}

/// The order of a list of comments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommentOrder {
    /// The last counted first.
    #[default]
    Newest,
    /// The first counted first, so that a parent stands before its replies.
    Oldest,
}

/// A place in a list of comments. It goes with the order of the list: the same place leads elsewhere in the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommentCursor {
    /// The order of the list that it was made in.
    pub order: CommentOrder,
    /// The place.
    pub place: SeqCursor,
}

impl Cursor for CommentCursor {
    const KIND: u8 = 11;

    fn write(&self, to: &mut Vec<u8>) {
        to.push(match self.order {
            CommentOrder::Newest => 0,
            CommentOrder::Oldest => 1,
        });
        self.place.write(to);
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (order, place) = from.split_first()?;
        let order = match order {
            0 => CommentOrder::Newest,
            1 => CommentOrder::Oldest,
            _ => return None,
        };
        Some(Self { order, place: SeqCursor::read(place)? })
    }
}

/// A place among the descendants of a comment, which are read in one direction: those behind this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCursor(pub i64);

impl Cursor for ThreadCursor {
    const KIND: u8 = 12;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_be_bytes());
    }

    fn read(from: &[u8]) -> Option<Self> {
        Some(Self(i64::from_be_bytes(from.try_into().ok()?)))
    }
}

/// A comment, what it answers, and a page of what answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The comments above it, from the first level to its parent.
    pub ancestors: Vec<Comment>,
    /// The comment.
    pub comment: Comment,
    /// The comments below it, of every level, each after the one that it answers.
    pub descendants: Page<Comment, ThreadCursor>,
}

/// Why a comment, or a list of comments, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommentRefusal {
    /// The account that writes is gone.
    #[error("there is no such account")]
    AuthorGone,
    /// The post is absent, deleted, or not for this viewer.
    #[error("there is no such post")]
    PostNotFound,
    /// The comment to answer is absent, deleted, or under another post.
    #[error("there is no such comment under this post")]
    ParentNotFound,
    /// A block stands between the caller and who wrote the comment to answer, or whose answers are to be listed.
    #[error("there is no such comment, or none that you may see")]
    ParentHidden,
    /// The comment to answer is at [`MAX_DEPTH`] already.
    #[error("a thread is at most {MAX_DEPTH} levels deep")]
    ThreadTooDeep,
}

/// Why a comment is neither edited nor deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChangeCommentRefusal {
    /// The comment is absent, was deleted before, or is not for the caller.
    #[error("there is no such comment")]
    NotFound,
    /// Somebody else wrote it.
    #[error("only its author may edit or delete a comment")]
    NotYours,
}

/// How many comments the subset lacks that holds `kept` of a post's `live` ones.
#[must_use]
pub fn missing_from_subset(kept: usize, live: i64) -> usize {
    usize::try_from(live).unwrap_or(0).min(RECENT_KEPT).saturating_sub(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_place_among_comments_survives_the_trip_through_a_client(seq: i64, below: bool, newest: bool) {
            let order = if newest { CommentOrder::Newest } else { CommentOrder::Oldest };
            let place = if below { SeqCursor::Below(seq) } else { SeqCursor::Above(seq) };
            let list = CommentCursor { order, place };
            prop_assert_eq!(CommentCursor::decode(&list.encode()), Ok(list));
            prop_assert_eq!(ThreadCursor::decode(&ThreadCursor(seq).encode()), Ok(ThreadCursor(seq)));
            prop_assert!(ThreadCursor::decode(&list.encode()).is_err() && SeqCursor::decode(&list.encode()).is_err());
        }
    }

    #[test]
    fn the_subset_lacks_what_is_live_and_not_kept() {
        assert_eq!(missing_from_subset(0, 0), 0);
        assert_eq!(missing_from_subset(3, 3), 0);
        assert_eq!(missing_from_subset(14, 14), 0);
        assert_eq!(missing_from_subset(14, 1_000), 1);
        assert_eq!(missing_from_subset(0, 1_000), RECENT_KEPT);
        assert_eq!(missing_from_subset(15, -1), 0, "never below zero, whatever the total says");
    }
}
