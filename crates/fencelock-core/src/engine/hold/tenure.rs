use crate::{FencingToken, HolderId, LossReason, Mode, Moment};

/// The id of a hold of one key, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) u64);

impl HoldId {
    /// The timer with this id is the engine's own.
    pub(crate) const NONE: Self = Self(0);
    /// So is this one: that of the tasks that do not run.
    pub(crate) const TURNS: Self = Self(u64::MAX);
}

/// One task's use of a hold. Tasks that share a lease use it one after the other, each with a fencing token of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub(crate) number: u64,
    /// The mode of the hold in this tenure. A downgrade begins a new tenure.
    pub mode: Mode,
    /// Its token.
    pub fence: FencingToken,
    /// When it began.
    pub since: Moment,
    /// No task has the lease: it is kept for the next task.
    pub idle: bool,
}

/// How a hold ended for this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// Its owner released it.
    Released,
    /// It was lost.
    Lost(LossReason),
}

impl End {
    /// Whether this holder id belongs to another process now: one of the tasks that shared the hold has detached it.
    pub fn is_given_away(&self, holder: HolderId) -> bool {
        let Self::Lost(LossReason::TakenBy(holders)) = self else { return false };
        holders.iter().any(|other| other.holder_id() == Some(holder))
    }
}

/// What the holder of a tenure may assume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has the key until this moment, if no renewal succeeds.
    Held(Moment),
    /// It has passed the lease on or has released it: it must not release it now.
    PassedOn,
    /// The hold is over: [`crate::engine::Action::Ended`] reported how.
    Over,
}
