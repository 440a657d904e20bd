use super::action::{Action, Actions};
use crate::time::micros;
use crate::{HolderId, Invalid, Key, Moment};
use std::time::Duration;

#[allow(missing_debug_implementations, reason = "a bundle of arguments")]
/// The input of every call of the engine, besides the event itself.
pub struct Env<'a, W, L> {
    /// The key of the engine.
    pub key: &'a Key,
    /// The configuration of the client.
    pub config: &'a super::Config,
    /// Whether the client takes new requests. One that is being closed, or has nothing that renews its leases, keeps no lease for the
    /// next task.
    pub open: bool,
    /// The current time. It never decreases from one call of an engine to the next.
    pub now: Moment,
    /// The source of random numbers.
    pub rng: &'a mut dyn Rng,
    /// The list that receives the actions.
    pub out: &'a mut Actions<W, L>,
}

impl<W, L> Env<'_, W, L> {
    pub(super) fn act(&mut self, action: Action<W, L>) {
        self.out.push(action);
    }
}

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
    let whole = micros(pause);
    let quarter = whole / 4;
    Duration::from_micros(quarter + random % (whole - quarter).saturating_add(1))
}
