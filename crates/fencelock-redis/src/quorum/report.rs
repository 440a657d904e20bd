//! What one node says of itself, before the nodes are compared.

use fencelock_core::{Finding, Health};

/// What is known of one node.
#[derive(Debug)]
pub(super) struct NodeReport {
    /// Its address without the scheme.
    pub(super) name: String,
    pub(super) answers: bool,
    pub(super) health: Health,
    pub(super) findings: Vec<Finding>,
}
