//! Buckets of the histograms of fencelock for `metrics-exporter-prometheus`. Without them the exporter writes summaries, and
//! percentiles of several processes cannot be combined.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

/// In seconds: 1 ms is a free lock nearby, 30 s is the default TTL, and what takes longer than 8 h needs no finer answer.
const WAIT: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0, 3600.0, 28_800.0];
const HOLD: [f64; 16] = WAIT;
/// A renewal that takes longer than a fifth of the TTL is repeated.
const RENEWAL: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 6.0];

/// The builder of the exporter, with these buckets.
///
/// # Errors
/// None: no list of buckets is empty.
pub fn with_fencelock_buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    builder
        .set_buckets_for_metric(Matcher::Full("fencelock_wait_seconds".to_owned()), &WAIT)?
        .set_buckets_for_metric(Matcher::Full("fencelock_hold_seconds".to_owned()), &HOLD)?
        .set_buckets_for_metric(Matcher::Full("fencelock_renewal_seconds".to_owned()), &RENEWAL)
}
