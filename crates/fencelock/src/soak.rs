//! Two days in simulated time: no state grows.

use crate::backends::{Memory, TokioClock};
use crate::{Client, Drift};
use std::sync::Arc;
use std::time::Duration;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One of several users of ten keys with random actions: holds, waits, cancels, loses, and drops guards.
async fn user(client: Client, number: u64, end: tokio::time::Instant) -> u64 {
    let mut grants = 0;
    let mut turn = number;
    while tokio::time::Instant::now() < end {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lock = client.lock(format!("k{}", turn >> 33 & 7)).ttl(secs(9)).wait(secs(120));
        let lock = if (turn >> 40).is_multiple_of(8) { lock.max_hold(secs(5)) } else { lock };
        let limit = secs(turn >> 20 & 31);
        if let Ok(Ok(guard)) = tokio::time::timeout(limit, lock.acquire()).await {
            grants += 1;
            tokio::time::sleep(secs(turn >> 50 & 15)).await;
            match turn >> 60 {
                0..8 => drop(guard.release().await),
                8..15 => drop(guard),
                _ => drop(guard.into_holder()),
            }
        }
        tokio::time::sleep(secs(10)).await;
    }
    grants
}

#[tokio::test(start_paused = true)]
async fn after_two_days_every_table_is_empty() {
    two_days(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn after_two_days_with_leases_that_are_kept_every_table_is_empty() {
    two_days(secs(20)).await;
}

async fn two_days(idle_timeout: Duration) {
    let clock = TokioClock::starting_now();
    let memory = Arc::new(Memory::with_leases(Arc::new(clock)));
    let settings = Client::builder().clock(Arc::new(clock), Drift::default()).idle_timeout(idle_timeout);
    let client = settings.backend(memory).unwrap();
    let end = tokio::time::Instant::now() + secs(48 * 3600);
    let users: Vec<_> = (0..8).map(|number| tokio::spawn(user(client.clone(), number, end))).collect();
    let (mut grants, mut most) = (0, 0);
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(secs(600)).await;
        most = most.max(client.inner().holds_and_timers().1).max(client.inner().reaper.remembered());
    }
    for user in users {
        grants += user.await.unwrap();
    }
    assert!(grants > 10_000, "{grants}");
    assert!(most < 100, "at no time did anything grow: {most}");
    tokio::time::sleep(secs(60)).await;
    let inner = client.inner();
    assert_eq!((inner.holds_and_timers(), inner.reaper.pending()), ((0, 0), 0));
    assert!(inner.keys.is_empty());
    assert_eq!(client.list().await.unwrap(), []);
    client.close(secs(1)).await.unwrap();
}
