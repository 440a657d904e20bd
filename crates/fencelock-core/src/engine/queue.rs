use super::action::{Grant, Step};
use super::claiming::PendingClaim;
use super::line::Line;
use super::served::Served;
use super::tenure::{HoldId, Tenure};
use super::waiter::{State, Waiter, WaiterId};
use crate::HolderId;
use std::collections::BTreeMap;

/// The tasks of one client that want one key.
///
/// Those that share leases stand in `line`, in the order of their arrival; only the first of them, the leader, claims.
/// All others claim for themselves.
#[derive(Debug, Clone, Hash)]
pub(super) struct Queue<W> {
    line: Line<W>,
    claimants: BTreeMap<WaiterId, Waiter<W>>,
    /// Tasks that are not waiting any more, and have not been told yet.
    served: Served,
    last: i64,
    first: i64,
}

impl<W: Default> Queue<W> {
    pub(super) const fn new() -> Self {
        Self { line: Line::new(), claimants: BTreeMap::new(), served: Served::new(), last: 0, first: 0 }
    }

    /// Adds a task to the line, at the front of it if `first`; or to those that claim for themselves.
    pub(super) fn add(&mut self, waiter: Waiter<W>, in_line: bool, first: bool) -> WaiterId {
        let id = if first {
            self.first -= 1;
            WaiterId(self.first)
        } else {
            self.last += 1;
            WaiterId(self.last)
        };
        if in_line {
            self.line.insert(id, waiter);
        } else {
            self.claimants.insert(id, waiter);
        }
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.claimants.is_empty() && self.served.is_empty()
    }

    /// Whether nobody waits in line.
    pub(super) fn line_is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn line_len(&self) -> usize {
        self.line.len()
    }

    /// How many tasks claim for themselves and wait for a release.
    pub(super) fn claimants_waiting(&self) -> usize {
        self.claimants.values().filter(|waiter| waiter.request.queues()).count()
    }

    /// How many stand in line before this one.
    pub(super) fn before(&self, id: WaiterId) -> usize {
        self.line.before(id)
    }

    pub(super) fn is_in_line(&self, id: WaiterId) -> bool {
        self.line.get(id).is_some()
    }

    pub(super) fn front(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.line.first()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Waiter<W>> {
        self.line.first_mut()
    }

    /// The task behind the first one.
    pub(super) fn second(&self) -> Option<&Waiter<W>> {
        self.line.iter().nth(1).map(|(_, waiter)| waiter)
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        self.line.get(id).or_else(|| self.claimants.get(&id))
    }

    pub(super) fn get_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<W>> {
        match self.line.get_mut(id) {
            Some(waiter) => Some(waiter),
            None => self.claimants.get_mut(&id),
        }
    }

    /// The task does not want the key any more.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.line.remove(id).or_else(|| self.claimants.remove(&id));
        self.shrink();
        waiter
    }

    /// The first in line is told this when it asks. Gives what wakes it.
    pub(super) fn serve_front(&mut self, step: Step) -> Option<W> {
        let (id, waiter) = self.line.pop_first()?;
        self.served.insert(id, step);
        Some(waiter.task)
    }

    /// A task in line is told this when it asks. Gives what wakes it.
    pub(super) fn serve(&mut self, id: WaiterId, step: Step) -> Option<W> {
        let waiter = self.line.remove(id)?;
        self.served.insert(id, step);
        Some(waiter.task)
    }

    /// What a task that waits no more is told.
    pub(super) fn take_served(&mut self, id: WaiterId) -> Option<Step> {
        let step = self.served.remove(id)?;
        self.shrink();
        Some(step)
    }

    /// What a task has been granted, if it has not been told yet.
    pub(super) fn granted_to(&self, id: WaiterId) -> Option<Grant> {
        match self.served.get(id) {
            Some(Step::Granted(grant)) => Some(*grant),
            _ => None,
        }
    }

    /// Whether a task has been granted this tenure, and has not been told yet.
    pub(super) fn is_granted(&self, hold: HoldId, tenure: Tenure) -> bool {
        let this = |step: &Step| matches!(step, Step::Granted(grant) if (grant.hold, grant.tenure) == (hold, tenure));
        self.served.steps().any(this)
    }

    /// The tasks in line, in order.
    pub(super) fn line(&self) -> impl Iterator<Item = (WaiterId, &Waiter<W>)> {
        self.line.iter()
    }

    /// Everybody who waits or claims.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W>> {
        self.line.iter_mut().chain(self.claimants.values_mut())
    }

    /// What a holder of this client has heard, wherever it waits.
    pub(super) fn claim_of(&mut self, holder: HolderId) -> Option<(&mut PendingClaim, &mut W)> {
        self.all_mut().find_map(|waiter| {
            let Waiter { state, task, .. } = waiter;
            let pending = match state {
                State::Queued => None,
                State::Called(pending) => pending.as_deref_mut(),
                State::Claiming(claiming) => claiming.attempt.as_mut(),
            };
            pending.filter(|pending| pending.claim.holder.id == holder).map(|pending| (pending, task))
        })
    }

    /// Gives the memory back: a client may have very many keys that one task at a time wants.
    fn shrink(&mut self) {
        if self.is_empty() {
            (self.line, self.claimants, self.served) = (Line::new(), BTreeMap::new(), Served::new());
        }
    }
}
