//! Executes the decisions of the engine: timers, requests, wake-ups. The decisions are in [`fencelock_core::engine`].
//!
//! Each key has a [`KeyCell`] with its engine behind one lock, which is never held across an await point or a wake-up. The order
//! of locks: the map of keys, never together with another; a key cell, then the timers.
//!
//! | file | what |
//! |---|---|
//! | `key_cell` | a key with its engine behind one lock; all keys of a client; what the guards of one hold share, also after its end |
//! | `key_task` | a task that waits for a key |
//! | `reaper` | releases in the background |

mod key_cell;
mod key_task;
mod reaper;

use crate::closing::Closing;
use crate::error::{Error, unreachable_once};
use crate::identity::{ClientRng, Identity};
use crate::outage_log::OutageLog;
use crate::telemetry::Telemetry;
use fencelock_core::engine::{Action, Config, HoldId, LeaseTimers, RenewalBatch, RenewalPass, SharingLimits, Worker};
use fencelock_core::{Backend, Clock, Drift, Event, Fault, Invalid, Key, Listener, Mode, Moment, Renew, Unknown, lock};
use futures_util::FutureExt;
pub(crate) use key_cell::{Engine, HeldLease, KeyCell, LeaseWaker};
use key_cell::{KeyActions, Keys};
pub(crate) use key_task::{acquire, resume, time_until};
pub(crate) use reaper::watch_exit;
use reaper::{Reaper, ReaperTask};
use std::fmt;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Longer than a busy runtime needs to run a task that was woken. A task that was only slow loses nothing but time.
const TURN_LIMIT: Duration = Duration::from_secs(2);
/// The leases of a batch whose renewal has failed that the log names. It counts the others: a thousand lines would say no more.
const NAMED: usize = 10;

/// The state that the clones of a client, its locks and its guards share. Dropping the last of them ends the tasks of the client.
#[derive(Debug)]
pub(crate) struct ClientInner {
    driver: Arc<Driver>,
}

impl Deref for ClientInner {
    type Target = Arc<Driver>;

    fn deref(&self) -> &Arc<Driver> {
        &self.driver
    }
}

impl ClientInner {
    /// Starts the client's two tasks on the current runtime.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        drift: Drift,
        rng: ClientRng,
        sharing: Option<SharingLimits>,
    ) -> Result<Arc<Self>, Error> {
        let capabilities = backend.capabilities();
        let sharing = sharing.map(|limits| limits.check(&capabilities)).transpose()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Invalid::new("a client needs a tokio runtime; without one, use fencelock::blocking::Client")
        })?;
        // A runtime without timers could neither renew nor wait: tokio panics here, and not later in a task.
        drop(tokio::time::sleep(Duration::ZERO));
        let identity = Identity::of_this_process()?;
        let turn_limit = Some(TURN_LIMIT);
        let config = Config { backend: backend.name(), capabilities, drift, sharing, turn_limit };
        let driver = Arc::new_cyclic(|this| Driver {
            backend,
            clock,
            rng,
            identity,
            telemetry: Telemetry::of(&config.backend),
            config,
            reaper: Reaper::default(),
            closing: Arc::default(),
            keys: Keys::default(),
            timers: Timers::default(),
            outages: OutageLog::default(),
            this: Weak::clone(this),
        });
        watch_exit(&driver);
        let listener: Arc<dyn Listener> = Arc::<Driver>::clone(&driver);
        driver.backend.listen(listener);
        runtime.spawn(Arc::clone(&driver).renew_leases());
        // Until all are sent after [`Driver::stop_reaping`].
        runtime.spawn(ReaperTask::new(&driver, Worker::TASK, Arc::clone(&driver.backend)).run());
        Ok(Arc::new(Self { driver }))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.driver.stop();
        self.driver.stop_reaping();
    }
}

/// The state that the tasks, locks and guards of a client share.
pub(crate) struct Driver {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: ClientRng,
    pub(crate) identity: Identity,
    pub(crate) config: Config,
    pub(crate) telemetry: Telemetry,
    pub(crate) reaper: Reaper,
    pub(crate) closing: Arc<Closing>,
    pub(crate) keys: Keys,
    timers: Timers,
    outages: OutageLog,
    /// For the events of the backend, which come without an [`Arc`].
    this: Weak<Self>,
}

impl Driver {
    /// From now on, refuses new claims, and ends the waiting ones.
    pub(crate) fn close(&self) {
        self.closing.begin();
        self.end_waits();
    }

    /// Whether claims may begin, and leases without a task are kept for the next one.
    fn is_open(&self) -> bool {
        !self.timers.is_stopped() && !self.closing.has_begun()
    }

    /// Stops the renewals, refuses new claims and ends the waiting ones, and releases the leases that no task uses. In a forked
    /// child, the leases belong to the parent.
    pub(crate) fn stop(&self) {
        if self.identity.process.is_current() {
            // First, by this thread: the task of the renewals does the same as soon as the timers are stopped, and the end of the
            // program would not wait for what that task has taken and not added to the releases yet.
            self.end_waits();
            self.timers.stop();
            self.end_waits();
        }
    }

    /// Wakes the tasks that wait, which then find out why they may not, and releases the leases that no task uses.
    fn end_waits(&self) {
        for cell in self.keys.all() {
            cell.with(Engine::close);
        }
    }

    /// After the client was closed, waits until nothing is held, no task waits or claims, and every release is confirmed.
    pub(crate) async fn drained(&self) {
        // In this order: what ends has been added to what is looked at next.
        let is_over = || self.keys.is_empty() && !self.closing.is_releasing() && self.reaper.pending() == 0;
        self.closing.until(is_over).await;
    }

    /// See [`Action::Queued`](fencelock_core::engine::Action::Queued).
    fn queued_here(&self, cell: &KeyCell) {
        for other in self.keys.of_key(&cell.key).filter(|other| other.mode != cell.mode) {
            other.with(Engine::on_queued);
        }
    }

    /// Removes a key that no task waits for or holds.
    fn forget(&self, cell: &KeyCell) {
        self.keys.forget(cell);
        self.closing.emptied();
    }

    /// Whether a claim may begin.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing.has_begun() {
            return Err(self.closed_error());
        }
        if self.runtime_has_ended() {
            let text = "the runtime of this client has ended, so nothing would renew its leases: connect a client on this runtime";
            return Err(Invalid::new(text).into());
        }
        Ok(())
    }

    /// The error of a request that was sent once. The connections of the backend end with the runtime.
    pub(crate) fn failed(&self, key: Option<&Key>, cause: Unknown) -> Error {
        if self.runtime_has_ended() && !cause.is_permanent() {
            let text =
                "the runtime of this client has ended, and its connections with it: connect a client on this runtime";
            return Invalid::new(text).into();
        }
        unreachable_once(key, cause)
    }

    /// The reply to a request that is not about a hold of this client.
    pub(crate) async fn ask<T>(
        &self,
        key: Option<&Key>,
        request: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Error> {
        self.check_process()?;
        request.await.map_err(|cause| self.failed(key, cause))
    }

    fn runtime_has_ended(&self) -> bool {
        self.timers.is_stopped() && self.identity.process.is_current()
    }

    /// In a forked child, the tasks do not run.
    pub(crate) fn check_process(&self) -> Result<(), Invalid> {
        self.identity.process.check()
    }

    /// The result of a request if the wait ended before its reply arrived.
    pub(crate) fn timed_out(&self) -> Unknown {
        Unknown::new(self.config.backend.clone(), Fault::Timeout, "the wait ended before a reply arrived")
    }

    pub(crate) fn closed_error(&self) -> Error {
        let held = lock(&self.timers.table).holds();
        Error::Closed { held, pending: self.reaper.pending() }
    }

    /// The number of holds that are renewed, and of their timers.
    #[cfg(test)]
    pub(crate) fn holds_and_timers(&self) -> (usize, usize) {
        let timers = lock(&self.timers.table);
        (timers.holds(), timers.iter().len())
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.config.backend).finish_non_exhaustive()
    }
}

/// Forwards the events of the backend to the keys that they concern.
impl Listener for Driver {
    fn event(&self, event: &Event) {
        match event {
            Event::Handed { key, holder, tokens, claim_ttl } => {
                let mut cells = self.keys.of_key(key);
                let waits =
                    cells.any(|cell| cell.with(|engine, cx| engine.on_hand_off(*holder, *tokens, *claim_ttl, cx)));
                if let Some(this) = self.this.upgrade().filter(|_| !waits) {
                    this.release_undelivered(key, *holder);
                }
            }
            Event::Changed { key } => self.keys.of_key(key).for_each(|cell| cell.with(Engine::on_changed)),
            Event::Queued { key } => self.keys.of_key(key).for_each(|cell| cell.with(Engine::on_queued)),
            // A reset, or an event that this version does not know: a poll is always correct. Any key may have changed, so all holds are
            // renewed soon.
            _ => {
                for cell in self.keys.all() {
                    let random = self.rng.next();
                    let after = lock(&self.timers.table).after_reset(random);
                    cell.with(|engine, cx| engine.on_reset(after, cx));
                }
            }
        }
    }
}

// One task renews all leases of a client. Which leases, and when, is decided by [`LeaseTimers`] and [`RenewalPass`].

/// The timers of all holds.
#[derive(Default)]
struct Timers {
    /// By the key and the mode of the cell.
    table: Mutex<LeaseTimers<(Key, Mode)>>,
    /// The task has ended, or was requested to end.
    stopped: AtomicBool,
    changed: Notify,
}

impl Timers {
    /// Called under the lock of the key, so that two calls cannot move one timer in the wrong order.
    fn apply(&self, cell: &KeyCell, out: &KeyActions) {
        if !out.iter().any(Action::is_of_timers) {
            return;
        }
        let (mut table, cell) = (lock(&self.table), (cell.key.clone(), cell.mode));
        let wakes = out.iter().fold(false, |wakes, action| wakes | table.apply(&cell, action));
        drop(table);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Whether the task has ended, or was requested to end.
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the task.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }
}

/// Stops the timers when the renewal task ends.
struct StopRenewals(Arc<Driver>);

impl Drop for StopRenewals {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Driver {
    /// The renewal task. It ends after [`Timers::stop`].
    fn renew_leases(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        // Outside the future: a runtime that ends before it has polled the task also stops the timers.
        let stop = StopRenewals(self);
        async move {
            let driver = &stop.0;
            loop {
                driver.renew();
                if driver.timers.is_stopped() {
                    return;
                }
                let sleep = lock(&driver.timers.table).sleep(driver.clock.now());
                tokio::select! {
                    biased;
                    () = driver.timers.changed.notified() => {}
                    () = tokio::time::sleep(sleep) => {}
                }
            }
        }
    }

    /// Renews the leases that need it now.
    fn renew(self: &Arc<Self>) {
        let mut pass = RenewalPass::new(self.clock.now());
        while let Some(before) = pass.round() {
            let due = lock(&self.timers.table).take_before(before);
            for (at, (key, mode), hold) in due {
                let Some(cell) = self.keys.of_key(&key).find(|cell| cell.mode == mode) else { continue };
                let duty = cell.with(|engine, cx| engine.hold_due(hold, pass.firing(at), cx));
                pass.add(cell, hold, duty);
            }
        }
        for batch in pass.batches(|key| self.backend.renewal_group(key)) {
            // A separate task, so that an unresponsive server does not delay the next batch.
            tokio::spawn(Arc::clone(self).renew_batch(batch));
        }
    }

    async fn renew_batch(self: Arc<Self>, mut batch: RenewalBatch<Arc<KeyCell>>) {
        let limit = batch.send(self.clock.now());
        let request = AssertUnwindSafe(tokio::time::timeout(limit, self.backend.renew(&batch.renewals)));
        // Without an answer, a lease would never be renewed again, so a panic of the backend is one.
        let reply = request.catch_unwind().await.map_or_else(|_| Some(Vec::new()), Result::ok);
        let (sent, mut failed) = (batch.sent(), 0);
        for (cell, hold, answer) in batch.answers(reply, &self.config.backend) {
            self.on_renewal(&cell, hold, sent, answer, &mut failed);
        }
        if failed > NAMED {
            tracing::warn!("renewals of {} more leases failed, trying again", failed - NAMED);
        }
    }

    /// `failed` counts those of its batch that are news.
    fn on_renewal(
        &self,
        cell: &Arc<KeyCell>,
        hold: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        failed: &mut usize,
    ) {
        let lag = self.clock.now().since(sent);
        cell.with(|engine, cx| {
            let lease = engine.lease_mut(hold).and_then(|lease| lease.as_ref());
            // A hold that was released meanwhile has no news.
            let is_news = lease.is_some_and(|lease| lease.state().news.on_renewal(sent, &answer));
            *failed += usize::from(is_news && answer.is_err());
            self.telemetry.renewed(cx.key, engine.rest(hold, cx.now), lag, &answer, is_news && *failed <= NAMED);
            let announced = answer.is_ok() && self.backend.announces_waiters(cx.key);
            engine.renewal_answered(hold, sent, answer, announced, cx);
        });
    }
}
