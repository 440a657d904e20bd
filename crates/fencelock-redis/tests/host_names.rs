//! A host name whose addresses change, or with an unreachable address.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::connect;
use fencelock_core::{Acquire, Backend};
use fencelock_testkit::{RedisServer, Resolver, TestProcess, claim, redis_or_skip};
use std::io::{BufRead, stdin};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const SILENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));

/// Forwards connections to an address until it is dropped.
struct Forwarding {
    _tasks: JoinSet<()>,
}

impl Forwarding {
    /// All addresses have the same port. It is chosen if it is 0.
    async fn start(address: IpAddr, port: u16, server: &RedisServer) -> (Self, u16) {
        let listener = TcpListener::bind((address, port)).await.unwrap();
        let (port, server) = (listener.local_addr().unwrap().port(), server.port());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        (Self { _tasks: tasks }, port)
    }
}

/// A process that acquires locks on a server whose name it resolves.
struct Locker {
    process: TestProcess,
    resolver: Resolver,
    _dir: TempDir,
}

impl Locker {
    fn start(addresses: &[IpAddr], port: u16) -> Self {
        Self::with_timeout(addresses, port, Duration::from_secs(2))
    }

    fn with_timeout(addresses: &[IpAddr], port: u16, limit: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let resolver = Resolver::new(dir.path()).unwrap();
        resolver.set(addresses).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "locks_on_request", "--ignored", "--nocapture"])
            .env("FENCELOCK_TEST_URL", format!("redis://{}:{port}?timeout={}", Resolver::NAME, limit.as_millis()));
        resolver.apply_to(&mut command);
        let process = TestProcess::spawn(command).unwrap();
        Self { process, resolver, _dir: dir }
    }

    /// The duration of an acquisition and a release.
    async fn lock(&mut self) -> Duration {
        self.process.send("lock");
        let answered = timeout(Duration::from_secs(30), self.process.receive_async(">locked ")).await;
        Duration::from_millis(answered.expect("in time").expect("an answer").parse().unwrap())
    }
}

#[tokio::test]
#[ignore = "a part of the tests below"]
async fn locks_on_request() {
    let mut backend: Option<Arc<dyn Backend>> = None;
    let url = std::env::var("FENCELOCK_TEST_URL").unwrap();
    for _ in stdin().lock().lines().map_while(Result::ok) {
        let began = Instant::now();
        loop {
            if backend.is_none() {
                backend = connect(&url).await.ok();
            }
            let claim = claim("k", Duration::from_secs(10));
            if let Some(backend) = &backend
                && matches!(backend.acquire(&claim).await.answer, Ok(Acquire::Granted { .. }))
                && backend.release(&claim.key, &claim.holder.id).await.is_ok()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!(">locked {}", began.elapsed().as_millis());
    }
}

fn has_locked(server: &RedisServer) -> bool {
    server.command(&["GET", "fencelock:{k}:fence"]).text().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_resolved_again_for_each_connection() {
    let Some(first) = redis_or_skip() else { return };
    let second = RedisServer::start().unwrap();
    let (forwarding, port) = Forwarding::start(FIRST, 0, &first).await;
    let mut locker = Locker::start(&[FIRST], port);
    locker.lock().await;
    assert!(has_locked(&first) && !has_locked(&second));
    let _there = Forwarding::start(SECOND, port, &second).await;
    locker.resolver.set(&[SECOND]).unwrap();
    drop(forwarding);
    // The connections to the first server may end a moment later.
    let began = Instant::now();
    while !has_locked(&second) {
        assert!(began.elapsed() < Duration::from_secs(30), "it stays with the first server");
        locker.lock().await;
    }
}

/// The old master keeps its connections, and its address accepts new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_a_name_to_the_new_master() {
    let Some(first) = redis_or_skip() else { return };
    let second = RedisServer::start().unwrap();
    let (_here, port) = Forwarding::start(FIRST, 0, &first).await;
    let _there = Forwarding::start(SECOND, port, &second).await;
    let mut locker = Locker::start(&[FIRST], port);
    locker.lock().await;
    first.command(&["REPLICAOF", "127.0.0.1", "1"]);
    locker.resolver.set(&[SECOND]).unwrap();
    locker.lock().await;
    assert!(has_locked(&second));
}

/// Its queue of connections is full, so it drops all requests to connect.
async fn silent_address(port: u16) -> Vec<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(SILENT, port)).unwrap();
    let listener = Box::leak(Box::new(socket.listen(1).unwrap()));
    let address = listener.local_addr().unwrap();
    let mut connections = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        connections.push(connected.unwrap());
        assert!(connections.len() < 100, "it accepts connections");
    }
    connections
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_address_does_not_delay_a_connection() {
    let Some(server) = redis_or_skip() else { return };
    let (_there, port) = Forwarding::start(SECOND, 0, &server).await;
    let _full = silent_address(port).await;
    let limit = Duration::from_secs(15);
    let mut locker = Locker::with_timeout(&[SILENT, SECOND], port, limit);
    let took = locker.lock().await;
    assert!(took < limit, "{took:?}");
}
