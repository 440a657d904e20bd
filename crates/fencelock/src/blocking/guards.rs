use super::{Guard, Held, OnThread, WeakOnThread};
use crate::{Error, FencingToken, HolderId, Key, Loss, LossReason, ReleasedAll};
use std::sync::Arc;
use std::time::Duration;

/// Several held locks, from [`Client::lock_all`](super::Client::lock_all). The loss of one counts as the loss of all. Dropping it
/// releases all of them in the background. The async type is [`crate::Guards`].
pub type Guards = OnThread<crate::Guards>;

/// A view of several held locks for other threads. It keeps nothing alive. The async type is
/// [`crate::HeldAll`].
pub type HeldAll = WeakOnThread<crate::HeldAll>;

impl Guards {
    /// The keys, in the order in which they were passed.
    pub fn keys(&self) -> Vec<&Key> {
        self.inner.keys()
    }

    /// The fencing tokens, in the order of the keys: send each with the writes to the resource that its key protects.
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.inner.fencing_tokens()
    }

    /// The holder ids, in the order of the keys; see [`Guard::holder`].
    pub fn holders(&self) -> Vec<HolderId> {
        self.inner.holders()
    }

    /// The remaining validity of all locks if no renewal succeeds: the smallest [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether all locks are held. After the first `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// [`Guards::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends no request.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key of the first loss.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits until one of the locks is lost, and returns which one and why: at the end of its lease at the latest, before a server
    /// grants it to another client.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost(&self) -> Loss {
        // Without the thread of the client, the leases are not renewed.
        self.lost_within(Duration::MAX).unwrap_or_else(|| Loss::new(self.keys()[0].clone(), LossReason::Expired))
    }

    /// Waits at most `within` for a loss; `None` if all locks are still held then.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<Loss> {
        self.held().lost_within(within)
    }

    /// A view of the locks for other threads.
    pub fn held(&self) -> HeldAll {
        self.view(self.inner.held())
    }

    /// Releases all locks at the same time, and waits for the confirmation of the server.
    ///
    /// It is not an error if a lock was lost before: the result reports it, and the current holder of the key is not affected.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the first key whose release was not confirmed, if no lock was lost. The release then continues
    /// in the background until the lease would have ended.
    pub fn release(self) -> Result<ReleasedAll, Error> {
        self.end(crate::Guards::release)
    }

    /// Stops renewing the holds, which continue until their leases end, and returns the holder ids in the order of the keys.
    /// [`LockAll::resume`](super::LockAll::resume) continues them. See [`Guard::into_holder`].
    pub fn into_holders(self) -> Vec<HolderId> {
        self.inner.into_holders()
    }

    /// A guard for each key, in the order of the keys. The loss of one no longer affects the others.
    pub fn into_guards(self) -> Vec<Guard> {
        let Self { inner, thread } = self;
        let guard = |inner| OnThread { inner, thread: Arc::clone(&thread) };
        inner.into_guards().into_iter().map(guard).collect()
    }
}

impl HeldAll {
    /// A view of each lock, in the order of the keys.
    pub fn parts(&self) -> Vec<Held> {
        let part = |held: &crate::Held| WeakOnThread { inner: held.clone(), thread: self.thread.clone() };
        self.inner.parts().iter().map(part).collect()
    }

    /// See [`Guards::keys`].
    pub fn keys(&self) -> Vec<&Key> {
        self.inner.keys()
    }

    /// See [`Guards::fencing_tokens`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.inner.fencing_tokens()
    }

    /// See [`Guards::remaining`]; zero once the locks are released.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether all locks are held: neither lost nor released. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// See [`Guards::check`]. It is not an error if the locks were released, but [`HeldAll::is_held`] then returns `false`.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key of the first loss.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits at most `within` for a loss; `None` if there was none, and at most a second after all locks were released.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<Loss> {
        self.wait(within, async |held| held.ended().await, crate::HeldAll::loss)
    }
}
