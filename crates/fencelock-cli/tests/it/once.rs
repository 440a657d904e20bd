//! `run --once-per`: at most one success in each window. `once` shows it, `once --clear` allows another run.

use crate::backend::TestBackend;
use crate::test::Test;
use serde_json::Value;

/// No test lasts into the next window.
const RUN: &str = "run --once-per 365d job -- sh -c";

fn run<'a>(backend: &'a TestBackend, script: &str) -> Test<'a> {
    Test::new(backend, RUN).arg(script)
}

const DONE: &str = "job: done by *; the next window begins in *, at *T00:00:00Z\n";

#[test]
fn the_second_run_of_a_window_does_nothing_and_says_why() {
    for backend in TestBackend::every_kind() {
        run(&backend, "echo ran").stdout("ran\n").run();
        run(&backend, "echo ran").stderr(&format!("fencelock: {DONE}")).run();
        Test::new(&backend, "-q run --once-per 365d job -- echo ran").run();
        // A claim with another length of the window also checks whether the work is done.
        Test::new(&backend, "run --once-per 1h job -- echo ran").stderr(&format!("fencelock: {DONE}")).run();
        Test::new(&backend, "run job -- echo ran").stdout("ran\n").run();
    }
}

#[test]
fn a_failure_gives_the_window_back() {
    for backend in TestBackend::every_kind() {
        run(&backend, "echo no; exit 3").stdout("no\n").status(3).run();
        run(&backend, "kill -9 $$").status(137).run();
        run(&backend, "echo ran").stdout("ran\n").run();
    }
}

#[test]
fn a_start_uses_the_window_up_with_even_if_failed() {
    for backend in TestBackend::every_kind() {
        Test::new(&backend, "run --once-per 365d --even-if-failed job -- sh -c").arg("exit 3").status(3).run();
        run(&backend, "echo ran").stderr(&format!("fencelock: {DONE}")).run();
    }
}

#[test]
fn many_callers_at_once_run_it_once() {
    for backend in TestBackend::every_kind() {
        let callers: Vec<_> = (0..12)
            .map(|_| Test::new(&backend, "-q run --once-per 365d job -- sh -c").arg("echo ran; sleep 0.2").start())
            .collect();
        let outputs: Vec<_> = callers.into_iter().map(crate::running::Running::end).collect();
        assert!(outputs.iter().all(|output| output.status == 0));
        assert_eq!(outputs.iter().filter(|output| output.stdout == "ran\n").count(), 1);
        let free = Test::new(&backend, "status job").output();
        assert!(free.status == 0 && free.stdout.starts_with("job: free; done by "), "{}", free.stdout);
    }
}

#[test]
fn a_killed_run_gives_the_window_back() {
    for backend in TestBackend::every_kind() {
        let mut killed =
            Test::new(&backend, "run --ttl 1s --once-per 365d job -- sh -c").arg("echo ready; read _").start();
        killed.wait_for("ready");
        killed.kill("KILL");
        run(&backend, "echo ran").stdout("ran\n").stderr("*").output();
        Test::new(&backend, "once job").stdout(DONE).run();
    }
}

#[test]
fn a_busy_run_is_waited_for_or_not() {
    for backend in TestBackend::every_kind() {
        let mut busy = run(&backend, "echo ready; read _").start();
        busy.wait_for("ready");
        assert_eq!(Test::new(&backend, "run -n --once-per 365d job -- echo ran").output().status, 75);
        Test::new(&backend, "once job").stdout("job: not done in this window\n").run();
        let waiting = run(&backend, "echo ran").start();
        waiting.wait_for_error("waiting for job");
        busy.say("\n");
        assert_eq!(busy.end().status, 0);
        let waited = waiting.end();
        assert_eq!((waited.status, waited.stdout.as_str()), (0, ""), "{}", waited.stderr);
        assert!(waited.stderr.contains("job: done by "), "{}", waited.stderr);
    }
}

#[test]
fn cleared_work_runs_again() {
    for backend in TestBackend::every_kind() {
        Test::new(&backend, "once job --clear").stdout("job: not done in this window\n").run();
        run(&backend, "echo ran").stdout("ran\n").run();
        Test::new(&backend, "once job").stdout(DONE).run();
        Test::new(&backend, "once job --clear").stdout("job: cleared, it may run again; it was done by *\n").run();
        run(&backend, "echo ran").stdout("ran\n").run();
    }
}

#[test]
fn programs_read_who_has_done_the_work() {
    for backend in TestBackend::every_kind() {
        let json = |line: &str| -> Value { serde_json::from_str(&Test::new(&backend, line).output().stdout).unwrap() };
        assert!(json("--json once job")["done"].is_null() && json("--json status job")["done"].is_null());
        Test::new(&backend, "run --label nightly --once-per 365d job -- true").run();
        for line in ["--json once job", "--json status job"] {
            let done = &json(line)["done"];
            assert_eq!(done["owner"]["label"], "nightly", "{line}");
            assert!(done["fence"].as_u64() > Some(0) && done["next_window_in_ms"].as_u64() > Some(0), "{done}");
            assert!(done["next_window"].as_str().is_some_and(|text| text.ends_with("T00:00:00Z")), "{done}");
        }
        let again = Test::new(&backend, "--json run --once-per 365d job -- echo ran").output();
        let events = again.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let done: Vec<_> = events.filter(|event| event["event"] == "already_done").collect();
        assert!(
            again.stdout.is_empty() && done.len() == 1 && done[0]["done"]["owner"]["label"] == "nightly",
            "{done:?}"
        );
    }
}

#[test]
fn a_success_under_a_lost_lock_is_not_recorded() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut lost =
        Test::new(&backend, "run --on-lost warn --once-per 365d job -- sh -c").arg("echo ready; read _").start();
    lost.wait_for("ready");
    backend.server().command(&["DEL", "job"]);
    lost.wait_for_error("(--on-lost warn)");
    lost.say("\n");
    let ended = lost.end();
    assert_eq!(ended.status, 76, "{}", ended.stderr);
    assert!(ended.stderr.contains("the command succeeded, but that is not recorded"), "{}", ended.stderr);
    Test::new(&backend, "once job").stdout("job: not done in this window\n").run();
}

#[test]
fn what_is_not_understood_is_named_and_nothing_runs() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["SET", "fencelock:{job}:once", "2 soon"]);
    for line in ["run --once-per 365d job -- echo ran", "once job", "once job --clear"] {
        let refused = Test::new(&backend, line).output();
        assert_eq!((refused.status, refused.stdout.as_str()), (64, ""), "{line}");
        assert!(
            refused.stderr.contains("fencelock:{job}:once") && refused.stderr.contains("2 soon"),
            "{}",
            refused.stderr
        );
    }
    let status = Test::new(&backend, "status job").output();
    assert!(status.status == 0 && status.stdout.contains("whether its work is done is unknown"), "{}", status.stdout);
}

#[test]
fn windows_that_cannot_be_used_are_refused() {
    let backend = TestBackend::files();
    for (line, why) in [
        ("run --once-per 0.5 job -- true", "--once-per: a window lasts 1 s to 400 days; 500 ms does not"),
        ("run --once-per 401d job -- true", "--once-per: a window lasts 1 s to 400 days; 401 d does not"),
        ("run --once-per 1h a --also b -- true", "--once-per is for one KEY, and there are 2"),
        ("run --even-if-failed a -- true", "--once-per <DURATION>"),
    ] {
        let refused = Test::new(&backend, line).output();
        assert!(refused.status == 64 && refused.stderr.contains(why), "{line}: {}", refused.stderr);
    }
}
