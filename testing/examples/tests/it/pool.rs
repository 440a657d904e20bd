//! Runs the pool of connections with many processes.

use fencelock_testkit::redis_or_skip;
use std::process::Command;

fn every_process_has_a_connection_of_its_own(arguments: &[&str]) {
    let process = Command::new(env!("CARGO_BIN_EXE_pool")).args(arguments).output().expect("a started program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&process.stdout), text(&process.stderr));
    assert!(process.status.success(), "{out}{err}");
    assert!(out.contains("  uses        12\n") && out.contains("  still used  0\n"), "{out}");
}

#[test]
fn processes_share_connections_over_files() {
    every_process_has_a_connection_of_its_own(&[]);
}

#[test]
fn processes_share_connections_over_redis() {
    let Some(server) = redis_or_skip() else { return };
    every_process_has_a_connection_of_its_own(&["--lock", &server.url()]);
}
