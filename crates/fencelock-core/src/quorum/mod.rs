//! Redlock with fencing tokens: what the replies of N nodes mean. `fencelock-redis` sends the requests, and waits.
//!
//! A [`Round`] is one attempt to acquire a key on N nodes. The claim is sent to all nodes at once, the round counts the replies
//! in the order of arrival, and its [`Verdict`] is the next step:
//!
//! 1. A majority of *equal* grants wins in one round trip.
//! 2. After a majority of different grants, a second round trip *raises* the other nodes to the greatest of them. A
//!    node acks if this holder still has the lock and was granted no greater fence ([`raise_fence`]). A majority of acks
//!    wins.
//! 3. The round is lost as soon as no majority is possible. Then **every** node is released, even those that did not answer.
//!    The client tries again with a new holder id after a random pause.
//!
//! Why the tokens are ordered: if an attempt wins with F, there was a moment on each node of a majority when this
//! attempt had the lock, the fence was at least F, and the grant to this attempt was at most F. Two winners share a
//! node. If they exclude each other, one of them no longer had that node when it granted to the other, and the later
//! grant is above the fence. The argument depends on no clock and no TTL.
//!
//! Shared claims follow the same rules. A node grants them together, but not together with an exclusive one, so two
//! majorities exclude each other as on one node. Readers that claim at the same time may win the same token: readers
//! need no order. A reader that begins after another has won gets a greater token. A downgrade gets a new token
//! in the same way, and no node is free for a moment.
//!
//! Blocks of tokens ([`crate::TokenBlock`]) are compared by their ends, which are the fences. An attempt that wins *in one
//! round trip* may use as many tokens as the smallest of the equal grants has: on the node shared with an earlier
//! winner, this whole block is above the previous fence, and so above all tokens of the earlier winner; and the block
//! of a later winner is above the end of this one. After a *raise*, only the last token counts: the raised node may
//! have granted less, and the tokens between its grant and the raised fence may belong to an earlier winner.
//!
//! [`ClaimVotes`] and [`HoldVotes`] turn replies into votes and the result of a call. A [`Tally`] counts the replies to a renewal or a
//! release, and an [`InspectionResult`] combines what the nodes report about a key. [`NodeHealth`] says how long to wait for a node and
//! whether to use it.
//!
//! Source of the algorithm without fences: "Distributed Locks with Redis" in the Redis documentation.
//! `docs/en/verification.md` lists the exhaustive searches of this code, and what they do not cover.
//!
//! Exhaustive: no type of this module is `#[non_exhaustive]`. A caller handles every verdict and decides on every setting, so a new
//! one must break its build.

mod claim_votes;
mod completion_verdict;
mod config;
mod hold_votes;
mod inspection;
mod node_health;
mod node_set;
mod proposed;
mod raise;
mod round;
mod size;
mod tally;
mod vote;

#[cfg(test)]
mod round_tests;

pub use claim_votes::ClaimVotes;
pub use completion_verdict::CompletionVerdict;
pub use config::QuorumConfig;
pub use hold_votes::{HoldReply, HoldVotes};
pub use inspection::{InspectionResult, Seen};
pub use node_health::{HealthChange, NodeHealth, NodePlan, REPLY_TIMEOUT, left_out, renewal_limit};
pub use node_set::NodeSet;
pub use proposed::{next_proposed_block, proposal};
pub use raise::{Raise, raise_fence};
pub use round::{Defeat, Round, Verdict};
pub use size::{Quorum, quarantine};
pub use tally::{NodeVote, Outcome, Tally};
pub use vote::Vote;
