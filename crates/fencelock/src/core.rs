use crate::closing::Closing;
use crate::error::Error;
use crate::identity::Identity;
use crate::janitor::Janitor;
use crate::local::Rooms;
use crate::local::limits::Limits;
use crate::telemetry::Telemetry;
use crate::trouble::Trouble;
use crate::waiters::{Handed, Waiters};
use crate::watchdog::Watchdog;
use fencelock_core::{Backend, Clock, Drift, Event, Invalid, Sink};
use std::sync::{Arc, Weak};

/// What the clones of a client, its locks and its guards share. The last of them to go ends the client's tasks.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: Drift,
    pub(crate) identity: Identity,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) janitor: Arc<Janitor>,
    pub(crate) telemetry: Telemetry,
    /// Where tasks wait for each other; without, each claims for itself.
    pub(crate) rooms: Option<Arc<Rooms>>,
    pub(crate) closing: Arc<Closing>,
    pub(crate) trouble: Trouble,
    /// Backends hold their listeners weakly.
    _listener: Arc<dyn Sink>,
}

impl Core {
    /// Starts the client's two tasks on the current runtime.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        drift: Drift,
        sharing: Option<Limits>,
    ) -> Result<Arc<Self>, Error> {
        let sharing = sharing.map(Limits::check).transpose()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Invalid::new("a client needs a tokio runtime to live on; without one, use fencelock::blocking::Client")
        })?;
        let identity = Identity::of_this_process()?;
        let closing = Arc::new(Closing::default());
        let waiters = Arc::new(Waiters::new(Arc::clone(&closing)));
        let (janitor, desk) = Janitor::new(Arc::clone(&backend), Arc::clone(&clock));
        let (place, told) = (Arc::clone(&backend), Arc::clone(&closing));
        let telemetry = Telemetry::of(&backend.name());
        let watchdog = Watchdog::new(place, Arc::clone(&clock), Arc::clone(&janitor), told, telemetry.clone());
        let listener: Arc<dyn Sink> = Arc::new(Listener {
            waiters: Arc::clone(&waiters),
            watchdog: Arc::downgrade(&watchdog),
            janitor: Arc::downgrade(&janitor),
        });
        backend.listen(Arc::clone(&listener));
        runtime.spawn(Arc::clone(&watchdog).run());
        runtime.spawn(desk.run());
        let rooms = sharing.map(|limits| {
            let queues = backend.capabilities().queues;
            let (clock, watchdog, janitor) = (Arc::clone(&clock), Arc::clone(&watchdog), Arc::clone(&janitor));
            Rooms::new(limits, queues, clock, watchdog, janitor, runtime, Arc::clone(&closing))
        });
        Ok(Arc::new(Self {
            backend,
            clock,
            drift,
            identity,
            waiters,
            watchdog,
            janitor,
            telemetry,
            rooms,
            closing,
            trouble: Trouble::default(),
            _listener: listener,
        }))
    }

    /// Refuses new claims from now on and ends the waiting ones.
    pub(crate) fn close(&self) {
        self.closing.begin();
        self.waiters.nudge_all();
        if let Some(rooms) = &self.rooms {
            rooms.nudge_all();
        }
    }

    /// Waits, once it is closed, until nothing is held, nobody waits or asks, and every release is confirmed.
    pub(crate) async fn drained(&self) {
        let quiet = || self.waiters.is_empty() && self.rooms.as_ref().is_none_or(|rooms| rooms.is_empty());
        self.closing.ends(|| self.watchdog.holds() == 0 && quiet()).await;
        self.janitor.idle().await;
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closing.has_begun() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// In a fork nobody would answer.
    pub(crate) fn check_process(&self) -> Result<(), Invalid> {
        self.identity.process().check()
    }

    pub(crate) fn closed_error(&self) -> Error {
        Error::Closed { held: self.watchdog.holds(), pending: self.janitor.pending() }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.identity.process().is_current() {
            self.watchdog.stop();
        }
    }
}

/// Brings the backend's events to whom they concern.
#[derive(Debug)]
struct Listener {
    waiters: Arc<Waiters>,
    watchdog: Weak<Watchdog>,
    janitor: Weak<Janitor>,
}

impl Sink for Listener {
    fn event(&self, event: &Event) {
        match event {
            Event::Handed { key, holder, tokens, claim_ttl } => {
                let handed = Handed { tokens: *tokens, claim_ttl: *claim_ttl };
                if !self.waiters.hand(key, *holder, handed)
                    && let Some(janitor) = self.janitor.upgrade()
                {
                    janitor.handed_to_nobody(key, *holder);
                }
            }
            Event::Changed { key } => {
                self.waiters.nudge(key);
                if let Some(watchdog) = self.watchdog.upgrade() {
                    watchdog.hurry(key);
                }
            }
            // A reset, and any hint that is not known here: looking is always right.
            _ => {
                self.waiters.nudge_all();
                if let Some(watchdog) = self.watchdog.upgrade() {
                    watchdog.hurry_all();
                }
            }
        }
    }
}
