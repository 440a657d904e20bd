//! Combines concurrent requests of the common case: one script, one request and one reply for all of them.
//!
//! A request that is made while several others are in flight joins the open batch, and yields so that other ready tasks can join
//! too. Then the batch is sent. No separate task drives it: each request of a batch can send it, and polls the reply on behalf of
//! all. So the batch does not depend on one request, or on the runtime of one request.
//!
//! A request that is dropped before its batch is sent is never sent. After that, it precedes every later request on this
//! connection, as without a batch. So the release that follows a cancelled claim never overtakes it.

use super::fault::{fault_of, is_no_script};
use crate::scripts::combined::{self, Common};
use fencelock_core::Fault;
use futures_util::FutureExt;
use futures_util::future::Shared;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Value};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
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
            batches: Batches::new(connection, room),
            limit,
            under_way: AtomicUsize::new(0),
            contended: (0..REMEMBERED).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Counts a claim or a release of a lock until it is dropped.
    pub(crate) fn enter(&self, redis_key: &str) -> InFlight<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        InFlight { combiner: self, others, remembered: self.entry(redis_key) }
    }

    /// Counts what is sent to the connection until it is dropped.
    pub(crate) fn message(&self) -> Message {
        self.batches.message()
    }

    fn entry(&self, redis_key: &str) -> (&AtomicU32, u32) {
        let hash = self.hasher.hash_one(redis_key);
        let [index, value] = [hash >> 32, hash & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0));
        // 0 is an empty entry.
        (&self.contended[index as usize % REMEMBERED], value | 1)
    }
}

impl InFlight<'_> {
    /// Whether this request may join a batch.
    pub(crate) fn combines(&self) -> bool {
        self.others >= FEWEST && !self.is_contended() && self.combiner.batches.is_enabled()
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

    /// Sends the open batch if it has a request for this lock: a later request must not overtake it. A batch has only requests that are
    /// under way.
    pub(crate) async fn after_others(&self, redis_key: &str) {
        if self.others == 0 {
            return;
        }
        poll_fn(|context| {
            self.combiner.batches.send_if_it_has(redis_key, context);
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

/// The maximum length of a batch. Other clients wait while the server executes it, which takes about a fifth of a millisecond.
const LONGEST: usize = 64;

/// A connection and its open batch.
pub(crate) struct Batches {
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
    open: Mutex<Option<Arc<SharedBatch>>>,
}

#[derive(Default)]
struct SharedBatch(Mutex<BatchState>);

#[derive(Default)]
struct BatchState {
    /// A cancelled request leaves an empty entry.
    requests: Vec<Option<Common>>,
    /// The wakers of the requests. The replies wake them.
    wakers: Vec<Option<Waker>>,
    sent: Option<Sent>,
}

struct Sent {
    answers: BatchReplies,
    /// The index of each request in the replies.
    positions: Box<[usize]>,
    /// The replies and wakers of the requests, until each has received its reply.
    _waking: Vec<BatchReplies>,
}

/// A request in a batch.
pub(crate) struct Member<'a> {
    batches: &'a Batches,
    batch: Arc<SharedBatch>,
    number: usize,
    has_yielded: bool,
    answers: Option<(BatchReplies, usize)>,
}

impl Batches {
    fn new(connection: MultiplexedConnection, room: usize) -> Self {
        let (messages, is_known, errors) = Default::default();
        Self { connection, room, messages, is_known, errors, open: Mutex::new(None) }
    }

    /// Joins the open batch; `None` if it already contains this lock.
    pub(crate) fn join(&self, common: Common) -> Option<Member<'_>> {
        let mut open = self.open();
        let full = |batch: &Arc<SharedBatch>| batch.state().requests.len() >= LONGEST;
        if open.as_ref().is_none_or(full) {
            *open = Some(Arc::default());
        }
        let batch = open.as_ref().map(Arc::clone)?;
        let mut state = batch.state();
        if state.has(&common.redis_key) {
            return None;
        }
        state.requests.push(Some(common));
        state.wakers.push(None);
        let number = state.requests.len() - 1;
        drop(state);
        Some(Member { batches: self, batch, number, has_yielded: false, answers: None })
    }

    /// Sends the open batch if it has a request for this lock.
    pub(crate) fn send_if_it_has(&self, redis_key: &str, context: &mut Context<'_>) {
        let batch = self.open().clone();
        if let Some(batch) = batch.filter(|batch| batch.state().has(redis_key)) {
            batch.send(self, context);
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<SharedBatch>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server has executed batches, or has not refused too many.
    fn is_enabled(&self) -> bool {
        self.errors.load(Ordering::Relaxed) < ERRORS
    }

    /// Counts what is sent to the connection until it is dropped.
    fn message(&self) -> Message {
        self.messages.fetch_add(1, Ordering::Relaxed);
        Message(Arc::clone(&self.messages))
    }

    /// The replies to these requests, and the index of each.
    ///
    /// If the queue of the connection may be full, the requests are sent alone: a batch would wait for space, and a later request
    /// could overtake it.
    fn send(&self, requests: &[Option<Common>]) -> (BatchReplies, Box<[usize]>) {
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

impl SharedBatch {
    /// Sends the batch, unless it was already sent.
    fn send(self: &Arc<Self>, batches: &Batches, context: &mut Context<'_>) {
        // No request joins from now on.
        batches.open().take_if(|open| Arc::ptr_eq(open, self));
        let (wakers, is_answered) = {
            let mut state = self.state();
            if state.sent.is_some() {
                return;
            }
            let (answers, positions) = batches.send(&state.requests);
            state.requests.clear();
            // This reserves a position in the queue of the connection before a cancelled request continues: see `Member::drop`.
            let is_answered = answers.clone().poll_unpin(context).is_ready();
            let wakers = std::mem::take(&mut state.wakers);
            let waking = wakers.iter().flatten().map(|waker| {
                let mut answers = answers.clone();
                let _ = answers.poll_unpin(&mut Context::from_waker(waker));
                answers
            });
            let waking = waking.collect();
            state.sent = Some(Sent { answers, positions, _waking: waking });
            (wakers, is_answered)
        };
        if is_answered {
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }

    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchState {
    fn has(&self, redis_key: &str) -> bool {
        self.requests.iter().flatten().any(|request| request.redis_key == redis_key)
    }
}

impl Member<'_> {
    /// The reply to this request; `None` if the batch was not executed.
    ///
    /// Other ready tasks join first. The first request of a batch is polled again after them. The other requests are polled
    /// later, in case the first one is not polled.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<Option<Value>>> {
        if self.answers.is_none() {
            if self.waits(context) {
                return Poll::Pending;
            }
            self.batch.send(self.batches, context);
            let state = self.batch.state();
            self.answers = state.sent.as_ref().map(|sent| (sent.answers.clone(), sent.positions[self.number]));
        }
        let Some((answers, position)) = &mut self.answers else { return Poll::Ready(Ok(None)) };
        let position = *position;
        answers.poll_unpin(context).map(|answers| answers.map(|answers| answers.get(position).cloned()))
    }

    /// Whether other requests may join before this one sends the batch.
    fn waits(&mut self, context: &mut Context<'_>) -> bool {
        if std::mem::replace(&mut self.has_yielded, true) {
            return false;
        }
        let mut state = self.batch.state();
        if state.sent.is_some() || state.requests.len() >= LONGEST {
            return false;
        }
        state.wakers[self.number] = Some(context.waker().clone());
        drop(state);
        if self.number == 0 {
            context.waker().wake_by_ref();
        } else {
            // The task is polled again when no other task is ready, or after some of them. If a request woke itself, `join_all`
            // and similar futures would end their poll before the other requests have joined.
            let _ = pin!(tokio::task::yield_now()).poll(context);
        }
        true
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut state = self.batch.state();
        // Both are empty if the batch was sent. Their content is dropped after the lock is released.
        let request = state.requests.get_mut(self.number).and_then(Option::take);
        let waker = state.wakers.get_mut(self.number).and_then(Option::take);
        drop(state);
        drop((request, waker));
    }
}

/// After this many consecutive errors, batches are disabled: the server or the rights of the user do not allow them.
const ERRORS: usize = 8;

/// The replies of a batch. All of its requests can wait for them, because any request can be cancelled.
pub(crate) type BatchReplies = Shared<Pin<Box<dyn Future<Output = RedisResult<Arc<[Value]>>> + Send>>>;

/// A command that was sent to the connection, or waits for space in its queue.
#[derive(Debug)]
pub(crate) struct Message(Arc<AtomicUsize>);

impl Drop for Message {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
