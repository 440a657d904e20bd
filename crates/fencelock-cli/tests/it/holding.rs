use crate::backend::TestBackend;
use crate::running::{is_alive, wait_until};
use crate::test::{Output, Test};
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn a_fast_command_keeps_the_lock_for_the_least_hold() {
    let backend = TestBackend::files();
    let begun = Instant::now();
    let holder = Test::script(&backend, "-v --hold-for 4s k", "exit 3").start();
    holder.wait_for_error("holding");
    Test::new(&backend, "-q status k").status(75).run();
    assert_eq!(holder.end().status, 3, "the command's code is not forgotten");
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_signal_ends_the_least_hold_early_with_the_commands_code() {
    let backend = TestBackend::files();
    let mut holder = Test::script(&backend, "--hold-for 1h k", "echo $$; exit 4").start();
    let child = holder.wait_for("");
    wait_until("the end of the command", || (!is_alive(&child)).then_some(()));
    Test::new(&backend, "-q status k").status(75).run();
    holder.kill("TERM");
    assert_eq!(holder.status(), 4);
}

#[test]
fn the_longest_hold_ends_the_command() {
    let backend = TestBackend::files();
    Test::script(&backend, "--max-hold 1 k", "exec sleep 1000")
        .stderr("fencelock: k: --max-hold 1 s is reached; terminating the command (TERM, then KILL in 5 s)\n")
        .status(76)
        .run();
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace_with_all_its_group() {
    let backend = TestBackend::files();
    let output = held_too_long(&backend, "--grace 1", "trap '' TERM; echo ready; sleep 1000 & sleep 1000");
    let (first, kill) = output.stderr.split_once('\n').unwrap();
    assert!(first.starts_with("fencelock: k: --max-hold "), "{}", output.stderr);
    assert!(first.ends_with(" s is reached; terminating the command (TERM, then KILL in 1 s)"), "{}", output.stderr);
    let kills = [
        "fencelock: k: the command or its descendants did not exit in time; killing them\n",
        // On a busy machine the watcher may be the first.
        "fencelock: k: this process was stopped or too slow; the parent-death watcher sent SIGKILL to the command before the \
         lease ended\n",
    ];
    assert!(output.status == 76 && kills.contains(&kill), "{}", output.stderr);
}

#[test]
fn a_command_that_cleans_up_on_term_may_do_so() {
    let backend = TestBackend::files();
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let output = held_too_long(&backend, "", script);
    assert_eq!((output.stdout.as_str(), output.status), ("ready\ncleaned\n", 76));
}

/// Runs a script that prints `ready`, with a `--max-hold` that ends later. On a busy machine a shell may need more than a second to start.
pub(crate) fn held_too_long(backend: &TestBackend, options: &str, script: &str) -> Output {
    let run = |longest| Test::script(backend, &format!("--max-hold {longest} {options} k"), script).output();
    ["1", "10", "60"].into_iter().map(run).find(|output| output.stdout.starts_with("ready\n")).expect("a start in time")
}
