//! `notifications` (the bucket pattern) for acts that are told one by one, `notification_groups` for those that are told together, and
//! `notification_marks`: how far an account has read.

use std::time::Duration;

use bson::doc;

use super::{Collection, array, count, date, id, index, int_from, no_indexes, object, one_of, partial, string, ttl, unique};

/// How long a notification is kept after the newest act in its document.
pub(crate) const KEPT: Duration = Duration::from_hours(90 * 24);

/// Items of one bucket: some 8 KB.
pub(crate) const BUCKET_SIZE: usize = 50;

pub(super) const NOTIFICATIONS: Collection = Collection {
    name: super::NOTIFICATIONS,
    schema: || {
        let item = object(
            [
                // What is told: the comment, the post or the edge.
                ("act", id()),
                ("type", one_of(["followRequest", "followAccepted", "comment", "reply", "mention"])),
                ("actorId", id()),
                // Its place in the list, and its id for clients.
                ("place", id()),
            ],
            [("postId", id()), ("commentId", id())],
        );
        object(
            [
                ("_id", id()),
                ("userId", id()),
                // The n-th of the account.
                ("bucket", int_from(1)),
                ("items", array(item, i32::try_from(BUCKET_SIZE).unwrap_or(i32::MAX))),
                ("count", count()),
                // The places of the first and the last item that were put in: those of one account's buckets do not overlap.
                ("first", id()),
                ("last", id()),
                ("at", date()),
            ],
            // The account, in the bucket that takes its next items.
            [("open", id())],
        )
    },
    indexes: || {
        vec![
            unique(doc! { "userId": 1, "bucket": 1 }),
            index(doc! { "userId": 1, "first": -1 }),
            partial(doc! { "open": 1 }, doc! { "open": { "$exists": true } }),
            // Whatever is undone is found by it.
            index(doc! { "items.act": 1 }),
            ttl("at", KEPT),
        ]
    },
};

pub(super) const NOTIFICATION_GROUPS: Collection = Collection {
    name: super::NOTIFICATION_GROUPS,
    schema: || {
        object(
            [
                // What is told together: `like:<id>`, `repost:<id>`, `follow:<account>:<day>`.
                ("_id", string(80)),
                ("userId", id()),
                ("type", one_of(["follow", "like", "repost"])),
                // That of the newest act.
                ("place", id()),
                ("at", date()),
            ],
            [
                // Of likes and reposts: what they are to, which counts them.
                ("target", one_of(["post", "comment"])),
                ("targetId", id()),
                // Of follows: the numbers of the first and the last of the day, and how many of them stand.
                ("first", int_from(1)),
                ("last", int_from(1)),
                ("count", count()),
            ],
        )
    },
    indexes: || vec![index(doc! { "userId": 1, "place": -1 }), ttl("at", KEPT)],
};

pub(super) const NOTIFICATION_MARKS: Collection =
    Collection { name: super::NOTIFICATION_MARKS, schema: || object([("_id", id()), ("upTo", id())], []), indexes: no_indexes };
