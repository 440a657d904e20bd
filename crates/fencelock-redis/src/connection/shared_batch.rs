//! A batch of requests that are sent as one script. It is open first, then sent.

use super::batch_sender::{BatchReplies, BatchSender};
use crate::scripts::combined::Common;
use futures_util::FutureExt;
use redis::{RedisResult, Value};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The maximum length of a batch. Other clients wait while the server executes it, which takes about a fifth of a millisecond.
const LONGEST: usize = 64;

/// The open batch of a connection.
pub(crate) struct Batches {
    pub(crate) sender: BatchSender,
    open: Mutex<Option<Arc<SharedBatch>>>,
}

#[derive(Default)]
struct SharedBatch(Mutex<State>);

#[derive(Default)]
struct State {
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
    pub(crate) fn new(sender: BatchSender) -> Self {
        Self { sender, open: Mutex::new(None) }
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
        if state.has(&common.wire) {
            return None;
        }
        state.requests.push(Some(common));
        state.wakers.push(None);
        let number = state.requests.len() - 1;
        drop(state);
        Some(Member { batches: self, batch, number, has_yielded: false, answers: None })
    }

    /// Sends the open batch if it has a request for this lock.
    pub(crate) fn send_if_it_has(&self, wire: &str, context: &mut Context<'_>) {
        let batch = self.open().clone();
        if let Some(batch) = batch.filter(|batch| batch.state().has(wire)) {
            batch.send(self, context);
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<SharedBatch>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
            let (answers, positions) = batches.sender.send(&state.requests);
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has(&self, wire: &str) -> bool {
        self.requests.iter().flatten().any(|request| request.wire == wire)
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
