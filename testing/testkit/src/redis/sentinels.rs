use super::foreign::RedisForeign;
use super::quorum::servers_or_skip;
use super::server::program;
use super::spawner;
use crate::{RedisServer, Reply, freezing, port};
use std::fs::{self, File};
use std::io;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// The name of the master.
const MASTER: &str = "mymaster";
/// The number of sentinels that must agree that the master is down.
const QUORUM: u32 = 2;
/// After this time without an answer, a sentinel considers the master to be down.
const DOWN_AFTER: &str = "1000";
/// A busy machine may take seconds for each step of a fail-over.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A master with replicas, and sentinels that fail it over.
#[derive(Debug)]
pub struct Sentinels {
    /// The servers; the first one is the first master.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    _dir: TempDir,
    port: u16,
    password: Option<String>,
    child: Child,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinel {
    /// Another process may take the port before the sentinel binds it.
    fn start(master: u16, password: Option<&str>) -> io::Result<Self> {
        for _ in 0..8 {
            let mut sentinel = Self::launch(master, password)?;
            let begun = Instant::now();
            while sentinel.child.try_wait()?.is_none() && begun.elapsed() < PATIENCE {
                if sentinel.field("port").is_some() {
                    return Ok(sentinel);
                }
                sleep(PAUSE);
            }
        }
        Err(io::Error::other("no sentinel started"))
    }

    fn launch(master: u16, password: Option<&str>) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("fencelock-sentinel-").tempdir()?;
        let (port, file) = (port::free()?, dir.path().join("sentinel.conf"));
        // A sentinel writes what it learns into its own file.
        let config = format!(
            "port {port}\nbind 127.0.0.1\nprotected-mode no\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}\nsentinel failover-timeout {MASTER} 4000\n\
             sentinel parallel-syncs {MASTER} 4\n{}",
            dir.path().display(),
            password.map_or_else(String::new, |password| format!("requirepass {password}\n"))
        );
        fs::write(&file, config)?;
        let log = File::create(dir.path().join("log"))?;
        let mut command = spawner::mortal(&program());
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        Ok(Self { port, password: password.map(str::to_owned), child: spawner::spawn(command)?, _dir: dir })
    }

    fn command(&self, words: &[&str]) -> Reply {
        RedisForeign::new(self.port, self.password.clone()).command(words)
    }

    /// A field of what it knows about the master.
    fn field(&self, name: &str) -> Option<String> {
        let Reply::Array(fields) = self.command(&["SENTINEL", "MASTER", MASTER]) else { return None };
        let at = fields.iter().position(|field| field.text() == Some(name))?;
        fields.get(at + 1)?.text().map(str::to_owned)
    }
}

impl Sentinels {
    /// A master with two replicas and three sentinels that know each other; `None` without a Redis server, like
    /// [`servers_or_skip`].
    ///
    /// # Panics
    /// If a server or a sentinel does not start.
    pub fn start_or_skip() -> Option<Self> {
        let servers = servers_or_skip(3)?;
        Some(Self::of(servers).expect("three sentinels"))
    }

    /// The same, and the sentinels require this password.
    ///
    /// # Panics
    /// If a server or a sentinel does not start.
    pub fn with_password_or_skip(password: &str) -> Option<Self> {
        let servers = servers_or_skip(2)?;
        Some(Self::of_servers(servers, Some(password)).expect("three sentinels"))
    }

    /// Three sentinels of these servers. The first server is the master, the others become its replicas.
    ///
    /// # Errors
    /// If a sentinel does not start.
    pub fn of(servers: Vec<RedisServer>) -> io::Result<Self> {
        Self::of_servers(servers, None)
    }

    fn of_servers(servers: Vec<RedisServer>, password: Option<&str>) -> io::Result<Self> {
        for replica in &servers[1..] {
            replica.follow(servers[0].port());
        }
        let sentinels = (0..3).map(|_| Sentinel::start(servers[0].port(), password)).collect::<io::Result<_>>()?;
        let this = Self { servers, sentinels };
        this.wait_until_settled();
        Ok(this)
    }

    /// Every sentinel knows all others and all replicas of the same master, and could begin a fail-over.
    fn wait_until_settled(&self) {
        let others = (self.sentinels.len() - 1).to_string();
        let replicas = (self.servers.len() - 1).to_string();
        until("the sentinels know each other", || {
            let master = self.sentinels[0].field("port");
            self.sentinels.iter().all(|sentinel| {
                sentinel.field("num-other-sentinels").is_some_and(|count| count == others)
                    && sentinel.field("num-slaves").is_some_and(|count| count == replicas)
                    && sentinel.field("flags").is_some_and(|flags| flags == "master")
                    && sentinel.field("port") == master
            })
        });
    }

    /// The URL of the master. `options` has the form `name=value&...` and may be empty.
    pub fn url(&self, options: &str) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        let separator = if options.is_empty() { "" } else { "?" };
        format!("redis+sentinel://{}/{MASTER}{separator}{options}", hosts.join(","))
    }

    /// The index of the server that most sentinels name as the master.
    ///
    /// # Panics
    /// If there is none for a minute.
    pub fn master(&self) -> usize {
        let mut found = None;
        until("a master that most sentinels name", || {
            let named = |index: &usize| {
                let port = self.servers[*index].port().to_string();
                self.sentinels.iter().filter(|one| one.field("port").is_some_and(|named| named == port)).count()
            };
            found = (0..self.servers.len()).find(|index| named(index) * 2 > self.sentinels.len());
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Promotes a replica, and waits until most sentinels name it. The old master does not know yet.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn fail_over(&self) {
        let before = self.master();
        until("a sentinel begins a fail-over", || {
            self.sentinels.iter().any(|one| one.command(&["SENTINEL", "FAILOVER", MASTER]).text() == Some("OK"))
        });
        self.wait_for_another_than(before);
    }

    /// Waits until most sentinels name another master than this one.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn wait_for_another_than(&self, server: usize) {
        until("another master", || self.master() != server);
    }

    /// Sends a command to every sentinel.
    pub fn command_all(&self, words: &[&str]) -> Vec<Reply> {
        self.sentinels.iter().map(|sentinel| sentinel.command(words)).collect()
    }

    /// Stops a sentinel until it is thawed, so that it answers nobody.
    ///
    /// # Panics
    /// If the process cannot be stopped.
    pub fn freeze_sentinel(&self, index: usize) {
        freezing::freeze(self.sentinels[index].child.id()).expect("a sentinel that can be stopped");
    }

    /// Continues a stopped sentinel.
    ///
    /// # Panics
    /// If the process cannot be continued.
    pub fn thaw_sentinel(&self, index: usize) {
        freezing::thaw(self.sentinels[index].child.id()).expect("a sentinel that can be continued");
    }
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        sleep(PAUSE);
    }
}
