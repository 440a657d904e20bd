use super::clock::SimClock;
use super::events::{channel, tokens};
use super::machines::NodeReply;
use super::message::{Reply, Request, RequestBody, owner};
use super::scenario::Scenario;
use super::{Mutant, mode_mutants};
use fencelock_core::{
    self as core, Expiry, Fault, FencingToken, Foreign, HandOffBounds, Holder, HolderId, Occupant, Owner, Raise,
    Unknown,
};
use fencelock_model::{
    self as model, Acquire, Claim, Delivery, Downgrade, Evict, Gate, HandOff, HoldKind, Inspect, Intent, NodeModel,
    Occupied, Refusal, Release, Renew, ScriptError, Server,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// A node: the model of its scripts, its loss of data, and its quarantine.
#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) clock: SimClock,
    model: NodeModel<usize>,
    /// The data on disk, which survives a crash.
    on_disk: NodeModel<usize>,
    pub(super) up: bool,
    pub(super) paused_until: u64,
    pub(super) cut_until: u64,
    /// The sum of all steps of its clock.
    pub(super) jumped_us: i64,
    /// Changes with each start of the server; connections do not survive it.
    pub(super) run: u32,
    marker: Option<Marker>,
    mutant: Option<Mutant>,
    ttl_ms: u64,
    quarantine: Duration,
    owner: Owner,
    /// The connections that have read a key (0) or its queue (1) by a renewal, and are told of its next change.
    pub(super) tracking: BTreeSet<(usize, usize, u32)>,
}

/// The quarantine marker that a node stores: its run, and the end of its quarantine by the clock of the node.
#[derive(Debug, Clone, Copy)]
struct Marker {
    run: u32,
    until_us: u64,
}

/// The data that a node has after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SurvivingData {
    All,
    Older,
    Nothing,
}

/// Receives the messages of a node.
pub(super) type Publish<'a> = dyn FnMut(HandOff) -> Delivery + 'a;

impl SimNode {
    pub(super) fn new(clock: SimClock, scenario: &Scenario) -> Self {
        let mut server = Server::at(clock.micros(0));
        // If `TIME` is refused, proposals are not clamped.
        server.time_refused = matches!(scenario.mutant, Some(Mutant::CounterOnly | Mutant::ClientClockOnly));
        let model = NodeModel::new(server);
        Self {
            clock,
            on_disk: model.clone(),
            model,
            up: true,
            paused_until: 0,
            cut_until: 0,
            jumped_us: 0,
            run: 0,
            // As in a first deployment, where the empty node is trusted.
            marker: Some(Marker { run: 0, until_us: 0 }),
            mutant: scenario.mutant,
            ttl_ms: scenario.ttl.as_millis(),
            quarantine: scenario.quarantine(),
            owner: owner(),
            tracking: BTreeSet::new(),
        }
    }

    /// Executes a script at a true time.
    pub(super) fn serve(&mut self, at: u64, request: &Request, publish: &mut Publish<'_>) -> Reply {
        self.model.server.now_us = self.clock.micros(at);
        let needs_memory = matches!(
            request.body,
            RequestBody::Claim { .. }
                | RequestBody::Queue(_)
                | RequestBody::Confirm { .. }
                | RequestBody::Raise { .. }
                | RequestBody::Downgrade { .. }
        );
        if needs_memory && self.is_in_quarantine() {
            return Reply::Node(match request.body {
                RequestBody::Raise { .. } => NodeReply::Raise(Ok(Raise::Refused)),
                RequestBody::Downgrade { .. } => NodeReply::Downgrade(Err(unknown(Fault::Quarantined))),
                _ => NodeReply::Claim(Err(unknown(Fault::Quarantined))),
            });
        }
        let Request { holder, .. } = *request;
        let ttl_ms = self.ttl_ms;
        Reply::Node(match request.body {
            RequestBody::Claim { proposal, mode } => {
                let claim = Claim { mode, ..Claim::try_for(holder, ttl_ms, proposal) };
                return self.claim(request, &claim, publish);
            }
            RequestBody::Confirm { proposal, mode } => {
                let claim = Claim { intent: Intent::Poll, mode, ..Claim::try_for(holder, ttl_ms, proposal) };
                return self.claim(request, &claim, publish);
            }
            RequestBody::Queue(core::Queueing { intent, block, .. }) => {
                let claim = Claim {
                    intent: if intent == core::Intent::Poll { Intent::Poll } else { Intent::Enqueue },
                    proposed: false,
                    wanted: block.get().into(),
                    channel: Some(channel(request.client, request.life)),
                    hand_off_ms: self.hand_off_ms(),
                    ..Claim::try_for(holder, ttl_ms, self.model.server.now_us)
                };
                return self.claim(request, &claim, publish);
            }
            RequestBody::Downgrade { proposal } => NodeReply::Downgrade(self.downgrade(request, proposal)),
            RequestBody::Raise { to } => self.raise(request, to),
            RequestBody::Renew => {
                let (server, key) = self.model.key(&request.key);
                NodeReply::Renew(vec![Ok(match key.renew(server, holder, ttl_ms, ttl_ms) {
                    Err(_) => return Reply::Node(NodeReply::Renew(vec![Err(unknown(Fault::Other))])),
                    Ok(Renew::Shared(_)) => core::Renew::TakenBy(occupant(None, &self.owner).into()),
                    Ok(Renew::Renewed { waiters }) => {
                        self.tracking.extend([0, 1].map(|what| (what, request.client, request.life)));
                        core::Renew::Renewed { waiters: u32::try_from(waiters).unwrap_or(u32::MAX) }
                    }
                    Ok(Renew::Absent) => core::Renew::Absent,
                    Ok(Renew::Taken(by)) => core::Renew::TakenBy(occupant(by.holder(), &self.owner).into()),
                })])
            }
            RequestBody::Release => self.release(request, publish),
            RequestBody::Watch => NodeReply::Watch,
        })
    }

    fn claim(&mut self, request: &Request, claim: &Claim, mut publish: &mut Publish<'_>) -> Reply {
        let (server, key) = self.model.key(&request.key);
        let before = mode_mutants::before_claim(self.mutant, server, key, claim);
        let answer = key.acquire(server, claim, &Gate::Open, &mut publish);
        mode_mutants::after_claim(self.mutant, server, key, before);
        Reply::Node(NodeReply::Claim(match answer {
            Ok(Acquire::Granted { fence, count, .. }) => {
                let granted = tokens(fence, count).map(|tokens| core::Acquire::Granted { tokens });
                granted.ok_or_else(|| unknown(Fault::Other))
            }
            Ok(Acquire::Yours) => return Reply::Yours,
            Ok(Acquire::Busy(occupied)) => Ok(core::Acquire::Busy(self.occupied(&occupied))),
            Ok(Acquire::Queued { ahead, now_us, occupied }) => Ok(core::Acquire::Queued {
                ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
                hand_off: HandOffBounds::new(occupied.last_fence, now_us),
                occupied: self.occupied(&occupied),
            }),
            Ok(Acquire::Gone(_)) if matches!(request.body, RequestBody::Queue(_)) => Ok(core::Acquire::Gone),
            Ok(
                Acquire::Gone(_)
                | Acquire::More(_)
                | Acquire::Unreadable(_)
                | Acquire::Refused(_)
                | Acquire::Conflict(..)
                | Acquire::NoClock,
            )
            | Err(ScriptError::NoMoreFences | ScriptError::Full | ScriptError::Time) => Err(unknown(Fault::Other)),
        }))
    }

    fn raise(&mut self, request: &Request, to: FencingToken) -> NodeReply {
        let (server, key) = self.model.key(&request.key);
        let fence = key.fence.map_or(0, |fence| fence.token);
        let acked = match self.mutant {
            Some(Mutant::UncondRaise) => {
                if fence < to.get() {
                    let _ = key.put_fence(server, to.get(), model::FENCE_TTL_MS);
                }
                true
            }
            Some(Mutant::RaiseNoLe) if fence > to.get() => {
                // The raise to the lower fence changes nothing; it is acked if the holder has the lock.
                matches!(key.raise(server, request.holder, fence, &Gate::Open), Ok(model::Raise::Acked))
            }
            _ => matches!(key.raise(server, request.holder, to.get(), &Gate::Open), Ok(model::Raise::Acked)),
        };
        NodeReply::Raise(Ok(if acked { Raise::Acked } else { Raise::Refused }))
    }

    fn release(&mut self, request: &Request, mut publish: &mut Publish<'_>) -> NodeReply {
        let waits = !self.model.key(&request.key).1.queue.members.is_empty();
        let gate = if waits && self.is_in_quarantine() { Gate::Shut(Refusal::Handshake) } else { Gate::Open };
        let hand_off_ms = self.hand_off_ms();
        let (server, key) = self.model.key(&request.key);
        if self.mutant == Some(Mutant::PlainDel) {
            key.foreign_delete(server);
            return NodeReply::Release(Ok(core::Release::Released));
        }
        let proposal = server.now_us;
        mode_mutants::before_release(self.mutant, key, request.holder);
        NodeReply::Release(match key.release(server, request.holder, proposal, hand_off_ms, &gate, &mut publish) {
            Ok(Release::Released(_)) => Ok(core::Release::Released),
            Ok(Release::Absent(_)) => Ok(core::Release::Absent),
            Ok(Release::Shared(..)) => Ok(core::Release::TakenBy(occupant(None, &self.owner).into())),
            Ok(Release::Taken(by)) => Ok(core::Release::TakenBy(occupant(by.holder(), &self.owner).into())),
            Err(ScriptError::NoMoreFences | ScriptError::Full | ScriptError::Time) => Err(unknown(Fault::Other)),
        })
    }

    fn downgrade(&mut self, request: &Request, proposal: u64) -> Result<core::Downgrade, Unknown> {
        let (server, key) = self.model.key(&request.key);
        let claim = Claim { intent: Intent::Poll, ..Claim::try_for(request.holder, self.ttl_ms, proposal) };
        match key.downgrade(server, &claim, &Gate::Open, &mut |_| Delivery::NoSubscriber) {
            Ok(Downgrade::Downgraded { fence, .. }) => {
                let downgraded = |token| core::Downgrade::Downgraded { token };
                FencingToken::new(fence).map(downgraded).map_err(|_| unknown(Fault::Other))
            }
            Ok(Downgrade::Absent) => Ok(core::Downgrade::Absent),
            Ok(Downgrade::Taken(by)) => Ok(core::Downgrade::TakenBy(occupant(by.holder(), &self.owner).into())),
            Ok(Downgrade::Shared(_)) => Ok(core::Downgrade::TakenBy(occupant(None, &self.owner).into())),
            Ok(Downgrade::NoClock | Downgrade::Refused(_)) | Err(_) => Err(unknown(Fault::Other)),
        }
    }

    /// An operator ends the hold of a key. Returns the holder, if there was one.
    pub(super) fn evict(&mut self, at: u64, key: usize, mut publish: &mut Publish<'_>) -> Option<u128> {
        self.model.server.now_us = self.clock.micros(at);
        let hand_off_ms = self.hand_off_ms();
        if !self.up || self.is_in_quarantine() {
            return None;
        }
        let (server, key) = self.model.key(&key);
        let Inspect { by, .. } = key.inspect(server)?;
        let evicted = key.evict(server, (&by, HoldKind::Ours), server.now_us, hand_off_ms, &Gate::Open, &mut publish);
        by.holder().filter(|_| matches!(evicted, Ok(Evict::Evicted(_))))
    }

    /// The lease of a hand-off until it is confirmed: shorter than a full one, as in production.
    const fn hand_off_ms(&self) -> u64 {
        self.ttl_ms / 2
    }

    fn occupied(&self, occupied: &Occupied) -> core::Occupied {
        let left = occupied.ttl_ms.map(Duration::from_millis);
        core::Occupied::new(occupant(occupied.by.holder(), &self.owner), left.map_or(Expiry::Never, Expiry::In))
    }

    /// Who has a key exclusively, and the length of its queue: what clients track.
    pub(super) fn state(&mut self, key: usize) -> (Option<u128>, usize) {
        let (_, key) = self.model.key(&key);
        (key.lock.as_ref().and_then(|lock| lock.value.holder()), key.queue.members.len())
    }

    /// How many clients hold a key.
    pub(super) fn holder_count(&mut self, key: usize) -> usize {
        self.model.key(&key).1.holds.ends_ms.len()
    }

    /// Without a marker of its current run, a node may have lost data, so it starts a quarantine.
    fn is_in_quarantine(&mut self) -> bool {
        let now_us = self.model.server.now_us;
        let until_us = match self.marker {
            Some(marker) if marker.run == self.run => marker.until_us,
            _ => {
                let until_us = now_us + u64::try_from(self.quarantine.as_micros()).unwrap_or(u64::MAX);
                self.marker = Some(Marker { run: self.run, until_us });
                until_us
            }
        };
        until_us > now_us
    }

    /// Writes all data to disk.
    pub(super) fn save(&mut self) {
        self.on_disk = self.model.clone();
    }

    pub(super) fn crash(&mut self) {
        self.up = false;
        self.run += 1;
    }

    /// Starts the node after a crash.
    pub(super) fn restart(&mut self, memory: SurvivingData) {
        self.up = true;
        match memory {
            SurvivingData::All => {}
            SurvivingData::Older => self.model = self.on_disk.clone(),
            SurvivingData::Nothing => self.forget(),
        }
        if matches!(self.mutant, Some(Mutant::NoQuarantine | Mutant::ImmediateRestart)) {
            self.marker = Some(Marker { run: self.run, until_us: 0 });
        }
    }

    /// Deletes all data, including the marker, without a restart.
    pub(super) fn flush(&mut self) {
        self.forget();
        let trusted = self.mutant == Some(Mutant::NoQuarantine);
        self.marker = trusted.then_some(Marker { run: self.run, until_us: 0 });
    }

    fn forget(&mut self) {
        self.model.restart_empty();
        self.on_disk.restart_empty();
    }

    /// The holders of a lock, and the remaining time of each by the clock of the node.
    pub(super) fn inspect(&mut self, at: u64, key: usize) -> Vec<(u128, Duration)> {
        self.model.server.now_us = self.clock.micros(at);
        let (server, key) = self.model.key(&key);
        let Some(seen) = key.inspect(server) else { return Vec::new() };
        if let Some(listed) = seen.listed {
            return listed.holds.iter().map(|hold| (hold.holder, Duration::from_millis(hold.rest_ms))).collect();
        }
        vec![(seen.by.holder().unwrap_or(0), Duration::from_millis(seen.ttl_ms.unwrap_or(u64::MAX / 2000)))]
    }

    /// Whether the node serves requests and grants locks.
    pub(super) fn is_whole(&mut self, at: u64) -> bool {
        self.model.server.now_us = self.clock.micros(at);
        self.up && self.paused_until <= at && self.cut_until <= at && !self.is_in_quarantine()
    }
}

fn unknown(fault: Fault) -> Unknown {
    Unknown::new("", fault, "")
}

fn occupant(holder: Option<u128>, owner: &Owner) -> Occupant {
    match holder {
        Some(id) => Occupant::Holder(Holder { id: HolderId::from_bytes(id.to_be_bytes()), owner: owner.clone() }),
        None => Occupant::Foreign(Foreign::other("another")),
    }
}
