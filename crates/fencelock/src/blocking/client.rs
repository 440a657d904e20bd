use super::{Election, Lock, LockAll, OnThread, OncePerWindow, Semaphore, Slots, facade, thread::ClientThread};
use crate::driver::watch_exit;
use crate::{
    Backend, BackendReport, Capabilities, Clock, Drift, Error, Eviction, Finding, HolderId, Holding, Key, Mode,
    Released, WindowDone,
};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client of one backend, with a thread that renews and releases its locks.
///
/// Cloning is cheap, and clones share all state. The async type is [`crate::Client`].
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let guard = client.lock("lock:sku:1").acquire()?;
/// let seen = client.inspect("lock:sku:1")?.expect("it is held");
/// assert_eq!(client.list()?[0].key, seen.key);
/// guard.release()?;
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type Client = OnThread<crate::Client>;

impl Client {
    /// Connects to the backend of `url`, and starts the thread of the client. The URLs are those of
    /// [`crate::Client::connect`]: `memory:`, `file:DIR`, `redis://HOST`, `redlock://HOST,HOST,HOST`, ...
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid URL, rejected credentials, servers that belong to another set,
    /// and if the thread cannot start; [`Error::Unreachable`] if the backend does not answer.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url)
    }

    /// A builder for a client with other settings than the default.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a thread, and creates the client there, because a client belongs to its runtime.
    pub(super) fn start(
        making: impl Future<Output = Result<crate::Client, Error>> + Send + 'static,
    ) -> Result<Self, Error> {
        let thread = Arc::new(ClientThread::start()?);
        let inner = thread.run(making)??;
        // A client that is never dropped is closed at the end of the program.
        watch_exit(thread.client.get_or_init(|| inner.driver()));
        Ok(Self { inner, thread })
    }

    facade! { Client:
        /// Returns a lock on `key` that is not acquired yet. An invalid key is reported when it is acquired.
        #[track_caller]
        pub fn lock(&self, key: impl AsRef<str>) -> Lock;

        /// Returns a semaphore on `key` with `limit` permits. An invalid key or limit is reported when you acquire permits.
        #[track_caller]
        pub fn semaphore(&self, key: impl AsRef<str>, limit: u32) -> Semaphore;

        /// Returns a candidate of the election `name`, which can also observe it.
        pub fn election(&self, name: impl AsRef<str>) -> Election;

        /// Returns work on `key` that succeeds at most once in each window of this length, 1 s to 400 days.
        pub fn once(&self, key: impl AsRef<str>, every: Duration) -> OncePerWindow;

        /// Returns work on `key` that runs if its last success is at least this old, 1 s to 400 days.
        pub fn min_interval(&self, key: impl AsRef<str>, interval: Duration) -> OncePerWindow;

        /// Returns `slots` numbered slots, 1 to 1000; each client takes one of them.
        pub fn slots(&self, key: impl AsRef<str>, slots: u32) -> Slots;
    }

    /// Returns locks on several keys, 1 to 16, that are not acquired yet: all of them are acquired, or none. See the async
    /// [`Client::lock_all`](crate::Client::lock_all).
    #[track_caller]
    pub fn lock_all<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> LockAll {
        self.beside(self.inner.lock_all(keys))
    }

    /// Returns locks on 1 to 34 keys, each in its own mode. See the async [`Client::lock_each`](crate::Client::lock_each).
    #[track_caller]
    pub fn lock_each(&self, locks: impl IntoIterator<Item = (Key, Mode)>) -> LockAll {
        self.beside(self.inner.lock_each(locks))
    }

    /// Returns a lock on a file or a directory, and on everything below it. See the async [`Client::path`](crate::Client::path).
    #[track_caller]
    pub fn path(&self, path: impl AsRef<Path>) -> LockAll {
        self.beside(self.inner.path(path))
    }

    facade! { Client:
        /// The last success of the work of [`Client::once`] and [`Client::min_interval`] on `key`.
        pub async fn last_success(&self, key: impl AsRef<str> = key.as_ref().to_owned()) -> Result<Option<WindowDone>, Error>;

        /// The name of the backend for messages, without secrets.
        pub fn name(&self) -> String;

        /// The capabilities of the backend.
        pub fn capabilities(&self) -> Capabilities;

        /// Whether the backend stores what [`Client::once`] needs.
        pub fn stores_completions(&self) -> bool;

        /// Returns the holders of `key`; `None` if it is free. The answer may be out of date when it arrives.
        pub async fn inspect(&self, key: impl AsRef<str> = key.as_ref().to_owned()) -> Result<Option<Holding>, Error>;

        /// The number of threads of this client that wait in the queue for `key`, locally or at the server. Threads that try
        /// once, or poll ([`Lock::retry`]), do not.
        pub fn waiting(&self, key: impl AsRef<str>) -> usize;

        /// Returns the held keys, in any order.
        pub async fn list(&self) -> Result<Vec<Holding>, Error>;

        /// Ends a hold that was inspected, if it has not changed.
        pub async fn evict(&self, seen: &Holding = seen.clone() => &seen) -> Result<Eviction, Error>;

        /// Releases a hold with the holder id that [`Guard::into_holder`](super::Guard::into_holder) returned.
        pub async fn release(&self, key: impl AsRef<str> = key.as_ref().to_owned(), holder: HolderId) -> Result<Released, Error>;

        /// Renews a hold once with its holder id for `ttl`, 10 ms to 24 h, and returns the remaining validity of the lease.
        pub async fn renew(
            &self,
            key: impl AsRef<str> = key.as_ref().to_owned(),
            holder: HolderId,
            ttl: Duration,
        ) -> Result<Duration, Error>;

        /// Tries what a lock does, on a key of its own, and takes it back.
        pub async fn try_out(
            &self,
            key: Option<&str> = key.map(str::to_owned) => key.as_deref(),
        ) -> Result<Vec<Finding>, Error>;

        /// Rejects new claims on all clones, ends waiting ones with [`Error::Closed`], and waits for at most `within` until
        /// every guard is released.
        pub async fn close(self, within: Duration) -> Result<(), Error>;
    }

    /// Checks what the guarantees of this backend depend on, also if it is unavailable: see the async
    /// [`Client::diagnose`](crate::Client::diagnose).
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn diagnose(&self) -> BackendReport {
        let client = self.inner.clone();
        self.thread.wait(async move { client.diagnose().await }).unwrap_or_default()
    }
}

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
    facade! { Builder:
        /// Whether threads of this client share leases; on by default.
        pub fn sharing(self, sharing: bool) -> Self;

        /// The limit of a batch of grants within this client while another client waits for the key.
        pub fn batch(self, grants: u32, span: Duration) -> Self;

        /// How long threads of this client pass a key among themselves, and for how long it then stays free for clients that only
        /// poll.
        pub fn yield_interval(self, stretch: Duration, pause: Duration) -> Self;

        /// How long a lease without a waiting thread is kept for the next thread of this client; by default not at all.
        pub fn idle_timeout(self, span: Duration) -> Self;

        /// Sets the clock, and the bound for clock drift.
        pub fn clock(self, clock: Arc<dyn Clock>, drift: Drift) -> Self;
    }

    fn map(self, change: impl FnOnce(crate::Builder) -> crate::Builder) -> Self {
        Self { inner: change(self.inner) }
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
