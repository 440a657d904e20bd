use crate::backend::{TestBackend, patient};
use crate::test::Test;
use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Where the keys live, and the servers that have them.
struct Keys {
    backend: TestBackend,
    url: String,
    servers: Vec<RedisServer>,
}

impl Keys {
    /// One Redis, and a quorum of three.
    fn everywhere() -> Vec<Self> {
        let mut all = Vec::new();
        if let Some(server) = redis_or_skip() {
            let url = patient(&server);
            all.push(Self { backend: TestBackend::files(), url, servers: vec![server] });
            let servers: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
            let keys = Self { backend: TestBackend::files(), url: redlock_url(&servers, "node_timeout=2000"), servers };
            keys.test("init --trust-empty").ok();
            all.push(keys);
        }
        all
    }

    fn test(&self, line: &str) -> Test<'_> {
        Test::new(&self.backend, line).env("FENCELOCK_URL", &self.url)
    }

    fn put(&self, command: &[&str]) {
        for server in &self.servers {
            server.command(&["DEL", "k"]);
            assert!(!matches!(server.command(command), Reply::Error(_)), "{command:?}");
        }
    }

    fn have_it(&self) -> usize {
        self.servers.iter().filter(|server| server.command(&["EXISTS", "k"]) == Reply::Int(1)).count()
    }

    /// `break` with these options leaves the key, and says so.
    fn refuses(&self, options: &str, words: &[&str]) {
        let output = self.test(&format!("break k {options}")).output();
        assert_eq!((output.status, self.have_it()), (64, self.servers.len()), "{options}: {}", output.stderr);
        for word in words.iter().chain(&["nothing was done"]) {
            assert!(output.stderr.contains(word), "{options}, {word:?}: {}", output.stderr);
        }
    }

    fn breaks(&self, options: &str, shown: &str) {
        let output = self.test(&format!("break k {options}")).output();
        assert_eq!((output.status, self.have_it()), (0, 0), "{options}: {}", output.stderr);
        assert!(output.stdout.contains("broke the lock") && output.stdout.contains(shown), "{}", output.stdout);
        assert!(!output.stdout.contains("ends in"), "it has ended: {}", output.stdout);
    }
}

const ALL: &str = "--yes --foreign --foreign-without-ttl";

#[test]
fn what_is_no_string_is_never_deleted() {
    for keys in Keys::everywhere() {
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
    for keys in Keys::everywhere() {
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
    let Some(keys) = Keys::everywhere().pop() else { return };
    keys.put(&["SET", "k", "5f3b12ab-0000-4000", "PX", "60000"]);
    keys.servers[2].command(&["PERSIST", "k"]);
    let output = keys.test("break k --yes --foreign").output();
    assert_eq!(output.status, 0, "{}", output.stderr);
    let left: Vec<_> = keys.servers.iter().map(|server| server.command(&["EXISTS", "k"])).collect();
    assert_eq!(left, [Reply::Int(0), Reply::Int(0), Reply::Int(1)]);
}

#[test]
fn a_lock_of_ours_needs_no_more_than_yes() {
    for keys in Keys::everywhere() {
        keys.test("acquire k").ok();
        let output = keys.test("break k").output();
        assert!(output.status == 64 && output.stderr.contains("add --yes to break this lock"), "{}", output.stderr);
        keys.test("break k --yes").ok();
        keys.test("status k").stdout("k: free\n").run();
    }
}

#[test]
fn break_says_at_once_what_ends_the_hold_of_a_file() {
    let backend = TestBackend::files();
    let mut holder = Test::script(&backend, "k", "echo ready; read _").start();
    holder.wait_for("ready");
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
