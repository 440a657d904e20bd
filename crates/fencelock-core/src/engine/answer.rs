use super::action::Grant;
use super::release_queue::PendingRelease;
use crate::{Moment, Occupied};

/// What the holder of a tenure may assume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has the key until this moment, if no renewal succeeds.
    Held(Moment),
    /// It has passed the lease on, or has released it.
    PassedOn,
    /// The hold is over: [`super::Action::Ended`] reported how.
    Over,
}

/// What happens to a lease that its holder no longer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Another task has it now, or it is kept for the next one. The caller must not release it.
    PassedOn,
    /// The caller must release it on the backend.
    Release,
    /// The lease was already over.
    Over,
}

/// The result of taking an idle lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdleLease {
    /// There is no idle lease.
    None,
    /// The caller has it.
    Taken(Grant),
    /// It does not match the request and must be released.
    Release(Box<PendingRelease>),
}

/// The known holder of the key. No request is sent for this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The number of waiters before; `None` if the backend has no queue.
    pub ahead: Option<u32>,
    /// The holder.
    pub occupied: Occupied,
}
