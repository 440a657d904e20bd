use super::call::{Call, CallAction, CallTimer, GIVE_UP, NodeReply, NodeRequest, no_answer, send, stop};
use super::raises::Raises;
use fencelock_core::quorum::{ClaimVotes, NodePlan, Settings};
use fencelock_core::{
    Acquire, Claim, Defeat, FencingToken, Intent, Lease, Moment, NodeSet, Raise, Round, TokenBlock, Unknown, Verdict,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a lost round waits for its releases, so that the lock is already free when the caller gets "busy".
const CLEANUP_WAIT: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A claim on all nodes: a [`Round`], and releases on every node unless the round is won and the caller receives the
/// result.
///
/// - A node's claim is released only after the request of the claim has ended there. A release that overtakes its claim
///   would free nothing.
/// - A call that is lost, too late or dropped releases on every node that it has sent a request to, even if the node
///   did not answer, and repeats the release until the node answers or the lease is over.
/// - A call that wins keeps its grants, including later ones, once the caller has received the result.
#[derive(Debug, Clone)]
pub(crate) struct ClaimCall {
    settings: Arc<Settings>,
    ttl: Duration,
    /// The caller wants a notification when the key is freed.
    watches: bool,
    round: Round,
    stage: Stage,
    nodes: Vec<NodeClaim>,
    raises: Raises,
    votes: ClaimVotes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The round is open.
    Open,
    /// The caller has not received the result yet.
    Won,
    /// The caller has received the result.
    Kept,
    /// The claim failed; the caller gets the result after a moment.
    CleaningUp(Failure),
    /// The caller no longer waits.
    Detached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Lost(Defeat),
    TooLate,
}

#[derive(Debug, Clone)]
struct NodeClaim {
    limit: Duration,
    state: ClaimState,
    busy: bool,
    left_out: Option<Unknown>,
}

/// The state of the claim at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    /// It is in flight. `overdue` if it has timed out.
    Claiming { overdue: bool },
    /// It has ended, and the node may have granted it.
    Ended,
    /// It is being released, until its lease would be over, with this pause before the next try.
    Releasing { until: Moment, pause: Duration },
    /// It waits for the next try.
    Pausing { until: Moment, pause: Duration },
    /// The release is complete, and a request to report changes of the key was sent to the node.
    Watching,
    /// No request is in flight.
    Over,
}

impl ClaimCall {
    /// Creates a call that starts right after `now`.
    pub(crate) fn new(settings: Arc<Settings>, claim: &Claim, plan: Vec<NodePlan>, now: Moment) -> Self {
        let node = |NodePlan { limit, left_out }: NodePlan| {
            let state = if left_out.is_some() { ClaimState::Over } else { ClaimState::Claiming { overdue: false } };
            NodeClaim { limit, state, busy: false, left_out }
        };
        let asked = plan.iter().enumerate().filter(|(_, plan)| plan.left_out.is_none()).map(|(node, _)| node);
        Self {
            round: Round::new(settings.size, now),
            votes: ClaimVotes::new(Arc::clone(&settings), asked.collect()),
            settings,
            ttl: claim.ttl.get(),
            watches: claim.queueing.intent == Intent::Enqueue,
            stage: Stage::Open,
            nodes: plan.into_iter().map(node).collect(),
            raises: Raises::new(),
        }
    }

    /// Why the round was lost; `None` if it was not.
    pub(crate) const fn defeat(&self) -> Option<Defeat> {
        self.round.defeat()
    }

    fn on_claim(&mut self, node: usize, answer: Result<Acquire, Unknown>, now: Moment, out: &mut Actions) {
        let Some(ClaimState::Claiming { overdue }) = self.state(node) else { return };
        if !overdue {
            out.push(CallAction::Health { node, failure: answer.as_ref().err().cloned() });
        }
        stop(CallTimer::Node(node), out);
        self.nodes[node].busy = matches!(answer, Ok(Acquire::Busy(_) | Acquire::Queued { .. }));
        self.nodes[node].state = ClaimState::Ended;
        self.on_answer(node, answer, now, out);
        if matches!(self.stage, Stage::CleaningUp(_) | Stage::Detached) {
            self.release(node, now, out);
        }
        self.report_if_clean(out);
    }

    /// Handles a reply, or a timeout.
    fn on_answer(&mut self, node: usize, answer: Result<Acquire, Unknown>, now: Moment, out: &mut Actions) {
        let vote = self.votes.vote(node, answer, self.stage == Stage::Open);
        let verdict = self.round.vote(node, vote);
        self.decide(verdict, now, out);
    }

    fn decide(&mut self, verdict: Verdict, now: Moment, out: &mut Actions) {
        if self.stage != Stage::Open {
            return;
        }
        self.raises.set_grace(&self.round, &verdict, out);
        match verdict {
            Verdict::Pending => {}
            Verdict::Raise { to, nodes } => self.raise(to, nodes, now, out),
            Verdict::Won(tokens) => self.won(tokens, now, out),
            Verdict::Lost(defeat) => self.clean_up(Failure::Lost(defeat), now, out),
        }
    }

    fn raise(&mut self, to: FencingToken, nodes: NodeSet, now: Moment, out: &mut Actions) {
        let limit =
            |node: usize| self.nodes.get(node).filter(|node| node.state != ClaimState::Over).map(|node| node.limit);
        let verdict = self.raises.send(&mut self.round, (to, nodes), limit, out);
        self.decide(verdict, now, out);
    }

    fn on_raise(&mut self, node: usize, answer: Result<Raise, Unknown>, now: Moment, out: &mut Actions) {
        if let Some(verdict) = self.raises.on_reply(&mut self.round, node, answer, out) {
            self.decide(verdict, now, out);
        }
    }

    fn won(&mut self, tokens: TokenBlock, now: Moment, out: &mut Actions) {
        let endless = Some(Lease::endless()).filter(|_| !self.settings.expires);
        if endless.or_else(|| self.round.lease(self.ttl, self.settings.drift, now)).is_none() {
            return self.clean_up(Failure::TooLate, now, out);
        }
        self.stage = Stage::Won;
        out.push(CallAction::Done(Ok(Acquire::Granted { tokens })));
    }

    fn clean_up(&mut self, failure: Failure, now: Moment, out: &mut Actions) {
        self.stage = Stage::CleaningUp(failure);
        out.push(CallAction::SetTimer { timer: CallTimer::Call, after: Some(CLEANUP_WAIT) });
        self.release_all(now, out);
        self.report_if_clean(out);
    }

    fn release_all(&mut self, now: Moment, out: &mut Actions) {
        for node in 0..self.nodes.len() {
            self.release(node, now, out);
        }
    }

    /// Releases what the node may have granted, unless the claim is still in flight.
    fn release(&mut self, node: usize, now: Moment, out: &mut Actions) {
        if self.nodes[node].state == ClaimState::Ended {
            self.nodes[node].state = ClaimState::Releasing { until: now + self.ttl, pause: FIRST_PAUSE };
            send(node, NodeRequest::Release, GIVE_UP, out);
        }
    }

    fn on_release(&mut self, node: usize, answered: bool, now: Moment, out: &mut Actions) {
        let Some(ClaimState::Releasing { until, pause }) = self.state(node) else { return };
        stop(CallTimer::Node(node), out);
        if !answered && now + pause < until {
            self.nodes[node].state = ClaimState::Pausing { until, pause };
            out.push(CallAction::SetTimer { timer: CallTimer::Node(node), after: Some(pause) });
            return;
        }
        self.votes.released(node);
        // Only busy nodes: a free node would report a change immediately, and again each time.
        if self.watches && self.nodes[node].busy {
            self.nodes[node].state = ClaimState::Watching;
            send(node, NodeRequest::Watch, GIVE_UP, out);
        } else {
            self.nodes[node].state = ClaimState::Over;
        }
        self.report_if_clean(out);
    }

    fn on_node_timer(&mut self, node: usize, now: Moment, out: &mut Actions) {
        match self.state(node) {
            Some(ClaimState::Claiming { overdue: false }) => {
                let cause = no_answer(&self.settings, node, self.nodes[node].limit);
                self.nodes[node].state = ClaimState::Claiming { overdue: true };
                out.push(CallAction::Health { node, failure: Some(cause.clone()) });
                out.push(CallAction::SetTimer { timer: CallTimer::Node(node), after: Some(GIVE_UP) });
                self.on_answer(node, Err(cause), now, out);
                self.report_if_clean(out);
            }
            Some(ClaimState::Claiming { overdue: true }) => {
                out.push(CallAction::Cancel(CallTimer::Node(node)));
                self.on_claim(node, Err(no_answer(&self.settings, node, GIVE_UP)), now, out);
            }
            Some(ClaimState::Releasing { .. }) => {
                out.push(CallAction::Cancel(CallTimer::Node(node)));
                self.on_release(node, false, now, out);
            }
            Some(ClaimState::Pausing { until, pause }) => {
                self.nodes[node].state = ClaimState::Releasing { until, pause: (pause * 2).min(LONGEST_PAUSE) };
                send(node, NodeRequest::Release, GIVE_UP, out);
            }
            Some(ClaimState::Watching) => {
                out.push(CallAction::Cancel(CallTimer::Node(node)));
                self.nodes[node].state = ClaimState::Over;
            }
            Some(ClaimState::Ended | ClaimState::Over) | None => {}
        }
    }

    fn state(&self, node: usize) -> Option<ClaimState> {
        self.nodes.get(node).map(|claim| claim.state)
    }

    fn report_if_clean(&mut self, out: &mut Actions) {
        if self.votes.is_clean() {
            self.report(out);
        }
    }

    /// Reports the failure to the caller.
    fn report(&mut self, out: &mut Actions) {
        let Stage::CleaningUp(failure) = self.stage else { return };
        self.stage = Stage::Detached;
        stop(CallTimer::Call, out);
        let defeat = if let Failure::Lost(defeat) = failure { Some(defeat) } else { None };
        out.push(CallAction::Done(self.votes.failed(defeat)));
    }
}

type Actions = Vec<CallAction<Result<Acquire, Unknown>>>;

impl Call for ClaimCall {
    type Output = Result<Acquire, Unknown>;

    fn start(&mut self, now: Moment, out: &mut Actions) {
        for node in 0..self.nodes.len() {
            if let Some(cause) = self.nodes[node].left_out.clone() {
                self.on_answer(node, Err(cause), now, out);
            } else {
                send(node, NodeRequest::Claim, self.nodes[node].limit, out);
            }
        }
    }

    fn on_reply(&mut self, node: usize, reply: NodeReply, now: Moment, out: &mut Actions) {
        match reply {
            NodeReply::Claim(answer) => self.on_claim(node, answer, now, out),
            NodeReply::Raise(answer) => self.on_raise(node, answer, now, out),
            NodeReply::Release(answer) => self.on_release(node, answer.is_ok(), now, out),
            NodeReply::Watch if self.state(node) == Some(ClaimState::Watching) => {
                stop(CallTimer::Node(node), out);
                self.nodes[node].state = ClaimState::Over;
            }
            NodeReply::Watch | NodeReply::Renew(_) | NodeReply::Downgrade(_) | NodeReply::ClaimEnd => {}
        }
    }

    fn on_timer(&mut self, timer: CallTimer, now: Moment, out: &mut Actions) {
        match timer {
            CallTimer::Call if matches!(self.stage, Stage::CleaningUp(_)) => self.report(out),
            CallTimer::Call => {
                let verdict = self.round.grace_over();
                self.decide(verdict, now, out);
            }
            CallTimer::Raise(node) if self.raises.contains(node) => {
                let limit = self.nodes[node].limit;
                out.push(CallAction::Cancel(timer));
                self.on_raise(node, Err(no_answer(&self.settings, node, limit)), now, out);
            }
            CallTimer::Raise(_) => {}
            CallTimer::Node(node) => self.on_node_timer(node, now, out),
        }
    }

    fn on_taken(&mut self) {
        if self.stage == Stage::Won {
            self.stage = Stage::Kept;
        }
    }

    fn on_dropped(&mut self, now: Moment, out: &mut Actions) {
        if self.stage != Stage::Kept {
            self.stage = Stage::Detached;
            stop(CallTimer::Call, out);
            self.release_all(now, out);
        }
    }

    fn is_over(&self) -> bool {
        let kept = self.stage == Stage::Kept;
        let is_over = |node: &NodeClaim| node.state == ClaimState::Over || kept && node.state == ClaimState::Ended;
        (kept || self.stage == Stage::Detached) && self.raises.is_empty() && self.nodes.iter().all(is_over)
    }

    fn last_fence(&self) -> u64 {
        self.round.last_fence()
    }
}
