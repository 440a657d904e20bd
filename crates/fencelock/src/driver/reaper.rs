//! Releases in the background: dropped guards, cancelled attempts, failed releases. Who sends them is decided by [`Releases`].
//!
//! A task on the runtime of the client sends the releases. When that runtime or the program ends, a thread with
//! its own connections sends the rest, and the end waits for it: at most [`LONGEST_WAIT`].

use super::Driver;
use fencelock_core::engine::{PendingRelease, ReleaseOutcome, ReleaseWork, Releases, Sender, Worker, WorkerEnd};
use fencelock_core::{Backend, BoxFuture, HolderId, Key, Moment, lock};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// How long the end of a runtime or of the program waits for releases in total: a few round trips to a distant server,
/// and not noticeable.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

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
        lock(&self.releases).pending()
    }

    /// The number of stored cancelled attempts.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        lock(&self.releases).abandoned().len()
    }
}

impl Driver {
    /// Releases in the background. Works on any thread, with or without a runtime. It does not block while the runtime of the client
    /// exists.
    pub(crate) fn reap(self: &Arc<Self>, release: PendingRelease) {
        match self.add_release(|releases, now| releases.push(release, now)) {
            // The runtime has ended, so only this caller waits.
            Sender::InCharge(worker) | Sender::New(worker) if worker != Worker::TASK => self.wait_for_releases(),
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
            lock(&self.reaper.releases).close();
            self.reaper.wake.notify_one();
        }
    }

    /// In a forked child, the lock belongs to the parent process.
    fn add_release(self: &Arc<Self>, add: impl FnOnce(&mut Releases, Moment) -> Sender) -> Sender {
        if !self.identity.process.is_current() {
            return Sender::Nobody;
        }
        let now = self.clock.now();
        let sender = add(&mut lock(&self.reaper.releases), now);
        match sender {
            Sender::Nobody => {}
            Sender::InCharge(_) => self.reaper.wake.notify_one(),
            Sender::New(worker) => ReaperTask::start_thread(self, worker),
        }
        sender
    }

    /// Blocks until every release was confirmed once, for at most [`LONGEST_WAIT`].
    pub(crate) fn wait_for_releases(&self) {
        if !self.identity.process.is_current() {
            return;
        }
        let settled = &self.reaper.settled;
        let waited =
            settled.wait_timeout_while(lock(&self.reaper.releases), LONGEST_WAIT, |releases| releases.is_waited_for());
        let (mut releases, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        if limit.timed_out() && releases.timed_out() {
            drop(releases);
            settled.notify_all();
        }
    }

    /// Notifies the waiting threads, if necessary.
    fn notify_settled(&self, releases: MutexGuard<'_, Releases>) {
        let (settled, idle) = (releases.is_settled(), releases.pending() == 0);
        drop(releases);
        if settled {
            self.reaper.settled.notify_all();
        }
        if idle {
            self.closing.emptied();
        }
    }
}

/// Sends the releases, on the runtime of the client or of a thread.
#[derive(Debug)]
pub(super) struct ReaperTask {
    client: Arc<Driver>,
    worker: Worker,
    backend: Arc<dyn Backend>,
}

impl ReaperTask {
    pub(super) fn new(client: &Arc<Driver>, worker: Worker, backend: Arc<dyn Backend>) -> Self {
        Self { client: Arc::clone(client), worker, backend }
    }

    pub(super) async fn run(self) {
        let (client, mut sent) = (&self.client, FuturesUnordered::new());
        while let Some((batch, pause)) = self.work() {
            for (number, release) in batch {
                sent.push(self.send(number, release));
            }
            tokio::select! {
                biased;
                Some((number, outcome)) = sent.next() => self.answered(number, outcome),
                () = client.reaper.wake.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
        // The one in charge may be another worker by now, and this one may have received its notification.
        client.reaper.wake.notify_one();
    }

    /// `None` if it is done.
    fn work(&self) -> Option<ReleaseWork> {
        lock(&self.client.reaper.releases).next(self.worker, self.client.clock.now())
    }

    fn send(&self, number: u64, release: PendingRelease) -> BoxFuture<'static, (u64, ReleaseOutcome)> {
        let (backend, clock) = (Arc::clone(&self.backend), Arc::clone(&self.client.clock));
        Box::pin(async move {
            let sent = clock.now();
            let answer = backend.release(&release.key, &release.holder).await;
            let outcome = ReleaseOutcome::of(&release, sent, &answer, clock.now());
            match (answer, outcome) {
                (Ok(outcome), _) => {
                    tracing::trace!(key = %release.key, holder = %release.holder, ?outcome, "given up");
                }
                (Err(cause), ReleaseOutcome::GivenUp) => {
                    tracing::warn!(key = %release.key, %cause, "could not release; the lease will end by itself");
                }
                (Err(cause), _) => tracing::debug!(key = %release.key, %cause, "release failed, trying again"),
            }
            (number, outcome)
        })
    }

    fn answered(&self, number: u64, outcome: ReleaseOutcome) {
        let mut releases = lock(&self.client.reaper.releases);
        releases.answered(number, outcome, self.client.clock.now(), self.client.rng.next());
        self.client.notify_settled(releases);
    }

    /// If the process ends first, the leases expire.
    fn start_thread(client: &Arc<Driver>, worker: Worker) {
        let backend = client.backend.reconnected().unwrap_or_else(|| Arc::clone(&client.backend));
        let task = Self::new(client, worker, backend);
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(task.run()),
            Err(error) => tracing::warn!(%error, "no runtime for releases"),
        };
        // A task that cannot run is dropped, and stops.
        if let Err(error) = std::thread::Builder::new().name("fencelock-release".into()).spawn(run) {
            tracing::warn!(%error, "no thread for releases");
        }
    }
}

/// The runtime has ended, and with it all requests in flight, or the worker is done.
impl Drop for ReaperTask {
    fn drop(&mut self) {
        // A forked child drops a copy.
        if !self.client.identity.process.is_current() {
            return;
        }
        let mut releases = lock(&self.client.reaper.releases);
        match releases.ended(self.worker) {
            WorkerEnd::Replaced => {}
            WorkerEnd::OfRuntime(next) => {
                drop(releases);
                if let Some(worker) = next {
                    Self::start_thread(&self.client, worker);
                }
                self.client.wait_for_releases();
            }
            WorkerEnd::GivenUp(left) => {
                self.client.notify_settled(releases);
                if left > 0 {
                    tracing::warn!(left, "releases were given up; the leases will end by themselves");
                }
            }
        }
    }
}

// The end of the program. When `main` returns, or calls `exit`, tasks no longer run, and threads are not waited for; so the
// main thread waits for the releases itself, if the system runs the destructors of its thread-local values (as Linux with
// glibc).

thread_local! {
    static AT_EXIT: AtExit =
        AtExit { is_main: std::thread::current().name() == Some("main"), clients: RefCell::default() };
}

struct AtExit {
    /// Other threads may end while the program continues.
    is_main: bool,
    clients: RefCell<Vec<Weak<Driver>>>,
}

impl AtExit {
    fn watch(&self, client: &Arc<Driver>) {
        if !self.is_main {
            return;
        }
        let mut clients = self.clients.borrow_mut();
        if clients.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(client))) {
            return;
        }
        if clients.len().is_power_of_two() {
            clients.retain(|known| known.strong_count() > 0);
        }
        clients.push(Arc::downgrade(client));
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let clients: Vec<_> = self.clients.take().iter().filter_map(Weak::upgrade).collect();
        // All clients send before the first is waited for. Work that was left to a runtime may not be completed.
        for client in clients.iter().filter(|client| client.identity.process.is_current()) {
            client.stop();
            let next = lock(&client.reaper.releases).take_over();
            // The task may wait for a notification, but does not run any more to pass it on.
            client.reaper.wake.notify_one();
            if let Some(worker) = next {
                ReaperTask::start_thread(client, worker);
            }
        }
        for client in &clients {
            client.wait_for_releases();
        }
    }
}

/// If this is the main thread, its end waits for the releases of this client.
pub(crate) fn watch_exit(client: &Arc<Driver>) {
    // This fails only while the thread ends, when it is too late to register.
    let _ = AT_EXIT.try_with(|exit| exit.watch(client));
}
