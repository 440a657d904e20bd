//! Executes the decisions of the engine: timers, requests, wake-ups. The decisions are in [`fencelock_core::engine`].
//!
//! Each key has a [`KeyCell`] with its engine behind one lock, which is never held across an await point or a wake-up. The order
//! of locks: the map of keys, never together with another; a key cell, then the timers.
//!
//! | file | what |
//! |---|---|
//! | `key_cell`, `keys` | a key with its engine behind one lock; all keys of a client |
//! | `key_task` | a task that waits for a key |
//! | `lease_state` | what the guards of one hold share, also after its end |
//! | `renewals` | the task that renews |
//! | `listener` | the events of the backend |

mod key_cell;
mod key_task;
mod keys;
mod lease_state;
mod listener;
mod renewals;

use crate::closing::Closing;
use crate::error::{Error, unreachable_once};
use crate::identity::{ClientRng, Identity};
use crate::outage_log::OutageLog;
use crate::reaper::{Reaper, watch_exit};
use crate::telemetry::Telemetry;
use fencelock_core::engine::{Config, SharingLimits};
use fencelock_core::{Backend, Clock, Drift, Fault, Invalid, Key, Listener, Unknown};
use keys::Keys;
use renewals::Timers;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use key_cell::{Engine, KeyCell};
pub(crate) use key_task::{acquire, resume, time_until};
pub(crate) use lease_state::LeaseState;

/// Longer than a busy runtime needs to run a task that was woken. A task that was only slow loses nothing but time.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// The state that the clones of a client, its locks and its guards share. Dropping the last of them ends the tasks of the client.
#[derive(Debug)]
pub(crate) struct ClientInner {
    driver: Arc<Driver>,
}

impl Deref for ClientInner {
    type Target = Arc<Driver>;

    fn deref(&self) -> &Arc<Driver> {
        &self.driver
    }
}

impl ClientInner {
    /// Starts the client's two tasks on the current runtime.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        drift: Drift,
        rng: ClientRng,
        sharing: Option<SharingLimits>,
    ) -> Result<Arc<Self>, Error> {
        let capabilities = backend.capabilities();
        let sharing = sharing.map(|limits| limits.check(&capabilities)).transpose()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Invalid::new("a client needs a tokio runtime; without one, use fencelock::blocking::Client")
        })?;
        // A runtime without timers could neither renew nor wait: tokio panics here, and not later in a task.
        drop(tokio::time::sleep(Duration::ZERO));
        let identity = Identity::of_this_process()?;
        let turn_limit = Some(TURN_LIMIT);
        let config = Config { backend: backend.name(), capabilities, drift, sharing, turn_limit };
        let driver = Arc::new_cyclic(|this| Driver {
            backend,
            clock,
            rng,
            identity,
            telemetry: Telemetry::of(&config.backend),
            config,
            reaper: Reaper::default(),
            closing: Arc::default(),
            keys: Keys::default(),
            timers: Timers::default(),
            outages: OutageLog::default(),
            this: Weak::clone(this),
        });
        watch_exit(&driver);
        let listener: Arc<dyn Listener> = Arc::<Driver>::clone(&driver);
        driver.backend.listen(listener);
        runtime.spawn(Arc::clone(&driver).renew_leases());
        runtime.spawn(driver.send_releases());
        Ok(Arc::new(Self { driver }))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.driver.stop();
        self.driver.stop_reaping();
    }
}

/// The state that the tasks, locks and guards of a client share.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: ClientRng,
    pub(crate) identity: Identity,
    pub(crate) config: Config,
    pub(crate) telemetry: Telemetry,
    pub(crate) reaper: Reaper,
    pub(crate) closing: Arc<Closing>,
    pub(crate) keys: Keys,
    timers: Timers,
    outages: OutageLog,
    /// For the events of the backend, which come without an [`Arc`].
    this: Weak<Self>,
}

impl Driver {
    /// From now on, refuses new claims, and ends the waiting ones.
    pub(crate) fn close(&self) {
        self.closing.begin();
        self.end_waits();
    }

    /// Whether claims may begin, and leases without a task are kept for the next one.
    fn is_open(&self) -> bool {
        !self.timers.is_stopped() && !self.closing.has_begun()
    }

    /// Stops the renewals, refuses new claims and ends the waiting ones, and releases the leases that no task uses. In a forked
    /// child, the leases belong to the parent.
    pub(crate) fn stop(&self) {
        if self.identity.process.is_current() {
            // First, by this thread: the task of the renewals does the same as soon as the timers are stopped, and the end of the
            // program would not wait for what that task has taken and not added to the releases yet.
            self.end_waits();
            self.timers.stop();
            self.end_waits();
        }
    }

    /// Wakes the tasks that wait, which then find out why they may not, and releases the leases that no task uses.
    fn end_waits(&self) {
        for cell in self.keys.all() {
            cell.with(Engine::close);
        }
    }

    /// After the client was closed, waits until nothing is held, no task waits or claims, and every release is confirmed.
    pub(crate) async fn drained(&self) {
        // In this order: what ends has been added to what is looked at next.
        let is_over = || self.keys.is_empty() && !self.closing.is_releasing() && self.reaper.pending() == 0;
        self.closing.until(is_over).await;
    }

    /// See [`Action::Queued`](fencelock_core::engine::Action::Queued).
    fn queued_here(&self, cell: &KeyCell) {
        for other in self.keys.of_key(&cell.key).filter(|other| **other != *cell) {
            other.with(Engine::on_queued);
        }
    }

    /// Removes a key that no task waits for or holds.
    fn forget(&self, cell: &KeyCell) {
        self.keys.forget(cell);
        self.closing.emptied();
    }

    /// Whether a claim may begin.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing.has_begun() {
            return Err(self.closed_error());
        }
        if self.runtime_has_ended() {
            let text = "the runtime of this client has ended, so nothing would renew its leases: connect a client on this runtime";
            return Err(Invalid::new(text).into());
        }
        Ok(())
    }

    /// The error of a request that was sent once. The connections of the backend end with the runtime.
    pub(crate) fn failed(&self, key: Option<&Key>, cause: Unknown) -> Error {
        if self.runtime_has_ended() && !cause.is_permanent() {
            let text =
                "the runtime of this client has ended, and its connections with it: connect a client on this runtime";
            return Invalid::new(text).into();
        }
        unreachable_once(key, cause)
    }

    fn runtime_has_ended(&self) -> bool {
        self.timers.is_stopped() && self.identity.process.is_current()
    }

    /// In a forked child, the tasks do not run.
    pub(crate) fn check_process(&self) -> Result<(), Invalid> {
        self.identity.process.check()
    }

    /// The result of a request if the wait ended before its reply arrived.
    pub(crate) fn timed_out(&self) -> Unknown {
        Unknown::new(self.config.backend.clone(), Fault::Timeout, "the wait ended before a reply arrived")
    }

    pub(crate) fn closed_error(&self) -> Error {
        let held = self.timers.table().holds();
        Error::Closed { held, pending: self.reaper.pending() }
    }

    /// The number of holds that are renewed, and of their timers.
    #[cfg(test)]
    pub(crate) fn holds_and_timers(&self) -> (usize, usize) {
        let timers = self.timers.table();
        (timers.holds(), timers.iter().len())
    }
}
