//! The environment of the commands: the passing of time, and faults of the server.

use super::step::Around;
use fencelock_model::{FENCE_TTL_MS, KeyModel, LINE_TTL_MS, Marker};
use fencelock_testkit::SplitMix as Rng;

const SPANS_US: [i64; 20] = [
    1,
    999,
    1000,
    1001,
    10_000,
    11_000,
    999_000,
    999_999,
    1_000_000,
    1_001_000,
    2_999_000,
    2_999_999,
    3_000_000,
    3_000_001,
    3_001_000,
    30_000_000,
    30_001_000,
    LINE_TTL_MS.cast_signed() * 1000,
    FENCE_TTL_MS.cast_signed() * 1000,
    FENCE_TTL_MS.cast_signed() * 1000 + 1000,
];

/// The expiries of `keys` determine the interesting moments.
pub(super) fn around(rng: &mut Rng, before: &Around, now_us: u64, keys: &[KeyModel], markers: &[Marker]) -> Around {
    let mut around =
        Around { by_us: 0, forgets_scripts: rng.percent(4), restarts: false, flushed: false, ..before.clone() };
    around.by_us = match rng.below(20) {
        0..=8 => 0,
        9..=12 => rng.pick(&SPANS_US),
        13 => -rng.pick(&SPANS_US[..16]),
        14 | 15 => to_serving(rng, now_us, markers).unwrap_or(1000),
        _ => to_an_end(rng, now_us, keys).unwrap_or(1000),
    };
    // Faults are rare and short.
    around.full = rng.percent(if before.full { 50 } else { 5 });
    around.time_refused = rng.percent(if before.time_refused { 50 } else { 3 });
    around.publish_refused = rng.percent(if before.publish_refused { 50 } else { 3 });
    for reader in &mut around.readers {
        *reader ^= rng.percent(15);
    }
    if rng.below(400) == 0 {
        around = Around { restarts: true, by_us: around.by_us, ..Around::CALM };
    }
    around.flushed = rng.below(400) == 0;
    around
}

/// Moves the clock forward to a moment near the end of a lease, hold or waiter.
fn to_an_end(rng: &mut Rng, now_us: u64, keys: &[KeyModel]) -> Option<i64> {
    let key = &rng.pick(keys);
    let ends = [
        key.lock.as_ref().and_then(|lock| lock.expires_ms),
        key.fence.map(|fence| fence.expires_ms),
        key.queue.expires_ms,
        key.deadlines.until_ms.values().next().copied(),
        key.holds.ends_ms.values().min().copied(),
        key.holds.expires_ms,
    ];
    // Mostly those of the lock, its holds and the waiters, because the others end much later.
    let end_us = ends[rng.pick(&[0, 0, 0, 3, 3, 3, 4, 4, 4, 1, 2, 5])]? * 1000;
    to_about(rng, now_us, end_us)
}

/// Moves the clock to a moment near the end of a quarantine.
fn to_serving(rng: &mut Rng, now_us: u64, markers: &[Marker]) -> Option<i64> {
    let ends = markers.iter().filter_map(|marker| Some(marker.written.as_ref()?.until_ms * 1000));
    let ends: Vec<u64> = ends.filter(|end| *end + 2000 > now_us).collect();
    if ends.is_empty() {
        return None;
    }
    let end_us = rng.pick(&ends);
    to_about(rng, now_us, end_us)
}

fn to_about(rng: &mut Rng, now_us: u64, end_us: u64) -> Option<i64> {
    let at_us = end_us.checked_add_signed(rng.pick(&[-1000, -1, 0, 1, 999, 1000]))?;
    i64::try_from(at_us.checked_sub(now_us)?).ok()
}
