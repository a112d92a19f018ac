//! `stats_hourly` (the bucket pattern): what happened to an account or a post, a day to a document and an hour to a place in it.

use std::time::Duration;

use bson::{Document, doc};
use rookery_domain::stats::HOURS_OF_DAY;

use super::{Collection, date, id, int_from, object, one_of, ttl, unique};

/// How long a day is kept: a year beside the one before it.
const KEPT: Duration = Duration::from_hours(400 * 24);

pub(super) const STATS_HOURLY: Collection = Collection {
    name: super::STATS_HOURLY,
    schema: || {
        object(
            [
                ("_id", id()),
                // The account, or the post.
                ("subject", id()),
                ("kind", one_of(["account", "post"])),
                // When the day begins, UTC.
                ("day", date()),
            ],
            ["views", "newFollowers", "lostFollowers", "posts", "likes", "comments"].map(|figure| (figure, places())),
        )
    },
    // Not `{subject, day}` as the `_id`: the embedded database finds a document by an `_id` of two fields only by reading them all.
    indexes: || vec![unique(doc! { "subject": 1, "day": 1 }), ttl("day", KEPT)],
};

/// A figure of each hour, by its place in the day: only hours in which something happened have one.
fn places() -> Document {
    let places: Document = (0..HOURS_OF_DAY).map(|place| (place.to_string(), int_from(1).into())).collect();
    doc! { "bsonType": "object", "additionalProperties": false, "properties": places }
}
