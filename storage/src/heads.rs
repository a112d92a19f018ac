//! The newest posts and reposts of accounts whose acts are pulled, kept in memory: they are the same for all readers.
//!
//! A celebrity's posts are in nobody's window, so every page of every follower needs them; asked of the database, ten celebrities cost a
//! reader more than everything else in the page. What is kept is ids alone, in the order of the feed: what a post says, and whether it
//! still lives, is read with the page as for any other.
//!
//! A head is read from the database when a reader first needs it, and from then on told of each new post: by this process at once, by
//! others with [`Store::refresh_shared`]. It is read anew after a minute, so that a clock far off in another process costs a
//! minute and not a post.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use bson::doc;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rookery_domain::{UserId, feed::Act, ids};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{
    Result, Store,
    collections::{POSTS, REPOSTS},
    shared::ActDoc,
    store::{b, now},
    time_page::Slice,
};

/// Posts, and reposts, of one account that are read into a head: ten pages of nobody else. What is older is pulled from the database.
const MOST: usize = 200;

/// How far back a head is read at most: the range is bounded, whatever the author wrote before.
const REACH: Duration = Duration::from_hours(14 * 24);

/// How long a head is used before it is read anew.
const LIVES: Duration = Duration::from_mins(1);

/// Heads read side by side for one reader.
const SIDE_BY_SIDE: usize = 8;

/// The newest acts of one account that are pulled for good.
#[derive(Debug)]
pub(crate) struct Head {
    made: Instant,
    /// All of the account's pulled acts from this slot on are here; known once the head was read.
    from: OnceCell<Uuid>,
    /// Oldest first.
    acts: Mutex<Vec<Act>>,
}

impl Head {
    fn new() -> Self {
        Self { made: Instant::now(), from: OnceCell::new(), acts: Mutex::default() }
    }

    // The list is whole after every statement.
    fn acts(&self) -> MutexGuard<'_, Vec<Act>> {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, act: Act) {
        let mut acts = self.acts();
        if let Err(place) = acts.binary_search_by_key(&act.slot, |kept| kept.slot) {
            acts.insert(place, act);
        }
    }

    /// The slot down to which the head is complete.
    pub(crate) fn from(&self) -> Uuid {
        self.from.get().copied().unwrap_or(Uuid::max())
    }

    /// The account's acts in a slice, as far as the head reaches, in no order.
    pub(crate) fn within(&self, slice: Slice) -> Vec<Act> {
        let from = slice.from.max(self.from());
        let acts = self.acts();
        let (first, last) = (acts.partition_point(|act| act.slot < from), acts.partition_point(|act| act.slot < slice.to));
        acts.get(first..last).unwrap_or_default().to_vec()
    }
}

/// The heads of this process.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    by_author: RwLock<HashMap<UserId, Arc<Head>>>,
}

impl Heads {
    /// Tells the account's head of an act, if there is one. A head that is just being read is told too.
    pub(crate) fn add(&self, act: Act) {
        if let Some(head) = self.get(act.actor) {
            head.add(act);
        }
    }

    /// Takes an act out that is gone for good.
    pub(crate) fn forget(&self, act: &Act) {
        if let Some(head) = self.get(act.actor) {
            head.acts().retain(|kept| kept.slot != act.slot);
        }
    }

    /// Lets go of heads that would be read anew before they are used.
    pub(crate) fn drop_old(&self) {
        self.by_author.write().unwrap_or_else(PoisonError::into_inner).retain(|_, head| head.made.elapsed() < LIVES);
    }

    fn get(&self, author: UserId) -> Option<Arc<Head>> {
        self.by_author.read().unwrap_or_else(PoisonError::into_inner).get(&author).cloned()
    }

    fn current(&self, author: UserId) -> Arc<Head> {
        if let Some(head) = self.get(author).filter(|head| head.made.elapsed() < LIVES) {
            return head;
        }
        let mut heads = self.by_author.write().unwrap_or_else(PoisonError::into_inner);
        let head = heads.entry(author).or_insert_with(|| Arc::new(Head::new()));
        if head.made.elapsed() >= LIVES {
            *head = Arc::new(Head::new());
        }
        Arc::clone(head)
    }
}

impl Store {
    /// The heads of these authors; those that this process does not have are read.
    pub(crate) async fn heads(&self, authors: Vec<UserId>) -> Result<Vec<(UserId, Arc<Head>)>> {
        let read = async |author: UserId| {
            let head = self.shared().heads.current(author);
            head.from.get_or_try_init(|| self.read_head(author, &head)).await?;
            Ok((author, head))
        };
        stream::iter(authors).map(read).buffer_unordered(SIDE_BY_SIDE).try_collect().await
    }

    /// Reads the account's newest acts into the head. It is known to writers already, so that no act can fall between the two.
    async fn read_head(&self, actor: UserId, head: &Head) -> Result<Uuid> {
        let oldest = ids::floor_at(now().minus(REACH));
        let newest = Slice { from: oldest, to: Uuid::max(), newest_first: true, most: i64::try_from(MOST).unwrap_or(i64::MAX) };
        let read = async |name: &str| -> Result<Uuid> {
            let acts = self
                .coll::<ActDoc>(name)
                .find(newest.of(&doc! { "delivery.pull": b(actor) }))
                .sort(newest.sort())
                .limit(newest.most)
                .projection(ActDoc::fields(name))
                .await?;
            let acts: Vec<Act> = acts.map_ok(Act::from).try_collect().await?;
            for act in &acts {
                head.add(*act);
            }
            Ok(match acts.last() {
                Some(last) if acts.len() == MOST => last.slot,
                _ => oldest,
            })
        };
        let (posts, reposts) = futures::try_join!(read(POSTS), read(REPOSTS))?;
        Ok(posts.max(reposts))
    }
}
