use super::{
    AcquireFailure, AcquireRequest, Action, ClaimReport, Context, FailureReason, Grant, IdleLease, KeyEngine,
    PendingRelease, TaskStep, View, WaiterId,
};
use crate::{Claim, ClaimReply, HolderId, Holding, Moment, Occupied, Release, Unknown};
use std::time::Duration;

/// When its wait ends, a task waits this long for a reply that is in flight, and inspects the key once more: a healthy server needs
/// less.
pub const LAST_ANSWER: Duration = Duration::from_millis(50);
/// A request of a wait without a limit has this time, although the TTL is shorter: a healthy server needs less, also to connect.
const SHORTEST_REQUEST: Duration = Duration::from_secs(1);
/// The interval at which a task in the queue of its client is told who holds the key.
const NEWS: Duration = Duration::from_secs(1);
/// The delay of the first report: the leader needs this time for the first reply of the backend.
const FIRST_NEWS: Duration = Duration::from_millis(10);

/// One task that acquires one key: what it sends, how long it waits, and what comes of it.
///
/// The decisions about the key are those of its [`KeyEngine`]; this is the task that carries them out, without I/O. A driver calls it
/// with the engine of the key, and does what the returned [`AcquireNext`] says:
///
/// | event | call |
/// |---|---|
/// | it begins, and after [`AcquireNext::Enter`] | [`AcquireKey::take_idle`] for each engine of the key, then [`AcquireKey::enter`] |
/// | the task was woken | [`AcquireKey::woken`] |
/// | the time of [`AcquireNext::Rest`] has come, and no other call was made since | [`AcquireKey::on_time`] |
/// | a request was answered, or its limit has passed | [`AcquireKey::answered`] |
/// | the task is dropped | [`AcquireKey::cancel`] |
#[derive(Debug, Clone, Hash)]
pub struct AcquireKey {
    request: AcquireRequest,
    /// Whether the caller wants to know who holds the key.
    reports: bool,
    /// When it entered first. [`Moment::NEVER`] before.
    arrived: Moment,
    id: Option<WaiterId>,
    phase: AcquirePhase,
}

/// What the task waits for.
#[derive(Debug, Clone, Hash)]
enum AcquirePhase {
    /// To enter.
    Outside,
    /// For other tasks of this client. The next report is due at this time.
    InQueue(Moment),
    /// For the time of its next claim, or, if it `wakes`, a notification.
    Asleep { wakes: bool },
    /// For the reply to a request that was sent at this time.
    Asking(Moment),
    /// The wait is over. For the last inspection of the key, or a result that comes before.
    LastLook(Option<Occupied>),
    /// For the release of an idle lease that does not match.
    ReleasingIdle(Box<PendingRelease>),
}

/// What a driver does next for a task.
#[derive(Debug, Clone)]
pub enum AcquireNext {
    /// Call [`AcquireKey::enter`], with an engine that is not empty, or new.
    Enter,
    /// Wait until the task is woken, or until this moment.
    Rest(Moment),
    /// Send this request. If there is no reply until this moment, abandon it. The request is also dropped, without another poll, when a
    /// call of [`AcquireKey::woken`] has another step.
    Send(KeyRequest, Moment),
    /// The task has the key. The engine has its hold.
    Granted(Grant),
    /// The task does not get the key.
    Failed(Box<AcquireFailure>),
    /// The client is being closed.
    Closed,
}

/// A request for one key.
#[derive(Debug, Clone, Hash)]
pub enum KeyRequest {
    /// [`crate::Backend::acquire`].
    Claim(Box<Claim>),
    /// [`crate::Backend::inspect`].
    Inspect,
    /// [`crate::Backend::release`].
    Release(HolderId),
}

/// The reply to a [`KeyRequest`].
#[derive(Debug, Clone)]
pub enum KeyReply {
    /// To a claim.
    Claim(ClaimReply),
    /// To an inspection.
    Inspect(Result<Option<Holding>, Unknown>),
    /// To a release.
    Release(Result<Release, Unknown>),
}

impl KeyRequest {
    /// The reply to this request if there is none.
    pub fn unanswered(&self, cause: Unknown) -> KeyReply {
        match self {
            Self::Claim(_) => KeyReply::Claim(Err(cause).into()),
            Self::Inspect => KeyReply::Inspect(Err(cause)),
            Self::Release(_) => KeyReply::Release(Err(cause)),
        }
    }
}

impl AcquireKey {
    /// A task with this request; `reports`: the caller wants a [`ClaimReport`] about the holder from time to time.
    pub const fn new(request: AcquireRequest, reports: bool) -> Self {
        Self { request, reports, arrived: Moment::NEVER, id: None, phase: AcquirePhase::Outside }
    }

    /// What it requests.
    pub const fn request(&self) -> &AcquireRequest {
        &self.request
    }

    /// The task in the engine, while it is in one.
    pub const fn id(&self) -> Option<WaiterId> {
        self.id
    }

    /// When the task came.
    pub const fn arrived(&self) -> Moment {
        self.arrived
    }

    /// Whether [`AcquireKey::cancel`] has nothing to do.
    pub const fn is_over(&self) -> bool {
        self.id.is_none() && !matches!(self.phase, AcquirePhase::ReleasingIdle(_))
    }

    /// Whether it waits for nothing but time, other tasks or a notification.
    pub const fn is_at_rest(&self) -> bool {
        matches!(self.phase, AcquirePhase::InQueue(_) | AcquirePhase::Asleep { .. })
    }

    /// Whether only time ends its sleep: it leaves the key to other clients, or tries at intervals.
    pub const fn sleeps_on(&self) -> bool {
        matches!(self.phase, AcquirePhase::Asleep { wakes: false })
    }

    /// Whether other tasks of this client go first.
    pub const fn is_in_queue(&self) -> bool {
        matches!(self.phase, AcquirePhase::InQueue(_))
    }

    /// Takes an idle lease of this client, which counts as a free key, if the task does not wait in the queue. One that does not match is
    /// released. `None` if there is nothing to do in this engine.
    pub fn take_idle<W: Default, L: Default>(
        &mut self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<AcquireNext> {
        if cx.config.sharing.is_none() || self.request.queues() {
            return None;
        }
        match engine.take_idle(&self.request, cx) {
            IdleLease::None => None,
            IdleLease::Taken(grant) => Some(self.granted(grant, engine, cx)),
            IdleLease::Release(release) => {
                let request = KeyRequest::Release(release.holder);
                self.phase = AcquirePhase::ReleasingIdle(release);
                Some(AcquireNext::Send(request, Moment::NEVER))
            }
        }
    }

    /// Enters the engine. A task that enters again keeps its position at the front.
    pub fn enter<W: Default, L: Default>(
        &mut self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        if !cx.open {
            return AcquireNext::Closed;
        }
        let again = self.arrived != Moment::NEVER;
        if !again {
            self.arrived = cx.now;
        }
        self.id = Some(engine.enter(self.request.clone(), self.arrived, again, cx));
        self.follow(TaskStep::Wait, engine, cx)
    }

    /// The task runs. Returns its next step, unless it goes on waiting for what it waits for.
    pub fn woken<W: Default, L: Default>(
        &mut self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> Option<AcquireNext> {
        let id = self.id?;
        let step = match self.phase {
            // A request that may have been executed is waited for.
            AcquirePhase::Asking(_) if engine.is_present(id) => return None,
            AcquirePhase::Asking(_) => TaskStep::TurnLost,
            _ if !cx.open => TaskStep::Wait,
            _ => engine.poll(id, cx)?,
        };
        Some(self.follow(step, engine, cx))
    }

    /// The moment of [`AcquireNext::Rest`] has come.
    pub fn on_time<W: Default, L: Default>(
        &mut self,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        if let Some(next) = self.woken(engine, cx) {
            return next;
        }
        let Some(id) = self.id else { return AcquireNext::Enter };
        match self.phase {
            AcquirePhase::Asleep { .. } => {
                let step = engine.timer_fired(id, cx);
                self.follow(step, engine, cx)
            }
            AcquirePhase::InQueue(_) if cx.now >= self.deadline() => {
                let known = engine.view(id, cx.config, cx.now).map(|view| view.occupied);
                self.phase = AcquirePhase::LastLook(known);
                AcquireNext::Send(KeyRequest::Inspect, cx.now + LAST_ANSWER)
            }
            _ => self.wait_in_queue(id, engine, cx),
        }
    }

    /// The request was answered.
    pub fn answered<W: Default, L: Default>(
        &mut self,
        reply: KeyReply,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        match (std::mem::replace(&mut self.phase, AcquirePhase::Outside), self.id, reply) {
            (AcquirePhase::ReleasingIdle(release), _, reply) => {
                // If the result is unknown, the next claim finds out.
                if !matches!(reply, KeyReply::Release(Ok(_))) || cx.now < release.stray_until {
                    cx.act(Action::Release(release));
                }
                AcquireNext::Enter
            }
            (AcquirePhase::LastLook(known), Some(id), KeyReply::Inspect(seen)) => match engine.poll(id, cx) {
                Some(step) => self.follow(step, engine, cx),
                None => self.out_of_time(seen, known, engine, cx),
            },
            (AcquirePhase::Asking(called), Some(id), reply) => {
                let step = match reply {
                    KeyReply::Claim(reply) => engine.claim_answered(id, called, reply, cx),
                    KeyReply::Inspect(seen) => engine.inspected(id, seen, cx),
                    KeyReply::Release(left) => engine.left(id, left, cx),
                };
                self.follow(step, engine, cx)
            }
            _ => AcquireNext::Enter,
        }
    }

    /// The task gives up. What it has is passed on, or released in the background.
    pub fn cancel<W: Default, L: Default>(&mut self, engine: &mut KeyEngine<W, L>, cx: &mut Context<'_, W, L>) {
        if let AcquirePhase::ReleasingIdle(release) = std::mem::replace(&mut self.phase, AcquirePhase::Outside) {
            cx.act(Action::Release(release));
        }
        if let Some(grant) = self.id.take().and_then(|id| engine.leave(id, cx)) {
            engine.release(grant.hold, grant.tenure, true, cx);
        }
    }

    /// Carries out a step, until the task has to wait.
    fn follow<W: Default, L: Default>(
        &mut self,
        mut step: TaskStep,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        let Some(id) = self.id else { return AcquireNext::Enter };
        loop {
            let rests = matches!(step, TaskStep::Wait | TaskStep::Sleep { .. });
            match step {
                TaskStep::Granted(grant) => return self.granted(grant, engine, cx),
                TaskStep::Failed(failure) => {
                    self.id = None;
                    return AcquireNext::Failed(failure);
                }
                TaskStep::TurnLost => {
                    self.id = None;
                    return AcquireNext::Enter;
                }
                _ if !cx.open => {
                    self.cancel(engine, cx);
                    return AcquireNext::Closed;
                }
                _ => {}
            }
            // The key may have been handed to it meanwhile.
            match rests.then(|| engine.poll(id, cx)).flatten() {
                Some(next) => step = next,
                None => return self.wait_for(step, id, engine, cx),
            }
        }
    }

    fn wait_for<W: Default, L: Default>(
        &mut self,
        step: TaskStep,
        id: WaiterId,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        let (request, limit) = match step {
            TaskStep::Sleep { until, wakes } => {
                self.phase = AcquirePhase::Asleep { wakes };
                return AcquireNext::Rest(until);
            }
            TaskStep::Claim(claim) => {
                let silent = engine.gives_up_at(id).map(|end| end.max(cx.now + SHORTEST_REQUEST));
                (KeyRequest::Claim(claim), silent.unwrap_or_else(|| self.limit(cx.now)))
            }
            TaskStep::Inspect => (KeyRequest::Inspect, Moment::NEVER),
            TaskStep::Leave(holder) => (KeyRequest::Release(holder), self.limit(cx.now)),
            _ => return self.wait_in_queue(id, engine, cx),
        };
        self.phase = AcquirePhase::Asking(cx.now);
        AcquireNext::Send(request, limit)
    }

    /// When the wait ends, a pending reply is only awaited for [`LAST_ANSWER`]. For a task that does not wait, the timeout of the
    /// backend applies.
    fn limit(&self, now: Moment) -> Moment {
        let wait = self.request.wait.filter(|wait| !wait.is_zero());
        wait.map_or(Moment::NEVER, |wait| (self.arrived + wait).max(now + LAST_ANSWER))
    }

    fn deadline(&self) -> Moment {
        self.request.wait.map_or(Moment::NEVER, |wait| self.arrived + wait)
    }

    /// Waits for other tasks of this client. If it is time, the task is told who holds the key.
    fn wait_in_queue<W: Default, L: Default>(
        &mut self,
        id: WaiterId,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        let mut news = Moment::NEVER;
        if self.reports && cx.config.is_in_queue(&self.request) {
            let view = engine.view(id, cx.config, cx.now);
            news = cx.now + if view.is_some() { NEWS } else { FIRST_NEWS };
            if let Some(View { ahead, occupied }) = view {
                cx.act(Action::Report(Box::new(ClaimReport::Queued { ahead, occupied })));
            }
        }
        self.phase = AcquirePhase::InQueue(news);
        let deadline = if cx.config.is_in_queue(&self.request) { self.deadline() } else { Moment::NEVER };
        AcquireNext::Rest(deadline.min(news))
    }

    /// The wait is over, and the key was inspected once more to report its holder.
    fn out_of_time<W: Default, L: Default>(
        &mut self,
        seen: Result<Option<Holding>, Unknown>,
        known: Option<Occupied>,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        self.cancel(engine, cx);
        let (seen, cause) = match seen {
            Ok(seen) => (seen.map(Occupied::from), None),
            Err(cause) => (None, Some(cause)),
        };
        let reason = match (seen.or(known), cause) {
            (None, Some(cause)) => FailureReason::Unreachable(cause),
            (occupied, _) => FailureReason::Busy(occupied),
        };
        AcquireNext::Failed(Box::new(AcquireFailure { reason, waited: cx.now.since(self.arrived), attempts: 1 }))
    }

    fn granted<W: Default, L: Default>(
        &mut self,
        grant: Grant,
        engine: &mut KeyEngine<W, L>,
        cx: &mut Context<'_, W, L>,
    ) -> AcquireNext {
        (self.id, self.phase) = (None, AcquirePhase::Outside);
        if !cx.open {
            engine.release(grant.hold, grant.tenure, true, cx);
            return AcquireNext::Closed;
        }
        // A lease that was lost before the task took it: the task comes first again.
        if engine.facts(grant.hold).is_some() { AcquireNext::Granted(grant) } else { AcquireNext::Enter }
    }
}
