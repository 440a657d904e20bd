use crate::Released;
use crate::driver::{ClientInner, Driver};
use crate::election::Election;
use crate::error::{Error, unconfirmed};
use crate::find_path::find_path;
use crate::identity::ClientRng;
use crate::lock::Lock;
use crate::lock_all::LockAll;
use crate::once::{OncePerWindow, done};
use crate::semaphore::Semaphore;
use crate::settings::LockSettings;
use crate::slots::Slots;
use crate::window_done::WindowDone;
use fencelock_core::engine::{Rng, SharingLimits};
use fencelock_core::once::Window;
use fencelock_core::{
    Backend, BackendReport, BootClock, Capabilities, Clock, Drift, Eviction, Finding, HolderId, Holding, Key,
    LossReason, Mode, Renew, Renewal, Ttl, Unknown,
};
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A client of one backend. It renews the locks that it holds, and releases them in the background when their guards are
/// dropped.
///
/// Cloning is cheap, and clones share all state. A client belongs to the tokio runtime on which it was created, which needs
/// timers and I/O (`enable_all`); guards may be used and dropped anywhere. When that runtime has ended, claims fail with
/// [`Error::Config`], because nothing would renew their leases, and the locks that are held end with their leases.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

impl Client {
    /// Returns a lock on `key` that is not acquired yet. No request is sent until it is awaited; an invalid key is reported
    /// then.
    #[track_caller]
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock::new(&self.inner, key.as_ref(), LockSettings::requested_at(Location::caller()))
    }

    /// Returns a semaphore on `key` with `limit` permits. Nothing is acquired yet. An invalid key or limit is reported
    /// when you acquire permits.
    ///
    /// ```
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let uploads = client.semaphore("uploads", 3);
    /// let large = uploads.acquire(2).await?;
    /// let small = uploads.acquire(1).await?;
    /// assert!(uploads.try_acquire(1).await?.is_none());
    /// # drop((large, small));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    #[track_caller]
    pub fn semaphore(&self, key: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore { lock: self.lock(key), limit }
    }

    /// Returns a candidate of the election `name`, which can also observe it. No request is sent until it campaigns or observes; an
    /// invalid name is reported then.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election { lock: Lock::new(&self.inner, name.as_ref(), LockSettings::unshared()) }
    }

    /// Returns locks on several keys, 1 to 16, that are not acquired yet: all of them are acquired, or none. No request is sent until
    /// they are awaited; an invalid key, and a key that is passed twice, are reported then.
    ///
    /// ```
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let accounts = client.lock_all(["account:7", "account:3"]).await?;
    /// let [from, to] = accounts.fencing_tokens()[..] else { unreachable!() };
    /// println!("transfer from 7 under token {from} to 3 under token {to}");
    /// accounts.release().await?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    #[track_caller]
    pub fn lock_all<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> LockAll {
        LockAll::new(&self.inner, keys)
    }

    /// Returns locks on 1 to 34 keys, each in its own mode, which are acquired as those of [`Client::lock_all`].
    #[track_caller]
    pub fn lock_each(&self, locks: impl IntoIterator<Item = (Key, Mode)>) -> LockAll {
        LockAll::each(&self.inner, locks)
    }

    /// Returns a lock on a file or a directory, and on everything below it: it is in conflict with locks on the same path, above and below
    /// it, unless both are [shared](LockAll::shared). The path and its worktree are [found](find_path) now; an invalid one is reported
    /// when the lock is awaited. For a path below another root, use [`Client::lock_each`] with the [locks](crate::TreePath::locks) of that.
    ///
    /// ```no_run
    /// # async fn demo() -> Result<(), fencelock::Error> {
    /// # let client = fencelock::Client::connect("file:/run/lock/agents").await?;
    /// let edit = client.path("src/db/schema.rs").label("rename the table").await?;
    /// assert!(client.path("src").try_acquire().await?.is_none());
    /// edit.release().await
    /// # }
    /// ```
    #[track_caller]
    pub fn path(&self, path: impl AsRef<Path>) -> LockAll {
        LockAll::path(&self.inner, find_path(path, None).map(|(path, _)| path))
    }

    /// Returns work on `key` that succeeds at most once in each window of this length, 1 s to 400 days, on all machines together.
    /// No request is sent until it runs; an invalid key or window is reported then.
    pub fn once(&self, key: impl AsRef<str>, every: Duration) -> OncePerWindow {
        OncePerWindow::new(&self.inner, key.as_ref(), Window::new(every))
    }

    /// Returns work on `key` that runs if its last success is at least this old, 1 s to 400 days, on all machines together. The age of
    /// a success is counted from the moment when its run got the lock. It is for work that is started at about the same time of each
    /// day: an interval of 20 hours tolerates clocks that differ, and daylight saving time. No request is sent until it runs; an invalid
    /// key or interval is reported then.
    pub fn min_interval(&self, key: impl AsRef<str>, interval: Duration) -> OncePerWindow {
        OncePerWindow::new(&self.inner, key.as_ref(), Window::since_last(interval))
    }

    /// The last success of the work of [`Client::once`] and [`Client::min_interval`] on `key`, until the end of the latest window that
    /// its callers have named for it. For a certain window, use [`OncePerWindow::done`]. It changes nothing.
    ///
    /// # Errors
    /// The errors of [`OncePerWindow::done`].
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn last_success(&self, key: impl AsRef<str>) -> Result<Option<WindowDone>, Error> {
        done(&self.inner, key.as_ref(), None).await
    }

    /// Returns `slots` numbered slots, 1 to 1000; each client takes one of them. This is a semaphore that works on every backend, and
    /// whose tokens a resource can check. No request is sent until one is acquired; an invalid key or number is reported then.
    pub fn slots(&self, key: impl AsRef<str>, slots: u32) -> Slots {
        Slots { lock: Lock::new(&self.inner, key.as_ref(), LockSettings::default()), slots }
    }

    #[cfg(test)]
    pub(crate) const fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    pub(crate) fn driver(&self) -> Arc<Driver> {
        Arc::<Driver>::clone(&self.inner)
    }

    /// The name of the backend for messages, without secrets.
    pub fn name(&self) -> String {
        self.inner.config.backend.clone()
    }

    /// The capabilities of the backend.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.backend.capabilities()
    }

    /// Whether the backend stores what [`Client::once`] needs.
    pub fn stores_completions(&self) -> bool {
        self.capabilities().completions
    }

    /// Returns the holders of `key`; `None` if it is free. The answer may be out of date when it arrives. It is the view of
    /// the server: it counts the waiters there, and contains the last token of a lease that tasks of one client share.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key, [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Holding>, Error> {
        let key = Key::new(key)?;
        self.inner.ask(Some(&key), self.inner.backend.inspect(&key)).await
    }

    /// The number of tasks of this client that wait in the queue for `key`, locally or at the server.
    ///
    /// Tasks that share leases are a single waiter at the server, so [`Holding::waiters`] counts at most one of them; of tasks
    /// that wait for permits, at most as many as could hold some together. Tasks that try once, or poll ([`Lock::retry`]), do
    /// not wait in the queue. The number is zero for an invalid key.
    pub fn waiting(&self, key: impl AsRef<str>) -> usize {
        let cells = Key::new(key).ok().map(|key| self.inner.keys.of_key(&key));
        cells.into_iter().flatten().map(|cell| cell.with(|engine, _| engine.waiting())).sum()
    }

    /// Returns the held keys, in any order.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn list(&self) -> Result<Vec<Holding>, Error> {
        self.inner.ask(None, self.inner.backend.list()).await
    }

    /// Ends a hold that was inspected, if it has not changed. Its holder is notified of the loss, which may
    /// take up to a third of its TTL; until then, only the fencing token stops it.
    ///
    /// It is not an error if the hold has ended or the holder has changed: the [`Eviction`] reports it, and nothing is changed.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the hold may or may not be ended; calling it again is harmless.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hold may or may not be ended; calling it again is harmless.
    pub async fn evict(&self, seen: &Holding) -> Result<Eviction, Error> {
        self.inner.ask(Some(&seen.key), self.inner.backend.evict(seen)).await
    }

    /// Releases a hold with the holder id that [`crate::Guard::into_holder`] returned.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key; [`Error::Unreachable`]: the hold may or may not be released; calling it again is harmless.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hold may or may not be released; calling it again is harmless.
    pub async fn release(&self, key: impl AsRef<str>, holder: HolderId) -> Result<Released, Error> {
        let key = Key::new(key)?;
        let outcome = self.inner.ask(Some(&key), self.inner.backend.release(&key, &holder)).await?;
        Ok(Released::of(outcome, LossReason::Expired))
    }

    /// Renews a hold once with its holder id, and returns the remaining validity of the lease: `ttl`, minus the time of the
    /// request and the drift allowance. [`Duration::MAX`] if holds do not expire.
    ///
    /// # Errors
    /// [`Error::Lost`] if the holder does not hold the key: its lease has ended, or it was released. [`Error::Config`] for an invalid key or TTL,
    /// [`Error::NotReplicated`]; [`Error::Unreachable`]: the hold may or may not be renewed; calling it again is harmless.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hold may or may not be renewed; calling it again is harmless.
    pub async fn renew(&self, key: impl AsRef<str>, holder: HolderId, ttl: Duration) -> Result<Duration, Error> {
        self.inner.check_process()?;
        let key = Key::new(key)?;
        let ttl = Ttl::new(ttl)?;
        self.inner.config.drift.check(ttl)?;
        self.capabilities().check_ttl(ttl)?;
        let renewal = [Renewal::new(key.clone(), holder, ttl)];
        // A lease counts from the time of the request.
        let sent = self.inner.clock.now();
        let answer = self.inner.backend.renew(&renewal).await.pop();
        let no_answer = || Err(Unknown::new(self.name(), fencelock_core::Fault::Other, "no answer"));
        let reason = match answer.unwrap_or_else(no_answer) {
            Ok(Renew::Renewed { .. }) => {
                return Ok(self.inner.config.lease(sent, ttl).remaining(self.inner.clock.now()));
            }
            Ok(Renew::Absent) => LossReason::Expired,
            Ok(Renew::TakenBy(holders)) => LossReason::TakenBy(holders),
            Err(cause) => return Err(unconfirmed(&key, cause, Duration::ZERO, 1)),
        };
        Err(Error::lost(key, reason))
    }

    /// Tries what a lock does, on a key of its own, and takes it back. `diagnose` then knows what does not work. It
    /// returns findings, also if it was not tried: on a server that is in quarantine, and where a claim would create a directory or
    /// a marker. `key` names a key that no program uses, for a user who may not use every key; files need none.
    ///
    /// Whatever it writes is removed, and expires within 5 s if this program is killed. A file stays then until the next trial.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid key.
    ///
    /// # Cancel safety
    /// If the future is dropped, what it has written expires within 5 s.
    pub async fn try_out(&self, key: Option<&str>) -> Result<Vec<Finding>, Error> {
        self.inner.check_process()?;
        let key = key.map(Key::new).transpose()?;
        let mut findings = self.inner.backend.try_out(key.as_ref()).await;
        if findings.is_empty() {
            // Other findings say so as well, if there was no answer to them either.
            findings.push(Finding::not_tried("no server answered", "run doctor again"));
        }
        Ok(findings)
    }

    /// Checks what the guarantees of this backend depend on: what it consists of, what works there, and one [`Finding`] for each
    /// check, also if the backend is unavailable. Without an answer of a server, its report says why.
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn diagnose(&self) -> BackendReport {
        self.inner.backend.diagnose().await
    }

    /// Rejects new claims on all clones, ends waiting ones with [`Error::Closed`], and waits until they have ended,
    /// every guard is released and every release is confirmed, for at most `within`.
    ///
    /// A cancelled claim may still arrive at the server. Its release is repeated a second later, when the claim can no longer
    /// arrive; until then it counts as pending.
    ///
    /// # Errors
    /// [`Error::Closed`] with the remaining holds and releases if the time is over. The remaining holds stay with their guards.
    /// [`Error::Config`] in a forked child.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed, and only the waiting ends.
    pub async fn close(self, within: Duration) -> Result<(), Error> {
        self.inner.check_process()?;
        self.inner.close();
        tokio::time::timeout(within, self.inner.drained()).await.map_err(|_| self.inner.closed_error())
    }
}

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
        ClientInner::start(backend, self.clock, self.drift, self.rng, limits).map(|inner| Client { inner })
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
