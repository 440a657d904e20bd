//! The same names without async: for scripts, threads, and programs that have no runtime.
//!
//! A client here has a runtime on a thread of its own, so leases are renewed while the caller computes. It may be used
//! from any thread, also from inside an async runtime, where it blocks that thread.
//!
//! ```
//! use std::time::Duration;
//!
//! let client = fencelock::blocking::Client::connect("memory:")?;
//! let guard = client.lock("sku:0001").wait(Duration::from_secs(5)).acquire()?;
//! println!("writing under token {}", guard.fencing_token());
//! guard.release()?;
//! # Ok::<(), fencelock::Error>(())
//! ```

use crate::janitor::Janitor;
use crate::{
    Capabilities, Error, Eviction, FencingToken, Finding, Held, HolderId, Holding, Invalid, Key, LossReason, Released,
    Unknown, Waiting,
};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// As [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Client {
    inner: crate::Client,
    engine: Arc<Engine>,
}

/// A runtime on a thread of its own.
struct Engine {
    /// Taken out when it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
    janitor: OnceLock<Arc<Janitor>>,
}

/// How long the last handle to go waits for the releases of guards that were dropped before it: a script that ends after
/// its last guard should not leave the lock to its TTL.
const DRAIN: Duration = Duration::from_secs(1);

impl Engine {
    fn start() -> Result<Self, Error> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fencelock")
            .enable_all()
            .build()
            .map(|runtime| Self { runtime: Some(runtime), janitor: OnceLock::new() })
            .map_err(|error| Invalid::new(format!("the system gave no thread for the client: {error}")).into())
    }

    /// Runs `work` on the engine's thread and blocks until it is done; `None` only if it panicked.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
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
        if let Some(janitor) = self.janitor.take().filter(|janitor| janitor.pending() > 0) {
            let (done, drained) = std::sync::mpsc::sync_channel(1);
            runtime.spawn(async move {
                janitor.idle().await;
                let _ = done.send(());
            });
            let _ = drained.recv_timeout(DRAIN);
        }
        // Waiting for it would panic inside an async runtime.
        runtime.shutdown_background();
    }
}

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// The same.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let engine = Arc::new(Engine::start()?);
        let url = url.to_owned();
        let inner = engine.get(async move { crate::Client::connect(&url).await })?;
        engine.janitor.get_or_init(|| inner.janitor());
        Ok(Self { inner, engine })
    }

    /// As [`crate::Client::lock`].
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock { inner: self.inner.lock(key), engine: Arc::clone(&self.engine) }
    }

    /// As [`crate::Client::name`].
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// As [`crate::Client::capabilities`].
    pub fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// As [`crate::Client::inspect`].
    ///
    /// # Errors
    /// The same.
    pub fn inspect(&self, key: &str) -> Result<Option<Holding>, Error> {
        let (client, key) = (self.inner.clone(), key.to_owned());
        self.engine.get(async move { client.inspect(&key).await })
    }

    /// As [`crate::Client::waiting`].
    pub fn waiting(&self, key: &str) -> usize {
        self.inner.waiting(key)
    }

    /// As [`crate::Client::list`].
    ///
    /// # Errors
    /// The same.
    pub fn list(&self) -> Result<Vec<Holding>, Error> {
        let client = self.inner.clone();
        self.engine.get(async move { client.list().await })
    }

    /// As [`crate::Client::evict`].
    ///
    /// # Errors
    /// The same.
    pub fn evict(&self, seen: &Holding) -> Result<Eviction, Error> {
        let (client, seen) = (self.inner.clone(), seen.clone());
        self.engine.get(async move { client.evict(&seen).await })
    }

    /// As [`crate::Client::release`].
    ///
    /// # Errors
    /// The same.
    pub fn release(&self, key: &str, holder: HolderId) -> Result<Released, Error> {
        let (client, key) = (self.inner.clone(), key.to_owned());
        self.engine.get(async move { client.release(&key, holder).await })
    }

    /// As [`crate::Client::renew`].
    ///
    /// # Errors
    /// The same.
    pub fn renew(&self, key: &str, holder: HolderId, ttl: Duration) -> Result<(), Error> {
        let (client, key) = (self.inner.clone(), key.to_owned());
        self.engine.get(async move { client.renew(&key, holder, ttl).await })
    }

    /// As [`crate::Client::examine`].
    pub fn examine(&self) -> Vec<Finding> {
        let client = self.inner.clone();
        self.engine.run(async move { client.examine().await }).unwrap_or_default()
    }

    /// As [`crate::Client::close`].
    ///
    /// # Errors
    /// The same.
    pub fn close(self, within: Duration) -> Result<(), Error> {
        let Self { inner, engine } = self;
        engine.get(async move { inner.close(within).await })
    }
}

/// As [`crate::Lock`].
#[must_use = "a lock does nothing until it is acquired"]
#[derive(Debug, Clone)]
pub struct Lock {
    inner: crate::Lock,
    engine: Arc<Engine>,
}

impl Lock {
    /// As [`crate::Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.inner = self.inner.ttl(ttl);
        self
    }

    /// As [`crate::Lock::wait`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.inner = self.inner.wait(wait);
        self
    }

    /// As [`crate::Lock::retry`].
    pub fn retry(mut self, times: u32, pause: Duration) -> Self {
        self.inner = self.inner.retry(times, pause);
        self
    }

    /// As [`crate::Lock::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.inner = self.inner.label(label);
        self
    }

    /// As [`crate::Lock::max_hold`].
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.inner = self.inner.max_hold(max_hold);
        self
    }

    /// As [`crate::Lock::on_wait`].
    pub fn on_wait(mut self, told: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_wait(told);
        self
    }

    /// As [`crate::Lock::on_trouble`].
    pub fn on_trouble(mut self, told: impl Fn(&Unknown) + Send + Sync + 'static) -> Self {
        self.inner = self.inner.on_trouble(told);
        self
    }

    /// As [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// The same.
    pub fn acquire(self) -> Result<Guard, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.acquire())?;
        Ok(Guard { inner: guard, engine })
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    /// The same.
    pub fn try_acquire(self) -> Result<Option<Guard>, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.try_acquire())?;
        Ok(guard.map(|guard| Guard { inner: guard, engine }))
    }

    /// As [`crate::Lock::resume`].
    ///
    /// # Errors
    /// The same.
    pub fn resume(self, holder: HolderId) -> Result<Guard, Error> {
        let Self { inner, engine } = self;
        let guard = engine.get(inner.resume(holder))?;
        Ok(Guard { inner: guard, engine })
    }

    /// Runs `body` while the lock is held. A closure cannot be interrupted, so it should look at [`Held::is_held`] where
    /// it can still stop; if the lock was lost on the way, `release` in the result says so.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub fn run<T>(self, body: impl FnOnce(Held) -> T) -> Result<crate::Finished<T>, Error> {
        let guard = self.acquire()?;
        let value = body(guard.held());
        Ok(crate::Finished { value, release: guard.release() })
    }
}

/// As [`crate::Guard`].
#[must_use = "the lock is released when its guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    inner: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    /// As [`crate::Guard::key`].
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// As [`crate::Guard::holder`].
    pub fn holder(&self) -> HolderId {
        self.inner.holder()
    }

    /// As [`crate::Guard::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// As [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// As [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// As [`crate::Guard::check`].
    ///
    /// # Errors
    /// The same.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// As [`crate::Guard::held`].
    pub fn held(&self) -> Held {
        self.inner.held()
    }

    /// Waits at most `within` for the loss; `None` if the lock is still held then.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        let held = self.inner.held();
        let lost = async move { tokio::time::timeout(within, held.lost()).await.ok() };
        self.engine.run(lost).flatten()
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// The same.
    pub fn release(self) -> Result<Released, Error> {
        let Self { inner, engine } = self;
        engine.get(inner.release())
    }

    /// As [`crate::Guard::into_holder`].
    pub fn into_holder(self) -> HolderId {
        self.inner.into_holder()
    }
}
