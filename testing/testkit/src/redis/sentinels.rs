use super::foreign::RedisForeign;
use super::quorum::servers_or_skip;
use super::server::program;
use super::spawner;
use super::tls::TlsFiles;
use crate::port::Port;
use crate::until::until;
use crate::{RedisServer, Reply, freezing};
use std::fs::{self, File};
use std::io;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
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
/// A busy machine may take seconds for each step of a failover.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// Three times the timeout of a failover.
const GIVEN_UP: Duration = Duration::from_secs(12);

/// A master with replicas, and sentinels that fail it over.
#[derive(Debug)]
pub struct Sentinels {
    /// They come first, so that they end before the ports of their servers are free for others.
    sentinels: Vec<Sentinel>,
    /// The servers; the first one is the first master.
    pub servers: Vec<RedisServer>,
}

#[derive(Debug)]
struct Sentinel {
    _dir: TempDir,
    port: Port,
    /// Its port for TLS, if its servers have one.
    tls_port: Option<Port>,
    password: Option<String>,
    child: Child,
    is_frozen: AtomicBool,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sentinel {
    /// Another process may take the port before the sentinel binds it.
    fn start(master: &RedisServer, password: Option<&str>) -> io::Result<Self> {
        for _ in 0..8 {
            let mut sentinel = Self::launch(master, password)?;
            let begun = Instant::now();
            while sentinel.child.try_wait()?.is_none() && begun.elapsed() < TIMEOUT {
                if sentinel.field("port").is_some() {
                    return Ok(sentinel);
                }
                sleep(PAUSE);
            }
        }
        Err(io::Error::other("no sentinel started"))
    }

    fn launch(master: &RedisServer, password: Option<&str>) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("fencelock-sentinel-").tempdir()?;
        let (port, file) = (Port::free()?, dir.path().join("sentinel.conf"));
        let tls_port = if master.has_tls() { Some(Port::free()?) } else { None };
        let monitored = if master.has_tls() { master.tls_port() } else { master.port() };
        // A sentinel writes what it learns into its own file.
        let config = format!(
            "port {}\nbind 127.0.0.1\nprotected-mode no\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {monitored} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}\nsentinel failover-timeout {MASTER} 4000\n\
             sentinel parallel-syncs {MASTER} 4\n{}{}",
            port.number(),
            dir.path().display(),
            password.map_or_else(String::new, |password| format!("requirepass {password}\n")),
            tls_port.as_ref().map_or_else(String::new, |port| tls_lines(port.number(), master.tls_files()))
        );
        fs::write(&file, config)?;
        let log = File::create(dir.path().join("log"))?;
        let mut command = spawner::mortal(&program());
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let (child, password) = (spawner::spawn(command)?, password.map(str::to_owned));
        Ok(Self { port, tls_port, password, child, is_frozen: AtomicBool::new(false), _dir: dir })
    }

    fn command(&self, words: &[&str]) -> Reply {
        // A stopped sentinel would not reply, and the others are queried only after that.
        if self.is_frozen.load(Ordering::SeqCst) {
            return Reply::NoAnswer("it is stopped".to_owned());
        }
        RedisForeign::new(self.port.number(), self.password.clone()).command(words)
    }

    /// The port of the master that it names to clients. The one that leads a failover knows it before its fields change.
    fn named(&self) -> Option<String> {
        let Reply::Array(address) = self.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]) else { return None };
        address.get(1)?.text().map(str::to_owned)
    }

    /// A field of what it knows about the master.
    fn field(&self, name: &str) -> Option<String> {
        let Reply::Array(fields) = self.command(&["SENTINEL", "MASTER", MASTER]) else { return None };
        let at = fields.iter().position(|field| field.text() == Some(name))?;
        fields.get(at + 1)?.text().map(str::to_owned)
    }
}

/// A sentinel uses TLS for its servers, and for other sentinels, if it replicates over TLS.
fn tls_lines(port: u16, files: &TlsFiles) -> String {
    let TlsFiles { certificate, key, ca, .. } = files;
    let (certificate, key, ca) = (certificate.display(), key.display(), ca.display());
    format!(
        "tls-port {port}\ntls-auth-clients no\ntls-replication yes\ntls-cert-file {certificate}\ntls-key-file {key}\n\
         tls-ca-cert-file {ca}\n"
    )
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

    /// A master without replicas. Clients use TLS for it and for its sentinels: [`RedisServer::tls_files`]. `None` without a server that
    /// has TLS.
    ///
    /// # Panics
    /// If a sentinel does not start.
    pub fn with_tls_or_skip() -> Option<Self> {
        let master = super::start_error::start_or_skip(RedisServer::options().tls())?;
        Some(Self::of(vec![master]).expect("three sentinels"))
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
        let sentinels = (0..3).map(|_| Sentinel::start(&servers[0], password)).collect::<io::Result<_>>()?;
        let this = Self { sentinels, servers };
        this.wait_until_settled();
        Ok(this)
    }

    /// Waits until there is one master: all sentinels name it and could begin a failover, and all other servers are its replicas.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn wait_until_settled(&self) {
        let others = (self.sentinels.len() - 1).to_string();
        let replicas = (self.servers.len() - 1).to_string();
        until(TIMEOUT, "the sentinels know each other, and the replicas their master", || {
            let master = self.sentinels[0].field("port");
            self.sentinels.iter().all(|sentinel| {
                sentinel.field("num-other-sentinels").is_some_and(|count| count == others)
                    && sentinel.field("num-slaves").is_some_and(|count| count == replicas)
                    && sentinel.field("flags").is_some_and(|flags| flags == "master")
                    && sentinel.field("port") == master
            }) && self.servers.iter().all(|server| {
                let info = server.command(&["INFO", "replication"]);
                let has = |line: String| info.text().is_some_and(|info| info.contains(&line));
                let port = if server.has_tls() { server.tls_port() } else { server.port() };
                let Some(master) = &master else { return false };
                if port.to_string() == *master {
                    has("role:master".to_owned())
                } else {
                    has(format!("master_port:{master}\r")) && has("master_link_status:up".to_owned())
                }
            })
        });
    }

    /// The configuration epoch of the last failover that any sentinel knows.
    pub fn config_epoch(&self) -> u64 {
        let epoch = |sentinel: &Sentinel| sentinel.field("config-epoch").and_then(|epoch| epoch.parse().ok());
        self.sentinels.iter().filter_map(epoch).max().unwrap_or(0)
    }

    /// The URL of the master. `options` has the form `name=value&...` and may be empty.
    pub fn url(&self, options: &str) -> String {
        let port = |sentinel: &Sentinel| sentinel.tls_port.as_ref().unwrap_or(&sentinel.port).number();
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", port(sentinel))).collect();
        let separator = if options.is_empty() { "" } else { "?" };
        let scheme = if self.servers[0].has_tls() { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}/{MASTER}{separator}{options}", hosts.join(","))
    }

    /// The index of the server that most sentinels name as the master.
    ///
    /// # Panics
    /// If there is none for a minute.
    pub fn master(&self) -> usize {
        let mut found = None;
        until(TIMEOUT, "a master that most sentinels name", || {
            found = self.named();
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Asks one sentinel after the other until most of them have named one server.
    fn named(&self) -> Option<usize> {
        let mut votes = vec![0; self.servers.len()];
        self.sentinels.iter().find_map(|sentinel| {
            let port = sentinel.named()?;
            let named = self.servers.iter().position(|server| server.port().to_string() == port)?;
            votes[named] += 1;
            (votes[named] * 2 > self.sentinels.len()).then_some(named)
        })
    }

    /// Promotes a replica, and waits until most sentinels name it. The old master does not know yet.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn fail_over(&self) {
        let (before, mut began) = (self.master(), None::<Instant>);
        until(TIMEOUT, "another master", || {
            // A sentinel gives up if a replica or its own process is too slow.
            if began.is_none_or(|at| at.elapsed() > GIVEN_UP) && self.begin_failover() {
                began = Some(Instant::now());
            }
            self.master() != before
        });
    }

    fn begin_failover(&self) -> bool {
        // In TILT mode, which follows a stop of its process, a sentinel accepts the command and does nothing for half a minute.
        let acts = |one: &Sentinel| {
            one.command(&["INFO", "sentinel"]).text().is_some_and(|info| info.contains("sentinel_tilt:0"))
        };
        let begins = |one: &Sentinel| one.command(&["SENTINEL", "FAILOVER", MASTER]).text() == Some("OK");
        self.sentinels.iter().any(|one| acts(one) && begins(one))
    }

    /// Waits until most sentinels name another master than this one.
    ///
    /// # Panics
    /// If this takes longer than a minute.
    pub fn wait_for_another_than(&self, server: usize) {
        until(TIMEOUT, "another master", || self.master() != server);
    }

    /// Stops a sentinel until it is thawed, so that it answers no client.
    ///
    /// # Panics
    /// If the process cannot be stopped.
    pub fn freeze_sentinel(&self, index: usize) {
        freezing::freeze(self.sentinels[index].child.id()).expect("a sentinel that can be stopped");
        self.sentinels[index].is_frozen.store(true, Ordering::SeqCst);
    }

    /// Continues a stopped sentinel.
    ///
    /// # Panics
    /// If the process cannot be continued.
    pub fn thaw_sentinel(&self, index: usize) {
        freezing::thaw(self.sentinels[index].child.id()).expect("a sentinel that can be continued");
        self.sentinels[index].is_frozen.store(false, Ordering::SeqCst);
    }
}
