//! A client: it claims, renews and releases with the decisions of production, gives up and crashes.

use crate::world::{Action, Flaw, Scope, TTL, World, holder, key, moment, ttl};
use fencelock_core::register::{
    Expect, Reading, Record, Remembered, StoreClock, Stored, Update, UpdateEnv, UpdateStep, Version, View, decisions,
};
use fencelock_core::{Acquire, Claim, FencingToken, Holder, HolderId, Intent, Key, Release, Renew, Renewal};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Claiming,
    /// It waits no longer for the answer to its claim.
    Unknown,
    Holding,
    Renewing,
    Releasing,
}

/// The request to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Io {
    Nothing,
    /// Sent at this tick, if that matters.
    Reading(u8),
    Served {
        sent: u8,
        reading: Reading,
    },
    Writing(u8),
    Written(Version, Option<u64>),
    Refused,
}

#[derive(Debug, Clone, Hash)]
enum Answer {
    Claim(Acquire),
    Renew(Renew),
    Release(Release),
}

#[derive(Debug, Clone, Hash)]
pub(crate) struct Client {
    phase: Phase,
    pub(crate) io: Io,
    pub(crate) holder: Holder,
    /// So many writes were sent. They have numbers of their own.
    writes: u8,
    /// The attempt that the latest step has ended, and the token that it was granted.
    pub(crate) ended: Option<HolderId>,
    pub(crate) granted: Option<u64>,
    number: u8,
    memory: Remembered,
    clock: StoreClock,
    update: Option<Update<Answer>>,
    claims: u8,
    renewals: u8,
    impatience: u8,
    /// When its request began, and until when it relies on its hold.
    sent: u8,
    until: u8,
}

type Sent = Option<(Expect, Record)>;

impl Client {
    pub(crate) fn new(scope: &Scope, number: u8) -> Self {
        Self {
            phase: Phase::Idle,
            io: Io::Nothing,
            holder: holder(number, 0),
            writes: 0,
            ended: None,
            granted: None,
            number,
            memory: Remembered::default(),
            clock: StoreClock::new(scope.timing()),
            update: None,
            claims: scope.claims[usize::from(number)],
            renewals: scope.renewals[usize::from(number)],
            impatience: scope.impatience[usize::from(number)],
            sent: 0,
            until: 0,
        }
    }

    /// One that does nothing any more, also because it has crashed.
    pub(crate) fn finished(scope: &Scope, number: u8) -> Self {
        Self { claims: 0, renewals: 0, impatience: 0, ..Self::new(scope, number) }
    }

    pub(crate) fn is_new(&self, scope: &Scope) -> bool {
        self.phase == Phase::Idle && self.claims == scope.claims[usize::from(self.number)]
    }

    /// Whether it relies on its hold.
    pub(crate) const fn holds(&self, tick: u8) -> bool {
        matches!(self.phase, Phase::Holding | Phase::Renewing) && tick < self.until
    }

    pub(crate) const fn last_write(&self) -> u8 {
        number(self.number, self.writes)
    }

    pub(crate) fn actions(&self, world: &World, scope: &Scope, into: &mut Vec<Action>) {
        let me = self.number;
        match &self.io {
            Io::Reading(_) => into.extend((0..scope.fronts()).map(|front| Action::Serve(me, front))),
            Io::Served { .. } | Io::Written(..) | Io::Refused => into.push(Action::Receive(me)),
            Io::Writing(_) if self.impatience > 0 => into.push(Action::GiveUp(me)),
            Io::Writing(_) => {}
            Io::Nothing => {
                let may_release = scope.releases && matches!(self.phase, Phase::Unknown | Phase::Holding);
                let may_renew = self.phase == Phase::Holding && self.renewals > 0 && world.tick < self.until;
                into.extend((self.phase == Phase::Idle && self.claims > 0).then_some(Action::Begin(me)));
                into.extend((self.phase == Phase::Unknown).then_some(Action::Repeat(me)));
                into.extend(may_renew.then_some(Action::Renew(me)));
                into.extend(may_release.then_some(Action::Release(me)));
            }
        }
        if world.may_crash() && self.phase != Phase::Idle {
            into.push(Action::Crash(me));
        }
    }

    pub(crate) fn begin(&mut self, tick: u8, scope: &Scope) -> Sent {
        self.claims -= 1;
        self.holder = holder(self.number, self.claims);
        self.claim(tick, scope)
    }

    pub(crate) fn claim(&mut self, tick: u8, scope: &Scope) -> Sent {
        if scope.flaw == Some(Flaw::ForgetsProofs) {
            (self.memory, self.clock) = (Remembered::default(), StoreClock::new(scope.timing()));
        }
        self.start(Phase::Claiming, tick, scope)
    }

    pub(crate) fn renew(&mut self, tick: u8, scope: &Scope) -> Sent {
        self.renewals -= 1;
        self.start(Phase::Renewing, tick, scope)
    }

    pub(crate) fn release(&mut self, tick: u8, scope: &Scope) -> Sent {
        if scope.flaw == Some(Flaw::ForgetsClaims) {
            self.memory = Remembered::default();
        }
        self.start(Phase::Releasing, tick, scope)
    }

    /// Its request is dropped. A release begins again.
    pub(crate) fn give_up(&mut self, tick: u8, scope: &Scope) -> Sent {
        self.impatience -= 1;
        (self.io, self.update) = (Io::Nothing, None);
        match self.phase {
            Phase::Claiming => self.phase = Phase::Unknown,
            Phase::Renewing => self.phase = Phase::Holding,
            _ => return self.release(tick, scope),
        }
        None
    }

    fn start(&mut self, phase: Phase, tick: u8, scope: &Scope) -> Sent {
        (self.phase, self.sent) = (phase, tick);
        let holder = (phase != Phase::Renewing).then_some(self.holder.id);
        self.judge(Update::new(holder), None, tick, tick, scope)
    }

    /// Receives the answer to its request.
    pub(crate) fn receive(&mut self, tick: u8, scope: &Scope) -> Sent {
        let mut update = self.update.take().expect("an update that waits");
        let is_claim = self.phase == Phase::Claiming;
        match std::mem::replace(&mut self.io, Io::Nothing) {
            Io::Refused if is_claim && scope.flaw == Some(Flaw::RefusalIsAnAnswer) => self.end(),
            Io::Served { reading: Reading { stored: Stored::Record(_, record), .. }, .. }
                if is_claim && scope.flaw == Some(Flaw::RepeatWritesNothing) && self.has(&record) =>
            {
                self.grant(record.token, tick, scope);
            }
            Io::Served { sent, reading } => {
                let at = if scope.flaw == Some(Flaw::ObservedFromSending) { sent } else { tick };
                return self.judge(update, Some(&reading), at, tick, scope);
            }
            Io::Written(version, date) => {
                let answer = update.written(version, date, &mut self.context(&key(), tick, 0));
                self.done(&answer.expect("it was written"), tick, scope);
            }
            Io::Refused => {
                update.refused(String::new(), 0);
                self.read(update, tick, scope);
            }
            Io::Nothing | Io::Reading(_) | Io::Writing(_) => unreachable!("only an answer is received"),
        }
        None
    }

    /// Whether it is about to read its latest write, which was executed without an answer.
    pub(crate) fn recognizes(&self) -> bool {
        match &self.io {
            Io::Served { reading: Reading { stored: Stored::Record(_, record), .. }, .. } => {
                record.nonce == self.last_write().into() && self.has(record)
            }
            _ => false,
        }
    }

    fn has(&self, record: &Record) -> bool {
        record.hold.as_ref().is_some_and(|hold| hold.holder.id == self.holder.id)
    }

    fn context<'a>(&'a mut self, key: &'a Key, now: u8, nonce: u8) -> UpdateEnv<'a> {
        let (memory, clock, now) = (&mut self.memory, &mut self.clock, moment(now));
        UpdateEnv { key, backend: "", memory, clock, proved: Some(now), now, nonce: nonce.into() }
    }

    fn read(&mut self, update: Update<Answer>, tick: u8, scope: &Scope) {
        let sent = if scope.flaw == Some(Flaw::ObservedFromSending) { tick } else { 0 };
        (self.io, self.update) = (Io::Reading(sent), Some(update));
    }

    /// Decides on what was received at `at`.
    fn judge(&mut self, mut update: Update<Answer>, read: Option<&Reading>, at: u8, tick: u8, scope: &Scope) -> Sent {
        let write = number(self.number, self.writes + 1);
        let nonce = if scope.flaw == Some(Flaw::OneNonce) { self.claims + 8 * self.number } else { write };
        let (phase, holder) = (self.phase, self.holder.clone());
        let decide = |view: &View<'_>| match phase {
            Phase::Renewing => decisions::renew(&Renewal::new(key(), holder.id, ttl()), view).map(Answer::Renew),
            Phase::Releasing => decisions::release(holder.id, view).map(Answer::Release),
            _ => decisions::claim(&Claim::new(key(), holder, ttl(), Intent::Try), view).map(Answer::Claim),
        };
        match update.judge(read, decide, &mut self.context(&key(), at, nonce)) {
            UpdateStep::Read => self.read(update, tick, scope),
            UpdateStep::Write { expect, record } => {
                self.writes += 1;
                self.update = Some(update);
                return Some((expect, record));
            }
            UpdateStep::Done(answer) => self.done(&answer.expect("no search has so many rounds"), tick, scope),
            UpdateStep::Prove => unreachable!("it is proved"),
        }
        None
    }

    fn done(&mut self, answer: &Answer, tick: u8, scope: &Scope) {
        match answer {
            Answer::Claim(Acquire::Granted { tokens }) => self.grant(tokens.last().get(), tick, scope),
            Answer::Renew(Renew::Renewed { .. }) => {
                // A lease that is over is never revived.
                let until = if tick < self.until { self.until.max(self.lease(tick, scope)) } else { 0 };
                (self.phase, self.until) = (Phase::Holding, until);
            }
            Answer::Claim(Acquire::Busy(_)) | Answer::Renew(_) | Answer::Release(_) => self.end(),
            Answer::Claim(_) => unreachable!("it never polls"),
        }
    }

    fn grant(&mut self, token: u64, tick: u8, scope: &Scope) {
        assert!(FencingToken::new(token).is_ok());
        (self.phase, self.until) = (Phase::Holding, self.lease(tick, scope));
        self.granted = Some(token).filter(|_| tick < self.until);
    }

    fn lease(&self, tick: u8, scope: &Scope) -> u8 {
        TTL + if scope.flaw == Some(Flaw::LeaseFromReceipt) { tick } else { self.sent }
    }

    /// Its attempt is over.
    fn end(&mut self) {
        (self.phase, self.io, self.update, self.until) = (Phase::Idle, Io::Nothing, None, 0);
        self.ended = Some(self.holder.id);
    }

    /// The same client without what can have no effect, if there is any.
    pub(crate) fn forget(&self, tick: u8, scope: &Scope) -> Option<Self> {
        if self.phase == Phase::Idle && self.claims == 0 {
            return (self.writes > 0).then(|| Self::finished(scope, self.number));
        }
        let until = if self.holds(tick) { self.until } else { 0 };
        let sent = if matches!(self.phase, Phase::Claiming | Phase::Renewing) { self.sent } else { 0 };
        ((until, sent) != (self.until, self.sent)).then(|| Self { sent, until, ..self.clone() })
    }
}

/// Each write has a number of its own.
const fn number(client: u8, write: u8) -> u8 {
    client * 64 + write
}
