//! Holding on N nodes: which attempt may rely on its hold, and until when. There are no fences here.
//!
//! Time has no numbers. Of each attempt's claims, and of its one renewal, a flag says whether the TTL less the drift has
//! passed since they were sent; it is set at any moment. The client believes only before that, a node may let a lock expire
//! only after it: that is what "clocks run at the same rate within the drift" means, and no more than that is assumed.
//!
//! Some attempts read, the others write, and a writer may become a reader. A node holds any number of readers or one writer.
//!
//! A majority of grants is a `Round`'s verdict, a majority of renewals a `Tally`'s, and validity is a `Lease`'s: the code
//! that runs in production.

mod client;
mod node;
mod words;

use crate::search::{Model, least};
use std::hash::{Hash, Hasher};

pub(crate) const ATTEMPTS: usize = 3;
pub(crate) const NODES: usize = 3;

/// How much may happen.
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each read by name")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) attempts: u8,
    /// How many of them read. The others write.
    pub(crate) readers: u8,
    /// A writer that holds may downgrade.
    pub(crate) downgrades: bool,
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
    /// A majority is enough, however long it took, and forever.
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
    /// A writer that has sent a downgrade writes until it is answered.
    WritesUntilAnswered,
    /// A node admits readers while a writer holds the lock.
    ReadersBesideWriter,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Claiming,
    Holding,
    /// It gave up or released. Its releases may run from now on.
    Over,
}

#[allow(clippy::struct_excessive_bools, reason = "independent facts, each read by name")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Attempt {
    /// Its claims are shared.
    pub(crate) claims_to_read: bool,
    /// It only reads: from the beginning, or since it has sent a downgrade.
    pub(crate) reads: bool,
    pub(crate) downgrading: bool,
    pub(crate) stage: Stage,
    /// The claims are past their TTL; the renewal is.
    pub(crate) late: [bool; 2],
    pub(crate) renewing: bool,
    /// Its lease counts from the renewal.
    pub(crate) renewed: bool,
    /// Another attempt that excludes it has held since it began to hold.
    pub(crate) overtaken: bool,
}

/// Between one node and one attempt.
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each read by name")]
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
    /// Its hold on the node: 1 if the TTL counts from the claim, 2 if from the renewal; 0 is none.
    pub(crate) held: u8,
    /// That hold is exclusive.
    pub(crate) alone: bool,
}

impl Hash for Link {
    /// One word instead of seven: hashing is most of a search.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [granted, ok, renewed, alone] = [self.granted, self.ok, self.renewed, self.alone].map(u8::from);
        state.write_u64(u64::from_le_bytes([self.runs, granted, ok, renewed, self.owed, self.held, alone, 0]));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Node {
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
    /// The hold of an attempt on a node expires.
    Expire(u8, u8),
    /// A node forgets. Afterwards it is free, or has the hold of an attempt, which its claim or its renewal left.
    Forget(u8, Option<(u8, u8)>),
    /// A writer becomes a reader, and requests that the nodes let others in.
    Downgrade(u8),
    RunDowngrade(u8, u8),
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
    /// Two readers rely on their holds.
    pub(crate) const TOGETHER: u32 = 1 << 5;
    /// A reader and a writer that has downgraded rely on their holds.
    pub(crate) const BESIDE_DOWNGRADED: u32 = 1 << 6;
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
        node.holders().any(|holder| self.holder(holder) == self.holder(who))
    }

    /// Whether a claim of this attempt gets the node, together with its present holders.
    fn has_room(self, state: &State, who: u8, node: &Node) -> bool {
        let reads = state.attempts[usize::from(who)].claims_to_read;
        let joins = |other: u8| !node.links[usize::from(other)].alone || self.has(Flaw::ReadersBesideWriter);
        !self.owns(node, who) && node.holders().all(|other| reads && joins(other))
    }

    pub(crate) fn is_valid(self, attempt: Attempt) -> bool {
        let lapsed = attempt.late[usize::from(attempt.renewed)];
        attempt.stage == Stage::Holding && (self.has(Flaw::IgnoresValidity) || !lapsed)
    }

    /// Two attempts that exclude each other rely on a hold at the same time.
    pub(crate) fn shared(self, state: &State) -> bool {
        let valid = || state.attempts.iter().filter(|attempt| self.is_valid(**attempt));
        valid().count() > 1 && valid().any(|attempt| !attempt.reads)
    }

    /// An attempt relies on its hold although another has held meanwhile.
    pub(crate) fn interrupted(self, state: &State) -> bool {
        state.attempts.iter().any(|attempt| self.is_valid(*attempt) && attempt.overtaken)
    }
}

impl Node {
    /// The attempts that hold on it.
    fn holders(&self) -> impl Iterator<Item = u8> {
        (0..).zip(&self.links).filter(|(_, link)| link.held > 0).map(|(who, _)| who)
    }
}

/// Discards the abandoned answers to the claims.
fn close(state: &mut State, who: u8) {
    state.nodes.iter_mut().for_each(|node| node.links[usize::from(who)].ok = false);
}

impl Model for Holds {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let attempt = |who: usize| {
            let reads = who < usize::from(self.scope.readers);
            Attempt { claims_to_read: reads, reads, ..Attempt::default() }
        };
        let attempts = std::array::from_fn(attempt);
        State { attempts, nodes: [Node::default(); NODES], crashes: self.scope.crashes }
    }

    fn actions(&self, state: &State, into: &mut Vec<Action>) {
        (0..self.scope.attempts).for_each(|who| self.client_actions(state, who, into));
        self.node_actions(state, into);
    }

    fn next(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Begin(who) => next.attempts[usize::from(who)].stage = Stage::Claiming,
            Action::Run(who, node) => self.run(&mut next, who, node),
            Action::Hold(who) => {
                let reads = next.attempts[usize::from(who)].reads;
                let excluded = |other: &&mut Attempt| other.stage == Stage::Holding && !(reads && other.reads);
                let others = next.attempts.iter_mut().filter(excluded);
                others.for_each(|other| other.overtaken = true);
                next.attempts[usize::from(who)].stage = Stage::Holding;
                close(&mut next, who);
            }
            Action::Leave(who) => {
                let attempt = &mut next.attempts[usize::from(who)];
                (attempt.stage, attempt.overtaken) = (Stage::Over, false);
                close(&mut next, who);
            }
            Action::RunRelease(who, number) => {
                for other in 0..self.scope.attempts {
                    if self.holder(other) == self.holder(who) || self.has(Flaw::PlainDelete) {
                        next.end(other, number);
                    }
                }
            }
            Action::Expire(who, number) => next.end(who, number),
            Action::ClaimPasses(who) => next.attempts[usize::from(who)].late[0] = true,
            // The renewal was sent later than the claims.
            Action::RenewalPasses(who) => next.attempts[usize::from(who)].late = [true; 2],
            Action::Forget(node, restored) => next.forget(node, restored),
            Action::Readmit(node) => next.readmit(node),
            Action::Renew(who) => next.attempts[usize::from(who)].renewing = true,
            Action::RunRenewal(who, node) => node::run_renewal(&mut next, who, node),
            Action::Downgrade(who) => {
                let attempt = &mut next.attempts[usize::from(who)];
                (attempt.downgrading, attempt.reads) = (true, !self.has(Flaw::WritesUntilAnswered));
            }
            Action::RunDowngrade(who, node) => next.nodes[usize::from(node)].links[usize::from(who)].alone = false,
            Action::Renewed(who) => next.attempts[usize::from(who)].renewed = true,
        }
        next
    }

    fn reduced(&self, state: State) -> State {
        // Where two attempts share a holder, they are not alike.
        let alike = if self.has(Flaw::SameHolderAgain) { 1 } else { usize::from(self.scope.attempts) };
        let (attempts, nodes) = least(state.attempts, state.nodes, alike, |node| &mut node.links);
        State { attempts, nodes, ..state }
    }

    fn landmarks(&self, before: &State, action: Action, after: &State) -> u32 {
        let holding = |attempt: &&Attempt| attempt.stage == Stage::Holding;
        match action {
            Action::Hold(_) if after.attempts.iter().filter(|attempt| self.is_valid(**attempt)).count() > 1 => {
                let downgraded = after.attempts.iter().any(|attempt| self.is_valid(*attempt) && attempt.downgrading);
                landmark::TOGETHER | if downgraded { landmark::BESIDE_DOWNGRADED } else { 0 }
            }
            Action::Hold(_) if after.attempts.iter().filter(holding).count() > 1 => landmark::HELD_AFTER_LAPSE,
            Action::Renewed(_) => landmark::RENEWED,
            Action::ClaimPasses(who) | Action::RenewalPasses(who) => {
                let attempt = &before.attempts[usize::from(who)];
                let too_late = attempt.stage == Stage::Holding && !attempt.renewed && client::renewal_won(before, who);
                if too_late { landmark::RENEWED_TOO_LATE } else { 0 }
            }
            Action::RunRenewal(_, node) if before.nodes[usize::from(node)].out => landmark::RENEWED_IN_QUARANTINE,
            Action::Run(_, number) => {
                let node = &before.nodes[usize::from(number)];
                let back = before.crashes < self.scope.crashes && node.links.iter().any(|link| link.granted);
                if back && node.holders().next().is_none() { landmark::GRANTED_AFTER_LOSS } else { 0 }
            }
            _ => 0,
        }
    }

    fn describe(&self, before: &State, action: Action, after: &State) -> String {
        words::describe(before, action, after)
    }
}
