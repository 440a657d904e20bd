//! Read-only commands create and change nothing, whether the backend exists or not. `doctor` tries a lock, unless it is told not to:
//! see `doctor.rs`.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::Test;
use fencelock_testkit::{RedisServer, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Commands that end by themselves, and their exit codes: of a backend where `held` is held and `free` is not.
const COMMANDS: [(&str, i32); 24] = [
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
    ("run --help", 0),
    ("elect --help", 0),
];

/// Runs all read-only commands.
fn run_all(backend: &TestBackend, url: &str, is_held: bool) {
    for (line, status) in COMMANDS {
        let status = if is_held || line.contains("--help") { status } else { 0 };
        Test::new(backend, line).env("FENCELOCK_URL", url).says(status, &[]);
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
        Test::new(&backend, line).arg(&"ab".repeat(16)).says(76, &["no longer held"]);
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

#[test]
fn read_only_commands_write_no_key_on_a_server() {
    for backend in [TestBackend::redis(), TestBackend::quorum()].into_iter().flatten() {
        let all = || backend.servers().map(keys).collect::<Vec<_>>();
        let before = all();
        run_all(&backend, backend.url(), false);
        assert_eq!(all(), before);
        assert!(before.iter().all(|(_, keys)| keys.keys().all(|key| key == "fencelock:node")), "{before:?}");
        Test::new(&backend, "acquire --ttl 50s held").ok();
        Test::new(&backend, "acquire --ttl 50s --shared read").ok();
        Test::new(&backend, "run --once-per 1h --ttl 50s free-done -- true").ok();
        let before = all();
        run_all(&backend, backend.url(), true);
        assert_eq!(all(), before);
    }
}

const PAGE: &str = include_str!("../../../../docs/en/operations.md");

/// The part of the page that begins with the rights of a user that may write nothing, with the prefix `app:`.
fn page() -> &'static str {
    PAGE.split_once("```reader\n").unwrap().1
}

/// Its keys, and its rights to commands but those of every connection.
fn reader() -> (Vec<&'static str>, Vec<&'static str>) {
    let words = page().lines().next().unwrap().split_whitespace();
    words.partition(|word| !word.starts_with('+') || ["+hello", "+auth", "+select", "+ping"].contains(word))
}

/// The commands of each line of the table below, and their rights.
fn lines() -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let rows = page().lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    let line = |row: &'static str| {
        let mut cells = row.split(" | ");
        let (commands, wanted) = (quoted(cells.next().unwrap()), cells.next().unwrap());
        let named = quoted(wanted);
        let all = reader().1.into_iter();
        let rights =
            if wanted.starts_with("all") { all.filter(|right| !named.contains(right)).collect() } else { named };
        (commands, rights)
    };
    rows.map(line).collect()
}

/// A server with locks of every kind under `app:`, and a waiter.
struct Watched {
    backend: TestBackend,
    writer: String,
    _waiter: Running,
}

impl Watched {
    fn start() -> Option<Self> {
        let backend = TestBackend::redis()?;
        let writer = format!("{}&prefix=app:", backend.url());
        let own = |line: &str| Test::new(&backend, line).env("FENCELOCK_URL", &writer);
        own("acquire --ttl 1h held").ok();
        own("acquire --ttl 1h --shared read").ok();
        own("run --once-per 365d done -- true").ok();
        for words in [&["SET", "app:foreign", "another value"][..], &["HSET", "app:hash", "a", "b"]] {
            backend.server().command(words);
        }
        backend.server().command(&["SET", "app:long", &"x".repeat(500)]);
        let waiter = own("-q run --label patient held -- true").start();
        wait_until("the queue", || own("--json status held").output().stdout.contains("patient").then_some(()));
        Some(Self { _waiter: waiter, writer, backend })
    }

    /// The command as a user with these rights, and the usual keys.
    fn with_rights(&self, rights: &[&str], line: &str) -> Test<'_> {
        self.as_user(&[&reader().0, rights].concat(), line)
    }

    fn as_user(&self, rules: &[&str], line: &str) -> Test<'_> {
        let server = self.backend.server();
        let words = ["ACL", "SETUSER", "reader", "reset"].iter().chain(rules).copied();
        assert_eq!(server.command(&words.collect::<Vec<_>>()), Reply::Simple("OK".into()));
        // A script that the server has needs no EVAL.
        server.command(&["SCRIPT", "FLUSH"]);
        let url = format!("redis://reader:secret@127.0.0.1:{}?prefix=app:&timeout=5000", server.port());
        Test::new(&self.backend, line).env("FENCELOCK_URL", &url)
    }

    /// What the command answers to a user with these rights. Numbers differ from run to run.
    fn answer(&self, rights: &[&str], line: &str) -> (i32, String) {
        self.answer_as(&[&reader().0, rights].concat(), line)
    }

    fn answer_as(&self, rules: &[&str], line: &str) -> (i32, String) {
        let output = self.as_user(rules, line).output();
        let text = output.stdout + &output.stderr;
        let is_unit = |word: &str| ["s", "ms", "min", "h", "d"].contains(&word.trim_end_matches([',', ';', ')']));
        let words = text.split_whitespace().filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        (output.status, words.filter(|word| !is_unit(word)).collect::<Vec<_>>().join(" "))
    }
}

/// What is asked of each command.
fn questions(command: &str) -> Vec<String> {
    match command {
        "status" => {
            ["free", "held --waiters", "read", "foreign", "hash", "long"].map(|key| format!("status {key}")).into()
        }
        "wait" => vec!["wait free".into(), "wait -w 0 held".into()],
        "once" => vec!["once free".into(), "once done".into()],
        "top" => vec!["top --once".into(), "--json top --once he".into()],
        // It does not end.
        "elect --observe" => vec![],
        other => vec![other.into()],
    }
}

#[test]
fn each_command_works_with_the_rights_of_its_line_as_with_all() {
    let Some(watched) = Watched::start() else { return };
    let rights = reader().1;
    let lines = lines();
    let commands: BTreeSet<_> = lines.iter().flat_map(|(commands, _)| commands.iter().copied()).collect();
    let known = ["doctor --read-only", "elect --observe", "list", "once", "status", "top", "wait"];
    assert_eq!(commands, BTreeSet::from(known));
    for (commands, of_line) in &lines {
        for question in commands.iter().flat_map(|command| questions(command)) {
            let (status, text) = watched.answer(of_line, &question);
            let expected =
                i32::from(question.contains("held") || question.starts_with("status") && !question.ends_with("free"))
                    * 75;
            assert_eq!(status, expected, "{question}: {text}");
            // Without `+client` and `+subscribe` a holder misses something, and somebody who looks does not.
            assert!(!text.contains("warning: no "), "{question}: {text}");
            if !question.contains("json") && !question.contains("doctor") {
                assert_eq!((status, text), watched.answer(&rights, &question), "{question}");
            }
        }
    }
    let status = watched.answer(&rights, "status --waiters held").1;
    assert!(status.contains("waiting 1:") || status.contains("(patient)"), "{status}");
}

/// The same user, with patterns and commands that can only read.
fn only_reads(word: &str) -> String {
    match word {
        "+eval" | "+evalsha" => format!("{word}_ro"),
        word => word.replace('~', "%R~"),
    }
}

#[test]
fn each_command_works_for_a_user_who_can_only_read_the_keys() {
    let Some(watched) = Watched::start() else { return };
    let server = watched.backend.server();
    if matches!(server.command(&["COMMAND", "INFO", "eval_ro"]), Reply::Array(known) if known == [Reply::Nil]) {
        return eprintln!("skipped: this server has no EVAL_RO");
    }
    let (all, (keys, rights)) = (reader().1, reader());
    let words: Vec<_> = keys.iter().chain(&rights).map(|word| only_reads(word)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    for question in lines().iter().flat_map(|(commands, _)| commands).flat_map(|command| questions(command)) {
        let usual = watched.answer(&all, &question);
        let seen = watched.answer_as(&words, &question);
        assert_eq!(seen.0, usual.0, "{question}: {}", seen.1);
        if !question.contains("json") && !question.contains("doctor") {
            assert_eq!(seen, usual, "{question}");
        }
    }
    let Reply::Text(stats) = server.command(&["INFO", "commandstats"]) else { panic!("no text") };
    assert!(stats.contains("cmdstat_eval_ro:") && stats.contains("cmdstat_evalsha_ro:"), "{stats}");
}

#[test]
fn an_election_is_observed_with_the_rights_of_its_line() {
    let Some(watched) = Watched::start() else { return };
    let rights = lines().into_iter().find(|(commands, _)| commands.contains(&"elect --observe")).unwrap().1;
    let mut observer = watched.with_rights(&rights, "elect --observe leader").start();
    observer.wait_for("leader: no leader");
    let own = |line: &str| Test::new(&watched.backend, line).env("FENCELOCK_URL", &watched.writer);
    own("acquire --ttl 1h --label 10.0.0.7:80 leader").ok();
    observer.wait_for("leader: 10.0.0.7:80 on ");
    own("break --yes leader").ok();
    observer.wait_for("leader: no leader");
    observer.kill("TERM");
    let output = observer.end();
    assert_eq!((output.stdout.lines().count(), output.stderr.as_str()), (3, ""));
}

#[test]
fn a_user_that_may_only_look_changes_nothing() {
    let Some(watched) = Watched::start() else { return };
    for line in
        ["acquire other", "break --yes held", "run -n other -- true", "resize --permits 2 read", "once --clear done"]
    {
        let (status, text) = watched.answer(&reader().1, line);
        assert!(status != 0, "{line} writes: {text}");
    }
    let server = watched.backend.server();
    assert_eq!(server.command(&["EXISTS", "app:held", "app:read", "app:other"]), Reply::Int(2));
    let done = Test::new(&watched.backend, "--json once done").env("FENCELOCK_URL", &watched.writer).output();
    assert!(!done.stdout.contains(r#""done":null"#), "{}", done.stdout);
}
