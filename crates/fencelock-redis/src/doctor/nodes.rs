//! The reports of the nodes, before they are compared.

use fencelock_core::{Backend, BackendReport, Finding, Health, Key};
use std::time::Duration;
use tokio::time::timeout;

/// A node needs a few round trips for its report.
const PATIENCE: Duration = Duration::from_secs(5);
/// And some dozens for a trial.
const TRIAL: Duration = Duration::from_secs(20);

/// The report of one node.
#[derive(Debug)]
pub(crate) struct NodeReport {
    /// The address without the scheme.
    pub(crate) name: String,
    pub(crate) answers: bool,
    pub(crate) report: BackendReport,
}

impl NodeReport {
    /// Queries one node.
    pub(crate) async fn of(name: String, node: &dyn Backend) -> Self {
        let Ok(report) = timeout(PATIENCE, node.diagnose()).await else {
            return Self::silent(name, node.name(), "no answer in time");
        };
        let answers = report.servers.iter().all(|server| server.failure.is_none());
        Self { name, answers, report }
    }

    /// The findings of a trial on one node; none if it does not answer, which [`NodeReport::of`] reports.
    pub(crate) async fn of_trial(name: String, node: &dyn Backend, key: Option<&Key>) -> Self {
        let findings = timeout(TRIAL, node.try_out(key)).await;
        let findings = findings.unwrap_or_else(|_| vec![Finding::not_tried("no answer in time", "check the server")]);
        Self { name, answers: !findings.is_empty(), report: BackendReport::of_findings(findings) }
    }

    /// The report of a node that does not answer.
    pub(crate) fn silent(name: String, node: String, why: impl Into<String>) -> Self {
        let report = BackendReport::unreachable(node, why, "check the address and the server");
        Self { name, answers: false, report }
    }

    /// What its server reports of itself, if it has one.
    pub(crate) fn health(&self) -> Option<&Health> {
        self.report.servers.first().map(|server| &server.health)
    }
}
