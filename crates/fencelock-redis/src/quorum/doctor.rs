//! Checks what the guarantees of a quorum depend on: the number and independence of its nodes, and the report of each.

use super::Quorum;
use crate::doctor::{NodeReport, clocks, duplicates, hosts, joined, merge, restarts};
use fencelock_core::{BackendReport, Capabilities, Finding, Key, Level};
use futures_util::future::join_all;

pub(super) async fn report(quorum: &Quorum) -> BackendReport {
    let (size, nodes) = (quorum.settings.size, quorum.settings.size.nodes());
    let mut reports = join_all(quorum.nodes.iter().map(|node| NodeReport::of(node.address(), &*node.backend))).await;
    for report in &mut reports {
        // A quorum does not use all features of its nodes.
        report.report.findings.retain(|finding| finding.subject != "features");
    }
    let answering = reports.iter().filter(|report| report.answers).count();
    let (level, advice) = match answering {
        _ if answering == nodes => (Level::Fine, ""),
        _ if answering < size.majority() => (Level::Failure, "check the other nodes"),
        _ => (Level::Warning, "check the other nodes"),
    };
    let answer = Finding::new(level, "quorum", format!("{answering} of {nodes} nodes answer"), advice);
    let mut findings = vec![size_finding(nodes, size.spare()), answer];
    findings.extend(duplicates(&reports).or_else(|| hosts(&reports, size)));
    findings.extend(clocks(&reports, "tokens and quarantines allow for 1 s"));
    // Nodes that a program supplies may have no quarantine.
    let forgets = |node: Capabilities| node.expires && node.longest_ttl.is_none();
    if quorum.nodes.iter().any(|node| forgets(node.backend.capabilities())) {
        let text = "a node that lost its grants is not excluded automatically";
        let advice = "keep a node that lost its data out of service for the longest TTL in use";
        findings.push(Finding::note("restarts", text, advice));
    } else {
        findings.extend(restarts(&reports, quorum.longest_ttl()));
    }
    joined(findings, reports)
}

/// A lock on each node.
pub(super) async fn try_nodes(quorum: &Quorum, key: Option<&Key>) -> Vec<Finding> {
    let reports = quorum.nodes.iter().map(|node| NodeReport::of_trial(node.address(), &*node.backend, key));
    merge(join_all(reports).await)
}

fn size_finding(nodes: usize, spare: usize) -> Finding {
    let text = format!("{nodes} {}, of which {spare} may be unavailable", if nodes == 1 { "node" } else { "nodes" });
    match nodes {
        0..3 => Finding::note("nodes", text, "use three or five nodes"),
        _ if nodes.is_multiple_of(2) => Finding::note("nodes", text, "one node less tolerates as many failures"),
        _ => Finding::fine("nodes", text),
    }
}
