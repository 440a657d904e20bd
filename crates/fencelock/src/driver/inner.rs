use super::listener::DriverListener;
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
use std::sync::Arc;
use std::time::Duration;

/// Longer than a busy runtime needs to run a task that was woken. A task that was only slow loses nothing but time.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// The state that the clones of a client, its locks and its guards share. Dropping the last of them ends the tasks of the client.
#[derive(Debug)]
pub(crate) struct ClientInner {
    driver: Arc<Driver>,
    /// Backends hold their listeners weakly.
    _listener: Arc<dyn Listener>,
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
        let (identity, closing) = (Identity::of_this_process()?, Arc::new(Closing::default()));
        let (reaper, reaping) = Reaper::new(Arc::clone(&backend), Arc::clone(&clock), rng.clone());
        let turn_limit = Some(TURN_LIMIT);
        let config = Config { backend: backend.name(), capabilities, drift, sharing, turn_limit };
        let driver = Arc::new(Driver {
            telemetry: Telemetry::of(&config.backend),
            keys: Keys::new(Arc::clone(&closing)),
            timers: Timers::default(),
            outages: OutageLog::default(),
            backend,
            clock,
            rng,
            identity,
            config,
            reaper,
            closing,
        });
        driver.reaper.set_idle_leases(&driver);
        let listener: Arc<dyn Listener> = Arc::new(DriverListener::new(&driver));
        driver.backend.listen(Arc::clone(&listener));
        runtime.spawn(Arc::clone(&driver).renew_leases());
        runtime.spawn(reaping.run());
        Ok(Arc::new(Self { driver, _listener: listener }))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.driver.stop();
    }
}
