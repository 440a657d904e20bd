//! The reference implementation of a backend.

mod completions;
mod row;
mod scheme;
mod slot;

use completions::Completions;
use fencelock_core::{
    Acquire, Answer, Backend, BootClock, BoxFuture, Capabilities, Claim, ClearCompletion, Clock, Completion,
    CompletionRead, Downgrade, Event, Eviction, FencingToken, Finding, HolderId, Holding, Key, Listener, Listeners,
    Modes, QuorumNode, Raise, Release, Renew, Renewal, Resize, Unknown, WriteCompletion,
};
pub(crate) use scheme::MemoryScheme;
use slot::{Slot, Step};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

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
        static BACKEND: LazyLock<Arc<Memory>> = LazyLock::new(|| Arc::new(Memory::new()));
        Arc::clone(&BACKEND)
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
        let (slots, completions, listeners) = (Mutex::default(), Completions::default(), Listeners::default());
        Self { name, clock, leases, slots, completions, listeners }
    }

    /// Runs one atomic step on a key, like a script on a server, and then sends its events.
    fn step<T>(&self, key: &Key, step: impl FnOnce(&mut Slot, Step<'_>) -> T) -> T {
        let mut events = Vec::new();
        let now = self.clock.now();
        let answer = {
            let mut slots = self.lock();
            let slot = slots.entry(key.clone()).or_default();
            slot.expire(now);
            let (backend, wall, leases) = (self.name.as_str(), self.clock.wall_micros(), self.leases);
            let answer = step(slot, Step { backend, key, now, wall, leases, events: &mut events });
            if slot.watched_has_ended() {
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
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        (facts.expires, facts.portable) = (self.leases, self.leases);
        (facts.queues, facts.evicts, facts.modes) = (true, true, modes());
        (facts.announces_waiters, facts.completions) = (true, true);
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
            self.step(&claim.key, |slot, step| slot.claim(claim, None, step))
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async {
            self.step(key, |slot, mut step| slot.watch(&mut step));
            Ok(())
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        let renew = |renewal: &Renewal| self.step(&renewal.key, |slot, step| slot.renew(renewal, &step));
        Box::pin(async move { renewals.iter().map(|renewal| Ok(renew(renewal))).collect() })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.step(key, |slot, step| slot.release(holder, step)) })
    }

    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(async { self.step(&renewal.key, |slot, step| slot.downgrade(renewal, None, step)) })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(async move {
            Resize::check(&self.name, limit)?;
            self.step(key, |slot, step| slot.resize(limit, step))
        })
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
                if !slot.is_exclusive_to(holder) {
                    return WriteCompletion::NotHeld;
                }
                self.completions.write(key, completion, self.clock.wall_micros());
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
        Box::pin(async { self.step(&seen.key, |slot, step| slot.evict(seen, step)) })
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async {
            vec![Finding::fine("backend", "memory of this process: other processes do not see these locks")]
        })
    }
}

impl QuorumNode for Memory {
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire> {
        Box::pin(async move {
            claim.supported_by(self)?;
            self.step(&claim.key, |slot, step| slot.claim(claim, Some(proposal), step))
        })
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move { Ok(self.step(key, |slot, _| slot.raise(holder, to))) })
    }

    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade> {
        Box::pin(async move { self.step(&renewal.key, |slot, step| slot.downgrade(renewal, Some(proposal), step)) })
    }

    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()> {
        Box::pin(async {
            self.completions.write(key, completion, self.clock.wall_micros());
            Ok(())
        })
    }
}

fn modes() -> Modes {
    let mut modes = Modes::default();
    (modes.shared, modes.permits) = (true, true);
    modes
}
