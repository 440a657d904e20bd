//! What remains of a shared lease after its end: the history that the next lease continues, and the time for which the key is left
//! free.

use super::action::Action;
use super::context::Context;
use super::leases::Leases;
use super::rng::spread;
use super::tenure::HoldId;
use super::{Config, SharingLimits};
use crate::{Mode, Moment};
use std::time::Duration;

/// After a shared lease was released for clients outside a queue, the key is not claimed again for this time: waking
/// them takes one or two round trips.
const YIELD_BLIND: Duration = Duration::from_millis(4);

impl<L: Default> Leases<L> {
    /// This shared lease is about to be released. `queued` says whether a task of this client waits at the backend.
    pub(super) fn stop_sharing<W>(&mut self, id: HoldId, queued: bool, cx: &mut Context<'_, W, L>) {
        let (Some(shared), Some(limits)) = (self.take_shared(id), cx.config.sharing) else { return };
        if shared.yields(cx.config, &limits, cx.now) {
            self.yield_until = cx.now + yield_for(cx.config, &limits, cx.rng.next_u64());
        }
        self.history = shared.ended(queued, cx.config, &limits, cx.now);
        // A lease that is kept is passed on although no task waits, so the next task may come to an engine that is empty. A task
        // that waits at the backend keeps the engine. Only exclusive leases are kept.
        let is_kept = !queued && !limits.idle_timeout.is_zero();
        let is_exclusive = self.get(id).is_some_and(|hold| hold.tenure.mode == Mode::Exclusive);
        if is_kept && is_exclusive && self.history_timer == Moment::NEVER {
            self.set_history_timer(Moment::default(), cx);
        }
    }

    /// The timer of the history was set to `fired` and has fired. See [`super::KeyEngine::hold_due`].
    pub(super) fn history_due<W>(&mut self, fired: Moment, not_before: Moment, cx: &mut Context<'_, W, L>) {
        if self.history_timer == fired {
            self.history_timer = Moment::NEVER;
            self.set_history_timer(not_before, cx);
        }
    }

    /// The client ends: no other lease follows.
    pub(super) fn forget_history<W>(&mut self, cx: &mut Context<'_, W, L>) {
        let from = std::mem::replace(&mut self.history_timer, Moment::NEVER);
        if from != Moment::NEVER {
            cx.act(Action::SetTimer { hold: HoldId::NONE, from, to: Moment::NEVER });
        }
    }

    /// Keeps the engine for as long as the next lease depends on the last one.
    fn set_history_timer<W>(&mut self, not_before: Moment, cx: &mut Context<'_, W, L>) {
        let until = self.yield_until.max(self.history.continues_until());
        if cx.now < until {
            self.history_timer = until.max(not_before);
            cx.act(Action::SetTimer { hold: HoldId::NONE, from: Moment::NEVER, to: self.history_timer });
            cx.act(Action::KeptHistory);
        }
    }
}

/// How long the key is left free for other clients.
fn yield_for(config: &Config, limits: &SharingLimits, random: u64) -> Duration {
    if config.capabilities.queues { limits.pause } else { spread(YIELD_BLIND, random) }
}
