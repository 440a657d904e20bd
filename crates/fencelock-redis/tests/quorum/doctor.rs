//! The findings of `doctor` about a quorum of real servers.

use fencelock::backends::{connect, lazy};
use fencelock_core::{Finding, Level, Topology};
use fencelock_testkit::{redis_or_skip, redlock_url, servers_or_skip};

async fn diagnosed(url: &str) -> Vec<Finding> {
    // Like `fencelock doctor`, which also diagnoses servers that it cannot connect to.
    lazy(url).await.unwrap().diagnose().await.findings
}

fn of<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.subject == subject).unwrap_or_else(|| panic!("{subject}: {findings:?}"))
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
