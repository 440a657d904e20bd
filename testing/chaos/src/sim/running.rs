//! The pending calls of a client, and their results.

use super::machines::{CallTimer, ClaimCall, DowngradeCall, NodeReply, ReleaseCall, RenewCall};
use fencelock_core::engine::{HoldId, PendingRelease};
use fencelock_core::{Acquire, Downgrade, Fault, Moment, NodeSet, Release, Renew, Unknown};

/// A pending call of a client.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) kind: Kind,
    pub(super) link: Link,
}

#[derive(Debug)]
pub(super) enum Kind {
    Claim {
        call: ClaimCall,
        /// The number of the task.
        task: u64,
        sent: Moment,
    },
    Renew {
        call: RenewCall,
        hold: HoldId,
        sent: Moment,
        invoked: u64,
    },
    Downgrade {
        call: DowngradeCall,
        hold: HoldId,
    },
    /// A background release, with its number in the release queue.
    Release {
        call: ReleaseCall,
        number: u64,
        release: PendingRelease,
        sent: Moment,
    },
}

/// The requests between a call and the nodes.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) holder: u128,
    pub(super) proposal: u64,
    /// When its timers fire, in true time.
    pub(super) timers: Vec<(u64, CallTimer)>,
    /// When the queued event for the timers fires.
    pub(super) alarm: Option<u64>,
    /// When the requests were sent, in true time.
    pub(super) sent: Vec<u64>,
    /// Nodes with the claim in flight.
    pub(super) claiming: NodeSet,
    /// Nodes where the release waits for the end of a claim.
    pub(super) waiting: NodeSet,
    pub(super) raises: bool,
    /// A grant that the mutant [`super::Mutant::MajorityOff`] repeats as the answer of another node.
    pub(super) granted: Option<NodeReply>,
    pub(super) reported: bool,
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum Done {
    Claim(Result<Acquire, Unknown>),
    Renew(Vec<Result<Renew, Unknown>>),
    Downgrade(Result<Downgrade, Unknown>),
    Release(Result<Release, Unknown>),
}

/// The claim, renewal, downgrade or release that a result belongs to.
#[derive(Debug, Clone)]
pub(super) enum Of {
    Claim(u64),
    Renew { hold: HoldId, sent: Moment, invoked: u64 },
    Downgrade(HoldId),
    Release { number: u64, release: PendingRelease, sent: Moment },
}

impl Kind {
    pub(super) fn result(&self) -> Of {
        match self {
            Self::Claim { task, .. } => Of::Claim(*task),
            Self::Renew { hold, sent, invoked, .. } => Of::Renew { hold: *hold, sent: *sent, invoked: *invoked },
            Self::Downgrade { hold, .. } => Of::Downgrade(*hold),
            Self::Release { number, release, sent, .. } => {
                Of::Release { number: *number, release: release.clone(), sent: *sent }
            }
        }
    }
}

impl Of {
    /// The result of a request to the one server; `None` if there was no reply in time.
    pub(super) fn done(&self, reply: Option<NodeReply>) -> Done {
        let cause = Unknown::new("", Fault::Timeout, "");
        match (reply, self) {
            (Some(NodeReply::Claim(answer)), _) => Done::Claim(answer),
            (Some(NodeReply::Renew(answers)), _) => Done::Renew(answers),
            (_, Self::Claim(_)) => Done::Claim(Err(cause)),
            _ => Done::Renew(vec![Err(cause)]),
        }
    }
}
