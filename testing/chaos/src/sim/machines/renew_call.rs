use super::call::{Call, CallAction, CallTimer, NodeReply, NodeRequest, no_answer, send, stop};
use fencelock_core::quorum::{HoldVotes, NodePlan, Settings};
use fencelock_core::{Moment, NodeSet, Outcome, Renew, Unknown};
use std::sync::Arc;

/// A batch of renewals on all nodes. The caller receives the result when every hold of the batch is decided.
///
/// A late node counts as one that has not answered.
#[derive(Debug, Clone)]
pub(crate) struct RenewCall {
    settings: Arc<Settings>,
    plan: Vec<NodePlan>,
    counts: Vec<HoldVotes>,
    /// The nodes that have not answered yet.
    pending: NodeSet,
    done: bool,
}

impl RenewCall {
    /// `renewals` is the number of holds in the batch.
    pub(crate) fn new(settings: Arc<Settings>, renewals: usize, plan: Vec<NodePlan>) -> Self {
        let counts = vec![HoldVotes::new(settings.size); renewals];
        Self { settings, plan, counts, pending: NodeSet::new(), done: false }
    }

    fn on_batch(&mut self, node: usize, answers: Vec<Result<Renew, Unknown>>, out: &mut Actions) {
        if !self.pending.contains(node) {
            return;
        }
        self.pending.remove(node);
        stop(CallTimer::Node(node), out);
        // If a node fails as a whole, every renewal fails; only then does it count as a failure of the node.
        let failed = answers.iter().all(Result::is_err);
        let failure = answers.iter().find_map(|answer| answer.as_ref().err()).filter(|_| failed).cloned();
        out.push(CallAction::Health { node, failure });
        for (count, answer) in self.counts.iter_mut().zip(answers) {
            _ = count.vote(node, answer);
        }
        self.report_if_decided(out);
    }

    fn report_if_decided(&mut self, out: &mut Actions) {
        let decided = || self.counts.iter().all(|count| count.outcome() != Outcome::Pending);
        if !self.done && (self.pending.is_empty() || decided()) {
            self.done = true;
            out.push(CallAction::Done(self.counts.iter().map(HoldVotes::renewed).collect()));
        }
    }
}

type Actions = Vec<CallAction<Vec<Result<Renew, Unknown>>>>;

impl Call for RenewCall {
    type Output = Vec<Result<Renew, Unknown>>;

    fn start(&mut self, _: Moment, out: &mut Actions) {
        for (node, plan) in self.plan.iter().enumerate() {
            if let Some(cause) = &plan.left_out {
                self.counts.iter_mut().for_each(|count| _ = count.vote(node, Err::<Renew, _>(cause.clone())));
            } else {
                self.pending.insert(node);
                send(node, NodeRequest::Renew, plan.limit, out);
            }
        }
        self.report_if_decided(out);
    }

    fn on_reply(&mut self, node: usize, reply: NodeReply, _: Moment, out: &mut Actions) {
        if let NodeReply::Renew(answers) = reply {
            self.on_batch(node, answers, out);
        }
    }

    fn on_timer(&mut self, timer: CallTimer, _: Moment, out: &mut Actions) {
        if let CallTimer::Node(node) = timer
            && let Some(NodePlan { limit, .. }) = self.plan.get(node)
        {
            out.push(CallAction::Cancel(timer));
            let cause = no_answer(&self.settings, node, *limit);
            self.on_batch(node, vec![Err(cause); self.counts.len()], out);
        }
    }

    fn on_dropped(&mut self, _: Moment, _: &mut Actions) {
        self.done = true;
    }

    fn is_over(&self) -> bool {
        self.done && self.pending.is_empty()
    }
}
