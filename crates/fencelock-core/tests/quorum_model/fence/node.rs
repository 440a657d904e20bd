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
            if node.lock != 0 {
                let owner = state.attempts[usize::from(node.lock - 1)];
                let over = matches!(owner.stage, Stage::Won | Stage::GivenUp);
                if !self.scope.leases || over || owner.late {
                    into.push(Action::Vanish(number));
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
        if may_run && node.lock == 0 && rested {
            for block in 1..=self.scope.block {
                match self.scope.time {
                    Some(time) if !self.has(Flaw::ClientClock) => {
                        into.extend(time.around(state.time).map(|proposal| Action::Run(who, number, proposal, block)));
                    }
                    _ => into.push(Action::Run(who, number, attempt.proposal, block)),
                }
            }
        }
        let known = link.grants.iter().any(|granted| granted.fence() == node.fence);
        let news = attempt.stage == Stage::Asking && !known;
        if may_run && node.lock == who + 1 && news {
            into.push(Action::Run(who, number, attempt.proposal, 1));
        }
        let acks = link.asked && self.raised(state, who, number).is_some();
        if acks && (node.fence < attempt.token || attempt.stage == Stage::Raising && !link.acked) {
            into.push(Action::RunRaise(who, number));
        }
    }

    /// A claim: a grant, or the last token again if the node is the attempt's already.
    pub(crate) fn run(&self, state: &mut State<N>, who: u8, number: u8, proposal: u8, block: u8) {
        let asking = state.attempts[usize::from(who)].stage == Stage::Asking;
        let node = &mut state.nodes[usize::from(number)];
        let link = &mut node.links[usize::from(who)];
        state.spare_runs -= u8::from(link.runs > 0);
        link.runs += 1;
        let mut more = 0;
        if node.lock == 0 {
            let wanted = NonZeroU32::new(block.into()).expect("one at least");
            let tokens = next_proposed_block(node.fence.into(), proposal.into(), None, wanted).expect("small numbers");
            node.lock = who + 1;
            node.fence = small(tokens.last());
            more = node.fence - small(tokens.first());
            node.ran = self.scope.time.is_some();
        }
        if asking {
            link.grants[usize::from(link.grants[0].is_some())] = Granted::new(node.fence, more);
        }
    }

    /// The fence after a raise, if the node acks it.
    fn raised(&self, state: &State<N>, who: u8, number: u8) -> Option<u8> {
        let node = &state.nodes[usize::from(number)];
        let to = state.attempts[usize::from(who)].token;
        let lock = (node.lock != 0).then_some(node.lock);
        match self.flaw {
            Some(Flaw::AcksForAnybody) => Some(node.fence.max(to)),
            Some(Flaw::AcksBelowItsFence | Flaw::AcksBelowItsFenceIfGranted) => {
                (lock == Some(who + 1)).then_some(node.fence.max(to))
            }
            _ => raise_fence(lock.as_ref(), &(who + 1), node.fence.into(), token(to)).map(small),
        }
    }

    pub(crate) fn run_raise(&self, state: &mut State<N>, who: u8, number: u8) {
        let raised = self.raised(state, who, number).expect("only acks are steps");
        let waiting = state.attempts[usize::from(who)].stage == Stage::Raising;
        let node = &mut state.nodes[usize::from(number)];
        node.fence = raised;
        node.ran = self.scope.time.is_some();
        node.links[usize::from(who)].acked = waiting;
    }

    pub(crate) fn forget(&self, state: &mut State<N>, number: u8, fence: u8) {
        let out = self.scope.time.map_or(0, |time| time.quarantine);
        let node = &mut state.nodes[usize::from(number)];
        (node.lock, node.fence) = (0, fence);
        node.until = if out == 0 { 0 } else { state.time + out };
        state.crashes -= 1;
    }
}
