use super::{Engine, Guard, Held};
use crate::{Error, FencingToken, HolderId, Key, Loss, LossReason, ReleasedAll};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Several held locks, from [`Client::lock_all`](super::Client::lock_all). The loss of one is the loss of all. Dropping it
/// releases all of them in the background. The async twin is [`crate::Guards`].
#[must_use = "the locks are released when this value is dropped"]
#[derive(Debug)]
pub struct Guards {
    inner: crate::Guards,
    engine: Arc<Engine>,
}

/// A view of several held locks, to pass to the work that they protect. It keeps nothing alive. The async twin is
/// [`crate::HeldAll`].
#[derive(Debug, Clone)]
pub struct HeldAll {
    inner: crate::HeldAll,
    engine: Weak<Engine>,
}

impl Guards {
    pub(super) const fn new(inner: crate::Guards, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }

    /// The keys, in the order in which you named them.
    pub fn keys(&self) -> Vec<&Key> {
        self.inner.keys()
    }

    /// The fencing tokens, in the order in which you named the keys: send each one with the writes to what its key protects.
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.inner.fencing_tokens()
    }

    /// The proofs of the holds, in the order in which you named the keys; see [`Guard::holder`].
    pub fn holders(&self) -> Vec<HolderId> {
        self.inner.holders()
    }

    /// How long all locks are certainly held from now on if no renewal succeeds: the least of [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether all locks are held. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// [`Guards::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key that was lost first.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits until one of the locks is lost, for ever if need be. You are notified no later than at the end of its lease,
    /// before a server lets another client in.
    pub fn lost(&self) -> Loss {
        let held = self.inner.held();
        if let Some(loss) = held.loss_by_fork() {
            return loss;
        }
        let key = self.inner.keys()[0].clone();
        // Without the client's thread nothing renews the leases.
        self.engine.run(async move { held.lost().await }).unwrap_or(Loss { key, reason: LossReason::Expired })
    }

    /// Waits at most `within` for a loss; `None` if all locks are still held then.
    pub fn lost_within(&self, within: Duration) -> Option<Loss> {
        self.held().lost_within(within)
    }

    /// A view to pass on.
    pub fn held(&self) -> HeldAll {
        HeldAll { inner: self.inner.held(), engine: Arc::downgrade(&self.engine) }
    }

    /// Releases all locks at the same time, and waits for the server's confirmation.
    ///
    /// A lock that was lost before is no error: the answer names it, and the present holder of its key is not touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the first key whose release was not confirmed, if no lock was lost. That release goes on in
    /// the background until the lease would have ended.
    pub fn release(self) -> Result<ReleasedAll, Error> {
        let Self { inner, engine } = self;
        if let Some(loss) = inner.held().loss_by_fork() {
            return Ok(ReleasedAll::AlreadyLost { losses: vec![loss] });
        }
        engine.get(inner.release())
    }

    /// Stops renewing the holds, which continue until their leases end, and returns their proofs, in the order in which you
    /// named the keys. [`LockAll::resume`](super::LockAll::resume) continues them. See [`Guard::into_holder`].
    pub fn into_holders(self) -> Vec<HolderId> {
        self.inner.into_holders()
    }

    /// One guard for each key, in the order in which you named them. From now on each of them stands alone.
    pub fn into_guards(self) -> Vec<Guard> {
        let Self { inner, engine } = self;
        inner.into_guards().into_iter().map(|guard| Guard::new(guard, Arc::clone(&engine))).collect()
    }
}

impl HeldAll {
    /// One view for each lock, in the order in which the keys were named.
    pub fn parts(&self) -> Vec<Held> {
        let part = |held: &crate::Held| Held::new(held.clone(), self.engine.clone());
        self.inner.parts().iter().map(part).collect()
    }

    /// As [`Guards::keys`].
    pub fn keys(&self) -> Vec<&Key> {
        self.inner.keys()
    }

    /// As [`Guards::fencing_tokens`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.inner.fencing_tokens()
    }

    /// As [`Guards::remaining`]; zero once the locks are released.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether all locks are held: neither lost nor released. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// As [`Guards::check`]. Locks that were released here are no error, but [`HeldAll::is_held`] is `false` then.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key that was lost first.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits at most `within` for a loss; `None` if there was none by then, because the locks are held, or were released.
    pub fn lost_within(&self, within: Duration) -> Option<Loss> {
        if let Some(loss) = self.inner.loss_by_fork() {
            return Some(loss);
        }
        // Without the client's thread the last guard is gone, so what has not been lost was released.
        let Some(engine) = self.engine.upgrade() else { return self.inner.loss() };
        let held = self.inner.clone();
        engine.run(async move { tokio::time::timeout(within, held.lost()).await.ok() }).flatten()
    }
}
