//! The ground floor of fencelock: its words, its decisions, and the contract of a backend.
//!
//! No decision here reads a clock, opens a socket or draws a random number: the time, the answers of servers and every random number
//! come in as arguments. That is what lets one set of rules serve production, table tests, property tests and
//! exhaustive models alike.
//!
//! | word | meaning | where |
//! |---|---|---|
//! | key | what is locked, a name that all parties agree on | [`Key`] |
//! | holder | one attempt to hold a key; fresh and random for every attempt | [`HolderId`], [`Holder`] |
//! | owner | who stands behind a holder, for people to read | [`Owner`] |
//! | ttl | how long a lease outlives a holder that stops renewing it | [`Ttl`] |
//! | drift | how far two clocks may part while a lease runs | [`Drift`] |
//! | lease | until when its holder may believe that it holds | [`Lease`] |
//! | fencing token | a number that grows with every grant of a key | [`FencingToken`] |
//! | gate | the receiver's side of it | [`FenceGate`] |
//! | claim | one holder's request for a key | [`Claim`] |
//! | mode | exclusive, shared, or some permits of a semaphore | [`Mode`] |
//! | holding | what a backend knows of a held key and its holders | [`Holding`], [`Holders`] |
//! | scheme | how URLs name a kind of place | [`Scheme`] |
//! | leader | who holds the lock of an election | [`Leader`], [`LeaderHistory`] |
//! | event | a hint from a backend to whoever waits or holds | [`Event`] |
//! | fault | why a backend could not tell | [`Unknown`] |
//! | round | one attempt to get a majority of nodes | [`Quorum`], [`Round`], [`Verdict`] |
//!
//! Types that describe something to people or may learn to say more are `#[non_exhaustive]`, and are made with `new` or
//! `default`. The answers to a claim, a renewal and a release and the decisions of a quorum are not: each of them must be
//! acted upon, so whoever matches on them wants the compiler to show a new one.
//!
//! With the feature `serde`, [`Key`], [`HolderId`] and [`FencingToken`] can be stored and sent; what is read is checked as
//! by their constructors. The feature `clock` adds `BootClock`, the one implementation of [`Clock`] that reads a clock. All
//! places share it, and nothing else in this crate uses it.
//!
//! ```
//! use fencelock_core::{Drift, Lease, Moment, Ttl};
//! use std::time::Duration;
//!
//! // A lease counts from just before its request was sent, and ends early by the drift of the clocks.
//! let sent = Moment::from_micros(1_000_000);
//! let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
//! let lease = Lease::granted(sent, ttl.get(), Drift::default());
//! assert_eq!(lease.remaining(sent), Duration::from_millis(10_000 - 102));
//! ```
#![forbid(unsafe_code)]

mod backend;
mod block;
#[cfg(feature = "clock")]
mod boot_clock;
mod claim;
mod connect_error;
mod election;
pub mod engine;
mod event;
mod fault;
mod fence;
mod fence_gate;
mod finding;
mod hand_off;
mod health;
mod holder;
mod holders;
mod holding;
mod invalid;
mod key;
mod lease;
mod listeners;
mod manual_clock;
mod mode;
pub mod quorum;
mod registered_node;
mod renewal;
mod retry;
mod scheme;
#[cfg(feature = "serde")]
mod serial;
mod side_key;
mod span;
mod time;

pub use backend::{Answer, Backend, BoxFuture, Capabilities};
pub use block::{TokenBlock, next_block};
#[cfg(feature = "clock")]
pub use boot_clock::BootClock;
pub use claim::{Acquire, Claim, Eviction, Intent, Occupied, Release, Renew, Renewal};
pub use connect_error::ConnectError;
pub use election::{Leader, LeaderHistory, Observation};
pub use event::{Event, Listener};
pub use fault::{Fault, NodeFault, Unknown};
pub use fence::FencingToken;
pub use fence_gate::{FenceGate, Superseded};
pub use finding::{Finding, Level};
pub use hand_off::PlaceInLine;
pub use health::{ClockOffset, Health};
pub use holder::{Holder, HolderId, Owner};
pub use holders::{HolderInfo, Holders};
pub use holding::{Expiry, Foreign, Holding, Occupant};
pub use invalid::Invalid;
pub use key::Key;
pub use lease::Lease;
pub use listeners::Listeners;
pub use manual_clock::ManualClock;
pub use mode::{Mode, Modes};
pub use quorum::{
    Defeat, Inspection, NodeSet, Outcome, Quorum, QuorumNode, Raise, Round, Seen, Sight, Standing, Tally, Verdict,
    Vote, next_proposed_block, quarantine, raise_fence,
};
pub use registered_node::{Change, RegisteredNode};
pub use renewal::{Due, LossReason, RenewalPlan};
pub use retry::{RetryPlan, jitter};
pub use scheme::{BenchSite, Connecting, Scheme, UrlForm};
pub use side_key::{SideKeys, key_of_side_key, side_key};
pub use span::Span;
pub use time::{Clock, Drift, Moment, Ttl};
