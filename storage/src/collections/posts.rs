//! `posts`: texts with a copy of their author (extended reference), their totals (computed) and their newest comments (subset).
//! `post_revisions`: what edited posts said before.

use bson::{Document, doc};

use super::{Collection, array, author, count, date, id, index, int_from, object, one_of, partial, string, unique};

pub(super) const POSTS: Collection = Collection {
    name: super::POSTS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("schemaVersion", doc! { "enum": [2] }),
                ("author", author()),
                ("text", string(5000)),
                ("visibility", one_of(["public", "followers"])),
                ("tags", array(string(5000), 50)),
                ("mentions", array(author(), 20)),
                ("counters", counters()),
                ("commentSeq", count()),
                ("recentComments", array(recent_comment(), 15)),
                ("delivery", delivery()),
                ("state", one_of(["live", "deleted"])),
                ("createdAt", date()),
            ],
            [
                // `pending` is there only while it is true, so that the partial index holds nothing else.
                ("pending", doc! { "enum": [true] }),
                // The n-th post of its author, while the author counts it.
                ("seq", int_from(1)),
                ("editedAt", date()),
                // The last numbers given to its likes and reposts; none before the first.
                ("likeSeq", count()),
                ("repostSeq", count()),
                // How often it was edited: the last number given to an earlier version; none before the first.
                ("revisionSeq", count()),
            ],
        )
    },
    indexes: || {
        vec![
            index(doc! { "author.userId": 1, "_id": -1 }),
            // What is not delivered is pulled: `delivery.pull` is the author, and there only until then. The filter is on the leading key,
            // since a partial index serves only queries that say something about that.
            partial(doc! { "delivery.pull": 1, "_id": -1 }, doc! { "delivery.pull": { "$exists": true } }),
            // What processes ask for that keep the heads of authors in memory.
            partial(doc! { "delivery.pulledAt": 1 }, doc! { "delivery.pulledAt": { "$exists": true } }),
            index(doc! { "tags": 1, "_id": -1 }),
            // Only posts that mention somebody are in it.
            partial(doc! { "mentions.userId": 1 }, doc! { "mentions.userId": { "$exists": true } }),
            partial(doc! { "pending": 1, "_id": 1 }, doc! { "pending": true }),
            // What a worker may claim: no `runAfter` means that it was parked after too many attempts.
            partial(doc! { "delivery.state": 1, "delivery.runAfter": 1 }, doc! { "delivery.state": "pending" }),
        ]
    },
};

pub(super) const POST_REVISIONS: Collection = Collection {
    name: super::POST_REVISIONS,
    schema: || object([("_id", id()), ("postId", id()), ("seq", int_from(1)), ("text", string(5000)), ("editedAt", date())], []),
    // The history of a post, and what a deleted post leaves.
    indexes: || vec![unique(doc! { "postId": 1, "seq": -1 })],
};

fn counters() -> Document {
    let totals = ["comments", "tombstones", "likes", "reposts", "views"].map(|total| (total, count()));
    object(totals, [])
}

/// What a comment shows, kept in its post.
fn recent_comment() -> Document {
    object(
        [
            ("_id", id()),
            ("seq", int_from(1)),
            ("depth", int_from(0)),
            ("author", author()),
            ("text", string(3000)),
            ("createdAt", date()),
            ("likes", count()),
            ("replies", count()),
        ],
        [("parentId", id()), ("editedAt", date())],
    )
}

/// A post or a repost is its own fan-out job.
pub(super) fn delivery() -> Document {
    object(
        [("state", one_of(["pull", "pending", "delivered"])), ("attempts", count())],
        [
            // The highest `seq` of a follower who has it; none before those without a `seq` have it.
            ("cursor", int_from(0)),
            ("lease", object([("owner", id()), ("until", date())], [])),
            ("runAfter", date()),
            // Who made it, while readers pull it: until it is delivered, or for good.
            ("pull", id()),
            // When it was inserted, where it is pulled for good.
            ("pulledAt", date()),
        ],
    )
}
