//! Releases in the background: dropped guards, cancelled attempts, failed releases.
//!
//! A task on the runtime of the client sends the releases. When that runtime or the program ends, a thread with
//! its own connections sends the rest, and the end waits for it: at most [`SETTLE`].

mod exit;
mod worker;

use crate::driver::Driver;
use fencelock_core::engine::{PendingRelease, ReleaseQueue};
use fencelock_core::{HolderId, Key, Moment};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use worker::ReaperTask;

pub(crate) use exit::watch_exit;

/// How long the end of a runtime or of the program waits for releases in total: a few round trips to a distant server,
/// and not noticeable.
const SETTLE: Duration = Duration::from_millis(250);

/// The releases of a client, which any thread may add to.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    state: Mutex<State>,
    /// Signals that the last unconfirmed release was confirmed.
    settled: Condvar,
}

#[derive(Debug, Default)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Worker {
    /// The task on the runtime of the client.
    #[default]
    Task,
    /// A thread: the runtime has ended, or the program is about to.
    Thread,
    /// A thread is allowed, but no release is pending.
    None,
}

impl Reaper {
    /// Releases that are not confirmed yet, or wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.state().queue.pending()
    }

    /// The number of stored cancelled attempts.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.state().queue.abandoned().len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// Sends the releases on the runtime of the client, until all are sent after [`Driver::stop_reaping`].
    pub(crate) fn send_releases(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        ReaperTask::of(self).run()
    }

    /// Releases in the background. Works on any thread, with or without a runtime. It does not block while the runtime of the client
    /// exists.
    pub(crate) fn reap(self: &Arc<Self>, release: PendingRelease) {
        let taken = self.add_release(|queue, now| {
            queue.push(release, now);
            true
        });
        if taken {
            watch_exit(self);
        } else {
            // The runtime has ended, so only this caller waits.
            self.settle();
        }
    }

    /// A key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on.
    pub(crate) fn release_undelivered(self: &Arc<Self>, key: &Key, holder: HolderId) {
        self.add_release(|queue, now| queue.undelivered(key, holder, now));
    }

    /// The client and all guards are dropped.
    pub(crate) fn stop_reaping(&self) {
        if self.identity.process.is_current() {
            let mut state = self.reaper.state();
            state.closed = true;
            let wake = Arc::clone(&state.wake);
            drop(state);
            wake.notify_one();
        }
    }

    /// Calls the queue, and starts to send if it returns that there is something to send. Returns whether the task on the runtime of the
    /// client does that.
    fn add_release(self: &Arc<Self>, add: impl FnOnce(&mut ReleaseQueue, Moment) -> bool) -> bool {
        if !self.identity.process.is_current() {
            // The lock belongs to the parent process.
            return true;
        }
        let now = self.clock.now();
        let mut state = self.reaper.state();
        if !add(&mut state.queue, now) {
            return true;
        }
        let worker = state.worker;
        if worker == Worker::None {
            ReaperTask::start_thread(self, state);
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
        if !self.identity.process.is_current() {
            return;
        }
        let waits = |state: &mut State| state.queue.unconfirmed() > 0 && !state.unresponsive;
        let settled = &self.reaper.settled;
        let waited = settled.wait_timeout_while(self.reaper.state(), SETTLE, waits);
        let (mut state, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() && state.queue.unconfirmed() > 0 {
            state.unresponsive = true;
            drop(state);
            settled.notify_all();
        }
    }

    /// Notifies the waiting threads, if necessary.
    fn notify_settled(&self, state: MutexGuard<'_, State>) {
        let (settled, idle) = (state.queue.unconfirmed() == 0, state.queue.pending() == 0);
        drop(state);
        if settled {
            self.reaper.settled.notify_all();
        }
        if idle {
            self.closing.emptied();
        }
    }
}
