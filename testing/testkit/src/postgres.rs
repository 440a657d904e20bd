//! Real PostgreSQL servers for tests, and poolers in front of them.

use crate::port::Port;
use crate::redis::{say_skipped, spawner};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// A busy machine may take seconds to start a process, and a crashed server to recover.
const START: Duration = Duration::from_secs(30);
/// The directory of the programs of another version than the newest that is installed.
const PROGRAMS: &str = "FENCELOCK_POSTGRES_BIN";
/// With it, a missing server is a failure.
const REQUIRED: [&str; 3] = ["CI", "FENCELOCK_REQUIRE_POSTGRES", PROGRAMS];
/// Where Debian has them.
const INSTALLED: &str = "/usr/lib/postgresql";

/// A private server on a free local port, with a data directory of its own. Everybody may connect as `postgres`.
///
/// Dropping it kills the server and removes its directory, also when a test panics.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    dir: TempDir,
    port: Port,
    settings: Vec<String>,
    child: Option<Child>,
}

/// A server for one test; `None` if there is none, after a message on standard error.
///
/// # Panics
/// If the server must not be missing, or does not start.
pub fn postgres_or_skip() -> Option<PostgresServer> {
    match PostgresServer::start(&[]) {
        Ok(server) => Some(server),
        Err(missing) => {
            say_skipped(&missing);
            None
        }
    }
}

impl PostgresServer {
    /// Makes a database cluster and starts a server with these settings: `name=value`. The error says what is missing.
    ///
    /// # Panics
    /// If the server must not be missing, or does not start.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let Some(programs) = programs() else {
            let missing = format!("there is no PostgreSQL in {INSTALLED}; install postgresql to run these tests");
            for name in REQUIRED {
                assert!(std::env::var_os(name).is_none(), "{missing}; {name} is set, so this is a failure");
            }
            return Err(missing);
        };
        let dir = tempfile::Builder::new().prefix("fencelock-postgres-").tempdir().expect("a temporary directory");
        let port = Port::free().expect("a free port");
        own(dir.path());
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { programs, dir, port, settings, child: None };
        let initdb = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"];
        server.make("initdb", &initdb);
        server.launch();
        Ok(server)
    }

    /// A standby of this server, which streams from it.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        let dir = tempfile::Builder::new().prefix("fencelock-postgres-").tempdir().expect("a temporary directory");
        own(dir.path());
        let (programs, port) = (self.programs.clone(), Port::free().expect("a free port"));
        let mut standby = Self { programs, dir, port, settings: self.settings.clone(), child: None };
        let from = format!("--dbname=postgres://postgres@127.0.0.1:{}", self.port());
        standby.make("pg_basebackup", &[&from, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
        standby.launch();
        let begun = Instant::now();
        while self.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") != "1" {
            assert!(begun.elapsed() < START, "no standby streams: {}", standby.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
        standby
    }

    /// Makes a standby a server that takes writes.
    ///
    /// # Panics
    /// If it does not become one.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "{}", self.last_words());
    }

    /// Runs a program whose last argument is the data directory, which it makes.
    fn make(&self, program: &str, args: &[&str]) {
        let made = as_postgres(&self.programs.join(program)).args(args).arg(self.data()).output().expect(program);
        assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
    }

    fn launch(&mut self) {
        let log = File::create(self.log()).expect("a file for the log");
        let mut command = as_postgres(&self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).arg("-k").arg(self.dir.path()).args(["-p", &self.port().to_string()]);
        // What a killed process has written stays in the memory of the kernel.
        for setting in ["fsync=off", "listen_addresses=127.0.0.1", "max_connections=400"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a second handle")).stdout(log);
        self.child = Some(spawner::spawn(command).expect("postgres starts"));
        let begun = Instant::now();
        while self.try_sql("postgres", "SELECT 1").is_err() {
            let is_over = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            assert!(!is_over && begun.elapsed() < START, "postgres did not start: {}", self.last_words());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `postgres://postgres@127.0.0.1:PORT/DATABASE`, without options.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// The directory of its socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The port, on which only this machine can connect.
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Runs statements with `psql`, each in a transaction of its own, and returns the rows without headers.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, text: &str) -> String {
        self.try_sql("postgres", text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The same in another database, or the error.
    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-d",
            database,
        ]);
        psql.args(["-p", &self.port().to_string(), "-c", text]).stdin(Stdio::null());
        let run = psql.output().map_err(|error| error.to_string())?;
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if run.status.success() { Ok(printed(&run.stdout)) } else { Err(printed(&run.stderr)) }
    }

    /// Kills the server with its processes, as a crash does.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Both fail only if the process has exited. The others end when they notice it.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Kills a running server, and starts it on the same port with its data.
    ///
    /// # Panics
    /// If it does not recover.
    pub fn restart(&mut self) {
        self.kill();
        let begun = Instant::now();
        // A server refuses to start while processes of the last one live.
        while self.processes() > 0 {
            assert!(begun.elapsed() < START, "processes of the killed server are left");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.launch();
    }

    /// How many processes work in its data directory.
    fn processes(&self) -> usize {
        let here =
            |process: &fs::DirEntry| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == self.data());
        fs::read_dir("/proc").map_or(0, |all| all.filter_map(Result::ok).filter(here).count())
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn last_words(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A pooler in front of a server. Unless each client has its own, it has two connections to it.
#[derive(Debug)]
pub struct PgBouncer {
    _dir: TempDir,
    port: Port,
    child: Child,
}

impl PgBouncer {
    /// Starts it in this mode: `session`, `transaction` or `statement`. `None` if there is none, after a message.
    ///
    /// # Panics
    /// If it must not be missing, or does not start.
    pub fn start_or_skip(server: &PostgresServer, mode: &str) -> Option<Self> {
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.exists() {
            let missing = "there is no pgbouncer; install it to run these tests";
            for name in REQUIRED {
                assert!(std::env::var_os(name).is_none(), "{missing}; {name} is set, so this is a failure");
            }
            say_skipped(missing);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("fencelock-pgbouncer-").tempdir().expect("a temporary directory");
        let port = Port::free().expect("a free port");
        let (config, users) = (dir.path().join("config"), dir.path().join("users"));
        fs::write(&users, "\"postgres\" \"\"\n").expect("a file of users");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = {}\nmax_client_conn = 300\n",
            server.port(),
            port.number(),
            users.display(),
            // In session mode, each client has a connection of its own.
            if mode == "session" { 200 } else { 2 }
        );
        fs::write(&config, text).expect("a file of settings");
        own(dir.path());
        let mut command = as_postgres(program);
        command.arg("-q").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawner::spawn(command).expect("pgbouncer starts");
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port.number())).is_err() {
            assert!(begun.elapsed() < START, "pgbouncer did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { _dir: dir, port, child })
    }

    /// `postgres://postgres@127.0.0.1:PORT/DATABASE`, without options.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port.number())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The programs of the newest version.
fn programs() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os(PROGRAMS) {
        return Some(chosen.into());
    }
    let versions = fs::read_dir(INSTALLED).ok()?.filter_map(Result::ok);
    let numbered =
        versions.filter_map(|dir| Some((dir.file_name().to_str()?.parse::<u32>().ok()?, dir.path().join("bin"))));
    numbered.filter(|(_, programs)| programs.join("postgres").exists()).max().map(|(_, programs)| programs)
}

/// Both programs refuse to run as root, so they run as the user that their packages make.
fn as_postgres(program: &Path) -> Command {
    let mut command = spawner::mortal(OsStr::new("setpriv"));
    if is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "KILL", "--"]);
        command.arg(program);
        return command;
    }
    spawner::mortal(program.as_os_str())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a directory with its files to the user of the programs.
fn own(dir: &Path) {
    if is_root() {
        let given = Command::new("chown").args(["-R", "postgres:postgres"]).arg(dir).status();
        assert!(given.is_ok_and(|status| status.success()), "the user postgres exists where postgresql is installed");
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("our own directory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_data_when_it_is_killed_and_started_again() {
        let Some(mut server) = postgres_or_skip() else { return };
        server.sql("CREATE TABLE t AS SELECT 7 AS n");
        server.restart();
        assert_eq!(server.sql("SELECT n FROM t"), "7");
        let port = server.port();
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
