//! What surrounds the program: the reader of its output, the container that it is the first process of, `/proc` and `/dev`.

use crate::backend::TestBackend;
use crate::running::{Running, hold, wait_until};
use crate::terminal::on_a_terminal;
use crate::test::{BINARY, Test};
use std::fs;
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A full pipe. The reader is kept open, and reads nothing.
fn full_pipe() -> (impl Sized, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // A pipe has room for 65,536 bytes (pipe(7)). The last write waits, until `timeout` ends it.
    let mut dd = Command::new("timeout");
    dd.args(["-s", "KILL", "1", "dd", "if=/dev/zero", "bs=4096", "count=4096"]).stdout(writer.try_clone().unwrap());
    assert!(!dd.status().unwrap().success(), "a pipe of more than 16 MB");
    (reader, writer)
}

/// A shell in namespaces of its own; `None`, after a message, where the system does not permit that.
pub(crate) fn in_namespaces(backend: &TestBackend, options: &[&str], script: &str) -> Option<Running> {
    let namespaces = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]).args(options).args(["sh", "-c", script]);
        command.current_dir(backend.dir()).env("FENCELOCK_URL", backend.url()).env("XDG_CONFIG_HOME", backend.dir());
        command
    };
    if !namespaces("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare {options:?} is not permitted here");
        return None;
    }
    Some(Running::start(namespaces(script), ""))
}

#[test]
fn a_reader_of_stderr_that_has_stopped_does_not_keep_the_lock() {
    let backend = TestBackend::files();
    let (_pipe, writer) = full_pipe();
    let (_socket, full_socket) = UnixStream::pair().unwrap();
    full_socket.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &full_socket, &[0; 4096]).is_ok() {}
    full_socket.set_nonblocking(false).unwrap();
    for full in [OwnedFd::from(writer), OwnedFd::from(full_socket)] {
        let mut run = Test::new(&backend, "-vv run k -- true").command();
        let mut run = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).spawn().unwrap();
        assert!(wait_until("the end of run", || run.try_wait().unwrap()).success());
        Test::new(&backend, "-q status k").run();
    }
}

#[test]
fn a_terminal_that_is_stopped_does_not_keep_the_lock() {
    let backend = TestBackend::files();
    let script = "echo ready; while ! test -e go; do sleep 0.02; done";
    let line = format!("{BINARY} -vv run k -- sh -c '{script}'; touch ended");
    let mut terminal = on_a_terminal(&backend, &line);
    terminal.wait_for("ready");
    terminal.say("\x13"); // ^S
    // The terminal has stopped when it shows nothing that is typed.
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(backend.file("go"), "").unwrap();
    wait_until("the end of run", || backend.file("ended").exists().then_some(()));
    terminal.say("\x11");
    assert_eq!(terminal.end().status, 0);
}

#[test]
fn the_flags_of_stderr_are_left_as_they_are() {
    let backend = TestBackend::files();
    let script = "grep flags /proc/self/fdinfo/2";
    let output = Test::script(&backend, "k -v", script).output();
    let flags = output.stdout.split_whitespace().nth(1).expect("flags");
    assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 0o4000, 0, "O_NONBLOCK is set: {}", output.stdout);
}

#[test]
fn the_first_process_of_a_container_reaps_orphans_while_it_holds_the_lock() {
    let backend = TestBackend::files();
    // The shell becomes fencelock, process 1. An orphan ends after the command.
    let script = format!("exec {BINARY} -v run --hold-for 1h k -- sh -c '(sleep 0.5; echo end) & echo begun'");
    let Some(mut container) = in_namespaces(&backend, &["--pid", "--fork", "--kill-child"], &script) else { return };
    container.wait_for("end");
    container.wait_for_error("holding the lock");
    let pid_1 = wait_until("process 1", || crate::running::children(container.pid()).pop());
    wait_until("no zombie", || crate::running::children(pid_1.parse().unwrap()).is_empty().then_some(()));
    container.kill("KILL");
    let _ = container.status();
}

#[test]
fn without_proc_a_command_is_killed_and_what_is_not_seen_is_said_once() {
    let Some(backend) = TestBackend::redis() else { return };
    let script = format!(
        "mount -t tmpfs none /proc && exec {BINARY} run --max-hold 300ms --grace 200ms k -- \
         sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'"
    );
    let Some(run) = in_namespaces(&backend, &["--mount"], &script) else { return };
    let output = run.end();
    assert_eq!(output.status, 76, "{}", output.stderr);
    assert_eq!(
        output.stderr.matches("without /proc, the processes that the command starts are not seen").count(),
        1,
        "{}",
        output.stderr
    );
}

#[test]
fn a_command_runs_without_dev_null() {
    let backend = TestBackend::files();
    let script = format!("mount -t tmpfs none /dev && exec {BINARY} run k -- echo works");
    let Some(run) = in_namespaces(&backend, &["--mount"], &script) else { return };
    let output = run.end();
    assert_eq!((output.stdout.as_str(), output.status), ("works\n", 0), "{}", output.stderr);
}

#[test]
fn a_script_that_cannot_be_loaded_is_not_reported_as_not_found() {
    let backend = TestBackend::files();
    for (name, content, why) in [
        (
            "crlf",
            "#!/bin/sh\r\necho hi\r\n",
            "its first line ends with a carriage return, so the system looks for the interpreter /bin/sh\\r: save the file with Unix line ends",
        ),
        ("moved", "#! /usr/bin/pyton3 -u\n", "the file exists, but not its interpreter /usr/bin/pyton3"),
    ] {
        fs::write(backend.file(name), content).unwrap();
        fs::set_permissions(backend.file(name), fs::Permissions::from_mode(0o755)).unwrap();
        let stderr = format!("fencelock: cannot run ./{name}: {why}\n");
        Test::new(&backend, &format!("run k -- ./{name}")).status(127).stderr(&stderr).run();
        let path = format!("{}:/bin:/usr/bin", backend.dir().display());
        let stderr = format!("fencelock: cannot run {name}: {why}\n");
        Test::new(&backend, &format!("run k -- {name}")).env("PATH", &path).status(127).stderr(&stderr).run();
    }
}

#[test]
fn a_background_job_draws_no_progress() {
    let backend = TestBackend::files();
    let mut holder = hold(&backend, "k");
    let mut shell = on_a_terminal(&backend, "bash --norc --noprofile --noediting -i");
    shell.say(&format!("PS1=; stty -echo; {BINARY} run k -- true & sleep 1; echo shown; wait\n"));
    shell.wait_for("shown\r");
    holder.say("\n");
    shell.say("exit 0\n");
    let output = shell.end();
    assert!(output.stdout.contains("fencelock: waiting for k, held by"), "{:?}", output.stdout);
    assert!(!output.stdout.contains("\x1b[2K"), "{:?}", output.stdout);
}
