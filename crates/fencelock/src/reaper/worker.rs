use super::{State, Worker};
use crate::driver::Driver;
use fencelock_core::engine::{PendingRelease, ReleaseOutcome};
use fencelock_core::{Backend, BoxFuture};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Timers stop while the machine is suspended, so a sleep is never longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Sends the releases, on the runtime of the client or of a thread.
#[derive(Debug)]
pub(super) struct ReaperTask {
    client: Arc<Driver>,
    worker: Worker,
    backend: Arc<dyn Backend>,
    wake: Arc<Notify>,
}

/// What to send now, and after which pause there is more.
type Work = (Vec<(u64, PendingRelease)>, Option<Duration>);

impl ReaperTask {
    /// The task of the client.
    pub(super) fn of(client: &Arc<Driver>) -> Self {
        let (backend, wake) = (Arc::clone(&client.backend), Arc::clone(&client.reaper.state().wake));
        Self { client: Arc::clone(client), worker: Worker::Task, backend, wake }
    }

    /// The task ends when all clients and guards are dropped and the queue is empty; the thread when the queue is empty.
    pub(super) async fn run(self) {
        let mut sent = FuturesUnordered::new();
        while let Some((batch, pause)) = self.work() {
            for (number, release) in batch {
                sent.push(self.send(number, release));
            }
            tokio::select! {
                Some((number, outcome)) = sent.next() => self.answered(number, outcome),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// `None` if it is done.
    fn work(&self) -> Option<Work> {
        let mut state = self.client.reaper.state();
        if !self.is_in_charge(&state) {
            return None;
        }
        if state.queue.pending() == 0 && (state.closed || self.worker == Worker::Thread) {
            state.worker = Worker::None;
            return None;
        }
        let now = self.client.clock.now();
        let batch = state.queue.next(now);
        Some((batch, state.queue.due().map(|due| due.since(now).min(LONGEST_SLEEP))))
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
        let mut state = self.client.reaper.state();
        state.queue.answered(number, outcome, self.client.clock.now(), self.client.rng.next());
        state.unresponsive &= !matches!(outcome, ReleaseOutcome::Confirmed(_));
        self.client.notify_settled(state);
    }

    /// Another worker may have taken over.
    fn is_in_charge(&self, state: &State) -> bool {
        state.worker == self.worker && Arc::ptr_eq(&state.wake, &self.wake)
    }

    /// No task on the runtime of the client will send a release any more, and no reply arrives there.
    pub(super) fn take_over(client: &Arc<Driver>, mut state: MutexGuard<'_, State>) {
        state.queue.recall();
        if state.queue.pending() == 0 {
            state.worker = Worker::None;
        } else {
            Self::start_thread(client, state);
        }
    }

    /// If the process ends first, the leases expire.
    pub(super) fn start_thread(client: &Arc<Driver>, mut state: MutexGuard<'_, State>) {
        let wake = Arc::new(Notify::new());
        (state.worker, state.wake) = (Worker::Thread, Arc::clone(&wake));
        drop(state);
        let backend = client.backend.reconnected().unwrap_or_else(|| Arc::clone(&client.backend));
        let task = Self { client: Arc::clone(client), worker: Worker::Thread, backend, wake };
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(task.run()),
            Err(error) => tracing::warn!(%error, "no runtime for releases"),
        };
        // A task that cannot run is dropped, and stops.
        if let Err(error) = std::thread::Builder::new().name("fencelock-release".into()).spawn(run) {
            tracing::warn!(%error, "no thread for releases");
        }
    }

    fn abandon(&self, mut state: MutexGuard<'_, State>) {
        let left = state.queue.clear();
        self.client.notify_settled(state);
        if left > 0 {
            tracing::warn!(left, "releases were given up; the leases will end by themselves");
        }
    }
}

/// The runtime has ended, and with it all requests in flight.
impl Drop for ReaperTask {
    fn drop(&mut self) {
        // A forked child drops a copy.
        if !self.client.identity.process.is_current() {
            return;
        }
        let mut state = self.client.reaper.state();
        if !self.is_in_charge(&state) {
            return;
        }
        if self.worker == Worker::Task {
            Self::take_over(&self.client, state);
            self.client.settle();
        } else {
            // The worker panicked, and would panic again.
            state.worker = Worker::None;
            self.abandon(state);
        }
    }
}
