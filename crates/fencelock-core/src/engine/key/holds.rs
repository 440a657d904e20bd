//! The holds of a key: calls of their holders, and replies of the backend.

use super::KeyEngine;
use crate::engine::claim::AcquireRequest;
use crate::engine::hold::{End, Firing, HoldId, Status, Tenure};
use crate::engine::{Env, Grant, Source};
use crate::{
    Downgrade, Holder, HolderId, Lease, LossReason, Mode, Moment, Occupant, Renew, Renewal, TokenBlock, Unknown,
};
use std::time::Duration;

/// Holds: calls of their holders, and replies of the backend.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The state of this tenure. A lease that has ended stays ended.
    pub fn status(&mut self, id: HoldId, tenure: Tenure, cx: &mut Env<'_, W, L>) -> Status {
        let Some(hold) = self.leases.get(id) else { return Status::Over };
        if !hold.is_current(tenure) {
            return Status::PassedOn;
        }
        match hold.lapse(cx.now) {
            None => Status::Held(hold.plan.until()),
            Some(reason) => {
                self.lose(id, reason, cx);
                Status::Over
            }
        }
    }

    /// The driver's data for the lease of a hold.
    pub fn lease_mut(&mut self, id: HoldId) -> Option<&mut L> {
        self.leases.get_mut(id).map(|hold| &mut hold.lease)
    }

    /// The holder id, its TTL, and until when a claim of that holder may still be in flight.
    pub fn facts(&self, id: HoldId) -> Option<(HolderId, crate::Ttl, Moment)> {
        self.leases.get(id).map(|hold| (hold.holder, hold.plan.ttl(), hold.stray_until))
    }

    /// The time until the lease expires if no renewal succeeds.
    pub fn rest(&self, id: HoldId, now: Moment) -> Option<Duration> {
        self.leases.get(id).map(|hold| hold.plan.rest(now))
    }

    /// The holder of this tenure no longer needs the lease. If it was held, a release is due: one of the actions with `background`;
    /// otherwise the caller sends it. It is of no use after the returned moment, when the lease ends if no renewal in flight succeeds.
    pub fn release(&mut self, id: HoldId, tenure: Tenure, background: bool, cx: &mut Env<'_, W, L>) -> Status {
        let status = self.status(id, tenure, cx);
        if !matches!(status, Status::Held(_)) {
            return status;
        }
        if self.leases.leave(id, tenure) {
            return Status::PassedOn;
        }
        let rest = self.leases.get(id).map_or(Duration::ZERO, |hold| hold.plan.rest(cx.now));
        if self.leases.is_sharing(id) {
            if tenure.mode != Mode::Shared && self.pass_on(id, tenure, cx) {
                return Status::PassedOn;
            }
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        self.leases.end_unused(id, background, cx);
        self.call_next(None, cx);
        Status::Held(cx.now + rest)
    }

    /// Detaches the hold from this client: it is no longer renewed.
    pub fn detach(&mut self, id: HoldId, tenure: Tenure, cx: &mut Env<'_, W, L>) -> Status {
        let status = self.status(id, tenure, cx);
        if matches!(status, Status::Held(_)) && !self.leave_to_another_process(id, tenure, cx) {
            self.leases.end(id, End::Released, cx);
            self.call_next(None, cx);
        }
        status
    }

    /// Ends the hold of this tenure `max_hold` from now, even if its lease could be renewed. For a caller that acquired
    /// several keys, and whose work starts only now.
    pub fn limit_hold(&mut self, id: HoldId, tenure: Tenure, max_hold: Duration, cx: &mut Env<'_, W, L>) {
        if matches!(self.status(id, tenure, cx), Status::Held(_))
            && let Some(hold) = self.leases.get_mut(id)
        {
            hold.plan.hand_on(cx.now + max_hold);
            hold.set_timer(cx);
        }
    }

    /// Resumes an existing hold by the proof of its holder: a claim of that holder id was granted. `None` if its lease is over already.
    pub fn resume(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        cx: &mut Env<'_, W, L>,
    ) -> Option<Grant> {
        if lease.lapsed(cx.now) {
            return None;
        }
        let (hold, tenure) = self.leases.begin(holder, request, tokens, lease, Moment::default(), cx);
        Some(Grant { hold, tenure, source: Source::Resumed })
    }

    /// The timer of a hold has fired; or timers of other holds have, and this one would fire soon. Returns the renewal to send now.
    pub fn hold_due(&mut self, id: HoldId, firing: Firing, cx: &mut Env<'_, W, L>) -> Option<Renewal> {
        if id == HoldId::NONE {
            self.leases.history_due(firing.at, firing.not_before, cx);
            return None;
        }
        if id == HoldId::TURNS {
            self.turns_due(firing.at, cx);
            return None;
        }
        let renewal = self.leases.due(id, firing, cx).unwrap_or_else(|reason| {
            self.lose(id, reason, cx);
            None
        });
        // This may set the timer, so it comes after the lease has recorded that its timer fired.
        self.release_spares(cx);
        renewal
    }

    /// The reply to a renewal that was sent at `sent`. `announced`: whether the backend announces the next waiter.
    pub fn renewal_answered(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        announced: bool,
        cx: &mut Env<'_, W, L>,
    ) {
        match self.leases.renewed(id, sent, answer, cx) {
            Err(reason) => self.lose(id, reason, cx),
            // If a leader is already claiming, it may be the reported waiter; then the lease is no longer passed on. Of permits, the
            // claims of this client are subtracted.
            Ok(Some(waiters))
                if self.leases.is_sharing(id) && (self.leases.has_shared_permits() || !self.leader_claims()) =>
            {
                let spares = u32::try_from(self.spares.len()).unwrap_or(u32::MAX);
                let claims = self.waiters.waiting_at_backend().saturating_add(spares);
                let others = waiters.saturating_sub(claims);
                self.leases.on_waiters(others, announced, claims, cx);
                self.call_next(None, cx);
            }
            Ok(_) => {}
        }
        // The renewal has moved the timer.
        self.release_spares(cx);
    }

    fn lose(&mut self, id: HoldId, reason: LossReason, cx: &mut Env<'_, W, L>) {
        if reason == LossReason::MaxHold && self.leases.idle().is_some_and(|(idle, _)| idle == id) {
            self.leases.stop_sharing(id, false, cx);
            self.leases.end_unused(id, true, cx);
            return self.call_next(None, cx);
        }
        // A task that received the lease and has not run since cannot release it.
        let taken = self.leases.get(id).is_some_and(|hold| {
            let (one, mut others) = hold.tenures();
            !self.waiters.is_granted(id, one) || others.any(|tenure| !self.waiters.is_granted(id, tenure))
        });
        self.leases.lose(id, reason, taken, cx);
        self.call_next(None, cx);
    }

    /// A reader transfers its holder id to another process, which may release the hold at any time. Tasks that share
    /// the hold would not notice that in time, so they lose it now.
    fn leave_to_another_process(&mut self, id: HoldId, tenure: Tenure, cx: &mut Env<'_, W, L>) -> bool {
        if !self.leases.leave(id, tenure) {
            return false;
        }
        if let Some(hold) = self.leases.get(id) {
            let holder = Holder { id: hold.holder, owner: hold.owner.clone() };
            self.leases.lose(id, LossReason::TakenBy(Occupant::Holder(holder).into()), true, cx);
        }
        self.call_next(None, cx);
        true
    }
}

/// What follows the answer to a downgrade.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DowngradeNext {
    /// Send it again at this moment.
    Rest(Moment),
    /// It is a reader, with the token of this tenure.
    Done(Tenure),
    /// The backend refuses permanently.
    Refused(Unknown),
    /// The hold is over.
    Over,
}

/// Downgrades: a writer becomes a reader.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The tenure of the writer ends, and no other task gets the lease. Returns the tenure that reads, and the request, which is repeated
    /// until it is answered, or the hold is over. It may be executed although its reply is lost, so the hold counts as shared from now
    /// on; it has the token of the writer until the answer. `None` if the tenure has ended already, or is not exclusive.
    pub fn downgrade(&mut self, id: HoldId, tenure: Tenure, cx: &mut Env<'_, W, L>) -> Option<(Tenure, Renewal)> {
        let is_over = !matches!(self.status(id, tenure, cx), Status::Held(_));
        if is_over || tenure.mode != Mode::Exclusive {
            return None;
        }
        if self.leases.is_sharing(id) {
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        let hold = self.leases.get_mut(id)?;
        let begun = (hold.begin_downgrade(cx.now), Renewal::new(cx.key.clone(), hold.holder, hold.plan.ttl()));
        self.call_next(None, cx);
        Some(begun)
    }

    /// The reply to a downgrade that was sent at `sent`, for the tenure that began with it.
    pub fn downgrade_answered(
        &mut self,
        id: HoldId,
        tenure: Tenure,
        sent: Moment,
        answer: Result<Downgrade, Unknown>,
        cx: &mut Env<'_, W, L>,
    ) -> DowngradeNext {
        // A lease that has expired ended by itself, whatever the reply is.
        if !matches!(self.status(id, tenure, cx), Status::Held(_)) {
            return DowngradeNext::Over;
        }
        let random = cx.rng.next_u64();
        let Some(hold) = self.leases.get_mut(id) else { return DowngradeNext::Over };
        let lost = match answer {
            Ok(Downgrade::Downgraded { token }) => {
                match hold.downgraded(token, sent, cx.config.drift, cx.now, random) {
                    Ok(tenure) => {
                        hold.set_timer(cx);
                        return DowngradeNext::Done(tenure);
                    }
                    Err(reason) => reason,
                }
            }
            Ok(Downgrade::Absent) => LossReason::Deleted,
            Ok(Downgrade::TakenBy(holders)) => LossReason::TakenBy(holders),
            Err(cause) if cause.is_permanent() => return DowngradeNext::Refused(cause),
            // Like a renewal that is not confirmed.
            Err(_) => {
                let pause = (hold.plan.ttl().get() / 60).clamp(Duration::from_millis(1), Duration::from_secs(1));
                return DowngradeNext::Rest(cx.now + pause);
            }
        };
        self.lose(id, lost, cx);
        DowngradeNext::Over
    }
}
