use fencelock::backends::{BootClock, Memory};
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use std::sync::Arc;

/// Leases in real time, shared by all cases: the suite behaves as it does with a server.
pub(crate) fn factory() -> FixtureFactory {
    let locks = Arc::new(Memory::with_leases(Arc::new(BootClock)));
    FixtureFactory::new("memory_clocked", move || Ok(Box::new(Clocked(Arc::clone(&locks)))))
}

struct Clocked(Arc<Memory>);

impl Fixture for Clocked {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.0) as _ })
    }
}
