//! One user of a client: acquires, holds, gives up, releases, and is notified of losses.

use crate::network::Op;
use crate::parking::Parked;
use fencelock_core::engine::{
    End, FailureReason, Grant, HoldId, KeyRequest, PendingRelease, ReleaseHold, Tenure, WaiterId,
};
use fencelock_core::{HolderId, Lease, LossReason, Moment, Renewal, TokenBlock};
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

/// The task of a user that wants the key, and what it waits for.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Task {
    pub(crate) of: TaskKind,
    pub(crate) wait: Wait,
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum TaskKind {
    Acquire(WaiterId),
    /// It enters after the release of an idle lease that does not match.
    Clear(Box<PendingRelease>),
    /// Of a hold of this holder, which was claimed with these tokens and this lease.
    Resume(HolderId, Option<(TokenBlock, Lease)>),
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Wait {
    /// Until it is woken, or until this moment.
    Rest(Moment),
    /// For an answer.
    Answer { op: Op, limit: Moment, request: KeyRequest },
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
    pub(crate) hold: HoldId,
    pub(crate) tenure: Tenure,
    pub(crate) renewal: Renewal,
    /// The request that waits for its answer, and when it was sent.
    pub(crate) request: Option<(Op, Moment)>,
    /// When it goes on without an answer.
    pub(crate) due: Moment,
}

/// A guard that is being released.
#[derive(Debug, Clone, Hash)]
pub(crate) struct GuardRelease {
    pub(crate) op: Op,
    pub(crate) limit: Moment,
    pub(crate) release: ReleaseHold,
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

    /// How its last hold ended.
    pub(crate) fn end(&self) -> End {
        self.lost.clone().map_or(End::Released, |(reason, _)| End::Lost(reason))
    }

    /// Another task that shared its hold has given the holder id away.
    pub(crate) fn has_given_away(&self, holder: HolderId) -> bool {
        self.end().is_given_away(holder)
    }

    /// It neither waits nor holds.
    pub(crate) fn is_through(&self) -> bool {
        self.task.is_none() && self.guard.is_none() && self.releasing.is_none()
    }

    /// Whose claim waits for an answer.
    pub(crate) fn claimant(&self) -> Option<HolderId> {
        match &self.task.as_ref()?.wait {
            Wait::Answer { request: KeyRequest::Claim(claim), .. } => Some(claim.holder.id),
            _ => None,
        }
    }

    /// Its task waits for nothing but time, other tasks or a notification.
    pub(crate) fn rests(&self) -> bool {
        let rests = |task: &Task| matches!(task, Task { of: TaskKind::Acquire(_), wait: Wait::Rest(_) });
        self.task.as_ref().is_some_and(rests)
    }

    /// The requests whose answers its task, its release and its downgrade wait for.
    pub(crate) fn waits_for(&self) -> [Option<Op>; 3] {
        let task = self.task.as_ref().and_then(|task| match task.wait {
            Wait::Answer { op, .. } => Some(op),
            Wait::Rest(_) => None,
        });
        let release = self.releasing.as_ref().map(|releasing| releasing.op);
        let downgrade = self.downgrading.as_ref().and_then(|downgrading| downgrading.request).map(|(op, _)| op);
        [task, release, downgrade]
    }

    /// The first of its timers.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let task = self.task.as_ref().filter(|_| self.parked.is_none()).map(|task| match &task.wait {
            Wait::Rest(moment) | Wait::Answer { limit: moment, .. } => *moment,
        });
        let watch = self.guard.as_ref().filter(|_| self.lost.is_none()).map(|guard| guard.watch);
        let release = self.releasing.as_ref().map(|releasing| releasing.limit);
        let downgrade = self.downgrading.as_ref().map(|downgrading| downgrading.due);
        [task, watch, release, downgrade].into_iter().flatten().filter(|moment| *moment != Moment::NEVER).min()
    }
}
