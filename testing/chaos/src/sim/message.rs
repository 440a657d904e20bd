use fencelock_core::{FencingToken, Raise, Standing, Vote};
use std::time::Duration;

/// What a client asks a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) client: usize,
    /// In which of its lives it asks: a later one hears nothing of the answer.
    pub(super) life: u32,
    pub(super) key: usize,
    /// Its attempt, by number; it is the client's own affair.
    pub(super) attempt: u64,
    /// What the node knows it by.
    pub(super) holder: u128,
    pub(super) ask: Ask,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Ask {
    Claim {
        proposal: u64,
    },
    /// The holder found that it had the lock already: it asks for full time and for its fence.
    Confirm {
        proposal: u64,
    },
    Raise {
        to: FencingToken,
    },
    Renew {
        number: u64,
    },
    Release,
}

/// What a node says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) node: usize,
    pub(super) asked: Request,
    pub(super) reply: Reply,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    /// To a claim; with how long the lock of somebody else will last there.
    Vote(Vote, Option<Duration>),
    /// To a claim of one who has the lock already.
    Yours,
    Raise(Raise),
    Renew(Standing),
    Release(#[expect(dead_code, reason = "nobody acts on it, but a trace tells it")] Standing),
}
