//! The turn of a task that does not run.
//!
//! A task that claims, or that was granted a lease and has not taken it, keeps others from the key. If its future is neither polled
//! nor dropped, for example because a `select!` polls another branch, this could last forever. So while it may matter, a timer ticks.
//! A task that has not run between two ticks loses its turn, as if it had left. When it runs again, it is told so
//! ([`crate::engine::TaskStep::TurnLost`]), and enters again as the first.
//!
//! A task that waits for long, while one task of this client has the key, may wait for itself. It is reported once.
//!
//! The first of the two ticks wakes the tasks that claim, so one that waits for a slow reply runs, and keeps its turn. A task that was
//! granted a lease was woken by the grant.

use super::KeyEngine;
use super::waiters::WaiterId;
use crate::engine::hold::HoldId;
use crate::engine::{Action, Context, Grant};
use crate::{Mode, Moment};
use std::panic::Location;

/// The timer, while it is set.
#[derive(Debug, Clone, Hash)]
pub(super) struct Turns {
    at: Moment,
    /// The tasks that have not run since the last tick.
    suspects: Vec<WaiterId>,
    /// The last task that was reported.
    reported: Option<WaiterId>,
}

/// After so many ticks, a task that waits for its own client is reported.
const REPORT_AFTER: u32 = 5;

impl<W: Default, L: Default> KeyEngine<W, L> {
    /// A task runs. Returns whether it still has its place: otherwise it drops its request without polling it again, and
    /// [`crate::engine::AcquireKey::woken`] says so.
    pub fn is_present(&mut self, id: WaiterId) -> bool {
        if let Some(turns) = &mut self.turns {
            turns.suspects.retain(|suspect| *suspect != id);
        }
        self.waiters.has(id)
    }

    /// Ends the timer of an engine that is empty. A driver calls this after each other call.
    pub fn tidy(&mut self, cx: &mut Context<'_, W, L>) {
        if self.turns.is_some() && self.is_empty() {
            self.set_turns(None, cx);
        }
    }

    /// Sets the timer, if a task may keep others from the key.
    pub(super) fn watch_turns(&mut self, cx: &mut Context<'_, W, L>) {
        if self.turns.is_none()
            && (self.waiters.may_block() || self.waits_for_own().is_some())
            && let Some(limit) = cx.config.turn_limit
        {
            self.set_turns(Some(Turns { at: cx.now + limit, suspects: Vec::new(), reported: None }), cx);
        }
    }

    /// The timer that was set to `fired` has fired.
    pub(super) fn turns_due(&mut self, fired: Moment, cx: &mut Context<'_, W, L>) {
        let Some(turns) = self.turns.take_if(|turns| turns.at == fired) else { return };
        for id in turns.suspects {
            // A lease that has ended meanwhile is released here, because no task has it.
            if let Some(Grant { hold, tenure, .. }) = self.waiters.granted_to(id) {
                self.status(hold, tenure, cx);
            }
            if self.waiters.blocks(id)
                && let Some(grant) = self.leave(id, cx)
            {
                self.release(grant.hold, grant.tenure, true, cx);
            }
        }
        let reported = self.report_own_wait(turns.reported, cx);
        let (suspects, tasks) = self.waiters.suspects();
        for task in tasks {
            cx.act(Action::Wake(task));
        }
        self.watch_turns(cx);
        if let Some(turns) = &mut self.turns {
            (turns.suspects, turns.reported) = (suspects, reported);
        }
    }

    /// Reports the first task that waits for its own client, unless it is the last that was reported. Returns that one.
    fn report_own_wait(&self, last: Option<WaiterId>, cx: &mut Context<'_, W, L>) -> Option<WaiterId> {
        let Some((id, since, place)) = self.waits_for_own().filter(|(id, ..)| Some(*id) != last) else { return last };
        let waited = cx.now.since(since);
        if cx.config.turn_limit.is_none_or(|limit| waited < limit * REPORT_AFTER) {
            return last;
        }
        cx.act(Action::WaitsForOwn { waited, place });
        Some(id)
    }

    /// The first task that waits while one task has the key exclusively, and since when it waits for that one.
    fn waits_for_own(&self) -> Option<(WaiterId, Moment, &'static Location<'static>)> {
        // First, because mostly nobody waits, and readers may be many.
        let (id, waiter) = self.waiters.first_waiter()?;
        let place = waiter.request.place?;
        let held = self.leases.holds.iter().map(|hold| hold.tenure);
        let exclusive = held.filter(|tenure| tenure.mode == Mode::Exclusive && !tenure.idle);
        Some((id, waiter.arrived.max(exclusive.map(|tenure| tenure.since).max()?), place))
    }

    fn set_turns(&mut self, turns: Option<Turns>, cx: &mut Context<'_, W, L>) {
        let at = |turns: &Option<Box<Turns>>| turns.as_ref().map_or(Moment::NEVER, |turns| turns.at);
        let from = at(&self.turns);
        self.turns = turns.map(Box::new);
        cx.act(Action::SetTimer { hold: HoldId::TURNS, from, to: at(&self.turns) });
    }
}
