//! rslock [version]
//!
//! `acquire` of rslock, which waits without limit: three attempts with random pauses of up to 200 ms, repeated.

use fencelock_runners::{Failure, Locks, run};
use rslock::{LockGuard, LockManager};
use std::process::ExitCode;
use std::time::Duration;

struct Rslock(LockManager);

impl Locks for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, key: &str, ttl: Duration) -> Result<LockGuard, Failure> {
        Ok(self.0.acquire(key, ttl).await?)
    }

    async fn release(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}

fn main() -> ExitCode {
    run("rslock", |url| async move { Ok(Rslock(LockManager::new(vec![url]))) })
}
