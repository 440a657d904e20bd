//! `--path`: locks on files and directories, which conflict if one contains the other.

use crate::backend::TestBackend;
use crate::keeping::Session;
use crate::running::wait_until;
use crate::test::{BINARY, Test, shell};
use fencelock::TreePath;
use std::fs;
use std::os::unix::fs::symlink;

/// A directory that is the top of a worktree.
fn worktree(backend: TestBackend) -> TestBackend {
    for directory in [".git", "src/db", "docs"] {
        fs::create_dir_all(backend.file(directory)).unwrap();
    }
    fs::write(backend.file("src/db/x.rs"), "").unwrap();
    backend
}

fn every_kind() -> Vec<TestBackend> {
    TestBackend::with_semaphores().into_iter().map(worktree).collect()
}

/// How the path is called in its lock.
fn name_of(backend: &TestBackend, path: &str) -> String {
    let session = Session::start();
    let answer = session.acquire(backend, "--json -n").arg("--path").arg(path).output();
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).expect(&answer.stderr);
    TreePath::of_key(answer["key"].as_str().unwrap()).unwrap().to_owned()
}

#[test]
fn a_refusal_names_the_cause() {
    for backend in every_kind() {
        let (one, two) = (Session::start(), Session::start());
        let pid = one.pid();
        let get = |session: &Session, path: &str, owner: &str| {
            session.acquire(&backend, &format!("-n --path {path} {owner}"))
        };
        let status = |path: &str, shown: &str| Test::new(&backend, &format!("status --path {path}")).stdout(shown);
        get(&one, "src/db", "--owner agent-2").arg("--label").arg("rename the API").ok();
        let who = format!("by agent-2 (sleep {pid}, \"rename the API\", since ");
        for (path, place, on) in [
            ("src/db/x.rs", "above ", " on src/db;"),
            ("src", "below ", " on src/db;"),
            (".", "below ", " on src/db;"),
            ("src/db", "", ";"),
        ] {
            let text =
                get(&two, path, "").says(75, &[&format!("fencelock: {path}: held {place}{who}"), &format!("s){on}")]);
            assert_eq!(text.lines().count(), 1, "{text}");
            let on = on.trim_end_matches(';');
            status(path, &format!("{path}: held {place}{who}*s){on}\n")).status(75).run();
        }
        for path in ["docs", "src/d", "src/db2"] {
            status(path, &format!("{path}: free\n")).run();
            Test::new(&backend, &format!("run -n --path {path} -- true")).ok();
        }
        let listed = Test::new(&backend, "list --path src").output().stdout;
        assert!(listed.lines().count() == 2 && listed.contains("//src/db/ "), "{listed}");
        Test::new(&backend, &format!("release --path src/db --while-pid {pid} --owner agent-2"))
            .stdout("src/db: released\n")
            .run();
        // Readers share a directory, and keep writers out of all that is below it.
        get(&one, "src", "-s --owner a").ok();
        get(&two, "src", "-s").ok();
        get(&two, "src/db/x.rs", "-s --owner b").ok();
        get(&two, "src/db/x.rs", "--owner c").says(75, &["src/db/x.rs: held above by a (sleep", " on src, shared"]);
        get(&two, "docs", "--owner c").ok();
        get(&one, "docs/..", "-s --owner d").says(75, &[".: held below by c (sleep", " on docs;"]);
        drop((one, two));
        wait_until("the end of the locks", || Test::new(&backend, "list").output().stdout.is_empty().then_some(()));
    }
    let Some(quorum) = TestBackend::quorum().map(worktree) else { return };
    Test::new(&quorum, "run --path src -- true").ok();
    Test::new(&quorum, "run -s --path src -- true").says(64, &["semaphores"]);
    Test::new(&TestBackend::objects(""), "run --root-name r --path src -- true").says(64, &["shared locks"]);
}

#[test]
fn a_path_has_one_name() {
    let backend = worktree(TestBackend::files());
    let outside = tempfile::tempdir().unwrap();
    for (link, target) in [("link", "src/db"), ("out", outside.path().to_str().unwrap()), ("dangling", "nowhere")] {
        symlink(target, backend.file(link)).unwrap();
    }
    let absolute = backend.file("src/db").display().to_string();
    for (path, name) in [
        ("src/db", "src/db"),
        ("./src//db/", "src/db"),
        ("docs/../src/db/.", "src/db"),
        ("link", "src/db"),
        ("link/../db/new/file", "src/db/new/file"),
        (&absolute, "src/db"),
        ("src/**", "src"),
        ("src/*", "src"),
        ("*", "."),
        (".", "."),
        ("new/../dir", "dir"),
    ] {
        assert_eq!(name_of(&backend, path), name, "{path}");
    }
    for (path, name) in [("src/*/x.rs", "src"), ("src/db/*.rs", "src/db"), ("**/x.rs", ".")] {
        Test::new(&backend, &format!("run --path {path} -- true"))
            .says(0, &[&format!("{name} is locked, the directory before the wildcard")]);
    }
    // A file may be called so.
    fs::write(backend.file("src/[id].ts"), "").unwrap();
    assert_eq!(name_of(&backend, "src/[id].ts"), "src/[id].ts");
    let deep = "d/".repeat(33);
    for (path, why) in [
        ("../x", "outside of /"),
        ("out/x", "outside of /"),
        ("/", "outside of /"),
        ("dangling", "cannot be resolved: "),
        ("src/db/x.rs/y", "cannot be resolved: "),
        ("", "the path is empty"),
        (&deep, "at most 32 levels below its root, and this one has 33: lock a directory further up"),
    ] {
        Test::new(&backend, "run -n --path").arg(path).arg("--").arg("true").says(64, &[why]);
    }
    name_of(&backend, &deep[2..]);
    for line in [
        "run --path a k -- true",
        "run --path a true",
        "run --path a --also b -- true",
        "run --path a --permits 2 -- c",
        "acquire --path a",
        "status --path a k",
        "release --path a",
        "run --path a --",
    ] {
        assert_eq!(Test::new(&backend, line).output().status, 64, "{line}");
    }
    // The lock stays with the name.
    let session = Session::start();
    session.acquire(&backend, "-n --path docs").ok();
    fs::rename(backend.file("docs"), backend.file("book")).unwrap();
    Test::new(&backend, "status --path docs/a").says(75, &["held above"]);
    Test::new(&backend, "status --path book/a").says(0, &["book/a: free"]);
}

#[test]
fn trees_share_locks_only_by_name() {
    let backend = TestBackend::files();
    for tree in ["one/.git", "two", "one/sub/.git"] {
        fs::create_dir_all(backend.file(tree)).unwrap();
    }
    // That of a worktree is a file.
    fs::write(backend.file("two/.git"), "gitdir: elsewhere").unwrap();
    let script = |inner: &str| format!("cd one; {BINARY} run -q --path a -- sh -c 'cd ../two; {inner}'");
    for (outer, inner, status) in [("", "", 0), ("--root-name r", "--root-name r", 64), ("--root-name r", "", 0)] {
        let inner = format!("{BINARY} run -q {inner} --path a -- true");
        let line = script(&inner).replacen("--path", &format!("{outer} --path"), 1);
        let output = shell(&backend, &line).end();
        assert_eq!(output.status, status, "{outer} {inner}: {}", output.stderr);
    }
    let line = format!("cd one; {BINARY} run --path . -- sh -c 'cd sub; {BINARY} run -n --path . -- true'");
    assert_eq!(shell(&backend, &line).end().status, 0, "a tree of its own");
    Test::new(&backend, "run --path a -- true").says(64, &["no .git is in /", "name the root"]);
    Test::new(&backend, "run --root-name r --path a -- true").ok();
    Test::new(&backend, "run --root-name a/b --path a -- true").says(64, &["is no name of a root"]);
}

#[test]
fn an_owner_meets_itself() {
    for backend in every_kind() {
        let (agent, other) = (Session::start(), Session::start());
        let get = |path: &str| agent.acquire(&backend, &format!("-w 20s --owner a --path {path}"));
        let holder = |path: &str| get(path).output().stdout.trim().to_owned();
        let is_free = |path: &str| Test::new(&backend, &format!("status --path {path}")).output().status == 0;
        let release =
            |path: &str| Test::new(&backend, &format!("release --owner a --while-pid {} --path {path}", agent.pid()));
        let first = holder("src/a");
        assert_eq!(holder("src/a"), first);
        agent.acquire(&backend, "-n --owner a src/a").ok();
        // Its ancestors are not queued for behind others.
        let waiting = other.acquire(&backend, "-w 60s --path src").start();
        waiting.wait_for_error("waiting for src, ");
        get("src/b").ok();
        get("src/d -s").ok();
        get("src").says(64, &["src: its owner has src/a already", "cannot grow: release src/a first"]);
        release("src/a").ok();
        let third = holder("src/c");
        for path in ["src/b", "src/d", "src/c"] {
            assert!(!is_free(path), "{path}");
            release(path).ok();
        }
        assert_eq!(waiting.end().status, 0, "none of the keys is left");
        assert_eq!(third.len(), 32);
        // What is below its own path it has, until both are released.
        let outer = holder("docs");
        assert_eq!(holder("docs/a/b"), outer);
        get("docs/c -s").ok();
        Test::new(&backend, &format!("release --path docs --holder {outer}")).stdout("docs: released\n").run();
        for options in ["-s --path docs/a/b", "--path docs/a/b", "-s --path docs", "--path docs/x"] {
            other.acquire(&backend, &format!("-n {options}")).says(75, &["held "]);
        }
        Test::new(&backend, &format!("release --path docs/a/b --holder {outer}")).stdout("docs/a/b: released\n").run();
        assert!(!is_free("docs/x"), "the reader has it");
        release("docs/c").stdout("docs/c: released\n").run();
        assert!(is_free("docs"));
    }
}

#[test]
fn a_command_under_a_path_locks_what_is_below_and_beside_it() {
    for backend in every_kind() {
        for (outer, inner, status) in [
            ("src", "src/db", 0),
            ("src/db", "src/a", 0),
            ("src/db", "src", 64),
            ("src/db", "src/db", 64),
            ("src -s", "src/db", 64),
            ("src -s", "src/db -s", 0),
            ("src -s", "src -s", 0),
        ] {
            let line = format!("run --path {outer} -- {BINARY} run -w 20s --path {inner} -- echo inside");
            let output = Test::new(&backend, &line).output();
            assert_eq!(
                (output.status, output.stdout == "inside\n"),
                (status, status == 0),
                "{line}: {}",
                output.stderr
            );
        }
    }
}

#[test]
fn a_directory_and_a_file_in_it_are_never_held_by_two() {
    for backend in TestBackend::every_kind().into_iter().map(worktree) {
        let alone = "mkdir held || echo both; sleep 0.02; rmdir held";
        let run = |path: &str| format!("for i in 1 2 3 4; do {BINARY} run -q --path {path} -- sh -c '{alone}'; done");
        let all: Vec<_> = (0..8).map(|n| shell(&backend, &run(["src", "src/db", "src/db/x.rs", "."][n % 4]))).collect();
        for one in all {
            let output = one.end();
            assert_eq!((output.status, output.stdout + &output.stderr), (0, String::new()));
        }
    }
}
