//! One user of a client: acquires, holds, gives up, releases, and is notified of losses.

use crate::network::Op;
use crate::parking::Parked;
use fencelock_core::engine::{End, FailureReason, Grant, PendingRelease, WaiterId};
use fencelock_core::{Claim, HolderId, LossReason, Moment, Release, Renewal};
use std::time::Duration;

#[allow(clippy::struct_excessive_bools, reason = "what has happened to it, each by itself")]
#[derive(Debug, Clone, Hash)]
pub(crate) struct User {
    pub(crate) asked: bool,
    /// How many users asked before.
    pub(crate) turn: u8,
    pub(crate) arrived: Moment,
    pub(crate) task: Option<Task>,
    pub(crate) woken: bool,
    pub(crate) guard: Option<Guard>,
    pub(crate) releasing: Option<GuardRelease>,
    /// The downgrade of its guard.
    pub(crate) downgrading: Option<GuardDowngrade>,
    /// The last hold, also after its end.
    pub(crate) holder: Option<HolderId>,
    pub(crate) let_go: bool,
    pub(crate) lost: Option<(LossReason, Moment)>,
    pub(crate) ended: Option<Ended>,
    pub(crate) refused: Option<FailureReason>,
    pub(crate) detached: bool,
    pub(crate) checks: u8,
    pub(crate) parked: Option<Parked>,
}

/// What the task of a user that wants the key is doing.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Task {
    pub(crate) id: Option<WaiterId>,
    pub(crate) wait: Wait,
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Wait {
    /// For a step.
    Poll,
    /// For a step, or the timer.
    Sleep(Moment),
    /// For an answer.
    Answer { op: Op, sent: Moment, limit: Moment, to: Asked },
    /// For the release of an idle lease.
    IdleRelease { op: Op, limit: Moment, release: Box<PendingRelease> },
    /// For the answer to a claim that resumes a hold.
    Resume { op: Op, sent: Moment, limit: Moment, claim: Box<Claim> },
}

/// What the answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Claim(HolderId),
    Inspect,
    Leave,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Guard {
    pub(crate) grant: Grant,
    pub(crate) holder: HolderId,
    pub(crate) ttl: Duration,
    pub(crate) stray_until: Moment,
    /// When the longest hold is over.
    pub(crate) ends: Moment,
    /// When the holder checks whether its lock is lost.
    pub(crate) watch: Moment,
}

/// A guard that becomes that of a reader.
#[derive(Debug, Clone, Hash)]
pub(crate) struct GuardDowngrade {
    pub(crate) renewal: Renewal,
    pub(crate) sent: Moment,
    pub(crate) wait: DowngradeWait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DowngradeWait {
    /// For the answer to a request.
    Answer { op: Op, limit: Moment },
    /// Until it sends another one.
    Again(Moment),
}

/// A guard that is being released.
#[derive(Debug, Clone, Hash)]
pub(crate) struct GuardRelease {
    pub(crate) op: Op,
    pub(crate) limit: Moment,
    pub(crate) tries: u8,
    pub(crate) before: Option<End>,
    pub(crate) guard: Guard,
}

/// What a release was answered with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    /// Its client keeps the lease.
    PassedOn,
    Released,
    AlreadyLost(LossReason),
    Unknown,
}

impl Ended {
    /// As `Released::from_answer`.
    pub(crate) fn from_answer(answer: Release) -> Self {
        match answer {
            Release::Released => Self::Released,
            Release::Absent => Self::AlreadyLost(LossReason::Deleted),
            Release::TakenBy(occupant) => Self::AlreadyLost(LossReason::TakenBy(occupant)),
        }
    }
}

impl User {
    pub(crate) fn new(checks: u8) -> Self {
        Self {
            asked: false,
            turn: 0,
            arrived: Moment::default(),
            task: None,
            woken: false,
            guard: None,
            releasing: None,
            downgrading: None,
            holder: None,
            let_go: false,
            lost: None,
            ended: None,
            refused: None,
            detached: false,
            checks,
            parked: None,
        }
    }

    /// It neither waits nor holds.
    pub(crate) fn is_through(&self) -> bool {
        self.task.is_none() && self.guard.is_none() && self.releasing.is_none()
    }

    /// Whose claim waits for an answer.
    pub(crate) fn claimant(&self) -> Option<HolderId> {
        match &self.task.as_ref()?.wait {
            Wait::Answer { to: Asked::Claim(holder), .. } => Some(*holder),
            Wait::Resume { claim, .. } => Some(claim.holder.id),
            _ => None,
        }
    }

    /// The requests whose answers its task, its release and its downgrade wait for.
    pub(crate) fn waits_for(&self) -> [Option<Op>; 3] {
        let task = self.task.as_ref().and_then(|task| match task.wait {
            Wait::Answer { op, .. } | Wait::IdleRelease { op, .. } | Wait::Resume { op, .. } => Some(op),
            Wait::Poll | Wait::Sleep(_) => None,
        });
        let release = self.releasing.as_ref().map(|releasing| releasing.op);
        let downgrade = self.downgrading.as_ref().and_then(|downgrading| match downgrading.wait {
            DowngradeWait::Answer { op, .. } => Some(op),
            DowngradeWait::Again(_) => None,
        });
        [task, release, downgrade]
    }

    pub(crate) fn waiter(&self) -> Option<WaiterId> {
        self.task.as_ref().and_then(|task| task.id)
    }

    /// The first of its timers. `deadline` is when its wait in the queue of its client is over.
    pub(crate) fn next_timer(&self, deadline: Moment) -> Option<Moment> {
        let task = self.task.as_ref().filter(|_| self.parked.is_none()).map(|task| match &task.wait {
            Wait::Poll => deadline,
            Wait::Sleep(until) => *until,
            Wait::Answer { limit, .. } | Wait::IdleRelease { limit, .. } | Wait::Resume { limit, .. } => *limit,
        });
        let watch = self.guard.as_ref().filter(|_| self.lost.is_none()).map(|guard| guard.watch);
        let release = self.releasing.as_ref().map(|releasing| releasing.limit);
        let downgrade = self.downgrading.as_ref().map(|downgrading| match downgrading.wait {
            DowngradeWait::Answer { limit, .. } => limit,
            DowngradeWait::Again(at) => at,
        });
        [task, watch, release, downgrade].into_iter().flatten().filter(|moment| *moment != Moment::NEVER).min()
    }
}
