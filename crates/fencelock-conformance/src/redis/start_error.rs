use crate::RedisServer;
use std::fmt;
use std::io::Write;

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// There is no `redis-server` in `PATH`.
    Missing,
    /// There is one, and it did not start; with its last words.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no redis-server in PATH; install it to run these tests"),
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
    /// `FENCELOCK_REQUIRE_REDIS`.
    pub fn reason_to_skip(self) -> String {
        assert!(matches!(self, Self::Missing), "{self}");
        for name in ["CI", "FENCELOCK_REQUIRE_REDIS"] {
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
    match RedisServer::start() {
        Ok(server) => Some(server),
        Err(error) => {
            let name = std::thread::current().name().unwrap_or("a test").to_owned();
            // Not `eprintln`, which the test runner captures.
            let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {}", error.reason_to_skip());
            None
        }
    }
}
