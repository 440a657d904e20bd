//! The reference implementation of a backend.

use super::completions::Completions;
use fencelock_core::{
    Acquire, Answer, Backend, BootClock, BoxFuture, Capabilities, Claim, ClearCompletion, Clock, Completion,
    CompletionRead, Event, Eviction, Expiry, FencingToken, Finding, Holder, HolderId, HolderInfo, Holding, Intent,
    Invalid, Key, Listener, Listeners, Moment, Occupant, Occupied, QuorumNode, Raise, Release, Renew, Renewal,
    TokenBlock, Unknown, WriteCompletion, next_block, raise_fence,
};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// The lease of a hand-off until its waiter confirms it, and how long a waiter stays alive without a poll, as on Redis.
const CLAIM_TTL: Duration = Duration::from_secs(3);
const WAITER_LIFE: Duration = Duration::from_secs(3);

/// Locks in the memory of this process.
///
/// A plain [`Memory`] never takes a lock away: its holds end when they are released, like those of a mutex, however long the
/// runtime is blocked. With [`Memory::with_leases`], holds expire unless renewed, exactly as on a server; that is for
/// tests, simulations and quorums of memories.
#[derive(Debug)]
pub struct Memory {
    name: String,
    clock: Arc<dyn Clock>,
    leases: bool,
    slots: Mutex<HashMap<Key, Slot>>,
    completions: Completions,
    listeners: Listeners,
}

/// The state of a key. A free key keeps its slot while tasks wait, and its fence permanently: one number per key is small.
#[derive(Debug, Default)]
struct Slot {
    fence: u64,
    held: Option<Held>,
    line: VecDeque<Waiter>,
    /// The holder whose end has a subscriber.
    watched: Option<HolderId>,
}

#[derive(Debug, Clone)]
struct Held {
    holder: Holder,
    fence: FencingToken,
    since: Moment,
    until: Moment,
}

#[derive(Debug)]
struct Waiter {
    holder: Holder,
    ttl: Duration,
    block: NonZeroU32,
    seen: Moment,
}

impl Memory {
    /// New locks, shared by all users of this value: for a test that must be isolated. The URL
    /// `memory:` refers to [`Memory::of_this_process`].
    pub fn new() -> Self {
        Self::build("memory:".into(), Arc::new(BootClock), false)
    }

    /// Locks whose holds expire by `clock` unless they are renewed.
    pub fn with_leases(clock: Arc<dyn Clock>) -> Self {
        Self::build("memory:leases".into(), clock, true)
    }

    /// The locks of this process, which are shared by all callers and live as long as the process.
    pub fn of_this_process() -> Arc<Self> {
        static PLACE: LazyLock<Arc<Memory>> = LazyLock::new(|| Arc::new(Memory::new()));
        Arc::clone(&PLACE)
    }

    /// The locks with this name in this process: the same name refers to the same locks as long as they are in use. Another
    /// name, and [`Memory::of_this_process`], refer to other locks.
    pub fn named(name: &str) -> Arc<Self> {
        static NAMED: OnceLock<Mutex<HashMap<String, Weak<Memory>>>> = OnceLock::new();
        let mut named = NAMED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, memory| memory.strong_count() > 0);
        if let Some(memory) = named.get(name).and_then(Weak::upgrade) {
            return memory;
        }
        let memory = Arc::new(Self::build(format!("memory:{name}"), Arc::new(BootClock), false));
        named.insert(name.to_owned(), Arc::downgrade(&memory));
        memory
    }

    fn build(name: String, clock: Arc<dyn Clock>, leases: bool) -> Self {
        Self {
            name,
            clock,
            leases,
            slots: Mutex::default(),
            completions: Completions::default(),
            listeners: Listeners::default(),
        }
    }

    /// Runs one atomic step on a key, like a script on a server, and then sends its events.
    fn step<T>(&self, key: &Key, step: impl FnOnce(&mut Slot, Step<'_>) -> T) -> T {
        let mut events = Vec::new();
        let now = self.clock.now();
        let answer = {
            let mut slots = self.lock();
            let slot = slots.entry(key.clone()).or_default();
            slot.expire(now);
            let context = Step { key, now, wall: self.clock.wall_micros(), leases: self.leases, events: &mut events };
            let answer = step(slot, context);
            if slot.watched.is_some() && slot.watched != slot.holder() {
                slot.watched = None;
                events.push(Event::Changed { key: key.clone() });
            }
            answer
        };
        for event in &events {
            self.listeners.send(event);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew_one(&self, renewal: &Renewal) -> Renew {
        self.step(&renewal.key, |slot, step| {
            let waiters = slot.waiters();
            match &mut slot.held {
                None => Renew::Absent,
                Some(held) if held.holder.id == renewal.holder => {
                    held.until = held.until.max(step.end(renewal.ttl.get()));
                    Renew::Renewed { waiters }
                }
                Some(held) => Renew::TakenBy(Occupant::Holder(held.holder.clone()).into()),
            }
        })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// The inputs of a step.
struct Step<'a> {
    key: &'a Key,
    now: Moment,
    wall: u64,
    leases: bool,
    events: &'a mut Vec<Event>,
}

impl Step<'_> {
    fn end(&self, ttl: Duration) -> Moment {
        if self.leases { self.now + ttl } else { Moment::NEVER }
    }
}

impl Slot {
    fn expire(&mut self, now: Moment) {
        if self.held.as_ref().is_some_and(|held| now >= held.until) {
            self.held = None;
        }
    }

    fn waiters(&self) -> u32 {
        u32::try_from(self.line.len()).unwrap_or(u32::MAX)
    }

    fn holder(&self) -> Option<HolderId> {
        self.held.as_ref().map(|held| held.holder.id)
    }

    fn grant(
        &mut self,
        holder: Holder,
        ttl: Duration,
        tokens: Result<TokenBlock, Invalid>,
        step: &Step<'_>,
    ) -> Result<TokenBlock, Unknown> {
        let tokens = tokens.map_err(|error| Unknown::new("memory", fencelock_core::Fault::Other, error.to_string()))?;
        self.fence = tokens.last().get();
        self.held = Some(Held { holder, fence: tokens.last(), since: step.now, until: step.end(ttl) });
        Ok(tokens)
    }

    /// Grants a free key to the first live waiter, or to `me` if that comes first, and sends the
    /// tokens.
    fn advance(&mut self, me: Option<HolderId>, step: &mut Step<'_>) -> Result<Option<TokenBlock>, Unknown> {
        while let Some(waiter) = self.line.pop_front() {
            let tokens = next_block(self.fence, step.wall, waiter.block);
            if me == Some(waiter.holder.id) {
                return self.grant(waiter.holder, waiter.ttl, tokens, step).map(Some);
            }
            if step.leases && step.now.since(waiter.seen) >= WAITER_LIFE {
                continue;
            }
            let holder = waiter.holder.id;
            let claim_ttl = CLAIM_TTL.min(waiter.ttl);
            let tokens = self.grant(waiter.holder, claim_ttl, tokens, step)?;
            step.events.push(Event::Handed { key: step.key.clone(), holder, tokens, claim_ttl });
            return Ok(None);
        }
        Ok(None)
    }

    fn claim(&mut self, claim: &Claim, mut step: Step<'_>) -> Result<Acquire, Unknown> {
        let me = claim.holder.id;
        if let Some(waiter) = self.line.iter_mut().find(|waiter| waiter.holder.id == me) {
            (waiter.seen, waiter.block) = (step.now, claim.block);
        }
        let mut granted = None;
        if self.held.is_none() {
            granted = self.advance(Some(me), &mut step)?;
        }
        if self.held.is_none() && claim.intent != Intent::Poll {
            let tokens = claim.next_block(self.fence, step.wall);
            granted = Some(self.grant(claim.holder.clone(), claim.ttl.get(), tokens, &step)?);
        }
        if let Some(held) = self.held.as_mut().filter(|held| held.holder.id == me) {
            held.until = held.until.max(step.end(claim.ttl.get()));
            // The client may have used some tokens before it repeats the claim, but none after the last.
            return Ok(Acquire::Granted { tokens: granted.unwrap_or(held.fence.into()) });
        }
        let place = self.line.iter().position(|waiter| waiter.holder.id == me);
        let place = match (place, claim.intent) {
            (None, Intent::Poll) => return Ok(Acquire::Gone),
            (_, Intent::Try) => return Ok(self.occupied(step.now).map_or(Acquire::Gone, Acquire::Busy)),
            (Some(place), _) => place,
            (None, Intent::Enqueue) => {
                let (holder, ttl) = (claim.holder.clone(), claim.ttl.get());
                self.line.push_back(Waiter { holder, ttl, block: claim.block, seen: step.now });
                self.line.len() - 1
            }
        };
        let ahead = u32::try_from(place).unwrap_or(u32::MAX);
        Ok(self.occupied(step.now).map_or(Acquire::Gone, |occupied| Acquire::Queued {
            ahead,
            last_fence: self.fence,
            server_micros: None,
            occupied,
        }))
    }

    fn occupied(&self, now: Moment) -> Option<Occupied> {
        self.held.as_ref().map(|held| {
            let by = Occupant::Holder(held.holder.clone());
            Occupied::new(by, held.expiry(now)).with_held_for(Some(now.since(held.since)))
        })
    }

    fn holding(&self, key: &Key, now: Moment) -> Option<Holding> {
        self.held.as_ref().filter(|held| now < held.until).map(|held| {
            let hold = HolderInfo::new(Occupant::Holder(held.holder.clone()), held.expiry(now))
                .with_fence(Some(held.fence))
                .with_held_for(Some(now.since(held.since)));
            Holding::new(key.clone(), hold).with_waiters(self.waiters())
        })
    }

    fn free(&mut self, holder: &HolderId, mut step: Step<'_>) -> Result<Release, Unknown> {
        self.line.retain(|waiter| waiter.holder.id != *holder);
        let answer = match &self.held {
            None => Release::Absent,
            Some(held) if held.holder.id == *holder => {
                self.held = None;
                Release::Released
            }
            Some(held) => return Ok(Release::TakenBy(Occupant::Holder(held.holder.clone()).into())),
        };
        self.advance(None, &mut step)?;
        Ok(answer)
    }

    fn raise(&mut self, holder: &HolderId, to: FencingToken) -> Raise {
        let Some(fence) = raise_fence(self.holder().as_ref(), holder, self.fence, to) else { return Raise::Refused };
        self.fence = fence.get();
        if let Some(held) = &mut self.held {
            held.fence = fence;
        }
        Raise::Acked
    }

    fn watch(&mut self, step: &mut Step<'_>) {
        self.watched = self.holder();
        if self.watched.is_none() {
            step.events.push(Event::Changed { key: step.key.clone() });
        }
    }
}

impl Held {
    fn expiry(&self, now: Moment) -> Expiry {
        if self.until == Moment::NEVER { Expiry::Never } else { Expiry::In(self.until.since(now)) }
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        (facts.expires, facts.portable) = (self.leases, self.leases);
        (facts.queues, facts.evicts, facts.completions) = (true, true, true);
        facts
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire> {
        Box::pin(async {
            claim.supported_by(self)?;
            self.step(&claim.key, |slot, step| slot.claim(claim, step))
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async {
            self.step(key, |slot, mut step| slot.watch(&mut step));
            Ok(())
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async { renewals.iter().map(|renewal| Ok(self.renew_one(renewal))).collect() })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.step(key, |slot, step| slot.free(holder, step)) })
    }

    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(async { Ok(self.completions.read(key, self.clock.wall_micros())) })
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(async {
            Ok(self.step(key, |slot, _| {
                if slot.holder() != Some(*holder) {
                    return WriteCompletion::NotHeld;
                }
                self.completions.write(key, completion);
                WriteCompletion::Written
            }))
        })
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(async { Ok(self.completions.clear(key, seen)) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async { Ok(self.step(key, |slot, step| slot.holding(key, step.now))) })
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async {
            let now = self.clock.now();
            Ok(self.lock().iter().filter_map(|(key, slot)| slot.holding(key, now)).collect())
        })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async {
            let evicted = self.step(&seen.key, |slot, mut step| {
                let same = slot.held.as_ref().is_some_and(|held| seen.has(held.holder.id));
                if !same {
                    return Ok(Eviction::Changed(slot.holding(&seen.key, step.now).map(Box::new)));
                }
                slot.held = None;
                step.events.push(Event::Changed { key: seen.key.clone() });
                slot.advance(None, &mut step)?;
                Ok(Eviction::Evicted)
            })?;
            Ok(evicted)
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async {
            vec![Finding::fine("place", "memory of this process: other processes do not see these locks")]
        })
    }
}

impl QuorumNode for Memory {
    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move { Ok(self.step(key, |slot, _| slot.raise(holder, to))) })
    }

    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()> {
        Box::pin(async {
            self.completions.write(key, completion);
            Ok(())
        })
    }
}
