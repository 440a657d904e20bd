use super::{OnThread, WeakOnThread};
use crate::{Error, FencingToken, HolderId, Key, LossReason, Mode, Released, RenewalFailure};
use std::sync::Arc;
use std::time::Duration;

/// A held lock. It is renewed while the guard exists, and released when the guard is dropped. The async type is
/// [`crate::Guard`].
///
/// [`Guard::release`] waits for the confirmation of the server. Dropping the guard only queues the release and does not
/// block; only the last handle of a client waits for it when it is dropped, for at most 250 ms. [`crate::Guard`] describes
/// the end of the program and forks.
pub type Guard<T = ()> = OnThread<crate::Guard<T>>;

/// A view of a held lock for the work that it protects. It keeps nothing alive. The async type is [`crate::Held`].
pub type Held = WeakOnThread<crate::Held>;

impl<T: Send + 'static> Guard<T> {
    /// The key of the lock.
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The holder id, which [`Client::release`](super::Client::release) and [`Lock::resume`](super::Lock::resume)
    /// require. Threads of one client that share a lease have the same id, so use it elsewhere only
    /// with [`Guard::into_holder`].
    pub fn holder(&self) -> HolderId {
        self.inner.holder()
    }

    /// The fencing token to send with every write to the protected resource; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// The mode: exclusive, shared, or permits with their weight and limit.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The remaining validity of the lock if no renewal succeeds; zero once it is lost, and
    /// [`Duration::MAX`] if holds do not expire.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lock is held. After the first `false` it stays `false`. It sends no request.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// [`Guard::is_held`] as a `Result`, for use with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is no longer held.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// A view of the lock for other threads.
    pub fn held(&self) -> Held {
        self.view(self.inner.held())
    }

    /// Waits until the lock is lost, and returns the reason: at the end of the lease at the latest, before a server grants
    /// the lock to another client; and immediately if the server reports that the key was deleted or taken.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost(&self) -> LossReason {
        // Without the thread of the client, the lease is not renewed.
        self.lost_within(Duration::MAX).unwrap_or(LossReason::Expired)
    }

    /// Waits at most `within` for the loss; `None` if the lock is still held then.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        self.held().lost_within(within)
    }

    /// Releases the lock and waits for the confirmation of the server; or passes the lease to the next waiting thread of
    /// this client, if it can share it. Then this returns [`Released::Released`] without a request.
    ///
    /// It is not an error if the lock was lost before: the result reports it, and the current holder of the key is not
    /// affected.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the server did not answer several attempts. The release then continues in the background
    /// until the lease would have ended, and [`Client::release`](super::Client::release) may be called with the holder id.
    pub fn release(self) -> Result<Released, Error> {
        self.end(crate::Guard::release)
    }

    /// Stops renewing the hold, which continues until its lease ends. With the returned id,
    /// [`Lock::resume`](super::Lock::resume), [`Client::renew`](super::Client::renew) or
    /// [`Client::release`](super::Client::release) can continue or end it. If holds do not expire, one of them must, or the
    /// key stays held: on files until this process exits.
    pub fn into_holder(self) -> HolderId {
        self.inner.into_holder()
    }

    /// The guard of the lock alone.
    pub fn into_guard(self) -> Guard {
        self.map(crate::Guard::into_guard)
    }
}

impl Guard {
    /// Turns an exclusive lock into a shared one, without a moment in which another client could write. The new guard has a new
    /// fencing token; the old token and every [`Held`] of this guard end when the request is sent. See
    /// [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// Those of [`crate::Guard::downgrade`]: with every error the lock is released in the background.
    pub fn downgrade(self) -> Result<Self, Error> {
        let thread = Arc::clone(&self.thread);
        let inner = self.end(crate::Guard::downgrade)?;
        Ok(Self { inner, thread })
    }
}

impl Held {
    /// The key of the lock.
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The fencing token to send with every write to the protected resource; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// See [`Guard::mode`].
    pub const fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// See [`Guard::remaining`]; zero once the lock is released.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Why the renewals fail, if the last one did: see [`crate::Held::renewal_failure`].
    pub fn renewal_failure(&self) -> Option<RenewalFailure> {
        self.inner.renewal_failure()
    }

    /// Whether the lock is held: neither lost nor released. After the first `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// See [`Guard::check`]. It is not an error if the lock was released, but [`Held::is_held`] then returns `false`.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits at most `within` for the loss; `None` if the lock is still held, and at most a second after it was released.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        self.wait(within, async |held| held.ended().await, |held| held.loss().map(|loss| loss.reason))
    }
}
