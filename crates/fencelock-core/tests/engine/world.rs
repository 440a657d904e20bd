//! The whole world of a schedule, and calls of its engines.

use crate::act::Act;
use crate::client::{Client, Engine, ScriptedRng};
use crate::coverage::{Coverage, CoverageSet};
use crate::mutants::Mutant;
use crate::network::{Call, Load, Op, Packet, key};
use crate::scenario::{Budget, Scenario};
use crate::server::{Server, id, tokens};
use crate::user::{Guard, User};
use fencelock_conformance::model::{HandOff, Name};
use fencelock_core::engine::{Action, Actions, Config, Context, End, Ended, LeaseSharing};
use fencelock_core::{Capabilities, Drift, HolderId, LossReason, Mode, Moment};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

pub(crate) type Cx<'a> = Context<'a, Option<u8>, ()>;

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
        capabilities.announces_waiters = scenario.announces_waiters;
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
                while !world.packets.is_empty() {
                    // Time for as many tokens as a shared lease wants.
                    world.now = world.now + Duration::from_micros(200);
                    world.act(Act::Deliver(0))?;
                    world.settle()?;
                }
            }
        }
        Ok(world)
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
        let Client { engine, ids, .. } = &mut self.clients[client];
        let mut rng = ScriptedRng::new(ids, self.now, self.seed);
        let (now, config) = (self.now, &*config);
        let cx = &mut Context { key: key(), config, now, rng: &mut rng, out: &mut out };
        let answer = call(engine, cx);
        engine.tidy(cx);
        for action in out.drain() {
            self.carry_out(client, action);
        }
        answer
    }

    fn carry_out(&mut self, client: usize, action: Action<Option<u8>, ()>) {
        let now = self.now;
        let this = &mut self.clients[client];
        match action {
            Action::Wake(user) => {
                if let Some(user) = user {
                    self.users[usize::from(user)].woken = true;
                }
            }
            Action::SetTimer { hold, from, to } => {
                let was = this.timers.iter().position(|timer| *timer == (from, hold));
                if let Some(was) = was {
                    this.timers.remove(was);
                }
                if to != Moment::NEVER {
                    this.timers.push((to, hold));
                }
                if was.is_some() != (from != Moment::NEVER) {
                    self.break_down("a timer was moved that is not where the engine says");
                }
            }
            Action::Began => this.holds += 1,
            Action::Ended(ended) => {
                this.holds -= 1;
                this.timers.retain(|(_, hold)| *hold != ended.hold);
                self.ended(client, *ended);
            }
            Action::Release(release) => {
                if self.mutant == Some(Mutant::GivesNothingBack) && !release.is_hold {
                    return;
                }
                self.clients[client].take_release(*release, now);
            }
            Action::KeptIdle => self.cover(Coverage::KeptIdle),
            Action::KeptHistory => self.cover(Coverage::KeptHistory),
            Action::ClaimBegan(_) => this.claims += 1,
            Action::ClaimEnded(_) => this.claims -= 1,
            Action::GrantedTooLate => self.cover(Coverage::GrantedTooLate),
            Action::Queued | Action::FallbackPoll | Action::WaitsForOwn { .. } | Action::Report(_) => {}
        }
    }

    /// A hold is over. If it was lost, its user is notified.
    fn ended(&mut self, client: usize, ended: Ended<()>) {
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

    pub(crate) fn send_messages(&mut self, messages: Vec<HandOff>) {
        for HandOff { channel, to, fence, count, lease_ms } in messages {
            let Name::Holder(holder) = to else { continue };
            let (tokens, claim_ttl) = (tokens(fence, count), Duration::from_millis(lease_ms));
            let load = Load::HandOff { holder: id(holder), tokens, claim_ttl };
            self.packets.push(Packet { client: u8::try_from(channel.0).unwrap(), sent: self.now, load });
        }
    }

    /// When the wait of a user in the queue of its client is over.
    pub(crate) fn deadline(&self, user: usize) -> Moment {
        let plan = &self.scenario.users[user];
        let in_line = self.scenario.sharing.is_some()
            && plan.lease_sharing == LeaseSharing::Allowed
            && plan.retry.is_none()
            && plan.wait != Some(Duration::ZERO);
        plan.wait.filter(|_| in_line).map_or(Moment::NEVER, |wait| self.users[user].arrived + wait)
    }

    /// The next timer of a client that runs.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let clients = self.clients.iter().filter(|client| !client.stopped).filter_map(Client::next_timer);
        let users = (0..self.users.len()).filter(|user| !self.clients[self.client_of(*user)].stopped);
        let users = users.filter_map(|user| self.users[user].next_timer(self.deadline(user)));
        clients.chain(users).min()
    }
}
