//! One task that acquires a key: executes the steps of the engine.

use super::lease_handle::LeaseHandle;
use super::waiting_task::{First, LAST_ANSWER, Next, WaitingTask, guard};
use super::watch::wait_in_queue;
use super::{ClientInner, Driver};
use crate::closing::Releasing;
use crate::error::modes;
use crate::error::{Error, busy, unconfirmed, unreachable, unreachable_once};
use crate::guard::Guard;
use crate::request::Request;
use fencelock_core::engine::{
    AcquireFailure, AcquireRequest, FailureReason, Grant, IdleLease, PendingRelease, Source, TaskStep,
};
use fencelock_core::{Acquire, BoxFuture, Claim, Holder, HolderId, Intent, LossReason, Mode, Modes, Moment, Unknown};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tracing::{Instrument, debug_span};

/// Acquires the key.
pub(crate) async fn acquire(client: &Arc<ClientInner>, request: &Request) -> Result<Guard, Error> {
    // A key that is granted at once, again and again, must not keep the thread from other tasks.
    consume_budget().await;
    client.check_open()?;
    if client.config.sharing.is_some()
        && !request.options.queues()
        && let Some(guard) = Box::pin(take_idle(client, request)).await
    {
        return Ok(guard);
    }
    let mut again = None;
    loop {
        client.check_open()?;
        let task = poll_fn(|context| Poll::Ready(WaitingTask::enter(client, request, again, context))).await;
        // If the lease is lost before the task takes it, the task keeps its position at the front.
        again = Some(task.arrived);
        if let Some(guard) = task.wait().await? {
            return Ok(guard);
        }
    }
}

pub(crate) async fn resume(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    resume_hold(client, request, holder).instrument(debug_span!("resume", key = %request.key)).await
}

async fn resume_hold(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    client.check_open()?;
    let options = &request.options;
    let proof = Holder { id: holder, owner: options.owner.clone() };
    let claim = Claim::new(request.key.clone(), proof, options.ttl, Intent::Poll).with_mode(options.mode);
    let called = client.clock.now();
    let reply = client.backend.acquire(&claim).await;
    let sent = reply.sent_at(called).unwrap_or(called);
    let tokens = match reply.answer {
        Ok(Acquire::Granted { tokens }) => tokens,
        Ok(Acquire::Conflict(present)) => return Err(modes::conflict(&claim.key, present, options.mode)),
        Ok(_) => return Err(Error::Lost { key: claim.key, reason: LossReason::Expired }),
        Err(cause) => return Err(unconfirmed(&request.key, cause, client.clock.now().since(called), 1)),
    };
    let lease = client.config.lease(sent, options.ttl);
    let options = &AcquireRequest { mode: mode_of(client, request, holder).await?, ..options.clone() };
    loop {
        let cell = client.keys.get_or_insert(&request.key, options.mode, client);
        let granted = cell.try_with(|engine, cx| {
            let grant = engine.resume(holder, options, tokens.last().into(), lease, cx);
            LeaseHandle::of(&cell, engine, &grant).map(|lease| (grant, lease))
        });
        match granted {
            Some((Some((grant, lease)), _)) => return Ok(guard(client, grant, lease, Duration::ZERO)),
            Some((None, _)) => return Err(Error::Lost { key: claim.key, reason: LossReason::Expired }),
            None => {}
        }
    }
}

/// The mode of the hold, which a grant does not contain. A reader must not be resumed as a writer, nor two permits as five. The limit
/// is that of the server: the semaphore may have been resized.
async fn mode_of(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Mode, Error> {
    let (key, mode) = (&request.key, request.options.mode);
    if client.config.capabilities.modes == Modes::default() {
        return Ok(mode);
    }
    let seen = client.backend.inspect(key).await.map_err(|cause| unreachable_once(Some(key), cause))?;
    // If the hold has ended in the meantime, its first renewal detects that.
    let Some(seen) = seen.filter(|seen| seen.has(holder) || seen.holders.count() > 1) else { return Ok(mode) };
    // Of very many holders, only some are listed, and all have the same class.
    let own = seen.holders.iter().find(|held| held.holder_id() == Some(holder));
    let held = own.map_or_else(|| seen.first().mode, |own| own.mode);
    match (held.limit(), mode.limit()) {
        (None, None) if held == mode => Ok(mode),
        (Some(_), Some(_)) if own.is_some() && held.weight() == mode.weight() => Ok(held),
        (Some(limit), Some(_)) if own.is_none() && mode.weight() <= limit => Ok(mode.resized(limit)),
        _ => Err(modes::other_hold(key, held)),
    }
}

/// Takes an idle lease of this client, which counts as a free key. Those of other modes are released.
async fn take_idle(client: &Arc<ClientInner>, request: &Request) -> Option<Guard> {
    for cell in client.keys.of_key(&request.key) {
        let (idle, lease, releasing) = cell.with(|engine, cx| {
            let releasing = client.closing.releasing();
            let idle = engine.take_idle(&request.options, cx);
            let lease = if let IdleLease::Taken(grant) = &idle { LeaseHandle::of(&cell, engine, grant) } else { None };
            (idle, lease, releasing)
        });
        match idle {
            IdleLease::None => {}
            IdleLease::Taken(grant) => return Some(guard(client, grant, lease?, Duration::ZERO)),
            IdleLease::Release(release) => {
                GivenUp { driver: Arc::clone(client), release, confirmed: false, _releasing: releasing }
                    .release()
                    .await;
            }
        }
    }
    None
}

/// An idle lease that a task releases and waits for. If the release is not confirmed, it is repeated in the background.
struct GivenUp {
    driver: Arc<Driver>,
    release: Box<PendingRelease>,
    confirmed: bool,
    /// Dropped last.
    _releasing: Releasing,
}

impl GivenUp {
    /// If the result is unknown, the next claim shows it.
    async fn release(mut self) {
        let released = self.driver.backend.release(&self.release.key, &self.release.holder).await;
        self.confirmed = released.is_ok() && self.driver.clock.now() >= self.release.stray_until;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if !self.confirmed && self.driver.process().is_current() {
            self.driver.reaper.take(*self.release.clone());
        }
    }
}

impl WaitingTask<'_> {
    /// `None` if the lease was lost before the task took it, or its turn because it did not run.
    async fn wait(mut self) -> Result<Option<Guard>, Error> {
        let request = self.request;
        let (last, lease) = loop {
            let first = std::mem::replace(&mut self.first, First::Seen);
            let next = if let First::Ready(next) = first {
                next
            } else if request.options.wait.is_none() && request.on_wait.is_none()
                || !self.client.config.is_in_queue(&request.options)
            {
                // Nothing was awaited since the task entered, so its waker is the same.
                self.next_unless(matches!(first, First::Parked)).await?
            } else {
                Box::pin(wait_in_queue(&self)).await?
            };
            let next = match next {
                (TaskStep::Granted(_) | TaskStep::Failed(_) | TaskStep::TurnLost, _) => next,
                (step, _) => self.claim_in_turn(step).await?,
            };
            if !matches!(next.0, TaskStep::Wait) {
                break next;
            }
        };
        self.entered = false;
        match last {
            TaskStep::Failed(failure) => Err(self.error(*failure)),
            TaskStep::Granted(grant) => match self.client.check_open() {
                Ok(()) => Ok(lease.map(|lease| self.granted(grant, lease))),
                Err(error) => {
                    self.cell.with(|engine, cx| engine.release(grant.hold, grant.tenure, true, cx));
                    Err(error)
                }
            },
            _ => Ok(None),
        }
    }

    /// As [`WaitingTask::claim`], until the task loses its turn. Then the request is dropped before it is polled again: it could send a
    /// claim, and the engine has released the last one.
    async fn claim_in_turn(&self, step: TaskStep) -> Result<Next, Error> {
        let mut claim = Box::pin(self.claim(step).instrument(debug_span!("acquire", key = %self.request.key)));
        let (mut stirs, mut waker) = (self.stirs, None::<Waker>);
        poll_fn(|context| {
            // The step was taken in the context of the first poll. Mostly, nothing happens until the reply.
            let current = self.cell.stirs();
            let is_known =
                stirs == current && waker.get_or_insert_with(|| context.waker().clone()).will_wake(context.waker());
            if is_known || self.cell.is_present(self.id, context) {
                if !is_known {
                    (stirs, waker) = (current, Some(context.waker().clone()));
                }
                claim.as_mut().poll(context)
            } else {
                Poll::Ready(Ok((TaskStep::TurnLost, None)))
            }
        })
        .await
    }

    /// Claims until the task has a result, or waits for other tasks of this client again: [`TaskStep::Wait`].
    async fn claim(&self, mut step: TaskStep) -> Result<Next, Error> {
        loop {
            let next = match step {
                TaskStep::Sleep { until, .. } => self.sleep(until).await?,
                TaskStep::Claim(claim) => self.send_claim(&claim).await,
                TaskStep::Inspect => {
                    let seen = self.client.backend.inspect(&self.request.key).await;
                    self.answer(|engine, cx| engine.inspected(self.id, seen, cx))
                }
                TaskStep::Leave(holder) => {
                    // If there is no reply in time, it is repeated in the background.
                    let release = self.client.backend.release(&self.request.key, &holder);
                    let left = self.in_time(release).await.and_then(|left| left);
                    self.answer(|engine, cx| engine.left(self.id, left, cx))
                }
                TaskStep::Wait | TaskStep::TurnLost | TaskStep::Granted(_) | TaskStep::Failed(_) => (step, None),
            };
            if matches!(next.0, TaskStep::Wait | TaskStep::TurnLost | TaskStep::Granted(_) | TaskStep::Failed(_)) {
                return Ok(next);
            }
            self.client.check_open()?;
            step = next.0;
        }
    }

    async fn sleep(&self, until: Moment) -> Result<Next, Error> {
        let pause = until.since(self.client.clock.now());
        tokio::select! {
            biased;
            next = self.next() => next,
            () = tokio::time::sleep(pause) => Ok(self.answer(|engine, cx| engine.timer_fired(self.id, cx))),
        }
    }

    async fn send_claim(&self, claim: &Claim) -> Next {
        let called = self.client.clock.now();
        let reply = self.in_time(self.client.backend.acquire(claim)).await;
        let reply = reply.unwrap_or_else(|unknown| Err(unknown).into());
        self.answer(|engine, cx| engine.claim_answered(self.id, called, reply, cx))
    }

    /// When the wait ends, a pending reply is only awaited for [`LAST_ANSWER`]. For a task that does not wait, the timeout of the
    /// backend applies.
    async fn in_time<T>(&self, reply: BoxFuture<'_, T>) -> Result<T, Unknown> {
        let Some(wait) = self.request.options.wait.filter(|wait| !wait.is_zero()) else { return Ok(reply.await) };
        let left = (self.arrived + wait).since(self.client.clock.now());
        tokio::time::timeout(left.max(LAST_ANSWER), reply).await.map_err(|_| self.client.timed_out())
    }

    fn granted(&self, grant: Grant, lease: LeaseHandle) -> Guard {
        if grant.source != Source::Shared {
            self.client.outages.ends(self.client.clock.now());
        }
        guard(self.client, grant, lease, grant.tenure.since.since(self.arrived))
    }

    fn error(&self, failure: AcquireFailure) -> Error {
        let AcquireFailure { reason, waited, attempts } = failure;
        let key = &self.request.key;
        match reason {
            FailureReason::Busy(occupied) => busy(key, occupied, waited, attempts),
            FailureReason::Unreachable(cause) => unreachable(Some(key), cause, waited, attempts),
            FailureReason::Unconfirmed(cause) => unconfirmed(key, cause, waited, attempts),
            FailureReason::Conflict(present) => modes::conflict(key, present, self.request.options.mode),
            FailureReason::Invalid(invalid) => Error::Config(invalid),
        }
    }
}
