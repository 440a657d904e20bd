use super::key_cell::{Engine, KeyCell};
use super::lease_state::LeaseState;
use crate::closing::Releasing;
use crate::error::{Error, unreachable_once};
use crate::loss::RenewalFailure;
use fencelock_core::engine::{DowngradeHold, DowngradeNext, End, Grant, Leaving, PendingRelease, Status, Tenure};
use fencelock_core::{HolderId, Key, LossReason, Moment};
use std::sync::Arc;
use std::time::Duration;

/// Timers stop while the machine is suspended, so a loss during that time is detected at most a second late.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What happens to a lease that its holder no longer needs.
pub(crate) struct Departure {
    /// How it had ended before, if it had ended.
    pub(crate) leaving: Result<Leaving, End>,
    /// Set if the holder must release it.
    pub(crate) releasing: Option<Releasing>,
    pub(crate) now: Moment,
    /// When the lease ends if no renewal in flight succeeds. A release is of no use after that.
    pub(crate) lease_ends: Moment,
}

/// A lease of this client, as its guards use it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseHandle {
    cell: Arc<KeyCell>,
    state: Arc<LeaseState>,
}

impl LeaseHandle {
    /// The lease of a grant; `None` if it has already ended.
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

    /// See [`fencelock_core::Backend::descriptors`].
    #[cfg(unix)]
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<std::os::fd::OwnedFd>> {
        self.cell.driver().backend.descriptors(self.key(), self.holder())
    }

    /// Whether this is a copy in a forked child of the process that holds it.
    pub(crate) fn is_forked(&self) -> bool {
        !self.cell.driver().process().is_current()
    }

    /// How a tenure ended, if it has ended. A tenure that another one follows was released.
    pub(crate) fn end_of(&self, tenure: Tenure) -> Option<End> {
        self.time_left(tenure).err()
    }

    pub(crate) fn loss(&self, tenure: Tenure) -> Option<LossReason> {
        match self.time_left(tenure) {
            Err(End::Lost(reason)) => Some(reason),
            Ok(_) | Err(End::Released) => None,
        }
    }

    /// Why its renewals fail, if the last one did.
    pub(crate) fn renewal_failure(&self) -> Option<RenewalFailure> {
        self.state.renewal_failure(self.cell.driver().clock.now())
    }

    /// The remaining time of this tenure, on which its holder may rely; zero after its end.
    pub(crate) fn remaining(&self, tenure: Tenure) -> Duration {
        self.time_left(tenure).unwrap_or_default()
    }

    /// The remaining time of this tenure, or how it ended.
    fn time_left(&self, tenure: Tenure) -> Result<Duration, End> {
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

    /// Waits for the end of this tenure, and returns why it was lost; `None` if it was released. This future does not depend on
    /// other tasks: it has its own timer for the end of the lease.
    pub(crate) async fn ended(&self, tenure: Tenure) -> Option<LossReason> {
        loop {
            let ended = self.state.ended();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let left = match self.time_left(tenure) {
                Ok(left) => left,
                Err(End::Lost(reason)) => return Some(reason),
                Err(End::Released) => return None,
            };
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    /// Ends this tenure, because its holder no longer needs it.
    pub(crate) fn release(&self, tenure: Tenure, background: bool) -> Departure {
        let closing = &self.cell.driver().closing;
        let (leaving, releasing, now, lease_ends) = self.cell.with(|engine, cx| {
            let lease_ends = engine.rest(self.state.hold, cx.now).map_or(cx.now, |rest| cx.now + rest);
            let leaving = engine.release(self.state.hold, tenure, background, cx);
            // Created with the key locked, so that closing the client waits for the hold or for the release.
            let releasing = (!background && leaving != Leaving::PassedOn).then(|| closing.releasing());
            (leaving, releasing, cx.now, lease_ends)
        });
        let leaving = if leaving == Leaving::Over { Err(self.state.end(tenure)) } else { Ok(leaving) };
        Departure { leaving, releasing, now, lease_ends }
    }

    /// Ends the hold of this tenure `max_hold` from now.
    pub(crate) fn limit_hold(&self, tenure: Tenure, max_hold: Duration) {
        self.cell.with(|engine, cx| engine.limit_hold(self.state.hold, tenure, max_hold, cx));
    }

    /// Begins a downgrade of this tenure; `None` if the tenure has ended, or is not exclusive.
    pub(crate) fn begin_downgrade(&self, tenure: Tenure) -> Option<(DowngradeHold, DowngradeNext)> {
        self.cell.with(|engine, cx| DowngradeHold::begin(self.state.hold, tenure, engine, cx))
    }

    /// Carries a downgrade out. Returns the tenure that reads.
    pub(crate) async fn downgrade(&self, mut of: DowngradeHold, mut next: DowngradeNext) -> Result<Tenure, Error> {
        let driver = self.cell.driver();
        let left = |until: Moment| until.since(driver.clock.now());
        loop {
            let answer = match next {
                DowngradeNext::Send(limit) => {
                    tokio::time::timeout(left(limit), driver.backend.downgrade(of.request())).await.ok()
                }
                DowngradeNext::Rest(until) => {
                    tokio::time::sleep(left(until)).await;
                    None
                }
                DowngradeNext::Done(tenure) => return Ok(tenure),
                DowngradeNext::Refused(cause) => return Err(unreachable_once(Some(self.key()), cause)),
                DowngradeNext::Over => {
                    let reason = self.loss(of.tenure()).unwrap_or(LossReason::Expired);
                    return Err(Error::Lost { key: self.key().clone(), reason });
                }
            };
            next = self.cell.with(|engine, cx| match answer {
                Some(answer) => of.answered(answer, engine, cx),
                None => of.on_time(engine, cx),
            });
        }
    }

    /// Detaches the hold, which continues without this client. Returns whether it was held.
    pub(crate) fn detach(&self, tenure: Tenure) -> bool {
        self.cell.with(|engine, cx| {
            let was_held = matches!(engine.detach(self.state.hold, tenure, cx), Status::Held(_));
            if was_held {
                // Set with the key locked, so that no guard that is notified of the end releases it.
                self.state.give_away();
            }
            was_held
        })
    }

    /// Whether its holder id belongs to another process.
    pub(crate) fn is_given_away(&self) -> bool {
        self.state.is_given_away()
    }

    /// The request to release it in the background.
    pub(crate) fn pending_release(&self) -> PendingRelease {
        let until = self.cell.driver().clock.now() + self.state.ttl.get();
        let (key, holder, stray_until) = (self.key().clone(), self.state.holder, self.state.stray_until);
        PendingRelease { key, holder, until, stray_until, is_hold: true }
    }

    /// Until then, a claim of this holder may be in flight, and would acquire the key again.
    pub(crate) fn stray_until(&self) -> Moment {
        self.state.stray_until
    }
}
