//! A client that acquires a key: a task in the engine, its claims, and its background releases.

use super::Mutant;
use super::client::{Client, SimHold, SimRng, Timer, number_of};
use super::coverage::Coverage;
use super::message::Reply;
use super::running::{Done, Kind, Of};
use super::world::World;
use crate::history::Op;
use crate::rng_ext::RngExt as _;
use fencelock_core::engine::{
    AcquireRequest, Action, Actions, Context, KeyEngine, LeaseSharing, PendingRelease, ReleaseOutcome, Step, WaiterId,
};
use fencelock_core::quorum::{ClaimCall, NodeReply, PATIENCE, ReleaseCall, proposal};
use fencelock_core::{Acquire, Claim, Defeat, Moment, Raise, Unknown};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Most users wait for the key; some give up within this time, in parts per million.
const GIVES_UP_PPM: u64 = 50_000;
const GIVES_UP_US: u64 = 200_000;

impl World<'_> {
    /// Calls the engine of a client, and carries out its actions.
    pub(super) fn engine<R>(
        &mut self,
        client: usize,
        call: impl FnOnce(&mut KeyEngine<(), ()>, &mut Context<'_, (), ()>) -> R,
    ) -> R {
        self.numbers += 1;
        // A new id for each attempt.
        let same = self.scenario.is(Mutant::TokenReuse);
        let holder = if same { client as u128 + 1 } else { u128::from(self.numbers) << 8 | client as u128 };
        let now = self.believed_now(client);
        let mut out = Actions::new();
        let asker = &mut self.clients[client];
        let result = call(
            &mut asker.memory.engine,
            &mut Context {
                key: &self.keys[asker.key],
                config: &self.config,
                now,
                rng: &mut SimRng { rng: &mut self.rng, holder },
                out: &mut out,
            },
        );
        for action in out.drain() {
            self.act(client, action);
        }
        result
    }

    fn act(&mut self, client: usize, action: Action<(), ()>) {
        match action {
            Action::SetTimer { hold, to, .. } => self.set_hold_timer(client, hold, to),
            Action::Ended(ended) => self.ended(client, *ended),
            Action::Release(release) => self.release(client, *release),
            Action::GrantedTooLate => self.covered.saw(Coverage::TooLate),
            // Tasks get no notifications here and do not share leases.
            Action::Wake(())
            | Action::Began
            | Action::KeptIdle
            | Action::KeptHistory
            | Action::ClaimBegan(_)
            | Action::ClaimEnded(_)
            | Action::Queued
            | Action::Report(_)
            | Action::WaitsForOwn { .. }
            | Action::FallbackPoll => {}
        }
    }

    pub(super) fn start(&mut self, client: usize) {
        if self.clients[client].memory.task.is_some() || self.clients[client].memory.hold.is_some() {
            return;
        }
        let (ttl, owner) = (self.scenario.ttl, self.owner.clone());
        let mode = self.shares.choose(&mut self.rng);
        self.clients[client].memory.mode = mode;
        let request = AcquireRequest {
            mode,
            owner,
            ttl,
            wait: None,
            retry: None,
            max_hold: None,
            lease_sharing: LeaseSharing::Allowed,
            place: None,
        };
        let (waiter, step) = self.engine(client, |engine, cx| {
            let waiter = engine.enter(request, cx.now, false, cx);
            (waiter, engine.poll(waiter, cx))
        });
        self.clients[client].memory.task = Some(waiter);
        if self.rng.chance(GIVES_UP_PPM) {
            let pause = self.rng.upto(GIVES_UP_US);
            self.after(pause, client, Timer::GiveUp(waiter));
        }
        self.step(client, waiter, step.unwrap_or(Step::Wait));
    }

    /// Starts a new task after a pause.
    pub(super) fn restart_task(&mut self, client: usize) {
        self.clients[client].memory.task = None;
        let pause = 200 + self.rng.upto(8000);
        self.after(pause, client, Timer::Start);
    }

    fn step(&mut self, client: usize, waiter: WaiterId, step: Step) {
        match step {
            Step::Wait | Step::TurnLost => {}
            Step::Sleep { until, .. } => {
                self.numbers += 1;
                self.clients[client].memory.sleep = self.numbers;
                let at = self.clients[client].clock.when(until, self.now);
                self.after(at - self.now, client, Timer::Task(self.numbers));
            }
            Step::Claim(claim) => {
                self.engine(client, |engine, _| engine.claim_sent(waiter));
                self.claim(client, waiter, &claim);
            }
            Step::Granted(grant) => self.granted(client, grant),
            Step::Refused(refusal) => {
                self.trace(|| format!("c{client} gives up: {:?}", refusal.reason));
                self.restart_task(client);
            }
            Step::Inspect | Step::Leave(_) => unreachable!("only where leases are shared, or replicas confirm"),
        }
    }

    pub(super) fn task_timer(&mut self, client: usize, number: u64) {
        let memory = &self.clients[client].memory;
        if let Some(waiter) = memory.task.filter(|_| memory.sleep == number) {
            let step = self.engine(client, |engine, cx| engine.timer_fired(waiter, cx));
            self.step(client, waiter, step);
        }
    }

    fn claim(&mut self, client: usize, waiter: WaiterId, claim: &Claim) {
        let limit = self.settings.shortest_limit;
        let plan = self.plan(client, |health| health.limit(claim.ttl.get() / 10, limit));
        let sent = self.clients[client].clock.moment(self.now);
        let proposal = self.proposal(client);
        let holder = number_of(claim.holder.id);
        self.clients[client].memory.invoked = self.now;
        self.trace(|| format!("c{client} claims as {holder:x}, proposing {proposal}, for {}", claim.mode));
        let call = ClaimCall::new(Arc::clone(&self.settings), claim, plan, sent);
        self.call(client, Kind::Claim { call, waiter, sent }, holder, proposal);
    }

    /// The token that a client proposes.
    pub(super) fn proposal(&self, client: usize) -> u64 {
        let Client { wall, memory, .. } = &self.clients[client];
        let counts = self.scenario.is(Mutant::CounterOnly);
        if counts { 1 } else { proposal(wall.micros(self.now), memory.seen, NonZeroU32::MIN) }
    }

    pub(super) fn on_done(&mut self, client: usize, of: Of, done: Done) {
        match (of, done) {
            (Of::Claim(waiter, sent), Done::Claim(answer)) => self.claim_answered(client, waiter, sent, answer),
            (Of::Renew { hold, sent, invoked }, Done::Renew(answers)) => {
                for answer in answers {
                    self.renewal_answered(client, hold, sent, invoked, answer);
                }
            }
            (Of::Downgrade(hold), Done::Downgrade(answer)) => self.downgrade_answered(client, hold, answer),
            (Of::Release { number, sent }, Done::Release(answer)) => {
                let outcome = if answer.is_ok() { ReleaseOutcome::Confirmed(sent) } else { ReleaseOutcome::Failed };
                let (now, rng) = (self.clients[client].clock.moment(self.now), self.rng.u64(..));
                self.clients[client].memory.releases.answered(number, outcome, now, rng);
                self.send_releases(client);
            }
            _ => {}
        }
    }

    fn claim_answered(&mut self, client: usize, waiter: WaiterId, sent: Moment, answer: Result<Acquire, Unknown>) {
        self.trace(|| format!("c{client} has its answer: {answer:?}"));
        let late = self.scenario.is(Mutant::ValidityFromReply);
        let sent = if late { self.clients[client].clock.moment(self.now) } else { sent };
        let step = self.engine(client, |engine, cx| engine.claim_answered(waiter, sent, answer, cx));
        self.step(client, waiter, step);
    }

    fn granted(&mut self, client: usize, grant: fencelock_core::engine::Grant) {
        self.clients[client].memory.task = None;
        let facts = self.clients[client].memory.engine.facts(grant.hold);
        let (Some((holder, ..)), Some(until)) = (facts, self.believes(client, grant)) else {
            return self.restart_task(client);
        };
        let (holder, fence) = (number_of(holder), grant.tenure.fence);
        let at = self.clients[client].clock.when(until, self.now);
        self.trace(|| format!("c{client} HOLDS with {fence} until {at} us"));
        let renews = !self.rng.chance(self.scenario.overrun_ppm);
        let timer = self.clients[client].memory.timer;
        let held = SimHold { grant, holder, fence, until, timer, renews, renewing: false, downgrade: None };
        self.clients[client].memory.hold = Some(held);
        let invoked = self.clients[client].memory.invoked;
        if let Some(mut line) = self.line_of_hold(client, Op::Acquire, invoked) {
            line.valid_until_us = Some(at);
            line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
            self.lines.push(line.mode(grant.tenure.mode));
        }
        self.work(client, renews);
    }

    /// The user stops waiting for the key.
    pub(super) fn give_up(&mut self, client: usize, waiter: WaiterId) {
        if self.clients[client].memory.task != Some(waiter) {
            return;
        }
        self.trace(|| format!("c{client} gives up waiting"));
        self.drop_claims(client, waiter);
        self.engine(client, |engine, cx| engine.leave(waiter, cx));
        self.restart_task(client);
    }

    /// Releases in the background.
    fn release(&mut self, client: usize, release: PendingRelease) {
        if release.is_hold || !self.scenario.is(Mutant::NoRollback) {
            self.clients[client].memory.releases.push(release);
            self.send_releases(client);
        }
    }

    pub(super) fn send_releases(&mut self, client: usize) {
        let sent = self.clients[client].clock.moment(self.now);
        for (number, release) in self.clients[client].memory.releases.next(sent) {
            let limit = self.settings.shortest_limit;
            let plan = self.plan(client, |health| health.limit(PATIENCE, limit));
            let holder = number_of(release.holder);
            let claiming = self.claiming(client, holder);
            let call = ReleaseCall::new(Arc::clone(&self.settings), plan, claiming);
            self.call(client, Kind::Release { call, number, sent }, holder, 0);
        }
        if let Some(due) = self.clients[client].memory.releases.due() {
            let at = self.clients[client].clock.when(due, self.now);
            self.after(at.max(self.now + 1) - self.now, client, Timer::Releases);
        }
    }

    /// Shuts the client down cleanly.
    pub(super) fn quit(&mut self, client: usize) {
        if let Some(waiter) = self.clients[client].memory.task {
            self.give_up(client, waiter);
        }
        if let Some(held) = &self.clients[client].memory.hold {
            self.done(client, held.grant.hold);
        }
    }

    /// Recorded when the reply is sent, so lost replies count.
    pub(super) fn notice(&mut self, reply: &Reply) {
        match reply {
            Reply::Node(NodeReply::Claim(Err(cause))) if cause.is_refusal() => self.covered.saw(Coverage::Quarantine),
            Reply::Yours => self.covered.saw(Coverage::AskedTwice),
            Reply::Node(NodeReply::Raise(Ok(Raise::Refused))) => self.covered.saw(Coverage::RefusedRaise),
            Reply::Node(_) => {}
        }
    }

    pub(super) fn notice_defeat(&mut self, defeat: Defeat) {
        self.covered.saw(match defeat {
            Defeat::Busy => Coverage::Busy,
            Defeat::Unreachable => Coverage::Unreachable,
            Defeat::Overtaken => Coverage::Overtaken,
        });
    }
}
