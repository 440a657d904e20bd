//! Sends the requests of a batch to a connection as one script, and counts what is sent there.

use super::fault::is_no_script;
use crate::scripts::combined::{self, Common};
use futures_util::FutureExt;
use futures_util::future::Shared;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// After this many consecutive errors, batches are disabled: the server or the rights of the user do not allow them.
const ERRORS: usize = 8;

/// The replies of a batch. All of its requests can wait for them, because any request can be cancelled.
pub(crate) type BatchReplies = Shared<Pin<Box<dyn Future<Output = RedisResult<Arc<[Value]>>> + Send>>>;

/// The connection of the batches.
pub(crate) struct BatchSender {
    /// It has no timeout: the timer would belong to the runtime of one of the requests.
    connection: MultiplexedConnection,
    /// The length of the queue of the connection.
    room: usize,
    /// The number of commands that were sent to the connection, or wait for space in its queue.
    messages: Arc<AtomicUsize>,
    /// Whether the server has cached the script.
    is_known: Arc<AtomicBool>,
    /// The number of consecutive batches that failed.
    errors: Arc<AtomicUsize>,
}

/// A command that was sent to the connection, or waits for space in its queue.
#[derive(Debug)]
pub(crate) struct Message(Arc<AtomicUsize>);

impl BatchSender {
    pub(crate) fn new(connection: MultiplexedConnection, room: usize) -> Self {
        Self { connection, room, messages: Arc::default(), is_known: Arc::default(), errors: Arc::default() }
    }

    /// Whether the server has executed batches, or has not refused too many.
    pub(crate) fn is_enabled(&self) -> bool {
        self.errors.load(Ordering::Relaxed) < ERRORS
    }

    /// Counts what is sent to the connection until it is dropped.
    pub(crate) fn message(&self) -> Message {
        self.messages.fetch_add(1, Ordering::Relaxed);
        Message(Arc::clone(&self.messages))
    }

    /// The replies to these requests, and the index of each.
    ///
    /// If the queue of the connection may be full, the requests are sent alone: a batch would wait for space, and a later request
    /// could overtake it.
    pub(crate) fn send(&self, requests: &[Option<Common>]) -> (BatchReplies, Box<[usize]>) {
        if self.messages.load(Ordering::Relaxed) > self.room / 2 {
            let alone = std::future::ready(Ok(vec![combined::NOT_COMMON; requests.len()].into()));
            return (alone.boxed().shared(), (0..requests.len()).collect());
        }
        let (call, positions) = combined::call(requests);
        let (mut connection, message) = (self.connection.clone(), self.message());
        let (is_known, errors) = (Arc::clone(&self.is_known), Arc::clone(&self.errors));
        let answers = async move {
            let _message = message;
            let command = if is_known.load(Ordering::Relaxed) { call.by_digest().clone() } else { call.in_full() };
            let answer = connection.send_packed_command(&command).await.and_then(Value::extract_error);
            match &answer {
                Ok(_) => {
                    is_known.store(true, Ordering::Relaxed);
                    errors.store(0, Ordering::Relaxed);
                }
                Err(error) if is_no_script(error) => is_known.store(false, Ordering::Relaxed),
                Err(_) => {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
            combined::answers(answer?)
        };
        // The cooperative budget of a task must not delay its position in the queue of the connection.
        (tokio::task::unconstrained(answers).boxed().shared(), positions)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
