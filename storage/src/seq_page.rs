//! Pages of lists that are ordered by a `seq`.
//!
//! A page is a short range of an index, bounded on both sides, never a scan that grows with the parent. The first range is as long as
//! the list is sparse; one that comes back short (numbers leave holes behind) is followed by one twice as long, so that even a list with
//! great holes is walked in a number of queries that grows with the logarithm of the hole.

use bson::{Document, doc};
use rookery_domain::{Limit, Page, page::SeqCursor};

use crate::{Result, store::ANSWER};

/// A way along the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Towards smaller ones: the newest item comes first.
    Down,
    /// Towards larger ones: the oldest item comes first.
    Up,
}

impl Way {
    const fn back(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// The cursor that leads this way from `seq`, without it.
    const fn from(self, seq: i64) -> SeqCursor {
        match self {
            Self::Down => SeqCursor::Below(seq),
            Self::Up => SeqCursor::Above(seq),
        }
    }

    /// The number one step further.
    const fn step(self, seq: i64) -> i64 {
        match self {
            Self::Down => seq.saturating_sub(1),
            Self::Up => seq.saturating_add(1),
        }
    }
}

/// What is known of a list before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Every item's number is larger.
    pub above: i64,
    /// No item's number is larger.
    pub newest: i64,
    /// About how many items it has.
    pub total: i64,
}

/// Numbers from the first to before the second, and how to read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub from: i64,
    pub to: i64,
    /// On which side to begin.
    pub way: Way,
    /// As many items as are needed.
    pub most: i64,
}

impl Slice {
    /// The query for the items of a list in the slice.
    pub(crate) fn of(&self, list: &Document) -> Document {
        let mut filter = list.clone();
        filter.insert("seq", doc! { "$gte": self.from, "$lt": self.to });
        filter
    }

    /// The order in which the first `most` items are those that are needed.
    pub(crate) fn sort(&self) -> Document {
        doc! { "seq": if self.way == Way::Down { -1 } else { 1 } }
    }

    /// The visible items of the slice, as many as are needed: what `show` leaves out is made up for from the rest of the slice. `read`
    /// gives the first `most` items of a slice, in its order. Where much is left out the batches grow, so that even a list of which a
    /// viewer sees next to nothing is read in few queries.
    pub(crate) async fn filled<D, T>(
        self,
        read: impl AsyncFn(Self) -> Result<Vec<(i64, D)>>,
        show: impl AsyncFn(Vec<(i64, D)>) -> Result<Vec<(i64, T)>>,
    ) -> Result<Vec<(i64, T)>> {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let (mut rest, mut found) = (self, Vec::new());
        loop {
            let batch = read(rest).await?;
            let full = i64::try_from(batch.len()).is_ok_and(|read| read >= rest.most);
            let last = batch.last().map(|(seq, _)| *seq);
            found.extend(show(batch).await?);
            match (last, self.way) {
                (Some(last), Way::Down) if full && found.len() < most => rest.to = last,
                (Some(last), Way::Up) if full && found.len() < most => rest.from = last.saturating_add(1),
                _ => break,
            }
            rest.most = rest.most.saturating_mul(2).min(i64::from(ANSWER));
        }
        found.truncate(most);
        Ok(found)
    }
}

/// The shortest first range: holes are common enough that the bare page size would often come back short.
const LEAST: i64 = 32;

/// A page of a list whose newest item comes first. `newest` is the largest number given out; `read` gives the visible items of a
/// slice, in any order.
pub(crate) async fn newest_first<T>(
    cursor: Option<SeqCursor>,
    limit: Limit,
    newest: i64,
    read: impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<Page<T, SeqCursor>> {
    page(Way::Down, cursor, limit, Extent { above: 0, newest, total: newest }, read).await
}

/// A page of a list that goes this `onward` way. `read` gives the visible items of a slice, in any order: all of them, or the first of
/// them that are as many as needed.
pub(crate) async fn page<T>(
    onward: Way,
    cursor: Option<SeqCursor>,
    limit: Limit,
    extent: Extent,
    read: impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<Page<T, SeqCursor>> {
    let (way, place) = match (cursor, onward) {
        (Some(SeqCursor::Below(seq)), _) => (Way::Down, seq),
        (Some(SeqCursor::Above(seq)), _) => (Way::Up, seq),
        (None, Way::Down) => (Way::Down, extent.newest.saturating_add(1)),
        (None, Way::Up) => (Way::Up, extent.above),
    };
    let (items, last, more) = if way == onward {
        // One more than is shown tells whether anything follows.
        let mut items = along(way, place, limit.get() + 1, extent, &read).await?;
        let more = items.len() > limit.get();
        items.truncate(limit.get());
        let last = items.last().map_or(place, |(seq, _)| *seq);
        (items, last, more)
    } else {
        let mut items = along(way, place, limit.get(), extent, &read).await?;
        items.reverse();
        // With nothing there (yet), what the cursor was made from comes next.
        let last = items.last().map_or(way.step(place), |(seq, _)| *seq);
        let more = !along(onward, last, 1, extent, &read).await?.is_empty();
        (items, last, more)
    };
    let first = match items.first() {
        Some((seq, _)) => Some(*seq),
        None if way == onward => cursor.map(|_| onward.step(place)),
        None => Some(place),
    };
    Ok(Page {
        items: items.into_iter().map(|(_, item)| item).collect(),
        next: more.then(|| onward.from(last)),
        prev: first.map(|first| onward.back().from(first)),
    })
}

/// The `most` items that come next after `place`, in the order of the way.
async fn along<T>(
    way: Way,
    place: i64,
    most: usize,
    extent: Extent,
    read: &impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<Vec<(i64, T)>> {
    let (least, end) = (extent.above.saturating_add(1), extent.newest.saturating_add(1));
    let mut items: Vec<(i64, T)> = Vec::with_capacity(most);
    let mut span = first_span(most, extent.newest.saturating_sub(extent.above), extent.total);
    let (mut from, mut to) = match way {
        Way::Down => (least, place.min(end)),
        Way::Up => (place.saturating_add(1).max(least), end),
    };
    while items.len() < most && from < to {
        let slice = match way {
            Way::Down => (to.saturating_sub(span).max(from), to),
            Way::Up => (from, from.saturating_add(span).min(to)),
        };
        let wanted = i64::try_from(most - items.len()).unwrap_or(i64::MAX);
        let mut next = read(Slice { from: slice.0, to: slice.1, way, most: wanted }).await?;
        match way {
            Way::Down => next.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq)),
            Way::Up => next.sort_by_key(|(seq, _)| *seq),
        }
        items.extend(next);
        match way {
            Way::Down => to = slice.0,
            Way::Up => from = slice.1,
        }
        span = span.saturating_mul(2);
    }
    items.truncate(most);
    Ok(items)
}

/// How long the first range is for `most` items, where `total` are spread over so many `numbers`: by the density, with a quarter to
/// spare.
pub(crate) fn first_span(most: usize, numbers: i64, total: i64) -> i64 {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let even = i128::from(most) * i128::from(numbers.max(1)) / i128::from(total.max(1));
    i64::try_from(even + even / 4).unwrap_or(i64::MAX).max(most).max(LEAST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A list with the given numbers, in memory.
    async fn newest(numbers: &[i64], cursor: Option<SeqCursor>, limit: usize) -> Page<i64, SeqCursor> {
        let largest = numbers.iter().copied().max().unwrap_or(0);
        let limit = Limit::new(limit).expect("a valid limit");
        newest_first(cursor, limit, largest, async |slice: Slice| {
            let mut found: Vec<_> = numbers.iter().filter(|n| (slice.from..slice.to).contains(n)).map(|n| (*n, *n)).collect();
            found.sort_unstable_by(|one, other| other.cmp(one));
            Ok(found)
        })
        .await
        .expect("memory does not fail")
    }

    /// The same list from its oldest item on, read with a limit, below a parent whose number is `above`.
    async fn oldest_first(numbers: &[i64], above: i64, cursor: Option<SeqCursor>, limit: usize) -> Page<i64, SeqCursor> {
        let newest = numbers.iter().copied().max().unwrap_or(above);
        let extent = Extent { above, newest, total: i64::try_from(numbers.len()).expect("a short list") };
        page(Way::Up, cursor, Limit::new(limit).expect("a valid limit"), extent, async |slice: Slice| {
            let mut found: Vec<_> = numbers.iter().filter(|n| (slice.from..slice.to).contains(n)).map(|n| (*n, *n)).collect();
            if slice.way == Way::Down {
                found.reverse();
            }
            found.truncate(usize::try_from(slice.most).expect("a small page"));
            Ok(found)
        })
        .await
        .expect("memory does not fail")
    }

    proptest! {
        #[test]
        fn a_walk_from_the_oldest_shows_everything_once_both_ways(
            numbers in prop::collection::btree_set(1_000i64..1_000_000, 0..60), above in 0i64..1_000, limit in 1usize..8,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let numbers: Vec<i64> = numbers.into_iter().collect();
                let (mut up, mut cursor, mut last) = (Vec::new(), None, None);
                loop {
                    let page = oldest_first(&numbers, above, cursor, limit).await;
                    assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
                    up.extend(page.items);
                    last = page.prev.or(last);
                    cursor = page.next;
                    if cursor.is_none() { break }
                }
                assert_eq!(up, numbers);
                let mut back = Vec::new();
                while let Some(cursor) = last {
                    let page = oldest_first(&numbers, above, Some(cursor), limit).await;
                    last = page.prev.filter(|_| !page.items.is_empty());
                    back.splice(0..0, page.items);
                }
                assert!(numbers.starts_with(&back) && numbers.len() - back.len() <= limit);
            });
        }

        #[test]
        fn a_walk_shows_everything_once_both_ways(numbers in prop::collection::btree_set(1i64..5_000, 0..60), limit in 1usize..8) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let numbers: Vec<i64> = numbers.into_iter().collect();
                let (mut down, mut cursor, mut last) = (Vec::new(), None, None);
                loop {
                    let page = newest(&numbers, cursor, limit).await;
                    assert!(page.next.is_none() || page.items.len() == limit, "a short page before the end");
                    assert!(cursor.is_none() || !page.items.is_empty(), "next led to an empty page");
                    down.extend(page.items);
                    last = page.prev.or(last);
                    cursor = page.next;
                    if cursor.is_none() { break }
                }
                let expected: Vec<i64> = numbers.iter().rev().copied().collect();
                assert_eq!(down, expected);
                // And back, from the last page to the newest.
                let mut up = Vec::new();
                let mut at = last;
                while let Some(cursor) = at {
                    let page = newest(&numbers, Some(cursor), limit).await;
                    if page.items.is_empty() {
                        assert_eq!(page.prev, Some(cursor), "the newest page serves to poll");
                        break;
                    }
                    up.splice(0..0, page.items);
                    at = page.prev;
                }
                assert!(expected.starts_with(&up) && expected.len() - up.len() <= limit);
            });
        }
    }

    #[test]
    fn a_first_range_follows_the_density() {
        assert_eq!(first_span(21, 20, 20), LEAST);
        assert_eq!(first_span(101, 1_000_000, 1_000_000), 126, "no longer for a longer list");
        assert!(first_span(21, 1_000_000, 10) > 1_000_000, "few replies under a large post: all of it at once");
        assert_eq!(first_span(usize::MAX, i64::MAX, 0), i64::MAX);
    }
}
