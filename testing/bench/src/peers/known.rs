use fencelock_testkit::programs::{check, installed, php, python};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// A lock library, or one way to use it.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The name on the command line and in the file of a run.
    pub name: &'static str,
    /// The name on the page.
    pub title: &'static str,
    /// How its waiters wait: the default of the library unless stated otherwise.
    pub waiting: &'static str,
    /// Additional warm-up for a runtime with a just-in-time compiler.
    pub(crate) warm_up: Duration,
    /// Whether a process has a single task, as in PHP.
    pub single: bool,
    /// Whether it needs only packages that `scripts/test` installs, so that a test must not skip it.
    pub plain: bool,
    recipe: Recipe,
}

#[derive(Debug, Clone, Copy)]
enum Recipe {
    /// This program; whether its tasks share leases.
    Ours {
        sharing: bool,
    },
    Rust(&'static str),
    Go,
    /// The Debian package, or a newer version.
    RedisPy,
    Python(&'static str),
    Node(&'static str),
    Redisson(&'static str),
    Php(&'static str),
    Symfony,
}

const fn peer(name: &'static str, title: &'static str, waiting: &'static str, recipe: Recipe) -> Peer {
    let warm_up = Duration::from_secs(if matches!(recipe, Recipe::Redisson(_)) { 3 } else { 0 });
    let single = matches!(recipe, Recipe::Php(_) | Recipe::Symfony);
    Peer { name, title, waiting, warm_up, single, plain: matches!(recipe, Recipe::Php(_) | Recipe::RedisPy), recipe }
}

/// All libraries, whether or not they are installed.
pub const KNOWN: [Peer; 15] = [
    peer(
        "fencelock",
        "fencelock",
        "queue on the server; tasks of a process share a lease",
        Recipe::Ours { sharing: true },
    ),
    peer(
        "fencelock-alone",
        "fencelock, unshared",
        "queue on the server, each task sends its own claims",
        Recipe::Ours { sharing: false },
    ),
    peer(
        "redis",
        "bare `redis` client",
        "polls every 100 ms; the pause is chosen by this harness",
        Recipe::Rust("bare"),
    ),
    peer("rslock", "rslock", "polls three times, with pauses of 0-200 ms, in a loop", Recipe::Rust("rslock")),
    peer("redsync", "go-redsync", "polls every 50-250 ms; 32 tries by default, here no limit", Recipe::Go),
    peer("redis-py", "redis-py", "polls every 100 ms", Recipe::RedisPy),
    peer("python-redis-lock", "python-redis-lock", "`BLPOP` of a signal", Recipe::Python("python-redis-lock")),
    peer("pottery", "pottery", "polls every 0-200 ms", Recipe::Python("pottery")),
    peer(
        "node-redlock",
        "node-redlock",
        "polls every 100-300 ms; 10 tries by default, here no limit",
        Recipe::Node("redlock"),
    ),
    peer(
        "redis-semaphore",
        "redis-semaphore",
        "polls every 10 ms; for 10 s by default",
        Recipe::Node("redis-semaphore"),
    ),
    peer("redisson", "Redisson", "a message wakes one waiter of each process", Recipe::Redisson("lock")),
    peer("redisson-fair", "Redisson, fair", "a queue, and a message to the next waiter", Recipe::Redisson("fair-lock")),
    peer("symfony", "Symfony Lock", "polls every 90-110 ms", Recipe::Symfony),
    peer("php-way-six", "PHP, by hand", "`SET NX PX`, polls every 5 ms", Recipe::Php("way6")),
    peer(
        "php-redlock",
        "PHP, Redlock by hand",
        "polls every 100-200 ms; 3 tries as published, here no limit",
        Recipe::Php("redlock"),
    ),
];

impl Peer {
    /// The program and its arguments.
    ///
    /// # Errors
    /// What is not installed.
    pub fn command(&self) -> Result<Vec<PathBuf>, String> {
        match self.recipe {
            Recipe::Ours { .. } => Ok(vec![std::env::current_exe().map_err(|error| error.to_string())?]),
            Recipe::Rust(program) => Ok(vec![installed(&format!("bench/rust/release/{program}"))?]),
            Recipe::Go => Ok(vec![installed("bench/redsync")?]),
            Recipe::RedisPy => Ok(vec![python("redis.lock")?, source("python/worker.py"), "redis-py".into()]),
            Recipe::Python("python-redis-lock") => {
                Ok(vec![python("redis_lock")?, source("python/worker.py"), "python-redis-lock".into()])
            }
            Recipe::Python(library) => Ok(vec![python(library)?, source("python/worker.py"), library.into()]),
            Recipe::Node(kind) => {
                let module = installed(&format!("node/node_modules/{kind}"))?;
                let root = module.parent().map(Path::to_path_buf).unwrap_or_default();
                check(Path::new("node"), &["--version"], "node")?;
                Ok(vec!["node".into(), source("node/worker.mjs"), root, kind.into()])
            }
            Recipe::Redisson(kind) => {
                let classes = installed("redisson/bench-classes/Worker.class")?;
                check(Path::new("java"), &["-version"], "java")?;
                let classes = classes.parent().map(Path::to_path_buf).unwrap_or_default();
                let path = format!("{}:{}/*", classes.display(), classes.with_file_name("lib").display());
                Ok(vec!["java".into(), "-cp".into(), path.into(), "Worker".into(), kind.into()])
            }
            Recipe::Php(kind) => {
                php()?;
                Ok(vec!["php".into(), source("php/worker.php"), kind.into()])
            }
            Recipe::Symfony => {
                php()?;
                Ok(vec!["php".into(), source("php/worker.php"), "symfony".into(), installed("symfony/autoload.php")?])
            }
        }
    }

    /// Whether it is fencelock, and whether its tasks share leases.
    pub const fn ours(&self) -> Option<bool> {
        if let Recipe::Ours { sharing } = self.recipe { Some(sharing) } else { None }
    }

    /// The installed version, as the library reports it.
    ///
    /// # Errors
    /// What is not installed, or why it does not run.
    pub fn version(&self) -> Result<String, String> {
        if self.ours().is_some() {
            return Ok(format!("fencelock {}", env!("CARGO_PKG_VERSION")));
        }
        let command = self.command()?;
        let mut process = std::process::Command::new(&command[0]);
        let output = process.args(&command[1..]).arg("version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{}: {error}", command[0].display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let words =
            String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("it does not run").to_owned();
        Err(words)
    }
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(path)
}
