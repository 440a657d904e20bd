//! Combines concurrent requests of the common case: one script, one request and one reply for all of them.
//!
//! A request that is made while several others are in flight joins the open batch. The first of them yields so that other ready tasks
//! can join too, and sends the batch. No separate task drives it: each request of a batch can send it, and polls the reply on behalf
//! of all. So the batch does not depend on one request, or on the runtime of one request.
//!
//! A request that is dropped before its batch is sent is never sent. After that, it precedes every later request on this
//! connection, as without a batch. So the release that follows a cancelled claim never overtakes it.

use super::fault::{fault_of, is_no_script};
use crate::scripts::combined::{self, Common};
use fencelock_core::Fault;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisResult, Value};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// With fewer requests in flight, each is sent alone: a small batch saves nothing.
const FEWEST: usize = 4;
/// How long the other requests of a batch wait for the first one, which sends it as soon as the tasks that are ready have run. It takes
/// longer only if its task is kept from running.
const TURN: Duration = Duration::from_millis(5);
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
        let begun = Instant::now();
        let limit = begun + self.combiner.limit;
        let mut timer = pin!(sleep_until(limit.min(begun + TURN)));
        let answer = poll_fn(|context| {
            loop {
                if let Poll::Ready(answer) = member.poll(context) {
                    return Poll::Ready(answer);
                }
                ready!(timer.as_mut().poll(context));
                if timer.deadline() == limit {
                    return Poll::Ready(Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
                }
                member.send();
                timer.as_mut().reset(limit);
            }
        });
        match answer.await {
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
            self.combiner.batches.send_if_it_has(redis_key);
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
struct SharedBatch {
    state: Mutex<BatchState>,
    members: Arc<Wakers>,
}

#[derive(Default)]
struct BatchState {
    /// A cancelled request leaves an empty entry.
    requests: Vec<Option<Common>>,
    sent: Option<Sent>,
}

struct Sent {
    reply: BatchReply,
    /// The index of each request in the reply.
    positions: Box<[usize]>,
}

enum BatchReply {
    Awaited(BatchRequest),
    Here(RedisResult<Value>),
}

/// Wakes the requests of a batch. It is the waker of the batch, so it must not own it.
#[derive(Default)]
struct Wakers {
    of_members: Mutex<Vec<Option<Waker>>>,
    /// The batch was woken, and not polled since.
    is_woken: AtomicBool,
}

/// A request in a batch.
pub(crate) struct Member<'a> {
    batches: &'a Batches,
    batch: Arc<SharedBatch>,
    number: usize,
    is_release: bool,
    has_yielded: bool,
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
        let (number, is_release) = (state.requests.len(), common.is_release());
        state.requests.push(Some(common));
        drop(state);
        Some(Member { batches: self, batch, number, is_release, has_yielded: false })
    }

    /// Sends the open batch if it has a request for this lock.
    pub(crate) fn send_if_it_has(&self, redis_key: &str) {
        let batch = self.open().clone();
        if let Some(batch) = batch.filter(|batch| batch.state().has(redis_key)) {
            batch.send(self);
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

    /// Requests the reply to all of them, and the index of each in it.
    ///
    /// If the queue of the connection may be full, the requests are sent alone: a batch would wait for space, and a later request
    /// could overtake it.
    fn send(&self, requests: &[Option<Common>]) -> (BatchRequest, Box<[usize]>) {
        if self.messages.load(Ordering::Relaxed) > self.room / 2 {
            return (Box::pin(std::future::ready(Ok(combined::NOT_COMMON))), (0..requests.len()).collect());
        }
        let (call, positions) = combined::call(requests);
        let (mut connection, message) = (self.connection.clone(), self.message());
        let (is_known, errors) = (Arc::clone(&self.is_known), Arc::clone(&self.errors));
        let request = async move {
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
            answer
        };
        // The cooperative budget of a task must not delay its position in the queue of the connection.
        (Box::pin(tokio::task::unconstrained(request)), positions)
    }
}

impl SharedBatch {
    /// Sends the batch, unless it was already sent.
    fn send(self: &Arc<Self>, batches: &Batches) {
        // No request joins from now on.
        batches.open().take_if(|open| Arc::ptr_eq(open, self));
        let mut state = self.state();
        if state.sent.is_some() {
            return;
        }
        let (mut request, positions) = batches.send(&state.requests);
        state.requests.clear();
        // This reserves a position in the queue of the connection before a cancelled request continues: see `Member::drop`.
        let (reply, is_here) = match self.poll(&mut request) {
            Poll::Ready(reply) => (BatchReply::Here(reply), true),
            Poll::Pending => (BatchReply::Awaited(request), false),
        };
        state.sent = Some(Sent { reply, positions });
        drop(state);
        if is_here {
            self.members.wake_by_ref();
        }
    }

    fn poll(&self, request: &mut BatchRequest) -> Poll<RedisResult<Value>> {
        request.as_mut().poll(&mut Context::from_waker(&Arc::clone(&self.members).into()))
    }

    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.of_members());
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Wakers {
    /// Wakes the request with this number by this waker.
    fn set(&self, number: usize, waker: &Waker) {
        let mut wakers = self.of_members();
        let length = wakers.len().max(number + 1);
        wakers.resize(length, None);
        if wakers[number].as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        let replaced = wakers[number].replace(waker.clone());
        // In this order: it may be the last reference to a task that has a request of this batch.
        drop(wakers);
        drop(replaced);
    }

    fn of_members(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.of_members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchState {
    fn has(&self, redis_key: &str) -> bool {
        self.requests.iter().flatten().any(|request| request.redis_key == redis_key)
    }

    fn is_answered(&self) -> bool {
        matches!(self.sent, Some(Sent { reply: BatchReply::Here(_), .. }))
    }

    /// Whether others may join before the request with this number sends the batch. The first request is polled again after the tasks
    /// that are ready. The others wait for it, but not for long: [`TURN`].
    fn waits(&self, number: usize, has_yielded: &mut bool, context: &Context<'_>) -> bool {
        if self.requests.len() >= LONGEST || self.requests[0].is_none() {
            return false;
        }
        if number == 0 && !std::mem::replace(has_yielded, true) {
            context.waker().wake_by_ref();
            return true;
        }
        number > 0
    }
}

impl Member<'_> {
    /// The reply to this request; `None` if the batch was not executed.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<RedisResult<Option<Value>>> {
        let Self { batches, batch, number, is_release, has_yielded } = self;
        if !batch.state().is_answered() {
            // First: a wake-up from now on reaches this task.
            batch.members.set(*number, context.waker());
        }
        let mut state = batch.state();
        if state.sent.is_none() {
            if state.waits(*number, has_yielded, context) {
                return Poll::Pending;
            }
            drop(state);
            batch.send(batches);
            state = batch.state();
        }
        let Some(Sent { reply, positions }) = &mut state.sent else { return Poll::Ready(Ok(None)) };
        if let BatchReply::Awaited(request) = reply
            && batch.members.is_woken.swap(false, Ordering::SeqCst)
            && let Poll::Ready(here) = batch.poll(request)
        {
            *reply = BatchReply::Here(here);
        }
        match reply {
            BatchReply::Awaited(_) => Poll::Pending,
            BatchReply::Here(reply) => {
                let answer = |reply| combined::answer(reply, positions[*number], *is_release);
                Poll::Ready(reply.as_ref().map_err(Clone::clone).and_then(answer))
            }
        }
    }

    /// Sends the batch, if the first request was not polled again.
    fn send(&self) {
        self.batch.send(self.batches);
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // Its content is dropped after the lock is released. It is empty if the batch was sent.
        let request = self.batch.state().requests.get_mut(self.number).and_then(Option::take);
        let waker = self.batch.members.of_members().get_mut(self.number).and_then(Option::take);
        if self.number == 0 && request.is_some() {
            self.batch.members.wake_by_ref();
        }
        drop((request, waker));
    }
}

/// After this many consecutive errors, batches are disabled: the server or the rights of the user do not allow them.
const ERRORS: usize = 8;

/// A batch that is sent. Any of its requests can poll it, because any of them can be cancelled.
type BatchRequest = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A command that was sent to the connection, or waits for space in its queue.
#[derive(Debug)]
pub(crate) struct Message(Arc<AtomicUsize>);

impl Drop for Message {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
