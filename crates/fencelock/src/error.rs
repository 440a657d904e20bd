use crate::modes;
use fencelock_core::ConnectError;
use fencelock_core::{Expiry, Foreign, Holders, Invalid, Key, LossReason, Occupant, Occupied, Span, Unknown};
use std::fmt;
use std::time::Duration;

/// Why a lock was not acquired, or was lost. Each variant has exactly one meaning.
///
/// `{}` shows only the error, and [`source`](std::error::Error::source) returns its cause, as error reporters expect.
/// `{:#}` shows both on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Another client held the key until the maximum wait was over. No claim is left behind.
    #[non_exhaustive]
    Busy {
        /// The key.
        key: Key,
        /// The holders.
        holders: Holders,
        /// When the first of these holds ends unless it is renewed.
        expires_in: Expiry,
        /// How long the caller waited.
        waited: Duration,
        /// The number of attempts.
        attempts: u32,
    },
    /// The backend did not answer, so it is unknown whether the lock is free.
    #[non_exhaustive]
    Unreachable {
        /// The key, if the request was about one key.
        key: Option<Key>,
        /// The last cause, node by node: the source of this error.
        cause: Unknown,
        /// How long the client tried.
        waited: Duration,
        /// The number of attempts.
        attempts: u32,
    },
    /// The backend has granted the lock, but too few of its replicas have confirmed it: a failover could lose it, so it
    /// does not count. A new lock was released; an existing hold continues until its previous end.
    #[non_exhaustive]
    NotReplicated {
        /// The key.
        key: Key,
        /// The number of replicas that confirmed in time.
        confirmed: u32,
        /// The required number.
        wanted: u32,
        /// The node and the timeout: the source of this error.
        cause: Unknown,
    },
    /// The hold has ended although it was not released here. Stop the protected work.
    #[non_exhaustive]
    Lost {
        /// The key.
        key: Key,
        /// The reason.
        reason: LossReason,
    },
    /// An argument is invalid; a retry does not help.
    Config(Invalid),
    /// The client was closed.
    #[non_exhaustive]
    Closed {
        /// Holds that were not released in time.
        held: usize,
        /// Releases that were not confirmed in time.
        pending: usize,
    },
}

impl Error {
    /// The loss of a hold of `key`: for programs that watch holds themselves and report like this library.
    pub const fn lost(key: Key, reason: LossReason) -> Self {
        Self::Lost { key, reason }
    }

    /// The error of a backend that was called directly, once and not for a single key.
    pub const fn unreachable(cause: Unknown) -> Self {
        Self::Unreachable { key: None, cause, waited: Duration::ZERO, attempts: 1 }
    }

    /// The error of the last of several claims, as that of all: the wait in total, and the attempts with the `earlier` ones.
    pub(crate) fn after(mut self, total: Duration, earlier: u32) -> Self {
        if let Self::Busy { waited, attempts, .. } | Self::Unreachable { waited, attempts, .. } = &mut self {
            *waited = total;
            *attempts = attempts.saturating_add(earlier);
        }
        self
    }

    /// Whether another client held the key until the maximum wait was over: [`Error::Busy`].
    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// Whether the holder of the key is unknown: [`Error::Unreachable`].
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether too few replicas confirmed the lock: [`Error::NotReplicated`].
    pub const fn is_not_replicated(&self) -> bool {
        matches!(self, Self::NotReplicated { .. })
    }

    /// Whether a hold ended without a release: [`Error::Lost`].
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether an argument is invalid, so that a retry does not help: [`Error::Config`].
    pub const fn is_config(&self) -> bool {
        matches!(self, Self::Config(_))
    }

    /// Whether the client was closed: [`Error::Closed`].
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// The key, if the error is about one.
    pub const fn key(&self) -> Option<&Key> {
        match self {
            Self::Busy { key, .. } | Self::NotReplicated { key, .. } | Self::Lost { key, .. } => Some(key),
            Self::Unreachable { key, .. } => key.as_ref(),
            Self::Config(_) | Self::Closed { .. } => None,
        }
    }

    fn cause(&self) -> Option<&Unknown> {
        match self {
            Self::Unreachable { cause, .. } | Self::NotReplicated { cause, .. } => Some(cause),
            Self::Busy { .. } | Self::Lost { .. } | Self::Config(_) | Self::Closed { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { key, holders, expires_in, waited, attempts } => {
                Busy { key, holders, expires_in: *expires_in, waited: *waited, attempts: *attempts }.fmt(f)
            }
            Self::Unreachable { key, cause, waited, attempts } => {
                Unreached { key: key.as_ref(), cause, waited: *waited, attempts: *attempts }.fmt(f)
            }
            Self::NotReplicated { key, .. } => write!(f, "the lock on {key} does not count"),
            Self::Lost { key, reason } => write!(f, "the lock on {key} is lost: {reason}"),
            Self::Config(invalid) => invalid.fmt(f),
            Self::Closed { held, pending } => {
                write!(f, "this client is closed ({held} held, {pending} releases under way)")
            }
        }?;
        match self.cause() {
            Some(cause) if f.alternate() => write!(f, ": {cause}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of `Config` is its reason, so it has no source.
        self.cause().map(|cause| cause as _)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Config(invalid)
    }
}

/// A permanent refusal of a backend is a configuration error.
impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Url(invalid) => Self::Config(invalid),
            ConnectError::Unknown(cause) => unreachable_once(None, cause),
            other => Self::Config(Invalid::new(other.to_string())),
        }
    }
}

/// The text of [`Error::Unreachable`].
struct Unreached<'a> {
    key: Option<&'a Key>,
    cause: &'a Unknown,
    waited: Duration,
    attempts: u32,
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
struct Busy<'a> {
    key: &'a Key,
    holders: &'a Holders,
    expires_in: Expiry,
    waited: Duration,
    attempts: u32,
}

impl fmt::Display for Busy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is held by {}", self.key, self.holders)?;
        match self.expires_in {
            Expiry::In(left) => write!(f, ", whose lease ends in {} unless renewed", Span(left))?,
            Expiry::Never => f.write_str(", with no expiry")?,
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

/// Wrong credentials and another set of servers are configuration errors; other errors may be temporary.
pub(crate) fn unreachable(key: Option<&Key>, cause: Unknown, waited: Duration, attempts: u32) -> Error {
    if let (Some(key), Some(present)) = (key, cause.conflicting_mode()) {
        return Error::Config(modes::conflict(key, present));
    }
    if cause.is_permanent() {
        return Error::Config(Invalid::new(cause.to_string()));
    }
    Error::Unreachable { key: key.cloned(), cause, waited, attempts }
}

/// Like [`unreachable`], for requests that replicas must confirm.
pub(crate) fn unconfirmed(key: &Key, cause: Unknown, waited: Duration, attempts: u32) -> Error {
    match cause.not_replicated() {
        Some((confirmed, of)) => Error::NotReplicated { key: key.clone(), confirmed, wanted: of, cause },
        None => unreachable(Some(key), cause, waited, attempts),
    }
}

/// The error at the end of a wait.
pub(crate) fn busy(key: &Key, occupied: Option<Occupied>, waited: Duration, attempts: u32) -> Error {
    // Before the first reply, the holder is unknown.
    let unknown = || Occupied::new(Occupant::Foreign(Foreign::other("no answer yet")), Expiry::Never);
    let Occupied { holders, expiry: expires_in, .. } = occupied.unwrap_or_else(unknown);
    Error::Busy { key: key.clone(), holders, expires_in, waited, attempts }
}

/// Like [`unreachable`], for a single attempt.
pub(crate) fn unreachable_once(key: Option<&Key>, cause: Unknown) -> Error {
    unreachable(key, cause, Duration::ZERO, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Fault, Foreign, Occupant};

    #[test]
    fn busy_names_key_holder_time_left_and_effort() {
        let error = Error::Busy {
            key: Key::new("nightly-report").unwrap(),
            holders: Occupant::from_wire(&format!("{} web-1:4242 nightly", "ab".repeat(16))).into(),
            expires_in: Expiry::In(Duration::from_millis(12_340)),
            waited: Duration::from_secs(5),
            attempts: 7,
        };
        assert_eq!(
            error.to_string(),
            "nightly-report is held by web-1:4242 (nightly), whose lease ends in 12.3 s unless renewed; \
             gave up after 5 s and 7 tries"
        );
    }

    #[test]
    fn unreachable_names_the_key_if_there_is_one() {
        let cause = Unknown::new("redis://cache", Fault::Timeout, "no answer");
        let key = Some(Key::new("nightly-report").unwrap());
        let of = |key| Error::Unreachable { key, cause: cause.clone(), waited: Duration::from_secs(5), attempts: 7 };
        assert_eq!(
            of(key).to_string(),
            "the backend of the lock on nightly-report cannot be reached after 5 s and 7 tries"
        );
        assert!(of(None).to_string().starts_with("the backend of the locks cannot be reached after 5 s"));
        assert_eq!(Error::unreachable(cause.clone()).to_string(), "the backend of the locks cannot be reached");
    }

    /// One of each variant. The match fails to compile when a variant is added.
    fn all() -> Vec<Error> {
        let key = || Key::new("k").unwrap();
        let cause = |fault| Unknown::new("redis://cache:6379", fault, "in the words of the server");
        let all = vec![
            busy_by(Occupant::Foreign(Foreign::string("1"))),
            Error::Unreachable {
                key: Some(key()),
                cause: cause(Fault::Timeout),
                waited: Duration::from_secs(2),
                attempts: 3,
            },
            unconfirmed(&key(), cause(Fault::NotReplicated { confirmed: 0, wanted: 2 }), Duration::ZERO, 1),
            Error::lost(key(), LossReason::TakenBy(Occupant::Foreign(Foreign::string("1")).into())),
            Error::from(Invalid::new("the reason")),
            Error::Closed { held: 1, pending: 2 },
        ];
        let kind = |error: &Error| match error {
            Error::Busy { .. } => 0,
            Error::Unreachable { .. } => 1,
            Error::NotReplicated { .. } => 2,
            Error::Lost { .. } => 3,
            Error::Config(_) => 4,
            Error::Closed { .. } => 5,
        };
        assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        all
    }

    fn busy_by(holder: Occupant) -> Error {
        Error::Busy {
            key: Key::new("k").unwrap(),
            holders: holder.into(),
            expires_in: Expiry::Never,
            waited: Duration::from_secs(1),
            attempts: 1,
        }
    }

    #[test]
    fn no_text_is_printed_twice_in_a_chain() {
        for error in all() {
            let chain: Vec<String> =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
                    .map(ToString::to_string)
                    .collect();
            let whole = chain.join(": ");
            for text in &chain {
                assert_eq!(whole.matches(text.as_str()).count(), 1, "{whole}");
            }
            assert_eq!(format!("{error:#}"), whole, "the alternate form shows the chain");
        }
    }

    #[test]
    fn the_cause_of_an_outage_is_the_source() {
        use std::error::Error as _;
        for error in all() {
            let source = error.source().and_then(|source| source.downcast_ref::<Unknown>());
            assert_eq!(source.is_some(), error.is_unreachable() || error.is_not_replicated(), "{error}");
        }
    }

    #[test]
    fn every_error_is_of_one_kind() {
        for error in all() {
            let kinds = [
                error.is_busy(),
                error.is_unreachable(),
                error.is_not_replicated(),
                error.is_lost(),
                error.is_config(),
                error.is_closed(),
            ];
            assert_eq!(kinds.into_iter().filter(|is| *is).count(), 1, "{error}");
            assert_eq!(error.key().is_none(), error.is_config() || error.is_closed(), "{error}");
        }
    }

    #[test]
    fn a_conflict_of_modes_names_the_key_what_is_there_and_what_to_do() {
        let present = fencelock_core::Mode::permits(1, 10).unwrap();
        let cause = Unknown::new("redis://cache", Fault::ModeConflict(present), "");
        let error = unreachable_once(Some(&Key::new("pool").unwrap()), cause);
        assert_eq!(
            error.to_string(),
            "pool is in use as a semaphore with 10 permits: use the same mode and limit in all clients, or another key"
        );
        assert!(error.is_config());
    }

    #[test]
    fn a_backend_that_refuses_for_good_is_a_matter_of_configuration() {
        let of = |fault| Error::from(ConnectError::Unknown(Unknown::new("a:1", fault, "")));
        assert!(of(Fault::Denied).is_config() && of(Fault::Timeout).is_unreachable());
        assert!(Error::from(ConnectError::Url(Invalid::new("no"))).is_config());
    }
}
