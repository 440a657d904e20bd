use fencelock::backends::{ManualClock, Memory};
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use std::sync::Arc;
use std::time::Duration;

/// Leases on a clock that the case moves, so each case has its own.
pub(crate) fn factory() -> FixtureFactory {
    FixtureFactory::new("memory_leases", || {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let locks = Arc::new(Memory::with_leases(Arc::clone(&clock) as _));
        Ok(Box::new(Leases { clock, locks }))
    })
}

struct Leases {
    clock: Arc<ManualClock>,
    locks: Arc<Memory>,
}

impl Fixture for Leases {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::clone(&self.locks) as _ })
    }

    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(span);
        Box::pin(async {})
    }
}
