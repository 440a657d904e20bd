//! A node's scripts, each in one piece, and what befalls a node.

use super::client::{small, token};
use super::{Action, Fences, Flaw, Granted, Stage, State, Time};
use fencelock_core::{next_proposed_block, raise_fence};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

impl Time {
    /// What may be proposed at `now`. Time begins late enough that nothing falls below 1.
    pub(crate) fn around(self, now: u8) -> RangeInclusive<u8> {
        now + 1..=now + 2 * self.error + 1
    }
}

impl<const N: usize> State<N> {
    pub(crate) fn tick(&mut self) {
        self.time += 1;
        for node in &mut self.nodes {
            node.ran = false;
            if node.until <= self.time {
                node.until = 0;
            }
        }
    }
}

impl<const N: usize> Fences<N> {
    pub(crate) fn node_actions(&self, state: &State<N>, into: &mut Vec<Action<N>>) {
        for number in 0..u8::try_from(N).expect("a few nodes") {
            let node = &state.nodes[usize::from(number)];
            if node.until <= state.time {
                for who in 0..self.scope.attempts {
                    self.run_actions(state, who, number, into);
                }
            }
            for who in state.holders(number) {
                let owner = state.attempts[usize::from(who)];
                let over = matches!(owner.stage, Stage::Won | Stage::GivenUp);
                if !self.scope.leases || over || owner.late {
                    into.push(Action::Vanish(who, number));
                }
            }
            if state.crashes > 0 && node.until <= state.time && node.fence > 0 {
                let back_to = if self.scope.partial { node.fence } else { 1 };
                into.extend((0..back_to).map(|fence| Action::Forget(number, fence)));
            }
        }
    }

    /// Claims and raises that would change or answer anything; the others might as well have been lost.
    fn run_actions(&self, state: &State<N>, who: u8, number: u8, into: &mut Vec<Action<N>>) {
        let attempt = &state.attempts[usize::from(who)];
        let (node, link) = (&state.nodes[usize::from(number)], state.link(who, number));
        let may_run = attempt.stage != Stage::Idle && (link.runs == 0 || link.runs == 1 && state.spare_runs > 0);
        let rested = !node.ran || self.has(Flaw::TwoGrantsATick);
        if may_run && link.held == 0 && state.has_room(who, number) && rested {
            for block in 1..=self.scope.block {
                match self.scope.time {
                    Some(time) if !self.has(Flaw::ClientClock) => {
                        into.extend(time.around(state.time).map(|proposal| Action::Run(who, number, proposal, block)));
                    }
                    _ => into.push(Action::Run(who, number, attempt.proposal, block)),
                }
            }
        }
        let known = link.grants.iter().any(|granted| granted.fence() == link.held);
        let news = attempt.stage == Stage::Claiming && !known;
        if may_run && link.held != 0 && news {
            into.push(Action::Run(who, number, attempt.proposal, 1));
        }
        let acks = link.raising && self.raised(state, who, number).is_some();
        let changes = node.fence < attempt.token || link.held < attempt.token && link.held != 0;
        if acks && (changes || attempt.stage == Stage::Raising && !link.acked) {
            into.push(Action::RunRaise(who, number));
        }
    }

    /// A claim: a grant, or the last token again if the node is the attempt's already.
    pub(crate) fn run(&self, state: &mut State<N>, who: u8, number: u8, proposal: u8, block: u8) {
        let claiming = state.attempts[usize::from(who)].stage == Stage::Claiming;
        let has_room = state.has_room(who, number);
        let node = &mut state.nodes[usize::from(number)];
        let link = &mut node.links[usize::from(who)];
        state.spare_runs -= u8::from(link.runs > 0);
        link.runs += 1;
        let mut more = 0;
        if link.held == 0 && has_room {
            let wanted = NonZeroU32::new(block.into()).expect("one at least");
            let tokens = next_proposed_block(node.fence.into(), proposal.into(), None, wanted).expect("small numbers");
            node.fence = small(tokens.last());
            link.held = node.fence;
            more = node.fence - small(tokens.first());
            node.ran = self.scope.time.is_some();
        }
        if claiming {
            link.grants[usize::from(link.grants[0].is_some())] = Granted::new(link.held, more);
        }
    }

    /// The fence after a raise, if the node acks it.
    fn raised(&self, state: &State<N>, who: u8, number: u8) -> Option<u8> {
        let node = &state.nodes[usize::from(number)];
        let to = state.attempts[usize::from(who)].token;
        let granted = Some(node.links[usize::from(who)].held).filter(|&held| held != 0);
        match self.flaw {
            Some(Flaw::AcksForAnybody) => Some(node.fence.max(to)),
            Some(Flaw::AcksBelowItsFence | Flaw::AcksBelowItsFenceIfGranted) => granted.map(|_| node.fence.max(to)),
            Some(Flaw::RefusesBelowTheFence) => granted.filter(|_| node.fence <= to).map(|_| to),
            _ => {
                let raised = raise_fence(granted.map(u64::from), node.fence.into(), token(to));
                raised.map(|fence| u8::try_from(fence).expect("a fence of the model is small"))
            }
        }
    }

    pub(crate) fn run_raise(&self, state: &mut State<N>, who: u8, number: u8) {
        let raised = self.raised(state, who, number).expect("only acks are steps");
        let (waiting, to) = {
            let attempt = state.attempts[usize::from(who)];
            (attempt.stage == Stage::Raising, attempt.token)
        };
        let node = &mut state.nodes[usize::from(number)];
        node.fence = raised;
        node.ran = self.scope.time.is_some();
        let link = &mut node.links[usize::from(who)];
        (link.acked, link.held) = (waiting, if link.held == 0 { 0 } else { link.held.max(to) });
    }

    pub(crate) fn forget(&self, state: &mut State<N>, number: u8, fence: u8) {
        let out = self.scope.time.map_or(0, |time| time.quarantine);
        let node = &mut state.nodes[usize::from(number)];
        node.links.iter_mut().for_each(|link| link.held = 0);
        node.fence = fence;
        node.until = if out == 0 { 0 } else { state.time + out };
        state.crashes -= 1;
    }
}
