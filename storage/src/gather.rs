//! Group commit: concurrent calls of one kind share one database write.
//!
//! A durable write costs a flush of the log, and a batch costs hardly more than a single one. Whoever comes while a batch is being
//! written waits for the next; nobody waits for company, so that a lone caller pays nothing, and the batch grows by itself with the
//! load (as in the log writers of databases). The batches are run by a task of their own: a caller that goes away takes nobody's
//! write with it.

use std::future::Future;

use mongodb::error::{Error as DriverError, ErrorKind};
use tokio::sync::{mpsc, oneshot};

use crate::{Error, Result};

/// Calls in one batch: as many as one command carries comfortably.
const MOST: usize = 500;

type Call<I, O> = (I, oneshot::Sender<Result<O>>);

/// A gathering place for calls with input `I` and output `O`.
#[derive(Debug)]
pub(crate) struct Gather<I, O> {
    calls: mpsc::UnboundedSender<Call<I, O>>,
}

impl<I: Send + 'static, O: Send + 'static> Gather<I, O> {
    /// Starts the task that writes the batches; it ends with the last caller. `run` writes one batch and gives the outcomes in the
    /// order of the inputs; a fault is everybody's.
    pub(crate) fn start<F>(run: impl Fn(Vec<I>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Vec<O>>> + Send,
    {
        let (calls, mut queue) = mpsc::unbounded_channel::<Call<I, O>>();
        tokio::spawn(async move {
            while let Some(first) = queue.recv().await {
                let (mut inputs, mut tells) = (vec![first.0], vec![first.1]);
                while inputs.len() < MOST
                    && let Ok((input, tell)) = queue.try_recv()
                {
                    inputs.push(input);
                    tells.push(tell);
                }
                // Nobody listens any more where a send fails: the caller went away.
                match run(inputs).await {
                    Ok(outcomes) => tells.into_iter().zip(outcomes).for_each(|(tell, outcome)| drop(tell.send(Ok(outcome)))),
                    Err(fault) => tells.into_iter().for_each(|tell| drop(tell.send(Err(fault.clone())))),
                }
            }
        });
        Self { calls }
    }

    /// Hands `input` to the next batch and waits for its outcome.
    pub(crate) async fn call(&self, input: I) -> Result<O> {
        let gone = || Error::Unavailable(DriverError::from(ErrorKind::Shutdown));
        let (tell, told) = oneshot::channel();
        self.calls.send((input, tell)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}
