//! Combines the common cases of requests that are made at the same time: one script, one request and one reply for all of them.
//!
//! A request that is made while several others are under way joins the open batch, and lets the other tasks that are ready do the
//! same. The first of them that runs again sends the batch. There is no task of its own: every request of a batch waits for its
//! reply and makes progress for all, so the batch does not depend on one of them, or on the runtime of one of them.
//!
//! A request that is dropped before its batch is sent is never sent. After that, it is in front of every later request on this
//! connection, as without a batch. So the release that follows a cancelled claim never overtakes it.

use super::combined::{self, Common};
use super::fault::{fault_of, is_no_script};
use fencelock_core::Fault;
use futures_util::FutureExt;
use futures_util::future::Shared;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// With fewer requests under way, each is sent alone: a small batch saves nothing.
const FEWEST: usize = 4;
/// The maximum length of a batch: other clients wait while the server executes it, for about a fifth of a millisecond.
const LONGEST: usize = 64;
/// How many locks are remembered that were no common case.
const REMEMBERED: usize = 64;

/// The answers of a batch. A request can be cancelled, so all of its requests can wait for them.
type Answers = Shared<Pin<Box<dyn Future<Output = RedisResult<Arc<[Value]>>> + Send>>>;

/// The open batch of a connection.
pub(crate) struct Combiner {
    /// Without a timeout: its timer would belong to the runtime of one of the requests.
    connection: MultiplexedConnection,
    limit: Duration,
    /// The claims and releases that wait for a reply.
    under_way: AtomicUsize,
    open: Mutex<Option<Arc<Batch>>>,
    /// Whether the server knows the script.
    is_known: Arc<AtomicBool>,
    /// Hashes of locks that were no common case. They are sent alone, because a batch would only cost them a round trip.
    contended: [AtomicU64; REMEMBERED],
    hasher: RandomState,
}

/// A claim or a release that is under way.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    combiner: &'a Combiner,
    others: usize,
}

struct Batch(Mutex<State>);

enum State {
    /// A cancelled request leaves a gap.
    Open(Vec<Option<Common>>),
    /// And the position of each request among the answers.
    Sent(Answers, Box<[usize]>),
}

/// A request in a batch.
struct Seat<'a> {
    combiner: &'a Combiner,
    batch: Arc<Batch>,
    number: usize,
}

impl Combiner {
    pub(crate) fn new(connection: MultiplexedConnection, limit: Duration) -> Self {
        Self {
            connection,
            limit,
            under_way: AtomicUsize::new(0),
            open: Mutex::new(None),
            is_known: Arc::default(),
            contended: [const { AtomicU64::new(0) }; REMEMBERED],
            hasher: RandomState::new(),
        }
    }

    /// Counts a claim or a release until it is dropped.
    pub(crate) fn enter(&self) -> Turn<'_> {
        Turn { combiner: self, others: self.under_way.fetch_add(1, Ordering::Relaxed) }
    }

    /// Joins the open batch; `None` if it has this lock already.
    fn join(&self, common: Common) -> Option<Seat<'_>> {
        let mut open = lock(&self.open);
        if let Some(batch) = &*open {
            let mut state = batch.state();
            if let State::Open(requests) = &mut *state {
                if requests.iter().flatten().any(|other| other.wire == common.wire) {
                    return None;
                }
                if requests.len() < LONGEST {
                    requests.push(Some(common));
                    let number = requests.len() - 1;
                    return Some(Seat { combiner: self, batch: Arc::clone(batch), number });
                }
            }
        }
        let batch = Arc::new(Batch(Mutex::new(State::Open(vec![Some(common)]))));
        *open = Some(Arc::clone(&batch));
        Some(Seat { combiner: self, batch, number: 0 })
    }

    /// The script with these requests.
    fn send(&self, requests: &[Option<Common>]) -> (Answers, Box<[usize]>) {
        let (call, positions) = combined::call(requests);
        let (mut connection, is_known) = (self.connection.clone(), Arc::clone(&self.is_known));
        let answers = async move {
            let command = if is_known.load(Ordering::Relaxed) { call.by_digest().clone() } else { call.in_full() };
            let answer = connection.send_packed_command(&command).await.and_then(Value::extract_error);
            match &answer {
                Ok(_) => is_known.store(true, Ordering::Relaxed),
                Err(error) if is_no_script(error) => is_known.store(false, Ordering::Relaxed),
                Err(_) => {}
            }
            combined::answers(answer?)
        };
        // The budget of a task must not keep it from its position among the requests of the connection.
        (tokio::task::unconstrained(answers).boxed().shared(), positions)
    }

    fn hash(&self, wire: &str) -> (&AtomicU64, u64) {
        // 0 is an empty place.
        let hash = self.hasher.hash_one(wire) | 1;
        let place = (hash >> 32) as usize % REMEMBERED;
        (&self.contended[place], hash)
    }

    fn is_contended(&self, wire: &str) -> bool {
        let (place, hash) = self.hash(wire);
        place.load(Ordering::Relaxed) == hash
    }

    /// Remembers whether the last request for a lock was a common case.
    fn note(&self, wire: &str, is_common: bool) {
        let (place, hash) = self.hash(wire);
        if !is_common {
            place.store(hash, Ordering::Relaxed);
        } else if place.load(Ordering::Relaxed) == hash {
            place.store(0, Ordering::Relaxed);
        }
    }
}

impl Turn<'_> {
    /// Whether this request may join a batch.
    pub(crate) fn combines(&self, wire: &str) -> bool {
        self.others >= FEWEST && !self.combiner.is_contended(wire)
    }

    /// The answer to a common case; `None` if it is to be sent alone. Then the server has done nothing.
    pub(crate) async fn send(&self, common: Common) -> RedisResult<Option<Value>> {
        let Some(seat) = self.combiner.join(common) else { return Ok(None) };
        // Other tasks that are ready join.
        let mut has_yielded = false;
        let yielded = poll_fn(|context| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        yielded.await;
        let (answers, position) = poll_fn(|context| Poll::Ready(seat.sent(context))).await;
        match tokio::time::timeout(self.combiner.limit, answers).await {
            Ok(Ok(answers)) => Ok(answers.get(position).filter(|answer| **answer != combined::NOT_COMMON).cloned()),
            // It may have been executed.
            Ok(Err(error)) if matches!(fault_of(&error), Fault::Timeout | Fault::Unreachable) => Err(error),
            // The script raises no error of its own, so it was not executed. The error may be about another request.
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Remembers whether a request that was sent alone was a common case.
    pub(crate) fn note(&self, wire: &str, answer: &Value) {
        self.combiner.note(wire, matches!(answer, Value::Int(_)));
    }
}

impl Seat<'_> {
    /// The answers of the batch, and the position of this request among them. Sends the batch if it is open.
    fn sent(&self, context: &mut Context<'_>) -> (Answers, usize) {
        // No request joins from now on.
        lock(&self.combiner.open).take_if(|open| Arc::ptr_eq(open, &self.batch));
        let mut state = self.batch.state();
        if let State::Open(requests) = &mut *state {
            let (answers, positions) = self.combiner.send(requests);
            // Takes a position among the requests of the connection before a cancelled request can go on: see `drop`.
            let _ = answers.clone().poll_unpin(context);
            *state = State::Sent(answers, positions);
        }
        let State::Sent(answers, positions) = &*state else { unreachable!("it was sent") };
        (answers.clone(), positions[self.number])
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let State::Open(requests) = &mut *self.batch.state()
            && let Some(request) = requests.get_mut(self.number)
        {
            *request = None;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.combiner.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batch {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl fmt::Debug for Combiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
