//! The whole world of a schedule, and calls of its engines.

use crate::checks;
use crate::client::{Client, Engine, ScriptedRng};
use crate::coverage::{Coverage, CoverageSet};
use crate::mutants::Mutant;
use crate::network::{Call, Load, Op, Packet, key};
use crate::scenario::{Budget, Scenario};
use crate::server::Server;
use crate::user::{Ended, Guard, User};
use fencelock_core::engine::{Action, Actions, Config, End, Env, PendingRelease, ReleaseHold, Sender, Status, Worker};
use fencelock_core::{Capabilities, Drift, Event, HolderId, LossReason, Mode, Moment};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

pub(crate) type Cx<'a> = Env<'a, Option<u8>, ()>;

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) scenario: Rc<Scenario>,
    pub(crate) config: Rc<Config>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) seed: u64,
    pub(crate) now: Moment,
    pub(crate) server: Server,
    pub(crate) packets: Vec<Packet>,
    pub(crate) clients: Vec<Client>,
    pub(crate) users: Vec<User>,
    pub(crate) left: Budget,
    pub(crate) ledger: Ledger,
    pub(crate) covered: CoverageSet,
    pub(crate) broken: Option<String>,
    /// The acts so far, if they are recorded.
    pub(crate) trace: Option<Vec<String>>,
}

/// What is known from outside.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Ledger {
    /// Until when a holder may rely on its lock, from the answers that it received.
    pub(crate) certain: Vec<(HolderId, Moment)>,
    /// The claims that were answered with a position in the queue: when they were sent, and the last token then.
    pub(crate) backends: Vec<(HolderId, Moment, u64)>,
    /// Whose key another program deleted, and the last token then. A holder that has been notified since that it waits is not
    /// among them.
    pub(crate) deleted: Vec<(HolderId, u64)>,
    /// When the last claim of each holder was sent, for the mutant that counts from it.
    pub(crate) last_claims: Vec<(HolderId, Moment)>,
    /// Whose claim was sent.
    pub(crate) claimed: Vec<HolderId>,
    /// Who had claimed when a wait was given up.
    pub(crate) claimed_at_cancel: Vec<HolderId>,
    /// The greatest token that a guard began with.
    pub(crate) last_fence: u64,
    /// The greatest of those of writers.
    pub(crate) last_writer: u64,
    /// The tokens of permits so far.
    pub(crate) permit_tokens: Vec<u64>,
    /// Packets were lost or came twice, or clients were stopped.
    pub(crate) troubled: bool,
    pub(crate) cancelled: bool,
    pub(crate) time_passed: bool,
}

/// What belongs to a state. What was covered and the trace do not.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.now, &self.server, &self.packets, &self.clients, &self.users).hash(state);
        (&self.left, &self.ledger).hash(state);
        self.ops().for_each(|op| op.0.hash(state));
    }
}

impl World {
    /// The names of all requests.
    fn ops(&self) -> impl Iterator<Item = Op> {
        let packets = self.packets.iter().filter_map(Packet::op);
        let users = self.users.iter().flat_map(User::waits_for).flatten();
        let clients = self.clients.iter().flat_map(|client| {
            let renewals = client.renewals.iter().map(|renewing| renewing.op);
            renewals.chain(client.releasing.iter().map(|releasing| releasing.op))
        });
        packets.chain(users).chain(clients)
    }

    /// After the users that are ready have asked, one after the other.
    pub(crate) fn new(scenario: &Scenario, mutant: Option<Mutant>, seed: u64, traced: bool) -> Result<Self, String> {
        let mut capabilities = Capabilities::default();
        (capabilities.expires, capabilities.portable, capabilities.cross_process) = (true, true, true);
        (capabilities.queues, capabilities.fresh_holders) = (scenario.queues, scenario.fresh_holders);
        (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
        let (backend, sharing, turn_limit) = (String::new(), scenario.sharing, scenario.turn_limit);
        let config = Config { backend, capabilities, drift: Drift::default(), sharing, turn_limit };
        let clients = (0..scenario.clients()).map(|number| Client::new(u8::try_from(number).unwrap())).collect();
        let mut world = Self {
            scenario: Rc::new(*scenario),
            config: Rc::new(config),
            mutant,
            seed,
            now: Moment::from_micros(1_000_000),
            server: Server::new(scenario.queues, scenario.server_ppm),
            packets: Vec::new(),
            clients,
            users: scenario.users.iter().map(|plan| User::new(plan.checks)).collect(),
            left: scenario.budget,
            ledger: Ledger::default(),
            covered: CoverageSet::default(),
            broken: None,
            trace: traced.then(Vec::new),
        };
        for user in 0..world.users.len() {
            if scenario.users[user].ready {
                world.act(Act::Ask(user))?;
                world.settle()?;
                world.deliver_all()?;
            }
        }
        Ok(world)
    }

    /// All packets arrive in order, and what is sent because of them.
    pub(crate) fn deliver_all(&mut self) -> Result<(), String> {
        while !self.packets.is_empty() {
            // Time for as many tokens as a task lease wants.
            self.now = self.now + Duration::from_micros(200);
            self.act(Act::Deliver(0))?;
            self.settle()?;
        }
        Ok(())
    }

    /// Whether this holder may still rely on a key that another program has deleted.
    pub(crate) fn was_deleted(&self, holder: HolderId) -> bool {
        self.ledger.deleted.iter().any(|(deleted, _)| *deleted == holder)
    }

    pub(crate) fn client_of(&self, user: usize) -> usize {
        usize::from(self.scenario.users[user].client)
    }

    pub(crate) fn cover(&mut self, what: Coverage) {
        self.covered.insert(what);
    }

    pub(crate) fn break_down(&mut self, why: impl Into<String>) {
        self.broken.get_or_insert(why.into());
    }

    /// Calls an engine and carries out what it says.
    pub(crate) fn call<R>(&mut self, client: usize, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> R) -> R {
        let mut out = Actions::new();
        let config = Rc::clone(&self.config);
        let Client { engine, ids, open, .. } = &mut self.clients[client];
        let mut rng = ScriptedRng::new(ids, self.now, self.seed);
        let (now, config) = (self.now, &*config);
        let open = *open || self.mutant == Some(Mutant::TakesWhenClosed);
        let cx = &mut Env { key: key(), config, open, now, rng: &mut rng, out: &mut out };
        let answer = call(engine, cx);
        engine.tidy(cx);
        for action in out.drain(..) {
            self.carry_out(client, action);
        }
        let Client { engine, timers, .. } = &self.clients[client];
        let history = !engine.is_empty() && timers.holds() == 0 && timers.iter().len() == 1 && engine.waiting() == 0;
        self.cover_if(engine.idle_holder().is_some(), Coverage::KeptIdle);
        self.cover_if(history, Coverage::KeptHistory);
        answer
    }

    fn carry_out(&mut self, client: usize, action: Action<Option<u8>, ()>) {
        let now = self.now;
        let this = &mut self.clients[client];
        let astray =
            |from: Moment, hold| from != Moment::NEVER && !this.timers.iter().any(|one| *one == (from, (), hold));
        if let Action::SetTimer { hold, from, .. } = action
            && astray(from, hold)
        {
            self.break_down("a timer was moved that is not where the engine says");
        }
        let this = &mut self.clients[client];
        this.timers.apply(&(), &action);
        match action {
            Action::Wake(user) => {
                if let Some(user) = user {
                    self.users[usize::from(user)].woken = true;
                }
            }
            Action::Ended(ended) => self.ended(client, *ended),
            Action::Release(release) => {
                if self.mutant == Some(Mutant::GivesNothingBack) && !release.is_hold {
                    return;
                }
                assert_eq!(this.releases.push(*release, now), Sender::InCharge(Worker::TASK));
            }
            Action::ClaimBegan(_) => this.claims += 1,
            Action::ClaimEnded(_) => this.claims -= 1,
            Action::GrantedTooLate => self.cover(Coverage::GrantedTooLate),
            Action::Began
            | Action::SetTimer { .. }
            | Action::Queued
            | Action::FallbackPoll
            | Action::WaitsForOwn { .. }
            | Action::Report(_) => {}
        }
    }

    /// A hold is over. If it was lost, its user is notified.
    fn ended(&mut self, client: usize, ended: fencelock_core::engine::Ended<()>) {
        let End::Lost(reason) = ended.end else { return };
        let of_all = ended.tenure.mode == Mode::Shared && self.mutant != Some(Mutant::TellsOneReader);
        let has_lost = |guard: &Guard| guard.grant.hold == ended.hold && (of_all || guard.grant.tenure == ended.tenure);
        let notified = (0..self.users.len()).filter(|user| self.client_of(*user) == client);
        let notified: Vec<_> = notified.filter(|user| self.users[*user].guard.as_ref().is_some_and(has_lost)).collect();
        self.cover_if(notified.len() > 1, Coverage::LostTogether);
        for user in notified {
            self.cover(match &reason {
                LossReason::Expired => Coverage::Expired,
                LossReason::MaxHold => Coverage::MaxHold,
                _ => Coverage::Deleted,
            });
            self.users[user].lost = Some((reason.clone(), self.now));
        }
    }

    /// Puts a request on the network.
    pub(crate) fn send(&mut self, client: usize, call: Call) -> Op {
        let op = self.clients[client].op();
        if let Call::Claim(claim) = &call {
            if self.mutant == Some(Mutant::CountsFromLastSent) {
                self.ledger.last_claims.retain(|(holder, _)| *holder != claim.holder.id);
                self.ledger.last_claims.push((claim.holder.id, self.now));
            }
            let claimed = &mut self.ledger.claimed;
            if !claimed.contains(&claim.holder.id) {
                if claimed.iter().any(|before| before.hex()[..2] == claim.holder.id.hex()[..2]) {
                    self.covered.insert(Coverage::FreshHolder);
                }
                claimed.push(claim.holder.id);
            }
        }
        let load = Load::Request { op, by: self.arrival(), call };
        self.packets.push(Packet { client: u8::try_from(client).unwrap(), sent: self.now, load });
        op
    }

    /// When the last claim of a holder was sent.
    pub(crate) fn last_claim(&self, holder: HolderId) -> Moment {
        self.ledger.last_claims.iter().find(|(known, _)| *known == holder).map_or(Moment::default(), |(_, sent)| *sent)
    }

    /// When a request that is sent or given up now must have been carried out.
    pub(crate) fn arrival(&self) -> Moment {
        if self.scenario.any_delay { Moment::NEVER } else { self.now + crate::network::ARRIVAL }
    }

    /// Sends the events of the server. Tracking with NOLOOP does not report to a client what it did itself.
    pub(crate) fn send_events(&mut self, events: Vec<Event>, by: Option<u8>) {
        let sent = self.now;
        for event in events {
            match event {
                Event::Handed { holder, tokens, claim_ttl, .. } => {
                    let (client, load) = (holder.to_bytes()[0] - 1, Load::HandOff { holder, tokens, claim_ttl });
                    self.packets.push(Packet { client, sent, load });
                }
                Event::Queued { .. } if self.mutant != Some(Mutant::AnnouncesNothing) => {
                    let others = std::mem::take(&mut self.server.announces_to).into_iter();
                    let others = others.filter(|client| Some(*client) != by);
                    self.packets.extend(others.map(|client| Packet { client, sent, load: Load::Queued }));
                }
                _ => {}
            }
        }
    }

    /// The next timer of a client that runs.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let clients = self.clients.iter().filter(|client| !client.stopped).filter_map(Client::next_timer);
        let users = (0..self.users.len()).filter(|user| !self.clients[self.client_of(*user)].stopped);
        let users = users.filter_map(|user| self.users[user].next_timer());
        clients.chain(users).min()
    }
}

/// One thing that happens. Packets are named by their index, users and clients by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Ask(usize),
    Cancel(usize),
    Drop(usize),
    Release(usize),
    GiveUpRelease(usize),
    CheckGuard(usize),
    /// A writer wants to read from now on.
    Downgrade(usize),
    GiveUpDowngrade(usize),
    Detach(usize),
    Resume(usize),
    Deliver(usize),
    Lose(usize),
    /// The connection of a request breaks: it is carried out, and the answer goes nowhere.
    Break(usize),
    /// A claim finds no connection.
    Unsent(usize),
    /// The next delivery is repeated later.
    Duplicate(usize),
    Delete,
    ForeignSet,
    ForeignRelease,
    Reset(usize),
    /// The connection of a client is reset, and with it what the server has announced to it.
    Reconnect(usize),
    Close(usize),
    /// The server refuses a release in the background, also the next time.
    Refuse(usize),
    Stop(usize),
    Continue(usize),
    /// A future is neither polled nor dropped,
    Park(usize),
    /// before it has sent its request,
    ParkUnsent(usize),
    /// until now.
    Unpark(usize),
    /// The timers of a client fire before the tasks that were woken run.
    Timers(usize),
    Time,
    /// A third of the TTL.
    LongTime,
    /// The TTL of the lock at the server ends, whatever that was, before any timer of a client fires.
    LockEnds,
}

/// What can happen next, and doing it.
impl World {
    /// Everything that can happen now.
    pub(crate) fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::with_capacity(16);
        for user in 0..self.users.len() {
            if !self.clients[self.client_of(user)].stopped {
                self.acts_of_user(user, &mut acts);
            }
        }
        for index in 0..self.packets.len() {
            self.acts_on_packet(index, &mut acts);
        }
        let (left, foreign) = (self.left, self.server.foreign_until.is_some());
        let has_lock = left.deletes + left.foreign > 0 && self.server.holding(self.now).is_some();
        let mut may = |yes: bool, act: Act| acts.extend(yes.then_some(act));
        may(left.deletes > 0 && has_lock, Act::Delete);
        may(left.foreign > 0 && !has_lock && !foreign, Act::ForeignSet);
        may(foreign, Act::ForeignRelease);
        for (client, this) in self.clients.iter().enumerate() {
            may(left.resets > 0 && !this.stopped && !this.engine.is_empty(), Act::Reset(client));
            may(left.reconnects > 0 && !this.stopped && !this.engine.is_empty(), Act::Reconnect(client));
            may(left.closes > 0 && !this.stopped && this.open, Act::Close(client));
            may(left.stops > 0 && !this.stopped && !this.engine.is_empty(), Act::Stop(client));
            may(this.stopped, Act::Continue(client));
            may(self.is_late(client), Act::Timers(client));
        }
        may(left.time > 0 && self.next_moment() > self.now, Act::Time);
        may(left.long > 0 && self.request_limit() > self.now, Act::LongTime);
        may(
            left.ends > 0 && self.server.lock_ends(self.now).is_some_and(|end| end <= self.request_limit()),
            Act::LockEnds,
        );
        acts
    }

    /// Whether both a task and a timer wait to be run.
    fn is_late(&self, client: usize) -> bool {
        let this = &self.clients[client];
        let woken = |user: usize| self.users[user].woken && self.client_of(user) == client;
        !this.stopped && (0..self.users.len()).any(woken) && this.timers.iter().any(|(moment, ..)| *moment <= self.now)
    }

    fn acts_of_user(&self, index: usize, acts: &mut Vec<Act>) {
        let (user, plan) = (&self.users[index], &self.scenario.users[index]);
        let (waits, downgrades, parked) = (user.task.is_some(), user.downgrading.is_some(), user.parked.is_some());
        let parks = plan.parks && waits && !parked && self.left.parks > 0;
        // The guard belongs to the future of its downgrade.
        let holds = user.guard.is_some() && !downgrades;
        let mut may = |yes: bool, act: Act| acts.extend(yes.then_some(act));
        match plan.resumes {
            None => may(!user.asked, Act::Ask(index)),
            Some(other) => may(!user.asked && self.users[usize::from(other)].detached, Act::Resume(index)),
        }
        may(plan.cancels && waits, Act::Cancel(index));
        may(parks, Act::Park(index));
        may(parks && self.unsent(index).is_some(), Act::ParkUnsent(index));
        may(parked, Act::Unpark(index));
        may(plan.drops && holds, Act::Drop(index));
        may(plan.releases && holds, Act::Release(index));
        may(plan.gives_up_release && user.releasing.is_some(), Act::GiveUpRelease(index));
        may(plan.detaches && holds && user.lost.is_none(), Act::Detach(index));
        may(user.checks > 0 && holds, Act::CheckGuard(index));
        let writes = user.guard.as_ref().is_some_and(|guard| guard.grant.tenure.mode == Mode::Exclusive);
        may(plan.downgrades && holds && writes, Act::Downgrade(index));
        may(plan.gives_up_downgrade && downgrades, Act::GiveUpDowngrade(index));
    }

    fn acts_on_packet(&self, index: usize, acts: &mut Vec<Act>) {
        let packet = &self.packets[index];
        let request = packet.call().is_some();
        if !request && self.clients[usize::from(packet.client)].stopped {
            return;
        }
        let (left, waited_for) = (self.left, packet.op().is_some_and(|op| self.waits_for(packet.client, op)));
        let mut may = |yes: bool, act: Act| acts.extend(yes.then_some(act));
        may(true, Act::Deliver(index));
        may(left.lost > 0, Act::Lose(index));
        may(left.broken > 0 && request && waited_for, Act::Break(index));
        may(left.unsent > 0 && waited_for && matches!(packet.call(), Some(Call::Claim(_))), Act::Unsent(index));
        may(
            left.refusals > 0 && packet.op().is_some_and(|op| request && self.releases(packet.client, op)),
            Act::Refuse(index),
        );
        may(left.duplicates > 0 && !matches!(packet.load, Load::Answer { .. }), Act::Duplicate(index));
    }

    /// When a request must have been carried out.
    fn request_limit(&self) -> Moment {
        let requests = self.packets.iter().filter_map(|packet| match packet.load {
            Load::Request { by, .. } => Some(by),
            _ => None,
        });
        requests.min().unwrap_or(Moment::NEVER)
    }

    /// A third of the TTL passes, and all timers fire meanwhile.
    fn long_time(&mut self) -> Result<(), String> {
        let end = self.now + self.scenario.ttl / 3;
        loop {
            let end = end.min(self.request_limit());
            let next = self.next_moment().min(end);
            self.now = next.max(self.now);
            self.settle()?;
            if self.now >= end {
                return Ok(());
            }
        }
    }

    /// To when time passes: the next timer, but not beyond the moment by which a request must have been carried out.
    pub(crate) fn next_moment(&self) -> Moment {
        let foreign = self.server.foreign_until.unwrap_or(Moment::NEVER);
        let timer = self.next_timer().unwrap_or(Moment::NEVER).min(foreign);
        let stopped = self.clients.iter().any(|client| client.stopped);
        let quiet = self.now + Duration::from_secs(if stopped { 2 } else { 3600 });
        timer.min(self.request_limit()).min(quiet)
    }

    /// Does it, without letting any task run.
    pub(crate) fn act(&mut self, act: Act) -> Result<(), String> {
        checks::cover_act(self, act);
        self.note(act);
        match act {
            Act::Ask(user) => self.ask(user),
            Act::Resume(user) => {
                let from = usize::from(self.scenario.users[user].resumes.unwrap());
                self.resume(user, self.users[from].holder.unwrap());
            }
            Act::Cancel(user) => {
                self.ledger.cancelled = true;
                self.ledger.claimed_at_cancel = self.ledger.claimed.clone();
                self.cancel(user);
            }
            Act::Drop(user) => self.drop_guard(user),
            Act::Release(user) => self.release(user),
            Act::GiveUpRelease(user) => self.give_up_release(user),
            Act::CheckGuard(user) => {
                self.users[user].checks -= 1;
                checks::check_guard(self, user)?;
            }
            Act::Detach(user) => self.detach(user),
            Act::Downgrade(user) => self.downgrade(user),
            Act::GiveUpDowngrade(user) => self.give_up_downgrade(user),
            Act::Deliver(index) => self.deliver(index),
            Act::Lose(_) | Act::Break(_) | Act::Duplicate(_) | Act::Stop(_) => self.trouble(act),
            // No trouble: nothing may be left behind.
            Act::Unsent(index) => {
                self.left.unsent -= 1;
                self.deny(index);
            }
            Act::Delete => {
                self.left.deletes -= 1;
                let deleted = self.server.evict(self.now);
                self.ledger.deleted.extend(deleted);
            }
            Act::ForeignSet => {
                self.left.foreign -= 1;
                self.server.foreign_set(self.now, self.scenario.ttl);
            }
            Act::ForeignRelease => self.server.foreign_release(self.now),
            Act::Reset(_) | Act::Reconnect(_) | Act::Close(_) | Act::Refuse(_) => self.disturb(act),
            Act::Continue(client) => self.clients[client].stopped = false,
            Act::Park(user) => self.park(user, None),
            Act::ParkUnsent(user) => self.park(user, self.unsent(user)),
            Act::Unpark(user) => self.unpark(user),
            Act::Timers(client) => _ = self.fire_holds(client),
            Act::Time => {
                (self.left.time, self.ledger.time_passed) = (self.left.time - 1, true);
                self.now = self.next_moment();
            }
            Act::LockEnds => {
                (self.left.ends, self.ledger.time_passed) = (self.left.ends - 1, true);
                self.now = self.server.lock_ends(self.now).unwrap_or(self.now).max(self.now);
            }
            Act::LongTime => {
                (self.left.long, self.ledger.time_passed) = (self.left.long - 1, true);
                self.long_time()?;
            }
        }
        let events = self.server.table.take_events();
        self.send_events(events, None);
        self.broken.take().map_or(Ok(()), Err)
    }

    /// What a client has to put up with, and leaves nothing behind.
    fn disturb(&mut self, act: Act) {
        match act {
            Act::Reset(client) => {
                self.left.resets -= 1;
                self.reset(client);
            }
            Act::Reconnect(client) => {
                self.left.reconnects -= 1;
                self.reconnect(client);
            }
            Act::Close(client) => {
                self.left.closes -= 1;
                self.close(client);
            }
            Act::Refuse(index) => {
                self.left.refusals -= 1;
                self.refuse(index);
            }
            _ => {}
        }
    }

    /// A fault.
    fn trouble(&mut self, act: Act) {
        self.ledger.troubled = true;
        match act {
            Act::Lose(index) => {
                self.left.lost -= 1;
                self.lose(index);
            }
            Act::Break(index) => {
                self.left.broken -= 1;
                self.break_connection(index);
            }
            Act::Duplicate(index) => {
                self.left.duplicates -= 1;
                self.duplicate(index);
            }
            Act::Stop(client) => {
                self.left.stops -= 1;
                self.clients[client].stopped = true;
            }
            _ => {}
        }
    }

    /// For those who read a failure.
    fn note(&mut self, act: Act) {
        if let Some(trace) = &mut self.trace {
            let text = match act {
                Act::Deliver(index)
                | Act::Lose(index)
                | Act::Break(index)
                | Act::Unsent(index)
                | Act::Refuse(index)
                | Act::Duplicate(index) => {
                    format!("{:?}: {act:?} {:?}", self.now, self.packets[index])
                }
                _ => format!("{:?}: {act:?}", self.now),
            };
            trace.push(text);
        }
    }

    /// As `Drop` of a guard.
    pub(crate) fn drop_guard(&mut self, user: usize) {
        self.users[user].let_go = true;
        let Some(guard) = self.users[user].guard.take() else { return };
        self.let_go_in_background(user, &guard);
    }

    /// If it is over already, what is left of it is released in the background.
    pub(crate) fn let_go_in_background(&mut self, user: usize, guard: &Guard) {
        let client = self.client_of(user);
        let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
        let leaving = self.call(client, |engine, cx| engine.release(hold, tenure, true, cx));
        if self.mutant == Some(Mutant::ReleasesForAll) && leaving == Status::PassedOn {
            self.send(client, Call::Release(guard.holder));
        }
        let stays = self.mutant != Some(Mutant::ReleasesTheGivenAway) && self.users[user].has_given_away(guard.holder);
        if leaving == Status::Over && !stays {
            let (key, holder, until) = (key().clone(), guard.holder, self.now + guard.ttl);
            let release = PendingRelease { key, holder, until, stray_until: guard.stray_until, is_hold: true };
            let sender = self.clients[client].releases.push(release, self.now);
            assert_eq!(sender, Sender::InCharge(Worker::TASK));
        }
    }

    /// As `Guard::release`.
    fn release(&mut self, user: usize) {
        let client = self.client_of(user);
        self.users[user].let_go = true;
        let Some(guard) = self.users[user].guard.clone() else { return };
        let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
        let leaving = if self.mutant == Some(Mutant::ReleaseUnmarked) {
            let rest = self.clients[client].engine.rest(hold, self.now);
            Status::Held(rest.map_or(self.now, |rest| self.now + rest))
        } else {
            self.call(client, |engine, cx| engine.release(hold, tenure, false, cx))
        };
        if self.mutant != Some(Mutant::ReleaseUnmarked) {
            self.users[user].guard = None;
        }
        if leaving == Status::PassedOn {
            self.users[user].ended = Some(Ended::PassedOn);
            return;
        }
        let (release, next) = ReleaseHold::begin(leaving, || self.users[user].end(), guard.holder, self.now);
        self.follow_release(user, release, guard, next);
    }

    fn give_up_release(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(releasing) = self.users[user].releasing.take() else { return };
        self.give_up_request(client, releasing.op);
        self.let_go_in_background(user, &releasing.guard);
    }

    fn detach(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(guard) = self.users[user].guard.take() else { return };
        let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
        let status = self.call(client, |engine, cx| engine.detach(hold, tenure, cx));
        self.users[user].let_go = true;
        self.users[user].detached = matches!(status, Status::Held(_));
    }

    /// No task waits for the answer. The request arrives soon, if at all.
    pub(crate) fn give_up_request(&mut self, client: usize, op: Op) {
        let arrival = self.arrival();
        for packet in &mut self.packets {
            if usize::from(packet.client) == client
                && let Load::Request { op: this, by, .. } = &mut packet.load
                && *this == op
            {
                *by = arrival;
            }
        }
    }

    /// Whether a task waits for the answer to this request.
    pub(crate) fn waits_for(&self, client: u8, op: Op) -> bool {
        let this = &self.clients[usize::from(client)];
        let of_user = |user: usize| self.users[user].waits_for().contains(&Some(op));
        let mut users = (0..self.users.len()).filter(|user| self.scenario.users[*user].client == client);
        this.renewals.iter().any(|renewing| renewing.op == op)
            || this.releasing.iter().any(|releasing| releasing.op == op)
            || users.any(of_user)
    }

    pub(crate) fn cover_if(&mut self, yes: bool, what: Coverage) {
        if yes {
            self.cover(what);
        }
    }
}
