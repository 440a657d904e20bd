//! When the leases of a client are renewed, and which of them in one request.
//!
//! A driver keeps one [`LeaseTimers`] for all keys of a client. When the first timer is due, it makes a [`RenewalPass`], and sends each
//! [`RenewalBatch`] of it; no batch waits for another one.

use super::hold::{Firing, HoldId};
use super::{Action, LONGEST_SLEEP};
use crate::{Fault, Key, Moment, Renew, Renewal, RenewalPlan, Span, Unknown};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Without a hold, no lease can end while the machine is suspended, so the sleep may be long.
const SLEEP_WITHOUT_LEASES: Duration = Duration::from_secs(3600);
/// With many short holds, the driver sleeps at least this long: no first renewal of a hold is earlier.
const SHORT_HOLDS: Duration = Duration::from_millis(25);
/// A batch includes the leases that are due within this time: very many leases need forty large batches per second instead of a
/// thousand small ones.
const TOGETHER: Duration = Duration::from_millis(25);
/// Timers that are due in the same millisecond go into the same batch.
const GRAIN: Duration = Duration::from_millis(1);
/// The maximum number of renewals in one batch: large enough to amortize the round trip, small enough for a reply within
/// milliseconds.
const BATCH: usize = 1000;

/// The timers of all leases of a client, in the order of time. `C` is the driver's name for the engine of a key.
#[derive(Debug, Clone)]
pub struct LeaseTimers<C> {
    due: BTreeSet<(Moment, C, HoldId)>,
    holds: usize,
    asleep_until: Moment,
    /// Whether timers were set since the driver last slept.
    busy: bool,
}

/// How long the driver sleeps is not part of the state: it may always look at its timers.
impl<C: Hash> Hash for LeaseTimers<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.due, self.holds).hash(state);
    }
}

impl<C> Default for LeaseTimers<C> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), holds: 0, asleep_until: Moment::NEVER, busy: false }
    }
}

impl<C: Ord + Clone> LeaseTimers<C> {
    /// Carries out an action of an engine, if it is for the timers. The driver calls this, in the order of the actions, before another
    /// call of that engine can move the same timers. Returns whether a driver that sleeps must look at its timers again.
    pub fn apply<W, L>(&mut self, cell: &C, action: &Action<W, L>) -> bool {
        match action {
            Action::Began => self.holds += 1,
            Action::SetTimer { hold, from, to } => return self.set(cell, *hold, *from, *to),
            Action::Ended(ended) => {
                self.due.remove(&(ended.timer, cell.clone(), ended.hold));
                self.holds = self.holds.saturating_sub(1);
            }
            _ => {}
        }
        false
    }

    fn set(&mut self, cell: &C, hold: HoldId, from: Moment, to: Moment) -> bool {
        if from != Moment::NEVER {
            self.due.remove(&(from, cell.clone(), hold));
        }
        if to == Moment::NEVER {
            return false;
        }
        self.due.insert((to, cell.clone(), hold));
        self.busy = true;
        let wakes = to < self.asleep_until;
        self.asleep_until = self.asleep_until.min(to);
        wakes
    }

    /// The number of holds.
    pub const fn holds(&self) -> usize {
        self.holds
    }

    /// How long after a reset of the connection a hold is renewed: the renewals are spread over time, so that a server that has just
    /// restarted is not overloaded.
    pub fn after_reset(&self, random: u64) -> Duration {
        let spread = u64::try_from(self.holds).unwrap_or(u64::MAX).saturating_mul(10).min(1_000_000);
        Duration::from_micros(random % (spread + 1))
    }

    /// All timers, in the order of time.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(Moment, C, HoldId)> {
        self.due.iter()
    }

    /// Removes and returns the timers that are due before `moment`.
    pub fn take_before(&mut self, moment: Moment) -> Vec<(Moment, C, HoldId)> {
        let mut due = Vec::new();
        while self.due.first().is_some_and(|(at, ..)| *at < moment) {
            due.extend(self.due.pop_first());
        }
        due
    }

    /// How long a driver sleeps that has fired what is due at `now`, unless [`LeaseTimers::apply`] wakes it.
    pub fn sleep(&mut self, now: Moment) -> Duration {
        let mut next = self.due.first().map_or(Moment::NEVER, |(at, ..)| *at);
        if std::mem::take(&mut self.busy) {
            // Waking the driver for each of many short holds would cost as much as the holds.
            next = next.min(now + SHORT_HOLDS);
        }
        self.asleep_until = next;
        if next == Moment::NEVER { SLEEP_WITHOUT_LEASES } else { next.since(now).min(LONGEST_SLEEP) }
    }
}

/// One look at the timers of a client: the leases to renew now.
///
/// In each round, the driver takes the timers before a moment, fires them with [`super::KeyEngine::hold_due`], and adds the results.
#[derive(Debug)]
pub struct RenewalPass<C> {
    now: Moment,
    /// The rounds so far.
    rounds: u32,
    /// The leases to renew.
    due: Vec<((C, HoldId), Renewal)>,
}

impl<C> RenewalPass<C> {
    /// Begins at `now`.
    pub const fn new(now: Moment) -> Self {
        Self { now, rounds: 0, due: Vec::new() }
    }

    /// The next round: take the timers before this moment. The second round takes leases along that will be due soon, if others are
    /// renewed.
    pub fn round(&mut self) -> Option<Moment> {
        self.rounds += 1;
        let goes_on = self.rounds == 1 || self.rounds == 2 && !self.due.is_empty();
        goes_on.then(|| self.now + GRAIN + self.ahead())
    }

    fn ahead(&self) -> Duration {
        if self.rounds > 1 { TOGETHER } else { Duration::ZERO }
    }

    /// How a timer of this round fires.
    pub fn firing(&self, at: Moment) -> Firing {
        Firing { at, ahead: self.ahead(), not_before: self.now + GRAIN }
    }

    /// The result of a timer.
    pub fn add(&mut self, cell: C, hold: HoldId, renewal: Option<Renewal>) {
        self.due.extend(renewal.map(|renewal| ((cell, hold), renewal)));
    }

    /// The requests to send. `group` is [`crate::Backend::renewal_group`].
    pub fn batches(self, group: impl Fn(&Key) -> u32) -> Vec<RenewalBatch<C>> {
        // The timeout of a reply depends on the shortest lease of the batch, so no other lease may be twice as long.
        let class = |renewal: &Renewal| (group(&renewal.key), renewal.ttl.as_millis().checked_ilog2());
        let mut due: Vec<_> = self.due.into_iter().map(|due| (class(&due.1), due)).collect();
        due.sort_by_key(|(class, _)| Reverse(*class));
        let mut batches = Vec::new();
        while let Some(first) = due.last().map(|(class, _)| *class) {
            let alike = due.iter().rev().take(BATCH).take_while(|(class, _)| *class == first).count();
            let batch = due.drain(due.len() - alike..);
            let (leases, renewals) = batch.map(|(_, due)| due).unzip();
            batches.push(RenewalBatch { leases, renewals, at: self.now });
        }
        batches
    }
}

/// Leases that are renewed with one request.
#[derive(Debug, Clone, Hash)]
pub struct RenewalBatch<C> {
    leases: Vec<(C, HoldId)>,
    /// The request.
    pub renewals: Vec<Renewal>,
    /// When it was decided, and then when it was sent.
    at: Moment,
}

impl<C> RenewalBatch<C> {
    /// The request is sent now. Returns the time limit of its reply: a slower one is abandoned, so that there is time for a retry.
    pub fn send(&mut self, now: Moment) -> Duration {
        let passed = now.since(std::mem::replace(&mut self.at, now));
        for renewal in &mut self.renewals {
            renewal.assumed = renewal.assumed.saturating_sub(passed);
        }
        self.limit()
    }

    fn limit(&self) -> Duration {
        RenewalPlan::answer_limit(self.renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default())
    }

    /// When the request was sent.
    pub const fn sent(&self) -> Moment {
        self.at
    }

    /// The leases, and the answer for each of them. `None`: there was no reply within the limit. A backend that returns too few
    /// answers has not answered the others.
    pub fn answers(
        self,
        reply: Option<Vec<Result<Renew, Unknown>>>,
        backend: &str,
    ) -> impl Iterator<Item = (C, HoldId, Result<Renew, Unknown>)> {
        let missing = match &reply {
            Some(_) => Unknown::new(backend, Fault::Other, "no answer"),
            None => Unknown::new(backend, Fault::Timeout, format!("timeout of a renewal: {}", Span(self.limit()))),
        };
        let answers = reply.unwrap_or_default().into_iter().chain(std::iter::repeat_with(move || Err(missing.clone())));
        self.leases.into_iter().zip(answers).map(|((cell, hold), answer)| (cell, hold, answer))
    }
}
