//! The client: one attempt, from its claims to its token.

use super::{Action, Attempt, Fences, Flaw, Link, Stage, State, breach};
use fencelock_core::{FencingToken, Moment, Raise, Round, Verdict, Vote};

impl<const N: usize> Fences<N> {
    pub(crate) fn client_actions(&self, state: &State<N>, who: u8, into: &mut Vec<Action<N>>) {
        let attempt = &state.attempts[usize::from(who)];
        let open = matches!(attempt.stage, Stage::Asking | Stage::Raising);
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
            Stage::Asking => self.decide_actions(state, who, into),
            Stage::Raising => {
                for node in (0..).zip(&state.nodes).filter_map(|(node, at)| {
                    let link = at.links[usize::from(who)];
                    (link.vote == 0 && link.grants[0] != 0).then_some(node)
                }) {
                    into.push(Action::HearLate(who, node));
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
        let mut choice = [0; N];
        // Counts through the choices: for each node none, its first or its second grant.
        for number in 0..3usize.pow(u32::try_from(N).expect("a few nodes")) {
            let mut rest = number;
            let mut possible = true;
            for (chosen, grants) in choice.iter_mut().zip(&grants) {
                *chosen = [0, grants[0], grants[1]][rest % 3];
                possible &= rest % 3 == 0 || *chosen != 0;
                rest /= 3;
            }
            let count = choice.iter().filter(|&&fence| fence != 0).count();
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
                state.attempts[usize::from(who)] =
                    Attempt { stage: Stage::Asking, proposal, floor, ..Attempt::default() };
            }
            Action::Decide(who, choice) => self.decide(state, who, choice),
            Action::HearLate(who, node) => {
                let link = &mut state.nodes[usize::from(node)].links[usize::from(who)];
                link.vote = link.grants[0];
                link.grants = [0; 2];
            }
            Action::Finish(who) => {
                let token = state.attempts[usize::from(who)].token;
                self.win(state, who, token);
            }
            Action::TtlPasses(who) => state.attempts[usize::from(who)].late = true,
            Action::GiveUp(who) => {
                state.attempts[usize::from(who)].stage = Stage::GivenUp;
                close(state, who);
            }
            _ => unreachable!("{action:?} is not a client's step"),
        }
    }

    fn decide(&self, state: &mut State<N>, who: u8, choice: [u8; N]) {
        match self.verdict(&choice) {
            Verdict::Won(token) => self.win(state, who, small(token)),
            Verdict::Raise { to, nodes } => {
                let attempt = &mut state.attempts[usize::from(who)];
                (attempt.stage, attempt.token) = (Stage::Raising, small(to));
                for (number, (node, vote)) in state.nodes.iter_mut().zip(choice).enumerate() {
                    let link = &mut node.links[usize::from(who)];
                    let granted = vote != 0 || !self.has(Flaw::AcksBelowItsFenceIfGranted);
                    (link.vote, link.asked) = (vote, nodes.contains(number) && granted);
                    // Of the answers still under way, only those with this very fence change anything.
                    let late = vote == 0 && link.grants.contains(&small(to));
                    link.grants = if late { [small(to), 0] } else { [0; 2] };
                }
            }
            Verdict::Pending | Verdict::Lost(_) => unreachable!("a majority has granted, and the grace is over"),
        }
    }

    /// What a client makes of these grants.
    fn verdict(&self, choice: &[u8; N]) -> Verdict {
        let mut granted: Vec<u8> = choice.iter().copied().filter(|&fence| fence != 0).collect();
        granted.sort_unstable_by(|a, b| b.cmp(a));
        if self.has(Flaw::NoRaise) {
            return Verdict::Won(token(granted[0]));
        }
        if self.has(Flaw::CountsReached) {
            // However few of the others have granted, a majority of all has reached this one.
            let reached = granted[granted.len() + self.quorum().majority() - N - 1];
            if granted.iter().filter(|&&fence| fence >= reached).count() >= self.quorum().majority() {
                return Verdict::Won(token(reached));
            }
        }
        if self.has(Flaw::TwoMasters) {
            return Round::new(self.quorum(), Moment::default()).vote(0, Vote::Granted(token(granted[0])));
        }
        let mut round = Round::new(self.quorum(), Moment::default());
        let mut verdict = Verdict::Pending;
        for (node, &fence) in choice.iter().enumerate().filter(|&(_, &fence)| fence != 0) {
            verdict = round.vote(node, Vote::Granted(token(fence)));
        }
        if verdict == Verdict::Pending { round.grace_over() } else { verdict }
    }

    /// Plays the attempt's round once more up to now: the votes, the raise, its acks and the late votes.
    fn raising(&self, state: &State<N>, who: u8) -> Verdict {
        let to = state.attempts[usize::from(who)].token;
        let links = || state.nodes.iter().map(|node| node.links[usize::from(who)]).enumerate();
        let is_late = |link: &Link| link.asked && link.vote == to;
        let mut round = Round::new(self.quorum(), Moment::default());
        for (node, link) in links().filter(|(_, link)| link.vote != 0 && !is_late(link)) {
            round.vote(node, Vote::Granted(token(link.vote)));
        }
        let mut verdict = round.grace_over();
        for (node, link) in links() {
            if is_late(&link) {
                verdict = round.vote(node, Vote::Granted(token(to)));
            }
            if link.acked {
                verdict = round.raised(node, Raise::Acked);
            }
        }
        verdict
    }

    fn win(&self, state: &mut State<N>, who: u8, token: u8) {
        let floor = state.attempts[usize::from(who)].floor;
        let mut broken = if token <= floor { breach::ORDER } else { 0 };
        for other in state.attempts.iter().filter(|other| other.stage == Stage::Won) {
            broken |= if other.token == token { breach::UNIQUE } else { 0 };
            broken |= if other.token > token { breach::COMPLETION } else { 0 };
        }
        let attempt = &mut state.attempts[usize::from(who)];
        (attempt.stage, attempt.token, attempt.floor, attempt.broken) = (Stage::Won, token, 0, broken);
        close(state, who);
    }
}

/// Forgets the answers that nobody waits for any more. Claims and raises may still run.
fn close<const N: usize>(state: &mut State<N>, who: u8) {
    for node in &mut state.nodes {
        let link = &mut node.links[usize::from(who)];
        *link = Link { runs: link.runs, asked: link.asked, ..Link::default() };
    }
}

pub(crate) fn token(fence: u8) -> FencingToken {
    FencingToken::new(fence.into()).expect("a fence of the model is never zero")
}

pub(crate) fn small(token: FencingToken) -> u8 {
    u8::try_from(token.get()).expect("a fence of the model is small")
}
