use fencelock_core::quorum::NodeReply;
use fencelock_core::{FencingToken, Mode, Owner};

/// What a client asks a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) client: usize,
    /// In which of its lives it asks: a later one hears nothing of the answer.
    pub(super) life: u32,
    /// Its call, by number; [`Request::PROBE`] asks only whether the node answers.
    pub(super) call: u64,
    pub(super) key: usize,
    /// What the node knows it by.
    pub(super) holder: u128,
    pub(super) ask: Ask,
}

impl Request {
    pub(super) const PROBE: u64 = 0;
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Ask {
    Claim {
        proposal: u64,
        mode: Mode,
    },
    /// The holder found that it had the lock already: it asks for full time and for its fence.
    Confirm {
        proposal: u64,
        mode: Mode,
    },
    Raise {
        to: FencingToken,
    },
    Renew,
    Release,
    Watch,
    Downgrade {
        proposal: u64,
    },
}

/// What a node says.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) node: usize,
    pub(super) asked: Request,
    pub(super) reply: Reply,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// To a claim of one who has the lock already.
    Yours,
    Node(NodeReply),
}

/// The owner of every claim of the simulation.
pub(super) fn owner() -> Owner {
    Owner::from_text("sim")
}
