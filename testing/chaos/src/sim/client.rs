use super::clock::SimClock;
use fencelock_core::{FencingToken, Moment, NodeSet, RenewalPlan, Round, Tally};
use std::time::Duration;

/// One process that wants one key, over and over.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) key: usize,
    /// The clock that leases go by.
    pub(super) clock: SimClock,
    /// The clock that proposals are made of.
    pub(super) wall: SimClock,
    /// The greatest fence any node has named.
    pub(super) seen: u64,
    pub(super) paused_until: u64,
    /// One more with every death: what was meant for an earlier life is not heard.
    pub(super) life: u32,
    pub(super) attempt: u64,
    pub(super) holder: u128,
    /// When the attempt began, by the true time.
    pub(super) invoked: u64,
    /// Rounds that were lost in a row.
    pub(super) asked: u32,
    pub(super) phase: Phase,
}

#[derive(Debug)]
pub(super) enum Phase {
    Idle,
    Asking(Asking),
    Holding(Hold),
}

/// A round that is open.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) round: Round,
    pub(super) sent: Moment,
    pub(super) proposal: u64,
    pub(super) in_grace: bool,
    pub(super) raising: NodeSet,
    /// How long whoever has the key will have it yet, at the least that was heard.
    pub(super) busy_for: Option<Duration>,
    /// For a client that is content with less than a majority.
    pub(super) granted: Vec<FencingToken>,
}

/// A key that is held.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) plan: RenewalPlan,
    pub(super) fence: FencingToken,
    pub(super) renewing: Option<Renewing>,
    /// For a holder that does not accept its lapse.
    pub(super) revives_until: Moment,
}

/// A renewal under way.
#[derive(Debug)]
pub(super) struct Renewing {
    pub(super) number: u64,
    pub(super) sent: Moment,
    /// The same by the true time.
    pub(super) invoked: u64,
    pub(super) tally: Tally,
}

/// What a client waits for, in an attempt of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer {
    /// The next attempt.
    Start,
    /// Nodes that have not answered the claim by now count as silent.
    ClaimLimit,
    /// Different grants are raised now.
    Grace,
    /// Nodes that have not acked by now count as refusing.
    RaiseLimit,
    /// The lease needs something.
    Watch,
    /// Nodes that have not answered this renewal by now count as silent.
    RenewLimit(u64),
    /// The work is done.
    Done,
}
