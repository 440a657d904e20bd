//! A writer that becomes a reader. It counts as a reader from its first request on, because the node may execute that at any time.

use super::Mutant;
use super::client::{PendingDowngrade, Timer};
use super::coverage::Coverage;
use super::message::Ask;
use super::world::World;
use crate::history::{Line, Op};
use fencelock_core::engine::{Downgrading, Grant, HoldId};
use fencelock_core::{Downgrade, Fault, RenewalPlan, Unknown};

impl World<'_> {
    /// The user of the hold wants to read from now on.
    pub(super) fn downgrade(&mut self, client: usize, id: HoldId) {
        let Some(held) = self.held(client, id).filter(|held| held.downgrade.is_none()) else { return };
        let tenure = held.grant.tenure;
        let yields = self.line_of_hold(client, Op::Yield, self.now);
        let Some((tenure, _)) = self.engine(client, |engine, cx| engine.downgrade(id, tenure, cx)) else { return };
        self.tell(|| format!("c{client} downgrades"));
        if !self.scenario.is(Mutant::DowngradesWithReply) {
            self.lines.extend(yields);
        }
        let now = self.clients[client].clock.moment(self.now);
        if let Some(held) = &mut self.clients[client].memory.hold {
            held.grant.tenure = tenure;
            held.downgrade = Some(PendingDowngrade { request: 0, sent: now, invoked: self.now });
        }
        self.send_downgrade(client, id);
    }

    pub(super) fn send_downgrade(&mut self, client: usize, id: HoldId) {
        self.numbers += 1;
        let (request, now) = (self.numbers, self.clients[client].clock.moment(self.now));
        let limit = RenewalPlan::answer_limit(self.scenario.ttl.get());
        let Some(held) = self.clients[client].memory.hold.as_mut().filter(|held| held.grant.hold == id) else { return };
        let Some(pending) = &mut held.downgrade else { return };
        (pending.request, pending.sent) = (request, now);
        let holder = held.holder;
        let asked = self.request(client, request, holder, Ask::Downgrade);
        self.send(0, asked);
        self.after(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX / 2), client, Timer::DowngradeLimit(request));
    }

    pub(super) fn downgrade_late(&mut self, client: usize, request: u64) {
        let late = Unknown::new("n0", Fault::Timeout, "");
        self.downgrade_answered(client, request, Err(late));
    }

    pub(super) fn downgrade_answered(&mut self, client: usize, request: u64, answer: Result<Downgrade, Unknown>) {
        let Some(held) = &self.clients[client].memory.hold else { return };
        let Some(pending) = held.downgrade.filter(|pending| pending.request == request) else { return };
        let (id, tenure) = (held.grant.hold, held.grant.tenure);
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
            // The engine has told of the loss.
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
        self.tell(|| format!("c{client} READS with {fence}"));
        let late = self.scenario.is(Mutant::DowngradesWithReply);
        let invoked = if late { self.now } else { pending.invoked };
        let line: Option<Line> = self.line_of_hold(client, Op::Downgrade, invoked);
        if let Some(mut line) = line {
            line.valid_until_us = Some(self.clients[client].clock.when(until, self.now));
            line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
            self.lines.push(line.mode(grant.tenure.mode));
        }
        self.access_after(0, client, fence);
    }
}
