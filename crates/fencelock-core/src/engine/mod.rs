//! The client as a deterministic state machine, one [`KeyEngine`] for each key.
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
//! The engine has no clock, no socket, no mutex and no task. A driver calls it with an event, the time and a source of random
//! numbers ([`Context`]), and carries out the result: a [`Step`] for the calling task, and [`Action`]s for others. The
//! engine is deterministic.
//!
//! | event | call |
//! |---|---|
//! | a task acquires the key, or gives up | [`KeyEngine::enter`], [`KeyEngine::leave`], [`KeyEngine::take_idle`] |
//! | a task was woken, or its timer fired | [`KeyEngine::poll`], [`KeyEngine::timer_fired`] |
//! | the backend has answered | [`KeyEngine::claim_answered`], [`KeyEngine::inspected`], [`KeyEngine::left`], [`KeyEngine::renewal_answered`] |
//! | the backend has sent an event | [`KeyEngine::on_hand_off`], [`KeyEngine::on_changed`], [`KeyEngine::on_queued`], [`KeyEngine::on_reset`] |
//! | a holder checks or ends its hold | [`KeyEngine::status`], [`KeyEngine::release`], [`KeyEngine::detach`], [`KeyEngine::limit_hold`] |
//! | a writer downgrades, and the backend has answered | [`KeyEngine::downgrade`], [`KeyEngine::downgrade_answered`] |
//! | a timer of [`Action::SetTimer`] fired | [`KeyEngine::hold_due`] |
//! | a task is polled; after each other call | [`KeyEngine::is_present`]; [`KeyEngine::tidy`] |
//!
//! [`AcquireAll`] acquires several keys together: it decides which of them is claimed next and when all are released.
//! It uses no engine; each of its claims is a task of the engine of one key.
//!
//! Exhaustive: no type of this module is `#[non_exhaustive]`. A driver has to carry out every step and action and to decide on
//! every setting, so a new one must break the build of each driver.
//!
//! # Files
//! | file | what |
//! |---|---|
//! | `key_engine`, `queue` | one key; the tasks that wait for it |
//! | `turns` | a task that does not run while others wait behind it |
//! | `claims`, `claiming` | the claims of one task |
//! | `leases`, `hold` | what is held |
//! | `sharing`, `shared_lease` | the leases that tasks share, and for how long |
//! | `yielding` | what remains of a shared lease after its end |
//! | `readers`, `permits` | tasks that share leases at the same time |
//! | `release_queue` | releases in the background |
//! | `acquire_all`, `acquire_slot` | several keys: which one is next; slots: which one is tried, in which queues it waits |

mod acquire_all;
mod acquire_slot;
mod action;
mod actions;
mod answer;
mod boxed_vec;
mod claiming;
mod claims;
mod config;
mod context;
mod downgrade;
mod held;
mod hold;
mod key_engine;
mod leases;
mod ordered_waiters;
mod permits;
mod queue;
mod readers;
mod release_queue;
mod request;
mod rng;
mod served;
mod shared_lease;
mod sharing;
mod tenure;
mod turns;
mod waiter;
mod yielding;

pub use acquire_all::{AcquireAll, AcquireStep};
pub use acquire_slot::{AcquireSlot, SlotStep};
pub use action::{Action, ClaimReport, Ended, Grant, Refusal, RefusalReason, Source, Step};
pub use actions::Actions;
pub use answer::{IdleLease, Leaving, Status, View};
pub use claiming::STRAGGLER;
pub use config::{Config, SharingLimits};
pub use context::Context;
pub use downgrade::Downgrading;
pub use hold::Duty;
pub use key_engine::KeyEngine;
pub use release_queue::{PendingRelease, ReleaseOutcome, ReleaseQueue};
pub use request::{AcquireRequest, LeaseSharing, Retry};
pub use rng::Rng;
pub use tenure::{End, HoldId, Tenure};
pub use waiter::WaiterId;
