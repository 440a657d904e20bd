use super::call::{CallAction, CallTimer, NodeRequest, send, stop};
use fencelock_core::{FencingToken, NodeSet, Raise, Round, Unknown, Verdict};
use std::time::Duration;

/// How long to wait for equal grants after a majority of different ones. Equal grants save a round trip.
const GRACE: Duration = Duration::from_millis(1);

/// The raises of a [`Round`] that have not been answered, and the grace period before the first of them.
#[derive(Debug, Clone)]
pub(crate) struct Raises {
    nodes: NodeSet,
    /// Whether the timer of the grace period runs.
    grace: bool,
}

impl Raises {
    pub(crate) fn new() -> Self {
        Self { nodes: NodeSet::new(), grace: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(crate) fn contains(&self, node: usize) -> bool {
        self.nodes.contains(node)
    }

    /// Starts the timer of the grace period if the votes are split, and stops it if they no longer are.
    pub(crate) fn set_grace<T>(&mut self, round: &Round, verdict: &Verdict, out: &mut Vec<CallAction<T>>) {
        let split = *verdict == Verdict::Pending && round.is_split();
        if split != self.grace {
            self.grace = split;
            out.push(CallAction::SetTimer { timer: CallTimer::Call, after: split.then_some(GRACE) });
        }
    }

    /// Sends a raise to these nodes. A node without a time limit is left out, and counts as a refusal.
    pub(crate) fn send<T>(
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

    /// Takes the reply to a raise; `None` if it was counted before.
    pub(crate) fn on_reply<T>(
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
