use crate::backend::TestBackend;
use crate::running::{Running, children, hold, is_alive, is_stopped, send, wait_until};
use crate::test::Test;
use std::fs;

/// A holder, and a process that waits behind it.
fn behind(backend: &TestBackend, script: &str) -> (Running, Running) {
    let holder = hold(backend, "k");
    let waiter = Test::new(backend, "run -v k -- sh -c").arg(script).env("RUST_BACKTRACE", "0").start();
    (holder, waiter)
}

#[test]
fn a_signal_before_the_acquisition_ends_the_wait_and_starts_nothing() {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let backend = TestBackend::files();
        let (holder, waiter) = behind(&backend, "touch started");
        has_its_handlers(&waiter);
        waiter.kill(signal);
        assert_eq!(waiter.end().status, code, "{signal}");
        holder.finish();
        Test::new(&backend, "run -n k -- true").run();
        assert!(!fs::exists(backend.file("started")).unwrap(), "{signal}");
    }
}

#[test]
fn a_signal_in_the_queue_of_a_server_leaves_no_waiter_behind() {
    let Some(backend) = TestBackend::redis() else { return };
    let (holder, waiter) = behind(&backend, "touch started");
    wait_until("the waiter's position in the queue", || (waiters(&backend) == 1).then_some(()));
    waiter.kill("TERM");
    assert_eq!(waiter.end().status, 143);
    assert_eq!(waiters(&backend), 0);
    holder.finish();
    assert_eq!(backend.server().command(&["EXISTS", "k"]), fencelock_testkit::Reply::Int(0));
    assert!(!fs::exists(backend.file("started")).unwrap());
}

fn waiters(backend: &TestBackend) -> usize {
    let output = Test::new(backend, "status --json k").output();
    let (_, rest) = output.stdout.split_once("\"waiters\":").unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn signals_of_no_concern_do_not_end_the_wait() {
    let backend = TestBackend::files();
    let (mut holder, waiter) = behind(&backend, "echo mine");
    has_its_handlers(&waiter);
    for signal in ["USR1", "USR2", "WINCH", "CONT"] {
        waiter.kill(signal);
    }
    holder.say("\n");
    let output = waiter.end();
    assert_eq!((output.status, output.stdout.as_str()), (0, "mine\n"));
}

#[test]
fn signals_are_passed_to_the_command() {
    let backend = TestBackend::files();
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT"] {
        let script = format!("trap 'echo got {signal}; exit 7' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut wrapper = Test::script(&backend, "k", &script).start();
        wrapper.wait_for("ready");
        wrapper.kill(signal);
        let output = wrapper.end();
        assert_eq!((output.stdout, output.status), (format!("ready\ngot {signal}\n"), 7));
    }
}

#[test]
fn a_signal_reaches_all_processes_of_the_commands_group() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "sleep 1000 & echo $!; wait").start();
    let grandchild = wrapper.wait_for("");
    wrapper.kill("TERM");
    assert_eq!(wrapper.status(), 143);
    wait_until("the grandchild's death", || (!is_alive(&grandchild)).then_some(()));
}

#[test]
fn a_second_request_to_end_kills() {
    let backend = TestBackend::files();
    for (first, second) in [("INT", "INT"), ("TERM", "INT"), ("TERM", "TERM")] {
        let mut wrapper =
            Test::script(&backend, "k", "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.02; done").start();
        wrapper.wait_for("ready");
        wrapper.kill(first);
        wrapper.wait_for("no");
        // The same signal counts again after a second.
        wait_until("the end", || {
            wrapper.kill(second);
            std::thread::sleep(std::time::Duration::from_millis(100));
            wrapper.has_ended().then_some(())
        });
        let output = wrapper.end();
        assert_eq!(output.status, 137, "{first} {second}");
        // The shell reports the end of its sleep.
        assert!(
            output.stderr.ends_with("fencelock: k: received a second termination signal; killing the command\n"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn timeout_ends_the_command_and_does_not_kill_it() {
    let backend = TestBackend::files();
    let script = "trap 'sleep 0.5; echo cleaned up; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    for signal in ["TERM", "INT"] {
        let script = script.replace("TERM", signal);
        let mut command = std::process::Command::new("timeout");
        command.args(["--preserve-status", "--signal", signal, "1h"]).arg(crate::test::BINARY);
        command.args(["run", "-v", "--url", backend.url(), "k", "--", "sh", "-c", &script]);
        let mut timeout = Running::start(command, "");
        timeout.wait_for("ready");
        // As if the hour were over: this is the signal of its timer.
        timeout.kill("ALRM");
        let output = timeout.end();
        assert!(output.stdout.ends_with("cleaned up\n"), "{signal}: {} {}", output.stdout, output.stderr);
        assert_eq!(output.status, 3, "{}", output.stderr);
        assert_eq!(output.stderr.matches(&format!("forwarded SIG{signal}")).count(), 1, "{}", output.stderr);
    }
}

#[test]
fn a_stopped_command_keeps_its_lock_and_continues() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "echo $$; read _; echo on").start();
    let child = wrapper.wait_for("");
    send(&child, "STOP");
    Test::new(&backend, "run -q -n k -- true").status(75).run();
    wrapper.say("\n");
    wrapper.kill("CONT");
    assert_eq!(wrapper.end().stdout, format!("{child}\non\n"));
}

#[test]
fn a_stopped_command_can_be_terminated() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "echo $$; exec sleep 1000").start();
    let child = wrapper.wait_for("");
    send(&child, "STOP");
    wait_until("the stop", || is_stopped(&child).then_some(()));
    wrapper.kill("TERM");
    assert_eq!(wrapper.status(), 143);
}

#[test]
fn a_stop_that_is_not_reported_yet_does_not_keep_a_command_from_its_end() {
    let backend = TestBackend::files();
    let script = "trap 'echo forwarded' USR1; echo $$; while true; do sleep 0.05; done";
    let mut wrapper = Test::script(&backend, "k", script).start();
    let child = wrapper.wait_for("");
    // From now on the wrapper needs nothing of the watcher.
    wrapper.kill("USR1");
    wrapper.wait_for("forwarded");
    let [watcher] = children(wrapper.pid()).try_into().expect("one child, the watcher");
    for process in [&watcher, &child] {
        send(process, "STOP");
        wait_until("the stop", || is_stopped(process).then_some(()));
    }
    wrapper.kill("TERM");
    wait_until("the end of the command", || (!is_alive(&child)).then_some(()));
    send(&watcher, "CONT");
    assert_eq!(wrapper.status(), 143);
}

/// Waits until a program handles every signal that it handles while it waits. It installs one handler after the other.
pub(crate) fn has_its_handlers(waiter: &Running) {
    wait_until("the handlers", || {
        let status = fs::read_to_string(format!("/proc/{}/status", waiter.pid())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
        let mask = u64::from_str_radix(mask, 16).unwrap();
        // HUP, INT, QUIT, USR1, USR2, TERM, CONT, TSTP, WINCH.
        [1, 2, 3, 10, 12, 15, 18, 20, 28].iter().all(|signal| mask >> (signal - 1) & 1 == 1).then_some(())
    });
}
