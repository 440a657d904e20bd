//! The whole of one wait for a lock, through all its attempts: bounds, pauses, and what was heard last.

use crate::core::Core;
use crate::error::{Error, unreachable};
use crate::identity::{anywhere_in, dice};
use crate::local::ticket::Ticket;
use crate::request::{Request, Waiting};
use fencelock_core::{Expiry, Fault, Foreign, Key, Moment, Occupant, Occupied, RetryPlan, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// One search for a lock: everything that outlives a single attempt.
pub(crate) struct Search<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) request: &'a Request,
    pub(crate) started: Moment,
    pub(crate) deadline: Moment,
    pub(crate) attempts: u32,
    pub(crate) out_of_line: u32,
    pub(crate) failing_since: Option<Moment>,
    /// Claims in a row that were not answered, or refused, through all attempts.
    failures: u32,
    pub(crate) occupied: Option<Occupied>,
    /// The last answer was that servers are in quarantine.
    quarantine: Option<Unknown>,
    /// The place in the line of this client, until the key is there.
    pub(crate) ticket: Option<Ticket<'a>>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, request: &'a Request, started: Moment, ticket: Option<Ticket<'a>>) -> Self {
        let deadline = request.wait.map_or(Moment::NEVER, |wait| started + wait);
        let failing_since = ticket.as_ref().and_then(Ticket::failing_since);
        Self {
            core,
            request,
            started,
            deadline,
            attempts: 0,
            out_of_line: 0,
            failing_since,
            failures: 0,
            occupied: None,
            quarantine: None,
            ticket,
        }
    }

    pub(crate) fn waited(&self) -> Duration {
        self.core.clock.now().since(self.started)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.core.clock.now() >= self.deadline || self.request.retry.is_some_and(|retry| self.attempts >= retry.times)
    }

    pub(crate) fn told(&mut self, ahead: Option<u32>, occupied: Occupied) {
        self.failing_since = None;
        self.failures = 0;
        self.quarantine = None;
        self.core.trouble.ends(self.core.clock.now());
        if self.occupied.is_some() {
            self.core.telemetry.refused_again(&self.request.key);
        }
        if let Some(ticket) = &self.ticket {
            ticket.heard(ahead, &occupied);
        }
        if let Some(on_wait) = &self.request.on_wait {
            on_wait(&Waiting {
                key: self.request.key.clone(),
                ahead,
                holders: occupied.holders.clone(),
                expiry: occupied.expiry,
                held_for: occupied.held_for,
                waited: self.waited(),
            });
        }
        self.occupied = Some(occupied);
    }

    /// Nobody answered. `Err` if that is reason enough to give up: it cannot get better, it was the only try, or it
    /// has lasted as long as a lease would.
    pub(crate) fn unanswered(&mut self, mut cause: Unknown) -> Result<(), Error> {
        let now = self.core.clock.now();
        self.failures = self.failures.saturating_add(1);
        if cause.is_quarantine() {
            // It passes by itself, as a lease does, so it is waited for as long.
            self.failing_since = None;
            self.quarantine = Some(cause.clone());
        } else if let Some(told) = self.quarantine.take().filter(|_| self.is_over() && !cause.is_permanent()) {
            // The wait ended before the last word; what came before it says more.
            cause = told;
        }
        let since = *self.failing_since.get_or_insert(now);
        if let Some(ticket) = &self.ticket {
            ticket.failing(Some(since).filter(|_| !cause.is_quarantine()));
        }
        if self.is_over() && self.occupied.is_some() && !cause.is_permanent() && !cause.is_quarantine() {
            // Who has it was told before.
            return Err(self.busy());
        }
        if cause.is_permanent() || now.since(since) >= self.request.ttl.get() || self.is_over() {
            return Err(unreachable(Some(&self.request.key), cause, self.waited(), self.attempts));
        }
        self.core.trouble.begins(&cause, now);
        if let Some(on_trouble) = &self.request.on_trouble {
            on_trouble(&cause);
        }
        tracing::debug!(key = %self.request.key, %cause, "no answer, trying again");
        Ok(())
    }

    pub(crate) fn busy(&self) -> Error {
        busy(&self.request.key, self.occupied.clone(), self.waited(), self.attempts)
    }

    pub(crate) fn pause(&self, asked: u32) -> Duration {
        let (failing, fresh) = (self.failing_since.is_some(), self.core.backend.capabilities().fresh_holders);
        let plan = match self.request.retry {
            Some(retry) => RetryPlan::every(retry.pause),
            None if failing || !self.core.backend.capabilities().queues => RetryPlan::BLIND,
            None => RetryPlan::WOKEN,
        };
        // What was heard of the holder before the place failed says nothing about when it is well again.
        let known = self.occupied.as_ref().filter(|_| !failing && self.request.retry.is_none());
        let expiry = known.map_or(Expiry::Never, |occupied| occupied.expiry);
        let asked = if failing && !fresh { self.failures.saturating_sub(1) } else { asked };
        let pause = plan.pause(asked, expiry, dice());
        let pause = if fresh && self.request.retry.is_none() { anywhere_in(pause, dice()) } else { pause };
        pause.min(self.deadline.since(self.core.clock.now()))
    }
}

/// A wait that ran out.
pub(crate) fn busy(key: &Key, occupied: Option<Occupied>, waited: Duration, attempts: u32) -> Error {
    // Before the first answer nothing is known about who has it; the deadline came first.
    let occupied =
        occupied.unwrap_or_else(|| Occupied::new(Occupant::Foreign(Foreign::other("no answer yet")), Expiry::Never));
    Error::Busy { key: key.clone(), holders: occupied.holders, expires_in: occupied.expiry, waited, attempts }
}

/// The wait was over before an answer came.
pub(crate) fn out_of_time(core: &Core) -> Unknown {
    Unknown::new(core.backend.name(), Fault::Timeout, "the wait was over before an answer came")
}

pub(crate) fn too_late(core: &Core) -> Unknown {
    Unknown::new(
        core.backend.name(),
        Fault::Timeout,
        "the lock was granted, but the lease was over when the answer came",
    )
}
