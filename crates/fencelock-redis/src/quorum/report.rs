//! The report of one node, before the nodes are compared.

use fencelock_core::{Finding, Health};

/// The known facts about one node.
#[derive(Debug)]
pub(super) struct NodeReport {
    /// The address without the scheme.
    pub(super) name: String,
    pub(super) answers: bool,
    pub(super) health: Health,
    pub(super) findings: Vec<Finding>,
}
