//! Holding on N nodes: which attempt may rely on its hold, and until when. There are no fences here.
//!
//! Time has no numbers. Of each attempt's claims, and of its one renewal, a flag says whether the TTL less the drift has
//! passed since they were sent; it is set at any moment. The client believes only before that, a node may let a lock expire
//! only after it: that is what "clocks run at the same rate within the drift" means, and no more than that is assumed.
//!
//! A majority of grants is a `Round`'s verdict, a majority of renewals a `Tally`'s, and validity is a `Lease`'s: the code
//! that runs in production.

mod client;
mod node;
mod words;

use crate::search::{Model, sorting};
use std::hash::{Hash, Hasher};

pub(crate) const ATTEMPTS: usize = 3;
pub(crate) const NODES: usize = 3;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) attempts: u8,
    /// How often a claim may run on a node: 2 is a duplicate.
    pub(crate) runs: u8,
    /// Each holder may renew once.
    pub(crate) renews: bool,
    /// A renewal locks a node that is free, which ours never do.
    pub(crate) heals: bool,
    /// How many times a node may forget. It grants again when all it had granted is past.
    pub(crate) crashes: u8,
    /// A node that forgets may come back with any lock it once had, and serves renewals and releases at once.
    pub(crate) restores: bool,
}

/// One rule that is broken on purpose. The search must detect it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A majority is enough, however long it took, and for ever.
    IgnoresValidity,
    /// A node's clock jumps: a lock expires before its time.
    ClockJumps,
    /// A node that forgot grants at once.
    NoQuarantine,
    /// The second attempt uses the first one's holder id again.
    SameHolderAgain,
    /// A release deletes without comparing.
    PlainDelete,
    /// A renewal that is answered after the lease has lapsed brings it back.
    RevivesLapsed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Asking,
    Holding,
    /// It gave up or released. Its releases may run from now on.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) stage: Stage,
    /// The claims are past their TTL; the renewal is.
    pub(crate) late: [bool; 2],
    pub(crate) renewing: bool,
    /// Its lease counts from the renewal.
    pub(crate) renewed: bool,
    /// Another attempt has held since it began to hold.
    pub(crate) overtaken: bool,
}

/// Between one node and one attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Link {
    pub(crate) runs: u8,
    /// The node has been this attempt's.
    pub(crate) granted: bool,
    /// An answer "granted" is under way or in hand.
    pub(crate) ok: bool,
    /// An answer "renewed" is.
    pub(crate) renewed: bool,
    /// When the node forgot, this lease was out: 1 by a claim, 2 by the renewal.
    pub(crate) owed: u8,
}

impl Hash for Link {
    /// One word instead of five: hashing is most of a search.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes = [self.runs, self.granted.into(), self.ok.into(), self.renewed.into(), self.owed, 0, 0, 0];
        state.write_u64(u64::from_le_bytes(bytes));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Node {
    /// 0 is free, else one more than the attempt's number.
    pub(crate) lock: u8,
    /// The lock's TTL counts from the renewal.
    pub(crate) renewed: bool,
    /// In quarantine.
    pub(crate) out: bool,
    pub(crate) links: [Link; ATTEMPTS],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct State {
    pub(crate) attempts: [Attempt; ATTEMPTS],
    pub(crate) nodes: [Node; NODES],
    pub(crate) crashes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Begin(u8),
    Run(u8, u8),
    Hold(u8),
    /// The attempt gives up, or its holder is done.
    Leave(u8),
    RunRelease(u8, u8),
    ClaimPasses(u8),
    RenewalPasses(u8),
    Expire(u8),
    /// A node forgets. Afterwards its lock is free (0) or has an owner (an attempt's number plus one), renewed or not.
    Forget(u8, u8, bool),
    Readmit(u8),
    Renew(u8),
    RunRenewal(u8, u8),
    Renewed(u8),
}

/// The landmarks that a search must reach; otherwise its result proves nothing.
pub(crate) mod landmark {
    /// An attempt holds while another, whose lease lapsed, has not noticed yet.
    pub(crate) const HELD_AFTER_LAPSE: u32 = 1;
    pub(crate) const RENEWED: u32 = 1 << 1;
    /// A renewal got its majority after the lease had lapsed.
    pub(crate) const RENEWED_TOO_LATE: u32 = 1 << 2;
    /// A node that had forgotten granted.
    pub(crate) const GRANTED_AFTER_LOSS: u32 = 1 << 3;
    /// A node in quarantine renewed a lock that it came back with.
    pub(crate) const RENEWED_IN_QUARANTINE: u32 = 1 << 4;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    pub(crate) scope: Scope,
    pub(crate) flaw: Option<Flaw>,
}

impl Holds {
    pub(crate) fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The name an attempt goes by on the nodes.
    fn holder(self, who: u8) -> u8 {
        if self.has(Flaw::SameHolderAgain) && who == 1 { 0 } else { who }
    }

    fn owns(self, node: &Node, who: u8) -> bool {
        node.lock != 0 && self.holder(node.lock - 1) == self.holder(who)
    }

    pub(crate) fn is_valid(self, attempt: Attempt) -> bool {
        let lapsed = attempt.late[usize::from(attempt.renewed)];
        attempt.stage == Stage::Holding && (self.has(Flaw::IgnoresValidity) || !lapsed)
    }

    /// Two attempts rely on a hold at the same time.
    pub(crate) fn shared(self, state: &State) -> bool {
        state.attempts.iter().filter(|attempt| self.is_valid(**attempt)).count() > 1
    }

    /// An attempt relies on its hold although another has held meanwhile.
    pub(crate) fn interrupted(self, state: &State) -> bool {
        state.attempts.iter().any(|attempt| self.is_valid(*attempt) && attempt.overtaken)
    }
}

/// Discards the abandoned answers to the claims.
fn close(state: &mut State, who: u8) {
    state.nodes.iter_mut().for_each(|node| node.links[usize::from(who)].ok = false);
}

fn renamed(state: &State, order: &[usize; 3]) -> State {
    let mut new = *state;
    for (from, &to) in order.iter().enumerate() {
        new.attempts[to] = state.attempts[from];
        for (new, old) in new.nodes.iter_mut().zip(&state.nodes) {
            new.links[to] = old.links[from];
            if usize::from(old.lock) == from + 1 {
                new.lock = u8::try_from(to + 1).expect("a few attempts");
            }
        }
    }
    new.nodes.sort_unstable();
    new
}

impl Model for Holds {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State { attempts: [Attempt::default(); ATTEMPTS], nodes: [Node::default(); NODES], crashes: self.scope.crashes }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        (0..self.scope.attempts).for_each(|who| self.client_actions(state, who, into));
        self.node_actions(state, into);
    }

    fn next(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Begin(who) => next.attempts[usize::from(who)].stage = Stage::Asking,
            Action::Run(who, node) => node::run(&mut next, who, node),
            Action::Hold(who) => {
                let others = next.attempts.iter_mut().filter(|other| other.stage == Stage::Holding);
                others.for_each(|other| other.overtaken = true);
                next.attempts[usize::from(who)].stage = Stage::Holding;
                close(&mut next, who);
            }
            Action::Leave(who) => {
                let attempt = &mut next.attempts[usize::from(who)];
                (attempt.stage, attempt.overtaken) = (Stage::Over, false);
                close(&mut next, who);
            }
            Action::RunRelease(_, node) | Action::Expire(node) => {
                let node = &mut next.nodes[usize::from(node)];
                (node.lock, node.renewed) = (0, false);
            }
            Action::ClaimPasses(who) => next.attempts[usize::from(who)].late[0] = true,
            // The renewal was sent later than the claims.
            Action::RenewalPasses(who) => next.attempts[usize::from(who)].late = [true; 2],
            Action::Forget(node, lock, renewed) => next.forget(node, lock, renewed),
            Action::Readmit(node) => next.readmit(node),
            Action::Renew(who) => next.attempts[usize::from(who)].renewing = true,
            Action::RunRenewal(who, node) => node::run_renewal(&mut next, who, node),
            Action::Renewed(who) => next.attempts[usize::from(who)].renewed = true,
        }
        next
    }

    fn reduced(&self, state: State) -> State {
        // Where two attempts share a holder, they are not alike.
        let alike = if self.has(Flaw::SameHolderAgain) { 1 } else { usize::from(self.scope.attempts) };
        let orders = sorting(state.attempts, alike);
        orders.map(|order| renamed(&state, order)).min().expect("some order sorts them")
    }

    fn landmarks(&self, before: &State, action: Action, after: &State) -> u32 {
        let holding = |attempt: &&Attempt| attempt.stage == Stage::Holding;
        match action {
            Action::Hold(_) if after.attempts.iter().filter(holding).count() > 1 => landmark::HELD_AFTER_LAPSE,
            Action::Renewed(_) => landmark::RENEWED,
            Action::ClaimPasses(who) | Action::RenewalPasses(who) => {
                let attempt = &before.attempts[usize::from(who)];
                let too_late = attempt.stage == Stage::Holding && !attempt.renewed && client::renewal_won(before, who);
                if too_late { landmark::RENEWED_TOO_LATE } else { 0 }
            }
            Action::RunRenewal(_, node) if before.nodes[usize::from(node)].out => landmark::RENEWED_IN_QUARANTINE,
            Action::Run(_, node) => {
                let links = &before.nodes[usize::from(node)].links;
                let back = before.crashes < self.scope.crashes && links.iter().any(|link| link.granted);
                if back && before.nodes[usize::from(node)].lock == 0 { landmark::GRANTED_AFTER_LOSS } else { 0 }
            }
            _ => 0,
        }
    }

    fn describe(&self, before: &State, action: Action, after: &State) -> String {
        words::describe(before, action, after)
    }
}
