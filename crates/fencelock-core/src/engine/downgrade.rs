//! Downgrades: a writer becomes a reader.

use super::answer::Status;
use super::context::Context;
use super::key_engine::KeyEngine;
use super::tenure::{HoldId, Tenure};
use crate::{Downgrade, LossReason, Mode, Moment, Renewal, Unknown};
use std::time::Duration;

/// The result of a downgrade for its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Downgrading {
    /// It is a reader, with the token of this tenure.
    Done(Tenure),
    /// The backend has not answered: send the same request again at this moment.
    Again(Moment),
    /// The backend refuses permanently.
    Refused(Unknown),
    /// The hold is over.
    Over,
}

impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Starts a downgrade. The request may be executed although its reply is lost, so the hold counts as shared from
    /// now on: this tenure ends, and no other task gets the lease. `None` if the tenure has ended already, or is not
    /// exclusive.
    pub fn downgrade(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> Option<(Tenure, Renewal)> {
        let is_over = !matches!(self.status(id, tenure, cx), Status::Held(_));
        if is_over || tenure.mode != Mode::Exclusive {
            return None;
        }
        if self.leases.is_shared(id) {
            let queued = self.leader_claims();
            self.leases.stop_sharing(id, queued, cx);
        }
        let hold = self.leases.get_mut(id)?;
        let begun = (hold.begin_downgrade(cx.now), Renewal::new(cx.key.clone(), hold.holder, hold.ttl()));
        self.settle(None, cx);
        Some(begun)
    }

    /// The reply to a downgrade that was sent at `sent`, for the tenure that began with it.
    pub fn downgrade_answered(
        &mut self,
        id: HoldId,
        tenure: Tenure,
        sent: Moment,
        answer: Result<Downgrade, Unknown>,
        cx: &mut Context<'_, W, L>,
    ) -> Downgrading {
        // A lease that has expired ended by itself, whatever the reply is.
        if !matches!(self.status(id, tenure, cx), Status::Held(_)) {
            return Downgrading::Over;
        }
        let random = cx.rng.next_u64();
        let Some(hold) = self.leases.get_mut(id) else { return Downgrading::Over };
        let lost = match answer {
            Ok(Downgrade::Downgraded { token }) => {
                match hold.downgraded(token, sent, cx.config.drift, cx.now, random) {
                    Ok(tenure) => {
                        hold.set_timer(cx);
                        return Downgrading::Done(tenure);
                    }
                    Err(reason) => reason,
                }
            }
            Ok(Downgrade::Absent) => LossReason::Deleted,
            Ok(Downgrade::TakenBy(holders)) => LossReason::TakenBy(holders),
            Err(cause) if cause.is_permanent() => return Downgrading::Refused(cause),
            // Like a renewal that is not confirmed.
            Err(_) => {
                let pause = (hold.ttl().get() / 60).clamp(Duration::from_millis(1), Duration::from_secs(1));
                return Downgrading::Again(cx.now + pause);
            }
        };
        self.lose(id, lost, cx);
        Downgrading::Over
    }
}
