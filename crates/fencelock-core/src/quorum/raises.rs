use super::call::{send, stop};
use super::{CallAction, CallTimer, NodeRequest, NodeSet, Raise, Round, Verdict};
use crate::{FencingToken, Unknown};
use std::time::Duration;

/// The raises of a [`Round`] that have yet to be answered.
#[derive(Debug, Clone, Hash)]
pub(super) struct Raises {
    nodes: NodeSet,
}

impl Raises {
    pub(super) fn new() -> Self {
        Self { nodes: NodeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn contains(&self, node: usize) -> bool {
        self.nodes.contains(node)
    }

    /// Sends a raise to these nodes. One without a time limit cannot be asked, and counts as a refusal.
    pub(super) fn send<T>(
        &mut self,
        round: &mut Round,
        (to, nodes): (FencingToken, NodeSet),
        limit: impl Fn(usize) -> Option<Duration>,
        out: &mut Vec<CallAction<T>>,
    ) -> Verdict {
        for node in nodes.iter() {
            if let Some(limit) = limit(node) {
                self.nodes.insert(node);
                send(node, NodeRequest::Raise(to), limit, out);
            }
        }
        let mut verdict = Verdict::Pending;
        for node in nodes.iter().filter(|&node| limit(node).is_none()) {
            verdict = round.raised(node, Raise::Refused);
        }
        verdict
    }

    /// The answer to a raise; `None` if it was counted before.
    pub(super) fn on_reply<T>(
        &mut self,
        round: &mut Round,
        node: usize,
        answer: Result<Raise, Unknown>,
        out: &mut Vec<CallAction<T>>,
    ) -> Option<Verdict> {
        if !self.nodes.contains(node) {
            return None;
        }
        self.nodes.remove(node);
        stop(CallTimer::Raise(node), out);
        out.push(CallAction::Health { node, failure: answer.as_ref().err().cloned() });
        Some(round.raised(node, answer.unwrap_or(Raise::Refused)))
    }
}
