//! Limits of the system: open files, threads.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::{BINARY, Test, shell};
use fencelock_testkit::{Reply, ThreadLimit};

#[test]
fn too_few_open_files_are_an_error_that_says_so() {
    let backend = TestBackend::files();
    for files in [6, 7, 10, 16] {
        let output = shell(&backend, &format!("ulimit -n {files}; exec {BINARY} run k -- true")).end();
        let wanted = "fencelock: cannot open 24 files at the same time, which it needs (raise ulimit -n): ";
        assert!(output.status == 71 && output.stderr.starts_with(wanted), "{files}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

#[test]
fn a_lock_is_renewed_again_after_a_time_in_which_no_thread_started() {
    let Some(backend) = TestBackend::redis() else { return };
    let limit = ThreadLimit::new(backend.dir()).unwrap();
    let url = format!("redis://localhost:{}", backend.server().port());
    let mut command =
        Test::script(&backend, "-v --ttl 12s k", "echo ready; read _; echo done").env("FENCELOCK_URL", &url).command();
    limit.apply_to(&mut command);
    let mut wrapper = Running::start(command, "");
    wrapper.wait_for("ready");
    let left = || match backend.server().command(&["PTTL", "k"]) {
        Reply::Int(left) => left,
        other => panic!("{other:?}"),
    };
    limit.reach().unwrap();
    // The next renewal needs a new connection, and so the address of the host.
    for kind in ["normal", "pubsub"] {
        backend.server().command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    wrapper.wait_for_error("no thread to look up the name of the host");
    let before = left();
    limit.leave().unwrap();
    wait_until("a renewal", || (left() > before).then_some(()));
    wrapper.say("\n");
    let output = wrapper.end();
    assert_eq!((output.status, output.stdout.as_str()), (0, "ready\ndone\n"), "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}
