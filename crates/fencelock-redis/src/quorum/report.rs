//! The reports of the nodes, before they are compared.

use super::Quorum;
use fencelock_core::{Backend, BackendReport, Finding, Health, Key, Level, QuorumNode, ServerReport, Tried};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A node needs a few round trips for its report.
const PATIENCE: Duration = Duration::from_secs(5);
/// And some dozens for a trial.
const TRIAL: Duration = Duration::from_secs(20);

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
    /// Queries one node.
    pub(crate) async fn of<N: QuorumNode + ?Sized>(name: String, node: &N) -> Self {
        let query = async { (node.health().await, node.diagnose().await) };
        match timeout(PATIENCE, query).await {
            Ok((health, findings)) => {
                Self { name, answers: health.is_ok(), health: health.unwrap_or_default(), findings }
            }
            Err(_) => Self::silent(name, "no answer in time"),
        }
    }

    /// The findings of a trial on one node; none if it does not answer, which [`NodeReport::of`] reports.
    pub(crate) async fn of_trial<N: Backend + ?Sized>(name: String, node: &N, key: Option<&Key>) -> Self {
        let findings = timeout(TRIAL, node.try_out(key)).await;
        let findings = findings.unwrap_or_else(|_| vec![Tried::not_tried("no answer in time", "check the server")]);
        Self { name, answers: !findings.is_empty(), health: Health::default(), findings }
    }

    /// The report of a node that does not answer.
    pub(crate) fn silent(name: String, why: impl Into<String>) -> Self {
        let finding = Finding::new(Level::Failure, "connection", why, "check the address and the server");
        Self { name, answers: false, health: Health::default(), findings: vec![finding] }
    }
}

impl Quorum {
    pub(super) async fn backend_report(&self) -> BackendReport {
        let nodes = self.nodes.iter().map(|node| (node.backend.name(), Arc::clone(&node.backend)));
        backend_report(nodes.collect()).await
    }
}

/// The reports of all nodes. They have the same options.
pub(crate) async fn backend_report<N: Backend + ?Sized>(nodes: Vec<(String, Arc<N>)>) -> BackendReport {
    let reports = nodes.into_iter().map(|(name, node)| async move {
        let report = timeout(PATIENCE, node.report()).await;
        report.unwrap_or_else(|_| silent(name))
    });
    let mut backend = BackendReport::default();
    for report in join_all(reports).await {
        if backend.options.is_empty() {
            (backend.options, backend.wire) = (report.options, report.wire);
        }
        backend.servers.extend(report.servers);
    }
    backend
}

fn silent(node: String) -> BackendReport {
    BackendReport::of_server(ServerReport::failed(node, "it does not answer in time"))
}
