//! Fencing tokens on N nodes: what exists, which steps are possible, and what must never be.
//!
//! A claim runs on a node late, never or twice, and so does a raise; every answer may be lost. A hold may vanish at any
//! moment, whether it expired, was released, or a clock jumped. There is no time unless [`Scope::time`] brings it.
//!
//! Some attempts read, the others write. A node holds any number of readers or one writer, and keeps the fence of each grant.
//!
//! What a client makes of the answers is decided by [`Round`], what a node makes of a claim or a raise by [`next_proposed_block`]
//! and [`raise_fence`]: the code that runs in production.

mod client;
mod node;
mod words;

use crate::search::{Model, least};
use fencelock_core::Quorum;
use std::hash::{Hash, Hasher};

pub(crate) const ATTEMPTS: usize = 3;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) attempts: u8,
    /// How many of them read. The others write.
    pub(crate) readers: u8,
    /// What a client may propose; without clocks, anything.
    pub(crate) proposals: &'static [u8],
    /// The number of tokens that a claim requests. A node may grant fewer.
    pub(crate) block: u8,
    /// How many claims may run a second time on a node.
    pub(crate) spare_runs: u8,
    /// Validity is checked and clocks keep within the drift: a lock vanishes only when its attempt is over or past its TTL.
    pub(crate) leases: bool,
    /// How many times a node may forget.
    pub(crate) crashes: u8,
    /// A node that forgets may also fall back to any older fence.
    pub(crate) partial: bool,
    pub(crate) time: Option<Time>,
}

/// Clocks: a grant proposes anything within `error` of the time, the node's clock and the clamp taken together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) error: u8,
    /// The length of the quarantine.
    pub(crate) quarantine: u8,
    /// When the search ends.
    pub(crate) horizon: u8,
}

/// One rule that is broken on purpose. The search must detect it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// The greatest fence of a majority is the token, without a raise.
    NoRaise,
    /// The greatest fence that a majority is known to have reached is the token, without a raise.
    CountsReached,
    /// A node acks a raise for any holder.
    AcksForAnybody,
    /// A node acks a raise although its fence is beyond.
    AcksBelowItsFence,
    /// The same, and only nodes that granted receive a raise.
    AcksBelowItsFenceIfGranted,
    /// A node acks a raise unless its fence is beyond, regardless of who raised it: the rule of exclusive locks.
    RefusesBelowTheFence,
    /// After a raise the client uses as many tokens as it wanted.
    BlockAfterRaise,
    /// Of equal grants with blocks of different sizes, the client uses the greatest.
    GreatestBlock,
    /// The client's proposal is drawn once, and the node does not clamp it to its own time.
    ClientClock,
    /// A node runs two scripts on a key within one tick.
    TwoGrantsATick,
    /// Two servers both act as the master.
    TwoMasters,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Claiming,
    Raising,
    Won,
    GivenUp,
}

/// What came of an attempt that must not: bits of [`Attempt::broken`].
pub(crate) mod breach {
    /// One of its tokens is not above those of one that had won before it began.
    pub(crate) const ORDER: u8 = 1;
    /// One of its tokens is that of another with which it never holds together.
    pub(crate) const UNIQUE: u8 = 2;
    /// One of its tokens is below one of such an attempt that won before it.
    pub(crate) const COMPLETION: u8 = 4;
    /// One of its tokens is another reader's. That is allowed.
    pub(crate) const SAME_AS_A_READER: u8 = 8;
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) reads: bool,
    pub(crate) stage: Stage,
    pub(crate) proposal: u8,
    /// The greatest token won before it began.
    pub(crate) floor: u8,
    /// What it raises to, or the last it has won.
    pub(crate) token: u8,
    /// How many it has won before that.
    pub(crate) more: u8,
    /// Its TTL less the drift has passed since it was sent.
    pub(crate) late: bool,
    pub(crate) broken: u8,
}

/// A fence granted, and how many tokens more end with it, in one byte; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Granted(u8);

impl Granted {
    pub(crate) fn new(fence: u8, more: u8) -> Self {
        assert!(fence < 64 && more < 4, "a small model has small numbers");
        Self(fence | more << 6)
    }

    pub(crate) fn fence(self) -> u8 {
        self.0 & 63
    }

    pub(crate) fn more(self) -> u8 {
        self.0 >> 6
    }

    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// Between one node and one attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Link {
    pub(crate) runs: u8,
    /// What was granted, the answers under way: see [`Granted`].
    pub(crate) grants: [Granted; 2],
    /// A raise was sent.
    pub(crate) raising: bool,
    /// It was acked, the answer is under way; or the claim was granted with the very fence that the others are raised to.
    pub(crate) acked: bool,
    /// The fence of the hold on this node: what was granted, or what it was raised to; 0 if there is none.
    pub(crate) held: u8,
}

impl Hash for Link {
    /// One word instead of six: hashing is most of a search.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [first, second] = self.grants;
        let bytes = [self.runs, first.0, second.0, self.raising.into(), self.acked.into(), self.held, 0, 0];
        state.write_u64(u64::from_le_bytes(bytes));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Node {
    pub(crate) fence: u8,
    /// The end of its quarantine.
    pub(crate) until: u8,
    /// It has run a script in this tick.
    pub(crate) ran: bool,
    pub(crate) links: [Link; ATTEMPTS],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct State<const N: usize> {
    pub(crate) attempts: [Attempt; ATTEMPTS],
    pub(crate) nodes: [Node; N],
    pub(crate) time: u8,
    pub(crate) crashes: u8,
    pub(crate) spare_runs: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action<const N: usize> {
    Begin(u8, u8),
    /// A node runs a claim: attempt, node, proposal, and the most tokens it gives.
    Run(u8, u8, u8, u8),
    /// A client has these answers in hand, and its grace is over.
    Decide(u8, [Granted; N]),
    /// The answer to a claim arrives after the raise was sent.
    ReceiveLate(u8, u8),
    RunRaise(u8, u8),
    /// A majority of acks has arrived.
    Finish(u8),
    TtlPasses(u8),
    GiveUp(u8),
    /// The hold of an attempt on a node vanishes.
    Vanish(u8, u8),
    /// A node falls back to this fence.
    Forget(u8, u8),
    Tick,
}

/// The landmarks that a search must reach; otherwise its result proves nothing.
pub(crate) mod landmark {
    pub(crate) const ALL_WON: u32 = 1;
    pub(crate) const WON_BY_RAISE: u32 = 1 << 1;
    /// A claim ran when its attempt was over, and locked the node.
    pub(crate) const ORPHAN: u32 = 1 << 2;
    /// A claim was granted twice by one node, with two fences.
    pub(crate) const GRANTED_TWICE: u32 = 1 << 3;
    /// An attempt won after a node had forgotten.
    pub(crate) const WON_AFTER_LOSS: u32 = 1 << 4;
    /// A grant that arrived after the raise was sent counted as its ack.
    pub(crate) const LATE_VOTE: u32 = 1 << 5;
    /// An attempt won more than one token.
    pub(crate) const WON_SEVERAL: u32 = 1 << 6;
    /// A node granted to a reader while another one held it.
    pub(crate) const BESIDE: u32 = 1 << 7;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences<const N: usize> {
    pub(crate) scope: Scope,
    pub(crate) flaw: Option<Flaw>,
}

impl<const N: usize> State<N> {
    pub(crate) fn broken(&self) -> u8 {
        self.attempts.iter().fold(0, |all, attempt| all | attempt.broken)
    }

    pub(crate) fn link(&self, who: u8, node: u8) -> &Link {
        &self.nodes[usize::from(node)].links[usize::from(who)]
    }

    /// Whether these two never hold together.
    pub(crate) fn exclude(&self, one: usize, other: usize) -> bool {
        one != other && !(self.attempts[one].reads && self.attempts[other].reads)
    }

    /// Whether this attempt would have the node, together with its present holders.
    pub(crate) fn has_room(&self, who: u8, node: u8) -> bool {
        let others = self.nodes[usize::from(node)].links.iter().enumerate();
        !others.clone().any(|(other, link)| link.held > 0 && self.exclude(who.into(), other))
    }

    /// The attempts that hold on this node.
    pub(crate) fn holders(&self, node: u8) -> impl Iterator<Item = u8> {
        (0..).zip(&self.nodes[usize::from(node)].links).filter(|(_, link)| link.held > 0).map(|(who, _)| who)
    }

    /// A raise of a reader would be refused although its own grant is not beyond, because another reader has raised the fence.
    pub(crate) fn refuses_for_a_reader(&self) -> bool {
        let raising = |who: usize| self.attempts[who].stage == Stage::Raising && self.attempts[who].reads;
        let refused = |node: &Node, who: usize| {
            let (link, token) = (node.links[who], self.attempts[who].token);
            link.raising && !link.acked && link.held > 0 && link.held <= token && node.fence > token
        };
        self.nodes.iter().any(|node| (0..ATTEMPTS).any(|who| raising(who) && refused(node, who)))
    }
}

impl<const N: usize> Fences<N> {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn quorum(&self) -> Quorum {
        Quorum::new(if self.has(Flaw::TwoMasters) { 1 } else { N }).expect("a few nodes")
    }
}

impl<const N: usize> Model for Fences<N> {
    type State = State<N>;
    type Action = Action<N>;

    fn initial(&self) -> State<N> {
        let reads = |who: usize| who < usize::from(self.scope.readers);
        State {
            attempts: std::array::from_fn(|who| Attempt { reads: reads(who), ..Attempt::default() }),
            nodes: [Node::default(); N],
            time: 0,
            crashes: self.scope.crashes,
            spare_runs: self.scope.spare_runs,
        }
    }

    fn actions(&self, state: &State<N>, into: &mut Vec<Action<N>>) {
        if self.scope.time.is_some_and(|time| state.time < time.horizon) {
            into.push(Action::Tick);
        }
        for who in 0..self.scope.attempts {
            self.client_actions(state, who, into);
        }
        self.node_actions(state, into);
    }

    fn next(&self, state: &State<N>, action: Action<N>) -> State<N> {
        let mut next = *state;
        match action {
            Action::Run(who, node, proposal, block) => self.run(&mut next, who, node, proposal, block),
            Action::RunRaise(who, node) => self.run_raise(&mut next, who, node),
            Action::Vanish(who, node) => next.nodes[usize::from(node)].links[usize::from(who)].held = 0,
            Action::Forget(node, fence) => self.forget(&mut next, node, fence),
            Action::Tick => next.tick(),
            _ => self.client_step(&mut next, action),
        }
        next
    }

    fn reduced(&self, state: State<N>) -> State<N> {
        let (attempts, nodes) = least(state.attempts, state.nodes, self.scope.attempts.into(), |node| &mut node.links);
        State { attempts, nodes, ..state }
    }

    fn landmarks(&self, before: &State<N>, action: Action<N>, after: &State<N>) -> u32 {
        let won = |state: &State<N>| state.attempts.iter().filter(|attempt| attempt.stage == Stage::Won).count();
        let mut reached = 0;
        if after.attempts.iter().any(|attempt| attempt.stage == Stage::Won && attempt.more > 0) {
            reached |= landmark::WON_SEVERAL;
        }
        if won(after) > won(before) {
            let all = won(after) == usize::from(self.scope.attempts);
            let lost = self.scope.crashes > after.crashes;
            reached |= if all { landmark::ALL_WON } else { 0 } | if lost { landmark::WON_AFTER_LOSS } else { 0 };
        }
        match action {
            Action::Finish(_) => reached | landmark::WON_BY_RAISE,
            Action::ReceiveLate(..) => reached | landmark::LATE_VOTE,
            Action::Run(who, node, ..) => {
                let over = matches!(before.attempts[usize::from(who)].stage, Stage::Won | Stage::GivenUp);
                let granted = before.link(who, node).held == 0;
                let twice = before.link(who, node).runs > 0 && granted;
                let beside = granted && before.holders(node).next().is_some();
                reached |= if over { landmark::ORPHAN } else { 0 } | if beside { landmark::BESIDE } else { 0 };
                reached | if twice { landmark::GRANTED_TWICE } else { 0 }
            }
            _ => reached,
        }
    }

    fn describe(&self, before: &State<N>, action: Action<N>, after: &State<N>) -> String {
        words::describe(self, before, action, after)
    }
}
