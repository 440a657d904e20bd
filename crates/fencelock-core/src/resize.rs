use crate::{Fault, Holders, Mode, Unknown};

/// The answer to a change of the limit of a semaphore. Exhaustive for the same reason as [`crate::Acquire`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resize {
    /// The semaphore has the new limit.
    Resized(Resized),
    /// No permit is in use, so there is nothing to change: the next claim sets the limit.
    Free,
    /// The key is held, but not as a semaphore. Nothing was changed.
    OtherMode {
        /// The mode of the holders.
        mode: Mode,
        /// The holders.
        holders: Holders,
    },
}

/// A semaphore whose limit was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Resized {
    /// The limit before.
    pub before: u32,
    /// The limit now.
    pub limit: u32,
    /// The permits in use after the change, including those of waiters that got in because of it. More than `limit` after it
    /// was made smaller: then no permit is granted until enough are returned.
    pub used: u64,
    /// The number of holders.
    pub holders: u32,
}

impl Resized {
    /// From `before` to `limit` permits.
    pub const fn new(before: u32, limit: u32, used: u64, holders: u32) -> Self {
        Self { before, limit, used, holders }
    }
}

impl Resize {
    /// Checks that a semaphore may have this limit. A backend calls this first.
    ///
    /// # Errors
    /// [`Fault::Other`]: nothing was sent.
    pub fn check(backend: &str, limit: u32) -> Result<Mode, Unknown> {
        Mode::permits(1, limit).map_err(|invalid| Unknown::new(backend, Fault::Other, invalid.to_string()))
    }
}
