use super::{Reaper, State, Worker};
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
    reaper: Arc<Reaper>,
    worker: Worker,
    backend: Arc<dyn Backend>,
    wake: Arc<Notify>,
}

/// What to send now, and after which pause there is more.
type Work = (Vec<(u64, PendingRelease)>, Option<Duration>);

impl ReaperTask {
    /// The task of the client.
    pub(super) fn of(reaper: &Arc<Reaper>) -> Self {
        let (reaper, backend, wake) =
            (Arc::clone(reaper), Arc::clone(&reaper.backend), Arc::clone(&reaper.state().wake));
        Self { reaper, worker: Worker::Task, backend, wake }
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
        let mut state = self.reaper.state();
        if !self.is_in_charge(&state) {
            return None;
        }
        if state.queue.pending() == 0 && (state.closed || self.worker == Worker::Thread) {
            state.worker = Worker::None;
            return None;
        }
        let now = self.reaper.clock.now();
        let batch = state.queue.next(now);
        Some((batch, state.queue.due().map(|due| due.since(now).min(LONGEST_SLEEP))))
    }

    fn send(&self, number: u64, release: PendingRelease) -> BoxFuture<'static, (u64, ReleaseOutcome)> {
        let (backend, clock) = (Arc::clone(&self.backend), Arc::clone(&self.reaper.clock));
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
        let mut state = self.reaper.state();
        state.queue.answered(number, outcome, self.reaper.clock.now(), self.reaper.rng.next());
        state.unresponsive &= !matches!(outcome, ReleaseOutcome::Confirmed(_));
        self.reaper.notify(state);
    }

    /// Another worker may have taken over.
    fn is_in_charge(&self, state: &State) -> bool {
        state.worker == self.worker && Arc::ptr_eq(&state.wake, &self.wake)
    }
}

/// The runtime has ended, and with it all requests in flight.
impl Drop for ReaperTask {
    fn drop(&mut self) {
        // A forked child drops a copy.
        if !self.reaper.process.is_current() {
            return;
        }
        let mut state = self.reaper.state();
        if !self.is_in_charge(&state) {
            return;
        }
        if self.worker == Worker::Task {
            self.reaper.take_over(state);
            self.reaper.settle();
        } else {
            // The worker panicked, and would panic again.
            state.worker = Worker::None;
            self.reaper.abandon(state);
        }
    }
}

impl Reaper {
    /// No task on the runtime of the client will send a release any more, and no reply arrives there.
    pub(super) fn take_over(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.queue.recall();
        if state.queue.pending() == 0 {
            state.worker = Worker::None;
        } else {
            self.start_thread(state);
        }
    }

    /// If the process ends first, the leases expire.
    pub(super) fn start_thread(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let wake = Arc::new(Notify::new());
        (state.worker, state.wake) = (Worker::Thread, Arc::clone(&wake));
        drop(state);
        let backend = self.backend.reconnected().unwrap_or_else(|| Arc::clone(&self.backend));
        let task = ReaperTask { reaper: Arc::clone(self), worker: Worker::Thread, backend, wake };
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
        self.notify(state);
        if left > 0 {
            tracing::warn!(left, "releases were given up; the leases will end by themselves");
        }
    }
}
