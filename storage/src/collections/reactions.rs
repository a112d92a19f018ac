//! `likes`, `reposts` and `bookmarks` (the edge collection pattern): what accounts do with posts and comments.

use bson::{Document, doc};

use super::{Collection, date, id, index, int_from, object, one_of, partial, posts::delivery, unique};

pub(super) const LIKES: Collection = Collection {
    name: super::LIKES,
    schema: || {
        object(
            [
                ("_id", id()),
                ("userId", id()),
                ("targetId", id()),
                ("target", one_of(["post", "comment"])),
                ("state", one_of(["active", "removed"])),
            ],
            counted(),
        )
    },
    indexes: || {
        vec![
            unique(doc! { "userId": 1, "targetId": 1 }),
            index(doc! { "targetId": 1, "seq": -1 }),
            // A partial index serves only queries that say something about its leading key.
            partial(doc! { "pending": 1, "target": 1, "targetId": 1 }, doc! { "pending": true }),
        ]
    },
};

pub(super) const REPOSTS: Collection = Collection {
    name: super::REPOSTS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("userId", id()),
                ("postId", id()),
                // Whose post it is.
                ("authorId", id()),
                ("state", one_of(["active", "removed"])),
                ("delivery", delivery()),
            ],
            counted(),
        )
    },
    indexes: || {
        vec![
            unique(doc! { "userId": 1, "postId": 1 }),
            index(doc! { "postId": 1, "seq": -1 }),
            index(doc! { "userId": 1, "_id": -1 }),
            partial(doc! { "pending": 1, "postId": 1 }, doc! { "pending": true }),
            // As for posts: what is pulled, what processes tell the heads of accounts, and what a worker may claim.
            partial(doc! { "delivery.pull": 1, "_id": -1 }, doc! { "delivery.pull": { "$exists": true } }),
            partial(doc! { "delivery.pulledAt": 1 }, doc! { "delivery.pulledAt": { "$exists": true } }),
            partial(doc! { "delivery.state": 1, "delivery.runAfter": 1 }, doc! { "delivery.state": "pending" }),
        ]
    },
};

pub(super) const BOOKMARKS: Collection = Collection {
    name: super::BOOKMARKS,
    schema: || object([("_id", id()), ("userId", id()), ("postId", id())], []),
    indexes: || {
        vec![
            unique(doc! { "userId": 1, "postId": 1 }),
            index(doc! { "userId": 1, "_id": -1 }),
            // For what a deleted post leaves.
            index(doc! { "postId": 1 }),
        ]
    },
};

/// The fields of an edge that its parent counts.
fn counted() -> [(&'static str, Document); 3] {
    [
        // The place in the list, exactly while it is counted.
        ("seq", int_from(1)),
        // When it was counted, and told.
        ("countedAt", date()),
        // There only while it is true, so that the partial index holds nothing else.
        ("pending", doc! { "enum": [true] }),
    ]
}
