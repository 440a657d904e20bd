//! A writer with a majority of three nodes that downgrades: the call that production drives, its timers, a second call after
//! one without a result, and the release that follows.

use crate::model::Model;
use crate::world::{plan, settings};
use fencelock_core::quorum::{
    Call as _, CallAction, CallTimer, DowngradeCall, NodeReply, NodeRequest, ReleaseCall, Settings,
};
use fencelock_core::{
    Downgrade, FencingToken, Foreign, Moment, NodeSet, Occupant, Raise, Release, Unknown, raise_fence,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The token that each downgrade proposes.
const PROPOSAL: u64 = 5;

/// A rule that a node or the driver breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DowngradeMutant {
    /// A node that does not have the hold adds one.
    Creates,
    /// The driver answers raises itself.
    NoRaise,
    /// A node frees the key if the hold is shared already.
    FreesTheSecondTime,
}

/// What a node has for this holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NodeState {
    Nothing,
    Taken,
    Exclusive,
    Shared(u64),
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Node {
    state: NodeState,
    fence: u64,
    /// From its grant to its fence: the tokens that it has confirmed for this holder, since the downgrade began.
    confirmed: Vec<(u64, u64)>,
}

impl Node {
    const fn is_ours(&self) -> bool {
        matches!(self.state, NodeState::Exclusive | NodeState::Shared(_))
    }

    const fn granted(&self) -> Option<u64> {
        match self.state {
            NodeState::Shared(token) => Some(token),
            NodeState::Exclusive => Some(self.fence),
            NodeState::Nothing | NodeState::Taken => None,
        }
    }

    /// At some moment the key was of this holder, with a grant of at most this token and a fence of at least it.
    fn has_confirmed(&self, token: u64) -> bool {
        self.confirmed.iter().any(|(granted, fence)| (*granted..=*fence).contains(&token))
    }

    fn confirm(&mut self) {
        let Some(granted) = self.granted() else { return };
        if !self.confirmed.contains(&(granted, self.fence)) {
            self.confirmed.push((granted, self.fence));
            self.confirmed.sort_unstable();
        }
    }
}

/// A request on its way, or its answer. `call` is 0 for the release.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Packet {
    call: u8,
    node: usize,
    request: NodeRequest,
    reply: Option<NodeReply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Caller {
    Waiting,
    /// A call has ended without a result, so the next one is due.
    Again,
    Reading(FencingToken),
    Lost,
    Gone,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Downgrading {
    settings: Arc<Settings>,
    /// The calls by number, from 1.
    calls: Vec<DowngradeCall>,
    release: Option<ReleaseCall>,
    nodes: [Node; 3],
    /// Where the writer has its hold at the start.
    held: NodeSet,
    packets: Vec<Packet>,
    timers: BTreeSet<(u8, CallTimer)>,
    caller: Caller,
    late: u8,
    mutant: Option<DowngradeMutant>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum DowngradeAct {
    Execute(usize),
    Deliver(usize),
    Fire(u8, CallTimer),
    /// The next call after one without a result.
    Repeat,
    /// The caller gives up, or is done with reading.
    Release,
}

impl Downgrading {
    /// The nodes as they are when the writer begins, in the order of `starts`.
    pub(crate) fn new(nodes: [NodeState; 3], fences: [u64; 3], mutant: Option<DowngradeMutant>, late: u8) -> Self {
        let at = |node: usize| Node { state: nodes[node], fence: fences[node], confirmed: Vec::new() };
        let nodes = [at(0), at(1), at(2)];
        let mut world = Self {
            settings: settings(),
            calls: Vec::new(),
            release: None,
            held: (0..3).filter(|node| nodes[*node].is_ours()).collect(),
            nodes,
            packets: Vec::new(),
            timers: BTreeSet::new(),
            caller: Caller::Waiting,
            late,
            mutant,
        };
        world.call();
        world
    }

    fn is(&self, mutant: DowngradeMutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn call(&mut self) {
        self.caller = Caller::Waiting;
        let mut call = DowngradeCall::new(Arc::clone(&self.settings), plan(), Moment::default());
        let mut out = Vec::new();
        call.start(Moment::default(), &mut out);
        self.calls.push(call);
        self.carry_out_downgrade(self.calls.len(), out);
    }

    fn carry_out_downgrade(&mut self, number: usize, out: Vec<CallAction<Result<Downgrade, Unknown>>>) {
        let call = u8::try_from(number).unwrap();
        for action in out {
            match self.carry_out(call, action) {
                Some(_) if self.caller != Caller::Waiting || number != self.calls.len() => {}
                Some(Ok(Downgrade::Downgraded { token })) => self.caller = Caller::Reading(token),
                Some(Ok(Downgrade::Absent | Downgrade::TakenBy(_))) => self.caller = Caller::Lost,
                Some(Err(_)) => self.caller = Caller::Again,
                None => {}
            }
        }
    }

    fn carry_out<T>(&mut self, call: u8, action: CallAction<T>) -> Option<T> {
        match action {
            CallAction::Send { node, request } => {
                let is_own = self.is(DowngradeMutant::NoRaise) && matches!(request, NodeRequest::Raise(_));
                let reply = is_own.then_some(NodeReply::Raise(Ok(Raise::Acked)));
                self.packets.push(Packet { call, node, request, reply });
                // Their order means nothing.
                self.packets.sort_by_key(|packet| (packet.call, packet.node, timer_of(packet)));
            }
            // The answer is not waited for any more, but the request may still be carried out.
            CallAction::Cancel(_) | CallAction::Health { .. } => {}
            CallAction::SetTimer { timer, after: Some(_) } => {
                self.timers.insert((call, timer));
            }
            CallAction::SetTimer { timer, after: None } => {
                self.timers.remove(&(call, timer));
            }
            CallAction::Done(result) => return Some(result),
        }
        None
    }

    fn execute(&mut self, number: usize, request: NodeRequest) -> NodeReply {
        let foreign = || Occupant::Foreign(Foreign::other("another")).into();
        match request {
            NodeRequest::Downgrade => NodeReply::Downgrade(Ok(self.downgrade(number))),
            NodeRequest::Raise(to) => {
                let node = &mut self.nodes[number];
                let raised = raise_fence(node.granted(), node.fence, to);
                node.fence = raised.unwrap_or(node.fence);
                NodeReply::Raise(Ok(if raised.is_some() { Raise::Acked } else { Raise::Refused }))
            }
            NodeRequest::Release => NodeReply::Release(Ok(match self.nodes[number].state {
                NodeState::Exclusive | NodeState::Shared(_) => {
                    self.nodes[number].state = NodeState::Nothing;
                    Release::Released
                }
                NodeState::Nothing => Release::Absent,
                NodeState::Taken => Release::TakenBy(foreign()),
            })),
            _ => NodeReply::ClaimEnd,
        }
    }

    /// The node's side of a downgrade, as the script has it.
    fn downgrade(&mut self, number: usize) -> Downgrade {
        let creates = self.is(DowngradeMutant::Creates);
        let frees = self.is(DowngradeMutant::FreesTheSecondTime);
        let node = &mut self.nodes[number];
        match node.state {
            NodeState::Taken => return Downgrade::TakenBy(Occupant::Foreign(Foreign::other("another")).into()),
            NodeState::Nothing if !creates => return Downgrade::Absent,
            NodeState::Shared(_) if frees => {
                node.state = NodeState::Nothing;
                return Downgrade::Absent;
            }
            NodeState::Shared(token) => return Downgrade::Downgraded { token: FencingToken::new(token).unwrap() },
            NodeState::Nothing | NodeState::Exclusive => {}
        }
        node.fence = PROPOSAL.max(node.fence + 1);
        node.state = NodeState::Shared(node.fence);
        Downgrade::Downgraded { token: FencingToken::new(node.fence).unwrap() }
    }

    fn report(&mut self, call: u8, happened: impl Fn(&mut dyn AnyCall)) {
        if let Some(number) = usize::from(call).checked_sub(1) {
            let mut out = Vec::new();
            happened(&mut (&mut self.calls[number], &mut out));
            self.carry_out_downgrade(usize::from(call), out);
        } else if let Some(mut release) = self.release.take() {
            let mut out = Vec::new();
            happened(&mut (&mut release, &mut out));
            self.release = Some(release);
            for action in out {
                self.carry_out(0, action);
            }
        }
    }

    /// The guard is dropped: no task waits for the downgrade any more, and the hold is released.
    fn leave(&mut self) {
        let is_asking = self.caller == Caller::Waiting;
        self.caller = Caller::Gone;
        if is_asking && let Some(call) = self.calls.last_mut() {
            let mut out = Vec::new();
            call.on_dropped(Moment::default(), &mut out);
            self.carry_out_downgrade(self.calls.len(), out);
        }
        // No client reads any more, so no token matters.
        self.nodes.iter_mut().for_each(|node| node.confirmed.clear());
        let mut release = ReleaseCall::new(Arc::clone(&self.settings), plan(), NodeSet::new());
        let mut out = Vec::new();
        release.start(Moment::default(), &mut out);
        self.release = Some(release);
        for action in out {
            self.carry_out(0, action);
        }
    }

    fn ours(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_ours()).count()
    }
}

/// A call of either kind.
trait AnyCall {
    fn reply(&mut self, node: usize, reply: NodeReply);
    fn fired(&mut self, timer: CallTimer);
}

impl<C: fencelock_core::quorum::Call> AnyCall for (&mut C, &mut Vec<CallAction<C::Output>>) {
    fn reply(&mut self, node: usize, reply: NodeReply) {
        self.0.on_reply(node, reply, Moment::default(), self.1);
    }

    fn fired(&mut self, timer: CallTimer) {
        self.0.on_timer(timer, Moment::default(), self.1);
    }
}

impl Model for Downgrading {
    type Act = DowngradeAct;

    fn acts(&self) -> Vec<DowngradeAct> {
        let moves = self.packets.iter().enumerate().map(|(number, packet)| match &packet.reply {
            Some(_) => DowngradeAct::Deliver(number),
            None => DowngradeAct::Execute(number),
        });
        // A release is repeated for as long as it takes, so its timers are left out.
        let fires = |(call, timer): &&(u8, CallTimer)| *call > 0 && (*timer == CallTimer::Call || self.late > 0);
        let timers = self.timers.iter().filter(fires).map(|(call, timer)| DowngradeAct::Fire(*call, *timer));
        let caller: &[DowngradeAct] = match self.caller {
            Caller::Again if self.calls.len() < 2 => &[DowngradeAct::Repeat, DowngradeAct::Release],
            Caller::Waiting | Caller::Again | Caller::Reading(_) | Caller::Lost => &[DowngradeAct::Release],
            Caller::Gone => &[],
        };
        moves.chain(timers).chain(caller.iter().copied()).collect()
    }

    fn act(&mut self, act: DowngradeAct) {
        match act {
            DowngradeAct::Execute(number) => {
                let Packet { node, request, .. } = self.packets[number];
                self.packets[number].reply = Some(self.execute(node, request));
                if self.release.is_none() {
                    self.nodes[node].confirm();
                }
            }
            DowngradeAct::Deliver(number) => {
                let Packet { call, node, reply, .. } = self.packets.remove(number);
                let Some(reply) = reply else { return };
                self.report(call, |call| call.reply(node, reply.clone()));
            }
            DowngradeAct::Fire(call, timer) => {
                self.timers.remove(&(call, timer));
                self.late -= u8::from(timer != CallTimer::Call);
                self.report(call, |call| call.fired(timer));
            }
            DowngradeAct::Repeat => self.call(),
            DowngradeAct::Release => self.leave(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let majority = self.settings.size.majority();
        if self.release.is_none() && self.held.iter().any(|node| !self.nodes[node].is_ours()) {
            return Err("a node must not lose the hold of a client that downgrades".to_owned());
        }
        if self.caller == Caller::Lost && self.ours() >= majority {
            return Err("a client with a majority was notified that it had lost the lock".to_owned());
        }
        if let Caller::Reading(token) = self.caller {
            let confirms = |node: &&Node| node.is_ours() && node.has_confirmed(token.get());
            if self.nodes.iter().filter(confirms).count() < majority {
                return Err("a majority must have the hold and have confirmed its token".to_owned());
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        self.check()?;
        if self.calls.iter().any(|call| !call.is_over()) {
            return Err("the downgrade never ends".to_owned());
        }
        if self.release.as_ref().is_some_and(|release| !release.is_over()) {
            return Err("the release never ends".to_owned());
        }
        let kept = self.nodes.iter().position(Node::is_ours);
        kept.map_or(Ok(()), |node| Err(format!("node {node} keeps a hold that was released")))
    }

    fn is_raising(&self) -> bool {
        self.packets.iter().any(|packet| matches!(packet.request, NodeRequest::Raise(_)))
    }

    fn is_released(&self) -> bool {
        self.release.is_some()
    }
}

fn timer_of(packet: &Packet) -> CallTimer {
    match packet.request {
        NodeRequest::Raise(_) => CallTimer::Raise(packet.node),
        _ => CallTimer::Node(packet.node),
    }
}
