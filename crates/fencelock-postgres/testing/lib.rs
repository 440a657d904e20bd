//! Real PostgreSQL servers for tests, and poolers in front of them.
#![forbid(unsafe_code)]

use fencelock_testkit::{Port, TlsFiles, WallClock, freeze, say_skipped, spawner, thaw, until};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
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
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// A private server on a free local port, with a data directory of its own. Everybody may connect as `postgres`.
///
/// Dropping it kills the server and removes its directory, also when a test panics.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    disk: Option<SmallDisk>,
    dir: TempDir,
    port: Port,
    settings: Vec<String>,
    env: Vec<(&'static str, PathBuf)>,
    child: Option<Child>,
    tls: Option<TlsFiles>,
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
        Self::start_on(settings, Vec::new(), |_| Ok(None))
    }

    /// The same with this wall clock, which its standbys have too: see [`WallClock::for_all_users`].
    ///
    /// # Panics
    /// If the server must not be missing, or does not start.
    pub fn start_with_clock(settings: &[&str], clock: &WallClock) -> Result<Self, String> {
        Self::start_on(settings, clock.env().map(|(name, path)| (name, path.to_owned())).into(), |_| Ok(None))
    }

    /// The same with all data on a disk of its own, of this size. Only root can make one.
    ///
    /// # Panics
    /// If the server must not be missing, or does not start.
    pub fn start_on_small_disk(megabytes: u32, settings: &[&str]) -> Result<Self, String> {
        // Otherwise its logs need more than a small disk has.
        let small = ["min_wal_size=2MB", "max_wal_size=8MB", "shared_buffers=1MB"];
        Self::start_on(&[&small[..], settings].concat(), Vec::new(), |dir| SmallDisk::mount(dir, megabytes).map(Some))
    }

    fn start_on(
        settings: &[&str],
        env: Vec<(&'static str, PathBuf)>,
        mount: impl FnOnce(&Path) -> Result<Option<SmallDisk>, String>,
    ) -> Result<Self, String> {
        let Some(programs) = programs() else {
            let missing = format!("there is no PostgreSQL in {INSTALLED}; install postgresql to run these tests");
            for name in REQUIRED {
                assert!(std::env::var_os(name).is_none(), "{missing}; {name} is set, so this is a failure");
            }
            return Err(missing);
        };
        let dir = tempfile::Builder::new().prefix("fencelock-postgres-").tempdir().expect("a temporary directory");
        let disk = mount(dir.path())?;
        let mut settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let has_tls = settings.iter().any(|setting| setting == "ssl=on");
        if has_tls && !is_built_with_tls(&programs) {
            return Err(format!("the PostgreSQL in {} is built without TLS", programs.display()));
        }
        let tls = has_tls.then(|| TlsFiles::write_to(dir.path()).expect("files for TLS"));
        for (name, file) in tls.iter().flat_map(|files| [("cert", &files.certificate), ("key", &files.key)]) {
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("our own file");
            settings.push(format!("ssl_{name}_file={}", file.display()));
        }
        own(dir.path());
        let port = Port::free().expect("a free port");
        let mut server = Self { programs, dir, port, settings, env, child: None, tls, disk };
        let initdb = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"];
        let segments = if server.disk.is_some() { &["--wal-segsize=1", "--pgdata"][..] } else { &["--pgdata"][..] };
        server.make("initdb", &[&initdb[..], segments].concat());
        server.launch();
        Ok(server)
    }

    /// A standby of this server, which streams. Commits of both wait for a standby from now on.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn synchronous_standby(&self) -> Self {
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        // A standby that has lost its server tries again after this time.
        self.sql("ALTER SYSTEM SET wal_retrieve_retry_interval = '50ms'");
        self.sql("SELECT pg_reload_conf()");
        let standby = self.standby();
        self.until_replicated();
        standby
    }

    /// Waits until a standby confirms commits.
    ///
    /// # Panics
    /// If none does.
    pub fn until_replicated(&self) {
        self.until_streaming("sync_state = 'sync'");
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
        let (settings, env) = (self.settings.clone(), self.env.clone());
        let mut standby = Self { programs, dir, port, settings, env, child: None, tls: None, disk: None };
        let from = format!("--dbname=postgres://postgres@127.0.0.1:{}", self.port());
        standby.make("pg_basebackup", &[&from, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
        standby.launch();
        self.until_streaming("true");
        standby
    }

    /// A program of the server that reads its log until it is killed, or its server is.
    ///
    /// # Panics
    /// If it does not start.
    pub fn reader(&self, program: &str, args: &[&str]) -> Child {
        let mut command = as_postgres(&self.programs.join(program));
        command.args(args).args(["--no-loop", "--no-password", "--username=postgres", "--host=127.0.0.1"]);
        command.args(["--dbname=dbname=postgres".to_owned(), format!("--port={}", self.port())]);
        command.current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        spawner::spawn(command).expect(program)
    }

    fn until_streaming(&self, how: &str) {
        let begun = Instant::now();
        let count = format!("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND {how}");
        while self.sql(&count) != "1" {
            assert!(begun.elapsed() < START, "no standby streams: {}", self.logged());
            std::thread::sleep(Duration::from_millis(20));
        }
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
        command.envs(self.env.iter().map(|(name, path)| (name, path)));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a second handle")).stdout(log);
        self.child = Some(spawner::spawn(command).expect("postgres starts"));
        let begun = Instant::now();
        while self.try_sql("postgres", "SELECT 1").is_err() {
            let is_over = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            assert!(!is_over && begun.elapsed() < START, "postgres did not start: {}", self.logged());
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
        // With a default of serializable, a standby answers no query.
        psql.env("PGOPTIONS", r"-c default_transaction_isolation=read\ committed");
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

    /// Kills it, and waits until none of its processes is left: with them, it refuses to start again.
    ///
    /// # Panics
    /// If one stays.
    pub fn crash(&mut self) {
        self.kill();
        until(START, "the end of all processes of the killed server", || self.processes().is_empty());
    }

    /// Kills a running server, and starts it on the same port with its data.
    ///
    /// # Panics
    /// If it does not recover.
    pub fn restart(&mut self) {
        self.crash();
        self.launch();
    }

    /// Makes a standby a server that takes writes.
    ///
    /// # Panics
    /// If it does not become one.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "{}", self.logged());
    }

    /// Stops all its processes until [`PostgresServer::thaw`].
    pub fn freeze(&self) {
        // The first one starts the others. One that has ended meanwhile cannot be stopped.
        let first = self.child.as_ref().map(Child::id);
        for process in first.into_iter().chain(self.processes()) {
            let _ = freeze(process);
        }
    }

    /// Continues all its processes.
    pub fn thaw(&self) {
        for process in self.processes() {
            let _ = thaw(process);
        }
    }

    /// The processes that work in its data directory.
    fn processes(&self) -> Vec<u32> {
        let here =
            |process: &fs::DirEntry| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == self.data());
        let all = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok).filter(here);
        all.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
    }

    /// Puts a line in front of those that say who may connect how.
    ///
    /// # Panics
    /// If the file cannot be changed.
    pub fn allow_first(&self, line: &str) {
        let file = self.data().join("pg_hba.conf");
        let before = fs::read_to_string(&file).expect("a file of the server");
        fs::write(&file, format!("{line}\n{before}")).expect("a file of the server");
        self.sql("SELECT pg_reload_conf()");
    }

    /// The certificates of a server with `ssl=on`.
    ///
    /// # Panics
    /// If it has none.
    pub fn tls_files(&self) -> &TlsFiles {
        self.tls.as_ref().expect("a server with ssl=on")
    }

    /// Fills its small disk until the returned file is removed.
    ///
    /// # Panics
    /// If it has no disk of its own.
    pub fn fill_disk(&self) -> PathBuf {
        assert!(self.disk.is_some(), "a server on a small disk");
        let ballast = self.dir.path().join("ballast");
        let mut file = File::create(&ballast).expect("a file");
        let block = [0; 4096];
        while file.write_all(&block).is_ok() {}
        ballast
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it has logged since it was started last.
    pub fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        // Those that are stopped would not notice it.
        self.thaw();
    }
}

/// A disk in memory, mounted at a directory.
#[derive(Debug)]
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, megabytes: u32) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(at);
        let made = mount.output().map_err(|error| error.to_string())?;
        let words = String::from_utf8_lossy(&made.stderr);
        if made.status.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(format!("no disk of its own: {}", words.trim_end()))
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Processes of the killed server may still use it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A pooler in front of a server. Unless each client has its own, it has two connections to it.
#[derive(Debug)]
pub struct PgBouncer {
    dir: TempDir,
    port: Port,
    child: Option<Child>,
}

impl PgBouncer {
    /// Starts it in this mode: `session`, `transaction` or `statement`. `None` if there is none, after a message.
    ///
    /// # Panics
    /// If it must not be missing, or does not start.
    pub fn start_or_skip(server: &PostgresServer, mode: &str) -> Option<Self> {
        Self::to_port_or_skip(server.port(), mode)
    }

    /// The same for a server behind this port.
    ///
    /// # Panics
    /// If it must not be missing, or does not start.
    pub fn to_port_or_skip(server: u16, mode: &str) -> Option<Self> {
        if !Path::new(PGBOUNCER).exists() {
            let missing = "there is no pgbouncer; install it to run these tests";
            for name in REQUIRED {
                assert!(std::env::var_os(name).is_none(), "{missing}; {name} is set, so this is a failure");
            }
            say_skipped(missing);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("fencelock-pgbouncer-").tempdir().expect("a temporary directory");
        let port = Port::free().expect("a free port");
        let users = dir.path().join("users");
        fs::write(&users, "\"postgres\" \"\"\n").expect("a file of users");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = {}\nmax_client_conn = 300\n\
             server_login_retry = 0.1\n",
            port.number(),
            users.display(),
            // In session mode, each client has a connection of its own.
            if mode == "session" { 200 } else { 2 }
        );
        fs::write(dir.path().join("config"), text).expect("a file of settings");
        own(dir.path());
        let mut pooler = Self { dir, port, child: None };
        pooler.restart();
        Some(pooler)
    }

    /// Kills it if it runs, and starts it on the same port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = as_postgres(Path::new(PGBOUNCER));
        command.arg("-q").arg(self.dir.path().join("config"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(spawner::spawn(command).expect("pgbouncer starts"));
        until(START, "the start of pgbouncer", || TcpStream::connect(("127.0.0.1", self.port.number())).is_ok());
    }

    fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
    }

    /// `postgres://postgres@127.0.0.1:PORT/DATABASE`, without options.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port.number())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Builds in wheels have no TLS. One that does not say how it was built has it.
fn is_built_with_tls(programs: &Path) -> bool {
    let said = Command::new(programs.join("pg_config")).arg("--configure").output();
    said.map_or(true, |said| String::from_utf8_lossy(&said.stdout).contains("ssl"))
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
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
