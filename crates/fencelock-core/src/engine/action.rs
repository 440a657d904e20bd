use super::hold::{End, HoldId, Tenure};
use super::releases::PendingRelease;
use crate::{Claim, HolderId, Invalid, Key, Mode, Moment, Occupied, Request, Unknown};
use std::panic::Location;
use std::time::Duration;

/// What a task does next.
#[derive(Debug, Clone)]
pub enum TaskStep {
    /// Wait until the task is woken, or until this moment: [`super::KeyEngine::on_time`].
    Rest(Moment),
    /// Send this request: [`super::KeyEngine::answered`]. If there is no reply until this moment, abandon it. The request is also dropped,
    /// without another poll, when [`super::KeyEngine::woken`] returns another step.
    Send(KeyRequest, Moment),
    /// The task has the key, and is no longer in the engine, which has its hold.
    Granted(Grant),
    /// The task does not get the key, and is no longer in the engine.
    Failed(Box<AcquireFailure>),
    /// The client is being closed.
    Closed,
}

impl TaskStep {
    /// Whether the task is no longer in the engine.
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Rest(_) | Self::Send(..))
    }
}

/// A request for the key of the engine. From the step on it counts as sent, so what a claim may get is released if its task leaves.
#[derive(Debug, Clone, Hash)]
pub enum KeyRequest {
    /// [`Request::Claim`].
    Claim(Box<Claim>),
    /// [`Request::Inspect`].
    Inspect,
    /// [`Request::Release`].
    Release(HolderId),
}

impl KeyRequest {
    /// As a request of a backend.
    pub fn to_backend<'a>(&'a self, key: &'a Key) -> Request<'a> {
        match self {
            Self::Claim(claim) => Request::Claim(claim, None),
            Self::Inspect => Request::Inspect(key),
            Self::Release(holder) => Request::Release(key, holder),
        }
    }
}

/// The origin of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The reply to a claim.
    Claimed,
    /// A message of the backend.
    HandedOff,
    /// Another task of this client.
    Shared,
    /// A hold that existed before, resumed by its proof.
    Resumed,
}

/// A hold that was granted to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The hold.
    pub hold: HoldId,
    /// The task's tenure of the hold.
    pub tenure: Tenure,
    /// The origin of the grant.
    pub source: Source,
}

/// Why a task did not get the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireFailure {
    /// The reason.
    pub reason: FailureReason,
    /// How long it waited.
    pub waited: Duration,
    /// The number of claims sent.
    pub attempts: u32,
}

/// See [`AcquireFailure`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// Another holder has the key; `None` if no reply has arrived.
    Busy(Option<Occupied>),
    /// The backend did not answer, or refuses.
    Unreachable(Unknown),
    /// The claim may have been executed, but does not count.
    Unconfirmed(Unknown),
    /// The key is in use in this mode, which does not fit.
    Conflict(Mode),
    /// No holder id could be generated.
    Invalid(Invalid),
}

/// News for a task that acquires a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReport {
    /// Another holder has the key.
    Busy {
        /// The number of waiters before this one; `None` if the backend has no queue.
        ahead: Option<u32>,
        /// The holder.
        occupied: Occupied,
        /// Whether the task knew it already.
        again: bool,
    },
    /// The backend did not answer, or refuses. The claim will be repeated.
    Trouble(Unknown),
    /// The task waits for other tasks of this client, which know this holder.
    Queued {
        /// The number of waiters before this one; `None` if the backend has no queue.
        ahead: Option<u32>,
        /// The holder.
        occupied: Occupied,
    },
}

/// What the driver must do after a call of the engine, in this order.
#[derive(Debug, Clone)]
pub enum Action<W, L> {
    /// Wake a task.
    Wake(W),
    /// Move the timer of a hold, or one of the engine. [`Moment::NEVER`] means no timer.
    SetTimer {
        /// The hold.
        hold: HoldId,
        /// The previous time.
        from: Moment,
        /// The new time.
        to: Moment,
    },
    /// A hold has begun.
    Began,
    /// A hold is over and no longer in the engine. Remove its timer.
    Ended(Box<Ended<L>>),
    /// Release in the background.
    Release(Box<PendingRelease>),
    /// A claim now waits at the backend.
    ClaimBegan(Mode),
    /// A claim no longer waits at the backend.
    ClaimEnded(Mode),
    /// A claim of this key is in the queue of the backend, which announces only the waiters of other clients: the leases that this
    /// client has for tasks of other modes end for it.
    Queued,
    /// A claiming task has news.
    Report(Box<ClaimReport>),
    /// A task polls without a notification.
    FallbackPoll,
    /// For so long, a task has waited for a lease that one task of this client has. If it is the same task, or waits for it, neither ends.
    WaitsForOwn {
        /// How long.
        waited: Duration,
        /// Where the program requests the key.
        place: &'static Location<'static>,
    },
    /// A granted claim came too late: its lease had expired.
    GrantedTooLate,
}

impl<W, L> Action<W, L> {
    /// Whether it is for [`super::LeaseTimers`].
    pub const fn is_of_timers(&self) -> bool {
        matches!(self, Self::Began | Self::SetTimer { .. } | Self::Ended(_))
    }
}

/// A hold that is over.
#[derive(Debug, Clone)]
pub struct Ended<L> {
    /// The hold.
    pub hold: HoldId,
    /// The driver's data for it.
    pub lease: L,
    /// The last tenure.
    pub tenure: Tenure,
    /// The tenures of the other readers that shared the hold, in the order of their beginning.
    pub others: Box<[Tenure]>,
    /// How it ended.
    pub end: End,
    /// The time of its timer.
    pub timer: Moment,
}

/// The actions of one call, in order. More than four of them need an allocation; most calls have fewer.
pub type Actions<W, L> = smallvec::SmallVec<[Action<W, L>; 4]>;
