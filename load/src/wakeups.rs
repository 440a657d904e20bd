//! Counts wasted wake-ups, which a worker cannot see in its own replies.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of the metric.
const NAME: &str = "fencelock_wasted_wakeups_total";

/// Receives the metrics of the client through the `metrics` facade, and stores this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct WakeUps(Arc<AtomicU64>);

impl WakeUps {
    /// Installs the recorder for the process. A worker of this crate has no other recorder.
    pub(crate) fn counted() -> Self {
        let counted = Self::default();
        let _ = metrics::set_global_recorder(counted.clone());
        counted
    }

    /// The number of wasted wake-ups.
    pub(crate) fn wasted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Recorder for WakeUps {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == NAME { Counter::from_arc(Arc::clone(&self.0)) } else { Counter::noop() }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::backends::Memory;
    use fencelock::{Backend, Client};
    use std::time::Duration;

    #[test]
    fn a_waiter_that_is_refused_again_is_counted() {
        let wakeups = WakeUps::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The recorder of this thread only, so that other tests can have their own.
        metrics::with_local_recorder(&wakeups, || {
            runtime.block_on(async {
                let backend: Arc<dyn Backend> = Arc::new(Memory::new());
                let (a, b) = (
                    Client::builder().backend(Arc::clone(&backend)).unwrap(),
                    Client::builder().backend(backend).unwrap(),
                );
                let held = a.lock("k").await.unwrap();
                let retried = b.lock("k").retry(3, Duration::from_millis(1)).await;
                assert!(retried.unwrap_err().is_busy());
                assert_eq!(wakeups.wasted(), 2, "the first of three refusals follows no wake-up");
                held.release().await.unwrap();
            });
        });
    }
}
