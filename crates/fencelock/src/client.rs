use crate::driver::ClientInner;
use crate::election::Election;
use crate::error::{Error, could_not_tell, unreachable_once};
use crate::guard::Released;
use crate::lock::Lock;
use crate::reaper::Reaper;
use fencelock_core::{
    Capabilities, Eviction, Finding, HolderId, Holding, Key, Lease, LossReason, Renew, Renewal, Ttl, Unknown,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where locks come from: one place where they live, and the two tasks that look after those held here.
///
/// It is cheap to clone, and clones share everything. It lives on the tokio runtime it was made on; guards may be
/// used and dropped anywhere.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Client {
    /// Describes a lock on `key`. Nothing is asked until it is awaited; an unusable key is reported then.
    pub fn lock(&self, key: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.inner), key.as_ref())
    }

    /// Describes a part in the election `name`. Nothing is asked until it campaigns or looks; an unusable name is reported
    /// then.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(Arc::clone(&self.inner), name.as_ref())
    }

    pub(crate) fn of(inner: Arc<ClientInner>) -> Self {
        Self { inner }
    }

    #[cfg(test)]
    pub(crate) const fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    pub(crate) fn reaper(&self) -> Arc<Reaper> {
        Arc::clone(&self.inner.reaper)
    }

    /// The place, without secrets, for messages.
    pub fn name(&self) -> String {
        self.inner.config.place.clone()
    }

    /// What the place can and cannot do.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.backend.capabilities()
    }

    /// Who has `key`; `None` if it is free. The answer may be out of date when it arrives. It is the server's: it counts
    /// those who wait there, and names the last token that a lease may use, where tasks of one client share it.
    ///
    /// # Errors
    /// [`Error::Config`] for an unusable key, [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Holding>, Error> {
        self.inner.check_process()?;
        let key = Key::new(key)?;
        self.inner.backend.inspect(&key).await.map_err(|cause| unreachable_once(Some(&key), cause))
    }

    /// How many tasks of this client stand in line for `key` now, here or at the server.
    ///
    /// Tasks that share leases are one waiter to the server, so [`Holding::waiters`] counts at most one of them. Those that ask
    /// once, or at times of their own ([`Lock::retry`]), do not stand in line. Nobody waits for a key that cannot be used.
    pub fn waiting(&self, key: impl AsRef<str>) -> usize {
        let cell = Key::new(key).ok().and_then(|key| self.inner.keys.get(&key));
        cell.map_or(0, |cell| cell.waiting())
    }

    /// The keys held now, in no order.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn list(&self) -> Result<Vec<Holding>, Error> {
        self.inner.check_process()?;
        self.inner.backend.list().await.map_err(|cause| unreachable_once(None, cause))
    }

    /// Ends the hold that was seen, if it is still that one, whoever has it. Its holder is told that it is lost, but may
    /// take up to a third of its TTL to hear of it; only the fencing token stops it in between.
    ///
    /// A hold that has ended or changed hands meanwhile is no error: the [`Eviction`] says so, and nothing is touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// It may or may not have been ended; calling it again is harmless.
    pub async fn evict(&self, seen: &Holding) -> Result<Eviction, Error> {
        self.inner.check_process()?;
        self.inner.backend.evict(seen).await.map_err(|cause| unreachable_once(Some(&seen.key), cause))
    }

    /// Releases by proof, for whoever took the proof out of a guard with [`crate::Guard::into_holder`].
    ///
    /// # Errors
    /// [`Error::Config`] for an unusable key, [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// It may or may not have been released; calling it again is harmless.
    pub async fn release(&self, key: impl AsRef<str>, holder: HolderId) -> Result<Released, Error> {
        self.inner.check_process()?;
        let key = Key::new(key)?;
        let outcome = self.inner.backend.release(&key, &holder).await;
        let outcome = outcome.map_err(|cause| unreachable_once(Some(&key), cause))?;
        Ok(Released::from_answer(outcome, LossReason::Expired))
    }

    /// Renews by proof, once, and says how long the lease certainly runs from now on: `ttl`, less the time that the answer
    /// took and what clocks may drift apart. [`Duration::MAX`] where holds do not end by themselves.
    ///
    /// # Errors
    /// [`Error::Lost`] if the holder does not have the key, [`Error::Config`] for an unusable key or TTL,
    /// [`Error::NotReplicated`], [`Error::Unreachable`].
    ///
    /// # Cancel safety
    /// It may or may not have been renewed; calling it again is harmless.
    pub async fn renew(&self, key: impl AsRef<str>, holder: HolderId, ttl: Duration) -> Result<Duration, Error> {
        self.inner.check_process()?;
        let key = Key::new(key)?;
        let ttl = Ttl::new(ttl)?;
        self.inner.config.drift.check(ttl)?;
        ttl.within(self.capabilities().longest_ttl)?;
        let renewal = [Renewal::new(key.clone(), holder, ttl)];
        // A lease counts from when it was asked for.
        let sent = self.inner.clock.now();
        let answer = self.inner.backend.renew(&renewal).await.pop();
        let reason = match answer {
            Some(Ok(Renew::Renewed { .. })) if !self.capabilities().expires => return Ok(Duration::MAX),
            Some(Ok(Renew::Renewed { .. })) => {
                let lease = Lease::granted(sent, ttl.get(), self.inner.config.drift);
                return Ok(lease.remaining(self.inner.clock.now()));
            }
            Some(Ok(Renew::Absent)) => LossReason::Expired,
            Some(Ok(Renew::TakenBy(holders))) => LossReason::TakenBy(holders),
            Some(Err(cause)) => return Err(could_not_tell(&key, cause, Duration::ZERO, 1)),
            None => {
                let cause = Unknown::new(self.name(), fencelock_core::Fault::Other, "no answer");
                return Err(unreachable_once(Some(&key), cause));
            }
        };
        Err(Error::Lost { key, reason })
    }

    /// Looks at everything that the promises of this place rest on: one [`Finding`] for each, also if it does not answer.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn diagnose(&self) -> Vec<Finding> {
        self.inner.backend.diagnose().await
    }

    /// Refuses new claims on all clones, ends those that wait with [`Error::Closed`], and waits until those have ended,
    /// every guard is released and every release confirmed, for at most `within`.
    ///
    /// A claim that was given up before it was answered may still arrive. Its release is repeated once it cannot any more, a
    /// second later; until then it counts as pending.
    ///
    /// # Errors
    /// [`Error::Closed`] with what was left when the time was over. Holds that are left stay with their guards.
    /// [`Error::Config`] in a forked child.
    ///
    /// # Cancel safety
    /// The client stays closed; the waiting is all that is given up.
    pub async fn close(self, within: Duration) -> Result<(), Error> {
        self.inner.check_process()?;
        self.inner.close();
        tokio::time::timeout(within, self.inner.drained()).await.map_err(|_| self.inner.closed_error())
    }
}
