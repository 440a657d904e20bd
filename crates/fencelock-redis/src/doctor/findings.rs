//! Merges the findings of all nodes: a finding that is the same on all nodes is reported once.

use super::nodes::NodeReport;
use fencelock_core::{BackendReport, Finding};

/// A finding, and its nodes.
struct FindingGroup {
    finding: Finding,
    nodes: Vec<String>,
}

/// One report of all nodes, which have the same options. Its findings begin with `findings`.
pub(crate) fn joined(mut findings: Vec<Finding>, nodes: Vec<NodeReport>) -> BackendReport {
    let mut joined = BackendReport::default();
    for NodeReport { report, .. } in &nodes {
        if joined.options.is_empty() {
            (joined.options, joined.wire) = (report.options.clone(), report.wire);
        }
        joined.servers.extend(report.servers.iter().cloned());
    }
    findings.extend(merge(nodes));
    joined.findings = findings;
    joined
}

/// Grouped by subject, in the order of the first occurrence.
pub(crate) fn merge(reports: Vec<NodeReport>) -> Vec<Finding> {
    let answering = reports.iter().filter(|report| report.answers).count();
    let all = if answering == reports.len() { "each node" } else { "each that answers" };
    let mut lines: Vec<FindingGroup> = Vec::new();
    for report in reports {
        let has_clock = report.health().is_some_and(|health| health.clock.is_some());
        for finding in report.report.findings {
            // The comparison of the clocks is reported separately.
            if finding.subject == "clock" && has_clock {
                continue;
            }
            match lines.iter_mut().find(|line| line.finding == finding) {
                Some(line) => line.nodes.push(report.name.clone()),
                None => lines.push(FindingGroup { finding, nodes: vec![report.name.clone()] }),
            }
        }
    }
    let mut subjects: Vec<&str> = Vec::new();
    for line in &lines {
        if !subjects.contains(&line.finding.subject) {
            subjects.push(line.finding.subject);
        }
    }
    let rank = |line: &FindingGroup| subjects.iter().position(|subject| *subject == line.finding.subject);
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|number| rank(&lines[*number]));
    order.into_iter().map(|number| written(&lines[number], (answering, all))).collect()
}

fn written(line: &FindingGroup, (answering, all): (usize, &str)) -> Finding {
    let Finding { level, subject, text, advice, .. } = line.finding.clone();
    // Removes a repeated name of the node.
    let bare = text.split_once("://").map_or(text.as_str(), |(_, bare)| bare);
    let text = match line.nodes.as_slice() {
        [node] if bare.starts_with(node.as_str()) => bare.to_owned(),
        nodes if nodes.len() > 1 && nodes.len() == answering => format!("{all}: {text}"),
        nodes => format!("{}: {text}", nodes.join(", ")),
    };
    Finding::new(level, subject, text, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, findings: &[(&'static str, &str)]) -> NodeReport {
        let findings = findings.iter().map(|(subject, text)| Finding::fine(subject, *text)).collect();
        NodeReport { name: name.to_owned(), answers: true, report: BackendReport::of_findings(findings) }
    }

    fn texts(reports: Vec<NodeReport>) -> Vec<String> {
        merge(reports).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn equal_findings_are_merged_and_others_name_their_nodes() {
        let nodes = [("a:1", "1 MiB"), ("b:2", "2 MiB"), ("c:3", "1 MiB")];
        let reports = nodes.map(|(name, memory)| report(name, &[("scripts", "run"), ("memory", memory)]));
        assert_eq!(texts(reports.into()), ["each node: run", "a:1, c:3: 1 MiB", "b:2: 2 MiB"]);
    }

    #[test]
    fn findings_are_grouped_by_subject() {
        let nodes = ["a:1", "b:2"].map(|name| {
            let greeting = format!("redis://{name} is Redis");
            report(name, &[("connection", greeting.as_str()), ("scripts", "run")])
        });
        assert_eq!(texts(nodes.into()), ["a:1 is Redis", "b:2 is Redis", "each node: run"]);
    }

    #[test]
    fn a_single_node_is_named() {
        assert_eq!(texts(vec![report("a:1", &[("scripts", "run")])]), ["a:1: run"]);
    }
}
