//! Observability: `tracing` events always, metrics through the [`metrics`](https://docs.rs/metrics) facade with the
//! feature of that name.
//!
//! | number | kind | unit | labels | meaning |
//! |---|---|---|---|---|
//! | `fencelock_acquisitions_total` | counter | count | `backend`, `mode`, `outcome` | attempts to acquire a lock, by outcome |
//! | `fencelock_wait_seconds` | histogram | seconds | `backend`, `mode` | time from the request to the grant |
//! | `fencelock_hold_seconds` | histogram | seconds | `backend`, `mode` | time from the grant to the release or the loss |
//! | `fencelock_held` | gauge | count | `backend`, `mode` | locks that are held |
//! | `fencelock_waiters` | gauge | count | `backend`, `mode` | claims that wait at the backend; tasks that share a lease count as one |
//! | `fencelock_lost_total` | counter | count | `backend`, `mode`, `reason` | locks that were lost |
//! | `fencelock_renewal_seconds` | histogram | seconds | `backend` | round trip of a renewal that was answered |
//! | `fencelock_renewal_failures_total` | counter | count | `backend`, `reason` | renewals that were not confirmed |
//! | `fencelock_fallback_polls_total` | counter | count | `backend` | polls by a waiter that was not woken |
//! | `fencelock_wasted_wakeups_total` | counter | count | `backend` | wake-ups after which the lock was still held by another client |
//!
//! - `backend`: [`Client::name`](crate::Client::name), without secrets.
//! - `outcome`: `claimed` in answer to a claim, `handed` by a message from the backend, `shared` by another task of the client,
//!   `resumed`; or `busy`, `unreachable`, `not_replicated`, `refused` (configuration), `closed`, `cancelled` (the future was
//!   dropped).
//!   [`Client::lock_all`](crate::Client::lock_all) counts each claim, and each grant of a key that it tried.
//! - `mode`: `exclusive`, `shared`, `permits`. A hold of several permits counts once. A slot counts as `exclusive`.
//! - `reason` of a loss: `expired`, `deleted`, `taken`, `max_hold`, `other`.
//! - `reason` of a renewal: `timeout`, `unreachable`, `denied`, `read_only`, `loading`, `full`, `busy`, `not_replicated`,
//!   `quarantined`, `misconfigured`, `other`; on a quorum that of the first node that failed.
//!
//! No label contains a key or a holder, so the number of series per backend is fixed. All series
//! exist with 0 as soon as a client starts: install the recorder before that. Clients of one backend are summed.

mod numbers;

use crate::error::Error;
use fencelock_core::engine::{Source, Tenure};
use fencelock_core::{Fault, Key, LossReason, Mode, Moment, Renew, Span, Unknown};
use numbers::{FAULTS, LOSSES, Number, Numbers, OUTCOMES};
use std::time::Duration;

/// The telemetry of one backend.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    numbers: Numbers,
}

impl Telemetry {
    pub(crate) fn of(backend: &str) -> Self {
        Self { numbers: Numbers::of(backend) }
    }

    /// An attempt to acquire a lock starts.
    pub(crate) fn attempt(&self, mode: Mode) -> Attempt<'_> {
        Attempt { telemetry: self, mode, outcome: Some("cancelled") }
    }

    pub(crate) fn acquired(&self, key: &Key, tenure: &Tenure, waited: Duration, source: Source) {
        tracing::debug!(%key, fence = %tenure.fence, ?waited, ?source, "acquired");
        self.outcome(tenure.mode, OUTCOMES[source as usize]);
        self.numbers.took(Number::Wait, index_of(tenure.mode), waited);
        self.numbers.change(Number::Held, index_of(tenure.mode), 1.0);
    }

    pub(crate) fn released(&self, key: &Key, tenure: &Tenure, now: Moment) {
        let held_for = now.since(tenure.since);
        tracing::debug!(%key, fence = %tenure.fence, ?held_for, "released");
        self.ended(tenure, held_for);
    }

    /// An exclusive lock became a shared one.
    pub(crate) fn downgraded(&self, key: &Key, before: &Tenure, after: &Tenure, now: Moment) {
        let held_for = now.since(before.since);
        tracing::debug!(%key, fence = %after.fence, ?held_for, "downgraded");
        self.ended(before, held_for);
        self.numbers.change(Number::Held, index_of(after.mode), 1.0);
    }

    pub(crate) fn lost(&self, key: &Key, tenure: &Tenure, reason: &LossReason, now: Moment) {
        let held_for = now.since(tenure.since);
        if tenure.idle {
            // The key was free.
            return;
        }
        tracing::warn!(%key, fence = %tenure.fence, ?held_for, %reason, "lock lost");
        self.ended(tenure, held_for);
        self.numbers.add(Number::Lost, index_of(tenure.mode) * LOSSES.len() + index(&LOSSES, loss(reason)));
    }

    /// `is_news` if a failure is not that of the renewal before.
    pub(crate) fn renewed(
        &self,
        key: &Key,
        left: Option<Duration>,
        lag: Duration,
        answer: &Result<Renew, Unknown>,
        is_news: bool,
    ) {
        match answer {
            Ok(answer) => {
                tracing::trace!(%key, ?lag, ?answer, "renewal answered");
                self.numbers.took(Number::Renewal, 0, lag);
            }
            Err(cause) => {
                let left = left.map(|left| tracing::field::display(Span(left)));
                if is_news {
                    tracing::warn!(%key, %cause, left, "renewal failed, trying again");
                } else {
                    tracing::debug!(%key, %cause, left, "renewal failed again");
                }
                self.numbers.add(Number::RenewalFailures, index(&FAULTS, fault(cause)));
            }
        }
    }

    pub(crate) fn waiting(&self, key: &Key, mode: Mode) {
        tracing::debug!(%key, "waiting");
        self.numbers.change(Number::Waiters, index_of(mode), 1.0);
    }

    pub(crate) fn waited(&self, mode: Mode) {
        self.numbers.change(Number::Waiters, index_of(mode), -1.0);
    }

    pub(crate) fn fallback_poll(&self, key: &Key) {
        tracing::trace!(%key, "polling without a wake-up");
        self.numbers.add(Number::FallbackPolls, 0);
    }

    pub(crate) fn refused_again(&self, key: &Key) {
        tracing::trace!(%key, "polled again, still taken");
        self.numbers.add(Number::WastedWakeups, 0);
    }

    fn ended(&self, tenure: &Tenure, held_for: Duration) {
        self.numbers.took(Number::Hold, index_of(tenure.mode), held_for);
        self.numbers.change(Number::Held, index_of(tenure.mode), -1.0);
    }

    fn outcome(&self, mode: Mode, outcome: &str) {
        self.numbers.add(Number::Acquisitions, index_of(mode) * OUTCOMES.len() + index(&OUTCOMES, outcome));
    }
}

/// An attempt to acquire a lock, whose outcome is counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    telemetry: &'a Telemetry,
    mode: Mode,
    outcome: Option<&'static str>,
}

impl Attempt<'_> {
    pub(crate) fn ended<T>(mut self, with: &Result<T, Error>) {
        // The source of a grant is reported by [`Telemetry::acquired`].
        self.outcome = with.as_ref().err().map(|error| match error {
            Error::Busy { key, waited, .. } => {
                tracing::debug!(%key, ?waited, "busy");
                "busy"
            }
            Error::Unreachable { .. } => "unreachable",
            Error::NotReplicated { .. } => "not_replicated",
            Error::Closed { .. } => "closed",
            Error::ModeUnsupported { .. } | Error::ModeConflict { .. } | Error::Config(_) | Error::Lost { .. } => {
                "refused"
            }
        });
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.telemetry.outcome(self.mode, outcome);
        }
    }
}

/// The index of the mode in [`MODES`].
const fn index_of(mode: Mode) -> usize {
    match mode {
        Mode::Shared => 1,
        Mode::Permits { .. } => 2,
        _ => 0,
    }
}

const fn loss(reason: &LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::Deleted => "deleted",
        LossReason::TakenBy(_) => "taken",
        LossReason::MaxHold => "max_hold",
        _ => "other",
    }
}

fn fault(cause: &Unknown) -> &'static str {
    match cause.nodes().first().map(|node| node.fault) {
        Some(Fault::Timeout) => "timeout",
        Some(Fault::Unreachable) => "unreachable",
        Some(Fault::Denied | Fault::Unopened) => "denied",
        Some(Fault::ReadOnly) => "read_only",
        Some(Fault::Loading) => "loading",
        Some(Fault::Full) => "full",
        Some(Fault::Busy) => "busy",
        Some(Fault::NotReplicated { .. }) => "not_replicated",
        Some(Fault::Quarantined) => "quarantined",
        Some(Fault::Misconfigured) => "misconfigured",
        _ => "other",
    }
}

/// The index of a value among the values of a label; the last index if it is unknown.
fn index(values: &[&str], value: &str) -> usize {
    values.iter().position(|known| *known == value).unwrap_or(values.len() - 1)
}
