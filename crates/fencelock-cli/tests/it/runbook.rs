//! The steps of the runbook, on real servers.

use crate::backend::TestBackend;
use crate::running::{Running, children, is_alive, send, wait_for_waiters, wait_until};
use crate::test::{Output, Test, shell};
use fencelock_testkit::Reply;

const PAGE: &str = include_str!("../../../../contrib/runbook.md");

/// A section, without its heading.
fn section(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The arguments of the commands in the blocks of a text.
fn commands(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("fencelock "));
    lines.map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

/// Runs one of them about the key `stuck`, without a terminal.
fn run(backend: &TestBackend, line: &str) -> Output {
    let line = line.replace("KEY", "stuck");
    let once = if line.starts_with("top") { " --once" } else { "" };
    Test::new(backend, &(line + once)).output()
}

/// A command that never ends by itself.
fn hanging(backend: &TestBackend) -> Running {
    let mut holder = Test::script(backend, "-q --label nightly stuck", "echo ready; exec sleep 600").start();
    holder.wait_for("ready");
    holder
}

/// The number of a process behind `held by <host>:`.
fn pid(text: &str) -> String {
    let (_, rest) = text.split_once("held by ").unwrap();
    let (_, rest) = rest.split_once(':').unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().to_owned()
}

#[test]
fn a_stuck_lock_is_found_with_its_holder_and_its_waiter_and_freed() {
    for backend in [TestBackend::redis(), Some(TestBackend::files())].into_iter().flatten() {
        let queues = backend.redis.is_some();
        let (_quiet, holder) = (Test::script(&backend, "quiet", "sleep 600").start(), hanging(&backend));
        let mut waiter = Test::new(&backend, "-q run --label patient stuck -- echo mine").start();
        if queues {
            wait_for_waiters(&backend, "stuck", 1);
        }
        let lines = commands(section("A stuck lock"));
        assert_eq!(lines, ["top --sort waited", "status --waiters KEY"]);
        let top = run(&backend, &lines[0]);
        assert_eq!(top.status, 0, "{}", top.stderr);
        assert!(!queues || top.stdout.lines().nth(2).unwrap().starts_with("stuck "), "{}", top.stdout);
        let status = run(&backend, &lines[1]);
        assert!(status.status == 75 && status.stdout.contains("(nightly)"), "{}", status.stdout);
        let expected = if queues { "(patient), for " } else { "its process lives" };
        assert!(status.stdout.contains(expected), "{}", status.stdout);
        assert!(section("A stuck lock").contains("`kill PID`"));
        let pid = pid(&status.stdout);
        let look = section("A stuck lock").split('`').find(|code| code.starts_with("ps -o ")).unwrap();
        let stopped = || {
            let seen = shell(&backend, &look.replace("PID", &pid)).end().stdout;
            let line = seen.lines().find(|line| line.contains(" T") && line.ends_with("sleep 600"))?;
            Some(line.split_whitespace().next().unwrap().to_owned())
        };
        let [watcher] = children(pid.parse().unwrap()).try_into().unwrap();
        send(&children(watcher.parse().unwrap())[0], "STOP");
        send(&wait_until("the stopped command", stopped), "CONT");
        wait_until("the command that goes on", || stopped().is_none().then_some(()));
        assert!(is_alive(&pid), "{}", status.stdout);
        send(&pid, "TERM");
        waiter.wait_for("mine");
        assert_eq!((waiter.end().status, holder.end().status), (0, 143));
    }
}

#[test]
fn a_full_memory_is_named_and_more_memory_is_enough() {
    let Some(backend) = TestBackend::redis() else { return };
    let page = section("A full memory");
    assert!(page.contains("CONFIG SET maxmemory BYTES"));
    let holder = Test::new(&backend, "acquire --ttl 100s held").output().stdout;
    let set = |bytes: &str| {
        assert_eq!(backend.server().command(&["CONFIG", "SET", "maxmemory", bytes]), Reply::Simple("OK".into()));
    };
    set("1");
    let doctor = Test::new(&backend, "doctor --read-only").output();
    for part in ["the memory is full", "locks cannot be acquired"] {
        assert!(page.contains(part) && doctor.stdout.contains(part), "{}", doctor.stdout);
    }
    assert_eq!(doctor.status, 69);
    Test::new(&backend, "run -n stuck -- true").says(69, &["memory"]);
    // Held locks are renewed.
    Test::new(&backend, &format!("renew held --ttl 200s --holder {}", holder.trim())).ok();
    Test::new(&backend, "-q status held").status(75).run();
    let waiter = Test::new(&backend, "run stuck -- true").start();
    waiter.wait_for_error("waiting for a reply");
    set("100mb");
    assert_eq!(waiter.end().status, 0);
}
