//! A node's scripts, each in one piece, and what befalls a node.

use super::{Action, Flaw, Holds, Link, Node, Stage, State};

impl State {
    /// The node stays out until what it had granted by now is past.
    pub(crate) fn forget(&mut self, number: u8, restored: Option<(u8, u8)>) {
        let node = &mut self.nodes[usize::from(number)];
        node.out = true;
        for (who, link) in (0..).zip(&mut node.links) {
            link.held = restored.filter(|(holder, _)| *holder == who).map_or(0, |(_, held)| held);
            // What it comes back with may be older than a downgrade.
            link.alone = link.held > 0 && !self.attempts[usize::from(who)].claims_to_read;
            link.owed = u8::from(link.granted) + u8::from(link.granted && link.renewed);
        }
        self.crashes -= 1;
    }

    /// The hold of an attempt on a node ends.
    pub(crate) fn end(&mut self, who: u8, number: u8) {
        let link = &mut self.nodes[usize::from(number)].links[usize::from(who)];
        (link.held, link.alone) = (0, false);
    }

    pub(crate) fn readmit(&mut self, number: u8) {
        let node = &mut self.nodes[usize::from(number)];
        node.out = false;
        node.links.iter_mut().for_each(|link| link.owed = 0);
    }

    /// Whether a lease of this attempt would be past: by its claims, or by its renewal.
    fn is_past(&self, who: usize, renewed: bool) -> bool {
        self.attempts[who].late[usize::from(renewed)]
    }
}

impl Holds {
    pub(crate) fn node_actions(self, state: &State, into: &mut Vec<Action>) {
        for (number, node) in (0..).zip(&state.nodes) {
            let expires =
                |link: &Link, who: u8| self.has(Flaw::ClockJumps) || state.is_past(who.into(), link.held == 2);
            let ended = node.holders().filter(|&who| expires(&node.links[usize::from(who)], who));
            into.extend(ended.map(|who| Action::Expire(who, number)));
            if state.crashes > 0 && !node.out {
                self.forget_actions(state, number, node, into);
            }
            let past = |(who, owed): (usize, u8)| owed == 0 || state.is_past(who, owed == 2);
            let all_past = node.links.iter().map(|link| link.owed).enumerate().all(past);
            if node.out && (all_past || self.has(Flaw::NoQuarantine)) {
                into.push(Action::Readmit(number));
            }
        }
    }

    fn forget_actions(self, state: &State, number: u8, node: &Node, into: &mut Vec<Action>) {
        if node.holders().next().is_some() {
            into.push(Action::Forget(number, None));
        }
        if !self.scope.restores {
            return;
        }
        for (who, link) in (0..).zip(&node.links) {
            // Keys expire before any step reads them.
            if link.granted && !state.is_past(who.into(), false) {
                into.push(Action::Forget(number, Some((who, 1))));
            }
            if link.granted && link.renewed && !state.is_past(who.into(), true) {
                into.push(Action::Forget(number, Some((who, 2))));
            }
        }
    }

    pub(crate) fn run(self, state: &mut State, who: u8, number: u8) {
        let attempt = state.attempts[usize::from(who)];
        let has_room = self.has_room(state, who, &state.nodes[usize::from(number)]);
        let link = &mut state.nodes[usize::from(number)].links[usize::from(who)];
        if has_room {
            (link.held, link.alone, link.granted) = (1, !attempt.claims_to_read, true);
        }
        link.runs += 1;
        link.ok |= attempt.stage == Stage::Claiming;
    }
}

pub(crate) fn run_renewal(state: &mut State, who: u8, number: u8) {
    let reads = state.attempts[usize::from(who)].claims_to_read;
    let link = &mut state.nodes[usize::from(number)].links[usize::from(who)];
    // Only a renewal that locks free nodes finds none.
    link.alone = if link.held == 0 { !reads } else { link.alone };
    (link.held, link.granted, link.renewed) = (2, true, true);
}
