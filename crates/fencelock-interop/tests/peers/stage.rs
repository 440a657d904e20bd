//! Servers, our client of them, and one peer.

use fencelock::{Client, Guard};
use fencelock_conformance::{RedisServer, Reply};
use fencelock_interop::{Peer, Places, Process};
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const KEY: &str = "order:42";
/// Longer than any test: what ends sooner has not ended by itself.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// For what must happen; a loaded machine may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Stage {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) client: Client,
}

impl Stage {
    pub(crate) async fn of(places: Places) -> Self {
        let many = if places == Places::Five { 5 } else { 1 };
        let servers: Vec<_> = (0..many).map(|_| RedisServer::start().expect("a server")).collect();
        let client = Client::connect(&url(&servers)).await.expect("a client");
        Self { servers, client }
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(RedisServer::port).collect()
    }

    pub(crate) async fn peer(&self, peer: &Peer) -> Process {
        let command = peer.command().expect("a peer that is installed");
        Process::start(command, &self.ports()).await.unwrap_or_else(|error| panic!("{}: {error}", peer.name))
    }

    /// Our own program, as one more process.
    pub(crate) async fn sibling(&self) -> Process {
        let command = Command::new(env!("CARGO_BIN_EXE_fencelock-peer"));
        Process::start(command, &self.ports()).await.expect("fencelock-peer")
    }

    /// One attempt of ours.
    pub(crate) async fn attempt(&self) -> Option<Guard> {
        self.client.lock(KEY).ttl(LONG).try_acquire().await.expect("an answer")
    }

    pub(crate) async fn held(&self) -> Guard {
        self.attempt().await.expect("a free lock")
    }

    /// A waiter of ours, which has been told that the key is busy when this returns.
    pub(crate) async fn waiter(&self) -> JoinHandle<Guard> {
        let (told, mut hears) = mpsc::unbounded_channel();
        let lock = self.client.lock(KEY).wait(PATIENCE).on_wait(move |_| _ = told.send(()));
        let waiter = tokio::spawn(async move { lock.acquire().await.expect("its turn") });
        hears.recv().await.expect("a key that is busy");
        waiter
    }

    /// On how many servers there is something under the key.
    pub(crate) fn copies(&self) -> usize {
        let there = |server: &&RedisServer| matches!(server.command(&["EXISTS", KEY]), Reply::Int(1));
        self.servers.iter().filter(there).count()
    }
}

fn url(servers: &[RedisServer]) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    match hosts.as_slice() {
        [host] => format!("redis://{host}"),
        hosts => format!("redlock://{}?trust_empty=true", hosts.join(",")),
    }
}

/// What a peer answers, which must not be an error.
pub(crate) async fn ask(peer: &mut Process, line: &str) -> String {
    let said = peer.ask(line).await.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(!said.starts_with("error"), "{line}: {said}");
    said
}

pub(crate) async fn attempt(peer: &mut Process, ttl: Duration) -> String {
    ask(peer, &format!("try {KEY} {}", ttl.as_millis())).await
}

/// Gives it back, and checks what the library says of it if it says anything.
pub(crate) async fn unlock(peer: &mut Process, expected: &str) {
    let said = ask(peer, "unlock").await;
    assert!(said == expected || said == "done", "{expected}, not {said}");
}

pub(crate) async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// A file with a zero in it, for counting.
pub(crate) fn zero(dir: &Path) -> String {
    let file = dir.join("count");
    std::fs::write(&file, "0").expect("a file that can be written");
    file.display().to_string()
}
