//! Read-only commands create and change nothing, whether the backend exists or not. `doctor` tries a lock, unless it is told not to:
//! see `doctor.rs`.

use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::Test;
use fencelock_testkit::{ClusterNodes, RedisServer, Reply, redlock_url, servers_or_skip};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Commands that end by themselves, and their exit codes: of a backend where `held` is held and `free` is not.
const COMMANDS: [(&str, i32); 26] = [
    ("doctor --read-only", 0),
    ("-q doctor --read-only", 0),
    ("--json doctor --read-only", 0),
    ("doctor --report --read-only", 0),
    ("config", 0),
    ("--json config", 0),
    ("list", 0),
    ("--json list", 0),
    ("list fr", 0),
    ("status free", 0),
    ("--json status free", 0),
    ("status held", 75),
    ("status --waiters held", 75),
    ("top --once", 0),
    ("--json top --once fr", 0),
    ("status read", 75),
    ("wait free", 0),
    ("wait -w 0 held", 75),
    ("wait -w 1 read", 75),
    ("--json wait -w 1 held", 75),
    // Without --yes, `break` only shows the holder.
    ("break free", 0),
    ("break held", 64),
    ("bench --help", 0),
    ("lab --help", 0),
    ("run --help", 0),
    ("elect --help", 0),
];

/// Runs all read-only commands.
fn run_all(backend: &TestBackend, url: &str, is_held: bool) {
    for (line, status) in COMMANDS {
        let status = if is_held || line.contains("--help") { status } else { 0 };
        let output = Test::new(backend, line).env("FENCELOCK_URL", url).output();
        assert_eq!(output.status, status, "{line}: {}{}", output.stdout, output.stderr);
    }
    let mut observer = Test::new(backend, "elect --observe free").env("FENCELOCK_URL", url).start();
    observer.wait_for("free: no leader");
    observer.kill("INT");
    assert_eq!(observer.end().status, 130);
}

/// What a change of any file or directory changes: the time of its last change, and what it contains.
fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        let changed = (meta.ctime(), meta.ctime_nsec());
        let facts = format!("{} {:o} {changed:?} {content}", meta.ino(), meta.mode());
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen.insert(path, facts);
    }
    seen
}

#[test]
fn read_only_commands_do_not_create_a_missing_directory_and_the_first_lock_does() {
    let backend = TestBackend::files();
    let before = files(backend.dir());
    run_all(&backend, backend.url(), false);
    for below in ["locks/deeper", "./other"] {
        run_all(&backend, &format!("file:{}", backend.dir().join(below).display()), false);
    }
    assert_eq!(files(backend.dir()), before);
    Test::new(&backend, "list").run();
    Test::new(&backend, "status k").stdout("k: free\n").run();
    for line in ["release k --holder", "renew k --holder"] {
        let absent = Test::new(&backend, line).arg(&"ab".repeat(16)).output();
        assert!(absent.status == 76 && absent.stderr.contains("no longer held"), "{line}: {}", absent.stderr);
    }
    let resized = Test::new(&backend, "resize --permits 3 k").output();
    assert!(resized.status != 0 && !backend.file("locks").exists(), "{}", resized.stderr);
    Test::new(&backend, "run k -- true").run();
    assert_eq!(fs::metadata(backend.file("locks")).unwrap().mode() & 0o7777, 0o700);
    assert!(backend.file("locks/k.lock").exists());
}

#[test]
fn doctor_says_that_the_directory_is_missing_and_what_creates_it() {
    let backend = TestBackend::files();
    let output = Test::new(&backend, "doctor").output();
    let missing = "  note     directory    */locks does not exist\n*-> the first lock creates it, accessible only to this user *\n";
    let (head, rest) = output.stdout.split_once('\n').unwrap();
    assert!(head.starts_with("file:/") && head.ends_with("/locks"), "{head}");
    let two: String = rest.split_inclusive('\n').take(2).collect();
    assert!(output.status == 0 && crate::test::matches(missing, &two), "{}", output.stdout);
    assert!(output.stdout.contains("this user can create it"), "{}", output.stdout);
}

#[test]
fn doctor_reports_what_is_no_directory_as_a_failure_and_the_other_commands_as_an_error() {
    let backend = TestBackend::files();
    fs::write(backend.file("file"), "data").unwrap();
    for name in ["file", "file/below"] {
        let url = &format!("file:{}", backend.file(name).display());
        let doctor = Test::new(&backend, "doctor").env("FENCELOCK_URL", url).output();
        assert!(doctor.status == 69 && doctor.stdout.contains("\n  FAILED   directory"), "{}", doctor.stdout);
        let reason = doctor.stdout.to_lowercase();
        assert!(reason.contains("not a directory") && reason.contains("use another directory"), "{reason}");
        assert!(!reason.contains("remove"), "it is of use to somebody: {reason}");
        for line in ["list", "status k", "run k -- true"] {
            let output = Test::new(&backend, line).env("FENCELOCK_URL", url).output();
            let said = output.stderr.to_lowercase();
            assert!(output.status == 69 && said.contains("not a directory"), "{line}: {said}");
            assert!(said.contains("use another directory") && !said.contains("remove"), "{line}: {said}");
        }
    }
    assert_eq!(fs::read_to_string(backend.file("file")).unwrap(), "data");
}

#[test]
fn read_only_commands_change_no_file_of_a_directory_with_locks() {
    let backend = TestBackend::files();
    Test::new(&backend, "run free -- true").run();
    Test::new(&backend, "run --once-per 1h free-done -- true").ok();
    let mut holder = Test::script(&backend, "held", "echo held; read _").start();
    let mut reader = Test::script(&backend, "-s read", "echo held; read _").start();
    holder.wait_for("held");
    reader.wait_for("held");
    // Wider permissions than those of the directory, which the next lock of this key corrects.
    fs::set_permissions(backend.file("locks/free.lock"), Permissions::from_mode(0o644)).unwrap();
    fs::write(backend.file("locks/none.lock"), "no record").unwrap();
    let before = files(backend.dir());
    run_all(&backend, backend.url(), true);
    Test::new(&backend, "status free-done").ok();
    assert_eq!(files(backend.dir()), before);
    for held in [&mut holder, &mut reader] {
        held.say("\n");
    }
    assert_eq!((holder.end().status, reader.end().status), (0, 0));
}

/// What a write changes: the number of changes, and each value.
fn keys(server: &RedisServer) -> (String, BTreeMap<String, Reply>) {
    let info = server.command(&["INFO", "persistence"]);
    let changes =
        info.text().unwrap().lines().find(|line| line.starts_with("rdb_changes_since_last_save:")).unwrap().to_owned();
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    let dump = |key: &Reply| {
        let key = key.text().unwrap();
        (key.to_owned(), server.command(&["DUMP", key]))
    };
    (changes, keys.iter().map(dump).collect())
}

/// Runs them on these servers without a key, and with holders.
fn run_all_on_servers(backend: &TestBackend, url: &str, servers: &[&RedisServer]) {
    let all = || servers.iter().map(|server| keys(server)).collect::<Vec<_>>();
    let before = all();
    run_all(backend, url, false);
    assert_eq!(all(), before);
    assert!(before.iter().all(|(_, keys)| keys.keys().all(|key| key == "fencelock:node")), "{before:?}");
    let hold = |line: &str| Test::new(backend, line).env("FENCELOCK_URL", url).ok();
    hold("acquire --ttl 50s held");
    hold("acquire --ttl 50s --shared read");
    hold("run --once-per 1h --ttl 50s free-done -- true");
    let before = all();
    run_all(backend, url, true);
    assert_eq!(all(), before);
}

#[test]
fn read_only_commands_write_no_key_on_a_server() {
    let Some(backend) = TestBackend::redis() else { return };
    run_all_on_servers(&backend, backend.url(), &[backend.server()]);
}

#[test]
fn read_only_commands_write_no_key_on_the_servers_of_a_quorum() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), redlock_url(&servers, "max_ttl=50000&node_timeout=2000"));
    Test::new(&backend, "init --trust-empty").env("FENCELOCK_URL", &url).ok();
    run_all_on_servers(&backend, &url, &servers.iter().collect::<Vec<_>>());
}

#[test]
fn read_only_commands_write_no_key_on_a_cluster() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let backend = TestBackend::files();
    run_all_on_servers(&backend, &cluster.url(""), &cluster.nodes.iter().collect::<Vec<_>>());
}

/// The rights of the page for a user that may write nothing, with the prefix `app:`.
fn reader(server: &RedisServer, without: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/en/operations.md")).unwrap();
    let (_, rest) = page.split_once("```reader\n").unwrap();
    let rights = rest.lines().next().unwrap().split_whitespace().filter(|right| *right != without);
    let words: Vec<_> = ["ACL", "SETUSER", "reader", "reset"].into_iter().chain(rights).collect();
    assert_eq!(server.command(&words), Reply::Simple("OK".into()));
    format!("redis://reader:secret@127.0.0.1:{}?prefix=app:&timeout=5000", server.port())
}

#[test]
fn a_user_that_may_write_nothing_runs_all_read_only_commands() {
    let Some(backend) = TestBackend::redis() else { return };
    let (server, url) = (backend.server(), reader(backend.server(), ""));
    let writers = format!("{}&prefix=app:", backend.url());
    let own = |line: &str| Test::new(&backend, line).env("FENCELOCK_URL", &writers);
    own("acquire --ttl 100s held").ok();
    own("acquire --ttl 100s --shared read").ok();
    let waiter = own("-q run --label patient held -- true").start();
    wait_until("the queue", || own("--json status held").output().stdout.contains("patient").then_some(()));
    let commands =
        ["list", "status free", "top --once", "--json top --once", "once free", "wait free", "doctor --read-only"];
    for line in commands {
        let output = Test::new(&backend, line).env("FENCELOCK_URL", &url).output();
        assert_eq!(output.status, 0, "{line}: {}{}", output.stdout, output.stderr);
    }
    for line in ["status held", "status read", "wait -w 1 held"] {
        let output = Test::new(&backend, line).env("FENCELOCK_URL", &url).output();
        assert_eq!(output.status, 75, "{line}: {}{}", output.stdout, output.stderr);
    }
    let status = Test::new(&backend, "status --waiters held").env("FENCELOCK_URL", &url).output();
    assert!(status.status == 75 && status.stdout.contains("waiting 1: ") && status.stdout.contains("(patient)"));
    for line in ["acquire other", "break --yes held", "run -n other -- true"] {
        let output = Test::new(&backend, line).env("FENCELOCK_URL", &url).output();
        assert!(output.status != 0, "{line} writes: {}", output.stdout);
    }
    assert_eq!(server.command(&["EXISTS", "app:held"]), Reply::Int(1));
    assert_eq!(server.command(&["EXISTS", "app:other"]), Reply::Int(0));
    drop(waiter);
}
