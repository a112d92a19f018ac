//! Statistics by the hour: which hours a span has, and the figures of one.

use std::time::Duration;

use crate::Timestamp;

/// An hour in milliseconds.
const HOUR_MS: i64 = 3_600_000;

/// Hours of a day, and so places in a bucket.
pub const HOURS_OF_DAY: i64 = 24;

/// The longest span that is answered at once: a month's chart, and at most 32 buckets.
pub const LONGEST_SPAN: Duration = Duration::from_hours(31 * 24);

/// The span that is meant where nobody says where it begins: a week's chart.
pub const USUAL_SPAN: Duration = Duration::from_hours(7 * 24);

/// One hour of UTC, as the number of hours since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(i64);

impl Hour {
    /// The hour in which a point in time lies.
    #[must_use]
    pub const fn of(at: Timestamp) -> Self {
        Self(at.as_millis().div_euclid(HOUR_MS))
    }

    /// The hour with this place in the day that begins at `day`.
    #[must_use]
    pub const fn in_day(day: Timestamp, place: i64) -> Self {
        Self(Self::of(day).0.saturating_add(place))
    }

    /// When it begins.
    #[must_use]
    pub const fn start(self) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_mul(HOUR_MS))
    }

    /// When its day begins.
    #[must_use]
    pub const fn day(self) -> Timestamp {
        Self(self.0.saturating_sub(self.place())).start()
    }

    /// Its place in its day, 0 to 23.
    #[must_use]
    pub const fn place(self) -> i64 {
        self.0.rem_euclid(HOURS_OF_DAY)
    }
}

/// What happened in one hour: each figure counts what came, and none goes down when something is taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Reads of a post by itself, by others than its author.
    pub views: i64,
    /// Followers gained.
    pub new_followers: i64,
    /// Followers lost.
    pub lost_followers: i64,
    /// Posts written.
    pub posts: i64,
    /// Likes received.
    pub likes: i64,
    /// Comments received.
    pub comments: i64,
}

impl Figures {
    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what else happened.
    pub const fn add(&mut self, more: Self) {
        self.views += more.views;
        self.new_followers += more.new_followers;
        self.lost_followers += more.lost_followers;
        self.posts += more.posts;
        self.likes += more.likes;
        self.comments += more.comments;
    }
}

/// The figures of one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourlyStats {
    /// Which hour.
    pub hour: Hour,
    /// What happened in it.
    pub figures: Figures,
}

/// A span of time whose statistics are asked for: every hour that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    from: Timestamp,
    to: Timestamp,
}

/// Why something is no span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanFault {
    /// It ends before it begins.
    #[error("`from` is after `to`")]
    Reversed,
    /// It is longer than [`LONGEST_SPAN`].
    #[error("`from` and `to` are more than 31 days apart")]
    TooLong,
}

impl Span {
    /// The span between two points, the later one excluded. Without an end it ends `now`, without a beginning it is [`USUAL_SPAN`] long.
    pub fn new(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Result<Self, SpanFault> {
        let to = to.unwrap_or(now);
        let from = from.unwrap_or_else(|| to.minus(USUAL_SPAN));
        if from > to {
            Err(SpanFault::Reversed)
        } else if to.since(from) > LONGEST_SPAN {
            Err(SpanFault::TooLong)
        } else {
            Ok(Self { from, to })
        }
    }

    /// The days that it touches: when the first and the last of them begin.
    #[must_use]
    pub const fn days(self) -> (Timestamp, Timestamp) {
        (Hour::of(self.from).day(), Hour::of(self.to).day())
    }

    /// Whether it touches an hour. One without a length touches none.
    #[must_use]
    pub fn touches(self, hour: Hour) -> bool {
        self.from < self.to && hour >= Hour::of(self.from) && hour.start() < self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(hours: i64, minutes: i64) -> Timestamp {
        Timestamp::from_millis(hours * HOUR_MS + minutes * 60_000)
    }

    #[test]
    fn an_hour_has_a_day_and_a_place_in_it() {
        let hour = Hour::of(at(49, 30));
        assert_eq!((hour.start(), hour.day(), hour.place()), (at(49, 0), at(48, 0), 1));
        assert_eq!(Hour::in_day(hour.day(), hour.place()), hour);
        // Before 1970, where division rounds the other way.
        let early = Hour::of(at(-1, 30));
        assert_eq!((early.start(), early.day(), early.place()), (at(-1, 0), at(-24, 0), 23));
        assert_eq!(Hour::in_day(early.day(), early.place()), early);
    }

    #[test]
    fn a_span_touches_the_hours_that_it_begins_and_ends_in() {
        let span = Span::new(Some(at(10, 59)), Some(at(12, 1)), at(0, 0)).ok();
        let touched = |span: Option<Span>| {
            let touches = |hour: &i64| span.is_some_and(|span| span.touches(Hour(*hour)));
            (0..24).filter(touches).collect::<Vec<_>>()
        };
        assert_eq!(touched(span), [10, 11, 12]);
        assert_eq!(touched(Span::new(Some(at(10, 0)), Some(at(12, 0)), at(0, 0)).ok()), [10, 11], "the end is excluded");
        assert_eq!(touched(Span::new(Some(at(10, 7)), Some(at(10, 7)), at(0, 0)).ok()), [0; 0], "no length, no hour");
    }

    #[test]
    fn a_span_has_an_end_a_beginning_and_a_greatest_length() {
        let now = at(10_000, 0);
        assert_eq!(Span::new(None, None, now), Span::new(Some(now.minus(USUAL_SPAN)), Some(now), at(0, 0)));
        assert_eq!(Span::new(Some(now.plus(Duration::from_millis(1))), None, now), Err(SpanFault::Reversed));
        let (from, to) = (now.minus(LONGEST_SPAN), now);
        assert!(Span::new(Some(from), Some(to), now).is_ok_and(|span| span.days() == (from, to) || span.days().0 <= from));
        assert_eq!(Span::new(Some(from.minus(Duration::from_millis(1))), Some(to), now), Err(SpanFault::TooLong));
        let forever = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
        assert_eq!(Span::new(Some(forever.0), Some(forever.1), now), Err(SpanFault::TooLong));
    }

    #[test]
    fn every_hour_of_a_longest_span_lies_in_its_days() {
        for minutes in [0, 1, 59] {
            let (from, to) = (at(1000, minutes), at(1000, minutes).plus(LONGEST_SPAN));
            let Ok(span) = Span::new(Some(from), Some(to), to) else { panic!("a span") };
            let hours: Vec<Hour> = (0..5000).map(Hour).filter(|hour| span.touches(*hour)).collect();
            assert_eq!(hours.len(), 31 * 24 + usize::from(minutes > 0));
            assert!(hours.iter().all(|hour| span.days().0 <= hour.day() && hour.day() <= span.days().1));
        }
    }
}
