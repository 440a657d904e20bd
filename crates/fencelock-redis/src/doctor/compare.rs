//! Compares the nodes, for findings that no single node can report.

use super::nodes::NodeReport;
use fencelock_core::{ClockOffset, Finding, Level, Quorum as Size};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The fence stays within one second of the clock of a server, and the quarantine allows four seconds for tokens:
/// twice, one second for each of two clocks.
const CLOCK_BROKEN: Duration = Duration::from_secs(1);
const CLOCK_FINE: Duration = Duration::from_millis(500);

/// Reports a server that is listed under two addresses: its vote would count twice.
pub(crate) fn duplicates(reports: &[NodeReport]) -> Option<Finding> {
    for (number, report) in reports.iter().enumerate() {
        let Some(identity) = report.health().and_then(|health| health.identity.as_ref()) else { continue };
        let same =
            |other: &&NodeReport| other.health().is_some_and(|health| health.identity.as_ref() == Some(identity));
        if let Some(duplicate) = reports[..number].iter().find(same) {
            let text =
                format!("{} and {} are the same server, so its loss costs two votes", duplicate.name, report.name);
            return Some(Finding::new(Level::Failure, "independence", text, "name each server once"));
        }
    }
    None
}

/// Reports nodes that run on one machine, because they fail together. `None` if no node has a host.
pub(crate) fn hosts(reports: &[NodeReport], size: Size) -> Option<Finding> {
    let mut by_host: BTreeMap<&str, usize> = BTreeMap::new();
    for host in reports.iter().filter_map(|report| report.health()?.host.as_deref()) {
        *by_host.entry(host).or_default() += 1;
    }
    let (host, nodes) = by_host.iter().max_by_key(|(_, nodes)| **nodes)?;
    let (known, all) = (by_host.values().sum::<usize>(), reports.len());
    if *nodes == 1 && known < all {
        let text =
            format!("only known of the {known} of {all} nodes that answer: different servers on different hosts");
        return Some(Finding::new(Level::Note, "independence", text, "run it again when all nodes answer"));
    }
    if *nodes == 1 {
        return Some(Finding::fine("independence", "each node is a different server on a different host"));
    }
    let majority = if *nodes > size.spare() { ", and no majority is left without them" } else { "" };
    Some(Finding::new(
        Level::Warning,
        "independence",
        format!("{nodes} nodes are on {host}: they fail together{majority}"),
        "run each node on a separate machine",
    ))
}

/// The differences between the clocks: first among the nodes, then between them and this machine. `meaning` describes the
/// effect of the first.
pub(crate) fn clocks(reports: &[NodeReport], meaning: &str) -> Option<Finding> {
    let known: Vec<_> = reports.iter().filter_map(|report| Some((&report.name, report.health()?.clock?))).collect();
    let ahead = known.iter().map(|(_, clock)| *clock).max_by_key(|clock| clock.ahead)?;
    let behind = known.iter().map(|(_, clock)| *clock).min_by_key(|clock| clock.ahead)?;
    let here = ClockOffset { ahead: 0, within: Duration::ZERO };
    let (among, to_here) = (
        ahead.apart_at_least(behind),
        // The difference between this machine and the nearest node.
        known.iter().map(|(_, clock)| clock.apart_at_least(here)).min()?,
    );
    let mut each = String::new();
    for (number, (name, clock)) in known.iter().enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(each, "{comma}{name} {:+} ms", clock.ahead / 1000);
    }
    if among > CLOCK_FINE {
        let level = if among >= CLOCK_BROKEN { Level::Failure } else { Level::Warning };
        return Some(Finding::new(
            level,
            "clocks",
            format!(
                "the nodes' clocks are {} apart; {meaning} (relative to this machine: {each})",
                span(Duration::from_micros(ahead.ahead.abs_diff(behind.ahead)))
            ),
            "run NTP on all nodes",
        ));
    }
    if to_here > CLOCK_FINE {
        return Some(Finding::new(
            Level::Warning,
            "clocks",
            format!(
                "the clock of this machine differs from those of the nodes, which agree (relative to this machine: {each})"
            ),
            "run NTP on this machine: the nodes correct its proposals for tokens",
        ));
    }
    let most = Duration::from_micros(ahead.ahead.max(0).abs_diff(behind.ahead.min(0)));
    // The uncertainty of the measurement is part of the reported limit.
    let most = most + known.iter().map(|(_, clock)| clock.within).max().unwrap_or_default();
    Some(Finding::fine("clocks", format!("the clocks of the nodes and of this machine are within {}", span(most))))
}

/// Whether a node started so recently that a lease that it lost may still be valid.
pub(crate) fn restarts(reports: &[NodeReport], longest: Option<Duration>) -> Option<Finding> {
    let longest = longest?;
    let known: Vec<_> = reports.iter().filter_map(|report| Some((&report.name, report.health()?.up_for?))).collect();
    let lately: Vec<_> = known
        .iter()
        .filter(|(_, up_for)| *up_for < longest)
        .map(|(name, up_for)| format!("{name} {} s ago", up_for.as_secs()))
        .collect();
    if known.is_empty() {
        return None;
    }
    let longest = longest.as_secs_f64();
    if lately.is_empty() {
        return Some(Finding::fine("restarts", format!("no node started within the longest TTL of {longest} s")));
    }
    Some(Finding::new(
        Level::Note,
        "restarts",
        format!("started within the longest TTL of {longest} s: {}", lately.join(", ")),
        "check the reason, if this was not intended",
    ))
}

fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match span.as_micros() {
        0..10_000 => format!("{:.1} ms", seconds * 1000.0),
        10_000..1_000_000 => format!("{} ms", span.as_millis()),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{BackendReport, Health, ServerReport};

    fn node(name: &str, health: Health) -> NodeReport {
        let mut server = ServerReport::new(name);
        server.health = health;
        NodeReport { name: name.to_owned(), answers: true, report: BackendReport::of_server(server) }
    }

    fn health(set: impl FnOnce(&mut Health)) -> Health {
        let mut health = Health::default();
        set(&mut health);
        health
    }

    fn on_hosts(hosts: &[&str]) -> Finding {
        let on = |host: &&str| node("n", health(|of| of.host = Some((*host).to_owned())));
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
        let silent = || node("silent", Health::default());
        let reports = [node("n", health(|of| of.host = Some("a".to_owned()))), silent(), silent()];
        let found = hosts(&reports, Size::new(3).unwrap()).unwrap();
        assert_eq!(found.level, Level::Note, "{}", found.text);
        assert!(found.text.contains("the 1 of 3 nodes that answer"), "{}", found.text);
    }

    fn of_clocks(ahead: &[(i64, u64)]) -> Finding {
        let with = |(ahead, within): &(i64, u64)| {
            let clock = ClockOffset { ahead: ahead * 1000, within: Duration::from_millis(*within) };
            node(&format!("n{ahead}"), health(|of| of.clock = Some(clock)))
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
        assert!(text.contains("3.00 s apart") && text.contains("n0 +0 ms, n3000 +3000 ms, n-2 -2 ms"), "{text}");
    }

    #[test]
    fn the_clock_of_this_machine_is_wrong_if_the_nodes_agree() {
        let finding = of_clocks(&[(2000, 0), (2100, 0), (1990, 0)]);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.text.starts_with("the clock of this machine"), "{}", finding.text);
    }

    #[test]
    fn a_node_that_started_within_the_longest_ttl_is_noted() {
        let up = |seconds| health(|of| of.up_for = Some(Duration::from_secs(seconds)));
        let of =
            |seconds: [u64; 2]| restarts(&seconds.map(|up_for| node("n", up(up_for))), Some(Duration::from_secs(60)));
        assert_eq!(of([60, 9000]).unwrap().level, Level::Fine);
        let lately = of([59, 9000]).unwrap();
        assert_eq!((lately.level, lately.text.matches(" s ago").count()), (Level::Note, 1), "{}", lately.text);
        assert!(
            restarts(&[node("n", Health::default())], Some(Duration::from_secs(60))).is_none(),
            "the start time is unknown"
        );
    }
}
