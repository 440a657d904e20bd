//! The hand-off on one master: what exists, which steps are possible, and what must never be.
//!
//! Time has no numbers here. A client's requests are numbered in the order it sent them, and two counters say how far
//! time has run: of how many of them, oldest first, the send time plus the claim TTL has passed, and of how many the send
//! time plus the TTL. Both move only forward, at any moment, each client by itself. A TTL set on the server after a client
//! had sent n requests started no earlier than any of those was sent, so it cannot run out before all n have passed.
//!
//! A message is a bit that stays set while anybody would still heed it: it arrives at any time, any number of times or never.

use crate::client::{Client, Phase};
use crate::explorer::System;

/// Requests that one client may send: ENQ, polls and renewals.
pub(crate) const REQUESTS: usize = 5;
pub(crate) const CLIENTS: usize = 3;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) clients: u8,
    pub(crate) polls: u8,
    pub(crate) renewals: u8,
    /// How often the server may run one request: 2 is a duplicate.
    pub(crate) runs: u8,
    /// Runs beyond the first, all requests together.
    pub(crate) spare_runs: u8,
    /// One plain client: SET NX PX, then compare-and-delete.
    pub(crate) foreign: bool,
    /// Whether the claim TTL may be the longer one. If not, a request is past its claim TTL before it is past its TTL.
    pub(crate) claim_may_outlast_ttl: bool,
    /// Keeps apart states that differ only in what cannot matter any more.
    pub(crate) untidied: bool,
}

/// One rule broken on purpose: the search must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// An early start counts from when the grant message was received.
    CountsFromReceipt,
    /// An early start counts from the last request sent, answered or not.
    CountsFromLastSent,
    /// An early start lasts for the whole TTL: the message is taken as ownership.
    MessageIsOwnership,
    /// A grant message is heeded although a later QUEUED answer has overtaken it.
    HeedsStaleMessages,
    /// The same, and POLL answers QUEUED whenever it finds the lock free, even to a token that is not in line.
    QueuesStrangers,
    /// A renewal answered after the guard lapsed brings it back.
    RevivesLapsed,
    /// RELEASE hands off without looking whether the lock is free.
    HandsOffWhileHeld,
    /// RENEW sets the key where there is none.
    RenewRecreates,
    /// RENEW sets the TTL although more than that is left.
    RenewShortens,
    /// The plain client deletes without comparing.
    ForeignPlainDelete,
    /// ENQ takes a free lock past the queue.
    EnqueueBarges,
    /// A waiter is skipped for "0 receivers", but the message had reached it.
    SkipsReachedWaiter,
}

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breach {
    /// Two guards are valid at once, the plain client's among them.
    Exclusion,
    /// A guard is valid and the key does not carry its token.
    Key,
    /// A grant overtook a live waiter.
    Order,
    /// Guards began with equal or falling fences, or a later fence was drawn while one was valid.
    Fence,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    Nobody,
    Own(u8),
    Foreign,
}

/// The lock's key. Its TTL ends after as many requests of its owner have passed, by the claim TTL and by the TTL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lock {
    pub(crate) owner: Owner,
    pub(crate) claim_after: u8,
    pub(crate) ttl_after: u8,
}

pub(crate) const FREE: Lock = Lock { owner: Owner::Nobody, claim_after: 0, ttl_after: 0 };

/// Waiters in ticket order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue([Option<u8>; CLIENTS]);

impl Queue {
    pub(crate) fn head(self) -> Option<u8> {
        self.0[0]
    }
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flatten()
    }
    pub(crate) fn holds(self, who: u8) -> bool {
        self.0.contains(&Some(who))
    }
    pub(crate) fn push(&mut self, who: u8) {
        let end = self.iter().count();
        self.0[end] = Some(who);
    }
    pub(crate) fn remove(&mut self, who: u8) {
        let mut kept = Self::default();
        self.iter().filter(|&other| other != who).for_each(|other| kept.push(other));
        *self = kept;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) lock: Lock,
    /// The fence counter: the fence drawn last.
    pub(crate) fence: u8,
    pub(crate) queue: Queue,
    pub(crate) clients: [Client; CLIENTS],
    /// The plain client, which asks once. It is valid while it holds, and done when its TTL since the asking has passed.
    pub(crate) foreign: Phase,
    /// Duplicate runs left.
    pub(crate) spare_runs: u8,
    /// The greatest fence a guard began with.
    pub(crate) begun: u8,
    pub(crate) overtaken: bool,
    pub(crate) disordered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Enqueue(u8),
    Poll(u8),
    Renew(u8),
    /// The server runs a request, now or again.
    Run(u8, u8),
    /// The answer QUEUED to a poll arrives, with the fence counter it was given at.
    HearQueued(u8, u8, u8),
    /// The answer OK to a request arrives, with its fence.
    HearOk(u8, u8, u8),
    /// A grant message arrives, with its fence.
    HearGrant(u8, u8),
    /// One more request is past its claim TTL.
    ClaimPasses(u8),
    /// One more request is past its TTL.
    TtlPasses(u8),
    /// The waiter gives up, or the holder is done.
    Leave(u8),
    RunRelease(u8),
    Expire,
    /// A waiter is dropped: it seems dead, or nobody received its grant message.
    Prune(u8),
    /// [`Flaw::SkipsReachedWaiter`]: the head is passed over, and hears of a grant all the same.
    SkipHead,
    ForeignSet,
    ForeignHears,
    ForeignTtlPasses,
    ForeignLeaves,
    ForeignDelete,
}

/// What a search must have come across before its silence means anything.
pub(crate) mod landmark {
    pub(crate) const EARLY_START: u32 = 1;
    pub(crate) const CONFIRMED_BY_RENEWAL: u32 = 1 << 1;
    /// By the answer to a poll that was under way when the grant message arrived.
    pub(crate) const CONFIRMED_BY_POLL: u32 = 1 << 2;
    pub(crate) const EARLY_HOLD_LAPSED: u32 = 1 << 3;
    /// An early hold lapsed while its confirmation was under way.
    pub(crate) const ANSWERED_TOO_LATE: u32 = 1 << 4;
    /// The grant message was lost or slower than the poll.
    pub(crate) const STARTED_BY_POLL: u32 = 1 << 5;
    pub(crate) const HANDED_OFF_WITH_TWO_WAITING: u32 = 1 << 6;
    pub(crate) const ALL: u32 = (1 << 7) - 1;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    pub(crate) scope: Scope,
    pub(crate) flaw: Option<Flaw>,
}

impl Model {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Every promise `state` breaks.
    pub(crate) fn breaches(state: &State) -> Vec<Breach> {
        let valid = || (0..).zip(&state.clients).filter(|(_, client)| client.is_valid());
        let mut broken = Vec::new();
        let foreign = state.foreign == Phase::Holding;
        if valid().count() + usize::from(foreign) > 1 {
            broken.push(Breach::Exclusion);
        }
        if valid().any(|(who, _)| state.lock.owner != Owner::Own(who)) || foreign && state.lock.owner != Owner::Foreign
        {
            broken.push(Breach::Key);
        }
        if state.overtaken {
            broken.push(Breach::Order);
        }
        if state.disordered || valid().any(|(_, client)| client.fence != state.fence) {
            broken.push(Breach::Fence);
        }
        broken
    }

    fn client_actions(&self, state: &State, who: u8, into: &mut Vec<Action>) {
        let client = &state.clients[usize::from(who)];
        match client.phase {
            // Clients are alike, so they may as well come in order of their names.
            Phase::Idle if who == 0 || state.clients[usize::from(who) - 1].phase != Phase::Idle => {
                into.push(Action::Enqueue(who));
            }
            Phase::Idle => {}
            Phase::Waiting => {
                if client.sent <= self.scope.polls {
                    into.push(Action::Poll(who));
                }
                into.push(Action::Leave(who));
            }
            Phase::Holding => {
                if client.sent - client.renewals_from < self.scope.renewals {
                    into.push(Action::Renew(who));
                }
                into.push(Action::Leave(who));
            }
            Phase::Lapsed => into.push(Action::Leave(who)),
            Phase::Done => {
                let noticed = state.lock.owner == Owner::Own(who) || state.queue.holds(who);
                if noticed || self.has(Flaw::HandsOffWhileHeld) || state.lock == FREE && state.queue.head().is_some() {
                    into.push(Action::RunRelease(who));
                }
            }
        }
        for request in 0..client.sent {
            let runs = client.runs[usize::from(request)];
            if runs == 0 || runs < self.scope.runs && state.spare_runs > 0 {
                into.push(Action::Run(who, request));
            }
            into.extend(
                bits(client.queued[usize::from(request)]).map(|counter| Action::HearQueued(who, request, counter)),
            );
            into.extend(bits(client.ok[usize::from(request)]).map(|fence| Action::HearOk(who, request, fence)));
        }
        if self.heeds_grant(client) {
            into.extend(bits(client.granted).map(|fence| Action::HearGrant(who, fence)));
        }
        let open = client.phase != Phase::Done || self.scope.untidied;
        if open && client.claim_late < client.sent {
            into.push(Action::ClaimPasses(who));
        }
        if open && client.late < client.sent {
            into.push(Action::TtlPasses(who));
        }
    }

    fn foreign_actions(&self, state: &State, into: &mut Vec<Action>) {
        match state.foreign {
            Phase::Idle if state.lock == FREE => into.push(Action::ForeignSet),
            Phase::Waiting => into.extend([Action::ForeignHears, Action::ForeignTtlPasses]),
            Phase::Holding => into.extend([Action::ForeignLeaves, Action::ForeignTtlPasses]),
            Phase::Done if state.lock.owner == Owner::Foreign || self.has(Flaw::ForeignPlainDelete) => {
                into.push(Action::ForeignDelete);
            }
            _ => {}
        }
    }
}

impl System for Model {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            lock: FREE,
            fence: 0,
            queue: Queue::default(),
            clients: [Client::new(); CLIENTS],
            foreign: Phase::Idle,
            spare_runs: self.scope.spare_runs,
            begun: 0,
            overtaken: false,
            disordered: false,
        }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        (0..self.scope.clients).for_each(|who| self.client_actions(state, who, into));
        if self.scope.foreign {
            self.foreign_actions(state, into);
        }
        if state.may_expire() {
            into.push(Action::Expire);
        }
        into.extend(state.queue.iter().map(Action::Prune));
        if self.has(Flaw::SkipsReachedWaiter) && state.lock == FREE && state.queue.head().is_some() {
            into.push(Action::SkipHead);
        }
    }

    fn next(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Run(who, request) => self.run(&mut next, who, request),
            Action::RunRelease(who) => self.run_release(&mut next, who),
            Action::Expire | Action::ForeignDelete => next.lock = FREE,
            Action::Prune(who) => next.queue.remove(who),
            Action::SkipHead => next.skip_head(),
            Action::ForeignSet => (next.foreign, next.lock.owner) = (Phase::Waiting, Owner::Foreign),
            Action::ForeignHears => next.foreign = Phase::Holding,
            Action::ForeignTtlPasses | Action::ForeignLeaves => next.foreign = Phase::Done,
            _ => self.client_step(&mut next, action),
        }
        (0..self.scope.clients).for_each(|who| self.tidy(&mut next, who));
        next
    }

    fn landmarks(&self, before: &State, action: Action, after: &State) -> u32 {
        let client = |state: &State, who: u8| state.clients[usize::from(who)];
        let early = |state: &State, who: u8| client(state, who).phase == Phase::Holding && client(state, who).early;
        match action {
            Action::HearGrant(..) => landmark::EARLY_START,
            Action::HearOk(who, request, _) if early(before, who) && client(before, who).is_renewal(request) => {
                landmark::CONFIRMED_BY_RENEWAL
            }
            Action::HearOk(who, ..) if early(before, who) => landmark::CONFIRMED_BY_POLL,
            Action::HearOk(who, request, _) if request > 0 && client(before, who).phase == Phase::Waiting => {
                landmark::STARTED_BY_POLL
            }
            Action::ClaimPasses(who) if early(before, who) && !early(after, who) => {
                let answer_under_way = client(before, who).ok.iter().any(|&fences| fences != 0);
                landmark::EARLY_HOLD_LAPSED | if answer_under_way { landmark::ANSWERED_TOO_LATE } else { 0 }
            }
            Action::RunRelease(_) if before.queue.iter().count() >= 2 && before.fence < after.fence => {
                landmark::HANDED_OFF_WITH_TWO_WAITING
            }
            _ => 0,
        }
    }

    fn describe(&self, before: &State, action: Action, after: &State) -> String {
        crate::words::describe(self, before, action, after)
    }
}

/// The numbers of the bits set in `set`.
pub(crate) fn bits(set: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |bit| set & 1 << bit != 0)
}
