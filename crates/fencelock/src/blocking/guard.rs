use super::Engine;
use crate::{Error, FencingToken, HolderId, Key, LossReason, Released};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A held lock. It is renewed for as long as it lives, and given back when it goes. The async twin is [`crate::Guard`].
///
/// [`Guard::release`] waits for the server's word. Dropping the guard only asks for the release and does not block; only the
/// last handle of a client waits for it when it is dropped, for 250 ms at most. What becomes of the lock at the end of the
/// program and after a fork is told at [`crate::Guard`].
#[must_use = "the lock is released when its guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    inner: crate::Guard,
    engine: Arc<Engine>,
}

/// A view of a held lock, to pass to the work it protects. It keeps nothing alive. The async twin is [`crate::Held`].
#[derive(Debug, Clone)]
pub struct Held {
    inner: crate::Held,
    engine: Weak<Engine>,
}

impl Guard {
    pub(super) const fn new(inner: crate::Guard, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The proof of this hold, which [`Client::release`](super::Client::release) and [`Lock::resume`](super::Lock::resume)
    /// take. Threads of one client that share a lease have the same, one after the other: it is of use outside of them only
    /// with [`Guard::into_holder`].
    pub fn holder(&self) -> HolderId {
        self.inner.holder()
    }

    /// The number to send with every write to what the lock protects; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// How long the lock is certainly held from now on if no renewal succeeds; zero once it is lost, and
    /// [`Duration::MAX`] where holds do not end by themselves.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lock is held. Once this has been `false` it stays so. It asks nobody.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// [`Guard::is_held`] as a `Result`, for use with `?` between two steps of the work.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is not held any more.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// A view to pass on.
    pub fn held(&self) -> Held {
        Held { inner: self.inner.held(), engine: Arc::downgrade(&self.engine) }
    }

    /// Waits until the lock is lost, for ever if need be, and says why. It is told no later than at the end of the lease,
    /// before a server lets anybody else in; and at once when the server reports that the key was deleted or taken over.
    pub fn lost(&self) -> LossReason {
        let held = self.inner.held();
        if held.is_forked() {
            return LossReason::Forked;
        }
        // Without the client's thread nothing renews the lease.
        self.engine.run(async move { held.lost().await }).unwrap_or(LossReason::Expired)
    }

    /// Waits at most `within` for the loss; `None` if the lock is still held then.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        self.held().lost_within(within)
    }

    /// Gives the lock back and waits for the server's word; or leaves the lease to the next thread of this client, if one
    /// waits that may have it. Then the answer is [`Released::Released`] without asking anybody.
    ///
    /// A lock that was lost before is no error: the answer says so, and the key's present holder is not touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the server did not answer a few tries. The release then goes on in the background
    /// until the lease would have ended, and [`Client::release`](super::Client::release) may be called with the holder's id.
    pub fn release(self) -> Result<Released, Error> {
        let Self { inner, engine } = self;
        if inner.is_forked() {
            return Ok(Released::AlreadyLost { why: LossReason::Forked });
        }
        engine.get(inner.release())
    }

    /// Stops looking after the hold, which goes on until its lease ends: whoever gets the id may
    /// [`Lock::resume`](super::Lock::resume), [`Client::renew`](super::Client::renew) or
    /// [`Client::release`](super::Client::release) it.
    /// Where holds do not end by themselves it must, or the key stays taken: on files until this process ends.
    pub fn into_holder(self) -> HolderId {
        self.inner.into_holder()
    }
}

impl Held {
    pub(super) const fn new(inner: crate::Held, engine: Weak<Engine>) -> Self {
        Self { inner, engine }
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The number to send with every write to what the lock protects; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// As [`Guard::remaining`]; zero once the lock is released.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lock is held: neither lost nor released. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// As [`Guard::check`]. A lock that was released here is no error, but [`Held::is_held`] is `false` then.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Waits at most `within` for the loss; `None` if there was none by then, because the lock is held, or was released.
    pub fn lost_within(&self, within: Duration) -> Option<LossReason> {
        if self.inner.is_forked() {
            return Some(LossReason::Forked);
        }
        let Some(engine) = self.engine.upgrade() else {
            // The last guard is gone, so what has not been lost was released.
            return match self.inner.check() {
                Err(Error::Lost { reason, .. }) => Some(reason),
                _ => None,
            };
        };
        let held = self.inner.clone();
        engine.run(async move { tokio::time::timeout(within, held.lost()).await.ok() }).flatten()
    }
}
