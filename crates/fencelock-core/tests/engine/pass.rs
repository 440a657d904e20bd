//! Packets arrive, timers fire, tasks run.

use crate::checks;
use crate::client::{Client, Engine, Releasing, Renewing, TIMEOUT};
use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Load, Op, Packet, Reply, unknown};
use crate::parking::Parked;
use crate::task::certain;
use crate::user::{Ended, Guard, GuardRelease, Task, Wait};
use crate::world::{Act, World};
use fencelock_core::engine::{
    HoldId, KeyRequest, ReleaseHold, ReleaseNext, ReleaseOutcome, Released, RenewalBatch, RenewalPass, Sender, Status,
    TaskStep, Worker,
};
use fencelock_core::{Fault, HolderId, LossReason, Moment, Renew, Unknown};

impl World {
    /// Carries a request out, or brings an answer or a message to its client.
    pub(crate) fn deliver(&mut self, index: usize) {
        let Packet { client, sent, load } = self.packets.remove(index);
        match load {
            Load::Request { op, call, .. } => {
                let waited_for = self.waits_for(client, op);
                self.cover_if(!waited_for, Coverage::Straggler);
                let done = self.server.carry_out(client, self.now, &call, self.mutant);
                self.packets.push(Packet { client, sent, load: Load::Answer { op, reply: done.reply } });
                self.send_events(done.events, Some(client));
                if done.changed {
                    for client in 0..self.clients.len() {
                        let client = u8::try_from(client).unwrap();
                        self.packets.push(Packet { client, sent: self.now, load: Load::Changed });
                    }
                }
            }
            Load::Answer { op, reply } => self.answer(client.into(), op, sent, Ok(reply)),
            Load::HandOff { holder, tokens, claim_ttl } => {
                let client = usize::from(client);
                let backend = self.ledger.backends.iter().find(|(known, ..)| *known == holder);
                let stale = backend.is_some_and(|(.., last)| tokens.first().get() <= *last);
                let counted = backend.map_or(self.now, |(_, sent, _)| *sent);
                let ttl = match self.mutant {
                    Some(Mutant::MessageIsOwnership) => self.scenario.ttl * 100,
                    Some(Mutant::CountsFromReceipt) => claim_ttl + self.now.since(counted),
                    Some(Mutant::CountsFromLastSent) => claim_ttl + self.last_claim(holder).since(counted),
                    _ => claim_ttl,
                };
                let waits = self.call(client, |engine, cx| engine.on_hand_off(holder, tokens, ttl, cx));
                self.cover_if(waits && stale, Coverage::StaleHandOff);
                if !waits {
                    self.undelivered(client, holder);
                }
            }
            Load::Changed => self.call(client.into(), Engine::on_changed),
            Load::Queued => {
                let keeps = self.clients[usize::from(client)].engine.idle_holder().is_some();
                self.cover_if(keeps, Coverage::Announced);
                self.call(client.into(), Engine::on_queued);
            }
        }
    }

    /// If it was handed to a claim that was given up, it is handed on at once.
    fn undelivered(&mut self, client: usize, holder: HolderId) {
        let Client { releases, undelivered, .. } = &mut self.clients[client];
        let is_ours = if self.mutant == Some(Mutant::KeepsWhatNobodyWants) {
            releases.abandoned().any(|abandoned| *abandoned == holder)
        } else {
            releases.undelivered(crate::network::key(), holder, self.now) != Sender::Nobody
        };
        if is_ours {
            undelivered.push(holder);
            self.cover(Coverage::HandedToNobody);
        }
    }

    /// A lost message leaves no trace; a lost request or answer gives an unknown result.
    pub(crate) fn lose(&mut self, index: usize) {
        let Packet { client, sent, load } = self.packets.remove(index);
        if let Load::Request { op, .. } | Load::Answer { op, .. } = load {
            self.answer(client.into(), op, sent, Err(unknown()));
        }
    }

    /// The sender gets an error immediately, and the request arrives later.
    pub(crate) fn break_connection(&mut self, index: usize) {
        let Packet { client, sent, ref load } = self.packets[index];
        let Load::Request { op, .. } = *load else { return };
        self.give_up_request(client.into(), op);
        self.answer(client.into(), op, sent, Err(unknown()));
    }

    /// The sender learns that its claim was not sent.
    pub(crate) fn deny(&mut self, index: usize) {
        let Packet { client, sent, ref load } = self.packets[index];
        let Load::Request { op, .. } = *load else { return };
        if self.mutant == Some(Mutant::DeniesItsClaim) {
            self.give_up_request(client.into(), op);
        } else {
            self.packets.remove(index);
        }
        self.cover(Coverage::NotSent);
        self.answer(client.into(), op, sent, Ok(Reply::NotSent));
    }

    /// As `Driver::reset`.
    pub(crate) fn reset(&mut self, client: usize) {
        let after = self.clients[client].timers.after_reset(self.seed);
        self.call(client, |engine, cx| engine.on_reset(after, cx));
    }

    /// Events are lost, and the server announces nothing to the new connection before it is asked.
    pub(crate) fn reconnect(&mut self, client: usize) {
        self.cover(Coverage::Reconnected);
        let is_event = |load: &Load| matches!(load, Load::HandOff { .. } | Load::Changed | Load::Queued);
        self.packets.retain(|packet| usize::from(packet.client) != client || !is_event(&packet.load));
        self.server.announces_to.retain(|other| usize::from(*other) != client);
        if self.mutant != Some(Mutant::IgnoresReset) {
            self.reset(client);
        }
    }

    /// As `Driver::close`.
    pub(crate) fn close(&mut self, client: usize) {
        self.cover_if(self.clients[client].engine.idle_holder().is_some(), Coverage::ClosedIdle);
        self.clients[client].open = false;
        if self.mutant != Some(Mutant::ClosesQuietly) {
            self.call(client, Engine::close);
        }
    }

    /// Whether the client waits in the background for the answer to this release.
    pub(crate) fn releases(&self, client: u8, op: Op) -> bool {
        self.clients[usize::from(client)].releasing.iter().any(|releasing| releasing.op == op)
    }

    /// The release is not carried out.
    pub(crate) fn refuse(&mut self, index: usize) {
        let Packet { client, sent, load } = self.packets.remove(index);
        let Load::Request { op, .. } = load else { return };
        let refused = |one: &&Releasing| one.op == op;
        let is_hold =
            self.clients[usize::from(client)].releasing.iter().find(refused).is_some_and(|one| one.release.is_hold);
        // What an attempt has left behind ends by itself.
        self.ledger.troubled |= !is_hold;
        self.answer(client.into(), op, sent, Err(Unknown::new("", Fault::Denied, "")));
    }

    /// What is there arrives, and once more later.
    pub(crate) fn duplicate(&mut self, index: usize) {
        self.cover(Coverage::Duplicated);
        let copy = self.packets[index].clone();
        self.deliver(index);
        self.packets.push(copy);
    }

    /// Delivers an answer, if a task still waits for it.
    pub(crate) fn answer(&mut self, client: usize, op: Op, sent: Moment, answer: Result<Reply, Unknown>) {
        for user in 0..self.users.len() {
            if self.client_of(user) != client {
                continue;
            }
            match self.users[user].task.as_ref().map(|task| &task.wait) {
                Some(Wait::Answer { op: this, .. }) if *this == op => {
                    if self.users[user].parked.is_some() {
                        return self.keep_unread(user, op, sent, answer);
                    }
                    if let (Ok(Reply::Claim(claim)), Some(holder)) = (&answer, self.users[user].claimant()) {
                        self.note_claim(user, holder, sent, claim);
                    }
                    return self.answered(user, answer);
                }
                _ => {}
            }
            if self.users[user].releasing.as_ref().is_some_and(|releasing| releasing.op == op) {
                return self.guard_released(user, answer);
            }
            let downgrade = self.users[user].downgrading.as_ref().and_then(|downgrading| downgrading.request);
            if downgrade.is_some_and(|(this, _)| this == op) {
                return self.downgrade_answered(user, answer);
            }
        }
        let this = &mut self.clients[client];
        if let Some(at) = this.renewals.iter().position(|renewing| renewing.op == op) {
            let renewing = this.renewals.remove(at);
            self.renewed(client, renewing.batch, answer);
        } else if let Some(at) = this.releasing.iter().position(|releasing| releasing.op == op) {
            let releasing = this.releasing.remove(at);
            self.released_in_background(client, &releasing, &answer);
        }
    }

    fn renewed(&mut self, client: usize, batch: RenewalBatch<()>, answer: Result<Reply, Unknown>) {
        let reply = match answer {
            Ok(Reply::Renew(renewed)) => Some(renewed.into_iter().map(Ok).collect()),
            _ => None,
        };
        let (sent, holders) = (batch.sent(), batch.renewals.iter().map(|renewal| renewal.holder).collect::<Vec<_>>());
        for (holder, ((), hold, answer)) in holders.into_iter().zip(batch.answers(reply, "")) {
            self.hold_renewed(client, (hold, holder), sent, answer);
        }
    }

    fn hold_renewed(
        &mut self,
        client: usize,
        (hold, holder): (HoldId, HolderId),
        sent: Moment,
        answer: Result<Renew, Unknown>,
    ) {
        checks::cover_renewal(self, holder);
        if let Ok(Renew::Renewed { .. }) = answer {
            self.confirm(holder, sent);
        }
        if self.mutant == Some(Mutant::LossOverwrites)
            && let Ok(Renew::Absent) = answer
            && let Some(user) = self.users.iter_mut().find(|user| user.holder == Some(holder) && user.let_go)
        {
            user.lost = Some((LossReason::Deleted, self.now));
        }
        let sent = if self.mutant == Some(Mutant::LeaseFromAnswer) { self.now } else { sent };
        let announced = self.scenario.announces_waiters;
        self.call(client, |engine, cx| engine.renewal_answered(hold, sent, answer, announced, cx));
    }

    /// A renewal was confirmed to its holder, in time or too late to count.
    fn confirm(&mut self, holder: HolderId, sent: Moment) {
        let mut guards = self.users.iter().filter_map(|user| user.guard.as_ref());
        let ttl = guards.find(|guard| guard.holder == holder).map_or(self.scenario.ttl, |guard| guard.ttl);
        let now = self.now;
        let known = self.ledger.certain.iter_mut().find(|(known, _)| *known == holder);
        if let Some((_, until)) = known.filter(|(_, until)| now < *until) {
            *until = certain(sent, ttl).max(*until);
        }
    }

    fn guard_released(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let Some(GuardRelease { mut release, guard, .. }) = self.users[user].releasing.take() else { return };
        let answer = match answer {
            Ok(Reply::Release(answer)) => Ok(answer),
            Ok(reply) => unreachable!("{reply:?} to a release"),
            Err(cause) => Err(cause),
        };
        let next = release.answered(Some(answer), guard.stray_until, "", self.now);
        self.follow_release(user, release, guard, next);
    }

    /// As `Guard::release`.
    pub(crate) fn follow_release(&mut self, user: usize, release: ReleaseHold, guard: Guard, next: ReleaseNext) {
        let client = self.client_of(user);
        match next {
            ReleaseNext::Send(limit) => {
                let op = self.send(client, Call::Release(guard.holder));
                let limit = limit.min(self.now + TIMEOUT);
                self.users[user].releasing = Some(GuardRelease { op, limit, release, guard });
            }
            ReleaseNext::Done { released, rest } => {
                if rest {
                    self.let_go_in_background(user, &guard);
                }
                let ended = match released {
                    Ok(Released::Released) => Ended::Released,
                    Ok(Released::AlreadyLost { why }) => Ended::AlreadyLost(why),
                    Err(_) => Ended::Unknown,
                };
                self.cover(if ended == Ended::Released { Coverage::Released } else { Coverage::AlreadyLost });
                self.users[user].ended = Some(ended);
            }
        }
    }

    fn released_in_background(&mut self, client: usize, releasing: &Releasing, answer: &Result<Reply, Unknown>) {
        let answer = match answer {
            Ok(Reply::Release(answer)) => Ok(answer.clone()),
            Ok(reply) => unreachable!("{reply:?} to a release"),
            Err(cause) => Err(cause.clone()),
        };
        let mut outcome = ReleaseOutcome::of(&releasing.release, releasing.sent, &answer, self.now);
        let is_refused = matches!(&answer, Err(cause) if cause.is_permanent());
        self.cover_if(outcome == ReleaseOutcome::GivenUp, Coverage::GivenUp);
        self.cover_if(is_refused && outcome == ReleaseOutcome::Failed, Coverage::RefusedRelease);
        if self.mutant == Some(Mutant::GivesUpHolds) && is_refused {
            outcome = ReleaseOutcome::GivenUp;
        }
        if self.mutant == Some(Mutant::NoSecondRelease) && answer.is_ok() {
            outcome = ReleaseOutcome::Confirmed(Moment::NEVER);
        }
        let number = fastrand::Rng::with_seed(self.now.as_micros() ^ self.seed).u64(..);
        self.clients[client].releases.answered(releasing.number, outcome, self.now, number);
    }

    /// Every task does what it can at this moment, and every timer that is due fires.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..200 {
            let ran = self.run_woken();
            let (mut fired, mut sent) = (false, false);
            for client in 0..self.clients.len() {
                fired |= self.fire(client);
            }
            for client in 0..self.clients.len() {
                sent |= self.send_releases(client);
            }
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if !ran && !fired && !sent {
                return checks::after_act(self);
            }
        }
        Err("the client does not come to rest".into())
    }

    fn run_woken(&mut self) -> bool {
        let mut ran = false;
        for user in 0..self.users.len() {
            let parked = self.users[user].parked.is_some();
            if self.users[user].woken && !parked && !self.clients[self.client_of(user)].stopped {
                self.run_task(user);
                ran = true;
            }
        }
        ran
    }

    fn send_releases(&mut self, client: usize) -> bool {
        if self.clients[client].stopped {
            return false;
        }
        let (batch, _) = self.clients[client].releases.next(Worker::TASK, self.now).unwrap_or_default();
        let any = !batch.is_empty();
        for (number, release) in batch {
            self.cover_if(self.server.freed.contains(&release.holder) || !release.is_hold, Coverage::SecondRelease);
            let (op, sent) = (self.send(client, Call::Release(release.holder)), self.now);
            let limit = sent + TIMEOUT;
            self.clients[client].releasing.push(Releasing { op, number, release, sent, limit });
        }
        any
    }

    /// What is due in a client.
    fn fire(&mut self, client: usize) -> bool {
        if self.clients[client].stopped {
            return false;
        }
        let kept = self.clients[client].engine.idle_holder();
        let mut fired = self.fire_holds(client);
        self.cover_if(kept.is_some() && self.clients[client].engine.idle_holder().is_none(), Coverage::IdleTimeout);
        for user in 0..self.users.len() {
            if self.client_of(user) == client {
                fired |= self.fire_user(user);
            }
        }
        let now = self.now;
        let this = &mut self.clients[client];
        let late: Vec<_> = this.renewals.iter().filter(|renewing| renewing.limit <= now).map(|one| one.op).collect();
        let late_releases = this.releasing.iter().filter(|releasing| releasing.limit <= now).map(|one| one.op);
        let late: Vec<_> = late.into_iter().chain(late_releases).collect();
        for op in &late {
            self.give_up_request(client, *op);
            self.answer(client, *op, now, Err(unknown()));
        }
        fired || !late.is_empty()
    }

    /// As the task that renews leases.
    pub(crate) fn fire_holds(&mut self, client: usize) -> bool {
        if !self.clients[client].timers.iter().any(|(moment, ..)| *moment <= self.now) {
            return false;
        }
        let mut pass = RenewalPass::new(self.now);
        while let Some(before) = pass.round() {
            for (at, (), hold) in self.clients[client].timers.take_before(before) {
                let firing = pass.firing(at);
                let duty = self.call(client, |engine, cx| engine.hold_due(hold, firing, cx));
                pass.add((), hold, duty);
            }
        }
        for mut batch in pass.batches(|_| 0) {
            let limit = self.now + batch.send(self.now);
            let op = self.send(client, Call::Renew(batch.renewals.clone()));
            self.clients[client].renewals.push(Renewing { op, batch, limit });
        }
        true
    }

    fn fire_user(&mut self, user: usize) -> bool {
        let (client, now) = (self.client_of(user), self.now);
        if self.users[user].next_timer().is_none_or(|next| next > now) {
            return false;
        }
        if let Some(releasing) = self.users[user].releasing.as_ref().filter(|releasing| releasing.limit <= now) {
            let op = releasing.op;
            self.give_up_request(client, op);
            self.answer(client, op, now, Err(unknown()));
            return true;
        }
        if self.downgrade_due(user) {
            return true;
        }
        if let Some(guard) = self.users[user].guard.as_ref().filter(|guard| guard.watch <= now) {
            let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
            let status = self.call(client, |engine, cx| engine.status(hold, tenure, cx));
            if let Some(guard) = &mut self.users[user].guard {
                guard.watch = if let Status::Held(until) = status { until } else { Moment::NEVER };
            }
            return true;
        }
        match self.users[user].task.as_ref().map(|task| &task.wait) {
            Some(Wait::Rest(_)) => self.on_time(user),
            Some(Wait::Answer { op, .. }) => {
                let op = *op;
                self.give_up_request(client, op);
                self.answer(client, op, now, Err(unknown()));
            }
            None => return false,
        }
        true
    }

    /// The choice of an act: the acts in order, then the same without letting any task run afterwards.
    pub(crate) fn choices(&self, acts: &[Act]) -> usize {
        if self.left.haste > 0 { acts.len() * 2 } else { acts.len() }
    }

    pub(crate) fn take(&mut self, acts: &[Act], choice: usize) -> Result<(), String> {
        self.act(acts[choice % acts.len()])?;
        if choice < acts.len() {
            return self.settle();
        }
        self.left.haste -= 1;
        Ok(())
    }
}

/// Futures that are neither polled nor dropped for a while.
impl World {
    /// Its request is not sent yet.
    pub(crate) fn unsent(&self, user: usize) -> Option<usize> {
        let Some(Task { wait: Wait::Answer { op, request: KeyRequest::Claim(_), .. }, .. }) = &self.users[user].task
        else {
            return None;
        };
        let is_it = |packet: &Packet| matches!(packet.load, Load::Request { op: this, .. } if this == *op);
        let client = self.client_of(user);
        self.packets.iter().position(|packet| usize::from(packet.client) == client && is_it(packet))
    }

    pub(crate) fn park(&mut self, user: usize, unsent: Option<usize>) {
        self.left.parks -= 1;
        let unsent = unsent.map(|index| self.packets.remove(index));
        self.users[user].parked = Some(Parked { unsent, unread: None });
    }

    /// The reply waits until the task runs.
    pub(crate) fn keep_unread(&mut self, user: usize, op: Op, sent: Moment, answer: Result<Reply, Unknown>) {
        if let Some(parked) = &mut self.users[user].parked {
            parked.unread = Some((op, sent, answer));
        }
    }

    /// It is polled again.
    pub(crate) fn unpark(&mut self, user: usize) {
        let Some(Parked { unsent, unread }) = self.users[user].parked.take() else { return };
        let granted = self.users[user].woken && self.users[user].rests();
        self.users[user].woken = false;
        let step = self.call_for(user, Engine::woken).flatten();
        if let Some(Packet { client, sent, load: Load::Request { op, call, .. } }) = unsent
            && (step.is_none() || self.mutant == Some(Mutant::SendsAfterTurnLost))
        {
            let load = Load::Request { op, by: self.arrival(), call };
            self.packets.push(Packet { client, sent, load });
        }
        if let Some(step) = step {
            // Only a task that has lost its turn has another step than the reply to its claim, or than its grant.
            let claims = self.users[user].claimant().is_some();
            let granted = granted && !matches!(step, TaskStep::Granted(_));
            self.cover_if(claims || granted, Coverage::TurnLost);
            return self.next(user, step);
        }
        if let Some((op, sent, answer)) = unread {
            self.answer(self.client_of(user), op, sent, answer);
        }
    }
}
