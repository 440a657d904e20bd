use crate::acquire_all::acquire_all;
use crate::driver::{self, ClientInner};
use crate::error::Error;
use crate::guard::Released;
use crate::guards::{Guards, HeldAll, ReleasedAll};
use crate::lock::{settle, unless_busy};
use crate::request::{Request, SetRequest};
use crate::run::RunError;
use crate::settings::{Settings, setters};
use fencelock_core::{HolderId, Invalid, Key, KeySet, Mode};
use futures_util::future::join_all;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Locks on several keys that are not acquired yet. Await it, or call [`LockAll::try_acquire`] or [`LockAll::run`].
///
/// All of the locks are acquired, or none. If all keys are free, this takes one round trip. If a key is held, the claim waits in
/// its queue, and meanwhile only keys that sort before it, by their bytes, are held. So clients that lock the same keys never
/// deadlock, regardless of the order in which they pass them, and each key is granted in the order of the claims. Leases that are
/// held are renewed while the claim waits for the others. If one of them is lost, all are released and claimed again.
///
/// The first keys are held unused while the claim waits for the others, so lock only keys that belong together. Do not wait for several keys while you
/// hold another lock: two clients that do so can deadlock.
#[must_use = "the locks do nothing until they are awaited"]
#[derive(Clone)]
pub struct LockAll {
    client: Arc<ClientInner>,
    keys: Result<KeySet, Invalid>,
    pub(crate) settings: Settings,
}

impl LockAll {
    #[track_caller]
    pub(crate) fn new<K: AsRef<str>>(client: &Arc<ClientInner>, keys: impl IntoIterator<Item = K>) -> Self {
        let settings = Settings::requested_at(Location::caller());
        Self { client: Arc::clone(client), keys: KeySet::new(keys), settings }
    }

    /// Shared locks on all of the keys. See [`Lock::shared`](crate::Lock::shared).
    pub fn shared(mut self) -> Self {
        self.settings.mode = Mode::Shared;
        self
    }

    setters!(LockAll in settings);

    /// Waits for all locks, and acquires them.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`](crate::Lock::acquire). [`Error::Busy`] names the key that was held at the end of the wait. [`Error::Lost`] names a
    /// key that was lost while the others were waited for, if no time was left to start again. [`Error::Config`] also if there is
    /// no key, more than 16, or a key that is passed twice. With any error, the locks that were held are released before this
    /// returns, or in the background if that takes more than 250 ms.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, and releases the locks that are held in the background.
    pub async fn acquire(self) -> Result<Guards, Error> {
        let request = self.check()?;
        // The future of a single claim is large, and this one contains it.
        let guards = Box::pin(acquire_all(&self.client, &request)).await?;
        Ok(Guards::new(guards))
    }

    /// Acquires all locks if they are free and no client waits for them; `None` otherwise. The locks that were free are then
    /// released again.
    ///
    /// # Errors
    /// See [`LockAll::acquire`]; never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// See [`LockAll::acquire`].
    pub async fn try_acquire(self) -> Result<Option<Guards>, Error> {
        unless_busy(self.wait(Duration::ZERO).acquire().await)
    }

    /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders` are in
    /// the order of the keys.
    ///
    /// # Errors
    /// The errors of [`Lock::resume`](crate::Lock::resume); [`Error::Lost`] if one of the keys is no longer held by its holder, [`Error::Config`] also if
    /// there is not one holder for each key. With any error, the other locks are released in the
    /// background.
    ///
    /// # Cancel safety
    /// A hold that is not resumed yet continues without renewal until its lease ends; the others are released in the background.
    pub async fn resume(self, holders: impl IntoIterator<Item = HolderId>) -> Result<Guards, Error> {
        let SetRequest { keys, template } = self.check()?;
        let holders: Vec<_> = holders.into_iter().take(KeySet::MAX_KEYS + 1).collect();
        if holders.len() != keys.keys().len() {
            let (keys, holders) = (keys.keys().len(), holders.len());
            return Err(Invalid::new(format!("one holder for each of the {keys} keys is needed, not {holders}")).into());
        }
        let client = &self.client;
        let resumed = join_all(keys.keys().iter().zip(holders).map(|(key, holder)| {
            let request = Request { key: key.clone(), ..template.clone() };
            async move { driver::resume(client, &request, holder).await }
        }));
        let guards = resumed.await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Guards::new(guards))
    }

    /// Runs `body` while all locks are held, releases them, and returns the result of the body. If one of them is lost, the body is
    /// dropped at its next await point. See [`Lock::run`](crate::Lock::run).
    ///
    /// # Errors
    /// See [`Lock::run`](crate::Lock::run), with the key of the first loss.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases in the background.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(HeldAll) -> B,
        B: Future<Output = Result<T, E>>,
    {
        let guards = self.acquire().await?;
        let ended = tokio::select! {
            biased;
            ended = body(guards.held()) => ended,
            loss = guards.lost() => return Err(Error::from(loss).into()),
        };
        settle_all(guards.keys()[0].clone(), ended, guards.release().await)
    }

    fn check(&self) -> Result<SetRequest, Error> {
        let keys = self.keys.clone()?;
        let template = self.settings.check(&self.client, keys.keys()[0].clone())?;
        Ok(SetRequest { keys, template })
    }
}

/// As [`settle`]. `key` is one of the keys.
pub(crate) fn settle_all<T, E>(
    key: Key,
    ended: Result<T, E>,
    release: Result<ReleasedAll, Error>,
) -> Result<T, RunError<T, E>> {
    match release {
        Ok(ReleasedAll::Released) => settle(key, ended, Ok(Released::Released)),
        Ok(ReleasedAll::AlreadyLost { losses }) => {
            let first = losses.into_iter().next();
            let (key, why) = first.map_or((key, fencelock_core::LossReason::Expired), |loss| (loss.key, loss.reason));
            settle(key, ended, Ok(Released::AlreadyLost { why }))
        }
        Err(error) => settle(error.key().cloned().unwrap_or(key), ended, Err(error)),
    }
}

impl IntoFuture for LockAll {
    type Output = Result<Guards, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for LockAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockAll").field("keys", &self.keys).field("settings", &self.settings).finish_non_exhaustive()
    }
}
