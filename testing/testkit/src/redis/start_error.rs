use super::options::RedisOptions;
use super::server::PROGRAM;
use crate::RedisServer;
use std::fmt;
use std::io::Write;

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// There is no `redis-server` in `PATH`.
    Missing,
    /// There is one, but built without this.
    Lacks(&'static str),
    /// There is one, and it did not start; with its last words.
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
    /// If the test must not be skipped: the server is there but failed, or the environment has `CI` or
    /// `FENCELOCK_REQUIRE_REDIS`. What a build lacks is a reason all the same if the environment has chosen that build.
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

/// A server for one test; `None`, after a line on standard error that no test runner swallows, if there is none here.
///
/// # Panics
/// As [`StartError::reason_to_skip`].
pub fn redis_or_skip() -> Option<RedisServer> {
    start_or_skip(RedisServer::options())
}

/// As [`redis_or_skip`], started in another way.
///
/// # Panics
/// As [`StartError::reason_to_skip`].
pub fn start_or_skip(options: RedisOptions) -> Option<RedisServer> {
    match options.start() {
        Ok(server) => Some(server),
        Err(error) => {
            say_skipped(&error.reason_to_skip());
            None
        }
    }
}

/// Says that the present test is left out, on standard error and past the test runner.
pub fn say_skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln`, which the test runner captures.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}
