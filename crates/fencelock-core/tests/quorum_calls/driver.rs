//! Carries out the actions of the calls in a world where nothing moves by itself.

use crate::world::{Caller, Mutant, Packet, Which, World};
use fencelock_core::quorum::{CallAction, CallTimer, NodeReply, NodeRequest};
use fencelock_core::{Acquire, Release, Unknown};

impl World {
    pub(crate) fn carry_out_claim(&mut self, out: Vec<CallAction<Result<Acquire, Unknown>>>) {
        for action in out {
            if let Some(result) = self.carry_out(Which::Claim, action)
                && self.caller == Caller::Waiting
            {
                self.caller = Caller::Notified { won: matches!(result, Ok(Acquire::Granted { .. })) };
            }
        }
    }

    pub(crate) fn carry_out_release(&mut self, out: Vec<CallAction<Result<Release, Unknown>>>) {
        for action in out {
            self.carry_out(Which::Release, action);
        }
    }

    fn carry_out<T>(&mut self, of: Which, action: CallAction<T>) -> Option<T> {
        match action {
            CallAction::Send { node, request } => self.send(of, node, request),
            CallAction::Cancel(timer) => self.packets.retain(|packet| packet.of != of || timer_of(packet) != timer),
            CallAction::SetTimer { timer, after: Some(_) } => {
                self.timers.insert((of, timer));
            }
            CallAction::SetTimer { timer, after: None } => {
                self.timers.remove(&(of, timer));
            }
            CallAction::Health { .. } => {}
            CallAction::Done(result) => return Some(result),
        }
        None
    }

    fn send(&mut self, of: Which, node: usize, request: NodeRequest) {
        let unseen = request == NodeRequest::Release && !self.seen.contains(node);
        // As if the node had answered at once.
        let reply = (self.is(Mutant::ReleaseOnlySeen) && unseen).then_some(NodeReply::Release(Ok(Release::Absent)));
        self.packets.push(Packet { of, node, request, reply });
        // Their order means nothing.
        self.packets.sort_by_key(|packet| (packet.of, packet.node, timer_of(packet)));
    }
}

fn timer_of(packet: &Packet) -> CallTimer {
    match packet.request {
        NodeRequest::Raise(_) => CallTimer::Raise(packet.node),
        _ => CallTimer::Node(packet.node),
    }
}
