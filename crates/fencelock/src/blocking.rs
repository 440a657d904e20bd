//! The same locks without async: for scripts, threads, and programs that have no runtime.
//!
//! A client here has a tokio runtime on a thread of its own, so leases are renewed while your threads compute. The names
//! and the promises are those of the async types. What is awaited there blocks the calling thread here; nothing else of the
//! process waits for it.
//!
//! | async | here |
//! |---|---|
//! | `client.lock(key).await?` | `client.lock(key).acquire()?` |
//! | `client.lock(key).run(async \|held\| ..).await` | `client.lock(key).run(\|held\| ..)` |
//! | `guard.lost().await` | `guard.lost()`, or `guard.lost_within(span)` |
//! | dropping a future gives it up | a call ends by itself: bound it with [`Lock::wait`] |
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
//! Everything here may be used from any thread. It may be called inside an async runtime too, but blocks that runtime's
//! thread: use the async types there.
//!
//! When the last [`Client`], [`Lock`] and [`Guard`] of a client are gone its thread ends. The last one to go waits up to
//! 250 ms for the releases of guards that were dropped before it, so a script that ends after its last guard does not leave
//! the lock to its TTL. The end of the main thread waits likewise for a client that is never dropped.

mod builder;
mod election;
mod guard;
mod lock;

pub use builder::Builder;
pub use election::{Election, Leadership, Observer};
pub use guard::{Guard, Held};
pub use lock::Lock;

use crate::identity::Process;
use crate::reaper::Reaper;
use crate::{Backend, Capabilities, Clock, Drift, Error, Eviction, Finding, HolderId, Holding, Invalid, Released};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where locks come from: one place where they live, and a thread that looks after those held here.
///
/// It is cheap to clone, and clones share everything. The async twin is [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Client {
    inner: crate::Client,
    engine: Arc<Engine>,
}

/// A runtime on a thread of its own.
struct Engine {
    /// Taken out when it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
    reaper: OnceLock<Arc<Reaper>>,
    /// In a fork its thread is not there.
    process: Process,
}

impl Engine {
    fn start() -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fencelock")
            .enable_all()
            .build()
            .map(|runtime| Self { runtime: Some(runtime), reaper: OnceLock::new(), process: Process::current() })
            .map_err(|error| Invalid::new(format!("the system gave no thread for the client: {error}")).into())
    }

    /// Runs `work` on the engine's thread and blocks until it is done; `None` only if it panicked.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        if !self.process.is_current() {
            return None;
        }
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.runtime.as_ref()?.spawn(async move {
            // Nobody takes the result only if the caller's thread is gone.
            let _ = done.send(work.await);
        });
        result.recv().ok()
    }

    fn get<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.process.check()?;
        self.run(work).unwrap_or_else(|| Err(Invalid::new("the client's thread panicked").into()))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if !self.process.is_current() {
            // What it is made of is the parent's.
            std::mem::forget(runtime);
            return;
        }
        // A script that ends after its last guard should not leave the lock to its TTL.
        if let Some(reaper) = self.reaper.take() {
            reaper.settle();
        }
        // Waiting for it would panic inside an async runtime.
        runtime.shutdown_background();
    }
}

impl Client {
    /// Connects to the place that `url` names, and starts the client's thread. The URLs are those of
    /// [`crate::Client::connect`]: `memory:`, `file:DIR`, `redis://HOST`, `redlock://HOST,HOST,HOST`, ...
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that cannot be used, credentials that are refused, servers that belong to another set,
    /// and a system that gives no thread; [`Error::Unreachable`] if nobody answers there.
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url)
    }

    /// A client with other settings than the usual ones.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Uses a backend that was made by hand, with the clock of production and the usual drift.
    ///
    /// # Errors
    /// [`Error::Config`] if the system gives no thread.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        Self::builder().backend(backend)
    }

    /// Uses another clock, which must go like that of the backend, and another allowance for drift.
    ///
    /// # Errors
    /// [`Error::Config`] if the system gives no thread.
    pub fn with_clock(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, drift: Drift) -> Result<Self, Error> {
        Self::builder().clock(clock, drift).backend(backend)
    }

    /// Starts a thread, and makes the client there: it lives on the runtime it was made on.
    fn start(making: impl Future<Output = Result<crate::Client, Error>> + Send + 'static) -> Result<Self, Error> {
        let engine = Arc::new(Engine::start()?);
        let inner = engine.get(making)?;
        // A client that is never dropped is left to the end of the program.
        engine.reaper.get_or_init(|| inner.reaper()).watch_exit();
        Ok(Self { inner, engine })
    }

    /// Describes a lock on `key`. Nothing is asked until it is acquired; an unusable key is reported then.
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock::new(self.inner.lock(key), Arc::clone(&self.engine))
    }

    /// Describes a part in the election `name`. Nothing is asked until it campaigns or looks; an unusable name is reported
    /// then.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.inner.election(name), Arc::clone(&self.engine))
    }

    /// The place, without secrets, for messages.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// What the place can and cannot do.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// Who has `key`; `None` if it is free. The answer may be out of date when it arrives.
    ///
    /// # Errors
    /// [`Error::Config`] for an unusable key, [`Error::Unreachable`].
    pub fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Holding>, Error> {
        let (client, key) = (self.inner.clone(), key.as_ref().to_owned());
        self.engine.get(async move { client.inspect(key).await })
    }

    /// How many threads of this client stand in line for `key` now, here or at the server. Those that ask once, or at times
    /// of their own ([`Lock::retry`]), do not.
    pub fn waiting(&self, key: impl AsRef<str>) -> usize {
        self.inner.waiting(key)
    }

    /// The keys held now, in no order.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub fn list(&self) -> Result<Vec<Holding>, Error> {
        let client = self.inner.clone();
        self.engine.get(async move { client.list().await })
    }

    /// Ends the hold that was seen, if it is still that one, whoever has it. Its holder is told that it is lost, but may
    /// take up to a third of its TTL to hear of it; only the fencing token stops it in between. A hold that has ended or
    /// changed hands meanwhile is no error: the [`Eviction`] says so, and nothing is touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: it may or may not have been ended, and calling it again is harmless.
    pub fn evict(&self, seen: &Holding) -> Result<Eviction, Error> {
        let (client, seen) = (self.inner.clone(), seen.clone());
        self.engine.get(async move { client.evict(&seen).await })
    }

    /// Releases by proof, for whoever took the proof out of a guard with [`Guard::into_holder`].
    ///
    /// # Errors
    /// [`Error::Config`] for an unusable key; [`Error::Unreachable`]: it may or may not have been released, and calling it
    /// again is harmless.
    pub fn release(&self, key: impl AsRef<str>, holder: HolderId) -> Result<Released, Error> {
        let (client, key) = (self.inner.clone(), key.as_ref().to_owned());
        self.engine.get(async move { client.release(key, holder).await })
    }

    /// Renews by proof, once, for `ttl`, 10 ms to 24 h, and says how long the lease certainly runs from now on.
    /// [`Duration::MAX`] where holds do not end by themselves.
    ///
    /// # Errors
    /// [`Error::Lost`] if the holder does not have the key, [`Error::Config`] for an unusable key or TTL,
    /// [`Error::NotReplicated`]; [`Error::Unreachable`]: it may or may not have been renewed, and calling it again is
    /// harmless.
    pub fn renew(&self, key: impl AsRef<str>, holder: HolderId, ttl: Duration) -> Result<Duration, Error> {
        let (client, key) = (self.inner.clone(), key.as_ref().to_owned());
        self.engine.get(async move { client.renew(key, holder, ttl).await })
    }

    /// Looks at everything that the promises of this place rest on: one [`Finding`] for each, also if it does not answer.
    pub fn diagnose(&self) -> Vec<Finding> {
        let client = self.inner.clone();
        self.engine.run(async move { client.diagnose().await }).unwrap_or_default()
    }

    /// Refuses new claims on all clones, ends those that wait with [`Error::Closed`], and waits until those have ended,
    /// every guard is released and every release confirmed, for at most `within`.
    ///
    /// # Errors
    /// [`Error::Closed`] with what was left when the time was over. Holds that are left stay with their guards.
    pub fn close(self, within: Duration) -> Result<(), Error> {
        let Self { inner, engine } = self;
        engine.get(async move { inner.close(within).await })
    }
}
