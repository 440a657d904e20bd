use crate::{HolderId, Invalid};
use std::time::Duration;

/// A source of random numbers: the operating system in production, a seed in a simulation.
pub trait Rng {
    /// A number that spreads timers. Any value is safe.
    fn next_u64(&mut self) -> u64;

    /// An unguessable id that no other claim has used.
    ///
    /// # Errors
    /// [`Invalid`] if the source fails.
    fn holder_id(&mut self) -> Result<HolderId, Invalid>;
}

/// A random pause between a quarter of `pause` and `pause`. Conflicting attempts separate only if their pauses differ by
/// more than a round trip.
pub(super) fn spread(pause: Duration, random: u64) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    let quarter = micros / 4;
    Duration::from_micros(quarter + random % (micros - quarter).saturating_add(1))
}
