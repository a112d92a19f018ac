//! `sessions` (logins, with the one refresh token that is current) and `login_attempts` (failed logins of late).

use std::time::Duration;

use bson::doc;
use rookery_domain::credentials::ATTEMPTS_WINDOW;

use super::{Collection, binary, date, id, index, int_from, object, partial, string, ttl};

pub(super) const SESSIONS: Collection = Collection {
    name: super::SESSIONS,
    schema: || {
        object(
            [
                ("_id", id()),
                ("userId", id()),
                ("createdAt", date()),
                ("lastUsedAt", date()),
                ("expiresAt", date()),
                ("userAgent", string(300)),
                ("refresh", object([("generation", int_from(1)), ("hash", binary())], [])),
            ],
            [("revokedAt", date())],
        )
    },
    indexes: || {
        vec![
            index(doc! { "userId": 1, "_id": 1 }),
            partial(doc! { "revokedAt": 1 }, doc! { "revokedAt": { "$exists": true } }),
            ttl("expiresAt", Duration::ZERO),
        ]
    },
};

pub(super) const LOGIN_ATTEMPTS: Collection = Collection {
    name: super::LOGIN_ATTEMPTS,
    schema: || object([("_id", binary()), ("count", int_from(1)), ("windowStart", date())], []),
    indexes: || vec![ttl("windowStart", ATTEMPTS_WINDOW)],
};
