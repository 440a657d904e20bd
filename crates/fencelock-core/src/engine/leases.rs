use super::action::{Action, Ended};
use super::boxed_vec::BoxedVec;
use super::context::Context;
use super::hold::{Duty, Hold, HoldParameters};
use super::release_queue::PendingRelease;
use super::request::AcquireRequest;
use super::shared_lease::{LeaseHistory, SharedLease};
use super::tenure::{End, HoldId, Tenure};
use crate::{HolderId, Lease, LossReason, Moment, Renew, RenewalPlan, TokenBlock, Unknown};
use std::time::Duration;

/// The delay of the first renewal of a hold, which makes the lease of a hand-off a full one, and after which the server
/// reports changes. Shorter holds, which are common, avoid that cost.
const FIRST_RENEWAL: Duration = Duration::from_millis(25);

/// The leases that this client has of one key, including those that its tasks share.
#[derive(Debug, Clone, Hash)]
pub(super) struct Leases<L> {
    pub(super) holds: Vec<Hold<L>>,
    /// The lease that tasks share.
    pub(super) shared: Option<SharedLease>,
    /// The leases of permits that tasks share, in the order of their holds.
    pub(super) permits: BoxedVec<SharedLease>,
    /// The history of the last shared lease.
    pub(super) history: LeaseHistory,
    /// When the history ends, if the engine is kept until then; [`Moment::NEVER`] if it is not.
    pub(super) history_timer: Moment,
    /// Until this time no queued task claims: the key is left to clients that only poll.
    pub(super) yield_until: Moment,
    last_hold: u64,
}

/// The part of the reply to a renewal that concerns other tasks.
pub(super) enum Renewed {
    /// The hold is over.
    Lost(LossReason),
    /// The number of other waiting clients that the server reports; `None` if it did not answer.
    Waiters(Option<u32>),
}

impl<L: Default> Leases<L> {
    pub(super) fn new() -> Self {
        let (history, history_timer, yield_until) = (LeaseHistory::default(), Moment::NEVER, Moment::default());
        let (shared, permits) = (None, BoxedVec::new());
        Self { holds: Vec::new(), shared, permits, history, history_timer, yield_until, last_hold: 0 }
    }

    /// Whether there is no lease, and the next one does not depend on the last.
    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.history_timer == Moment::NEVER
    }

    pub(super) fn get(&self, id: HoldId) -> Option<&Hold<L>> {
        self.holds.iter().find(|hold| hold.id == id)
    }

    pub(super) fn get_mut(&mut self, id: HoldId) -> Option<&mut Hold<L>> {
        self.holds.iter_mut().find(|hold| hold.id == id)
    }

    pub(super) fn begin<W>(
        &mut self,
        holder: HolderId,
        request: &AcquireRequest,
        tokens: TokenBlock,
        lease: Lease,
        stray_until: Moment,
        cx: &mut Context<'_, W, L>,
    ) -> (HoldId, Tenure) {
        let now = cx.now;
        let ends = request.max_hold.map_or(Moment::NEVER, |max_hold| now + max_hold);
        let first = now + FIRST_RENEWAL.min(lease.remaining(now) / 3);
        let plan = RenewalPlan::new(lease, request.ttl, first, ends);
        let (owner, fence) = (request.owner.clone(), tokens.first());
        self.last_hold += 1;
        let id = HoldId(self.last_hold);
        let mode = request.mode;
        let mut hold = Hold::begin(id, HoldParameters { holder, owner, mode, fence, plan, stray_until }, now);
        cx.act(Action::Began);
        hold.set_timer(cx);
        let tenure = hold.tenure;
        if self.holds.is_empty() {
            // A key usually has one.
            self.holds.reserve_exact(1);
        }
        self.holds.push(hold);
        (id, tenure)
    }

    /// Removes a hold that is over.
    pub(super) fn end<W>(&mut self, id: HoldId, end: End, cx: &mut Context<'_, W, L>) {
        self.take_shared(id);
        let Some(index) = self.holds.iter().position(|hold| hold.id == id) else { return };
        let hold = self.holds.swap_remove(index);
        let (tenure, others) = hold.tenures();
        let others = others.collect();
        let Hold { id, lease, timer, .. } = hold;
        if self.holds.is_empty() {
            self.holds = Vec::new();
        }
        cx.act(Action::Ended(Box::new(Ended { hold: id, lease, tenure, others, end, timer })));
    }

    /// The release of a hold.
    pub(super) fn pending_release<W>(&self, id: HoldId, cx: &Context<'_, W, L>) -> Option<Box<PendingRelease>> {
        self.get(id).map(|hold| {
            let (key, until) = (cx.key.clone(), cx.now + hold.ttl().get());
            Box::new(PendingRelease { key, holder: hold.holder, until, stray_until: hold.stray_until, is_hold: true })
        })
    }

    /// Ends a lease that no task has.
    pub(super) fn give_back<W>(&mut self, id: HoldId, background: bool, cx: &mut Context<'_, W, L>) {
        if background && let Some(release) = self.pending_release(id, cx) {
            cx.act(Action::Release(release));
        }
        self.end(id, End::Released, cx);
    }

    /// Ends a hold that is lost. `taken` says whether a task has read its grant.
    pub(super) fn lose<W>(&mut self, id: HoldId, reason: LossReason, taken: bool, cx: &mut Context<'_, W, L>) {
        // After `max_hold` its task may hang forever, and not every backend has leases that end. A lease without a task is
        // released only here.
        if let Some(hold) = self.get(id)
            && (reason == LossReason::MaxHold || hold.tenure.idle || !taken)
            && let Some(release) = self.pending_release(id, cx)
        {
            cx.act(Action::Release(release));
        }
        self.end(id, End::Lost(reason), cx);
    }

    /// Renews each hold after `after`, because the key may have changed.
    pub(super) fn expedite<W>(&mut self, after: Duration, cx: &mut Context<'_, W, L>) {
        self.renew_soon(|hold, now| hold.expedite(now, after), cx);
    }

    /// The backend hints that the key may have changed.
    pub(super) fn hinted<W>(&mut self, cx: &mut Context<'_, W, L>) {
        self.renew_soon(Hold::hinted, cx);
    }

    fn renew_soon<W>(&mut self, expedite: impl Fn(&mut Hold<L>, Moment), cx: &mut Context<'_, W, L>) {
        self.shared.iter_mut().chain(self.permits.iter_mut()).for_each(SharedLease::unannounced);
        for hold in &mut self.holds {
            expedite(hold, cx.now);
            hold.set_timer(cx);
        }
    }

    /// See [`super::KeyEngine::hold_due`]. `Err` if the hold is over.
    pub(super) fn due<W>(
        &mut self,
        id: HoldId,
        fired: Moment,
        ahead: Duration,
        not_before: Moment,
        cx: &mut Context<'_, W, L>,
    ) -> Result<Duty, LossReason> {
        let Some(hold) = self.get_mut(id).filter(|hold| hold.timer == fired) else { return Ok(Duty::Nothing) };
        hold.timer = Moment::NEVER;
        if let Some(reason) = hold.lapse(cx.now) {
            return Err(reason);
        }
        let duty = hold.duty(cx.key, cx.config.drift, cx.now, ahead);
        if matches!(duty, Duty::Nothing)
            && let Some(next) = hold.next_timer(cx.now)
        {
            hold.timer = if ahead.is_zero() { next.max(not_before) } else { fired };
            cx.act(Action::SetTimer { hold: id, from: Moment::NEVER, to: hold.timer });
        }
        Ok(duty)
    }

    /// The reply to a renewal that was sent at `sent`.
    pub(super) fn renewed<W>(
        &mut self,
        id: HoldId,
        sent: Moment,
        answer: Result<Renew, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<Renewed> {
        let (drift, now, random) = (cx.config.drift, cx.now, cx.rng.next_u64());
        let hold = self.get_mut(id)?;
        // A lease that has expired by now ended by itself, even if another holder has the key.
        let answer = match (hold.lapse(now), answer) {
            (Some(reason), _) => Err(reason),
            (None, Ok(Renew::Renewed { waiters })) => hold.renewed(sent, drift, now, random).map(|()| Some(waiters)),
            (None, Ok(Renew::Absent)) => Err(LossReason::Deleted),
            (None, Ok(Renew::TakenBy(occupant))) => Err(LossReason::TakenBy(occupant)),
            (None, Err(_)) => {
                hold.not_renewed(now, random);
                Ok(None)
            }
        };
        Some(match answer {
            Err(reason) => Renewed::Lost(reason),
            Ok(waiters) => {
                hold.set_timer(cx);
                Renewed::Waiters(waiters)
            }
        })
    }
}
