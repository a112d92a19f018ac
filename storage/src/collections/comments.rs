//! `comments`: a tree by materialised paths, with a copy of each author (extended reference) and the totals of replies (computed).

use bson::doc;

use super::{Collection, array, author, count, date, id, index, int_from, object, one_of, partial, string};

pub(super) const COMMENTS: Collection = Collection {
    name: super::COMMENTS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("postId", id()),
                // From the first level to the parent.
                ("ancestors", array(id(), 100)),
                ("depth", int_from(0)),
                ("counters", object([("likes", count()), ("replies", count()), ("children", count())], [])),
                ("state", one_of(["live", "removed", "tombstone"])),
                ("createdAt", date()),
            ],
            [
                ("parentId", id()),
                // The place in the lists, exactly while the comment is counted: as live, or as a tombstone that is shown.
                ("seq", int_from(1)),
                // Gone once it is deleted.
                ("author", author()),
                ("text", string(3000)),
                // `pending` is there only while it is true, so that the partial index holds nothing else.
                ("pending", doc! { "enum": [true] }),
                ("editedAt", date()),
                // When a hidden tombstone may go.
                ("purgeAt", date()),
                // The last number given to its likes; none before the first.
                ("likeSeq", count()),
                // It is deleted, and its likes are still to be removed.
                ("likesLeft", doc! { "enum": [true] }),
                // When it last came back into the newest comments of its post: written so that a like counted meanwhile conflicts.
                ("keptAt", date()),
            ],
        )
    },
    indexes: || {
        vec![
            index(doc! { "postId": 1, "seq": -1 }),
            index(doc! { "parentId": 1, "seq": -1 }),
            index(doc! { "ancestors": 1, "seq": 1 }),
            index(doc! { "author.userId": 1, "_id": 1 }),
            index(doc! { "postId": 1, "author.userId": 1 }),
            // In the order in which they are applied: parents before their replies.
            // A partial index serves only queries that say something about its leading key.
            partial(doc! { "pending": 1, "postId": 1, "depth": 1, "_id": 1 }, doc! { "pending": true }),
            // What is deleted and still counted: lists leave it out of their totals.
            partial(doc! { "state": 1, "postId": 1 }, doc! { "state": "removed" }),
            partial(doc! { "purgeAt": 1 }, doc! { "purgeAt": { "$exists": true } }),
            partial(doc! { "likesLeft": 1 }, doc! { "likesLeft": true }),
        ]
    },
};
