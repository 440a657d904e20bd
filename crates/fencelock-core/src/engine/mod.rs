//! The client as a deterministic state machine, one [`KeyEngine`] for each key and mode.
//!
//! Tasks of one client that acquire the same key wait in one queue and share one claim. The first of them, the
//! *leader*, claims the key on the backend, like a single task would. Once it has the key, the lease is passed from task
//! to task without the network, in the order of their arrival. Each task has a fencing token of its own, from the block
//! that was granted with the claim. The server sees one holder throughout.
//!
//! - If the first task requests another TTL or owner than the lease has, it claims for itself.
//! - A lease that is lost, detached or has less than half of its time left is not passed on; the next task claims.
//! - Several leases of permits are passed on at the same time, and several tasks claim more of them.
//! - Other clients are served when they wait: renewals report whether there are any, and after a bounded batch the lease is
//!   released. If the backend cannot report waiters, the lease is released after a bounded time.
//!
//! The engine returns for each task what to send and how long to wait: a [`TaskStep`]. [`LeaseTimers`], [`RenewalPass`] and [`RenewalBatch`] plan the renewals of all keys of a client, and
//! [`Releases`] its releases in the background, and who sends them. A driver has all of them, with the locks that it needs.
//!
//! The engine has no clock, no socket, no mutex and no task. A driver calls it with an event, the time and a source of random
//! numbers ([`Env`]), and carries out the result: a [`TaskStep`] for the calling task, and [`Action`]s for others. The
//! engine is deterministic.
//!
//! | event | call |
//! |---|---|
//! | a task acquires the key; is polled; has waited; has a reply; is dropped | [`KeyEngine::take_idle`], [`KeyEngine::enter`]; [`KeyEngine::woken`]; [`KeyEngine::on_time`]; [`KeyEngine::answered`]; [`KeyEngine::leave`] |
//! | the backend has sent an event | [`KeyEngine::on_hand_off`], [`KeyEngine::on_changed`], [`KeyEngine::on_queued`], [`KeyEngine::on_reset`] |
//! | a hold is resumed; its writer downgrades | [`KeyEngine::resume`]; [`KeyEngine::downgrade`], [`KeyEngine::downgrade_answered`] |
//! | a holder checks or ends its hold | [`KeyEngine::status`], [`KeyEngine::release`], [`KeyEngine::detach`], [`KeyEngine::limit_hold`] |
//! | a renewal was answered | [`KeyEngine::renewal_answered`] |
//! | the client is closed | [`KeyEngine::close`] |
//! | a timer of [`Action::SetTimer`] fired | [`KeyEngine::hold_due`] |
//! | after each other call | [`KeyEngine::tidy`] |
//!
//! Exhaustive: no type of this module is `#[non_exhaustive]`. A driver has to carry out every step and action and to decide on
//! every setting, so a new one must break the build of each driver.
//!
//! # Rooms
//! | module | what |
//! |---|---|
//! | `renewals` | when the leases of all keys are renewed, and which in one request |
//! | `key` | one key: its tasks, their queue and their turns |
//! | `sharing` | all leases of a key, and how its tasks share them |
//! | `claim` | the claims of one task |
//! | `hold` | one lease, the tenures of those who use it, and what remains to be told after its end |
//! | `releases`, `release_hold` | releases in the background, and who sends them; a release that its holder waits for |
//! | `wait_limit`, `claim_failure`, `slot_order` | several claims of one caller: how long they wait, what their errors mean, and which slots are tried |
//!
//! A room uses those below it in this table, and `action`, `config` and `env`, which are for all of them.

mod action;
mod claim;
mod claim_failure;
mod config;
mod env;
mod hold;
mod key;
mod release_hold;
mod releases;
mod renewals;
mod sharing;
mod slot_order;
mod wait_limit;

pub use action::{
    AcquireFailure, Action, Actions, ClaimReport, Ended, FailureReason, Grant, KeyRequest, Source, TaskStep,
};
pub use claim::{AcquireRequest, LAST_ANSWER, LeaseSharing, Retry};
pub use claim_failure::{AfterTry, ClaimFailure};
pub use config::{Config, LONGEST_SLEEP, SHORTEST_WAIT, SharingLimits};
pub use env::{Env, Rng};
pub use hold::{End, Firing, HoldId, LeaseNews, Status, Tenure};
pub use key::{DowngradeNext, KeyEngine, WaiterId};
pub use release_hold::{ReleaseHold, ReleaseNext, Released};
pub use releases::{PendingRelease, ReleaseOutcome, ReleaseWork, Releases, STRAGGLER, Sender, Worker, WorkerEnd};
pub use renewals::{LeaseTimers, RenewalBatch, RenewalPass};
pub use sharing::IdleLease;
pub use slot_order::SlotOrder;
pub use wait_limit::WaitLimit;
