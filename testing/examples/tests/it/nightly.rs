//! Runs the nightly job on many hosts, each a process.

use fencelock_testkit::redis_or_skip;
use std::process::Command;

fn night(arguments: &[&str]) -> String {
    let process = Command::new(env!("CARGO_BIN_EXE_nightly")).args(arguments).output().expect("a started program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(process.status.success(), "{}{}", text(&process.stdout), text(&process.stderr));
    text(&process.stdout)
}

fn done_once_after_two_failures(night: &str) {
    for row in ["  failed runs  2\n", "  done         1\n", "  reports      1\n"] {
        assert!(night.contains(row), "{row:?} in {night}");
    }
}

#[test]
fn fifty_hosts_with_a_common_directory_write_one_report() {
    done_once_after_two_failures(&night(&[]));
}

#[test]
fn hosts_with_a_common_redis_write_one_report() {
    let Some(server) = redis_or_skip() else { return };
    // Long enough for a machine that stops for some seconds.
    let url = format!("{}?timeout=10000", server.url());
    let hosts = ["--hosts", "12", "--lock", &url];
    done_once_after_two_failures(&night(&hosts));
    let next = night(&hosts);
    assert!(next.contains("  done         0\n"), "it is the same night: {next}");
}
