use super::server::program;
use std::fmt;
use std::process::Command;
use std::sync::OnceLock;

/// Which server the tests run on, and what differs from one to the next.
///
/// What is said here of a version is a fact that its tests rely on: they fail if it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    /// `Redis` or `Valkey`.
    pub product: Product,
    /// As in `9.1.2`.
    pub number: (u32, u32, u32),
}

/// Who makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl ServerVersion {
    /// That of the server that [`super::RedisServer`] starts; `None` if there is none.
    ///
    /// # Panics
    /// If there is one whose answer to `--version` is unknown: then nothing is known of what it does.
    pub fn of_tests() -> Option<&'static Self> {
        static VERSION: OnceLock<Option<ServerVersion>> = OnceLock::new();
        let read = || {
            let output = Command::new(program()).arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(Self::read(&text).unwrap_or_else(|| panic!("a server of an unknown kind: {text:?}")))
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

    /// Whether `TIME` goes by the wall clock alone. Valkey counts on from its last look at that clock with another one, which
    /// a test cannot hold.
    pub fn goes_by_the_wall_clock(&self) -> bool {
        self.product == Product::Redis
    }

    /// Whether users can be refused single subcommands: `-client|tracking`.
    pub fn refuses_subcommands(&self) -> bool {
        !self.is_redis_before(7)
    }

    /// What a script is told of a command that its user may not use.
    pub fn says_of_a_refused_command(&self) -> &'static str {
        if self.is_redis_before(8) { "can't run this command" } else { "has no permissions to run the" }
    }

    /// What lets everybody use `DEBUG`, where it is not open to everybody anyway.
    pub fn debug_arguments(&self) -> &'static [&'static str] {
        if self.is_redis_before(7) { &[] } else { &["--enable-debug-command", "yes"] }
    }

    /// Whether it can be told to answer while it loads less than 2 MB: `loading-process-events-interval-bytes`.
    pub fn answers_while_it_loads_little(&self) -> bool {
        !self.is_redis_before(7)
    }

    /// The argument that says after how many milliseconds a script is slow.
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
    fn versions_are_read_as_servers_print_them() {
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
