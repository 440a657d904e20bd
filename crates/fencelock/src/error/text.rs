//! The texts of errors that consist of several parts.

use fencelock_core::{Expiry, Holders, Key, Span, Unknown};
use std::fmt;
use std::time::Duration;

/// The text of [`Error::Unreachable`].
pub(super) struct Unreached<'a> {
    pub(super) key: Option<&'a Key>,
    pub(super) cause: &'a Unknown,
    pub(super) waited: Duration,
    pub(super) attempts: u32,
}

impl fmt::Display for Unreached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Some(key) => write!(f, "the backend of the lock on {key}")?,
            None => f.write_str("the backend of the locks")?,
        }
        f.write_str(if self.cause.is_refusal() { " grants nothing" } else { " cannot be reached" })?;
        if self.attempts > 1 {
            write!(f, " after {} and {} tries", Span(self.waited), self.attempts)?;
        } else if self.waited > Duration::from_millis(10) {
            write!(f, " after {}", Span(self.waited))?;
        }
        Ok(())
    }
}

/// The text of [`Error::Busy`].
pub(super) struct Busy<'a> {
    pub(super) key: &'a Key,
    pub(super) holders: &'a Holders,
    pub(super) expires_in: Expiry,
    pub(super) waited: Duration,
    pub(super) attempts: u32,
}

impl fmt::Display for Busy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.key, self.holders)?;
        match self.expires_in {
            Expiry::In(left) => write!(f, ", whose lease ends in {} unless renewed", Span(left))?,
            Expiry::Never => f.write_str(", with no expiry")?,
        }
        match (self.waited > Duration::from_millis(10), self.attempts > 1) {
            (true, true) => write!(f, "; gave up after {} and {} tries", Span(self.waited), self.attempts),
            (true, false) => write!(f, "; gave up after {}", Span(self.waited)),
            (false, true) => write!(f, "; gave up after {} tries", self.attempts),
            (false, false) => Ok(()),
        }
    }
}
