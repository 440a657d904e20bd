//! The numbers for operators, as a recorder of the `metrics` facade receives them.
#![cfg(feature = "metrics")]
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock::Client;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use std::collections::HashMap;
use std::time::Duration;

#[tokio::test]
async fn waits_holds_and_losses_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().unwrap();
    let client = Client::builder().sharing(false).connect("memory:metrics").await.unwrap();

    let held = client.lock("k").await.unwrap();
    assert!(client.lock("k").wait(Duration::from_millis(20)).await.is_err());
    assert!(client.lock("k").retry(3, Duration::from_millis(1)).await.is_err());
    let waiting = tokio::spawn(client.lock("k").acquire());
    while client.inspect("k").await.unwrap().unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    held.release().await.unwrap();
    let handed = waiting.await.unwrap().unwrap();
    let seen = client.inspect("k").await.unwrap().unwrap();
    client.evict(&seen).await.unwrap();
    handed.lost().await;
    drop(handed);

    let numbers: HashMap<String, DebugValue> = snapshots
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| (key.key().name().to_owned(), value))
        .collect();
    assert_eq!(numbers["fencelock_busy_total"], DebugValue::Counter(2));
    let DebugValue::Counter(wasted) = numbers["fencelock_wasted_wakeups_total"] else { panic!("a counter") };
    assert!(wasted >= 2, "of three questions two came after an answer: {wasted}");
    assert_eq!(numbers["fencelock_handed_total"], DebugValue::Counter(1));
    assert_eq!(numbers["fencelock_lost_total"], DebugValue::Counter(1));
    assert_eq!(numbers["fencelock_held"], DebugValue::Gauge(0.0.into()), "up twice, down twice");
    assert_eq!(numbers["fencelock_waiters"], DebugValue::Gauge(0.0.into()));
    assert!(matches!(&numbers["fencelock_wait_seconds"], DebugValue::Histogram(spans) if spans.len() == 2));
    assert!(matches!(&numbers["fencelock_hold_seconds"], DebugValue::Histogram(spans) if spans.len() == 2));
}
