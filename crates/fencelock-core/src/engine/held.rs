use super::action::{Grant, Source};
use super::answer::{Leaving, Status};
use super::context::Context;
use super::hold::Duty;
use super::key_engine::KeyEngine;
use super::leases::Renewed;
use super::request::AcquireRequest;
use super::tenure::{End, HoldId, Tenure};
use crate::{HolderId, Lease, LossReason, Mode, Moment, Renew, TokenBlock, Unknown};
use std::time::Duration;

/// Holds: calls of their holders, and replies of the backend.
impl<W: Default, L: Default> KeyEngine<W, L> {
    /// The state of this tenure. A lease that has ended stays ended.
    pub fn status(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let Some(hold) = self.leases.get(id) else { return Status::Over };
        if !hold.is_current(tenure) {
            return Status::PassedOn;
        }
        match hold.lapse(cx.now) {
            None => Status::Held(hold.until()),
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
        self.leases.get(id).map(|hold| (hold.holder, hold.ttl(), hold.stray_until))
    }

    /// The time until the lease expires if no renewal succeeds.
    pub fn rest(&self, id: HoldId, now: Moment) -> Option<Duration> {
        self.leases.get(id).map(|hold| hold.rest(now))
    }

    /// The holder of this tenure no longer needs the lease. If a release is due, it is one of the actions with `background`;
    /// otherwise the caller sends it.
    pub fn release(&mut self, id: HoldId, tenure: Tenure, background: bool, cx: &mut Context<'_, W, L>) -> Leaving {
        match self.status(id, tenure, cx) {
            Status::Held(_) => {}
            Status::PassedOn => return Leaving::PassedOn,
            Status::Over => return Leaving::Over,
        }
        if self.leases.leave(id, tenure) {
            return Leaving::PassedOn;
        }
        if self.leases.is_shared(id) {
            if tenure.mode != Mode::Shared && self.pass_on(id, tenure, cx) {
                return Leaving::PassedOn;
            }
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        self.leases.give_back(id, background, cx);
        self.settle(None, cx);
        Leaving::Release
    }

    /// Detaches the hold from this client: it is no longer renewed.
    pub fn detach(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Status {
        let status = self.status(id, tenure, cx);
        if matches!(status, Status::Held(_)) && !self.leave_to_another_process(id, tenure, cx) {
            self.leases.end(id, End::Released, cx);
            self.settle(None, cx);
        }
        status
    }

    /// Ends the hold of this tenure `max_hold` from now, even if its lease could be renewed. For a caller that acquired
    /// several keys, and whose work starts only now.
    pub fn limit_hold(&mut self, id: HoldId, tenure: Tenure, max_hold: Duration, cx: &mut Context<'_, W, L>) {
        if matches!(self.status(id, tenure, cx), Status::Held(_))
            && let Some(hold) = self.leases.get_mut(id)
        {
            hold.limit(cx.now + max_hold);
            hold.set_timer(cx);
        }
    }

    /// Resumes an existing hold by the proof of its holder.
    pub fn resume(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        cx: &mut Context<'_, W, L>,
    ) -> Grant {
        let (hold, tenure) = self.leases.begin(holder, request, tokens, lease, Moment::default(), cx);
        Grant { hold, tenure, source: Source::Resumed }
    }

    /// The timer of a hold that was set to `fired` has fired; or timers of other holds have, and this one would fire
    /// within `ahead`. A timer that is set again fires no earlier than `not_before`.
    pub fn hold_due(
        &mut self,
        id: HoldId,
        fired: Moment,
        ahead: Duration,
        not_before: Moment,
        cx: &mut Context<'_, W, L>,
    ) -> Duty {
        if id == HoldId::NONE {
            self.leases.history_due(fired, not_before, cx);
            return Duty::Nothing;
        }
        if id == HoldId::TURNS {
            self.turns_due(fired, cx);
            return Duty::Nothing;
        }
        let duty = self.leases.due(id, fired, ahead, not_before, cx).unwrap_or_else(|reason| {
            self.lose(id, reason, cx);
            Duty::Nothing
        });
        // This may set the timer, so it comes after the lease has recorded that its timer fired.
        self.release_spares(cx);
        duty
    }

    /// The reply to a renewal that was sent at `sent`.
    pub fn renewal_answered(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) {
        match self.leases.renewed(id, sent, answer, cx) {
            Some(Renewed::Lost(reason)) => self.lose(id, reason, cx),
            Some(Renewed::Waiters(Some(waiters))) if self.leases.shares_permits(id) => {
                self.on_permit_waiters(waiters, cx);
            }
            // If a leader is already claiming, it may be the reported waiter; then the lease is no longer passed on.
            Some(Renewed::Waiters(Some(others))) if self.leases.is_shared(id) && !self.leader_claims() => {
                self.leases.on_waiters(others, cx);
                self.settle(None, cx);
            }
            Some(Renewed::Waiters(_)) | None => {}
        }
        // The renewal has moved the timer.
        self.release_spares(cx);
    }

    /// Releases the lease that is kept for the next task, if there is one, and forgets the last one.
    pub fn release_idle(&mut self, cx: &mut Context<'_, W, L>) {
        if let Some((id, _)) = self.leases.idle() {
            self.leases.give_back(id, true, cx);
            self.settle(None, cx);
        }
        self.leases.forget_history(cx);
    }

    pub(super) fn lose(&mut self, id: HoldId, reason: LossReason, cx: &mut Context<'_, W, L>) {
        if reason == LossReason::MaxHold && self.leases.idle().is_some_and(|(idle, _)| idle == id) {
            self.leases.stop_sharing(id, false, cx);
            self.leases.give_back(id, true, cx);
            return self.settle(None, cx);
        }
        // A task that received the lease and has not run since cannot release it.
        let taken = self.leases.get(id).is_some_and(|hold| {
            let (one, mut others) = hold.tenures();
            !self.queue.is_granted(id, one) || others.any(|tenure| !self.queue.is_granted(id, tenure))
        });
        self.leases.lose(id, reason, taken, cx);
        self.settle(None, cx);
    }
}
