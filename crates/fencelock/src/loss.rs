use crate::error::Error;
use fencelock_core::{Key, LossReason, Span, Unknown};
use std::fmt;
use std::time::Duration;

/// One lock of several that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// What was held.
    pub key: Key,
    /// Why it is lost.
    pub reason: LossReason,
    /// Why its lease could not be renewed, if it ran out for that.
    pub failure: Option<RenewalFailure>,
}

/// Why the renewals of a lock fail, and since when. `{}` shows both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenewalFailure {
    /// Why the last renewal failed.
    pub cause: Unknown,
    /// The time since the first of them was sent.
    pub lasts: Duration,
}

impl Loss {
    /// A loss that no renewal has caused.
    pub(crate) const fn new(key: Key, reason: LossReason) -> Self {
        Self { key, reason, failure: None }
    }
}

/// Why the lock is lost, without its key: the reason, and why its lease could not be renewed.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, ": {failure}"))
    }
}

impl fmt::Display for RenewalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, for {}", self.cause, Span(self.lasts))
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Self::lost(loss.key, loss.reason)
    }
}
