//! The blocking API: for scripts, threads, and programs without a runtime.
//!
//! A client has a tokio runtime on its own thread, so leases are renewed while your threads compute. The names
//! and guarantees are those of the async types. Methods that are awaited there block the calling thread here.
//!
//! | async | here |
//! |---|---|
//! | `client.lock(key).await?` | `client.lock(key).acquire()?` |
//! | `client.lock(key).run(async \|held\| ..).await` | `client.lock(key).run(\|held\| ..)` |
//! | `guard.lost().await` | `guard.on_lost(\|loss\| ..)`, `guard.lost()`, or `guard.lost_within(span)` |
//! | dropping a future cancels it | a call cannot be cancelled: limit it with [`Lock::wait`] |
//!
//! ```
//! use fencelock::blocking::Client;
//! use std::time::Duration;
//!
//! let client = Client::connect("memory:")?; // or file:DIR, redis://HOST
//!
//! let guard = client.lock("lock:sku:1").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5)).acquire()?;
//! println!("writing under token {}", guard.fencing_token());
//! guard.release()?; // dropping the guard releases in the background
//! # Ok::<(), fencelock::Error>(())
//! ```
//!
//! All types may be used from any thread. Calls in an async runtime block the thread of that runtime:
//! use the async types there.
//!
//! Callbacks (`on_wait`, `on_trouble`, `on_lost`) run on the thread of the client, which also renews its leases: they must return quickly,
//! and calls of a blocking client in them fail, or panic if they return no error. A panic of a callback continues on the thread
//! whose call waits.
//!
//! The thread ends when the last [`Client`], [`Lock`] and [`Guard`] of a client is dropped. That drop waits up to
//! 250 ms for the releases of guards that were dropped before, so a script that exits after its last guard does not leave
//! the lock to its TTL. The end of the main thread waits in the same way for a client that is never dropped.

mod client;
mod election;
mod facade;
mod guard;
mod guards;
mod lock;
mod lock_all;
mod once;
mod semaphore;
mod slots;
mod thread;

pub use client::{Builder, Client};
pub use election::{Election, Leadership, Observer};
pub use guard::{Guard, Held};
pub use guards::{Guards, HeldAll};
pub use lock::Lock;
pub use lock_all::LockAll;
pub use once::{OncePerWindow, OnceRun, OnceStart, UnfinishedRun};
pub use semaphore::Semaphore;
pub use slots::{SlotGuard, Slots};
pub use thread::{OnThread, WeakOnThread};

use facade::{Facade, facade};
use thread::ClientThread;
