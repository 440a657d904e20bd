//! What operators see: `tracing` events always, numbers through the `metrics` facade with the feature of that name.
//!
//! | number | kind | meaning |
//! |---|---|---|
//! | `fencelock_wait_seconds` | histogram | from asking for a lock to having it |
//! | `fencelock_hold_seconds` | histogram | from having it to letting it go or losing it |
//! | `fencelock_held` | gauge | locks held now |
//! | `fencelock_waiters` | gauge | attempts that wait now |
//! | `fencelock_lost_total` | counter | holds that ended without a release |
//! | `fencelock_busy_total` | counter | waits that ran out |
//! | `fencelock_fallback_polls_total` | counter | times a waiter asked without having been woken |
//! | `fencelock_wasted_wakeups_total` | counter | times a waiter asked again and was told that the lock is still taken |
//! | `fencelock_handed_total` | counter | locks received by hand-off from the place where they live |
//! | `fencelock_shared_total` | counter | locks received from another task of the same client |
//! | `fencelock_renewal_seconds` | histogram | round trip of a renewal |
//! | `fencelock_renewal_failures_total` | counter | renewals without an answer |

use crate::hold::{Hold, Turn};
use fencelock_core::{Key, LossReason, Moment, Renew, Unknown};
use std::time::Duration;

/// One number.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "read by the metrics facade only"))]
enum Number {
    Add(&'static str),
    Level(&'static str, f64),
    Seconds(&'static str, Duration),
}

#[cfg(feature = "metrics")]
fn record(number: Number) {
    match number {
        Number::Add(name) => metrics::counter!(name).increment(1),
        Number::Level(name, change) => metrics::gauge!(name).increment(change),
        Number::Seconds(name, span) => metrics::histogram!(name).record(span.as_secs_f64()),
    }
}

#[cfg(not(feature = "metrics"))]
fn record(_: Number) {}

/// How a lock came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In answer to a claim.
    Claimed,
    /// By a message from the place.
    Handed,
    /// From another task of this client.
    Shared,
}

pub(crate) fn acquired(hold: &Hold, turn: &Turn, waited: Duration, way: Way) {
    tracing::debug!(key = %hold.key, fence = %turn.fence, ?waited, ?way, "acquired");
    record(Number::Seconds("fencelock_wait_seconds", waited));
    record(Number::Level("fencelock_held", 1.0));
    match way {
        Way::Claimed => {}
        Way::Handed => record(Number::Add("fencelock_handed_total")),
        Way::Shared => record(Number::Add("fencelock_shared_total")),
    }
}

pub(crate) fn let_go(hold: &Hold, turn: &Turn, now: Moment) {
    let held_for = now.since(turn.since);
    tracing::debug!(key = %hold.key, fence = %turn.fence, ?held_for, "let go");
    record(Number::Seconds("fencelock_hold_seconds", held_for));
    record(Number::Level("fencelock_held", -1.0));
}

pub(crate) fn lost(hold: &Hold, turn: &Turn, reason: &LossReason, now: Moment) {
    let held_for = now.since(turn.since);
    if turn.idle {
        // Nobody had it.
        return;
    }
    tracing::warn!(key = %hold.key, fence = %turn.fence, ?held_for, %reason, "lock lost");
    record(Number::Seconds("fencelock_hold_seconds", held_for));
    record(Number::Level("fencelock_held", -1.0));
    record(Number::Add("fencelock_lost_total"));
}

pub(crate) fn renewed(hold: &Hold, lag: Duration, answer: &Result<Renew, Unknown>) {
    match answer {
        Ok(answer) => {
            tracing::trace!(key = %hold.key, ?lag, ?answer, "renewal answered");
            record(Number::Seconds("fencelock_renewal_seconds", lag));
        }
        Err(cause) => {
            tracing::warn!(key = %hold.key, %cause, left = ?hold.rest(), "renewal failed, trying again");
            record(Number::Add("fencelock_renewal_failures_total"));
        }
    }
}

pub(crate) fn waiting(key: &Key) {
    tracing::debug!(%key, "waiting");
    record(Number::Level("fencelock_waiters", 1.0));
}

pub(crate) fn waited() {
    record(Number::Level("fencelock_waiters", -1.0));
}

pub(crate) fn busy(key: &Key, waited: Duration) {
    tracing::debug!(%key, ?waited, "busy");
    record(Number::Add("fencelock_busy_total"));
}

pub(crate) fn fallback_poll(key: &Key) {
    tracing::trace!(%key, "asking without having been woken");
    record(Number::Add("fencelock_fallback_polls_total"));
}

pub(crate) fn refused_again(key: &Key) {
    tracing::trace!(%key, "asked again, still taken");
    record(Number::Add("fencelock_wasted_wakeups_total"));
}
