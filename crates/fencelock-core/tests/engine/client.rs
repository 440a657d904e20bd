//! A deterministic driver of one engine: what `fencelock::driver` and the reaper do, without a runtime.

use crate::network::Op;
use fencelock_core::engine::{KeyEngine, LeaseTimers, PendingRelease, Releases, RenewalBatch, Rng};
use fencelock_core::{HolderId, Invalid, Moment};
use std::time::Duration;

/// The user that a task belongs to; nothing is attached to a lease.
pub(crate) type Engine = KeyEngine<Option<u8>, ()>;

/// The client library waits so long for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Hash)]
pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) ids: Ids,
    pub(crate) timers: LeaseTimers<()>,
    pub(crate) renewals: Vec<Renewing>,
    pub(crate) releases: Releases,
    pub(crate) releasing: Vec<Releasing>,
    /// Keys handed to claims that were given up.
    pub(crate) undelivered: Vec<HolderId>,
    pub(crate) stopped: bool,
    /// It is not being closed.
    pub(crate) open: bool,
    /// How many claims that wait at the backend have begun and not ended.
    pub(crate) claims: i32,
}

/// What is counted for each client, so that the order of events in other clients does not matter.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Ids {
    client: u8,
    pub(crate) holders: u8,
    pub(crate) ops: u16,
}

impl Ids {
    /// Whether this client has made the id.
    pub(crate) fn is_of(&self, holder: HolderId) -> bool {
        holder.to_bytes()[0] == self.client + 1
    }
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Renewing {
    pub(crate) op: Op,
    pub(crate) batch: RenewalBatch<()>,
    pub(crate) limit: Moment,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Releasing {
    pub(crate) op: Op,
    pub(crate) number: u64,
    pub(crate) release: PendingRelease,
    pub(crate) sent: Moment,
    pub(crate) limit: Moment,
}

impl Client {
    pub(crate) fn new(number: u8) -> Self {
        Self {
            engine: Engine::default(),
            ids: Ids { client: number, holders: 0, ops: 0 },
            timers: LeaseTimers::default(),
            renewals: Vec::new(),
            releases: Releases::default(),
            releasing: Vec::new(),
            undelivered: Vec::new(),
            stopped: false,
            open: true,
            claims: 0,
        }
    }

    /// A name for a request.
    pub(crate) fn op(&mut self) -> Op {
        self.ids.ops += 1;
        Op(self.ids.ops)
    }

    /// Nothing is under way or kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_empty()
            && self.releases.pending() == 0
            && self.renewals.is_empty()
            && self.timers.iter().len() == 0
    }

    /// The first of its timers, besides those of users.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let timers = self.timers.iter().map(|(moment, ..)| *moment);
        let renewals = self.renewals.iter().map(|renewing| renewing.limit);
        let releasing = self.releasing.iter().map(|releasing| releasing.limit);
        timers.chain(renewals).chain(releasing).chain(self.releases.due()).min()
    }
}

/// Random numbers that follow from the client, the time and the seed alone, so that a schedule replays, and the order of
/// independent events does not matter.
pub(crate) struct ScriptedRng<'a> {
    ids: &'a mut Ids,
    numbers: fastrand::Rng,
}

impl<'a> ScriptedRng<'a> {
    pub(crate) fn new(ids: &'a mut Ids, now: Moment, seed: u64) -> Self {
        let numbers = fastrand::Rng::with_seed(now.as_micros() ^ seed << 48 ^ u64::from(ids.client) << 40);
        Self { ids, numbers }
    }
}

impl Rng for ScriptedRng<'_> {
    fn next_u64(&mut self) -> u64 {
        self.numbers.u64(..)
    }

    fn holder_id(&mut self) -> Result<HolderId, Invalid> {
        self.ids.holders += 1;
        let mut bytes = [0; 16];
        (bytes[0], bytes[15]) = (self.ids.client + 1, self.ids.holders);
        Ok(HolderId::from_bytes(bytes))
    }
}
