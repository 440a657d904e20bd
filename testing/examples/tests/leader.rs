//! Runs the example of an election with two processes.
#![allow(missing_docs)]

use fencelock_testkit::redis_or_skip;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

fn start(lock: &str, value: &str, steps: &str) -> Child {
    let mut program = Command::new(env!("CARGO_BIN_EXE_leader"));
    program.args(["--lock", lock, "--steps", steps, value]).stdout(Stdio::piped());
    program.spawn().expect("a started program")
}

/// The first line that begins so.
fn line(process: &mut Child, begin: &str) -> String {
    let mut lines = BufReader::new(process.stdout.as_mut().expect("its stdout")).lines();
    lines.find_map(|line| line.ok().filter(|line| line.starts_with(begin))).expect("the line")
}

fn term(line: &str) -> u64 {
    let number = line.trim_start_matches("term ").split(':').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_standby_works_on_after_the_leader_was_killed() {
    let Some(server) = redis_or_skip() else { return };
    let mut leader = start(&server.url(), "one", "100000");
    let first = line(&mut leader, "term ");
    let mut standby = start(&server.url(), "two", "3");
    assert!(line(&mut standby, "leader: ").starts_with("leader: one on "));
    leader.kill().expect("a signal");
    leader.wait().expect("its end");
    let second = line(&mut standby, "term ");
    assert!(term(&second) > term(&first), "{first} {second}");
    assert!(standby.wait().expect("its end").success());
}
