use super::call::{Call, CallAction, CallTimer, NodeReply, NodeRequest, no_answer, send, stop};
use super::raises::Raises;
use fencelock_core::quorum::{HoldVotes, NodePlan, Settings};
use fencelock_core::{Downgrade, FencingToken, Moment, NodeSet, Outcome, Raise, Round, Unknown, Verdict, Vote};
use std::sync::Arc;

/// One downgrade on all nodes: a [`Round`] over the tokens that the nodes give to the shared hold.
///
/// - It is decided by a majority of the nodes, like a renewal, so no other claim can have won in between.
/// - Each node converts its own exclusive hold into a shared one, so no node is free for a moment. A node that does not
///   take part keeps the hold exclusive, and refuses readers, until it is released.
/// - It can be repeated: a node that has already converted the hold returns the same token. So a failed call releases
///   nothing.
#[derive(Debug, Clone)]
pub(crate) struct DowngradeCall {
    settings: Arc<Settings>,
    round: Round,
    count: HoldVotes,
    plan: Vec<NodePlan>,
    /// The nodes whose answers to the downgrade have yet to come.
    pending: NodeSet,
    raises: Raises,
    done: bool,
}

impl DowngradeCall {
    /// Creates a call that starts right after `now`.
    pub(crate) fn new(settings: Arc<Settings>, plan: Vec<NodePlan>, now: Moment) -> Self {
        Self {
            round: Round::new(settings.size, now),
            count: HoldVotes::new(settings.size),
            settings,
            plan,
            pending: NodeSet::new(),
            raises: Raises::new(),
            done: false,
        }
    }

    fn on_downgrade(&mut self, node: usize, answer: Result<Downgrade, Unknown>, out: &mut Actions) {
        if !self.pending.contains(node) {
            return;
        }
        self.pending.remove(node);
        stop(CallTimer::Node(node), out);
        out.push(CallAction::Health { node, failure: answer.as_ref().err().cloned() });
        self.count(node, answer, out);
    }

    fn count(&mut self, node: usize, answer: Result<Downgrade, Unknown>, out: &mut Actions) {
        let vote = Vote::of_downgrade(&answer);
        self.count.vote(node, answer);
        let verdict = self.round.vote(node, vote);
        self.decide(verdict, out);
    }

    fn decide(&mut self, verdict: Verdict, out: &mut Actions) {
        if self.done {
            return;
        }
        self.raises.set_grace(&self.round, &verdict, out);
        match verdict {
            Verdict::Raise { to, nodes } => self.raise(to, nodes, out),
            Verdict::Won(tokens) => self.report(Ok(Downgrade::Downgraded { token: tokens.last() }), out),
            // The nodes that have not answered decide between a loss and an unknown result.
            Verdict::Lost(_) if self.is_lost() || self.pending.is_empty() => {
                self.report(self.count.not_downgraded(&self.settings), out);
            }
            Verdict::Lost(_) | Verdict::Pending => {}
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.count.outcome(), Outcome::Absent | Outcome::Taken)
    }

    fn raise(&mut self, to: FencingToken, nodes: NodeSet, out: &mut Actions) {
        let limit = |node: usize| Some(&self.plan[node]).filter(|plan| plan.left_out.is_none()).map(|plan| plan.limit);
        let verdict = self.raises.send(&mut self.round, (to, nodes), limit, out);
        self.decide(verdict, out);
    }

    fn on_raise(&mut self, node: usize, answer: Result<Raise, Unknown>, out: &mut Actions) {
        if let Some(verdict) = self.raises.on_reply(&mut self.round, node, answer, out) {
            self.decide(verdict, out);
        }
    }

    fn report(&mut self, result: Result<Downgrade, Unknown>, out: &mut Actions) {
        if !self.done {
            self.done = true;
            stop(CallTimer::Call, out);
            out.push(CallAction::Done(result));
        }
    }
}

type Actions = Vec<CallAction<Result<Downgrade, Unknown>>>;

impl Call for DowngradeCall {
    type Output = Result<Downgrade, Unknown>;

    fn start(&mut self, _: Moment, out: &mut Actions) {
        for node in 0..self.plan.len() {
            if self.plan[node].left_out.is_none() {
                self.pending.insert(node);
                send(node, NodeRequest::Downgrade, self.plan[node].limit, out);
            }
        }
        for node in 0..self.plan.len() {
            if let Some(cause) = self.plan[node].left_out.clone() {
                self.count(node, Err(cause), out);
            }
        }
    }

    fn on_reply(&mut self, node: usize, reply: NodeReply, _: Moment, out: &mut Actions) {
        match reply {
            NodeReply::Downgrade(answer) => self.on_downgrade(node, answer, out),
            NodeReply::Raise(answer) => self.on_raise(node, answer, out),
            NodeReply::Claim(_)
            | NodeReply::Renew(_)
            | NodeReply::Release(_)
            | NodeReply::ClaimEnd
            | NodeReply::Watch => {}
        }
    }

    fn on_timer(&mut self, timer: CallTimer, _: Moment, out: &mut Actions) {
        let silent = |node: usize| no_answer(&self.settings, node, self.plan[node].limit);
        match timer {
            CallTimer::Call => {
                let verdict = self.round.grace_over();
                self.decide(verdict, out);
            }
            CallTimer::Node(node) if self.pending.contains(node) => {
                let cause = silent(node);
                out.push(CallAction::Cancel(timer));
                self.on_downgrade(node, Err(cause), out);
            }
            CallTimer::Raise(node) if self.raises.contains(node) => {
                let cause = silent(node);
                out.push(CallAction::Cancel(timer));
                self.on_raise(node, Err(cause), out);
            }
            CallTimer::Node(_) | CallTimer::Raise(_) => {}
        }
    }

    fn on_dropped(&mut self, _: Moment, out: &mut Actions) {
        self.done = true;
        stop(CallTimer::Call, out);
    }

    fn is_over(&self) -> bool {
        self.done && self.pending.is_empty() && self.raises.is_empty()
    }

    fn last_fence(&self) -> u64 {
        self.round.last_fence()
    }
}
