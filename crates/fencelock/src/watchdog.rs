//! One task renews every lease of a client: in the order of their deadlines, in batches, none waiting for another.

use crate::closing::Closing;
use crate::hold::{Duty, End, Hold};
use crate::identity::dice;
use crate::janitor::Janitor;
use crate::telemetry::Telemetry;
use fencelock_core::{Backend, Clock, Fault, HolderId, Key, LossReason, Moment, Renew, RenewalPlan, Unknown};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A hold that has lasted this long is looked at for the first time: a hand-off gets its full lease, and the server is
/// asked to tell of changes. Shorter holds, the common ones, cost nothing of it.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(25);
/// Timers stand still while the machine sleeps, so no nap is longer than this.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// Whoever is renewed takes along those whose time comes this soon: very many leases make forty large batches a second
/// instead of a thousand small ones.
const TOGETHER: Duration = Duration::from_millis(25);
/// Renewals in one batch: enough to make the round trip cheap, few enough to answer in milliseconds.
const BATCH: usize = 1000;

#[derive(Debug)]
pub(crate) struct Watchdog {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    janitor: Arc<Janitor>,
    telemetry: Telemetry,
    table: Mutex<Table>,
    wake: Notify,
    closing: Arc<Closing>,
}

#[derive(Debug)]
struct Table {
    holds: BTreeMap<(Key, HolderId), Arc<Hold>>,
    timers: BTreeMap<(Moment, HolderId), Arc<Hold>>,
    asleep_until: Moment,
    /// Holds came and went since the last look.
    busy: bool,
    stopped: bool,
}

impl Watchdog {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        janitor: Arc<Janitor>,
        closing: Arc<Closing>,
        telemetry: Telemetry,
    ) -> Arc<Self> {
        let table = Table {
            holds: BTreeMap::new(),
            timers: BTreeMap::new(),
            asleep_until: Moment::NEVER,
            busy: false,
            stopped: false,
        };
        let (table, wake) = (Mutex::new(table), Notify::new());
        Arc::new(Self { backend, clock, janitor, telemetry, table, wake, closing })
    }

    /// Looks after a hold until it is forgotten or lost.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        let mut table = self.table();
        if let Some(before) = table.holds.insert((hold.key.clone(), hold.holder), Arc::clone(hold)) {
            // One that was resumed has the key and the holder of the one before it, but is another.
            before.watched.store(false, Ordering::Relaxed);
        }
        hold.watched.store(true, Ordering::Relaxed);
        table.busy = true;
        table.set_timer(hold);
        self.wake_for(&mut table, hold.scheduled());
    }

    /// The hold was let go, so nothing is to be done about it any more. Says whether it was looked after.
    pub(crate) fn forget(&self, hold: &Hold) -> bool {
        let there = self.table().remove(hold);
        self.closing.emptied();
        there
    }

    /// Something happened to this key: look at once.
    pub(crate) fn hurry(&self, key: &Key) {
        let mut table = self.table();
        for hold in table.of_key(key) {
            self.move_forward(&mut table, &hold, Duration::ZERO);
        }
    }

    /// Something may have happened to any key: look at all soon, spread over a while so as not to storm a server that
    /// has just come back.
    pub(crate) fn hurry_all(&self) {
        let mut table = self.table();
        let holds: Vec<_> = table.holds.values().cloned().collect();
        let spread = (holds.len() as u64 * 10).min(1_000_000);
        for hold in holds {
            let after = Duration::from_micros(dice() % (spread + 1));
            self.move_forward(&mut table, &hold, after);
        }
    }

    /// The end of this hold has moved.
    pub(crate) fn reset_timer(&self, hold: &Arc<Hold>) {
        let mut table = self.table();
        if table.has(hold) {
            table.timers.remove(&(hold.scheduled(), hold.holder));
            table.set_timer(hold);
            self.wake_for(&mut table, hold.scheduled());
        }
    }

    /// How many holds it looks after.
    pub(crate) fn holds(&self) -> usize {
        self.table().holds.len()
    }

    /// How many timers it has.
    #[cfg(test)]
    pub(crate) fn timers(&self) -> usize {
        self.table().timers.len()
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.table().stopped = true;
        self.wake.notify_one();
    }

    /// The task. It ends after [`Watchdog::stop`].
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.renew(self.due());
            let Some(nap) = self.nap() else { return };
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    fn move_forward(&self, table: &mut Table, hold: &Arc<Hold>, after: Duration) {
        if hold.hurry(after) {
            table.timers.remove(&(hold.scheduled(), hold.holder));
            table.set_timer(hold);
            self.wake_for(table, hold.scheduled());
        }
    }

    fn wake_for(&self, table: &mut Table, moment: Moment) {
        if moment < table.asleep_until {
            table.asleep_until = moment;
            self.wake.notify_one();
        }
    }

    /// Takes out of the timers what is due, and says which leases need a renewal.
    fn due(&self) -> Vec<Arc<Hold>> {
        let (mut renew, mut ended) = (Vec::new(), Vec::new());
        let mut table = self.table();
        // Whatever is due in the same millisecond goes into the same batch.
        let horizon = self.clock.now() + Duration::from_millis(1);
        let mut ahead = Duration::ZERO;
        let mut early = Vec::new();
        loop {
            while let Some(hold) = table.pop_before(horizon + ahead) {
                match hold.duty(ahead) {
                    Duty::Nothing => {}
                    Duty::Sleep if ahead.is_zero() => {
                        let moment = hold.schedule().max(horizon);
                        table.timers.insert((hold.postpone(moment), hold.holder), hold);
                    }
                    Duty::Sleep => early.push(((hold.scheduled(), hold.holder), hold)),
                    Duty::Renew => renew.push(hold),
                    Duty::Ended(reason) => {
                        table.remove(&hold);
                        ended.push((hold, reason));
                    }
                }
            }
            if renew.is_empty() || !ahead.is_zero() {
                break;
            }
            ahead = TOGETHER;
        }
        table.timers.extend(early);
        drop(table);
        for (hold, reason) in ended {
            self.tell_end(&hold, Some(&reason));
            self.closing.emptied();
        }
        renew
    }

    /// What comes of the end of a hold, told without the table: nobody gets it any more.
    fn tell_end(&self, hold: &Arc<Hold>, lost: Option<&LossReason>) {
        if let Some(reason) = lost {
            self.telemetry.lost(hold, &hold.turn(), reason, self.clock.now());
        }
        if lost == Some(&LossReason::MaxHold) {
            // Its guard may hang for ever, and not every place has leases that end.
            self.janitor.take(hold.chore());
        }
        if let Some(room) = &hold.room {
            room.end(hold);
        }
    }

    fn nap(&self) -> Option<Duration> {
        let mut table = self.table();
        if table.stopped {
            return None;
        }
        let now = self.clock.now();
        let mut next = table.timers.first_key_value().map_or(Moment::NEVER, |((moment, _), _)| *moment);
        if std::mem::take(&mut table.busy) {
            // Where one short hold follows another, the next needs no look before this; waking this task for each of
            // them would cost as much as the hold.
            next = next.min(now + FIRST_LOOK);
        }
        table.asleep_until = next;
        // Without a hold there is nothing to look at when the machine wakes up.
        Some(if next == Moment::NEVER { Duration::from_secs(3600) } else { next.since(now).min(LONGEST_NAP) })
    }

    fn renew(self: &Arc<Self>, mut holds: Vec<Arc<Hold>>) {
        // An answer is waited for as long as the shortest lease of its batch allows: no other may be twice as long.
        let class = |hold: &Hold| hold.ttl.as_millis().checked_ilog2();
        holds.sort_by_key(|hold| class(hold));
        for batch in holds.chunk_by(|one, other| class(one) == class(other)).flat_map(|alike| alike.chunks(BATCH)) {
            // A task of its own: a server that does not answer must not delay the next batch.
            tokio::spawn(Arc::clone(self).renew_batch(batch.to_vec()));
        }
    }

    async fn renew_batch(self: Arc<Self>, holds: Vec<Arc<Hold>>) {
        let sent = self.clock.now();
        let renewals: Vec<_> = holds.iter().map(|hold| hold.renewal(sent)).collect();
        // An answer that takes longer is given up, so that there is time for another try.
        let limit = RenewalPlan::answer_limit(holds.iter().map(|hold| hold.ttl.get()).min().unwrap_or_default());
        let answers = tokio::time::timeout(limit, self.backend.renew(&renewals)).await.unwrap_or_else(|_| {
            let unknown = Unknown::new(self.backend.name(), Fault::Timeout, "the renewal took a fifth of the lease");
            vec![Err(unknown); holds.len()]
        });
        debug_assert_eq!(answers.len(), holds.len(), "an answer for every renewal");
        for (hold, answer) in holds.iter().zip(answers) {
            self.take_answer(hold, sent, answer);
        }
    }

    fn take_answer(&self, hold: &Arc<Hold>, sent: Moment, answer: Result<Renew, Unknown>) {
        self.telemetry.renewed(hold, self.clock.now().since(sent), &answer);
        match answer {
            Ok(Renew::Renewed { waiters }) => {
                hold.renewed(sent, dice());
                if let Some(room) = &hold.room {
                    room.told(hold, waiters);
                }
            }
            Ok(Renew::Absent) => hold.lose(LossReason::Deleted),
            Ok(Renew::TakenBy(holders)) => hold.lose(LossReason::TakenBy(holders)),
            Err(_) => hold.not_renewed(dice()),
        }
        let mut table = self.table();
        match hold.end() {
            None if table.has(hold) => {
                table.set_timer(hold);
                self.wake_for(&mut table, hold.scheduled());
            }
            None => {}
            Some(end) => {
                let known = table.remove(hold);
                drop(table);
                if let End::Lost(reason) = end {
                    self.tell_end(hold, known.then_some(&reason));
                }
                self.closing.emptied();
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn set_timer(&mut self, hold: &Arc<Hold>) {
        self.timers.insert((hold.schedule(), hold.holder), Arc::clone(hold));
    }

    /// The hold whose timer is the next, if that is before `moment`; without its timer.
    fn pop_before(&mut self, moment: Moment) -> Option<Arc<Hold>> {
        let entry = self.timers.first_entry().filter(|entry| entry.key().0 < moment)?;
        Some(entry.remove())
    }

    fn of_key(&self, key: &Key) -> Vec<Arc<Hold>> {
        let first = (key.clone(), HolderId::from_bytes([0; 16]));
        let last = (key.clone(), HolderId::from_bytes([u8::MAX; 16]));
        self.holds.range(first..=last).map(|(_, hold)| Arc::clone(hold)).collect()
    }

    /// Without a search: it is asked for every renewal of very many.
    #[expect(clippy::unused_self, reason = "what it reads belongs to whoever has the table")]
    fn has(&self, hold: &Hold) -> bool {
        hold.watched.load(Ordering::Relaxed)
    }

    /// Says whether it was there.
    fn remove(&mut self, hold: &Hold) -> bool {
        let timer = (hold.scheduled(), hold.holder);
        if self.timers.get(&timer).is_some_and(|known| is(known, hold)) {
            self.timers.remove(&timer);
        }
        let there = self.has(hold);
        if there {
            hold.watched.store(false, Ordering::Relaxed);
            self.holds.remove(&(hold.key.clone(), hold.holder));
        }
        there
    }
}

fn is(known: &Arc<Hold>, hold: &Hold) -> bool {
    std::ptr::eq(Arc::as_ptr(known), hold)
}
