//! A task in the engine of its key.

use super::key_cell::{Cx, Engine, KeyCell, WakeBy};
use super::lease_handle::LeaseHandle;
use super::{ClientInner, Driver};
use crate::error::Error;
use crate::guard::Guard;
use crate::request::{Request, Waiting};
use fencelock_core::engine::{ClaimReport, Grant, TaskStep, View, WaiterId};
use fencelock_core::{Moment, Occupied};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// When its wait ends, a task inspects the key once more, and waits this long for the reply: a healthy server needs less.
pub(super) const LAST_ANSWER: Duration = Duration::from_millis(50);

/// A task in the engine of its key. Dropping it leaves the queue, and releases the key if it was granted in the meantime.
pub(super) struct WaitingTask<'a> {
    pub(super) client: &'a Arc<ClientInner>,
    pub(super) request: &'a Request,
    pub(super) arrived: Moment,
    pub(super) cell: Arc<KeyCell>,
    pub(super) id: WaiterId,
    pub(super) entered: bool,
    /// [`KeyCell::stirs`] before it entered.
    pub(super) stirs: u32,
    pub(super) first: First,
}

/// The first step that the engine returns to a task.
pub(super) enum First {
    /// No step. The context in which the task entered wakes it.
    Parked,
    Ready(Next),
    /// The task has taken it.
    Seen,
}

/// A step, and the lease of a grant, unless the lease has already ended.
pub(super) type Next = (TaskStep, Option<LeaseHandle>);

impl<'a> WaitingTask<'a> {
    /// `again` is the arrival of a task that has lost its lease and enters again.
    pub(super) fn enter(
        client: &'a Arc<ClientInner>,
        request: &'a Request,
        again: Option<Moment>,
        context: &std::task::Context<'_>,
    ) -> Self {
        loop {
            let cell = client.keys.get_or_insert(&request.key, request.options.mode, client);
            let (options, stirs) = (request.options.clone(), cell.stirs());
            let entered = cell.try_with(|engine, cx| {
                let arrived = again.unwrap_or(cx.now);
                let id = engine.enter(options, arrived, again.is_some(), cx);
                // Polled under the same lock, because most tasks get a step at once.
                let first = poll(&cell, id, context, engine, cx).map_or(First::Parked, First::Ready);
                (id, arrived, first)
            });
            if let Some(((id, arrived, first), report)) = entered {
                let task = Self { client, request, arrived, cell, id, entered: true, stirs, first };
                task.on_report(report);
                return task;
            }
        }
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        self.client
    }

    pub(super) fn waited(&self) -> Duration {
        self.client.clock.now().since(self.arrived)
    }

    pub(super) fn view(&self) -> Option<View> {
        self.cell.with(|engine, cx| engine.view(self.id, cx.config, cx.now))
    }

    /// Waits for the next step of this task.
    pub(super) async fn next(&self) -> Result<Next, Error> {
        self.next_unless(false).await
    }

    /// As [`WaitingTask::next`]; for a `parked` task, the first poll only waits, because its waker is already set.
    pub(super) async fn next_unless(&self, mut parked: bool) -> Result<Next, Error> {
        poll_fn(|context| {
            self.client.check_open()?;
            if std::mem::take(&mut parked) {
                return Poll::Pending;
            }
            let (next, report) =
                self.cell.unless_queued(self.id, context, |engine, cx| poll(&self.cell, self.id, context, engine, cx));
            self.on_report(report);
            next.map_or(Poll::Pending, |next| Poll::Ready(Ok(next)))
        })
        .await
    }

    /// Calls the engine for this task, and passes the report to its callbacks.
    pub(super) fn answer(&self, call: impl FnOnce(&mut Engine, &mut Cx<'_>) -> TaskStep) -> Next {
        let (next, report) = self.cell.with_report(|engine, cx| {
            let step = call(engine, cx);
            with_lease(&self.cell, step, engine)
        });
        self.on_report(report);
        next
    }

    /// Returns whether there is a callback.
    pub(super) fn report_wait(&self, ahead: Option<u32>, occupied: Occupied) -> bool {
        let Some(on_wait) = &self.request.on_wait else { return false };
        on_wait(&Waiting {
            key: self.request.key.clone(),
            ahead,
            holders: occupied.holders,
            expiry: occupied.expiry,
            held_for: occupied.held_for,
            waited: self.waited(),
        });
        true
    }

    fn on_report(&self, report: Option<ClaimReport>) {
        let Some(report) = report else { return };
        let (client, now) = (self.client, self.client.clock.now());
        match report {
            ClaimReport::Busy { ahead, occupied, again } => {
                client.outages.ends(now);
                if again {
                    client.telemetry.refused_again(&self.request.key);
                }
                self.report_wait(ahead, occupied);
            }
            ClaimReport::Trouble(cause) => {
                client.outages.begins(&cause, now);
                if let Some(on_trouble) = &self.request.on_trouble {
                    on_trouble(&cause);
                }
                tracing::debug!(key = %self.request.key, %cause, "no answer, retrying");
            }
        }
    }
}

/// The next step of a task. If it stays in the engine, it is woken by this context.
fn poll(
    cell: &Arc<KeyCell>,
    id: WaiterId,
    context: &std::task::Context<'_>,
    engine: &mut Engine,
    cx: &mut Cx<'_>,
) -> Option<Next> {
    let step = engine.poll(id, cx);
    if !matches!(step, Some(TaskStep::Granted(_) | TaskStep::Failed(_) | TaskStep::TurnLost)) {
        engine.wake_by(id, context);
    }
    Some(with_lease(cell, step?, engine))
}

fn with_lease(cell: &Arc<KeyCell>, step: TaskStep, engine: &mut Engine) -> Next {
    let lease = if let TaskStep::Granted(grant) = &step { LeaseHandle::of(cell, engine, grant) } else { None };
    (step, lease)
}

impl Drop for WaitingTask<'_> {
    fn drop(&mut self) {
        if !self.entered || !self.client.process().is_current() {
            return;
        }
        let granted = self.cell.with(|engine, cx| {
            let grant = engine.leave(self.id, cx)?;
            LeaseHandle::of(&self.cell, engine, &grant).map(|lease| (grant, lease))
        });
        if let Some((grant, lease)) = granted {
            // Its guard passes it on.
            drop(guard(self.client, grant, lease, grant.tenure.since.since(self.arrived)));
        }
    }
}

pub(super) fn guard(client: &Arc<ClientInner>, grant: Grant, lease: LeaseHandle, waited: Duration) -> Guard {
    client.telemetry.acquired(lease.key(), &grant.tenure, waited, grant.source);
    Guard::new(Arc::clone(client), lease, grant)
}
