//! How fast the store itself takes a storm of follows on one celebrity, without HTTP, beside the driver's bare `insert_one` in the same
//! run: `cargo run --release --workspace --example follows [FOLLOWS] [CALLERS]`.
//!
//! It starts a database of its own and prints two ratios: follows acknowledged, and follows acknowledged *and* applied, both to what
//! `insert_one` of the same edge into a collection with the same indexes does from as many callers. Ratios alone can be compared.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use futures::{StreamExt as _, TryStreamExt as _};
use mongodb::{
    Client, IndexModel,
    options::{Acknowledgment, ClientOptions, WriteConcern},
};
use rookery_domain::UserId;
use rookery_storage::{
    Settings, new_id,
    pending::Progress,
    testing::{TestDatabase, somebody},
    users::UserRef,
};

/// How long `insert_one` is measured.
const LIMIT: Duration = Duration::from_secs(3);
/// Followers that the celebrity has before.
const CROWD: usize = 1_000;
const THRESHOLD: i64 = 100;
/// The longest pause of the applier; the requests wake it before.
const APPLY_EVERY: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (follows, callers) = (number(10_000)?, number(128)?);

    let db = TestDatabase::with(Settings { celebrity_threshold: THRESHOLD, ..Settings::default() }).await;
    let store = db.store().clone();
    let mut accounts = Vec::with_capacity(follows + CROWD + 1);
    while accounts.len() <= follows + CROWD {
        let new = (0..500).map(|_| somebody(UserId(new_id()))).collect();
        accounts.extend(store.import_users(new).await?.into_values());
    }
    let celebrity = accounts.pop().context("no account was made")?;
    let (crowd, fans) = accounts.split_at(CROWD);
    store.import_follows(&crowd.iter().map(|fan| (*fan, celebrity)).collect::<Vec<_>>()).await?;
    while store.apply_follows_step().await? != Progress::Idle {}
    store.refresh_shared().await?;
    ensure!(store.is_celebrity(celebrity), "the account with a crowd is no celebrity");

    let insert_one = bare(&db, callers).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let applier = tokio::spawn({
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                if store.apply_follows_step().await? == Progress::Idle {
                    let _ = tokio::time::timeout(APPLY_EVERY, store.wake().applier.notified()).await;
                }
            }
            anyhow::Ok(())
        }
    });
    let began = Instant::now();
    let storm = futures::stream::iter(fans.iter().take(follows).copied()).map(|fan| {
        let store = store.clone();
        async move { store.follow(fan, celebrity).await?.map_err(|refusal| anyhow::anyhow!("{refusal:?}")) }
    });
    let acknowledged: Vec<_> = storm.buffer_unordered(callers).try_collect().await?;
    let acknowledged = rate(acknowledged.len(), began.elapsed());
    let expected = i64::try_from(CROWD + follows)?;
    while store.user(&UserRef::Id(celebrity)).await?.context("the celebrity is gone")?.counts.followers < expected {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sustained = rate(follows, began.elapsed());
    stop.store(true, Ordering::Relaxed);
    store.wake().applier.notify_one();
    applier.await??;

    println!("{follows} follows of one celebrity by {callers} callers");
    println!("  insert_one by the bare driver  {insert_one:>8.0} a second");
    for (what, rate) in [("acknowledged", acknowledged), ("acknowledged and applied", sustained)] {
        println!("  {what:<30} {rate:>8.0} a second, {:.2} of insert_one", rate / insert_one);
    }
    Ok(())
}

/// `insert_one` a second, of edges as a follow writes them, into a collection with the indexes of `follows`.
async fn bare(db: &TestDatabase, callers: usize) -> Result<f64> {
    let mut options = ClientOptions::parse(db.uri()).await?;
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    let database = Client::with_options(options)?.database(db.name());
    let mut indexes: Vec<IndexModel> = database.collection::<bson::Document>("follows").list_indexes().await?.try_collect().await?;
    indexes.retain(|index| index.keys != doc! { "_id": 1 });
    let scratch = database.collection("scratch");
    scratch.create_indexes(indexes).await?;
    let (celebrity, id) = (bson::Uuid::new(), || bson::Uuid::from_uuid_1(new_id()));
    let began = Instant::now();
    let inserts = futures::stream::repeat_with(|| {
        let edge = doc! { "_id": id(), "followerId": id(), "followeeId": celebrity, "state": "active", "pending": true, "wish": id(), "merged": false };
        let scratch = scratch.clone();
        async move { scratch.insert_one(edge).await }
    });
    let inserts = inserts.take_while(|_| std::future::ready(began.elapsed() < LIMIT)).buffer_unordered(callers);
    let done = inserts.try_fold(0, |done, _| std::future::ready(Ok(done + 1))).await?;
    let rate = rate(done, began.elapsed());
    scratch.drop().await?;
    Ok(rate)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn rate(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}
