//! `run --once-per`: at most one success in each window. `once` shows it, `once --clear` allows another run.

use crate::backend::TestBackend;
use crate::keeping::OpenDirectory;
use crate::running::wait_until;
use crate::test::Test;
use fencelock_testkit::Reply;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// No test lasts into the next window.
const RUN: &str = "run --once-per 365d job -- sh -c";

fn run<'a>(backend: &'a TestBackend, script: &str) -> Test<'a> {
    Test::new(backend, RUN).arg(script)
}

const DONE: &str = "job: done by *; the next window begins in *, at *T00:00:00Z\n";

#[test]
fn a_success_uses_the_window_up_and_a_failure_does_not() {
    for backend in TestBackend::every_kind() {
        Test::new(&backend, "once job --clear").stdout("job: not done in this window\n").run();
        run(&backend, "echo no; exit 3").stdout("no\n").status(3).run();
        run(&backend, "kill -9 $$").status(137).run();
        run(&backend, "echo ran").stdout("ran\n").run();
        run(&backend, "echo ran").stderr(&format!("fencelock: {DONE}")).run();
        Test::new(&backend, "-q run --once-per 365d job -- echo ran").run();
        Test::new(&backend, "run job -- echo ran").stdout("ran\n").run();
        Test::new(&backend, "once job").stdout(DONE).run();
        Test::new(&backend, "once job --clear").stdout("job: cleared, it may run again; it was done by *\n").run();
        Test::new(&backend, "run --once-per 365d --even-if-failed job -- sh -c").arg("exit 3").status(3).run();
        run(&backend, "echo ran").stderr(&format!("fencelock: {DONE}")).run();
    }
}

/// The file of a completion belongs to the user whose run wrote it last.
#[test]
fn users_of_one_sticky_directory_record_their_runs_in_turn() {
    let test = "users_of_one_sticky_directory_record_their_runs_in_turn";
    let Some(directory) = OpenDirectory::for_others(test) else { return };
    let locks = directory.0.path().join("locks");
    fs::create_dir(&locks).unwrap();
    fs::set_permissions(&locks, fs::Permissions::from_mode(0o1777)).unwrap();
    for user in [12_345, 12_346] {
        // The run of the first user counts for a second.
        let said = wait_until("a run of this user", || {
            let line = "exec ./fencelock run --min-interval 1s job -- echo ran";
            let (code, stdout, stderr) = directory.shell(user, "", line);
            (stdout == "ran\n" || code != Some(0)).then_some(stderr)
        });
        assert_eq!(said, "", "user {user}");
    }
}

#[test]
fn a_busy_run_is_waited_for_or_not() {
    let backend = TestBackend::files();
    let mut busy = run(&backend, "echo ready; read _").start();
    busy.wait_for("ready");
    assert_eq!(Test::new(&backend, "run -n --once-per 365d job -- echo ran").output().status, 75);
    Test::new(&backend, "once job").stdout("job: not done in this window\n").run();
    let waiting = run(&backend, "echo ran").start();
    waiting.wait_for_error("waiting for job");
    busy.finish();
    let waited = waiting.end();
    assert_eq!((waited.status, waited.stdout.as_str()), (0, ""), "{}", waited.stderr);
    assert!(waited.stderr.contains("job: done by "), "{}", waited.stderr);
}

#[test]
fn programs_read_who_has_done_the_work() {
    let backend = TestBackend::files();
    let json = |line: &str| -> Value { Test::new(&backend, line).json() };
    assert!(json("--json once job")["done"].is_null() && json("--json status job")["done"].is_null());
    Test::new(&backend, "run --label nightly --once-per 365d job -- true").run();
    for line in ["--json once job", "--json status job"] {
        let done = &json(line)["done"];
        assert_eq!(done["owner"]["label"], "nightly", "{line}");
        assert!(done["granted"].as_str().is_some_and(|text| text.ends_with('Z')), "{done}");
        assert!(done["granted_ago_ms"].as_u64() < Some(600_000), "{done}");
        assert!(done["fence"].as_u64() > Some(0) && done["next_window_in_ms"].as_u64() > Some(0), "{done}");
        assert!(done["next_window"].as_str().is_some_and(|text| text.ends_with("T00:00:00Z")), "{done}");
    }
    let again = Test::new(&backend, "--json run --once-per 365d job -- echo ran").output();
    let events = again.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let done: Vec<_> = events.filter(|event| event["event"] == "already_done").collect();
    assert!(again.stdout.is_empty() && done.len() == 1 && done[0]["done"]["owner"]["label"] == "nightly", "{done:?}");
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

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Stores a success of another client, so many seconds ago, for windows that end so many seconds from now. Returns when it was.
fn stores(backend: &TestBackend, ago: i64, until_in: i64) -> i64 {
    let Reply::Array(time) = backend.server().command(&["TIME"]) else { panic!("no time") };
    let now: i64 = time[0].text().unwrap().parse().unwrap();
    let [granted, until] = [now - ago, now + until_in].map(|seconds| seconds * 1_000_000);
    let text = format!("2 {until} {granted} {granted} web-1:42 nightly");
    backend.server().command(&["SET", "fencelock:{job}:once", &text]);
    now - ago
}

fn runs(backend: &TestBackend, options: &str) -> String {
    Test::new(backend, &format!("run {options} job -- echo ran")).says(0, &[])
}

#[test]
fn each_option_says_when_a_success_counts() {
    let Some(backend) = TestBackend::redis() else { return };
    let ran = stores(&backend, 2 * HOUR, 30 * HOUR);
    let shown = |options: &str| Test::new(&backend, &format!("once job {options}")).output().stdout;
    for options in ["", "--min-interval 3h"] {
        assert!(shown(options).starts_with("job: done by web-1:42 (nightly) 2 h"), "{options}: {}", shown(options));
    }
    for options in ["--min-interval 1h", "--once-per 1h"] {
        assert_eq!(shown(options), "job: not done in this window\n", "{options}");
    }
    let counts = |options: &str, said: &str| {
        let output = runs(&backend, options);
        assert!(output.contains(said) && output.starts_with("ran\n") == (said == "ran\n"), "{options}: {output}");
    };
    counts("--min-interval 3h", "done by web-1:42 (nightly) 2 h");
    counts("--min-interval 130m", "warning: job: the success that counts is 2 h");
    let begins_at = |moment: i64| format!("--once-per 1d --offset {}s", moment.rem_euclid(DAY));
    counts(&begins_at(ran - 60), "the next window begins in 21 h 5");
    counts(&begins_at(ran + 60), "ran\n");
    stores(&backend, 2 * HOUR, HOUR);
    counts("--min-interval 1h", "ran\n");
    counts("--min-interval 1h", "done by ");
    stores(&backend, -(DAY + HOUR), 40 * HOUR);
    let ran = runs(&backend, "--once-per 365d");
    let ignored = "warning: job: the last success is ignored, because it lies 1 d";
    assert!(ran.starts_with("ran\n") && ran.contains(ignored), "{ran}");
}

#[test]
fn what_is_not_understood_is_named_and_nothing_runs() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["SET", "fencelock:{job}:once", "3 soon"]);
    for line in ["run --once-per 365d job -- echo ran", "once job", "once job --clear"] {
        let said = Test::new(&backend, line).says(64, &["fencelock:{job}:once", "3 soon"]);
        assert!(!said.contains("ran"), "{said}");
    }
    Test::new(&backend, "status job").says(0, &["whether its work is done is unknown"]);
}
