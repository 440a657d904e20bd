//! The wall clock of one server, which can be set.

use crate::Failure;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// In which way a clock is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    None,
    Forward(Duration),
    Back(Duration),
}

/// A file of eight bytes that a server's process maps.
#[derive(Debug)]
pub(crate) struct WallClock {
    path: PathBuf,
    file: File,
}

impl WallClock {
    pub(crate) fn new(path: PathBuf) -> Result<Self, Failure> {
        fs::write(&path, 0i64.to_ne_bytes())?;
        let file = OpenOptions::new().write(true).open(&path)?;
        Ok(Self { path, file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the clock. It holds when this returns.
    pub(crate) fn set(&self, shift: Shift) -> Result<(), Failure> {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let micros = match shift {
            Shift::None => 0,
            Shift::Forward(span) => micros(span),
            Shift::Back(span) => -micros(span),
        };
        Ok(self.file.write_all_at(&micros.to_ne_bytes(), 0)?)
    }
}

/// Compiles the library that a server is started with.
pub(crate) fn compile(dir: &Path) -> Result<PathBuf, Failure> {
    let (source, library) = (dir.join("wall_clock.c"), dir.join("wall_clock.so"));
    fs::write(&source, include_str!("../shim/wall_clock.c"))?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    let output = cc.output().map_err(|error| format!("cc, which compiles the wall clock: {error}"))?;
    if !output.status.success() {
        return Err(format!("the wall clock does not compile: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_conformance::{RedisServer, redis_or_skip};

    fn hour(server: &RedisServer) -> i64 {
        let reply = server.command(&["EVAL", "return tonumber(redis.call('TIME')[1])", "0"]);
        let fencelock_conformance::Reply::Int(seconds) = reply else { panic!("{reply:?}") };
        seconds / 3600
    }

    #[test]
    fn a_server_goes_by_the_clock_that_it_is_given() {
        if redis_or_skip().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::new(dir.path().join("clock")).unwrap();
        let options = RedisServer::options().env("LD_PRELOAD", compile(dir.path()).unwrap());
        let mut server = options.env("FENCELOCK_WALL_CLOCK", clock.path()).start().unwrap();
        let now = hour(&server);
        let day = Duration::from_hours(24);
        clock.set(Shift::Forward(day)).unwrap();
        assert!((24..=25).contains(&(hour(&server) - now)));
        server.restart().unwrap();
        assert!((24..=25).contains(&(hour(&server) - now)), "also after a restart");
        clock.set(Shift::Back(day)).unwrap();
        assert!((-24..=-23).contains(&(hour(&server) - now)));
        clock.set(Shift::None).unwrap();
        assert!((0..=1).contains(&(hour(&server) - now)));
    }
}
