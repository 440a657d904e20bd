//! The reports of the nodes of a cluster or a quorum, merged and compared. `server`, `cluster` and `quorum` each have a `doctor` that
//! makes their own.

use fencelock_core::{Backend, BackendReport, ClockOffset, Finding, Key, Level, Quorum as Size, ServerReport, Span};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// A node needs a few round trips for its report.
const PATIENCE: Duration = Duration::from_secs(5);
/// And some dozens for a trial.
const TRIAL: Duration = Duration::from_secs(20);
/// The fence stays within one second of the clock of a server, and the quarantine allows four seconds for tokens:
/// twice, one second for each of two clocks.
const CLOCK_BROKEN: Duration = Duration::from_secs(1);
pub(crate) const CLOCK_FINE: Duration = Duration::from_millis(500);

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

    fn server(&self) -> Option<&ServerReport> {
        self.report.servers.first()
    }
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

/// A finding that is the same on several nodes is reported once. Grouped by subject, in the order of the first occurrence.
pub(crate) fn merge(reports: Vec<NodeReport>) -> Vec<Finding> {
    let answering = reports.iter().filter(|report| report.answers).count();
    let all = if answering == reports.len() { "each node" } else { "each that answers" };
    let mut groups: Vec<(Finding, Vec<String>)> = Vec::new();
    for report in reports {
        // The clocks are compared instead.
        let is_compared = report.server().is_some_and(|server| server.clock.is_some());
        for finding in report.report.findings.into_iter().filter(|finding| !is_compared || finding.subject != "clock") {
            if let Some((_, nodes)) = groups.iter_mut().find(|(known, _)| *known == finding) {
                nodes.push(report.name.clone());
                continue;
            }
            let last = groups.iter().rposition(|(known, _)| known.subject == finding.subject);
            groups.insert(last.map_or(groups.len(), |last| last + 1), (finding, vec![report.name.clone()]));
        }
    }
    let named = |(mut finding, nodes): (Finding, Vec<String>)| {
        let text = finding.text;
        // The text may begin with the name of the node.
        let bare = text.split_once("://").map_or(text.as_str(), |(_, bare)| bare);
        finding.text = match nodes.as_slice() {
            [node] if bare.starts_with(node.as_str()) => bare.to_owned(),
            nodes if nodes.len() > 1 && nodes.len() == answering => format!("{all}: {text}"),
            nodes => format!("{}: {text}", nodes.join(", ")),
        };
        finding
    };
    groups.into_iter().map(named).collect()
}

/// Reports a server that is listed under two addresses: its vote would count twice.
pub(crate) fn duplicates(reports: &[NodeReport]) -> Option<Finding> {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let mut each = reports.iter().filter_map(|report| Some((&*report.name, report.server()?.identity.as_deref()?)));
    let (name, other) = each.find_map(|(name, identity)| Some((name, known.insert(identity, name)?)))?;
    let text = format!("{other} and {name} are the same server, so its loss costs two votes");
    Some(Finding::failure("independence", text, "name each server once"))
}

/// Reports nodes that run on one machine, because they fail together. `None` if no node has a host.
pub(crate) fn hosts(reports: &[NodeReport], size: Size) -> Option<Finding> {
    let mut by_host: BTreeMap<&str, usize> = BTreeMap::new();
    for host in reports.iter().filter_map(|report| report.server()?.host.as_deref()) {
        *by_host.entry(host).or_default() += 1;
    }
    let (host, nodes) = by_host.iter().max_by_key(|(_, nodes)| **nodes)?;
    let (known, all) = (by_host.values().sum::<usize>(), reports.len());
    if *nodes > 1 {
        let majority = if *nodes > size.spare() { ", and no majority is left without them" } else { "" };
        let text = format!("{nodes} nodes are on {host}: they fail together{majority}");
        return Some(Finding::warning("independence", text, "run each node on a separate machine"));
    }
    if known < all {
        let text = format!("only the {known} of {all} nodes that answer are known to be on different hosts");
        return Some(Finding::note("independence", text, "run it again when all nodes answer"));
    }
    Some(Finding::fine("independence", "each node is a different server on a different host"))
}

/// The differences between the clocks: first among the nodes, then between them and this machine. `meaning` describes the
/// effect of the first.
pub(crate) fn clocks(reports: &[NodeReport], meaning: &str) -> Option<Finding> {
    let known: Vec<_> = reports.iter().filter_map(|report| Some((&report.name, report.server()?.clock?))).collect();
    let all = || known.iter().map(|(_, clock)| *clock);
    let (ahead, behind) = (all().max_by_key(|clock| clock.ahead)?, all().min_by_key(|clock| clock.ahead)?);
    let among = ahead.apart_at_least(behind);
    let each: Vec<_> = known.iter().map(|(name, clock)| format!("{name} {:+} ms", clock.ahead / 1000)).collect();
    let each = format!("(relative to this machine: {})", each.join(", "));
    let apart = |ahead: i64, behind: i64| Duration::from_micros(ahead.abs_diff(behind));
    if among > CLOCK_FINE {
        let level = if among >= CLOCK_BROKEN { Level::Failure } else { Level::Warning };
        let apart = Span(apart(ahead.ahead, behind.ahead));
        let text = format!("the nodes' clocks are {apart} apart; {meaning} {each}");
        return Some(Finding::new(level, "clocks", text, "run NTP on all nodes"));
    }
    // Of the nearest node.
    if all().map(ClockOffset::off_at_least).min()? > CLOCK_FINE {
        let text = format!("the clock of this machine differs from those of the nodes, which agree {each}");
        let advice = "run NTP on this machine: the nodes correct its proposals for tokens";
        return Some(Finding::warning("clocks", text, advice));
    }
    // The uncertainty of the measurement is part of the reported limit.
    let most = apart(ahead.ahead.max(0), behind.ahead.min(0)) + all().map(|clock| clock.within).max()?;
    Some(Finding::fine("clocks", format!("those of the nodes and of this machine differ by at most {}", Span(most))))
}

/// Whether a node started so recently that a lease that it lost may still be valid.
pub(crate) fn restarts(reports: &[NodeReport], longest: Option<Duration>) -> Option<Finding> {
    let longest = longest?;
    let mut known = reports.iter().filter_map(|report| Some((&report.name, report.server()?.up_for?))).peekable();
    known.peek()?;
    let lately = known.filter(|(_, up_for)| *up_for < longest);
    let lately: Vec<_> = lately.map(|(name, up_for)| format!("{name} {} ago", Span(up_for))).collect();
    let (longest, lately) = (Span(longest), lately.join(", "));
    if lately.is_empty() {
        return Some(Finding::fine("restarts", format!("no node started within the longest TTL of {longest}")));
    }
    let text = format!("started within the longest TTL of {longest}: {lately}");
    Some(Finding::note("restarts", text, "check the reason, if this was not intended"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::ClockOffset;

    fn node(name: &str, set: impl FnOnce(&mut ServerReport)) -> NodeReport {
        let mut server = ServerReport::new(name);
        set(&mut server);
        NodeReport { name: name.to_owned(), answers: true, report: BackendReport::of_server(server) }
    }

    fn on_hosts(hosts: &[&str]) -> Finding {
        let on = |host: &&str| node("n", |of| of.host = Some((*host).to_owned()));
        let reports: Vec<_> = hosts.iter().map(on).collect();
        super::hosts(&reports, Size::new(hosts.len()).unwrap()).unwrap()
    }

    #[test]
    fn servers_on_one_host_fail_together() {
        assert_eq!(on_hosts(&["a", "b", "c"]).level, Level::Fine);
        let two = on_hosts(&["a", "b", "a"]);
        assert_eq!((two.level, two.text.contains("no majority")), (Level::Warning, true), "{}", two.text);
        let two = on_hosts(&["a", "b", "a", "c", "d"]);
        assert_eq!((two.level, two.text.contains("no majority")), (Level::Warning, false), "{}", two.text);
    }

    #[test]
    fn nothing_is_known_of_nodes_that_do_not_answer() {
        let silent = || node("silent", |_| ());
        let reports = [node("n", |of| of.host = Some("a".to_owned())), silent(), silent()];
        let found = hosts(&reports, Size::new(3).unwrap()).unwrap();
        assert_eq!(found.level, Level::Note, "{}", found.text);
        assert!(found.text.contains("the 1 of 3 nodes that answer"), "{}", found.text);
    }

    fn of_clocks(ahead: &[(i64, u64)]) -> Finding {
        let with = |(ahead, within): &(i64, u64)| {
            let clock = ClockOffset { ahead: ahead * 1000, within: Duration::from_millis(*within) };
            node(&format!("n{ahead}"), |of| of.clock = Some(clock))
        };
        clocks(&ahead.iter().map(with).collect::<Vec<_>>(), "tokens allow for 1 s").unwrap()
    }

    #[test]
    fn clock_differences_of_half_a_second_warn_and_of_a_second_fail() {
        let level = |ahead: &[(i64, u64)]| of_clocks(ahead).level;
        assert_eq!(level(&[(0, 0), (500, 0), (20, 0)]), Level::Fine);
        assert_eq!(level(&[(0, 0), (501, 0), (20, 0)]), Level::Warning);
        assert_eq!(level(&[(-400, 0), (599, 0)]), Level::Warning);
        assert_eq!(level(&[(-400, 0), (600, 0)]), Level::Failure);
    }

    #[test]
    fn a_slow_reply_is_not_a_clock_difference() {
        assert_eq!(of_clocks(&[(0, 0), (900, 800)]).level, Level::Fine);
        assert_eq!(of_clocks(&[(0, 0), (1700, 800)]).level, Level::Warning);
    }

    #[test]
    fn all_clocks_are_listed_if_one_is_wrong() {
        let text = of_clocks(&[(0, 0), (3000, 0), (-2, 0)]).text;
        assert!(text.contains("3 s apart") && text.contains("n0 +0 ms, n3000 +3000 ms, n-2 -2 ms"), "{text}");
    }

    #[test]
    fn the_clock_of_this_machine_is_wrong_if_the_nodes_agree() {
        let finding = of_clocks(&[(2000, 0), (2100, 0), (1990, 0)]);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.text.starts_with("the clock of this machine"), "{}", finding.text);
    }

    #[test]
    fn a_node_that_started_within_the_longest_ttl_is_noted() {
        let up = |seconds| node("n", |of| of.up_for = Some(Duration::from_secs(seconds)));
        let of = |seconds: [u64; 2]| restarts(&seconds.map(up), Some(Duration::from_secs(60)));
        assert_eq!(of([60, 9000]).unwrap().level, Level::Fine);
        let lately = of([59, 9000]).unwrap();
        assert_eq!((lately.level, lately.text.matches(" s ago").count()), (Level::Note, 1), "{}", lately.text);
        assert!(restarts(&[node("n", |_| ())], Some(Duration::from_secs(60))).is_none(), "the start time is unknown");
    }

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
