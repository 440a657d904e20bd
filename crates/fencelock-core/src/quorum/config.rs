use super::Quorum;
use crate::{Drift, NodeFault, Unknown};
use std::time::Duration;

/// The settings that all calls of one quorum share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuorumConfig {
    /// Number of nodes.
    pub size: Quorum,
    /// The bound for the drift between two clocks while a lease runs.
    pub drift: Drift,
    /// Whether locks of the nodes expire.
    pub expires: bool,
    /// The names of the nodes in order, without secrets, for messages.
    pub names: Vec<String>,
    /// The name of the quorum, without secrets.
    pub backend: String,
    /// The minimum time limit of a node.
    pub shortest_limit: Duration,
}

impl QuorumConfig {
    /// The error of a call without a result. If so many nodes need an operator that no majority is left, only these
    /// nodes are named: waiting for the others does not help.
    pub(super) fn unknown(&self, causes: Vec<NodeFault>) -> Unknown {
        let (permanent, passing): (Vec<_>, Vec<_>) = causes.into_iter().partition(|cause| cause.fault.is_permanent());
        if permanent.len() > self.size.spare() {
            return Unknown::of_nodes(permanent);
        }
        Unknown::of_nodes(permanent.into_iter().chain(passing).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn only_permanent_causes_are_named_if_they_decide() {
        let settings = QuorumConfig {
            size: Quorum::new(3).unwrap(),
            drift: Drift::default(),
            expires: true,
            names: Vec::new(),
            backend: String::new(),
            shortest_limit: Duration::ZERO,
        };
        let fault = |fault| NodeFault::new("node", fault, "");
        let count = |faults: &[Fault]| settings.unknown(faults.iter().copied().map(fault).collect()).nodes().len();
        assert_eq!(count(&[Fault::Timeout, Fault::Misconfigured]), 2);
        assert_eq!(count(&[Fault::Misconfigured, Fault::Timeout, Fault::Misconfigured]), 2);
    }
}
