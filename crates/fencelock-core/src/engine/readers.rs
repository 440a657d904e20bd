//! Tasks of one client that read the same key at the same time share one hold.
//!
//! The readers of a key have another engine than its writers, so all tasks in the queue request a shared lock. Unlike
//! writers, readers have the lease at the same time. A reader may join while the server reports no other waiter, or
//! within the batch for tasks of this client. After that, the first reader in the queue claims for itself, behind the
//! waiters at the server.

use super::action::{Action, Grant, Step};
use super::context::Context;
use super::key_engine::KeyEngine;
use super::request::AcquireRequest;
use super::tenure::{HoldId, Tenure};
use super::waiter::State;
use crate::{Holder, LossReason, Occupant};

impl<W: Default, L: Default> KeyEngine<W, L> {
    /// Admits the readers at the front of the queue, as long as they may join the shared lease.
    pub(super) fn admit(&mut self, cx: &mut Context<'_, W, L>) {
        while let Some((_, waiter)) = self.queue.front()
            && matches!(waiter.state, State::Queued)
            && let Some(grant) = self.leases.join(&waiter.request, cx)
        {
            self.grow_block(grant.hold);
            if let Some(task) = self.queue.serve_front(Step::Granted(grant)) {
                cx.act(Action::Wake(task));
            }
        }
    }

    /// Joins the shared lease without waiting, unless readers are in the queue.
    pub(super) fn join_now(&mut self, request: &AcquireRequest, cx: &mut Context<'_, W, L>) -> Option<Grant> {
        if !request.shares() || !self.queue.line_is_empty() {
            return None;
        }
        self.leases.join(request, cx)
    }

    /// A reader transfers its holder id to another process, which may release the hold at any time. Tasks that share
    /// the hold would not notice that in time, so they lose it now.
    pub(super) fn leave_to_another_process(&mut self, id: HoldId, tenure: Tenure, cx: &mut Context<'_, W, L>) -> bool {
        if !self.leases.leave(id, tenure) {
            return false;
        }
        if let Some(hold) = self.leases.get(id) {
            let holder = Holder { id: hold.holder, owner: hold.owner.clone() };
            self.leases.lose(id, LossReason::TakenBy(Occupant::Holder(holder).into()), true, cx);
        }
        self.settle(None, cx);
        true
    }
}
