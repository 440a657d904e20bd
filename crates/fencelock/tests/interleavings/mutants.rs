//! Servers that lie. Each must be found, or the schedules see nothing.

use crate::script::Script;
use crate::{explore, scenarios};
use fencelock::{HolderId, Holding, Unknown};
use fencelock_core::{Acquire, FencingToken, Renew, Renewal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Says "released" and does nothing.
    IgnoresReleases,
    /// Releases whoever has the key, as a plain delete does.
    ReleasesAnybody,
    /// Says "renewed" and does nothing.
    FalseRenewals,
    /// Says "renewed" to a holder that lost the key.
    RenewsTheLost,
    /// Sends a waiter in line a hand-off that never was.
    StaleHandOff,
    /// Grants what another has.
    GrantsTwice,
}

impl Mutant {
    pub(crate) fn of_claim(mutant: Option<Self>, answer: Result<Acquire, Unknown>) -> Result<Acquire, Unknown> {
        match (mutant, answer) {
            (Some(Self::GrantsTwice), Ok(Acquire::Queued { last_fence, .. })) => {
                Ok(Acquire::Granted { tokens: FencingToken::new(last_fence + 1).unwrap().into() })
            }
            (_, answer) => answer,
        }
    }

    pub(crate) fn of_renewals(
        mutant: Option<Self>,
        renewals: &[Renewal],
        renew: impl FnOnce() -> Vec<Result<Renew, Unknown>>,
    ) -> Vec<Result<Renew, Unknown>> {
        let lie = || renewals.iter().map(|_| Ok(Renew::Renewed { waiters: 0 })).collect();
        match mutant {
            Some(Self::FalseRenewals) => lie(),
            Some(Self::RenewsTheLost) => {
                renew();
                lie()
            }
            _ => renew(),
        }
    }

    /// In whose name a release is carried out, if it is.
    pub(crate) fn carries_out_release(
        mutant: Option<Self>,
        seen: Option<Holding>,
        holder: HolderId,
    ) -> Option<HolderId> {
        match mutant {
            Some(Self::IgnoresReleases) => None,
            Some(Self::ReleasesAnybody) => seen.and_then(|seen| seen.first().holder_id()).or(Some(holder)),
            _ => Some(holder),
        }
    }
}

/// Runs a scenario over a server that lies until it is found out.
fn found(mutant: Mutant, script: &Script) -> String {
    let all = explore::all(script, Some(mutant), 3_000).map(|_| ());
    let found = all.and_then(|()| explore::some(script, Some(mutant), 3_000).map(|_| ()));
    let why = found.expect_err("nobody noticed");
    let what = why.lines().next().unwrap_or_default().to_owned();
    println!("{mutant:?}: {what}");
    what
}

#[test]
fn a_release_that_is_not_carried_out_is_found() {
    found(Mutant::IgnoresReleases, &scenarios::ACQUIRE_DROP);
}

#[test]
fn a_release_of_what_another_holds_is_found() {
    // Without an heir, who would go on instead of a release.
    let script = Script { parts: &scenarios::CANCEL_HAND_OFF.parts[..2], ..scenarios::CANCEL_HAND_OFF };
    assert!(found(Mutant::ReleasesAnybody, &script).contains("not its own"));
}

#[test]
fn a_renewal_that_was_none_is_found() {
    let script = Script { observed: true, ..scenarios::RENEW_LAPSE };
    assert!(found(Mutant::FalseRenewals, &script).contains("not its own"));
}

#[test]
fn a_loss_that_is_kept_quiet_is_found() {
    assert!(found(Mutant::RenewsTheLost, &scenarios::FOREIGN_DELETE).contains("hears of it"));
}

#[test]
fn a_hand_off_that_never_was_is_found() {
    found(Mutant::StaleHandOff, &scenarios::CANCEL_HAND_OFF);
}

#[test]
fn a_grant_of_what_another_holds_is_found() {
    found(Mutant::GrantsTwice, &scenarios::CANCEL_HAND_OFF);
}
