#[cfg(test)]
mod tests;

use fencelock_core::engine::ClaimFailure;
use fencelock_core::{
    ConnectError, Expiry, Foreign, Holders, Invalid, Key, LossReason, Mode, Modes, Occupant, Occupied, Span, Unknown,
};
use std::fmt;
use std::time::Duration;

/// Why a lock was not acquired, or was lost. Each variant has exactly one meaning.
///
/// `{}` shows only the error, and [`source`](std::error::Error::source) returns its cause, as error reporters expect.
/// `{:#}` shows both on one line.
///
/// `{:?}` is `{:#}`, because that is what a `main` prints that returns this error.
#[derive(Clone, PartialEq, Eq)]
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
        /// Why its lease could not be renewed, and since when, if it ran out for that: the cause is the source of this error.
        failure: Option<Box<RenewalFailure>>,
        /// The other locks that were lost, if [`Guards`](crate::Guards) were released.
        others: Vec<Loss>,
    },
    /// The backend does not support the mode of the lock: see [`Client::capabilities`](crate::Client::capabilities). Nothing was
    /// sent, and a retry does not help.
    #[non_exhaustive]
    ModeUnsupported {
        /// The key.
        key: Key,
        /// The mode.
        mode: Mode,
        /// The text of this error: the backend, what it cannot do, and what to use instead.
        reason: Invalid,
    },
    /// The key is held or requested in a mode that does not fit this request: shared and permits, or permits with another limit.
    /// No claim is left behind. A retry helps only after these holds end.
    #[non_exhaustive]
    ModeConflict {
        /// The key.
        key: Key,
        /// The mode in which the key is in use.
        present: Mode,
        /// The text of this error: what does not fit, and what to do.
        reason: Invalid,
    },
    /// An argument is invalid, or the backend refuses for good; a retry does not help.
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
        Self::Lost { key, reason, failure: None, others: Vec::new() }
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

    /// What it means for the other claims of the same caller, with this TTL.
    pub(crate) fn of_claim(&self, ttl: Duration) -> ClaimFailure {
        match self {
            Self::Busy { .. } => ClaimFailure::Busy,
            Self::Unreachable { cause, waited, .. } if cause.is_quarantine() || *waited >= ttl => {
                ClaimFailure::NotServing
            }
            Self::Unreachable { cause, .. } if !cause.is_permanent() => ClaimFailure::Silent,
            _ => ClaimFailure::Refused,
        }
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

    /// Whether the backend does not support the mode: [`Error::ModeUnsupported`].
    pub const fn is_mode_unsupported(&self) -> bool {
        matches!(self, Self::ModeUnsupported { .. })
    }

    /// Whether the key is in use in a mode that does not fit the request: [`Error::ModeConflict`].
    pub const fn is_mode_conflict(&self) -> bool {
        matches!(self, Self::ModeConflict { .. })
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
            Self::Busy { key, .. }
            | Self::NotReplicated { key, .. }
            | Self::Lost { key, .. }
            | Self::ModeUnsupported { key, .. }
            | Self::ModeConflict { key, .. } => Some(key),
            Self::Unreachable { key, .. } => key.as_ref(),
            Self::Config(_) | Self::Closed { .. } => None,
        }
    }

    /// The locks that were lost, in the order in which this client detected the losses; none if this is another error.
    pub fn losses(&self) -> Vec<Loss> {
        let Self::Lost { key, reason, failure, others } = self else { return Vec::new() };
        let first = Loss { key: key.clone(), reason: reason.clone(), failure: failure.as_deref().cloned() };
        std::iter::once(first).chain(others.iter().cloned()).collect()
    }

    fn cause(&self) -> Option<&Unknown> {
        match self {
            Self::Unreachable { cause, .. } | Self::NotReplicated { cause, .. } => Some(cause),
            Self::Lost { failure, .. } => failure.as_ref().map(|failure| &failure.cause),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { key, holders, expires_in, waited, attempts } => {
                write!(f, "{key} is held by {holders}")?;
                match expires_in {
                    Expiry::In(left) => write!(f, ", whose lease ends in {} unless renewed", Span(*left))?,
                    Expiry::Never => f.write_str(", with no expiry")?,
                }
                write_effort(f, "; gave up after", *waited, *attempts)
            }
            Self::Unreachable { key, cause, waited, attempts } => {
                match key {
                    Some(key) => write!(f, "the backend of the lock on {key}")?,
                    None => f.write_str("the backend of the locks")?,
                }
                f.write_str(if cause.changed_nothing() { " grants nothing" } else { " cannot be reached" })?;
                write_effort(f, " after", *waited, *attempts)
            }
            Self::NotReplicated { key, .. } => write!(f, "the lock on {key} does not count"),
            Self::Lost { key, reason, failure, others } => {
                write!(f, "the lock on {key} is lost: {reason}")?;
                if !others.is_empty() {
                    let keys: Vec<_> = others.iter().map(|loss| loss.key.as_str()).collect();
                    write!(f, "; also lost: {}", keys.join(", "))?;
                }
                failure.as_ref().map_or(Ok(()), |failure| write!(f, "; renewals failed for {}", Span(failure.lasts)))
            }
            Self::ModeUnsupported { reason, .. } | Self::ModeConflict { reason, .. } | Self::Config(reason) => {
                reason.fmt(f)
            }
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of `Config` and of the errors of a mode is their reason, so they have no source.
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

/// A lock that is lost.
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
    fn from(Loss { key, reason, failure }: Loss) -> Self {
        Self::Lost { key, reason, failure: failure.map(Box::new), others: Vec::new() }
    }
}

/// Wrong credentials and another set of servers are configuration errors. A lock file that cannot be opened and a panic are none,
/// although a retry does not help: the key may be held. Other errors may be temporary.
pub(crate) fn unreachable(key: Option<&Key>, cause: Unknown, waited: Duration, attempts: u32) -> Error {
    if cause.is_permanent() && !cause.is_unopened() && !cause.is_panic() {
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

/// How long a task has tried, and how often, if that is worth telling.
fn write_effort(f: &mut fmt::Formatter<'_>, after: &str, waited: Duration, attempts: u32) -> fmt::Result {
    let span = Span(waited);
    match (waited > Duration::from_millis(10), attempts > 1) {
        (true, true) => write!(f, "{after} {span} and {attempts} tries"),
        (true, false) => write!(f, "{after} {span}"),
        (false, true) => write!(f, "{after} {attempts} tries"),
        (false, false) => Ok(()),
    }
}

// The errors of a mode that is refused, with their messages.

/// Checks that the backend has the mode, before anything is sent.
pub(crate) fn check_mode(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Error> {
    if modes.has(mode) {
        return Ok(());
    }
    let what = if mode.limit().is_some() { "semaphores" } else { "shared locks" };
    let (because, advice) = (modes.because, mode.alternative());
    let reason = format!("{backend} has no {what}{because}, so {key} cannot be acquired as {mode}: {advice}");
    Err(unsupported(key, mode, reason))
}

/// Checks that the backend has a semaphore whose limit could be changed, before anything is sent.
pub(crate) fn check_resize(backend: &str, key: &Key, modes: Modes, mode: Mode) -> Result<(), Error> {
    if modes.has(mode) {
        return Ok(());
    }
    let advice = "connect to a backend that has semaphores, or use slots and change their number in all clients";
    let reason = format!("{backend} has no semaphores, so the limit of {key} cannot be resized: {advice}");
    Err(unsupported(key, mode, reason))
}

/// The key is in use in a mode that conflicts with the requested one.
pub(crate) fn conflict(key: &Key, present: Mode, requested: Mode) -> Error {
    let class = present.class();
    let resize = match (present.limit(), requested.limit()) {
        (Some(_), Some(limit)) => format!("; to change the limit: fencelock resize --permits {limit} {key}"),
        _ => String::new(),
    };
    let advice = "use the same mode and limit in all clients, or another key";
    conflicting(key, present, format!("{key} is in use as {class}: {advice}{resize}"))
}

/// A hold is to be resumed in another mode than it has.
pub(crate) fn other_hold(key: &Key, held: Mode) -> Error {
    let what = if held.limit().is_some() { held.to_string() } else { held.class() };
    conflicting(key, held, format!("{key} is held as {what}: resume it in the same mode"))
}

/// Only an exclusive lock can become a shared one.
pub(crate) fn not_exclusive(key: &Key, mode: Mode) -> Error {
    // Not its limit: the semaphore may have been resized.
    conflicting(key, mode, format!("{key} is held as a semaphore: only an exclusive lock can be downgraded"))
}

/// Only semaphores have a limit.
pub(crate) fn no_semaphore(key: &Key, mode: Mode, holders: &Holders) -> Error {
    let reason = format!("{key} is held as {mode} by {holders}: only a semaphore that is in use can be resized");
    conflicting(key, mode, reason)
}

/// There is no semaphore whose limit could be changed.
pub(crate) fn not_in_use(key: &Key) -> Invalid {
    Invalid::new(format!("{key} is not in use, so there is no limit to change: the next claim sets it"))
}

fn unsupported(key: &Key, mode: Mode, reason: String) -> Error {
    Error::ModeUnsupported { key: key.clone(), mode, reason: Invalid::new(reason) }
}

fn conflicting(key: &Key, present: Mode, reason: String) -> Error {
    Error::ModeConflict { key: key.clone(), present, reason: Invalid::new(reason) }
}
