use fencelock_core::{Expiry, Invalid, Key, LossReason, Occupant, Unknown};
use std::fmt;
use std::time::Duration;

/// Why there is no lock, or no longer one. Each meaning has a name of its own, and none stands for two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else had the key until the wait was over. Nothing is left behind.
    #[error("{}", Busy { key, holder, expires_in: *expires_in, waited: *waited, attempts: *attempts })]
    Busy {
        /// What was asked for.
        key: Key,
        /// Who has it.
        holder: Occupant,
        /// When that hold ends unless it is renewed.
        expires_in: Expiry,
        /// How long this caller waited.
        waited: Duration,
        /// How often it asked.
        attempts: u32,
    },
    /// The place where the lock lives did not answer: it could not be told whether the lock is free.
    #[error("{}", Unreached { key: key.as_ref(), cause, waited: *waited, attempts: *attempts })]
    Unreachable {
        /// What was asked for, if it was one key.
        key: Option<Key>,
        /// The last cause, node by node.
        cause: Unknown,
        /// How long it was tried.
        waited: Duration,
        /// How often.
        attempts: u32,
    },
    /// The place has the lock, but too few of its replicas confirmed that they have it too: a fail-over could lose it, so it
    /// does not count. A new lock was given back; a hold that was there before goes on until its old end.
    #[error("the lock on {key} does not count: {cause}")]
    NotReplicated {
        /// What was asked for.
        key: Key,
        /// How many replicas confirmed it in time.
        confirmed: u32,
        /// How many must.
        wanted: u32,
        /// Where, and in what time.
        cause: Unknown,
    },
    /// The hold is over although nobody here released it. Stop what it protected.
    #[error("the lock on {key} is lost: {reason}")]
    Lost {
        /// What was held.
        key: Key,
        /// Why it is over.
        reason: LossReason,
    },
    /// Something that was given cannot be used; trying again changes nothing.
    #[error("{0}")]
    Config(#[from] Invalid),
    /// The client was closed.
    #[error("this client is closed ({held} held, {pending} releases under way)")]
    Closed {
        /// Holds that were not released when the time to close was over.
        held: usize,
        /// Releases that were not confirmed by then.
        pending: usize,
    },
}

/// The words of [`Error::Unreachable`].
struct Unreached<'a> {
    key: Option<&'a Key>,
    cause: &'a Unknown,
    waited: Duration,
    attempts: u32,
}

impl fmt::Display for Unreached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Some(key) => write!(f, "the home of the lock on {key}")?,
            None => f.write_str("the home of the locks")?,
        }
        f.write_str(if self.cause.is_refusal() { " grants nothing" } else { " cannot be reached" })?;
        if self.attempts > 1 {
            write!(f, " after {} and {} tries", Span(self.waited), self.attempts)?;
        } else if !self.waited.is_zero() {
            write!(f, " after {}", Span(self.waited))?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// The words of [`Error::Busy`].
struct Busy<'a> {
    key: &'a Key,
    holder: &'a Occupant,
    expires_in: Expiry,
    waited: Duration,
    attempts: u32,
}

impl fmt::Display for Busy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.key, self.holder)?;
        match self.expires_in {
            Expiry::In(left) => write!(f, ", whose lease ends in {} unless renewed", Span(left))?,
            Expiry::Never => f.write_str(", without an end of its own")?,
        }
        if self.waited > Duration::from_millis(10) {
            write!(f, "; gave up after {}", Span(self.waited))?;
        }
        if self.attempts > 1 {
            write!(f, " and {} tries", self.attempts)?;
        }
        Ok(())
    }
}

/// A span as people write it: `85 ms`, `4.2 s`, `00:03:10`.
#[derive(Debug, Clone, Copy)]
pub struct Span(
    /// The span.
    pub Duration,
);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if self.0 < Duration::from_secs(1) {
            write!(f, "{} ms", self.0.as_millis())
        } else if seconds < 60 {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        } else {
            write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
        }
    }
}

/// Wrong credentials and another set of servers are matters of configuration; anything else may pass.
pub(crate) fn unreachable(key: Option<&Key>, cause: Unknown, waited: Duration, attempts: u32) -> Error {
    if cause.is_permanent() {
        return Error::Config(Invalid::new(cause.to_string()));
    }
    Error::Unreachable { key: key.cloned(), cause, waited, attempts }
}

/// As [`unreachable`], for what must be replicated to count.
pub(crate) fn could_not_tell(key: &Key, cause: Unknown, waited: Duration, attempts: u32) -> Error {
    match cause.not_replicated() {
        Some((confirmed, of)) => Error::NotReplicated { key: key.clone(), confirmed, wanted: of, cause },
        None => unreachable(Some(key), cause, waited, attempts),
    }
}

/// As [`unreachable`], for what is asked once.
pub(crate) fn unreachable_once(key: Option<&Key>, cause: Unknown) -> Error {
    unreachable(key, cause, Duration::ZERO, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_names_key_holder_time_left_and_effort() {
        let error = Error::Busy {
            key: Key::new("nightly-report").unwrap(),
            holder: Occupant::from_wire(&format!("{} web-1:4242 nightly", "ab".repeat(16))),
            expires_in: Expiry::In(Duration::from_millis(12_340)),
            waited: Duration::from_secs(5),
            attempts: 7,
        };
        assert_eq!(
            error.to_string(),
            "nightly-report is held by web-1:4242 (nightly), whose lease ends in 12.3 s unless renewed; \
             gave up after 5.0 s and 7 tries"
        );
    }

    #[test]
    fn unreachable_names_the_key_if_there_is_one() {
        let cause = Unknown::new("redis://cache", fencelock_core::Fault::Timeout, "no answer");
        let key = Some(Key::new("nightly-report").unwrap());
        let of = |key| Error::Unreachable { key, cause: cause.clone(), waited: Duration::from_secs(5), attempts: 7 };
        let text = of(key).to_string();
        assert!(
            text.starts_with("the home of the lock on nightly-report cannot be reached after 5.0 s and 7 tries: "),
            "{text}"
        );
        assert!(of(None).to_string().starts_with("the home of the locks cannot be reached after 5.0 s"));
        let at_once = Error::Unreachable { key: None, cause: cause.clone(), waited: Duration::ZERO, attempts: 1 };
        assert!(at_once.to_string().starts_with("the home of the locks cannot be reached: "), "{at_once}");
    }

    #[test]
    fn spans_read_like_a_watch() {
        assert_eq!(Span(Duration::from_millis(85)).to_string(), "85 ms");
        assert_eq!(Span(Duration::from_secs(190)).to_string(), "00:03:10");
    }
}
