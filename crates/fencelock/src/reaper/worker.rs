use crate::driver::Driver;
use fencelock_core::engine::{PendingRelease, ReleaseOutcome, ReleaseWork, Worker, WorkerEnd};
use fencelock_core::{Backend, BoxFuture};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;

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
        self.client.reaper.releases().next(self.worker, self.client.clock.now())
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
        let mut releases = self.client.reaper.releases();
        releases.answered(number, outcome, self.client.clock.now(), self.client.rng.next());
        self.client.notify_settled(releases);
    }

    /// If the process ends first, the leases expire.
    pub(super) fn start_thread(client: &Arc<Driver>, worker: Worker) {
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
        let mut releases = self.client.reaper.releases();
        match releases.ended(self.worker) {
            WorkerEnd::Replaced => {}
            WorkerEnd::OfRuntime(next) => {
                drop(releases);
                if let Some(worker) = next {
                    Self::start_thread(&self.client, worker);
                }
                self.client.settle();
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
