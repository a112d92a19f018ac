//! Identifiers: one newtype per noun, all of them UUID version 7.
//!
//! A version 7 id carries the millisecond at which it was made in its first 48 bits and sorts by it, so that an index on ids is an
//! index on time, and a time span is a range of ids ([`floor_at`], [`time_of`]). Ids are made before their document commits and by
//! processes whose clocks differ: they order things, they never prove that one thing happened before another.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Timestamp;

/// A string that is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct InvalidId;

/// The smallest UUID version 7 of a millisecond: every id made at or after `at` is not below it.
#[must_use]
pub fn floor_at(at: Timestamp) -> Uuid {
    let ms = u128::try_from(at.as_millis().clamp(0, (1 << 48) - 1)).unwrap_or(0);
    // 48 bits of time, then zeros up to and including the version: no version 7 id of that millisecond is below it.
    Uuid::from_u128(ms << 80)
}

/// The millisecond in which a UUID version 7 was made.
#[must_use]
pub fn time_of(id: Uuid) -> Timestamp {
    Timestamp::from_millis(i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// When the id was made, to the millisecond.
            #[must_use]
            pub fn time(self) -> Timestamp {
                time_of(self.0)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Reads the hyphenated form and no other (36 characters), so that an id has one spelling but for its case.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if text.len() != 36 {
                    return Err(InvalidId);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| InvalidId)
            }
        }
    };
}

id!(
    /// An account.
    UserId
);
id!(
    /// A post.
    PostId
);
id!(
    /// A comment.
    CommentId
);
id!(
    /// An edge of the graph: one follow or one block.
    EdgeId
);
id!(
    /// A login on one device, which lives until it is logged out, revoked or left unused.
    SessionId
);
id!(
    /// A notification: its place in the list of its recipient.
    NotificationId
);
id!(
    /// A piece of background work that outlives the request that asked for it.
    JobId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_time() {
        let at = Timestamp::from_millis(1_764_000_000_123);
        let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, 1_764_000_000, 123_000_000));
        assert_eq!(time_of(id), at);
        assert!(floor_at(at) <= id);
        assert!(floor_at(Timestamp::from_millis(at.as_millis() + 1)) > id);
    }

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let text = "01890000-0000-7000-8000-00000000dead";
        assert_eq!(text.parse::<UserId>().map(|id| id.to_string()), Ok(text.to_owned()));
        for other in
            ["", "zzz", "0189000000007000800000000000dead", "{01890000-0000-7000-8000-00000000dead}", "487623987434987263434343"]
        {
            assert_eq!(other.parse::<UserId>(), Err(InvalidId), "{other}");
        }
    }
}
