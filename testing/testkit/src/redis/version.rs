use super::server::program;
use std::fmt;
use std::process::Command;
use std::sync::OnceLock;

/// The server that the tests use, and the differences between servers.
///
/// Tests rely on each difference, and fail if it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    /// `Redis` or `Valkey`.
    pub product: Product,
    /// The version number, for example `9.1.2`.
    pub number: (u32, u32, u32),
}

/// The product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl ServerVersion {
    /// The version of the server that [`super::RedisServer`] starts; `None` without a server.
    ///
    /// # Panics
    /// If the output of `--version` is unknown, because the behaviour of such a server is unknown.
    pub fn of_tests() -> Option<&'static Self> {
        static VERSION: OnceLock<Option<ServerVersion>> = OnceLock::new();
        let read = || {
            let output = Command::new(program()).arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(Self::read(&text).unwrap_or_else(|| panic!("an unknown kind of server: {text:?}")))
        };
        VERSION.get_or_init(read).as_ref()
    }

    /// `Redis server v=7.0.15 sha=00000000:0 ...`
    fn read(text: &str) -> Option<Self> {
        let (product, rest) = text.split_once(" server v=")?;
        let product = match product {
            "Redis" => Product::Redis,
            "Valkey" => Product::Valkey,
            _ => return None,
        };
        let mut parts = rest.split(' ').next()?.split('.').map(str::parse);
        let mut part = || parts.next()?.ok();
        Some(Self { product, number: (part()?, part()?, part()?) })
    }

    fn is_redis_before(&self, major: u32) -> bool {
        self.product == Product::Redis && self.number.0 < major
    }

    /// Whether `TIME` reads only the wall clock. Valkey adds the time of another clock to its last reading, and a test
    /// cannot stop that clock.
    pub fn uses_only_the_wall_clock(&self) -> bool {
        self.product == Product::Redis
    }

    /// Whether an ACL can deny single subcommands: `-client|tracking`.
    pub fn can_deny_subcommands(&self) -> bool {
        !self.is_redis_before(7)
    }

    /// The arguments that permit `DEBUG`, if the server denies it by default.
    pub fn debug_arguments(&self) -> &'static [&'static str] {
        if self.is_redis_before(7) { &[] } else { &["--enable-debug-command", "yes"] }
    }

    /// Whether the server can answer while it loads less than 2 MB: `loading-process-events-interval-bytes`.
    pub fn answers_while_loading(&self) -> bool {
        !self.is_redis_before(7)
    }

    /// The argument that sets the threshold of a slow script in milliseconds.
    pub fn slow_script_argument(&self) -> &'static str {
        if self.is_redis_before(7) { "--lua-time-limit" } else { "--busy-reply-threshold" }
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        write!(f, "{:?} {major}.{minor}.{patch}", self.product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_every_server_is_parsed() {
        let read = |text| ServerVersion::read(text).map(|version| version.to_string());
        assert_eq!(
            read("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"),
            Some("Redis 7.0.15".into())
        );
        assert_eq!(read("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64\n"), Some("Valkey 9.1.2".into()));
        assert_eq!(read("KeyDB server v=6.3.4"), None);
        assert_eq!(read(""), None);
    }
}
