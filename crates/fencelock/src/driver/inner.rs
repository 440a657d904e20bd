use super::renewals::Timers;
use super::{Driver, Keys};
use crate::closing::Closing;
use crate::error::Error;
use crate::identity::{ClientRng, Identity};
use crate::outage_log::OutageLog;
use crate::reaper::Reaper;
use crate::telemetry::Telemetry;
use fencelock_core::engine::{Config, SharingLimits};
use fencelock_core::{Backend, Clock, Drift, Invalid, Listener};
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
        let driver = Arc::new_cyclic(|driver| {
            let closing = Arc::<Closing>::default();
            let reaper = Reaper::new(&backend, &clock, &rng, &closing, Weak::clone(driver));
            let (telemetry, keys) = (Telemetry::of(&config.backend), Keys::default());
            let (timers, outages) = (Timers::default(), OutageLog::default());
            Driver { backend, clock, rng, identity, config, telemetry, reaper, closing, keys, timers, outages }
        });
        driver.reaper.watch_exit();
        let listener: Arc<dyn Listener> = Arc::<Driver>::clone(&driver);
        driver.backend.listen(listener);
        runtime.spawn(Arc::clone(&driver).renew_leases());
        runtime.spawn(driver.reaper.run());
        Ok(Arc::new(Self { driver }))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.driver.stop();
        self.driver.reaper.close();
    }
}
