//! `timeline_entries` (parent reference, one to millions) and `timelines`: the windows of readers.

use std::time::Duration;

use bson::doc;

use super::{Collection, date, id, index, no_indexes, object, ttl, unique};

/// How long an entry may stay: a window is rebuilt from the posts after that.
pub(crate) const ENTRY_LIVES: Duration = Duration::from_hours(60 * 24);

pub(super) const TIMELINE_ENTRIES: Collection = Collection {
    name: super::TIMELINE_ENTRIES,
    schema: || {
        object(
            [
                ("_id", doc! { "bsonType": "objectId" }),
                ("ownerId", id()),
                ("postId", id()),
                ("actorId", id()),
                // The act's place in the feed: the id of the post, or of the repost.
                ("slot", id()),
                ("at", date()),
            ],
            [],
        )
    },
    indexes: || {
        vec![
            unique(doc! { "ownerId": 1, "postId": 1, "actorId": 1 }),
            index(doc! { "ownerId": 1, "slot": -1 }),
            ttl("at", ENTRY_LIVES),
        ]
    },
};

pub(super) const TIMELINES: Collection = Collection {
    name: super::TIMELINES,
    schema: || {
        object(
            [("_id", id()), ("completeSince", id()), ("lastReadAt", date())],
            // New with each change of whom the reader follows.
            [("relations", id())],
        )
    },
    indexes: no_indexes,
};
