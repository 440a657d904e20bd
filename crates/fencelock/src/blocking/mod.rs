//! The blocking API: for scripts, threads, and programs without a runtime.
//!
//! A client has a tokio runtime on its own thread, so leases are renewed while your threads compute. The names
//! and guarantees are those of the async types. Methods that are awaited there block the calling thread here.
//!
//! | async | here |
//! |---|---|
//! | `client.lock(key).await?` | `client.lock(key).acquire()?` |
//! | `client.lock(key).run(async \|held\| ..).await` | `client.lock(key).run(\|held\| ..)` |
//! | `guard.lost().await` | `guard.lost()`, or `guard.lost_within(span)` |
//! | dropping a future cancels it | a call cannot be cancelled: limit it with [`Lock::wait`] |
//!
//! ```
//! use fencelock::blocking::Client;
//! use std::time::Duration;
//!
//! let client = Client::connect("memory:")?; // or file:DIR, redis://HOST
//!
//! let guard = client.lock("sku:0001").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5)).acquire()?;
//! println!("writing under token {}", guard.fencing_token());
//! guard.release()?; // dropping the guard releases in the background
//! # Ok::<(), fencelock::Error>(())
//! ```
//!
//! All types may be used from any thread. Calls in an async runtime block the thread of that runtime:
//! use the async types there.
//!
//! Callbacks (`on_wait`, `on_trouble`) run on the thread of the client, which also renews its leases: they must return quickly,
//! and calls of a blocking client in them fail, or panic if they return no error. A panic of a callback continues on the thread
//! whose call waits.
//!
//! The thread ends when the last [`Client`], [`Lock`] and [`Guard`] of a client is dropped. That drop waits up to
//! 250 ms for the releases of guards that were dropped before, so a script that exits after its last guard does not leave
//! the lock to its TTL. The end of the main thread waits in the same way for a client that is never dropped.

mod builder;
mod election;
mod guard;
mod guards;
mod lock;
mod lock_all;
mod once;
mod semaphore;
mod slots;

pub use builder::Builder;
pub use election::{Election, Leadership, Observer};
pub use guard::{Guard, Held};
pub use guards::{Guards, HeldAll};
pub use lock::Lock;
pub use lock_all::LockAll;
pub use once::{OncePerWindow, OnceRun, OnceStart, UnfinishedRun};
pub use semaphore::Semaphore;
pub use slots::{SlotGuard, Slots};

use crate::process::Process;
use crate::reaper::Reaper;
use crate::{
    Backend, BackendReport, Capabilities, Clock, Drift, Error, Eviction, Finding, HolderId, Holding, Invalid, Released,
    WindowDone,
};
use futures_util::FutureExt;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A client of one backend, with a thread that renews and releases its locks.
///
/// Cloning is cheap, and clones share all state. The async type is [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Client(OnThread<crate::Client>);

thread_local! {
    /// Whether this is a thread of such a client, which runs its callbacks.
    static IS_CLIENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

const IN_CALLBACK: &str = "a callback must not wait for a blocking client, because it runs on the thread that renews the \
                           leases: send what it learned to another thread";

/// A runtime on its own thread.
struct ClientThread {
    /// `None` after the drop.
    runtime: Option<tokio::runtime::Runtime>,
    reaper: OnceLock<Arc<Reaper>>,
    /// In a forked child, the thread does not exist.
    process: Process,
}

impl ClientThread {
    fn start() -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fencelock")
            .on_thread_start(|| IS_CLIENT_THREAD.set(true))
            .enable_all()
            .build()
            .map(|runtime| Self { runtime: Some(runtime), reaper: OnceLock::new(), process: Process::current() })
            .map_err(|error| {
                Invalid::new(format!("the system could not create a thread for the client: {error}")).into()
            })
    }

    /// Runs `work` on the thread of the client and blocks until it is done. A panic in it, which is one of a callback, continues
    /// on the calling thread. A forked child does not have the thread, and a callback would wait for itself.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Invalid> {
        self.process.check()?;
        if IS_CLIENT_THREAD.get() {
            return Err(Invalid::new(IN_CALLBACK));
        }
        let (done, result) = std::sync::mpsc::sync_channel(1);
        let ended = || Invalid::new("the thread of this client has ended");
        self.runtime.as_ref().ok_or_else(ended)?.spawn(async move {
            // The receiver is dropped only if the thread of the caller has ended.
            let _ = done.send(AssertUnwindSafe(work).catch_unwind().await);
        });
        result.recv().map_err(|_| ended())?.or_else(|panic| resume_unwind(panic))
    }

    /// As [`ClientThread::run`], for calls that return no error: `None` in a forked child. A callback panics.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        assert!(!IS_CLIENT_THREAD.get(), "{IN_CALLBACK}");
        self.run(work).ok()
    }

    fn get<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.run(work)?
    }
}

/// A value of the async API. Its futures run on the thread of its client.
#[derive(Debug, Clone)]
struct OnThread<T> {
    inner: T,
    thread: Arc<ClientThread>,
}

impl<T> OnThread<T> {
    /// Another value, on the same thread.
    fn beside<U>(&self, inner: U) -> OnThread<U> {
        OnThread { inner, thread: Arc::clone(&self.thread) }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> OnThread<U> {
        OnThread { inner: change(self.inner), thread: self.thread }
    }

    /// Blocks until this call is done.
    fn run<U: Send + 'static, F>(self, call: impl FnOnce(T) -> F) -> Result<OnThread<U>, Error>
    where
        F: Future<Output = Result<U, Error>> + Send + 'static,
    {
        Ok(OnThread { inner: self.thread.get(call(self.inner))?, thread: self.thread })
    }

    /// As [`OnThread::run`], with a copy of the value.
    fn ask<U: Send + 'static, F>(&self, call: impl FnOnce(T) -> F) -> Result<U, Error>
    where
        T: Clone,
        F: Future<Output = Result<U, Error>> + Send + 'static,
    {
        self.thread.get(call(self.inner.clone()))
    }
}

impl<T> OnThread<Option<T>> {
    fn transpose(self) -> Option<OnThread<T>> {
        let thread = self.thread;
        self.inner.map(|inner| OnThread { inner, thread })
    }
}

impl fmt::Debug for ClientThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientThread").finish_non_exhaustive()
    }
}

impl Drop for ClientThread {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if !self.process.is_current() {
            // The runtime belongs to the parent process.
            std::mem::forget(runtime);
            return;
        }
        // A script that exits after its last guard must not leave the lock to its TTL.
        if let Some(reaper) = self.reaper.take() {
            reaper.settle();
        }
        // Waiting would panic in an async runtime.
        runtime.shutdown_background();
    }
}

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
        Builder::new()
    }

    /// Uses an existing backend, with the production clock and the default drift.
    ///
    /// # Errors
    /// [`Error::Config`] if the thread cannot start.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        Self::builder().backend(backend)
    }

    /// Uses another clock, which must be the clock of the backend, and another drift allowance.
    ///
    /// # Errors
    /// [`Error::Config`] if the thread cannot start.
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, drift: Drift) -> Result<Self, Error> {
        Self::builder().clock(clock, drift).backend(backend)
    }

    /// Starts a thread, and creates the client there, because a client belongs to its runtime.
    fn start(making: impl Future<Output = Result<crate::Client, Error>> + Send + 'static) -> Result<Self, Error> {
        let thread = Arc::new(ClientThread::start()?);
        let inner = thread.get(making)?;
        // A client that is never dropped is closed at the end of the program.
        thread.reaper.get_or_init(|| inner.reaper()).watch_exit();
        Ok(Self(OnThread { inner, thread }))
    }

    /// Returns a lock on `key` that is not acquired yet. No request is sent until it is acquired; an invalid key is
    /// reported then.
    #[track_caller]
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock(self.0.beside(self.0.inner.lock(key)))
    }

    /// Returns a semaphore on `key` with `limit` permits. Nothing is acquired yet. An invalid key or limit is reported
    /// when you acquire permits.
    pub fn semaphore(&self, key: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore(self.0.beside(self.0.inner.semaphore(key, limit)))
    }

    /// Returns a candidate of the election `name`, which can also observe it. No request is sent until it campaigns or observes; an
    /// invalid name is reported then.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.beside(self.0.inner.election(name)))
    }

    /// Returns locks on several keys, 1 to 16, that are not acquired yet: all of them are acquired, or none. No request is sent until
    /// then; an invalid key, and a key that is passed twice, are reported then.
    #[track_caller]
    pub fn lock_all<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> LockAll {
        LockAll(self.0.beside(self.0.inner.lock_all(keys)))
    }

    /// Returns work on `key` that succeeds at most once in each window of this length, 1 s to 400 days. No request is sent until
    /// it runs; an invalid key or window is reported then.
    pub fn once(&self, key: impl AsRef<str>, every: Duration) -> OncePerWindow {
        OncePerWindow(self.0.beside(self.0.inner.once(key, every)))
    }

    /// Returns work on `key` that runs if its last success is at least this old, 1 s to 400 days: see [`crate::Client::min_interval`].
    pub fn min_interval(&self, key: impl AsRef<str>, interval: Duration) -> OncePerWindow {
        OncePerWindow(self.0.beside(self.0.inner.min_interval(key, interval)))
    }

    /// The last success of the work on `key`: see [`crate::Client::last_success`].
    ///
    /// # Errors
    /// The errors of [`OncePerWindow::done`].
    pub fn last_success(&self, key: impl AsRef<str>) -> Result<Option<WindowDone>, Error> {
        let key = key.as_ref().to_owned();
        self.0.ask(async move |client| client.last_success(key).await)
    }

    /// Returns `slots` numbered slots, 1 to 1000; each client takes one of them. No request is sent until one is acquired; an
    /// invalid key or number is reported then.
    pub fn slots(&self, key: impl AsRef<str>, slots: u32) -> Slots {
        Slots(self.0.beside(self.0.inner.slots(key, slots)))
    }

    /// The name of the backend for messages, without secrets.
    pub fn name(&self) -> String {
        self.0.inner.name()
    }

    /// The capabilities of the backend.
    pub fn capabilities(&self) -> Capabilities {
        self.0.inner.capabilities()
    }

    /// Whether the backend stores what [`Lock::once`] needs.
    pub fn stores_completions(&self) -> bool {
        self.0.inner.stores_completions()
    }

    /// Returns the holders of `key`; `None` if it is free. The answer may be out of date when it arrives.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key, [`Error::Unreachable`].
    pub fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Holding>, Error> {
        let key = key.as_ref().to_owned();
        self.0.ask(async move |client| client.inspect(key).await)
    }

    /// The number of threads of this client that wait in the queue for `key`, locally or at the server. Threads that try once,
    /// or poll ([`Lock::retry`]), do not.
    pub fn waiting(&self, key: impl AsRef<str>) -> usize {
        self.0.inner.waiting(key)
    }

    /// Returns the held keys, in any order.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub fn list(&self) -> Result<Vec<Holding>, Error> {
        self.0.ask(async move |client| client.list().await)
    }

    /// Ends a hold that was inspected, if it has not changed. Its holder is notified of the loss, which may
    /// take up to a third of its TTL; until then, only the fencing token stops it. It is not an error if the hold has ended
    /// or the holder has changed: the [`Eviction`] reports it, and nothing is changed.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the hold may or may not be ended, and calling it again is harmless.
    pub fn evict(&self, seen: &Holding) -> Result<Eviction, Error> {
        let seen = seen.clone();
        self.0.ask(async move |client| client.evict(&seen).await)
    }

    /// Releases a hold with the holder id that [`Guard::into_holder`] returned.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key; [`Error::Unreachable`]: the hold may or may not be released, and calling it
    /// again is harmless.
    pub fn release(&self, key: impl AsRef<str>, holder: HolderId) -> Result<Released, Error> {
        let key = key.as_ref().to_owned();
        self.0.ask(async move |client| client.release(key, holder).await)
    }

    /// Renews a hold once with its holder id for `ttl`, 10 ms to 24 h, and returns the remaining validity of the lease.
    /// [`Duration::MAX`] if holds do not expire.
    ///
    /// # Errors
    /// [`Error::Lost`] if the holder does not hold the key, [`Error::Config`] for an invalid key or TTL,
    /// [`Error::NotReplicated`]; [`Error::Unreachable`]: the hold may or may not be renewed, and calling it again is
    /// harmless.
    pub fn renew(&self, key: impl AsRef<str>, holder: HolderId, ttl: Duration) -> Result<Duration, Error> {
        let key = key.as_ref().to_owned();
        self.0.ask(async move |client| client.renew(key, holder, ttl).await)
    }

    /// Tries what a lock does, on a key of its own, and takes it back: see [`crate::Client::try_out`].
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key.
    pub fn try_out(&self, key: Option<&str>) -> Result<Vec<Finding>, Error> {
        let key = key.map(str::to_owned);
        self.0.ask(async move |client| client.try_out(key.as_deref()).await)
    }

    /// Checks what the guarantees of this backend depend on: what it consists of, what works there, and one [`Finding`] for each
    /// check, also if the backend is unavailable. Without an answer of a server, its report says why.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn diagnose(&self) -> BackendReport {
        let client = self.0.inner.clone();
        self.0.thread.wait(async move { client.diagnose().await }).unwrap_or_default()
    }

    /// Rejects new claims on all clones, ends waiting ones with [`Error::Closed`], and waits until they have ended,
    /// every guard is released and every release is confirmed, for at most `within`.
    ///
    /// # Errors
    /// [`Error::Closed`] with the remaining holds and releases if the time is over. The remaining holds stay with their guards.
    pub fn close(self, within: Duration) -> Result<(), Error> {
        self.0.run(|client| client.close(within)).map(drop)
    }
}
