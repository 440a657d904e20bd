//! `acquire --while-pid`: a lock that lives as long as a process.

use crate::backend::TestBackend;
use crate::running::{copy_program, is_alive, send, wait_until};
use crate::test::{BINARY, Output, Test, shell};
use fencelock_testkit::Reply;
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// A process for which locks are kept. It is killed and waited for when this value is dropped.
pub(crate) struct Session(Child);

impl Session {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn acquire<'a>(&self, backend: &'a TestBackend, options: &str) -> Test<'a> {
        Test::new(backend, &format!("acquire {options} --while-pid {}", self.pid()))
    }

    pub(crate) fn holders(&self, backend: &TestBackend, options: &str) -> Vec<String> {
        let output = self.acquire(backend, options).output();
        assert_eq!(output.status, 0, "{options}: {}", output.stderr);
        output.stdout.lines().map(str::to_owned).collect()
    }

    pub(crate) fn holder(&self, backend: &TestBackend, options: &str) -> String {
        let [holder] = self.holders(backend, options).try_into().unwrap();
        holder
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Both fail only if it is dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn status(backend: &TestBackend, key: &str) -> Output {
    Test::new(backend, &format!("--json status {key}")).output()
}

pub(crate) fn is_free(backend: &TestBackend, key: &str) -> bool {
    status(backend, key).status == 0
}

pub(crate) fn wait_until_free(backend: &TestBackend, key: &str) {
    wait_until(&format!("the end of {key}"), || is_free(backend, key).then_some(()));
}

/// A keeper that is stopped until its lease has ended, and another holder of its lock.
fn stop_beyond_the_lease(backend: &TestBackend, session: &Session) -> (String, String) {
    let holder = session.holder(backend, "--ttl 2s k");
    let keeper = keeper(backend, "k");
    send(&keeper, "STOP");
    let silent = format!("the process that keeps this lock ({keeper}) does not answer");
    Test::new(backend, &format!("release k --holder {holder}")).says(69, &[&silent]);
    wait_until_free(backend, "k");
    (holder, keeper)
}

#[test]
fn a_lease_that_has_ended_is_not_held() {
    let Some(backend) = TestBackend::redis() else { return };
    let (session, mut other) = (Session::start(), Session::start());
    let (holder, first) = stop_beyond_the_lease(&backend, &session);
    let next = other.holder(&backend, "k");
    let second = keeper(&backend, "k");
    send(&first, "CONT");
    let output = session.acquire(&backend, "-n k").output();
    let now = Test::new(&backend, "status k").output().stdout;
    let alive = (is_alive(&first), is_alive(&second), !other.has_ended());
    let said = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.status, 75, "{holder} by {first}, {next} by {second}, then {said}{now}alive: {alive:?}");
}

/// The process that keeps a lock.
pub(crate) fn keeper(backend: &TestBackend, key: &str) -> String {
    let state: Value = serde_json::from_str(&status(backend, key).stdout).unwrap();
    state["owner"]["pid"].to_string()
}

/// The names in the lock directory of files.
fn names(backend: &TestBackend) -> Vec<String> {
    let entries = fs::read_dir(backend.file("locks")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_lock_lives_as_long_as_its_process() {
    for backend in TestBackend::every_kind() {
        let session = Session::start();
        let holder = session.holder(&backend, "--ttl 2s k --label build");
        assert_eq!(holder.len(), 32, "{holder}");
        let keeper = keeper(&backend, "k");
        let label = format!("while {} sleep: build", session.pid());
        let state: Value = serde_json::from_str(&status(&backend, "k").stdout).unwrap();
        assert_eq!((&state["held"], state["owner"]["label"].as_str()), (&Value::Bool(true), Some(&*label)), "{state}");
        Test::new(&backend, "run -w 3s k -- true").says(75, &[&label]);
        drop(session);
        wait_until_free(&backend, "k");
        wait_until("the end of the keeper", || (!is_alive(&keeper)).then_some(()));
        if backend.url().starts_with("file:") {
            assert_eq!(names(&backend), ["k.lock"]);
        }
    }
}

#[test]
fn every_mode_of_run_can_be_kept() {
    for backend in TestBackend::with_semaphores() {
        let (one, two) = (Session::start(), Session::start());
        for session in [&one, &two] {
            session.acquire(&backend, "-n -q s -s").stdout("*\n").run();
            session.acquire(&backend, "-n -q p --permits 2").stdout("*\n").run();
        }
        let mut slots = [&one, &two].map(|session| session.holder(&backend, "-n m --slots 2").split_off(32));
        slots.sort();
        assert_eq!(slots, [" 0", " 1"]);
        for options in ["s", "p --permits 2", "m --slots 2"] {
            let third = Session::start();
            assert_eq!(third.acquire(&backend, &format!("-n {options}")).output().status, 75, "{options}");
        }
        let several = one.holders(&backend, "-n b --also a");
        assert_eq!(several.len(), 2);
        for (key, holder) in ["b", "a"].iter().zip(&several) {
            Test::new(&backend, &format!("renew {key} --holder {holder}"))
                .stdout(&format!("{key}: held until process {} (sleep) ends, without renewals\n", one.pid()))
                .run();
        }
        Test::new(&backend, &format!("release a --holder {}", several[1])).stdout("a: released\n").run();
        assert!(is_free(&backend, "b"), "the release of one releases all");
        drop((one, two));
        for key in ["s", "p", "m#0", "m#1"] {
            wait_until_free(&backend, key);
        }
    }
}

#[test]
fn a_process_that_cannot_be_watched_is_refused_with_the_reason() {
    let backend = TestBackend::files();
    let refused = |pid: &str, why: &str| {
        Test::new(&backend, &format!("acquire k --while-pid {pid}"))
            .stderr(&format!("fencelock: --while-pid {pid}: {why}\n"))
            .status(64)
            .run();
        assert!(is_free(&backend, "k"));
    };
    let mut session = Session::start();
    let pid = session.pid();
    session.0.kill().unwrap();
    wait_until("the end of the process", || (!is_alive(&pid)).then_some(()));
    refused(&pid, "this process has ended");
    session.0.wait().unwrap();
    refused(&pid, "there is no process with this number, or it has ended");
    let thread = std::thread::spawn(std::thread::park);
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().file_name().into_string().unwrap());
    let other = tasks.into_iter().find(|task| *task != std::process::id().to_string()).unwrap();
    refused(&other, "this is a thread; name its process");
    thread.thread().unpark();
    thread.join().unwrap();
    let itself = format!("exec {BINARY} acquire k --while-pid $$");
    let output = shell(&backend, &itself).end();
    assert_eq!(output.status, 64);
    assert!(
        output.stderr.contains("this is fencelock itself; name the process that needs the lock"),
        "{}",
        output.stderr
    );
}

/// A copy of the program in a directory that others may use: it may lie below one that only root may enter.
pub(crate) struct OpenDirectory(pub(crate) tempfile::TempDir);

impl OpenDirectory {
    /// `None` unless this is root, who can become another user.
    pub(crate) fn for_others(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED {test}: only root can become another user");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        copy_program(&directory.path().join("fencelock"));
        Some(Self(directory))
    }

    /// The exit code, stdout and stderr of a shell of this user, in which `./fencelock` is the program. `under` precedes the shell.
    pub(crate) fn shell(&self, user: u32, under: &str, script: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        command.args(under.split_whitespace()).args(["sh", "-c", script]).current_dir(&self.0);
        command.env("FENCELOCK_URL", format!("file:{}/locks", self.0.path().display()));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn the_process_of_another_user_is_refused() {
    let Some(directory) = OpenDirectory::for_others("the_process_of_another_user_is_refused") else { return };
    let script = format!("exec ./fencelock acquire k --while-pid {}", std::process::id());
    let (code, _, stderr) = directory.shell(65534, "", &script);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("this process belongs to another user (0)"), "{stderr}");
}

/// Whether this user may choose the number of the next process of a namespace.
pub(crate) fn has_namespaces(test: &str) -> bool {
    let namespace = ["--pid", "--fork", "--mount-proc"];
    let may =
        Command::new("unshare").args(namespace).args(["sh", "-c", "echo 9 > /proc/sys/kernel/ns_last_pid"]).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        println!("SKIPPED {test}: no namespace of process numbers can be created");
    }
    may
}

#[test]
fn a_first_process_that_waits_for_nobody_has_at_most_one_dead_keeper() {
    let test = "a_first_process_that_waits_for_nobody_has_at_most_one_dead_keeper";
    if !has_namespaces(test) {
        return;
    }
    let backend = TestBackend::files();
    let script = format!(
        "f={BINARY}; (for n in 1 2 3 4 5 6; do h=$($f acquire k --while-pid 1); $f release k --holder $h > /dev/null; sleep 0.3; done; \
         cat /proc/[0-9]*/stat | grep -c \"(fencelock) Z\" > counted; mv counted dead) & exec sleep 1000"
    );
    let _first = shell(&backend, &format!("exec unshare --pid --fork --kill-child --mount-proc sh -c '{script}'"));
    let dead = wait_until("the count", || fs::read_to_string(backend.file("dead")).ok());
    assert!(["0\n", "1\n"].contains(&&*dead), "{dead}");
}

#[test]
fn what_a_process_leaves_in_its_group_ends_before_its_lock() {
    let backend = TestBackend::files();
    let session = Session::start();
    let refused = session.acquire(&backend, "--end-group k");
    refused.says(64, &["leads no process group and no session"]);
    let left = "trap 'echo term >> left' TERM; while :; do sleep 0.02; [ -e free ] && echo written >> left; done";
    fs::write(backend.file("left.sh"), left).unwrap();
    let script = format!("{BINARY} acquire -q --ttl 3s --end-group k --while-pid $$; sh left.sh & echo ready; wait");
    let mut session = shell(&backend, &script);
    session.wait_for("ready");
    session.kill("KILL");
    session.status();
    Test::new(&backend, "run k -- touch free").ok();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::read_to_string(backend.file("left")).unwrap(), "term\n");
}

#[test]
fn a_group_that_began_outside_the_namespace_is_none() {
    if !has_namespaces("a_group_that_began_outside_the_namespace_is_none") {
        return;
    }
    let backend = TestBackend::files();
    let script = format!("{BINARY} acquire --end-group k --while-pid $$; echo $?; {BINARY} run k -- echo held");
    let output = shell(&backend, &format!("exec unshare --pid --fork --mount-proc sh -c '{script}'")).end();
    assert_eq!(output.stdout, "64\nheld\n", "{}", output.stderr);
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    if !has_namespaces("a_number_that_is_used_again_is_another_process") {
        return;
    }
    let keeper = "$f --json status k | tr -c [:alnum:] \"\\n\" | grep -A 2 -m 1 -x pid | tail -n 1";
    let script = format!(
        "f={BINARY}; sleep 1000 & first=$!; h=$($f acquire k --while-pid $first); keeper=$({keeper}); kill -STOP $keeper; \
         kill -9 $first; wait $first; echo $((first - 1)) > /proc/sys/kernel/ns_last_pid; sleep 1000 & second=$!; \
         [ $first = $second ] || exit 9; kill -CONT $keeper; next=$($f acquire k -w 60s --while-pid $second); \
         [ ${{#next}} = 32 ] && [ $h != $next ] || exit 8; $f release k --holder $next; $f status k"
    );
    for backend in TestBackend::every_kind() {
        let script = format!("exec unshare --pid --fork --mount-proc sh -c '{script}'");
        let output = shell(&backend, &script).end();
        assert_eq!((output.status, &*output.stdout), (0, "k: released\nk: free\n"), "{}", output.stderr);
    }
}

#[test]
fn the_same_number_in_another_namespace_is_another_process() {
    if !has_namespaces("the_same_number_in_another_namespace_is_another_process") {
        return;
    }
    for backend in TestBackend::every_kind() {
        let container = |then: &str| {
            let script = format!("sleep 1000 & {BINARY} acquire -n k --while-pid $!; echo $! $?; {then}");
            shell(&backend, &format!("exec unshare --pid --fork --mount-proc sh -c '{script}'"))
        };
        let mut first = container("read _");
        first.wait_for("2 0");
        let output = container("").end();
        assert_eq!(output.stdout, "2 75\n", "{}", output.stderr);
        first.say("\n");
        first.end();
    }
}

#[test]
fn a_command_does_not_wait_for_the_lock_of_its_session() {
    for backend in TestBackend::every_kind() {
        let waits = [
            "run k -- true",
            "run -s k -- true",
            "acquire k --while-pid $child",
            "wait k",
            "wait s",
            "run --slots 1 s -- true",
            "acquire k",
        ];
        // Locks in files are not for the last one.
        let many = if backend.url().starts_with("file:") { 6 } else { 7 };
        for waits in &waits[..many] {
            let script = format!(
                "f={BINARY}; $f acquire k --while-pid $$ > /dev/null; $f acquire --slots 1 s --while-pid $$ > /dev/null; sleep 1000 & child=$!; \
                 $f {waits}; e=$?; kill $child; exit $e"
            );
            let output = shell(&backend, &script).end();
            assert_eq!(output.status, 64, "{waits}: {}", output.stderr);
            let why = ", which this program runs under, until that process ends: waiting would deadlock";
            assert!(output.stderr.contains(why), "{waits}: {}", output.stderr);
        }
        let script = format!("f={BINARY}; $f acquire -s k --while-pid $$ > /dev/null; $f run -w 60s -s k -- true");
        assert_eq!(shell(&backend, &script).end().status, 0);
        let script = format!("f={BINARY}; $f acquire k --while-pid $$ > /dev/null; $f run -w 2s --nested-ok k -- true");
        assert_eq!(shell(&backend, &script).end().status, 75);
    }
}

#[test]
fn a_command_does_not_wait_for_the_permits_of_its_session() {
    for backend in TestBackend::with_semaphores() {
        // Each request alone fits.
        for (permits, status) in [(4, 0), (3, 64)] {
            let mode = format!("--permits {permits} of{permits}");
            let script = format!(
                "f={BINARY}; $f acquire --weight 2 {mode} --while-pid $$ > /dev/null; $f acquire {mode} --while-pid $$ > /dev/null; \
                 $f run -w 60s {mode} -- true"
            );
            let output = shell(&backend, &script).end();
            assert_eq!(output.status, status, "{permits}: {}", output.stderr);
            assert_eq!(output.stderr.contains("waiting would deadlock"), status == 64, "{}", output.stderr);
        }
    }
}

#[test]
fn a_full_process_table_is_named() {
    let Some(directory) = OpenDirectory::for_others("a_full_process_table_is_named") else { return };
    for (job, failure) in [
        ("acquire k --while-pid $$", "cannot start the process that keeps the lock"),
        ("run k -- true", "cannot run true"),
    ] {
        // No other test uses this number. The shell and one more process: none is left.
        let script = format!("./fencelock {job}; echo $?");
        let (_, stdout, stderr) = directory.shell(64321, "prlimit --nproc=2", &script);
        assert_eq!(stdout, "71\n", "{stderr}");
        let why = format!("fencelock: {failure}: no more processes may be started, see `ulimit -u`: ");
        assert!(stderr.starts_with(&why), "{stderr}");
    }
}

#[test]
fn nobody_gets_the_lock_of_a_process_that_ends_while_it_waits() {
    for backend in TestBackend::every_kind() {
        let (first, second) = (Session::start(), Session::start());
        first.holder(&backend, "k");
        let waiting = second.acquire(&backend, "k").start();
        waiting.wait_for_error("waiting for k");
        let pid = second.pid();
        drop(second);
        let output = waiting.end();
        assert_eq!(output.status, 64, "{}", output.stderr);
        let why = format!("fencelock: process {pid} (sleep) has ended, so the lock was not acquired for it\n");
        assert!(output.stderr.ends_with(&why), "{}", output.stderr);
        drop(first);
        wait_until_free(&backend, "k");
    }
}

#[test]
fn an_interrupted_wait_leaves_nothing_behind() {
    for backend in TestBackend::every_kind() {
        let (first, second) = (Session::start(), Session::start());
        first.holder(&backend, "k");
        for signal in ["TERM", "INT", "KILL"] {
            let mut waiting = second.acquire(&backend, "k").start();
            waiting.wait_for_error("waiting for k");
            let pid = waiting.pid().to_string();
            waiting.kill(signal);
            waiting.status();
            wait_until("the end of the keeper", || keepers_of(&pid).is_empty().then_some(()));
        }
        drop(first);
        wait_until_free(&backend, "k");
        Test::new(&backend, "-q run -n k -- true").run();
    }
}

/// The keepers that a process has started.
pub(crate) fn keepers_of(parent: &str) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_one = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1).map(str::to_owned));
        arguments == b"fencelock\0--keep-lock\0" && parent_of.as_deref() == Some(parent) && is_alive(pid)
    };
    pids.filter(is_one).collect()
}

#[test]
fn only_the_holder_releases() {
    for backend in TestBackend::every_kind() {
        let session = Session::start();
        let holder = session.holder(&backend, "k");
        let wrong = format!("{}{}", &holder[..16], "0".repeat(16));
        Test::new(&backend, &format!("release k --holder {wrong}")).says(76, &[]);
        Test::new(&backend, &format!("release j --holder {holder}")).says(76, &[]);
        assert!(!is_free(&backend, "k"));
        Test::new(&backend, &format!("release k --holder {holder}")).stdout("k: released\n").run();
        assert!(is_free(&backend, "k"));
        Test::new(&backend, &format!("release k --holder {holder}")).says(76, &[]);
        // Its process does not keep it from being acquired again.
        session.holder(&backend, "k");
    }
}

#[test]
fn a_broken_lock_warns_or_terminates() {
    for backend in TestBackend::every_kind() {
        let mut session = Session::start();
        session.holder(&backend, "--label job k");
        Test::new(&backend, "break k").says(64, &["add --yes to break this lock"]);
        Test::new(&backend, "break --yes k").stdout("k: broke the lock held by * (while * sleep: job) for *\n").run();
        let shown = wait_until("the warning", || {
            let shown = Test::new(&backend, "status k").output().stdout;
            shown.contains("still runs").then_some(shown)
        });
        let wanted = format!(
            "k: free\n  process {} (sleep, job) lost it and still runs: it was broken by process ",
            session.pid()
        );
        assert!(shown.starts_with(&wanted), "{shown}");
        assert!(!session.has_ended());
        session.holder(&backend, "k --on-lost term");
        Test::new(&backend, "-q break --yes k").run();
        wait_until("TERM", || session.has_ended().then_some(()));
        wait_until("the end of the warnings", || (status(&backend, "k").stdout.contains("\"lost\":[]")).then_some(()));
    }
}

#[test]
fn a_lost_lease_terminates_the_process_before_it_ends() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut session = Session::start();
    session.holder(&backend, "--ttl 3s k --on-lost term");
    backend.server().freeze();
    wait_until("TERM", || session.has_ended().then_some(()));
    backend.server().thaw();
    wait_until_free(&backend, "k");
    let mut session = Session::start();
    session.holder(&backend, "--ttl 3s k --on-lost term");
    assert_eq!(backend.server().command(&["DEL", "k"]), Reply::Int(1));
    wait_until("TERM", || session.has_ended().then_some(()));
}

#[test]
fn the_maximum_hold_time_releases() {
    for backend in TestBackend::every_kind() {
        let (mut session, mut other) = (Session::start(), Session::start());
        session.holder(&backend, "--max-hold 50ms k");
        wait_until_free(&backend, "k");
        assert!(!session.has_ended());
        other.holder(&backend, "--max-hold 50ms j --on-lost term");
        wait_until("TERM", || other.has_ended().then_some(()));
        wait_until_free(&backend, "j");
    }
}

#[test]
fn every_script_of_a_session_may_ask_for_its_lock() {
    for backend in TestBackend::every_kind() {
        let session = Session::start();
        for options in ["k", "-s s", "several --also others"] {
            let first = session.holders(&backend, options);
            assert_eq!(session.holders(&backend, &format!("-n {options}")), first, "{options}");
        }
        let first = session.acquire(&backend, "--json -n k").output().stdout;
        assert_eq!(first.matches("holder").count(), 1, "{first}");
        let why = format!("fencelock: k is already held for process {} (sleep), until it ends", session.pid());
        session.acquire(&backend, "j --also k").says(64, &[&why]);
        for other in ["k --on-lost term", "-s k", "s"] {
            session.acquire(&backend, other).says(64, &["with other options"]);
        }
        assert_eq!(session.acquire(&backend, "-n --nested-ok k").output().status, 75);
        let other = Session::start();
        assert_eq!(other.acquire(&backend, "-n k").output().status, 75);
    }
}

#[test]
fn scripts_of_a_session_that_ask_at_the_same_time_get_the_same_lock() {
    for backend in TestBackend::every_kind() {
        let (session, other) = (Session::start(), Session::start());
        let holder = other.holder(&backend, "k");
        let waiting: Vec<_> = (0..3).map(|_| session.acquire(&backend, "k").start()).collect();
        for one in &waiting {
            one.wait_for_error("waiting for k");
        }
        Test::new(&backend, &format!("-q release k --holder {holder}")).run();
        let mut answers: Vec<_> = waiting.into_iter().map(|one| one.end().stdout).collect();
        answers.dedup();
        assert_eq!((answers.len(), answers[0].len()), (1, 33), "{answers:?}");
        // All of these may be granted.
        let asking: Vec<_> = (0..4).map(|_| session.acquire(&backend, "-s s").start()).collect();
        let mut answers: Vec<_> = asking.into_iter().map(|one| one.end().stdout).collect();
        answers.dedup();
        assert_eq!((answers.len(), answers[0].len()), (1, 33), "{answers:?}");
    }
}

#[test]
fn an_answer_that_nobody_reads_leaves_no_lock() {
    for backend in TestBackend::every_kind() {
        let session = Session::start();
        let script = format!("{BINARY} acquire k --while-pid {} >&-", session.pid());
        let output = shell(&backend, &script).end();
        assert_eq!(output.status, 74, "{}", output.stderr);
        assert!(output.stderr.ends_with("; the lock was released\n"), "{}", output.stderr);
        assert!(is_free(&backend, "k"));
    }
}

#[test]
fn a_killed_keeper_frees_its_locks_in_files_at_once_and_leaves_nothing() {
    let backend = TestBackend::files();
    let session = Session::start();
    let holder = session.holder(&backend, "k");
    session.holder(&backend, "j");
    send(&keeper(&backend, "k"), "KILL");
    wait_until_free(&backend, "k");
    wait_until_free(&backend, "j");
    assert_eq!(names(&backend), ["j.lock", "k.lock"]);
    Test::new(&backend, &format!("release k --holder {holder}")).says(76, &[]);
    session.holder(&backend, "k");
}

#[test]
fn a_log_out_and_a_stop_of_the_session_do_not_end_the_lock() {
    let backend = TestBackend::files();
    let session = Session::start();
    session.holder(&backend, "k");
    let keeper = keeper(&backend, "k");
    for signal in ["HUP", "INT", "QUIT", "TERM"] {
        send(&keeper, signal);
    }
    // It has handled them when it answers.
    Test::new(&backend, "break k").says(64, &["--yes"]);
    assert!(is_alive(&keeper) && !is_free(&backend, "k"));
    let stat = fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap();
    let of_session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_eq!(of_session, keeper, "a session of its own");
    assert_eq!(fs::read_link(format!("/proc/{keeper}/cwd")).unwrap().to_str(), Some("/"));
    for stream in 0..3 {
        let target = fs::read_link(format!("/proc/{keeper}/fd/{stream}")).unwrap();
        assert!(target.to_str().unwrap().contains("pidfd"), "{stream}: {}", target.display());
    }
}

#[test]
fn a_lock_that_the_shell_holds_with_a_descriptor_is_not_inherited() {
    let backend = TestBackend::files();
    let script = format!(
        "exec 9>other; flock 9; {BINARY} -q acquire k --while-pid $$ > /dev/null || exit; exec 9>&-; flock -n other echo free; read _"
    );
    let mut shell = shell(&backend, &script);
    shell.wait_for("free");
    assert!(!is_free(&backend, "k"));
    shell.finish();
}

#[test]
fn too_few_open_files_are_named() {
    let backend = TestBackend::files();
    let session = Session::start();
    // The keeper has some more files than `acquire` when it looks.
    for limit in 8..30 {
        let script = format!("ulimit -n {limit}; {BINARY} acquire k --while-pid {}", session.pid());
        let output = shell(&backend, &script).end();
        assert!(output.status == 0 || output.status == 71, "{limit}: {}", output.stderr);
        let named = output.stderr.contains("open 24 files") || output.stderr.contains("Too many open files");
        assert!(output.status == 0 || named, "{limit}: {}", output.stderr);
    }
}

#[test]
fn a_keeper_is_no_command() {
    let backend = TestBackend::files();
    Test::new(&backend, "--keep-lock")
        .stderr("fencelock: --keep-lock is internal to `fencelock acquire`; see `fencelock acquire --help`\n")
        .status(64)
        .run();
}

#[test]
fn options_of_a_keeper_need_a_process() {
    let backend = TestBackend::files();
    for options in ["--also j", "--slots 2", "--max-hold 1s", "--on-lost term"] {
        Test::new(&backend, &format!("acquire k {options}")).says(64, &["--while-pid"]);
    }
    Test::new(&backend, "acquire k").says(64, &["--while-pid PID, in a shell --while-pid $$"]);
}

/// Sessions that come and go, and are killed in between. Each adds one to a counter while it has the lock, not atomically.
const SESSION: &str = "\
$fencelock -q acquire k --ttl 2s --while-pid $$ > /dev/null || exit\n\
n=$(cat counter); sleep 0.0$(($$ % 3)); echo $((n + 1)) > counter.$$; mv counter.$$ counter; echo $$ >> done\n\
[ $(($$ % 4)) != 0 ] || kill -9 $$\n";

/// One round of a few sessions. With `FENCELOCK_SESSION_MINUTES`, rounds of a hundred for as long on each backend.
#[test]
fn sessions_that_come_and_go_count_exactly() {
    let minutes: Option<u64> = std::env::var("FENCELOCK_SESSION_MINUTES").ok().map(|minutes| minutes.parse().unwrap());
    let (sessions, end) = (if minutes.is_some() { 100 } else { 24 }, Duration::from_secs(60 * minutes.unwrap_or(0)));
    for backend in TestBackend::every_kind() {
        fs::write(backend.file("counter"), "0").unwrap();
        fs::write(backend.file("session.sh"), SESSION.replace("$fencelock", BINARY)).unwrap();
        let script = format!(
            "for i in $(seq {sessions}); do sh session.sh & [ $((i % 8)) != 0 ] || {{ sh session.sh & p=$!; sleep 0.05; kill -9 $p; }}; \
             [ $((i % 6)) != 0 ] || wait; done 2>/dev/null; wait; echo all"
        );
        let (begun, mut rounds) = (Instant::now(), 0);
        while rounds == 0 || begun.elapsed() < end {
            let mut all = shell(&backend, &script);
            all.wait_for("all");
            assert_eq!(all.end().status, 0);
            rounds += 1;
        }
        let counted: usize = fs::read_to_string(backend.file("counter")).unwrap().trim().parse().unwrap();
        let done = fs::read_to_string(backend.file("done")).unwrap().lines().count();
        println!("{}: {rounds} rounds, {counted} counted, {done} said so", backend.url());
        // A killed session may have counted before it could say so.
        let killed = rounds * (sessions / 8);
        assert!(
            counted >= done && counted <= done + killed && done >= rounds * sessions,
            "{counted} counted, {done} done"
        );
        wait_until_free(&backend, "k");
        if backend.url().starts_with("file:") {
            wait_until("the end of the keepers", || (names(&backend) == ["k.lock"]).then_some(()));
        }
    }
}
