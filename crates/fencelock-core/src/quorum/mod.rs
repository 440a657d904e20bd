//! Redlock with fencing tokens, as state machines without I/O.
//!
//! A claim, a release, a batch of renewals and a downgrade are one [`Call`] each: [`ClaimCall`], [`ReleaseCall`], [`RenewCall`],
//! [`DowngradeCall`]. A driver sends their requests, sleeps, and reports the answers. [`NodeHealth`] says how long to wait for a node and whether to ask
//! it. Production and the simulation in `testing/chaos` drive the same calls.
//!
//! One attempt to hold a key on N nodes is a [`Round`] in the middle of a claim. All nodes are asked at once, every answer goes
//! to the round in whatever order they come, and the [`Verdict`] says what follows:
//!
//! 1. A majority of *equal* grants wins in one trip.
//! 2. A majority of different grants needs a second trip: the greatest of them is *raised* on the others, and a node acks
//!    only if it is still locked by this holder and its own grant is not beyond ([`raise_fence`]). A majority of acks wins.
//! 3. As soon as no majority can come about any more, the round is lost. The call then releases on **every** node, also
//!    where it got no answer. The client tries again with a fresh holder after a random pause.
//!
//! Why the tokens are ordered: an attempt that wins with F had, on a majority of nodes, an instant at which the node was
//! locked by this attempt, its fence was at least F, and its grant to this attempt at most F. Two winners share a node. If they
//! exclude each other, one of them left that node before it granted to the other, and that grant is above the fence. No clock
//! and no TTL is part of the argument.
//!
//! Shared claims follow the same rules. A node grants them beside each other, and none of them beside an exclusive one, so
//! two majorities exclude each other as on one node. Readers that claim at the same time may win the same token: they need no order
//! among themselves. A reader that begins after another has won gets a greater one. A [`DowngradeCall`] draws a new token in the same
//! way, without a moment in which a node is free.
//!
//! Blocks of tokens ([`crate::TokenBlock`]) are compared by their ends, which are the fences. An attempt that wins *in one
//! trip* may use as many tokens as the smallest of the equal grants had: at the node shared with an earlier winner the whole of
//! this block lies above the fence that was there before, so above all of the earlier winner's tokens; and a later winner's
//! block lies above this end. After a *raise* only the one token counts: a node that was raised may have granted less, and
//! what lies between its grant and the raised fence may be an earlier winner's.
//!
//! Once held, a [`Tally`] counts what the nodes say to a renewal or a release, and an [`Inspection`] who they say has it.
//!
//! Source of the algorithm without fences: "Distributed Locks with Redis" in the Redis documentation. What was searched
//! exhaustively over this code, and what was not: `docs/en/verification.md`.

mod call;
mod claim_call;
mod completion_votes;
mod count;
mod downgrade_call;
mod inspection;
mod node_health;
mod node_set;
mod proposed;
mod quorum_node;
mod raise;
mod raises;
mod release_call;
mod renew_call;
mod round;
mod settings;
mod size;
mod tally;
mod vote;

#[cfg(test)]
mod round_tests;

pub use call::{Call, CallAction, CallTimer, NodePlan, NodeReply, NodeRequest};
pub use claim_call::ClaimCall;
pub use completion_votes::{CompletionVerdict, CompletionVotes};
pub use downgrade_call::DowngradeCall;
pub use inspection::{Inspection, InspectionResult, Seen};
pub use node_health::{HealthChange, NodeHealth, left_out};
pub use node_set::NodeSet;
pub use proposed::next_proposed_block;
pub use quorum_node::QuorumNode;
pub use raise::{Raise, raise_fence};
pub use release_call::{PATIENCE, ReleaseCall};
pub use renew_call::RenewCall;
pub use round::{Defeat, Round, Verdict};
pub use settings::{Settings, proposal};
pub use size::{Quorum, quarantine};
pub use tally::{NodeAnswer, Outcome, Tally};
pub use vote::Vote;
