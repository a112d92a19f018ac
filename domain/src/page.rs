//! Pages and cursors: one set of rules for every list.
//!
//! A cursor names a place *between* items by the key of the list's order, never an item that must still exist: it outlives the item
//! it was made from, new items, and restarts. It is opaque to clients: base64url over a version byte, a kind byte, the key and a
//! checksum, so that a garbled one is recognised (a checksum, not a signature: there is nothing to gain by forging one).
//!
//! Lists whose order is a `seq` use [`SeqCursor`]. Lists whose order is the time in an id use [`TimeCursor`], which also answers for
//! the fact that an id is made before its document commits: see there.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

use crate::{Timestamp, ids};

/// How many items a page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(usize);

impl Limit {
    /// The page size where the caller names none.
    pub const DEFAULT: Self = Self(20);
    /// The largest page: as many ids as one `$in` hydrates at once.
    pub const MAX: Self = Self(100);

    /// A page size from 1 to 100.
    #[must_use]
    pub const fn new(limit: usize) -> Option<Self> {
        if limit >= 1 && limit <= Self::MAX.0 { Some(Self(limit)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

/// One page of a list, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The items; as many as the limit unless the list is at its end.
    pub items: Vec<T>,
    /// Leads on in the order of the list; none exactly where nothing follows.
    pub next: Option<C>,
    /// Leads back to the adjacent items before the first; none only on an empty list.
    pub prev: Option<C>,
}

impl<T, C> Page<T, C> {
    /// The page of an empty list.
    #[must_use]
    pub const fn empty() -> Self {
        Self { items: Vec::new(), next: None, prev: None }
    }

    /// The same page with other items, made one by one.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U, C> {
        Page { items: self.items.into_iter().map(change).collect(), next: self.next, prev: self.prev }
    }
}

/// A string that is no cursor of the list it was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this list")]
pub struct InvalidCursor;

/// A place in a list that can be given to a client and read back.
pub trait Cursor: Sized {
    /// Tells the cursors of different orders apart.
    const KIND: u8;

    /// Appends the key of the place.
    fn write(&self, to: &mut Vec<u8>);

    /// Reads back what [`Cursor::write`] wrote; none if the bytes are something else.
    fn read(from: &[u8]) -> Option<Self>;

    /// The opaque form for clients.
    fn encode(&self) -> String {
        let mut bytes = vec![VERSION, Self::KIND];
        self.write(&mut bytes);
        bytes.extend_from_slice(&checksum(&bytes).to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the opaque form.
    ///
    /// # Errors
    /// [`InvalidCursor`] for anything that [`Cursor::encode`] of this type did not make.
    fn decode(text: &str) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or(InvalidCursor)?;
        match body {
            [VERSION, kind, key @ ..] if *kind == Self::KIND && u32::from_be_bytes(*sum) == checksum(body) => {
                Self::read(key).ok_or(InvalidCursor)
            }
            _ => Err(InvalidCursor),
        }
    }
}

const VERSION: u8 = 1;

/// FNV-1a: enough to tell a cursor from noise.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn i64_at(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn uuid_at(bytes: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(bytes).ok()
}

/// A place in a list ordered by `seq`. Numbers are given out as children are applied, so nothing ever appears below the newest: such
/// a list needs no more than the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeqCursor {
    /// Towards smaller numbers, without this one.
    Below(i64),
    /// Towards larger numbers, without this one.
    Above(i64),
}

impl Cursor for SeqCursor {
    const KIND: u8 = 1;

    fn write(&self, to: &mut Vec<u8>) {
        let (side, seq) = match *self {
            Self::Below(seq) => (0, seq),
            Self::Above(seq) => (1, seq),
        };
        to.push(side);
        to.extend_from_slice(&seq.to_be_bytes());
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (side, seq) = from.split_first()?;
        match side {
            0 => Some(Self::Below(i64_at(seq)?)),
            1 => Some(Self::Above(i64_at(seq)?)),
            _ => None,
        }
    }
}

/// A place in a list ordered by a time and then an id (`followedAt` and the edge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeCursor {
    /// Towards older edges, without this one.
    Before(Timestamp, Uuid),
    /// Towards newer edges, without this one.
    After(Timestamp, Uuid),
}

impl Cursor for EdgeCursor {
    const KIND: u8 = 2;

    fn write(&self, to: &mut Vec<u8>) {
        let (side, at, id) = match self {
            Self::Before(at, id) => (0, at, id),
            Self::After(at, id) => (1, at, id),
        };
        to.push(side);
        to.extend_from_slice(&at.as_millis().to_be_bytes());
        to.extend_from_slice(id.as_bytes());
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (side, key) = from.split_first()?;
        let (at, id) = key.split_at_checked(8)?;
        let (at, id) = (Timestamp::from_millis(i64_at(at)?), uuid_at(id)?);
        match side {
            0 => Some(Self::Before(at, id)),
            1 => Some(Self::After(at, id)),
            _ => None,
        }
    }
}

/// How late a document may commit after its id was made and still be found by a reader who goes on from a newer place: the bound of a
/// transaction and of the difference between two processes' clocks.
pub const LATE_MS: i64 = 5_000;

/// A place in a list ordered by the time in an id.
///
/// A document may commit after one with a newer id has been shown. Going on to older items needs nothing: what is late simply
/// appears. Going back to newer items starts [`LATE_MS`] before the newest item shown (but never below the oldest, where the next
/// page begins) and leaves out what was shown there, so that nothing late is lost and nothing comes twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeCursor {
    /// Towards older items, without this one.
    Before(Uuid),
    /// Towards newer items.
    After {
        /// The newest item shown.
        anchor: Uuid,
        /// Where to begin.
        floor: Uuid,
        /// The items at or above `floor` that were shown, by [`TimeCursor::mark`].
        shown: Vec<u64>,
    },
}

impl TimeCursor {
    /// What a cursor remembers of an item shown: the random half of its id.
    #[must_use]
    pub fn mark(id: Uuid) -> u64 {
        id.as_u64_pair().1
    }

    /// The cursor to the items newer than those of a page, whose `ids` were shown from newest to oldest. `came_from` is the cursor
    /// that led to the page: what it had left out stays left out.
    #[must_use]
    pub fn after(ids: &[Uuid], came_from: Option<&Self>) -> Option<Self> {
        let (newest, oldest) = (ids.iter().max()?, ids.iter().min()?);
        let late = ids::floor_at(Timestamp::from_millis(ids::time_of(*newest).as_millis() - LATE_MS));
        let (anchor, mut floor, mut shown) = match came_from {
            // A late item may be older than what an earlier page showed: the anchor never goes back.
            Some(Self::After { anchor, floor, shown }) => ((*newest).max(*anchor), (*oldest).min(*floor).max(late), shown.clone()),
            _ => (*newest, (*oldest).max(late), Vec::new()),
        };
        shown.extend(ids.iter().filter(|id| **id >= floor).map(|id| Self::mark(*id)));
        if shown.len() > MOST_SHOWN {
            // More than 5 s of a very busy list: begin at the newest of them rather than carry them all.
            floor = anchor;
            shown = vec![Self::mark(anchor)];
        }
        Some(Self::After { anchor, floor, shown })
    }
}

/// The most items a cursor remembers: it must fit into a URL.
const MOST_SHOWN: usize = 200;

impl Cursor for TimeCursor {
    const KIND: u8 = 3;

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Before(id) => {
                to.push(0);
                to.extend_from_slice(id.as_bytes());
            }
            Self::After { anchor, floor, shown } => {
                to.push(1);
                to.extend_from_slice(anchor.as_bytes());
                to.extend_from_slice(floor.as_bytes());
                to.extend(shown.iter().flat_map(|mark| mark.to_be_bytes()));
            }
        }
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (side, key) = from.split_first()?;
        match side {
            0 => Some(Self::Before(uuid_at(key)?)),
            1 => {
                let (anchor, rest) = key.split_at_checked(16)?;
                let (floor, shown) = rest.split_at_checked(16)?;
                let (marks, []) = shown.as_chunks::<8>() else { return None };
                let shown = marks.iter().map(|mark| u64::from_be_bytes(*mark)).collect();
                Some(Self::After { anchor: uuid_at(anchor)?, floor: uuid_at(floor)?, shown })
            }
            _ => None,
        }
    }
}

/// A place in a list ordered by handle, between two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandleCursor {
    /// Towards later handles: those that are not before this text.
    From(String),
    /// Towards earlier handles: those that are before this text.
    Below(String),
}

impl HandleCursor {
    /// The place behind a handle.
    #[must_use]
    pub fn behind(handle: &str) -> Self {
        Self::From(format!("{handle}\0"))
    }
}

impl Cursor for HandleCursor {
    const KIND: u8 = 9;

    fn write(&self, to: &mut Vec<u8>) {
        let (side, place) = match self {
            Self::From(place) => (0, place),
            Self::Below(place) => (1, place),
        };
        to.push(side);
        to.extend_from_slice(place.as_bytes());
    }

    fn read(from: &[u8]) -> Option<Self> {
        let (side, place) = from.split_first()?;
        let place = String::from_utf8(place.to_vec()).ok()?;
        match side {
            0 => Some(Self::From(place)),
            1 => Some(Self::Below(place)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    proptest! {
        #[test]
        fn a_cursor_survives_the_trip_through_a_client(seq: i64, above: bool, at: i64, key: u128, marks: Vec<u64>) {
            let seq = if above { SeqCursor::Above(seq) } else { SeqCursor::Below(seq) };
            prop_assert_eq!(SeqCursor::decode(&seq.encode()), Ok(seq));
            let edge = EdgeCursor::After(Timestamp::from_millis(at), id(key));
            prop_assert_eq!(EdgeCursor::decode(&edge.encode()), Ok(edge));
            let time = TimeCursor::After { anchor: id(key), floor: id(key / 2), shown: marks };
            prop_assert_eq!(TimeCursor::decode(&time.encode()), Ok(time));
            let handle = if above { HandleCursor::behind("ada") } else { HandleCursor::Below("ada".to_owned()) };
            prop_assert_eq!(HandleCursor::decode(&handle.encode()), Ok(handle));
        }

        #[test]
        fn noise_is_no_cursor(text in ".{0,60}") {
            prop_assert_eq!(TimeCursor::decode(&text), Err(InvalidCursor));
        }

        #[test]
        fn an_altered_cursor_is_refused(seq: i64, at in 0usize..14, bit in 0u8..8) {
            let mut bytes = URL_SAFE_NO_PAD.decode(SeqCursor::Below(seq).encode()).unwrap_or_default();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(SeqCursor::decode(&URL_SAFE_NO_PAD.encode(bytes)), Err(InvalidCursor));
        }
    }

    #[test]
    fn a_cursor_of_another_order_is_refused() {
        let edge = EdgeCursor::Before(Timestamp::from_millis(1), id(2)).encode();
        assert_eq!(SeqCursor::decode(&edge), Err(InvalidCursor));
        assert_eq!(TimeCursor::decode(&edge), Err(InvalidCursor));
    }

    #[test]
    fn going_back_begins_at_the_oldest_item_shown_or_5_s_before_the_newest() {
        let at = |ms: i64| ids::floor_at(Timestamp::from_millis(1_764_000_000_000 + ms));
        let near = TimeCursor::after(&[at(2000), at(1000)], None);
        assert_eq!(near, Some(TimeCursor::After { anchor: at(2000), floor: at(1000), shown: vec![0, 0] }));
        let far = TimeCursor::after(&[at(60_000), at(1000)], None);
        assert_eq!(far, Some(TimeCursor::After { anchor: at(60_000), floor: at(55_000), shown: vec![0] }));
    }

    #[test]
    fn what_an_earlier_page_showed_stays_left_out() {
        let first = TimeCursor::after(&[id(9 << 80), id(8 << 80)], None);
        let second = TimeCursor::after(&[id((8 << 80) + 5)], first.as_ref());
        assert_eq!(
            second,
            Some(TimeCursor::After { anchor: id(9 << 80), floor: id(8 << 80), shown: vec![0, 0, 5] }),
            "a late item between two that were shown"
        );
    }
}
