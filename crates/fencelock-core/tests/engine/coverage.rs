/// Events that a scenario is about. A run that never came across them has checked nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    /// A wait was given up while its claim was on its way.
    CancelledBeforeClaim,
    /// A wait was given up while the answer was on its way.
    CancelledBeforeAnswer,
    /// A wait was given up with the hand-off on its way.
    CancelledBeforeHandOff,
    /// A release began while a renewal was on its way.
    ReleasedDuringRenewal,
    /// The answer to a renewal came after the release.
    RenewalAnsweredAfterRelease,
    /// The answer to a renewal came after the loss.
    RenewalAnsweredAfterLoss,
    /// A lease ran out.
    Expired,
    /// A loss was reported that another program caused.
    Deleted,
    /// A release was answered with a loss.
    AlreadyLost,
    /// A release was answered with a release.
    Released,
    /// A user that had not claimed itself got the lock under the holder of one that had given up.
    Inherited,
    /// A lease went from user to user of one client.
    Shared,
    /// A user began on a hand-off message.
    HandedOff,
    /// A hand-off message arrived after an answer with a later token.
    StaleHandOff,
    /// A key was handed to a claim that was given up, and is released at once.
    HandedToNobody,
    /// A release was sent a second time, for a claim that may arrive later.
    SecondRelease,
    /// A grant came after its lease was over.
    GrantedTooLate,
    /// A lease was kept for the next user.
    KeptIdle,
    /// An engine without a lease was kept for the next user.
    KeptHistory,
    /// A user got a lease that was kept for it.
    TakenIdle,
    /// An idle lease was released, because no task took it in time.
    IdleTimeout,
    /// A client with an idle lease learned that another client waits.
    Announced,
    /// A lease was released though another user of its client waits.
    Yielded,
    /// The longest hold was over.
    MaxHold,
    /// A detached hold was resumed.
    Resumed,
    /// A user got the answer that the key is busy.
    Refused,
    /// A claim was sent under another holder than the one before it.
    FreshHolder,
    /// A client was continued after its lease had run out.
    ContinuedTooLate,
    /// A user asked because events may have been missed.
    AskedAfterReset,
    /// A request or a message arrived twice.
    Duplicated,
    /// A request arrived after its sender had given it up.
    Straggler,
    /// A user was granted the key together with another holder.
    Together,
    /// Several users were notified of the loss of the hold that they shared.
    LostTogether,
    /// A writer became a reader.
    Downgraded,
    /// A downgrade was sent again.
    DowngradedAgain,
    /// The wait for the reply to a downgrade was given up.
    DowngradeGivenUp,
    /// A writer lost its hold while it waited for the reply to its downgrade.
    DowngradeLost,
    /// A user got a lease from another one of its client while its own claim waited at the server.
    SharedWhileClaiming,
    /// A claim of one user was granted, and another user got the lease.
    GrantedToAnother,
    /// A claim was not sent.
    NotSent,
    /// A user did not run for too long, and entered again.
    TurnLost,
    /// A wait was ended because its client is closed.
    Closed,
    /// A client was closed while it kept an idle lease.
    ClosedIdle,
    /// A client was closed, and came to rest.
    Drained,
    /// The connection of a client with a lease or a waiting claim was reset.
    Reconnected,
    /// A release in the background was refused, and given up,
    GivenUp,
    /// or repeated.
    RefusedRelease,
    /// A hold that was to be resumed had ended.
    NotResumed,
}

/// A set of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CoverageSet(u64);

impl CoverageSet {
    pub(crate) fn insert(&mut self, one: Coverage) {
        self.0 |= 1 << one as u64;
    }

    pub(crate) fn contains(self, one: Coverage) -> bool {
        self.0 & 1 << one as u64 != 0
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
