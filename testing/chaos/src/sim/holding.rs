//! A client that holds a key: renewals, writes, the lapse, and the release.

use super::Mutant;
use super::client::{Client, Hold, Phase, Renewing, Timer};
use super::message::Ask;
use super::sight::Sight;
use super::world::{World, holder_name};
use crate::history::{Line, Op};
use crate::luck::Luck as _;
use fencelock_core::{Due, FencingToken, Lease, Moment, Outcome, RenewalPlan, Standing, Tally, jitter};
use std::time::Duration;

/// How long a holder that does not accept its lapse goes on renewing.
const STUBBORN: Duration = Duration::from_secs(2);

impl World<'_> {
    /// Most work is short. Some lasts for several leases, and some for longer than its lease, which it does not renew.
    pub(super) fn hold(&mut self, client: usize, sent: Moment, lease: Lease, fence: FencingToken) {
        let ttl = self.scenario.ttl;
        let ttl_us = ttl.as_millis() * 1000;
        let overruns = self.rng.chance(self.scenario.overrun_ppm);
        let lasts = if overruns {
            ttl_us + self.rng.upto(50_000)
        } else if self.now < self.scenario.calm_us && self.rng.chance(150_000) {
            // Not far into the time of peace, in which others must get their turn.
            self.rng.upto(4 * ttl_us).min(self.scenario.calm_us - self.now)
        } else {
            self.rng.upto(4000)
        };
        let first = if overruns { Moment::NEVER } else { sent + jitter(ttl.get() / 3, self.rng.u64(..)) };
        let plan = RenewalPlan::new(lease, ttl, self.scenario.drift(), first, Moment::NEVER);
        let revives_until = lease.until() + STUBBORN;
        self.clients[client].phase = Phase::Holding(Hold { plan, fence, renewing: None, revives_until });
        self.after(lasts, client, Timer::Done);
        for _ in 0..self.rng.upto(3) {
            // Sometimes after the end.
            let pause = self.rng.upto(lasts + lasts / 8);
            self.write_after(pause, client, fence);
        }
        self.watch(client);
    }

    fn holding(&mut self, client: usize) -> Option<(&mut Hold, Moment)> {
        let now = self.clients[client].clock.moment(self.now);
        match &mut self.clients[client].phase {
            Phase::Holding(hold) => Some((hold, now)),
            _ => None,
        }
    }

    /// Looks what the lease needs now.
    pub(super) fn watch(&mut self, client: usize) {
        let stubborn = self.scenario.is(Mutant::LateExtendRevives);
        let Some((hold, now)) = self.holding(client) else { return };
        let until = hold.plan.until();
        let idle = hold.renewing.is_none();
        match hold.plan.due(now) {
            Due::At(next) => self.watch_at(client, next),
            Due::Renew if idle => self.renew(client),
            // Its answers or its limit come first.
            Due::Renew => self.watch_at(client, until),
            Due::Lapsed if stubborn && now < hold.revives_until => {
                if idle {
                    self.renew(client);
                }
            }
            Due::Lapsed | Due::MaxHold => {
                self.sights.saw(Sight::Lapsed);
                self.lose_hold(client, "its lease ran out");
            }
        }
    }

    fn watch_at(&mut self, client: usize, moment: Moment) {
        let at = self.clients[client].clock.when(moment, self.now);
        self.after(at - self.now, client, Timer::Watch);
    }

    fn renew(&mut self, client: usize) {
        self.attempts += 1;
        let (number, invoked, tally) = (self.attempts, self.now, Tally::new(self.size));
        let Some((hold, sent)) = self.holding(client) else { return };
        hold.renewing = Some(Renewing { number, sent, invoked, tally });
        let until = hold.plan.until();
        for node in 0..self.nodes.len() {
            self.ask(client, node, Ask::Renew { number });
        }
        let limit = 4000 + self.rng.upto(60_000);
        self.after(limit, client, Timer::RenewLimit(number));
        if until > sent {
            self.watch_at(client, until);
        }
    }

    pub(super) fn renewal_vote(&mut self, client: usize, number: u64, node: usize, standing: Standing) {
        self.count(client, number, |tally| tally.vote(node, standing));
    }

    pub(super) fn renew_limit(&mut self, client: usize, number: u64) {
        self.count(client, number, |tally| {
            let mut outcome = Outcome::Pending;
            for node in tally.silent().iter() {
                outcome = tally.vote(node, Standing::Unknown);
            }
            // All have answered or never will.
            if outcome == Outcome::Pending { Outcome::Unknown } else { outcome }
        });
    }

    fn count(&mut self, client: usize, number: u64, votes: impl FnOnce(&mut Tally) -> Outcome) {
        let Some((hold, now)) = self.holding(client) else { return };
        let Some(mut renewing) = hold.renewing.take_if(|renewing| renewing.number == number) else { return };
        match votes(&mut renewing.tally) {
            Outcome::Pending => hold.renewing = Some(renewing),
            Outcome::Ours => self.renewed(client, &renewing, now),
            Outcome::Absent | Outcome::Taken => {
                self.sights.saw(Sight::TakenAway);
                self.lose_hold(client, "a majority says that it is gone");
            }
            Outcome::Unknown => {
                self.sights.saw(Sight::RenewalFailed);
                let rng = self.rng.u64(..);
                if let Some((hold, now)) = self.holding(client) {
                    hold.plan.failed(now, rng);
                }
                self.watch(client);
            }
        }
    }

    fn renewed(&mut self, client: usize, renewing: &Renewing, now: Moment) {
        let (ttl, drift) = (self.scenario.ttl, self.scenario.drift());
        let rng = self.rng.u64(..);
        let stubborn = self.scenario.is(Mutant::LateExtendRevives);
        let Some((hold, _)) = self.holding(client) else { return };
        if stubborn && now >= hold.plan.until() {
            let lease = Lease::granted(renewing.sent, ttl.get(), drift);
            hold.plan = RenewalPlan::new(lease, ttl, drift, now + ttl.get() / 3, Moment::NEVER);
        } else if hold.plan.renewed(renewing.sent, now, rng).is_err() {
            self.sights.saw(Sight::LateRenewal);
            self.lose_hold(client, "its lease had run out when the renewal was confirmed");
            return;
        }
        self.sights.saw(Sight::Renewed);
        let Some((hold, _)) = self.holding(client) else { return };
        let until = hold.plan.until();
        hold.revives_until = until + STUBBORN;
        let until = self.clients[client].clock.when(until, self.now);
        self.tell(|| format!("c{client} holds on until {until} us"));
        if let Some(mut line) = self.line_of_hold(client, Op::Renew, renewing.invoked) {
            line.valid_until_us = Some(until);
            self.lines.push(line);
        }
        self.watch(client);
    }

    fn line_of_hold(&mut self, client: usize, op: Op, invoked: u64) -> Option<Line> {
        let fence = self.holding(client)?.0.fence;
        let Client { holder, .. } = self.clients[client];
        Some(self.line(client, op, invoked).hold(&holder_name(holder), Some(fence.get())))
    }

    fn lose_hold(&mut self, client: usize, why: &str) {
        self.tell(|| format!("c{client} LOST its hold: {why}"));
        let line = self.line_of_hold(client, Op::Lost, self.now);
        self.lines.extend(line.map(|line| line.what(why)));
        self.end(client);
    }

    /// The work is done, in time or not.
    pub(super) fn done(&mut self, client: usize) {
        let Some((hold, now)) = self.holding(client) else { return };
        if now >= hold.plan.until() && !self.scenario.is(Mutant::LateExtendRevives) {
            self.watch(client);
            return;
        }
        self.tell(|| format!("c{client} releases"));
        let line = self.line_of_hold(client, Op::Release, self.now);
        self.lines.extend(line);
        self.end(client);
    }

    fn end(&mut self, client: usize) {
        self.release_everywhere(client);
        let pause = 200 + self.rng.upto(8000);
        self.after(pause, client, Timer::Start);
    }
}
