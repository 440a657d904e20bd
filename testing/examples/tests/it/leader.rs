//! Runs the example of an election with two processes.

use fencelock_testkit::{TestProcess, redis_or_skip};
use std::process::Command;

fn start(lock: &str, value: &str, steps: &str) -> TestProcess {
    let mut program = Command::new(env!("CARGO_BIN_EXE_leader"));
    program.args(["--lock", lock, "--steps", steps, value]);
    TestProcess::spawn(program).expect("a started program")
}

/// The term in the next line that has one.
fn term(process: &mut TestProcess) -> u64 {
    let line = process.receive("term ").expect("a line with the term");
    let number = line.split(':').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_standby_works_on_after_the_leader_was_killed() {
    let Some(server) = redis_or_skip() else { return };
    let mut leader = start(&server.url(), "one", "100000");
    let first = term(&mut leader);
    let mut standby = start(&server.url(), "two", "3");
    assert!(standby.receive("leader: ").is_some_and(|leader| leader.starts_with("one on ")));
    leader.kill();
    let second = term(&mut standby);
    assert!(second > first, "{first} {second}");
    assert!(standby.end().success());
}
