use crate::closing::Releasing;
use crate::driver::{ClientInner, Engine, HeldLease, KeyCell, LeaseWaker};
use crate::error::{Error, Loss, RenewalFailure, check_mode, not_exclusive, unreachable, unreachable_once};
use fencelock_core::engine::{
    DowngradeNext, End, Grant, LONGEST_SLEEP, PendingRelease, ReleaseHold, ReleaseNext, Released, Status, Tenure,
};
use fencelock_core::{Fault, FencingToken, HolderId, Key, LossReason, Mode, Moment, Renewal, RenewalPlan, Unknown};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A held lock. It is renewed while the guard exists, and released when the guard is dropped.
///
/// ```
/// # async fn step(_page: u32, _token: u64) {}
/// # async fn demo() -> Result<(), fencelock::Error> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let guard = client.lock("lock:report").label("order 17").await?;
/// for page in 1..=3 {
///     guard.check()?; // before each step that must not run without the lock
///     step(page, guard.fencing_token().get()).await;
/// }
/// let held = guard.held(); // a view for another task
/// tokio::spawn(async move {
///     let reason = held.lost().await;
///     println!("{} is lost: {reason}", held.key());
/// });
/// assert!(guard.is_held() && guard.remaining() > std::time::Duration::ZERO);
///
/// let reader = guard.downgrade().await?; // others may read from now on
/// let holder = reader.into_holder(); // for another process, which resumes it
/// let reader = client.lock("lock:report").shared().resume(holder).await?;
/// reader.release().await // an error if the lock was lost
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
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
    /// client, if it can share it, without a request. `Ok` means that the lock was held until now.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before, so the work since then was not protected. The current holder of the key is not
    /// affected, and nothing is left to release.
    /// [`Error::Unreachable`] if the server did not answer several attempts, or until the lease ended and for at least a second, and
    /// [`Error::Config`] at once if it refuses, for example because the user lost a right. With both, the release continues in the
    /// background until the lease would have ended, and [`crate::Client::release`] may be called with the holder id.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release(mut self) -> Result<(), Error> {
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
        check_mode(&config.backend, lock.held.key(), config.capabilities.modes, Mode::Shared)?;
        let Held { cell, lease, tenure: before } = lock.held.clone();
        let Some((tenure, request)) = cell.with(|engine, cx| engine.downgrade(lease.hold, before, cx)) else {
            lock.held.check()?;
            return Err(not_exclusive(lock.held.key(), before.mode));
        };
        // From here on a drop releases the tenure that reads.
        lock.held.tenure = tenure;
        lock.client.telemetry.downgraded(lock.held.key(), &before, &lock.held.tenure, lock.held.tenure.since);
        lock.held.downgrade(&request).await?;
        Ok(self)
    }

    /// The hold ends, as lost, `max_hold` from now.
    pub(crate) fn limit_hold(&self, max_hold: Duration) {
        let Held { cell, lease, tenure } = &self.lock.held;
        cell.with(|engine, cx| engine.limit_hold(lease.hold, *tenure, max_hold, cx));
    }

    /// See [`crate::Guards::descriptors`].
    #[cfg(unix)]
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        self.lock.client.backend.descriptors(self.key(), &self.holder())
    }
}

impl ReleasedOnDrop {
    async fn release(&mut self) -> Result<(), Error> {
        if self.held.is_forked() {
            return self.held.check();
        }
        let (leaving, mut now, releasing) = self.held.leave(false);
        self.releasing = releasing;
        if !matches!(leaving, Status::Over) {
            self.count_released(now);
        }
        let (client, Held { cell, lease, tenure }) = (&self.client, &self.held);
        let (mut release, mut next) =
            ReleaseHold::begin(leaving, || lease.state().news.end(*tenure), lease.holder, now);
        loop {
            let limit = match next {
                ReleaseNext::Send(limit) => limit,
                ReleaseNext::Done { released, rest } => {
                    // The rest is released in the background.
                    self.armed = rest;
                    return match released {
                        Ok(Released::Released) => Ok(()),
                        Ok(Released::AlreadyLost { why }) => Err(self.held.loss_by(why).into()),
                        Err((cause, waited, attempts)) => Err(unreachable(Some(&cell.key), cause, waited, attempts)),
                    };
                }
            };
            let answer = timeout(limit.since(now), client.backend.release(&cell.key, &lease.holder)).await.ok();
            if let Some(Err(cause)) = &answer {
                tracing::debug!(key = %cell.key, %cause, "release failed");
            }
            now = client.clock.now();
            next = release.answered(answer, lease.stray_until, &client.config.backend, now);
        }
    }

    fn detach(&mut self) -> HolderId {
        self.armed = false;
        let Held { cell, lease, tenure } = &self.held;
        let detach = || cell.with(|engine, cx| engine.detach(lease.hold, *tenure, cx));
        if !self.held.is_forked() && matches!(detach(), Status::Held(_)) {
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
            (Status::Over, ..) => self.held.release_rest(),
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
impl AsRef<Held> for Arc<Guard> {
    fn as_ref(&self) -> &Held {
        &self.lock.held
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.held.write("Guard", f)
    }
}

/// A view of a held lock, to pass to the work it protects. It keeps nothing alive.
#[derive(Clone)]
pub struct Held {
    cell: Arc<KeyCell>,
    lease: Arc<HeldLease>,
    pub(crate) tenure: Tenure,
}

/// What its holder sees.
impl Held {
    /// The key of the lock.
    pub fn key(&self) -> &Key {
        &self.cell.key
    }

    /// See [`Guard::fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> FencingToken {
        self.tenure.fence
    }

    /// See [`Guard::mode`](crate::Guard::mode).
    pub const fn mode(&self) -> Mode {
        self.tenure.mode
    }

    /// See [`Guard::remaining`](crate::Guard::remaining).
    pub fn remaining(&self) -> Duration {
        self.time_left().unwrap_or_default()
    }

    /// See [`Guard::is_held`](crate::Guard::is_held).
    pub fn is_held(&self) -> bool {
        self.time_left().is_ok()
    }

    /// See [`Guard::check`](crate::Guard::check). It is not an error if the lock was released, but [`Held::is_held`] then returns
    /// `false`.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost.
    pub fn check(&self) -> Result<(), Error> {
        self.loss().map_or(Ok(()), |loss| Err(loss.into()))
    }

    /// Why the renewals fail, if the last one did: what to tell when [`Held::remaining`] becomes short, and after a loss. The client
    /// repeats them until the lease ends.
    pub fn renewal_failure(&self) -> Option<RenewalFailure> {
        let now = self.cell.driver.clock.now();
        let news = &self.lease.state().news;
        let (cause, lasts) = news.failing(now)?;
        Some(RenewalFailure { cause: cause.clone(), lasts })
    }

    /// See [`Guard::lost`](crate::Guard::lost). It never completes if the lock is released instead.
    ///
    /// # Cancel safety
    /// This method is cancel safe: it only reads.
    pub async fn lost(&self) -> LossReason {
        match self.ended().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// The remaining time of this tenure, on which its holder may rely, or how it ended. A tenure that another one follows was
    /// released.
    fn time_left(&self) -> Result<Duration, End> {
        if self.is_forked() {
            return Err(End::Lost(LossReason::Forked));
        }
        let hold = self.lease.hold;
        let (status, now) = self.cell.with(|engine, cx| (engine.status(hold, self.tenure, cx), cx.now));
        match status {
            Status::Held(until) => Ok(until.since(now)),
            Status::PassedOn => Err(End::Released),
            Status::Over => Err(self.lease.state().news.end(self.tenure)),
        }
    }

    /// Why it ended: `None` if it was released, which is reported at most a second later. This future does not depend on other
    /// tasks: it has its own timer for the end of the lease.
    pub(crate) async fn ended(&self) -> Option<LossReason> {
        loop {
            let ended = self.lease.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let left = match self.time_left() {
                Ok(left) => left,
                Err(End::Lost(reason)) => return Some(reason),
                Err(End::Released) => return None,
            };
            tokio::select! {
                biased;
                () = ended => {}
                () = sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    pub(crate) fn wake_at_end(&self, waker: &Waker) -> LeaseWaker {
        LeaseWaker::new(&self.lease, waker)
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.time_left() {
            Err(End::Lost(reason)) => Some(self.loss_by(reason)),
            Ok(_) | Err(End::Released) => None,
        }
    }

    /// The loss for this reason.
    pub(crate) fn loss_by(&self, reason: LossReason) -> Loss {
        let failure = if reason == LossReason::Expired { self.renewal_failure() } else { None };
        Loss { failure, ..Loss::new(self.key().clone(), reason) }
    }

    /// Whether this is a copy in a forked child of the process that holds the lock.
    pub(crate) fn is_forked(&self) -> bool {
        !self.cell.driver.identity.process.is_current()
    }
}

/// What its guard does.
impl Held {
    /// The lock of a grant; `None` if its lease has already ended.
    pub(crate) fn of(cell: &Arc<KeyCell>, engine: &mut Engine, grant: &Grant) -> Option<Self> {
        let (holder, ttl, stray_until) = engine.facts(grant.hold)?;
        let slot = engine.lease_mut(grant.hold)?;
        let lease = slot.get_or_insert_with(|| Arc::new(HeldLease::new(grant.hold, holder, ttl, stray_until)));
        Some(Self { cell: Arc::clone(cell), lease: Arc::clone(lease), tenure: grant.tenure })
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.lease.holder
    }

    /// Its holder no longer needs it. Returns what is to be done, and when that was decided; with a [`Releasing`] if the caller releases
    /// it. This is made with the key locked, so that closing the client waits for the hold or for the release.
    pub(crate) fn leave(&self, background: bool) -> (Status, Moment, Option<Releasing>) {
        let closing = &self.cell.driver.closing;
        self.cell.with(|engine, cx| {
            let leaving = engine.release(self.lease.hold, self.tenure, background, cx);
            let releasing = (!background && leaving != Status::PassedOn).then(|| closing.releasing());
            (leaving, cx.now, releasing)
        })
    }

    /// What is left of a lock that was lost, or whose release failed, is released in the background.
    pub(crate) fn release_rest(&self) {
        let HeldLease { holder, ttl, stray_until, .. } = *self.lease;
        if self.lease.state().news.end(self.tenure).is_given_away(holder) {
            return;
        }
        let (driver, key) = (&self.cell.driver, self.key().clone());
        let until = driver.clock.now() + ttl.get();
        driver.reap(PendingRelease { key, holder, until, stray_until, is_hold: true });
    }

    /// Sends the request until it is answered or the hold is over.
    pub(crate) async fn downgrade(&mut self, request: &Renewal) -> Result<(), Error> {
        let driver = Arc::clone(&self.cell.driver);
        let limit = RenewalPlan::answer_limit(request.ttl.get());
        loop {
            let sent = driver.clock.now();
            let answer = timeout(limit, driver.backend.downgrade(request)).await.unwrap_or_else(|_| {
                let text = "no reply to the downgrade within a fifth of the lease";
                Err(Unknown::new(driver.config.backend.clone(), Fault::Timeout, text))
            });
            let hold = self.lease.hold;
            match self.cell.with(|engine, cx| engine.downgrade_answered(hold, self.tenure, sent, answer, cx)) {
                DowngradeNext::Rest(until) => sleep(until.since(driver.clock.now())).await,
                DowngradeNext::Done(tenure) => {
                    self.tenure = tenure;
                    return Ok(());
                }
                DowngradeNext::Refused(cause) => return Err(unreachable_once(Some(self.key()), cause)),
                DowngradeNext::Over => {
                    return Err(self.loss().unwrap_or_else(|| self.loss_by(LossReason::Expired)).into());
                }
            }
        }
    }
}

impl AsRef<Self> for Held {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write("Held", f)
    }
}

impl Held {
    pub(crate) fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("key", self.key())
            .field("mode", &self.mode())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
