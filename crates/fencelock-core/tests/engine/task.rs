//! The task of a user that wants the key: it does what `AcquireKey` says, or resumes a hold.

use crate::checks;
use crate::client::{Engine, TIMEOUT};
use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Reply};
use crate::user::{Guard, GuardDowngrade, Task, TaskKind, Wait};
use crate::world::{Cx, World};
use fencelock_core::engine::{
    AcquireKey, AcquireNext, AcquireRequest, DowngradeNext, FailureReason, Grant, KeyReply, KeyRequest, LeaseSharing,
    Source, Status, Tenure,
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
            place: None,
        }
    }

    pub(crate) fn ask(&mut self, user: usize) {
        self.users[user].turn = u8::try_from(self.users.iter().filter(|other| other.asked).count()).unwrap();
        (self.users[user].asked, self.users[user].arrived) = (true, self.now);
        let task = AcquireKey::new(self.request(user), false);
        self.users[user].task = Some(Task { of: TaskKind::Acquire(task), wait: Wait::Rest(Moment::NEVER) });
        let next = self.call_for(user, AcquireKey::take_idle);
        self.cover_if(matches!(next, Some(AcquireNext::Granted(_))), Coverage::TakenIdle);
        self.follow(user, next.unwrap_or(AcquireNext::Enter));
    }

    /// Calls the engine for a task that acquires. If the task stays there, it can be woken from now on.
    fn call_for<R>(
        &mut self,
        user: usize,
        call: impl FnOnce(&mut AcquireKey, &mut Engine, &mut Cx<'_>) -> Option<R>,
    ) -> Option<R> {
        let (client, waker) = (self.client_of(user), u8::try_from(user).unwrap());
        let mut task = self.users[user].task.take()?;
        let TaskKind::Acquire(acquire) = &mut task.of else {
            self.users[user].task = Some(task);
            return None;
        };
        let result = self.call(client, |engine, cx| {
            let result = call(acquire, engine, cx);
            if let Some(id) = acquire.id() {
                engine.set_task(id, Some(waker));
            }
            result
        });
        self.users[user].task = Some(task);
        result
    }

    fn enter(&mut self, user: usize) -> Option<AcquireNext> {
        let next = self.call_for(user, |acquire, engine, cx| Some(acquire.enter(engine, cx)));
        if self.mutant != Some(Mutant::EntersFirst) {
            return next;
        }
        // A task that has lost its place comes first.
        self.call_for(user, |acquire, engine, cx| {
            acquire.cancel(engine, cx);
            Some(acquire.enter(engine, cx))
        })
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
        let Some(Task { of: TaskKind::Acquire(before), .. }) = self.users[user].task.clone() else { return };
        let Some(next) = self.call_for(user, AcquireKey::woken) else { return };
        if let AcquireNext::Granted(grant) = next {
            let shared = grant.source == Source::Shared;
            let claims = before.is_at_rest() && !before.is_in_queue();
            self.cover_if(shared && claims, Coverage::SharedWhileClaiming);
            self.cover_if(!shared && before.is_in_queue(), Coverage::GrantedToAnother);
        }
        self.cover_if(matches!(next, AcquireNext::Enter), Coverage::TurnLost);
        self.orphan(user);
        self.follow(user, next);
    }

    /// The time until which the task rests has come.
    pub(crate) fn on_time(&mut self, user: usize) {
        let next = self.call_for(user, |acquire, engine, cx| Some(acquire.on_time(engine, cx)));
        if let Some(next) = next {
            self.follow(user, next);
        }
    }

    /// Does what the task says until it has to wait.
    fn follow(&mut self, user: usize, mut next: AcquireNext) {
        loop {
            match next {
                AcquireNext::Enter => {
                    let Some(entered) = self.enter(user) else { return };
                    next = entered;
                }
                AcquireNext::Rest(until) => {
                    self.wait(user, Wait::Rest(until));
                    let yields = |task: &Task| matches!(&task.of, TaskKind::Acquire(acquire) if acquire.sleeps_on());
                    let yields = self.users[user].task.as_ref().is_some_and(yields);
                    return self.cover_if(yields, Coverage::Yielded);
                }
                AcquireNext::Send(request, limit) => return self.send_for(user, request, limit),
                AcquireNext::Granted(grant) => {
                    self.users[user].task = None;
                    checks::check_order_of_permits(self, user);
                    return self.granted(user, grant);
                }
                AcquireNext::Failed(failure) => {
                    let kind = !self.ledger.troubled && !self.ledger.time_passed;
                    if kind && !matches!(failure.reason, FailureReason::Busy(_)) {
                        self.break_down(format!("user {user} was refused: {:?}", failure.reason));
                    }
                    (self.users[user].task, self.users[user].refused) = (None, Some(failure.reason));
                    return self.cover(Coverage::Refused);
                }
                AcquireNext::Closed => {
                    if self.clients[self.client_of(user)].open {
                        self.break_down(format!("user {user} was refused by a client that is open"));
                    }
                    self.users[user].task = None;
                    return self.cover(Coverage::Closed);
                }
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
        let Some(Task { of, wait: Wait::Answer { request, .. } }) = &self.users[user].task else { return };
        let late = self.mutant == Some(Mutant::LeaseFromAnswer);
        let reply = match answer {
            Ok(Reply::Claim(answer)) => {
                let answer = self.mutant.map_or(answer.clone(), |mutant| mutant.of_claim(answer));
                let sent = if late { Sent::At(self.now) } else { Sent::AtOnce };
                KeyReply::Claim(ClaimReply { sent, answer: Ok(answer) })
            }
            Ok(Reply::NotSent) => KeyReply::Claim(ClaimReply::not_sent(crate::network::unknown())),
            Ok(Reply::Inspect(seen)) => KeyReply::Inspect(Ok(seen)),
            Ok(Reply::Release(released)) => KeyReply::Release(Ok(released)),
            Ok(reply) => unreachable!("{reply:?} to {request:?}"),
            Err(cause) => request.unanswered(cause),
        };
        if let TaskKind::Resume(holder, granted) = *of {
            return self.resume_answered(user, holder, granted, reply);
        }
        let next = self.call_for(user, |acquire, engine, cx| Some(acquire.answered(reply, engine, cx)));
        if let Some(next) = next {
            self.follow(user, next);
        }
    }

    /// As `Lock::resume`.
    fn resume_answered(
        &mut self,
        user: usize,
        holder: HolderId,
        granted: Option<(TokenBlock, Lease)>,
        reply: KeyReply,
    ) {
        let mut request = self.request(user);
        match (reply, granted) {
            (KeyReply::Claim(ClaimReply { sent, answer: Ok(answer) }), None) => {
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
                let sent = ClaimReply { sent, answer: Ok(Acquire::Gone) }.sent_at(called).unwrap_or(called);
                let granted = Some((tokens, self.config.lease(sent, request.ttl)));
                if let Some(task) = &mut self.users[user].task {
                    task.of = TaskKind::Resume(holder, granted);
                }
                self.send_for(user, KeyRequest::Inspect, Moment::NEVER);
            }
            (KeyReply::Inspect(Ok(seen)), Some((tokens, lease))) => {
                self.users[user].task = None;
                let mode = seen.map_or(Ok(request.mode), |seen| seen.resumed_mode(holder, request.mode));
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
        self.call_for(user, |acquire, engine, cx| {
            acquire.cancel(engine, cx);
            None::<()>
        });
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
