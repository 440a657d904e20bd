//! One register, its network, and clients whose decisions are those of production.

use crate::client::{Client, Io};
use fencelock_core::register::{Expect, Hold, Reading, Record, StoreTiming, Stored, Version};
use fencelock_core::{Drift, FencingToken, Holder, HolderId, Key, Moment, Owner, Ttl};
use fencelock_search::digest;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The unit of the times of the store has this many ticks.
pub(crate) const UNIT: u8 = 2;
/// The lease, in ticks.
pub(crate) const TTL: u8 = 4;
const TICK: Duration = Duration::from_millis(500);

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// All writes of a holder have the same nonce.
    OneNonce,
    /// The times of the store are taken as exact.
    NoResolution,
    /// All front ends are taken to have the same time.
    NoSkew,
    /// A lease counts from the receipt of its answer.
    LeaseFromReceipt,
    /// A refused claim is reported as busy.
    RefusalIsAnAnswer,
    /// A repeated claim that finds its own hold writes nothing.
    RepeatWritesNothing,
    /// The store ignores the condition.
    Unconditional,
    /// A release deletes the record.
    Deletes,
    /// An observation counts from the sending of the read.
    ObservedFromSending,
    /// A release knows nothing of the claims that were not answered.
    ForgetsClaims,
    /// A claim knows nothing of the holds that were proved to be over.
    ForgetsProofs,
    /// The first token of a record does not depend on the time.
    TokensFromOne,
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope {
    /// For each client, the number of its claims, and so on; a client without a claim does nothing.
    pub(crate) claims: [u8; 3],
    pub(crate) renewals: [u8; 3],
    /// So many requests it does not wait for.
    pub(crate) impatience: [u8; 3],
    /// The number of messages that are lost, that are executed twice, and so on.
    pub(crate) losses: u8,
    pub(crate) copies: u8,
    pub(crate) crashes: u8,
    pub(crate) deletions: u8,
    pub(crate) start: Start,
    /// Whether clients release what they hold.
    pub(crate) releases: bool,
    /// By how many ticks the clocks of the front ends are ahead.
    pub(crate) fronts: &'static [u8],
    /// The last tick.
    pub(crate) end: u8,
    pub(crate) checks: Checks,
    pub(crate) flaw: Option<Flaw>,
}

/// What is in the register at first. The tokens of a record that exists are ahead of the clock of the store, so they do not depend on
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Absent,
    Free,
    /// The hold of a client that has crashed.
    Held,
}

/// What a search must reach, so that it has checked what depends on it.
pub(crate) mod landmark {
    /// The first record of a key was written.
    pub(crate) const CREATED: u8 = 1;
    /// The hold of a client that has the key was written again.
    pub(crate) const RENEWED: u8 = 1 << 1;
    /// The hold of another client was replaced by a claim.
    pub(crate) const TAKEN_OVER: u8 = 1 << 2;
    /// A release has replaced what a claim in flight expected.
    pub(crate) const SETTLED: u8 = 1 << 3;
    /// A client that was refused has read its own write.
    pub(crate) const RECOGNIZED: u8 = 1 << 4;
}

/// What must never happen. A flaw breaks several promises; each is searched for alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    All,
    /// Only that no two clients rely on their holds.
    Exclusion,
    /// Only that tokens increase in the order of the grants in the store.
    Tokens,
}

/// A client that most steps leave as it is, with its digest: clients are most of a state.
#[derive(Debug, Clone)]
struct Shared {
    client: Arc<Client>,
    digest: u128,
}

impl Shared {
    fn new(client: Client) -> Self {
        let digest = digest(&client);
        Self { client: Arc::new(client), digest }
    }
}

impl Deref for Shared {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

pub(crate) type Violation = &'static str;

/// The content of the register.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Content {
    pub(crate) version: Version,
    pub(crate) record: Record,
    /// In units.
    modified: u8,
}

/// A conditional write in the network.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) expect: Expect,
    pub(crate) record: Record,
    pub(crate) write: u8,
    is_copy: bool,
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct World {
    pub(crate) tick: u8,
    pub(crate) content: Option<Content>,
    pub(crate) network: Vec<Message>,
    clients: Vec<Shared>,
    losses: u8,
    copies: u8,
    crashes: u8,
    deletions: u8,
    /// The holders whose attempts were reported as over, as bits.
    ended: u32,
    last_token: u64,
    last_holder: Option<HolderId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Begin(u8),
    Repeat(u8),
    Renew(u8),
    Release(u8),
    GiveUp(u8),
    Crash(u8),
    /// This front end answers the read of the client.
    Serve(u8, u8),
    /// The client receives an answer.
    Receive(u8),
    /// This front end executes or refuses a message. The answer may be lost, and a copy may stay in the network.
    Arrive {
        message: u8,
        front: u8,
        is_lost: bool,
        is_copied: bool,
    },
    Lose(u8),
    Delete,
}

pub(crate) fn key() -> Key {
    Key::new("k").unwrap()
}

pub(crate) fn ttl() -> Ttl {
    Ttl::new(TICK * u32::from(TTL)).unwrap()
}

/// Attempt number `number` of a client.
pub(crate) fn holder(client: u8, number: u8) -> Holder {
    let id = client * 8 + number;
    Holder { id: HolderId::from_bytes([id; 16]), owner: Owner::from_text("o") }
}

/// The bit of an attempt.
fn bit(holder: HolderId) -> u32 {
    1 << u32::from_str_radix(&holder.to_string()[..2], 16).unwrap()
}

pub(crate) fn moment(tick: u8) -> Moment {
    Moment::from_micros(0) + TICK * u32::from(tick)
}

fn micros(units: u8) -> u64 {
    u64::try_from((TICK * u32::from(units) * u32::from(UNIT)).as_micros()).unwrap()
}

impl Scope {
    pub(crate) fn timing(&self) -> StoreTiming {
        let unit = TICK * u32::from(UNIT);
        let skew = TICK * u32::from(self.fronts.iter().copied().max().unwrap_or(0));
        StoreTiming {
            // The rates of clocks are no part of the search.
            drift: Drift { ppm: 0, fixed: Duration::ZERO },
            skew: if self.flaw == Some(Flaw::NoSkew) { Duration::ZERO } else { skew },
            resolution: if self.flaw == Some(Flaw::NoResolution) { Duration::ZERO } else { unit },
        }
    }

    pub(crate) fn fronts(&self) -> u8 {
        u8::try_from(self.fronts.len()).unwrap()
    }

    /// The time of a front end, in units.
    fn date(&self, front: u8, tick: u8) -> u8 {
        (tick + self.fronts[usize::from(front)]) / UNIT
    }

    pub(crate) fn version(&self, record: &Record) -> Version {
        let nonce = record.nonce;
        // As if it were a hash of the content, which a nonce makes unique.
        let text = if self.flaw == Some(Flaw::OneNonce) {
            format!("{nonce} {} {}", record.token, record.hold.is_some())
        } else {
            nonce.to_string()
        };
        Version::new(text)
    }

    /// Whether a version that was replaced never comes back.
    fn is_linear(&self, world: &World) -> bool {
        let comes_back = [Flaw::OneNonce, Flaw::Unconditional, Flaw::Deletes];
        world.deletions == 0 && !self.flaw.is_some_and(|flaw| comes_back.contains(&flaw))
    }
}

impl Start {
    fn content(self, scope: &Scope) -> Option<Content> {
        let crashed = Hold { holder: holder(3, 0), ttl: ttl(), since_micros: 0 };
        let hold = Some(crashed).filter(|_| self == Self::Held);
        let record = Record { hold, ..Record::free(1 << 50) };
        (self != Self::Absent).then(|| Content { version: scope.version(&record), record, modified: 0 })
    }
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let numbers = (0..3).filter(|client| scope.claims[usize::from(*client)] > 0);
        let clients = numbers.map(|client| Shared::new(Client::new(scope, client)));
        Self {
            tick: 0,
            content: scope.start.content(scope),
            network: Vec::new(),
            clients: clients.collect(),
            losses: scope.losses,
            copies: scope.copies,
            crashes: scope.crashes,
            deletions: scope.deletions,
            ended: 0,
            last_token: 0,
            last_holder: None,
        }
    }

    fn version(&self) -> Expect {
        self.content.as_ref().map(|content| content.version.clone())
    }

    pub(crate) fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = Vec::new();
        // Before anything happens, only the phase of the clock of the store matters.
        let is_untouched = self.network.is_empty() && self.clients.iter().all(|client| client.is_new(scope));
        if self.tick < scope.end && !(is_untouched && self.tick >= UNIT) {
            actions.push(Action::Tick);
        }
        for client in &self.clients {
            client.actions(self, scope, &mut actions);
        }
        for (number, message) in (0..).zip(&self.network) {
            self.arrivals(number, message, scope, &mut actions);
        }
        if self.deletions > 0 && self.content.is_some() && self.is_quiet(scope) {
            actions.push(Action::Delete);
        }
        actions
    }

    pub(crate) const fn may_crash(&self) -> bool {
        self.crashes > 0
    }

    /// The limits of the promise about tokens after a deletion: it is later than the unit of the last write, and no create is in flight.
    fn is_quiet(&self, scope: &Scope) -> bool {
        let is_creating = |client: &Shared| match &client.io {
            Io::Served { reading, .. } => reading.stored == Stored::Absent,
            _ => false,
        };
        let is_later = |content: &Content| scope.date(0, self.tick) > content.modified;
        self.content.as_ref().is_some_and(is_later)
            && self.network.iter().all(|message| message.expect.is_some())
            && !self.clients.iter().any(is_creating)
    }

    fn waits_for(&self, message: &Message) -> bool {
        self.clients[usize::from(message.client)].io == Io::Writing(message.write)
    }

    fn arrivals(&self, number: u8, message: &Message, scope: &Scope, actions: &mut Vec<Action>) {
        let fits = scope.flaw == Some(Flaw::Unconditional) || message.expect == self.version();
        let waits = self.waits_for(message);
        // A front end that refuses tells nothing of its time.
        for front in 0..if fits { scope.fronts() } else { 1 } {
            for is_lost in [false, true] {
                for is_copied in [false, true] {
                    let can_lose = !is_lost || self.losses > 0 && waits;
                    let can_copy = !is_copied || self.copies > 0 && !message.is_copy;
                    if can_lose && can_copy {
                        actions.push(Action::Arrive { message: number, front, is_lost, is_copied });
                    }
                }
            }
        }
        if self.losses > 0 {
            actions.push(Action::Lose(number));
        }
    }

    /// The state after an action, or what it breaks.
    pub(crate) fn step(&self, action: Action, scope: &Scope) -> Result<Self, Violation> {
        let mut world = self.clone();
        match action {
            Action::Tick => world.tick += 1,
            Action::Serve(client, front) => world.serve(client, front, scope),
            Action::Arrive { message, front, is_lost, is_copied } => {
                world.arrive(message, front, is_lost, is_copied, scope)?;
            }
            Action::Lose(message) => {
                world.losses -= 1;
                world.network.remove(message.into());
            }
            Action::Delete => {
                world.deletions -= 1;
                world.content = None;
            }
            Action::Crash(client) => {
                world.crashes -= 1;
                *world.client(client) = Shared::new(Client::finished(scope, client));
            }
            Action::Begin(client) => world.act(client, scope, Client::begin)?,
            Action::Repeat(client) => world.act(client, scope, Client::claim)?,
            Action::Renew(client) => world.act(client, scope, Client::renew)?,
            Action::Release(client) => world.act(client, scope, Client::release)?,
            Action::GiveUp(client) => world.act(client, scope, Client::give_up)?,
            Action::Receive(client) => world.act(client, scope, Client::receive)?,
        }
        if scope.checks != Checks::Tokens {
            world.check(scope)?;
        }
        world.forget(scope);
        Ok(world)
    }

    /// A step of a client. It sends at most one request, and ends at most one attempt.
    fn act(
        &mut self,
        client: u8,
        scope: &Scope,
        act: fn(&mut Client, u8, &Scope) -> Option<(Expect, Record)>,
    ) -> Result<(), Violation> {
        let mut this = Client::clone(self.client(client));
        let sent = act(&mut this, self.tick, scope);
        if let Some((expect, record)) = sent {
            let write = this.last_write();
            this.io = Io::Writing(write);
            self.network.push(Message { client, expect, record, write, is_copy: false });
        }
        if let Some(ended) = this.ended.take() {
            self.ended |= bit(ended);
        }
        let granted = this.granted.take().filter(|_| scope.checks == Checks::All);
        let holder = this.holder.id;
        *self.client(client) = Shared::new(this);
        granted.map_or(Ok(()), |token| self.check_token(holder, token))
    }

    fn client(&mut self, number: u8) -> &mut Shared {
        &mut self.clients[usize::from(number)]
    }

    fn set_io(&mut self, client: u8, io: Io) {
        let mut this = Client::clone(self.client(client));
        this.io = io;
        *self.client(client) = Shared::new(this);
    }

    fn serve(&mut self, client: u8, front: u8, scope: &Scope) {
        let Io::Reading(sent) = self.client(client).io else { unreachable!("only what was sent is served") };
        self.set_io(client, Io::Served { sent, reading: self.read(front, self.tick, scope) });
    }

    fn read(&self, front: u8, tick: u8, scope: &Scope) -> Reading {
        let (stored, modified) = match &self.content {
            Some(content) => {
                let stored = Stored::Record(content.version.clone(), content.record.clone());
                (stored, Some(micros(content.modified)))
            }
            None => (Stored::Absent, None),
        };
        let tells = scope.flaw != Some(Flaw::TokensFromOne) || self.content.is_some();
        Reading { stored, modified, date: tells.then(|| micros(scope.date(front, tick))) }
    }

    fn arrive(
        &mut self,
        number: u8,
        front: u8,
        is_lost: bool,
        is_copied: bool,
        scope: &Scope,
    ) -> Result<(), Violation> {
        let message = self.network[usize::from(number)].clone();
        self.losses -= u8::from(is_lost);
        self.copies -= u8::from(is_copied);
        let waits = self.waits_for(&message);
        if is_copied {
            self.network[usize::from(number)].is_copy = true;
        } else {
            self.network.remove(number.into());
        }
        let fits = scope.flaw == Some(Flaw::Unconditional) || message.expect == self.version();
        let (version, date) = (scope.version(&message.record), scope.date(front, self.tick));
        if fits {
            self.check_write(&message, scope)?;
            let deletes = scope.flaw == Some(Flaw::Deletes) && message.record.hold.is_none();
            self.content = (!deletes).then(|| Content {
                version: version.clone(),
                record: message.record.clone(),
                modified: date,
            });
        }
        if waits && !is_lost {
            let io = if fits { Io::Written(version, Some(micros(date))) } else { Io::Refused };
            self.set_io(message.client, io);
            if !fits {
                // When the refusal is received does not matter, only when the read that follows is served.
                return self.act(message.client, scope, Client::receive);
            }
        }
        Ok(())
    }

    fn check_write(&mut self, message: &Message, scope: &Scope) -> Result<(), Violation> {
        let new_holder = message.record.hold.as_ref().map(|hold| hold.holder.id);
        let current = self.content.as_ref().and_then(|content| content.record.hold.as_ref());
        let relies =
            |client: &Shared| client.holds(self.tick) && current.is_some_and(|hold| hold.holder.id == client.holder.id);
        let ends_another = |(number, client): (usize, &Shared)| number != usize::from(message.client) && relies(client);
        if scope.checks == Checks::All && new_holder.is_none() && self.clients.iter().enumerate().any(ends_another) {
            return Err("a release ends the hold of another client");
        }
        match new_holder {
            Some(holder) if scope.checks == Checks::Tokens => self.check_token(holder, message.record.token),
            _ => Ok(()),
        }
    }

    fn check_token(&mut self, holder: HolderId, token: u64) -> Result<(), Violation> {
        assert!(token <= FencingToken::MAX);
        if self.last_holder == Some(holder) {
            return Ok(());
        }
        let is_greater = token > self.last_token;
        (self.last_holder, self.last_token) = (Some(holder), token);
        if is_greater { Ok(()) } else { Err("a later grant has no greater token") }
    }

    fn check(&self, scope: &Scope) -> Result<(), Violation> {
        if self.clients.iter().filter(|client| client.holds(self.tick)).count() > 1 {
            return Err("two clients rely on their holds");
        }
        let held_by = self.content.as_ref().and_then(|content| content.record.hold.as_ref());
        if scope.checks == Checks::All && held_by.is_some_and(|hold| self.ended & bit(hold.holder.id) != 0) {
            return Err("an attempt that was reported as over holds the key");
        }
        Ok(())
    }

    /// Forgets what can have no effect, so that states with the same future are one.
    fn forget(&mut self, scope: &Scope) {
        if scope.is_linear(self) {
            let version = self.version();
            let clients = &self.clients;
            self.network.retain(|message| {
                message.expect == version || clients[usize::from(message.client)].io == Io::Writing(message.write)
            });
        }
        for client in &mut self.clients {
            if let Some(forgot) = client.forget(self.tick, scope) {
                *client = Shared::new(forgot);
            }
        }
        let in_network = self.network.iter().map(|message| &message.record);
        let records = in_network.chain(self.content.iter().map(|content| &content.record));
        let alive = records.filter_map(|record| record.hold.as_ref()).fold(0, |bits, hold| bits | bit(hold.holder.id));
        self.ended &= alive;
        // Their order means nothing.
        self.network.sort_by_key(|message| (message.write, message.is_copy));
    }

    /// Whether a client that comes when every lease is over gets the key.
    pub(crate) fn is_free_at_last(&self, scope: &Scope) -> bool {
        if self.content.as_ref().is_none_or(|content| content.record.hold.is_none()) {
            return true;
        }
        let tick = self.tick + TTL + 3 * UNIT + 2 * scope.fronts.iter().max().unwrap_or(&0);
        let mut newcomer = Client::new(&Scope { claims: [1; 3], ..*scope }, 2);
        newcomer.begin(tick, scope);
        newcomer.io = Io::Served { sent: tick, reading: self.read(0, tick, scope) };
        newcomer.receive(tick, scope).is_some()
    }

    /// What this step reaches.
    pub(crate) fn landmarks(&self, action: Action, after: &Self) -> u8 {
        match action {
            Action::Arrive { message, .. } if self.version() != after.version() => {
                let message = &self.network[usize::from(message)];
                let holder = |record: &Record| record.hold.as_ref().map(|hold| hold.holder.id);
                let current = self.content.as_ref().map(|content| holder(&content.record));
                match (current, holder(&message.record)) {
                    (None, _) => landmark::CREATED,
                    (Some(Some(of)), Some(new)) if of == new => landmark::RENEWED,
                    (Some(Some(_)), Some(_)) => landmark::TAKEN_OVER,
                    (Some(of), None) if of != Some(self.clients[usize::from(message.client)].holder.id) => {
                        landmark::SETTLED
                    }
                    _ => 0,
                }
            }
            Action::Receive(client) => {
                let client = &self.clients[usize::from(client)];
                u8::from(client.recognizes()) * landmark::RECOGNIZED
            }
            _ => 0,
        }
    }

    pub(crate) fn describe(&self, action: Action, scope: &Scope) -> String {
        let name = |client: u8| ["A", "B", "C"][usize::from(client)];
        match action {
            Action::Tick => "time passes".into(),
            Action::Begin(client) => format!("{} begins a claim", name(client)),
            Action::Repeat(client) => format!("{} repeats its claim", name(client)),
            Action::Renew(client) => format!("{} renews", name(client)),
            Action::Release(client) => format!("{} releases", name(client)),
            Action::GiveUp(client) => format!("{} waits no longer", name(client)),
            Action::Crash(client) => format!("{} crashes", name(client)),
            Action::Serve(client, front) => format!("front end {front} reads for {}", name(client)),
            Action::Receive(client) => {
                let said = match &self.clients[usize::from(client)].io {
                    Io::Served { reading, .. } => match &reading.stored {
                        Stored::Record(_, record) => show(record),
                        _ => "absent".into(),
                    },
                    Io::Written(..) => "written".into(),
                    _ => "refused".into(),
                };
                format!("{} receives: {said}", name(client))
            }
            Action::Arrive { message, front, is_lost, is_copied } => {
                let message = &self.network[usize::from(message)];
                let fits = scope.flaw == Some(Flaw::Unconditional) || message.expect == self.version();
                let what = if fits { "writes" } else { "refuses" };
                let lost = if is_lost { ", and the answer is lost" } else { "" };
                let copied = if is_copied { ", and a copy stays" } else { "" };
                let (who, record) = (name(message.client), show(&message.record));
                format!("front end {front} {what} for {who}: {record}{lost}{copied}")
            }
            Action::Lose(message) => format!("a write of {} is lost", name(self.network[usize::from(message)].client)),
            Action::Delete => "the record is deleted".into(),
        }
    }
}

fn show(record: &Record) -> String {
    let by = record.hold.as_ref().map_or("free".into(), |hold| format!("held by {}", &hold.holder.id.to_string()[..2]));
    format!("{by}, token {}, write {}", record.token, record.nonce)
}
