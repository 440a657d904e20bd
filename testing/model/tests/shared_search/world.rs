//! The clients, the key and the time.

use crate::checks;
use crate::client::{Belief, Client, Kind, Phase, Sent, TTL_MS};
use fencelock_core::Mode;
use fencelock_model::{
    Acquire, Delivery, Downgrade, Gate, HandOff, Intent, KeyModel, Name, OnlyIfFree, Release, Renew, Server, Value,
    WaiterQueue,
};

const START_US: u64 = 1_780_000_000_000_000;
pub(crate) const HAND_OFF_MS: u64 = 8;

/// The limits to which a semaphore with two permits is resized.
const LIMITS: [u32; 2] = [1, 3];

/// A rule of the scripts or their clients, dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Production,
    OvertakesWaiters,
    LockEndsBeforeItsHolds,
    DowngradesWithTheReply,
    FreesTwice,
    IgnoresLimits,
    CancelsWithoutAdvance,
    RenewsEndedHolds,
    ResizeForgetsThePermitsInUse,
    ResizeLeavesWaiters,
    PollsByTheLimitBefore,
    ResizeKeepsEveryWaiter,
    CountsFromTheMessage,
    TakesMessagesForLeases,
    BelievesStaleMessages,
}

#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) clients: Vec<Client>,
    /// Another program, with `SET NX PX` and compare-and-delete.
    pub(crate) plain: bool,
    /// How many requests may arrive twice.
    pub(crate) duplicates: u8,
    pub(crate) renewals: u8,
    /// How often the limit of the semaphore may be changed.
    pub(crate) resizes: u8,
    pub(crate) rule: Rule,
    /// The one damage that counts.
    pub(crate) sought: Option<&'static str>,
}

impl Setting {
    pub(crate) fn seeks(&self, damage: &str) -> bool {
        self.sought.is_none_or(|sought| damage.starts_with(sought))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Enqueue(usize),
    Poll(usize),
    /// The message of its hand-off arrives.
    Receive(usize),
    Renew(usize),
    Release(usize),
    Downgrade(usize),
    /// The reply to the downgrade arrives.
    Downgraded(usize),
    /// It does nothing more.
    Stop(usize),
    /// Its last request arrives again.
    Duplicate(usize),
    PlainSet,
    PlainDelete,
    /// Changes the limit of the semaphore.
    Resize(u32),
    /// To just after the next end.
    Wait,
}

impl Act {
    pub(crate) const fn client(self) -> Option<usize> {
        match self {
            Self::Enqueue(i)
            | Self::Poll(i)
            | Self::Receive(i)
            | Self::Renew(i)
            | Self::Release(i)
            | Self::Downgrade(i)
            | Self::Downgraded(i)
            | Self::Stop(i)
            | Self::Duplicate(i) => Some(i),
            Self::PlainSet | Self::PlainDelete | Self::Resize(_) | Self::Wait => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) key: KeyModel,
    pub(crate) clients: Vec<Client>,
    pub(crate) plain_until_ms: Option<u64>,
    plain_used: bool,
    duplicates: u8,
    pub(crate) resizes: u8,
    /// The greatest token granted.
    pub(crate) token: u64,
}

pub(crate) const fn holder(client: usize) -> u128 {
    client as u128 + 1
}

impl World {
    pub(crate) fn new(setting: &Setting) -> Self {
        let mut clients = setting.clients.clone();
        for client in &mut clients {
            client.renewals = setting.renewals;
        }
        let (key, duplicates) = (KeyModel::default(), setting.duplicates);
        let resizes = setting.resizes;
        Self { now_us: START_US, key, clients, plain_until_ms: None, plain_used: false, duplicates, resizes, token: 0 }
    }

    const fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub(crate) fn acts(&self, setting: &Setting) -> Vec<Act> {
        let mut acts = Vec::new();
        for (i, client) in self.clients.iter().enumerate() {
            if client.last != Sent::Nothing && self.duplicates > 0 {
                acts.push(Act::Duplicate(i));
            }
            if client.stopped {
                continue;
            }
            match client.phase {
                Phase::Idle => acts.push(Act::Enqueue(i)),
                Phase::Waiting => {
                    acts.extend([Act::Release(i), Act::Stop(i)]);
                    acts.extend((client.polls > 0).then_some(Act::Poll(i)));
                    acts.extend(self.notified_until_ms(i, setting.rule).map(|_| Act::Receive(i)));
                }
                Phase::Holding(belief) if belief.downgrading => acts.push(Act::Downgraded(i)),
                Phase::Holding(belief) => {
                    acts.extend([Act::Release(i), Act::Stop(i)]);
                    let valid = belief.until_ms >= self.now_ms();
                    acts.extend(
                        (client.renewals > 0 && (valid || setting.rule == Rule::RenewsEndedHolds))
                            .then_some(Act::Renew(i)),
                    );
                    let downgrades = valid && client.kind == Kind::Downgrader && belief.mode == Mode::Exclusive;
                    acts.extend(downgrades.then_some(Act::Downgrade(i)));
                }
                Phase::Over => {}
            }
        }
        if setting.plain {
            acts.extend((!self.plain_used).then_some(Act::PlainSet));
            acts.extend(self.plain_until_ms.map(|_| Act::PlainDelete));
        }
        if self.resizes > 0 && self.limit().is_some() {
            acts.extend(LIMITS.map(Act::Resize));
        }
        acts.extend(self.next_end_ms().map(|_| Act::Wait));
        acts
    }

    /// The next time at which a hold, a waiter, a lock or a belief ends, or a client may renew.
    fn next_end_ms(&self) -> Option<u64> {
        let now_ms = self.now_ms();
        let times = |client: &Client| {
            let until_ms = client.belief(now_ms)?.until_ms;
            let renewal = (until_ms - TTL_MS / 2).checked_sub(1).filter(|time| client.renewals > 0 && *time >= now_ms);
            Some(renewal.unwrap_or(until_ms))
        };
        let beliefs = self.clients.iter().filter_map(times);
        let ends = self.key.holds.ends_ms.values().chain(self.key.deadlines.until_ms.values()).copied();
        let lock = self.key.lock.as_ref().and_then(|lock| lock.expires_ms);
        beliefs.chain(ends).chain(lock).chain(self.plain_until_ms).filter(|end| *end >= self.now_ms()).min()
    }

    /// The error says what is broken.
    pub(crate) fn act(&mut self, act: Act, setting: &Setting) -> Result<(), String> {
        let server = Server::at(self.now_us);
        self.key.expire(&server);
        let (before, used_before) = (self.key.clone(), checks::used(self));
        match act {
            Act::Wait => {
                self.now_us = (self.next_end_ms().unwrap() + 1) * 1000;
                self.key.expire(&Server::at(self.now_us));
                self.plain_until_ms.take_if(|until| *until < self.now_us / 1000);
            }
            Act::PlainSet => {
                let done = self.key.foreign_set(&server, Value::Foreign("plain".into()), Some(TTL_MS), OnlyIfFree::Yes);
                self.plain_used = true;
                self.plain_until_ms = (done.unwrap() == fencelock_model::Done::Yes).then(|| self.now_ms() + TTL_MS);
            }
            Act::PlainDelete => {
                self.plain_until_ms = None;
                self.key.foreign_compare_and_delete(&server, &Value::Foreign("plain".into()));
            }
            Act::Resize(limit) => self.resize(limit, &server, setting.rule)?,
            Act::Stop(i) => self.clients[i].stopped = true,
            Act::Downgraded(i) => {
                if let Phase::Holding(belief) = &mut self.clients[i].phase {
                    (belief.mode, belief.downgrading) = (Mode::Shared, false);
                }
            }
            Act::Downgrade(i) => self.downgrade(i, &server, setting.rule)?,
            Act::Receive(i) => self.receive(i, setting.rule),
            Act::Renew(i) => self.renew(i, &server, setting.rule),
            Act::Enqueue(i) => self.ask(i, Intent::Enqueue, &server, setting)?,
            Act::Poll(i) => {
                self.clients[i].polls -= 1;
                self.ask(i, Intent::Poll, &server, setting)?;
            }
            Act::Release(i) => {
                self.clients[i].phase = Phase::Over;
                self.clients[i].last = Sent::Release;
                self.release(i, &server, setting.rule)?;
            }
            Act::Duplicate(i) => {
                self.duplicates -= 1;
                match self.clients[i].last {
                    Sent::Release => self.release(i, &server, setting.rule)?,
                    Sent::Enqueue => drop(self.sends(i, Intent::Enqueue, &server, setting.rule)),
                    Sent::Poll => drop(self.sends(i, Intent::Poll, &server, setting.rule)),
                    Sent::Nothing => {}
                }
            }
        }
        if setting.rule == Rule::LockEndsBeforeItsHolds {
            self.forget_prolonging(&before);
        }
        self.forget_messages(setting.rule);
        checks::promises(self, setting, act.client(), &before, used_before)
    }

    fn sends(&mut self, i: usize, intent: Intent, server: &Server, rule: Rule) -> Acquire {
        let claim = self.clients[i].claim(holder(i), intent, self.now_us);
        let limit =
            if rule == Rule::IgnoresLimits { self.replace_limit(self.clients[i].kind.mode().limit()) } else { None };
        let queue = self.key.queue.clone();
        if rule == Rule::OvertakesWaiters && claim.mode == Mode::Shared && intent == Intent::Enqueue {
            self.key.queue = WaiterQueue::default();
        }
        let mut sent = Outbox::default();
        let answer = self.key.acquire(server, &claim, &Gate::Open, &mut |message| sent.send(message)).unwrap();
        if rule == Rule::OvertakesWaiters && self.key.queue.members.is_empty() {
            self.key.queue = queue;
        }
        self.replace_limit(limit);
        self.deliver_later(sent);
        answer
    }

    fn ask(&mut self, i: usize, intent: Intent, server: &Server, setting: &Setting) -> Result<(), String> {
        let rule = setting.rule;
        if rule == Rule::PollsByTheLimitBefore {
            self.restore_entry(i);
        }
        let (weight, limit) = (self.clients[i].kind.mode().weight(), self.limit());
        let waits = self.key.queue.members.iter().any(|(_, name)| *name == Name::Holder(holder(i)));
        let answer = self.sends(i, intent, server, rule);
        let (now_ms, mode) = (self.now_ms(), self.clients[i].kind.mode());
        self.clients[i].last = if intent == Intent::Poll { Sent::Poll } else { Sent::Enqueue };
        match answer {
            Acquire::Granted { fence, .. } => {
                let repeated = fence <= self.token;
                self.token = self.token.max(fence);
                self.clients[i].granted(mode, now_ms);
                if repeated {
                    return Ok(());
                }
            }
            Acquire::Queued { .. } => self.queued(i, rule),
            Acquire::Conflict(..) if waits && setting.resizes > 0 && limit.is_some_and(|limit| weight <= limit) => {
                return Err(format!("a waiter is refused: {weight} of {limit:?}"));
            }
            // The client polls next.
            Acquire::Yours => {
                self.clients[i].phase = Phase::Waiting;
                return Ok(());
            }
            _ => self.clients[i].phase = Phase::Over,
        }
        if rule == Rule::Production { checks::first_waiter_has_no_room(&self.key, self.now_us) } else { Ok(()) }
    }

    fn renew(&mut self, i: usize, server: &Server, rule: Rule) {
        self.clients[i].renewals -= 1;
        let answer = self.key.renew(server, holder(i), TTL_MS, TTL_MS).unwrap();
        let now_ms = self.now_ms();
        let Phase::Holding(belief) = &mut self.clients[i].phase else { return };
        if matches!(answer, Renew::Renewed { .. }) || rule == Rule::RenewsEndedHolds {
            belief.until_ms = now_ms + TTL_MS;
        } else {
            self.clients[i].phase = Phase::Over;
        }
    }

    fn release(&mut self, i: usize, server: &Server, rule: Rule) -> Result<(), String> {
        let held = self.key.holds.ends_ms.contains_key(&holder(i));
        if rule == Rule::FreesTwice
            && !held
            && let Some(used) = &mut self.key.held.used
        {
            *used = used.saturating_sub(1);
        }
        let me = Name::Holder(holder(i));
        if rule == Rule::CancelsWithoutAdvance && self.key.queue.members.iter().any(|(_, name)| *name == me) {
            self.key.queue.members.retain(|(_, name)| *name != me);
            self.key.waiters.entries.remove(&me);
            self.key.deadlines.until_ms.remove(&me);
            return checks::first_waiter_has_no_room(&self.key, self.now_us);
        }
        let mut sent = Outbox::default();
        let publish = &mut |message| sent.send(message);
        let released = self.key.release(server, holder(i), server.now_us, HAND_OFF_MS, &Gate::Open, publish).unwrap();
        self.deliver_later(sent);
        match released {
            Release::Taken(_) => Ok(()),
            _ => checks::first_waiter_has_no_room(&self.key, self.now_us),
        }
    }

    fn downgrade(&mut self, i: usize, server: &Server, rule: Rule) -> Result<(), String> {
        let claim = self.clients[i].claim(holder(i), Intent::Poll, self.now_us);
        let mut sent = Outbox::default();
        let answer = self.key.downgrade(server, &claim, &Gate::Open, &mut |message| sent.send(message)).unwrap();
        self.deliver_later(sent);
        let now_ms = self.now_ms();
        let Phase::Holding(belief) = &mut self.clients[i].phase else { return Ok(()) };
        let Downgrade::Downgraded { fence, .. } = answer else {
            self.clients[i].phase = Phase::Over;
            return Ok(());
        };
        if fence <= self.token {
            return Err(format!("the token {fence} is not new"));
        }
        self.token = fence;
        belief.until_ms = now_ms + TTL_MS;
        belief.downgrading = rule == Rule::DowngradesWithTheReply;
        if rule != Rule::DowngradesWithTheReply {
            belief.mode = Mode::Shared;
        }
        checks::first_waiter_has_no_room(&self.key, self.now_us)
    }

    fn forget_prolonging(&mut self, before: &KeyModel) {
        if let (Some(lock), Some(was)) = (&mut self.key.lock, &before.lock)
            && lock.value == was.value
            && matches!(lock.value, Value::Shared { .. })
        {
            lock.expires_ms = was.expires_ms;
        }
    }
}

/// The messages that one call sends.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<HandOff>);

impl Outbox {
    pub(crate) fn send(&mut self, hand_off: HandOff) -> Delivery {
        self.0.push(hand_off);
        Delivery::Received
    }
}

impl World {
    /// A message matters until its client no longer waits, or has received a later reply.
    pub(crate) fn deliver_later(&mut self, sent: Outbox) {
        for HandOff { to, fence, .. } in sent.0 {
            let Name::Holder(holder) = to else { continue };
            let client = usize::try_from(holder).ok().and_then(|number| self.clients.get_mut(number.checked_sub(1)?));
            if let Some(client) = client.filter(|client| client.phase == Phase::Waiting && !client.stopped) {
                client.notified = Some(fence);
            }
        }
    }

    /// A claim was answered with a position in the queue.
    pub(crate) fn queued(&mut self, i: usize, rule: Rule) {
        let now_ms = self.now_us / 1000;
        let client = &mut self.clients[i];
        (client.phase, client.asked_ms) = (Phase::Waiting, now_ms);
        // Its message is not newer than the reply.
        client.notified.take_if(|_| rule != Rule::BelievesStaleMessages);
    }

    /// Until when a message lets this client hold the key, if it believes it now.
    pub(crate) fn notified_until_ms(&self, i: usize, rule: Rule) -> Option<u64> {
        let (client, now_ms) = (&self.clients[i], self.now_us / 1000);
        let (from_ms, ttl_ms) = match rule {
            Rule::CountsFromTheMessage => (now_ms, HAND_OFF_MS),
            Rule::TakesMessagesForLeases => (client.asked_ms, TTL_MS),
            _ => (client.asked_ms, HAND_OFF_MS),
        };
        let until_ms = Some(from_ms + ttl_ms).filter(|until| *until >= now_ms)?;
        (client.notified.is_some() && client.phase == Phase::Waiting && !client.stopped).then_some(until_ms)
    }

    /// The message arrives.
    pub(crate) fn receive(&mut self, i: usize, rule: Rule) {
        let Some(until_ms) = self.notified_until_ms(i, rule) else { return };
        let mode = self.clients[i].kind.mode();
        self.token = self.token.max(self.clients[i].notified.unwrap_or_default());
        self.clients[i].phase = Phase::Holding(Belief { mode, until_ms, downgrading: false });
    }

    /// Forgets messages that cannot matter any more.
    pub(crate) fn forget_messages(&mut self, rule: Rule) {
        for i in 0..self.clients.len() {
            let (now_ms, client) = (self.now_us / 1000, &self.clients[i]);
            let waits = client.phase == Phase::Waiting && !client.stopped;
            let is_over = client.asked_ms + HAND_OFF_MS < now_ms;
            if !waits || is_over && rule == Rule::Production {
                self.clients[i].notified = None;
                self.clients[i].asked_ms = 0;
            }
        }
    }
}

/// What a search must have reached.
impl World {
    /// Whether the server has a live hold of the client.
    pub(crate) fn holds_key(&self, i: usize) -> bool {
        let is_live = |end: &u64| *end >= self.now_us / 1000;
        match self.key.lock.as_ref().map(|lock| &lock.value) {
            Some(Value::Ours { holder: other, .. }) => *other == holder(i),
            Some(Value::Shared { .. }) => self.key.holds.ends_ms.get(&holder(i)).is_some_and(is_live),
            _ => false,
        }
    }

    pub(crate) fn waits(&self, i: usize) -> bool {
        self.key.queue.members.iter().any(|(_, name)| *name == Name::Holder(holder(i)))
    }

    pub(crate) fn belief(&self, i: usize) -> Option<Belief> {
        self.clients[i].belief(self.now_us / 1000)
    }
}
