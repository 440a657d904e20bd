use super::claiming::{Claiming, PendingClaim};
use super::request::AcquireRequest;
use crate::Moment;

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
    pub(super) state: State,
}

#[derive(Debug, Clone, Hash)]
pub(super) enum State {
    /// The task waits for the lease of this client.
    Queued,
    /// The task must claim the key on the backend. It takes over the attempt of a task that gave up, if there is one.
    Called(Option<Box<PendingClaim>>),
    /// The task is claiming.
    Claiming(Box<Claiming>),
}
