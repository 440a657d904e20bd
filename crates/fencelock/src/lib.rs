//! Distributed locks for the tasks of a process, the processes of a machine, or several machines.
//!
//! ```
//! # async fn demo() -> Result<(), fencelock::Error> {
//! use std::time::Duration;
//!
//! let client = fencelock::Client::connect("memory:").await?; // or file:DIR, redis://HOST
//!
//! let guard = client.lock("lock:sku:1").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5)).await?;
//! println!("writing under token {}", guard.fencing_token());
//! guard.release().await?; // an error if the lock was lost
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
//! ```
//!
//! # Guarantees
//!
//! - **One holder at a time**, while clocks run at the same rate within the [`Drift`] and no server loses data that it
//!   acknowledged.
//! - **You are notified of a loss** by [`Guard::lost`] before a server that kept its data grants the lock again, and immediately when
//!   the key is deleted or taken, if the server reports it.
//! - **Waiters are served in order**, and woken by the release itself, if the backend has a queue.
//! - **Nothing is left behind** by a dropped guard, a cancelled wait or a lost reply, longer than the TTL.
//!
//! No lock can stop a process that is paused after it has checked its lock: it writes when it continues. Send
//! [`Guard::fencing_token`] with each write, and let the receiver reject tokens smaller than the greatest it has seen: [`FenceGate`].
//!
//! # Where to start
//!
//! | to | use |
//! |---|---|
//! | stop work when its lock is lost | [`Lock::run`] |
//! | let readers work at the same time | [`Lock::shared`] |
//! | limit the number of holders | [`Client::semaphore`], or [`Client::slots`] if a resource must check their tokens |
//! | lock several keys, all or none | [`Client::lock_all`] |
//! | elect a leader | [`Client::election`] |
//! | run work at most once in each window of time | [`Client::once`] |
//! | lock without async | [`blocking`] |
//! | choose where locks are stored | [`Client::connect`], [`backends`] |
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | that of a backend | `file` and `redis` are on | one of [`backends`](backends#cargo-features) |
//! | `metrics` | off | metrics through the facade of that name: [`telemetry`] |
//! | `serde` | off | serialization of [`Key`], [`HolderId`] and [`FencingToken`] |
//!
//! `fencelock = { version = "0.1", default-features = false, features = ["file"] }` compiles less than half of the crates, because
//! neither the Redis driver nor TLS is among them. With `redis-plain`, a URL that needs TLS is an error that names the feature `redis`.
//! `memory:` is always available, and [`register`] adds the backends of other crates.

pub mod backends;
pub mod blocking;
mod client;
mod closing;
mod driver;
mod election;
mod error;
mod find_path;
mod guard;
mod guards;
mod identity;
mod lock;
mod lock_all;
mod once;
mod outage_log;
mod run;
mod semaphore;
mod settings;
mod slots;
#[cfg(test)]
mod soak;
pub mod telemetry;
mod window_done;

pub use backends::register;
pub use client::{Builder, Client};
pub use election::{Election, Leadership, Observer, Term};
pub use error::{Error, Loss, RenewalFailure};
/// The whole contract, for implementers of other backends.
pub use fencelock_core as contract;
pub use fencelock_core::engine::Released;
pub use fencelock_core::{
    Backend, BackendReport, Capabilities, Clock, Drift, Eviction, Expiry, Fault, Feature, FenceGate, FencingToken,
    Finding, HolderId, HolderInfo, Holders, Holding, Invalid, Key, Leader, Level, Liveness, LossReason, Mode, Modes,
    Moment, NodeFault, Observation, Occupant, Owner, Resized, ServerReport, Span, Superseded, Topology, TreePath, Ttl,
    Unknown, WaiterInfo,
};
pub use find_path::find_path;
pub use guard::{Guard, Held};
pub use guards::{EndWaker, Guards, HeldAll};
pub use lock::Lock;
pub use lock_all::LockAll;
pub use once::{Once, OnceError, OncePerWindow, OnceRun, OnceStart, UnfinishedRun};
pub use run::RunError;
pub use semaphore::Semaphore;
pub use settings::Waiting;
pub use slots::{SlotGuard, SlotNumber, Slots};
pub use window_done::WindowDone;
