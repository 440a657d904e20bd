use crate::{
    Expiry, FencingToken, HandOffBounds, Holder, HolderId, Holders, Holding, Key, Mode, Moment, TokenBlock, Ttl,
    Unknown,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// The intent of a claim.
///
/// Exhaustive: a backend must implement each of them, so a new one must break its build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Acquire the key if it is free and no client waits for it; otherwise leave no trace.
    #[default]
    Try,
    /// Acquire the key if it is free and no client waits for it; otherwise enter the queue.
    Enqueue,
    /// The same holder again: confirms a grant, accepts a hand-off, and keeps the position in the queue.
    Poll,
}

/// The request of one holder for a key.
///
/// Sending a claim twice is harmless: a holder that holds the key gets the same answer again, or greater tokens of
/// the same hold from a quorum, and its lease begins anew.
#[derive(Debug, Clone, Hash)]
#[non_exhaustive]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: Holder,
    /// The TTL, counted by the backend from the grant.
    pub ttl: Ttl,
    /// The mode; exclusive by default. One of [`Capabilities::modes`](crate::Capabilities::modes).
    pub mode: Mode,
    /// What only a queue needs. A backend without one reads [`Claim::is_poll`] alone.
    pub intent: Intent,
    /// The number of requested fencing tokens: more than 1 only for a lease that tasks share. The grant may contain fewer. For a
    /// waiter, the last claim counts.
    pub block: NonZeroU32,
}

impl Claim {
    /// An exclusive claim.
    pub const fn new(key: Key, holder: Holder, ttl: Ttl, intent: Intent) -> Self {
        Self { key, holder, ttl, mode: Mode::Exclusive, intent, block: NonZeroU32::MIN }
    }

    /// Whether it only asks for what its holder has, or waits for. Such a claim never takes a free key.
    pub fn is_poll(&self) -> bool {
        self.intent == Intent::Poll
    }

    /// The same claim with another intent.
    #[must_use]
    pub fn with_intent(&self, intent: Intent) -> Self {
        Self { intent, ..self.clone() }
    }

    /// The same claim in another mode.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// The same claim for this number of fencing tokens.
    #[must_use]
    pub fn with_block(&self, block: NonZeroU32) -> Self {
        Self { block, ..self.clone() }
    }
}

/// The answer to a [`Claim`].
///
/// Exhaustive, like [`Renew`] and [`Release`]: the caller must handle each answer, because an answer that a
/// wildcard ignores may be an unknown hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// The holder holds the key for the requested TTL.
    Granted {
        /// Each is greater than those of all earlier grants of this key. For a repeated claim, the backend may return only
        /// the last one.
        tokens: TokenBlock,
    },
    /// Another client holds the key, and the claim left no trace.
    Busy(Occupied),
    /// Another client holds the key, and the holder is in the queue.
    Queued {
        /// The number of waiters in front.
        ahead: u32,
        /// The current holders.
        occupied: Occupied,
        /// Which hand-off messages the client may accept after this answer.
        hand_off: HandOffBounds,
    },
    /// A [`Intent::Poll`] of a holder that neither holds the key nor waits in the queue. If another client holds the key, it may be
    /// [`Acquire::Busy`] as well.
    Gone,
    /// The key is held or requested in this mode, which [conflicts](Mode::conflicts) with that of the claim. The holder is in no queue.
    Conflict(Mode),
}

/// When a claim was sent. Its lease counts from then.
///
/// Exhaustive: a client must know what each of them leaves at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Never, for example because no connection could be opened: nothing was executed, and nothing has to be released.
    Never,
    /// As soon as the future of [`Backend::acquire`](crate::Backend::acquire) was polled.
    AtOnce,
    /// Not before this moment, on the clock of the client: the time of a handshake before it does not shorten the lease.
    At(Moment),
}

/// The answer to a claim, and when the claim was sent. A `Result` converts to the reply to a claim that was sent at once.
///
/// Exhaustive: a backend makes it of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ClaimReply {
    /// When the claim was sent. A backend that cannot exclude that it was sent does not return [`Sent::Never`].
    pub sent: Sent,
    /// The answer. An error of a claim that was sent means that it may have been executed.
    pub answer: Result<Acquire, Unknown>,
}

impl ClaimReply {
    /// The reply to a claim that was not sent.
    pub const fn not_sent(cause: Unknown) -> Self {
        Self { sent: Sent::Never, answer: Err(cause) }
    }

    /// When a claim was sent whose future was first polled at `called`, and ready at `now`. A moment that is not between them is one of
    /// another clock: then its lease counts from the call.
    pub fn sent_at(&self, called: Moment, now: Moment) -> Moment {
        match self.sent {
            Sent::At(sent) if called <= sent && sent <= now => sent,
            Sent::Never | Sent::AtOnce | Sent::At(_) => called,
        }
    }
}

impl From<Result<Acquire, Unknown>> for ClaimReply {
    fn from(answer: Result<Acquire, Unknown>) -> Self {
        Self { sent: Sent::AtOnce, answer }
    }
}

/// The holders of a busy key, and for how long at least.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Occupied {
    /// The holders.
    pub holders: Holders,
    /// When the first of their holds ends unless it is renewed.
    pub expiry: Expiry,
    /// The duration of the oldest of their holds, if known.
    pub held_for: Option<Duration>,
}

impl Occupied {
    /// Holders with an unknown duration.
    pub fn new(holders: impl Into<Holders>, expiry: Expiry) -> Self {
        Self { holders: holders.into(), expiry, held_for: None }
    }

    /// The same with a duration, if known.
    #[must_use]
    pub const fn with_held_for(mut self, held_for: Option<Duration>) -> Self {
        self.held_for = held_for;
        self
    }
}

impl From<Holding> for Occupied {
    fn from(holding: Holding) -> Self {
        let expiry = holding.holders.iter().fold(Expiry::Never, |earliest, hold| earliest.earlier(hold.expiry));
        let held_for = holding.holders.iter().filter_map(|hold| hold.held_for).max();
        Self { holders: holding.holders.map(|hold| hold.occupant), expiry, held_for }
    }
}

/// The renewal of one lease.
#[derive(Debug, Clone, Hash)]
#[non_exhaustive]
pub struct Renewal {
    /// The key.
    pub key: Key,
    /// The holder id.
    pub holder: HolderId,
    /// The lease lasts at least this long from the execution of the renewal.
    pub ttl: Ttl,
    /// How much longer the holder may assume its lease, whatever the result of this renewal: a lease is never shortened
    /// below that. [`Duration::MAX`] if the caller does not know; then nothing is shortened.
    ///
    /// A lease that is longer than both by more than a second was caused by a clock that was set back, and is shortened: a backend
    /// whose clock is never set back has none.
    pub assumed: Duration,
}

impl Renewal {
    /// Renews the lease of `holder` on `key` for at least `ttl`.
    pub const fn new(key: Key, holder: HolderId, ttl: Ttl) -> Self {
        Self { key, holder, ttl, assumed: Duration::MAX }
    }

    /// The same for a holder that may assume its lease for `assumed` from now on.
    #[must_use]
    pub fn with_assumed(self, assumed: Duration) -> Self {
        Self { assumed, ..self }
    }
}

/// The answer to a [`Renewal`]. Exhaustive for the same reason as [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renew {
    /// The lease was renewed.
    Renewed {
        /// The number of waiters in the queue.
        waiters: u32,
    },
    /// The key is free: it expired or was deleted. It was not acquired again.
    Absent,
    /// Another client holds the key.
    TakenBy(Holders),
}

/// The answer to a release. Exhaustive for the same reason as [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Release {
    /// The holder held the key, and now it is free or handed over to the next waiter.
    Released,
    /// The key was already free. The holder has left the queue, if it was in it.
    Absent,
    /// Another client holds the key. The holder has left the queue, if it was in it.
    TakenBy(Holders),
}

/// The answer to a downgrade. Exhaustive for the same reason as [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Downgrade {
    /// The holder holds the key shared, for at least the requested TTL.
    Downgraded {
        /// The fencing token of the shared hold: greater than that of the exclusive one. A repeated request returns the same.
        token: FencingToken,
    },
    /// The holder holds nothing: the lease expired, or the key was deleted.
    Absent,
    /// Other clients hold the key, or the holder has permits of it.
    TakenBy(Holders),
}

/// The answer to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// The inspected holds were ended.
    Evicted,
    /// The key is free, or another client holds it: nothing was changed.
    Changed(Option<Box<Holding>>),
    /// The backend cannot end the hold of another client; the text names what can.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_another_clock_never_lengthens_a_lease() {
        let [called, between, now, later] = [1, 2, 3, 4].map(Moment::from_micros);
        let sent_at = |sent| ClaimReply { sent, answer: Ok(Acquire::Gone) }.sent_at(called, now);
        assert_eq!(sent_at(Sent::At(between)), between);
        assert_eq!([Sent::AtOnce, Sent::At(later), Sent::At(Moment::from_micros(0))].map(sent_at), [called; 3]);
    }
}
