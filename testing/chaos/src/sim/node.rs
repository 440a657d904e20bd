use super::clock::SimClock;
use super::scenario::{Mutant, Scenario};
use crate::recorder::{Recorder, micros};
use fencelock_core::{
    Acquire, Backend, BoxFuture, Capabilities, Clock, ClockReading, Event, Fault, Holding, Key, KeyTable, Listener,
    Listeners, Moment, Raise, Reply, Request, Unknown,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A node: a table of keys, its loss of data, and its quarantine.
#[derive(Debug)]
pub(super) struct SimNode {
    name: String,
    pub(super) clock: SimClock,
    quarantine: Duration,
    /// It grants its keys to waiters, so it is no node of a quorum.
    queues: bool,
    mutant: Option<Mutant>,
    recorder: Arc<Recorder>,
    listeners: Listeners,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    table: KeyTable,
    /// The data on disk, which survives a crash.
    on_disk: KeyTable,
    /// Changes with each start of the server; connections do not survive it.
    pub(super) run: u32,
    pub(super) up: bool,
    pub(super) paused_until: Instant,
    pub(super) cut_until: Instant,
    /// The sum of all steps of its clock.
    pub(super) jumped_us: i64,
    /// The end of its quarantine by its clock; `None` if it may have lost data and does not know it yet.
    trusted_from_us: Option<u64>,
}

/// The data that a node has after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SurvivingData {
    All,
    Older,
    Nothing,
}

impl SimNode {
    pub(super) fn new(number: usize, clock: SimClock, scenario: &Scenario, recorder: &Arc<Recorder>) -> Self {
        let name = format!("n{number}");
        let (table, now) = (KeyTable::new(&*name).with_leases(), Instant::now());
        let state = State {
            on_disk: table.clone(),
            table,
            run: 0,
            up: true,
            paused_until: now,
            cut_until: now,
            jumped_us: 0,
            // As in a first deployment, where the empty node is trusted.
            trusted_from_us: Some(0),
        };
        Self {
            name,
            clock,
            quarantine: scenario.quarantine(),
            queues: scenario.nodes == 1,
            mutant: scenario.mutant,
            recorder: Arc::clone(recorder),
            listeners: Listeners::default(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a request. Nothing that needs the lost data is done in a quarantine, and no waiter is granted the key.
    pub(super) fn serve(&self, request: Request<'_>) -> Reply {
        let wall_us = self.clock.wall_micros();
        let mut at = ClockReading::from_micros(wall_us);
        let mut state = self.state();
        let needs_data = matches!(request, Request::Claim(..) | Request::Raise(..) | Request::Downgrade(..));
        let grants = self.queues && matches!(request, Request::Release(..) | Request::Evict(_));
        if (needs_data || grants) && self.is_in_quarantine(&mut state, wall_us) {
            return match request {
                Request::Raise(..) => Raise::Refused.into(),
                _ => Unknown::new(&*self.name, Fault::Quarantined, "it may have lost its data").into(),
            };
        }
        let request = match request {
            Request::Claim(claim, proposal) if self.mutant == Some(Mutant::CounterOnly) => {
                at.wall_micros = 0;
                Request::Claim(claim, proposal.map(|_| 1))
            }
            request => request,
        };
        let reply = state.table.answer(request, at);
        let events = state.table.take_events();
        drop(state);
        match &reply {
            Reply::Raise(Raise::Acked) => self.recorder.seen("a raise"),
            Reply::Raise(Raise::Refused) => self.recorder.seen("a raise that was refused"),
            Reply::Claim(claimed) if matches!(claimed.answer, Ok(Acquire::Queued { .. })) => {
                self.recorder.seen("a waiter in the queue");
            }
            _ => {}
        }
        for event in &events {
            if matches!(event, Event::Handed { .. }) {
                self.recorder.seen("a hand-off");
            }
            self.listeners.send(event);
        }
        reply
    }

    fn is_in_quarantine(&self, state: &mut State, wall_us: u64) -> bool {
        wall_us < *state.trusted_from_us.get_or_insert(wall_us + micros(self.quarantine))
    }

    /// Writes all data to disk.
    pub(super) fn save(&self) {
        let mut state = self.state();
        state.on_disk = state.table.clone();
    }

    pub(super) fn crash(&self) {
        let mut state = self.state();
        state.up = false;
        state.run += 1;
    }

    /// Starts the node after a crash.
    pub(super) fn restart(&self, data: SurvivingData) {
        let mut state = self.state();
        state.up = true;
        match data {
            SurvivingData::All => {}
            SurvivingData::Older => state.table = state.on_disk.clone(),
            SurvivingData::Nothing => self.forget(&mut state),
        }
        let trusts = matches!(self.mutant, Some(Mutant::NoQuarantine | Mutant::ImmediateRestart));
        state.trusted_from_us = trusts.then_some(0);
        drop(state);
        self.listeners.send(&Event::Reset);
    }

    /// Deletes all data without a restart.
    pub(super) fn flush(&self) {
        let mut state = self.state();
        self.forget(&mut state);
        state.trusted_from_us = (self.mutant == Some(Mutant::NoQuarantine)).then_some(0);
        drop(state);
        self.listeners.send(&Event::Reset);
    }

    fn forget(&self, state: &mut State) {
        state.table = KeyTable::new(&*self.name).with_leases();
        state.on_disk = state.table.clone();
    }

    /// Whether the node serves requests and grants locks.
    pub(super) fn is_whole(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        // In any case, so that the node detects that it may have lost data.
        let is_trusted = !self.is_in_quarantine(&mut state, self.clock.wall_micros());
        is_trusted && state.up && state.paused_until <= now && state.cut_until <= now
    }

    /// The hold of a key.
    pub(super) fn holding(&self, key: &Key) -> Option<Holding> {
        let now = Moment::from_micros(self.clock.wall_micros());
        self.state().table.list(now).into_iter().find(|holding| holding.key == *key)
    }
}

impl Backend for SimNode {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        (facts.expires, facts.portable, facts.cross_process) = (true, true, true);
        (facts.queues, facts.evicts, facts.lists) = (true, true, true);
        (facts.modes.shared, facts.modes.permits) = (true, true);
        (facts.completions, facts.mode_changes, facts.node) = (true, true, true);
        facts
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move { self.serve(request) })
    }

    fn announces_waiters(&self, _: &Key) -> bool {
        true
    }
}
