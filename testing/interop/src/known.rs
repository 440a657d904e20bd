use fencelock_testkit::programs::{check, installed, php, python};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// The compatibility of a library with fencelock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shares {
    /// The same value type and the same rule of release: exclusion, wake-ups and losses, in both directions.
    Locks,
    /// Another type under the same name: only mutual exclusion.
    Exclusion,
}

/// The number of servers of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// One server.
    One,
    /// A majority of five servers.
    Five,
}

/// A library that adds a prefix to each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The value of the URL option `compat`.
    pub compat: &'static str,
    /// The prefix.
    pub prefix: &'static str,
}

/// A lock library of another language.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The name in tests.
    pub name: &'static str,
    /// The compatibility.
    pub shares: Shares,
    /// The servers.
    pub servers: Servers,
    /// Whether it needs only Debian packages, so that a test must not skip it.
    pub plain: bool,
    /// `None` if it uses keys without a prefix.
    pub preset: Option<Preset>,
    recipe: Recipe,
}

#[derive(Debug, Clone, Copy)]
enum Recipe {
    Php(&'static str),
    Python(&'static str),
    Pottery,
    Node(&'static str),
    Rslock,
    Symfony,
    Laravel,
    Redisson,
}

const fn peer(name: &'static str, servers: Servers, shares: Shares, recipe: Recipe) -> Peer {
    let plain = matches!(recipe, Recipe::Php(_) | Recipe::Python(_));
    Peer { name, shares, servers, plain, preset: None, recipe }
}

const fn with_preset(peer: Peer, compat: &'static str, prefix: &'static str) -> Peer {
    Peer { preset: Some(Preset { compat, prefix }), ..peer }
}

const fn pottery(name: &'static str, servers: Servers) -> Peer {
    with_preset(peer(name, servers, Shares::Locks, Recipe::Pottery), "pottery", "redlock:")
}

const fn redis_semaphore(name: &'static str, servers: Servers) -> Peer {
    with_preset(peer(name, servers, Shares::Locks, Recipe::Node("redis-semaphore")), "redis-semaphore", "mutex:")
}

/// The prefixes that `php-laravel/peer.php` configures: of its connection, and of its cache.
const LARAVEL: (&str, &str) = ("laravel:shop_database_shop_cache%3A", "shop_database_shop_cache:");

/// All libraries, whether or not they are installed.
pub const KNOWN: [Peer; 15] = [
    peer("php_way_six", Servers::One, Shares::Locks, Recipe::Php("way6")),
    peer("php_redlock", Servers::Five, Shares::Locks, Recipe::Php("redlock")),
    peer("redis_py", Servers::One, Shares::Locks, Recipe::Python("lock")),
    peer("redis_py_redlock", Servers::Five, Shares::Locks, Recipe::Python("redlock")),
    peer("node_redlock", Servers::One, Shares::Locks, Recipe::Node("redlock")),
    peer("node_redlock_five", Servers::Five, Shares::Locks, Recipe::Node("redlock")),
    peer("rslock", Servers::One, Shares::Locks, Recipe::Rslock),
    peer("rslock_five", Servers::Five, Shares::Locks, Recipe::Rslock),
    pottery("pottery", Servers::One),
    pottery("pottery_five", Servers::Five),
    redis_semaphore("redis_semaphore", Servers::One),
    redis_semaphore("redis_semaphore_five", Servers::Five),
    with_preset(peer("laravel", Servers::One, Shares::Locks, Recipe::Laravel), LARAVEL.0, LARAVEL.1),
    peer("symfony", Servers::One, Shares::Exclusion, Recipe::Symfony),
    peer("redisson", Servers::One, Shares::Exclusion, Recipe::Redisson),
];

impl Peer {
    /// The command that starts the peer, without the ports.
    ///
    /// # Errors
    /// What is not installed.
    pub fn command(&self) -> Result<Command, String> {
        match self.recipe {
            Recipe::Php(kind) => {
                php()?;
                Ok(with_args("php", [source("php/peer.php"), kind.into()]))
            }
            Recipe::Python(kind) => Ok(with_args(python("redis.lock")?, [source("python/peer.py"), kind.into()])),
            Recipe::Pottery => Ok(with_args(python("pottery")?, [source("python/peer.py"), "pottery".into()])),
            Recipe::Node(library) => {
                let modules = installed(&format!("node/node_modules/{library}"))?;
                check(Path::new("node"), &["--version"], "node")?;
                let root = modules.parent().map(Path::to_path_buf).unwrap_or_default();
                Ok(with_args("node", [source(&format!("node/{library}.mjs")), root]))
            }
            Recipe::Rslock => Ok(Command::new(installed("rslock/debug/fencelock-peer-rslock")?)),
            Recipe::Symfony => {
                let autoload = installed("symfony/autoload.php")?;
                php()?;
                Ok(with_args("php", [source("php-symfony/peer.php"), autoload]))
            }
            Recipe::Laravel => {
                let autoload = installed("laravel/autoload.php")?;
                php()?;
                Ok(with_args("php", [source("php-laravel/peer.php"), autoload]))
            }
            Recipe::Redisson => {
                let classes = installed("redisson/classes")?;
                check(Path::new("java"), &["-version"], "java")?;
                let path = format!("{}:{}/*", classes.display(), classes.with_file_name("lib").display());
                Ok(with_args("java", ["-cp".into(), path.into(), "Peer".into()]))
            }
        }
    }
}

fn with_args<const N: usize>(program: impl AsRef<OsStr>, args: [PathBuf; N]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(path)
}
