use super::wire::WIRE;
use redis::{Arg, Cmd, Script};

/// Stands for the version of the wire format in the scripts.
const VERSION: &str = "WIRE";

/// Shared by all scripts of a lock.
pub(crate) const LOCK: &str = include_str!("lua/lock.lua");

/// Runs another script, in place of [`BODY`].
const TRIAL: &str = include_str!("lua/trial.lua");
const BODY: &str = "  -- SCRIPT\n";

/// A script and its digest.
#[derive(Debug)]
pub(crate) struct Lua {
    source: String,
    pub(crate) digest: String,
    /// Whether it writes nothing.
    pub(crate) only_reads: bool,
}

impl Lua {
    /// A script for a lock: the common part, the parts that it needs, and its own source.
    pub(crate) fn new(parts: &[&str], body: &str) -> Self {
        Self::with_fast_path("", parts, body)
    }

    /// A script that begins with its common case. A call that ends there does not create the functions of the rest.
    pub(crate) fn with_fast_path(fast_path: &str, parts: &[&str], body: &str) -> Self {
        Self::alone(&[&[fast_path, LOCK], parts, &[body]].concat().concat())
    }

    /// A script that does not concern a lock.
    pub(crate) fn alone(source: &str) -> Self {
        let source = source.replace(VERSION, WIRE);
        let digest = Script::new(&source).get_hash().to_owned();
        Self { source, digest, only_reads: false }
    }

    /// The same script, which writes nothing.
    pub(crate) fn reading(self) -> Self {
        Self { only_reads: true, ..self }
    }

    /// The same arguments for another command.
    fn with(name: &str, script: &str, by_digest: &Cmd) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script);
        for arg in by_digest.args_iter().skip(2) {
            // Only SCAN has a cursor as an argument.
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }

    /// The call as `server::doctor::trial` sends it.
    pub(crate) fn in_trial(&self, by_digest: &Cmd) -> Cmd {
        Self::with("EVAL", &TRIAL.replacen(BODY, &self.source, 1), by_digest)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

/// The commands that run a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commands {
    in_full: &'static str,
    by_digest: &'static str,
}

impl Commands {
    pub(crate) const USUAL: Self = Self { in_full: "EVAL", by_digest: "EVALSHA" };
    /// For a user who may only read the keys. Redis 7.0 has them.
    pub(crate) const READING: Self = Self { in_full: "EVAL_RO", by_digest: "EVALSHA_RO" };

    /// A call by digest, with the complete script.
    pub(crate) fn in_full(self, lua: &Lua, by_digest: &Cmd) -> Cmd {
        Lua::with(self.in_full, &lua.source, by_digest)
    }

    /// The same call after the server has got the script.
    pub(crate) fn by_digest(self, lua: &Lua, by_digest: &Cmd) -> Cmd {
        Lua::with(self.by_digest, &lua.digest, by_digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a string of a script has a number where a version belongs: alone, at its beginning, or after `fencelock:` or a tab.
    fn has_version(literal: &str) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let begins = |text: &str| text.split([' ', ':', '$']).next().is_some_and(is_number);
        let first = literal.trim_start_matches('^');
        let mut later = ["fencelock:", r"\t"].into_iter().flat_map(|before| literal.split(before).skip(1));
        literal == WIRE || first.contains(' ') && begins(first) || later.any(begins)
    }

    #[test]
    fn no_script_has_a_version_of_its_own() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/lua");
        let mut placeholders = 0;
        for file in std::fs::read_dir(directory).unwrap() {
            let path = file.unwrap().path();
            // A completion is a record with a version of its own.
            let has_own = path.ends_with("completion.lua") || path.ends_with("write_completion.lua");
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let code = line.split("--").next().unwrap();
                let versions = code.split('\'').skip(1).step_by(2).filter(|literal| has_version(literal)).count();
                assert!(has_own || versions == 0, "{}: write {VERSION} for the version: {line}", path.display());
                placeholders += code.matches(VERSION).count();
            }
        }
        assert!(placeholders >= 20, "{placeholders}");
    }

    #[test]
    fn a_version_that_is_a_number_is_found() {
        for literal in ["fencelock:1:s:%d", "^fencelock:2:r", r"\t1", r"^\t1 r 1 0", r"%s\t1 s", "1 ", "^1 (%d+)", "1"]
        {
            assert!(has_version(literal), "{literal}");
        }
        for literal in
            ["fencelock:WIRE:r:0:[1-9]%d*$", "^([1-9]%d*) ", r"\tWIRE r 1 0", "WIRE ", "WIRE", "%d %s", "86400000"]
        {
            assert!(!has_version(literal), "{literal}");
        }
    }
}
