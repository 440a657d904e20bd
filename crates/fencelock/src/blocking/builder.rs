use super::Client;
use crate::{Backend, Clock, Drift, Error};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a client; see [`Client::builder`]. The async type is [`crate::Builder`].
///
/// All settings but the clock concern **sharing**: threads of one client that wait for the same key form one queue, and the
/// lease passes from one to the next without a request, each with its own fencing token. It passes only between locks with
/// the same TTL and label, and other clients that wait for the key acquire it after a bounded batch.
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::builder().sharing(false).connect("memory:")?;
/// # Ok::<(), fencelock::Error>(())
/// ```
#[must_use = "settings do nothing until they are connected"]
#[derive(Debug, Clone, Default)]
pub struct Builder {
    inner: crate::Builder,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Whether threads of this client share leases; on by default. If it is off, each thread sends its own claims.
    pub fn sharing(self, sharing: bool) -> Self {
        Self { inner: self.inner.sharing(sharing) }
    }

    /// The limit of a batch of grants within this client while another client waits for the key: at most `grants` more
    /// grants (at least one), and no grant after `span`. The default is 64 grants and 10 ms; [`crate::Builder::batch`]
    /// describes backends that cannot report waiters.
    pub fn batch(self, grants: u32, span: Duration) -> Self {
        Self { inner: self.inner.batch(grants, span) }
    }

    /// When threads of this client have passed the key among themselves for `stretch`, and no waiter is known, the key
    /// stays free for `pause`, so that clients which only poll acquire it. The default is 1 s and 20 ms; without a pause (zero)
    /// they may wait indefinitely. [`crate::Builder::yield_interval`] describes the details.
    pub fn yield_interval(self, stretch: Duration, pause: Duration) -> Self {
        Self { inner: self.inner.yield_interval(stretch, pause) }
    }

    /// How long a lease without a waiting thread is kept for the next thread of this client; by default not at all. A release
    /// then returns before the server has processed it. [`crate::Builder::idle_timeout`] describes the limits, and when the lease
    /// is released earlier.
    pub fn idle_timeout(self, span: Duration) -> Self {
        Self { inner: self.inner.idle_timeout(span) }
    }

    /// Sets the clock, and the bound for clock drift: a test controls the time with the former; the latter
    /// is for machines whose clocks drift by more than one percent.
    pub fn clock(self, clock: Arc<dyn Clock>, drift: Drift) -> Self {
        Self { inner: self.inner.clock(clock, drift) }
    }

    /// Connects to the backend of `url`, like [`Client::connect`].
    ///
    /// # Errors
    /// See [`Client::connect`], and [`Error::Config`] for settings out of range.
    pub fn connect(self, url: &str) -> Result<Client, Error> {
        let url = url.to_owned();
        Client::start(async move { self.inner.connect(&url).await })
    }

    /// Uses an existing backend.
    ///
    /// # Errors
    /// [`Error::Config`] for settings out of range, and if the thread cannot start.
    pub fn backend(self, backend: Arc<dyn Backend>) -> Result<Client, Error> {
        Client::start(async move { self.inner.backend(backend) })
    }
}
