//! `idempotency_keys`: which key made which resource, and what was answered.

use std::time::Duration;

use super::{Collection, date, id, int_from, object, string, ttl};

/// How long a key is honoured.
const KEPT: Duration = Duration::from_hours(24);

pub(super) const IDEMPOTENCY_KEYS: Collection = Collection {
    name: super::IDEMPOTENCY_KEYS,
    schema: || {
        object(
            // `_id` and `requestHash` are SHA-256: the key itself and what was asked for are nobody's business.
            [("_id", id()), ("requestHash", id()), ("resourceId", id()), ("owner", id()), ("until", date()), ("createdAt", date())],
            [("answer", object([("status", int_from(200)), ("body", string(200_000))], [("location", string(500))]))],
        )
    },
    indexes: || vec![ttl("createdAt", KEPT)],
};
