//! Redlock with fencing tokens, as decisions only: votes go in, a verdict comes out.
//!
//! One attempt to hold a key on N nodes is a [`Round`]. Its driver asks all nodes at once, feeds every answer to the
//! round in whatever order they come, and does what the [`Verdict`] says:
//!
//! 1. A majority of *equal* grants wins in one trip.
//! 2. A majority of different grants needs a second trip: the greatest of them is *raised* on the others, and a node acks
//!    only if it is still locked by this holder and its fence is not beyond ([`raise_fence`]). A majority of acks wins.
//! 3. As soon as no majority can come about any more, the round is lost. The driver then releases on **every** node, also
//!    where it got no answer, and tries again with a fresh holder after a random pause.
//!
//! Why the tokens are ordered: whoever wins with F had, on a majority of nodes, an instant at which the node was locked by
//! this very attempt and its fence was F. Two winners share a node, and between their instants there that node granted at
//! least once, which made its fence greater. No clock and no TTL is part of the argument.
//!
//! Blocks of tokens ([`crate::TokenBlock`]) are compared by their ends, which are the fences. Whoever wins *in one trip*
//! may use as many tokens as the smallest of the equal grants had: at the node shared with an earlier winner the whole of
//! this block lies above the fence that was there before, so above all of the earlier winner's tokens; and a later winner's
//! block lies above this end. After a *raise* only the one token counts: a node that was raised may have granted less, and
//! what lies between its grant and the raised fence may be an earlier winner's.
//!
//! Once held, a [`Tally`] counts what the nodes say to a renewal or a release, and an [`Inspection`] who they say has it.
//!
//! Source of the algorithm without fences: "Distributed Locks with Redis" in the Redis documentation. What was searched
//! exhaustively over this code, and what was not: `docs/en/verification.md`.

mod inspection;
mod node_set;
mod proposed;
mod quorum_node;
mod raise;
mod round;
mod size;
mod tally;
mod vote;

#[cfg(test)]
mod round_tests;

pub use inspection::{Inspection, Seen, Sight};
pub use node_set::NodeSet;
pub use proposed::next_proposed_block;
pub use quorum_node::QuorumNode;
pub use raise::{Raise, raise_fence};
pub use round::{Defeat, Round, Verdict};
pub use size::{Quorum, quarantine};
pub use tally::{Outcome, Standing, Tally};
pub use vote::Vote;
