use crate::{
    Backend, Expiry, Fault, Holder, HolderId, Holders, Holding, Invalid, Key, Mode, TokenBlock, Ttl, Unknown,
    next_block, next_proposed_block,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// What a claim asks for.
///
/// Exhaustive: a backend must do each of these, so a new one has to break the build of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Take the key if it is free and nobody waits for it; else leave nothing behind.
    Try,
    /// Take the key if it is free and nobody waits for it; else stand in line.
    Enqueue,
    /// The same holder again: confirms a grant, answers a hand-off, keeps a place in line alive.
    Poll,
}

/// One holder's request for a key.
///
/// Sending a claim twice is harmless: a holder that has the key gets the same answer again.
#[derive(Debug, Clone, Hash)]
#[non_exhaustive]
pub struct Claim {
    /// What is claimed.
    pub key: Key,
    /// By whom.
    pub holder: Holder,
    /// For how long, counted by the backend from when it grants.
    pub ttl: Ttl,
    /// How.
    pub intent: Intent,
    /// In which mode: exclusive unless said otherwise.
    pub mode: Mode,
    /// Of a node of a quorum: the fence to grant, in microseconds since 1970, if the node's own time and its last grant allow
    /// it. Nodes that are proposed the same mostly grant the same. `None` everywhere else: a place that decides alone goes
    /// by its own clock alone.
    pub proposal: Option<u64>,
    /// How many fencing tokens are wanted: 1 unless the hold is to be shared. What is granted may be fewer. Of a waiter the
    /// last claim counts.
    pub block: NonZeroU32,
}

impl Claim {
    /// An exclusive claim.
    pub const fn new(key: Key, holder: Holder, ttl: Ttl, intent: Intent) -> Self {
        Self { key, holder, ttl, intent, mode: Mode::Exclusive, proposal: None, block: NonZeroU32::MIN }
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

    /// Checks that `place` has the mode of this claim. A place does so before anything else.
    ///
    /// # Errors
    /// [`Fault::ModeUnsupported`]: nothing was sent, and trying again changes nothing.
    pub fn supported_by(&self, place: &dyn Backend) -> Result<(), Unknown> {
        // Every place has exclusive locks, so the usual claim asks for no facts.
        if self.mode == Mode::Exclusive || place.capabilities().modes.has(self.mode) {
            return Ok(());
        }
        let advice = "ask for an exclusive lock, or use a place whose capabilities name this mode";
        Err(Unknown::new(place.name(), Fault::ModeUnsupported(self.mode), advice).unsent())
    }

    /// The same claim with a fence to grant.
    #[must_use]
    pub fn with_proposal(&self, micros: u64) -> Self {
        Self { proposal: Some(micros), ..self.clone() }
    }

    /// The tokens that it is granted after `previous` by a place whose clock says `now`.
    ///
    /// # Errors
    /// [`Invalid`] at the end of the numbers.
    pub fn next_block(&self, previous: u64, now: u64) -> Result<TokenBlock, Invalid> {
        match self.proposal {
            Some(proposal) => next_proposed_block(previous, proposal, Some(now), self.block),
            None => next_block(previous, now, self.block),
        }
    }

    /// The same claim for as many fencing tokens.
    #[must_use]
    pub fn with_block(&self, block: NonZeroU32) -> Self {
        Self { block, ..self.clone() }
    }
}

/// The answer to a [`Claim`].
///
/// Exhaustive, as [`Renew`] and [`Release`] are: whoever asks must decide what each answer means, and an answer that falls
/// through a wildcard is a hold that nobody knows of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// The key is the holder's for the TTL asked for.
    Granted {
        /// Each greater than those of every earlier grant of this key. Asked again, the node may name the last alone: that
        /// much it remembers.
        tokens: TokenBlock,
    },
    /// Somebody else has the key, and the claim left nothing behind.
    Busy(Occupied),
    /// Somebody else has the key, and the holder stands in line.
    Queued {
        /// How many waiters stand before it.
        ahead: u32,
        /// The greatest fencing token given so far; 0 if none. A hand-off message with a token up to this is an old one.
        last_fence: u64,
        /// What the clock said that tokens are drawn from, in microseconds since 1970, where it is that of a server. A hand-off
        /// message with a token far beyond it is not the server's.
        server_micros: Option<u64>,
        /// Who has the key.
        occupied: Occupied,
    },
    /// A [`Intent::Poll`] from a holder that neither has the key nor a place in line, any more or at all.
    Gone,
}

/// Who stands in the way, and for how long at least.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Occupied {
    /// Who.
    pub holders: Holders,
    /// When the first of their holds ends if nobody renews it.
    pub expiry: Expiry,
    /// How long the oldest of their holds has lasted, where that is known.
    pub held_for: Option<Duration>,
}

impl Occupied {
    /// It is not known since when.
    pub fn new(holders: impl Into<Holders>, expiry: Expiry) -> Self {
        Self { holders: holders.into(), expiry, held_for: None }
    }

    /// The same with how long it has lasted, if that is known.
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

/// One lease to renew.
#[derive(Debug, Clone, Hash)]
#[non_exhaustive]
pub struct Renewal {
    /// What is held.
    pub key: Key,
    /// The proof.
    pub holder: HolderId,
    /// The lease runs at least this long from when the backend renews it.
    pub ttl: Ttl,
    /// How much longer the holder may believe in its lease, whatever comes of this renewal: a lease is never shortened below that.
    /// [`Duration::MAX`] if the caller does not know; then nothing is shortened.
    ///
    /// A lease that is longer than both by more than a second was made long by a clock that was set back, and is cut.
    pub told: Duration,
}

impl Renewal {
    /// The lease of `holder` on `key` is to run for at least `ttl`.
    pub const fn new(key: Key, holder: HolderId, ttl: Ttl) -> Self {
        Self { key, holder, ttl, told: Duration::MAX }
    }

    /// The same for a holder that may believe in its lease for `told` from now on.
    #[must_use]
    pub fn with_told(self, told: Duration) -> Self {
        Self { told, ..self }
    }
}

/// The answer to a [`Renewal`]. Exhaustive, for the reason given at [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renew {
    /// The lease runs on.
    Renewed {
        /// How many stand in line for the key.
        waiters: u32,
    },
    /// The key is free: it expired or was deleted. It was not taken again.
    Absent,
    /// Somebody else has the key.
    TakenBy(Holders),
}

/// The answer to a release. Exhaustive, for the reason given at [`Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Release {
    /// The holder had the key, and now it is free or handed to the next in line.
    Released,
    /// The key was already free. A place in line, if there was one, is given up.
    Absent,
    /// Somebody else has the key, and keeps it. A place in line, if there was one, is given up.
    TakenBy(Holders),
}

/// The answer to a forced release.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// The holds that were seen are ended.
    Evicted,
    /// By now the key is free, or somebody else's: nothing was done.
    Changed(Option<Box<Holding>>),
    /// This backend cannot end another's hold; the text says what can.
    Refused(String),
}
