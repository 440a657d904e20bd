use super::clock::SimClock;
use super::running::{Of, Running};
use fencelock_core::engine::{AcquireKey, Grant, HoldId, KeyEngine, LeaseTimers, Releases, Rng, Tenure};
use fencelock_core::quorum::NodeHealth;
use fencelock_core::{FencingToken, HolderId, Invalid, Mode, Moment, NodeSet};
use std::collections::BTreeMap;

/// A process that acquires one key repeatedly: the production engine and the state of its driver.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) key: usize,
    /// The clock that leases use.
    pub(super) clock: SimClock,
    /// The wall clock, used for proposals.
    pub(super) wall: SimClock,
    pub(super) paused_until: u64,
    /// Incremented on each restart; replies to earlier incarnations are dropped.
    pub(super) life: u32,
    pub(super) memory: ClientMemory,
}

/// State that a client loses when it crashes.
#[derive(Debug, Default)]
pub(super) struct ClientMemory {
    /// Wakes a task by its number.
    pub(super) engine: KeyEngine<u64, ()>,
    pub(super) releases: Releases,
    /// The hold of the last message, and when it came.
    pub(super) told: (u128, u64),
    pub(super) health: Vec<NodeHealth>,
    /// Nodes with a probe in flight.
    pub(super) probing: NodeSet,
    /// The greatest fence reported by any node.
    pub(super) seen: u64,
    /// Pending calls by number; `None` while a call handles an event.
    pub(super) calls: BTreeMap<u64, Option<Box<Running>>>,
    /// Requests to the one server without a call, by number.
    pub(super) direct: BTreeMap<u64, Of>,
    /// The tasks that acquire the key, by number.
    pub(super) tasks: BTreeMap<u64, SimTask>,
    /// The mode that the task claims.
    pub(super) mode: Mode,
    pub(super) timers: LeaseTimers<()>,
    /// The number of the current sleep of the task that renews. Earlier ones are ignored.
    pub(super) renewal_sleep: u64,
    pub(super) hold: Option<SimHold>,
}

impl ClientMemory {
    pub(super) fn new(nodes: usize) -> Self {
        Self { health: vec![NodeHealth::default(); nodes], ..Self::default() }
    }
}

/// A task that acquires the key.
#[derive(Debug)]
pub(super) struct SimTask {
    pub(super) acquire: AcquireKey,
    /// When it began or, without a queue, when its last claim was sent, in true time.
    pub(super) invoked: u64,
    /// The number of its current timer. Earlier timers are ignored.
    pub(super) sleep: u64,
}

/// A key that is held.
#[derive(Debug)]
pub(super) struct SimHold {
    pub(super) grant: Grant,
    pub(super) holder: u128,
    pub(super) fence: FencingToken,
    /// When the lease ends, by the clock of the client.
    pub(super) until: Moment,
    pub(super) renews: bool,
    pub(super) renewing: bool,
    /// The downgrade that has not been answered.
    pub(super) downgrade: Option<PendingDowngrade>,
}

/// A downgrade in progress.
#[derive(Debug)]
pub(super) struct PendingDowngrade {
    pub(super) tenure: Tenure,
    /// When the request without an answer was sent, by the clock of the client.
    pub(super) sent: Option<Moment>,
    /// The number of its current timer. Earlier timers are ignored.
    pub(super) timer: u64,
    /// When the first call was sent, in true time.
    pub(super) invoked: u64,
}

/// Timers of a client, within one incarnation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer {
    /// Starts the next task.
    Start,
    /// The time of a task has come; the number identifies the timer.
    Task { task: u64, sleep: u64 },
    /// The engine has woken a task.
    Woken(u64),
    /// The user of the task with this number gives up.
    GiveUp(u64),
    /// The task that renews wakes; the number identifies its sleep.
    Renewals(u64),
    /// The next timer of a call.
    Call(u64),
    /// A request to the one server was not answered in time.
    Unanswered(u64),
    /// Retries background releases.
    Releases,
    /// The time limit of a probe.
    Probe { node: usize },
    /// A writer requests a downgrade.
    Downgrade(HoldId),
    /// A downgrade goes on without a reply; the number identifies the timer.
    Downgrading(HoldId, u64),
    /// The work is done.
    Done(HoldId),
    /// The client knows by now that it does not hold the key, or that another client waits for it.
    Learned(u128),
}

/// The random numbers of one client, derived from the seed.
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

/// A holder id as the simulated nodes store it.
pub(super) fn number_of(holder: HolderId) -> u128 {
    let value = |digit: u8| u128::from(char::from(digit).to_digit(16).unwrap_or(0));
    holder.hex().into_iter().fold(0, |number, digit| number << 4 | value(digit))
}
