//! Packets arrive, timers fire, tasks run.

use crate::checks;
use crate::client::{Engine, Releasing, Renewing, TIMEOUT};
use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Load, Op, Packet, Reply, unknown};
use crate::parking::Parked;
use crate::task::certain;
use crate::user::{Asked, DowngradeWait, Ended, Task, Wait};
use crate::world::{Act, World};
use fencelock_core::engine::{Duty, End, PendingRelease, ReleaseOutcome, STRAGGLER, Status, TaskStep};
use fencelock_core::{LossReason, Moment, Renew, Renewal, RenewalPlan, Unknown};
use std::time::Duration;

/// A batch of renewals takes along those that are due this soon.
const TOGETHER: Duration = Duration::from_millis(25);
/// A release is sent this often before it is left to the background.
const RELEASE_TRIES: u8 = 3;

impl World {
    /// Carries a request out, or brings an answer or a message to its client.
    pub(crate) fn deliver(&mut self, index: usize) {
        let Packet { client, sent, load } = self.packets.remove(index);
        match load {
            Load::Request { op, call, .. } => {
                let waited_for = self.waits_for(client, op);
                self.cover_if(!waited_for, Coverage::Straggler);
                let done = self.server.carry_out(client, self.now, &call, self.mutant);
                if let Some(reply) = done.reply {
                    self.packets.push(Packet { client, sent, load: Load::Answer { op, reply } });
                }
                if let Some(call) = done.again {
                    self.packets.push(Packet { client, sent, load: Load::Request { op, by: self.arrival(), call } });
                }
                self.send_messages(done.messages);
                for client in done.announced_to {
                    self.packets.push(Packet { client, sent: self.now, load: Load::Queued });
                }
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
                if !waits && self.clients[client].abandoned.contains(&holder) {
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

    /// As the reaper: it is handed on at once.
    fn undelivered(&mut self, client: usize, holder: fencelock_core::HolderId) {
        self.cover(Coverage::HandedToNobody);
        self.clients[client].undelivered.push(holder);
        if self.mutant == Some(Mutant::KeepsWhatNobodyWants) {
            return;
        }
        let (key, until) = (crate::network::key().clone(), self.now + STRAGGLER);
        let release = PendingRelease { key, holder, until, stray_until: Moment::default(), is_hold: true };
        self.clients[client].releases.push(release);
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
                Some(
                    Wait::Answer { op: this, .. } | Wait::IdleRelease { op: this, .. } | Wait::Resume { op: this, .. },
                ) if *this == op => {
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
            let downgrade = self.users[user].downgrading.as_ref().map(|downgrading| downgrading.wait);
            if matches!(downgrade, Some(DowngradeWait::Answer { op: this, .. }) if this == op) {
                return self.downgrade_answered(user, answer);
            }
        }
        let this = &mut self.clients[client];
        if let Some(at) = this.renewals.iter().position(|renewing| renewing.op == op) {
            let renewing = this.renewals.remove(at);
            self.renewed(client, &renewing, answer);
        } else if let Some(at) = this.releasing.iter().position(|releasing| releasing.op == op) {
            let releasing = this.releasing.remove(at);
            self.released_in_background(client, &releasing, &answer);
        }
    }

    fn renewed(&mut self, client: usize, renewing: &Renewing, answer: Result<Reply, Unknown>) {
        let answer = match answer {
            Ok(Reply::Renew(renew)) => Ok(renew),
            Ok(_) => return,
            Err(cause) => Err(cause),
        };
        checks::cover_renewal(self, renewing);
        if let Ok(Renew::Renewed { .. }) = answer {
            self.confirm(renewing);
        }
        if self.mutant == Some(Mutant::LossOverwrites)
            && let Ok(Renew::Absent) = answer
            && let Some(user) = self.users.iter_mut().find(|user| user.holder == Some(renewing.holder) && user.let_go)
        {
            user.lost = Some((LossReason::Deleted, self.now));
        }
        let sent = if self.mutant == Some(Mutant::LeaseFromAnswer) { self.now } else { renewing.sent };
        let announced = self.scenario.announces_waiters;
        self.call(client, |engine, cx| engine.renewal_answered(renewing.hold, sent, answer, announced, cx));
    }

    /// A renewal was confirmed to its holder, in time or too late to count.
    fn confirm(&mut self, renewing: &Renewing) {
        let ttl = self.users.iter().filter_map(|user| user.guard.as_ref());
        let ttl =
            ttl.clone().find(|guard| guard.holder == renewing.holder).map_or(self.scenario.ttl, |guard| guard.ttl);
        let now = self.now;
        let known = self.ledger.certain.iter_mut().find(|(holder, _)| *holder == renewing.holder);
        if let Some((_, until)) = known.filter(|(_, until)| now < *until) {
            *until = certain(renewing.sent, ttl).max(*until);
        }
    }

    fn guard_released(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let client = self.client_of(user);
        let Some(mut releasing) = self.users[user].releasing.take() else { return };
        let before = releasing.before.clone();
        let ended = match (answer, before) {
            (Ok(Reply::Release(answer)), before) => {
                if self.now < releasing.guard.stray_until {
                    self.let_go_in_background(client, &releasing.guard);
                }
                match before {
                    Some(End::Lost(reason)) => Ended::AlreadyLost(reason),
                    Some(End::Released) | None if releasing.tries > 1 => Ended::Released,
                    Some(End::Released) | None => Ended::from_answer(answer),
                }
            }
            (Ok(reply), _) => unreachable!("{reply:?} to a release"),
            (Err(_), Some(End::Lost(reason))) => {
                self.let_go_in_background(client, &releasing.guard);
                Ended::AlreadyLost(reason)
            }
            (Err(_), _) if releasing.tries == RELEASE_TRIES => {
                self.let_go_in_background(client, &releasing.guard);
                Ended::Unknown
            }
            (Err(_), _) => {
                releasing.op = self.send(client, Call::Release(releasing.guard.holder));
                (releasing.limit, releasing.tries) = (self.now + TIMEOUT, releasing.tries + 1);
                self.users[user].releasing = Some(releasing);
                return;
            }
        };
        self.cover(if ended == Ended::Released { Coverage::Released } else { Coverage::AlreadyLost });
        self.users[user].ended = Some(ended);
    }

    fn released_in_background(&mut self, client: usize, releasing: &Releasing, answer: &Result<Reply, Unknown>) {
        let outcome = match answer {
            Ok(_) if self.mutant == Some(Mutant::NoSecondRelease) => ReleaseOutcome::Confirmed(Moment::NEVER),
            Ok(_) => ReleaseOutcome::Confirmed(releasing.sent),
            Err(_) if self.now >= releasing.until => ReleaseOutcome::GivenUp,
            Err(_) => ReleaseOutcome::Failed,
        };
        let number = fencelock_model::SplitMix::mix(self.now.as_micros() ^ self.seed);
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
        let batch = self.clients[client].releases.next(self.now);
        for (number, release) in &batch {
            self.cover_if(self.server.freed.contains(&release.holder) || !release.is_hold, Coverage::SecondRelease);
            let op = self.send(client, Call::Release(release.holder));
            let (holder, until, sent) = (release.holder, release.until, self.now);
            self.clients[client].releasing.push(Releasing {
                op,
                number: *number,
                holder,
                sent,
                limit: sent + TIMEOUT,
                until,
            });
        }
        !batch.is_empty()
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
        if !self.clients[client].timers.iter().any(|(moment, _)| *moment <= self.now) {
            return false;
        }
        let horizon = self.now + Duration::from_millis(1);
        let mut renewals: Vec<(fencelock_core::engine::HoldId, Renewal)> = Vec::new();
        for ahead in [Duration::ZERO, TOGETHER] {
            let timers = std::mem::take(&mut self.clients[client].timers);
            let (mut due, later): (Vec<_>, Vec<_>) = timers.into_iter().partition(|(at, _)| *at < horizon + ahead);
            self.clients[client].timers = later;
            due.sort();
            for (fired, hold) in due {
                let duty = self.call(client, |engine, cx| engine.hold_due(hold, fired, ahead, horizon, cx));
                if let Duty::Renew(renewal) = duty {
                    renewals.push((hold, renewal));
                }
            }
            if renewals.is_empty() {
                break;
            }
        }
        for (hold, renewal) in renewals {
            let (holder, sent) = (renewal.holder, self.now);
            let limit = sent + RenewalPlan::answer_limit(renewal.ttl.get());
            let op = self.send(client, Call::Renew(renewal));
            self.clients[client].renewals.push(Renewing { op, hold, holder, sent, limit });
        }
        true
    }

    fn fire_user(&mut self, user: usize) -> bool {
        let (client, now, deadline) = (self.client_of(user), self.now, self.deadline(user));
        if self.users[user].next_timer(deadline).is_none_or(|next| next > now) {
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
        let Some(task) = &self.users[user].task else { return false };
        let (id, wait) = (task.id, task.wait.clone());
        match (wait, id) {
            (Wait::Poll, Some(_)) => self.cancel(user),
            (Wait::Sleep(_), Some(id)) => {
                let step: TaskStep = self.call(client, |engine, cx| engine.timer_fired(id, cx));
                self.step(user, step);
            }
            (Wait::Answer { op, .. } | Wait::IdleRelease { op, .. } | Wait::Resume { op, .. }, _) => {
                self.give_up_request(client, op);
                self.answer(client, op, now, Err(unknown()));
            }
            _ => return false,
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
        let Some(Task { wait: Wait::Answer { op, to: Asked::Claim(_), .. }, .. }) = &self.users[user].task else {
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
        self.users[user].woken = true;
        let present = self.is_present(user);
        if let Some(Packet { client, sent, load: Load::Request { op, call, .. } }) = unsent
            && (present || self.mutant == Some(Mutant::SendsAfterTurnLost))
        {
            let load = Load::Request { op, by: self.arrival(), call };
            self.packets.push(Packet { client, sent, load });
        }
        if !present {
            return self.lose_turn(user);
        }
        if let Some((op, sent, answer)) = unread {
            self.answer(self.client_of(user), op, sent, answer);
        }
    }

    /// As the driver asks whenever the task is polled.
    pub(crate) fn is_present(&mut self, user: usize) -> bool {
        let (client, id) = (self.client_of(user), self.users[user].waiter());
        id.is_none_or(|id| self.call(client, |engine, _| engine.is_present(id)))
    }

    /// The task drops its request and enters again.
    pub(crate) fn lose_turn(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(task) = self.users[user].task.take() else { return };
        self.orphan(client, &task.wait);
        self.cover(Coverage::TurnLost);
        self.enter(user, true);
    }
}
