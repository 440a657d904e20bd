use crate::world::HAND_OFF_MS;
use fencelock_core::Mode;
use fencelock_model::{Channel, Claim, Intent};

pub(crate) const TTL_MS: u64 = 16;
const LIFE_MS: u64 = 12;
pub(crate) const PERMIT: Kind = Kind::Permits { weight: 1, limit: 2 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Writer,
    Shared,
    Permits {
        weight: u32,
        limit: u32,
    },
    /// A writer that downgrades.
    Downgrader,
}

impl Kind {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Writer | Self::Downgrader => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            Self::Permits { weight, limit } => Mode::permits(weight, limit).unwrap(),
        }
    }
}

/// What a client believes that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) mode: Mode,
    /// Counted from the sending of the request.
    pub(crate) until_ms: u64,
    /// The reply to its downgrade is on its way.
    pub(crate) downgrading: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Waiting,
    Holding(Belief),
    Over,
}

/// A request that may arrive a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sent {
    Nothing,
    Enqueue,
    Poll,
    Release,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    pub(crate) phase: Phase,
    pub(crate) last: Sent,
    pub(crate) polls: u8,
    pub(crate) renewals: u8,
    pub(crate) stopped: bool,
    /// When it sent its last claim that was answered with a position in the queue.
    pub(crate) asked_ms: u64,
    /// The token of a hand-off whose message has been sent since.
    pub(crate) notified: Option<u64>,
}

impl Client {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            phase: Phase::Idle,
            last: Sent::Nothing,
            polls: 1,
            renewals: 0,
            stopped: false,
            asked_ms: 0,
            notified: None,
        }
    }

    pub(crate) fn belief(&self, now_ms: u64) -> Option<Belief> {
        match self.phase {
            Phase::Holding(belief) if belief.until_ms >= now_ms => Some(belief),
            _ => None,
        }
    }

    pub(crate) fn claim(&self, holder: u128, intent: Intent, now_us: u64) -> Claim {
        Claim {
            intent,
            mode: self.kind.mode(),
            owner: Some("c:1".into()),
            channel: Some(Channel(u32::try_from(holder).unwrap())),
            proposed: false,
            life_ms: LIFE_MS,
            hand_off_ms: HAND_OFF_MS,
            ..Claim::try_for(holder, TTL_MS, now_us)
        }
    }

    /// The holder has this for a full TTL from now.
    pub(crate) fn granted(&mut self, mode: Mode, now_ms: u64) {
        self.phase = Phase::Holding(Belief { mode, until_ms: now_ms + TTL_MS, downgrading: false });
    }
}
