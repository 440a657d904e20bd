use super::Raise;
use crate::{Answer, Backend, FencingToken, Health, HolderId, Key};
use std::sync::Arc;

/// A place that can be a node of a quorum: several of them agree on one fencing token.
///
/// A single place does not need this. The conformance suite checks [`QuorumNode::raise`] on each place that
/// implements it.
pub trait QuorumNode: Backend {
    /// Makes the fence of a hold this one token, if the hold belongs to this holder and its fence is not greater:
    /// [`crate::raise_fence`].
    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise>;

    /// The properties by which the quorum compares its nodes; [`Health::default`] without a server.
    fn health(&self) -> Answer<'_, Health> {
        Box::pin(async { Ok(Health::default()) })
    }

    /// [`Backend::reconnected`], as a node.
    fn node_reconnected(&self) -> Option<Arc<dyn QuorumNode>> {
        None
    }
}

/// Allows a quorum to keep its nodes behind pointers.
const _: Option<&dyn QuorumNode> = None;
