//! The findings of `doctor` about a quorum of real servers.

use fencelock::backends::{connect, lazy};
use fencelock_core::{Finding, Level, Topology};
use fencelock_testkit::{RedisServer, Shift, WallClock, redis_or_skip, redlock_url, servers_or_skip};
use std::time::Duration;

async fn diagnosed(url: &str) -> Vec<Finding> {
    // Like `fencelock doctor`, which also diagnoses servers that it cannot connect to.
    lazy(url).await.unwrap().diagnose().await.findings
}

fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.subject == subject).unwrap_or_else(|| panic!("{subject}: {findings:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_on_one_machine_are_a_warning_and_equal_findings_are_merged() {
    let Some(servers) = servers_or_skip(3) else { return };
    let findings = diagnosed(&redlock_url(&servers, "")).await;
    assert_eq!(of(&findings, "clocks").level, Level::Fine, "{findings:?}");
    assert_eq!(of(&findings, "restarts").level, Level::Note, "{findings:?}");
    let independence = of(&findings, "independence");
    assert_eq!(independence.level, Level::Warning);
    assert!(independence.text.starts_with("3 nodes are on 127.0.0.1"), "{}", independence.text);
    for subject in ["scripts", "wake-ups", "tracking", "eviction", "persistence", "role"] {
        assert!(of(&findings, subject).text.starts_with("each node: "), "{findings:?}");
        assert_eq!(findings.iter().filter(|finding| finding.subject == subject).count(), 1, "{findings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_wrong_clock_is_named_with_the_difference() {
    drop(redis_or_skip());
    let dir = tempfile::tempdir().unwrap();
    let Ok(clock) = WallClock::new(dir.path(), "clock") else { return };
    let Ok(odd) = RedisServer::options().wall_clock(&clock).start() else { return };
    let servers = [RedisServer::start().unwrap(), odd, RedisServer::start().unwrap()];
    let name = format!("127.0.0.1:{}", servers[1].port());
    for (shift, level) in [(700, Level::Warning), (3000, Level::Failure)] {
        clock.set(Shift::Forward(Duration::from_millis(shift))).unwrap();
        let findings = diagnosed(&redlock_url(&servers, "")).await;
        let clocks = of(&findings, "clocks");
        assert_eq!(clocks.level, level, "{}", clocks.text);
        let measured = clocks.text.split(&format!("{name} +")).nth(1).and_then(|rest| rest.split_once(" ms"));
        let measured: u64 = measured.unwrap_or_else(|| panic!("{}", clocks.text)).0.parse().unwrap();
        assert!(measured.abs_diff(shift) < 300, "{}", clocks.text);
    }
    clock.set(Shift::Back(Duration::from_secs(3))).unwrap();
    let findings = diagnosed(&redlock_url(&servers, "")).await;
    assert!(of(&findings, "clocks").text.contains(&format!("{name} -")), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_distinguished_from_those_that_answer() {
    let Some(servers) = servers_or_skip(3) else { return };
    servers[2].freeze();
    let findings = diagnosed(&redlock_url(&servers, "")).await;
    servers[2].thaw();
    assert_eq!(of(&findings, "quorum").text, "2 of 3 nodes answer");
    let failed: Vec<_> = findings.iter().filter(|finding| finding.level == Level::Failure).collect();
    assert_eq!(failed.len(), 1, "{findings:?}");
    assert!(failed[0].text.starts_with(&format!("127.0.0.1:{}: no answer", servers[2].port())), "{failed:?}");
    assert!(of(&findings, "scripts").text.starts_with("each that answers: "), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_a_failure_and_no_warning_about_hosts() {
    let Some(server) = redis_or_skip() else { return };
    let port = server.port();
    let findings = diagnosed(&format!("redlock://127.0.0.1:{port},localhost:{port}")).await;
    let independence: Vec<_> = findings.iter().filter(|finding| finding.subject == "independence").collect();
    assert_eq!((independence.len(), independence[0].level), (1, Level::Failure), "{independence:?}");
    assert!(independence[0].text.contains("same server"), "{independence:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_findings_of_trusted_servers_promise_no_quarantine_after_a_restart() {
    let Some(server) = redis_or_skip() else { return };
    let url = redlock_url([&server], "trust_empty=true");
    let findings = connect(&url).await.unwrap().diagnose().await.findings;
    for subject in ["quarantine", "persistence"] {
        assert_eq!(of(&findings, subject).level, Level::Note, "{findings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_names_each_server_and_why_one_is_unreachable() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    servers[0].kill();
    let report = lazy(&redlock_url(&servers, "")).await.unwrap().diagnose().await;
    let failures: Vec<_> = report.servers.iter().map(|server| server.failure.is_some()).collect();
    assert_eq!(failures, [true, false, false], "{report:?}");
    assert_eq!(report.servers[1].topology, Topology::Single, "{report:?}");
    assert!(report.servers[1].features.iter().all(|feature| feature.works), "{report:?}");
    assert!(report.wire == Some(1) && report.options.contains(&("quarantine", "on".to_owned())), "{report:?}");
}
