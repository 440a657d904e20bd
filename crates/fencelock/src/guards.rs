use crate::error::Error;
use crate::guard::{Guard, Held, Released};
use crate::loss::Loss;
use fencelock_core::{FencingToken, HolderId, Key, LossReason};
use futures_util::future::{join_all, select_all};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Several held locks, from [`Client::lock_all`](crate::Client::lock_all). The loss of one is the loss of all.
///
/// Every lock is renewed for as long as this value lives. [`Guards::release`] waits for the server's confirmation;
/// dropping it releases all of them in the background, as for a [`Guard`].
///
/// After a loss the other locks stay held until they are released, so no other client gets them while you clean up.
#[must_use = "the locks are released when this value is dropped"]
pub struct Guards {
    /// In the order in which the caller named the keys; so is everything else here.
    guards: Vec<Guard>,
    held: HeldAll,
}

/// A view of several held locks, to pass to the work that they protect. It keeps nothing alive.
#[derive(Clone)]
pub struct HeldAll {
    parts: Arc<[Held]>,
    first: Arc<OnceLock<Loss>>,
}

/// How the release of several locks went. A release that was not confirmed is an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleasedAll {
    /// Every lock was held until now.
    Released,
    /// At least one lock was lost before. The others are released, and no lock of another holder was touched.
    AlreadyLost {
        /// The locks that were lost, the first one noticed first. Never empty.
        losses: Vec<Loss>,
    },
}

/// One lock, for code that works with several.
impl From<Guard> for Guards {
    fn from(guard: Guard) -> Self {
        Self::new(vec![guard])
    }
}

impl Guards {
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        let parts = guards.iter().map(Guard::held).collect();
        Self { guards, held: HeldAll { parts, first: Arc::default() } }
    }

    /// The keys, in the order in which you named them.
    pub fn keys(&self) -> Vec<&Key> {
        self.held.keys()
    }

    /// The fencing tokens, in the order in which you named the keys: send each one with the writes to what its key protects.
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.held.fencing_tokens()
    }

    /// The proofs of the holds, in the order in which you named the keys; see [`Guard::holder`].
    pub fn holders(&self) -> Vec<HolderId> {
        self.guards.iter().map(Guard::holder).collect()
    }

    /// How long all locks are certainly held from now on if no renewal succeeds: the least of [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether all locks are held. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// [`Guards::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key that was lost first.
    pub fn check(&self) -> Result<(), Error> {
        self.held.check()
    }

    /// Waits until one of the locks is lost. You are notified no later than at the end of its lease, before a server lets
    /// another client in.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn lost(&self) -> Loss {
        self.held.lost().await
    }

    /// A view to pass on.
    pub fn held(&self) -> HeldAll {
        self.held.clone()
    }

    /// Releases all locks at the same time, and waits for the server's confirmation.
    ///
    /// A lock that was lost before is no error: the answer names it, and the present holder of its key is not touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the first key whose release was not confirmed, if no lock was lost. That release goes on in
    /// the background until the lease would have ended.
    ///
    /// # Cancel safety
    /// The releases go on in the background.
    pub async fn release(self) -> Result<ReleasedAll, Error> {
        let Self { guards, held } = self;
        let releases = guards.into_iter().map(|guard| async move {
            let key = guard.key().clone();
            (key, guard.release().await)
        });
        let (mut losses, mut unconfirmed) = (Vec::new(), None);
        for (key, released) in join_all(releases).await {
            match released {
                Ok(Released::Released) => {}
                Ok(Released::AlreadyLost { why: reason }) => losses.push(Loss { key, reason }),
                Err(error) => _ = unconfirmed.get_or_insert(error),
            }
        }
        losses.sort_by_key(|loss| held.first.get().is_none_or(|first| first.key != loss.key));
        match unconfirmed {
            _ if !losses.is_empty() => Ok(ReleasedAll::AlreadyLost { losses }),
            Some(error) => Err(error),
            None => Ok(ReleasedAll::Released),
        }
    }

    /// One guard for each key, in the order in which you named them. From now on each of them stands alone.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Stops renewing the holds, which continue until their leases end, and returns their proofs, in the order in which you
    /// named the keys. [`LockAll::resume`](crate::LockAll::resume) continues them. See [`Guard::into_holder`].
    pub fn into_holders(self) -> Vec<HolderId> {
        self.guards.into_iter().map(Guard::into_holder).collect()
    }
}

impl HeldAll {
    /// One view for each lock, in the order in which the keys were named.
    pub fn parts(&self) -> &[Held] {
        &self.parts
    }

    /// As [`Guards::keys`].
    pub fn keys(&self) -> Vec<&Key> {
        self.parts.iter().map(Held::key).collect()
    }

    /// As [`Guards::fencing_tokens`].
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.parts.iter().map(Held::fencing_token).collect()
    }

    /// As [`Guards::remaining`].
    pub fn remaining(&self) -> Duration {
        self.parts.iter().map(Held::remaining).min().unwrap_or_default()
    }

    /// As [`Guards::is_held`].
    pub fn is_held(&self) -> bool {
        self.parts.iter().all(Held::is_held)
    }

    /// As [`Guards::check`]. Locks that were released here are no error, but [`HeldAll::is_held`] is `false` then.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key that was lost first.
    pub fn check(&self) -> Result<(), Error> {
        self.loss().map_or(Ok(()), |loss| Err(loss.into()))
    }

    /// As [`Guards::lost`]. It never ends if the locks are released instead.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn lost(&self) -> Loss {
        let losses = self.parts.iter().cloned().map(|held| Box::pin(loss_of(held)));
        let (loss, ..) = select_all(losses).await;
        self.first(loss)
    }

    /// The loss of this copy, if it is in a child of the process that has the locks.
    pub(crate) fn loss_by_fork(&self) -> Option<Loss> {
        let held = self.parts.iter().find(|held| held.is_forked())?;
        Some(Loss { key: held.key().clone(), reason: LossReason::Forked })
    }

    /// The loss that was noticed first.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let loss = self.parts.iter().find_map(Held::loss)?;
        Some(self.first(loss))
    }

    fn first(&self, loss: Loss) -> Loss {
        self.first.get_or_init(|| loss).clone()
    }
}

/// One lock, for work that takes several.
impl From<Held> for HeldAll {
    fn from(held: Held) -> Self {
        Self { parts: Arc::new([held]), first: Arc::default() }
    }
}

/// Waits until this lock is lost.
pub(crate) async fn loss_of(held: Held) -> Loss {
    let reason = held.lost().await;
    Loss { key: held.key().clone(), reason }
}

/// Without the ids of the holders, which are proofs.
impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guards").field(&self.held.parts).finish()
    }
}

impl fmt::Debug for HeldAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldAll").field(&self.parts).finish()
    }
}
