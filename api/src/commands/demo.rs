//! The demo world: what `rookery serve --demo` makes of an empty database, so that there is something to look at.

use std::{collections::HashSet, time::Duration};

use futures::{TryStreamExt as _, stream};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng, seq::IndexedRandom as _};
use rand_distr::{Distribution as _, Zipf};
use rookery_api::{auth::Auth, config::Config};
use rookery_domain::{CommentId, Handle, PostId, UserId, post::Visibility};
use rookery_storage::{Store, comments::NewComment, now, posts::NewPost, users::NewUser};
use secrecy::SecretString;
use uuid::{NoContext, Timestamp, Uuid};

use super::progress;

/// The handle that one logs in with.
pub(super) const HANDLE: &str = "demo";
/// Its password, printed at every start: the demo is for one's own machine.
pub(super) const PASSWORD: &str = "rookery demo world";
/// Followers at which an account of the demo is a celebrity: some two dozen of its accounts have that many.
pub(super) const THRESHOLD: i64 = 200;

const ACCOUNTS: usize = 2_000;
/// Follows of each account on average; whom it follows falls off as one over the rank (Zipf).
const FOLLOWS: usize = 20;
const POSTS: usize = 1_500;
const COMMENTS: usize = 1_500;
/// The demo's accounts are a month old, and its posts are spread over the last two weeks.
const ACCOUNTS_AGE: Duration = Duration::from_hours(30 * 24);
const POSTS_AGE: Duration = Duration::from_hours(14 * 24);
/// Calls of the store side by side.
const SIDE_BY_SIDE: usize = 8;

const OPENINGS: &[&str] = &["Just saw", "Thinking about", "Nothing beats", "Today I learned about", "Who else likes", "A word on"];
const THINGS: &[&str] = &[
    "rooks on the chimney",
    "the first frost",
    "a good map",
    "long train rides",
    "bread from the oven",
    "the smell of rain",
    "old bicycles",
    "tidy code",
    "graph databases",
    "a quiet library",
    "tide pools",
    "night ferries",
];
const TAGS: &[&str] = &["birds", "weather", "travel", "baking", "code", "books", "sea", "walks"];
const REPLIES: &[&str] = &["So true.", "I never saw it like that.", "Tell me more!", "Same here.", "Where was that?", "Lovely."];

/// Fills an empty database; leaves any other as it is. True: the world was made.
pub(super) async fn make(config: &Config, store: &Store) -> anyhow::Result<bool> {
    if !store.is_empty().await? {
        return Ok(false);
    }
    // The same world every time.
    let mut random = SmallRng::seed_from_u64(2_000);
    let hash = Auth::new(config)?.hash_new(&SecretString::from(PASSWORD), Vec::new()).await??;
    let accounts = accounts(store, &hash).await?;
    follows(store, &accounts, &mut random).await?;
    let posts = posts(store, &accounts, &mut random).await?;
    comments(store, &accounts, &posts, &mut random).await?;
    Ok(true)
}

async fn accounts(store: &Store, hash: &str) -> anyhow::Result<Vec<UserId>> {
    let at = now().minus(ACCOUNTS_AGE);
    let bar = progress(ACCOUNTS, "accounts");
    let mut ids = Vec::with_capacity(ACCOUNTS);
    for number in 0..ACCOUNTS {
        ids.push(NewUser {
            id: UserId(id_at(at.as_millis())),
            handle: Handle::parse(&if number == 0 { HANDLE.to_owned() } else { format!("rook_{number}") })?,
            email: None,
            display_name: if number == 0 { "Demo".to_owned() } else { format!("Rook {number}") },
            password_hash: Some(hash.to_owned()),
            now: at,
        });
    }
    let users: Vec<UserId> = ids.iter().map(|user| user.id).collect();
    for chunk in ids.chunks(500) {
        store.import_users(chunk.to_vec()).await?;
        bar.inc(chunk.len() as u64);
    }
    bar.finish();
    Ok(users)
}

async fn follows(store: &Store, accounts: &[UserId], random: &mut SmallRng) -> anyhow::Result<()> {
    let (rank, mut seen, mut pairs) = (Zipf::new(f64::from(1_999), 1.0)?, HashSet::new(), Vec::new());
    for follower in 0..ACCOUNTS {
        for _ in 0..FOLLOWS {
            // Ranks begin with 1, and account 0 is the demo's own, which nobody need follow.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 to 1,999")]
            let followee = rank.sample(random) as usize;
            if follower != followee && seen.insert((follower, followee)) {
                pairs.push((accounts[follower], accounts[followee]));
            }
        }
    }
    pairs.sort_unstable_by_key(|(follower, followee)| (*followee, *follower));
    let bar = progress(pairs.len(), "follows");
    for pairs in pairs.chunks(1_000) {
        store.import_follows(pairs).await?;
        bar.inc(pairs.len() as u64);
    }
    bar.finish();
    super::import::finish(store, pairs.len()).await
}

async fn posts(store: &Store, accounts: &[UserId], random: &mut SmallRng) -> anyhow::Result<Vec<PostId>> {
    let bar = progress(POSTS, "posts");
    let (end, age_ms) = (now().as_millis(), i64::try_from(POSTS_AGE.as_millis())?);
    let writers = Zipf::new(f64::from(1_999), 0.6)?;
    let mut posts = Vec::with_capacity(POSTS);
    for _ in 0..POSTS {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 to 1,999")]
        let author = writers.sample(random) as usize;
        let mention = if random.random_bool(0.2) { format!(" @rook_{}", random.random_range(1..ACCOUNTS)) } else { String::new() };
        let text = format!("{} {}. #{}{mention}", pick(OPENINGS, random), pick(THINGS, random), pick(TAGS, random));
        let id = PostId(id_at(end - random.random_range(0..age_ms)));
        posts.push(NewPost { id, author: accounts[author], text, visibility: Visibility::Public });
    }
    posts.sort_unstable_by_key(|post| post.id);
    let ids = posts.iter().map(|post| post.id).collect();
    stream::iter(posts.into_iter().map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(SIDE_BY_SIDE, |post| async {
            store.create_post(post).await?;
            bar.inc(1);
            Ok(())
        })
        .await?;
    bar.finish();
    Ok(ids)
}

async fn comments(store: &Store, accounts: &[UserId], posts: &[PostId], random: &mut SmallRng) -> anyhow::Result<()> {
    let bar = progress(COMMENTS, "comments");
    let newest_first = Zipf::new(f64::from(1_499), 0.8)?;
    let mut comments = Vec::with_capacity(COMMENTS);
    for _ in 0..COMMENTS {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 to 1,499")]
        let post = posts[posts.len() - newest_first.sample(random) as usize];
        comments.push(NewComment {
            id: CommentId(rookery_storage::new_id()),
            post,
            parent: None,
            author: accounts[random.random_range(0..ACCOUNTS)],
            text: pick(REPLIES, random).to_owned(),
        });
    }
    stream::iter(comments.into_iter().map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(SIDE_BY_SIDE, |comment| async {
            // None of them is refused: everything is public, and nothing is deleted.
            let _made = store.create_comment(comment).await?;
            bar.inc(1);
            Ok(())
        })
        .await?;
    bar.finish();
    Ok(())
}

fn pick<'a>(of: &[&'a str], random: &mut SmallRng) -> &'a str {
    of.choose(random).copied().unwrap_or_default()
}

/// A new id as if made then.
fn id_at(ms: i64) -> Uuid {
    let ms = u64::try_from(ms).unwrap_or(0);
    let nanos = u32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
    Uuid::new_v7(Timestamp::from_unix(NoContext, ms / 1_000, nanos))
}
