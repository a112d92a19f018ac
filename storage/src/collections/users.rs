//! `users`: accounts, with their credentials and settings embedded (1:1) and their totals computed.

use bson::doc;

use super::{Collection, array, boolean, count, date, id, int_from, object, one_of, partial, string, unique_where_set};

pub(super) const USERS: Collection = Collection {
    name: super::USERS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("schemaVersion", doc! { "enum": [2] }),
                ("displayName", string(500)),
                ("bio", string(2000)),
                ("settings", object([("private", boolean())], [])),
                ("counters", object([("followers", count()), ("following", count()), ("posts", count())], [])),
                ("followerSeq", count()),
                ("postSeq", count()),
                ("state", one_of(["live", "deleting"])),
                ("createdAt", date()),
                ("lastActiveAt", date()),
            ],
            [
                // Freed at once when the account is deleted.
                ("handle", string(30)),
                // Imported accounts have none.
                ("email", string(254)),
                ("avatarUrl", string(500)),
                ("credentials", object([("hash", string(500)), ("changedAt", date())], [])),
                // The display name as it is searched for: whole, and its first one, two and three characters.
                ("search", object([("name", string(100)), ("keys", array(string(3), 3))], [])),
                ("role", one_of(["admin"])),
                // When the newest follower was counted: the next one is never counted earlier.
                ("followerAt", date()),
                // From going public until everybody who had asked is accepted; moved by each batch of them.
                ("opening", int_from(1)),
                // Set before the first post that readers pull for good.
                ("pulledSince", date()),
                // Set before its first repost: whoever follows it has more to merge than its posts.
                ("repostsSince", date()),
                ("outlier", object([("state", one_of(["building", "ready"])), ("since", date())], [])),
            ],
        )
    },
    indexes: || {
        vec![
            partial(doc! { "search.keys": 1, "handle": 1 }, doc! { "search.keys": { "$exists": true } }),
            partial(doc! { "search.name": 1 }, doc! { "search.name": { "$exists": true } }),
            unique_where_set("handle"),
            unique_where_set("email"),
            // As small as the number of accounts that are being deleted.
            partial(doc! { "state": 1 }, doc! { "state": "deleting" }),
            partial(doc! { "outlier.since": 1 }, doc! { "outlier.since": { "$exists": true } }),
            partial(doc! { "opening": 1 }, doc! { "opening": { "$exists": true } }),
            partial(doc! { "pulledSince": 1 }, doc! { "pulledSince": { "$exists": true } }),
        ]
    },
};
