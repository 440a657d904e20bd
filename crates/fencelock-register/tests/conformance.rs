//! Runs the conformance suite on registers in memory: with a clock that the cases move, behind front ends whose clocks differ.
#![allow(missing_docs)]

use fencelock_conformance::{Fixture, FixtureFactory, run};
use fencelock_core::register::StoreTiming;
use fencelock_core::{Backend, BoxFuture, ManualClock, RetryPlan};
use fencelock_register::RegisterLocks;
use fencelock_testkit::MemoryRegister;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The unit of the times, and by how much the clocks of two front ends differ. Some cases measure spans of less than a second.
const UNIT: Duration = Duration::from_millis(2);
const SKEW: Duration = Duration::from_millis(5);

struct Registers {
    clock: Arc<ManualClock>,
    store: MemoryRegister,
    clients: AtomicU32,
}

impl Fixture for Registers {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        // Every second client is behind another front end.
        let number = self.clients.fetch_add(1, Ordering::SeqCst);
        let register = Arc::new(self.store.front_end(SKEW * (number % 2)));
        let timing = StoreTiming { skew: SKEW, resolution: UNIT, ..StoreTiming::default() };
        let polls = RetryPlan::new(Duration::from_millis(2), Duration::from_millis(50));
        let locks = RegisterLocks::new(register).with_clock(self.clock.clone()).with_timing(timing).with_polls(polls);
        Box::pin(async { Arc::new(locks) as _ })
    }

    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(span);
        Box::pin(async {})
    }

    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        // Both times are cut off, and a front end that is behind compares with the time of one that is ahead.
        self.let_time_pass(span + UNIT * 2 + SKEW * 2)
    }
}

fn main() -> ExitCode {
    run(vec![FixtureFactory::new("register", || {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let store = MemoryRegister::with_clock(clock.clone(), UNIT);
        Ok(Box::new(Registers { clock, store, clients: AtomicU32::new(0) }))
    })])
}
