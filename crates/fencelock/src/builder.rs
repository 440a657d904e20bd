use crate::client::Client;
use crate::driver::ClientInner;
use crate::error::Error;
use crate::identity::ClientRng;
use fencelock_core::BootClock;
use fencelock_core::engine::{Rng, SharingLimits};
use fencelock_core::{Backend, Clock, Drift};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a client; see [`Client::builder`].
///
/// All settings but the clock concern **sharing**: tasks of one client that wait for the same key form one queue, and the lease
/// passes from one to the next without a request, each with its own fencing token. It passes only between locks with the same
/// TTL and label, and other clients that wait for the key acquire it after a bounded batch.
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
    rng: ClientRng,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            sharing: true,
            limits: SharingLimits::default(),
            clock: Arc::new(BootClock),
            drift: Drift::default(),
            rng: ClientRng::default(),
        }
    }
}

impl Builder {
    /// Whether tasks of this client share leases; on by default. If it is off, each task sends its own claims.
    pub fn sharing(self, sharing: bool) -> Self {
        Self { sharing, ..self }
    }

    /// The limit of a batch of grants within this client while another client waits for the key: at most `grants` more
    /// grants (at least one), and no grant after `span`. The default is 64 grants and 10 ms.
    ///
    /// The client checks for other waiters when the sharing starts, and every few milliseconds. If the backend cannot
    /// report them (files and quorums), it assumes that there are some: then the batch starts with each lease, and the
    /// default is 50 ms and any number of grants. After that, the key stays free for a few milliseconds, and the first
    /// claim acquires it.
    pub fn batch(mut self, grants: u32, span: Duration) -> Self {
        self.limits.batch = Some((grants, span));
        self
    }

    /// Lets polling clients, which the server cannot see, acquire the key: when tasks of this client have passed it
    /// among themselves for `stretch`, and no waiter is known, the key stays free for `pause`. The default is 1 s and 20 ms; without a pause (zero) such programs may wait indefinitely.
    ///
    /// A program that polls at least every `pause` acquires the key within about `stretch`; one that polls every
    /// `p` acquires it after `stretch * p / pause` on average. This applies if no other client uses the key as much:
    /// clients in the queue come before clients that poll. On files and on a quorum, [`Builder::batch`] applies instead.
    pub fn yield_interval(mut self, stretch: Duration, pause: Duration) -> Self {
        (self.limits.stretch, self.limits.pause) = (stretch, pause);
        self
    }

    /// How long a lease without a waiting task is kept for the next task of this client; by default not at all. The next task
    /// gets the lock without a request, under a fencing token of its own.
    ///
    /// The maximum is 24 h on a backend with a queue, and 10 ms on others. While the backend does not announce waiters (a Redis without
    /// client tracking), a lease is kept for 10 ms at most.
    /// The lease is released as soon as another client enters the queue. For clients that only poll, it is released after the
    /// `stretch` of [`Builder::yield_interval`] (1 s by default) at the latest, and the key stays free for its `pause`. Until
    /// then such clients, and those that try once, find the key held, and `status` shows this client as the holder.
    ///
    /// A release then returns before the server has processed it.
    pub fn idle_timeout(mut self, span: Duration) -> Self {
        self.limits.idle_timeout = span;
        self
    }

    /// Sets the clock, and the bound for clock drift: a test controls the time with the former; the latter
    /// is for machines whose clocks drift by more than one percent.
    pub fn clock(mut self, clock: Arc<dyn Clock>, drift: Drift) -> Self {
        (self.clock, self.drift) = (clock, drift);
        self
    }

    /// Sets the source of the random numbers of holder ids: a test that seeds it can repeat a schedule.
    #[doc(hidden)]
    pub fn rng(self, rng: impl Rng + Send + 'static) -> Self {
        Self { rng: ClientRng::of(rng), ..self }
    }

    /// Connects to the backend of `url`, like [`Client::connect`].
    ///
    /// # Errors
    /// See [`Client::connect`], and [`Error::Config`] for settings out of range.
    ///
    /// # Panics
    /// If the runtime has no timers or no I/O; `enable_all` enables both.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no connection behind.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.backend(crate::backends::connect(url).await?)
    }

    /// Uses an existing backend.
    ///
    /// # Errors
    /// [`Error::Config`] outside a tokio runtime, and for settings out of range.
    ///
    /// # Panics
    /// If the runtime has no timers.
    pub fn backend(self, backend: Arc<dyn Backend>) -> Result<Client, Error> {
        let limits = self.sharing.then_some(self.limits);
        ClientInner::start(backend, self.clock, self.drift, self.rng, limits).map(Client::of)
    }
}

impl Client {
    /// Connects to the backend of `url`.
    ///
    /// | URL | where the locks are |
    /// |---|---|
    /// | `memory:` | in this process: all its clients of `memory:` exclude each other |
    /// | `memory:NAME` | in this process, separate from other names: the same name refers to the same locks |
    /// | `file:DIR` | in files below `DIR`, for the processes of one machine |
    /// | `redis://[user:password@]host[:port][/db]` | on one Redis server; `rediss://` with TLS, `redis+unix://PATH` over its Unix socket |
    /// | `redis+sentinel://host,host,host/master[/db]` | on the Redis master that sentinels name; `rediss+sentinel://` with TLS |
    /// | `redis+cluster://host,host,host` | on a Redis Cluster; `rediss+cluster://` with TLS |
    /// | `redlock://host[:port],host[:port],host[:port]` | on a majority of independent Redis servers; `redlock+tls://` with TLS |
    ///
    /// Other crates can add schemes: [`register`](crate::register).
    ///
    /// `DIR` is an absolute path: a relative one is refused, because it would be another directory for a program that is started
    /// elsewhere. `%7E`, `%24`, `%3F` and `%25` stand for the characters `~`, `$`, `?` and `%`.
    ///
    /// A test that needs isolated locks uses [`Builder::backend`] with a [`Memory::new`](crate::backends::Memory::new).
    ///
    /// New servers of a `redlock://` URL grant nothing for a minute; [`backends::init`](crate::backends::init) registers them so that they
    /// grant immediately.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid URL, rejected credentials, and servers that belong to another
    /// set; [`Error::Unreachable`] if the backend does not answer.
    ///
    /// # Panics
    /// If the runtime has no timers or no I/O; `enable_all` enables both.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no connection behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A builder for a client with other settings than the default.
    pub fn builder() -> Builder {
        Builder::default()
    }
}
