//! The report of one node, before the nodes are compared.

use fencelock_core::{Finding, Health};

/// The known facts about one node.
#[derive(Debug)]
pub(crate) struct NodeReport {
    /// The address without the scheme.
    pub(crate) name: String,
    pub(crate) answers: bool,
    pub(crate) health: Health,
    pub(crate) findings: Vec<Finding>,
}

impl NodeReport {
    /// Of a node that does not answer.
    pub(crate) fn silent(name: String, finding: Finding) -> Self {
        Self { name, answers: false, health: Health::default(), findings: vec![finding] }
    }
}
