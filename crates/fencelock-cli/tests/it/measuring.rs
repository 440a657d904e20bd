//! `--metrics-file`: what a collector reads after each run.
#![allow(clippy::float_cmp, reason = "numbers that are kept stay the same")]

use crate::backend::TestBackend;
use crate::running::{hold, wait_for_waiters};
use crate::test::{BINARY, Test, shell};
use fencelock::Clock;
use fencelock::backends::BootClock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// The series of the file of a key, without `fencelock_run_`, `last_` and the label of the key.
fn measured(backend: &TestBackend, key: &str) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(backend.file(&format!("metrics/fencelock-{key}.prom"))).unwrap();
    let label = format!("key=\"{key}\"");
    let sample = |line: &str| {
        let (series, value) = line.strip_prefix("fencelock_run_").unwrap().rsplit_once(' ').unwrap();
        (
            series.trim_start_matches("last_").replace(&format!("{{{label}}}"), "").replace(&format!("{label},"), ""),
            value.parse().unwrap(),
        )
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// The outcome of the last run: the only one with 1.
fn outcome(samples: &BTreeMap<String, f64>) -> String {
    let is = samples.iter().filter(|(series, value)| series.starts_with("outcome{") && **value > 0.0);
    is.map(|(series, _)| series.split('"').nth(1).unwrap()).collect::<Vec<_>>().join(" ")
}

fn now() -> f64 {
    Duration::from_micros(BootClock.wall_micros()).as_secs_f64()
}

fn with_directory(backend: TestBackend) -> TestBackend {
    fs::create_dir(backend.file("metrics")).unwrap();
    backend
}

fn run<'a>(backend: &'a TestBackend, options: &str, script: &str) -> Test<'a> {
    Test::script(backend, &format!("--metrics-file metrics {options}"), script)
}

#[test]
fn a_file_of_each_key_has_the_times_and_the_outcome_of_its_last_run() {
    let backend = with_directory(TestBackend::files());
    let before = now();
    run(&backend, "a --also b", "exit 0").run();
    for key in ["a", "b"] {
        let seen = measured(&backend, key);
        let (start, end) = (seen["start_timestamp_seconds"], seen["end_timestamp_seconds"]);
        // Times are in whole milliseconds.
        assert!(before - 0.001 <= start && start <= end && end <= now() + 0.001, "{seen:?}");
        assert_eq!((seen["success_timestamp_seconds"], seen["exit_status"]), (end, 0.0));
        assert!(seen["duration_seconds"] <= end - start + 0.01 && seen["wait_seconds"] >= 0.0, "{seen:?}");
        assert_eq!(outcome(&seen), "succeeded");
    }
    let good = measured(&backend, "a");
    run(&backend, "a", "exit 3").status(3).run();
    let failed = measured(&backend, "a");
    assert_eq!((outcome(&failed).as_str(), failed["exit_status"]), ("failed", 3.0));
    assert!(failed["start_timestamp_seconds"] > good["start_timestamp_seconds"]);
    assert_eq!(failed["success_timestamp_seconds"], good["success_timestamp_seconds"], "the last success is kept");
    assert_eq!(outcome(&measured(&backend, "b")), "succeeded", "another run, another key");
    assert_eq!(fs::read_dir(backend.file("metrics")).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn a_run_that_does_not_get_the_lock_leaves_the_times_of_the_one_that_has_it() {
    let backend = with_directory(TestBackend::files());
    let mut holder = run(&backend, "k", "echo held; read _; true").start();
    holder.wait_for("held");
    let held = measured(&backend, "k");
    assert!(held.contains_key("start_timestamp_seconds") && held.len() == 3, "it runs: {held:?}");
    run(&backend, "-q -n k", "").status(75).run();
    run(&backend, "-q -n -E 9 k", "").status(9).run();
    let busy = measured(&backend, "k");
    assert_eq!((outcome(&busy).as_str(), busy["exit_status"]), ("busy", 9.0));
    for series in ["first_timestamp_seconds", "start_timestamp_seconds"] {
        assert_eq!(busy[series], held[series]);
    }
    assert!(!busy.contains_key("end_timestamp_seconds"), "{busy:?}");
    holder.finish();
    let seen = measured(&backend, "k");
    assert_eq!(
        (outcome(&seen).as_str(), seen["start_timestamp_seconds"]),
        ("succeeded", held["start_timestamp_seconds"])
    );
}

#[test]
fn the_outcome_tells_why_a_command_did_not_run_or_was_ended() {
    let backend = with_directory(TestBackend::files());
    let seen = |key: &str| outcome(&measured(&backend, key));
    Test::new(&backend, "run -q --metrics-file metrics gone -- no-such-command").output();
    assert_eq!(seen("gone"), "failed");
    run(&backend, "-q --max-hold 0.2 --grace 0.1 long", "sleep 600").status(76).output();
    assert_eq!(seen("long"), "lost");
    for _ in 0..2 {
        run(&backend, "-q --once-per 365d once", "true").run();
    }
    assert_eq!(seen("once"), "already_done");
    assert_eq!(measured(&backend, "once")["exit_status"], 0.0);
    run(&backend, "-q -w 0.1 --url redis://127.0.0.1:1 away", "true").status(69).output();
    assert_eq!(seen("away"), "unreachable");
    Test::new(&backend, "elect --metrics-file metrics leader -- false").status(1).run();
    assert_eq!(seen("leader"), "failed");
    // It ends before it waits.
    for command in ["run", "elect"] {
        Test::new(&backend, &format!("{command} --metrics-file metrics secret -- true")).ok();
        assert_eq!(seen("secret"), "succeeded");
        let line = format!("{command} --metrics-file metrics --url redis://a@h?password_file=/nowhere secret -- true");
        assert_eq!(Test::new(&backend, &line).output().status, 64);
        assert_eq!(
            (seen("secret").as_str(), measured(&backend, "secret")["exit_status"]),
            ("failed", 64.0),
            "{command}"
        );
    }
}

#[test]
fn a_wait_that_a_signal_ends_is_cancelled_and_one_that_succeeds_is_measured() {
    let Some(backend) = TestBackend::redis().map(with_directory) else { return };
    let mut holder = hold(&backend, "k");
    let mut waiter = run(&backend, "-q k", "true").start();
    wait_for_waiters(&backend, "k", 1);
    waiter.kill("TERM");
    assert_eq!(waiter.status(), 143);
    assert_eq!(outcome(&measured(&backend, "k")), "cancelled");
    let begun = tokio::time::Instant::now();
    let waiter = run(&backend, "-q k", "true").start();
    wait_for_waiters(&backend, "k", 1);
    std::thread::sleep(Duration::from_millis(300));
    holder.say("\n");
    assert_eq!((holder.end().status, waiter.end().status), (0, 0));
    let seen = measured(&backend, "k");
    let wait = seen["wait_seconds"];
    assert!(0.3 <= wait && wait <= begun.elapsed().as_secs_f64(), "{wait}");
    assert_eq!(outcome(&seen), "succeeded");
}

#[test]
fn a_directory_that_cannot_be_used_is_found_before_the_command_runs() {
    let backend = with_directory(TestBackend::files());
    fs::write(backend.file("file"), "").unwrap();
    for (directory, why) in
        [("none", "No such file or directory*"), ("file", "not a directory"), ("file/x", "Not a dir*")]
    {
        for command in ["run", "elect"] {
            Test::new(&backend, &format!("{command} --metrics-file {directory} k -- touch ran"))
                .stderr(&format!("fencelock: --metrics-file {directory}: {why}\n"))
                .status(64)
                .run();
        }
    }
    // Root may write everywhere.
    if rustix::process::geteuid().as_raw() != 0 {
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o555);
        fs::set_permissions(backend.file("metrics"), closed).unwrap();
        run(&backend, "k", "touch ran").says(64, &["ermission denied"]);
    }
    assert!(!backend.file("ran").exists() && !backend.file("locks").exists(), "nothing was acquired");
}

#[test]
fn what_cannot_be_written_is_a_warning_and_changes_no_exit_status() {
    let Some(backend) = TestBackend::redis().map(with_directory) else { return };
    // No file may have a content, as on a full disk.
    let full = |options: &str| {
        let line = format!(
            "trap '' XFSZ; ulimit -f 0; FENCELOCK_URL='{}' {BINARY} {options} run --metrics-file metrics k -- sh -c 'exit 3'",
            backend.url()
        );
        shell(&backend, &line).end()
    };
    let output = full("");
    assert_eq!(output.status, 3, "{}", output.stderr);
    let warning = "fencelock: cannot write --metrics-file: ";
    assert!(output.stderr.lines().count() == 2 && output.stderr.lines().all(|line| line.starts_with(warning)));
    assert_eq!(full("-q").stderr, "");
    assert!(full("--json").stderr.contains(r#"{"event":"not_measured","reason":"File too large"#));
    assert_eq!(fs::read_dir(backend.file("metrics")).unwrap().count(), 0, "nothing is left");
    run(&backend, "k", "rm -r metrics; exit 4").stderr(&format!("{warning}*\n")).status(4).run();
}

const PAGE: &str = include_str!("../../../../docs/en/metrics.md");

#[test]
fn the_page_names_what_is_written() {
    let backend = with_directory(TestBackend::files());
    run(&backend, "k", "true").run();
    let text = fs::read_to_string(backend.file("metrics/fencelock-k.prom")).unwrap();
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `fencelock_run_")?.split_once('`'));
    let named: BTreeSet<_> = rows.map(|(name, _)| format!("fencelock_run_{name}")).collect();
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
    let written: BTreeSet<_> = helps.filter_map(|help| help.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(named, written);
    for (_, rest) in text.match_indices("outcome=\"").map(|(at, start)| text.split_at(at + start.len())) {
        let outcome = rest.split('"').next().unwrap();
        assert!(PAGE.contains(&format!("`{outcome}`")), "{outcome}");
    }
}

#[test]
fn a_collector_accepts_the_file() {
    let backend = with_directory(TestBackend::files());
    run(&backend, "k", "true").run();
    Test::new(&backend, "run --metrics-file metrics").arg("a \"b\" \\ 订单").arg("--").arg("true").ok();
    for file in fs::read_dir(backend.file("metrics")).unwrap() {
        let file = fs::File::open(file.unwrap().path()).unwrap();
        let mut promtool = std::process::Command::new("promtool");
        let Ok(output) = promtool.args(["check", "metrics"]).stdin(file).output() else {
            return eprintln!("skipped: there is no promtool");
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}
