use super::repeat::while_held;
use crate::driver::ClientInner;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::lock::report_unconfirmed;
use fencelock_core::once::{Runs, Utc};
use fencelock_core::{Completion, HolderId, LossReason};
use std::fmt;
use std::sync::Arc;

/// A run of work under its lock, from [`OncePerWindow::begin`](super::OncePerWindow::begin): the [`Guard`] of the lock, and the
/// run. It counts after [`OnceRun::succeed`]. Dropping it releases the lock in the background and leaves the window open.
pub type OnceRun = Guard<UnfinishedRun>;

/// The part of a run that is left when its guard was taken from it: [`OnceRun::into_parts`].
#[must_use = "a run counts only if its success is recorded"]
pub struct UnfinishedRun {
    client: Arc<ClientInner>,
    runs: Runs,
    completion: Completion,
    held: Held,
    holder: HolderId,
}

impl OnceRun {
    /// Records the success, and releases the lock. A write without a reply is repeated for 5 s, while the lock is held.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before the success was recorded; [`Error::Unreachable`] and
    /// [`Error::NotReplicated`] if it is unknown whether it was recorded; [`Error::Config`] if the backend refuses it. Then the work
    /// may run again in this window.
    ///
    /// # Cancel safety
    /// If the future is dropped, the success may or may not be recorded. The lock is released in the background.
    pub async fn succeed(self) -> Result<(), Error> {
        let (guard, rest) = self.into_parts();
        rest.succeed().await?;
        release(guard).await;
        Ok(())
    }

    /// Releases the lock. The window stays open, unless starts count.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background.
    pub async fn give_back(self) {
        release(self.into_guard()).await;
    }

    /// The guard of the lock, and what is left of the run. Release the guard after [`UnfinishedRun::succeed`].
    pub fn into_parts(self) -> (Guard, UnfinishedRun) {
        self.into_payload()
    }
}

/// The result of a run does not depend on the release. A release without a reply continues in the background.
async fn release(guard: Guard) {
    let key = guard.key().clone();
    if let Err(error) = guard.release().await {
        report_unconfirmed(&key, &error);
    }
}

impl UnfinishedRun {
    pub(super) fn new(client: Arc<ClientInner>, runs: Runs, completion: Completion, guard: &Guard) -> Self {
        Self { client, runs, completion, held: guard.held(), holder: guard.holder() }
    }

    /// Records the success, while the guard is held: see [`OnceRun::succeed`].
    ///
    /// # Errors
    /// See [`OnceRun::succeed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the success may or may not be recorded.
    pub async fn succeed(self) -> Result<(), Error> {
        self.held.check()?;
        match self.runs {
            Runs::Start => Ok(()),
            _ => self.write().await,
        }
    }

    /// Writes the completion.
    pub(super) async fn write(&self) -> Result<(), Error> {
        let (client, key) = (&self.client, self.held.key());
        let write = || client.backend.write_completion(key, &self.holder, &self.completion);
        let reply = while_held(client, &self.held, write).await?;
        if reply.counts(self.held.is_held()) {
            return Ok(());
        }
        // The backend knows of the loss before this client.
        Err(self.held.loss().map_or_else(|| Error::lost(key.clone(), LossReason::Expired), Error::from))
    }
}

impl fmt::Debug for UnfinishedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnfinishedRun")
            .field("key", self.held.key())
            .field("window_ends", &Utc(self.completion.until_micros).to_string())
            .finish_non_exhaustive()
    }
}
