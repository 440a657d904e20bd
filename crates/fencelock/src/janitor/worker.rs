use super::queue::Outcome;
use super::{Book, Chore, Office, Worker};
use crate::identity::dice;
use fencelock_core::{Backend, BoxFuture};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Timers stand still while the machine sleeps, so no nap is longer than this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Sends the releases, on the client's runtime or on that of a thread.
#[derive(Debug)]
pub(crate) struct Desk {
    office: Arc<Office>,
    worker: Worker,
    backend: Arc<dyn Backend>,
    wake: Arc<Notify>,
}

/// What there is to do.
enum Work {
    Send(Vec<(u64, Chore)>, Option<Duration>),
    Done,
}

impl Desk {
    /// The task of the client.
    pub(super) fn new(office: &Arc<Office>, wake: Arc<Notify>) -> Self {
        let (office, backend) = (Arc::clone(office), Arc::clone(&office.backend));
        Self { office, worker: Worker::Task, backend, wake }
    }

    /// The task ends when every client and guard is gone and the queue is empty; the thread when the queue is empty.
    pub(crate) async fn run(self) {
        let mut sent = FuturesUnordered::new();
        loop {
            let Work::Send(batch, nap) = self.work() else { return };
            for (number, chore) in batch {
                sent.push(self.send(number, chore));
            }
            tokio::select! {
                Some((number, outcome)) = sent.next() => self.answered(number, outcome),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(nap.unwrap_or_default()), if nap.is_some() => {}
            }
        }
    }

    fn work(&self) -> Work {
        let mut book = self.office.book();
        if !self.is_in_charge(&book) {
            return Work::Done;
        }
        if book.queue.pending() == 0 && (book.closed || self.worker == Worker::Thread) {
            book.worker = Worker::Nobody;
            return Work::Done;
        }
        let now = self.office.clock.now();
        let batch = book.queue.next(now);
        Work::Send(batch, book.queue.due().map(|due| due.since(now).min(LONGEST_NAP)))
    }

    fn send(&self, number: u64, chore: Chore) -> BoxFuture<'static, (u64, Outcome)> {
        let (backend, clock) = (Arc::clone(&self.backend), Arc::clone(&self.office.clock));
        Box::pin(async move {
            let sent = clock.now();
            let outcome = match backend.release(&chore.key, &chore.holder).await {
                Ok(outcome) => {
                    tracing::trace!(key = %chore.key, holder = %chore.holder, ?outcome, "given up");
                    Outcome::Confirmed(sent)
                }
                Err(cause) if cause.is_permanent() || clock.now() >= chore.until => {
                    tracing::warn!(key = %chore.key, %cause, "could not release; the lease will end by itself");
                    Outcome::GivenUp
                }
                Err(cause) => {
                    tracing::debug!(key = %chore.key, %cause, "release failed, trying again");
                    Outcome::Failed
                }
            };
            (number, outcome)
        })
    }

    fn answered(&self, number: u64, outcome: Outcome) {
        let mut book = self.office.book();
        book.queue.answered(number, outcome, self.office.clock.now(), dice());
        book.unresponsive &= !matches!(outcome, Outcome::Confirmed(_));
        self.office.tell(book);
    }

    /// Another may have taken over.
    fn is_in_charge(&self, book: &Book) -> bool {
        book.worker == self.worker && Arc::ptr_eq(&book.wake, &self.wake)
    }
}

/// The runtime has ended, and with it whatever was under way.
impl Drop for Desk {
    fn drop(&mut self) {
        // A forked child drops a copy.
        if !self.office.process.is_current() {
            return;
        }
        let mut book = self.office.book();
        if !self.is_in_charge(&book) {
            return;
        }
        if self.worker == Worker::Task {
            self.office.take_over(book);
            self.office.settle();
        } else {
            // It panicked, and would again.
            book.worker = Worker::Nobody;
            self.office.abandon(book);
        }
    }
}

impl Office {
    /// No task of the client's runtime will send anything any more, and nothing arrives there.
    pub(super) fn take_over(self: &Arc<Self>, mut book: MutexGuard<'_, Book>) {
        book.queue.recall();
        if book.queue.pending() == 0 {
            book.worker = Worker::Nobody;
        } else {
            self.start_thread(book);
        }
    }

    /// If the process ends first, the leases do the rest.
    pub(super) fn start_thread(self: &Arc<Self>, mut book: MutexGuard<'_, Book>) {
        let wake = Arc::new(Notify::new());
        (book.worker, book.wake) = (Worker::Thread, Arc::clone(&wake));
        drop(book);
        let (office, backend) = (Arc::clone(self), self.backend.reconnected());
        let backend = backend.unwrap_or_else(|| Arc::clone(&self.backend));
        let desk = Desk { office, worker: Worker::Thread, backend, wake };
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(desk.run()),
            Err(error) => tracing::warn!(%error, "no runtime for releases"),
        };
        // A desk that cannot work is dropped, and gives up.
        if let Err(error) = std::thread::Builder::new().name("fencelock-release".into()).spawn(run) {
            tracing::warn!(%error, "no thread for releases");
        }
    }

    fn abandon(&self, mut book: MutexGuard<'_, Book>) {
        let left = book.queue.clear();
        self.tell(book);
        if left > 0 {
            tracing::warn!(left, "releases were given up; the leases will end by themselves");
        }
    }
}
