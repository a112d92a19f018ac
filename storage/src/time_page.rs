//! Pages of lists that are ordered by the time in an id.
//!
//! Such a list has no numbers to count by. It is read in slices of time, bounded on both sides, so that a page never costs more
//! because the list is long: a server may look at every match of a range before it stops at the limit. The first slice is as long as
//! the list is sparse ([`domain::post::first_slice`](rookery_domain::post::first_slice)); one that comes back short is followed by a
//! longer one.

use std::{collections::HashSet, time::Duration};

use bson::{Document, doc};
use rookery_domain::{
    Limit, Page, Timestamp, ids,
    page::TimeCursor,
    post::{first_slice, next_slice},
};
use uuid::Uuid;

use crate::{Result, store::b};

/// What is known of a list before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Hardly anything in it is older.
    pub first: Timestamp,
    /// About how many items it has.
    pub total: i64,
    /// Hardly anything in it is newer.
    pub now: Timestamp,
}

/// A range of ids and how to read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    /// The smallest id in it.
    pub from: Uuid,
    /// The smallest id beyond it.
    pub to: Uuid,
    /// Whether the list is being read towards older items.
    pub newest_first: bool,
    /// As many items as are needed.
    pub most: i64,
}

impl Slice {
    /// The query for the items of a list in the range.
    pub(crate) fn of(&self, list: &Document) -> Document {
        self.of_key(list, "_id")
    }

    /// The order that the query must have.
    pub(crate) fn sort(&self) -> Document {
        self.sort_by_key("_id")
    }

    /// The query for the items of a list whose places are in the field `key`.
    pub(crate) fn of_key(&self, list: &Document, key: &str) -> Document {
        let mut filter = list.clone();
        filter.insert(key, doc! { "$gte": b(self.from), "$lt": b(self.to) });
        filter
    }

    /// The order that such a query must have.
    pub(crate) fn sort_by_key(&self, key: &str) -> Document {
        doc! { key: if self.newest_first { -1 } else { 1 } }
    }

    /// The visible items of the slice, as many as it asks for: what `show` leaves out is made up for from the rest of the slice. `read`
    /// gives the first `most` items of a slice, in its order.
    pub(crate) async fn filled<D, T>(
        self,
        read: impl AsyncFn(Self) -> Result<Vec<(Uuid, D)>>,
        show: impl AsyncFn(Vec<(Uuid, D)>) -> Result<Vec<(Uuid, T)>>,
    ) -> Result<Vec<(Uuid, T)>> {
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let (mut rest, mut found) = (self, Vec::new());
        loop {
            let batch = read(rest).await?;
            let (full, last) = (batch.len() >= most, batch.last().map(|(id, _)| *id));
            found.extend(show(batch).await?);
            match last {
                Some(last) if full && found.len() < most && self.newest_first => rest.to = last,
                Some(last) if full && found.len() < most => rest.from = Uuid::from_u128(last.as_u128().saturating_add(1)),
                _ => break,
            }
        }
        found.truncate(most);
        Ok(found)
    }
}

/// A page of a list whose newest item comes first; `read` gives the items of a slice, with their ids, in the slice's order.
pub(crate) async fn newest_first<T>(
    cursor: Option<TimeCursor>,
    limit: Limit,
    extent: Extent,
    read: impl AsyncFn(Slice) -> Result<Vec<(Uuid, T)>>,
) -> Result<Page<T, TimeCursor>> {
    let most = limit.get();
    let (items, end, more) = match &cursor {
        Some(TimeCursor::After { anchor, floor, shown }) => {
            let mut items = above(*floor, shown, most, extent, &read).await?;
            items.reverse();
            // With nothing newer, the anchor itself comes next.
            let end = items.last().map_or_else(|| Uuid::from_u128(anchor.as_u128().saturating_add(1)), |(id, _)| *id);
            let more = !below(end, 1, extent, &read).await?.is_empty();
            (items, end, more)
        }
        older => {
            let from = if let Some(TimeCursor::Before(id)) = older { *id } else { Uuid::max() };
            // One more than is shown tells whether anything follows.
            let mut items = below(from, most + 1, extent, &read).await?;
            let more = items.len() > most;
            items.truncate(most);
            let end = items.last().map_or(from, |(id, _)| *id);
            (items, end, more)
        }
    };
    let ids: Vec<Uuid> = items.iter().map(|(id, _)| *id).collect();
    let prev = TimeCursor::after(&ids, cursor.as_ref()).or(match cursor {
        // Nothing older: back to where the caller came from.
        Some(TimeCursor::Before(id)) => Some(TimeCursor::After { anchor: id, floor: id, shown: Vec::new() }),
        polled => polled,
    });
    let items = items.into_iter().map(|(_, item)| item).collect();
    Ok(Page { items, next: more.then_some(TimeCursor::Before(end)), prev })
}

/// The `most` newest items below an id, newest first.
async fn below<T>(
    id: Uuid,
    most: usize,
    extent: Extent,
    read: &impl AsyncFn(Slice) -> Result<Vec<(Uuid, T)>>,
) -> Result<Vec<(Uuid, T)>> {
    let mut found = Vec::new();
    let (mut to, mut span) = (id, extent.first_slice(most));
    loop {
        let at = ids::time_of(to).min(extent.now);
        let from = match span {
            Some(span) if at.minus(span) > extent.first => ids::floor_at(at.minus(span)),
            _ => Uuid::nil(),
        };
        let slice = read(Slice { from, to, newest_first: true, most: as_limit(most - found.len()) }).await?;
        span = span.map(|span| next_slice(span, slice.len()));
        found.extend(slice);
        if found.len() >= most || from.is_nil() {
            return Ok(found);
        }
        to = from;
    }
}

/// The `most` oldest items at or above an id but those that were shown, oldest first.
async fn above<T>(
    id: Uuid,
    shown: &[u64],
    most: usize,
    extent: Extent,
    read: &impl AsyncFn(Slice) -> Result<Vec<(Uuid, T)>>,
) -> Result<Vec<(Uuid, T)>> {
    let (mut found, shown): (Vec<(Uuid, T)>, HashSet<u64>) = (Vec::new(), shown.iter().copied().collect());
    let (mut from, mut span) = (id, extent.first_slice(most + shown.len()));
    loop {
        let at = ids::time_of(from);
        let to = match span {
            Some(span) if at.plus(span) < extent.now => ids::floor_at(at.plus(span)),
            _ => Uuid::max(),
        };
        let slice = read(Slice { from, to, newest_first: false, most: as_limit(most + shown.len()) }).await?;
        span = span.map(|span| next_slice(span, slice.len()));
        found.extend(slice.into_iter().filter(|(id, _)| !shown.contains(&TimeCursor::mark(*id))));
        if found.len() >= most || to.is_max() {
            found.truncate(most);
            return Ok(found);
        }
        from = to;
    }
}

fn as_limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

impl Extent {
    fn first_slice(&self, wanted: usize) -> Option<Duration> {
        first_slice(wanted, self.total, self.now.since(self.first))
    }
}
