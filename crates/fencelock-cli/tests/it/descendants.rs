//! All processes that a command has started end with it, in any session and process group.

use crate::backend::TestBackend;
use crate::running::{Running, children, is_alive, send, wait_until};
use crate::test::{BINARY, Test};
use fencelock_testkit::Reply;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Starts processes that have left the command's group: in a session of their own, in a group of their own, as the child
/// of a process that has ended, and as one that ignores TERM, whose name is not UTF-8. Then it waits.
const SCATTER: &str = "setsid sleep 1000 & timeout 900 sleep 1000 & \
    setsid sh -c 'setsid sleep 1000 & touch orphan; exit' & \
    setsid sh -c 'trap \"\" TERM; printf \"\\377\" > /proc/$$/comm; touch deaf; while :; do sleep 0.05; done' & \
    until [ -e deaf ] && [ -e orphan ]; do sleep 0.02; done; \
    echo ready; while :; do sleep 1000; done";

/// A key that no other test has, for it marks what was started under it.
fn key(backend: &TestBackend) -> String {
    backend.dir().file_name().unwrap().to_str().unwrap().to_owned()
}

/// The processes that were started under the lock on this key, and live; the watcher is one.
fn started_under(key: &str) -> Vec<String> {
    let mark = format!("FENCELOCK_KEY={key}");
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let marked = |pid: &String| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|line| line == mark.as_bytes())
    };
    names.filter(|name| name.parse::<u32>().is_ok()).filter(marked).filter(|pid| is_alive(pid)).collect()
}

fn no_process_is_left(key: &str) {
    wait_until("the end of all", || started_under(key).is_empty().then_some(()));
}

/// A command that has scattered what it started.
fn scattered(backend: &TestBackend, options: &str) -> Running {
    let key = key(backend);
    let mut wrapper = Test::script(backend, &format!("{options} {key}"), SCATTER).start();
    wrapper.wait_for("ready");
    wait_until("all of them", || (started_under(&key).len() >= 8).then_some(()));
    wrapper
}

fn watcher(wrapper: &Running) -> String {
    let [watcher] = children(wrapper.pid()).try_into().expect("one child, the watcher");
    watcher
}

#[test]
fn a_lost_lock_ends_all_that_the_command_has_started() {
    let Some(backend) = TestBackend::redis() else { return };
    let key = key(&backend);
    let mut stderr = String::new();
    for _ in 0..5 {
        let mut wrapper = scattered(&backend, "--ttl 3s --grace 0.3");
        assert_eq!(backend.server().command(&["DEL", &key]), Reply::Int(1));
        assert_eq!(wrapper.status(), 76);
        assert_eq!(started_under(&key), [""; 0], "no process outlives the wrapper");
        stderr = wrapper.end().stderr;
        if stderr.contains("the command or its descendants did not exit in time; killing them") {
            return;
        }
        // On a busy machine the watcher was the first.
    }
    panic!("one ignores TERM: {stderr}");
}

#[test]
fn kill_9_of_the_wrapper_ends_all_that_the_command_has_started() {
    let backend = TestBackend::files();
    for options in ["", "--on-lost warn"] {
        let wrapper = scattered(&backend, options);
        wrapper.kill("KILL");
        no_process_is_left(&key(&backend));
    }
}

#[test]
fn kill_9_of_the_watcher_ends_all_that_the_command_has_started() {
    let backend = TestBackend::files();
    let mut wrapper = scattered(&backend, "");
    send(&watcher(&wrapper), "KILL");
    assert_eq!(wrapper.status(), 137);
    assert_eq!(started_under(&key(&backend)), [""; 0]);
    let stderr = wrapper.end().stderr;
    assert!(stderr.contains("the parent-death watcher of the command was killed; killing the command"), "{stderr}");
}

#[test]
fn term_ends_all_that_the_command_has_started() {
    let backend = TestBackend::files();
    let mut wrapper = scattered(&backend, "--grace 0.3");
    wrapper.kill("TERM");
    assert_eq!(wrapper.status(), 143);
    assert_eq!(started_under(&key(&backend)), [""; 0]);
}

#[test]
fn a_second_term_does_not_wait_for_what_was_left_behind() {
    let backend = TestBackend::files();
    let mut wrapper = scattered(&backend, "--grace 10m --ttl 1h");
    wrapper.kill("TERM");
    // The lock is held as long as something of the command is alive, here the one that ignores TERM.
    wait_until("the end of the others", || (started_under(&key(&backend)).len() <= 3).then_some(()));
    Test::new(&backend, &format!("-q status {}", key(&backend))).status(75).run();
    // Within a second of the first, it is the same request.
    wait_until("the end", || {
        wrapper.kill("TERM");
        std::thread::sleep(std::time::Duration::from_millis(100));
        wrapper.has_ended().then_some(())
    });
    assert_eq!(wrapper.status(), 143);
    assert_eq!(started_under(&key(&backend)), [""; 0]);
}

#[test]
fn a_process_with_a_pending_signal_gets_term_once() {
    let backend = TestBackend::files();
    // In a separate process group, as the command of a wrapper is. The command sends it TERM, and it exits slowly.
    let child = "trap 'echo term; sleep 0.3; exit' TERM; echo ready; while :; do sleep 0.02; done";
    let script =
        format!("setsid sh -c \"{child}\" & child=$!; trap 'kill $child; wait $child' TERM; wait $child; wait $child");
    let mut wrapper = Test::script(&backend, "k", &script).start();
    wrapper.wait_for("ready");
    wrapper.kill("TERM");
    let output = wrapper.end();
    assert_eq!(output.stdout, "ready\nterm\n", "{}", output.stderr);
}

#[test]
fn three_nested_wrappers_end_cleanly() {
    let backend = TestBackend::files();
    let inner = "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let line = format!("run a -- {BINARY} run b -- {BINARY} run c -- sh -c");
    let mut wrapper = Test::new(&backend, &line).arg(inner).start();
    wrapper.wait_for("ready");
    wrapper.kill("TERM");
    let output = wrapper.end();
    assert_eq!((output.stdout.as_str(), output.status), ("ready\ncleaned\n", 3), "{}", output.stderr);
}

#[test]
fn a_watcher_that_is_stopped_does_not_prevent_the_end() {
    let backend = TestBackend::files();
    let mut wrapper = scattered(&backend, "--grace 10m --ttl 1h");
    send(&watcher(&wrapper), "STOP");
    wrapper.kill("TERM");
    wrapper.kill("INT");
    assert!(wrapper.status() > 128);
    assert_eq!(started_under(&key(&backend)), [""; 0]);
}

#[test]
fn a_tree_that_grows_while_it_is_felled_is_felled() {
    let backend = TestBackend::files();
    let key = key(&backend);
    let script = "setsid sh -c 'i=0; while [ $i -lt 400 ]; do setsid sleep 1000 & i=$((i+1)); done; sleep 1000' & \
        echo ready; sleep 1000";
    let mut wrapper = Test::script(&backend, &key, script).start();
    wrapper.wait_for("ready");
    wait_until("some of them", || (started_under(&key).len() > 20).then_some(()));
    wrapper.kill("KILL");
    no_process_is_left(&key);
}

#[test]
fn one_that_flees_from_process_to_process_is_caught() {
    let backend = TestBackend::files();
    let key = key(&backend);
    fs::write(backend.file("flee"), "echo $1 > hop; [ $1 -lt 20000 ] && setsid sh ./flee $(($1+1)) &\n").unwrap();
    let mut wrapper = Test::script(&backend, &key, "setsid sh ./flee 1 & echo ready; sleep 1000").start();
    wrapper.wait_for("ready");
    let hop = || fs::read_to_string(backend.file("hop")).unwrap_or_default().trim().parse().unwrap_or(0);
    wait_until("some hops", || (hop() > 20).then_some(()));
    wrapper.kill("KILL");
    no_process_is_left(&key);
    // The search may come between two hops, and a hop takes a few milliseconds.
    let last = hop();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(hop(), last, "it flees on");
    assert!(last < 20000, "it ended by itself");
}

#[test]
fn what_is_left_at_an_end_of_its_own_is_left_alone() {
    let backend = TestBackend::files();
    let key = key(&backend);
    let mut wrapper = Test::script(&backend, &key, "setsid sleep 1000 & echo $!").start();
    let left = wrapper.wait_for("");
    assert_eq!(wrapper.status(), 0, "the wrapper ends with its command");
    assert!(is_alive(&left));
    Test::new(&backend, &format!("run -n {key} -- true")).run();
    send(&left, "KILL");
}

#[test]
fn signals_that_end_a_whole_unit_leave_the_watcher_running() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "echo ready; read _; exit 5").start();
    wrapper.wait_for("ready");
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "PIPE", "TSTP", "TTOU"] {
        send(&watcher(&wrapper), signal);
    }
    wrapper.say("\n");
    assert_eq!(wrapper.end().status, 5);
}

/// A user who may not send signals to root, in whose name something of the command runs.
const NOBODY: u32 = 65534;

/// Copies a program. A process of its own writes the copy: a child that another test starts meanwhile would inherit an
/// open file of this process, and the kernel does not execute a program that somebody has open for writing.
fn install(mode: &str, program: &str, copy: &Path) {
    let status = Command::new("install").args(["-m", mode, program]).arg(copy).status().unwrap();
    assert!(status.success(), "install: {status}");
}

/// A wrapper that runs as [`NOBODY`] with a command that starts `script` as root, which takes a program that changes to
/// root when it starts. `None`, after a message on stderr, if this test does not run as root.
fn with_a_part_of_root(backend: &TestBackend, options: &str, script: &str) -> Option<Running> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can prepare a program that changes its user");
        return None;
    }
    let become_root = backend.file("become-root");
    let setpriv = Command::new("sh").args(["-c", "command -v setpriv"]).output().unwrap().stdout;
    install("4755", String::from_utf8(setpriv).unwrap().trim(), &become_root);
    // The directory of the program may be unreadable for other users.
    install("755", BINARY, &backend.file("fencelock"));
    fs::set_permissions(backend.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(backend.dir(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut wrapper = Command::new("setpriv");
    wrapper.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "./fencelock", "run"]);
    wrapper.args(options.split_whitespace()).args(["k", "--", "sh", "-c"]);
    wrapper.arg(script.replace("AS_ROOT", "./become-root --reuid 0 --regid 0 --clear-groups"));
    wrapper.current_dir(backend.dir()).env("FENCELOCK_URL", backend.url()).env("XDG_CONFIG_HOME", backend.dir());
    Some(Running::start(wrapper, ""))
}

#[test]
fn a_command_of_another_user_is_never_said_to_be_killed() {
    let Some(backend) = TestBackend::redis() else { return };
    let script = "exec AS_ROOT sh -c 'echo $$; until [ -e done ]; do sleep 0.02; done'";
    let Some(mut wrapper) = with_a_part_of_root(&backend, "--ttl 3s --grace 0.3", script) else { return };
    let command = wrapper.wait_for("");
    backend.server().command(&["DEL", "k"]);
    wrapper.wait_for_error("did not exit in time");
    assert!(is_alive(&command), "a user killed a process of root");
    fs::write(backend.file("done"), "").unwrap();
    let output = wrapper.end();
    assert_eq!(output.status, 76, "{}", output.stderr);
    let refused = format!(
        "fencelock: k: process {command} runs as user 0 and cannot be signalled: it is still running, and may \
         overlap the next holder\n"
    );
    assert!(output.stderr.contains(&refused), "{}", output.stderr);
    assert!(
        output.stderr.contains("k: the command or its descendants did not exit in time and cannot be killed\n"),
        "{}",
        output.stderr
    );
    assert!(!output.stderr.contains("killing"), "{}", output.stderr);
}

#[test]
fn what_another_user_has_left_is_reported_and_not_waited_for() {
    let backend = TestBackend::files();
    let script = "AS_ROOT sh -c 'echo $$; exec sleep 1000' & setsid sleep 1000 & wait";
    let Some(mut wrapper) = with_a_part_of_root(&backend, "--grace 0.3", script) else { return };
    let left = wrapper.wait_for("");
    wrapper.kill("TERM");
    assert_eq!(wrapper.status(), 76);
    assert!(is_alive(&left));
    send(&left, "KILL");
    let stderr = wrapper.end().stderr;
    assert!(stderr.contains(&format!("k: process {left} runs as user 0 and cannot be signalled")), "{stderr}");
    assert_eq!(stderr.matches("cannot be signalled").count(), 1, "{stderr}");
}

#[test]
fn a_lock_in_a_file_stays_until_what_another_user_has_left_has_ended() {
    let backend = TestBackend::files();
    let script = "AS_ROOT sh -c 'echo $$; exec sleep 1000' & wait";
    let Some(mut wrapper) = with_a_part_of_root(&backend, "", script) else { return };
    let left = wrapper.wait_for("");
    wrapper.kill("KILL");
    wrapper.status();
    // Longer than the watcher tries to kill it.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let status = || Test::new(&backend, "-q status k").output().status;
    assert_eq!((is_alive(&left), status()), (true, 75));
    send(&left, "KILL");
    wait_until("the end of the lock", || (status() == 0).then_some(()));
}
