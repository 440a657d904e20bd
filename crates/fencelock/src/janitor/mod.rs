//! Gives up what nobody waits for any more: dropped guards, cancelled attempts, failed releases.
//!
//! A task on the client's runtime sends the releases. When that runtime ends, or the program does, a thread with
//! connections of its own sends what is left, and whoever ends them waits for it: [`SETTLE`] at most.

mod exit;
mod queue;
mod worker;

use crate::identity::Process;
use fencelock_core::{Backend, Clock, HolderId, Key, Moment};
use queue::Queue;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
pub(crate) use worker::Desk;

/// A request that was on its way when its attempt was given up has arrived by then, or its connection is gone.
pub(crate) const STRAGGLER: Duration = Duration::from_secs(1);
/// How long a key handed to an attempt that was given up is still handed on at once.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long the end of a runtime or of the program waits for releases, all in all: a few trips to a server far away, and
/// nobody notices it.
const SETTLE: Duration = Duration::from_millis(250);

/// Takes chores from anywhere. The task that does them is [`Desk::run`]; it ends after the last of these is gone and all
/// is done.
#[derive(Debug)]
pub(crate) struct Janitor {
    office: Arc<Office>,
}

/// What is known of the chores.
#[derive(Debug)]
struct Office {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    process: Process,
    book: Mutex<Book>,
    /// The last unconfirmed release was confirmed.
    settled: Condvar,
    idle: Notify,
    abandoned: Mutex<HashMap<HolderId, Moment>>,
}

#[derive(Debug)]
struct Book {
    queue: Queue,
    worker: Worker,
    /// Tells the worker of new chores; each has its own.
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

/// One hold or place in line to give up.
#[derive(Debug, Clone)]
pub(crate) struct Chore {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    /// By then it has ended by itself.
    pub(crate) until: Moment,
    /// Before that a request of this holder may still arrive, after the release.
    pub(crate) stray_until: Moment,
    /// It has the key, so others may be waiting for this; not only a place in line.
    pub(crate) is_hold: bool,
}

impl Janitor {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> (Arc<Self>, Desk) {
        let wake = Arc::new(Notify::new());
        let (queue, worker, closed, unresponsive) = (Queue::default(), Worker::Task, false, false);
        let book = Mutex::new(Book { queue, worker, wake: Arc::clone(&wake), closed, unresponsive });
        let (settled, idle, abandoned) = (Condvar::new(), Notify::new(), Mutex::default());
        let process = Process::current();
        let office = Arc::new(Office { backend, clock, process, book, settled, idle, abandoned });
        exit::watch(&office);
        let desk = Desk::new(&office, wake);
        (Arc::new(Self { office }), desk)
    }

    /// Works on any thread, with or without a runtime. It never blocks while the client's runtime lives.
    pub(crate) fn take(&self, chore: Chore) {
        if self.office.add(chore) {
            exit::watch(&self.office);
        } else {
            // Nobody else waits for it: the runtime has ended already.
            self.office.settle();
        }
    }

    /// A key was handed to a holder that does not wait here. If it is one that was given up, the key is handed on.
    pub(crate) fn handed_to_nobody(&self, key: &Key, holder: HolderId) {
        if self.office.knows(holder) {
            let until = self.office.clock.now() + STRAGGLER;
            let stray_until = Moment::default();
            self.office.add(Chore { key: key.clone(), holder, until, stray_until, is_hold: true });
        }
    }

    /// Releases that are not confirmed yet, and those that wait to be repeated.
    pub(crate) fn pending(&self) -> usize {
        self.office.book().queue.pending()
    }

    /// How many attempts that were given up are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.office.abandoned.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until nothing is pending.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.office.idle.notified();
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
        self.office.settle();
    }

    /// The main thread of the program waits when it ends, as for guards that were dropped there.
    pub(crate) fn watch_exit(&self) {
        exit::watch(&self.office);
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        if self.office.process.is_current() {
            let mut book = self.office.book();
            book.closed = true;
            let wake = Arc::clone(&book.wake);
            drop(book);
            wake.notify_one();
        }
    }
}

impl Office {
    /// Says whether the task on the client's runtime sees to it.
    fn add(self: &Arc<Self>, chore: Chore) -> bool {
        if !self.process.is_current() {
            // The lock is the parent's.
            return true;
        }
        if self.clock.now() < chore.stray_until {
            self.remember(chore.holder);
        }
        let mut book = self.book();
        book.queue.push(chore);
        let worker = book.worker;
        if worker == Worker::Nobody {
            self.start_thread(book);
        } else {
            let wake = Arc::clone(&book.wake);
            drop(book);
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
        let waits = |book: &mut Book| book.queue.unconfirmed() > 0 && !book.unresponsive;
        let waited = self.settled.wait_timeout_while(self.book(), SETTLE, waits);
        let (mut book, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() && book.queue.unconfirmed() > 0 {
            book.unresponsive = true;
            drop(book);
            self.settled.notify_all();
        }
    }

    /// Tells those who wait, if there is something to tell.
    fn tell(&self, book: MutexGuard<'_, Book>) {
        let (settled, idle) = (book.queue.unconfirmed() == 0, book.queue.pending() == 0);
        drop(book);
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

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
