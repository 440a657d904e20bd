//! What the tests of the client share.
#![allow(dead_code, unused_imports, reason = "no test target uses everything")]

mod faulty;
mod scene;

pub(crate) use faulty::{Fate, Faulty, Verb};
pub(crate) use scene::Scene;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for something that must happen, checking often. The bound is for machines that are slow, not for the code.
///
/// # Panics
/// If it has not happened within 20 s.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut happened: impl FnMut() -> F) {
    let waiting = async {
        while !happened().await {
            tokio::time::sleep(ms(2)).await;
        }
    };
    assert!(tokio::time::timeout(secs(60), waiting).await.is_ok(), "never: {what}");
}

/// A counter for all threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
