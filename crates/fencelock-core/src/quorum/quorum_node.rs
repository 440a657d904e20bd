use super::Raise;
use crate::{Acquire, Answer, Backend, Claim, Completion, Downgrade, FencingToken, HolderId, Key, Renewal};
use std::sync::Arc;

/// A backend that can be a node of a quorum: several of them agree on one fencing token.
///
/// A single backend does not need this. The conformance suite checks [`QuorumNode::raise`] on each backend that
/// implements it.
pub trait QuorumNode: Backend {
    /// [`Backend::acquire`] with a proposal for the fencing token: the fence to grant, in microseconds since 1970, if the time
    /// and the last grant of the node allow it: [`crate::next_proposed_block`]. Nodes with the same proposal usually grant the
    /// same fence.
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire>;

    /// Sets the token of this holder's hold to this one, unless the holder was granted a greater one, and raises the
    /// fence of the key to it: [`crate::raise_fence`]. Other holders of a shared lock keep their tokens.
    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise>;

    /// [`ModeChanges::downgrade`](crate::ModeChanges::downgrade) with a proposal for the new token, as [`QuorumNode::acquire_proposed`]. A node
    /// that ignores the proposal and uses its own clock needs one more round trip to agree with the others.
    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade>;

    /// [Merges](Completion::merge) a completion that was read, here or from another node, into the stored one. No hold is needed:
    /// the run that it belongs to held the key when the completion was written there. A node without
    /// [completions](Backend::completions) refuses it with [`crate::once::unsupported`].
    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()>;

    /// [`Backend::reconnected`], as a node.
    fn node_reconnected(&self) -> Option<Arc<dyn QuorumNode>> {
        None
    }
}

impl<'n> dyn QuorumNode + 'n {
    /// The node as a backend, with the requests of [`crate::Admin`], [`crate::Completions`] and [`crate::ModeChanges`].
    pub fn as_backend(&self) -> &(dyn Backend + 'n) {
        self
    }
}

/// Allows a quorum to keep its nodes behind pointers.
const _: Option<&dyn QuorumNode> = None;
