//! ^C on a terminal ends the script around the program, in bash and in dash; a signal that somebody sends with `kill` does not.

use crate::backend::TestBackend;
use crate::running::{Running, hold, send};
use crate::terminal::on_a_terminal;
use crate::test::{BINARY, Test};
use std::fs;

const SHELLS: [&str; 2] = ["bash", "dash"];

/// A script in a shell of its own, on a terminal. Its first line of output is `ready`.
fn script(backend: &TestBackend, shell: &str, lines: &str) -> Running {
    fs::write(backend.file("script"), format!("{lines}\necho NEXT $?\n")).unwrap();
    let mut terminal = on_a_terminal(backend, &format!("{shell} script"));
    terminal.wait_for("ready");
    terminal
}

/// Types `keys`, and expects the end of the script and a free key.
fn ends(backend: &TestBackend, shell: &str, lines: &str, keys: &str) {
    let mut terminal = script(backend, shell, lines);
    terminal.say(keys);
    let output = terminal.end();
    assert!(!output.stdout.contains("NEXT"), "{shell}, {lines}: {}", output.stdout);
    assert_eq!(output.status, 130, "{shell}, {lines}: {}", output.stdout);
    Test::new(backend, "-q status k").run();
}

#[test]
fn control_c_while_the_command_runs_ends_the_script_around_it() {
    let backend = TestBackend::files();
    for shell in SHELLS {
        ends(&backend, shell, &format!("{BINARY} run k -- sh -c 'echo ready; exec sleep 1000'"), "\x03");
        let rounds = format!("for i in 1 2 3; do {BINARY} run k -- sh -c 'echo ready; exec sleep 1000'; done");
        ends(&backend, shell, &rounds, "\x03");
        ends(&backend, shell, &format!("{BINARY} elect k -- sh -c 'echo ready; exec sleep 1000'"), "\x03");
    }
}

#[test]
fn control_c_ends_the_script_if_the_output_is_redirected() {
    let backend = TestBackend::files();
    for shell in SHELLS {
        let line = format!("{BINARY} run k -- sh -c 'echo ready >&2; exec sleep 1000' > out");
        ends(&backend, shell, &line, "\x03");
        let line = format!("{BINARY} run k -- sh -c 'echo ready; exec sleep 1000' | cat");
        ends(&backend, shell, &line, "\x03");
    }
}

#[test]
fn control_c_while_waiting_ends_the_script() {
    let backend = TestBackend::files();
    let holder = hold(&backend, "held");
    for shell in SHELLS {
        for line in ["run held -- echo never", "run -q held -- echo never > out", "wait held"] {
            ends(&backend, shell, &format!("(sleep 0.3; echo ready) & {BINARY} {line}"), "\x03");
        }
    }
    holder.finish();
}

#[test]
fn control_c_during_hold_for_ends_the_script() {
    let backend = TestBackend::files();
    for shell in SHELLS {
        ends(
            &backend,
            shell,
            &format!("{BINARY} run -v --hold-for 1h k -- true 2>&1 | sed -u s/holding/ready/"),
            "\x03",
        );
        // The command that ^C ended is not held for longer.
        ends(&backend, shell, &format!("{BINARY} run --hold-for 1h k -- sh -c 'echo ready; exec sleep 1000'"), "\x03");
    }
}

#[test]
fn an_interrupt_that_is_sent_with_kill_does_not_end_the_script() {
    let backend = TestBackend::files();
    for shell in SHELLS {
        for output in ["", " | cat", " > /dev/tty"] {
            let line = format!("{BINARY} run k -- sh -c 'echo $PPID; echo ready; exec sleep 1000'{output}");
            fs::write(backend.file("script"), format!("{line}\necho NEXT $?\n")).unwrap();
            let mut terminal = on_a_terminal(&backend, &format!("{shell} script"));
            let watcher = terminal.wait_for("");
            terminal.wait_for("ready");
            // The parent of the command is the watcher, and its parent is the wrapper.
            let stat = fs::read_to_string(format!("/proc/{watcher}/stat")).unwrap();
            let wrapper = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().to_owned();
            send(&wrapper, "INT");
            let next = if output == " | cat" { "NEXT 0" } else { "NEXT 130" };
            terminal.wait_for(next);
            assert_eq!(terminal.end().status, 0);
        }
    }
}

#[test]
fn a_command_that_handles_control_c_decides_what_follows() {
    let backend = TestBackend::files();
    for shell in SHELLS {
        let command = "sh -c 'trap \"exit 4\" INT; echo ready; while :; do sleep 0.02; done'";
        let mut terminal = script(&backend, shell, &format!("{BINARY} run k -- {command}"));
        terminal.say("\x03");
        terminal.wait_for("NEXT 4");
        assert_eq!(terminal.end().status, 0);
    }
}

#[test]
fn quit_leaves_no_core_that_holds_a_password() {
    let backend = TestBackend::files();
    for redirect in ["", " > /dev/tty"] {
        let command = "sh -c 'ulimit -c 0; echo ready; exec sleep 1000'";
        let line = format!("ulimit -c $(ulimit -H -c); {BINARY} run k -- {command}{redirect}\necho NEXT $?\n");
        fs::write(backend.file("script"), line).unwrap();
        // bash ignores QUIT, and reports a command that died of it.
        let mut terminal = on_a_terminal(&backend, "exec bash script");
        terminal.wait_for("ready");
        terminal.say("\x1c");
        terminal.wait_for("NEXT 131");
        let output = terminal.end().stdout;
        assert!(output.contains(" Quit ") && !output.contains("core dumped"), "{output}");
    }
}
