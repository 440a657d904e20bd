//! A client that holds a key: renewals, writes, expiry and release.

use super::Mutant;
use super::client::{SimHold, Timer};
use super::coverage::Coverage;
use super::running::Kind;
use super::world::{World, holder_name};
use crate::history::{HistoryLine, Op};
use crate::rng_ext::RngExt as _;
use fencelock_core::engine::{Duty, End, Ended, Grant, HoldId, Leaving, Status};
use fencelock_core::quorum::RenewCall;
use fencelock_core::{HolderId, LossReason, Mode, Moment, Renew, Renewal, Unknown};
use std::sync::Arc;
use std::time::Duration;

/// How long a holder with the mutant [`Mutant::LateExtendRevives`] keeps renewing an expired lease.
const STUBBORN: Duration = Duration::from_secs(2);

impl World<'_> {
    /// Most work is short. Some lasts for several leases, and some longer than its lease, without renewal.
    pub(super) fn work(&mut self, client: usize, renews: bool) {
        let Some(SimHold { grant, fence, .. }) = self.clients[client].memory.hold else { return };
        let mode = grant.tenure.mode;
        let ttl_us = self.scenario.ttl.as_millis() * 1000;
        let lasts = if !renews {
            ttl_us + self.rng.upto(50_000)
        } else if self.now < self.scenario.calm_us && self.rng.chance(150_000) {
            // Ends soon after the last fault, so that other clients can acquire the key.
            self.rng.upto(4 * ttl_us).min(self.scenario.calm_us - self.now)
        } else {
            self.rng.upto(4000)
        };
        self.after(lasts, client, Timer::Done(grant.hold));
        if self.shares.downgrades(mode, self.scenario.mutant, &mut self.rng) {
            let pause = self.rng.upto(lasts);
            self.after(pause, client, Timer::Downgrade(grant.hold));
        }
        // No resource checks the tokens of permits.
        if matches!(mode, Mode::Permits { .. }) {
            return;
        }
        for _ in 0..self.rng.upto(3) {
            // Some accesses come after the end of the work.
            let pause = self.rng.upto(lasts + lasts / 8);
            self.access_after(pause, client, fence);
        }
    }

    pub(super) fn held(&self, client: usize, id: HoldId) -> Option<&SimHold> {
        self.clients[client].memory.hold.as_ref().filter(|held| held.grant.hold == id)
    }

    /// When the lease of the hold ends, by the clock of the client.
    pub(super) fn believes(&mut self, client: usize, grant: Grant) -> Option<Moment> {
        match self.engine(client, |engine, cx| engine.status(grant.hold, grant.tenure, cx)) {
            Status::Held(until) => Some(until),
            Status::PassedOn | Status::Over => None,
        }
    }

    pub(super) fn set_hold_timer(&mut self, client: usize, id: HoldId, to: Moment) {
        let memory = &mut self.clients[client].memory;
        memory.timer = to;
        if let Some(held) = &mut memory.hold {
            held.timer = to;
        }
        if to != Moment::NEVER {
            let at = self.clients[client].clock.when(to, self.now);
            self.after(at - self.now, client, Timer::Hold(id, to));
        }
    }

    /// Whether the mutant is about to revive an expired lease.
    fn revives(&self, client: usize) -> bool {
        let Some(held) = &self.clients[client].memory.hold else { return false };
        let now = self.clients[client].clock.moment(self.now);
        self.scenario.is(Mutant::LateExtendRevives) && (held.until..held.until + STUBBORN).contains(&now)
    }

    /// The time that is passed to the engine of a client.
    pub(super) fn believed_now(&self, client: usize) -> Moment {
        let now = self.clients[client].clock.moment(self.now);
        match &self.clients[client].memory.hold {
            Some(held) if self.revives(client) => Moment::from_micros(held.until.as_micros() - 1),
            _ => now,
        }
    }

    pub(super) fn hold_timer(&mut self, client: usize, id: HoldId, fired: Moment) {
        let Some(held) = self.held(client, id) else { return };
        if self.revives(client) {
            if !held.renewing {
                self.renew(client, id);
            }
            return;
        }
        let now = self.clients[client].clock.moment(self.now);
        if !held.renews && now < held.until {
            let at = self.clients[client].clock.when(held.until, self.now);
            return self.after(at - self.now, client, Timer::Hold(id, fired));
        }
        let duty = self.engine(client, |engine, cx| engine.hold_due(id, fired, Duration::ZERO, cx.now, cx));
        if matches!(duty, Duty::Renew(_)) {
            self.renew(client, id);
        }
    }

    fn renew(&mut self, client: usize, id: HoldId) {
        let Some(held) = &mut self.clients[client].memory.hold else { return };
        held.renewing = true;
        let holder = held.holder;
        let proof = HolderId::from_bytes(holder.to_be_bytes());
        let renewal = Renewal::new(self.keys[self.clients[client].key].clone(), proof, self.scenario.ttl);
        let shortest = self.settings.shortest_limit;
        let plan = self.plan(client, |health| {
            RenewCall::limit(std::slice::from_ref(&renewal), |most| health.limit(most, shortest))
        });
        let (sent, invoked) = (self.clients[client].clock.moment(self.now), self.now);
        let call = RenewCall::new(Arc::clone(&self.settings), 1, plan);
        self.call(client, Kind::Renew { call, hold: id, sent, invoked }, holder, 0);
    }

    pub(super) fn renewal_answered(
        &mut self,
        client: usize,
        id: HoldId,
        sent: Moment,
        invoked: u64,
        answer: Result<Renew, Unknown>,
    ) {
        let Some(held) = self.clients[client].memory.hold.as_mut().filter(|held| held.grant.hold == id) else {
            return;
        };
        held.renewing = false;
        let grant = held.grant;
        let renewed = matches!(answer, Ok(Renew::Renewed { .. }));
        if answer.is_err() {
            self.covered.saw(Coverage::RenewalFailed);
        }
        self.engine(client, |engine, cx| engine.renewal_answered(id, sent, answer, cx));
        let Some(until) = self.believes(client, grant) else {
            if renewed {
                self.covered.saw(Coverage::LateRenewal);
            }
            return;
        };
        if !renewed {
            if self.revives(client) {
                self.after(1000, client, Timer::Hold(id, Moment::NEVER));
            }
            return;
        }
        self.covered.saw(Coverage::Renewed);
        if let Some(held) = &mut self.clients[client].memory.hold {
            held.until = until;
        }
        let at = self.clients[client].clock.when(until, self.now);
        self.trace(|| format!("c{client} holds on until {at} us"));
        // Until the downgrade is answered, the renewed hold has no token.
        let downgrades = self.held(client, id).is_some_and(|held| held.downgrade.is_some());
        if let Some(mut line) = self.line_of_hold(client, Op::Renew, invoked).filter(|_| !downgrades) {
            line.valid_until_us = Some(at);
            self.lines.push(line);
        }
    }

    pub(super) fn line_of_hold(&self, client: usize, op: Op, invoked: u64) -> Option<HistoryLine> {
        let SimHold { holder, fence, .. } = self.clients[client].memory.hold.as_ref()?;
        Some(self.line(client, op, invoked).hold(&holder_name(*holder), Some(fence.get())))
    }

    /// Handles the end of a hold that the engine reports.
    pub(super) fn ended(&mut self, client: usize, ended: Ended<()>) {
        let End::Lost(reason) = ended.end else { return };
        if self.held(client, ended.hold).is_none() {
            return;
        }
        self.covered.saw(match reason {
            LossReason::Deleted | LossReason::TakenBy(_) => Coverage::TakenAway,
            _ => Coverage::Lapsed,
        });
        self.trace(|| format!("c{client} LOST its hold: {reason}"));
        let line = self.line_of_hold(client, Op::Lost, self.now);
        self.lines.extend(line.map(|line| line.what(reason.to_string())));
        self.clients[client].memory.hold = None;
        self.restart_task(client);
    }

    /// Releases the hold, unless it has been lost.
    pub(super) fn done(&mut self, client: usize, id: HoldId) {
        let Some(SimHold { grant, .. }) = self.held(client, id) else { return };
        let tenure = grant.tenure;
        let line = self.line_of_hold(client, Op::Release, self.now);
        if self.engine(client, |engine, cx| engine.release(id, tenure, true, cx)) == Leaving::Release {
            self.trace(|| format!("c{client} releases"));
            self.lines.extend(line);
            self.clients[client].memory.hold = None;
            self.restart_task(client);
        }
    }
}
