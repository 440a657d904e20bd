//! What a world consists of.

use fencelock_core::once::OnceJob;
use fencelock_core::{Completion, CompletionRead, NodeVote};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) job: Option<OnceJob>,
    pub(crate) token: u64,
    pub(crate) held: bool,
    #[allow(clippy::option_option, reason = "no reply yet, and no reply at all")]
    pub(crate) replies: Vec<Option<Option<CompletionRead>>>,
    pub(crate) granted: Vec<bool>,
    pub(crate) node_votes: Vec<Option<NodeVote>>,
    pub(crate) sent: bool,
    pub(crate) ran: bool,
    /// It acquired the lock after a client was notified that the work is done.
    pub(crate) after_report: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Node {
    pub(crate) holder: Option<usize>,
    pub(crate) stored: Option<Completion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) from: usize,
    /// Later attempts of a client do not take the replies for theirs.
    pub(crate) token: u64,
    pub(crate) node: usize,
    pub(crate) completion: Completion,
    pub(crate) restores: bool,
}
