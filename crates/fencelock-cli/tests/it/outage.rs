//! A server that is away when the wait begins is waited for as one that goes away later.

use crate::backend::TestBackend;
use crate::running::{hold, wait_until};
use crate::test::Test;
use fencelock_testkit::{Proxy, Reply, Then};
use std::net::TcpListener;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn a_server_that_starts_later_is_waited_for() {
    let Some(mut backend) = TestBackend::redis() else { return };
    backend.redis.as_mut().unwrap().kill();
    let waits = [
        ("run -w 60 k -- echo done", "done\n"),
        ("run k -- echo done", "done\n"),
        ("wait -w 60 j", ""),
        ("acquire -w 60 --ttl 60s i", "*\n"),
    ];
    let waiters = waits.map(|(line, answer)| (Test::new(&backend, line).start(), answer));
    for (waiter, _) in &waiters {
        waiter.wait_for_error("fencelock: waiting for a reply: redis://127.0.0.1:");
    }
    backend.redis.as_mut().unwrap().restart().unwrap();
    for (waiter, answer) in waiters {
        let output = waiter.end();
        assert_eq!(output.status, 0, "{}", output.stderr);
        assert!(crate::test::matches(answer, &output.stdout), "{:?}", output.stdout);
    }
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
fn the_wait_for_a_server_has_the_limit_of_the_wait() {
    let backend = TestBackend::files();
    // The TTL is shorter, so that no limit but the one that was set ends it.
    for line in ["run --ttl 50ms -w 0.5 k -- true", "wait -w 0.5 k", "acquire --ttl 50ms -w 0.5 k"] {
        let begun = Instant::now();
        Test::new(&backend, line).env("FENCELOCK_URL", "redis://127.0.0.1:1").says(69, &[" cannot be reached after "]);
        assert!(begun.elapsed() >= Duration::from_millis(500), "{line}");
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
    let _holder = hold(&backend, "--ttl 60s k");
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
    for (line, said) in [
        ("run -n k -- true", "fencelock: the backend of the lock on k cannot be reached"),
        ("wait -w 0 k", " cannot be reached"),
        ("acquire -n k", " cannot be reached"),
    ] {
        let said = Test::new(&backend, line).env("FENCELOCK_URL", "redis://127.0.0.1:1").says(69, &[said]);
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
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
