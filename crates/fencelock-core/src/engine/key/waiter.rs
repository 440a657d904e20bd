use crate::Moment;
use crate::engine::claim::{AcquireRequest, Claiming, PendingClaim};
use crate::engine::{Action, Context};

/// The id of a task that acquires the key, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub(super) i64);

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
    /// The task must claim the key on the backend. It takes over the attempt of a task that gave up, if there is one.
    Called(Option<Box<PendingClaim>>),
    /// The task is claiming.
    Claiming(Box<Claiming>),
}

impl<W> Waiter<W> {
    /// Whether it waits for the lease of this client.
    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.state, WaiterState::Queued)
    }
}

impl<W: Default> Waiter<W> {
    /// Makes a task claim again. Returns whether it claims.
    pub(super) fn notify<L>(&mut self, cx: &mut Context<'_, W, L>) -> bool {
        let Some(pending) = self.state.claim_mut() else { return false };
        pending.notified = true;
        cx.act(Action::Wake(std::mem::take(&mut self.task)));
        true
    }
}

impl WaiterState {
    pub(super) fn claim_mut(&mut self) -> Option<&mut PendingClaim> {
        match self {
            Self::Queued => None,
            Self::Called(pending) => pending.as_deref_mut(),
            Self::Claiming(claiming) => claiming.attempt.as_mut(),
        }
    }

    /// Whether the claim is known to wait at the backend.
    pub(super) fn waits_at_backend(&self) -> bool {
        let claim = match self {
            Self::Queued => None,
            Self::Called(pending) => pending.as_deref(),
            Self::Claiming(claiming) => claiming.attempt.as_ref(),
        };
        claim.is_some_and(|claim| claim.answered.is_some())
    }

    /// Whether no request of the task is in flight.
    pub(super) fn is_at_rest(&self) -> bool {
        match self {
            Self::Queued | Self::Called(_) => true,
            Self::Claiming(claiming) => claiming.is_at_rest(),
        }
    }
}
