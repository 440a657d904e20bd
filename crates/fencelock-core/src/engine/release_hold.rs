use super::hold::{End, Status};
use crate::{Fault, HolderId, LossReason, Moment, Release, Unknown};
use std::time::Duration;

/// The number of attempts before the release continues in the background.
const TRIES: u32 = 3;
/// A release that is sent just before the lease ends has this time for its reply, which tells whether it was in time.
const LAST_REPLY: Duration = Duration::from_secs(1);

/// A holder that releases its hold, and waits for the confirmation. It has no I/O.
#[derive(Debug, Clone, Hash)]
pub struct ReleaseHold {
    /// Why the hold had been lost before, if it had.
    lost: Option<LossReason>,
    /// A release is of no use after that; [`Moment::NEVER`] if it is not known, because the hold was over: it is asked once.
    lease_ends: Moment,
    started: Moment,
    attempts: u32,
}

/// What a driver does next for a [`ReleaseHold`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseNext {
    /// Send the release. If there is no reply until this moment, abandon it.
    Send(Moment),
    /// It is over.
    Done {
        /// The result; if the backend refuses or has not answered, the last error, for how long, and how often the release was sent.
        released: Result<Released, (Unknown, Duration, u32)>,
        /// Whether the rest is released in the background.
        rest: bool,
    },
}

/// How a release went.
///
/// Exhaustive: a release finds the lock held, or lost before. An unknown result is an error.
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
    /// What an answer of the backend means.
    pub fn of(answer: Release, if_absent: LossReason) -> Self {
        match answer {
            Release::Released => Self::Released,
            Release::Absent => Self::AlreadyLost { why: if_absent },
            Release::TakenBy(holders) => Self::AlreadyLost { why: LossReason::TakenBy(holders) },
        }
    }
}

impl ReleaseHold {
    /// Begins with what [`super::KeyEngine::release`] has returned; `end` is how a hold ended that was over by then.
    pub fn begin(leaving: Status, end: impl FnOnce() -> End, holder: HolderId, now: Moment) -> (Self, ReleaseNext) {
        let mut this = Self { lost: None, lease_ends: Moment::NEVER, started: now, attempts: 0 };
        let done = |released, rest| ReleaseNext::Done { released: Ok(released), rest };
        let lost = |why, rest| done(Released::AlreadyLost { why }, rest);
        let next = match leaving {
            Status::PassedOn => done(Released::Released, false),
            Status::Held(lease_ends) => {
                this.lease_ends = lease_ends;
                this.send(now)
            }
            Status::Over => {
                let end = end();
                let given_away = end.is_given_away(holder);
                match end {
                    End::Lost(why) if given_away => lost(why, false),
                    // The server has ended the lease too, unless the reply to a renewal was lost: that is left to the background.
                    End::Lost(why @ LossReason::Expired) => lost(why, true),
                    end => {
                        this.lost = if let End::Lost(why) = end { Some(why) } else { None };
                        this.send(now)
                    }
                }
            }
        };
        (this, next)
    }

    fn send(&mut self, now: Moment) -> ReleaseNext {
        self.attempts += 1;
        ReleaseNext::Send(self.lease_ends.max(now + LAST_REPLY))
    }

    /// The release was answered; `None`: not within the limit. A claim of the holder may be in flight until `stray_until`.
    pub fn answered(
        &mut self,
        answer: Option<Result<Release, Unknown>>,
        stray_until: Moment,
        backend: &str,
        now: Moment,
    ) -> ReleaseNext {
        let is_late = answer.is_none();
        let late = || Err(Unknown::new(backend, Fault::Timeout, "no reply before the lease ended"));
        let (released, rest) = match (answer.unwrap_or_else(late), &self.lost) {
            // The hold is over, whatever the server answers: there, its lease ends a little later, because of the drift allowance.
            (answer, Some(why)) => {
                (Ok(Released::AlreadyLost { why: why.clone() }), answer.is_err() || now < stray_until)
            }
            // An earlier attempt succeeded, and its reply was lost.
            (Ok(_), _) if self.attempts > 1 => (Ok(Released::Released), now < stray_until),
            (Ok(answer), _) => (Ok(Released::of(answer, LossReason::Deleted)), now < stray_until),
            (Err(cause), _) if cause.is_permanent() || is_late || self.attempts == TRIES => {
                let attempts = if is_late { TRIES } else { self.attempts };
                (Err((cause, now.since(self.started), attempts)), true)
            }
            (Err(_), _) => return self.send(now),
        };
        ReleaseNext::Done { released, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, Occupant, Owner};

    #[test]
    fn a_holder_id_that_was_given_away_is_not_released_and_one_whose_key_was_taken_is() {
        let holder = |id| Holder { id: HolderId::from_bytes([id; 16]), owner: Owner::from_text("task") };
        let first_step = |taken_by| {
            let end = || End::Lost(LossReason::TakenBy(Occupant::Holder(holder(taken_by)).into()));
            ReleaseHold::begin(Status::Over, end, holder(1).id, Moment::default()).1
        };
        assert!(matches!(first_step(1), ReleaseNext::Done { rest: false, .. }));
        assert!(matches!(first_step(2), ReleaseNext::Send(_)));
    }
}
