//! Gives up what nobody waits for any more: dropped guards, cancelled attempts, failed releases.
//!
//! A task on the client's runtime sends the releases. When that runtime ends, or the program does, a thread with
//! connections of its own sends what is left, and whoever ends them waits for it: [`SETTLE`] at most.

mod exit;
mod worker;

use crate::identity::Process;
use fencelock_core::engine::{PendingRelease, ReleaseQueue, STRAGGLER};
use fencelock_core::{Backend, Clock, HolderId, Key, Moment};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
pub(crate) use worker::ReaperTask;

/// How long a key handed to an attempt that was given up is still handed on at once.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long the end of a runtime or of the program waits for releases, all in all: a few trips to a server far away, and
/// nobody notices it.
const SETTLE: Duration = Duration::from_millis(250);

/// Takes releases from anywhere. The task that does them is [`ReaperTask::run`]; it ends after the last of these is gone and all
/// is done.
#[derive(Debug)]
pub(crate) struct Reaper {
    releases: Arc<Releases>,
}

/// What is known of the releases.
#[derive(Debug)]
struct Releases {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    process: Process,
    state: Mutex<State>,
    /// The last unconfirmed release was confirmed.
    settled: Condvar,
    idle: Notify,
    abandoned: Mutex<HashMap<HolderId, Moment>>,
}

#[derive(Debug)]
struct State {
    queue: ReleaseQueue,
    worker: Worker,
    /// Tells the worker of new releases; each has its own.
    wake: Arc<Notify>,
    /// Every client and guard is gone.
    closed: bool,
    /// Somebody has waited in vain, and nothing was confirmed since.
    unresponsive: bool,
}

/// Who sends the releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// The task on the client's runtime.
    Task,
    /// That runtime has ended, or the program is about to.
    Thread,
    /// As before, and nothing is to be done.
    Nobody,
}

impl Reaper {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> (Arc<Self>, ReaperTask) {
        let wake = Arc::new(Notify::new());
        let (queue, worker, closed, unresponsive) = (ReleaseQueue::default(), Worker::Task, false, false);
        let state = Mutex::new(State { queue, worker, wake: Arc::clone(&wake), closed, unresponsive });
        let (settled, idle, abandoned) = (Condvar::new(), Notify::new(), Mutex::default());
        let process = Process::current();
        let releases = Arc::new(Releases { backend, clock, process, state, settled, idle, abandoned });
        exit::watch(&releases);
        let task = ReaperTask::new(&releases, wake);
        (Arc::new(Self { releases }), task)
    }

    /// Works on any thread, with or without a runtime. It never blocks while the client's runtime lives.
    pub(crate) fn take(&self, release: PendingRelease) {
        if self.releases.add(release) {
            exit::watch(&self.releases);
        } else {
            // Nobody else waits for it: the runtime has ended already.
            self.releases.settle();
        }
    }

    /// A key was handed to a holder that does not wait here. If it is one that was given up, the key is handed on.
    pub(crate) fn handed_to_nobody(&self, key: &Key, holder: HolderId) {
        if self.releases.knows(holder) {
            let until = self.releases.clock.now() + STRAGGLER;
            let stray_until = Moment::default();
            self.releases.add(PendingRelease { key: key.clone(), holder, until, stray_until, is_hold: true });
        }
    }

    /// Releases that are not confirmed yet, and those that wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.releases.state().queue.pending()
    }

    /// How many attempts that were given up are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.releases.abandoned.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until nothing is pending.
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

    /// Blocks until every release was confirmed once, for [`SETTLE`] at most.
    pub(crate) fn settle(&self) {
        self.releases.settle();
    }

    /// The main thread of the program waits when it ends, as for guards that were dropped there.
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
    /// Says whether the task on the client's runtime sees to it.
    fn add(self: &Arc<Self>, release: PendingRelease) -> bool {
        if !self.process.is_current() {
            // The lock is the parent's.
            return true;
        }
        if self.clock.now() < release.stray_until {
            self.remember(release.holder);
        }
        let mut state = self.state();
        state.queue.push(release);
        let worker = state.worker;
        if worker == Worker::Nobody {
            self.start_thread(state);
        } else {
            let wake = Arc::clone(&state.wake);
            drop(state);
            wake.notify_one();
        }
        worker == Worker::Task
    }

    /// Blocks until every release was confirmed once. A place that did not answer in time is not waited for again, until it
    /// does.
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

    /// Tells those who wait, if there is something to tell.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let (settled, idle) = (state.queue.unconfirmed() == 0, state.queue.pending() == 0);
        drop(state);
        if settled {
            self.settled.notify_all();
        }
        if idle {
            self.idle.notify_waiters();
        }
    }

    fn remember(&self, holder: HolderId) {
        let now = self.clock.now();
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked through when it has grown to a power of two, so that a storm of cancellations costs each a little.
        if abandoned.len().is_power_of_two() {
            abandoned.retain(|_, until| now < *until);
        }
        abandoned.insert(holder, now + REMEMBERED);
    }

    fn knows(&self, holder: HolderId) -> bool {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&holder)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
