use crate::backend::TestBackend;
use crate::running::hold;
use crate::test::Test;
use fencelock_testkit::Reply;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// One Redis, and a quorum of three.
fn everywhere() -> impl Iterator<Item = TestBackend> {
    [TestBackend::redis(), TestBackend::quorum()].into_iter().flatten()
}

impl TestBackend {
    fn put(&self, command: &[&str]) {
        for server in self.servers() {
            server.command(&["DEL", "k"]);
            assert!(!matches!(server.command(command), Reply::Error(_)), "{command:?}");
        }
    }

    /// On how many servers the key is there.
    fn have_it(&self) -> usize {
        self.servers().filter(|server| server.command(&["EXISTS", "k"]) == Reply::Int(1)).count()
    }

    /// `break` with these options leaves the key, and says so.
    fn refuses(&self, options: &str, words: &[&str]) {
        Test::new(self, &format!("break k {options}")).says(64, &[words, &["nothing was done"]].concat());
        assert_eq!(self.have_it(), self.servers().count(), "{options}");
    }

    fn breaks(&self, options: &str, shown: &str) {
        let said = Test::new(self, &format!("break k {options}")).says(0, &["broke the lock", shown]);
        assert!(self.have_it() == 0 && !said.contains("ends in"), "it has ended: {said}");
    }
}

const ALL: &str = "--yes --foreign --foreign-without-ttl";

#[test]
fn what_is_no_string_is_never_deleted() {
    for keys in everywhere() {
        let types = [
            ("hash", &["HSET", "k", "name", "alice"][..]),
            ("list", &["RPUSH", "k", "a", "b"]),
            ("set", &["SADD", "k", "a"]),
            ("zset", &["ZADD", "k", "1", "a"]),
            ("stream", &["XADD", "k", "*", "a", "b"]),
        ];
        for (name, command) in types {
            keys.put(command);
            for options in ["", "--yes", ALL] {
                keys.refuses(options, &[&format!("type {name}"), "it is not a lock"]);
            }
        }
        let long = "x".repeat(301);
        keys.put(&["SET", "k", &long, "PX", "60000"]);
        keys.refuses(ALL, &["a string of 301 bytes, \"xxxxxxxx\"...", "it is not a lock"]);
    }
}

#[test]
fn a_foreign_lock_is_ended_only_if_it_is_named_as_one() {
    for keys in everywhere() {
        keys.put(&["SET", "k", "5f3b12ab-0000-4000", "PX", "60000"]);
        let shown = "a string of 18 bytes, \"5f3b12ab\"...";
        keys.refuses("", &[shown, "add --foreign --yes"]);
        keys.refuses("--yes", &[shown, "add --foreign to"]);
        keys.refuses("--foreign", &[shown, "add --yes to"]);
        keys.refuses("--yes --foreign-without-ttl", &[shown, "add --foreign to"]);
        keys.breaks("--yes --foreign", shown);
    }
}

#[test]
fn a_node_of_a_quorum_whose_string_has_no_ttl_keeps_it() {
    let Some(keys) = TestBackend::quorum() else { return };
    keys.put(&["SET", "k", "5f3b12ab-0000-4000", "PX", "60000"]);
    keys.servers().last().unwrap().command(&["PERSIST", "k"]);
    Test::new(&keys, "break k --yes --foreign").says(0, &[]);
    let left: Vec<_> = keys.servers().map(|server| server.command(&["EXISTS", "k"])).collect();
    assert_eq!(left, [Reply::Int(0), Reply::Int(0), Reply::Int(1)]);
}

#[test]
fn break_says_at_once_what_ends_the_hold_of_a_file() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "k");
    for line in ["break k", "break k --yes", "break k --yes --foreign --foreign-without-ttl"] {
        let output = Test::new(&backend, line).output();
        assert_eq!((output.status, output.stdout.as_str()), (64, ""));
        let said = output.stderr.starts_with("fencelock: k: the kernel holds this lock for process ");
        assert!(said && output.stderr.contains("end that process") && !output.stderr.contains("--yes"), "{line}");
    }
    Test::new(&backend, "-q status k").status(75).run();
}

#[test]
fn break_says_at_once_what_ends_a_foreign_flock() {
    let backend = TestBackend::files();
    Test::new(&backend, "run k -- true").ok();
    let locks = backend.dir().join("locks");
    let mut files = std::fs::read_dir(locks).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "lock")).unwrap();
    let mut flock = Command::new("flock");
    flock.arg(&file).args(["sh", "-c", "echo ready; read _"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut flock = flock.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(flock.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let output = Test::new(&backend, "break k").output();
    drop(flock.stdin.take());
    flock.wait().unwrap();
    assert!(output.status == 64 && output.stderr.contains("end that program to free it"), "{}", output.stderr);
}
