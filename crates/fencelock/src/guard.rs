use crate::closing::Releasing;
use crate::driver::{ClientInner, Lease, Left};
use crate::error::{Error, unreachable};
use crate::guards::Loss;
use fencelock_core::engine::{End, Grant, Leaving, Tenure};
use fencelock_core::{FencingToken, HolderId, Key, LossReason, Moment, Release};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A held lock. It is renewed for as long as it lives, and given back when it goes.
///
/// [`Guard::release`] waits for the server's word. Dropping the guard only asks for the release, which the client's runtime
/// then sends; it never blocks while that runtime lives.
///
/// # When the program ends
/// A guard that is dropped as `main` returns leaves no lock behind. Whatever was not released when the runtime of the client
/// ends (it is dropped, `main` returns or panics) is sent over a new connection, and the end of the runtime waits until that
/// is confirmed; so does the drop of a guard that outlives the runtime. A place that does not answer is waited for once, for
/// 250 ms at most for each client. Where the system allows it (Linux with glibc does) the same is done when the main
/// thread calls [`std::process::exit`], or lets go of its runtime with `shutdown_background`, if the client was made or the
/// guard dropped on that thread. A process that is killed or aborted, or that exits from another thread, leaves the lock to
/// its lease.
///
/// # After a fork
/// A child that is forked without `exec` has a copy of the guard and holds nothing: [`Guard::is_held`] is `false`, the loss is
/// [`LossReason::Forked`], and neither a drop nor a release sends anything or waits for anybody. The client is of no use there;
/// connect another one, and do not use or drop the parent's runtime.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    client: Arc<ClientInner>,
    held: Held,
    armed: bool,
    /// Comes last, so that the closing of the client waits for all of it.
    releasing: Option<Releasing>,
}

/// A view of a held lock, to pass to the work it protects. It keeps nothing alive.
#[derive(Clone)]
pub struct Held {
    lease: Arc<Lease>,
    tenure: Tenure,
}

/// How a release went.
///
/// Exhaustive: a release finds the lock held, or lost before. That it could not be told is an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now, and is free or handed to the next in line.
    Released,
    /// The lock had been lost before. Nothing of another holder was touched.
    AlreadyLost {
        /// How.
        why: LossReason,
    },
}

impl Released {
    pub(crate) fn from_answer(answer: Release, if_absent: LossReason) -> Self {
        match answer {
            Release::Released => Self::Released,
            Release::Absent => Self::AlreadyLost { why: if_absent },
            Release::TakenBy(holders) => Self::AlreadyLost { why: LossReason::TakenBy(holders) },
        }
    }
}

/// A release is sent this often before it is left to the background.
const RELEASE_TRIES: u32 = 3;

impl Guard {
    pub(crate) fn new(client: Arc<ClientInner>, lease: Arc<Lease>, grant: Grant) -> Self {
        let held = Held { lease, tenure: grant.tenure };
        Self { client, held, armed: true, releasing: None }
    }

    /// Whether this is a copy in a child of the process that has the lock.
    pub(crate) fn is_forked(&self) -> bool {
        self.held.is_forked()
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        self.held.key()
    }

    /// The proof of this hold, which [`crate::Client::release`] and [`crate::Lock::resume`] take. Tasks of one client that
    /// share a lease have the same, one after the other: it is of use outside of them only with [`Guard::into_holder`].
    pub fn holder(&self) -> HolderId {
        self.held.lease.holder
    }

    /// The number to send with every write to what the lock protects; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.held.fencing_token()
    }

    /// How long the lock is certainly held from now on if no renewal succeeds; zero once it is lost, and
    /// [`Duration::MAX`] where holds do not end by themselves.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is held. Once this has been `false` it stays so.
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// [`Guard::is_held`] as a `Result`, for use with `?` between two steps of the work. It asks nobody.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is not held any more.
    pub fn check(&self) -> Result<(), Error> {
        self.held.check()
    }

    /// Waits until the lock is lost, and says why. It is told no later than at the end of the lease, before a server
    /// lets anybody else in; and at once when the server reports that the key was deleted or taken over.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn lost(&self) -> LossReason {
        self.held.lost().await
    }

    /// A view to pass on.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Gives the lock back and waits for the server's word; or leaves the lease to the next task of this client, if one
    /// waits that may have it. Then the answer is [`Released::Released`] without asking anybody.
    ///
    /// A lock that was lost before is no error: the answer says so, and the key's present holder is not touched.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the server did not answer a few tries. The release then goes on in the background
    /// until the lease would have ended, and [`crate::Client::release`] may be called with the holder's id.
    ///
    /// # Cancel safety
    /// The release goes on in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        if self.is_forked() {
            return Ok(Released::AlreadyLost { why: LossReason::Forked });
        }
        let Left { leaving, releasing, now } = self.held.lease.release(self.held.tenure, false);
        self.releasing = releasing;
        let before = match leaving {
            Ok(leaving) => {
                self.count_released(now);
                if leaving == Leaving::PassedOn {
                    self.armed = false;
                    return Ok(Released::Released);
                }
                None
            }
            Err(end) => Some(end),
        };
        self.give_back(before).await
    }

    async fn give_back(mut self, before: Option<End>) -> Result<Released, Error> {
        let client = Arc::clone(&self.client);
        let started = client.clock.now();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match client.backend.release(self.key(), &self.held.lease.holder).await {
                Ok(answer) => {
                    self.armed = self.held.lease.may_have_strays();
                    return Ok(match before {
                        // The server may still have had the key, for its clock runs a little longer.
                        Some(End::Lost(why)) => Released::AlreadyLost { why },
                        // It was an earlier try that did it; only its reply got lost.
                        Some(End::Released) | None if attempts > 1 => Released::Released,
                        Some(End::Released) | None => Released::from_answer(answer, LossReason::Deleted),
                    });
                }
                Err(cause) => match &before {
                    // Whatever the server would say, it is over. The rest is done in the background.
                    Some(End::Lost(why)) => return Ok(Released::AlreadyLost { why: why.clone() }),
                    _ if cause.is_permanent() || attempts == RELEASE_TRIES => {
                        return Err(unreachable(Some(self.key()), cause, client.clock.now().since(started), attempts));
                    }
                    _ => tracing::debug!(key = %self.key(), %cause, "release failed, trying again"),
                },
            }
        }
    }

    /// Stops looking after the hold, which goes on until its lease ends: whoever gets the id may
    /// [`crate::Lock::resume`], [`crate::Client::renew`] or [`crate::Client::release`] it. Where holds do not end by themselves
    /// it must, or the key stays taken: on files until this process ends.
    pub fn into_holder(mut self) -> HolderId {
        self.armed = false;
        if self.is_forked() {
            return self.holder();
        }
        if self.held.lease.detach(self.held.tenure) {
            self.count_released(self.client.clock.now());
        }
        self.holder()
    }

    /// The hold ends, as lost, `max_hold` from now.
    pub(crate) fn limit_hold(&self, max_hold: Duration) {
        self.held.lease.limit_hold(self.held.tenure, max_hold);
    }

    fn count_released(&self, now: Moment) {
        self.client.telemetry.released(self.held.key(), &self.held.tenure, now);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A child made by fork has a copy of the guard, but the lock is its parent's.
        if !self.armed || self.is_forked() {
            return;
        }
        let Left { leaving, now, .. } = self.held.lease.release(self.held.tenure, true);
        match leaving {
            Ok(_) => self.count_released(now),
            // It was lost, or its release was given up: what is left of it is released in the background.
            Err(_) => self.client.reaper.take(self.held.lease.pending_release()),
        }
    }
}

impl Held {
    /// Whether this is a copy in a child of the process that has the lock.
    pub(crate) fn is_forked(&self) -> bool {
        self.lease.is_forked()
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        self.lease.key()
    }

    /// As [`Guard::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.tenure.fence
    }

    /// As [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.lease.remaining(self.tenure)
    }

    /// As [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.lease.end_of(self.tenure).is_none()
    }

    /// As [`Guard::check`]. A lock that was released here is no error, but [`Held::is_held`] is `false` then.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        match self.loss() {
            None => Ok(()),
            Some(Loss { key, reason }) => Err(Error::Lost { key, reason }),
        }
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.lease.loss(self.tenure).map(|reason| Loss { key: self.key().clone(), reason })
    }

    /// As [`Guard::lost`]. It never ends if the lock is released instead.
    ///
    /// # Cancel safety
    /// It only looks.
    pub async fn lost(&self) -> LossReason {
        self.lease.lost(self.tenure).await
    }
}

/// Without the holder's id, which is a proof.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.write("Guard", f)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write("Held", f)
    }
}

impl Held {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("key", self.key())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
