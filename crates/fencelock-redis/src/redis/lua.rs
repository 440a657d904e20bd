use redis::{Arg, Cmd, Script};

/// Shared by all scripts of a lock.
const LOCK: &str = include_str!("lua/lock.lua");

/// A script and its digest.
#[derive(Debug)]
pub(crate) struct Lua {
    source: String,
    pub(super) digest: String,
}

impl Lua {
    /// A script for a lock: the common part, the parts that it needs, and its own source.
    pub(super) fn new(parts: &[&str], body: &str) -> Self {
        Self::with_fast_path("", parts, body)
    }

    /// A script that begins with its common case. A call that ends there does not create the functions of the rest.
    pub(super) fn with_fast_path(fast_path: &str, parts: &[&str], body: &str) -> Self {
        Self::alone([&[fast_path, LOCK], parts, &[body]].concat().concat())
    }

    /// A script that does not concern a lock.
    pub(super) fn alone(source: String) -> Self {
        let digest = Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }

    /// A call by digest, with the complete script instead.
    pub(crate) fn in_full(&self, by_digest: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.source);
        for arg in by_digest.args_iter().skip(2) {
            // Only SCAN has a cursor as an argument.
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}
