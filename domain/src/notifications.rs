//! Notifications: what an account is told of what others do, and what is read of it.

use std::collections::HashSet;

use uuid::Uuid;

use crate::{CommentId, NotificationId, PostId, Timestamp, UserId, ids, page::LATE_MS, user::UserSummary};

/// What kind of act is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotificationKind {
    /// Accounts follow the recipient: all of one day (UTC) in one notification.
    Follow,
    /// An account asks to follow the recipient, whose account is private.
    FollowRequest,
    /// An account that the recipient had asked to follow has consented.
    FollowAccepted,
    /// A comment under a post of the recipient.
    Comment,
    /// An answer to a comment of the recipient.
    Reply,
    /// Accounts like a post or a comment of the recipient: all of one post or comment in one notification.
    Like,
    /// Accounts have reposted a post of the recipient: all of one post in one notification.
    Repost,
    /// A post or a comment names the recipient.
    Mention,
}

/// A post or comment that a notification is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject<Id> {
    /// Its id.
    pub id: Id,
    /// What is written.
    pub text: String,
}

/// What an account is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Its place in the list, the newest of several acts; new when another act joins it.
    pub id: NotificationId,
    /// What kind of act it tells.
    pub kind: NotificationKind,
    /// Whether the recipient has read it.
    pub read: bool,
    /// Who acted, newest first, at most [`ACTORS_SHOWN`].
    pub actors: Vec<UserSummary>,
    /// How many accounts acted that the recipient may see.
    pub actor_count: i64,
    /// The post that it is about.
    pub post: Option<Subject<PostId>>,
    /// The comment that it is about.
    pub comment: Option<Subject<CommentId>>,
}

impl Notification {
    /// When the newest act was told.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.id.time()
    }
}

/// Actors that one notification names.
pub const ACTORS_SHOWN: usize = 5;

/// Where counting what is unread ends.
pub const UNREAD_MOST: usize = 1_000;

/// Whom a comment is told to, and as what: nobody is told of their own, and nobody twice of one comment. Whose comment it answers is
/// told of a reply, else whose post it is under of a comment, and whom it names besides of a mention.
#[must_use]
pub fn told_of_comment(
    author: UserId,
    answered: Option<UserId>,
    post_author: UserId,
    mentioned: impl IntoIterator<Item = UserId>,
) -> Vec<(UserId, NotificationKind)> {
    let reply = answered.map(|user| (user, NotificationKind::Reply));
    let comment = (post_author, NotificationKind::Comment);
    let mentions = mentioned.into_iter().map(|user| (user, NotificationKind::Mention));
    let mut seen = HashSet::from([author]);
    reply.into_iter().chain([comment]).chain(mentions).filter(|(user, _)| seen.insert(*user)).collect()
}

/// How far everything is read after a call that names a place. One that lies in the future by more than clocks differ would read what
/// is still to come: it reads what is there now.
#[must_use]
pub fn read_up_to(asked: Uuid, now: Timestamp) -> Uuid {
    if ids::time_of(asked).as_millis() > now.as_millis() + LATE_MS {
        ids::floor_at(Timestamp::from_millis(now.as_millis() + 1))
    } else {
        asked
    }
}

/// Whether an act that was told at a time is read, in a notification that has this place; `mark` is how far everything is read.
///
/// The place says it exactly for the newest act, the time for those before.
#[must_use]
pub fn is_read(place: Uuid, at: Timestamp, mark: Uuid) -> bool {
    place <= mark || (at < ids::time_of(place) && at <= ids::time_of(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(n: u128) -> UserId {
        UserId(Uuid::from_u128(n))
    }

    fn at(ms: i64) -> Uuid {
        Uuid::from_u128(ids::floor_at(Timestamp::from_millis(ms)).as_u128() + 7)
    }

    #[test]
    fn nobody_is_told_of_their_own_comment_or_twice_of_one() {
        use NotificationKind::{Comment, Mention, Reply};
        let (me, host, parent, named) = (user(1), user(2), user(3), user(4));
        let everybody = [me, host, parent, named, named];
        assert_eq!(
            told_of_comment(me, Some(parent), host, everybody),
            [(parent, Reply), (host, Comment), (named, Mention)],
            "a reply that also names whom it answers is one notice"
        );
        assert_eq!(told_of_comment(me, Some(host), host, []), [(host, Reply)]);
        assert_eq!(told_of_comment(me, None, host, [host]), [(host, Comment)]);
        assert_eq!(told_of_comment(host, Some(host), host, [host]), []);
    }

    #[test]
    fn a_place_in_the_future_reads_what_is_there_now() {
        let now = Timestamp::from_millis(1_764_000_000_000);
        let soon = at(now.as_millis() + 4_000);
        assert_eq!(read_up_to(soon, now), soon, "another process's clock");
        assert_eq!(read_up_to(Uuid::max(), now), ids::floor_at(Timestamp::from_millis(now.as_millis() + 1)));
    }

    #[test]
    fn a_newer_act_in_a_notification_makes_it_unread_and_an_older_one_that_is_left_does_not() {
        let (old, new) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
        let place = at(2_000);
        assert!(is_read(place, new, place));
        assert!(!is_read(place, new, at(1_500)), "the newest act came after the mark");
        assert!(is_read(place, old, at(1_500)), "the newest act is gone or hidden, and those before were read");
        assert!(!is_read(place, old, at(500)));
    }
}
