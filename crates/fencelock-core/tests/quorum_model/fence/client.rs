//! The client: one attempt, from its claims to its token.

use super::{Action, Attempt, Fences, Flaw, Granted, Link, Stage, State, breach};
use fencelock_core::{FencingToken, Moment, NodeSet, Raise, Round, TokenBlock, Verdict, Vote};
use std::num::NonZeroU32;

impl<const N: usize> Fences<N> {
    pub(crate) fn client_actions(&self, state: &State<N>, who: u8, into: &mut Vec<Action<N>>) {
        let attempt = &state.attempts[usize::from(who)];
        let open = matches!(attempt.stage, Stage::Claiming | Stage::Raising);
        if self.scope.leases && attempt.stage != Stage::Idle && !attempt.late {
            into.push(Action::TtlPasses(who));
        }
        if self.scope.leases && open {
            into.push(Action::GiveUp(who));
        }
        match attempt.stage {
            Stage::Idle => self.begin_actions(state, who, into),
            // What comes after the TTL is of no use: see `Round::lease`.
            _ if attempt.late => {}
            Stage::Claiming => self.decide_actions(state, who, into),
            Stage::Raising => {
                for node in (0..).zip(&state.nodes).filter_map(|(node, at)| {
                    let link = at.links[usize::from(who)];
                    (link.raising && !link.acked && link.grants[0].is_some()).then_some(node)
                }) {
                    into.push(Action::ReceiveLate(who, node));
                }
                if matches!(self.raising(state, who), Verdict::Won(_)) {
                    into.push(Action::Finish(who));
                }
            }
            Stage::Won | Stage::GivenUp => {}
        }
    }

    fn begin_actions(&self, state: &State<N>, who: u8, into: &mut Vec<Action<N>>) {
        match self.scope.time {
            Some(time) if self.has(Flaw::ClientClock) => {
                into.extend(time.around(state.time).map(|proposal| Action::Begin(who, proposal)));
            }
            Some(_) => into.push(Action::Begin(who, 0)),
            None => into.extend(self.scope.proposals.iter().map(|&proposal| Action::Begin(who, proposal))),
        }
    }

    /// One action for every choice of answers that may be in hand by now and make a majority.
    fn decide_actions(&self, state: &State<N>, who: u8, into: &mut Vec<Action<N>>) {
        let enough = self.quorum().majority();
        let grants = state.nodes.map(|node| node.links[usize::from(who)].grants);
        let none = Granted::default();
        let mut choice = [none; N];
        // Counts through the choices: for each node none, its first or its second grant.
        for number in 0..3usize.pow(u32::try_from(N).expect("a few nodes")) {
            let mut rest = number;
            let mut possible = true;
            for (chosen, grants) in choice.iter_mut().zip(&grants) {
                *chosen = [none, grants[0], grants[1]][rest % 3];
                possible &= rest % 3 == 0 || chosen.is_some();
                rest /= 3;
            }
            let count = choice.iter().filter(|granted| granted.is_some()).count();
            if possible && count >= enough && (count == 1 || !self.has(Flaw::TwoMasters)) {
                into.push(Action::Decide(who, choice));
            }
        }
    }

    pub(crate) fn client_step(&self, state: &mut State<N>, action: Action<N>) {
        match action {
            Action::Begin(who, proposal) => {
                let won = state.attempts.iter().filter(|attempt| attempt.stage == Stage::Won);
                let floor = won.map(|attempt| attempt.token).max().unwrap_or(0);
                let reads = state.attempts[usize::from(who)].reads;
                state.attempts[usize::from(who)] =
                    Attempt { reads, stage: Stage::Claiming, proposal, floor, ..Attempt::default() };
            }
            Action::Decide(who, choice) => self.decide(state, who, choice),
            Action::ReceiveLate(who, node) => {
                let link = &mut state.nodes[usize::from(node)].links[usize::from(who)];
                (link.acked, link.grants) = (true, [Granted::default(); 2]);
            }
            Action::Finish(who) => {
                let token = state.attempts[usize::from(who)].token;
                let more = if self.has(Flaw::BlockAfterRaise) { (self.scope.block - 1).min(token - 1) } else { 0 };
                win(state, who, token, more);
            }
            Action::TtlPasses(who) => state.attempts[usize::from(who)].late = true,
            Action::GiveUp(who) => {
                state.attempts[usize::from(who)].stage = Stage::GivenUp;
                close(state, who);
            }
            _ => unreachable!("{action:?} is not a client's step"),
        }
    }

    fn decide(&self, state: &mut State<N>, who: u8, choice: [Granted; N]) {
        match self.verdict(&choice) {
            Verdict::Won(tokens) => {
                let last = small(tokens.last());
                let greatest =
                    choice.iter().filter(|granted| granted.fence() == last).map(|granted| granted.more()).max();
                let more = if self.has(Flaw::GreatestBlock) { greatest } else { None };
                win(state, who, last, more.unwrap_or(last - small(tokens.first())));
            }
            Verdict::Raise { to, nodes } => {
                let others: NodeSet = (0..N).filter(|&node| choice[node].fence() != small(to)).collect();
                assert_eq!(nodes, others, "a raise goes to all that did not grant exactly this");
                let attempt = &mut state.attempts[usize::from(who)];
                (attempt.stage, attempt.token) = (Stage::Raising, small(to));
                for (number, (node, vote)) in state.nodes.iter_mut().zip(choice).enumerate() {
                    let link = &mut node.links[usize::from(who)];
                    let granted = vote.is_some() || !self.has(Flaw::AcksBelowItsFenceIfGranted);
                    (link.raising, link.acked) = (nodes.contains(number) && granted, vote.fence() == small(to));
                    // Of the answers still under way, only those with this very fence change anything.
                    let none = Granted::default();
                    let late = !vote.is_some() && link.grants.iter().any(|granted| granted.fence() == small(to));
                    link.grants = if late { [Granted::new(small(to), 0), none] } else { [none; 2] };
                }
            }
            Verdict::Pending | Verdict::Lost(_) => unreachable!("a majority has granted, and the grace is over"),
        }
    }

    /// What a client makes of these grants.
    fn verdict(&self, choice: &[Granted; N]) -> Verdict {
        let mut granted: Vec<u8> = choice.iter().map(|granted| granted.fence()).filter(|&fence| fence != 0).collect();
        granted.sort_unstable_by(|a, b| b.cmp(a));
        if self.has(Flaw::NoRaise) {
            return Verdict::Won(token(granted[0]).into());
        }
        if self.has(Flaw::CountsReached) {
            // However few of the others have granted, a majority of all has reached this one.
            let reached = granted[granted.len() + self.quorum().majority() - N - 1];
            if granted.iter().filter(|&&fence| fence >= reached).count() >= self.quorum().majority() {
                return Verdict::Won(token(reached).into());
            }
        }
        if self.has(Flaw::TwoMasters) {
            return Round::new(self.quorum(), Moment::default()).vote(0, Vote::Granted(token(granted[0]).into()));
        }
        let mut round = Round::new(self.quorum(), Moment::default());
        let mut verdict = Verdict::Pending;
        for (node, granted) in choice.iter().enumerate().filter(|(_, granted)| granted.is_some()) {
            let count = NonZeroU32::MIN.saturating_add(granted.more().into());
            verdict = round.vote(node, Vote::Granted(TokenBlock::ending(token(granted.fence()), count)));
        }
        if verdict == Verdict::Pending { round.grace_over() } else { verdict }
    }

    /// Plays the attempt's round once more up to now. How far the other votes were below the raise does not matter, nor
    /// whether there were any: each is given one of its own. A late vote for the raise counts as an ack, as in a round.
    fn raising(&self, state: &State<N>, who: u8) -> Verdict {
        let links = || (0..).zip(&state.nodes).map(|(node, at)| (node, at.links[usize::from(who)]));
        let mut round = Round::new(self.quorum(), Moment::default());
        for (node, link) in links().filter(|(_, link)| link.raising || link.acked) {
            let fence = if link.raising { node + 1 } else { u8::MAX };
            round.vote(node.into(), Vote::Granted(token(fence).into()));
        }
        let mut verdict = round.grace_over();
        for (node, _) in links().filter(|(_, link)| link.raising && link.acked) {
            verdict = round.raised(node.into(), Raise::Acked);
        }
        match verdict {
            Verdict::Won(_) => Verdict::Won(token(state.attempts[usize::from(who)].token).into()),
            other => other,
        }
    }
}

fn win<const N: usize>(state: &mut State<N>, who: u8, last: u8, more: u8) {
    let (first, floor) = (last - more, state.attempts[usize::from(who)].floor);
    let mut broken = if first <= floor { breach::ORDER } else { 0 };
    for (number, other) in state.attempts.iter().enumerate().filter(|(_, other)| other.stage == Stage::Won) {
        let same = other.token >= first && other.token - other.more <= last;
        if state.exclude(who.into(), number) {
            broken |= if same { breach::UNIQUE } else { 0 } | if other.token > first { breach::COMPLETION } else { 0 };
        } else {
            broken |= if same { breach::SAME_AS_A_READER } else { 0 };
        }
    }
    let attempt = &mut state.attempts[usize::from(who)];
    (attempt.stage, attempt.token, attempt.more) = (Stage::Won, last, more);
    (attempt.floor, attempt.broken) = (0, broken);
    close(state, who);
}

/// Discards the abandoned answers. Claims and raises may still run.
fn close<const N: usize>(state: &mut State<N>, who: u8) {
    for node in &mut state.nodes {
        let link = &mut node.links[usize::from(who)];
        *link = Link { runs: link.runs, raising: link.raising, held: link.held, ..Link::default() };
    }
}

pub(crate) fn token(fence: u8) -> FencingToken {
    FencingToken::new(fence.into()).expect("a fence of the model is never zero")
}

pub(crate) fn small(token: FencingToken) -> u8 {
    u8::try_from(token.get()).expect("a fence of the model is small")
}
