//! Releases in the background: dropped guards, cancelled attempts, failed releases.
//!
//! A task on the runtime of the client sends the releases. When that runtime or the program ends, a thread with
//! its own connections sends the rest, and the end waits for it: at most [`SETTLE`].

mod exit;
mod worker;

use crate::closing::Closing;
use crate::driver::Driver;
use crate::identity::ClientRng;
use crate::process::Process;
use fencelock_core::engine::{PendingRelease, ReleaseQueue};
use fencelock_core::{Backend, Clock, HolderId, Key, Moment};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use worker::ReaperTask;

/// How long the end of a runtime or of the program waits for releases in total: a few round trips to a distant server,
/// and not noticeable.
const SETTLE: Duration = Duration::from_millis(250);

/// Queues releases from any thread.
#[derive(Debug)]
pub(crate) struct Reaper {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    rng: ClientRng,
    process: Process,
    closing: Arc<Closing>,
    /// The end of the program releases the leases that it keeps for the next task.
    driver: Weak<Driver>,
    state: Mutex<State>,
    /// Signals that the last unconfirmed release was confirmed.
    settled: Condvar,
}

#[derive(Debug)]
struct State {
    queue: ReleaseQueue,
    worker: Worker,
    /// Wakes the worker.
    wake: Arc<Notify>,
    /// The client and its guards are dropped.
    closed: bool,
    /// A wait has timed out, and no release was confirmed since.
    unresponsive: bool,
}

/// The worker that sends the releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// The task on the runtime of the client.
    Task,
    /// A thread: the runtime has ended, or the program is about to.
    Thread,
    /// A thread is allowed, but no release is pending.
    None,
}

impl Reaper {
    pub(crate) fn new(
        backend: &Arc<dyn Backend>,
        clock: &Arc<dyn Clock>,
        rng: &ClientRng,
        closing: &Arc<Closing>,
        driver: Weak<Driver>,
    ) -> Arc<Self> {
        let (backend, clock, rng, closing) = (Arc::clone(backend), Arc::clone(clock), rng.clone(), Arc::clone(closing));
        let (queue, worker, wake) = (ReleaseQueue::default(), Worker::Task, Arc::default());
        let state = Mutex::new(State { queue, worker, wake, closed: false, unresponsive: false });
        let process = Process::current();
        Arc::new(Self { backend, clock, rng, process, closing, driver, state, settled: Condvar::new() })
    }

    /// Sends the releases on the runtime of the client, until all are sent after [`Reaper::close`].
    pub(crate) fn run(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        ReaperTask::of(self).run()
    }

    /// Works on any thread, with or without a runtime. It does not block while the runtime of the client exists.
    pub(crate) fn take(self: &Arc<Self>, release: PendingRelease) {
        let taken = self.add(|queue, now| {
            queue.push(release, now);
            true
        });
        if taken {
            self.watch_exit();
        } else {
            // The runtime has ended, so only this caller waits.
            self.settle();
        }
    }

    /// A key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on.
    pub(crate) fn release_undelivered(self: &Arc<Self>, key: &Key, holder: HolderId) {
        self.add(|queue, now| queue.undelivered(key, holder, now));
    }

    /// Releases that are not confirmed yet, or wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.state().queue.pending()
    }

    /// The number of stored cancelled attempts.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.state().queue.abandoned().len()
    }

    /// The client and all guards are dropped.
    pub(crate) fn close(&self) {
        if self.process.is_current() {
            let mut state = self.state();
            state.closed = true;
            let wake = Arc::clone(&state.wake);
            drop(state);
            wake.notify_one();
        }
    }

    /// Calls the queue, and starts to send if it returns that there is something to send. Returns whether the task on the runtime of the
    /// client does that.
    fn add(self: &Arc<Self>, add: impl FnOnce(&mut ReleaseQueue, Moment) -> bool) -> bool {
        if !self.process.is_current() {
            // The lock belongs to the parent process.
            return true;
        }
        let now = self.clock.now();
        let mut state = self.state();
        if !add(&mut state.queue, now) {
            return true;
        }
        let worker = state.worker;
        if worker == Worker::None {
            self.start_thread(state);
        } else {
            let wake = Arc::clone(&state.wake);
            drop(state);
            wake.notify_one();
        }
        worker == Worker::Task
    }

    /// Blocks until every release was confirmed once, for at most [`SETTLE`]. A backend that did not answer in time is not waited for again until it
    /// answers.
    pub(crate) fn settle(&self) {
        if !self.process.is_current() {
            return;
        }
        let waits = |state: &mut State| state.queue.unconfirmed() > 0 && !state.unresponsive;
        let waited = self.settled.wait_timeout_while(self.state(), SETTLE, waits);
        let (mut state, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() && state.queue.unconfirmed() > 0 {
            state.unresponsive = true;
            drop(state);
            self.settled.notify_all();
        }
    }

    /// Notifies the waiting threads, if necessary.
    fn notify(&self, state: MutexGuard<'_, State>) {
        let (settled, idle) = (state.queue.unconfirmed() == 0, state.queue.pending() == 0);
        drop(state);
        if settled {
            self.settled.notify_all();
        }
        if idle {
            self.closing.emptied();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
