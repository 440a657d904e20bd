//! The reference implementation of a backend: a [`KeyTable`] with a clock and listeners.

mod scheme;

use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BootClock, BoxFuture, Capabilities, Claim, ClaimReply,
    ClearCompletion, Clock, ClockReading, Completion, CompletionRead, Completions, Downgrade, Eviction, FencingToken,
    Finding, HolderId, Holding, Key, KeyStep, KeyTable, Listener, Listeners, ModeChanges, Modes, QuorumNode, Raise,
    Release, Renew, Renewal, Resize, Unknown, WriteCompletion,
};
pub(crate) use scheme::MemoryScheme;
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
    keys: Mutex<KeyTable>,
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
        let table = KeyTable::new(name.as_str());
        let keys = Mutex::new(if leases { table.with_leases() } else { table });
        Self { name, clock, leases, keys, listeners: Listeners::default() }
    }

    /// Runs one atomic step on a key, and then sends its events.
    fn step<T>(&self, key: &Key, step: impl FnOnce(&mut KeyStep<'_>) -> T) -> T {
        let (answer, events) = {
            let mut keys = self.lock();
            let answer = keys.step(key, ClockReading::of(&*self.clock), step);
            (answer, keys.take_events())
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

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        Box::pin(async move { self.step(&claim.key, |key| key.claim(claim, None)).into() })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        Box::pin(async {
            self.step(key, |key| {
                key.watch();
                Ok(())
            })
        })
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        let renew = |renewal: &Renewal| self.step(&renewal.key, |key| key.renew(renewal));
        Box::pin(async move { renewals.iter().map(|renewal| Ok(renew(renewal))).collect() })
    }

    fn announces_waiters(&self, _: &Key) -> bool {
        true
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async { self.step(key, |key| key.release(holder)) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async { Ok(self.step(key, |key| key.inspect())) })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        Some(self)
    }
}

impl Admin for Memory {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { Ok(self.lock().list(self.clock.now())) })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async { self.step(&seen.key, |key| key.evict(seen)) })
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        Box::pin(async {
            let text = "memory of this process: other processes do not see these locks";
            BackendReport::of_findings(vec![Finding::fine("backend", text)])
        })
    }
}

impl Completions for Memory {
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(async { Ok(self.step(key, |key| key.read_completion())) })
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(async { Ok(self.step(key, |key| key.write_completion(holder, completion))) })
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(async { Ok(self.step(key, |key| key.clear_completion(seen))) })
    }
}

impl ModeChanges for Memory {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(async { self.step(&renewal.key, |key| key.downgrade(renewal, None)) })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(async move { self.step(key, |key| key.resize(limit)) })
    }
}

impl QuorumNode for Memory {
    fn acquire_proposed<'a>(&'a self, claim: &'a Claim, proposal: u64) -> Answer<'a, Acquire> {
        Box::pin(async move { self.step(&claim.key, |key| key.claim(claim, Some(proposal))) })
    }

    fn raise<'a>(&'a self, key: &'a Key, holder: &'a HolderId, to: FencingToken) -> Answer<'a, Raise> {
        Box::pin(async move { Ok(self.step(key, |key| key.raise(holder, to))) })
    }

    fn downgrade_proposed<'a>(&'a self, renewal: &'a Renewal, proposal: u64) -> Answer<'a, Downgrade> {
        Box::pin(async move { self.step(&renewal.key, |key| key.downgrade(renewal, Some(proposal))) })
    }

    fn restore_completion<'a>(&'a self, key: &'a Key, completion: &'a Completion) -> Answer<'a, ()> {
        Box::pin(async {
            self.step(key, |key| key.restore_completion(completion));
            Ok(())
        })
    }
}

fn modes() -> Modes {
    let mut modes = Modes::default();
    (modes.shared, modes.permits) = (true, true);
    modes
}
