//! `doctor` tries a lock: what would fail in a run fails here, and nothing stays.

use crate::backend::{TestBackend, patient};
use crate::keeping::OpenDirectory;
use crate::running::wait_until;
use crate::test::{Output, Test};
use fencelock_testkit::{ClusterNodes, RedisServer, Reply};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The rights that `docs/en/operations.md` lists for a user with the prefix `app:`.
fn rights() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/en/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```acl\n").unwrap();
    rest.lines().next().unwrap().to_owned()
}

fn url(server: &RedisServer) -> String {
    format!("redis://u:secret@127.0.0.1:{}?prefix=app:&timeout=60000", server.port())
}

/// Gives the user of [`url`] these rights.
fn allow(server: &RedisServer, rights: &str) {
    let words: Vec<&str> = ["ACL", "SETUSER", "u", "reset"].into_iter().chain(rights.split_whitespace()).collect();
    assert_eq!(server.command(&words), Reply::Simple("OK".into()), "{rights}");
}

fn doctor(backend: &TestBackend, url: &str, options: &str) -> Output {
    Test::new(backend, &format!("doctor {options}")).env("FENCELOCK_URL", url).output()
}

fn keys(server: &RedisServer) -> Vec<String> {
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    keys.iter().map(|key| key.text().unwrap().to_owned()).collect()
}

fn ends_within_5_s(server: &RedisServer) {
    for key in keys(server) {
        let left = server.command(&["PTTL", &key]);
        assert!(matches!(left, Reply::Int(-2 | 0..=5000)), "{key} stays for {left:?} ms");
    }
}

fn line<'a>(output: &'a Output, subject: &str) -> &'a str {
    let line = output.stdout.lines().find(|line| line.split_whitespace().nth(1) == Some(subject));
    line.unwrap_or_else(|| panic!("no {subject}: {}{}", output.stdout, output.stderr)).trim()
}

#[test]
fn a_trial_takes_a_lock_in_every_way_and_leaves_no_key() {
    let (Some(backend), Some(quorum)) = (TestBackend::redis(), TestBackend::quorum()) else { return };
    let resp2 = format!("{}&protocol=resp2&prefix=app:", backend.url());
    let urls = [backend.url().to_owned(), resp2, quorum.url().to_owned()];
    for url in urls {
        let output = doctor(&backend, &url, "");
        let trial = line(&output, "trial");
        assert!(output.status == 0 && trial.starts_with("ok"), "{url}: {trial}");
        for part in ["acquire", "queue", "completions", "shared locks", "semaphores", "break"] {
            assert!(trial.contains(part), "{url}: {trial}");
        }
    }
    assert_eq!(keys(backend.server()), [""; 0]);
    for node in quorum.servers() {
        assert_eq!(keys(node), ["fencelock:node"]);
    }
}

#[test]
fn a_trial_without_a_server_says_that_nothing_was_tried() {
    let backend = TestBackend::files();
    for url in ["redis://127.0.0.1:1", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"] {
        let output = doctor(&backend, url, "");
        assert!(
            output.status == 69 && line(&output, "trial").contains("not tried: no server answered"),
            "{}",
            output.stdout
        );
    }
}

#[test]
fn a_trial_takes_a_lock_on_each_master_of_a_cluster() {
    let Some(cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let backend = TestBackend::files();
    let before: Vec<_> = cluster.nodes.iter().map(written).collect();
    let output = doctor(&backend, &cluster.url(""), "");
    let trial = line(&output, "trial");
    assert!(output.status == 0 && trial.contains("each node: a lock was acquired"), "{trial}");
    for (node, before) in cluster.nodes.iter().zip(before) {
        assert!(written(node) > before && keys(node).is_empty(), "{}", node.port());
    }
    // A key that the user names is tried on its own node.
    let output = doctor(&backend, &cluster.url(""), "--key app:doctor");
    assert!(output.status == 0 && line(&output, "trial").starts_with("ok"), "{}", output.stdout);
}

/// The number of changes of the data.
fn written(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "persistence"]);
    let found = info.text().unwrap().lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    found.unwrap().trim().parse().unwrap()
}

#[test]
fn a_trial_leaves_no_file_and_creates_no_directory() {
    let backend = TestBackend::files();
    let output = Test::new(&backend, "doctor").output();
    assert!(line(&output, "trial").contains("not tried: the directory does not exist"), "{}", output.stdout);
    assert!(output.status == 0 && !backend.file("locks").exists());
    Test::new(&backend, "run k -- true").run();
    // Of a trial that was killed.
    let old = backend.file("locks/fencelock-doctor-00.lock");
    let file = fs::File::create(&old).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let output = Test::new(&backend, "doctor").output();
    assert!(output.status == 0 && line(&output, "trial").starts_with("ok"), "{}", output.stdout);
    let left: Vec<_> = fs::read_dir(backend.file("locks")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["k.lock"]);
}

#[test]
fn a_trial_fails_without_a_right_that_only_a_part_of_a_lock_needs() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    allow(server, &rights());
    let output = doctor(&backend, &url(server), "");
    assert!(output.status == 0 && line(&output, "trial").starts_with("ok"), "{}", output.stdout);
    for command in ["del", "pexpire", "pttl", "zadd", "zrem", "zscore", "zrange", "hset", "hdel", "set"] {
        allow(server, &format!("{} -{command}", rights()));
        let output = doctor(&backend, &url(server), "");
        let (trial, features) = (line(&output, "trial"), line(&output, "features"));
        assert!(output.status == 69 && trial.starts_with("FAILED"), "{command}: {trial}");
        // From Redis 7.2 on, and in Valkey, the server names it too, in other letters.
        assert!(trial.contains(&format!("({})", command.to_uppercase())), "{command}: {trial}");
        assert!(features.contains("Do not work:") && features.contains("cannot "), "{command}: {features}");
        ends_within_5_s(server);
    }
}

#[test]
fn advice_follows_the_cause() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    let advice = |url: &str| {
        let output = doctor(&backend, url, "");
        let (_, after) = output.stdout.split_once(line(&output, "tracking")).unwrap();
        after.lines().nth(1).unwrap().trim().to_owned()
    };
    for option in ["push=off", "protocol=resp2"] {
        assert_eq!(advice(&format!("{}&{option}", backend.url())), format!("-> remove {option} from the URL"));
    }
    allow(server, &rights().replace(" +client|tracking", ""));
    assert!(advice(&url(server)).contains("allow CLIENT TRACKING"), "{}", advice(&url(server)));
}

#[test]
fn a_run_that_could_not_release_does_not_start() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    allow(server, &format!("{} -del", rights()));
    for line in ["run k -- echo ran", "run -s k -- echo ran", "run k --also l -- echo ran"] {
        let run = Test::new(&backend, line).env("FENCELOCK_URL", &url(server)).output();
        assert!(run.status != 0 && run.stdout.is_empty() && run.stderr.contains("DEL"), "{line}: {}", run.stderr);
        assert_eq!(keys(server), [""; 0], "{line}");
    }
    // Who only looks needs no right to delete.
    Test::new(&backend, "status k").env("FENCELOCK_URL", &url(server)).ok();
}

#[test]
fn no_lock_is_tried_with_a_key_that_the_user_may_not_use_until_another_is_named() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    allow(server, &rights());
    let no_prefix = format!("redis://u:secret@127.0.0.1:{}", server.port());
    let output = doctor(&backend, &no_prefix, "");
    assert!(line(&output, "trial").contains("not tried") && output.stdout.contains("--key KEY"), "{}", output.stdout);
    assert_eq!(output.status, 0, "{}", output.stdout);
    let output = doctor(&backend, &no_prefix, "--key app:doctor");
    assert!(output.status == 0 && line(&output, "trial").starts_with("ok"), "{}", output.stdout);
    assert_eq!(keys(server), [""; 0]);
}

#[test]
fn a_named_key_that_is_in_use_is_not_tried() {
    let Some(backend) = TestBackend::redis() else { return };
    Test::new(&backend, "acquire --ttl 50s k").ok();
    Test::new(&backend, "run free -- true").ok();
    let before = (keys(backend.server()), written(backend.server()));
    for key in ["k", "free"] {
        let output = Test::new(&backend, "doctor --key").arg(key).output();
        assert!(line(&output, "trial").contains("not tried") && output.status == 0, "{key}: {}", output.stdout);
    }
    assert_eq!((keys(backend.server()), written(backend.server())), before);
}

#[test]
fn read_only_says_that_no_lock_was_tried() {
    for backend in TestBackend::every_kind() {
        let output = Test::new(&backend, "doctor --read-only").output();
        let trial = line(&output, "trial");
        assert!(output.status == 0 && trial.contains("not tried: --read-only"), "{trial}");
    }
}

#[test]
fn a_server_that_refuses_writes_is_named_without_a_write() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    let set = |name: &str, value: &str| {
        assert_eq!(server.command(&["CONFIG", "SET", name, value]), Reply::Simple("OK".into()), "{name}");
    };
    let check = |subject: &str, words: &str| {
        let output = Test::new(&backend, "doctor --read-only").output();
        let found = line(&output, subject);
        assert!(output.status == 69 && found.starts_with("FAILED") && found.contains(words), "{found}");
        Test::new(&backend, "run -n k -- true").says(69, &[]);
    };
    let is_fine = || Test::new(&backend, "doctor --read-only").ok();
    is_fine();
    set("maxmemory", "1");
    check("memory", "the memory is full");
    set("maxmemory", "0");
    set("min-replicas-to-write", "1");
    check("writes", "min-replicas-to-write");
    set("min-replicas-to-write", "0");
    // Its directory is gone, as a full disk would be in its way.
    let data = fs::read_link(format!("/proc/{}/cwd", server.pid().unwrap())).unwrap();
    fs::remove_dir_all(data).unwrap();
    server.command(&["BGSAVE"]);
    wait_until("the end of the snapshot", || {
        server.command(&["INFO", "persistence"]).text()?.contains("rdb_last_bgsave_status:err").then_some(())
    });
    is_fine();
    set("save", "3600 1000000");
    check("writes", "the last snapshot of the server failed");
    set("stop-writes-on-bgsave-error", "no");
    is_fine();
}

#[test]
fn without_publish_waiters_poll_and_doctor_says_so() {
    let Some(backend) = TestBackend::redis() else { return };
    allow(backend.server(), &format!("{} -publish", rights()));
    let output = doctor(&backend, &url(backend.server()), "");
    assert!(line(&output, "wake-ups").starts_with("note"), "{}", output.stdout);
    assert!(output.status == 0 && line(&output, "features").contains("Do not work: wake ups"), "{}", output.stdout);
}

#[test]
fn no_lock_is_tried_where_a_claim_would_write_a_marker() {
    let Some(backend) = TestBackend::redis() else { return };
    for options in ["quarantine=on", "quarantine=on&trust_empty=true"] {
        let output = doctor(&backend, &format!("{}&{options}", backend.url()), "");
        assert!(line(&output, "trial").contains("not tried"), "{options}: {}", output.stdout);
        assert_eq!(keys(backend.server()), [""; 0], "{options}");
    }
}

#[test]
fn a_replica_is_named_by_every_command_that_asks_it() {
    let Some(backend) = TestBackend::redis() else { return };
    let replica = RedisServer::start().unwrap();
    replica.follow(backend.server().port());
    Test::new(&backend, "status k").env("FENCELOCK_URL", &patient(&replica)).says(0, &["this server is a replica"]);
    let output = doctor(&backend, &patient(&replica), "");
    assert!(output.status == 69 && line(&output, "trial").contains("not tried"), "{}", output.stdout);
}

#[test]
fn a_cluster_with_a_silent_master_is_not_whole() {
    let Some(mut cluster) = ClusterNodes::start_or_skip(3, 0) else { return };
    let backend = TestBackend::files();
    let silent = cluster.nodes[2].port().to_string();
    cluster.nodes[2].kill();
    let output = doctor(&backend, &cluster.url(""), "");
    let found = line(&output, "cluster");
    assert!(output.status == 69 && found.starts_with("FAILED") && found.contains(&silent), "{found}");
    assert!(!output.stdout.contains("serve all"), "{}", output.stdout);
}

#[test]
fn a_lock_file_that_another_user_keeps_to_itself_is_a_failure_and_not_to_be_removed() {
    let name = "a_lock_file_that_another_user_keeps_to_itself_is_a_failure_and_not_to_be_removed";
    let Some(directory) = OpenDirectory::for_others(name) else { return };
    let locks = directory.0.path().join("locks");
    fs::create_dir(&locks).unwrap();
    fs::write(locks.join("k.lock"), "").unwrap();
    for (path, mode) in [(&locks, 0o1777), (&locks.join("k.lock"), 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let (code, text, stderr) = directory.shell(12_345, "", "exec ./fencelock doctor");
    assert_eq!(code, Some(69), "{text}{stderr}");
    assert!(text.contains("k.lock, user 0") && text.contains("do not remove it"), "{text}");
}
