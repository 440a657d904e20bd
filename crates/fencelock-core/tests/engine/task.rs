//! The task of a user that wants the key: what `fencelock::driver::attempt` does.

use crate::checks;
use crate::client::TIMEOUT;
use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Reply};
use crate::user::{Asked, DowngradeWait, Guard, GuardDowngrade, Task, Wait};
use crate::world::World;
use fencelock_core::engine::{
    AcquireRequest, Downgrading, FailureReason, Grant, IdleLease, LeaseSharing, Source, Status, TaskStep, WaiterId,
};
use fencelock_core::{
    Acquire, Claim, ClaimReply, Drift, Holder, HolderId, Intent, Lease, LossReason, Moment, Owner, RenewalPlan, Ttl,
    Unknown,
};
use std::time::Duration;

/// An answer that is under way when the wait ends is waited for as long.
const LAST_ANSWER: Duration = Duration::from_millis(50);

impl World {
    pub(crate) fn request(&self, user: usize) -> AcquireRequest {
        let plan = &self.scenario.users[user];
        AcquireRequest {
            mode: plan.kind.mode(),
            owner: Owner::from_text("user"),
            ttl: Ttl::new(plan.ttl.unwrap_or(self.scenario.ttl)).unwrap(),
            wait: plan.wait,
            retry: plan.retry,
            max_hold: plan.max_hold,
            lease_sharing: plan.lease_sharing,
            place: None,
        }
    }

    pub(crate) fn ask(&mut self, user: usize) {
        let (client, request) = (self.client_of(user), self.request(user));
        self.users[user].turn = u8::try_from(self.users.iter().filter(|other| other.asked).count()).unwrap();
        (self.users[user].asked, self.users[user].arrived) = (true, self.now);
        if self.scenario.sharing.is_none() || request.queues() {
            return self.enter(user, false);
        }
        match self.call(client, |engine, cx| engine.take_idle(&request, cx)) {
            IdleLease::None => self.enter(user, false),
            IdleLease::Taken(grant) => {
                self.cover(Coverage::TakenIdle);
                self.granted(user, grant);
            }
            IdleLease::Release(release) => {
                let op = self.send(client, Call::Release(release.holder));
                let wait = Wait::IdleRelease { op, limit: self.now + TIMEOUT, release };
                self.users[user].task = Some(Task { id: None, wait });
            }
        }
    }

    pub(crate) fn enter(&mut self, user: usize, first: bool) {
        let (client, request, arrived) = (self.client_of(user), self.request(user), self.users[user].arrived);
        let first = first || self.mutant == Some(Mutant::EntersFirst);
        let id = self.call(client, |engine, cx| engine.enter(request, arrived, first, cx));
        self.users[user].task = Some(Task { id: Some(id), wait: Wait::Poll });
        self.users[user].woken = true;
    }

    /// Sends the claim that proves a hold that another user has detached.
    pub(crate) fn resume(&mut self, user: usize, holder: HolderId) {
        let (client, request) = (self.client_of(user), self.request(user));
        (self.users[user].asked, self.users[user].arrived) = (true, self.now);
        let proof = Holder { id: holder, owner: request.owner };
        let claim = Claim::new(crate::network::key().clone(), proof, request.ttl, Intent::Poll);
        let op = self.send(client, Call::Claim(claim.clone()));
        let wait = Wait::Resume { op, sent: self.now, limit: self.now + TIMEOUT, claim: Box::new(claim) };
        self.users[user].task = Some(Task { id: None, wait });
    }

    /// The task was woken.
    pub(crate) fn run_task(&mut self, user: usize) {
        self.users[user].woken = false;
        let client = self.client_of(user);
        if !self.is_present(user) {
            return self.lose_turn(user);
        }
        let Some(Task { id: Some(id), wait: wait @ (Wait::Poll | Wait::Sleep(_)) }) = self.users[user].task.clone()
        else {
            return;
        };
        if let Some(step) = self.poll(client, user, id) {
            let shared = matches!(step, TaskStep::Granted(grant) if grant.source == Source::Shared);
            let claimed = matches!(step, TaskStep::Granted(grant) if grant.source != Source::Shared);
            self.cover_if(shared && matches!(wait, Wait::Sleep(_)), Coverage::SharedWhileClaiming);
            self.cover_if(claimed && matches!(wait, Wait::Poll), Coverage::GrantedToAnother);
            self.step(user, step);
        }
    }

    fn poll(&mut self, client: usize, user: usize, id: WaiterId) -> Option<TaskStep> {
        let task = u8::try_from(user).unwrap();
        self.call(client, |engine, cx| {
            let step = engine.poll(id, cx);
            if step.is_none() {
                engine.set_task(id, Some(task));
            }
            step
        })
    }

    /// Does what the engine says until it has to wait.
    pub(crate) fn step(&mut self, user: usize, mut step: TaskStep) {
        let client = self.client_of(user);
        let Some(id) = self.users[user].waiter() else { return };
        loop {
            let wait = match step {
                TaskStep::Wait => Wait::Poll,
                TaskStep::Sleep { until, wakes } => {
                    self.cover_if(!wakes, Coverage::Yielded);
                    Wait::Sleep(until)
                }
                TaskStep::TurnLost => return self.lose_turn(user),
                TaskStep::Claim(claim) => {
                    let to = Asked::Claim(claim.holder.id);
                    self.answer_to(user, Call::Claim(*claim), to)
                }
                TaskStep::Inspect => self.answer_to(user, Call::Inspect, Asked::Inspect),
                TaskStep::Leave(holder) => self.answer_to(user, Call::Release(holder), Asked::Leave),
                TaskStep::Granted(grant) => {
                    self.users[user].task = None;
                    checks::check_order_of_permits(self, user);
                    return self.granted(user, grant);
                }
                TaskStep::Failed(failure) => {
                    let kind = !self.ledger.troubled && !self.ledger.time_passed;
                    if kind && !matches!(failure.reason, FailureReason::Busy(_)) {
                        self.break_down(format!("user {user} was refused: {:?}", failure.reason));
                    }
                    (self.users[user].task, self.users[user].refused) = (None, Some(failure.reason));
                    return self.cover(Coverage::Refused);
                }
            };
            let polls = matches!(wait, Wait::Poll | Wait::Sleep(_));
            self.users[user].task = Some(Task { id: Some(id), wait });
            match polls.then(|| self.poll(client, user, id)).flatten() {
                Some(next) => step = next,
                None => return,
            }
        }
    }

    fn answer_to(&mut self, user: usize, call: Call, to: Asked) -> Wait {
        let op = self.send(self.client_of(user), call);
        let wait = self.scenario.users[user].wait.filter(|wait| to != Asked::Inspect && !wait.is_zero());
        let left = wait.map(|wait| (self.users[user].arrived + wait).since(self.now).max(LAST_ANSWER));
        let limit = self.now + left.map_or(TIMEOUT, |left| left.min(TIMEOUT));
        Wait::Answer { op, sent: self.now, limit, to }
    }

    /// An answer for the task.
    pub(crate) fn answered(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let client = self.client_of(user);
        let Some(Task { id, wait }) = self.users[user].task.take() else { return };
        match (wait, id) {
            (Wait::IdleRelease { release, .. }, _) => {
                // If the result is unknown, the next claim finds out.
                if answer.is_err() || self.now < release.stray_until {
                    self.clients[client].take_release(*release, self.now);
                }
                self.enter(user, false);
            }
            (Wait::Resume { sent, claim, .. }, _) => self.resumed(user, sent, &claim, &answer),
            (Wait::Answer { sent, op, limit, to }, Some(id)) => {
                self.users[user].task = Some(Task { id: Some(id), wait: Wait::Answer { op, sent, limit, to } });
                let step = self.answer_engine(user, id, (to, sent), answer);
                self.step(user, step);
            }
            _ => {}
        }
    }

    fn answer_engine(
        &mut self,
        user: usize,
        id: WaiterId,
        (to, sent): (Asked, Moment),
        answer: Result<Reply, Unknown>,
    ) -> TaskStep {
        let client = self.client_of(user);
        let counted = if self.mutant == Some(Mutant::LeaseFromAnswer) { self.now } else { sent };
        match (to, answer) {
            (Asked::Claim(_), Ok(Reply::Claim(answer))) => {
                let answer = self.mutant.map_or(answer.clone(), |mutant| mutant.of_claim(answer));
                self.call(client, |engine, cx| engine.claim_answered(id, counted, Ok(answer).into(), cx))
            }
            (Asked::Claim(_), Ok(Reply::NotSent)) => {
                let reply = ClaimReply::not_sent(crate::network::unknown());
                self.call(client, |engine, cx| engine.claim_answered(id, sent, reply, cx))
            }
            (Asked::Inspect, Ok(Reply::Inspect(seen))) => {
                self.call(client, |engine, cx| engine.inspected(id, Ok(seen), cx))
            }
            (Asked::Leave, Ok(Reply::Release(released))) => {
                self.call(client, |engine, cx| engine.left(id, Ok(released), cx))
            }
            (Asked::Claim(_), Err(cause)) => {
                self.call(client, |engine, cx| engine.claim_answered(id, sent, Err(cause).into(), cx))
            }
            (Asked::Inspect, Err(cause)) => self.call(client, |engine, cx| engine.inspected(id, Err(cause), cx)),
            (Asked::Leave, Err(cause)) => self.call(client, |engine, cx| engine.left(id, Err(cause), cx)),
            (to, reply) => unreachable!("{reply:?} to {to:?}"),
        }
    }

    fn resumed(&mut self, user: usize, sent: Moment, claim: &Claim, answer: &Result<Reply, Unknown>) {
        let (client, request) = (self.client_of(user), self.request(user));
        let Ok(Reply::Claim(Acquire::Granted { tokens })) = answer else {
            if matches!(answer, Ok(Reply::Claim(_))) {
                self.users[user].lost = Some((LossReason::Expired, self.now));
            }
            return;
        };
        let lease = Lease::granted(sent, claim.ttl.get(), Drift::default());
        let holder = claim.holder.id;
        let grant = self.call(client, |engine, cx| engine.resume(holder, &request, tokens.last().into(), lease, cx));
        self.cover(Coverage::Resumed);
        self.granted(user, grant);
    }

    /// The engine has granted the key.
    pub(crate) fn granted(&mut self, user: usize, grant: Grant) {
        let client = self.client_of(user);
        let Some((holder, ttl, stray_until)) = self.clients[client].engine.facts(grant.hold) else {
            // It was lost on the way, so the task comes first again.
            return self.enter(user, true);
        };
        let status = self.call(client, |engine, cx| engine.status(grant.hold, grant.tenure, cx));
        let max_hold = self.scenario.users[user].max_hold;
        let ends = max_hold.map_or(Moment::NEVER, |max_hold| grant.tenure.since + max_hold);
        let watch = if let Status::Held(until) = status { until } else { self.now };
        let guard = Guard { grant, holder, ttl: ttl.get(), stray_until, ends, watch };
        if grant.source == Source::Shared && !matches!(status, Status::Held(_)) {
            self.let_go_in_background(client, &guard);
            return self.enter(user, true);
        }
        checks::check_grant(self, user, &grant, holder);
        let inherited = self.ledger.claimed_at_cancel.contains(&holder) && self.users[user].holder.is_none();
        match grant.source {
            Source::Shared => {
                assert_eq!(
                    self.scenario.users[user].lease_sharing,
                    LeaseSharing::Allowed,
                    "a candidate shares no lease"
                );
                self.cover(Coverage::Shared);
            }
            Source::HandedOff => self.cover(Coverage::HandedOff),
            Source::Claimed | Source::Resumed => {}
        }
        if inherited && self.ledger.cancelled && grant.source != Source::Shared {
            self.cover(Coverage::Inherited);
        }
        self.users[user].holder = Some(holder);
        self.users[user].guard = Some(guard);
    }

    /// The wait was given up.
    pub(crate) fn cancel(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(task) = self.users[user].task.take() else { return };
        self.users[user].parked = None;
        self.orphan(client, &task.wait);
        match (task.id, task.wait) {
            (Some(id), _) => {
                if let Some(grant) = self.call(client, |engine, cx| engine.leave(id, cx)) {
                    // Its guard passes it on.
                    self.call(client, |engine, cx| engine.release(grant.hold, grant.tenure, true, cx));
                }
            }
            (None, Wait::IdleRelease { release, .. }) => self.clients[client].take_release(*release, self.now),
            (None, _) => {}
        }
    }

    /// Abandons the answer to the task's request.
    pub(crate) fn orphan(&mut self, client: usize, wait: &Wait) {
        if let Wait::Answer { op, .. } | Wait::IdleRelease { op, .. } | Wait::Resume { op, .. } = wait {
            self.give_up_request(client, *op);
        }
    }

    /// What the answer to a claim implies, if the task still waits for it.
    pub(crate) fn note_claim(&mut self, user: usize, holder: HolderId, sent: Moment, answer: &Acquire) {
        let ttl = self.request(user).ttl.get();
        if self.scenario.users[user].resumes.is_some() {
            self.ledger.certain.retain(|(known, _)| *known != holder);
        }
        match answer {
            Acquire::Granted { .. } if !self.ledger.certain.iter().any(|(known, _)| *known == holder) => {
                self.ledger.certain.push((holder, certain(sent, ttl)));
            }
            Acquire::Queued { hand_off, .. } => {
                let last_fence = hand_off.last_fence;
                self.ledger.backends.retain(|(known, ..)| *known != holder);
                self.ledger.backends.push((holder, sent, last_fence));
                self.ledger.deleted.retain(|(deleted, last)| *deleted != holder || last_fence < *last);
            }
            _ => {}
        }
    }
}

/// When a lease that was asked for at `sent` ends for its holder.
pub(crate) fn certain(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(Drift::default().of(ttl))
}

/// The guard of a writer that becomes that of a reader: what `Guard::downgrade` does.
impl World {
    pub(crate) fn downgrade(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(guard) = self.users[user].guard.clone() else { return };
        let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
        let Some((tenure, renewal)) = self.call(client, |engine, cx| engine.downgrade(hold, tenure, cx)) else {
            // It is over, so the call fails, and its guard is dropped.
            return self.drop_guard(user);
        };
        if let Some(guard) = &mut self.users[user].guard {
            guard.grant.tenure = tenure;
        }
        self.send_downgrade(user, renewal);
    }

    fn send_downgrade(&mut self, user: usize, renewal: fencelock_core::Renewal) {
        let op = self.send(self.client_of(user), Call::Downgrade(renewal.clone()));
        let limit = self.now + RenewalPlan::answer_limit(renewal.ttl.get());
        let wait = DowngradeWait::Answer { op, limit };
        self.users[user].downgrading = Some(GuardDowngrade { renewal, sent: self.now, wait });
    }

    /// The time for the answer is over, or it is time for the next request.
    pub(crate) fn downgrade_due(&mut self, user: usize) -> bool {
        let now = self.now;
        let Some(GuardDowngrade { renewal, wait, .. }) = self.users[user].downgrading.clone() else { return false };
        match wait {
            DowngradeWait::Answer { op, limit } if limit <= now => {
                self.give_up_request(self.client_of(user), op);
                self.downgrade_answered(user, Err(crate::network::unknown()));
            }
            DowngradeWait::Again(at) if at <= now => {
                self.cover(Coverage::DowngradedAgain);
                self.send_downgrade(user, renewal);
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn downgrade_answered(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let client = self.client_of(user);
        let answer = match answer {
            Ok(Reply::Downgrade(answer)) => Ok(answer),
            Ok(reply) => unreachable!("{reply:?} to a downgrade"),
            Err(cause) => Err(cause),
        };
        let (Some(downgrading), Some(guard)) = (self.users[user].downgrading.take(), self.users[user].guard.clone())
        else {
            return;
        };
        let (hold, before, sent) = (guard.grant.hold, guard.grant.tenure, downgrading.sent);
        match self.call(client, |engine, cx| engine.downgrade_answered(hold, before, sent, answer, cx)) {
            Downgrading::Done(tenure) => {
                self.cover(Coverage::Downgraded);
                if tenure.fence <= before.fence {
                    self.break_down(format!("user {user} reads with token {} after {}", tenure.fence, before.fence));
                }
                self.ledger.last_fence = self.ledger.last_fence.max(tenure.fence.get());
                let until = certain(sent, guard.ttl);
                if let Some((_, known)) = self.ledger.certain.iter_mut().find(|(known, _)| *known == guard.holder) {
                    *known = until.max(*known);
                }
                if let Some(guard) = &mut self.users[user].guard {
                    guard.grant.tenure = tenure;
                }
            }
            Downgrading::Again(at) => {
                let wait = DowngradeWait::Again(at);
                self.users[user].downgrading = Some(GuardDowngrade { wait, ..downgrading });
            }
            Downgrading::Over | Downgrading::Refused(_) => {
                self.cover(Coverage::DowngradeLost);
                self.drop_guard(user);
            }
        }
    }

    /// The future is dropped, and its guard with it.
    pub(crate) fn give_up_downgrade(&mut self, user: usize) {
        let Some(downgrading) = self.users[user].downgrading.take() else { return };
        self.cover(Coverage::DowngradeGivenUp);
        if let DowngradeWait::Answer { op, .. } = downgrading.wait {
            self.give_up_request(self.client_of(user), op);
        }
        self.drop_guard(user);
    }

    /// Whether a user that downgrades still counts as a writer, which only a mutant does.
    pub(crate) fn writes_on(&self, user: usize) -> bool {
        self.mutant == Some(Mutant::WritesUntilTheReply) && self.users[user].downgrading.is_some()
    }
}
