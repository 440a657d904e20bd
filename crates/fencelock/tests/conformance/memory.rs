use fencelock::backends::Memory;
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use std::sync::Arc;

/// Locks of this process, as a mutex has them: all cases share them.
pub(crate) fn factory() -> FixtureFactory {
    let locks = Arc::new(Memory::new());
    FixtureFactory::new("memory", move || Ok(Box::new(InMemory(Arc::clone(&locks)))))
}

struct InMemory(Arc<Memory>);

impl Fixture for InMemory {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.0) as _ })
    }
}
