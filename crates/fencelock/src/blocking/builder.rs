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
    /// Whether threads of this client share leases; on by default: see [`crate::Builder::sharing`].
    pub fn sharing(self, sharing: bool) -> Self {
        Self { inner: self.inner.sharing(sharing) }
    }

    /// The limit of a batch of grants within this client while another client waits for the key: see [`crate::Builder::batch`].
    pub fn batch(self, grants: u32, span: Duration) -> Self {
        Self { inner: self.inner.batch(grants, span) }
    }

    /// How long threads of this client pass a key among themselves, and for how long it then stays free for clients that only
    /// poll: see [`crate::Builder::yield_interval`].
    pub fn yield_interval(self, stretch: Duration, pause: Duration) -> Self {
        Self { inner: self.inner.yield_interval(stretch, pause) }
    }

    /// How long a lease without a waiting thread is kept for the next thread of this client; by default not at all: see
    /// [`crate::Builder::idle_timeout`].
    pub fn idle_timeout(self, span: Duration) -> Self {
        Self { inner: self.inner.idle_timeout(span) }
    }

    /// Sets the clock, and the bound for clock drift: see [`crate::Builder::clock`].
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
