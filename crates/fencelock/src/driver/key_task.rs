//! One task that acquires a key, by the steps of [`AcquireKey`], or resumes it.

use super::ClientInner;
use super::key_cell::{Cx, Engine, KeyCell};
use crate::closing::Releasing;
use crate::error::{Error, busy, conflict, other_hold, unconfirmed, unreachable, unreachable_once};
use crate::guard::{Guard, Held};
use crate::settings::{OnTrouble, OnWait, Request, Waiting};
use fencelock_core::engine::{
    AcquireFailure, AcquireKey, AcquireNext, ClaimReport, FailureReason, KeyReply, KeyRequest, Source,
};
use fencelock_core::{Acquire, Claim, Holder, HolderId, Intent, Key, LossReason, Modes, Moment};
use futures_util::future::OptionFuture;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::ops::ControlFlow::{Break, Continue};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tracing::{Instrument, debug_span};

/// Acquires the key. The task is made before the future: an `async fn` would keep its arguments beside it.
pub(crate) fn acquire(
    client: &Arc<ClientInner>,
    request: Request,
) -> impl Future<Output = Result<Guard, Error>> + Send {
    let Request { key, options, on_wait, on_trouble } = request;
    let acquire = AcquireKey::new(options, on_wait.is_some());
    let mut task = KeyTask { client, key, on_wait, on_trouble, acquire, cell: None, last_call: None, releasing: None };
    async move {
        // A key that is granted at once, again and again, must not keep the thread from other tasks.
        consume_budget().await;
        client.check_open()?;
        if client.config.sharing.is_some()
            && !task.acquire.request().queues()
            && let Some(guard) = Box::pin(task.take_idle()).await
        {
            return guard;
        }
        loop {
            if let Some(done) = task.follow(|task, context| Some(task.enter(context))).await {
                return done;
            }
        }
    }
}

/// A step, and the lock of a grant.
type Next = (AcquireNext, Option<Held>);

/// `None` if the task did not begin, or enters again.
type Outcome = Option<Result<Guard, Error>>;

/// A task in the engine of its key. Dropping it leaves the queue, and releases the key if it was granted in the meantime.
struct KeyTask<'a> {
    client: &'a Arc<ClientInner>,
    key: Key,
    on_wait: Option<OnWait>,
    on_trouble: Option<OnTrouble>,
    acquire: AcquireKey,
    /// In whose engine it is.
    cell: Option<Arc<KeyCell>>,
    /// [`KeyCell::stirs`] before its engine was called last, and what that call set as the waker.
    last_call: Option<(u32, Waker)>,
    /// Of an idle lease. Dropped last.
    releasing: Option<Releasing>,
}

impl KeyTask<'_> {
    /// Takes an idle lease of this client, of any mode.
    async fn take_idle(&mut self) -> Outcome {
        for cell in self.client.keys.of_key(&self.key) {
            self.cell = Some(cell);
            // Before the hold ends, so that closing the client waits for the hold or for the release.
            self.releasing = Some(self.client.closing.releasing());
            if let Some(done) = self.follow(|task, context| task.call(context, AcquireKey::take_idle)).await {
                return Some(done);
            }
        }
        self.releasing = None;
        None
    }

    /// Begins, and does what the task says until it is over.
    async fn follow(&mut self, begin: fn(&mut Self, &Context<'_>) -> Option<Next>) -> Outcome {
        let first = poll_fn(|context| Poll::Ready(begin(self, context))).await?;
        let (mut request, mut until) = match self.step(first) {
            Continue(waits) => waits,
            Break(done) => return done,
        };
        loop {
            let next = self.wait(request.as_ref(), until).await;
            match self.step(next) {
                Continue(waits) => (request, until) = waits,
                Break(done) => return done,
            }
        }
    }

    /// What to send, and how long to wait; or what came of it.
    fn step(&self, next: Next) -> ControlFlow<Outcome, (Option<KeyRequest>, Moment)> {
        let client = self.client;
        Break(match next {
            (AcquireNext::Send(request, limit), _) => return Continue((Some(request), limit)),
            (AcquireNext::Rest(until), _) => return Continue((None, until)),
            (AcquireNext::Enter, _) => None,
            (AcquireNext::Granted(grant), Some(held)) => {
                let since = grant.tenure.since;
                if grant.source != Source::Shared {
                    client.outages.ends(since);
                }
                Some(Ok(guard(client, grant.source, held, since.since(self.acquire.arrived()))))
            }
            (AcquireNext::Failed(failure), _) => Some(Err(self.error(*failure))),
            _ => Some(Err(client.check_open().err().unwrap_or_else(|| client.closed_error()))),
        })
    }

    fn error(&self, failure: AcquireFailure) -> Error {
        let (key, AcquireFailure { reason, waited, attempts }) = (&self.key, failure);
        match reason {
            FailureReason::Busy(occupied) => busy(key, occupied, waited, attempts),
            FailureReason::Unreachable(cause) => unreachable(Some(key), cause, waited, attempts),
            FailureReason::Unconfirmed(cause) => unconfirmed(key, cause, waited, attempts),
            FailureReason::Conflict(present) => conflict(key, present, self.acquire.request().mode),
            FailureReason::Invalid(invalid) => Error::Config(invalid),
        }
    }

    fn enter(&mut self, context: &Context<'_>) -> Next {
        loop {
            let cell = self.client.keys.get_or_insert(&self.key, self.acquire.request().mode, self.client);
            let stirs = cell.stirs();
            let entered = cell.try_with(|engine, cx| {
                let next = self.acquire.enter(engine, cx);
                self.wake_by(context, engine);
                taken(next, &cell, engine)
            });
            self.cell = Some(cell);
            if let Some((next, report)) = entered {
                self.knows(stirs, context);
                self.on_report(report);
                return next;
            }
        }
    }

    /// Calls the engine for this task, and passes the report to its callbacks.
    fn call(
        &mut self,
        context: &Context<'_>,
        step: impl FnOnce(&mut AcquireKey, &mut Engine, &mut Cx<'_>) -> Option<AcquireNext>,
    ) -> Option<Next> {
        // Taken out instead of cloned: threads that count references to one cell wait for each other.
        let cell = self.cell.take()?;
        self.knows(cell.stirs(), context);
        let (next, report) = cell.with_report(|engine, cx| {
            let next = step(&mut self.acquire, engine, cx);
            self.wake_by(context, engine);
            next.map(|next| taken(next, &cell, engine))
        });
        self.cell = Some(cell);
        self.on_report(report);
        next
    }

    /// If it stays in the engine, it is woken by this context.
    fn wake_by(&self, context: &Context<'_>, engine: &mut Engine) {
        let Some(id) = self.acquire.id() else { return };
        let known = engine.task(id).and_then(Option::as_ref);
        if !known.is_some_and(|waker| waker.will_wake(context.waker())) {
            engine.set_task(id, Some(context.waker().clone()));
        }
    }

    fn knows(&mut self, stirs: u32, context: &Context<'_>) {
        match &mut self.last_call {
            Some((before, waker)) if waker.will_wake(context.waker()) => *before = stirs,
            last => *last = Some((stirs, context.waker().clone())),
        }
    }

    /// As [`AcquireKey::woken`], unless nothing has happened since the engine was called last.
    fn woken(&mut self, context: &Context<'_>) -> Option<Next> {
        let (stirs, waker) = self.last_call.as_ref()?;
        let is_known =
            waker.will_wake(context.waker()) && self.cell.as_ref().is_some_and(|cell| cell.stirs() == *stirs);
        if is_known { None } else { self.call(context, AcquireKey::woken) }
    }

    /// Waits until this moment, for the reply to this request, or for another step. Then the request is dropped before it is polled
    /// again: it could send a claim, and the engine has released the last one.
    async fn wait(&mut self, request: Option<&KeyRequest>, until: Moment) -> Next {
        let client = self.client;
        let span = debug_span!("acquire", key = %self.key);
        let keyed = request.map(|request| (self.key.clone(), request));
        let mut sent = pin!(OptionFuture::from(keyed.as_ref().map(|(key, request)| send(client, key, request))));
        let mut time = pin!(time_until(client, until));
        // The call of the engine that returned this step has set the waker.
        let mut rests = request.is_none();
        poll_fn(|context| {
            if !std::mem::take(&mut rests)
                && let Some(next) = self.woken(context)
            {
                return Poll::Ready(next);
            }
            let reply = match (request, span.in_scope(|| sent.as_mut().poll(context))) {
                (Some(_), Poll::Ready(reply)) => reply,
                (request, _) => {
                    ready!(time.as_mut().poll(context));
                    request.map(|request| request.unanswered(client.timed_out()))
                }
            };
            let next = self.call(context, |acquire, engine, cx| {
                Some(match reply {
                    Some(reply) => acquire.answered(reply, engine, cx),
                    None => acquire.on_time(engine, cx),
                })
            });
            Poll::Ready(next.unwrap_or((AcquireNext::Enter, None)))
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
                if let Some(on_trouble) = &self.on_trouble {
                    on_trouble(&cause);
                }
                return tracing::debug!(key = %self.key, %cause, "no answer, retrying");
            }
        };
        if let Some(on_wait) = &self.on_wait {
            on_wait(&Waiting {
                key: self.key.clone(),
                ahead,
                holders: occupied.holders,
                expiry: occupied.expiry,
                held_for: occupied.held_for,
                waited: now.since(self.acquire.arrived()),
            });
        }
    }
}

impl Drop for KeyTask<'_> {
    fn drop(&mut self) {
        if self.acquire.is_over() || !self.client.identity.process.is_current() {
            return;
        }
        if let Some(cell) = &self.cell {
            cell.with(|engine, cx| self.acquire.cancel(engine, cx));
        }
    }
}

/// The step with the lock, if it is granted.
fn taken(next: AcquireNext, cell: &Arc<KeyCell>, engine: &mut Engine) -> Next {
    let held = if let AcquireNext::Granted(grant) = &next { Held::of(cell, engine, grant) } else { None };
    (next, held)
}

async fn send(client: &ClientInner, key: &Key, request: &KeyRequest) -> KeyReply {
    match request {
        KeyRequest::Claim(claim) => KeyReply::Claim(client.backend.acquire(claim).await),
        KeyRequest::Inspect => KeyReply::Inspect(client.backend.inspect(key).await),
        KeyRequest::Release(holder) => KeyReply::Release(client.backend.release(key, holder).await),
    }
}

/// Ends at that moment.
pub(crate) async fn time_until(client: &ClientInner, moment: Moment) {
    if moment == Moment::NEVER {
        return std::future::pending().await;
    }
    tokio::time::sleep(moment.since(client.clock.now())).await;
}

fn guard(client: &Arc<ClientInner>, source: Source, held: Held, waited: Duration) -> Guard {
    client.telemetry.acquired(held.key(), &held.tenure, waited, source);
    Guard::new(Arc::clone(client), held)
}

pub(crate) async fn resume(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    resume_hold(client, request, holder).instrument(debug_span!("resume", key = %request.key)).await
}

/// Continues a hold by the proof of its holder: a claim of that holder id renews it, and an inspection tells its mode.
async fn resume_hold(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    client.check_open()?;
    let (key, mut options) = (&request.key, request.options.clone());
    let proof = Holder { id: holder, owner: options.owner.clone() };
    let claim = Claim::new(key.clone(), proof, options.ttl, Intent::Poll).with_mode(options.mode);
    let called = client.clock.now();
    let reply = client.backend.acquire(&claim).await;
    let lease = client.config.lease(reply.sent_at(called).unwrap_or(called), options.ttl);
    let ended = || Error::Lost { key: key.clone(), reason: LossReason::Expired };
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
            return Ok(guard(client, Source::Resumed, held.ok_or_else(ended)?, Duration::ZERO));
        }
    }
}
