//! One task that acquires or resumes a key: executes the steps of [`AcquireKey`] and [`ResumeKey`].

use super::ClientInner;
use super::key_cell::{Cx, Engine, KeyCell, WakeBy};
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
use fencelock_core::{
    Backend, BoxFuture, ClaimReply, HolderId, Holding, Key, LossReason, Moment, Occupied, Release, Unknown,
};
use futures_util::FutureExt;
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
    task.enter_and_wait().await
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
            let mut next = poll_fn(|context| Poll::Ready(self.call(context, AcquireKey::take_idle))).await;
            while let Some((AcquireNext::Send(request, limit), _)) = next {
                next = Some(self.ask(&request, limit).await);
            }
            match next {
                None | Some((AcquireNext::Enter, _)) => {}
                Some(done) => return Some(self.done(done)),
            }
        }
        self.releasing = None;
        None
    }

    async fn enter_and_wait(mut self) -> Result<Guard, Error> {
        let mut next = (AcquireNext::Enter, None);
        loop {
            next = match next {
                (AcquireNext::Enter, _) => poll_fn(|context| Poll::Ready(self.enter(context))).await,
                (AcquireNext::Rest(until), _) => self.rest(until).await,
                (AcquireNext::Send(request, limit), _) => self.ask(&request, limit).await,
                done => return self.done(done),
            };
        }
    }

    fn done(&self, next: Next) -> Result<Guard, Error> {
        let (client, now) = (self.client, self.client.clock.now());
        match next {
            (AcquireNext::Granted(grant), Some(held)) => {
                if grant.source != Source::Shared {
                    client.outages.ends(now);
                }
                Ok(guard(client, grant.source, held, grant.tenure.since.since(self.acquire.arrived())))
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
                with_lock(&self.acquire, &cell, context, next, engine)
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
            if let (None, Some(id)) = (&next, self.acquire.id()) {
                engine.wake_by(id, context);
            }
            next.map(|next| with_lock(&self.acquire, &cell, context, next, engine))
        });
        self.on_report(report);
        next
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

    async fn rest(&mut self, until: Moment) -> Next {
        let mut time = pin!(self.time_until(until));
        // The call of the engine that returned this step has set the waker.
        let mut first = true;
        poll_fn(|context| {
            if !std::mem::take(&mut first)
                && let Some(next) = self.woken(context)
            {
                return Poll::Ready(next);
            }
            ready!(time.as_mut().poll(context));
            let next = self.call(context, |acquire, engine, cx| Some(acquire.on_time(engine, cx)));
            Poll::Ready(next.unwrap_or((AcquireNext::Enter, None)))
        })
        .await
    }

    /// Sends a request until there is a reply, or another step. Then the request is dropped before it is polled again: it could send a
    /// claim, and the engine has released the last one.
    async fn ask(&mut self, request: &KeyRequest, limit: Moment) -> Next {
        let (client, span) = (self.client, debug_span!("acquire", key = %self.request.key));
        let mut sent = Sent::new(&*client.backend, &self.request.key, request);
        let mut time = pin!(self.time_until(limit));
        poll_fn(|context| {
            if let Some(next) = self.woken(context) {
                return Poll::Ready(next);
            }
            let reply = match span.in_scope(|| sent.poll(context)) {
                Poll::Ready(reply) => reply,
                Poll::Pending => {
                    ready!(time.as_mut().poll(context));
                    request.unanswered(client.timed_out())
                }
            };
            let next = self.call(context, |acquire, engine, cx| Some(acquire.answered(reply, engine, cx)));
            Poll::Ready(next.unwrap_or((AcquireNext::Enter, None)))
        })
        .await
    }

    /// Ends at that moment.
    fn time_until(&self, moment: Moment) -> impl Future<Output = ()> + use<> {
        let left = (moment != Moment::NEVER).then(|| moment.since(self.client.clock.now()));
        let sleep = OptionFuture::from(left.map(tokio::time::sleep));
        sleep.then(move |_| async move {
            if left.is_none() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn on_report(&self, report: Option<ClaimReport>) {
        let Some(report) = report else { return };
        let (client, now) = (self.client, self.client.clock.now());
        match report {
            ClaimReport::Queued { ahead, occupied } => self.report_wait(ahead, occupied, now),
            ClaimReport::Busy { ahead, occupied, again } => {
                client.outages.ends(now);
                if again {
                    client.telemetry.refused_again(&self.request.key);
                }
                self.report_wait(ahead, occupied, now);
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

    fn report_wait(&self, ahead: Option<u32>, occupied: Occupied, now: Moment) {
        let Some(on_wait) = &self.request.on_wait else { return };
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

/// A task that stays in the engine is woken by this context.
fn with_lock(
    acquire: &AcquireKey,
    cell: &Arc<KeyCell>,
    context: &Context<'_>,
    next: AcquireNext,
    engine: &mut Engine,
) -> Next {
    if let Some(id) = acquire.id() {
        engine.wake_by(id, context);
    }
    let held = if let AcquireNext::Granted(grant) = &next { Held::of(cell, engine, grant) } else { None };
    (next, held)
}

impl Drop for KeyTask<'_> {
    fn drop(&mut self) {
        if self.acquire.is_over() || !self.client.process().is_current() {
            return;
        }
        if let Some(cell) = &self.cell {
            cell.with(|engine, cx| self.acquire.cancel(engine, cx));
        }
    }
}

/// A request in flight.
enum Sent<'a> {
    Claim(BoxFuture<'a, ClaimReply>),
    Inspect(BoxFuture<'a, Result<Option<Holding>, Unknown>>),
    Release(BoxFuture<'a, Result<Release, Unknown>>),
}

impl<'a> Sent<'a> {
    fn new(backend: &'a dyn Backend, key: &'a Key, request: &'a KeyRequest) -> Self {
        match request {
            KeyRequest::Claim(claim) => Self::Claim(backend.acquire(claim)),
            KeyRequest::Inspect => Self::Inspect(backend.inspect(key)),
            KeyRequest::Release(holder) => Self::Release(backend.release(key, holder)),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<KeyReply> {
        match self {
            Self::Claim(sent) => sent.poll_unpin(context).map(KeyReply::Claim),
            Self::Inspect(sent) => sent.poll_unpin(context).map(KeyReply::Inspect),
            Self::Release(sent) => sent.poll_unpin(context).map(KeyReply::Release),
        }
    }
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
                let mut sent = Sent::new(&*client.backend, key, &request);
                let reply = poll_fn(|context| sent.poll(context)).await;
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
