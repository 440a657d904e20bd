//! The reference implementation of a backend.

mod completions;
mod holder_set;
mod key_state;
mod scheme;

use completions::Completions;
use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BootClock, BoxFuture, Capabilities, Claim, ClearCompletion, Clock,
    Completion, CompletionRead, Downgrade, Event, Eviction, FencingToken, Finding, HolderId, Holding, Key, Listener,
    Listeners, ModeChanges, Modes, QuorumNode, Raise, Release, Renew, Renewal, Resize, Unknown, WriteCompletion,
};
use key_state::{KeyState, StepContext};
pub(crate) use scheme::MemoryScheme;
use std::collections::{HashMap, VecDeque};
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
    keys: Mutex<KeyTable>,
    completions: Completions,
    listeners: Listeners,
}

/// The keys that are in use.
#[derive(Debug, Default)]
struct KeyTable {
    by_key: HashMap<Key, KeyState>,
    /// No token of a key that was removed is greater, so a key that comes back continues after it.
    greatest: u64,
    /// Keys whose last token was young when they became free: each once, as its state says.
    young: VecDeque<Key>,
}

/// The keys that a map may have room for without using it: fewer are not worth moving the others.
const ROOM: usize = 1024;

/// For how many microseconds after its last token a free key is kept. A key that comes back continues after the tokens of all that were
/// removed, and each microsecond gives one token: so every key can have a block of this many, however busy the others are.
const YOUNG: u64 = 10_000;

impl KeyTable {
    fn state(&mut self, key: &Key) -> &mut KeyState {
        self.by_key.entry(key.clone()).or_insert(KeyState::after(self.greatest))
    }

    /// Removes a key that is free, unless it is young, and those that were.
    fn settle(&mut self, key: &Key, wall: u64) {
        let is_young = |state: &KeyState| state.fence().saturating_add(YOUNG) > wall;
        match self.by_key.get_mut(key) {
            Some(state) if state.is_listed => {}
            Some(state) if is_young(state) => {
                state.is_listed = true;
                self.young.push_back(key.clone());
            }
            _ => self.remove(key),
        }
        // Two, so that they become fewer.
        for _ in 0..2 {
            let Some(next) = self.young.pop_front() else { break };
            match self.by_key.get_mut(&next) {
                Some(state) if is_young(state) => self.young.push_back(next),
                Some(state) if !state.is_free() => state.is_listed = false,
                _ => self.remove(&next),
            }
        }
    }

    /// Removes a key, and the memory of very many of them.
    fn remove(&mut self, key: &Key) {
        let fence = self.by_key.remove(key).map_or(0, |state| state.fence());
        self.greatest = self.greatest.max(fence);
        if self.by_key.capacity() > ROOM.max(8 * self.by_key.len()) {
            self.by_key.shrink_to(ROOM.max(2 * self.by_key.len()) / 2);
        }
    }
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
        let (keys, completions, listeners) = (Mutex::default(), Completions::default(), Listeners::default());
        Self { name, clock, leases, keys, completions, listeners }
    }

    /// Runs one atomic step on a key, like a script on a server, and then sends its events.
    fn step<T>(&self, key: &Key, step: impl FnOnce(&mut KeyState, StepContext<'_>) -> T) -> T {
        let mut events = Vec::new();
        let now = self.clock.now();
        let answer = {
            let mut keys = self.lock();
            let state = keys.state(key);
            state.expire(now);
            let (backend, wall, leases) = (self.name.as_str(), self.clock.wall_micros(), self.leases);
            let answer = step(state, StepContext { backend, key, now, wall, leases, events: &mut events });
            if state.watched_has_ended() {
                events.push(Event::Changed { key: key.clone() });
            }
            // Like a server, a memory with leases keeps the last token of each key: the nodes of a quorum compare them.
            if state.is_free() && !(leases && state.fence() > 0) {
                keys.settle(key, wall);
            }
            answer
        };
        for event in &events {
            self.listeners.send(event);
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, KeyTable> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.step(&claim.key, |state, step| state.claim(claim, None, step))
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async {
            self.step(key, |state, mut step| state.watch(&mut step));
            Ok(())
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        let renew = |renewal: &Renewal| self.step(&renewal.key, |state, step| state.renew(renewal, &step));
        Box::pin(async move { renewals.iter().map(|renewal| Ok(renew(renewal))).collect() })
    }

    fn announces_waiters(&self, _: &Key) -> bool {
        true
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.step(key, |state, step| state.release(holder, step)) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async { Ok(self.step(key, |state, step| state.holding(key, step.now))) })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn fencelock_core::Completions> {
        Some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        Some(self)
    }
}

impl Admin for Memory {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async {
            let now = self.clock.now();
            Ok(self.lock().by_key.iter().filter_map(|(key, state)| state.holding(key, now)).collect())
        })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async { self.step(&seen.key, |state, step| state.evict(seen, step)) })
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(async {
            let text = "memory of this process: other processes do not see these locks";
            BackendReport::of_findings(vec![Finding::fine("backend", text)])
        })
    }
}

impl fencelock_core::Completions for Memory {
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
            Ok(self.step(key, |state, _| {
                if !state.is_exclusive_to(holder) {
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
}

impl ModeChanges for Memory {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(async { self.step(&renewal.key, |state, step| state.downgrade(renewal, None, step)) })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(async move {
            Resize::check(&self.name, limit)?;
            self.step(key, |state, step| state.resize(limit, step))
        })
    }
}

impl QuorumNode for Memory {
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire> {
        Box::pin(async move {
            claim.supported_by(self)?;
            self.step(&claim.key, |state, step| state.claim(claim, Some(proposal), step))
        })
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move { Ok(self.step(key, |state, _| state.raise(holder, to))) })
    }

    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade> {
        Box::pin(async move { self.step(&renewal.key, |state, step| state.downgrade(renewal, Some(proposal), step)) })
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

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Holder, Intent, ManualClock, Owner, TokenBlock, Ttl};
    use std::num::NonZeroU32;
    use std::time::Duration;

    fn claim(key: &str, holder: u8, intent: Intent) -> Claim {
        let holder = Holder { id: HolderId::from_bytes([holder; 16]), owner: Owner::from_text("") };
        Claim::new(Key::new(key).unwrap(), holder, Ttl::default(), intent)
    }

    /// Keys and the room for them, when those that are free are no longer young.
    fn keys(memory: &Memory) -> (usize, usize) {
        let mut keys = memory.lock();
        for _ in 0..=keys.young.len() {
            keys.settle(&Key::new("none").unwrap(), memory.clock.wall_micros() + YOUNG);
        }
        (keys.by_key.len(), keys.by_key.capacity())
    }

    async fn tokens(memory: &Memory, claim: &Claim) -> TokenBlock {
        match memory.acquire(claim).await.unwrap() {
            Acquire::Granted { tokens } => tokens,
            other => panic!("should be granted: {other:?}"),
        }
    }

    async fn granted(memory: &Memory, claim: &Claim) -> u64 {
        tokens(memory, claim).await.last().get()
    }

    #[tokio::test]
    async fn a_key_that_is_only_looked_at_is_not_kept() {
        for memory in [Memory::new(), Memory::with_leases(Arc::new(BootClock))] {
            let claim = claim("k", 1, Intent::Poll);
            let (key, holder) = (&claim.key, &claim.holder.id);
            assert_eq!(memory.inspect(key).await.unwrap(), None);
            assert_eq!(memory.acquire(&claim).await.unwrap(), Acquire::Gone);
            assert_eq!(memory.release(key, holder).await.unwrap(), Release::Absent);
            assert_eq!(memory.resize(key, 3).await.unwrap(), Resize::Free);
            memory.watch(key).await.unwrap();
            let renewed = memory.renew(&[Renewal::new(key.clone(), *holder, Ttl::default())]).await;
            assert_eq!(renewed, [Ok(Renew::Absent)]);
            assert_eq!(keys(&memory).0, 0);
        }
    }

    #[tokio::test]
    async fn keys_that_are_free_again_take_no_memory() {
        let memory = Memory::new();
        let claims: Vec<_> = (0..100_000).map(|n| claim(&format!("k{n}"), 1, Intent::Try)).collect();
        for claim in &claims {
            granted(&memory, claim).await;
        }
        assert_eq!(keys(&memory).0, claims.len());
        for claim in &claims {
            memory.release(&claim.key, &claim.holder.id).await.unwrap();
        }
        let (used, room) = keys(&memory);
        assert!(used == 0 && room <= 2 * ROOM, "{used} keys, room for {room}");
    }

    #[tokio::test]
    async fn every_key_has_a_block_of_tokens_however_busy_the_others_are() {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(1)));
        let memory = Memory::build("memory:".into(), clock.clone(), false);
        let wanted = NonZeroU32::new(64).unwrap();
        for round in 0..1000 {
            clock.advance(Duration::from_micros(100));
            let (busy, other) =
                (claim("busy", 1, Intent::Try).with_block(wanted), claim(&format!("k{round}"), 1, Intent::Try));
            for claim in [busy, other.with_block(wanted)] {
                let tokens = tokens(&memory, &claim).await.count();
                // Before the first key was removed, a new one has no token to continue after.
                assert!(round < 200 || tokens == wanted, "round {round}: {tokens} tokens");
                memory.release(&claim.key, &claim.holder.id).await.unwrap();
            }
        }
        let kept = memory.lock().by_key.len();
        assert!(kept <= 200, "{kept} keys after 100 releases in 10 ms");
    }

    #[tokio::test]
    async fn the_tokens_of_a_key_increase_although_it_was_free() {
        let memory = Memory::new();
        let held = claim("held", 1, Intent::Try);
        let mut last = granted(&memory, &held).await;
        for round in 0..200_u8 {
            let claim = claim("k", round, Intent::Try);
            let token = granted(&memory, &claim).await;
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
            memory.release(&claim.key, &claim.holder.id).await.unwrap();
        }
        // A key that stayed in use meanwhile continues too.
        let waiting = claim("held", 2, Intent::Enqueue);
        assert!(matches!(memory.acquire(&waiting).await.unwrap(), Acquire::Queued { .. }));
        memory.release(&held.key, &held.holder.id).await.unwrap();
        assert_eq!(keys(&memory).0, 1, "it was handed over");
    }

    #[tokio::test]
    async fn a_key_is_removed_although_its_end_is_watched() {
        let memory = Memory::new();
        let claim = claim("k", 1, Intent::Try);
        granted(&memory, &claim).await;
        memory.watch(&claim.key).await.unwrap();
        memory.release(&claim.key, &claim.holder.id).await.unwrap();
        assert_eq!(keys(&memory).0, 0);
    }
}
