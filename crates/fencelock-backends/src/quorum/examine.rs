//! What the promises of a quorum rest on: that its nodes are enough, different and well, and what each says of itself.

use super::Quorum;
use fencelock_core::{Finding, Level};
use std::time::Duration;
use tokio::time::timeout;

/// A node that looks at itself takes a few trips.
const PATIENCE: Duration = Duration::from_secs(5);

struct Report {
    name: String,
    identity: Option<String>,
    answers: bool,
    findings: Vec<Finding>,
}

impl Quorum {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let mut tasks = Vec::new();
        for node in &self.nodes {
            let node = std::sync::Arc::clone(node);
            tasks.push(tokio::spawn(async move {
                let name = node.backend.name();
                let look = async { (node.backend.identity().await, node.backend.examine().await) };
                match timeout(PATIENCE, look).await {
                    Ok((identity, findings)) => {
                        Report { name, answers: identity.is_ok(), identity: identity.ok().flatten(), findings }
                    }
                    Err(_) => Report { name, answers: false, identity: None, findings: vec![silent()] },
                }
            }));
        }
        let mut reports = Vec::new();
        for task in tasks {
            reports.extend(task.await);
        }
        let mut findings = vec![self.size_finding(), self.answering(&reports)];
        findings.extend(twins(&reports));
        findings.push(forgetting());
        for report in reports {
            let name = report.name;
            findings.extend(
                report
                    .findings
                    .into_iter()
                    .map(|finding| Finding { text: format!("{name}: {}", finding.text), ..finding }),
            );
        }
        findings
    }

    fn size_finding(&self) -> Finding {
        let (nodes, spare) = (self.size.nodes(), self.size.spare());
        let text = format!("{nodes} nodes, of which {spare} may be away");
        if nodes < 3 {
            return Finding::new(Level::Note, "nodes", text, "name three or five nodes");
        }
        if nodes.is_multiple_of(2) {
            return Finding::new(
                Level::Note,
                "nodes",
                text,
                "one node less would do as well, one more would do better",
            );
        }
        Finding::fine("nodes", text)
    }

    fn answering(&self, reports: &[Report]) -> Finding {
        let answering = reports.iter().filter(|report| report.answers).count();
        let text = format!("{answering} of {} nodes answer", self.size.nodes());
        if answering == self.size.nodes() {
            return Finding::fine("quorum", text);
        }
        let level = if answering < self.size.majority() { Level::Failure } else { Level::Warning };
        Finding::new(level, "quorum", text, "look at the nodes that do not")
    }
}

fn silent() -> Finding {
    Finding::new(Level::Failure, "connection", "no answer in time", "check the address and the server")
}

/// Two addresses of one server are one vote that counts twice.
fn twins(reports: &[Report]) -> Option<Finding> {
    for (number, report) in reports.iter().enumerate() {
        let Some(identity) = &report.identity else { continue };
        if let Some(twin) = reports[..number].iter().find(|other| other.identity.as_ref() == Some(identity)) {
            let text = format!("{} and {} are the same server, so its loss costs two votes", twin.name, report.name);
            return Some(Finding::new(Level::Failure, "independence", text, "name each server once"));
        }
    }
    None
}

fn forgetting() -> Finding {
    Finding::new(
        Level::Note,
        "restarts",
        "trust_empty=true: a node that forgot what it granted is not kept out by itself",
        "keep a node that was restarted empty, flushed or failed over away for the longest TTL in use",
    )
}
