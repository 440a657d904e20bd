//! A node's scripts, each in one piece, and what befalls a node.

use super::{Action, Flaw, Holds, Node, Stage, State};

impl State {
    /// The node stays out until what it had granted by now is past.
    pub(crate) fn forget(&mut self, number: u8, lock: u8, renewed: bool) {
        let node = &mut self.nodes[usize::from(number)];
        (node.lock, node.renewed, node.out) = (lock, renewed, true);
        for link in &mut node.links {
            link.owed = u8::from(link.granted) + u8::from(link.granted && link.renewed);
        }
        self.crashes -= 1;
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
            let expires = |lock: u8| self.has(Flaw::ClockJumps) || state.is_past(usize::from(lock - 1), node.renewed);
            if node.lock != 0 && expires(node.lock) {
                into.push(Action::Expire(number));
            }
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
        if node.lock != 0 {
            into.push(Action::Forget(number, 0, false));
        }
        if !self.scope.restores {
            return;
        }
        for (who, link) in node.links.iter().enumerate() {
            // Keys expire before any step reads them.
            let lock = u8::try_from(who + 1).expect("a few attempts");
            if link.granted && !state.is_past(who, false) {
                into.push(Action::Forget(number, lock, false));
            }
            if link.granted && link.renewed && !state.is_past(who, true) {
                into.push(Action::Forget(number, lock, true));
            }
        }
    }
}

pub(crate) fn run(state: &mut State, who: u8, number: u8) {
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

pub(crate) fn run_renewal(state: &mut State, who: u8, number: u8) {
    let node = &mut state.nodes[usize::from(number)];
    (node.lock, node.renewed) = (who + 1, true);
    let link = &mut node.links[usize::from(who)];
    (link.granted, link.renewed) = (true, true);
}
