use fencelock_core::Invalid;
use std::time::Duration;

/// How long tasks of one client share a lease before others get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Grants to tasks of this client from when somebody else is known to wait,
    pub(crate) batch: u32,
    /// and how long they may go on.
    pub(crate) batch_span: Duration,
    /// How long a free lease is kept for the next task of this client.
    pub(crate) linger: Duration,
}

/// Where nobody can tell whether others wait, it is assumed that they do: a lease is shared this long.
pub(crate) const BLIND_SPAN: Duration = Duration::from_millis(50);
/// A lease is shared this long at most: others that only ask now and then leave no trace.
pub(crate) const LONGEST_SPAN: Duration = Duration::from_secs(1);
/// How often the server is asked whether anybody else waits.
pub(crate) const QUESTION: Duration = Duration::from_millis(5);
/// A lease that lingers is of no use for longer than this, and stands in the way of others.
pub(crate) const LONGEST_LINGER: Duration = Duration::from_millis(10);
/// Fencing tokens asked for where a lease may be shared, and where more are used up, at most: a tenth of a second of
/// microseconds. Whoever is alone asks for one.
pub(crate) const FIRST_BLOCK: u32 = 128;
pub(crate) const LARGEST_BLOCK: u32 = 100_000;

impl Limits {
    pub(crate) fn check(self) -> Result<Self, Invalid> {
        if self.batch == 0 {
            return Err(Invalid::new("a batch of grants has at least one"));
        }
        if self.linger > LONGEST_LINGER {
            return Err(Invalid::new(format!(
                "a free lease lingers for at most {LONGEST_LINGER:?}, not {:?}",
                self.linger
            )));
        }
        Ok(self)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch: 64, batch_span: Duration::from_millis(10), linger: Duration::ZERO }
    }
}
