use super::{foreign::RedisForeign, options::RedisOptions, resp::RespClient, spawner, tls::TlsFiles};
use crate::freezing;
use crate::port::Port;
use crate::{Reply, StartError};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// A busy machine may take seconds to start a process.
const START: Duration = Duration::from_secs(20);
/// Another process may take the port before the server binds it.
const TRIES: u32 = 8;

/// The path of the server to run instead of the `redis-server` in `PATH`.
pub(super) const PROGRAM: &str = "FENCELOCK_REDIS_SERVER";

/// A private `redis-server` on a free local port, with its own directory and without persistence.
///
/// Dropping it kills the server and removes its directory, also when a test panics. If the system has `setpriv`, the server
/// also ends with the test process, even if that is killed.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    dir: TempDir,
    port: Port,
    tls: Option<(Port, TlsFiles)>,
    child: Option<Child>,
}

/// Starts a server.
impl RedisServer {
    /// Starts a server with default options.
    pub fn start() -> Result<Self, StartError> {
        RedisOptions::default().start()
    }

    /// Starts a server with a second port for TLS: [`RedisServer::tls_url`], [`RedisServer::tls_files`].
    pub fn tls() -> Result<Self, StartError> {
        RedisOptions::default().tls().start()
    }

    /// Options for a server.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    pub(super) fn start_with(options: RedisOptions) -> Result<Self, StartError> {
        let dir = tempfile::Builder::new().prefix("fencelock-redis-").tempdir().map_err(failed)?;
        let files = if options.tls { Some(TlsFiles::write_to(dir.path()).map_err(failed)?) } else { None };
        let free = if options.cluster_node_timeout.is_some() { Port::with_bus } else { Port::free };
        let mut server = Self { options, dir, port: free().map_err(failed)?, tls: None, child: None };
        let mut last = StartError::Missing;
        for _ in 0..TRIES {
            server.tls = match &files {
                Some(files) => Some((Port::free().map_err(failed)?, files.clone())),
                None => None,
            };
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(failure @ (StartError::Missing | StartError::Lacks(_))) => return Err(failure),
                Err(failure) => last = failure,
            }
            server.port = free().map_err(failed)?;
        }
        Err(last)
    }

    /// Starts the process, and waits until it answers on its ports.
    fn launch(&mut self) -> Result<(), StartError> {
        let log = File::create(self.log()).map_err(failed)?;
        let tls = self.tls.as_ref().map(|(port, files)| (port.number(), files));
        let mut command = spawner::mortal(&program());
        command.args(self.options.command_line(self.port(), tls, &self.data()));
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(failed)?).stdout(log);
        fs::create_dir_all(self.data()).map_err(failed)?;
        self.child = Some(spawner::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StartError::Missing,
            _ => failed(error),
        })?);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let begun = Instant::now();
        loop {
            if self.answers() {
                return Ok(());
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                self.child = None;
                // `setpriv` exits with 127 if the program does not exist.
                return Err(if status.code() == Some(127) { StartError::Missing } else { self.last_words() });
            }
            if begun.elapsed() > START {
                self.kill();
                return Err(self.last_words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether this process answers and has loaded its data. Another server might use the port.
    fn answers(&self) -> bool {
        let me = format!("process_id:{}\r\n", self.pid().unwrap_or_default());
        let ready = |info: &str| info.contains(&me) && info.contains("loading:0\r\n");
        self.command(&["PING"]).text() == Some("PONG") && self.command(&["INFO"]).text().is_some_and(ready)
    }

    fn last_words(&self) -> StartError {
        let words = fs::read_to_string(self.log()).unwrap_or_default();
        // The messages of 7.2 and later and of Valkey, and of earlier versions.
        let without_tls = ["Missing implement of connection type tls", ">>> 'tls-port"];
        if self.tls.is_some() && without_tls.iter().any(|said| words.contains(said)) {
            return StartError::Lacks("TLS");
        }
        StartError::Failed(words)
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The directory of the data.
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

/// The address of a server.
impl RedisServer {
    /// `redis://127.0.0.1:PORT`, with the password if there is one.
    pub fn url(&self) -> String {
        self.url_of("redis", self.port())
    }

    /// `rediss://127.0.0.1:PORT`.
    ///
    /// # Panics
    /// If the server was not started with [`RedisServer::tls`].
    pub fn tls_url(&self) -> String {
        self.url_of("rediss", self.tls_port())
    }

    /// The certificates of the TLS port.
    ///
    /// # Panics
    /// If the server was not started with [`RedisServer::tls`].
    pub fn tls_files(&self) -> &TlsFiles {
        &self.tls_parts().1
    }

    /// The port without TLS.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id while the server runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(super) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn tls_port(&self) -> u16 {
        self.tls_parts().0.number()
    }

    fn tls_parts(&self) -> &(Port, TlsFiles) {
        self.tls.as_ref().expect("a server started with RedisServer::tls")
    }

    /// The user information of its URLs: `:PASSWORD@`, or nothing.
    pub(super) fn login(&self) -> String {
        self.options.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }

    /// The password of all clients.
    pub(super) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    fn url_of(&self, scheme: &str, port: u16) -> String {
        let login = self.login();
        format!("{scheme}://{login}127.0.0.1:{port}")
    }
}

/// Requests that bypass the code under test.
impl RedisServer {
    /// Runs one command on a new connection. Errors are returned as a [`Reply`].
    pub fn command(&self, words: &[&str]) -> Reply {
        self.foreign().command(words)
    }

    /// A program that uses this server and does not know fencelock.
    pub fn foreign(&self) -> RedisForeign {
        RedisForeign::new(self.port(), self.options.password.clone())
    }

    /// A persistent connection, without authentication.
    pub fn connect(&self) -> io::Result<RespClient> {
        RespClient::connect(self.port())
    }
}

/// Faults of a server.
impl RedisServer {
    /// Sends `SIGKILL`: the server loses all data that is not on disk.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if the process has exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills a running server, and starts it on the same port with its data on disk: none by default.
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.kill();
        let mut last = StartError::Missing;
        for _ in 0..TRIES {
            match self.launch() {
                Ok(()) => return Ok(()),
                Err(failure) => last = failure,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(last)
    }

    /// Restarts with an empty disk.
    pub fn restart_empty(&mut self) -> Result<(), StartError> {
        self.kill();
        fs::remove_dir_all(self.data()).map_err(failed)?;
        self.restart()
    }

    /// Makes this server a replica of the server on a local port, which may belong to a proxy. When this returns, the master
    /// counts it as a replica.
    ///
    /// # Panics
    /// If this takes longer than 20 s.
    pub fn follow(&self, port: u16) {
        let mut master = RespClient::connect(port).expect("a server to follow");
        // By default, masters wait 5 s for more replicas.
        master.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        self.command(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        let begun = Instant::now();
        while !self.confirms(&mut master) {
            assert!(begun.elapsed() < START, "the replica did not connect in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A master sends nothing after the initial copy until the replica reports its offset, which may take a second.
    fn confirms(&self, master: &mut RespClient) -> bool {
        // A write that the replica can acknowledge.
        master.command(&["PUBLISH", "fencelock-test", "ping"]);
        master.command(&["WAIT", "1", "50"]);
        let me = format!("port={},state=online,offset=", self.port());
        let info = master.command(&["INFO", "replication"]);
        let confirmed =
            info.text().and_then(|info| info.split_once(&me)).is_some_and(|(_, rest)| !rest.starts_with('0'));
        confirmed && self.command(&["INFO", "replication"]).text().is_some_and(|i| i.contains("master_link_status:up"))
    }

    /// Makes this replica a master with the data that it has copied.
    ///
    /// # Panics
    /// If the server returns an error.
    pub fn promote(&self) {
        assert_eq!(self.command(&["REPLICAOF", "NO", "ONE"]).text(), Some("OK"), "the replica is promoted");
    }

    /// Sends `SIGSTOP`: the server keeps its connections, accepts new ones, and does not answer. Its clock continues.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn freeze(&self) {
        freezing::freeze(self.pid().expect("a running server")).expect("our own child takes our signals");
    }

    /// Sends `SIGCONT`: the server answers all pending requests.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn thaw(&self) {
        freezing::thaw(self.pid().expect("a running server")).expect("our own child takes our signals");
    }

    /// Whether the process runs, and is not stopped.
    pub fn is_running(&self) -> bool {
        self.pid().is_some_and(|pid| matches!(freezing::has_stopped(pid), Ok(false)))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The path of the server: from the environment, or `redis-server` in `PATH`.
pub(super) fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into())
}

fn failed(error: impl std::fmt::Display) -> StartError {
    StartError::Failed(error.to_string())
}
