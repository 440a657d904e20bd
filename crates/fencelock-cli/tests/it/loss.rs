//! What becomes of a command whose lock is lost. A lock in files is lost only with its file.

use crate::backend::TestBackend;
use crate::running::{Running, is_alive, send, wait_until};
use crate::test::Test;
use fencelock_testkit::Reply;
use std::fs;
use std::time::{Duration, SystemTime};

/// A command that writes a sign of life fifty times a second and cannot be ended by TERM.
const STUBBORN: &str = "rm -f term; trap 'echo term >> term' TERM; echo $$; while :; do : > beat; sleep 0.02; done";

/// Runs a trial until it succeeds once. The parent-death watcher sends KILL 50 ms before the end of the lease, and a machine
/// whose processors are all taken may wake it later, by up to 0.4 s. What is late by itself is late each time.
fn in_time(trial: impl Fn() -> Result<(), String>) {
    const TRIALS: usize = 10;
    let late: Vec<_> = (0..TRIALS).map_while(|_| trial().err()).collect();
    assert!(late.len() < TRIALS, "each time: {late:#?}");
}

fn check(holds: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Notices a frozen server within a second.
fn impatient<'a>(backend: &'a TestBackend, options: &str, script: &str) -> Test<'a> {
    Test::script(backend, options, script).env("FENCELOCK_URL", &backend.server().url())
}

/// The last sign of life of [`STUBBORN`] is older than the end of the lease, and it received a TERM.
fn check_end_of_stubborn(backend: &TestBackend, lease_ends: SystemTime) -> Result<(), String> {
    let beat = fs::metadata(backend.file("beat")).unwrap().modified().unwrap();
    if let Ok(late) = beat.duration_since(lease_ends) {
        return Err(format!("the command was alive {late:?} after the end of the lease"));
    }
    check(fs::exists(backend.file("term")).unwrap(), "no TERM came before KILL")
}

/// The regular check is after a third of the TTL.
#[cfg(target_os = "linux")]
#[test]
fn a_command_whose_lock_file_is_deleted_is_ended_at_once() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "--ttl 1h k", "echo held; exec sleep 1000").start();
    wrapper.wait_for("held");
    fs::remove_file(backend.file("locks/k.lock")).unwrap();
    assert_eq!(wrapper.status(), 76);
    let stderr = wrapper.end().stderr;
    assert!(stderr.contains("deleted or replaced while it was held"), "{stderr}");
}

#[test]
fn a_command_that_ignores_term_is_dead_before_the_lease_ends() {
    let Some(backend) = TestBackend::redis() else { return };
    in_time(|| {
        let mut wrapper = impatient(&backend, "--ttl 3s k", STUBBORN).start();
        let child = wrapper.wait_for("");
        let left = just_renewed(&backend, 3000);
        let lease_ends = backend.now() + left;
        backend.server().freeze();
        let status = wrapper.status();
        let dead_by = backend.now();
        let alive = is_alive(&child);
        backend.server().thaw();
        assert_eq!(status, 76);
        assert!(!alive, "the command outlived its wrapper");
        assert!(dead_by > lease_ends - Duration::from_millis(1500), "not killed at the first failure");
        let stderr = wrapper.end().stderr;
        check_end_of_stubborn(&backend, lease_ends)?;
        check(
            stderr.contains("k: its lease is about to end and could not be renewed: redis://127.0.0.1:")
                && stderr.contains(": no answer in time")
                && stderr.contains("k: the command or its descendants did not exit in time; killing them"),
            stderr,
        )
    });
}

/// Starts a command, whose lock is on a server that then asks for a password that the client does not have.
fn locked_out(backend: &TestBackend, options: &str, script: &str) -> Running {
    let mut wrapper = Test::script(backend, options, script).start();
    wrapper.wait_for("ready");
    let mut control = backend.server().connect().unwrap();
    control.command(&["CONFIG", "SET", "requirepass", "sesame"]);
    for kind in ["normal", "pubsub"] {
        control.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    wrapper
}

#[test]
fn why_a_lock_could_not_be_renewed_is_said_once() {
    let Some(backend) = TestBackend::redis() else { return };
    let wrapper = locked_out(&backend, "-v --ttl 4s k", "echo ready; exec sleep 1000");
    let output = wrapper.end();
    assert_eq!(output.status, 76, "{}", output.stderr);
    let lines = |about: &str| output.stderr.lines().filter(|line| line.contains(about)).count();
    // The closed connection, and the refusal.
    assert!((1..=2).contains(&lines("renewal failed, trying again")), "{}", output.stderr);
    assert_eq!(lines("terminating the command"), 1, "{}", output.stderr);
    let wanted = "k: its lease is about to end and could not be renewed: redis://127.0.0.1:";
    let line = output.stderr.lines().find(|line| line.contains("terminating")).unwrap();
    assert!(line.contains(wanted) && line.contains(": access denied (NOAUTH: "), "{line}");
    assert_eq!(lines("not released"), 0, "{}", output.stderr);
}

#[test]
fn json_says_why_a_lock_could_not_be_renewed() {
    let Some(backend) = TestBackend::redis() else { return };
    let wrapper = locked_out(&backend, "--json --ttl 4s k", "echo ready; exec sleep 1000");
    let output = wrapper.end();
    let events: Vec<serde_json::Value> =
        output.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = events.iter().find(|event| event["event"] == "terminating").expect(&output.stderr);
    assert!(event["reason"].as_str().unwrap().contains(": access denied (NOAUTH: "), "{event}");
}

#[test]
fn a_release_that_fails_names_its_key() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut wrapper = locked_out(&backend, "--ttl 60s k", "echo ready; read _; true");
    wrapper.say("\n");
    let output = wrapper.end();
    let wanted = "fencelock: k: not released, so others wait for up to ";
    assert!(output.stderr.starts_with(wanted) && output.stderr.contains("NOAUTH"), "{}", output.stderr);
    assert!(output.stderr.contains(" (tried for ") && !output.stderr.contains(" tries"), "{}", output.stderr);
    assert_eq!((output.status, output.stderr.lines().count()), (0, 1), "{}", output.stderr);
}

#[test]
fn a_user_who_wants_a_warning_gets_no_more() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut wrapper = Test::script(&backend, "--ttl 3s --on-lost warn k", "echo ready; read _; exit 5").start();
    wrapper.wait_for("ready");
    backend.server().command(&["DEL", "k"]);
    wrapper.wait_for_error("the command continues");
    wrapper.say("\n");
    let output = wrapper.end();
    assert_eq!(output.status, 5);
    assert!(output.stderr.contains("the command continues and may overlap the next holder"), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

#[test]
fn a_loss_that_only_the_release_found_is_no_success() {
    let Some(backend) = TestBackend::redis() else { return };
    // The command deletes its own lock and ends before the loss is detected.
    let port = backend.server().port().to_string();
    let wrapper = "read _ _ _ wrapper _ < /proc/$PPID/stat";
    let script = format!(
        "{wrapper}; redis-cli -p {port} DEL k > /dev/null; kill -STOP $wrapper; \
         (sleep 0.2; kill -CONT $wrapper) & exit 0"
    );
    Test::script(&backend, "--ttl 30s k", &script).says(76, &["fencelock: k"]);
}

#[test]
fn a_stopped_wrapper_leaves_no_command_alive_beyond_the_lease() {
    let Some(backend) = TestBackend::redis() else { return };
    in_time(|| {
        let mut wrapper = Test::script(&backend, "--ttl 3s k", STUBBORN).start();
        let child = wrapper.wait_for("");
        let lease_ends = backend.now() + just_renewed(&backend, 3000);
        send(&wrapper.pid().to_string(), "STOP");
        wait_until("the end of the command", || (!is_alive(&child)).then_some(()));
        wrapper.kill("CONT");
        let output = wrapper.end();
        assert_eq!(output.status, 76);
        check_end_of_stubborn(&backend, lease_ends)?;
        let wanted =
            |signal| format!("k: this process was stopped or too slow; the parent-death watcher sent {signal}");
        check(output.stderr.contains(&wanted("SIGTERM")) && output.stderr.contains(&wanted("SIGKILL")), output.stderr)
    });
}

/// Waits for the moment after a renewal, and returns what is left of the lease.
fn just_renewed(backend: &TestBackend, ttl: u64) -> Duration {
    let left = || match backend.server().command(&["PTTL", "k"]) {
        Reply::Int(left) => u64::try_from(left).unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    let mut last = left();
    let left = wait_until("a renewal", || {
        let now = left();
        let renewed = now > last && now + 300 > ttl;
        last = now;
        renewed.then_some(now)
    });
    Duration::from_millis(left)
}

impl TestBackend {
    /// The clock by which the file system stamps: a file is written, and its metadata read.
    fn now(&self) -> SystemTime {
        let probe = self.file("probe");
        fs::write(&probe, "").unwrap();
        fs::metadata(&probe).unwrap().modified().unwrap()
    }
}
