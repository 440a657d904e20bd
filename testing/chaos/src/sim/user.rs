//! What a client does with its key: it acquires the key, renews and uses its lease, downgrades and releases it.

use super::Mutant;
use super::client::{Client, PendingDowngrade, SimHold, SimRng, SimTask, Timer, number_of};
use super::coverage::Coverage;
use super::machines::{ClaimCall, DowngradeCall, NodeReply, ReleaseCall, RenewCall};
use super::message::{Reply, RequestBody};
use super::running::{Done, Kind, Of};
use super::world::{World, holder_name};
use crate::history::{HistoryLine, Op};
use crate::rng_ext::RngExt as _;
use fencelock_core::engine::{
    AcquireKey, AcquireNext, AcquireRequest, Action, Actions, Context, DowngradeNext, End, Ended, Grant, HoldId,
    KeyEngine, KeyReply, KeyRequest, LeaseSharing, Leaving, PendingRelease, ReleaseOutcome, RenewalPass, Sender,
    Source, Status, Tenure, Worker,
};
use fencelock_core::quorum::{REPLY_TIMEOUT, proposal, renewal_limit};
use fencelock_core::{
    Acquire, Claim, ClaimReply, Defeat, Downgrade, Fault, LossReason, Mode, Moment, Raise, Renew, Renewal, RenewalPlan,
    Sent, Unknown,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

type Engine = KeyEngine<u64, ()>;
type Cx<'a> = Context<'a, u64, ()>;

/// Most users wait for the key; some give up within this time, in parts per million.
const GIVES_UP_PPM: u64 = 50_000;
const GIVES_UP_US: u64 = 200_000;
/// How long a holder with the mutant [`Mutant::LateExtendRevives`] keeps renewing an expired lease.
const STUBBORN: Duration = Duration::from_secs(2);

/// Acquires a key: a task in the engine, its claims, and its background releases.
impl World<'_> {
    /// Calls the engine of a client, and carries out its actions.
    pub(super) fn engine<R>(&mut self, client: usize, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
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
                open: true,
                now,
                rng: &mut SimRng { rng: &mut self.rng, holder },
                out: &mut out,
            },
        );
        if out.iter().fold(false, |wakes, action| wakes | asker.memory.timers.apply(&(), action)) {
            self.renew_after(client, 0);
        }
        for action in out.drain(..) {
            self.act(client, action);
        }
        result
    }

    fn act(&mut self, client: usize, action: Action<u64, ()>) {
        match action {
            Action::Ended(ended) => self.ended(client, *ended),
            Action::Release(release) => self.release(client, *release),
            Action::GrantedTooLate => self.covered.saw(Coverage::TooLate),
            Action::Wake(task) => self.after(0, client, Timer::Woken(task)),
            Action::Began
            | Action::SetTimer { .. }
            | Action::ClaimBegan(_)
            | Action::ClaimEnded(_)
            | Action::Queued
            | Action::Report(_)
            | Action::WaitsForOwn { .. }
            | Action::FallbackPoll => {}
        }
    }

    pub(super) fn start(&mut self, client: usize) {
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
        self.numbers += 1;
        let number = self.numbers;
        let task = SimTask { acquire: AcquireKey::new(request, false), invoked: self.now, sleep: 0 };
        self.clients[client].memory.tasks.insert(number, task);
        let next = self.call_for(client, number, |acquire, engine, cx| Some(acquire.enter(engine, cx)));
        if self.rng.chance(GIVES_UP_PPM) {
            let pause = self.rng.upto(GIVES_UP_US);
            self.after(pause, client, Timer::GiveUp(number));
        }
        self.follow(client, number, next);
    }

    /// Starts a new task after a pause.
    fn restart_task(&mut self, client: usize) {
        let pause = 200 + self.rng.upto(8000);
        self.after(pause, client, Timer::Start);
    }

    /// Calls the engine for a task of a client, which can be woken from now on.
    fn call_for(
        &mut self,
        client: usize,
        number: u64,
        call: impl FnOnce(&mut AcquireKey, &mut Engine, &mut Cx<'_>) -> Option<AcquireNext>,
    ) -> Option<AcquireNext> {
        let mut task = self.clients[client].memory.tasks.remove(&number)?;
        let next = self.engine(client, |engine, cx| {
            let next = call(&mut task.acquire, engine, cx);
            task.acquire.id().into_iter().for_each(|id| engine.set_task(id, number));
            next
        });
        self.clients[client].memory.tasks.insert(number, task);
        next
    }

    /// The same, and does what the task says.
    pub(super) fn run_task(
        &mut self,
        client: usize,
        number: u64,
        call: impl FnOnce(&mut AcquireKey, &mut Engine, &mut Cx<'_>) -> Option<AcquireNext>,
    ) {
        let next = self.call_for(client, number, call);
        self.follow(client, number, next);
    }

    fn follow(&mut self, client: usize, number: u64, next: Option<AcquireNext>) {
        let Some(next) = next else { return };
        // Its timer, if it rests, is no longer that of a rest.
        self.clients[client].memory.tasks.entry(number).and_modify(|task| task.sleep = 0);
        match next {
            AcquireNext::Enter => self.run_task(client, number, |acquire, engine, cx| Some(acquire.enter(engine, cx))),
            AcquireNext::Rest(until) => {
                let Client { clock, memory, .. } = &mut self.clients[client];
                let Some(task) = memory.tasks.get_mut(&number) else { return };
                self.numbers += 1;
                task.sleep = self.numbers;
                if until != Moment::NEVER {
                    let at = clock.when(until, self.now);
                    self.after(at - self.now, client, Timer::Task { task: number, sleep: self.numbers });
                }
            }
            AcquireNext::Send(KeyRequest::Claim(claim), _) => self.claim(client, number, &claim),
            AcquireNext::Granted(grant) => self.granted(client, number, grant),
            AcquireNext::Failed(failure) => {
                self.trace(|| format!("c{client} gives up: {:?}", failure.reason));
                self.clients[client].memory.tasks.remove(&number);
                self.restart_task(client);
            }
            AcquireNext::Send(..) | AcquireNext::Closed => {
                unreachable!("only where replicas confirm, tasks do not wait, or a client is closed")
            }
        }
    }

    pub(super) fn task_timer(&mut self, client: usize, number: u64, sleep: u64) {
        if self.clients[client].memory.tasks.get(&number).is_some_and(|task| task.sleep == sleep) {
            self.run_task(client, number, |acquire, engine, cx| Some(acquire.on_time(engine, cx)));
        }
    }

    fn claim(&mut self, client: usize, task: u64, claim: &Claim) {
        let limit = self.settings.shortest_limit;
        let plan = self.plan(client, |health| health.limit(claim.ttl.get() / 10, limit));
        let sent = self.clients[client].clock.moment(self.now);
        let proposal = self.proposal(client);
        let holder = number_of(claim.holder.id);
        self.trace(|| format!("c{client} claims as {holder:x}, proposing {proposal}, for {}", claim.mode));
        if self.shares.queues() {
            return self.ask(client, Of::Claim(task), holder, RequestBody::Queue(claim.queueing), plan[0].limit);
        }
        let now = self.now;
        self.clients[client].memory.tasks.entry(task).and_modify(|task| task.invoked = now);
        let call = ClaimCall::new(Arc::clone(&self.settings), claim, plan, sent);
        self.call(client, Kind::Claim { call, task, sent }, holder, proposal);
    }

    /// The token that a client proposes.
    fn proposal(&self, client: usize) -> u64 {
        let Client { wall, memory, .. } = &self.clients[client];
        let counts = self.scenario.is(Mutant::CounterOnly);
        if counts { 1 } else { proposal(wall.micros(self.now), memory.seen, NonZeroU32::MIN) }
    }

    pub(super) fn on_done(&mut self, client: usize, of: Of, done: Done) {
        match (of, done) {
            (Of::Claim(task), Done::Claim(answer)) => self.claim_answered(client, task, answer),
            (Of::Renew { hold, sent, invoked }, Done::Renew(answers)) => {
                for answer in answers {
                    self.renewal_answered(client, hold, sent, invoked, answer);
                }
            }
            (Of::Downgrade(hold), Done::Downgrade(answer)) => self.downgrade_answered(client, hold, answer),
            (Of::Release { number, release, sent }, Done::Release(answer)) => {
                let (now, rng) = (self.clients[client].clock.moment(self.now), self.rng.u64(..));
                let outcome = ReleaseOutcome::of(&release, sent, &answer, now);
                if outcome == ReleaseOutcome::GivenUp {
                    self.covered.saw(Coverage::GivenUp);
                }
                self.clients[client].memory.releases.answered(number, outcome, now, rng);
                self.send_releases(client);
            }
            _ => {}
        }
    }

    fn claim_answered(&mut self, client: usize, task: u64, answer: Result<Acquire, Unknown>) {
        self.trace(|| format!("c{client} has its answer: {answer:?}"));
        let late = self.scenario.is(Mutant::ValidityFromReply);
        let sent = if late { Sent::At(self.clients[client].clock.moment(self.now)) } else { Sent::AtOnce };
        let reply = KeyReply::Claim(ClaimReply { sent, answer });
        self.run_task(client, task, |acquire, engine, cx| Some(acquire.answered(reply, engine, cx)));
    }

    fn granted(&mut self, client: usize, number: u64, grant: Grant) {
        let Some(SimTask { invoked, .. }) = self.clients[client].memory.tasks.remove(&number) else { return };
        if let Some(held) = &self.clients[client].memory.hold
            && self.nodes[0].state(self.clients[client].key).0 != Some(held.holder)
        {
            // It was evicted, or its lease has ended during a pause, and its user does not know it yet.
            self.done(client, held.grant.hold);
        }
        match grant.source {
            Source::HandedOff => self.covered.saw(Coverage::HandedOver),
            Source::Shared => self.covered.saw(Coverage::Shared),
            Source::Claimed | Source::Resumed => {}
        }
        let facts = self.clients[client].memory.engine.facts(grant.hold);
        let (Some((holder, ..)), Some(until)) = (facts, self.believes(client, grant)) else {
            return self.restart_task(client);
        };
        let (holder, fence) = (number_of(holder), grant.tenure.fence);
        let at = self.clients[client].clock.when(until, self.now);
        self.trace(|| format!("c{client} HOLDS with {fence} until {at} us"));
        let renews = !self.rng.chance(self.scenario.overrun_ppm);
        let held = SimHold { grant, holder, fence, until, renews, renewing: false, downgrade: None };
        self.clients[client].memory.hold = Some(held);
        if let Some(mut line) = self.line_of_hold(client, Op::Acquire, invoked) {
            line.valid_until_us = Some(at);
            line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
            self.lines.push(line.mode(grant.tenure.mode));
        }
        self.work(client, renews);
    }

    /// The user stops waiting for the key.
    pub(super) fn give_up(&mut self, client: usize, number: u64) {
        if !self.clients[client].memory.tasks.contains_key(&number) {
            return;
        }
        self.trace(|| format!("c{client} gives up waiting"));
        self.drop_claims(client, number);
        self.run_task(client, number, |acquire, engine, cx| {
            acquire.cancel(engine, cx);
            None
        });
        self.clients[client].memory.tasks.remove(&number);
        self.restart_task(client);
    }

    /// Releases in the background.
    fn release(&mut self, client: usize, release: PendingRelease) {
        if release.is_hold || !self.scenario.is(Mutant::NoRollback) {
            let now = self.clients[client].clock.moment(self.now);
            let sender = self.clients[client].memory.releases.push(release, now);
            assert_eq!(sender, Sender::InCharge(Worker::TASK));
            self.send_releases(client);
        }
    }

    pub(super) fn send_releases(&mut self, client: usize) {
        let sent = self.clients[client].clock.moment(self.now);
        let (batch, _) = self.clients[client].memory.releases.next(Worker::TASK, sent).unwrap_or_default();
        for (number, release) in batch {
            let limit = self.settings.shortest_limit;
            let plan = self.plan(client, |health| health.limit(REPLY_TIMEOUT, limit));
            let holder = number_of(release.holder);
            let claiming = self.claiming(client, holder);
            let call = ReleaseCall::new(Arc::clone(&self.settings), plan, claiming);
            self.call(client, Kind::Release { call, number, release, sent }, holder, 0);
        }
        if let Some(due) = self.clients[client].memory.releases.queue().due() {
            let at = self.clients[client].clock.when(due, self.now);
            self.after(at.max(self.now + 1) - self.now, client, Timer::Releases);
        }
    }

    /// Shuts the client down cleanly.
    pub(super) fn quit(&mut self, client: usize) {
        let tasks: Vec<_> = self.clients[client].memory.tasks.keys().copied().collect();
        for task in tasks {
            self.give_up(client, task);
        }
        if let Some(held) = &self.clients[client].memory.hold {
            self.done(client, held.grant.hold);
        }
        if self.shares.queues() {
            self.engine(client, Engine::close);
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

/// Holds a key: renewals, writes, expiry and release.
impl World<'_> {
    /// Most work is short. Some lasts for several leases, and some longer than its lease, without renewal.
    fn work(&mut self, client: usize, renews: bool) {
        let Some(SimHold { grant, fence, .. }) = self.clients[client].memory.hold else { return };
        let mode = grant.tenure.mode;
        let ttl_us = self.scenario.ttl.as_millis() * 1000;
        let lasts = if !renews {
            ttl_us + self.rng.upto(50_000)
        } else if self.now < self.scenario.calm_us && self.rng.chance(150_000) {
            // Ends soon after the last fault, so that other clients can acquire the key.
            self.rng.upto(4 * ttl_us).min(self.scenario.calm_us - self.now)
        } else if self.shares.queues() && self.rng.chance(150_000) {
            // Long enough to be evicted.
            self.rng.upto(200_000)
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

    fn held(&self, client: usize, id: HoldId) -> Option<&SimHold> {
        self.clients[client].memory.hold.as_ref().filter(|held| held.grant.hold == id)
    }

    /// When the lease of the hold ends, by the clock of the client.
    fn believes(&mut self, client: usize, grant: Grant) -> Option<Moment> {
        match self.engine(client, |engine, cx| engine.status(grant.hold, grant.tenure, cx)) {
            Status::Held(until) => Some(until),
            Status::PassedOn | Status::Over => None,
        }
    }

    /// The task that renews sleeps for this time, and no longer.
    fn renew_after(&mut self, client: usize, pause_us: u64) {
        self.numbers += 1;
        self.clients[client].memory.renewal_sleep = self.numbers;
        self.after(pause_us, client, Timer::Renewals(self.numbers));
    }

    /// Whether the mutant is about to revive an expired lease.
    fn revives(&self, client: usize) -> bool {
        let Some(held) = &self.clients[client].memory.hold else { return false };
        let now = self.clients[client].clock.moment(self.now);
        self.scenario.is(Mutant::LateExtendRevives) && (held.until..held.until + STUBBORN).contains(&now)
    }

    /// The time that is passed to the engine of a client.
    fn believed_now(&self, client: usize) -> Moment {
        let now = self.clients[client].clock.moment(self.now);
        match &self.clients[client].memory.hold {
            Some(held) if self.revives(client) => Moment::from_micros(held.until.as_micros() - 1),
            _ => now,
        }
    }

    /// As the task of a client that renews.
    pub(super) fn renewals_timer(&mut self, client: usize, number: u64) {
        if self.clients[client].memory.renewal_sleep != number {
            return;
        }
        if self.revives(client) {
            let hold = self.clients[client].memory.hold.as_ref().filter(|held| !held.renewing);
            if let Some(id) = hold.map(|held| held.grant.hold) {
                self.renew(client, id);
            }
            return self.renew_after(client, 1000);
        }
        let mut pass = RenewalPass::new(self.clients[client].clock.moment(self.now));
        while let Some(before) = pass.round() {
            for (at, (), hold) in self.clients[client].memory.timers.take_before(before) {
                let firing = pass.firing(at);
                let duty = self.engine(client, |engine, cx| engine.hold_due(hold, firing, cx));
                pass.add((), hold, duty);
            }
        }
        for batch in pass.batches(|_| 0) {
            // A client has at most one hold.
            for ((), id, cause) in batch.answers(None, "quorum") {
                if self.held(client, id).is_none_or(|held| held.renews) {
                    self.renew(client, id);
                } else {
                    // No answer, until the lease is over.
                    let now = self.clients[client].clock.moment(self.now);
                    self.engine(client, |engine, cx| engine.renewal_answered(id, now, cause, false, cx));
                }
            }
        }
        let Client { clock, memory, .. } = &mut self.clients[client];
        let now = clock.moment(self.now);
        let wakes = clock.when(now + memory.timers.sleep(now), self.now);
        self.renew_after(client, wakes - self.now);
    }

    fn renew(&mut self, client: usize, id: HoldId) {
        let memory = &mut self.clients[client].memory;
        let Some((proof, ..)) = memory.engine.facts(id) else { return };
        memory.hold.iter_mut().for_each(|held| held.renewing = true);
        let holder = number_of(proof);
        let renewal = Renewal::new(self.keys[self.clients[client].key].clone(), proof, self.scenario.ttl);
        let shortest = self.settings.shortest_limit;
        let plan = self
            .plan(client, |health| renewal_limit(std::slice::from_ref(&renewal), |most| health.limit(most, shortest)));
        let (sent, invoked) = (self.clients[client].clock.moment(self.now), self.now);
        if self.shares.queues() {
            return self.ask(client, Of::Renew { hold: id, sent, invoked }, holder, RequestBody::Renew, plan[0].limit);
        }
        let call = RenewCall::new(Arc::clone(&self.settings), 1, plan);
        self.call(client, Kind::Renew { call, hold: id, sent, invoked }, holder, 0);
    }

    fn renewal_answered(
        &mut self,
        client: usize,
        id: HoldId,
        sent: Moment,
        invoked: u64,
        answer: Result<Renew, Unknown>,
    ) {
        let memory = &mut self.clients[client].memory;
        if memory.engine.facts(id).is_none() {
            return;
        }
        let held = memory.hold.as_mut().filter(|held| held.grant.hold == id);
        let grant = held.map(|held| {
            held.renewing = false;
            held.grant
        });
        let renewed = matches!(answer, Ok(Renew::Renewed { .. }));
        if answer.is_err() {
            self.covered.saw(Coverage::RenewalFailed);
        }
        let announced = self.shares.queues();
        self.engine(client, |engine, cx| engine.renewal_answered(id, sent, answer, announced, cx));
        // Without one, no task has the lease now.
        let Some(grant) = grant else { return };
        let Some(until) = self.believes(client, grant) else {
            if renewed {
                self.covered.saw(Coverage::LateRenewal);
            }
            return;
        };
        if !renewed {
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

    fn line_of_hold(&self, client: usize, op: Op, invoked: u64) -> Option<HistoryLine> {
        let SimHold { holder, fence, .. } = self.clients[client].memory.hold.as_ref()?;
        Some(self.line(client, op, invoked).hold(&holder_name(*holder), Some(fence.get())))
    }

    /// Handles the end of a hold that the engine reports.
    fn ended(&mut self, client: usize, ended: Ended<()>) {
        let End::Lost(reason) = ended.end else { return };
        let Some(held) = self.held(client, ended.hold) else { return };
        if held.downgrade.is_some() {
            self.covered.saw(Coverage::DowngradeLost);
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
        if !matches!(self.engine(client, |engine, cx| engine.release(id, tenure, true, cx)), Leaving::Over) {
            self.trace(|| format!("c{client} releases"));
            self.lines.extend(line);
            self.clients[client].memory.hold = None;
            self.restart_task(client);
        }
    }
}

/// Downgrades. A writer counts as a reader from its first request on, because a node may execute that at any time.
impl World<'_> {
    /// The user of the hold requests a downgrade.
    pub(super) fn downgrade(&mut self, client: usize, id: HoldId) {
        let Some(held) = self.held(client, id).filter(|held| held.downgrade.is_none()) else { return };
        let tenure = held.grant.tenure;
        let yields = self.line_of_hold(client, Op::Yield, self.now);
        let begun = self.engine(client, |engine, cx| engine.downgrade(id, tenure, cx));
        let Some((tenure, _)) = begun else { return };
        self.trace(|| format!("c{client} downgrades"));
        if !self.scenario.is(Mutant::DowngradesWithReply) {
            self.lines.extend(yields);
        }
        let invoked = self.now;
        if let Some(held) = &mut self.clients[client].memory.hold {
            held.grant.tenure = tenure;
            held.downgrade = Some(PendingDowngrade { tenure, sent: None, timer: 0, invoked });
        }
        self.send_downgrade(client, id);
    }

    fn pending_downgrade(&mut self, client: usize, id: HoldId) -> Option<&mut PendingDowngrade> {
        self.clients[client].memory.hold.as_mut().filter(|held| held.grant.hold == id)?.downgrade.as_mut()
    }

    pub(super) fn downgrade_timer(&mut self, client: usize, id: HoldId, number: u64) {
        let Some(pending) = self.pending_downgrade(client, id).filter(|pending| pending.timer == number) else {
            return;
        };
        if pending.sent.is_some() {
            self.drop_downgrade(client, id);
            self.downgrade_answered(client, id, Err(Unknown::new("", Fault::Timeout, "")));
        } else {
            self.send_downgrade(client, id);
        }
    }

    fn downgrade_answered(&mut self, client: usize, id: HoldId, answer: Result<Downgrade, Unknown>) {
        let Some(pending) = self.pending_downgrade(client, id) else { return };
        let (tenure, Some(sent)) = (pending.tenure, pending.sent.take()) else { return };
        match self.engine(client, |engine, cx| engine.downgrade_answered(id, tenure, sent, answer, cx)) {
            DowngradeNext::Rest(at) => {
                self.covered.saw(Coverage::DowngradedAgain);
                self.set_downgrade_timer(client, id, at);
            }
            DowngradeNext::Done(tenure) => {
                self.covered.saw(Coverage::Downgraded);
                self.downgraded(client, tenure);
            }
            // The engine has reported the loss.
            DowngradeNext::Over | DowngradeNext::Refused(_) => {}
        }
    }

    fn set_downgrade_timer(&mut self, client: usize, id: HoldId, at: Moment) {
        self.numbers += 1;
        let number = self.numbers;
        if let Some(pending) = self.pending_downgrade(client, id) {
            pending.timer = number;
        }
        let at = self.clients[client].clock.when(at, self.now).max(self.now + 1);
        self.after(at - self.now, client, Timer::Downgrading(id, number));
    }

    fn send_downgrade(&mut self, client: usize, id: HoldId) {
        let Some(SimHold { holder, .. }) = self.clients[client].memory.hold else { return };
        let (ttl, shortest) = (self.scenario.ttl.get(), self.settings.shortest_limit);
        let plan = self.plan(client, |health| health.limit(ttl / 10, shortest));
        let now = self.clients[client].clock.moment(self.now);
        if let Some(pending) = self.pending_downgrade(client, id) {
            pending.sent = Some(now);
        }
        self.set_downgrade_timer(client, id, now + RenewalPlan::answer_limit(ttl));
        let call = DowngradeCall::new(Arc::clone(&self.settings), plan, now);
        let proposal = self.proposal(client);
        self.call(client, Kind::Downgrade { call, hold: id }, holder, proposal);
    }

    fn downgraded(&mut self, client: usize, tenure: Tenure) {
        let Some(SimHold { grant, downgrade: Some(pending), .. }) = &self.clients[client].memory.hold else { return };
        let (grant, invoked, fence) = (Grant { tenure, ..*grant }, pending.invoked, tenure.fence);
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
        let invoked = if late { self.now } else { invoked };
        let line: Option<HistoryLine> = self.line_of_hold(client, Op::Downgrade, invoked);
        if let Some(mut line) = line {
            line.valid_until_us = Some(self.clients[client].clock.when(until, self.now));
            line.ttl_us = Some(self.scenario.ttl.as_millis() * 1000);
            self.lines.push(line.mode(grant.tenure.mode));
        }
        self.access_after(0, client, fence);
    }
}
