//! `jobs`: background work that outlives the request that asked for it.

use std::time::Duration;

use bson::doc;

use super::{Collection, array, count, date, id, int_from, object, one_of, partial, string, ttl};

/// How long a job that is done can be looked up.
const KEPT: Duration = Duration::from_hours(30 * 24);

pub(super) const JOBS: Collection = Collection {
    name: super::JOBS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("kind", one_of(["deletion", "rename", "verify", "repair"])),
                // Ids alone: what they stand for is read when the work is done.
                ("payload", object([("userId", id())], [])),
                ("state", one_of(["pending", "done", "parked"])),
                // Without progress since.
                ("attempts", count()),
                ("progress", count()),
                ("createdAt", date()),
            ],
            [
                ("checkpoint", object([("stage", string(30)), ("pass", int_from(1))], [("seq", int_from(1)), ("id", id())])),
                ("lease", object([("owner", id()), ("until", date())], [])),
                // When a worker may claim it; none once it is done or parked.
                ("runAfter", date()),
                ("finishedAt", date()),
                // What a check has found: one for each kind of drift, with a few examples.
                ("findings", array(finding(), 50)),
            ],
        )
    },
    indexes: || vec![partial(doc! { "state": 1, "runAfter": 1 }, doc! { "state": "pending" }), ttl("finishedAt", KEPT)],
};

fn finding() -> bson::Document {
    object([("kind", string(50)), ("found", count()), ("repaired", count()), ("examples", array(string(300), 5))], [])
}
