//! A place in line at the server, between the task that gave up and the next of its client.

use crate::core::Core;
use crate::janitor::{Chore, STRAGGLER};
use crate::waiters::Waiter;
use fencelock_core::{Claim, Moment, PlaceInLine};
use std::fmt;
use std::sync::Arc;

/// What the holder of an attempt that was given up may have at the server: a place in line, or by now the key.
///
/// It is one holder throughout, so the server does not notice that another task goes on. Dropping it gives it up.
pub(crate) struct Standing {
    core: Arc<Core>,
    pub(crate) claim: Claim,
    pub(crate) waiter: Arc<Waiter>,
    /// See [`crate::acquiring::Attempt`].
    pub(crate) answered: Option<PlaceInLine>,
    pub(crate) stray_until: Moment,
    pub(crate) asked: u32,
    /// Nobody has gone on in it yet.
    unused: bool,
}

impl Standing {
    pub(crate) fn new(
        core: &Arc<Core>,
        claim: Claim,
        waiter: &Arc<Waiter>,
        answered: Option<PlaceInLine>,
        stray_until: Moment,
        asked: u32,
    ) -> Self {
        Self { core: Arc::clone(core), claim, waiter: Arc::clone(waiter), answered, stray_until, asked, unused: true }
    }

    /// An attempt goes on in it, and sees to its end.
    pub(crate) fn taken(&mut self) {
        self.unused = false;
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.unused {
            give_up(&self.core, &self.claim, &self.waiter, true, self.stray_until);
        }
    }
}

/// Nobody waits under this holder any more: what it may have left is released in the background.
pub(crate) fn give_up(core: &Core, claim: &Claim, waiter: &Waiter, left_behind: bool, stray_until: Moment) {
    if !core.identity.process().is_current() {
        return;
    }
    core.telemetry.waited();
    let now = core.clock.now();
    if left_behind || now < stray_until {
        let (key, holder, until) = (claim.key.clone(), claim.holder.id, now + claim.ttl.get());
        // A request under way is no older than now.
        let stray_until = stray_until.min(now + STRAGGLER);
        core.janitor.take(Chore { key, holder, until, stray_until, is_hold: false });
    }
    // After that: the closing of the client waits for one or the other.
    core.waiters.leave(waiter);
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").field("claim", &self.claim).finish_non_exhaustive()
    }
}
