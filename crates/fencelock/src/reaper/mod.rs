//! Releases in the background: dropped guards, cancelled attempts, failed releases. Who sends them is decided by [`Releases`].
//!
//! A task on the runtime of the client sends the releases. When that runtime or the program ends, a thread with
//! its own connections sends the rest, and the end waits for it: at most [`SETTLE`].

mod exit;
mod worker;

use crate::driver::Driver;
use fencelock_core::engine::{PendingRelease, Releases, Sender, Worker};
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
    releases: Mutex<Releases>,
    /// Wakes the worker in charge. One that is no longer in charge, and receives a notification, passes it on.
    wake: Notify,
    /// Signals that the last unconfirmed release was confirmed.
    settled: Condvar,
}

impl Reaper {
    /// Releases that are not confirmed yet, or wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.releases().queue().pending()
    }

    /// The number of stored cancelled attempts.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.releases().queue().abandoned().len()
    }

    fn releases(&self) -> MutexGuard<'_, Releases> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// Sends the releases on the runtime of the client, until all are sent after [`Driver::stop_reaping`].
    pub(crate) fn send_releases(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        ReaperTask::new(self, Worker::TASK, Arc::clone(&self.backend)).run()
    }

    /// Releases in the background. Works on any thread, with or without a runtime. It does not block while the runtime of the client
    /// exists.
    pub(crate) fn reap(self: &Arc<Self>, release: PendingRelease) {
        match self.add_release(|releases, now| releases.push(release, now)) {
            // The runtime has ended, so only this caller waits.
            Sender::InCharge(worker) | Sender::New(worker) if worker != Worker::TASK => self.settle(),
            _ => watch_exit(self),
        }
    }

    /// A key was handed to a holder that does not wait here. If its attempt was cancelled, the key is handed on.
    pub(crate) fn release_undelivered(self: &Arc<Self>, key: &Key, holder: HolderId) {
        self.add_release(|releases, now| releases.undelivered(key, holder, now));
    }

    /// The client and all guards are dropped.
    pub(crate) fn stop_reaping(&self) {
        if self.identity.process.is_current() {
            self.reaper.releases().close();
            self.reaper.wake.notify_one();
        }
    }

    /// In a forked child, the lock belongs to the parent process.
    fn add_release(self: &Arc<Self>, add: impl FnOnce(&mut Releases, Moment) -> Sender) -> Sender {
        if !self.identity.process.is_current() {
            return Sender::Nobody;
        }
        let now = self.clock.now();
        let sender = add(&mut self.reaper.releases(), now);
        match sender {
            Sender::Nobody => {}
            Sender::InCharge(_) => self.reaper.wake.notify_one(),
            Sender::New(worker) => ReaperTask::start_thread(self, worker),
        }
        sender
    }

    /// Blocks until every release was confirmed once, for at most [`SETTLE`].
    pub(crate) fn settle(&self) {
        if !self.identity.process.is_current() {
            return;
        }
        let settled = &self.reaper.settled;
        let waited = settled.wait_timeout_while(self.reaper.releases(), SETTLE, |releases| releases.is_waited_for());
        let (mut releases, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() && releases.timed_out() {
            drop(releases);
            settled.notify_all();
        }
    }

    /// Notifies the waiting threads, if necessary.
    fn notify_settled(&self, releases: MutexGuard<'_, Releases>) {
        let (settled, idle) = (releases.is_settled(), releases.queue().pending() == 0);
        drop(releases);
        if settled {
            self.reaper.settled.notify_all();
        }
        if idle {
            self.closing.emptied();
        }
    }
}
