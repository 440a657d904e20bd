use super::key_cell::{Engine, KeyCell};
use super::lease_state::LeaseState;
use crate::closing::Releasing;
use crate::error::{Error, unreachable_once};
use fencelock_core::engine::{Downgrading, End, Grant, Leaving, PendingRelease, Status, Tenure};
use fencelock_core::{Fault, HolderId, Key, LossReason, Moment, Renewal, RenewalPlan, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// Timers stand still while the machine sleeps; a second is how late a loss in sleep may be noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What becomes of a lease that its holder does not need any more.
pub(crate) struct Left {
    /// How it had ended before, if it had.
    pub(crate) leaving: Result<Leaving, End>,
    /// If the holder is to release it.
    pub(crate) releasing: Option<Releasing>,
    pub(crate) now: Moment,
}

/// A lease of this client, as its guards see it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    cell: Arc<KeyCell>,
    state: Arc<LeaseState>,
}

impl Lease {
    /// The lease of a grant, if it is not over already.
    pub(super) fn of(cell: &Arc<KeyCell>, engine: &mut Engine, grant: &Grant) -> Option<Self> {
        let (holder, ttl, stray_until) = engine.facts(grant.hold)?;
        let slot = engine.lease_mut(grant.hold)?;
        let state = slot.get_or_insert_with(|| Arc::new(LeaseState::new(grant.hold, holder, ttl, stray_until)));
        Some(Self { cell: Arc::clone(cell), state: Arc::clone(state) })
    }

    pub(crate) fn key(&self) -> &Key {
        self.cell.key()
    }

    pub(crate) fn holder(&self) -> &HolderId {
        &self.state.holder
    }

    /// Whether this is a copy in a child of the process that has it.
    pub(crate) fn is_forked(&self) -> bool {
        !self.cell.driver().process().is_current()
    }

    /// The end of a tenure: if another has followed, it was released.
    pub(crate) fn end_of(&self, tenure: Tenure) -> Option<End> {
        self.ask(tenure).err()
    }

    pub(crate) fn loss(&self, tenure: Tenure) -> Option<LossReason> {
        match self.ask(tenure) {
            Err(End::Lost(reason)) => Some(reason),
            Ok(_) | Err(End::Released) => None,
        }
    }

    /// How long the holder of this tenure may believe in it; zero once it has ended.
    pub(crate) fn remaining(&self, tenure: Tenure) -> Duration {
        self.ask(tenure).unwrap_or_default()
    }

    /// How much longer the holder of this tenure may believe in it, or how it has ended.
    fn ask(&self, tenure: Tenure) -> Result<Duration, End> {
        if self.is_forked() {
            return Err(End::Lost(LossReason::Forked));
        }
        let (status, now) = self.cell.with(|engine, cx| (engine.status(self.state.hold, tenure, cx), cx.now));
        match status {
            Status::Held(until) => Ok(until.since(now)),
            Status::PassedOn => Err(End::Released),
            Status::Over => Err(self.state.end(tenure)),
        }
    }

    /// Waits for the loss. Does not depend on other tasks: this future has its own timer for the end of the lease.
    pub(crate) async fn lost(&self, tenure: Tenure) -> LossReason {
        loop {
            let ended = self.state.ended();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let left = match self.ask(tenure) {
                Ok(left) => left,
                Err(End::Lost(reason)) => return reason,
                Err(End::Released) => std::future::pending().await,
            };
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    /// The holder does not need it any more.
    pub(crate) fn release(&self, tenure: Tenure, background: bool) -> Left {
        let closing = &self.cell.driver().closing;
        let (leaving, releasing, now) = self.cell.with(|engine, cx| {
            let leaving = engine.release(self.state.hold, tenure, background, cx);
            // Under the lock of the key, so that the closing of the client sees the hold or the release.
            let releasing = (!background && leaving != Leaving::PassedOn).then(|| closing.releasing());
            (leaving, releasing, cx.now)
        });
        let leaving = if leaving == Leaving::Over { Err(self.state.end(tenure)) } else { Ok(leaving) };
        Left { leaving, releasing, now }
    }

    /// The hold of this tenure ends `max_hold` from now.
    pub(crate) fn limit_hold(&self, tenure: Tenure, max_hold: Duration) {
        self.cell.with(|engine, cx| engine.limit_hold(self.state.hold, tenure, max_hold, cx));
    }

    /// The holder of this tenure only reads from now on: the tenure that begins, and the request to send. `None` if it has ended,
    /// or is not exclusive.
    pub(crate) fn begin_downgrade(&self, tenure: Tenure) -> Option<(Tenure, Renewal)> {
        self.cell.with(|engine, cx| engine.downgrade(self.state.hold, tenure, cx))
    }

    /// Sends a downgrade until it is answered.
    pub(crate) async fn downgrade(&self, tenure: Tenure, renewal: &Renewal) -> Result<Tenure, Error> {
        let driver = self.cell.driver();
        let limit = RenewalPlan::answer_limit(self.state.ttl.get());
        loop {
            let sent = driver.clock.now();
            let answer = tokio::time::timeout(limit, driver.backend.downgrade(renewal)).await.unwrap_or_else(|_| {
                let text = "the downgrade took a fifth of the lease";
                Err(Unknown::new(driver.config.place.clone(), Fault::Timeout, text))
            });
            match self.cell.with(|engine, cx| engine.downgrade_answered(self.state.hold, tenure, sent, answer, cx)) {
                Downgrading::Done(tenure) => return Ok(tenure),
                Downgrading::Again(at) => tokio::time::sleep(at.since(driver.clock.now())).await,
                Downgrading::Refused(cause) => return Err(unreachable_once(Some(self.key()), cause)),
                Downgrading::Over => {
                    let reason = self.loss(tenure).unwrap_or(LossReason::Expired);
                    return Err(Error::Lost { key: self.key().clone(), reason });
                }
            }
        }
    }

    /// It goes on without this client. Says whether it was held.
    pub(crate) fn detach(&self, tenure: Tenure) -> bool {
        self.cell.with(|engine, cx| {
            let was_held = matches!(engine.detach(self.state.hold, tenure, cx), Status::Held(_));
            if was_held {
                // Under the lock of the key, so that no guard that is told of the end releases it.
                self.state.give_away();
            }
            was_held
        })
    }

    /// Whether its holder id belongs to another process.
    pub(crate) fn is_given_away(&self) -> bool {
        self.state.is_given_away()
    }

    /// Its release in the background.
    pub(crate) fn pending_release(&self) -> PendingRelease {
        let until = self.cell.driver().clock.now() + self.state.ttl.get();
        let (key, holder, stray_until) = (self.key().clone(), self.state.holder, self.state.stray_until);
        PendingRelease { key, holder, until, stray_until, is_hold: true }
    }

    /// Whether a claim of this holder may still be on its way, and would take the key again.
    pub(crate) fn may_have_strays(&self) -> bool {
        self.cell.driver().clock.now() < self.state.stray_until
    }
}
