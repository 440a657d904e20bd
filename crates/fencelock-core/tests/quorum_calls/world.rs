use crate::act::Act;
use crate::model::Model;
use fencelock_core::quorum::{
    Call as _, CallTimer, ClaimCall, NodePlan, NodeReply, NodeRequest, ReleaseCall, Settings,
};
use fencelock_core::{Claim, Drift, Holder, HolderId, Intent, Key, Moment, NodeSet, Owner, Quorum, Ttl};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a node knows before the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Free,
    /// Its fence is beyond what will be proposed, so its grant differs from those of others.
    Ahead,
    Taken,
}

/// A rule that the driver breaks: the calls are given something else, or their actions are not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mutant {
    /// A claim is reported as ended when its limit has passed.
    ReleaseAtLimit,
    /// A caller that is gone is not reported.
    SilentDrop,
    /// A result counts as taken as soon as it is there.
    KeptUntaken,
    /// A release does not know the claims in flight.
    ReleaseOvertakes,
    /// A result that was taken is reported as dropped.
    WonGivesBack,
    /// A release is sent only where a grant was reported.
    ReleaseOnlySeen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lock {
    Free,
    Ours,
    Other,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Node {
    pub(crate) lock: Lock,
    pub(crate) fence: u64,
}

impl Node {
    /// The fence of its grant to this claim, which no other client has raised.
    pub(crate) fn granted(&self) -> Option<u64> {
        (self.lock == Lock::Ours).then_some(self.fence)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Which {
    Claim,
    Release,
}

/// A request on its way, or its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    pub(crate) of: Which,
    pub(crate) node: usize,
    pub(crate) request: NodeRequest,
    pub(crate) reply: Option<NodeReply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Waiting,
    /// The result is there: whether the call was won.
    Notified {
        won: bool,
    },
    Holding,
    Gone,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct World {
    pub(crate) settings: Arc<Settings>,
    pub(crate) claim: ClaimCall,
    pub(crate) release: Option<ReleaseCall>,
    pub(crate) nodes: [Node; 3],
    pub(crate) packets: Vec<Packet>,
    pub(crate) timers: BTreeSet<(Which, CallTimer)>,
    pub(crate) caller: Caller,
    /// Where a grant was reported.
    pub(crate) seen: NodeSet,
    /// Where the release call has given up once to wait. It does not repeat a release: what a node does not carry out for
    /// seconds is left to the end of its lease, and no lease ends here.
    pub(crate) overdue: NodeSet,
    pub(crate) late: u8,
    pub(crate) mutant: Option<Mutant>,
}

impl World {
    pub(crate) fn new(before: [Before; 3], mutant: Option<Mutant>, late: u8) -> Self {
        let settings = settings();
        let holder = Holder { id: HolderId::from_bytes([1; 16]), owner: Owner::from_text("") };
        let claim = Claim::new(Key::new("k").unwrap(), holder, Ttl::default(), Intent::Enqueue);
        let node = |before| match before {
            Before::Free => Node { lock: Lock::Free, fence: 0 },
            Before::Ahead => Node { lock: Lock::Free, fence: 10 },
            Before::Taken => Node { lock: Lock::Other, fence: 0 },
        };
        let claim = ClaimCall::new(Arc::clone(&settings), &claim, plan(), Moment::default());
        let mut world = Self {
            settings,
            claim,
            release: None,
            nodes: before.map(node),
            packets: Vec::new(),
            timers: BTreeSet::new(),
            caller: Caller::Waiting,
            seen: NodeSet::new(),
            overdue: NodeSet::new(),
            late,
            mutant,
        };
        let mut out = Vec::new();
        world.claim.start(Moment::default(), &mut out);
        world.carry_out_claim(out);
        world
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The nodes that a claim is under way to.
    pub(crate) fn claiming(&self) -> NodeSet {
        let claims = self.packets.iter().filter(|packet| packet.request == NodeRequest::Claim);
        claims.map(|packet| packet.node).collect()
    }

    fn ours(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.lock == Lock::Ours).map(|(number, _)| number)
    }
}

impl Model for World {
    type Act = Act;

    fn acts(&self) -> Vec<Act> {
        self.possible()
    }

    fn act(&mut self, act: Act) {
        self.happen(act);
    }

    fn check(&self) -> Result<(), String> {
        if self.caller == Caller::Holding && self.ours().count() < self.settings.size.majority() {
            return Err("a majority must have the lock of a call that was won and taken".to_owned());
        }
        Ok(())
    }

    /// Nothing happens any more.
    fn check_end(&self) -> Result<(), String> {
        if !self.claim.is_over() {
            return Err("the claim never ends".to_owned());
        }
        if self.release.as_ref().is_some_and(|release| !release.is_over()) {
            return Err("the release never ends".to_owned());
        }
        self.ours().next().map_or(Ok(()), |node| Err(format!("node {node} keeps a lock without a holder")))
    }

    fn is_raising(&self) -> bool {
        self.packets.iter().any(|packet| matches!(packet.request, NodeRequest::Raise(_)))
    }

    fn is_released(&self) -> bool {
        self.release.is_some()
    }
}

/// Three nodes.
pub(crate) fn settings() -> Arc<Settings> {
    Arc::new(Settings {
        size: Quorum::new(3).unwrap(),
        drift: Drift::default(),
        expires: true,
        names: Vec::new(),
        backend: String::new(),
        shortest_limit: Duration::from_millis(100),
    })
}

pub(crate) fn plan() -> Vec<NodePlan> {
    vec![NodePlan { limit: Duration::from_millis(100), left_out: None }; 3]
}
