use super::clock::SimClock;
use super::running::Running;
use fencelock_core::engine::{Grant, HoldId, KeyEngine, ReleaseQueue, Rng, WaiterId};
use fencelock_core::quorum::NodeHealth;
use fencelock_core::{FencingToken, HolderId, Invalid, Mode, Moment, NodeSet};
use std::collections::BTreeMap;

/// One process that wants one key, over and over: the engine of production, and what drives it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) key: usize,
    /// The clock that leases go by.
    pub(super) clock: SimClock,
    /// The clock that proposals are made of.
    pub(super) wall: SimClock,
    pub(super) paused_until: u64,
    /// One more with every death: what was meant for an earlier life is not heard.
    pub(super) life: u32,
    pub(super) memory: Memory,
}

/// What a client loses with its life.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) engine: KeyEngine<(), ()>,
    pub(super) releases: ReleaseQueue,
    pub(super) health: Vec<NodeHealth>,
    /// Nodes that a probe is under way to.
    pub(super) probing: NodeSet,
    /// The greatest fence any node has named.
    pub(super) seen: u64,
    /// The calls that are not over, by number; `None` while it is told something.
    pub(super) calls: BTreeMap<u64, Option<Box<Running>>>,
    pub(super) task: Option<WaiterId>,
    /// What the task asks for.
    pub(super) mode: Mode,
    /// The latest timer of the task. An earlier one is of no use any more.
    pub(super) sleep: u64,
    /// When the last claim was sent, by the true time.
    pub(super) invoked: u64,
    /// Where the timer of the last hold is.
    pub(super) timer: Moment,
    pub(super) hold: Option<Held>,
}

impl Memory {
    pub(super) fn new(nodes: usize) -> Self {
        Self { health: vec![NodeHealth::default(); nodes], ..Self::default() }
    }
}

/// A key that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) grant: Grant,
    pub(super) holder: u128,
    pub(super) fence: FencingToken,
    /// Until when the client believes in it.
    pub(super) until: Moment,
    /// Where its timer is.
    pub(super) timer: Moment,
    pub(super) renews: bool,
    pub(super) renewing: bool,
    /// The downgrade whose reply it waits for.
    pub(super) downgrade: Option<PendingDowngrade>,
}

/// A downgrade that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingDowngrade {
    /// When the last call was sent.
    pub(super) sent: Moment,
    /// Whether it was not answered yet.
    pub(super) is_asked: bool,
    /// When the first was sent, in true time.
    pub(super) invoked: u64,
}

/// What a client waits for, in one life.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer {
    /// The next task.
    Start,
    /// The task sleeps until then.
    Task(u64),
    /// The user of the task gives up.
    GiveUp(WaiterId),
    /// The timer of a hold, and where it stood.
    Hold(HoldId, Moment),
    /// The next timer of a call.
    Call(u64),
    /// A release of the background is to be repeated.
    Releases,
    /// A probe that was not answered.
    Probe { node: usize },
    /// A writer wants to read from now on.
    Downgrade(HoldId),
    /// A downgrade that was not answered.
    DowngradeLimit(HoldId, Moment),
    /// A downgrade is to be sent again.
    DowngradeAgain(HoldId),
    /// The work is done.
    Done(HoldId),
}

/// The random numbers of one client, out of the seed.
pub(super) struct SimRng<'a> {
    pub(super) rng: &'a mut fastrand::Rng,
    pub(super) holder: u128,
}

impl Rng for SimRng<'_> {
    fn next_u64(&mut self) -> u64 {
        self.rng.u64(..)
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        Ok(HolderId::from_bytes(self.holder.to_be_bytes()))
    }
}

/// A holder as the nodes of the simulation know it.
pub(super) fn number_of(holder: HolderId) -> u128 {
    let value = |digit: u8| u128::from(char::from(digit).to_digit(16).unwrap_or(0));
    holder.hex().into_iter().fold(0, |number, digit| number << 4 | value(digit))
}
