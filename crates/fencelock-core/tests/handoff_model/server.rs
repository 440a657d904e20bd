//! The server's scripts, each atomic.

use crate::client::Phase;
use crate::model::{FREE, Flaw, Lock, Model, Owner, State};

impl State {
    /// Whether the key's TTL can have run out by now.
    pub(crate) fn may_expire(&self) -> bool {
        match self.lock.owner {
            Owner::Nobody => false,
            Owner::Foreign => self.foreign == Phase::Done,
            Owner::Own(who) => {
                let owner = &self.clients[usize::from(who)];
                owner.claim_late >= self.lock.claim_after && owner.late >= self.lock.ttl_after
            }
        }
    }

    /// Draws a fence for `who`, whose turn it must be.
    fn draw_fence(&mut self, who: u8) {
        let turn = self.queue.head().is_none_or(|head| head == who);
        self.overtaken |= !turn;
        self.queue.remove(who);
        self.fence += 1;
    }

    fn grant(&mut self, who: u8) {
        self.draw_fence(who);
        self.lock = Lock { owner: Owner::Own(who), claim_after: 0, ttl_after: self.clients[usize::from(who)].sent };
    }

    /// Gives the free lock to the first waiter under the claim TTL, and tells it.
    fn advance(&mut self) {
        let Some(who) = self.queue.head() else { return };
        self.draw_fence(who);
        let waiter = &mut self.clients[usize::from(who)];
        self.lock = Lock { owner: Owner::Own(who), claim_after: waiter.sent, ttl_after: 0 };
        waiter.granted |= 1 << self.fence;
    }

    pub(crate) fn skip_head(&mut self) {
        self.advance();
        self.lock = FREE;
    }
}

impl Model {
    /// Runs one request. A run that changes and answers nothing is not counted: it is as if it had never come.
    pub(crate) fn run(&self, state: &mut State, who: u8, request: u8) {
        let before = *state;
        match request {
            0 => self.enqueue(state, who),
            _ if before.clients[usize::from(who)].is_renewal(request) => self.renew(state, who, request),
            _ => self.poll(state, who, request),
        }
        if *state != before || self.scope.untidied {
            let runs = &mut state.clients[usize::from(who)].runs[usize::from(request)];
            state.spare_runs -= u8::from(*runs > 0);
            *runs += 1;
        }
    }

    /// `OK`, or the waiter stands in line. Its QUEUED answer is not modelled: nothing hangs on it, because whatever is
    /// ever handed to this token is handed to it after ENQ was sent.
    fn enqueue(&self, state: &mut State, who: u8) {
        let barges = self.has(Flaw::EnqueueBarges);
        match state.lock.owner {
            // Handed over and not yet claimed: the answer repeats the grant message, the TTL stays.
            Owner::Own(owner) if owner == who && state.lock.ttl_after == 0 => {
                state.clients[usize::from(who)].granted |= 1 << state.fence;
            }
            Owner::Own(owner) if owner == who => Self::answer_ok(state, who, 0),
            Owner::Nobody if barges || state.queue.head().is_none_or(|head| head == who) => {
                state.grant(who);
                Self::answer_ok(state, who, 0);
            }
            owner => {
                if !state.queue.holds(who) {
                    state.queue.push(who);
                }
                if owner == Owner::Nobody {
                    state.advance();
                }
            }
        }
    }

    /// `OK` raises the TTL; `QUEUED` names the fence counter, so that the waiter can tell grant messages from before.
    fn poll(&self, state: &mut State, who: u8, request: u8) {
        let stranger = state.lock.owner == Owner::Nobody && self.has(Flaw::QueuesStrangers);
        match state.lock.owner {
            Owner::Own(owner) if owner == who => return self.renew(state, who, request),
            Owner::Nobody if state.queue.head() == Some(who) => {
                state.grant(who);
                return Self::answer_ok(state, who, request);
            }
            Owner::Nobody => state.advance(),
            _ => {}
        }
        // A token that does not stand in line is told LOST, which the waiter may treat as a reason to give up.
        if state.queue.holds(who) || stranger {
            state.clients[usize::from(who)].queued[usize::from(request)] |= 1 << state.fence;
        }
    }

    /// `OK` and a TTL of at least what was asked for if the key is `who`'s; else `LOST`, and nothing happens.
    fn renew(&self, state: &mut State, who: u8, request: u8) {
        let absent = state.lock.owner == Owner::Nobody;
        if absent && self.has(Flaw::RenewRecreates) {
            state.overtaken |= state.queue.head().is_some();
            state.lock = Lock { owner: Owner::Own(who), ..FREE };
        }
        if state.lock.owner != Owner::Own(who) {
            return;
        }
        state.lock.ttl_after = state.clients[usize::from(who)].sent;
        if !self.scope.claim_may_outlast_ttl || self.has(Flaw::RenewShortens) {
            state.lock.claim_after = 0;
        }
        Self::answer_ok(state, who, request);
    }

    pub(crate) fn run_release(&self, state: &mut State, who: u8) {
        state.queue.remove(who);
        if state.lock.owner == Owner::Own(who) {
            state.lock = FREE;
        }
        if state.lock == FREE || self.has(Flaw::HandsOffWhileHeld) {
            state.advance();
        }
    }

    fn answer_ok(state: &mut State, who: u8, request: u8) {
        state.clients[usize::from(who)].ok[usize::from(request)] |= 1 << state.fence;
    }
}
