//! Gives up what nobody waits for any more: dropped guards, cancelled attempts, failed releases.

use crate::identity::dice;
use fencelock_core::{Backend, Clock, HolderId, Key, Moment, jitter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};

/// Releases at one time: more would only stand in the connection's queue.
const AT_ONCE: usize = 64;
/// A request that was on its way when its attempt was given up has arrived by then, or its connection is gone.
const STRAGGLER: Duration = Duration::from_secs(1);
/// How long a key handed to an attempt that was given up is still handed on at once.
const REMEMBERED: Duration = Duration::from_mins(1);
/// Without a runtime there is nobody to report to: a release that takes longer is left to the lease.
const LAST_RESORT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Janitor {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    queue: mpsc::UnboundedSender<Chore>,
    pending: AtomicUsize,
    idle: Notify,
    abandoned: Mutex<HashMap<HolderId, Moment>>,
}

/// One hold or place in line to give up.
#[derive(Debug, Clone)]
pub(crate) struct Chore {
    pub(crate) key: Key,
    pub(crate) holder: HolderId,
    /// By then it has ended by itself.
    pub(crate) until: Moment,
    /// A request of this holder may still be on its way, and may arrive after the release.
    pub(crate) unanswered: bool,
}

impl Janitor {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> (Arc<Self>, mpsc::UnboundedReceiver<Chore>) {
        let (queue, chores) = mpsc::unbounded_channel();
        let janitor = Self {
            backend,
            clock,
            queue,
            pending: AtomicUsize::new(0),
            idle: Notify::new(),
            abandoned: Mutex::default(),
        };
        (Arc::new(janitor), chores)
    }

    /// Never blocks, and works on any thread, with or without a runtime.
    pub(crate) fn take(self: &Arc<Self>, chore: Chore) {
        if chore.unanswered {
            self.remember(chore.holder);
        }
        self.pending.fetch_add(1, Ordering::SeqCst);
        if let Err(mpsc::error::SendError(chore)) = self.queue.send(chore) {
            self.last_resort(chore);
        }
    }

    /// A key was handed to a holder that does not wait here. If it is one that was given up, the key is handed on.
    pub(crate) fn handed_to_nobody(self: &Arc<Self>, key: &Key, holder: HolderId) {
        let known = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&holder);
        if known {
            let until = self.clock.now() + STRAGGLER;
            self.take(Chore { key: key.clone(), holder, until, unanswered: false });
        }
    }

    /// Releases that are not confirmed yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Waits until nothing is pending.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// The task. It ends when every client and guard is gone and the queue is empty.
    pub(crate) async fn run(janitor: std::sync::Weak<Self>, mut chores: mpsc::UnboundedReceiver<Chore>) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        while let Some(chore) = chores.recv().await {
            let Some(janitor) = janitor.upgrade() else { return };
            let place = Arc::clone(&places).acquire_owned().await;
            tokio::spawn(async move {
                janitor.work(&chore).await;
                janitor.done();
                drop(place);
            });
        }
    }

    async fn work(&self, chore: &Chore) {
        let confirmed = self.release(chore).await;
        if confirmed && chore.unanswered {
            tokio::time::sleep(STRAGGLER).await;
            self.release(chore).await;
        }
    }

    /// Until it is confirmed, or has ended by itself.
    async fn release(&self, chore: &Chore) -> bool {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.backend.release(&chore.key, &chore.holder).await {
                Ok(outcome) => {
                    tracing::trace!(key = %chore.key, holder = %chore.holder, ?outcome, "given up");
                    return true;
                }
                Err(cause) if cause.is_permanent() || self.clock.now() >= chore.until => {
                    tracing::warn!(key = %chore.key, %cause, "could not release; the lease will end by itself");
                    return false;
                }
                Err(cause) => tracing::debug!(key = %chore.key, %cause, "release failed, trying again"),
            }
            tokio::time::sleep(jitter(pause, dice())).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn done(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.idle.notify_waiters();
        }
    }

    fn remember(&self, holder: HolderId) {
        let now = self.clock.now();
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.retain(|_, until| now < *until);
        abandoned.insert(holder, now + REMEMBERED);
    }

    /// The runtime of the client has ended, so a thread of its own sends the release. If the process ends first, the
    /// lease does the rest.
    fn last_resort(self: &Arc<Self>, chore: Chore) {
        let janitor = Arc::clone(self);
        let release = move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let release = janitor.release(&chore);
                let _ = runtime.block_on(async { tokio::time::timeout(LAST_RESORT, release).await });
            }
            janitor.done();
        };
        if let Err(error) = std::thread::Builder::new().name("fencelock-release".into()).spawn(release) {
            tracing::warn!(%error, "no thread for a release; the lease will end by itself");
            self.done();
        }
    }
}
