//! Servers, drivers and engines that are wrong in one place. Each must be found, or the schedules check nothing.
//!
//! An engine is made wrong from outside: its calls are given something else, or its answers are not carried out.

use crate::explore::{self, Failure};
use crate::scenario::{NO_BUDGET, Scenario};
use crate::scenarios;
use fencelock_core::{Acquire, HandOffBounds};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The server says "released" and does nothing.
    IgnoresReleases,
    /// It releases any holder's lock, as a plain delete does.
    ReleasesAnybody,
    /// It says "renewed" and does nothing.
    FalseRenewals,
    /// It says "renewed" to a holder that lost the key.
    RenewsTheLost,
    /// It sends a waiter in the queue a hand-off that never was.
    InventsHandOff,
    /// It grants what another has.
    GrantsTwice,
    /// It hands off without a check whether the lock is free.
    HandsOffWhileHeld,
    /// A waiter that has got its message is passed over.
    SkipsReachedWaiter,
    /// A cancelled attempt releases nothing.
    GivesNothingBack,
    /// A release is not sent a second time for a claim that may arrive after it.
    NoSecondRelease,
    /// A release does not end the hold in the engine.
    ReleaseUnmarked,
    /// A loss is reported of a hold that has ended otherwise.
    LossOverwrites,
    /// A lease counts from the answer.
    LeaseFromAnswer,
    /// What was handed to a claim that was given up is not handed on at once.
    KeepsWhatNobodyWants,
    /// A hand-off message is accepted whatever its token.
    AcceptsOldTokens,
    /// A hand-off lasts as long as a lease.
    MessageIsOwnership,
    /// A hand-off counts from when its message was received.
    CountsFromReceipt,
    /// A hand-off counts from the last claim that was sent, answered or not.
    CountsFromLastSent,
    /// The server answers "queued" to a claim that has lost its position.
    QueuesStrangers,
    /// It does not report a waiter to a client with an idle lease.
    AnnouncesNothing,
    /// It does not count the permits in use.
    CountsNoPermits,
    /// Only one of the tasks that read together is notified of the loss of their hold.
    TellsOneReader,
    /// A writer that downgrades writes until the reply.
    WritesUntilTheReply,
    /// The first reader that is done releases the hold of all; so does a task that passes its permits on.
    ReleasesForAll,
    /// Every task comes first in the queue of its client.
    EntersFirst,
    /// A task that does not run is never passed over. The scenario says so.
    KeepsItsTurn,
    /// A client says of a claim that it was not sent, and it is.
    DeniesItsClaim,
    /// A future that has lost its turn is polled once more.
    SendsAfterTurnLost,
    /// A client that is closed wakes no task, and keeps its idle lease.
    ClosesQuietly,
    /// It takes new requests.
    TakesWhenClosed,
    /// A client does not notice that its connection was reset.
    IgnoresReset,
    /// It gives up the release of a hold that the server has refused once.
    GivesUpHolds,
    /// It resumes a hold that has ended.
    ResumesTheLost,
    /// A task that has lost its hold to another one, which has given their holder id away, releases it.
    ReleasesTheGivenAway,
}

impl Mutant {
    /// The answer to a claim, as the engine receives it.
    pub(crate) fn of_claim(self, answer: Acquire) -> Acquire {
        match (self, answer) {
            (Self::AcceptsOldTokens, Acquire::Queued { ahead, occupied, hand_off }) => {
                Acquire::Queued { ahead, occupied, hand_off: HandOffBounds::new(0, hand_off.server_micros) }
            }
            (_, answer) => answer,
        }
    }
}

/// Searches a scenario with the mutant, nearest states first, and checks after how many acts it is found. After them everything
/// arrives in order.
#[track_caller]
pub(crate) fn found(mutant: Mutant, scenario: &Scenario, acts: usize) -> String {
    let failure = explore::search(scenario, Some(mutant), 60_000).err();
    let Failure { choices, why, trace } =
        failure.unwrap_or_else(|| panic!("{mutant:?}: {} finds nothing", scenario.name));
    println!("{mutant:?} by {}, {} acts: {why}", scenario.name, choices.len() - 1);
    assert_eq!(choices.len() - 1, acts, "{mutant:?}: the shortest way is not the known one: {trace:#?}");
    why
}

#[test]
fn each_mutant_of_an_exclusive_lock_is_found() {
    found(Mutant::IgnoresReleases, &scenarios::ACQUIRE_DROP, 0);
    // Without a successor, who would go on instead of a release.
    let scenario = Scenario { users: &scenarios::CANCEL_HAND_OFF.users[..2], ..scenarios::CANCEL_HAND_OFF };
    found(Mutant::ReleasesAnybody, &scenario, 3);
    found(Mutant::GivesNothingBack, &scenarios::ACQUIRE_DROP, 2);
    found(Mutant::NoSecondRelease, &scenarios::ACQUIRE_DROP, 4);
    found(Mutant::ReleaseUnmarked, &scenarios::RENEW_RELEASE, 2);
    found(Mutant::LossOverwrites, &scenarios::RENEW_RELEASE, 3);
    found(Mutant::LeaseFromAnswer, &scenarios::RENEW_LAPSE, 2);
    // Of a free key: what is handed to a holder that does not wait is released.
    let scenario = Scenario { users: &scenarios::NOT_SENT.users[1..], ..scenarios::NOT_SENT };
    found(Mutant::DeniesItsClaim, &scenario, 3);
    for (mutant, scenario, acts, why) in [
        (Mutant::AnnouncesNothing, &scenarios::STICKY, 4, "does not learn"),
        (Mutant::FalseRenewals, &scenarios::RENEW_LAPSE, 6, "not its own"),
        (Mutant::RenewsTheLost, &scenarios::FOREIGN_DELETE, 1, "are notified"),
        (Mutant::InventsHandOff, &scenarios::CANCEL_HAND_OFF, 0, "not its own"),
        (Mutant::GrantsTwice, &scenarios::CANCEL_HAND_OFF, 0, "not its own"),
        // Not found by the explorer that ran the driver of production: the second release came a second later, and no message
        // was old enough.
        (Mutant::KeepsWhatNobodyWants, &scenarios::CANCEL_HAND_OFF, 3, "not handed on"),
        (Mutant::AcceptsOldTokens, &scenarios::STALE_HAND_OFF, 9, "not its own"),
    ] {
        assert!(found(mutant, scenario, acts).contains(why), "{mutant:?}");
    }
}

#[test]
fn nothing_is_found_without_a_mutant_where_nothing_may_happen() {
    let scenario = Scenario { budget: NO_BUDGET, covers: &[], ..scenarios::ACQUIRE_DROP };
    assert!(explore::search(&scenario, None, 60_000).is_ok());
}
