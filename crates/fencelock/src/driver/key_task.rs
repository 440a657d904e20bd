//! One task that acquires a key, by the steps of its engine, or resumes it.

use super::ClientInner;
use super::key_cell::{Cx, Engine, KeyCell};
use crate::closing::Releasing;
use crate::error::{Error, busy, conflict, other_hold, unconfirmed, unreachable, unreachable_once};
use crate::guard::{Guard, Held};
use crate::settings::{Callbacks, CheckedLock, Waiting};
use fencelock_core::engine::{
    AcquireFailure, AcquireRequest, ClaimReport, FailureReason, Grant, IdleLease, KeyRequest, PendingRelease, Source,
    TaskStep, WaiterId,
};
use fencelock_core::{Acquire, Claim, Holder, HolderId, Intent, Key, LossReason, Modes, Moment, Reply};
use futures_util::future::OptionFuture;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::coop::consume_budget;
use tracing::{Instrument, debug_span};

/// Acquires the key. The task is made before the future: an `async fn` would keep its arguments beside it.
pub(crate) fn acquire(
    client: &Arc<ClientInner>,
    request: CheckedLock,
) -> impl Future<Output = Result<Guard, Error>> + Send {
    let CheckedLock { key, options, callbacks } = request;
    let (arrived, seat) = (Moment::NEVER, None);
    let mut task = KeyTask { client, key, options, callbacks, arrived, seat };
    async move {
        // A key that is granted at once, again and again, must not keep the thread from other tasks.
        consume_budget().await;
        client.check_open()?;
        if client.config.sharing.is_some()
            && !task.options.queues()
            && let Some(guard) = Box::pin(task.take_idle()).await
        {
            return Ok(guard);
        }
        let mut next = poll_fn(|context| Poll::Ready(task.enter(context))).await;
        loop {
            let (request, until) = match next {
                (TaskStep::Send(request, limit), _) => (Some(request), limit),
                (TaskStep::Rest(until), _) => (None, until),
                (step, held) => return task.ended(step, held),
            };
            next = task.wait(request.as_ref(), until).await;
        }
    }
}

/// A step, and the lock of a grant.
type Next = (TaskStep, Option<Held>);

/// A task in the engine of its key. Dropping it leaves the queue, and releases the key if it was granted in the meantime.
struct KeyTask<'a> {
    client: &'a Arc<ClientInner>,
    key: Key,
    options: AcquireRequest,
    callbacks: Callbacks,
    arrived: Moment,
    /// In whose engine it is, and by which id.
    seat: Option<(Arc<KeyCell>, WaiterId)>,
}

impl KeyTask<'_> {
    /// Takes an idle lease of this client, of any mode. One that does not match counts as a free key.
    async fn take_idle(&self) -> Option<Guard> {
        let client = self.client;
        for cell in client.keys.of_key(&self.key) {
            // Before the hold ends, so that closing the client waits for the hold or for the release.
            let releasing = client.closing.releasing();
            let (idle, held) = cell.with(|engine, cx| {
                let idle = engine.take_idle(&self.options, cx);
                let held = if let IdleLease::Taken(grant) = &idle { Held::of(&cell, engine, grant) } else { None };
                (idle, held)
            });
            if let Some(held) = held {
                return Some(guard(client, Source::Shared, held, self.arrived));
            }
            if let IdleLease::Release(release) = idle {
                let mut rest = IdleRelease { client, release: Some(release), _releasing: releasing };
                rest.send().await;
            }
        }
        None
    }

    /// What came of it.
    fn ended(&self, step: TaskStep, held: Option<Held>) -> Result<Guard, Error> {
        match (step, held) {
            (TaskStep::Granted(Grant { source, .. }), Some(held)) => {
                if source != Source::Shared {
                    self.client.outages.ends(held.tenure.since);
                }
                Ok(guard(self.client, source, held, self.arrived))
            }
            (TaskStep::Failed(failure), _) => Err(self.error(*failure)),
            _ => Err(self.client.check_open().err().unwrap_or_else(|| self.client.closed_error())),
        }
    }

    fn error(&self, failure: AcquireFailure) -> Error {
        let (key, AcquireFailure { reason, waited, attempts }) = (&self.key, failure);
        match reason {
            FailureReason::Busy(occupied) => busy(key, occupied, waited, attempts),
            FailureReason::Unreachable(cause) => unreachable(Some(key), cause, waited, attempts),
            FailureReason::Unconfirmed(cause) => unconfirmed(key, cause, waited, attempts),
            FailureReason::Conflict(present) => conflict(key, present, self.options.mode),
            FailureReason::Invalid(invalid) => Error::Config(invalid),
        }
    }

    fn enter(&mut self, context: &Context<'_>) -> Next {
        loop {
            let cell = self.client.keys.get_or_insert(&self.key, self.options.mode, self.client);
            let entered = cell.try_with(|engine, cx| {
                self.arrived = cx.now;
                let (id, step) = engine.enter(&self.options, cx);
                (id, taken(Some(step), id, context, &cell, engine))
            });
            if let Some(((id, Some(next)), report)) = entered {
                self.seat = Some((cell, id)).filter(|_| !next.0.is_last());
                self.on_report(report);
                return next;
            }
        }
    }

    /// Calls the engine for this task. `None` if it goes on waiting.
    fn call(
        &mut self,
        context: &Context<'_>,
        event: impl FnOnce(&mut Engine, WaiterId, &mut Cx<'_>) -> Option<TaskStep>,
    ) -> Option<Next> {
        // Taken out instead of cloned: threads that count references to one cell wait for each other.
        let (cell, id) = self.seat.take()?;
        let called = cell.try_with(|engine, cx| {
            let step = event(engine, id, cx);
            taken(step, id, context, &cell, engine)
        });
        // A closed client forgets a task that has lost its turn.
        let Some((next, report)) = called else { return Some((TaskStep::Closed, None)) };
        // A task that is through has no seat any more.
        if !next.as_ref().is_some_and(|(step, _)| step.is_last()) {
            self.seat = Some((cell, id));
        }
        self.on_report(report);
        next
    }

    /// Waits until this moment, for the reply to this request, or for another step. Then the request is dropped before it is polled
    /// again: it could send a claim, and the engine has released the last one.
    async fn wait(&mut self, request: Option<&KeyRequest>, until: Moment) -> Next {
        let (client, key) = (self.client, self.key.clone());
        let span = debug_span!("acquire", %key);
        let reply = async |request: &KeyRequest| client.backend.call(request.to_backend(&key)).await;
        let mut sent = pin!(OptionFuture::from(request.map(reply)));
        let mut time = pin!(time_until(client, until));
        // The call of the engine that returned this step has set the waker.
        let mut is_new = true;
        poll_fn(|context| {
            if !std::mem::take(&mut is_new)
                && let Some(next) = self.call(context, Engine::woken)
            {
                return Poll::Ready(next);
            }
            let reply = match (request, span.in_scope(|| sent.as_mut().poll(context))) {
                (Some(_), Poll::Ready(reply)) => reply,
                (request, _) => {
                    ready!(time.as_mut().poll(context));
                    request.map(|_| Reply::Unknown(client.timed_out()))
                }
            };
            let next = self.call(context, |engine, id, cx| {
                Some(match reply {
                    Some(reply) => engine.answered(id, reply, cx),
                    None => engine.on_time(id, cx),
                })
            });
            Poll::Ready(next.unwrap_or((TaskStep::Closed, None)))
        })
        .await
    }

    fn on_report(&self, report: Option<ClaimReport>) {
        let Some(report) = report else { return };
        let (client, now) = (self.client, self.client.clock.now());
        let (ahead, occupied) = match report {
            ClaimReport::Queued { ahead, occupied } => (ahead, occupied),
            ClaimReport::Busy { ahead, occupied, again } => {
                client.outages.ends(now);
                if again {
                    client.telemetry.refused_again(&self.key);
                }
                (ahead, occupied)
            }
            ClaimReport::Trouble(cause) => {
                client.outages.begins(&cause, now);
                if let Some(on_trouble) = &self.callbacks.on_trouble {
                    on_trouble(&cause);
                }
                return tracing::debug!(key = %self.key, %cause, "no answer, retrying");
            }
        };
        if let Some(on_wait) = &self.callbacks.on_wait {
            on_wait(&Waiting {
                key: self.key.clone(),
                ahead,
                holders: occupied.holders,
                expiry: occupied.expiry,
                held_for: occupied.held_for,
                waited: now.since(self.arrived),
            });
        }
    }
}

impl Drop for KeyTask<'_> {
    fn drop(&mut self) {
        if let Some((cell, id)) = &self.seat
            && self.client.identity.process.is_current()
        {
            cell.with(|engine, cx| engine.leave(*id, cx));
        }
    }
}

/// The release of an idle lease that does not match, which goes on in the background if its task is dropped.
struct IdleRelease<'a> {
    client: &'a ClientInner,
    release: Option<Box<PendingRelease>>,
    /// Dropped last.
    _releasing: Releasing,
}

impl IdleRelease<'_> {
    async fn send(&mut self) {
        let Some(PendingRelease { key, holder, stray_until, .. }) = self.release.as_deref() else { return };
        // If the result is unknown, the next claim finds out.
        if self.client.backend.release(key, holder).await.is_ok() && self.client.clock.now() >= *stray_until {
            self.release = None;
        }
    }
}

impl Drop for IdleRelease<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            self.client.reap(*release);
        }
    }
}

/// The step with the lock, if it is granted. A task that stays in the engine is woken by this context.
fn taken(
    step: Option<TaskStep>,
    id: WaiterId,
    context: &Context<'_>,
    cell: &Arc<KeyCell>,
    engine: &mut Engine,
) -> Option<Next> {
    if let Some(TaskStep::Granted(grant)) = &step {
        let held = Held::of(cell, engine, grant);
        return step.zip(Some(held));
    }
    if let Some(known) = engine.task_mut(id)
        && !known.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
    {
        *known = Some(context.waker().clone());
    }
    step.zip(Some(None))
}

/// Ends at that moment.
pub(crate) async fn time_until(client: &ClientInner, moment: Moment) {
    if moment == Moment::NEVER {
        return std::future::pending().await;
    }
    tokio::time::sleep(moment.since(client.clock.now())).await;
}

fn guard(client: &Arc<ClientInner>, source: Source, held: Held, arrived: Moment) -> Guard {
    client.telemetry.acquired(held.key(), &held.tenure, held.tenure.since.since(arrived), source);
    Guard::new(Arc::clone(client), held)
}

pub(crate) async fn resume(client: &Arc<ClientInner>, request: &CheckedLock, holder: HolderId) -> Result<Guard, Error> {
    resume_hold(client, request, holder).instrument(debug_span!("resume", key = %request.key)).await
}

/// Continues a hold by the proof of its holder: a claim of that holder id renews it, and an inspection tells its mode.
async fn resume_hold(client: &Arc<ClientInner>, request: &CheckedLock, holder: HolderId) -> Result<Guard, Error> {
    client.check_open()?;
    let (key, mut options) = (&request.key, request.options.clone());
    let proof = Holder { id: holder, owner: options.owner.clone() };
    let claim = Claim::new(key.clone(), proof, options.ttl, Intent::Poll).with_mode(options.mode);
    let called = client.clock.now();
    let reply = client.backend.acquire(&claim).await;
    let lease = client.config.lease(reply.sent_at(called, client.clock.now()), options.ttl);
    let ended = || Error::lost(key.clone(), LossReason::Expired);
    let tokens = match reply.answer {
        Ok(Acquire::Granted { tokens }) => tokens.last().into(),
        Ok(Acquire::Conflict(present)) => return Err(conflict(key, present, options.mode)),
        Ok(_) => return Err(ended()),
        Err(cause) => return Err(unconfirmed(key, cause, client.clock.now().since(called), 1)),
    };
    if client.config.capabilities.modes != Modes::default()
        && let Some(seen) = client.backend.inspect(key).await.map_err(|cause| unreachable_once(Some(key), cause))?
    {
        options.mode = seen.resumed_mode(holder, options.mode).map_err(|held| other_hold(key, held))?;
    }
    loop {
        let cell = client.keys.get_or_insert(key, options.mode, client);
        let begun = cell.try_with(|engine, cx| {
            let grant = engine.resume(holder, &options, tokens, lease, cx)?;
            Held::of(&cell, engine, &grant)
        });
        if let Some((held, _)) = begun {
            return Ok(guard(client, Source::Resumed, held.ok_or_else(ended)?, Moment::NEVER));
        }
    }
}
