use super::call::{no_answer, send, stop};
use super::count::Count;
use super::release_call::REPLY_TIMEOUT;
use super::{Call, CallAction, CallTimer, NodePlan, NodeReply, NodeRequest, NodeSet, Outcome, Settings};
use crate::{Moment, Renew, Renewal, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// The time in which a loaded server renews several keys.
const PER_RENEWAL: Duration = Duration::from_millis(1);

/// A batch of renewals on all nodes. The caller receives the result when every hold of the batch is decided.
///
/// A late node counts as one that has not answered.
#[derive(Debug, Clone, Hash)]
pub struct RenewCall {
    settings: Arc<Settings>,
    plan: Vec<NodePlan>,
    counts: Vec<Count>,
    /// The nodes that have not answered yet.
    pending: NodeSet,
    done: bool,
}

impl RenewCall {
    /// `renewals` is the number of holds in the batch.
    pub fn new(settings: Arc<Settings>, renewals: usize, plan: Vec<NodePlan>) -> Self {
        let counts = vec![Count::new(settings.size); renewals];
        Self { settings, plan, counts, pending: NodeSet::new(), done: false }
    }

    /// The time limit for a node, given the limit for a single request, which is at most a tenth of the shortest lease.
    ///
    /// The time for one key does not predict the time for thousands. But a caller that waits for all of them gives up after a
    /// fifth of a lease, and a hold that depends on a silent node must not delay the results of the others.
    pub fn limit(renewals: &[Renewal], for_one: impl FnOnce(Duration) -> Duration) -> Duration {
        let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
        let least = PER_RENEWAL.saturating_mul(u32::try_from(renewals.len()).unwrap_or(u32::MAX));
        for_one(shortest / 10).max(least.min(REPLY_TIMEOUT).min(shortest / 6))
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
            count.on_renewal(node, answer);
        }
        self.report_if_decided(out);
    }

    fn report_if_decided(&mut self, out: &mut Actions) {
        let decided = || self.counts.iter().all(|count| count.outcome != Outcome::Pending);
        if !self.done && (self.pending.is_empty() || decided()) {
            self.done = true;
            out.push(CallAction::Done(self.counts.iter().map(Count::renewed).collect()));
        }
    }
}

type Actions = Vec<CallAction<Vec<Result<Renew, Unknown>>>>;

impl Call for RenewCall {
    type Output = Vec<Result<Renew, Unknown>>;

    fn start(&mut self, _: Moment, out: &mut Actions) {
        for (node, plan) in self.plan.iter().enumerate() {
            if let Some(cause) = &plan.left_out {
                self.counts.iter_mut().for_each(|count| count.on_renewal(node, Err(cause.clone())));
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
