//! One task that acquires or resumes a key: executes the steps of [`AcquireKey`] and [`ResumeKey`].

use super::ClientInner;
use super::key_cell::{Cx, Engine, KeyCell};
use crate::closing::Releasing;
use crate::error::modes;
use crate::error::{Error, busy, unconfirmed, unreachable, unreachable_once};
use crate::guard::Guard;
use crate::held::Held;
use crate::request::{Request, Waiting};
use fencelock_core::engine::{
    AcquireFailure, AcquireKey, AcquireNext, ClaimReport, FailureReason, KeyReply, KeyRequest, ResumeFailure,
    ResumeKey, ResumeNext, Source,
};
use fencelock_core::{HolderId, Key, LossReason, Moment};
use futures_util::future::OptionFuture;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tracing::{Instrument, debug_span};

/// Acquires the key.
pub(crate) async fn acquire(client: &Arc<ClientInner>, request: &Request) -> Result<Guard, Error> {
    // A key that is granted at once, again and again, must not keep the thread from other tasks.
    consume_budget().await;
    client.check_open()?;
    let acquire = AcquireKey::new(request.options.clone(), request.on_wait.is_some());
    let mut task = KeyTask { client, request, acquire, cell: None, last_call: None, releasing: None };
    if client.config.sharing.is_some()
        && !request.options.queues()
        && let Some(guard) = Box::pin(task.take_idle()).await
    {
        return guard;
    }
    loop {
        let entered = poll_fn(|context| Poll::Ready(task.enter(context))).await;
        if let Some(done) = task.follow(entered).await {
            return done;
        }
    }
}

/// A step, and the lock of a grant.
type Next = (AcquireNext, Option<Held>);

/// A task in the engine of its key. Dropping it leaves the queue, and releases the key if it was granted in the meantime.
struct KeyTask<'a> {
    client: &'a Arc<ClientInner>,
    request: &'a Request,
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
    async fn take_idle(&mut self) -> Option<Result<Guard, Error>> {
        for cell in self.client.keys.of_key(&self.request.key) {
            self.cell = Some(cell);
            // Before the hold ends, so that closing the client waits for the hold or for the release.
            self.releasing = Some(self.client.closing.releasing());
            if let Some(next) = poll_fn(|context| Poll::Ready(self.call(context, AcquireKey::take_idle))).await
                && let Some(done) = self.follow(next).await
            {
                return Some(done);
            }
        }
        self.releasing = None;
        None
    }

    /// Does what the task says, until it is over. `None` if it enters again.
    async fn follow(&mut self, mut next: Next) -> Option<Result<Guard, Error>> {
        loop {
            next = match next {
                (AcquireNext::Enter, _) => return None,
                (AcquireNext::Rest(until), _) => self.wait(None, until).await,
                (AcquireNext::Send(request, limit), _) => self.wait(Some(&request), limit).await,
                done => return Some(self.done(done)),
            };
        }
    }

    fn done(&self, next: Next) -> Result<Guard, Error> {
        let client = self.client;
        match next {
            (AcquireNext::Granted(grant), Some(held)) => {
                let since = grant.tenure.since;
                if grant.source != Source::Shared {
                    client.outages.ends(since);
                }
                Ok(guard(client, grant.source, held, since.since(self.acquire.arrived())))
            }
            (AcquireNext::Failed(failure), _) => Err(error(self.request, *failure)),
            _ => Err(client.check_open().err().unwrap_or_else(|| client.closed_error())),
        }
    }

    fn enter(&mut self, context: &Context<'_>) -> Next {
        loop {
            let (key, mode) = (&self.request.key, self.request.options.mode);
            let cell = self.client.keys.get_or_insert(key, mode, self.client);
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
        let cell = Arc::clone(self.cell.as_ref()?);
        self.knows(cell.stirs(), context);
        let (next, report) = cell.with_report(|engine, cx| {
            let next = step(&mut self.acquire, engine, cx);
            self.wake_by(context, engine);
            next.map(|next| taken(next, &cell, engine))
        });
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
        let (client, key) = (self.client, &self.request.key);
        let span = debug_span!("acquire", %key);
        let mut sent = pin!(OptionFuture::from(request.map(|request| send(client, key, request))));
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
                    client.telemetry.refused_again(&self.request.key);
                }
                (ahead, occupied)
            }
            ClaimReport::Trouble(cause) => {
                client.outages.begins(&cause, now);
                if let Some(on_trouble) = &self.request.on_trouble {
                    on_trouble(&cause);
                }
                return tracing::debug!(key = %self.request.key, %cause, "no answer, retrying");
            }
        };
        if let Some(on_wait) = &self.request.on_wait {
            on_wait(&Waiting {
                key: self.request.key.clone(),
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
pub(super) async fn time_until(client: &ClientInner, moment: Moment) {
    if moment == Moment::NEVER {
        return std::future::pending().await;
    }
    tokio::time::sleep(moment.since(client.clock.now())).await;
}

fn error(Request { key, options, .. }: &Request, failure: AcquireFailure) -> Error {
    let AcquireFailure { reason, waited, attempts } = failure;
    match reason {
        FailureReason::Busy(occupied) => busy(key, occupied, waited, attempts),
        FailureReason::Unreachable(cause) => unreachable(Some(key), cause, waited, attempts),
        FailureReason::Unconfirmed(cause) => unconfirmed(key, cause, waited, attempts),
        FailureReason::Conflict(present) => modes::conflict(key, present, options.mode),
        FailureReason::Invalid(invalid) => Error::Config(invalid),
    }
}

fn guard(client: &Arc<ClientInner>, source: Source, held: Held, waited: Duration) -> Guard {
    client.telemetry.acquired(held.key(), &held.tenure, waited, source);
    Guard::new(Arc::clone(client), held)
}

pub(crate) async fn resume(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    resume_hold(client, request, holder).instrument(debug_span!("resume", key = %request.key)).await
}

async fn resume_hold(client: &Arc<ClientInner>, request: &Request, holder: HolderId) -> Result<Guard, Error> {
    client.check_open()?;
    let key = &request.key;
    let (mut resume, mut next) = ResumeKey::new(key.clone(), holder, request.options.clone(), client.clock.now());
    let ended = || Error::Lost { key: key.clone(), reason: LossReason::Expired };
    loop {
        next = match next {
            ResumeNext::Send(request) => {
                let reply = send(client, key, &request).await;
                resume.answered(reply, &client.config, client.clock.now())
            }
            ResumeNext::Begin(mode) => {
                let cell = client.keys.get_or_insert(key, mode, client);
                let begun = cell.try_with(|engine, cx| {
                    let grant = resume.begin(engine, cx)?;
                    Held::of(&cell, engine, &grant)
                });
                match begun {
                    Some((Some(held), _)) => return Ok(guard(client, Source::Resumed, held, Duration::ZERO)),
                    Some((None, _)) => return Err(ended()),
                    None => ResumeNext::Begin(mode),
                }
            }
            ResumeNext::Failed(failure) => {
                return Err(match failure {
                    ResumeFailure::Ended => ended(),
                    ResumeFailure::Unconfirmed(cause, waited) => unconfirmed(key, cause, waited, 1),
                    ResumeFailure::Unreachable(cause) => unreachable_once(Some(key), cause),
                    ResumeFailure::Conflict(present) => modes::conflict(key, present, request.options.mode),
                    ResumeFailure::OtherMode(mode) => modes::other_hold(key, mode),
                });
            }
        };
    }
}
