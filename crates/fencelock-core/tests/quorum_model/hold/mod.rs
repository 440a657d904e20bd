//! Holding on N nodes: who may believe that it holds, and until when. Fences play no part here.
//!
//! Time has no numbers. Of each attempt's claims, and of its one renewal, a flag says whether the TTL less the drift has
//! passed since they were sent; it is set at any moment. The client believes only before that, a node may let a lock expire
//! only after it: that is what "clocks run at the same rate within the drift" means, and no more than that is assumed.
//!
//! A majority of grants is a [`Round`]'s verdict, a majority of renewals a [`Tally`]'s, and validity is a [`Lease`]'s.

mod words;

use crate::search::{Model, orders};
use fencelock_core::{Drift, FencingToken, Lease, Moment, Outcome, Quorum, Round, Standing, Tally, Verdict, Vote};
use std::time::Duration;

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
    /// How many times a node may go down and forget. It comes back when all it had granted is past.
    pub(crate) crashes: u8,
}

/// One rule broken on purpose: the search must notice.
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
    /// It gave up or released: its releases may run from now on.
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
    /// Somebody else has held since it began to hold.
    pub(crate) overtaken: bool,
}

/// Between one node and one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Link {
    pub(crate) runs: u8,
    /// The node has been this attempt's.
    pub(crate) granted: bool,
    /// An answer "granted" is under way or in hand.
    pub(crate) ok: bool,
    /// An answer "renewed" is.
    pub(crate) renewed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Node {
    /// 0 is free, else one more than the attempt's number.
    pub(crate) lock: u8,
    /// The lock's TTL counts from the renewal.
    pub(crate) renewed: bool,
    pub(crate) down: bool,
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
    Crash(u8),
    Restart(u8),
    Renew(u8),
    RunRenewal(u8, u8),
    Renewed(u8),
}

/// What a search must have come across before its silence means anything.
pub(crate) mod landmark {
    /// Somebody holds while another, whose lease lapsed, still has not noticed.
    pub(crate) const HELD_AFTER_LAPSE: u32 = 1;
    pub(crate) const RENEWED: u32 = 1 << 1;
    /// A renewal got its majority after the lease had lapsed.
    pub(crate) const RENEWED_TOO_LATE: u32 = 1 << 2;
    /// A node that came back granted.
    pub(crate) const GRANTED_AFTER_RESTART: u32 = 1 << 3;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    pub(crate) scope: Scope,
    pub(crate) flaw: Option<Flaw>,
}

const TTL: Duration = Duration::from_secs(10);
const DRIFT: Drift = Drift { ppm: 10_000, fixed: Duration::from_millis(2) };
const SENT: Moment = Moment::from_micros(0);

/// A moment at which a lease sent at [`SENT`] has lapsed or not: all that a flag says.
fn moment(late: bool) -> Moment {
    if late { Lease::granted(SENT, TTL, DRIFT).until() } else { SENT }
}

impl Holds {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn quorum() -> Quorum {
        Quorum::new(NODES).expect("a few nodes")
    }

    /// The name an attempt goes by on the nodes.
    fn holder(&self, who: u8) -> u8 {
        if self.has(Flaw::SameHolderAgain) && who == 1 { 0 } else { who }
    }

    fn owns(&self, node: &Node, who: u8) -> bool {
        node.lock != 0 && self.holder(node.lock - 1) == self.holder(who)
    }

    pub(crate) fn is_valid(&self, attempt: &Attempt) -> bool {
        let lapsed = attempt.late[usize::from(attempt.renewed)];
        attempt.stage == Stage::Holding && (self.has(Flaw::IgnoresValidity) || !lapsed)
    }

    /// Two believe to hold at once.
    pub(crate) fn shared(&self, state: &State) -> bool {
        state.attempts.iter().filter(|attempt| self.is_valid(attempt)).count() > 1
    }

    /// Somebody believes to hold although another has held meanwhile.
    pub(crate) fn interrupted(&self, state: &State) -> bool {
        state.attempts.iter().any(|attempt| self.is_valid(attempt) && attempt.overtaken)
    }

    /// Whether the grants in hand make a hold.
    fn won(&self, state: &State, who: u8) -> bool {
        let mut round = Round::new(Self::quorum(), SENT);
        let fence = FencingToken::new(1).expect("one is a token");
        let mut verdict = Verdict::Pending;
        for (node, _) in state.nodes.iter().enumerate().filter(|(_, node)| node.links[usize::from(who)].ok) {
            verdict = round.vote(node, Vote::Granted(fence));
        }
        let lapsed = round.lease(TTL, DRIFT, moment(state.attempts[usize::from(who)].late[0])).is_none();
        matches!(verdict, Verdict::Won(_)) && (!lapsed || self.has(Flaw::IgnoresValidity))
    }

    /// Whether a majority has renewed.
    fn renewal_won(state: &State, who: u8) -> bool {
        let mut tally = Tally::new(Self::quorum());
        let renewed = state.nodes.iter().enumerate().filter(|(_, node)| node.links[usize::from(who)].renewed);
        renewed.fold(Outcome::Pending, |_, (node, _)| tally.vote(node, Standing::Ours)) == Outcome::Ours
    }

    /// Whether the lease can take it.
    fn renewal_counts(&self, attempt: &Attempt) -> bool {
        let lease = Lease::granted(SENT, TTL, DRIFT);
        let in_time = lease.renewed(SENT, TTL, DRIFT, moment(attempt.late[0])).is_some();
        in_time || self.has(Flaw::RevivesLapsed) && !attempt.late[1]
    }

    fn client_actions(&self, state: &State, who: u8, into: &mut Vec<Action>) {
        let attempt = &state.attempts[usize::from(who)];
        match attempt.stage {
            Stage::Idle if self.holder(who) == who || state.attempts[0].stage == Stage::Over => {
                into.push(Action::Begin(who));
            }
            Stage::Idle | Stage::Over => {}
            Stage::Asking => {
                if self.won(state, who) {
                    into.push(Action::Hold(who));
                }
                into.push(Action::Leave(who));
            }
            Stage::Holding => {
                into.push(Action::Leave(who));
                if self.scope.renews && !attempt.renewing {
                    into.push(Action::Renew(who));
                }
                if !attempt.renewed && Self::renewal_won(state, who) && self.renewal_counts(attempt) {
                    into.push(Action::Renewed(who));
                }
            }
        }
        if attempt.stage != Stage::Idle && !attempt.late[0] {
            into.push(Action::ClaimPasses(who));
        }
        if attempt.renewing && !attempt.late[1] {
            into.push(Action::RenewalPasses(who));
        }
        for (number, node) in (0..).zip(&state.nodes).filter(|(_, node)| !node.down) {
            let link = &node.links[usize::from(who)];
            let heard = attempt.stage == Stage::Asking && self.owns(node, who) && !link.ok;
            if attempt.stage != Stage::Idle && link.runs < self.scope.runs && (node.lock == 0 || heard) {
                into.push(Action::Run(who, number));
            }
            if attempt.stage == Stage::Over && node.lock != 0 && (self.owns(node, who) || self.has(Flaw::PlainDelete)) {
                into.push(Action::RunRelease(who, number));
            }
            let renewable = node.lock == who + 1 || self.scope.heals && node.lock == 0;
            if attempt.renewing && !link.renewed && renewable {
                into.push(Action::RunRenewal(who, number));
            }
        }
    }

    fn node_actions(&self, state: &State, into: &mut Vec<Action>) {
        for (number, node) in (0..).zip(&state.nodes) {
            if node.lock != 0 {
                let owner = &state.attempts[usize::from(node.lock - 1)];
                if self.has(Flaw::ClockJumps) || owner.late[usize::from(node.renewed)] {
                    into.push(Action::Expire(number));
                }
                if state.crashes > 0 {
                    into.push(Action::Crash(number));
                }
            }
            let past = |(attempt, link): (&Attempt, &Link)| {
                !link.granted || attempt.late[0] && (!link.renewed || attempt.late[1])
            };
            let all_past = state.attempts.iter().zip(&node.links).all(past);
            if node.down && (all_past || self.has(Flaw::NoQuarantine)) {
                into.push(Action::Restart(number));
            }
        }
    }

    fn run(&self, state: &mut State, who: u8, number: u8) {
        let asking = state.attempts[usize::from(who)].stage == Stage::Asking;
        let node = &mut state.nodes[usize::from(number)];
        if node.lock == 0 {
            (node.lock, node.renewed) = (who + 1, false);
            node.links[usize::from(who)].granted = true;
        }
        let link = &mut node.links[usize::from(who)];
        link.runs += 1;
        link.ok |= asking;
    }

    fn run_renewal(state: &mut State, who: u8, number: u8) {
        let node = &mut state.nodes[usize::from(number)];
        (node.lock, node.renewed) = (who + 1, true);
        let link = &mut node.links[usize::from(who)];
        (link.granted, link.renewed) = (true, true);
    }
}

/// Forgets the answers to the claims, which nobody waits for any more.
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
        let free = Node { lock: 0, renewed: false, ..Node::default() };
        match action {
            Action::Begin(who) => next.attempts[usize::from(who)].stage = Stage::Asking,
            Action::Run(who, node) => self.run(&mut next, who, node),
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
                *node = Node { links: node.links, ..free };
            }
            Action::ClaimPasses(who) => next.attempts[usize::from(who)].late[0] = true,
            // The renewal was sent later than the claims.
            Action::RenewalPasses(who) => next.attempts[usize::from(who)].late = [true; 2],
            Action::Crash(node) => {
                let node = &mut next.nodes[usize::from(node)];
                *node = Node { links: node.links, down: true, ..free };
                next.crashes -= 1;
            }
            Action::Restart(node) => next.nodes[usize::from(node)].down = false,
            Action::Renew(who) => next.attempts[usize::from(who)].renewing = true,
            Action::RunRenewal(who, node) => Self::run_renewal(&mut next, who, node),
            Action::Renewed(who) => next.attempts[usize::from(who)].renewed = true,
        }
        next
    }

    fn reduced(&self, state: State) -> State {
        // Where two attempts share a holder, they are not alike.
        let alike = if self.has(Flaw::SameHolderAgain) { 1 } else { usize::from(self.scope.attempts) };
        orders(alike).iter().map(|order| renamed(&state, order)).min().expect("there is an order")
    }

    fn landmarks(&self, before: &State, action: Action, after: &State) -> u32 {
        let holding = |attempt: &&Attempt| attempt.stage == Stage::Holding;
        match action {
            Action::Hold(_) if after.attempts.iter().filter(holding).count() > 1 => landmark::HELD_AFTER_LAPSE,
            Action::Renewed(_) => landmark::RENEWED,
            Action::ClaimPasses(who) | Action::RenewalPasses(who) => {
                let attempt = &before.attempts[usize::from(who)];
                let too_late = attempt.stage == Stage::Holding && !attempt.renewed && Self::renewal_won(before, who);
                if too_late { landmark::RENEWED_TOO_LATE } else { 0 }
            }
            Action::Run(_, node) => {
                let links = &before.nodes[usize::from(node)].links;
                let back = before.crashes < self.scope.crashes && links.iter().any(|link| link.granted);
                if back && before.nodes[usize::from(node)].lock == 0 { landmark::GRANTED_AFTER_RESTART } else { 0 }
            }
            _ => 0,
        }
    }

    fn describe(&self, before: &State, action: Action, after: &State) -> String {
        words::describe(before, action, after)
    }
}
