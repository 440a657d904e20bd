//! An adjustable wall clock for one server.

use crate::shim;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Result;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The error of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The clock is correct.
    None,
    /// The clock is ahead.
    Forward(Duration),
    /// The clock is behind.
    Back(Duration),
    /// The clock runs fast by this number of millionths, or slow if it is negative.
    Rate(i64),
}

/// The wall clock of a server that was started with it, as by [`crate::RedisOptions::wall_clock`]. It does not affect the monotonic clock.
#[derive(Debug)]
pub struct WallClock {
    path: PathBuf,
    library: PathBuf,
    /// Mapped by the server process; the C library defines the format.
    file: File,
    _dir: Option<TempDir>,
}

impl WallClock {
    /// A correct clock. Its files are stored in `dir` under `name`.
    ///
    /// # Errors
    /// If the files cannot be written, or `cc` cannot compile the library that the server is started with.
    pub fn new(dir: &Path, name: &str) -> Result<Self> {
        let library = shim::compile(dir, name, include_str!("../../shim/wall_clock.c"))?;
        let path = dir.join(name);
        fs::write(&path, [0; 32])?;
        let file = OpenOptions::new().write(true).open(&path)?;
        Ok(Self { path, library, file, _dir: None })
    }

    /// The same in a directory of its own, which servers of all users can read.
    pub fn for_all_users() -> Result<Self> {
        let readable = Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("fencelock-clock-").permissions(readable).tempdir()?;
        let clock = Self::new(dir.path(), "clock")?;
        Ok(Self { _dir: Some(dir), ..clock })
    }

    /// The environment of a server with this clock.
    pub fn env(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("FENCELOCK_WALL_CLOCK", &self.path)]
    }

    /// Sets the clock. The change is effective when this returns.
    pub fn set(&self, shift: Shift) -> Result<()> {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let (shift, rate) = match shift {
            Shift::None => (0, 0),
            Shift::Forward(span) => (micros(span), 0),
            Shift::Back(span) => (-micros(span), 0),
            Shift::Rate(millionths) => (0, millionths),
        };
        let write = |number: i64, index: u64| self.file.write_all_at(&number.to_ne_bytes(), index * 8);
        write(0, 2)?;
        write(shift, 0)?;
        write(boot_micros(), 3)?;
        write(rate, 2)
    }

    /// Stops the clock at this time, in microseconds since 1970, until the next call. The change is effective when this
    /// returns.
    pub fn stop_at(&self, micros: u64) -> Result<()> {
        self.file.write_all_at(&micros.to_ne_bytes(), 8)
    }
}

/// The reference clock of [`Shift::Rate`]. No lease uses it.
fn boot_micros() -> i64 {
    let at = clock_gettime(ClockId::Boottime);
    at.tv_sec * 1_000_000 + at.tv_nsec / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisServer, Reply, redis_or_skip};

    fn hour(server: &RedisServer) -> i64 {
        let reply = server.command(&["EVAL", "return tonumber(redis.call('TIME')[1])", "0"]);
        let Reply::Int(seconds) = reply else { panic!("{reply:?}") };
        seconds / 3600
    }

    #[test]
    fn a_server_uses_its_wall_clock() {
        if redis_or_skip().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::new(dir.path(), "clock").unwrap();
        let mut server = RedisServer::options().wall_clock(&clock).start().unwrap();
        let now = hour(&server);
        let day = Duration::from_secs(86400);
        clock.set(Shift::Forward(day)).unwrap();
        assert!((24..=25).contains(&(hour(&server) - now)));
        server.restart().unwrap();
        assert!((24..=25).contains(&(hour(&server) - now)), "the shift persists after a restart");
        clock.set(Shift::Back(day)).unwrap();
        assert!((-24..=-23).contains(&(hour(&server) - now)));
        clock.set(Shift::None).unwrap();
        assert!((0..=1).contains(&(hour(&server) - now)));
    }

    #[test]
    fn a_clock_at_double_speed_gains_the_elapsed_time() {
        if redis_or_skip().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::new(dir.path(), "clock").unwrap();
        let server = RedisServer::options().wall_clock(&clock).start().unwrap();
        let time = || {
            let reply = server.command(&["EVAL", "local t = redis.call('TIME') return t[1] * 1000000 + t[2]", "0"]);
            let Reply::Int(micros) = reply else { panic!("{reply:?}") };
            micros
        };
        // Rounding errors, and the time between two readings.
        let tolerance = 2000;
        for (millionths, factor) in [(1_000_000, 2), (-1_000_000, 0)] {
            clock.set(Shift::Rate(millionths)).unwrap();
            let before = boot_micros();
            let (first, began) = (time(), boot_micros());
            std::thread::sleep(Duration::from_millis(200));
            let (ends, second) = (boot_micros(), time());
            let (least, most) = (factor * (ends - began), factor * (boot_micros() - before));
            assert!((least - tolerance..=most + tolerance).contains(&(second - first)), "{} us", second - first);
        }
    }
}
