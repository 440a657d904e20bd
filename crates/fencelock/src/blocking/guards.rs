use super::{Guard, Held, OnThread, WeakOnThread, facade};
use crate::{Error, FencingToken, HolderId, Key, Loss, LossReason};
use std::sync::Arc;
use std::time::Duration;

/// Several held locks, from [`Client::lock_all`](super::Client::lock_all). The loss of one counts as the loss of all. Dropping it
/// releases all of them in the background. The async type is [`crate::Guards`].
pub type Guards = OnThread<crate::Guards>;

/// A view of several held locks for other threads. It keeps nothing alive. The async type is
/// [`crate::HeldAll`].
pub type HeldAll = WeakOnThread<crate::HeldAll>;

impl Guards {
    facade! { Guards:
        /// The keys, in the order in which they were passed.
        pub fn keys(&self) -> Vec<&Key>;

        /// The fencing tokens, in the order of the keys: send each with the writes to the resource that its key protects.
        pub fn fencing_tokens(&self) -> Vec<FencingToken>;

        /// The holder ids, in the order of the keys; see [`Guard::holder`].
        pub fn holders(&self) -> Vec<HolderId>;

        /// The remaining validity of all locks if no renewal succeeds: the smallest [`Guard::remaining`].
        pub fn remaining(&self) -> Duration;

        /// Whether all locks are held. After the first `false` it stays `false`.
        pub fn is_held(&self) -> bool;

        /// [`Guards::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends no request.
        pub fn check(&self) -> Result<(), Error>;
    }

    /// Waits until one of the locks is lost, and returns which one and why: see the async [`Guards::lost`](crate::Guards::lost).
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

    /// Calls back when one of the locks is lost: see [`Guard::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) {
        self.held().on_lost(async |held| held.ended().await, crate::HeldAll::loss, callback);
    }

    /// A view of the locks for other threads.
    pub fn held(&self) -> HeldAll {
        self.view(self.inner.held())
    }

    facade! { Guards:
        /// Releases all locks at the same time, and waits for the confirmation of the server. A lock that was lost before is an error.
        pub async fn release(self) -> Result<(), Error>;
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

    facade! { HeldAll:
        /// The keys, in the order in which they were passed.
        pub fn keys(&self) -> Vec<&Key>;

        /// The fencing tokens, in the order of the keys.
        pub fn fencing_tokens(&self) -> Vec<FencingToken>;

        /// The remaining validity of all locks if no renewal succeeds; zero once one is lost or released.
        pub fn remaining(&self) -> Duration;

        /// Whether all locks are held: neither lost nor released. Once this has been `false` it stays so.
        pub fn is_held(&self) -> bool;

        /// An error with the key of the first loss if a lock was lost, but not if they were released.
        pub fn check(&self) -> Result<(), Error>;
    }

    /// Waits at most `within` for a loss; `None` if there was none, and at most a second after all locks were released.
    ///
    /// # Panics
    /// In a callback, which runs on the thread of a client.
    pub fn lost_within(&self, within: Duration) -> Option<Loss> {
        self.wait(within, async |held| held.ended().await, crate::HeldAll::loss)
    }
}
