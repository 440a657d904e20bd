//! Starts real servers, and checks the functions that other tests rely on.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_conformance::{Foreign, ForeignAttempt};
use fencelock_core::Key;
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_started_server_answers() {
    let Some(server) = redis_or_skip() else { return };
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    assert_eq!(server.command(&["GET", "k"]), text("v"));
    assert_eq!(server.command(&["INCR", "n"]), Reply::Int(1));
    assert_eq!(server.command(&["GET", "absent"]), Reply::Nil);
    assert_eq!(server.command(&["MGET", "k", "absent"]), Reply::Array(vec![text("v"), Reply::Nil]));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
}

#[test]
fn an_error_is_a_value() {
    let Some(server) = redis_or_skip() else { return };
    let reply = server.command(&["NO-SUCH-COMMAND"]);
    assert!(matches!(&reply, Reply::Error(why) if why.contains("unknown command")), "{reply:?}");
}

#[test]
fn servers_are_independent() {
    let (Some(one), Some(two)) = (redis_or_skip(), redis_or_skip()) else { return };
    one.command(&["SET", "k", "v"]);
    assert_eq!(two.command(&["GET", "k"]), Reply::Nil);
}

#[test]
fn eight_servers_start_concurrently() {
    let servers: Vec<_> = (0..8).map(|_| std::thread::spawn(redis_or_skip)).collect();
    for server in servers {
        let Some(server) = server.join().unwrap() else { return };
        assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
    }
}

#[test]
fn a_server_continues_after_the_thread_that_started_it() {
    let Some(server) = std::thread::spawn(redis_or_skip).join().unwrap() else { return };
    // The signal would be sent when the thread ends; give it time to arrive.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
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

#[test]
fn a_killed_server_restarts_on_its_port_without_data() {
    let Some(mut server) = redis_or_skip() else { return };
    let port = server.port();
    server.command(&["SET", "k", "v"]);
    server.kill();
    assert!(matches!(server.command(&["GET", "k"]), Reply::NoAnswer(_)));
    assert_eq!(server.pid(), None);
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["GET", "k"]), Reply::Nil);
}

#[test]
fn a_server_with_persistence_keeps_its_data_until_its_disk_is_emptied() {
    if redis_or_skip().is_none() {
        return;
    }
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = RedisServer::options().args(always).start().unwrap();
    server.command(&["SET", "k", "v"]);
    server.restart().unwrap();
    assert_eq!(server.command(&["GET", "k"]), text("v"));
    server.restart_empty().unwrap();
    assert_eq!(server.command(&["GET", "k"]), Reply::Nil);
}

#[test]
fn a_stopped_server_answers_when_it_continues() {
    let Some(server) = redis_or_skip() else { return };
    let mut client = server.connect().unwrap();
    server.freeze();
    client.send(&["PING"]).unwrap();
    let ping = std::thread::spawn(move || client.receive());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!ping.is_finished(), "it answered while it was stopped");
    server.thaw();
    assert_eq!(ping.join().unwrap(), Reply::Simple("PONG".into()));
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

#[test]
fn the_tls_certificate_is_signed_by_the_authority() {
    if redis_or_skip().is_none() {
        return;
    }
    let server = RedisServer::tls().unwrap();
    let ca = CertificateDer::from_pem_file(&server.tls_files().ca).unwrap();
    let mut trusted = RootCertStore::empty();
    trusted.add(ca).unwrap();
    let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    let port: u16 = server.tls_url().strip_prefix("rediss://127.0.0.1:").unwrap().parse().unwrap();
    for name in ["127.0.0.1", "localhost"] {
        let session = ClientConnection::new(Arc::new(config.clone()), name.try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(session, TcpStream::connect(("127.0.0.1", port)).unwrap());
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()), "the plain port is also open");
}

/// Runs another test of this file without a `redis-server` in `PATH`.
fn without_redis(required: Option<&str>) -> Output {
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", "an_error_is_a_value"]).env("PATH", "/nowhere");
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
    assert!(said.contains("SKIPPED an_error_is_a_value: there is no redis-server in PATH"), "{said}");
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
fn the_foreign_client_acquires_only_free_keys() {
    let Some(server) = redis_or_skip() else { return };
    let (foreign, key) = (server.foreign(), Key::new("k").unwrap());
    let minute = Some(Duration::from_secs(60));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(foreign.take(&key, "theirs", minute).await, ForeignAttempt::Took);
        assert_eq!(foreign.take(&key, "again", None).await, ForeignAttempt::Busy);
        assert_eq!(server.command(&["GET", "k"]), text("theirs"));
        assert!(matches!(server.command(&["PTTL", "k"]), Reply::Int(1..=60_000)));
        foreign.delete(&key).await;
        assert_eq!(foreign.take(&key, "no ttl", None).await, ForeignAttempt::Took);
        assert_eq!(server.command(&["PTTL", "k"]), Reply::Int(-1));
        foreign.put_foreign_value(&key).await;
        assert_eq!(server.command(&["TYPE", "k"]), Reply::Simple("hash".into()));
    });
}

#[test]
fn a_stopped_server_can_be_dropped() {
    let Some(server) = redis_or_skip() else { return };
    let pid = server.pid().unwrap();
    server.freeze();
    drop(server);
    assert!(!runs(pid));
}

#[test]
fn a_password_is_required_and_included_in_the_url() {
    if redis_or_skip().is_none() {
        return;
    }
    let server = RedisServer::options().password("s3cret").start().unwrap();
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    let refused = server.connect().unwrap().command(&["GET", "k"]);
    assert!(matches!(&refused, Reply::Error(why) if why.starts_with("NOAUTH")), "{refused:?}");
    assert_eq!(server.url(), format!("redis://:s3cret@127.0.0.1:{}", server.port()));
}

#[test]
fn an_acl_user_has_exactly_its_permissions() {
    if redis_or_skip().is_none() {
        return;
    }
    let server = RedisServer::options().args(["--user", "reader", "on", ">pw", "~*", "+get"]).start().unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(client.command(&["AUTH", "reader", "pw"]), ok());
    assert_eq!(client.command(&["GET", "k"]), Reply::Nil);
    let refused = client.command(&["SET", "k", "v"]);
    assert!(matches!(&refused, Reply::Error(why) if why.starts_with("NOPERM")), "{refused:?}");
}

#[test]
fn a_failed_start_reports_the_reason() {
    if redis_or_skip().is_none() {
        return;
    }
    let error = RedisServer::options().args(["--no-such-option", "1"]).start().unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
}
