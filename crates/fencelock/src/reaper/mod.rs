//! Releases in the background: dropped guards, cancelled attempts, failed releases.
//!
//! A task on the runtime of the client sends the releases. When that runtime or the program ends, a thread with
//! its own connections sends the rest, and the end waits for it: at most [`SETTLE`].

mod exit;
mod worker;

use crate::identity::ClientRng;
use crate::process::Process;
use fencelock_core::engine::{PendingRelease, ReleaseQueue};
use fencelock_core::{Backend, Clock, HolderId, Key, Moment};
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
pub(crate) use worker::ReaperTask;

/// How long the end of a runtime or of the program waits for releases in total: a few round trips to a distant server,
/// and not noticeable.
const SETTLE: Duration = Duration::from_millis(250);

/// Queues releases from any thread. [`ReaperTask::run`] sends them; it ends after the last of these handles is dropped and all
/// releases are done.
#[derive(Debug)]
pub(crate) struct Reaper {
    releases: Arc<Releases>,
}

/// The leases that are kept for the next task. At the end of the program there is none.
pub(crate) trait IdleLeases: Debug + Send + Sync {
    /// Releases them, and keeps none from now on.
    fn release_idle_leases(&self);
}

/// The state of the releases.
#[derive(Debug)]
struct Releases {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    rng: ClientRng,
    process: Process,
    state: Mutex<State>,
    /// Signals that the last unconfirmed release was confirmed.
    settled: Condvar,
    idle: Notify,
    idle_leases: OnceLock<Weak<dyn IdleLeases>>,
}

#[derive(Debug)]
struct State {
    queue: ReleaseQueue,
    worker: Worker,
    /// Wakes the worker for new releases; each worker has its own.
    wake: Arc<Notify>,
    /// All clients and guards are dropped.
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
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, rng: ClientRng) -> (Arc<Self>, ReaperTask) {
        let wake = Arc::new(Notify::new());
        let (queue, worker, closed, unresponsive) = (ReleaseQueue::default(), Worker::Task, false, false);
        let state = Mutex::new(State { queue, worker, wake: Arc::clone(&wake), closed, unresponsive });
        let (settled, idle) = (Condvar::new(), Notify::new());
        let process = Process::current();
        let idle_leases = OnceLock::new();
        let releases = Arc::new(Releases { backend, clock, rng, process, state, settled, idle, idle_leases });
        exit::watch(&releases);
        let task = ReaperTask::new(&releases, wake);
        (Arc::new(Self { releases }), task)
    }

    /// Works on any thread, with or without a runtime. It does not block while the runtime of the client exists.
    pub(crate) fn take(&self, release: PendingRelease) {
        let taken = self.releases.add(|queue, now| {
            queue.push(release, now);
            true
        });
        if taken {
            exit::watch(&self.releases);
        } else {
            // The runtime has ended, so only this caller waits.
            self.releases.settle();
        }
    }

    /// A key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on.
    pub(crate) fn release_undelivered(&self, key: &Key, holder: HolderId) {
        self.releases.add(|queue, now| queue.undelivered(key, holder, now));
    }

    /// Releases that are not confirmed yet, or wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.releases.state().queue.pending()
    }

    /// The number of stored cancelled attempts.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.releases.state().queue.abandoned().len()
    }

    /// Waits until no release is pending.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.releases.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Blocks until every release was confirmed once, for at most [`SETTLE`].
    pub(crate) fn settle(&self) {
        self.releases.settle();
    }

    /// The end of the program also releases these.
    pub(crate) fn set_idle_leases<I: IdleLeases + 'static>(&self, idle_leases: &Arc<I>) {
        let idle_leases: Weak<I> = Arc::downgrade(idle_leases);
        let _ = self.releases.idle_leases.set(idle_leases);
    }

    /// The end of the main thread waits, as for guards that were dropped there.
    pub(crate) fn watch_exit(&self) {
        exit::watch(&self.releases);
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if self.releases.process.is_current() {
            let mut state = self.releases.state();
            state.closed = true;
            let wake = Arc::clone(&state.wake);
            drop(state);
            wake.notify_one();
        }
    }
}

impl Releases {
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

    /// Blocks until every release was confirmed once. A backend that did not answer in time is not waited for again until it
    /// answers.
    fn settle(&self) {
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
            self.idle.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
