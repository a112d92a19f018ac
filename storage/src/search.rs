//! Searching accounts by the beginning of their handle or name.
//!
//! What is searched for is folded ([`text::searched`]) and then taken literally: a search is a range of an index between the key and the
//! key's end, never a pattern. Handles are an index already. Names are kept folded beside them, in two ways: a key of one to three
//! characters matches so many names that the page must come in the order of the handles from an index (`search.keys` holds the
//! beginnings of a name, so that the key is an equality and the handle a range); a longer one matches few, which are read and sorted here.

use std::collections::BTreeMap;

use bson::{Document, doc};
use futures::TryStreamExt as _;
use rookery_domain::{
    Handle, Limit, Page, UserId,
    handle::MAX_LEN,
    page::HandleCursor,
    text,
    user::{Relation, UserSummary},
};
use serde::{Deserialize, Serialize};

use crate::{Result, Store, collections::USERS, users::SummaryDoc};

/// The longest beginning of a name that is a key of its own.
const KEY_MOST: usize = 3;

/// Behind every handle: the character after `z`, which is the last that handles have.
const END_OF_HANDLES: &str = "{";

/// A display name as it is searched for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SearchDoc {
    pub name: String,
    /// Its first one, two and three characters.
    pub keys: Vec<String>,
}

impl SearchDoc {
    /// The form of a name.
    pub(crate) fn of(display_name: &str) -> Self {
        let name = text::searched(display_name);
        let ends = name.char_indices().map(|(at, c)| at + c.len_utf8());
        let keys = ends.take(KEY_MOST).map(|end| name[..end].to_owned()).collect();
        Self { name, keys }
    }

    /// The form of a name beside a handle; none where the handle finds the account by itself.
    pub(crate) fn beside(handle: &Handle, display_name: &str) -> Option<Self> {
        Some(Self::of(display_name)).filter(|search| search.name != handle.as_str())
    }
}

/// A range of handles, and from which end it is read.
#[derive(Debug, Clone)]
struct Range {
    from: String,
    to: String,
    ascending: bool,
}

impl Range {
    fn order(&self) -> Document {
        doc! { "handle": if self.ascending { 1 } else { -1 } }
    }

    fn of(&self) -> Document {
        doc! { "$gte": &self.from, "$lt": &self.to }
    }

    /// What is left of the range behind a handle.
    fn behind(self, handle: &str) -> Self {
        if self.ascending { Self { from: format!("{handle}\0"), ..self } } else { Self { to: handle.to_owned(), ..self } }
    }
}

impl Store {
    /// A page of the live accounts whose handle or name begins with `query`, whatever its case and accents, in the order of their
    /// handles. Accounts with a block between them and the viewer are left out.
    pub async fn search_users(
        &self,
        query: &str,
        viewer: Option<UserId>,
        cursor: Option<HandleCursor>,
        limit: Limit,
    ) -> Result<Page<UserSummary, HandleCursor>> {
        let key = text::searched(query);
        let range = |cursor: &HandleCursor| match cursor.clone() {
            HandleCursor::From(from) => Range { from, to: END_OF_HANDLES.to_owned(), ascending: true },
            HandleCursor::Below(to) => Range { from: String::new(), to, ascending: false },
        };
        let start = cursor.clone().unwrap_or(HandleCursor::From(String::new()));
        let here = range(&start);
        let (ascending, most) = (here.ascending, limit.get());
        // One more than is shown tells whether anything follows.
        let mut items = self.found(&key, viewer, here, most + 1).await?;
        let mut more = items.len() > most;
        items.truncate(most);
        if !ascending {
            items.reverse();
        }
        let end = match (items.last(), &start) {
            (Some(user), _) => HandleCursor::behind(user.handle.as_str()),
            (None, HandleCursor::From(place) | HandleCursor::Below(place)) => HandleCursor::From(place.clone()),
        };
        if !ascending {
            more = !self.found(&key, viewer, range(&end), 1).await?.is_empty();
        }
        let prev = match (items.first(), cursor) {
            (Some(user), _) => Some(HandleCursor::Below(user.handle.as_str().to_owned())),
            (None, Some(HandleCursor::From(place) | HandleCursor::Below(place))) => Some(HandleCursor::Below(place)),
            (None, None) => None,
        };
        Ok(Page { items, next: more.then_some(end), prev })
    }

    /// The live accounts among `ids`, in the order asked; accounts with a block between them and the viewer are left out.
    pub async fn users(&self, ids: &[UserId], viewer: Option<UserId>) -> Result<Vec<UserSummary>> {
        let mut found = self.summaries(ids.iter().copied()).await?;
        let users = ids.iter().filter_map(|id| found.remove(id)).collect();
        self.without_blocked(users, viewer).await
    }

    /// As many of those that the key finds in a range of handles as are asked for, from its beginning, and that the viewer may see.
    async fn found(&self, key: &str, viewer: Option<UserId>, mut range: Range, most: usize) -> Result<Vec<UserSummary>> {
        let mut found = Vec::with_capacity(most);
        loop {
            let matches = self.matches(key, &range, most).await?;
            let last = matches.len() < most;
            if let Some(user) = matches.last() {
                range = range.behind(user.handle.as_str());
            }
            found.extend(self.without_blocked(matches, viewer).await?);
            if last || found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
        }
    }

    async fn without_blocked(&self, users: Vec<UserSummary>, viewer: Option<UserId>) -> Result<Vec<UserSummary>> {
        let Some(viewer) = viewer.filter(|_| !users.is_empty()) else { return Ok(users) };
        let ids: Vec<UserId> = users.iter().map(|user| user.id).collect();
        let relations = self.relations(viewer, &ids).await?;
        let hidden = |relation: &Relation| relation.blocking || relation.blocked_by;
        Ok(users.into_iter().filter(|user| !relations.get(&user.id).is_some_and(hidden)).collect())
    }

    /// The first of the accounts in a range of handles that the key finds, at most `most`.
    async fn matches(&self, key: &str, range: &Range, most: usize) -> Result<Vec<UserSummary>> {
        if key.is_empty() {
            return Ok(Vec::new());
        }
        let (by_handle, by_name) = futures::try_join!(self.by_handle(key, range, most), async {
            if key.chars().count() <= KEY_MOST { self.by_key(key, range, most).await } else { self.by_name(key, range, most).await }
        })?;
        let found: BTreeMap<String, SummaryDoc> =
            by_handle.into_iter().chain(by_name).map(|user| (user.handle.clone(), user)).collect();
        let found = found.into_values().map(UserSummary::from);
        Ok(if range.ascending { found.take(most).collect() } else { found.rev().take(most).collect() })
    }

    async fn by_handle(&self, key: &str, range: &Range, most: usize) -> Result<Vec<SummaryDoc>> {
        let may_begin_one = key.len() <= MAX_LEN && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (from, to) = (range.from.as_str().max(key), format!("{key}{END_OF_HANDLES}"));
        let to = range.to.as_str().min(&to);
        if !may_begin_one || from >= to {
            return Ok(Vec::new());
        }
        self.summaries_in(doc! { "handle": { "$gte": from, "$lt": to } }, range, most).await
    }

    async fn by_key(&self, key: &str, range: &Range, most: usize) -> Result<Vec<SummaryDoc>> {
        self.summaries_in(doc! { "search.keys": key, "handle": range.of() }, range, most).await
    }

    /// Only accounts that are live have a handle and a name to be searched for: the filter need not say so, and names the index alone.
    async fn summaries_in(&self, filter: Document, range: &Range, most: usize) -> Result<Vec<SummaryDoc>> {
        let users = self.coll::<SummaryDoc>(USERS);
        let found = users.find(filter).sort(range.order()).limit(i64::try_from(most).unwrap_or(i64::MAX));
        Ok(found.projection(SummaryDoc::projection()).await?.try_collect().await?)
    }

    /// By a key that few names begin with: all of them stream by, and the first in the order of the handles are kept.
    async fn by_name(&self, key: &str, range: &Range, most: usize) -> Result<Vec<SummaryDoc>> {
        let names = doc! { "search.name": { "$gte": key, "$lt": format!("{key}\u{10ffff}") } };
        let mut found = self.coll::<SummaryDoc>(USERS).find(names).projection(SummaryDoc::projection()).await?;
        let mut kept: BTreeMap<String, SummaryDoc> = BTreeMap::new();
        while let Some(user) = found.try_next().await? {
            if (range.from.as_str()..range.to.as_str()).contains(&user.handle.as_str()) {
                kept.insert(user.handle.clone(), user);
                if kept.len() > most {
                    if range.ascending {
                        kept.pop_last()
                    } else {
                        kept.pop_first()
                    };
                }
            }
        }
        Ok(kept.into_values().collect())
    }
}
