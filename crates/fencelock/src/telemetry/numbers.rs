//! The metrics: their names, units and labels, and how they are passed to the `metrics` facade.

use std::time::Duration;

/// An index of [`DEFINITIONS`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Acquisitions,
    Wait,
    Hold,
    Held,
    Waiters,
    Lost,
    Renewal,
    RenewalFailures,
    FallbackPolls,
    WastedWakeups,
}

/// The outcomes of an attempt; the first are those of [`Source`], in its order.
///
/// [`Source`]: fencelock_core::engine::Source
pub(super) const OUTCOMES: [&str; 10] = [
    "claimed",
    "handed",
    "shared",
    "resumed",
    "busy",
    "unreachable",
    "not_replicated",
    "refused",
    "closed",
    "cancelled",
];
/// The modes of a hold.
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "labels of the metrics"))]
pub(super) const MODES: [&str; 3] = ["exclusive", "shared", "permits"];
/// The reasons of a loss.
pub(super) const LOSSES: [&str; 5] = ["expired", "deleted", "taken", "max_hold", "other"];
/// The reasons of a failed renewal.
pub(super) const FAULTS: [&str; 11] = [
    "timeout",
    "unreachable",
    "denied",
    "read_only",
    "loading",
    "full",
    "busy",
    "not_replicated",
    "quarantined",
    "misconfigured",
    "other",
];

#[cfg(feature = "metrics")]
pub(super) use with_facade::Numbers;
#[cfg(not(feature = "metrics"))]
pub(super) use without::Numbers;

#[cfg(feature = "metrics")]
mod with_facade {
    use super::{Duration, FAULTS, LOSSES, MODES, Number, OUTCOMES};
    use metrics::{Key, Label, Level, Metadata, Unit, with_recorder};
    use std::sync::Arc;

    use Kind::{Counter, Gauge, Histogram};

    #[derive(Clone, Copy)]
    enum Kind {
        Counter,
        Gauge,
        Histogram,
    }

    /// The labels in addition to `backend`, with all their values.
    type LabelValues = (&'static str, &'static [&'static str]);
    /// Histograms are of seconds, and the others count.
    type Definition = (Kind, &'static str, &'static str, &'static [LabelValues]);

    const MODE: LabelValues = ("mode", &MODES);

    const DEFINITIONS: [Definition; 10] = [
        (
            Counter,
            "fencelock_acquisitions_total",
            "Attempts to acquire a lock, by outcome",
            &[MODE, ("outcome", &OUTCOMES)],
        ),
        (Histogram, "fencelock_wait_seconds", "Time from the request to the grant", &[MODE]),
        (Histogram, "fencelock_hold_seconds", "Time from the grant to the release or the loss", &[MODE]),
        (Gauge, "fencelock_held", "Locks that are held", &[MODE]),
        (Gauge, "fencelock_waiters", "Claims that wait at the backend", &[MODE]),
        (Counter, "fencelock_lost_total", "Locks that were lost", &[MODE, ("reason", &LOSSES)]),
        (Histogram, "fencelock_renewal_seconds", "Round trip of a renewal that was answered", &[]),
        (Counter, "fencelock_renewal_failures_total", "Renewals that were not confirmed", &[("reason", &FAULTS)]),
        (Counter, "fencelock_fallback_polls_total", "Polls by a waiter that was not woken", &[]),
        (
            Counter,
            "fencelock_wasted_wakeups_total",
            "Wake-ups after which the lock was still held by another client",
            &[],
        ),
    ];

    /// A metric for every combination of the values of its labels; that of the last label changes first.
    fn keys_of(name: &'static str, backend: &Label, labels: &[LabelValues]) -> Vec<Key> {
        let combinations = labels.iter().fold(vec![vec![backend.clone()]], |before, (label, values)| {
            let with = |labels: &Vec<Label>, value: &&'static str| {
                let last = Label::from_static_parts(label, value);
                labels.iter().cloned().chain([last]).collect()
            };
            before.iter().flat_map(|labels| values.iter().map(move |value| with(labels, value))).collect()
        });
        combinations.into_iter().map(|labels: Vec<_>| Key::from_parts(name, labels)).collect()
    }

    static METADATA: Metadata<'static> = Metadata::new("fencelock", Level::INFO, None);

    /// The metrics of one backend. Their keys are created once: a label is allocated when the client starts, and not with
    /// each lock.
    #[derive(Debug, Clone)]
    pub(in crate::telemetry) struct Numbers {
        /// For each definition, one metric for each combination of the values of its labels.
        keys: Arc<[Vec<Key>; DEFINITIONS.len()]>,
    }

    impl Numbers {
        /// Describes and registers all metrics, so that unused ones are 0 and not absent.
        pub(in crate::telemetry) fn of(backend: &str) -> Self {
            let backend = Label::new("backend", backend.to_owned());
            let keys = DEFINITIONS.map(|definition @ (_, name, _, labels)| {
                let keys = keys_of(name, &backend, labels);
                register(definition, &keys);
                keys
            });
            Self { keys: Arc::new(keys) }
        }

        pub(in crate::telemetry) fn add(&self, number: Number, combination: usize) {
            let key = self.key(number, combination);
            with_recorder(|recorder| recorder.register_counter(key, &METADATA).increment(1));
        }

        pub(in crate::telemetry) fn change(&self, number: Number, combination: usize, by: f64) {
            let key = self.key(number, combination);
            with_recorder(|recorder| recorder.register_gauge(key, &METADATA).increment(by));
        }

        pub(in crate::telemetry) fn took(&self, number: Number, combination: usize, span: Duration) {
            let key = self.key(number, combination);
            with_recorder(|recorder| recorder.register_histogram(key, &METADATA).record(span.as_secs_f64()));
        }

        fn key(&self, number: Number, combination: usize) -> &Key {
            &self.keys[number as usize][combination]
        }
    }

    fn register((kind, name, help, _): Definition, keys: &[Key]) {
        let unit = Some(if let Histogram = kind { Unit::Seconds } else { Unit::Count });
        let (name, help) = (name.into(), help.into());
        with_recorder(|recorder| {
            match kind {
                Counter => recorder.describe_counter(name, unit, help),
                Gauge => recorder.describe_gauge(name, unit, help),
                Histogram => recorder.describe_histogram(name, unit, help),
            }
            for key in keys {
                match kind {
                    Counter => recorder.register_counter(key, &METADATA).increment(0),
                    Gauge => recorder.register_gauge(key, &METADATA).increment(0.0),
                    Histogram => drop(recorder.register_histogram(key, &METADATA)),
                }
            }
        });
    }
}

#[cfg(not(feature = "metrics"))]
mod without {
    use super::{Duration, Number};

    /// No recorder is installed.
    #[derive(Debug, Clone)]
    pub(in crate::telemetry) struct Numbers;

    #[allow(clippy::unused_self, reason = "as with the facade")]
    impl Numbers {
        pub(in crate::telemetry) fn of(_: &str) -> Self {
            Self
        }

        pub(in crate::telemetry) fn add(&self, _: Number, _: usize) {}

        pub(in crate::telemetry) fn change(&self, _: Number, _: usize, _: f64) {}

        pub(in crate::telemetry) fn took(&self, _: Number, _: usize, _: Duration) {}
    }
}
