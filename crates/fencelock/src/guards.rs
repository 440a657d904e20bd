use crate::driver::LeaseWaker;
use crate::error::{Error, Loss};
use crate::guard::{Guard, Held};
use fencelock_core::{FencingToken, HolderId, Key, LossReason};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// Several held locks, from [`Client::lock_all`](crate::Client::lock_all). The loss of one counts as the loss of all.
///
/// All locks are renewed while this value exists. [`Guards::release`] waits for the confirmation of the server. Dropping the value
/// only queues the releases, like dropping a [`Guard`].
///
/// After a loss, the other locks stay held until they are released, so no other client acquires them during your clean-up.
///
/// `Guards<Held>` is a view of them: [`HeldAll`].
#[must_use = "the locks are released when this value is dropped"]
#[derive(Debug, Clone)]
pub struct Guards<G = Guard> {
    /// In the order in which the caller passed the keys, like all other lists here.
    parts: Vec<G>,
    /// The loss that was detected first, which the guards and their views have in common.
    first: Arc<OnceLock<Box<Loss>>>,
}

/// A view of several held locks for other tasks, with the methods of [`Guards`] that only read. It keeps nothing alive.
pub type HeldAll = Guards<Held>;

/// What [`Guards::wake_at_end`] returns.
#[must_use = "it wakes until it is dropped"]
#[derive(Debug)]
pub struct EndWaker(#[allow(dead_code, reason = "it ends with this")] SmallVec<[LeaseWaker; 1]>);

/// A single lock, for code that works with several.
impl<G> From<G> for Guards<G>
where
    G: AsRef<Held>,
{
    fn from(guard: G) -> Self {
        Self::new(vec![guard])
    }
}

impl<G: AsRef<Held>> Guards<G> {
    /// Locks that were acquired one after another, in this order.
    pub fn new(parts: Vec<G>) -> Self {
        Self { parts, first: Arc::default() }
    }

    /// The keys, in the order in which they were passed.
    pub fn keys(&self) -> Vec<&Key> {
        self.views().map(Held::key).collect()
    }

    /// The fencing tokens, in the order of the keys: send each with the writes to the resource that its key protects.
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        self.views().map(Held::fencing_token).collect()
    }

    /// The remaining validity of all locks if no renewal succeeds: the smallest [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.views().map(Held::remaining).min().unwrap_or_default()
    }

    /// Whether all locks are held. After the first `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.views().all(Held::is_held)
    }

    /// [`Guards::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends no request. It is not an error if
    /// the locks were released.
    ///
    /// # Errors
    /// [`Error::Lost`] with the key of the first loss.
    pub fn check(&self) -> Result<(), Error> {
        self.loss().map_or(Ok(()), |loss| Err(loss.into()))
    }

    /// Waits until one of the locks is lost, and returns which one and why: at the end of its lease at the latest, before a server
    /// grants it to another client. It never completes if all locks are released instead.
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn lost(&self) -> Loss {
        match self.ended().await {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }

    /// A view of the locks for other tasks.
    pub fn held(&self) -> HeldAll {
        Guards { parts: self.views().cloned().collect(), first: Arc::clone(&self.first) }
    }

    /// Wakes a task when one of the locks ends, until the result is dropped: for a task that watches very many locks, and then looks at
    /// [`Guards::check`]. Where [`Guards::lost`] would wake by the clock, at the end of [`Guards::remaining`], this may not.
    pub fn wake_at_end(&self, waker: &Waker) -> EndWaker {
        EndWaker(self.views().map(|held| held.wake_at_end(waker)).collect())
    }

    /// Each lock, in the order of the keys.
    pub fn parts(&self) -> &[G] {
        &self.parts
    }

    fn views(&self) -> impl Iterator<Item = &Held> {
        self.parts.iter().map(AsRef::as_ref)
    }

    /// The first loss; `None` if all locks were released, which is reported at most a second later.
    pub(crate) async fn ended(&self) -> Option<Loss> {
        let ended = async |held: &Held| Some(held.loss_by(held.ended().await?));
        let mut ends: FuturesUnordered<_> = self.views().map(ended).collect();
        while let Some(end) = ends.next().await {
            if let Some(loss) = end {
                return Some(self.first(loss));
            }
        }
        None
    }

    /// The loss that was detected first.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let loss = self.views().find_map(Held::loss)?;
        Some(self.first(loss))
    }

    fn first(&self, loss: Loss) -> Loss {
        if loss.reason == LossReason::Forked {
            // A thread of the parent may have been about to set it.
            return loss;
        }
        *self.first.get_or_init(|| Box::new(loss)).clone()
    }
}

impl Guards {
    /// The holder ids, in the order of the keys; see [`Guard::holder`].
    pub fn holders(&self) -> Vec<HolderId> {
        self.parts.iter().map(Guard::holder).collect()
    }

    /// Copies of the open files that the locks consist of; none where they are leases. A lock in a file ends at its release, or when the
    /// last copy of its file is closed. Pass them to a process that ends the work after the death of this one: until it exits, no
    /// other process gets the locks.
    ///
    /// # Errors
    /// The error of the system, for example if this process has too many open files.
    #[cfg(unix)]
    pub fn descriptors(&self) -> Result<Vec<std::os::fd::OwnedFd>, std::io::Error> {
        let copies: Result<Vec<_>, _> = self.parts.iter().map(Guard::descriptors).collect();
        Ok(copies?.into_iter().flatten().collect())
    }

    /// Releases all locks at the same time, and waits for the confirmation of the server. `Ok` means that all were held until now.
    ///
    /// # Errors
    /// [`Error::Lost`] if locks were lost before: the first loss that this client detected, with the others. The remaining locks are
    /// released, and the current holders of the lost ones are not affected. [`Error::Unreachable`] with the first key whose release was not confirmed, if no lock was lost. The release then continues
    /// in the background until the lease would have ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, the releases continue in the background.
    pub async fn release(self) -> Result<(), Error> {
        let Self { parts, first } = self;
        let released = join_all(parts.into_iter().map(Guard::release)).await;
        let mut errors: Vec<_> = released.into_iter().filter_map(Result::err).collect();
        // The first loss, the other ones, and releases that were not confirmed.
        let is_first =
            |error: &Error| first.get().is_some_and(|first| error.is_lost() && error.key() == Some(&first.key));
        errors.sort_by_key(|error| (!is_first(error), !error.is_lost()));
        let mut errors = errors.into_iter();
        let mut error = errors.next().map_or(Ok(()), Err);
        if let Err(Error::Lost { others, .. }) = &mut error {
            others.extend(errors.flat_map(|error| error.losses()));
        }
        error
    }

    /// A guard for each key, in the order of the keys. The loss of one no longer affects the others.
    pub fn into_guards(self) -> Vec<Guard> {
        self.parts
    }

    /// Stops renewing the holds, which continue until their leases end, and returns the holder ids in the order of the keys.
    /// [`LockAll::resume`](crate::LockAll::resume) continues them. See [`Guard::into_holder`].
    pub fn into_holders(self) -> Vec<HolderId> {
        self.parts.into_iter().map(Guard::into_holder).collect()
    }
}

/// Locks that several have in common: each is released by the last.
impl Guards<Arc<Guard>> {
    /// Releases the locks that nobody else has. See [`Guards::release`].
    ///
    /// # Errors
    /// Those of [`Guards::release`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the releases continue in the background.
    pub async fn release(self) -> Result<(), Error> {
        let Self { parts, first } = self;
        Guards { parts: parts.into_iter().filter_map(Arc::into_inner).collect(), first }.release().await
    }
}
