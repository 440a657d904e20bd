//! A command that waits for the lock it runs under would wait for its own end.

use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::{BINARY, Test};
use std::fs;

#[test]
fn a_lock_that_this_program_runs_under_is_not_waited_for() {
    let backend = TestBackend::files();
    let expected = "fencelock: k is the lock that this program runs under *--nested-ok if that lock is released\n";
    for line in ["run k -- true", "run -w 9 k -- true", "acquire k", "wait k"] {
        // Locks in files are not for `acquire`, which is refused first.
        let expected = if line.starts_with("acquire") { "fencelock: file:*\n" } else { expected };
        Test::new(&backend, "run k --")
            .arg("sh")
            .arg("-c")
            .arg(&format!("{BINARY} {line}"))
            .stderr(expected)
            .status(64)
            .run();
    }
    let Some(backend) = TestBackend::redis() else { return };
    for line in ["run k -- true", "acquire k", "wait k"] {
        Test::script(&backend, "k", &format!("{BINARY} {line}")).stderr(expected).status(64).run();
    }
}

#[test]
fn who_does_not_wait_for_the_lock_above_is_answered_as_by_any_other_holder() {
    let backend = TestBackend::files();
    Test::new(&backend, &format!("run k -- {BINARY} run -n k -- true")).says(75, &["k is held by "]);
    Test::new(&backend, &format!("run -s k -- {BINARY} run -n -s k -- echo both")).says(0, &["both"]);
}

#[test]
fn a_lock_of_a_program_above_is_found_without_the_environment() {
    for backend in TestBackend::every_kind() {
        for (outer, inner) in
            [("k", "run k -- true"), ("j --also k", "wait k"), ("--slots 1 k", "run --slots 1 k -- true")]
        {
            let line = format!("run {outer} -- env -i {BINARY} --url {} {inner}", backend.url());
            Test::new(&backend, &line)
                .says(64, &["which this program runs under, although its environment does not say so"]);
        }
    }
}

#[test]
fn slots_are_not_waited_for_if_this_program_has_all_of_them() {
    let backend = TestBackend::files();
    for (slots, status) in [("1", 64), ("2", 0)] {
        let line = format!("run -q --slots {slots} k -- {BINARY} run -q --slots {slots} k -- true");
        Test::new(&backend, &line).says(status, &[]);
    }
}

#[test]
fn a_daemon_takes_the_lock_that_it_was_started_under_when_it_is_free() {
    for backend in TestBackend::every_kind() {
        let daemon = format!(
            "until [ -e go ]; do sleep 0.05; done; {BINARY} run k -- echo again > again 2>&1; echo $? > status; mv status ended"
        );
        Test::script(&backend, "k", &format!("({daemon}) > /dev/null 2>&1 < /dev/null &")).ok();
        fs::write(backend.file("go"), "").unwrap();
        let status = wait_until("the end of the daemon", || fs::read_to_string(backend.file("ended")).ok());
        let output = fs::read_to_string(backend.file("again")).unwrap();
        assert_eq!((output.as_str(), status.as_str()), ("again\n", "0\n"), "{}", backend.url());
    }
}

#[test]
fn a_lock_further_out_is_free_when_its_holder_has_released_it() {
    let backend = TestBackend::files();
    let inner = format!("run j -- {BINARY} run k -- echo again");
    // As a daemon that the command has left behind: the holder no longer holds the lock.
    let gone = format!("[[\"k\",null,\"{}\"]]", "0".repeat(32));
    Test::new(&backend, &inner).env("FENCELOCK_OUTER", &gone).stdout("again\n").run();
    Test::new(&backend, &inner).env("FENCELOCK_OUTER", "[[\"k\",null]]").says(64, &[]);
}

#[test]
fn a_lock_whose_holder_cannot_be_asked_for_is_not_waited_for() {
    let Some(backend) = TestBackend::redis() else { return };
    let script = format!("echo ready; read _; {BINARY} run k -- echo again; echo $?");
    let mut wrapper = Test::script(&backend, "--ttl 60s k", &script).start();
    wrapper.wait_for("ready");
    backend.server().freeze();
    wrapper.say("\n");
    wrapper.wait_for("69");
    backend.server().thaw();
    let stderr = wrapper.end().stderr;
    assert!(
        stderr.contains("started under (FENCELOCK_KEYS, FENCELOCK_OUTER), and whether it is still held is unknown: "),
        "{stderr}"
    );
}

#[test]
fn one_backend_is_one_however_it_is_written() {
    let backend = TestBackend::files();
    let path = backend.url().strip_prefix("file:").unwrap().replace("/locks", "/./locks/");
    let script = format!("{BINARY} run --url file://{path} k -- true");
    Test::script(&backend, "k", &script).says(64, &["runs under"]);
}

#[test]
fn a_hold_that_is_over_does_not_matter_to_those_who_say_so() {
    let backend = TestBackend::files();
    let test = Test::new(&backend, "run --nested-ok k -- echo held").env("FENCELOCK_KEY", "k");
    test.stdout("held\n").run();
    Test::new(&backend, "wait --nested-ok k").env("FENCELOCK_KEY", "k").run();
    Test::new(&backend, "run k -- true").env("FENCELOCK_KEY", "k").says(64, &[]);
}

#[test]
fn the_command_finds_where_its_lock_lives_without_a_password() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["CONFIG", "SET", "requirepass", "sesame"]);
    let url = backend.url().replace("redis://", "redis://:sesame@");
    let output =
        Test::script(&backend, "k", "echo $FENCELOCK_BACKEND $FENCELOCK_OUTER").env("FENCELOCK_URL", &url).output();
    assert_eq!(output.stdout, format!("redis://127.0.0.1:{} []\n", backend.server().port()));
}
