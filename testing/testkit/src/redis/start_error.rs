use super::options::RedisOptions;
use super::server::PROGRAM;
use crate::{RedisServer, ServerVersion, WallClock};
use std::fmt;
use std::io::Write;

/// Why no server started.
#[derive(Debug)]
pub enum StartError {
    /// `PATH` contains no `redis-server`.
    Missing,
    /// The server was built without this feature.
    Lacks(&'static str),
    /// The server did not start; contains the end of its output.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no redis-server in PATH; install it to run these tests"),
            Self::Lacks(what) => write!(f, "this redis-server was built without {what}"),
            Self::Failed(why) => write!(f, "redis-server did not start: {why}"),
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// The reason to skip a test.
    ///
    /// # Panics
    /// If the test must not be skipped: the server failed to start, or the environment contains `CI` or
    /// `FENCELOCK_REQUIRE_REDIS`. A missing feature is a valid reason if the environment has selected that server.
    pub fn reason_to_skip(self) -> String {
        let chosen = std::env::var_os(PROGRAM).is_some();
        if matches!(self, Self::Lacks(_)) && chosen {
            return self.to_string();
        }
        let required = ["CI", "FENCELOCK_REQUIRE_REDIS", PROGRAM];
        assert!(!matches!(self, Self::Failed(_)), "{self}");
        for name in required {
            assert!(std::env::var_os(name).is_none(), "{self}; {name} is set, so this is a failure");
        }
        self.to_string()
    }
}

/// A server for one test; `None` if there is none, after a message on standard error that bypasses the test runner.
///
/// # Panics
/// See [`StartError::reason_to_skip`].
pub fn redis_or_skip() -> Option<RedisServer> {
    start_or_skip(RedisServer::options())
}

/// Like [`redis_or_skip`], with options.
///
/// # Panics
/// See [`StartError::reason_to_skip`].
pub fn start_or_skip(options: RedisOptions) -> Option<RedisServer> {
    match options.start() {
        Ok(server) => Some(server),
        Err(error) => {
            say_skipped(&error.reason_to_skip());
            None
        }
    }
}

/// A server whose clock is stopped at this time, with more arguments.
///
/// # Panics
/// See [`StartError::reason_to_skip`].
pub fn stopped_or_skip(micros: u64, args: &[&str]) -> Option<(RedisServer, WallClock)> {
    let version = ServerVersion::of_tests().filter(|version| !version.uses_only_the_wall_clock());
    if let Some(version) = version {
        say_skipped(&format!("the clock of {version} cannot be stopped"));
        return None;
    }
    let clock = WallClock::for_all_users().expect("a clock");
    clock.stop_at(micros).expect("a clock");
    // A thread that waits for a time of a stopped clock would never sleep.
    let options = RedisServer::options().wall_clock(&clock).args(["--jemalloc-bg-thread", "no"]);
    start_or_skip(options.args(args.iter().copied())).map(|server| (server, clock))
}

/// Reports a skipped test on standard error, bypassing the test runner.
pub fn say_skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // The test runner captures `eprintln`.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}
