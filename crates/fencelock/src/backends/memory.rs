//! The reference implementation of a backend: a [`KeyTable`] with a clock and listeners.

use fencelock_core::{
    Backend, BackendReport, BootClock, BoxFuture, Capabilities, Clock, ClockReading, Connecting, Finding, Key,
    KeyTable, Listener, Listeners, Modes, Reply, Request, Scheme, UrlForm, lock,
};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};

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
        let mut named = lock(NAMED.get_or_init(Mutex::default));
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

    /// Answers a request in one atomic step, and then sends its events.
    fn answer(&self, request: Request<'_>) -> Reply {
        let (reply, events) = {
            let mut keys = lock(&self.keys);
            (keys.answer(request, ClockReading::of(&*self.clock)), keys.take_events())
        };
        for event in &events {
            self.listeners.send(event);
        }
        reply
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
        (facts.lists, facts.completions, facts.mode_changes, facts.node) = (true, true, true, true);
        facts
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            if let Request::Diagnose = request {
                let text = "memory of this process: other processes do not see these locks";
                return BackendReport::of_findings(vec![Finding::fine("backend", text)]).into();
            }
            self.answer(request)
        })
    }

    fn announces_waiters(&self, _: &Key) -> bool {
        true
    }
}

fn modes() -> Modes {
    let mut modes = Modes::default();
    (modes.shared, modes.permits) = (true, true);
    modes
}

/// `memory:` and `memory:NAME`.
#[derive(Debug)]
pub(crate) struct MemoryScheme;

impl Scheme for MemoryScheme {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("memory:[NAME]", "tasks of this process")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        let name = url.split_once(':').map_or("", |(_, name)| name);
        let memory = if name.is_empty() { Memory::of_this_process() } else { Memory::named(name) };
        Box::pin(async move { Ok(memory as _) })
    }

    fn cross_process(&self) -> bool {
        false
    }
}
