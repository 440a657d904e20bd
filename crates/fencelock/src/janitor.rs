//! Gives up what nobody waits for any more: dropped guards, cancelled attempts, failed releases.

use crate::identity::dice;
use fencelock_core::{Backend, Clock, HolderId, Key, Moment, jitter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};

/// Releases at one time: more would only stand in the connection's queue.
const AT_ONCE: usize = 64;
/// A request that was on its way when its attempt was given up has arrived by then, or its connection is gone.
pub(crate) const STRAGGLER: Duration = Duration::from_secs(1);
/// How long a key handed to an attempt that was given up is still handed on at once.
const REMEMBERED: Duration = Duration::from_mins(1);
/// Without a runtime there is nobody to report to: a release that takes longer is left to the lease.
const LAST_RESORT: Duration = Duration::from_secs(2);

/// Takes chores from anywhere. The task that does them is [`Desk::run`]; it ends after the last of these is gone and all
/// is done.
#[derive(Debug)]
pub(crate) struct Janitor {
    office: Arc<Office>,
    queue: mpsc::UnboundedSender<Chore>,
}

/// What is known of the chores.
#[derive(Debug)]
struct Office {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    pending: AtomicUsize,
    idle: Notify,
    abandoned: Mutex<HashMap<HolderId, Moment>>,
    orphans: Mutex<Orphans>,
}

/// Chores whose runtime has ended, and whether a thread is at them.
#[derive(Debug, Default)]
struct Orphans {
    chores: Vec<Chore>,
    seen_to: bool,
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
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> (Arc<Self>, Desk) {
        let (queue, chores) = mpsc::unbounded_channel();
        let office = Arc::new(Office {
            backend,
            clock,
            pending: AtomicUsize::new(0),
            idle: Notify::new(),
            abandoned: Mutex::default(),
            orphans: Mutex::default(),
        });
        (Arc::new(Self { office: Arc::clone(&office), queue }), Desk { office, chores })
    }

    /// Never blocks, and works on any thread, with or without a runtime.
    pub(crate) fn take(&self, chore: Chore) {
        if chore.unanswered {
            self.office.remember(chore.holder);
        }
        self.office.pending.fetch_add(1, Ordering::SeqCst);
        if let Err(mpsc::error::SendError(chore)) = self.queue.send(chore) {
            Office::adopt(&self.office, vec![chore]);
        }
    }

    /// A key was handed to a holder that does not wait here. If it is one that was given up, the key is handed on.
    pub(crate) fn handed_to_nobody(&self, key: &Key, holder: HolderId) {
        if self.office.knows(holder) {
            let until = self.office.clock.now() + STRAGGLER;
            self.take(Chore { key: key.clone(), holder, until, unanswered: false });
        }
    }

    /// Releases that are not confirmed yet.
    pub(crate) fn pending(&self) -> usize {
        self.office.pending.load(Ordering::SeqCst)
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
}

/// The janitor's task. If its runtime is shut down, what it has not done is done by a thread.
#[derive(Debug)]
pub(crate) struct Desk {
    office: Arc<Office>,
    chores: mpsc::UnboundedReceiver<Chore>,
}

impl Desk {
    /// It ends when every client and guard is gone and the queue is empty.
    pub(crate) async fn run(mut self) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        while let Some(chore) = self.chores.recv().await {
            let job = Job { office: Arc::clone(&self.office), chore: Some(chore) };
            // It is never closed.
            let place = Arc::clone(&places).acquire_owned().await;
            tokio::spawn(async move {
                job.run().await;
                drop(place);
            });
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.chores.close();
        let left: Vec<_> = std::iter::from_fn(|| self.chores.try_recv().ok()).collect();
        Office::adopt(&self.office, left);
    }
}

/// One chore under way.
#[derive(Debug)]
struct Job {
    office: Arc<Office>,
    chore: Option<Chore>,
}

impl Job {
    async fn run(mut self) {
        if let Some(chore) = &self.chore {
            self.office.work(chore).await;
        }
        self.chore = None;
        self.office.done(1);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        Office::adopt(&self.office, self.chore.take().into_iter().collect());
    }
}

impl Office {
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

    fn done(&self, chores: usize) {
        if self.pending.fetch_sub(chores, Ordering::SeqCst) == chores {
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

    fn orphans(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime of the client has ended, so a thread of its own sends the releases. If the process ends first, the
    /// leases do the rest.
    fn adopt(office: &Arc<Self>, chores: Vec<Chore>) {
        if chores.is_empty() {
            return;
        }
        let mut orphans = office.orphans();
        orphans.chores.extend(chores);
        if std::mem::replace(&mut orphans.seen_to, true) {
            return;
        }
        drop(orphans);
        let me = Arc::clone(office);
        let thread = std::thread::Builder::new().name("fencelock-release".into()).spawn(move || me.see_to_orphans());
        if let Err(error) = thread {
            tracing::warn!(%error, "no thread for releases; the leases will end by themselves");
            let mut orphans = office.orphans();
            orphans.seen_to = false;
            office.done(std::mem::take(&mut orphans.chores).len());
        }
    }

    fn see_to_orphans(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        loop {
            let chores = {
                let mut orphans = self.orphans();
                orphans.seen_to = !orphans.chores.is_empty();
                std::mem::take(&mut orphans.chores)
            };
            if chores.is_empty() {
                return;
            }
            if let Ok(runtime) = &runtime {
                let work = async {
                    for chore in &chores {
                        self.release(chore).await;
                    }
                };
                // When the time is over, what is left ends with its lease.
                let _ = runtime.block_on(async { tokio::time::timeout(LAST_RESORT, work).await });
            }
            self.done(chores.len());
        }
    }
}
