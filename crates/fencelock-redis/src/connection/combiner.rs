//! Combines concurrent requests of the common case: one script, one request and one reply for all of them.
//!
//! A request that is made while several others are in flight joins the open batch. The first of them yields so that other ready tasks
//! can join too, and sends the batch. From then on, a task of the runtime of the connection awaits the reply for all. So the batch does
//! not depend on one request, or on the runtime of one request.
//!
//! A request that is dropped before its batch is sent is never sent. After that, it precedes every later request on this
//! connection, as without a batch. So the release that follows a cancelled claim never overtakes it.

use super::fault::{fault_of, is_no_script};
use crate::scripts::combined::{self, Common};
use crate::scripts::script::Call;
use fencelock_core::{Fault, lock};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Value};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

/// With fewer requests in flight, each is sent alone: a small batch saves nothing.
const FEWEST: usize = 4;
/// The maximum length of a batch. Other clients wait while the server executes it, which takes about a fifth of a millisecond.
const LONGEST: usize = 64;
/// How long the other requests of a batch wait for the first one, which sends it as soon as the tasks that are ready have run. It takes
/// longer only if its task is kept from running.
const TURN: Duration = Duration::from_millis(5);
/// After this many consecutive errors, batches are disabled: the server or the rights of the user do not allow them.
const ERRORS: usize = 8;
/// The number of entries for locks that were not the common case.
const REMEMBERED: usize = 4096;

/// The batches of a connection, and which requests join them.
pub(crate) struct Combiner {
    pub(crate) batches: Arc<Batches>,
    /// The time limit of a request.
    limit: Duration,
    /// The number of claims and releases that wait for a reply.
    under_way: AtomicUsize,
    /// Hashes of locks that were not the common case. Their requests are sent alone, because a batch would cost an additional
    /// round trip.
    contended: Box<[AtomicU32]>,
    hasher: RandomState,
}

/// A claim or a release of a lock that is under way.
#[derive(Debug)]
pub(crate) struct LockRequest<'a> {
    combiner: &'a Combiner,
    others: usize,
    /// The table entry of its lock, and the hash of the lock.
    remembered: (&'a AtomicU32, u32),
}

impl Combiner {
    /// For a connection of the current runtime.
    pub(crate) fn new(connection: MultiplexedConnection, limit: Duration, room: usize) -> Self {
        let (open, messages, is_known, errors) = Default::default();
        let batches = Batches { connection, runtime: Handle::current(), room, open, messages, is_known, errors };
        Self {
            batches: Arc::new(batches),
            limit,
            under_way: AtomicUsize::new(0),
            contended: (0..REMEMBERED).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a claim or a release of a lock until it is dropped.
    pub(crate) fn enter(&self, redis_key: &str) -> LockRequest<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        let hash = self.hasher.hash_one(redis_key);
        let [index, value] = [hash >> 32, hash & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0));
        // 0 is an empty entry.
        let remembered = (&self.contended[index as usize % REMEMBERED], value | 1);
        LockRequest { combiner: self, others, remembered }
    }
}

impl LockRequest<'_> {
    /// Whether this request may join a batch.
    pub(crate) fn combines(&self) -> bool {
        let has_failed = self.combiner.batches.errors.load(Ordering::Relaxed) >= ERRORS;
        self.others >= FEWEST && !self.is_contended() && !has_failed
    }

    /// Whether the last request for this lock was not the common case.
    fn is_contended(&self) -> bool {
        let (entry, value) = self.remembered;
        entry.load(Ordering::Relaxed) == value
    }

    /// The reply to a common case; `None` if the request must be sent alone. Then the server has changed nothing.
    pub(crate) async fn send(&self, common: Common) -> RedisResult<Option<Value>> {
        let Some((turn, is_first, answered)) = self.combiner.batches.join(common) else { return Ok(None) };
        // Dropped before the turn: then the batch is sent without it.
        let mut answered = answered;
        let begun = Instant::now();
        let limit = begun + self.combiner.limit;
        let answer = async {
            if is_first {
                let mut has_yielded = false;
                poll_fn(|context| {
                    if std::mem::replace(&mut has_yielded, true) {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
            } else if let Ok(answer) = timeout_at(limit.min(begun + TURN), &mut answered).await {
                return Ok(answer);
            }
            turn.end();
            timeout_at(limit, &mut answered).await
        };
        // The cooperative budget of a task must not delay those who join: they may be many in one task.
        let answer = match unconstrained(answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        match answer {
            Ok(answer) => Ok(answer.filter(|answer| *answer != combined::NOT_COMMON)),
            // It may have been executed.
            Err(error)
                if matches!(fault_of(&error), Fault::Timeout | Fault::Unreachable)
                    || error.kind() == ErrorKind::Parse =>
            {
                Err(error)
            }
            // The script raises no errors itself, so an error means that it was not executed. The error may be about another
            // request.
            Err(_) => Ok(None),
        }
    }

    /// Sends the open batch if it has a request for this lock: a later request must not overtake it. A batch has only requests that are
    /// under way.
    pub(crate) fn after_others(&self, redis_key: &str) {
        if self.others > 0 {
            let open = lock(&self.combiner.batches.open);
            if open.has(redis_key) {
                self.combiner.batches.send(open);
            }
        }
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

impl Drop for LockRequest<'_> {
    fn drop(&mut self) {
        self.combiner.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

type Answer = RedisResult<Option<Value>>;

/// A connection and its open batch.
#[derive(Debug)]
pub(crate) struct Batches {
    /// It has no timeout: each request has its own.
    connection: MultiplexedConnection,
    /// Where the connection lives.
    runtime: Handle,
    /// The length of the queue of the connection.
    room: usize,
    open: Mutex<OpenBatch>,
    /// The number of commands that were sent to the connection, or wait for space in its queue.
    messages: AtomicUsize,
    /// Whether the server has cached the script.
    is_known: AtomicBool,
    /// The number of consecutive batches that failed.
    errors: AtomicUsize,
}

/// What is sent next.
#[derive(Debug, Default)]
struct OpenBatch {
    number: u64,
    requests: Vec<(Common, oneshot::Sender<Answer>)>,
}

impl OpenBatch {
    /// Whether it has a request for this lock that was not dropped.
    fn has(&self, redis_key: &str) -> bool {
        self.requests.iter().any(|(common, answer)| common.redis_key == redis_key && !answer.is_closed())
    }
}

/// A batch is sent at the latest when this is dropped, soon.
struct Turn {
    batches: Arc<Batches>,
    number: u64,
}

impl Turn {
    fn end(&self) {
        let open = lock(&self.batches.open);
        if open.number == self.number {
            self.batches.send(open);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if lock(&self.batches.open).number == self.number {
            let turn = Self { batches: Arc::clone(&self.batches), number: self.number };
            self.batches.runtime.spawn(async move { turn.end() });
        }
    }
}

impl Batches {
    /// Joins the open batch, and says whether it is its first request; `None` if it already contains this lock.
    fn join(self: &Arc<Self>, common: Common) -> Option<(Turn, bool, oneshot::Receiver<Answer>)> {
        let mut open = lock(&self.open);
        if open.has(&common.redis_key) {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        open.requests.push((common, answer));
        let (turn, joined) = (Turn { batches: Arc::clone(self), number: open.number }, open.requests.len());
        if joined >= LONGEST {
            self.send(open);
        }
        Some((turn, joined == 1, answered))
    }

    /// Counts what is sent to the connection until it is dropped.
    pub(crate) fn message(self: &Arc<Self>) -> Message {
        self.messages.fetch_add(1, Ordering::Relaxed);
        Message(Arc::clone(self))
    }

    /// Sends the open batch, without the requests that were dropped. It has its position in the queue of the connection before the lock
    /// is released.
    ///
    /// If the queue of the connection may be full, the requests are sent alone: a batch would wait for space, and a later request
    /// could overtake it.
    fn send(self: &Arc<Self>, mut open: MutexGuard<'_, OpenBatch>) {
        open.number += 1;
        let requests = std::mem::take(&mut open.requests).into_iter().filter(|(_, answer)| !answer.is_closed());
        let (requests, answers): (Vec<_>, Vec<_>) = requests.unzip();
        if requests.is_empty() {
            return;
        }
        let (call, positions) = combined::call(&requests);
        let deliver = move |reply: RedisResult<Value>| {
            for ((request, position), answer) in requests.iter().zip(positions).zip(answers) {
                let of = |reply| combined::answer(reply, position, request.is_release());
                // Without a receiver, the request was cancelled.
                let _ = answer.send(reply.as_ref().map_err(Clone::clone).and_then(of));
            }
        };
        if self.messages.load(Ordering::Relaxed) > self.room / 2 {
            drop(open);
            return deliver(Ok(Value::Array(Vec::new())));
        }
        // The cooperative budget of a task must not delay its position in the queue of the connection.
        let mut reply = Box::pin(unconstrained(self.message().carry(call)));
        let first = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(open);
        match first {
            Poll::Ready(reply) => deliver(reply),
            Poll::Pending => drop(self.runtime.spawn(async move { deliver(reply.await) })),
        }
    }
}

/// A command that was sent to the connection, or waits for space in its queue.
#[derive(Debug)]
pub(crate) struct Message(Arc<Batches>);

impl Message {
    async fn carry(self, call: Call) -> RedisResult<Value> {
        let Batches { connection, is_known, errors, .. } = &*self.0;
        let command = if is_known.load(Ordering::Relaxed) { call.by_digest.clone() } else { call.in_full() };
        let answer = connection.clone().send_packed_command(&command).await.and_then(Value::extract_error);
        match &answer {
            Ok(_) => {
                is_known.store(true, Ordering::Relaxed);
                errors.store(0, Ordering::Relaxed);
            }
            Err(error) if is_no_script(error) => is_known.store(false, Ordering::Relaxed),
            Err(_) => drop(errors.fetch_add(1, Ordering::Relaxed)),
        }
        answer
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.0.messages.fetch_sub(1, Ordering::Relaxed);
    }
}
