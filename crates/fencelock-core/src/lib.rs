//! The core of fencelock: its types, its decisions, and the contract of a backend.
//!
//! This crate reads no clock, opens no socket and creates no random numbers: the time, the replies of servers and random
//! numbers are arguments. So production, table tests, property tests and exhaustive models use the same rules.
//!
//! | term | meaning | type |
//! |---|---|---|
//! | key | the name of a lock | [`Key`] |
//! | holder | one attempt to hold a key; new and random for every attempt | [`HolderId`], [`Holder`] |
//! | owner | the process of a holder; informational | [`Owner`] |
//! | ttl | how long a lease outlasts a holder that stops renewing it | [`Ttl`] |
//! | drift | how far two clocks may drift apart during a lease | [`Drift`] |
//! | lease | until when its holder may assume that it holds the lock | [`Lease`] |
//! | fencing token | a number that increases with every grant of a key | [`FencingToken`] |
//! | gate | the check of tokens at the receiver | [`FenceGate`] |
//! | claim | the request of one holder for a key | [`Claim`] |
//! | mode | exclusive, shared, or some permits of a semaphore | [`Mode`] |
//! | path | a file or a directory that is locked with what is below it | [`TreePath`] |
//! | holding | what a backend knows about a held key and its holders | [`Holding`], [`Holders`], [`WaiterInfo`] |
//! | scheme | the form of the URLs of a backend | [`Scheme`] |
//! | completion | the record of the latest success of the work of a key, which counts in the window of each caller | [`Completion`], [`once`] |
//! | leader | who holds the lock of an election | [`Leader`], [`LeaderHistory`] |
//! | key table | what a claim, a renewal and a release do to a key, as an implementation without I/O | [`KeyTable`] |
//! | event | a hint from a backend to waiters and holders | [`Event`] |
//! | fault | why the state is unknown | [`Unknown`] |
//! | register | one conditional write of a store, which is enough for a lock | [`register`] |
//! | round | one attempt to acquire a majority of nodes | [`Quorum`], [`Round`], [`Verdict`] |
//!
//! Types that may get more fields or variants are `#[non_exhaustive]`, and are created with `new` or
//! `default`. The answers to a claim, a renewal and a release and the modules [`engine`], [`quorum`] and [`register`] are not: a caller or a
//! driver must handle each of their cases, so a new one must break its build.
//!
//! With the feature `serde`, [`Key`], [`HolderId`] and [`FencingToken`] can be serialized; deserialization checks them like
//! their constructors.
//! The feature `clock` adds `BootClock`, the only implementation of [`Clock`] that reads a clock. All backends share it, and
//! nothing else in this crate uses it.
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
mod hand_off;
mod holder;
mod holders;
mod holding;
mod invalid;
mod key;
mod key_set;
mod key_table;
mod lease;
mod listeners;
mod manual_clock;
mod mastership;
mod mode;
mod occupant;
pub mod once;
pub mod quorum;
pub mod register;
mod registered_node;
mod renewal;
mod report;
mod request;
mod resize;
mod retry;
mod scheme;
mod span;
mod time;
mod tree_path;
mod trial;

pub use backend::{Answer, Backend, Capabilities, Response};
pub use block::{TokenBlock, next_block};
#[cfg(feature = "clock")]
pub use boot_clock::BootClock;
pub use claim::{Acquire, Claim, ClaimReply, Downgrade, Eviction, Intent, Occupied, Release, Renew, Renewal, Sent};
pub use connect_error::ConnectError;
pub use election::{Leader, LeaderHistory, Observation};
pub use event::{Event, Listener};
pub use fault::{Fault, NodeFault, Unknown};
pub use fence::FencingToken;
pub use fence_gate::{FenceGate, Superseded};
pub use hand_off::HandOffBounds;
pub use holder::{Holder, HolderId, Owner};
pub use holders::{HolderInfo, Holders, Liveness};
pub use holding::{Holding, WaiterInfo};
pub use invalid::Invalid;
#[doc(hidden)]
pub use invalid::is_slip;
pub use key::Key;
pub use key_set::KeySet;
pub use key_table::{ClockReading, KeyStep, KeyTable};
pub use lease::Lease;
pub use listeners::Listeners;
#[doc(hidden)]
pub use listeners::lock;
pub use manual_clock::ManualClock;
pub use mastership::{MasterLease, NamedMaster, eligible_masters, master_by_majority, named_masters, votes_for};
pub use mode::{Mode, Modes};
pub use occupant::{Expiry, Foreign, Occupant};
pub use once::{ClearCompletion, Completion, CompletionRead, CountedSuccess, Window, WriteCompletion};
pub use quorum::{
    Defeat, InspectionResult, NodeSet, NodeVote, Outcome, Quorum, Raise, Round, Seen, Tally, Verdict, Vote,
    next_proposed_block, quarantine, raise_fence,
};
pub use registered_node::{Change, RegisteredNode};
pub use renewal::{Due, LossReason, RenewalPlan};
pub use report::{BackendReport, ClockOffset, Feature, Finding, Level, ServerReport, Topology};
pub use request::{BoxFuture, Reply, Request};
pub use resize::{Resize, Resized};
pub use retry::{RetryPlan, jitter};
pub use scheme::{Connecting, Registering, Scheme, UrlForm, parse_url};
pub use span::Span;
pub use time::{Clock, Drift, Moment, Ttl};
pub use tree_path::TreePath;
#[doc(hidden)]
pub use tree_path::fnv1a;
pub use trial::{Trial, Tried};
