use crate::engine::claim::{AcquireRequest, Claiming, PendingClaim};
use crate::engine::hold::{HoldId, Tenure};
use crate::engine::{AcquireFailure, Action, Env, Grant};
use crate::{HolderId, Mode, Moment};
use std::collections::VecDeque;

/// The tasks of one client that acquire one key.
///
/// Tasks that share leases wait in `queue`, in the order of their arrival. Only the first of them, the leader, claims;
/// for permits, as many as may hold some at the same time. Tasks outside the queue claim for themselves.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Waiters<W> {
    pub(super) queue: Queue<W>,
    /// The number of tasks in the queue that claim, or are about to.
    pub(super) claiming: usize,
    claimants: Queue<W>,
    /// Tasks that have not read their result, or have lost their turn.
    aside: Queue<W>,
    last: u64,
}

/// What comes of a task.
pub(super) type TaskResult = Result<Grant, Box<AcquireFailure>>;

impl<W: Default> Waiters<W> {
    /// The id of a task that arrives.
    pub(super) const fn new_id(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    /// Adds a task to the queue, or to the tasks that claim for themselves.
    pub(super) fn add(&mut self, id: WaiterId, waiter: Waiter<W>, in_queue: bool) {
        if in_queue { &mut self.queue } else { &mut self.claimants }.insert(id, waiter);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.claimants.is_empty() && self.aside.is_empty()
    }

    /// The number of tasks that claim for themselves and wait for a release.
    pub(super) fn claimants_waiting(&self) -> usize {
        self.claimants.iter().filter(|(_, waiter)| waiter.request.queues()).count()
    }

    /// The first task that waits for a release, in the queue or for itself.
    pub(super) fn first_waiter(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.front().or_else(|| self.claimants.iter().find(|(_, waiter)| waiter.request.queues()))
    }

    pub(super) fn is_in_queue(&self, id: WaiterId) -> bool {
        self.queue.get(id).is_some()
    }

    pub(super) fn front(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.queue.iter().next()
    }

    /// The last task in the queue that does not claim.
    pub(super) fn last_queued(&self) -> Option<WaiterId> {
        self.queue.iter().rev().find(|(_, waiter)| waiter.is_queued()).map(|(id, _)| id)
    }

    /// Makes a queued task claim, and passes it this claim if there is one.
    pub(super) fn call<L>(&mut self, id: WaiterId, pending: Option<Box<PendingClaim>>, cx: &mut Env<'_, W, L>) {
        if let Some(waiter) = self.queue.get_mut(id) {
            waiter.state = WaiterState::Called(pending);
            self.claiming += 1;
            cx.act(Action::Wake(std::mem::take(&mut waiter.task)));
        }
    }

    /// A task that claimed returns to waiting for a lease of this client.
    pub(super) fn requeue(&mut self, id: WaiterId) {
        if let Some(waiter) = self.queue.get_mut(id).filter(|waiter| !waiter.is_queued()) {
            waiter.state = WaiterState::Queued;
            self.claiming -= 1;
        }
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        self.queue.get(id).or_else(|| self.claimants.get(id)).or_else(|| self.aside.get(id))
    }

    pub(super) fn get_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<W>> {
        [&mut self.queue, &mut self.claimants, &mut self.aside].into_iter().find_map(|tasks| tasks.get_mut(id))
    }

    /// A task that claims, and its request.
    pub(super) fn claiming(&mut self, id: WaiterId) -> Option<(&AcquireRequest, &mut Claiming)> {
        match self.get_mut(id)? {
            Waiter { request, state: WaiterState::Claiming(claiming), .. } => Some((request, claiming)),
            _ => None,
        }
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.aside.remove(id).or_else(|| self.remove_from_queue(id)).or_else(|| self.claimants.remove(id));
        if self.is_empty() {
            // Frees unused memory: a client may have very many keys with one task at a time.
            (self.queue, self.claimants, self.aside) = Default::default();
        }
        waiter
    }

    fn remove_from_queue(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(id)?;
        self.claiming -= usize::from(!waiter.is_queued());
        Some(waiter)
    }

    /// Stores the result of a task in the queue. Returns its previous state.
    pub(super) fn serve<L>(&mut self, id: WaiterId, result: TaskResult, cx: &mut Env<'_, W, L>) -> Option<WaiterState> {
        let mut waiter = self.remove_from_queue(id)?;
        let state = std::mem::replace(&mut waiter.state, WaiterState::Served(result));
        cx.act(Action::Wake(std::mem::take(&mut waiter.task)));
        self.aside.insert(id, waiter);
        Some(state)
    }

    /// A task that was removed has lost its turn.
    pub(super) fn pass_over(&mut self, id: WaiterId, waiter: Waiter<W>) {
        self.aside.insert(id, Waiter { state: WaiterState::TurnLost, ..waiter });
    }

    /// Removes the tasks that have lost their turn: they may never run again.
    pub(super) fn forget_lost(&mut self) {
        let lost = |(id, waiter): (WaiterId, &Waiter<W>)| matches!(waiter.state, WaiterState::TurnLost).then_some(id);
        for id in self.aside.iter().filter_map(lost).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    /// The grants that their tasks have not read yet.
    fn granted(&self) -> impl Iterator<Item = (WaiterId, &Grant)> {
        self.aside.iter().filter_map(|(id, waiter)| match &waiter.state {
            WaiterState::Served(Ok(grant)) => Some((id, grant)),
            _ => None,
        })
    }

    /// The grant of a task that has not read it yet.
    pub(super) fn granted_to(&self, id: WaiterId) -> Option<Grant> {
        match self.aside.get(id)?.state {
            WaiterState::Served(Ok(grant)) => Some(grant),
            _ => None,
        }
    }

    /// Whether a task has been granted this tenure and has not read the grant yet.
    pub(super) fn is_granted(&self, hold: HoldId, tenure: Tenure) -> bool {
        self.granted().any(|(_, grant)| (grant.hold, grant.tenure) == (hold, tenure))
    }

    /// All tasks that wait or claim.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W>> {
        self.queue.iter_mut().chain(self.claimants.iter_mut())
    }

    /// The claim with this holder id, in the queue or not.
    pub(super) fn claim_of(&mut self, holder: HolderId) -> Option<(&mut PendingClaim, &mut W)> {
        self.all_mut().find_map(|waiter| {
            let Waiter { state, task, .. } = waiter;
            state.claim_mut().filter(|pending| pending.claim.holder.id == holder).map(|pending| (pending, task))
        })
    }

    /// Whether a task may keep others from the key: it claims while others wait behind it, or has not read its grant.
    pub(super) fn may_block(&self) -> bool {
        self.queue.len() > self.claiming || self.granted().next().is_some()
    }

    /// Whether this is such a task.
    pub(super) fn blocks(&self, id: WaiterId) -> bool {
        let claims = self.queue.get(id).is_some_and(|waiter| !waiter.is_queued());
        claims && self.queue.len() > self.claiming || self.granted_to(id).is_some()
    }

    /// All such tasks, and what wakes those that claim.
    pub(super) fn suspects(&mut self) -> (Vec<WaiterId>, Vec<W>) {
        let claiming = if self.queue.len() > self.claiming { self.claiming } else { 0 };
        let claimants = self.queue.iter().filter(|(_, waiter)| !waiter.is_queued());
        let claimants: Vec<_> = claimants.take(claiming).map(|(id, _)| id).collect();
        let ids = self.granted().map(|(id, _)| id).chain(claimants.iter().copied()).collect();
        let mut task_of = |id| self.queue.get_mut(id).map(|waiter| std::mem::take(&mut waiter.task));
        (ids, claimants.into_iter().filter_map(&mut task_of).collect())
    }
}

/// Tasks that share permits: several of them may claim.
impl<W: Default> Waiters<W> {
    /// The first queued task without a request in flight.
    pub(super) fn first_at_rest(&self) -> Option<(WaiterId, &Waiter<W>)> {
        self.queue.iter().find(|(_, waiter)| waiter.state.is_at_rest())
    }

    /// The number of claims of queued tasks that are known to wait at the backend.
    pub(super) fn waiting_at_backend(&self) -> u32 {
        let claims = self.queue.iter().filter(|(_, waiter)| !waiter.is_queued()).take(self.claiming);
        let waiting = claims.filter(|(_, waiter)| waiter.state.waits_at_backend()).count();
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// Whether a task that tries once in this mode would overtake a queued task. Several permits may be free, so claims
    /// of tasks that have just arrived do not count.
    pub(super) fn is_known_to_wait(&self, mode: Mode) -> bool {
        let waits = |waiter: &Waiter<W>| waiter.is_queued() || waiter.state.waits_at_backend();
        let permits = matches!(mode, Mode::Permits { .. });
        !self.queue.is_empty() && (!permits || self.queue.iter().any(|(_, waiter)| waits(waiter)))
    }
}

/// The id of a task that acquires the key, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub(super) u64);

/// A task that acquires the key.
#[derive(Debug, Clone, Hash)]
pub(super) struct Waiter<W> {
    pub(super) request: AcquireRequest,
    pub(super) arrived: Moment,
    /// The driver's data that wakes it.
    pub(super) task: W,
    pub(super) state: WaiterState,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum WaiterState {
    /// The task waits for the lease of this client.
    Queued,
    /// So it does, but its wait is over: the key is inspected once more, to report its holder.
    LastLook,
    /// The task must claim the key on the backend. It takes over the attempt of a task that gave up, if there is one.
    Called(Option<Box<PendingClaim>>),
    /// The task is claiming.
    Claiming(Box<Claiming>),
    /// The task has not read its result yet.
    Served(TaskResult),
    /// The task did not run while others waited behind it.
    TurnLost,
}

impl<W> Waiter<W> {
    /// Whether it waits for the lease of this client.
    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.state, WaiterState::Queued | WaiterState::LastLook)
    }
}

impl<W: Default> Waiter<W> {
    /// Makes a task claim again. Returns whether it claims.
    pub(super) fn notify<L>(&mut self, cx: &mut Env<'_, W, L>) -> bool {
        let Some(pending) = self.state.claim_mut() else { return false };
        pending.notified = true;
        cx.act(Action::Wake(std::mem::take(&mut self.task)));
        true
    }
}

impl WaiterState {
    pub(super) fn claim_mut(&mut self) -> Option<&mut PendingClaim> {
        match self {
            Self::Called(pending) => pending.as_deref_mut(),
            Self::Claiming(claiming) => claiming.attempt.as_mut(),
            _ => None,
        }
    }

    /// Whether the claim is known to wait at the backend.
    pub(super) fn waits_at_backend(&self) -> bool {
        let claim = match self {
            Self::Called(pending) => pending.as_deref(),
            Self::Claiming(claiming) => claiming.attempt.as_ref(),
            _ => None,
        };
        claim.is_some_and(|claim| claim.answered.is_some())
    }

    /// Whether no request of the task is in flight that may be executed.
    pub(super) const fn is_at_rest(&self) -> bool {
        if let Self::Claiming(claiming) = self { claiming.is_at_rest() } else { true }
    }
}

/// Tasks in the order of their ids. Tasks are mostly added at the end, and leave mostly from the front, which moves no other.
///
/// A hand-off removes the first task and adds one at the back. In a `BTreeMap` each of the two moves a node of large
/// entries, which took 5 % of the time of a hand-off.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Queue<W>(VecDeque<(WaiterId, Waiter<W>)>);

impl<W> Queue<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a task that is not there.
    pub(super) fn insert(&mut self, id: WaiterId, waiter: Waiter<W>) {
        if self.0.capacity() == 0 {
            // A key usually has one.
            self.0.reserve_exact(1);
        }
        self.0.insert(self.before(id), (id, waiter));
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter<W>> {
        self.index(id).map(|index| &self.0[index].1)
    }

    pub(super) fn get_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<W>> {
        self.index(id).map(|index| &mut self.0[index].1)
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        self.0.remove(self.index(id)?).map(|(_, waiter)| waiter)
    }

    /// The number of tasks before this one.
    pub(super) fn before(&self, id: WaiterId) -> usize {
        self.0.partition_point(|(other, _)| *other < id)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (WaiterId, &Waiter<W>)> {
        self.0.iter().map(|(id, waiter)| (*id, waiter))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W>> {
        self.0.iter_mut().map(|(_, waiter)| waiter)
    }

    fn index(&self, id: WaiterId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

#[cfg(test)]
mod queue_tests {
    use super::super::waiters::WaiterState;
    use super::*;
    use crate::Moment;
    use crate::engine::AcquireRequest;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn waiter(task: u64) -> Waiter<u64> {
        Waiter { request: AcquireRequest::default(), arrived: Moment::default(), task, state: WaiterState::Queued }
    }

    proptest! {
        #[test]
        fn the_queue_behaves_as_a_sorted_map(calls in prop::collection::vec((0..5_u8, any::<prop::sample::Index>()), 0..300)) {
            let (mut waiters, mut map, mut last) = (Queue::default(), BTreeMap::new(), 0);
            for (call, which) in calls {
                // Also one that is not among them.
                let number = which.index(last + 2) as u64;
                let id = WaiterId(number);
                match call {
                    0 => {
                        last += 1;
                        let number = last as u64;
                        waiters.insert(WaiterId(number), waiter(number));
                        map.insert(number, number);
                    }
                    1 if !map.contains_key(&number) => {
                        waiters.insert(id, waiter(number));
                        map.insert(number, number);
                        last = last.max(which.index(last + 2));
                    }
                    _ => prop_assert_eq!(waiters.remove(id).map(|one| one.task), map.remove(&number)),
                }
                prop_assert_eq!(waiters.get(id).map(|one| one.task), map.get(&number).copied());
                prop_assert_eq!(waiters.get_mut(id).is_some(), map.contains_key(&number));
                prop_assert_eq!(waiters.before(id), map.range(..number).count());
                prop_assert_eq!(waiters.len(), map.len());
                prop_assert_eq!(waiters.is_empty(), map.is_empty());
                prop_assert!(waiters.iter().map(|(_, one)| one.task).eq(map.values().copied()));
            }
        }
    }
}
