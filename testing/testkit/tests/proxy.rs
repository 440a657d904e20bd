//! The proxy simulates exactly the requested faults.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_testkit::{Proxy, RedisServer, Reply, RespClient, Then, redis_or_skip};
use std::time::{Duration, Instant};

fn connect(proxy: &Proxy) -> RespClient {
    RespClient::connect(proxy.port()).unwrap()
}

fn pair() -> Option<(RedisServer, Proxy)> {
    let server = redis_or_skip()?;
    let proxy = Proxy::to(server.port()).unwrap();
    Some((server, proxy))
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

fn text(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

fn eventually(fact: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        fact()
    })
}

#[test]
fn a_black_hole_drops_requests() {
    let Some((server, proxy)) = pair() else { return };
    let mut old = connect(&proxy);
    assert_eq!(old.command(&["SET", "k", "before"]), Reply::Simple("OK".into()));
    proxy.black_hole();
    let mut new = connect(&proxy);
    for client in [&mut old, &mut new] {
        client.set_reply_timeout(Duration::from_millis(200)).unwrap();
        assert!(matches!(client.command(&["SET", "k", "during"]), Reply::NoAnswer(_)));
    }
    assert_eq!(server.command(&["GET", "k"]), text("before"));
    proxy.forward();
    assert!(eventually(|| proxy.connections() == 0), "connections that lost bytes are closed");
    assert_eq!(connect(&proxy).command(&["GET", "k"]), text("before"), "the dropped request is lost");
}

#[test]
fn a_black_hole_of_open_connections_forwards_new_ones() {
    let Some((server, proxy)) = pair() else { return };
    let mut old = connect(&proxy);
    assert_eq!(old.command(&["SET", "k", "before"]), Reply::Simple("OK".into()));
    proxy.black_hole_open();
    assert_eq!(connect(&proxy).command(&["GET", "k"]), text("before"));
    old.set_reply_timeout(Duration::from_millis(200)).unwrap();
    assert!(matches!(old.command(&["SET", "k", "lost"]), Reply::NoAnswer(_)));
    assert_eq!(server.command(&["GET", "k"]), text("before"));
    proxy.forward();
    assert!(eventually(|| proxy.connections() == 0), "connections that lost bytes are closed");
}

#[test]
fn a_delay_adds_latency_and_does_not_limit_the_rate() {
    let Some((_server, proxy)) = pair() else { return };
    let mut client = connect(&proxy);
    assert_eq!(client.command(&["PING"]), pong());
    proxy.delay(Duration::from_millis(150), Duration::from_millis(150));
    #[expect(clippy::disallowed_methods, reason = "no lock here")]
    let begun = Instant::now();
    for _ in 0..100 {
        client.send(&["PING"]).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(client.receive(), pong());
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}: one after the other they would take 30 s");
}

#[test]
fn a_silent_connection_forwards_requests() {
    let Some((server, proxy)) = pair() else { return };
    let mut client = connect(&proxy);
    client.set_reply_timeout(Duration::from_millis(200)).unwrap();
    proxy.drop_next_reply(Then::StaySilent);
    assert!(matches!(client.command(&["SET", "k", "1"]), Reply::NoAnswer(_)));
    assert!(matches!(client.command(&["SET", "k", "2"]), Reply::NoAnswer(_)));
    assert!(eventually(|| server.command(&["GET", "k"]) == text("2")));
    assert_eq!(proxy.connections(), 1);
    assert_eq!(connect(&proxy).command(&["PING"]), pong(), "another connection is not silent");
}

#[test]
fn only_the_reply_to_the_named_request_is_dropped() {
    let Some((server, proxy)) = pair() else { return };
    let mut client = connect(&proxy);
    proxy.drop_reply_to("the-one", Then::Close);
    assert_eq!(client.command(&["SET", "other", "v"]), Reply::Simple("OK".into()));
    assert_eq!(proxy.dropped_replies(), 0);
    assert!(matches!(client.command(&["SET", "the-one", "v"]), Reply::NoAnswer(_)));
    let waiting = proxy.until_dropped(1);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(waiting);
    assert_eq!(server.command(&["GET", "the-one"]), text("v"));
}

#[test]
fn a_reply_that_its_client_does_not_wait_for_counts_as_dropped() {
    let Some((server, proxy)) = pair() else { return };
    let mut client = std::net::TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    proxy.drop_reply_to("the-one", Then::StaySilent);
    server.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    std::io::Write::write_all(&mut client, b"*2\r\n$3\r\nGET\r\n$7\r\nthe-one\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(client);
    let dropped = async { tokio::time::timeout(Duration::from_secs(20), proxy.until_dropped(1)).await };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(runtime.block_on(dropped).is_ok(), "the connection is over, so no reply follows");
}

#[test]
fn a_repeated_request_is_executed_again() {
    let Some((server, proxy)) = pair() else { return };
    let mut client = connect(&proxy);
    assert!(!proxy.repeat_last("EVALSHA", Duration::ZERO), "no request has passed yet");
    let digest = client.command(&["SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])"]);
    assert_eq!(client.command(&["EVALSHA", digest.text().unwrap(), "1", "n"]), Reply::Int(1));
    assert_eq!(client.command(&["GET", "n"]), text("1"));
    assert!(proxy.repeat_last("EVALSHA", Duration::from_millis(20)));
    assert!(eventually(|| proxy.repeated() == 1));
    assert_eq!(server.command(&["GET", "n"]), text("2"));
    assert_eq!(client.command(&["GET", "n"]), text("2"), "the reply was dropped");
}

#[test]
fn a_single_request_of_a_pipeline_is_repeated() {
    let Some((server, proxy)) = pair() else { return };
    let mut client = connect(&proxy);
    client.send(&["INCR", "a"]).unwrap();
    client.send(&["INCR", "b"]).unwrap();
    assert_eq!([client.receive(), client.receive()], [Reply::Int(1), Reply::Int(1)]);
    assert!(proxy.repeat_last("a\r\n", Duration::ZERO));
    assert!(eventually(|| proxy.repeated() == 1));
    assert_eq!([server.command(&["GET", "a"]), server.command(&["GET", "b"])], [text("2"), text("1")]);
}
