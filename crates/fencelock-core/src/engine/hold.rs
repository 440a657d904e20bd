use super::action::Action;
use super::context::Context;
use super::tenure::{HoldId, Tenure};
use crate::{Due, FencingToken, HolderId, Key, LossReason, Mode, Moment, Owner, Renewal, RenewalPlan, Ttl};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a hold whose timer has fired needs.
#[derive(Debug, Clone)]
pub enum Duty {
    /// Nothing now. Its timer is set again if it has one.
    Nothing,
    /// This renewal, at once.
    Renew(Renewal),
}

/// A lease of this client: one holder, held by one task at a time.
///
/// The end is final: once a call has found the lease over, no renewal makes it valid again.
#[derive(Debug, Clone, Hash)]
pub(super) struct Hold<L> {
    pub(super) id: HoldId,
    pub(super) holder: HolderId,
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    /// Until then an unanswered claim may still arrive at the server.
    pub(super) stray_until: Moment,
    pub(super) tenure: Tenure,
    /// All present tenures by their number, if readers share the hold; `None` if one task has it at a time.
    #[allow(clippy::box_collection, reason = "most holds have none, and there may be very many holds")]
    readers: Option<Box<BTreeMap<u64, Tenure>>>,
    /// What the driver has attached.
    pub(super) lease: L,
    plan: RenewalPlan,
    /// When half of the lease is over, from when it was granted or last renewed.
    half: Moment,
    /// Where its timer is; [`Moment::NEVER`] without one.
    pub(super) timer: Moment,
    renewing: bool,
    /// A hint arrived while a renewal was in flight: renew again after it.
    expedited: bool,
}

/// When half of what is left is over.
fn half_of(plan: &RenewalPlan, now: Moment) -> Moment {
    now + plan.rest(now) / 2
}

/// How a hold begins.
#[derive(Debug)]
pub(super) struct HoldParameters {
    pub(super) holder: HolderId,
    pub(super) owner: Owner,
    pub(super) ttl: Ttl,
    pub(super) mode: Mode,
    pub(super) fence: FencingToken,
    pub(super) plan: RenewalPlan,
    pub(super) stray_until: Moment,
}

impl<L: Default> Hold<L> {
    /// With its first tenure.
    pub(super) fn begin(id: HoldId, parameters: HoldParameters, now: Moment) -> Self {
        let HoldParameters { holder, owner, ttl, mode, fence, plan, stray_until } = parameters;
        let tenure = Tenure { number: 0, mode, fence, since: now, idle: false };
        let (half, lease) = (half_of(&plan, now), L::default());
        let (timer, renewing, expedited) = (Moment::NEVER, false, false);
        let readers = None;
        Self { id, holder, owner, ttl, stray_until, tenure, readers, lease, plan, half, timer, renewing, expedited }
    }
}

impl<L> Hold<L> {
    /// Why the hold is over; `None` while it lasts.
    pub(super) fn lapse(&self, now: Moment) -> Option<LossReason> {
        match self.plan.due(now) {
            Due::Lapsed => Some(LossReason::Expired),
            Due::MaxHold => Some(LossReason::MaxHold),
            Due::At(_) | Due::Renew => None,
        }
    }

    /// Until when its holder may rely on it.
    pub(super) fn until(&self) -> Moment {
        self.plan.until()
    }

    /// How long the lease runs on if no renewal succeeds; [`Duration::MAX`] if it has no end of its own.
    pub(super) fn rest(&self, now: Moment) -> Duration {
        self.plan.rest(now)
    }

    /// Whether the lease may have another tenure: it still has more than half of what it had when it was fresh. A new claim would
    /// not bring much more.
    fn may_continue(&self, now: Moment) -> bool {
        self.lapse(now).is_none() && now < self.half
    }

    /// Ends a tenure and begins the next, if the lease may have another one.
    pub(super) fn pass(&mut self, from: Tenure, next: Tenure, ends: Moment) -> bool {
        if self.tenure.number != from.number || !self.may_continue(next.since) {
            return false;
        }
        self.tenure = Tenure { number: from.number + 1, ..next };
        self.plan.hand_on(ends);
        true
    }

    /// Ends a tenure and begins one that only reads, under the old token until the place has answered.
    pub(super) fn begin_downgrade(&mut self, now: Moment) -> Tenure {
        let number = self.tenure.number + 1;
        self.tenure = Tenure { number, mode: Mode::Shared, since: now, ..self.tenure };
        self.tenure
    }

    /// The place has answered a downgrade that was sent at `sent`, which renews the lease too.
    pub(super) fn downgraded(
        &mut self,
        token: FencingToken,
        sent: Moment,
        now: Moment,
        random: u64,
    ) -> Result<Tenure, LossReason> {
        self.plan.renewed(sent, now, random)?;
        self.half = half_of(&self.plan, now);
        self.tenure.fence = token;
        Ok(self.tenure)
    }

    /// Several tasks may read under this hold from now on.
    pub(super) fn open_to_readers(&mut self) {
        self.readers = Some(Box::new(BTreeMap::from([(self.tenure.number, self.tenure)])));
    }

    /// Begins another tenure beside the others, if the lease may have another one.
    pub(super) fn join(&mut self, fence: FencingToken, now: Moment) -> Option<Tenure> {
        if !self.may_continue(now) {
            return None;
        }
        let readers = self.readers.as_mut()?;
        self.tenure = Tenure { number: self.tenure.number + 1, fence, since: now, ..self.tenure };
        readers.insert(self.tenure.number, self.tenure);
        Some(self.tenure)
    }

    /// One of several tenures is over. The last one stays, and ends with the hold. Returns whether others go on.
    pub(super) fn leave(&mut self, tenure: Tenure) -> bool {
        let others = self.readers.as_mut().filter(|readers| readers.len() > 1);
        others.is_some_and(|readers| readers.remove(&tenure.number).is_some())
    }

    /// Whether this is a present tenure.
    pub(super) fn is_current(&self, tenure: Tenure) -> bool {
        match &self.readers {
            None => self.tenure.number == tenure.number,
            Some(readers) => readers.contains_key(&tenure.number),
        }
    }

    /// One present tenure, and the others in the order of their beginning. There are others only if readers share the hold.
    pub(super) fn tenures(&self) -> (Tenure, impl Iterator<Item = Tenure>) {
        let readers = self.readers.as_deref();
        let one = readers.and_then(BTreeMap::last_key_value).map_or(self.tenure, |(_, tenure)| *tenure);
        let all = readers.into_iter().flat_map(BTreeMap::values).copied();
        (one, all.filter(move |tenure| tenure.number != one.number))
    }

    /// Whether its holder has permits of a semaphore.
    pub(super) const fn has_permits(&self) -> bool {
        matches!(self.tenure.mode, Mode::Permits { .. })
    }

    /// Whether a renewal is in flight.
    pub(super) const fn is_renewing(&self) -> bool {
        self.renewing
    }

    /// The hold ends at this moment even if its lease could be renewed.
    pub(super) fn limit(&mut self, ends: Moment) {
        self.plan.hand_on(ends);
    }

    /// When the timer must fire next; `None` while a renewal is in flight, because its answer sets the timer.
    pub(super) fn next_timer(&self, now: Moment) -> Option<Moment> {
        if self.renewing {
            return None;
        }
        Some(match self.plan.due(now) {
            Due::At(moment) => moment,
            Due::Renew | Due::Lapsed | Due::MaxHold => now,
        })
    }

    /// Sets the timer to its next time, unless it fires before: then it is set again. So a lease that tasks pass on has one timer
    /// and does not move it for each of them.
    pub(super) fn set_timer<W>(&mut self, cx: &mut Context<'_, W, L>) {
        let Some(to) = self.next_timer(cx.now).filter(|to| *to < self.timer) else { return };
        let from = std::mem::replace(&mut self.timer, to);
        cx.act(Action::SetTimer { hold: self.id, from, to });
    }

    /// Renews this hold after `after`, or when the renewal in flight has been answered.
    pub(super) fn expedite(&mut self, now: Moment, after: Duration) {
        if self.renewing {
            self.expedited = true;
        } else {
            self.plan.expedite(now + after);
        }
    }

    /// Its timer has fired, or those of others have and its own would within `ahead`.
    pub(super) fn duty(&mut self, key: &Key, now: Moment, ahead: Duration) -> Duty {
        if self.renewing || !matches!(self.plan.due_with_others(now, ahead), Due::Renew) {
            return Duty::Nothing;
        }
        self.renewing = true;
        Duty::Renew(Renewal::new(key.clone(), self.holder, self.ttl).with_assumed(self.plan.assumed(now)))
    }

    /// A renewal sent at `sent` was confirmed. It must not be over by now.
    pub(super) fn renewed(&mut self, sent: Moment, now: Moment, random: u64) -> Result<(), LossReason> {
        self.renewing = false;
        self.plan.renewed(sent, now, random)?;
        self.half = half_of(&self.plan, now);
        self.ask_again(now);
        Ok(())
    }

    /// A renewal was not confirmed.
    pub(super) fn not_renewed(&mut self, now: Moment, random: u64) {
        self.renewing = false;
        self.plan.failed(now, random);
        self.ask_again(now);
    }

    fn ask_again(&mut self, now: Moment) {
        if std::mem::take(&mut self.expedited) {
            self.plan.expedite(now);
        }
    }
}
