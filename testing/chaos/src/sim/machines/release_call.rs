use super::call::{Call, CallAction, CallTimer, GIVE_UP, NodeReply, NodeRequest, no_answer, send, stop};
use fencelock_core::quorum::{HoldVotes, NodePlan, Settings};
use fencelock_core::{Moment, NodeSet, Outcome, Release, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// A decided release still waits for the other nodes, so that the next claim finds the key free on all of them: for this
/// fraction of the shortest limit of a node, 20 ms by default. A healthy node takes less.
const SETTLING: u32 = 5;

/// A release on all nodes.
///
/// - It is sent to every node, even to one that is left out or has not answered a claim of this holder. There it is
///   sent after the claim has ended, because a release that overtakes its claim would free nothing.
/// - A tally counts it. Late replies count until it is decided.
/// - Requests in flight when the caller receives the result, or stops waiting, continue in the background.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseCall {
    settings: Arc<Settings>,
    count: HoldVotes,
    nodes: Vec<NodeRelease>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Counting,
    /// It is decided; the caller receives the result a moment later.
    Settling,
    Done,
}

#[derive(Debug, Clone)]
struct NodeRelease {
    limit: Duration,
    left_out: Option<Unknown>,
    state: ReleaseState,
    overdue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReleaseState {
    /// A claim of this holder is in flight.
    Waiting,
    Sent,
    Over,
}

impl ReleaseCall {
    /// `claiming` are the nodes with claims of this holder in flight.
    pub(crate) fn new(settings: Arc<Settings>, plan: Vec<NodePlan>, claiming: NodeSet) -> Self {
        let node = |(node, NodePlan { limit, left_out })| {
            let state = if claiming.contains(node) { ReleaseState::Waiting } else { ReleaseState::Sent };
            NodeRelease { limit, left_out, state, overdue: false }
        };
        let nodes = plan.into_iter().enumerate().map(node).collect();
        Self { count: HoldVotes::new(settings.size), settings, nodes, stage: Stage::Counting }
    }

    fn on_release(&mut self, node: usize, answer: Result<Release, Unknown>, out: &mut Actions) {
        let Some(release) = self.nodes.get_mut(node).filter(|release| release.state == ReleaseState::Sent) else {
            return;
        };
        release.state = ReleaseState::Over;
        let in_time = !release.overdue;
        stop(CallTimer::Node(node), out);
        if in_time {
            out.push(CallAction::Health { node, failure: answer.as_ref().err().cloned() });
        }
        self.count(node, answer);
        self.settle(out);
    }

    fn on_node_timer(&mut self, node: usize, out: &mut Actions) {
        let Some(release) = self.nodes.get_mut(node) else { return };
        if release.overdue {
            out.push(CallAction::Cancel(CallTimer::Node(node)));
            return self.on_release(node, Err(no_answer(&self.settings, node, GIVE_UP)), out);
        }
        release.overdue = true;
        let (limit, sent) = (release.limit, release.state == ReleaseState::Sent);
        let cause = no_answer(&self.settings, node, limit);
        out.push(CallAction::Health { node, failure: Some(cause.clone()) });
        if sent {
            out.push(CallAction::SetTimer { timer: CallTimer::Node(node), after: Some(GIVE_UP) });
        }
        self.count(node, Err(cause));
        self.settle(out);
    }

    fn on_claim_end(&mut self, node: usize, out: &mut Actions) {
        let Some(release) = self.nodes.get_mut(node).filter(|release| release.state == ReleaseState::Waiting) else {
            return;
        };
        release.state = ReleaseState::Sent;
        if release.overdue {
            send(node, NodeRequest::Release, GIVE_UP, out);
        } else {
            out.push(CallAction::Send { node, request: NodeRequest::Release });
        }
    }

    fn count(&mut self, node: usize, answer: Result<Release, Unknown>) {
        if self.nodes[node].left_out.is_none() {
            self.count.vote(node, answer);
        }
    }

    /// Reports the result when all nodes that count have answered, or a moment after it is decided.
    fn settle(&mut self, out: &mut Actions) {
        let counts = |release: &NodeRelease| release.left_out.is_none() && release.state != ReleaseState::Over;
        if !self.nodes.iter().any(counts) {
            return self.report(out);
        }
        // A late reply may still decide it.
        if self.stage == Stage::Counting && !matches!(self.count.outcome(), Outcome::Pending | Outcome::Unknown) {
            self.stage = Stage::Settling;
            let after = Some(self.settings.shortest_limit / SETTLING);
            out.push(CallAction::SetTimer { timer: CallTimer::Call, after });
        }
    }

    fn report(&mut self, out: &mut Actions) {
        if self.stage != Stage::Done {
            self.stage = Stage::Done;
            stop(CallTimer::Call, out);
            out.push(CallAction::Done(self.count.released()));
        }
    }
}

type Actions = Vec<CallAction<Result<Release, Unknown>>>;

impl Call for ReleaseCall {
    type Output = Result<Release, Unknown>;

    fn start(&mut self, _: Moment, out: &mut Actions) {
        for (node, release) in self.nodes.iter().enumerate() {
            if let Some(cause) = &release.left_out {
                self.count.vote(node, Err::<Release, _>(cause.clone()));
            }
            let request =
                if release.state == ReleaseState::Waiting { NodeRequest::ClaimEnd } else { NodeRequest::Release };
            send(node, request, release.limit, out);
        }
    }

    fn on_reply(&mut self, node: usize, reply: NodeReply, _: Moment, out: &mut Actions) {
        match reply {
            NodeReply::Release(answer) => self.on_release(node, answer, out),
            NodeReply::ClaimEnd => self.on_claim_end(node, out),
            NodeReply::Claim(_)
            | NodeReply::Raise(_)
            | NodeReply::Renew(_)
            | NodeReply::Downgrade(_)
            | NodeReply::Watch => {}
        }
    }

    fn on_timer(&mut self, timer: CallTimer, _: Moment, out: &mut Actions) {
        match timer {
            CallTimer::Call => self.report(out),
            CallTimer::Node(node) => self.on_node_timer(node, out),
            CallTimer::Raise(_) => {}
        }
    }

    fn on_dropped(&mut self, _: Moment, out: &mut Actions) {
        self.stage = Stage::Done;
        stop(CallTimer::Call, out);
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Done && self.nodes.iter().all(|release| release.state == ReleaseState::Over)
    }
}
