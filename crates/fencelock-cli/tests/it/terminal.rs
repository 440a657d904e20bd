//! With a real terminal, made by `script` of util-linux.

use crate::backend::TestBackend;
use crate::running::{Running, hold};
use crate::test::{BINARY, Test};
use std::process::Command;

/// What was shown on the terminal, in the directory of the backend.
pub(crate) const TYPESCRIPT: &str = "typescript";

/// `line` of a shell on a terminal of its own. What is said to it is typed.
pub(crate) fn on_a_terminal(backend: &TestBackend, line: &str) -> Running {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", line, TYPESCRIPT]);
    command
        .current_dir(backend.dir())
        .env("FENCELOCK_URL", backend.url())
        .env("XDG_CONFIG_HOME", backend.dir())
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env("PS1", "");
    Running::start(command, "")
}

/// Prints whether the shell that runs it is in the terminal's foreground.
const FOREGROUND: &str = "read _ _ _ _ group _ _ front _ < /proc/$$/stat; test $group = $front && echo in front";

#[test]
fn the_command_gets_the_terminal_and_it_comes_back() {
    let backend = TestBackend::files();
    for line in [
        format!("{BINARY} run k -- sh -c '{FOREGROUND}'"),
        format!("{BINARY} run k -- true; {FOREGROUND}"),
        format!("{BINARY} run k -- no-such-command 2> /dev/null; {FOREGROUND}"),
    ] {
        let output = on_a_terminal(&backend, &line).end();
        assert_eq!((output.stdout.as_str(), output.status), ("in front\r\n", 0), "{line}");
    }
}

#[test]
fn a_command_that_dies_leaves_a_terminal_with_echo() {
    let backend = TestBackend::files();
    let line = format!("{BINARY} run k -- sh -c 'stty -echo; kill -KILL $$'; stty -a | grep -ow -e '-*echo'");
    assert_eq!(on_a_terminal(&backend, &line).end().stdout, "echo\r\n");
}

#[test]
fn control_c_reaches_the_command_alone() {
    let backend = TestBackend::files();
    let script = "trap \"echo interrupted; exit 9\" INT; echo ready; while :; do sleep 0.02; done";
    let mut terminal = on_a_terminal(&backend, &format!("{BINARY} -v run k -- sh -c '{script}'"));
    terminal.wait_for("ready");
    terminal.say("\x03");
    terminal.wait_for("interrupted");
    let output = terminal.end();
    assert_eq!(output.status, 9);
    assert!(!output.stdout.contains("forwarded SIGINT"), "{}", output.stdout);
}

#[test]
fn a_command_before_a_pipe_may_read_the_terminal_too() {
    let backend = TestBackend::files();
    let line = format!("{BINARY} run k -- sh -c 'echo ready; read l; echo got $l' | cat");
    let mut terminal = on_a_terminal(&backend, &line);
    terminal.wait_for("ready");
    terminal.say("hello\n");
    terminal.wait_for("got hello");
    assert_eq!(terminal.end().status, 0);
}

#[test]
fn control_z_stops_the_job_and_fg_brings_it_back() {
    let backend = TestBackend::files();
    let mut shell = on_a_terminal(&backend, "bash --norc --noprofile --noediting -i");
    shell.say(&format!("PS1=; stty -echo; {BINARY} run k -- sh -c 'echo ready; read l; echo got $l'\n"));
    shell.wait_for("ready\r");
    shell.say("\x1a");
    shell.wait_for("Stopped");
    Test::new(&backend, "-q status k").status(75).run();
    shell.say("echo the shell is back\n");
    shell.wait_for("the shell is back");
    shell.say("fg\n");
    shell.say("hello\n");
    shell.wait_for("got hello");
    shell.say("exit 6\n");
    assert_eq!(shell.end().status, 6);
}

#[test]
fn control_z_where_no_shell_could_bring_it_back_does_nothing() {
    let backend = TestBackend::files();
    let mut terminal = on_a_terminal(&backend, &format!("{BINARY} run k -- sh -c 'echo ready; read l; echo got $l'"));
    terminal.wait_for("ready");
    terminal.say("\x1a");
    terminal.say("hello\n");
    terminal.wait_for("got hello");
    assert_eq!(terminal.end().status, 0);
}

#[test]
fn a_job_in_the_background_that_wants_the_terminal_is_stopped_like_any_other() {
    let backend = TestBackend::files();
    let mut shell = on_a_terminal(&backend, "bash --norc --noprofile --noediting -i");
    shell.say(&format!("PS1=; stty -echo; {BINARY} run k -- sh -c 'read l; echo got $l' &\n"));
    // An interactive shell reports it before its next prompt.
    let stopped = || "sleep 0.2; jobs\n";
    crate::running::wait_until("the stop", || {
        shell.say(stopped());
        let line = shell.wait_for("fencelock");
        line.contains("Stopped").then_some(())
    });
    shell.say("fg\n");
    shell.say("hello\n");
    shell.wait_for("got hello");
    shell.say("exit 0\n");
    assert_eq!(shell.end().status, 0);
}

#[test]
fn a_waiter_on_a_terminal_sees_the_holder_and_the_line_is_cleared() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut holder = hold(&backend, "--label nightly k");
    let mut terminal = on_a_terminal(&backend, &format!("stty cols 120 rows 24; {BINARY} run k -- echo mine"));
    crate::running::wait_until("the line", || {
        Test::new(&backend, "--json status k").output().stdout.contains("\"waiters\":1").then_some(())
    });
    // A line without an end, until the wait is over.
    crate::running::wait_until("the status", || {
        let seen = std::fs::read_to_string(backend.file(TYPESCRIPT)).unwrap_or_default();
        seen.contains("1st in the queue, held by ").then_some(())
    });
    holder.say("\n");
    terminal.wait_for("mine");
    let seen = terminal.end().stdout;
    assert!(seen.contains("waiting for k for 00:0"), "{seen:?}");
    assert!(seen.contains(" (nightly) for 00:"), "{seen:?}");
    assert!(seen.ends_with("\x1b[2Kmine\r\n"), "{seen:?}");
}
