//! What may happen in a scenario.

use crate::coverage::Coverage;
use fencelock_core::Mode;
use fencelock_core::engine::{LeaseSharing, Retry, SharingLimits};
use std::time::Duration;

/// What a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Writer,
    Reader,
    /// So many of two permits.
    Permits(u32),
}

impl Kind {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Writer => Mode::Exclusive,
            Self::Reader => Mode::Shared,
            Self::Permits(weight) => Mode::permits(weight, 2).unwrap(),
        }
    }
}

/// What a user may do, each at any moment at which it makes sense.
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent of each other, and a scenario names those that it allows"
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Whose client it uses. A client has one engine for the readers of a key and one for all others: they are two clients here.
    pub(crate) client: u8,
    pub(crate) kind: Kind,
    /// It may become a reader.
    pub(crate) downgrades: bool,
    /// It may give up while it waits for the reply to its downgrade.
    pub(crate) gives_up_downgrade: bool,
    /// It asked before the schedule begins, and was answered.
    pub(crate) ready: bool,
    /// Its future may be neither polled nor dropped for a while.
    pub(crate) parks: bool,
    /// It may give up while it waits.
    pub(crate) cancels: bool,
    /// It may drop its guard.
    pub(crate) drops: bool,
    /// It may release its guard and wait for the answer.
    pub(crate) releases: bool,
    /// It may give up while it releases.
    pub(crate) gives_up_release: bool,
    /// It may detach its hold.
    pub(crate) detaches: bool,
    /// It does not acquire, but resumes the hold that this user has detached.
    pub(crate) resumes: Option<u8>,
    /// How often it may check its guard.
    pub(crate) checks: u8,
    pub(crate) wait: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) max_hold: Option<Duration>,
    /// Instead of the TTL of the scenario.
    pub(crate) ttl: Option<Duration>,
    pub(crate) lease_sharing: LeaseSharing,
}

/// How often something may happen in a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Time passes to the next timer.
    pub(crate) time: u8,
    /// Time passes until a lease could have ended.
    pub(crate) long: u8,
    /// Time passes until the lock at the server has ended, and nothing runs meanwhile.
    pub(crate) ends: u8,
    /// A packet is lost, and its sender gets an error immediately.
    pub(crate) lost: u8,
    /// A connection breaks: the sender gets an error immediately, and the request is carried out later.
    pub(crate) broken: u8,
    /// A claim finds no connection, and its sender is told that it was not sent.
    pub(crate) unsent: u8,
    /// A request or a message arrives twice.
    pub(crate) duplicates: u8,
    /// Another program deletes the key.
    pub(crate) deletes: u8,
    /// Another program takes a free key, and releases it with compare-and-delete.
    pub(crate) foreign: u8,
    /// A client may have missed events.
    pub(crate) resets: u8,
    /// The connection of a client is reset: events are lost.
    pub(crate) reconnects: u8,
    /// A client is closed.
    pub(crate) closes: u8,
    /// The server refuses a release in the background.
    pub(crate) refusals: u8,
    /// A client is stopped, until it is continued.
    pub(crate) stops: u8,
    /// A future is not polled any more.
    pub(crate) parks: u8,
    /// An act follows another before any task has run.
    pub(crate) haste: u8,
}

#[allow(clippy::struct_excessive_bools, reason = "as for Plan")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) users: &'static [Plan],
    pub(crate) ttl: Duration,
    pub(crate) sharing: Option<SharingLimits>,
    /// See `Config::turn_limit`.
    pub(crate) turn_limit: Option<Duration>,
    /// The backend has a queue.
    pub(crate) queues: bool,
    /// The backend sends a message when a client begins to wait.
    pub(crate) announces_waiters: bool,
    /// The backend needs a fresh holder for each claim.
    pub(crate) fresh_holders: bool,
    /// Users claim one after the other, and get the lock in that order as long as no packet is lost and no time passes.
    pub(crate) in_order: bool,
    /// By how many millionths the clock of the server is faster than those of the clients.
    pub(crate) server_ppm: u64,
    /// Requests may arrive at any time, not only within the time that the client allows for them.
    pub(crate) any_delay: bool,
    pub(crate) budget: Budget,
    /// What the schedules must cover.
    pub(crate) covers: &'static [Coverage],
}

pub(crate) const NO_BUDGET: Budget = Budget {
    time: 0,
    long: 0,
    ends: 0,
    lost: 0,
    broken: 0,
    unsent: 0,
    duplicates: 0,
    deletes: 0,
    foreign: 0,
    resets: 0,
    reconnects: 0,
    closes: 0,
    refusals: 0,
    stops: 0,
    parks: 0,
    haste: 0,
};

pub(crate) const USER: Plan = Plan {
    client: 0,
    kind: Kind::Writer,
    downgrades: false,
    gives_up_downgrade: false,
    ready: false,
    parks: false,
    cancels: false,
    drops: false,
    releases: false,
    gives_up_release: false,
    detaches: false,
    resumes: None,
    checks: 0,
    wait: None,
    retry: None,
    max_hold: None,
    ttl: None,
    lease_sharing: LeaseSharing::Allowed,
};

/// No lease ends by itself, so what is left behind is seen.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A lease ends within a schedule: renewals every 100 ms.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) const LIMITS: SharingLimits = SharingLimits {
    batch: None,
    stretch: Duration::from_secs(1),
    pause: Duration::from_millis(20),
    idle_timeout: Duration::ZERO,
};

pub(crate) const PLAIN: Scenario = Scenario {
    name: "",
    users: &[],
    ttl: LONG,
    sharing: Some(LIMITS),
    turn_limit: None,
    queues: true,
    announces_waiters: false,
    fresh_holders: false,
    in_order: false,
    server_ppm: 0,
    any_delay: false,
    budget: NO_BUDGET,
    covers: &[],
};

impl Scenario {
    pub(crate) fn clients(&self) -> usize {
        self.users.iter().map(|user| usize::from(user.client) + 1).max().unwrap_or(0)
    }
}
