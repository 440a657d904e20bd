//! Starts real servers, and checks the functions that other tests rely on.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_testkit::{RedisServer, redis_or_skip};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_dropped_server_is_killed_also_after_a_panic() {
    let Some(server) = redis_or_skip() else { return };
    let (pid, port) = (server.pid().unwrap(), server.port());
    let panicked = std::thread::spawn(move || {
        let _server = server;
        panic!("a test that fails");
    });
    assert!(panicked.join().is_err());
    assert!(!runs(pid));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Starts this test in a separate process, and kills that process.
#[test]
fn a_server_dies_with_a_test_process_that_is_killed() {
    const INNER: &str = "FENCELOCK_TEST_INNER";
    if std::env::var_os(INNER).is_some() {
        let server = RedisServer::start().unwrap();
        println!("pid={}.", server.pid().unwrap());
        std::thread::sleep(Duration::from_secs(600));
    }
    if redis_or_skip().is_none() {
        return;
    }
    if !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success()) {
        writeln!(
            std::io::stderr(),
            "SKIPPED: without setpriv of util-linux, the server does not end with this process"
        )
        .unwrap();
        return;
    }
    // A killed process leaves its directories, which are inside this one.
    let tmp = tempfile::tempdir().unwrap();
    let mut inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_dies_with_a_test_process_that_is_killed", "--nocapture"])
        .env(INNER, "1")
        .env("TMPDIR", tmp.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(inner.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("pid=")?.1.to_owned()));
    let pid = said.unwrap().trim_end_matches('.').parse().unwrap();
    assert!(runs(pid));
    inner.kill().unwrap();
    inner.wait().unwrap();
    let died = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !runs(pid)
    });
    assert!(died, "redis-server {pid} still runs 10 s after the process that started it");
}

/// Runs another test of this file without a `redis-server` in `PATH`.
fn without_redis(required: Option<&str>) -> Output {
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", "a_stopped_server_can_be_dropped"]).env("PATH", "/nowhere");
    for name in ["CI", "FENCELOCK_REQUIRE_REDIS"] {
        inner.env_remove(name);
    }
    inner.envs(required.map(|name| (name, "1"))).output().unwrap()
}

#[test]
fn a_missing_server_skips_the_test_with_a_message() {
    let output = without_redis(None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("SKIPPED a_stopped_server_can_be_dropped: there is no redis-server in PATH"), "{said}");
}

#[test]
fn a_missing_server_fails_the_test_if_it_is_required() {
    for name in ["CI", "FENCELOCK_REQUIRE_REDIS"] {
        let output = without_redis(Some(name));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("{name} is set, so this is a failure")), "{said}");
    }
}

#[test]
fn a_stopped_server_can_be_dropped() {
    let Some(server) = redis_or_skip() else { return };
    let pid = server.pid().unwrap();
    server.freeze();
    drop(server);
    assert!(!runs(pid));
}
