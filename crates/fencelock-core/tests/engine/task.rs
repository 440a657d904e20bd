//! The task of a user that wants the key: it does what the engine says, or resumes a hold.

use crate::checks;
use crate::client::{Engine, TIMEOUT};
use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Reply};
use crate::user::{Guard, GuardDowngrade, Task, TaskKind, Wait};
use crate::world::{Cx, World};
use fencelock_core::Reply as Answer;
use fencelock_core::engine::{
    AcquireRequest, DowngradeNext, FailureReason, Grant, IdleLease, KeyRequest, LeaseSharing, PendingRelease, Sender,
    Source, Status, TaskStep, Tenure, WaiterId, Worker,
};
use fencelock_core::{
    Acquire, Claim, ClaimReply, Downgrade, Drift, FencingToken, Holder, HolderId, Intent, Lease, LossReason, Moment,
    Owner, RenewalPlan, Sent, TokenBlock, Ttl, Unknown,
};
use std::time::Duration;

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
            ..AcquireRequest::default()
        }
    }

    pub(crate) fn ask(&mut self, user: usize) {
        self.users[user].turn = u8::try_from(self.users.iter().filter(|other| other.asked).count()).unwrap();
        (self.users[user].asked, self.users[user].arrived) = (true, self.now);
        let request = self.request(user);
        match self.call(self.client_of(user), |engine, cx| engine.take_idle(&request, cx)) {
            IdleLease::None => self.enter(user),
            IdleLease::Taken(grant) => {
                self.cover(Coverage::TakenIdle);
                self.follow(user, TaskStep::Granted(grant));
            }
            IdleLease::Release(release) => {
                let holder = release.holder;
                self.users[user].task = Some(Task { of: TaskKind::Clear(release), wait: Wait::Rest(Moment::NEVER) });
                self.send_for(user, KeyRequest::Release(holder), Moment::NEVER);
            }
        }
    }

    /// Calls the engine for a task that acquires. If the task stays there, it can be woken from now on.
    pub(crate) fn call_for<R>(
        &mut self,
        user: usize,
        call: impl FnOnce(&mut Engine, WaiterId, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let (client, waker) = (self.client_of(user), u8::try_from(user).unwrap());
        let Some(Task { of: TaskKind::Acquire(id), .. }) = self.users[user].task else { return None };
        Some(self.call(client, |engine, cx| {
            let result = call(engine, id, cx);
            engine.task_mut(id).into_iter().for_each(|task| *task = Some(waker));
            result
        }))
    }

    fn enter(&mut self, user: usize) {
        let client = self.client_of(user);
        self.enter_last(user);
        if self.mutant == Some(Mutant::EntersFirst) {
            // The others come after it.
            let others = (0..self.users.len()).filter(|other| *other != user && self.client_of(*other) == client);
            for other in others.filter(|other| self.users[*other].rests()).collect::<Vec<_>>() {
                self.call_for(other, Engine::leave);
                self.enter_last(other);
            }
        }
    }

    fn enter_last(&mut self, user: usize) {
        let (request, client) = (self.request(user), self.client_of(user));
        let (id, step) = self.call(client, |engine, cx| engine.enter(&request, cx));
        self.users[user].task = Some(Task { of: TaskKind::Acquire(id), wait: Wait::Rest(Moment::NEVER) });
        self.call_for(user, |_, _, _| ());
        self.follow(user, step);
    }

    /// Sends the claim that proves a hold that another user has detached.
    pub(crate) fn resume(&mut self, user: usize, holder: HolderId) {
        (self.users[user].asked, self.users[user].arrived) = (true, self.now);
        self.users[user].task = Some(Task { of: TaskKind::Resume(holder, None), wait: Wait::Rest(Moment::NEVER) });
        let AcquireRequest { mode, owner, ttl, .. } = self.request(user);
        let proof = Holder { id: holder, owner };
        let claim = Claim::new(crate::network::key().clone(), proof, ttl, Intent::Poll).with_mode(mode);
        self.send_for(user, KeyRequest::Claim(Box::new(claim)), Moment::NEVER);
    }

    /// The task was woken, or is polled for another reason.
    pub(crate) fn run_task(&mut self, user: usize) {
        self.users[user].woken = false;
        let Some(Some(step)) = self.call_for(user, Engine::woken) else { return };
        self.next(user, step);
    }

    /// The task does something else than what it waited for.
    pub(crate) fn next(&mut self, user: usize, step: TaskStep) {
        if let TaskStep::Granted(grant) = step
            && let Some(Task { wait: Wait::Rest(until), .. }) = self.users[user].task
        {
            let shared = grant.source == Source::Shared;
            // These users wait without a limit.
            let claims = until != Moment::NEVER;
            self.cover_if(shared && claims, Coverage::SharedWhileClaiming);
            self.cover_if(!shared && !claims, Coverage::GrantedToAnother);
        }
        self.orphan(user);
        self.follow(user, step);
    }

    /// The time until which the task rests has come.
    pub(crate) fn on_time(&mut self, user: usize) {
        if let Some(step) = self.call_for(user, Engine::on_time) {
            self.follow(user, step);
        }
    }

    /// Does what the task says.
    fn follow(&mut self, user: usize, step: TaskStep) {
        match step {
            TaskStep::Rest(until) => {
                let (plan, client) = (&self.scenario.users[user], &self.clients[self.client_of(user)]);
                let times = until != Moment::NEVER && plan.wait.is_none() && plan.retry.is_none();
                let yields = times && client.claims == 0;
                self.wait(user, Wait::Rest(until));
                self.cover_if(yields, Coverage::Yielded);
            }
            TaskStep::Send(request, limit) => self.send_for(user, request, limit),
            TaskStep::Granted(grant) => {
                self.users[user].task = None;
                checks::check_order_of_permits(self, user);
                self.granted(user, grant);
            }
            TaskStep::Failed(failure) => {
                let kind = !self.ledger.troubled && !self.ledger.time_passed;
                if kind && !matches!(failure.reason, FailureReason::Busy(_)) {
                    self.break_down(format!("user {user} was refused: {:?}", failure.reason));
                }
                (self.users[user].task, self.users[user].refused) = (None, Some(failure.reason));
                self.cover(Coverage::Refused);
            }
            TaskStep::Closed => {
                if self.clients[self.client_of(user)].open {
                    self.break_down(format!("user {user} was refused by a client that is open"));
                }
                self.users[user].task = None;
                self.cover(Coverage::Closed);
            }
        }
    }

    fn wait(&mut self, user: usize, wait: Wait) {
        if let Some(task) = &mut self.users[user].task {
            task.wait = wait;
        }
    }

    fn send_for(&mut self, user: usize, request: KeyRequest, limit: Moment) {
        let call = match &request {
            KeyRequest::Claim(claim) => Call::Claim((**claim).clone()),
            KeyRequest::Inspect => Call::Inspect,
            KeyRequest::Release(holder) => Call::Release(*holder),
        };
        let op = self.send(self.client_of(user), call);
        // The client library has a limit of its own.
        self.wait(user, Wait::Answer { op, limit: limit.min(self.now + TIMEOUT), request });
    }

    /// An answer for the task.
    pub(crate) fn answered(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let Some(Task { of, wait: Wait::Answer { .. } }) = &self.users[user].task else { return };
        let late = self.mutant == Some(Mutant::LeaseFromAnswer);
        let reply: Answer = match answer {
            Ok(Reply::Claim(answer)) => {
                let answer = self.mutant.map_or(answer.clone(), |mutant| mutant.of_claim(answer));
                let sent = if late { Sent::At(self.now) } else { Sent::AtOnce };
                ClaimReply { sent, answer: Ok(answer) }.into()
            }
            Ok(Reply::NotSent) => ClaimReply::not_sent(crate::network::unknown()).into(),
            Ok(Reply::Inspect(seen)) => seen.into(),
            Ok(Reply::Release(released)) => released.into(),
            Ok(reply) => unreachable!("{reply:?} to a task"),
            Err(cause) => cause.into(),
        };
        match of.clone() {
            TaskKind::Resume(holder, granted) => self.resume_answered(user, holder, granted, reply),
            TaskKind::Clear(release) => {
                // As `IdleRelease`.
                if !matches!(reply, Answer::Release(_)) || self.now < release.stray_until {
                    self.release_later(user, *release);
                }
                self.enter(user);
            }
            TaskKind::Acquire(_) => {
                if let Some(step) = self.call_for(user, |engine, id, cx| engine.answered(id, reply, cx)) {
                    self.follow(user, step);
                }
            }
        }
    }

    fn release_later(&mut self, user: usize, release: PendingRelease) {
        let client = self.client_of(user);
        assert_eq!(self.clients[client].releases.push(release, self.now), Sender::InCharge(Worker::TASK));
    }

    /// As `Lock::resume`.
    fn resume_answered(&mut self, user: usize, holder: HolderId, granted: Option<(TokenBlock, Lease)>, reply: Answer) {
        let mut request = self.request(user);
        match (reply, granted) {
            (Answer::Claim(ClaimReply { sent, answer: Ok(answer) }), None) => {
                let tokens = match answer {
                    Acquire::Granted { tokens } => tokens.last().into(),
                    Acquire::Gone | Acquire::Queued { .. } | Acquire::Busy(_)
                        if self.mutant == Some(Mutant::ResumesTheLost) =>
                    {
                        FencingToken::new(self.ledger.last_fence).unwrap().into()
                    }
                    Acquire::Conflict(_) => return self.users[user].task = None,
                    _ => return self.not_resumed(user),
                };
                let called = self.users[user].arrived;
                let sent = ClaimReply { sent, answer: Ok(Acquire::Gone) }.sent_at(called, self.now);
                let granted = Some((tokens, self.config.lease(sent, request.ttl)));
                if let Some(task) = &mut self.users[user].task {
                    task.of = TaskKind::Resume(holder, granted);
                }
                self.send_for(user, KeyRequest::Inspect, Moment::NEVER);
            }
            (Answer::Inspect(seen), Some((tokens, lease))) => {
                self.users[user].task = None;
                let mode = (*seen).map_or(Ok(request.mode), |seen| seen.resumed_mode(holder, request.mode));
                let Ok(mode) = mode else { return };
                request.mode = mode;
                self.cover(Coverage::Resumed);
                match self.call(self.client_of(user), |engine, cx| engine.resume(holder, &request, tokens, lease, cx)) {
                    Some(grant) => self.granted(user, grant),
                    None => self.users[user].lost = Some((LossReason::Expired, self.now)),
                }
            }
            _ => self.users[user].task = None,
        }
    }

    fn not_resumed(&mut self, user: usize) {
        self.cover(Coverage::NotResumed);
        self.users[user].task = None;
        self.users[user].lost = Some((LossReason::Expired, self.now));
    }

    /// The engine has granted the key.
    fn granted(&mut self, user: usize, grant: Grant) {
        let client = self.client_of(user);
        let Some((holder, ttl, stray_until)) = self.clients[client].engine.facts(grant.hold) else {
            return self.break_down(format!("user {user} was granted a hold that has ended"));
        };
        let status = self.call(client, |engine, cx| engine.status(grant.hold, grant.tenure, cx));
        let max_hold = self.scenario.users[user].max_hold;
        let ends = max_hold.map_or(Moment::NEVER, |max_hold| grant.tenure.since + max_hold);
        let watch = if let Status::Held(until) = status { until } else { self.now };
        let guard = Guard { grant, holder, ttl: ttl.get(), stray_until, ends, watch };
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
        if !self.clients[client].open && grant.source != Source::Resumed {
            self.break_down(format!("user {user} was granted the key by a client that is closed"));
        }
        self.users[user].holder = Some(holder);
        self.users[user].guard = Some(guard);
    }

    /// The wait was given up.
    pub(crate) fn cancel(&mut self, user: usize) {
        self.users[user].parked = None;
        self.orphan(user);
        if let Some(Task { of: TaskKind::Clear(release), .. }) = self.users[user].task.clone() {
            self.release_later(user, *release);
        }
        self.call_for(user, Engine::leave);
        self.users[user].task = None;
    }

    /// Abandons the answer to the task's request.
    fn orphan(&mut self, user: usize) {
        if let Some(Task { wait: Wait::Answer { op, .. }, .. }) = self.users[user].task {
            self.give_up_request(self.client_of(user), op);
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

/// The guard of a writer that becomes that of a reader, as `Guard::downgrade`.
impl World {
    pub(crate) fn downgrade(&mut self, user: usize) {
        let Some(Guard { grant: Grant { hold, tenure, .. }, .. }) = self.users[user].guard else { return };
        let client = self.client_of(user);
        let Some((tenure, renewal)) = self.call(client, |engine, cx| engine.downgrade(hold, tenure, cx)) else {
            // It is over, so the call fails, and its guard is dropped.
            return self.drop_guard(user);
        };
        if let Some(guard) = &mut self.users[user].guard {
            guard.grant.tenure = tenure;
        }
        self.send_downgrade(user, GuardDowngrade { hold, tenure, renewal, request: None, due: self.now });
    }

    fn send_downgrade(&mut self, user: usize, of: GuardDowngrade) {
        let op = self.send(self.client_of(user), Call::Downgrade(of.renewal.clone()));
        let due = self.now + RenewalPlan::answer_limit(of.renewal.ttl.get());
        self.users[user].downgrading = Some(GuardDowngrade { request: Some((op, self.now)), due, ..of });
    }

    /// The time for the answer is over, or it is time for the next request.
    pub(crate) fn downgrade_due(&mut self, user: usize) -> bool {
        let Some(of) = self.users[user].downgrading.take_if(|of| of.due <= self.now) else { return false };
        if let Some((op, sent)) = of.request {
            self.give_up_request(self.client_of(user), op);
            self.follow_downgrade(user, of, sent, Err(crate::network::unknown()));
        } else {
            self.cover(Coverage::DowngradedAgain);
            self.send_downgrade(user, of);
        }
        true
    }

    pub(crate) fn downgrade_answered(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let answer = match answer {
            Ok(Reply::Downgrade(answer)) => Ok(answer),
            Ok(reply) => unreachable!("{reply:?} to a downgrade"),
            Err(cause) => Err(cause),
        };
        if let Some(of) = self.users[user].downgrading.take()
            && let Some((_, sent)) = of.request
        {
            self.follow_downgrade(user, of, sent, answer);
        }
    }

    /// The request that was sent at `sent` was answered.
    fn follow_downgrade(&mut self, user: usize, of: GuardDowngrade, sent: Moment, answer: Result<Downgrade, Unknown>) {
        let next = self
            .call(self.client_of(user), |engine, cx| engine.downgrade_answered(of.hold, of.tenure, sent, answer, cx));
        match next {
            DowngradeNext::Rest(due) => {
                self.users[user].downgrading = Some(GuardDowngrade { request: None, due, ..of });
            }
            DowngradeNext::Done(tenure) => self.downgraded(user, tenure, sent),
            DowngradeNext::Over | DowngradeNext::Refused(_) => {
                self.cover(Coverage::DowngradeLost);
                self.drop_guard(user);
            }
        }
    }

    fn downgraded(&mut self, user: usize, tenure: Tenure, sent: Moment) {
        self.cover(Coverage::Downgraded);
        let Some(guard) = &mut self.users[user].guard else { return };
        let before = std::mem::replace(&mut guard.grant.tenure, tenure);
        let (holder, until) = (guard.holder, certain(sent, guard.ttl));
        if tenure.fence <= before.fence {
            self.break_down(format!("user {user} reads with token {} after {}", tenure.fence, before.fence));
        }
        self.ledger.last_fence = self.ledger.last_fence.max(tenure.fence.get());
        if let Some((_, known)) = self.ledger.certain.iter_mut().find(|(known, _)| *known == holder) {
            *known = until.max(*known);
        }
    }

    /// The future is dropped, and its guard with it.
    pub(crate) fn give_up_downgrade(&mut self, user: usize) {
        let Some(downgrading) = self.users[user].downgrading.take() else { return };
        self.cover(Coverage::DowngradeGivenUp);
        if let Some((op, _)) = downgrading.request {
            self.give_up_request(self.client_of(user), op);
        }
        self.drop_guard(user);
    }

    /// Whether a user that downgrades still counts as a writer, which only a mutant does.
    pub(crate) fn writes_on(&self, user: usize) -> bool {
        self.mutant == Some(Mutant::WritesUntilTheReply) && self.users[user].downgrading.is_some()
    }
}
