//! Shared locks on a quorum of three servers.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::Test;

/// A command that reads until it must end.
fn reader(backend: &TestBackend, label: &str) -> Running {
    let script = "echo ready $FENCELOCK_MODE; read _";
    let mut running = Test::script(backend, &format!("-s --ttl 5s --label {label} k"), script).start();
    running.wait_for("ready shared");
    running
}

fn status(backend: &TestBackend) -> String {
    Test::new(backend, "status k").output().stdout
}

#[test]
fn a_broken_reader_ends_and_the_other_continues() {
    let Some(quorum) = TestBackend::quorum() else { return };
    let (one, two) = (reader(&quorum, "one"), reader(&quorum, "two"));
    let json = Test::new(&quorum, "status --json k").output().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let holders = json["holders"].as_array().unwrap();
    let id = |label: &str| {
        let holder = holders.iter().find(|holder| holder["owner"]["label"] == label);
        holder.unwrap_or_else(|| panic!("{json:#}"))["holder_prefix"].as_str().unwrap().to_owned()
    };
    Test::new(&quorum, &format!("break --yes --holder {} k", id("one"))).says(0, &[]);
    assert_eq!(one.end().status, 76);
    wait_until("one reader to be left", || {
        let shown = status(&quorum);
        (shown.contains("(two)") && !shown.contains("(one)")).then_some(())
    });
    two.finish();
}
