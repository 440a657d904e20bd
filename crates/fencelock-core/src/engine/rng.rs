use crate::{HolderId, Invalid};
use std::time::Duration;

/// Where random numbers come from: the operating system in production, a seed in a simulation.
pub trait Rng {
    /// Spreads timers. Any value is safe.
    fn next_u64(&mut self) -> u64;

    /// An id that nobody can guess and that no other claim ever had.
    ///
    /// # Errors
    /// [`Invalid`] if the source gives nothing.
    fn holder_id(&mut self) -> Result<HolderId, Invalid>;
}

/// Any pause from a quarter of `pause` to all of it. Attempts that got in each other's way part only if their pauses differ
/// by more than a trip.
pub(super) fn spread(pause: Duration, random: u64) -> Duration {
    let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    let quarter = micros / 4;
    Duration::from_micros(quarter + random % (micros - quarter).saturating_add(1))
}
