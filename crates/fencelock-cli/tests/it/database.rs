//! The commands on a database.

use crate::backend::TestBackend;
use crate::running::{hold, wait_for_waiters};
use crate::test::Test;
use std::time::Duration;

#[test]
fn a_command_runs_under_a_lock_that_the_other_commands_see() {
    let Some(backend) = TestBackend::database() else { return };
    // Inside, the lock is held.
    let inside = format!("{} status k --url {}", env!("CARGO_BIN_EXE_fencelock"), backend.url());
    Test::new(&backend, &format!("run k -- {inside}")).says(75, &["held by"]);
    Test::new(&backend, "status k").says(0, &["k: free"]);
    let listed = inside.replace("status k", "list");
    Test::new(&backend, &format!("run -s k -- {listed}")).says(0, &["shared"]);
    Test::new(&backend, &format!("run --permits 2 k -- {listed}")).says(0, &["1 of 2"]);
    Test::new(&backend, "run --slots 2 k -- echo in a slot").says(0, &["in a slot"]);
    Test::new(&backend, "run --once-per 1h daily -- echo done").says(0, &["done"]);
    Test::new(&backend, "run --once-per 1h daily -- echo again").says(0, &["the next window begins"]);
    assert_eq!(backend.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0"), "0");
}

#[test]
fn doctor_tries_a_lock_and_leaves_no_row() {
    let Some(backend) = TestBackend::database() else { return };
    Test::new(&backend, "doctor").says(0, &["a lock was acquired and released; these work: "]);
    assert_eq!(backend.sql("SELECT count(*) FROM fencelock.locks"), "0");
    backend.sql("DROP SCHEMA fencelock CASCADE");
    Test::new(&backend, "doctor").says(69, &["fencelock init"]);
    Test::new(&backend, "run k -- true").says(64, &["fencelock init"]);
}

#[test]
fn init_of_one_server_that_does_not_answer_speaks_of_no_set() {
    let Some(backend) = TestBackend::database() else { return };
    let told = Test::new(&backend, "init --url postgres://postgres@127.0.0.1:1/postgres").says(69, &["not reachable"]);
    assert!(!told.contains("every server"), "{told}");
}

#[test]
fn a_waiter_that_is_stopped_for_two_leases_is_passed_over_and_waits_again() {
    let Some(backend) = TestBackend::database() else { return };
    let holder = hold(&backend, "--ttl 2s k");
    let waiter = || Test::script(&backend, "--ttl 2s k", "echo holds; read _").start();
    let mut stopped = waiter();
    wait_for_waiters(&backend, "k", 1);
    stopped.kill("STOP");
    let mut other = waiter();
    wait_for_waiters(&backend, "k", 2);
    std::thread::sleep(Duration::from_secs(4));
    holder.finish();
    other.wait_for("holds");
    stopped.kill("CONT");
    wait_for_waiters(&backend, "k", 1);
    other.say("\n");
    assert_eq!(other.end().status, 0);
    stopped.wait_for("holds");
    stopped.say("\n");
    assert_eq!(stopped.end().status, 0);
}
