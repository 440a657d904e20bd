//! The servers, a fencelock client, and one peer.

use fencelock::{Client, Guard};
use fencelock_interop::{Peer, Preset, Process, Servers};
use fencelock_testkit::{RedisServer, Reply, redlock_url};
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub(crate) const KEY: &str = "order:42";
/// Longer than any test, so an earlier end is not an expiry.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The timeout of expected events on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);
/// The timeout of a wake-up. `docs/en/redis.md` states one second if all messages are lost; holds last much longer.
pub(crate) const AWAKE: Duration = Duration::from_secs(20);

pub(crate) struct TestEnvironment {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) client: Client,
    preset: Option<Preset>,
}

impl TestEnvironment {
    pub(crate) async fn of(servers: Servers, preset: Option<Preset>) -> Self {
        let many = if servers == Servers::Five { 5 } else { 1 };
        let servers: Vec<_> = (0..many).map(|_| RedisServer::start().expect("a server")).collect();
        let client = Client::connect(&url(&servers, preset)).await.expect("a client");
        Self { servers, client, preset }
    }

    /// The key on the servers.
    pub(crate) fn wire(&self) -> String {
        format!("{}{KEY}", self.preset.map_or("", |preset| preset.prefix))
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(RedisServer::port).collect()
    }

    pub(crate) async fn peer(&self, peer: &Peer) -> Process {
        let command = peer.command().expect("a peer that is installed");
        Process::start(command, &self.ports()).await.unwrap_or_else(|error| panic!("{}: {error}", peer.name))
    }

    /// fencelock as a separate process.
    pub(crate) async fn sibling(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock-peer"));
        command.args(self.preset.map(|preset| format!("compat={}", preset.compat)));
        Process::start(command, &self.ports()).await.expect("fencelock-peer")
    }

    /// One attempt of the fencelock client.
    pub(crate) async fn attempt(&self) -> Option<Guard> {
        self.client.lock(KEY).ttl(LONG).try_acquire().await.expect("an answer")
    }

    pub(crate) async fn held(&self) -> Guard {
        self.attempt().await.expect("a free lock")
    }

    /// Deletes the lock without checking its owner.
    pub(crate) async fn deleted_by(&self, peer: &mut Process) {
        assert_eq!(request(peer, &format!("delete {}", self.wire())).await, "deleted");
    }

    /// A fencelock task that waits; the key was reported as busy when this returns.
    pub(crate) async fn waiter(&self) -> JoinHandle<Guard> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let lock = self.client.lock(KEY).wait(TIMEOUT).on_wait(move |_| _ = sender.send(()));
        let waiter = tokio::spawn(async move { lock.acquire().await.expect("the lock") });
        receiver.recv().await.expect("a key that is busy");
        waiter
    }

    /// Waits until the key is free on all servers, for less than the TTL.
    pub(crate) async fn is_free(&self) {
        while self.copies() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The number of servers that have the key.
    pub(crate) fn copies(&self) -> usize {
        let there = |server: &&RedisServer| matches!(server.command(&["EXISTS", &self.wire()]), Reply::Int(1));
        self.servers.iter().filter(there).count()
    }
}

fn url(servers: &[RedisServer], preset: Option<Preset>) -> String {
    let compat = preset.map(|preset| format!("compat={}", preset.compat)).unwrap_or_default();
    match servers {
        [server] => format!("{}?timeout=10000&{compat}", server.url()),
        servers => redlock_url(servers, &format!("trust_empty=true&{compat}")),
    }
}

/// The reply of a peer, which must not be an error.
pub(crate) async fn request(peer: &mut Process, line: &str) -> String {
    let reply = peer.request(line).await.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(!reply.starts_with("error"), "{line}: {reply}");
    reply
}

pub(crate) async fn attempt(peer: &mut Process, ttl: Duration) -> String {
    request(peer, &format!("try {KEY} {}", ttl.as_millis())).await
}

/// Releases the lock, and checks the reported result, if any.
pub(crate) async fn unlock(peer: &mut Process, expected: &str) {
    let reply = request(peer, "unlock").await;
    assert!(reply == expected || reply == "done", "{expected}, not {reply}");
}

pub(crate) async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    within(TIMEOUT, what, event).await
}

pub(crate) async fn within<T>(span: Duration, what: &str, event: impl Future<Output = T>) -> T {
    timeout(span, event).await.unwrap_or_else(|_| panic!("{what}: not within {span:?}"))
}

/// A file that contains zero.
pub(crate) fn zero(dir: &Path) -> String {
    let file = dir.join("count");
    std::fs::write(&file, "0").expect("a file that can be written");
    file.display().to_string()
}
