use crate::closing::Releasing;
use crate::driver::ClientInner;
use crate::error::modes;
use crate::error::{Error, unreachable};
use crate::held::Held;
use fencelock_core::engine::{HoldReleased, Leaving, ReleaseHold, ReleaseNext};
use fencelock_core::{FencingToken, HolderId, Key, LossReason, Mode, Moment, Release};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A held lock. It is renewed while the guard exists, and released when the guard is dropped.
///
/// [`Guard::release`] waits for the confirmation of the server. Dropping the guard only queues the release, which the
/// runtime of the client then sends; it does not block while that runtime exists.
///
/// # At the end of the program
/// A guard that is dropped when `main` returns leaves no lock behind. When the runtime of the client ends (it is dropped,
/// or `main` returns or panics), pending releases are sent over a new connection, also those of leases that the client keeps for
/// the next task ([`crate::Builder::idle_timeout`]), and the end of the runtime waits for their confirmation; so does dropping a
/// guard after the end of the runtime. An unavailable backend is waited for once, for at most 250 ms per client. If the system supports it (Linux with glibc does), the same happens when the main thread
/// calls [`std::process::exit`], or ends its runtime with `shutdown_background`, if the client was created or the guard
/// dropped on that thread. `exit` runs no destructors, so the lock of a guard that is alive then stays until its lease ends: drop it
/// before. So does a lock of a process that is killed or aborted, or that exits from another thread.
///
/// # After a fork
/// A child that is forked without `exec` has a copy of the guard and holds nothing: [`Guard::is_held`] is `false`, the loss is
/// [`LossReason::Forked`], and neither a drop nor a release sends a request or waits. The client cannot be used there;
/// connect another one, and do not use or drop the runtime of the parent.
///
/// # With a payload
/// `T` is what the holder has besides the lock: nothing, the number of a slot ([`SlotGuard`](crate::SlotGuard)), the term of a
/// leader ([`Leadership`](crate::Leadership)), or a run that is not finished ([`OnceRun`](crate::OnceRun)).
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard<T = ()> {
    lock: ReleasedOnDrop,
    pub(crate) payload: T,
}

/// What a guard does for its lock, whatever its payload is.
struct ReleasedOnDrop {
    client: Arc<ClientInner>,
    held: Held,
    armed: bool,
    /// Comes last, so that the closing of the client waits for all of it.
    releasing: Option<Releasing>,
}

/// How a release went.
///
/// Exhaustive: a release finds the lock held, or lost before. An unknown result is an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now, and is free or handed over to the next waiter.
    Released,
    /// The lock had been lost before. The lock of another holder was not changed.
    AlreadyLost {
        /// The reason.
        why: LossReason,
    },
}

impl Released {
    fn of(key: &Key, released: HoldReleased) -> Result<Self, Error> {
        match released {
            HoldReleased::Released => Ok(Self::Released),
            HoldReleased::Lost(why) => Ok(Self::AlreadyLost { why }),
            HoldReleased::Unknown { cause, waited, attempts } => Err(unreachable(Some(key), cause, waited, attempts)),
        }
    }

    pub(crate) fn from_answer(answer: Release, if_absent: LossReason) -> Self {
        match answer {
            Release::Released => Self::Released,
            Release::Absent => Self::AlreadyLost { why: if_absent },
            Release::TakenBy(holders) => Self::AlreadyLost { why: LossReason::TakenBy(holders) },
        }
    }
}

impl<T> Guard<T> {
    /// The key of the lock.
    pub fn key(&self) -> &Key {
        self.lock.held.key()
    }

    /// The holder id, which [`crate::Client::release`] and [`crate::Lock::resume`] require. Tasks of one client that
    /// share a lease have the same id, so use it elsewhere only with [`Guard::into_holder`].
    pub fn holder(&self) -> HolderId {
        self.lock.held.holder()
    }

    /// The fencing token to send with every write to the protected resource; see [`FencingToken`].
    pub fn fencing_token(&self) -> FencingToken {
        self.lock.held.fencing_token()
    }

    /// The mode: exclusive, shared, or permits with their weight and limit.
    pub fn mode(&self) -> Mode {
        self.lock.held.mode()
    }

    /// The remaining validity of the lock if no renewal succeeds; zero once it is lost, and
    /// [`Duration::MAX`] if holds do not expire.
    pub fn remaining(&self) -> Duration {
        self.lock.held.remaining()
    }

    /// Whether the lock is held. After the first `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.lock.held.is_held()
    }

    /// [`Guard::is_held`] as a `Result`, for use with `?` between two steps of the work. It sends no request.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is no longer held.
    pub fn check(&self) -> Result<(), Error> {
        self.lock.held.check()
    }

    /// Waits until the lock is lost, and returns the reason: at the end of the lease at the latest, before a server
    /// grants the lock to another client; and immediately if the server reports that the key was deleted or taken.
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn lost(&self) -> LossReason {
        self.lock.held.lost().await
    }

    /// A view of the lock for other tasks.
    pub fn held(&self) -> Held {
        self.lock.held.clone()
    }

    /// Releases the lock and waits for the confirmation of the server; or passes the lease to the next waiting task of this
    /// client, if it can share it. Then this returns [`Released::Released`] without a request.
    ///
    /// It is not an error if the lock was lost before: the result reports it, and the current holder of the key is not
    /// affected. A lease that has ended is not waited for.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the server did not answer several attempts, or until the lease ended and for at least a second, and
    /// [`Error::Config`] at once if it refuses, for example because the user lost a right. With both, the release continues in the
    /// background until the lease would have ended, and [`crate::Client::release`] may be called with the holder id.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        self.lock.release().await
    }

    /// Stops renewing the hold, which continues until its lease ends. With the returned id, [`crate::Lock::resume`],
    /// [`crate::Client::renew`] or [`crate::Client::release`] can continue or end it. If holds do not expire, one of them
    /// must, or the key stays held: on files until this process exits.
    ///
    /// Tasks of one client that read together share one hold. If one of them calls this, the others lose the lock, because the
    /// new owner of the id may release it at any time. A client with `sharing(false)` does not share holds.
    pub fn into_holder(mut self) -> HolderId {
        self.lock.detach()
    }

    /// The guard of the lock alone.
    pub fn into_guard(self) -> Guard {
        self.into_payload().0
    }

    pub(crate) fn into_payload(self) -> (Guard, T) {
        (Guard { lock: self.lock, payload: () }, self.payload)
    }
}

impl Guard {
    pub(crate) fn new(client: Arc<ClientInner>, held: Held) -> Self {
        Self { lock: ReleasedOnDrop { client, held, armed: true, releasing: None }, payload: () }
    }

    pub(crate) fn with<T>(self, payload: T) -> Guard<T> {
        Guard { lock: self.lock, payload }
    }

    /// Turns an exclusive lock into a shared one, without a moment in which another client could write. Clients that wait for a
    /// shared lock at the head of the queue get it together with this one. A shared lock stays as it is.
    ///
    /// The new guard has a new fencing token, which is greater. The old token and every [`Held`] of this guard end when the request
    /// is sent: the server may carry it out although its reply is lost, and other clients may read from then on. The request is
    /// repeated until it is answered or the lease ends.
    ///
    /// There is no upgrade: see [`crate::Lock::shared`].
    ///
    /// # Errors
    /// With every error the lock is released in the background: [`Error::Lost`] if the lock was lost before or meanwhile,
    /// [`Error::ModeUnsupported`] if the backend has no shared locks, [`Error::ModeConflict`] for permits.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background.
    pub async fn downgrade(mut self) -> Result<Self, Error> {
        let Self { lock, .. } = &mut self;
        if lock.held.mode() == Mode::Shared || lock.held.is_forked() {
            return lock.held.check().map(|()| self);
        }
        let config = &lock.client.config;
        modes::check(&config.backend, lock.held.key(), config.capabilities.modes, Mode::Shared)?;
        let before = lock.held.tenure;
        // From here on a drop releases the tenure that reads.
        let Some(request) = lock.held.begin_downgrade() else {
            lock.held.check()?;
            return Err(modes::not_exclusive(lock.held.key(), before.mode));
        };
        lock.client.telemetry.downgraded(lock.held.key(), &before, &lock.held.tenure, lock.held.tenure.since);
        lock.held.downgrade(&request).await?;
        Ok(self)
    }

    /// The hold ends, as lost, `max_hold` from now.
    pub(crate) fn limit_hold(&self, max_hold: Duration) {
        self.lock.held.limit_hold(max_hold);
    }

    /// See [`crate::Guards::descriptors`].
    #[cfg(unix)]
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        self.lock.held.descriptors()
    }
}

impl ReleasedOnDrop {
    async fn release(&mut self) -> Result<Released, Error> {
        if self.held.is_forked() {
            return Ok(Released::AlreadyLost { why: LossReason::Forked });
        }
        let (leaving, now, releasing) = self.held.leave(false);
        self.releasing = releasing;
        if !matches!(leaving, Leaving::Over) {
            self.count_released(now);
        }
        let (release, next) = self.held.release(leaving, now);
        let (released, rest) = match next {
            ReleaseNext::Send(limit) => self.send(release, limit, now).await,
            ReleaseNext::Done { released, rest } => (released, rest),
        };
        self.armed = rest;
        Released::of(self.held.key(), released)
    }

    /// Sends the release until it is done. Returns the result, and whether the rest is released in the background.
    async fn send(&self, mut release: ReleaseHold, mut limit: Moment, mut now: Moment) -> (HoldReleased, bool) {
        let (client, held) = (&self.client, &self.held);
        loop {
            let left = limit.since(now);
            let answer = tokio::time::timeout(left, client.backend.release(held.key(), &held.holder())).await.ok();
            if let Some(Err(cause)) = &answer {
                tracing::debug!(key = %held.key(), %cause, "release failed");
            }
            now = client.clock.now();
            match release.answered(answer, held.stray_until(), &client.config.backend, now) {
                ReleaseNext::Send(next) => limit = next,
                ReleaseNext::Done { released, rest } => return (released, rest),
            }
        }
    }

    fn detach(&mut self) -> HolderId {
        self.armed = false;
        if !self.held.is_forked() && self.held.detach() {
            self.count_released(self.client.clock.now());
        }
        self.held.holder()
    }

    fn count_released(&self, now: Moment) {
        self.client.telemetry.released(self.held.key(), &self.held.tenure, now);
    }
}

impl Drop for ReleasedOnDrop {
    fn drop(&mut self) {
        // A forked child has a copy of the guard, but the lock belongs to its parent.
        if !self.armed || self.held.is_forked() {
            return;
        }
        match self.held.leave(true) {
            (Leaving::Over, ..) => self.held.release_rest(),
            (_, now, _) => self.count_released(now),
        }
    }
}

impl<T> AsRef<Held> for Guard<T> {
    fn as_ref(&self) -> &Held {
        &self.lock.held
    }
}

/// Omits the holder id, which is a proof of the hold.
impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.held.write("Guard", f)
    }
}
