//! Checks what the guarantees of a quorum depend on: the number and independence of its nodes, and the report of each.

use super::Quorum;
use crate::doctor::compare::{clocks, duplicates, hosts, restarts};
use crate::doctor::findings::{joined, merge};
use crate::doctor::nodes::NodeReport;
use fencelock_core::{BackendReport, Finding, Key, Level};
use futures_util::future::join_all;
use std::sync::Arc;

pub(super) async fn report(quorum: &Quorum) -> BackendReport {
    let reports = reports(quorum).await;
    let mut findings = vec![size_finding(quorum), answering(quorum, &reports)];
    findings.extend(duplicates(&reports).or_else(|| hosts(&reports, quorum.settings.size)));
    findings.extend(clocks(&reports, "tokens and quarantines allow for 1 s"));
    findings.extend(forgetting(quorum).or_else(|| restarts(&reports, quorum.longest_ttl())));
    joined(findings, reports)
}

/// A lock on each node.
pub(super) async fn try_nodes(quorum: &Quorum, key: Option<&Key>) -> Vec<Finding> {
    let reports = quorum.nodes.iter().map(|node| NodeReport::of_trial(node.address(), &*node.backend, key));
    merge(join_all(reports).await)
}

async fn reports(quorum: &Quorum) -> Vec<NodeReport> {
    let mut tasks = Vec::new();
    for node in quorum.nodes.iter() {
        let node = Arc::clone(node);
        tasks.push(tokio::spawn(async move {
            let mut report = NodeReport::of(node.address(), &*node.backend).await;
            // A quorum does not use all features of its nodes.
            report.report.findings.retain(|finding| finding.subject != "features");
            report
        }));
    }
    let mut reports = Vec::new();
    for task in tasks {
        reports.extend(task.await);
    }
    reports
}

fn size_finding(quorum: &Quorum) -> Finding {
    let (nodes, spare) = (quorum.settings.size.nodes(), quorum.settings.size.spare());
    let text = format!("{nodes} {}, of which {spare} may be unavailable", if nodes == 1 { "node" } else { "nodes" });
    if nodes < 3 {
        return Finding::new(Level::Note, "nodes", text, "use three or five nodes");
    }
    if nodes.is_multiple_of(2) {
        return Finding::new(
            Level::Note,
            "nodes",
            text,
            "one node less tolerates as many failures, one more tolerates more",
        );
    }
    Finding::fine("nodes", text)
}

/// Nodes that a program supplies may have no quarantine.
fn forgetting(quorum: &Quorum) -> Option<Finding> {
    let forgets = |node: &fencelock_core::Capabilities| node.expires && node.longest_ttl.is_none();
    quorum.nodes.iter().any(|node| forgets(&node.backend.capabilities())).then(|| {
        Finding::new(
            Level::Note,
            "restarts",
            "a node that lost its grants is not excluded automatically",
            "keep a node that was restarted empty, flushed or failed over out of service for the longest TTL in use",
        )
    })
}

fn answering(quorum: &Quorum, reports: &[NodeReport]) -> Finding {
    let answering = reports.iter().filter(|report| report.answers).count();
    let text = format!("{answering} of {} nodes answer", quorum.settings.size.nodes());
    if answering == quorum.settings.size.nodes() {
        return Finding::fine("quorum", text);
    }
    let level = if answering < quorum.settings.size.majority() { Level::Failure } else { Level::Warning };
    Finding::new(level, "quorum", text, "check the other nodes")
}
