use super::machines::NodeReply;
use fencelock_core::{FencingToken, Mode, Owner, Queueing};

/// A request of a client to a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) client: usize,
    /// The incarnation of the client that sends it; later incarnations ignore the reply.
    pub(super) life: u32,
    /// The number of its call; [`Request::PROBE`] only tests whether the node answers.
    pub(super) call: u64,
    pub(super) key: usize,
    /// The holder id that the node stores.
    pub(super) holder: u128,
    pub(super) body: RequestBody,
}

impl Request {
    pub(super) const PROBE: u64 = 0;
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RequestBody {
    Claim {
        proposal: u64,
        mode: Mode,
    },
    /// Sent after [`Reply::Yours`]: a poll, which returns the fence and extends the lock to its full TTL.
    Confirm {
        proposal: u64,
        mode: Mode,
    },
    /// A claim at the one server, which has a queue.
    Queue(Queueing),
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

/// The reply of a node to a request.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) node: usize,
    pub(super) request: Request,
    pub(super) reply: Reply,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// The claim found its own lock.
    Yours,
    Node(NodeReply),
}

/// The owner of all claims in the simulation.
pub(super) fn owner() -> Owner {
    Owner::from_text("sim")
}
