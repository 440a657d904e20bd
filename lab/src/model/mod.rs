//! The model: a Redis server with time, its clients, and the possible actions.

pub(crate) mod command;
mod permits;
mod read_write;
pub(crate) mod state;
mod steps;

use crate::fault::{Fault, Faults};
use crate::property::Property;
use crate::scheme::{Home, LockScheme, Op};
use read_write::READ_TTL;
use state::{Action, Entry, LAST_TICK, Life, Reply, State, TTL, Transition};

/// A scheme, and the faults that may happen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockModel<'s> {
    pub(crate) scheme: &'s LockScheme,
    pub(crate) faults: Faults,
}

impl LockModel<'_> {
    pub(crate) fn clients(&self) -> usize {
        usize::from(self.scheme.clients)
    }

    /// Whether a replica takes part. A replica that is never promoted makes no difference.
    pub(crate) fn is_replicated(&self) -> bool {
        self.scheme.home == Home::Replicated && self.faults.has(Fault::Failover)
    }

    /// How long a hold lasts without its client.
    pub(crate) fn lifetime(&self) -> u8 {
        let has_readers = self.scheme.lines.iter().any(|line| line.op == Op::ReadLock);
        if has_readers { READ_TTL } else { TTL }
    }

    /// The time of a client's clock.
    pub(crate) fn clock(&self, state: &State, client: usize) -> u8 {
        state.now + u8::from(self.faults.has(Fault::Clocks) && client > 0)
    }

    pub(crate) fn op(&self, state: &State, client: usize) -> Op {
        self.scheme.lines[usize::from(state.clients[client].line)].op
    }

    /// All possible actions.
    pub(crate) fn actions(&self, state: &State, into: &mut Vec<Action>) {
        // Clients are symmetric, so they start in order, unless their clocks differ.
        let mut may_begin = true;
        for client in 0..self.clients() {
            let number = client as u8;
            match state.clients[client].life {
                Life::Idle if may_begin => {
                    into.push(Action::Step(number));
                    may_begin = self.faults.has(Fault::Clocks) || !self.scheme.has_equal_clients();
                }
                Life::Running => self.actions_of(state, number, into),
                _ => {}
            }
        }
        self.actions_of_servers(state, into);
        if self.may_tick(state) {
            into.push(Action::Tick);
        }
    }

    fn actions_of(&self, state: &State, client: u8, into: &mut Vec<Action>) {
        let at = usize::from(client);
        let this = &state.clients[at];
        let is_release = self.op(state, at).is_release();
        if !(is_release && this.cut) {
            into.push(Action::Step(client));
        }
        if is_release
            && self.faults.has(Fault::LostRelease)
            && (this.cut || state.clients.iter().all(|other| !other.cut))
        {
            into.push(Action::Lose(client));
        }
        if self.scheme.is_renewed && this.holds && !this.detected_loss && this.lease < TTL {
            into.push(Action::Renew(client));
        }
        let none_crashed = state.clients.iter().all(|other| other.life != Life::Crashed);
        if self.faults.has(Fault::Crash) && none_crashed {
            into.push(Action::Crash(client));
        }
    }

    fn actions_of_servers(&self, state: &State, into: &mut Vec<Action>) {
        if self.is_replicated() && !state.failed_over {
            if state.keys[1] != state.keys[0] {
                into.push(Action::Replicate);
            }
            into.push(Action::Failover);
        }
        if self.scheme.home == Home::Three && self.faults.has(Fault::Restart) && !state.restarted {
            into.extend((0..3).filter(|node| state.keys[usize::from(*node)].is_some()).map(Action::Restart));
        }
    }

    /// Whether time may pass. It may not if that would be a fault outside the set.
    fn may_tick(&self, state: &State) -> bool {
        let may_end = |client: &state::Client| {
            self.faults.has(Fault::Pause)
                || (self.faults.has(Fault::Overrun) && (!self.scheme.is_renewed || client.detected_loss))
        };
        let in_time = |client: &state::Client| {
            client.life != Life::Running || !client.holds || client.lease > 1 || may_end(client)
        };
        state.now < LAST_TICK && state.clients.iter().all(in_time)
    }

    /// The result of `action`.
    pub(crate) fn step(&self, state: &State, action: Action) -> Transition {
        let mut step = Transition { after: *state, ..Transition::default() };
        match action {
            Action::Step(client) => self.run(&mut step, usize::from(client), false),
            Action::Lose(client) => self.run(&mut step, usize::from(client), true),
            Action::Renew(client) => renew(&mut step, client),
            Action::Crash(client) => self.crash(&mut step.after, client),
            Action::Tick => tick(&mut step.after, self.lifetime()),
            Action::Replicate => step.after.keys[1] = step.after.keys[0],
            Action::Failover => {
                step.after.failed_over = true;
                step.after.keys = [step.after.keys[1], None, None];
            }
            Action::Restart(node) => {
                step.after.restarted = true;
                step.after.keys[usize::from(node)] = None;
            }
        }
        let inside = |client: &&state::Client| client.life == Life::Running && client.inside;
        if step.after.clients.iter().filter(inside).count() > usize::from(self.scheme.permits) {
            step.broken |= Property::Exclusion.bit();
        }
        step
    }

    fn crash(&self, state: &mut State, client: u8) {
        let this = &mut state.clients[usize::from(client)];
        this.life = Life::Crashed;
        this.inside = false;
        this.holds = false;
        state.quiet = 0;
        if self.scheme.home == Home::System && state.keys[0].is_some_and(|entry| entry.owner == client) {
            state.keys[0] = None;
        }
    }
}

fn renew(step: &mut Transition, client: u8) {
    let state = &mut step.after;
    let this = &mut state.clients[usize::from(client)];
    match &mut state.keys[0] {
        Some(Entry { value, ttl, .. }) if *value == state::Value::Id(client) => {
            *ttl = Some(TTL);
            this.lease = TTL;
            step.reply = Reply::Int(1);
            step.yes = true;
        }
        _ => {
            this.detected_loss = true;
            step.reply = Reply::Int(0);
        }
    }
}

fn tick(state: &mut State, lifetime: u8) {
    state.now += 1;
    for key in &mut state.keys {
        if let Some(entry) = key
            && let Some(ttl) = &mut entry.ttl
        {
            *ttl -= 1;
            if *ttl == 0 {
                *key = None;
            }
        }
    }
    for client in &mut state.clients {
        if client.lease != state::FOR_EVER {
            client.lease = client.lease.saturating_sub(1);
        }
    }
    let busy = state.clients.iter().any(|client| client.life == Life::Running);
    state.quiet = if busy { 0 } else { lifetime.min(state.quiet + 1) };
}
