use crate::place::Place;
use crate::test::Test;

#[test]
fn waiting_for_a_free_key_is_over_at_once() {
    Test::new(&Place::files(), "wait k").run();
}

#[test]
fn wait_ends_when_the_key_is_free_and_takes_nothing() {
    let place = Place::files();
    let mut holder = Test::script(&place, "k", "echo ready; read _; true").start();
    holder.wait_for("ready");
    let mut waiter = Test::new(&place, "wait k").start();
    Test::new(&place, "wait -w 0.1 k").stderr("fencelock: k is held by *\n").status(75).run();
    holder.say("\n");
    assert_eq!(holder.end().status, 0);
    assert_eq!(waiter.status(), 0);
    Test::new(&place, "status k").stdout("k: free\n").run();
}

#[test]
fn a_wait_of_zero_asks_once() {
    let place = Place::files();
    let mut holder = Test::script(&place, "k", "echo ready; read _").start();
    holder.wait_for("ready");
    Test::new(&place, "wait -q -w 0 k").status(75).run();
}

#[test]
fn a_signal_ends_the_wait() {
    let place = Place::files();
    let mut holder = Test::script(&place, "k", "echo ready; read _").start();
    holder.wait_for("ready");
    let waiter = Test::new(&place, "wait k").start();
    crate::running::wait_until("the handler", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiter.pid())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        (u64::from_str_radix(mask, 16).unwrap() >> 14 & 1 == 1).then_some(())
    });
    waiter.kill("TERM");
    assert_eq!(waiter.end().status, 143);
}

#[test]
fn a_server_that_takes_no_locks_is_told_of_once() {
    let Some(place) = Place::redis() else { return };
    // A master that does not exist: the data stay, and writes are refused.
    place.server().command(&["REPLICAOF", "127.0.0.1", "1"]);
    let waiter = Test::new(&place, "run -w 1.5 k -- true").start().end();
    assert_eq!(waiter.status, 69, "{}", waiter.stderr);
    assert_eq!(waiter.stderr.matches("warning: claims are refused").count(), 1, "{}", waiter.stderr);
    assert!(!waiter.stderr.contains("could not release"), "{}", waiter.stderr);
    let waiter = Test::new(&place, "run --json -w 1.5 k -- true").start().end();
    assert_eq!(waiter.stderr.matches(r#""event":"trouble""#).count(), 1, "{}", waiter.stderr);
}
