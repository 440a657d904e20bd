//! The only file that reads the clock of leases.

use crate::{Clock, Moment};
use std::time::SystemTime;

/// The production clock, which continues during suspend.
///
/// On Linux and Android it is `CLOCK_BOOTTIME`. [`std::time::Instant`] is `CLOCK_MONOTONIC` there, which stops during
/// suspend, so a laptop would trust leases after a resume that ended hours ago (rust-lang/rust#87906). On other
/// Unix systems it is the monotonic clock of the system, which counts sleep on macOS; elsewhere it is [`std::time::Instant`],
/// which counts sleep on Windows. On Linux all processes of a machine read the same time until it is booted again.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(unix)]
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1000;
        Moment::from_micros(seconds * 1_000_000 + micros)
    }

    #[cfg(not(unix))]
    fn now(&self) -> Moment {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        let now = std::time::Instant::now();
        let since = now.saturating_duration_since(*START.get_or_init(|| now));
        // Times are not compared between processes. The offset of an hour keeps the first times away from zero.
        Moment::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX).saturating_add(3_600_000_000))
    }

    fn wall_micros(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        let now = SystemTime::now();
        // A wall clock before 1970 proposes 0, and the clock of the server decides.
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_is_monotonic() {
        let clock = BootClock;
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_wall_clock_is_in_this_century() {
        assert!(BootClock.wall_micros() > 1_700_000_000_000_000);
    }
}
