//! What may happen in a scenario.

use fencelock::Mode;
use std::time::Duration;

/// What a user acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    Shared,
    /// So many permits of [`LIMIT`].
    Permits(u32),
}

/// The number of permits.
pub(crate) const LIMIT: u32 = 2;

impl Kind {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Permits(weight) => Mode::permits(weight, LIMIT).unwrap(),
        }
    }
}

/// What a user may do, each at any moment at which it makes sense.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are independent of each other, and a scenario names those it allows"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    /// It claimed before the schedule begins, and has received the reply.
    pub(crate) ready: bool,
    /// It may give up while it waits.
    pub(crate) cancels: bool,
    /// It may drop its guard.
    pub(crate) drops: bool,
    /// It may release its guard.
    pub(crate) releases: bool,
    /// It may give up while it releases.
    pub(crate) gives_up_release: bool,
    /// It may drop its client at any time.
    pub(crate) leaves: bool,
}

/// Events that a scenario is about. A run that never came across them has seen nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Coverage {
    /// A wait was given up while its claim was on its way.
    CancelledBeforeClaim,
    /// A wait was given up while the answer was on its way.
    CancelledBeforeAnswer,
    /// A wait was given up with the hand-off on its way.
    CancelledBeforeHandOff,
    /// A release began while a renewal was on its way.
    LetGoDuringRenewal,
    /// The answer to a renewal came after the release.
    RenewalAnsweredAfterRelease,
    /// A release was answered with a release.
    Released,
    /// A user was handed the lock in place of another.
    PassedOn,
    /// A client went before its guard.
    ClientWentFirst,
    /// Two users held the key at the same time.
    HeldTogether,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) parts: &'static [Part],
    pub(crate) ttl: Duration,
    /// Every user has a client of its own.
    pub(crate) apart: bool,
    /// How often time may pass until something happens.
    pub(crate) times: u32,
    /// How many requests, answers and messages may get lost.
    pub(crate) losses: u32,
    /// The number of acts that may follow another before any task has run.
    pub(crate) haste: u32,
    pub(crate) covered: &'static [Coverage],
}
