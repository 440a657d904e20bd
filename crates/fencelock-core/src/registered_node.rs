use std::time::Duration;

/// The result for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredNode {
    /// Its address, without a password.
    pub node: String,
    /// What was found there.
    pub change: Change,
    /// The remaining quarantine; zero if the node grants.
    pub ready_in: Duration,
}

impl RegisteredNode {
    /// `node` is an address without a password.
    pub fn new(node: impl Into<String>, change: Change, ready_in: Duration) -> Self {
        Self { node: node.into(), change, ready_in }
    }
}

/// What was found on a node that was registered.
///
/// Exhaustive: a program that puts servers into service must say which of these it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was new, or had been restarted or flushed.
    New,
    /// It belonged to another set of nodes, or allowed another longest TTL.
    Moved,
    /// It belonged to this set already.
    None,
}
