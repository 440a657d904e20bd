use crate::closing::Releasing;
use crate::driver::{Engine, KeyCell, LeaseState};
use crate::error::{Error, unreachable_once};
use crate::loss::{Loss, RenewalFailure};
use fencelock_core::engine::{
    DowngradeNext, End, Grant, LONGEST_SLEEP, Leaving, PendingRelease, ReleaseHold, ReleaseNext, Status, Tenure,
};
use fencelock_core::{Fault, FencingToken, HolderId, Key, LossReason, Mode, Moment, Renewal, RenewalPlan, Unknown};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A view of a held lock, to pass to the work it protects. It keeps nothing alive.
#[derive(Clone)]
pub struct Held {
    cell: Arc<KeyCell>,
    lease: Arc<LeaseState>,
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
        let news = self.lease.news();
        let (cause, lasts) = news.as_ref()?.failing(now)?;
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
            Status::Over => Err(self.lease.end(self.tenure)),
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
        let lease = slot.get_or_insert_with(|| Arc::new(LeaseState::new(grant.hold, holder, ttl, stray_until)));
        Some(Self { cell: Arc::clone(cell), lease: Arc::clone(lease), tenure: grant.tenure })
    }

    pub(crate) fn holder(&self) -> HolderId {
        self.lease.holder
    }

    /// See [`fencelock_core::Backend::descriptors`].
    #[cfg(unix)]
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        self.cell.driver.backend.descriptors(self.key(), &self.lease.holder)
    }

    /// Its holder no longer needs it. Returns what is to be done, and when that was decided; with a [`Releasing`] if the caller releases
    /// it. This is made with the key locked, so that closing the client waits for the hold or for the release.
    pub(crate) fn leave(&self, background: bool) -> (Leaving, Moment, Option<Releasing>) {
        let closing = &self.cell.driver.closing;
        self.cell.with(|engine, cx| {
            let leaving = engine.release(self.lease.hold, self.tenure, background, cx);
            let releasing = (!background && leaving != Leaving::PassedOn).then(|| closing.releasing());
            (leaving, cx.now, releasing)
        })
    }

    /// The release that follows [`Held::leave`], and its first step.
    pub(crate) fn release(&self, leaving: Leaving, now: Moment) -> (ReleaseHold, ReleaseNext) {
        ReleaseHold::begin(leaving, || self.lease.end(self.tenure), self.lease.holder, now)
    }

    /// What is left of a lock that was lost, or whose release failed, is released in the background.
    pub(crate) fn release_rest(&self) {
        let LeaseState { holder, ttl, stray_until, .. } = *self.lease;
        if self.lease.end(self.tenure).is_given_away(holder) {
            return;
        }
        let (driver, key) = (&self.cell.driver, self.key().clone());
        let until = driver.clock.now() + ttl.get();
        driver.reap(PendingRelease { key, holder, until, stray_until, is_hold: true });
    }

    /// Until then, a claim of this holder may be in flight, and would acquire the key again.
    pub(crate) fn stray_until(&self) -> Moment {
        self.lease.stray_until
    }

    /// The hold ends, as lost, `max_hold` from now.
    pub(crate) fn limit_hold(&self, max_hold: Duration) {
        self.cell.with(|engine, cx| engine.limit_hold(self.lease.hold, self.tenure, max_hold, cx));
    }

    /// The hold continues without this client. Returns whether it was held.
    pub(crate) fn detach(&self) -> bool {
        self.cell.with(|engine, cx| matches!(engine.detach(self.lease.hold, self.tenure, cx), Status::Held(_)))
    }

    /// Begins a downgrade, in the tenure that reads; `None` if the lock is lost, or not exclusive.
    pub(crate) fn begin_downgrade(&mut self) -> Option<Renewal> {
        let (tenure, request) = self.cell.with(|engine, cx| engine.downgrade(self.lease.hold, self.tenure, cx))?;
        self.tenure = tenure;
        Some(request)
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
                    let reason = self.loss().map_or(LossReason::Expired, |loss| loss.reason);
                    return Err(Error::Lost { key: self.key().clone(), reason });
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
