use super::{foreign::RedisForeign, options::RedisOptions, resp::RespClient, spawner, tls::TlsFiles};
use crate::freezing;
use crate::{Reply, StartError, port};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// A loaded machine may take seconds to start a process.
const START: Duration = Duration::from_secs(20);
/// Another process may have taken the port in between.
const TRIES: u32 = 8;

/// Names the server binary to run, instead of the `redis-server` in `PATH`.
pub(super) const PROGRAM: &str = "FENCELOCK_REDIS_SERVER";

/// A `redis-server` of its own on a free port of this machine, with a directory of its own and no persistence.
///
/// It is killed and its directory removed when this value is dropped, also while a test panics. Where the system has
/// `setpriv` it also dies with the test process, even one that is killed.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    dir: TempDir,
    port: u16,
    tls: Option<(u16, TlsFiles)>,
    child: Option<Child>,
}

/// Starting.
impl RedisServer {
    /// With the defaults.
    pub fn start() -> Result<Self, StartError> {
        RedisOptions::default().start()
    }

    /// With a second port that speaks TLS: [`RedisServer::tls_url`], [`RedisServer::tls_files`].
    pub fn tls() -> Result<Self, StartError> {
        RedisOptions::default().tls().start()
    }

    /// To start it in another way.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    pub(super) fn start_with(options: RedisOptions) -> Result<Self, StartError> {
        let dir = tempfile::Builder::new().prefix("fencelock-redis-").tempdir().map_err(failed)?;
        let files = if options.tls { Some(TlsFiles::write_to(dir.path()).map_err(failed)?) } else { None };
        let mut server = Self { options, dir, port: 0, tls: None, child: None };
        let mut last = StartError::Missing;
        for _ in 0..TRIES {
            server.port = port::free().map_err(failed)?;
            server.tls = match &files {
                Some(files) => Some((port::free().map_err(failed)?, files.clone())),
                None => None,
            };
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(failure @ (StartError::Missing | StartError::Lacks(_))) => return Err(failure),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Starts the process and waits until it answers on its ports.
    fn launch(&mut self) -> Result<(), StartError> {
        let log = File::create(self.log()).map_err(failed)?;
        let tls = self.tls.as_ref().map(|(port, files)| (*port, files));
        let mut command = spawner::mortal(&program());
        command.args(self.options.command_line(self.port, tls, &self.data()));
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
                // 127 is what setpriv says when there is no such program.
                return Err(if status.code() == Some(127) { StartError::Missing } else { self.last_words() });
            }
            if begun.elapsed() > START {
                self.kill();
                return Err(self.last_words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it is this very process that answers, and has read its data: the port might be another server's.
    fn answers(&self) -> bool {
        let me = format!("process_id:{}\r\n", self.pid().unwrap_or_default());
        let ready = |info: &str| info.contains(&me) && info.contains("loading:0\r\n");
        self.command(&["PING"]).text() == Some("PONG") && self.command(&["INFO"]).text().is_some_and(ready)
    }

    fn last_words(&self) -> StartError {
        let words = fs::read_to_string(self.log()).unwrap_or_default();
        // From 7.2 on and in Valkey, and before.
        let without_tls = ["Missing implement of connection type tls", ">>> 'tls-port"];
        if self.tls.is_some() && without_tls.iter().any(|said| words.contains(said)) {
            return StartError::Lacks("TLS");
        }
        StartError::Failed(words)
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Where the server keeps its data.
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

/// Where it is.
impl RedisServer {
    /// `redis://127.0.0.1:PORT`, with the password if it has one.
    pub fn url(&self) -> String {
        self.url_of("redis", self.port)
    }

    /// `rediss://127.0.0.1:PORT`.
    ///
    /// # Panics
    /// If it was not started with [`RedisServer::tls`].
    pub fn tls_url(&self) -> String {
        self.url_of("rediss", self.tls_parts().0)
    }

    /// The certificates of its TLS port.
    ///
    /// # Panics
    /// If it was not started with [`RedisServer::tls`].
    pub fn tls_files(&self) -> &TlsFiles {
        &self.tls_parts().1
    }

    /// The port without TLS.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn tls_parts(&self) -> &(u16, TlsFiles) {
        self.tls.as_ref().expect("a server started with RedisServer::tls")
    }

    fn url_of(&self, scheme: &str, port: u16) -> String {
        let login = self.options.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{login}127.0.0.1:{port}")
    }
}

/// Speaking to it without the code under test.
impl RedisServer {
    /// One command on a connection of its own. What goes wrong is a [`Reply`] too.
    pub fn command(&self, words: &[&str]) -> Reply {
        self.foreign().command(words)
    }

    /// A program that uses this server without knowing of fencelock.
    pub fn foreign(&self) -> RedisForeign {
        RedisForeign::new(self.port, self.options.password.clone())
    }

    /// A connection that stays open; it has not said its password yet.
    pub fn connect(&self) -> io::Result<RespClient> {
        RespClient::connect(self.port)
    }
}

/// What may happen to it.
impl RedisServer {
    /// `SIGKILL`: it forgets everything that is not on disk.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it is dead already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it if it runs, and starts it again on the same port with what it had on disk: nothing, by default.
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

    /// The same with an empty disk.
    pub fn restart_empty(&mut self) -> Result<(), StartError> {
        self.kill();
        fs::remove_dir_all(self.data()).map_err(failed)?;
        self.restart()
    }

    /// Forgets what it has, and copies the server at a port of this machine, maybe a proxy's, from now on. It does when this
    /// returns, and that server counts it as a replica.
    ///
    /// # Panics
    /// If it does not within 20 s.
    pub fn follow(&self, port: u16) {
        let mut master = RespClient::connect(port).expect("a server to follow");
        // Masters wait 5 s for more replicas by default.
        master.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        self.command(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        let begun = Instant::now();
        while !self.confirms(&mut master) {
            assert!(begun.elapsed() < START, "it does not follow");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One that was just filled is sent nothing more before it speaks for the first time, which may be a second later.
    fn confirms(&self, master: &mut RespClient) -> bool {
        // Something to confirm.
        master.command(&["PUBLISH", "fencelock-test", "are you there?"]);
        master.command(&["WAIT", "1", "50"]);
        let me = format!("port={},state=online,offset=", self.port);
        let info = master.command(&["INFO", "replication"]);
        let confirmed =
            info.text().and_then(|info| info.split_once(&me)).is_some_and(|(_, rest)| !rest.starts_with('0'));
        confirmed && self.command(&["INFO", "replication"]).text().is_some_and(|i| i.contains("master_link_status:up"))
    }

    /// Becomes a master with what it has copied so far.
    ///
    /// # Panics
    /// If it refuses.
    pub fn promote(&self) {
        assert_eq!(self.command(&["REPLICAOF", "NO", "ONE"]).text(), Some("OK"), "it takes over");
    }

    /// `SIGSTOP`: it keeps its connections, accepts new ones, and answers nothing. Its clock goes on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn freeze(&self) {
        freezing::freeze(self.pid().expect("a server that runs")).expect("our own child takes our signals");
    }

    /// `SIGCONT`: it answers everything it was asked meanwhile.
    ///
    /// # Panics
    /// If it does not run.
    pub fn thaw(&self) {
        freezing::thaw(self.pid().expect("a server that runs")).expect("our own child takes our signals");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server that the tests run on: another version than the one in `PATH`, if the environment names one.
pub(super) fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into())
}

fn failed(error: impl std::fmt::Display) -> StartError {
    StartError::Failed(error.to_string())
}
