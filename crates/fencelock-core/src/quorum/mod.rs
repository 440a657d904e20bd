//! Redlock with fencing tokens, as state machines without I/O.
//!
//! A claim, a release, a batch of renewals and a downgrade are one [`Call`] each: [`ClaimCall`], [`ReleaseCall`],
//! [`RenewCall`], [`DowngradeCall`]. A driver sends their requests, sleeps, and reports the replies. [`NodeHealth`]
//! says how long to wait for a node and whether to use it. Production and the simulation in `testing/chaos` drive the
//! same calls.
//!
//! A [`Round`] is one attempt to acquire a key on N nodes, as a part of a claim. The claim is sent to all nodes at
//! once, the round counts the replies in the order of arrival, and its [`Verdict`] is the next step:
//!
//! 1. A majority of *equal* grants wins in one round trip.
//! 2. After a majority of different grants, a second round trip *raises* the other nodes to the greatest of them. A
//!    node acks if this holder still has the lock and was granted no greater fence ([`raise_fence`]). A majority of acks
//!    wins.
//! 3. The round is lost as soon as no majority is possible. The call then releases on **every** node, even on those
//!    that did not answer. The client tries again with a new holder id after a random pause.
//!
//! Why the tokens are ordered: if an attempt wins with F, there was a moment on each node of a majority when this
//! attempt had the lock, the fence was at least F, and the grant to this attempt was at most F. Two winners share a
//! node. If they exclude each other, one of them no longer had that node when it granted to the other, and the later
//! grant is above the fence. The argument depends on no clock and no TTL.
//!
//! Shared claims follow the same rules. A node grants them together, but not together with an exclusive one, so two
//! majorities exclude each other as on one node. Readers that claim at the same time may win the same token: readers
//! need no order. A reader that begins after another has won gets a greater token. A [`DowngradeCall`] gets a new token
//! in the same way, and no node is free for a moment.
//!
//! Blocks of tokens ([`crate::TokenBlock`]) are compared by their ends, which are the fences. An attempt that wins *in one
//! round trip* may use as many tokens as the smallest of the equal grants has: on the node shared with an earlier
//! winner, this whole block is above the previous fence, and so above all tokens of the earlier winner; and the block
//! of a later winner is above the end of this one. After a *raise*, only the last token counts: the raised node may
//! have granted less, and the tokens between its grant and the raised fence may belong to an earlier winner.
//!
//! A [`Tally`] counts the replies to a renewal or a release, and an [`Inspection`] combines what the nodes report about
//! a key.
//!
//! Source of the algorithm without fences: "Distributed Locks with Redis" in the Redis documentation.
//! `docs/en/verification.md` lists the exhaustive searches of this code, and what they do not cover.
//!
//! Exhaustive: no type of this module is `#[non_exhaustive]`. A driver has to handle every request, reply and verdict and to
//! decide on every setting, so a new one must break the build of each driver.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `claim_call`, `release_call`, `renew_call`, `downgrade_call` | the calls to all nodes |
//! | `round`, `tally` | from votes to a verdict; renewals, releases and downgrades |
//! | `node_health` | time limits, and which node is left out |
//! | `raise`, `raises`, `proposed` | the second round trip, those in flight, bounds of a proposal |
//! | `inspection` | what most nodes report |

mod call;
mod claim_call;
mod completion_votes;
mod count;
mod downgrade_call;
mod inspection;
mod node_health;
mod node_set;
mod proposed;
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
pub use proposed::{next_proposed_block, proposal};
pub use raise::{Raise, raise_fence};
pub use release_call::{REPLY_TIMEOUT, ReleaseCall};
pub use renew_call::RenewCall;
pub use round::{Defeat, Round, Verdict};
pub use settings::Settings;
pub use size::{Quorum, quarantine};
pub use tally::{NodeVote, Outcome, Tally};
pub use vote::Vote;
