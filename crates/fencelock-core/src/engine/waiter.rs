use super::claiming::{Claiming, PendingClaim};
use super::request::AcquireRequest;
use crate::Moment;

/// Names a task that wants the key. No other task of the same engine ever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub(super) i64);

/// A task that wants the key.
#[derive(Debug, Clone, Hash)]
pub(super) struct Waiter<W> {
    pub(super) request: AcquireRequest,
    pub(super) arrived: Moment,
    /// How the driver wakes it.
    pub(super) task: W,
    pub(super) state: State,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum State {
    /// It waits for the lease of this client.
    Queued,
    /// It must claim the key at the place, from where another task has given up if there was one.
    Called(Option<Box<PendingClaim>>),
    /// It claims.
    Claiming(Box<Claiming>),
}
