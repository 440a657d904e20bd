use crate::{FencingToken, LossReason, Mode, Moment};

/// The id of a hold of one key, unique within its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(super) u64);

impl HoldId {
    /// The timer with this id is the engine's own.
    pub(super) const NONE: Self = Self(0);
    /// So is this one: that of the tasks that do not run.
    pub(super) const TURNS: Self = Self(u64::MAX);
}

/// One task's use of a hold. Tasks that share a lease use it one after the other, each with a fencing token of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub(super) number: u64,
    /// The mode of the hold in this tenure. A downgrade begins a new tenure.
    pub mode: Mode,
    /// Its token.
    pub fence: FencingToken,
    /// When it began.
    pub since: Moment,
    /// No task has the lease: it is kept for the next task.
    pub idle: bool,
}

impl Tenure {
    /// Compares the order of beginning within one hold.
    pub fn cmp_number(&self, other: Self) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}

/// How a hold ended for this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// Its owner released it.
    Released,
    /// It was lost.
    Lost(LossReason),
}
