//! `alias flock='fencelock run'`: what flock(1) understands either means the same, or is refused with a reason.

use crate::backend::TestBackend;
use crate::running::hold;
use crate::test::Test;

#[test]
fn what_means_the_same_is_accepted() {
    let backend = TestBackend::files();
    for options in ["-x", "-e", "--exclusive", "-o", "--close", "-n -x -o", "--nonblock", "--nb", "-w 5", "--timeout 5"]
    {
        Test::script(&backend, &format!("{options} k"), "echo done").stdout("done\n").run();
    }
}

#[test]
fn a_line_is_run_by_a_shell() {
    let backend = TestBackend::files();
    let line = "echo $FENCELOCK_KEY; exit 3";
    for options in ["-c", "--command", "-n -c"] {
        Test::new(&backend, &format!("run k {options}"))
            .arg(line)
            .env("SHELL", "/bin/sh")
            .stdout("k\n")
            .status(3)
            .run();
    }
    Test::new(&backend, "run k -c").arg("echo $0").env("SHELL", "").stdout("/bin/sh\n").run();
    Test::new(&backend, "run k -c").arg("true").arg("echo").says(64, &["cannot be used with"]);
}

#[test]
fn a_busy_lock_ends_with_the_code_that_was_chosen() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "k");
    for options in ["--nonblock --conflict-exit-code 1", "-n -E 1", "--timeout 0.1 -E 1", "-w 0 -E 1"] {
        Test::new(&backend, &format!("run -q {options} k true")).status(1).run();
    }
}

#[test]
fn a_mode_that_the_backend_lacks_is_refused_before_the_command_starts() {
    let backend = TestBackend::files();
    // The refusal needs no request to the servers.
    let quorum = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let why = ["has no semaphores, so k cannot be acquired as 1 of 3 permits", "use slots"];
    Test::new(&backend, "run --permits 3 k -- touch ran").env("FENCELOCK_URL", quorum).says(64, &why);
    assert!(!backend.file("ran").exists());
}

#[test]
fn what_does_not_mean_the_same_is_refused_with_a_reason() {
    let backend = TestBackend::files();
    for (line, why) in [
        (
            "run -u k",
            "-u: `run` releases the lock when the command exits; use `fencelock release` for a lock of `acquire`",
        ),
        ("run -F k true", "-F: the command always runs in a separate process, so that the lock can be renewed"),
        (
            "run 9",
            "no command to run under 9: fencelock run KEY -- COMMAND [ARGUMENT]...; locking a file descriptor, as in `flock \
             9`, is not supported",
        ),
        ("run k", "no command to run under k: fencelock run KEY -- COMMAND [ARGUMENT]..."),
    ] {
        Test::new(&backend, line).stderr(&format!("fencelock: {why}\n")).status(64).run();
    }
    Test::new(&backend, "status k").stdout("k: free\n").run();
}
