//! `migrations` and `locks`: what ran, and who runs.

use bson::doc;

use super::{Collection, date, id, int_from, no_indexes, object, string};

pub(super) const MIGRATIONS: Collection = Collection {
    name: super::MIGRATIONS,
    schema: || {
        doc! { "oneOf": [
            object([("_id", doc! { "enum": ["schema"] }), ("version", int_from(1)), ("description", string(64)), ("appliedAt", date())], []),
            object([("_id", doc! { "enum": ["celebrity_threshold", "overflow_pages"] }), ("value", int_from(1))], []),
        ] }
    },
    indexes: no_indexes,
};

pub(super) const LOCKS: Collection = Collection {
    name: super::LOCKS,
    schema: || object([("_id", string(100)), ("owner", id()), ("until", date())], []),
    indexes: no_indexes,
};
