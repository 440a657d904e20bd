//! The client: one attempt, from ENQ to the end of its guard.

use crate::model::{Action, Flaw, Model, Owner, REQUESTS, State};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    Idle,
    Waiting,
    Holding,
    /// The guard's validity passed while it was held. Without [`Flaw::RevivesLapsed`] that is simply `Done`.
    Lapsed,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Requests sent. Number 0 is ENQ, those from `renewals_from` on are renewals, the others polls.
    pub(crate) sent: u8,
    pub(crate) renewals_from: u8,
    /// How often the server ran each of them.
    pub(crate) runs: [u8; REQUESTS],
    /// Of how many requests, oldest first, the send time plus the claim TTL is past.
    pub(crate) claim_late: u8,
    /// The same for the TTL.
    pub(crate) late: u8,
    /// The request an early start counts from, and the fence counter its answer named.
    pub(crate) answered: u8,
    pub(crate) counter: u8,
    /// While holding: the request that validity counts from, and whether it ends with the claim TTL.
    pub(crate) basis: u8,
    pub(crate) early: bool,
    pub(crate) fence: u8,
    /// Answers under way, by request: a bit for every fence counter a QUEUED was given at, for every fence of an OK.
    pub(crate) queued: [u8; REQUESTS],
    pub(crate) ok: [u8; REQUESTS],
    /// Grant messages under way, a bit for every fence.
    pub(crate) granted: u8,
}

const NOT_YET: u8 = u8::MAX;

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            sent: 0,
            renewals_from: NOT_YET,
            runs: [0; REQUESTS],
            claim_late: 0,
            late: 0,
            answered: 0,
            counter: 0,
            basis: 0,
            early: false,
            fence: 0,
            queued: [0; REQUESTS],
            ok: [0; REQUESTS],
            granted: 0,
        }
    }

    pub(crate) fn is_renewal(&self, request: u8) -> bool {
        request >= self.renewals_from
    }

    /// Whether the guard may still be relied on.
    pub(crate) fn is_valid(&self) -> bool {
        self.phase == Phase::Holding && self.basis >= if self.early { self.claim_late } else { self.late }
    }

    /// What is left of a client that is done: the requests that may still run and do something.
    fn remains(&self, renewals: bool) -> Self {
        let renewals_from = if renewals { self.renewals_from } else { NOT_YET };
        let sent = if renewals { self.sent } else { self.sent.min(self.renewals_from) };
        let mut runs = self.runs;
        runs[usize::from(sent)..].fill(0);
        Self { phase: Phase::Done, sent, renewals_from, runs, ..Self::new() }
    }

    fn send(&mut self) {
        self.sent += 1;
    }

    fn begin(&mut self, fence: u8, basis: u8, early: bool) {
        (self.phase, self.fence, self.basis, self.early) = (Phase::Holding, fence, basis, early);
        self.renewals_from = self.sent;
    }
}

impl Model {
    pub(crate) fn client_step(&self, state: &mut State, action: Action) {
        let (Action::Enqueue(who)
        | Action::Poll(who)
        | Action::Renew(who)
        | Action::HearQueued(who, ..)
        | Action::HearOk(who, ..)
        | Action::HearGrant(who, _)
        | Action::ClaimPasses(who)
        | Action::TtlPasses(who)
        | Action::Leave(who)) = action
        else {
            unreachable!("{action:?} is not a client's step")
        };
        let client = &mut state.clients[usize::from(who)];
        let (waiting, holding) = (client.phase == Phase::Waiting, client.phase == Phase::Holding);
        match action {
            Action::HearQueued(_, request, counter) => {
                client.answered = request;
                client.counter = client.counter.max(counter);
            }
            Action::HearOk(_, request, fence) => {
                state.disordered |= holding && client.fence != fence;
                hear_ok(client, request, fence);
            }
            Action::HearGrant(_, fence) => self.hear_grant(client, fence),
            Action::ClaimPasses(_) => client.claim_late += 1,
            Action::TtlPasses(_) => {
                client.late += 1;
                if !self.scope.claim_may_outlast_ttl {
                    client.claim_late = client.claim_late.max(client.late);
                }
            }
            Action::Leave(_) => client.phase = Phase::Done,
            _ => {
                client.send();
                if action == Action::Enqueue(who) {
                    client.phase = Phase::Waiting;
                }
            }
        }
        if waiting && client.phase == Phase::Holding {
            state.disordered |= client.fence <= state.begun;
            state.begun = state.begun.max(client.fence);
        }
    }

    /// A grant message: begin at once, as if a lease of the claim TTL had been asked for by the last answered request.
    /// That request ran before the hand-off, so it was sent before it, and the server's claim TTL ends later.
    fn hear_grant(&self, client: &mut Client, fence: u8) {
        if self.has(Flaw::CountsFromReceipt) {
            // The moment of receipt, as one more mark among the send times.
            client.runs[usize::from(client.sent)] = self.scope.runs;
            client.send();
        }
        let basis = self.early_basis(client);
        client.begin(fence, basis, !self.has(Flaw::MessageIsOwnership));
    }

    /// Whether an early start would have any validity left.
    pub(crate) fn heeds_grant(&self, client: &Client) -> bool {
        match self.flaw {
            _ if client.phase != Phase::Waiting => false,
            Some(Flaw::CountsFromReceipt) => true,
            Some(Flaw::MessageIsOwnership) => client.late <= client.answered,
            _ => client.claim_late <= self.early_basis(client),
        }
    }

    fn early_basis(&self, client: &Client) -> u8 {
        let last_sent = self.has(Flaw::CountsFromReceipt) || self.has(Flaw::CountsFromLastSent);
        if last_sent { client.sent - 1 } else { client.answered }
    }

    /// Notices a lapse, and forgets what cannot matter any more.
    pub(crate) fn tidy(&self, state: &mut State, who: u8) {
        let owns = state.lock.owner == Owner::Own(who);
        let client = &mut state.clients[usize::from(who)];
        if client.phase == Phase::Holding && !client.is_valid() {
            client.phase = if self.has(Flaw::RevivesLapsed) { Phase::Lapsed } else { Phase::Done };
        }
        if client.phase == Phase::Done && !self.scope.untidied {
            *client = client.remains(self.has(Flaw::RenewRecreates));
            // It hears nothing more, so its time may be taken to have passed as soon as the key's TTL needs it to.
            if owns {
                (state.lock.claim_after, state.lock.ttl_after) = (0, 0);
            }
            return;
        }
        if client.phase == Phase::Holding && !client.early && !self.scope.claim_may_outlast_ttl && !self.scope.untidied
        {
            client.claim_late = client.late;
        }
        let (phase, late, answered) = (client.phase, client.late, client.answered);
        let (basis, early) = (client.basis, client.early);
        let heeds_ok = |request: u8| match phase {
            _ if request < late => false,
            Phase::Waiting | Phase::Lapsed => true,
            Phase::Holding => early || request > basis,
            Phase::Idle | Phase::Done => false,
        };
        for (request, (ok, queued)) in (0..).zip(client.ok.iter_mut().zip(&mut client.queued)) {
            *ok = if heeds_ok(request) { *ok } else { 0 };
            *queued = if phase == Phase::Waiting && request > answered { *queued } else { 0 };
        }
        if phase != Phase::Waiting {
            (client.granted, client.answered, client.counter) = (0, 0, 0);
        } else if !self.has(Flaw::HeedsStaleMessages) && !self.has(Flaw::QueuesStrangers) {
            client.granted &= u8::MAX << 1 << client.counter;
        }
    }
}

/// An OK: the lease counts from when that request was sent.
fn hear_ok(client: &mut Client, request: u8, fence: u8) {
    if client.phase == Phase::Waiting {
        client.begin(fence, request, false);
    } else {
        (client.phase, client.basis, client.early) = (Phase::Holding, request, false);
    }
}
