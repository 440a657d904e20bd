use crate::client::Client;
use crate::driver::ClientInner;
use crate::error::Error;
use fencelock_core::BootClock;
use fencelock_core::engine::SharingLimits;
use fencelock_core::{Backend, Clock, Drift};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a client; see [`Client::builder`].
///
/// All but the clock are about **sharing**: tasks of one client that want the same key stand in one line, and the lease
/// goes from one to the next without the network, each with its own fencing token. It goes only between locks of the same
/// TTL and label, and others that wait for the key get their turn after a bounded batch.
///
/// ```
/// # async fn demo() -> Result<(), fencelock::Error> {
/// use std::time::Duration;
///
/// let client = fencelock::Client::builder().batch(16, Duration::from_millis(2)).connect("memory:").await?;
/// let client = fencelock::Client::builder().sharing(false).connect("memory:").await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[must_use = "settings do nothing until they are connected"]
#[derive(Debug, Clone)]
pub struct Builder {
    sharing: bool,
    limits: SharingLimits,
    clock: Arc<dyn Clock>,
    drift: Drift,
}

impl Default for Builder {
    fn default() -> Self {
        Self { sharing: true, limits: SharingLimits::default(), clock: Arc::new(BootClock), drift: Drift::default() }
    }
}

impl Builder {
    /// Whether tasks of this client share leases: yes, unless it is turned off. Then each task claims every lock for itself.
    pub fn sharing(mut self, sharing: bool) -> Self {
        self.sharing = sharing;
        self
    }

    /// How long tasks of this client come first when somebody else is known to wait for the key: at most `grants` more
    /// grants (at least one), and no grant after `span`. 64 and 10 ms unless set.
    ///
    /// Whether somebody waits is asked when the sharing begins, and every few milliseconds. Where the place cannot tell (on
    /// files and on a quorum), it is assumed: there the batch begins with each lease, and is 50 ms of any number of grants
    /// unless set. Then the key is left free for a few milliseconds, and whoever asks first has it.
    pub fn batch(mut self, grants: u32, span: Duration) -> Self {
        self.limits.batch = Some((grants, span));
        self
    }

    /// For the sake of programs that only ask now and then, and so leave no trace where the lock lives: when tasks of this
    /// client have passed the key on among themselves for `stretch`, and nobody is known to wait, it is left free for
    /// `pause`. A second and 20 ms unless set; without a pause (zero) such programs may wait for ever.
    ///
    /// One that asks every `pause` or more often has its turn within about `stretch`; one that asks less often, say every
    /// `p`, after `stretch * p / pause` on average. It holds where this client is the only one that wants the key so much:
    /// those who stand in line come before those who do not. On files and on a quorum [`Builder::batch`] takes its place.
    pub fn give_way(mut self, stretch: Duration, pause: Duration) -> Self {
        (self.limits.stretch, self.limits.pause) = (stretch, pause);
        self
    }

    /// How long a lease that no task of this client wants any more is kept for the next one that does: not at all unless
    /// set, 10 ms at most. It is given up at once when somebody else is seen to wait.
    ///
    /// A release is then confirmed before the server has heard of it. Others that do not line up find the key held.
    pub fn linger(mut self, span: Duration) -> Self {
        self.limits.linger = span;
        self
    }

    /// Another clock, and another bound for how far clocks may drift apart: tests drive time with the first; the second
    /// belongs to machines whose clocks are off by more than a hundredth.
    pub fn clock(mut self, clock: Arc<dyn Clock>, drift: Drift) -> Self {
        (self.clock, self.drift) = (clock, drift);
        self
    }

    /// Connects to the place that `url` names, as [`Client::connect`] does.
    ///
    /// # Errors
    /// As there, and [`Error::Config`] for settings out of range.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.backend(crate::backends::connect(url).await?)
    }

    /// Uses a backend that was made by hand.
    ///
    /// # Errors
    /// [`Error::Config`] outside a tokio runtime, and for settings out of range.
    pub fn backend(self, backend: Arc<dyn Backend>) -> Result<Client, Error> {
        let limits = self.sharing.then_some(self.limits);
        ClientInner::start(backend, self.clock, self.drift, limits).map(Client::of)
    }
}

impl Client {
    /// Connects to the place that `url` names.
    ///
    /// | URL | locks live in |
    /// |---|---|
    /// | `memory:` | this process: all its clients of `memory:` exclude each other |
    /// | `memory:NAME` | this process, apart from all other names: the same name gives the same locks |
    /// | `file:DIR` | files below `DIR`, for the processes of one machine |
    /// | `redis://[user:password@]host[:port][/db]` | one Redis server; `rediss://` with TLS |
    /// | `redlock://host[:port],host[:port],host[:port]` | a majority of independent Redis servers; `redlock+tls://` with TLS |
    ///
    /// Other crates add schemes of their own: [`register`](crate::register).
    ///
    /// A relative `DIR` is resolved against the working directory, and [`Client::name`] shows the result. Give an absolute one
    /// to programs that must exclude each other: two that say `file:locks` in different directories have two places.
    ///
    /// A test that wants locks of its own uses [`Client::with_backend`] with a [`Memory::new`](crate::backends::Memory::new).
    ///
    /// Servers of a `redlock://` that nobody has used yet grant nothing for a minute; [`backends::init`](crate::backends::init) puts them
    /// into service at once.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that cannot be used, credentials that are refused, and servers that belong to another
    /// set; [`Error::Unreachable`] if nobody answers there.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A client with other settings than the usual ones.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Uses a backend that was made by hand, with the clock of production and the usual drift.
    ///
    /// # Errors
    /// [`Error::Config`] outside a tokio runtime.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        Self::builder().backend(backend)
    }

    /// Uses another clock, which must go like that of the backend, and another allowance for drift. For tests that
    /// drive time, and for machines whose clocks are known to be worse or better than a hundredth.
    ///
    /// # Errors
    /// [`Error::Config`] outside a tokio runtime.
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, drift: Drift) -> Result<Self, Error> {
        Self::builder().clock(clock, drift).backend(backend)
    }
}
