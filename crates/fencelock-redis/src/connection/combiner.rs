//! Combines concurrent requests of the common case: one script, one request and one reply for all of them.
//!
//! A request that is made while several others are in flight joins the open batch, and yields so that other ready tasks can join
//! too. Then the batch is sent. No separate task drives it: each request of a batch can send it, and polls the reply on behalf of
//! all. So the batch does not depend on one request, or on the runtime of one request.
//!
//! A request that is dropped before its batch is sent is never sent. After that, it precedes every later request on this
//! connection, as without a batch. So the release that follows a cancelled claim never overtakes it.

use super::batch_sender::{BatchSender, Message};
use super::fault::fault_of;
use super::shared_batch::Batches;
use crate::scripts::combined::{self, Common};
use fencelock_core::Fault;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Value};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// With fewer requests in flight, each is sent alone: a small batch saves nothing.
const FEWEST: usize = 4;
/// The number of entries for locks that were not the common case.
const REMEMBERED: usize = 4096;
/// The batches of a connection, and which requests join them.
pub(crate) struct Combiner {
    batches: Batches,
    /// The time limit of a request.
    limit: Duration,
    /// The number of claims and releases that wait for a reply.
    under_way: AtomicUsize,
    /// Hashes of locks that were not the common case. Their requests are sent alone, because a batch would cost an additional
    /// round trip.
    contended: Box<[AtomicU32]>,
    hasher: RandomState,
}

/// A claim or a release of a lock in flight.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    combiner: &'a Combiner,
    others: usize,
    /// The table entry of its lock, and the hash of the lock.
    remembered: (&'a AtomicU32, u32),
}

impl Combiner {
    pub(crate) fn new(connection: MultiplexedConnection, limit: Duration, room: usize) -> Self {
        Self {
            batches: Batches::new(BatchSender::new(connection, room)),
            limit,
            under_way: AtomicUsize::new(0),
            contended: (0..REMEMBERED).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a claim or a release of a lock until it is dropped.
    pub(crate) fn enter(&self, wire: &str) -> InFlight<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        InFlight { combiner: self, others, remembered: self.entry(wire) }
    }

    /// Counts what is sent to the connection until it is dropped.
    pub(crate) fn message(&self) -> Message {
        self.batches.sender.message()
    }

    fn entry(&self, wire: &str) -> (&AtomicU32, u32) {
        let hash = self.hasher.hash_one(wire);
        let [index, value] = [hash >> 32, hash & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0));
        // 0 is an empty entry.
        (&self.contended[index as usize % REMEMBERED], value | 1)
    }
}

impl InFlight<'_> {
    /// Whether this request may join a batch.
    pub(crate) fn combines(&self) -> bool {
        self.others >= FEWEST && !self.is_contended() && self.combiner.batches.sender.is_enabled()
    }

    /// Whether the last request for this lock was not the common case.
    fn is_contended(&self) -> bool {
        let (entry, value) = self.remembered;
        entry.load(Ordering::Relaxed) == value
    }

    /// The reply to a common case; `None` if the request must be sent alone. Then the server has changed nothing.
    pub(crate) async fn send(&self, common: Common) -> RedisResult<Option<Value>> {
        let Some(mut member) = self.combiner.batches.join(common) else { return Ok(None) };
        let answer = tokio::time::timeout(self.combiner.limit, poll_fn(|context| member.poll(context))).await;
        match answer {
            Ok(Ok(answer)) => Ok(answer.filter(|answer| *answer != combined::NOT_COMMON)),
            // It may have been executed.
            Ok(Err(error))
                if matches!(fault_of(&error), Fault::Timeout | Fault::Unreachable)
                    || error.kind() == ErrorKind::Parse =>
            {
                Err(error)
            }
            // The script raises no errors itself, so an error means that it was not executed. The error may be about another
            // request.
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Sends the open batch if it has a request for this lock: a later request must not overtake it.
    pub(crate) async fn after_others(&self, wire: &str) {
        poll_fn(|context| {
            self.combiner.batches.send_if_it_has(wire, context);
            Poll::Ready(())
        })
        .await;
    }

    /// Records whether a request that was sent alone was the common case.
    pub(crate) fn note(&self, answer: &RedisResult<Value>) {
        let (entry, value) = self.remembered;
        if !matches!(answer, Ok(Value::Int(_))) {
            entry.store(value, Ordering::Relaxed);
        } else if self.is_contended() {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.combiner.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}
