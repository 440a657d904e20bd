use super::{Guards, HeldAll, OnThread, facade};
use crate::lock::run_ended;
use crate::settings::setters;
use crate::{Error, HolderId, RunError};

/// Locks on several keys that are not acquired yet. Call [`LockAll::acquire`], [`LockAll::try_acquire`] or [`LockAll::run`]. All of
/// the locks are acquired, or none. The async type is [`crate::LockAll`], which describes how they are acquired.
///
/// ```
/// use fencelock::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let accounts = client.lock_all(["account:7", "account:3"]).acquire()?;
/// let [from, to] = accounts.fencing_tokens()[..] else { unreachable!() };
/// println!("transfer from 7 under token {from} to 3 under token {to}");
/// accounts.release()?;
/// # Ok::<(), fencelock::Error>(())
/// ```
pub type LockAll = OnThread<crate::LockAll>;

impl LockAll {
    facade! { LockAll:
        /// Shared locks on all of the keys.
        pub fn shared(self) -> Self;
    }

    setters!(LockAll in inner.settings);

    facade! { LockAll:
        /// Waits for all locks, and acquires them.
        pub async fn acquire(self) -> Result<Guards, Error>;

        /// Acquires all locks if they are free and no client waits for them; `None` otherwise. The locks that were free are then
        /// released again.
        pub async fn try_acquire(self) -> Result<Option<Guards>, Error>;

        /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders`
        /// are in the order of the keys.
        pub async fn resume(
            self,
            holders: impl IntoIterator<Item = HolderId> = holders.into_iter().collect::<Vec<_>>(),
        ) -> Result<Guards, Error>;
    }

    /// Runs `body` on this thread while all locks are held, releases them, and returns the result of the body. A closure cannot
    /// be interrupted, so it should call [`HeldAll::check`] where it can still stop. See [`super::Lock::run`].
    ///
    /// # Errors
    /// See [`super::Lock::run`], with the key of the first loss.
    pub fn run<T, E>(self, body: impl FnOnce(HeldAll) -> Result<T, E>) -> Result<T, RunError<T, E>> {
        let guards = self.acquire()?;
        let ended = body(guards.held());
        run_ended(&guards.keys()[0].clone(), ended, guards.release())
    }
}
