use super::{OnThread, WeakOnThread, facade};
use crate::{Error, FencingToken, HolderId, Key, Loss, LossReason, Mode, RenewalFailure};
use std::time::Duration;

/// A held lock. It is renewed while the guard exists, and released when the guard is dropped. The async type is
/// [`crate::Guard`].
///
/// [`Guard::release`] waits for the confirmation of the server. Dropping the guard only queues the release and does not
/// block; only the last handle of a client waits for it when it is dropped, for at most 250 ms. [`crate::Guard`] describes
/// the end of the program and forks.
///
/// ```
/// use fencelock::blocking::Client;
/// use std::time::Duration;
///
/// let client = Client::connect("memory:")?;
/// let guard = client.lock("lock:sku:1").acquire()?;
/// let held = guard.held(); // for another thread
/// guard.check()?;
/// assert!(guard.lost_within(Duration::ZERO).is_none());
/// guard.release()?;
/// assert!(!held.is_held());
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type Guard<T = ()> = OnThread<crate::Guard<T>>;

/// A view of a held lock for the work that it protects. It keeps nothing alive. The async type is [`crate::Held`].
pub type Held = WeakOnThread<crate::Held>;

impl<T: Send + 'static> Guard<T> {
    facade! { Guard:
        /// The key of the lock.
        pub fn key(&self) -> &Key;

        /// The holder id, which [`Client::release`](super::Client::release) and [`Lock::resume`](super::Lock::resume) require.
        /// Threads of one client that share a lease have the same id, so use it elsewhere only with [`Guard::into_holder`].
        pub fn holder(&self) -> HolderId;

        /// The fencing token to send with every write to the protected resource; see [`FencingToken`].
        pub fn fencing_token(&self) -> FencingToken;

        /// The mode: exclusive, shared, or permits with their weight and limit.
        pub fn mode(&self) -> Mode;

        /// The remaining validity of the lock if no renewal succeeds; zero once it is lost, and [`Duration::MAX`] if holds do
        /// not expire.
        pub fn remaining(&self) -> Duration;

        /// Whether the lock is held. After the first `false` it stays `false`. It sends no request.
        pub fn is_held(&self) -> bool;

        /// [`Guard::is_held`] as a `Result`, for use with `?` between two steps of the work.
        pub fn check(&self) -> Result<(), Error>;
    }

    /// A view of the lock for other threads.
    pub fn held(&self) -> Held {
        self.view(self.inner.held())
    }

    /// Waits until the lock is lost, and returns the reason: see the async [`Guard::lost`](crate::Guard::lost).
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

    /// Calls back when the lock is lost, on the thread of the client, and not if it is released. It lasts as long as the guard.
    ///
    /// ```
    /// # let client = fencelock::blocking::Client::connect("memory:")?;
    /// let guard = client.lock("lock:sku:1").acquire()?;
    /// guard.on_lost(|loss| {
    ///     eprintln!("{}: {loss}", loss.key);
    ///     std::process::exit(75); // nothing is written without the lock
    /// });
    /// # Ok::<(), fencelock::Error>(())
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) {
        let ended = async |held: crate::Held| Some(held.loss_by(held.ended().await?));
        self.held().on_lost(ended, crate::Held::loss, callback);
    }

    facade! { Guard:
        /// Releases the lock and waits for the confirmation of the server; or passes the lease to the next waiting thread of
        /// this client, if it can share it. A lock that was lost before is an error.
        pub async fn release(self) -> Result<(), Error>;
    }

    /// Stops renewing the hold, which continues until its lease ends: see the async
    /// [`Guard::into_holder`](crate::Guard::into_holder). [`Lock::resume`](super::Lock::resume),
    /// [`Client::renew`](super::Client::renew) or [`Client::release`](super::Client::release) can continue or end it.
    pub fn into_holder(self) -> HolderId {
        self.inner.into_holder()
    }

    /// The guard of the lock alone.
    pub fn into_guard(self) -> Guard {
        self.map(crate::Guard::into_guard)
    }
}

impl Guard {
    facade! { Guard:
        /// Turns an exclusive lock into a shared one, without a moment in which another client could write. The new guard has a
        /// new fencing token; the old token and every [`Held`] of this guard end when the request is sent.
        pub async fn downgrade(self) -> Result<Self, Error>;
    }
}

impl Held {
    facade! { Held:
        /// The key of the lock.
        pub fn key(&self) -> &Key;

        /// The fencing token to send with every write to the protected resource; see [`FencingToken`].
        pub fn fencing_token(&self) -> FencingToken;

        /// The mode: exclusive, shared, or permits with their weight and limit.
        pub fn mode(&self) -> Mode;

        /// The remaining validity of the lock if no renewal succeeds; zero once it is lost or released.
        pub fn remaining(&self) -> Duration;

        /// Why the renewals fail, if the last one did.
        pub fn renewal_failure(&self) -> Option<RenewalFailure>;

        /// Whether the lock is held: neither lost nor released. After the first `false` it stays `false`.
        pub fn is_held(&self) -> bool;

        /// An error if the lock was lost, but not if it was released.
        pub fn check(&self) -> Result<(), Error>;
    }

    /// Waits at most `within` for the loss; `None` if the lock is still held, and at most a second after it was released.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        self.wait(within, async |held| held.ended().await, |held| held.loss().map(|loss| loss.reason))
    }
}
