//! Pages of lists that are ordered by a `seq`.
//!
//! A page is a short range of an index, bounded on both sides, never a scan that grows with the parent. A range that comes back short
//! (numbers leave holes behind) is followed by one twice as long, so that even a list with great holes is walked in a number of
//! queries that grows with the logarithm of the hole.

use rookery_domain::{Limit, Page, page::SeqCursor};

use crate::Result;

/// Numbers from the first to before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub from: i64,
    pub to: i64,
}

/// The shortest first range: holes are common enough that the bare page size would often come back short.
const LEAST: i64 = 32;

/// A page of a list whose newest item comes first. `newest` is the largest number given out; `read` gives the visible items of a
/// slice, largest number first.
pub(crate) async fn newest_first<T>(
    cursor: Option<SeqCursor>,
    limit: Limit,
    newest: i64,
    read: impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<Page<T, SeqCursor>> {
    let (mut items, more_below) = match cursor {
        None => below(newest + 1, limit.get(), newest, &read).await?,
        Some(SeqCursor::Below(seq)) => below(seq, limit.get(), newest, &read).await?,
        Some(SeqCursor::Above(seq)) => {
            let items = above(seq, limit.get(), newest, &read).await?;
            // Whatever the page begins at, older items are those below its last, or at and below the cursor.
            let last = items.last().map_or(seq.saturating_add(1), |(seq, _)| *seq);
            let (older, _) = below(last, 1, newest, &read).await?;
            (items, !older.is_empty())
        }
    };
    let first = items.first().map(|(seq, _)| *seq);
    let last = items.last().map(|(seq, _)| *seq);
    let next = match (last, cursor) {
        _ if !more_below => None,
        (Some(last), _) => Some(SeqCursor::Below(last)),
        (None, Some(SeqCursor::Above(seq))) => Some(SeqCursor::Below(seq.saturating_add(1))),
        (None, _) => None,
    };
    let prev = match (first, cursor) {
        (Some(first), _) => Some(SeqCursor::Above(first)),
        (None, Some(SeqCursor::Above(seq))) => Some(SeqCursor::Above(seq)),
        (None, Some(SeqCursor::Below(seq))) => Some(SeqCursor::Above(seq.saturating_sub(1))),
        (None, None) => None,
    };
    Ok(Page { items: items.drain(..).map(|(_, item)| item).collect(), next, prev })
}

/// The `most` items with the largest numbers below `to`, and whether there are more.
async fn below<T>(
    to: i64,
    most: usize,
    newest: i64,
    read: &impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<(Vec<(i64, T)>, bool)> {
    let mut items = Vec::with_capacity(most + 1);
    let (mut to, mut span) = (to.min(newest + 1), first_span(most));
    while items.len() <= most && to > 1 {
        let from = (to - span).max(1);
        items.extend(read(Slice { from, to }).await?);
        (to, span) = (from, span.saturating_mul(2));
    }
    let more = items.len() > most;
    items.truncate(most);
    Ok((items, more))
}

/// The `most` items with the smallest numbers above `seq`, the largest first.
async fn above<T>(
    seq: i64,
    most: usize,
    newest: i64,
    read: &impl AsyncFn(Slice) -> Result<Vec<(i64, T)>>,
) -> Result<Vec<(i64, T)>> {
    let mut items: Vec<(i64, T)> = Vec::with_capacity(most);
    let (mut from, mut span) = (seq.saturating_add(1).max(1), first_span(most));
    while items.len() < most && from <= newest {
        let to = from.saturating_add(span).min(newest + 1);
        items.extend(read(Slice { from, to }).await?.into_iter().rev());
        (from, span) = (to, span.saturating_mul(2));
    }
    items.truncate(most);
    items.reverse();
    Ok(items)
}

fn first_span(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1).max(LEAST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A list with the given numbers, in memory.
    async fn page(numbers: &[i64], cursor: Option<SeqCursor>, limit: usize) -> Page<i64, SeqCursor> {
        let newest = numbers.iter().copied().max().unwrap_or(0);
        let limit = Limit::new(limit).expect("a valid limit");
        newest_first(cursor, limit, newest, async |slice: Slice| {
            let mut found: Vec<_> = numbers.iter().filter(|n| (slice.from..slice.to).contains(n)).map(|n| (*n, *n)).collect();
            found.sort_unstable_by(|one, other| other.cmp(one));
            Ok(found)
        })
        .await
        .expect("memory does not fail")
    }

    proptest! {
        #[test]
        fn a_walk_shows_everything_once_both_ways(numbers in prop::collection::btree_set(1i64..5_000, 0..60), limit in 1usize..8) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let numbers: Vec<i64> = numbers.into_iter().collect();
                let (mut down, mut cursor, mut last) = (Vec::new(), None, None);
                loop {
                    let page = page(&numbers, cursor, limit).await;
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
                    let page = page(&numbers, Some(cursor), limit).await;
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
}
