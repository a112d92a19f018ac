//! Two accounts compared request by request in turns: what depends on how large an account is shows as a ratio, and what the machine
//! does meanwhile meets both alike.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::loops::{Driver, Failure, Measured, Plan};

/// One call and how long the part of it took that is compared.
pub(crate) type Timed = (Duration, Result<(), Failure>);

/// Makes a call and times all of it.
pub(crate) async fn timed(call: impl Future<Output = Result<(), Failure>>) -> Timed {
    let began = Instant::now();
    let answer = call.await;
    (began.elapsed(), answer)
}

/// Calls for two accounts in turns, one caller: `samples` each, after a tenth as many of warm-up. `call` gets which of the two accounts it
/// is for (0 or 1) and the number of the pair, and times itself. The order is 0, 1, 1, 0, so that neither always comes after the other.
pub(crate) async fn in_turns<F>(
    driver: &Driver,
    name: &str,
    samples: u64,
    call: impl Fn(usize, u64) -> F + Send + Sync + 'static,
) -> [Measured; 2]
where
    F: Future<Output = Timed> + Send,
{
    let pair = Arc::new(Mutex::new([Measured::new("first"), Measured::new("second")]));
    let (sink, call) = (Arc::clone(&pair), Arc::new(call));
    let warm_up = warm_up(samples);
    driver
        .drive(Plan::closed(name, 1, 2 * (samples + warm_up)), move |number| {
            let (sink, call) = (Arc::clone(&sink), Arc::clone(&call));
            async move {
                let which = usize::from(matches!(number % 4, 1 | 2));
                let (latency, answer) = call(which, number / 2).await;
                if number >= 2 * warm_up {
                    let measured = &mut sink.lock().unwrap_or_else(PoisonError::into_inner)[which];
                    measured.record(latency, answer.clone());
                    // Of its own calls alone, so that the rate is that of one caller.
                    measured.elapsed += latency;
                }
                answer
            }
        })
        .await;
    let pair = pair.lock().unwrap_or_else(PoisonError::into_inner);
    pair.clone()
}

/// How many pairs of warm-up there are for so many samples.
pub(crate) fn warm_up(samples: u64) -> u64 {
    samples / 10
}
