use super::action::Grant;
use super::release_queue::PendingRelease;
use crate::{Moment, Occupied};

/// What the holder of a tenure may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has the key until then, if no renewal succeeds.
    Held(Moment),
    /// It has passed the lease on, or has released it.
    PassedOn,
    /// The hold is over: [`super::Action::Ended`] has told how.
    Over,
}

/// What becomes of a lease that its holder does not need any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Another task has it now, or it is kept for the next one. Nothing is to be released.
    PassedOn,
    /// It is to be released at the place.
    Release,
    /// It was over before.
    Over,
}

/// What became of an idle lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdleLease {
    /// There is none.
    None,
    /// The caller has it.
    Taken(Grant),
    /// It does not suit, and must be released.
    Release(Box<PendingRelease>),
}

/// Who has the key, as far as it is known without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// How many wait before; `None` where the place has no queue.
    pub ahead: Option<u32>,
    /// Who has it.
    pub occupied: Occupied,
}
