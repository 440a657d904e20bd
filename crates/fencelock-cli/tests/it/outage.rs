//! A server that is away when the wait begins is waited for as one that goes away later.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::Test;
use fencelock_testkit::{Proxy, RedisServer, Reply, Then, redis_or_skip, redlock_url, servers_or_skip};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;
use tokio::time::Instant;

/// Every way to wait, with what it prints when it was worth it.
const WAITS: [(&str, &str); 4] = [
    ("run -w 60 k -- echo done", "done\n"),
    ("run k -- echo done", "done\n"),
    ("wait -w 60 j", ""),
    ("acquire -w 60 --ttl 60s i", "*\n"),
];

fn all_waits(backend: &TestBackend) -> Vec<(Running, &'static str)> {
    WAITS.iter().map(|(line, answer)| (Test::new(backend, line).start(), *answer)).collect()
}

fn all_end_well(waiters: Vec<(Running, &str)>) {
    for (waiter, answer) in waiters {
        let output = waiter.end();
        assert_eq!(output.status, 0, "{}", output.stderr);
        assert!(crate::test::matches(answer, &output.stdout), "{:?}", output.stdout);
    }
}

#[test]
fn a_server_that_starts_later_is_waited_for() {
    let Some(mut backend) = TestBackend::redis() else { return };
    let server = backend.redis.as_mut().unwrap();
    server.kill();
    let waiters = all_waits(&backend);
    for (waiter, _) in &waiters {
        waiter.wait_for_error("fencelock: waiting for a reply: redis://127.0.0.1:");
    }
    backend.redis.as_mut().unwrap().restart().unwrap();
    all_end_well(waiters);
}

#[test]
fn a_server_that_is_frozen_at_the_start_is_waited_for() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().freeze();
    let waiters = all_waits(&backend);
    for (waiter, _) in &waiters {
        waiter.wait_for_error("no answer in time");
    }
    backend.server().thaw();
    all_end_well(waiters);
}

#[test]
fn a_frozen_server_costs_a_single_try_one_timeout() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().freeze();
    let url = format!("{}?timeout=3000", backend.server().url());
    let begun = Instant::now();
    let lines = ["run -n k -- true", "run -w 0 k -- true", "wait -w 0 k", "status k"];
    let tries: Vec<_> = lines.map(|line| Test::new(&backend, line).env("FENCELOCK_URL", &url).start()).into();
    for (line, tried) in lines.iter().zip(tries) {
        let output = tried.end();
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        assert!(begun.elapsed() < Duration::from_secs(6), "{line}: not two timeouts: {:?}", begun.elapsed());
    }
    backend.server().thaw();
}

#[test]
fn a_server_that_is_still_loading_is_waited_for() {
    let Some(mut backend) = TestBackend::redis() else { return };
    let server = backend.redis.as_mut().unwrap();
    server.kill();
    let loading = Loading::at(server.port());
    let waiters = all_waits(&backend);
    for (waiter, _) in &waiters {
        waiter.wait_for_error("still loading its data");
    }
    drop(loading);
    backend.redis.as_mut().unwrap().restart().unwrap();
    all_end_well(waiters);
}

#[test]
fn a_quorum_without_a_majority_at_the_start_is_waited_for() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), redlock_url(&servers, "trust_empty=true&node_timeout=5000"));
    // A new list would wait for the third server too.
    Test::new(&backend, "init").env("FENCELOCK_URL", &url).ok();
    servers[1..].iter_mut().for_each(RedisServer::kill);
    let waiter = Test::new(&backend, "run k -- true").env("FENCELOCK_URL", &url).start();
    waiter.wait_for_error("fencelock: waiting for a reply: redis://127.0.0.1:");
    servers[1].restart().unwrap();
    let output = waiter.end();
    assert_eq!(output.status, 0, "{}", output.stderr);
}

#[test]
fn a_server_named_twice_never_becomes_a_quorum() {
    let Some(server) = redis_or_skip() else { return };
    let port = server.port();
    let url = format!("redlock://127.0.0.1:{port},localhost:{port}?trust_empty=true");
    for line in ["run k -- true", "wait k", "acquire k"] {
        let output = Test::new(&TestBackend::files(), line).env("FENCELOCK_URL", &url).output();
        assert_eq!(output.status, 64, "{line}: {}", output.stderr);
        assert!(output.stderr.contains("are the same server"), "{line}: {}", output.stderr);
    }
}

#[test]
fn the_wait_for_a_server_has_the_limit_of_the_wait() {
    let backend = TestBackend::files();
    // The TTL is shorter, so that no limit but the one that was set ends it.
    for line in ["run --ttl 50ms -w 0.5 k -- true", "wait -w 0.5 k", "acquire --ttl 50ms -w 0.5 k"] {
        let begun = Instant::now();
        let output = Test::new(&backend, line).env("FENCELOCK_URL", "redis://127.0.0.1:1").output();
        assert!(begun.elapsed() >= Duration::from_millis(500), "{line}: {}", output.stderr);
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        assert!(output.stderr.contains(" cannot be reached after "), "{line}: {}", output.stderr);
    }
}

#[test]
fn without_a_limit_a_wait_for_a_server_that_does_not_answer_ends_after_the_ttl() {
    const CLAIMS: [&str; 6] = [
        "run --ttl 2s a -- true",
        "run --ttl 2s b --also c -- true",
        "run --ttl 2s --slots 2 d -- true",
        "run --ttl 2s --once-per 1h e -- true",
        "acquire --ttl 2s f",
        "elect --ttl 2s g -- true",
    ];
    let Some(backend) = TestBackend::redis() else { return };
    let server = backend.server();
    server.freeze();
    let begun = Instant::now();
    let start = |url: &str, line| Test::new(&backend, line).env("FENCELOCK_URL", url).start();
    let waits = [server.url(), "redis://127.0.0.1:1".to_owned()].map(|url| {
        let claims = CLAIMS.map(|line| (line, Duration::from_secs(2), start(&url, line)));
        claims.into_iter().chain([("wait h", Duration::from_secs(30), start(&url, "wait h"))])
    });
    for (line, silence, wait) in waits.into_iter().flatten() {
        let output = wait.end();
        assert!(begun.elapsed() >= silence, "{line}: {}", output.stderr);
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        assert!(output.stderr.contains(" cannot be reached after "), "{line}: {}", output.stderr);
    }
    server.thaw();
}

#[test]
fn a_wait_that_ends_before_the_last_reply_names_the_last_holder() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut holder = Test::script(&backend, "--ttl 60s k", "echo ready; read _").start();
    holder.wait_for("ready");
    // Only the wait ends a request.
    let url = format!("{}?timeout=60000", backend.server().url());
    let waiter = Test::new(&backend, "wait -w 4 k").env("FENCELOCK_URL", &url).start();
    waiter.wait_for_error("fencelock: waiting for k, held by ");
    backend.server().freeze();
    let output = waiter.end();
    backend.server().thaw();
    assert_eq!(output.status, 75, "{}", output.stderr);
    assert!(output.stderr.contains("fencelock: k is held by "), "{}", output.stderr);
}

#[test]
fn who_does_not_wait_is_answered_at_once() {
    let backend = TestBackend::files();
    for line in ["run -n k -- true", "wait -w 0 k", "acquire -n k"] {
        let output = Test::new(&backend, line).env("FENCELOCK_URL", "redis://127.0.0.1:1").output();
        assert_eq!(output.status, 69, "{line}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{line}: {}", output.stderr);
        assert!(output.stderr.contains(" cannot be reached"), "{line}: {}", output.stderr);
    }
}

#[test]
fn quiet_commands_report_no_outage() {
    let Some(mut backend) = TestBackend::redis() else { return };
    backend.redis.as_mut().unwrap().kill();
    let seen = TcpListener::bind(("127.0.0.1", backend.server().port())).unwrap();
    let waiter = Test::new(&backend, "run -q k -- true").start();
    // The waiter has connected, and the connection was closed.
    drop(seen.accept().unwrap());
    drop(seen);
    backend.redis.as_mut().unwrap().restart().unwrap();
    let output = waiter.end();
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
}

/// A server that replies "still loading" to all commands.
struct Loading {
    ended: Arc<AtomicBool>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

impl Loading {
    fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ended);
        let thread = spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // Its thread ends with its client.
                spawn(move || answer(client));
            }
        });
        Self { ended, port, thread: Some(thread) }
    }
}

fn answer(mut client: TcpStream) {
    let mut request = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut request) {
        // Several at once have an answer each.
        for _ in request[..length].split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"*")) {
            if client.write_all(b"-LOADING Redis is loading the dataset in memory\r\n").is_err() {
                return;
            }
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_claim_whose_reply_is_lost_is_released_although_nothing_can_be_reached_any_more() {
    let Some(backend) = TestBackend::redis() else { return };
    // The server has the scripts.
    Test::new(&backend, "run k -- true").run();
    let (proxy, silent) = (Proxy::to(backend.server().port()).unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    proxy.drop_reply_to("fencelock:{k}:", Then::StaySilent);
    let run = Test::new(&backend, "run -n --ttl 60s k -- true")
        .env("FENCELOCK_URL", &format!("{}?timeout=3000", proxy.url()));
    let run = run.start();
    wait_until("the claim", || (proxy.dropped_replies() == 1).then_some(()));
    proxy.forward_to(silent.local_addr().unwrap().port());
    assert_eq!(backend.server().command(&["EXISTS", "k"]), Reply::Int(1));
    assert_eq!(run.end().status, 69);
    wait_until("the release", || (backend.server().command(&["EXISTS", "k"]) == Reply::Int(0)).then_some(()));
}
