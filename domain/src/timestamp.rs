//! One type for points in time, cut to the milliseconds that the database keeps.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

/// A point in time in milliseconds since 1970, UTC. In JSON it is RFC 3339 with exactly three digits of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point `ms` milliseconds after 1970.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The point `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The point `span` earlier.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000).map_err(|_| fmt::Error)?;
        f.write_str(&at.format(format).map_err(|_| fmt::Error)?)
    }
}

/// A text that is no time in the form of RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time such as `2026-01-31T12:00:00Z`")]
pub struct InvalidTime;

impl FromStr for Timestamp {
    type Err = InvalidTime;

    /// Reads RFC 3339 with any offset and any digits of a second, which are cut to milliseconds.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTime)?;
        i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000)).map(Self).map_err(|_| InvalidTime)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_any_offset_and_any_digits() {
        for text in ["2025-11-30T18:00:00Z", "2025-11-30T18:00:00.000Z", "2025-11-30T19:30:00.000999+01:30", "2025-11-30t18:00:00z"]
        {
            assert_eq!(text.parse(), Ok(Timestamp::from_millis(1_764_525_600_000)), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2025-11-30",
            "2025-11-30T18:00:00",
            "2025-02-30T18:00:00Z",
            "1764525600",
            "2025-11-30T18:00:00 01:00",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTime), "{text}");
        }
    }

    #[test]
    fn a_time_has_exactly_three_digits_of_a_second() {
        assert_eq!(Timestamp::from_millis(1_764_525_600_000).to_string(), "2025-11-30T18:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_764_525_600_070).to_string(), "2025-11-30T18:00:00.070Z");
    }
}
