use super::call::{GIVE_UP, no_answer, send, stop};
use super::raises::Raises;
use super::{Call, CallAction, CallTimer, Defeat, NodePlan, NodeReply, NodeRequest, NodeSet, Raise, Round, Settings};
use super::{Verdict, Vote};
use crate::{Acquire, Claim, Fault, FencingToken, Intent, Lease, Moment, NodeFault, Occupied, TokenBlock, Unknown};
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
#[derive(Debug, Clone, Hash)]
pub struct ClaimCall {
    settings: Arc<Settings>,
    ttl: Duration,
    /// The caller wants a notification when the key is freed.
    watches: bool,
    round: Round,
    stage: Stage,
    nodes: Vec<NodeClaim>,
    raises: Raises,
    /// The nodes that granted, or still may grant: a lost round waits a moment for their releases.
    owing: NodeSet,
    occupied: Vec<Occupied>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Failure {
    Lost(Defeat),
    TooLate,
}

#[derive(Debug, Clone, Hash)]
struct NodeClaim {
    limit: Duration,
    state: ClaimState,
    busy: bool,
    cause: Option<Unknown>,
}

/// The state of the claim at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    pub fn new(settings: Arc<Settings>, claim: &Claim, plan: Vec<NodePlan>, now: Moment) -> Self {
        let node = |NodePlan { limit, left_out }: NodePlan| {
            let state = if left_out.is_some() { ClaimState::Over } else { ClaimState::Claiming { overdue: false } };
            NodeClaim { limit, state, busy: false, cause: left_out }
        };
        Self {
            round: Round::new(settings.size, now),
            settings,
            ttl: claim.ttl.get(),
            watches: claim.queueing.intent == Intent::Enqueue,
            stage: Stage::Open,
            nodes: plan.into_iter().map(node).collect(),
            raises: Raises::new(),
            owing: NodeSet::new(),
            occupied: Vec::new(),
        }
    }

    /// Why the round was lost; `None` if it was not.
    pub const fn defeat(&self) -> Option<Defeat> {
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
        if !matches!(answer, Ok(Acquire::Granted { .. })) {
            // A busy node has nothing to release, and a node that does not answer is not waited for.
            self.owing.remove(node);
        }
        let vote = self.vote(node, answer);
        let verdict = self.round.vote(node, vote);
        self.decide(verdict, now, out);
    }

    fn vote(&mut self, node: usize, answer: Result<Acquire, Unknown>) -> Vote {
        let (vote, cause) = match answer {
            Ok(Acquire::Granted { tokens }) => (Vote::Granted(tokens), None),
            Ok(Acquire::Busy(occupied)) => {
                self.occupied.push(occupied);
                (Vote::Busy { last_fence: 0 }, None)
            }
            Ok(Acquire::Queued { occupied, hand_off, .. }) => {
                self.occupied.push(occupied);
                (Vote::Busy { last_fence: hand_off.last_fence }, None)
            }
            Ok(answer @ (Acquire::Gone | Acquire::Conflict(_))) => {
                let (fault, why) = match answer {
                    Acquire::Conflict(mode) => (Fault::Unsupported, format!("the key is in use as {}", mode.class())),
                    _ => (Fault::Other, "the lock disappeared during the claim".to_owned()),
                };
                (Vote::Unknown, Some(Unknown::new(self.settings.name(node), fault, why)))
            }
            Err(cause) if cause.is_refusal() => (Vote::Refused, Some(cause)),
            Err(cause) => (Vote::Unknown, Some(cause)),
        };
        // After the round, a late reply does not change why the other nodes did not grant.
        if cause.is_some() || self.stage == Stage::Open {
            self.nodes[node].cause = cause;
        }
        vote
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
        self.owing.remove(node);
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
        if self.owing.is_empty() {
            self.report(out);
        }
    }

    /// Reports the failure to the caller.
    fn report(&mut self, out: &mut Actions) {
        let Stage::CleaningUp(failure) = self.stage else { return };
        self.stage = Stage::Detached;
        stop(CallTimer::Call, out);
        out.push(CallAction::Done(self.result(failure)));
    }

    fn result(&self, failure: Failure) -> Result<Acquire, Unknown> {
        let unknown = |fault, detail| Err(Unknown::new(self.settings.backend.clone(), fault, detail));
        let Failure::Lost(defeat) = failure else {
            return unknown(Fault::Timeout, "a majority granted the lock, but the lease had already expired");
        };
        if let (Defeat::Busy | Defeat::Overtaken, Some(occupied)) = (defeat, most_reported(&self.occupied)) {
            return Ok(Acquire::Busy(occupied.clone()));
        }
        let causes = self.nodes.iter().filter_map(|node| node.cause.as_ref());
        let causes: Vec<NodeFault> = causes.flat_map(|cause| cause.nodes().to_vec()).collect();
        if causes.is_empty() {
            return unknown(Fault::Busy, "a majority granted the lock, but not for long enough to agree");
        }
        Err(self.settings.unknown(causes))
    }
}

type Actions = Vec<CallAction<Result<Acquire, Unknown>>>;

impl Call for ClaimCall {
    type Output = Result<Acquire, Unknown>;

    fn start(&mut self, now: Moment, out: &mut Actions) {
        for node in 0..self.nodes.len() {
            if let Some(cause) = self.nodes[node].cause.clone() {
                self.on_answer(node, Err(cause), now, out);
            } else {
                self.owing.insert(node);
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

/// The occupants that most nodes report. Of reports that are equally common, the one with the most holders counts: a node may not
/// have received the claim of the last reader yet.
fn most_reported(occupied: &[Occupied]) -> Option<&Occupied> {
    let count = |by: &Occupied| occupied.iter().filter(|other| other.holders == by.holders).count();
    // The last of equal ones counts, so the first report comes last.
    occupied.iter().rev().max_by_key(|by| (count(by), by.holders.count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Expiry, Foreign, Holder, HolderId, Holders, Key, Occupant, Owner, Ttl};

    fn report(names: &[&str]) -> Occupied {
        let mut occupants = names.iter().map(|name| Occupant::Foreign(Foreign::other(*name)));
        let first = occupants.next().unwrap();
        let holders = occupants.fold(Holders::one(first.clone()), Holders::and);
        Occupied { holders, ..Occupied::new(first, Expiry::Never) }
    }

    #[test]
    fn the_report_of_most_nodes_counts_and_then_the_longest() {
        let [a, b, both] = [report(&["a"]), report(&["b"]), report(&["a", "b"])];
        for (reports, expected) in [
            (vec![a.clone(), b.clone()], Some(&a)),
            (vec![a.clone(), both.clone()], Some(&both)),
            (vec![both.clone(), a.clone()], Some(&both)),
            (vec![a.clone(), both.clone(), a.clone()], Some(&a)),
        ] {
            assert_eq!(most_reported(&reports), expected, "{reports:?}");
        }
    }

    #[test]
    fn a_node_that_refuses_is_not_asked_to_raise() {
        let (size, names) = (crate::Quorum::new(3).unwrap(), ["a", "b", "c"].map(str::to_owned).to_vec());
        let (backend, shortest_limit) = (String::new(), Duration::from_millis(100));
        let settings = Settings { size, drift: Drift::default(), expires: true, names, backend, shortest_limit };
        let holder = Holder { id: HolderId::from_bytes([1; 16]), owner: Owner::from_text("a:1") };
        let claim = Claim::new(Key::new("k").unwrap(), holder, Ttl::default(), Intent::Try);
        let (plan, now) = (NodePlan { limit: shortest_limit, left_out: None }, Moment::default());
        let mut call = ClaimCall::new(Arc::new(settings), &claim, vec![plan; 3], now);
        let mut out = Vec::new();
        call.start(now, &mut out);
        let granted = |token| Ok(Acquire::Granted { tokens: FencingToken::new(token).unwrap().into() });
        let refused = Err(Unknown::new("c", Fault::Quarantined, ""));
        for (node, answer) in [granted(5), granted(7), refused].into_iter().enumerate() {
            call.on_reply(node, NodeReply::Claim(answer), now, &mut out);
        }
        let is_raise =
            |action: &CallAction<_>| matches!(action, CallAction::Send { request: NodeRequest::Raise(_), .. });
        let raises: Vec<_> = out.into_iter().filter(is_raise).collect();
        assert!(matches!(raises[..], [CallAction::Send { node: 0, .. }]), "{raises:?}");
    }
}
