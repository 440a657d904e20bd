use fencelock_core::once::Utc;
use fencelock_core::{CountedSuccess, FencingToken, Key, Owner, Span};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Which process has done the work, when, and when the next window of the caller begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowDone {
    pub(crate) key: Key,
    pub(crate) done: CountedSuccess,
    pub(crate) now_micros: u64,
}

impl WindowDone {
    /// The key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The process that has done it.
    pub const fn by(&self) -> &Owner {
        &self.done.completion.owner
    }

    /// The fencing token of the run.
    pub const fn fencing_token(&self) -> FencingToken {
        self.done.completion.token
    }

    /// When the run got the lock, by the clock of the backend. Every record of today contains it.
    pub fn granted(&self) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(self.done.completion.granted_micros))
    }

    /// How long ago that was, when the backend replied; zero if its clock was set back since.
    pub fn granted_ago(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.now_micros.saturating_sub(self.done.completion.granted_micros)))
    }

    /// When the run got the lock, as `2026-11-22T09:00:00Z`.
    pub fn granted_utc(&self) -> Option<String> {
        Some(Utc(self.done.completion.granted_micros).to_string())
    }

    /// When the next window begins, by the clock of the backend.
    pub fn next_window(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.done.until_micros)
    }

    /// How long until then, when the backend replied.
    pub const fn next_window_in(&self) -> Duration {
        Duration::from_micros(self.done.until_micros.saturating_sub(self.now_micros))
    }

    /// When the next window begins, as `2026-11-22T09:00:00Z`.
    pub fn next_window_utc(&self) -> String {
        Utc(self.done.until_micros).to_string()
    }
}

/// `done by web-1:42 (nightly) 25 min ago; the next window begins in 35 min, at 2026-11-22T09:00:00Z`.
impl fmt::Display for WindowDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = self.now_micros.saturating_sub(self.done.completion.granted_micros);
        let (by, ago, next) = (self.by(), Span(Duration::from_micros(ago)), Span(self.next_window_in()));
        write!(f, "done by {by} {ago} ago; the next window begins in {next}, at {}", self.next_window_utc())
    }
}
