use super::release_queue::PendingRelease;
use super::tenure::{End, HoldId, Tenure};
use crate::{Claim, HolderId, Invalid, Moment, Occupied, Unknown};
use std::time::Duration;

/// What a task that waits must do next. Each step but the last ends with a call of the engine that gives the next one.
#[derive(Debug, Clone, Hash)]
pub enum Step {
    /// Wait until [`Action::Wake`].
    Wait,
    /// Wait until [`Action::Wake`] or this moment.
    Sleep {
        /// When the timer fires.
        until: Moment,
        /// Whether a notification ends it.
        wakes: bool,
    },
    /// Send this claim: [`super::KeyEngine::claim_sent`], then [`super::KeyEngine::claim_answered`].
    Claim(Box<Claim>),
    /// Ask who has the key instead of claiming it: [`super::KeyEngine::inspected`].
    Inspect,
    /// Release what this holder may have, and wait for the answer: [`super::KeyEngine::left`].
    Leave(HolderId),
    /// The task has the key and is no longer in the engine.
    Granted(Grant),
    /// The task does not get the key and is no longer in the engine.
    Refused(Box<Refusal>),
}

/// How a grant came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// In answer to a claim.
    Claimed,
    /// By a message from the place.
    HandedOff,
    /// From another task of this client.
    Shared,
    /// By the proof of a hold that was there before.
    Resumed,
}

/// A hold that was granted to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Which hold.
    pub hold: HoldId,
    /// The task's part of it.
    pub tenure: Tenure,
    /// How it came about.
    pub source: Source,
}

/// Why a task does not get the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// How long it has waited.
    pub waited: Duration,
    /// How many claims were sent.
    pub attempts: u32,
}

/// See [`Refusal`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// Another holder has the key; `None` if no answer has come.
    Busy(Option<Occupied>),
    /// The place did not answer, or refuses.
    Unreachable(Unknown),
    /// The claim may have been carried out, but does not count.
    Unconfirmed(Unknown),
    /// There is no holder id.
    Invalid(Invalid),
}

/// What a claiming task has learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReport {
    /// Another holder has the key.
    Busy {
        /// How many wait before this one; `None` where the place has no queue.
        ahead: Option<u32>,
        /// The holder.
        occupied: Occupied,
        /// The task knew it already.
        again: bool,
    },
    /// The place did not answer, or refuses. The claim is repeated.
    Trouble(Unknown),
}

/// What the driver must do after a call of the engine, in this order.
#[derive(Debug, Clone)]
pub enum Action<W, L> {
    /// Wake a task.
    Wake(W),
    /// Move the timer of a hold. [`Moment::NEVER`] is no timer.
    SetTimer {
        /// Which hold.
        hold: HoldId,
        /// Where it was.
        from: Moment,
        /// Where it is now.
        to: Moment,
    },
    /// A hold has begun.
    Began,
    /// A hold is over and no longer in the engine. Remove its timer.
    Ended(Box<Ended<L>>),
    /// Release in the background.
    Release(Box<PendingRelease>),
    /// The lease is kept for the next task. A client that ends must call [`super::KeyEngine::release_idle`].
    KeptIdle,
    /// A claim has begun to wait at the place.
    ClaimBegan,
    /// A claim no longer waits at the place.
    ClaimEnded,
    /// A claiming task has learned something.
    Report(Box<ClaimReport>),
    /// A task asks without having been notified.
    FallbackPoll,
    /// A granted claim came too late: its lease was over.
    GrantedTooLate,
}

/// A hold that is over.
#[derive(Debug, Clone)]
pub struct Ended<L> {
    /// Which hold.
    pub hold: HoldId,
    /// What the driver has attached to it.
    pub lease: L,
    /// The last tenure.
    pub tenure: Tenure,
    /// The tenures of the other readers that shared the hold until then, in the order of their beginning.
    pub others: Box<[Tenure]>,
    /// How it ended.
    pub end: End,
    /// Where its timer was.
    pub timer: Moment,
}
