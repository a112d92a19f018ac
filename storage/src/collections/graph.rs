//! `follows`, `blocks` and `mutes` (the edge collection pattern), and `user_overflow` (the outlier pattern).

use bson::doc;
use rookery_domain::outlier::PAGE_SIZE;

use super::{Collection, array, boolean, date, id, index, int_from, object, one_of, partial, unique};

pub(super) const FOLLOWS: Collection = Collection {
    name: super::FOLLOWS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("followerId", id()),
                ("followeeId", id()),
                ("state", one_of(["requested", "active", "removed"])),
                ("wish", id()),
                ("merged", boolean()),
            ],
            [
                ("seq", int_from(1)),
                ("followedAt", date()),
                // There only while it is true, so that the partial index holds nothing else.
                ("pending", doc! { "enum": [true] }),
                // The followee, while the edge waits for consent.
                ("requestOf", id()),
                // The followee has consented, until that is applied.
                ("accepted", doc! { "enum": [true] }),
                // It was a request that was answered so, until that is applied: whoever asked is told.
                ("asked", doc! { "enum": [true] }),
            ],
        )
    },
    indexes: || {
        vec![
            unique(doc! { "followerId": 1, "followeeId": 1 }),
            index(doc! { "followeeId": 1, "seq": -1 }),
            index(doc! { "followerId": 1, "followedAt": -1, "_id": -1 }),
            // A partial index serves only queries that say something about its leading key.
            partial(doc! { "pending": 1, "followeeId": 1, "_id": 1 }, doc! { "pending": true }),
            partial(doc! { "merged": 1, "followerId": 1 }, doc! { "merged": false }),
            partial(doc! { "requestOf": 1, "wish": -1 }, doc! { "requestOf": { "$exists": true } }),
        ]
    },
};

pub(super) const BLOCKS: Collection = Collection {
    name: super::BLOCKS,
    schema: || {
        object(
            [("_id", id()), ("blockerId", id()), ("blockedId", id()), ("createdAt", date())],
            // Until the sweep is done.
            [("pending", doc! { "enum": [true] })],
        )
    },
    indexes: || {
        vec![
            unique(doc! { "blockerId": 1, "blockedId": 1 }),
            index(doc! { "blockedId": 1, "blockerId": 1 }),
            index(doc! { "blockerId": 1, "_id": -1 }),
            partial(doc! { "pending": 1 }, doc! { "pending": true }),
        ]
    },
};

pub(super) const MUTES: Collection = Collection {
    name: super::MUTES,
    schema: || object([("_id", id()), ("muterId", id()), ("mutedId", id()), ("createdAt", date())], []),
    indexes: || {
        vec![
            unique(doc! { "muterId": 1, "mutedId": 1 }),
            index(doc! { "mutedId": 1, "muterId": 1 }),
            index(doc! { "muterId": 1, "_id": -1 }),
        ]
    },
};

pub(super) const USER_OVERFLOW: Collection = Collection {
    name: super::USER_OVERFLOW,
    schema: || {
        object(
            [
                ("_id", id()),
                ("userId", id()),
                ("page", int_from(0)),
                ("followers", array(object([("userId", id()), ("seq", int_from(1)), ("at", date())], []), page_size())),
                ("count", int_from(0)),
            ],
            [],
        )
    },
    indexes: || vec![unique(doc! { "userId": 1, "page": 1 })],
};

/// No page holds more.
fn page_size() -> i32 {
    i32::try_from(PAGE_SIZE).unwrap_or(i32::MAX)
}
