//! One lease of this client, and the tasks that use it.

mod news;
mod task_lease;
mod tenure;

use super::claim::AcquireRequest;
use super::{Action, Env};
use crate::{Drift, Due, FencingToken, HolderId, Key, LossReason, Mode, Moment, Owner, Renewal, RenewalPlan};
use std::collections::BTreeMap;
use std::time::Duration;

pub use news::LeaseNews;
pub(crate) use task_lease::{LeaseHistory, TaskLease};
pub use tenure::{End, HoldId, Status, Tenure};

/// How a timer fires: for [`super::KeyEngine::hold_due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// What the timer was set to.
    pub at: Moment,
    /// The timer is not due yet, but timers of other holds are, and this one would fire within this time.
    pub ahead: Duration,
    /// A timer that is set again fires no earlier than this.
    pub not_before: Moment,
}

/// A lease of this client: one holder, held by one task at a time.
///
/// The end is final: once a call has found the lease over, no renewal makes it valid again.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Hold<L> {
    pub(crate) id: HoldId,
    pub(crate) holder: HolderId,
    pub(crate) owner: Owner,
    /// Until this time an unanswered claim may still arrive at the server.
    pub(crate) stray_until: Moment,
    pub(crate) tenure: Tenure,
    /// All current tenures by number, if readers share the hold; `None` if one task has it at a time.
    #[allow(clippy::box_collection, reason = "most holds have none, and there may be very many holds")]
    readers: Option<Box<BTreeMap<u64, Tenure>>>,
    /// How tasks share it, if they do.
    pub(crate) task_lease: Option<TaskLease>,
    /// The driver's data.
    pub(crate) lease: L,
    pub(crate) plan: RenewalPlan,
    /// When half of the lease has passed, counted from the grant or the last renewal.
    half: Moment,
    /// The time of its timer; [`Moment::NEVER`] without one.
    pub(crate) timer: Moment,
    pub(crate) renewing: bool,
    /// It was expedited while a renewal was in flight: renew again so long after its reply.
    expedited: Option<Duration>,
    hint: Hint,
}

/// Whether hints of the backend cause renewals. A server may report the renewals themselves, to a client that another user has
/// chosen, so hints that follow each other are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Hint {
    /// The last renewal was due without a hint: the next hint causes one at once.
    None,
    /// A hint has caused the next renewal.
    Pending,
    /// A hint has caused the last renewal.
    Answered,
}

/// The minimum interval between two renewals that hints cause.
const HINT_SPACING: Duration = Duration::from_millis(250);

/// The middle of the remaining lease.
fn half_of(plan: &RenewalPlan, now: Moment) -> Moment {
    now + plan.rest(now) / 2
}

impl<L: Default> Hold<L> {
    /// Creates a hold with its first tenure, for this request.
    pub(crate) fn begin(
        id: HoldId,
        holder: HolderId,
        request: &AcquireRequest,
        fence: FencingToken,
        plan: RenewalPlan,
        now: Moment,
    ) -> Self {
        Self {
            id,
            holder,
            owner: request.owner.clone(),
            stray_until: Moment::default(),
            tenure: Tenure { number: 0, mode: request.mode, fence, since: now, idle: false },
            readers: None,
            task_lease: None,
            lease: L::default(),
            half: half_of(&plan, now),
            plan,
            timer: Moment::NEVER,
            renewing: false,
            expedited: None,
            hint: Hint::None,
        }
    }
}

impl<L> Hold<L> {
    /// Why the hold is over; `None` while it lasts.
    pub(crate) fn lapse(&self, now: Moment) -> Option<LossReason> {
        match self.plan.due(now) {
            Due::Lapsed => Some(LossReason::Expired),
            Due::MaxHold => Some(LossReason::MaxHold),
            Due::At(_) | Due::Renew => None,
        }
    }

    /// Whether the lease may have another tenure: more than half of its time is left. A new claim would not bring much
    /// more.
    fn may_continue(&self, now: Moment) -> bool {
        self.lapse(now).is_none() && now < self.half
    }

    /// Ends a tenure and begins the next, if the lease may have another one.
    pub(crate) fn pass(&mut self, from: Tenure, next: Tenure, ends: Moment) -> bool {
        if self.tenure.number != from.number || !self.may_continue(next.since) {
            return false;
        }
        self.tenure = Tenure { number: from.number + 1, ..next };
        self.plan.hand_on(ends);
        true
    }

    /// Ends a tenure and begins a read-only one, with the old token until the backend has answered.
    pub(crate) fn begin_downgrade(&mut self, now: Moment) -> Tenure {
        let number = self.tenure.number + 1;
        self.tenure = Tenure { number, mode: Mode::Shared, since: now, ..self.tenure };
        self.tenure
    }

    /// The backend confirmed a downgrade that was sent at `sent`, which renews the lease too.
    pub(crate) fn downgraded(
        &mut self,
        token: FencingToken,
        sent: Moment,
        drift: Drift,
        now: Moment,
        random: u64,
    ) -> Result<Tenure, LossReason> {
        self.plan.renewed(sent, drift, now, random)?;
        self.half = half_of(&self.plan, now);
        self.tenure.fence = token;
        Ok(self.tenure)
    }

    /// Allows several tasks to read under this hold.
    pub(crate) fn open_to_readers(&mut self) {
        self.readers = Some(Box::new(BTreeMap::from([(self.tenure.number, self.tenure)])));
    }

    /// Begins another tenure in addition to the others, if the lease may have another one.
    pub(crate) fn join(&mut self, fence: FencingToken, now: Moment) -> Option<Tenure> {
        if !self.may_continue(now) {
            return None;
        }
        let readers = self.readers.as_mut()?;
        self.tenure = Tenure { number: self.tenure.number + 1, fence, since: now, ..self.tenure };
        readers.insert(self.tenure.number, self.tenure);
        Some(self.tenure)
    }

    /// Ends one of several tenures. The last one ends only with the hold. Returns whether others continue.
    pub(crate) fn leave(&mut self, tenure: Tenure) -> bool {
        let others = self.readers.as_mut().filter(|readers| readers.len() > 1);
        others.is_some_and(|readers| readers.remove(&tenure.number).is_some())
    }

    /// Whether this tenure is current.
    pub(crate) fn is_current(&self, tenure: Tenure) -> bool {
        match &self.readers {
            None => self.tenure.number == tenure.number,
            Some(readers) => readers.contains_key(&tenure.number),
        }
    }

    /// One current tenure, and the others in the order of their beginning. There are others only if readers share the hold.
    pub(crate) fn tenures(&self) -> (Tenure, impl Iterator<Item = Tenure>) {
        let readers = self.readers.as_deref();
        let one = readers.and_then(BTreeMap::last_key_value).map_or(self.tenure, |(_, tenure)| *tenure);
        let all = readers.into_iter().flat_map(BTreeMap::values).copied();
        (one, all.filter(move |tenure| tenure.number != one.number))
    }

    /// Whether tasks share it.
    pub(crate) const fn is_shared(&self) -> bool {
        self.task_lease.is_some()
    }

    /// The backend may not announce the next waiter.
    pub(crate) fn unannounced(&mut self) {
        self.task_lease.iter_mut().for_each(TaskLease::unannounced);
    }

    /// Whether its holder has permits of a semaphore.
    pub(crate) const fn has_permits(&self) -> bool {
        matches!(self.tenure.mode, Mode::Permits { .. })
    }

    /// When the timer must fire next; `None` while a renewal is in flight, because its reply sets the timer.
    pub(crate) fn next_timer(&self, now: Moment) -> Option<Moment> {
        if self.renewing {
            return None;
        }
        Some(match self.plan.due(now) {
            Due::At(moment) => moment,
            Due::Renew | Due::Lapsed | Due::MaxHold => now,
        })
    }

    /// Sets the timer, unless it fires before the new time: then it is set again when it fires. So a lease that is
    /// passed between tasks has one timer, which is not moved for each of them.
    pub(crate) fn set_timer<W>(&mut self, cx: &mut Env<'_, W, L>) {
        let Some(to) = self.next_timer(cx.now).filter(|to| *to < self.timer) else { return };
        let from = std::mem::replace(&mut self.timer, to);
        cx.act(Action::SetTimer { hold: self.id, from, to });
    }

    /// Renews this hold after `after`, or when the renewal in flight has been answered.
    pub(crate) fn expedite(&mut self, now: Moment, after: Duration) {
        if self.renewing {
            self.expedited = Some(self.expedited.map_or(after, |before| before.min(after)));
        } else {
            self.plan.expedite(now + after);
        }
    }

    /// The backend hints that the key may have changed: the first hint renews this hold at once.
    pub(crate) fn hinted(&mut self, now: Moment) {
        let after = match self.hint {
            Hint::None => Duration::ZERO,
            Hint::Pending => return,
            Hint::Answered => HINT_SPACING,
        };
        self.hint = Hint::Pending;
        self.expedite(now, after);
    }

    /// The timer has fired; or timers of other holds have, and this one would fire within `ahead`. Returns the renewal to send now.
    pub(crate) fn renewal(&mut self, key: &Key, drift: Drift, now: Moment, ahead: Duration) -> Option<Renewal> {
        if self.renewing || !matches!(self.plan.due_with_others(now, ahead), Due::Renew) {
            return None;
        }
        self.renewing = true;
        self.hint = if self.hint == Hint::Pending { Hint::Answered } else { Hint::None };
        Some(Renewal::new(key.clone(), self.holder, self.plan.ttl()).with_assumed(self.plan.assumed(drift, now)))
    }

    /// A renewal that was sent at `sent` was confirmed. `Err` if the lease has expired meanwhile.
    pub(crate) fn renewed(&mut self, sent: Moment, drift: Drift, now: Moment, random: u64) -> Result<(), LossReason> {
        self.renewing = false;
        self.plan.renewed(sent, drift, now, random)?;
        self.half = half_of(&self.plan, now);
        self.apply_expedited(now);
        Ok(())
    }

    /// A renewal was not confirmed.
    pub(crate) fn not_renewed(&mut self, now: Moment, random: u64) {
        self.renewing = false;
        self.plan.failed(now, random);
        self.apply_expedited(now);
    }

    fn apply_expedited(&mut self, now: Moment) {
        if let Some(after) = self.expedited.take() {
            self.plan.expedite(now + after);
        }
    }
}
