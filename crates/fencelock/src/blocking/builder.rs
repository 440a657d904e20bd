use super::Client;
use crate::{Backend, Clock, Drift, Error};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a client; see [`Client::builder`]. The async twin is [`crate::Builder`].
///
/// All but the clock are about **sharing**: threads of one client that want the same key stand in one line, and the lease
/// goes from one to the next without the network, each with its own fencing token. It goes only between locks of the same
/// TTL and label, and others that wait for the key get their turn after a bounded batch.
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

    /// Whether threads of this client share leases: yes, unless it is turned off. Then each claims every lock for itself.
    pub fn sharing(mut self, sharing: bool) -> Self {
        self.inner = self.inner.sharing(sharing);
        self
    }

    /// How long threads of this client come first when somebody else is known to wait for the key: at most `grants` more
    /// grants (at least one), and no grant after `span`. 64 and 10 ms unless set; [`crate::Builder::batch`] says what holds
    /// where nobody can tell who waits.
    pub fn batch(mut self, grants: u32, span: Duration) -> Self {
        self.inner = self.inner.batch(grants, span);
        self
    }

    /// When threads of this client have passed the key on among themselves for `stretch`, and nobody is known to wait, it is
    /// left free for `pause`, for the sake of programs that only poll. A second and 20 ms unless set; without a pause (zero)
    /// such programs may wait for ever. [`crate::Builder::give_way`] has the details.
    pub fn give_way(mut self, stretch: Duration, pause: Duration) -> Self {
        self.inner = self.inner.give_way(stretch, pause);
        self
    }

    /// How long a lease that no thread of this client wants any more is kept for the next one that does: not at all unless
    /// set, 10 ms at most. It is given up at once when somebody else is seen to wait.
    ///
    /// A release is then confirmed before the server has heard of it. Others that do not line up find the key held.
    pub fn linger(mut self, span: Duration) -> Self {
        self.inner = self.inner.linger(span);
        self
    }

    /// Another clock, and another bound for how far clocks may drift apart: tests drive time with the first; the second
    /// belongs to machines whose clocks are off by more than a hundredth.
    pub fn clock(mut self, clock: Arc<dyn Clock>, drift: Drift) -> Self {
        self.inner = self.inner.clock(clock, drift);
        self
    }

    /// Connects to the place that `url` names, as [`Client::connect`] does.
    ///
    /// # Errors
    /// As there, and [`Error::Config`] for settings out of range.
    pub fn connect(self, url: &str) -> Result<Client, Error> {
        let url = url.to_owned();
        Client::start(async move { self.inner.connect(&url).await })
    }

    /// Uses a backend that was made by hand.
    ///
    /// # Errors
    /// [`Error::Config`] for settings out of range, and if the system gives no thread.
    pub fn backend(self, backend: Arc<dyn Backend>) -> Result<Client, Error> {
        Client::start(async move { self.inner.backend(backend) })
    }
}
