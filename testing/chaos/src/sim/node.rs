use super::clock::SimClock;
use super::message::{Reply, Request, RequestBody, owner};
use super::scenario::Scenario;
use super::{Mutant, mode_mutants};
use fencelock_core::quorum::NodeReply;
use fencelock_core::{
    self as core, Expiry, Fault, FencingToken, Foreign, Holder, HolderId, Occupant, Owner, Raise, Unknown,
};
use fencelock_model::{
    self as model, Acquire, Claim, Delivery, Downgrade, Gate, HandOff, Intent, NodeModel, Release, Renew, ScriptError,
    Server,
};
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

/// A quorum has no queue, so messages have no receiver.
fn no_receiver(_: HandOff) -> Delivery {
    Delivery::NoSubscriber
}

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
        }
    }

    /// Executes a script at a true time.
    pub(super) fn serve(&mut self, at: u64, request: &Request) -> Reply {
        self.model.server.now_us = self.clock.micros(at);
        let needs_memory = matches!(
            request.body,
            RequestBody::Claim { .. }
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
                return self.claim(request, &Claim { mode, ..Claim::try_for(holder, ttl_ms, proposal) });
            }
            RequestBody::Confirm { proposal, mode } => {
                let claim = Claim { intent: Intent::Poll, mode, ..Claim::try_for(holder, ttl_ms, proposal) };
                return self.claim(request, &claim);
            }
            RequestBody::Downgrade { proposal } => NodeReply::Downgrade(self.downgrade(request, proposal)),
            RequestBody::Raise { to } => self.raise(request, to),
            RequestBody::Renew => {
                let (server, key) = self.model.key(&request.key);
                NodeReply::Renew(vec![Ok(match key.renew(server, holder, ttl_ms, ttl_ms) {
                    Err(_) => return Reply::Node(NodeReply::Renew(vec![Err(unknown(Fault::Other))])),
                    Ok(Renew::Shared(_)) => core::Renew::TakenBy(occupant(None, &self.owner).into()),
                    Ok(Renew::Renewed { .. }) => core::Renew::Renewed { waiters: 0 },
                    Ok(Renew::Absent) => core::Renew::Absent,
                    Ok(Renew::Taken(by)) => core::Renew::TakenBy(occupant(by.holder(), &self.owner).into()),
                })])
            }
            RequestBody::Release => self.release(request),
            RequestBody::Watch => NodeReply::Watch,
        })
    }

    fn claim(&mut self, request: &Request, claim: &Claim) -> Reply {
        let (server, key) = self.model.key(&request.key);
        let before = mode_mutants::before_claim(self.mutant, server, key, claim);
        let answer = key.acquire(server, claim, &Gate::Open, &mut no_receiver);
        mode_mutants::after_claim(self.mutant, server, key, before);
        Reply::Node(NodeReply::Claim(match answer {
            Ok(Acquire::Granted { fence, .. }) => {
                let tokens = |fence: FencingToken| core::Acquire::Granted { tokens: fence.into() };
                FencingToken::new(fence).map(tokens).map_err(|_| unknown(Fault::Other))
            }
            Ok(Acquire::Yours) => return Reply::Yours,
            Ok(Acquire::Busy(occupied) | Acquire::Queued { occupied, .. }) => {
                let left = occupied.ttl_ms.map(Duration::from_millis);
                let by = occupant(occupied.by.holder(), &self.owner);
                Ok(core::Acquire::Busy(core::Occupied::new(by, left.map_or(Expiry::Never, Expiry::In))))
            }
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

    fn release(&mut self, request: &Request) -> NodeReply {
        let (server, key) = self.model.key(&request.key);
        if self.mutant == Some(Mutant::PlainDel) {
            key.foreign_delete(server);
            return NodeReply::Release(Ok(core::Release::Released));
        }
        let proposal = server.now_us;
        mode_mutants::before_release(self.mutant, key, request.holder);
        NodeReply::Release(match key.release(server, request.holder, proposal, 0, &Gate::Open, &mut no_receiver) {
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
        match key.downgrade(server, &claim, &Gate::Open, &mut no_receiver) {
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
