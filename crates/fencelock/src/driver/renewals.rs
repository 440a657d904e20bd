//! One task renews all leases of a client, in the order of their deadlines and in batches. No batch waits for another one.

use super::Driver;
use super::key_cell::KeyCell;
use fencelock_core::engine::{Duty, HoldId};
use fencelock_core::{Fault, Moment, Renew, Renewal, RenewalPlan, Span, Unknown};
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Timers stop while the machine is suspended, so no sleep is longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// With many short holds, the task sleeps at least this long: no first renewal of a hold is earlier.
const SHORT_HOLDS: Duration = Duration::from_millis(25);
/// A batch includes the leases that are due within this time: very many leases need forty large batches per second instead of a
/// thousand small ones.
const TOGETHER: Duration = Duration::from_millis(25);
/// The maximum number of renewals in one batch: large enough to amortize the round trip, small enough for a reply within
/// milliseconds.
const BATCH: usize = 1000;

/// The timers of all holds.
#[derive(Debug)]
pub(super) struct Timers {
    table: Mutex<Table>,
    /// The task has ended, or was requested to end.
    stopped: AtomicBool,
    changed: Notify,
}

#[derive(Debug)]
struct Table {
    /// In the order of time. The key and the number identify a hold.
    due: BTreeMap<(Moment, usize, HoldId), Arc<KeyCell>>,
    holds: usize,
    asleep_until: Moment,
    /// Whether timers were set since the task last slept.
    busy: bool,
}

impl Default for Timers {
    fn default() -> Self {
        let (due, asleep_until) = (BTreeMap::new(), Moment::NEVER);
        let table = Mutex::new(Table { due, holds: 0, asleep_until, busy: false });
        Self { table, stopped: AtomicBool::new(false), changed: Notify::new() }
    }
}

/// A lease that is about to be renewed.
struct Due {
    cell: Arc<KeyCell>,
    hold: HoldId,
    renewal: Renewal,
    /// When the renewal was decided. The task that sends it may start later.
    decided: Moment,
}

impl Timers {
    /// Called under the lock of the key.
    pub(super) fn set(&self, cell: &Arc<KeyCell>, hold: HoldId, from: Moment, to: Moment) {
        let mut table = self.table();
        table.due.remove(&entry(from, cell, hold));
        if to == Moment::NEVER {
            return;
        }
        table.due.insert(entry(to, cell, hold), Arc::clone(cell));
        table.busy = true;
        if to < table.asleep_until {
            table.asleep_until = to;
            drop(table);
            self.changed.notify_one();
        }
    }

    /// Called under the lock of the key.
    pub(super) fn remove(&self, cell: &Arc<KeyCell>, hold: HoldId, at: Moment) {
        let mut table = self.table();
        table.due.remove(&entry(at, cell, hold));
        table.holds = table.holds.saturating_sub(1);
    }

    /// Counts a new hold.
    pub(super) fn add_hold(&self) {
        self.table().holds += 1;
    }

    /// The number of holds.
    pub(super) fn holds(&self) -> usize {
        self.table().holds
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table().due.len()
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

    /// Removes and returns the timers that are due before `moment`.
    fn take_before(&self, moment: Moment) -> Vec<(Moment, Arc<KeyCell>, HoldId)> {
        let mut table = self.table();
        let mut due = Vec::new();
        while let Some(first) = table.due.first_entry().filter(|first| first.key().0 < moment) {
            let ((moment, _, hold), cell) = first.remove_entry();
            due.push((moment, cell, hold));
        }
        due
    }

    /// How long to sleep; `None` if the task must end.
    fn sleep(&self, now: Moment) -> Option<Duration> {
        if self.is_stopped() {
            return None;
        }
        let mut table = self.table();
        let mut next = table.due.first_key_value().map_or(Moment::NEVER, |((moment, ..), _)| *moment);
        if std::mem::take(&mut table.busy) {
            // Waking this task for each of many short holds would cost as much as the holds.
            next = next.min(now + SHORT_HOLDS);
        }
        table.asleep_until = next;
        // Without a hold, no lease can end while the machine is suspended, so the sleep may be long.
        Some(if next == Moment::NEVER { Duration::from_secs(3600) } else { next.since(now).min(LONGEST_SLEEP) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(moment: Moment, cell: &Arc<KeyCell>, hold: HoldId) -> (Moment, usize, HoldId) {
    (moment, Arc::as_ptr(cell).addr(), hold)
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
    pub(crate) fn renew_leases(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        // Outside the future: a runtime that ends before it has polled the task also stops the timers.
        let stop = StopRenewals(self);
        async move {
            let driver = &stop.0;
            loop {
                driver.renew(driver.due());
                let Some(sleep) = driver.timers.sleep(driver.clock.now()) else { return };
                tokio::select! {
                    () = driver.timers.changed.notified() => {}
                    () = tokio::time::sleep(sleep) => {}
                }
            }
        }
    }

    /// The leases that need a renewal now.
    fn due(&self) -> Vec<Due> {
        let mut renewals = Vec::new();
        // Timers that are due in the same millisecond go into the same batch.
        let decided = self.clock.now();
        let horizon = decided + Duration::from_millis(1);
        for ahead in [Duration::ZERO, TOGETHER] {
            for (fired, cell, hold) in self.timers.take_before(horizon + ahead) {
                let duty = cell.hold_due(hold, fired, ahead, horizon);
                if let Duty::Renew(renewal) = duty {
                    renewals.push(Due { cell, hold, renewal, decided });
                }
            }
            if renewals.is_empty() {
                break;
            }
        }
        renewals
    }

    fn renew(self: &Arc<Self>, due: Vec<Due>) {
        // Each group is one request. The timeout of its reply depends on the shortest lease of the batch, so no other lease may
        // be twice as long.
        let class =
            |due: &Due| (self.backend.renewal_group(&due.renewal.key), due.renewal.ttl.as_millis().checked_ilog2());
        let mut due: Vec<_> = due.into_iter().map(|due| (class(&due), due)).collect();
        due.sort_by_key(|(class, _)| std::cmp::Reverse(*class));
        while let Some(first) = due.last().map(|(class, _)| *class) {
            let alike = due.iter().rev().take(BATCH).take_while(|(class, _)| *class == first).count();
            let batch = due.drain(due.len() - alike..).map(|(_, due)| due).collect();
            // A separate task, so that an unresponsive server does not delay the next batch.
            tokio::spawn(Arc::clone(self).renew_batch(batch));
        }
    }

    async fn renew_batch(self: Arc<Self>, due: Vec<Due>) {
        let sent = self.clock.now();
        let (mut leases, mut renewals) = (Vec::with_capacity(due.len()), Vec::with_capacity(due.len()));
        for Due { cell, hold, mut renewal, decided } in due {
            leases.push((cell, hold));
            renewal.assumed = renewal.assumed.saturating_sub(sent.since(decided));
            renewals.push(renewal);
        }
        // A slower reply is abandoned, so that there is time for a retry.
        let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
        let limit = RenewalPlan::answer_limit(shortest);
        let failed =
            |fault, text: &str| vec![Err(Unknown::new(self.config.backend.clone(), fault, text)); leases.len()];
        // Without an answer, a lease would never be renewed again, so a panic of the backend is one.
        let requested =
            AssertUnwindSafe(tokio::time::timeout(limit, self.backend.renew(&renewals))).catch_unwind().await;
        let answers = match requested {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => failed(Fault::Timeout, &format!("timeout of a renewal: {}", Span(limit))),
            Err(_) => failed(Fault::Other, "the renewal panicked"),
        };
        debug_assert_eq!(answers.len(), leases.len(), "a reply for every renewal");
        // A backend that returns too few answers has not answered the others.
        let missing =
            std::iter::repeat_with(|| Err(Unknown::new(self.config.backend.clone(), Fault::Other, "no answer")));
        for ((cell, hold), answer) in leases.into_iter().zip(answers.into_iter().chain(missing)) {
            self.on_renewal(&cell, hold, sent, answer);
        }
    }

    fn on_renewal(&self, cell: &Arc<KeyCell>, hold: HoldId, sent: Moment, answer: Result<Renew, Unknown>) {
        let lag = self.clock.now().since(sent);
        cell.with(|engine, cx| {
            let lease = engine.lease_mut(hold).and_then(|lease| lease.as_ref());
            // A hold that was released meanwhile has no news.
            let is_news = lease.is_some_and(|lease| lease.note_renewal(sent, &answer));
            self.telemetry.renewed(cx.key, engine.rest(hold, cx.now), lag, &answer, is_news);
            let announced = answer.is_ok() && self.backend.announces_waiters(cx.key);
            engine.renewal_answered(hold, sent, answer, announced, cx);
        });
    }
}
