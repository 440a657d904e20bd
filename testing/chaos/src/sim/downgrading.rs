//! A writer that downgrades. It counts as a reader from its first request on, because a node may execute that at any time.

use super::Mutant;
use super::client::{PendingDowngrade, Timer};
use super::coverage::Coverage;
use super::running::Kind;
use super::world::World;
use crate::history::{HistoryLine, Op};
use fencelock_core::engine::{Downgrading, Grant, HoldId};
use fencelock_core::quorum::DowngradeCall;
use fencelock_core::{Downgrade, Fault, Moment, RenewalPlan, Unknown};
use std::sync::Arc;

impl World<'_> {
    /// The user of the hold requests a downgrade.
    pub(super) fn downgrade(&mut self, client: usize, id: HoldId) {
        let Some(held) = self.held(client, id).filter(|held| held.downgrade.is_none()) else { return };
        let tenure = held.grant.tenure;
        let yields = self.line_of_hold(client, Op::Yield, self.now);
        let Some((tenure, _)) = self.engine(client, |engine, cx| engine.downgrade(id, tenure, cx)) else { return };
        self.trace(|| format!("c{client} downgrades"));
        if !self.scenario.is(Mutant::DowngradesWithReply) {
            self.lines.extend(yields);
        }
        let now = self.clients[client].clock.moment(self.now);
        if let Some(held) = &mut self.clients[client].memory.hold {
            held.grant.tenure = tenure;
            held.downgrade = Some(PendingDowngrade { sent: now, in_flight: false, invoked: self.now });
        }
        self.send_downgrade(client, id);
    }

    pub(super) fn send_downgrade(&mut self, client: usize, id: HoldId) {
        let now = self.clients[client].clock.moment(self.now);
        let (ttl, shortest) = (self.scenario.ttl.get(), self.settings.shortest_limit);
        let Some(held) = self.clients[client].memory.hold.as_mut().filter(|held| held.grant.hold == id) else { return };
        let Some(pending) = &mut held.downgrade else { return };
        (pending.sent, pending.in_flight) = (now, true);
        let holder = held.holder;
        let plan = self.plan(client, |health| health.limit(ttl / 10, shortest));
        let call = DowngradeCall::new(Arc::clone(&self.settings), plan, now);
        let limit = u64::try_from(RenewalPlan::answer_limit(ttl).as_micros()).unwrap_or(u64::MAX / 2);
        self.after(limit, client, Timer::DowngradeLimit(id, now));
        let proposal = self.proposal(client);
        self.call(client, Kind::Downgrade { call, hold: id }, holder, proposal);
    }

    pub(super) fn downgrade_late(&mut self, client: usize, id: HoldId, sent: Moment) {
        let pending = self.held(client, id).and_then(|held| held.downgrade);
        if pending.is_some_and(|pending| pending.sent == sent && pending.in_flight) {
            self.drop_downgrade(client, id);
            self.downgrade_answered(client, id, Err(Unknown::new("", Fault::Timeout, "")));
        }
    }

    pub(super) fn downgrade_answered(&mut self, client: usize, id: HoldId, answer: Result<Downgrade, Unknown>) {
        let Some(held) = self.clients[client].memory.hold.as_mut().filter(|held| held.grant.hold == id) else { return };
        let Some(downgrade) = held.downgrade.as_mut().filter(|downgrade| downgrade.in_flight) else { return };
        downgrade.in_flight = false;
        let pending = *downgrade;
        let tenure = held.grant.tenure;
        let step = self.engine(client, |engine, cx| engine.downgrade_answered(id, tenure, pending.sent, answer, cx));
        match step {
            Downgrading::Done(tenure) => {
                self.covered.saw(Coverage::Downgraded);
                self.downgraded(client, Grant { tenure, ..self.grant_of(client) }, pending);
            }
            Downgrading::Again(at) => {
                self.covered.saw(Coverage::DowngradedAgain);
                let at = self.clients[client].clock.when(at, self.now);
                self.after(at.max(self.now + 1) - self.now, client, Timer::DowngradeAgain(id));
            }
            // The engine has reported the loss.
            Downgrading::Over | Downgrading::Refused(_) => self.covered.saw(Coverage::DowngradeLost),
        }
    }

    fn grant_of(&self, client: usize) -> Grant {
        let held = self.clients[client].memory.hold.as_ref();
        held.unwrap_or_else(|| unreachable!("it was just answered")).grant
    }

    fn downgraded(&mut self, client: usize, grant: Grant, pending: PendingDowngrade) {
        let fence = grant.tenure.fence;
        if self.scenario.is(Mutant::DowngradesWithReply) {
            let yields = self.line_of_hold(client, Op::Yield, self.now);
            self.lines.extend(yields);
        }
        let Some(until) = self.believes(client, grant) else { return };
        if let Some(held) = &mut self.clients[client].memory.hold {
            (held.grant, held.fence, held.until, held.downgrade) = (grant, fence, until, None);
        }
        self.trace(|| format!("c{client} READS with {fence}"));
        let late = self.scenario.is(Mutant::DowngradesWithReply);
        let invoked = if late { self.now } else { pending.invoked };
        let line: Option<HistoryLine> = self.line_of_hold(client, Op::Downgrade, invoked);
        if let Some(mut line) = line {
            line.valid_until_us = Some(self.clients[client].clock.when(until, self.now));
            line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
            self.lines.push(line.mode(grant.tenure.mode));
        }
        self.access_after(0, client, fence);
    }
}
