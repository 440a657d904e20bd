//! One task renews all leases of a client. Which leases, and when, is decided by [`LeaseTimers`] and [`RenewalPass`].

use super::Driver;
use super::key_cell::{KeyActions, KeyCell};
use fencelock_core::engine::{HoldId, LeaseTimers, RenewalBatch, RenewalPass};
use fencelock_core::{Moment, Renew, Unknown};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The timers of all holds.
#[derive(Debug, Default)]
pub(super) struct Timers {
    table: Mutex<LeaseTimers<Arc<KeyCell>>>,
    /// The task has ended, or was requested to end.
    stopped: AtomicBool,
    changed: Notify,
}

impl Timers {
    /// Called under the lock of the key, so that two calls cannot move one timer in the wrong order.
    pub(super) fn apply(&self, cell: &Arc<KeyCell>, out: &KeyActions) {
        let mut actions = out.iter().filter(|action| action.is_of_timers()).peekable();
        if actions.peek().is_none() {
            return;
        }
        let mut table = self.table();
        let wakes = actions.fold(false, |wakes, action| wakes | table.apply(cell, action));
        drop(table);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Whether the task has ended, or was requested to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the task.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(super) fn table(&self) -> MutexGuard<'_, LeaseTimers<Arc<KeyCell>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn renew_leases(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        // Outside the future: a runtime that ends before it has polled the task also stops the timers.
        let stop = StopRenewals(self);
        async move {
            let driver = &stop.0;
            loop {
                driver.renew();
                if driver.timers.is_stopped() {
                    return;
                }
                let sleep = driver.timers.table().sleep(driver.clock.now());
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
            let due = self.timers.table().take_before(before);
            for (at, cell, hold) in due {
                let duty = cell.hold_due(hold, pass.firing(at));
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
        let sent = batch.sent();
        for (cell, hold, answer) in batch.answers(reply, &self.config.backend) {
            self.on_renewal(&cell, hold, sent, answer);
        }
    }

    fn on_renewal(&self, cell: &Arc<KeyCell>, hold: HoldId, sent: Moment, answer: Result<Renew, Unknown>) {
        let lag = self.clock.now().since(sent);
        cell.with(|engine, cx| {
            let lease = engine.lease_mut(hold).and_then(|lease| lease.as_ref());
            // A hold that was released meanwhile has no news.
            let is_news = lease.is_some_and(|lease| lease.on_renewal(sent, &answer));
            self.telemetry.renewed(cx.key, engine.rest(hold, cx.now), lag, &answer, is_news);
            let announced = answer.is_ok() && self.backend.announces_waiters(cx.key);
            engine.renewal_answered(hold, sent, answer, announced, cx);
        });
    }
}
