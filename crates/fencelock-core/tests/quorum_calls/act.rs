//! What can happen next.

use crate::world::{Caller, Lock, Mutant, Packet, Which, World, plan};
use fencelock_core::quorum::{Call as _, CallTimer, NodeReply, NodeRequest, ReleaseCall};
use fencelock_core::{
    Acquire, Expiry, Fault, FencingToken, Foreign, Moment, NodeSet, Occupant, Occupied, Raise, Release, Unknown,
    raise_fence,
};
use std::sync::Arc;

/// The tokens that the claim proposes.
const PROPOSAL: u64 = 5;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// The node carries out a request.
    Execute(usize),
    /// The answer arrives.
    Deliver(usize),
    Fire(Which, CallTimer),
    /// The caller is gone.
    Drop,
    /// The caller gets its result.
    Take,
    /// The caller releases what it holds.
    Release,
}

impl World {
    pub(crate) fn possible(&self) -> Vec<Act> {
        let moves = self.packets.iter().enumerate().filter_map(|(number, packet)| match &packet.reply {
            Some(_) => Some(Act::Deliver(number)),
            None if packet.request != NodeRequest::ClaimEnd => Some(Act::Execute(number)),
            None => (!self.claiming().contains(packet.node)).then_some(Act::Execute(number)),
        });
        let timers = self.timers.iter().filter(|(of, timer)| self.fires(*of, *timer));
        let timers = timers.map(|(of, timer)| Act::Fire(*of, *timer));
        let caller: &[Act] = match self.caller {
            Caller::Waiting => &[Act::Drop],
            Caller::Notified { .. } => &[Act::Drop, Act::Take],
            Caller::Holding => &[Act::Release],
            Caller::Gone => &[],
        };
        moves.chain(timers).chain(caller.iter().copied()).collect()
    }

    fn fires(&self, of: Which, timer: CallTimer) -> bool {
        match (of, timer) {
            (Which::Release, CallTimer::Node(node)) => self.late > 0 && !self.overdue.contains(node),
            (_, timer) => timer == CallTimer::Call || self.late > 0 || self.is_pause(timer),
        }
    }

    /// Whether a timer belongs to a pause, so that nothing else happens at this node.
    fn is_pause(&self, timer: CallTimer) -> bool {
        let CallTimer::Node(node) = timer else { return false };
        !self.packets.iter().any(|packet| packet.of == Which::Claim && packet.node == node)
    }

    pub(crate) fn happen(&mut self, act: Act) {
        match act {
            Act::Execute(number) => {
                let Packet { node, request, .. } = self.packets[number];
                self.packets[number].reply = Some(self.execute(node, request));
            }
            Act::Deliver(number) => self.deliver(number),
            Act::Fire(of, timer) => self.fire(of, timer),
            Act::Drop => self.drop_caller(),
            Act::Take => self.take(),
            Act::Release => self.release(),
        }
    }

    fn execute(&mut self, number: usize, request: NodeRequest) -> NodeReply {
        let node = &mut self.nodes[number];
        match request {
            NodeRequest::Claim if node.lock == Lock::Other => {
                let by = Occupant::Foreign(Foreign::other("another"));
                NodeReply::Claim(Ok(Acquire::Busy(Occupied::new(by, Expiry::Never))))
            }
            NodeRequest::Claim => {
                node.fence = PROPOSAL.max(node.fence + 1);
                node.lock = Lock::Ours;
                NodeReply::Claim(Ok(Acquire::Granted { tokens: FencingToken::new(node.fence).unwrap().into() }))
            }
            NodeRequest::Raise(to) => match raise_fence(node.granted(), node.fence, to) {
                Some(raised) => {
                    node.fence = raised;
                    NodeReply::Raise(Ok(Raise::Acked))
                }
                None => NodeReply::Raise(Ok(Raise::Refused)),
            },
            NodeRequest::Release => NodeReply::Release(Ok(match node.lock {
                Lock::Ours => {
                    node.lock = Lock::Free;
                    Release::Released
                }
                Lock::Free => Release::Absent,
                Lock::Other => Release::TakenBy(Occupant::Foreign(Foreign::other("another")).into()),
            })),
            NodeRequest::ClaimEnd => NodeReply::ClaimEnd,
            NodeRequest::Watch | NodeRequest::Renew | NodeRequest::Downgrade => NodeReply::Watch,
        }
    }

    fn deliver(&mut self, number: usize) {
        let Packet { of, node, reply, .. } = self.packets.remove(number);
        let Some(reply) = reply else { return };
        if matches!(reply, NodeReply::Claim(Ok(Acquire::Granted { .. }))) {
            self.seen.insert(node);
        }
        self.reply(of, node, reply);
    }

    fn reply(&mut self, of: Which, node: usize, reply: NodeReply) {
        let (now, mut claims, mut releases) = (Moment::default(), Vec::new(), Vec::new());
        match (of, &mut self.release) {
            (Which::Release, Some(release)) => release.on_reply(node, reply, now, &mut releases),
            _ => self.claim.on_reply(node, reply, now, &mut claims),
        }
        self.carry_out_claim(claims);
        self.carry_out_release(releases);
        self.keep_untaken();
    }

    fn fire(&mut self, of: Which, timer: CallTimer) {
        self.timers.remove(&(of, timer));
        if let (Which::Release, CallTimer::Node(node)) = (of, timer) {
            self.overdue.insert(node);
        }
        if timer != CallTimer::Call && (of == Which::Release || !self.is_pause(timer)) {
            self.late = self.late.saturating_sub(1);
        }
        if let (Which::Claim, CallTimer::Node(node)) = (of, timer)
            && self.is(Mutant::ReleaseAtLimit)
            && self.claiming().contains(node)
        {
            return self.reply(of, node, NodeReply::Claim(Err(Unknown::new("", Fault::Timeout, ""))));
        }
        let (now, mut claims, mut releases) = (Moment::default(), Vec::new(), Vec::new());
        match (of, &mut self.release) {
            (Which::Release, Some(release)) => release.on_timer(timer, now, &mut releases),
            _ => self.claim.on_timer(timer, now, &mut claims),
        }
        self.carry_out_claim(claims);
        self.carry_out_release(releases);
        self.keep_untaken();
    }

    fn keep_untaken(&mut self) {
        if self.is(Mutant::KeptUntaken) && matches!(self.caller, Caller::Notified { .. }) {
            self.claim.on_taken();
        }
    }

    fn drop_caller(&mut self) {
        self.caller = Caller::Gone;
        if !self.is(Mutant::SilentDrop) {
            let mut out = Vec::new();
            self.claim.on_dropped(Moment::default(), &mut out);
            self.carry_out_claim(out);
        }
    }

    fn take(&mut self) {
        let Caller::Notified { won } = self.caller else { return };
        if self.is(Mutant::WonGivesBack) {
            self.drop_caller();
        } else {
            self.claim.on_taken();
        }
        self.caller = if won { Caller::Holding } else { Caller::Gone };
    }

    fn release(&mut self) {
        self.caller = Caller::Gone;
        let claiming = if self.is(Mutant::ReleaseOvertakes) { NodeSet::new() } else { self.claiming() };
        let mut release = ReleaseCall::new(Arc::clone(&self.settings), plan(), claiming);
        let mut out = Vec::new();
        release.start(Moment::default(), &mut out);
        self.release = Some(release);
        self.carry_out_release(out);
    }
}
