use fencelock::backends::TokioClock;
use fencelock::{Backend, Capabilities, Clock, Fault, HolderId, Key, Moment, Unknown};
use fencelock_core::{BoxFuture, Intent, Listener, Reply, Request};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A real backend behind a network with scripted faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Backend>,
    clock: TokioClock,
    roads: Mutex<HashMap<Verb, Road>>,
    /// Whether there is no line, and each claim needs a fresh holder, as on a quorum.
    pub(crate) like_a_quorum: AtomicBool,
    /// Whether the events of the backend are lost, for listeners that are added from now on.
    pub(crate) loses_events: AtomicBool,
    /// Who claimed, in order.
    pub(crate) claimants: Mutex<Vec<HolderId>>,
}

/// Which kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Acquire,
    Renew,
    Release,
    Inspect,
    Downgrade,
    ReadCompletion,
    WriteCompletion,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// It is carried out and answered.
    #[default]
    Pass,
    /// The request is lost: it is not carried out, and the result is unknown.
    Lost,
    /// The request is carried out, and the reply is lost: the result is unknown.
    Mute,
    /// Not carried out, never answered.
    Hang,
    /// Carried out, never answered.
    HangAfter,
    /// Takes this long before it is carried out, and as long again until it is answered.
    Slow(Duration),
    /// The result is unknown immediately, and the request is carried out this much later.
    Stray(Duration),
    /// The backend panics.
    Panic,
    /// Access is denied.
    Denied,
    /// The backend answers that it cannot store anything.
    Full,
    /// The backend may have forgotten what it granted, and grants nothing yet.
    Quarantined,
}

#[derive(Debug, Default)]
struct Road {
    next: VecDeque<Fate>,
    otherwise: Fate,
    calls: Vec<Moment>,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Backend>, clock: TokioClock) -> Arc<Self> {
        Arc::new(Self {
            inner,
            clock,
            roads: Mutex::default(),
            like_a_quorum: AtomicBool::default(),
            loses_events: AtomicBool::default(),
            claimants: Mutex::default(),
        })
    }

    /// The fates of the next calls, in order.
    pub(crate) fn next(&self, verb: Verb, fates: impl IntoIterator<Item = Fate>) {
        self.roads().entry(verb).or_default().next.extend(fates);
    }

    /// The fate of every call that has none of its own.
    pub(crate) fn always(&self, verb: Verb, fate: Fate) {
        self.roads().entry(verb).or_default().otherwise = fate;
    }

    /// How many calls were made.
    pub(crate) fn calls(&self, verb: Verb) -> usize {
        self.times(verb).len()
    }

    /// When calls were made.
    pub(crate) fn times(&self, verb: Verb) -> Vec<Moment> {
        self.roads().get(&verb).map(|road| road.calls.clone()).unwrap_or_default()
    }

    fn roads(&self) -> MutexGuard<'_, HashMap<Verb, Road>> {
        self.roads.lock().unwrap()
    }

    fn fate(&self, verb: Verb) -> Fate {
        let mut roads = self.roads();
        let road = roads.entry(verb).or_default();
        road.calls.push(self.clock.now());
        road.next.pop_front().unwrap_or(road.otherwise)
    }

    /// Carries out a call, or not, as its fate says.
    async fn send(&self, verb: Verb, call: BoxFuture<'static, Reply>) -> Reply {
        let no_answer = || Unknown::new("faulty", Fault::Timeout, "").into();
        let unknown = |fault, why| Unknown::new("faulty", fault, why).into();
        match self.fate(verb) {
            Fate::Pass => call.await,
            Fate::Lost => no_answer(),
            Fate::Panic => panic!("as the test wants"),
            Fate::Denied => unknown(Fault::Denied, "WRONGPASS"),
            Fate::Full => unknown(Fault::Full, "OOM"),
            Fate::Quarantined => unknown(Fault::Quarantined, "9 s left"),
            Fate::Mute => {
                call.await;
                no_answer()
            }
            Fate::Hang => std::future::pending().await,
            Fate::HangAfter => {
                call.await;
                std::future::pending().await
            }
            Fate::Slow(span) => {
                tokio::time::sleep(span).await;
                // What was sent is carried out, whether or not the sender still waits.
                let done = tokio::spawn(call).await.unwrap();
                tokio::time::sleep(span).await;
                done
            }
            Fate::Stray(span) => {
                tokio::spawn(async move {
                    tokio::time::sleep(span).await;
                    call.await;
                });
                no_answer()
            }
        }
    }
}

impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        let like_a_quorum = self.like_a_quorum.load(Ordering::SeqCst);
        let mut facts = self.inner.capabilities();
        facts.queues &= !like_a_quorum;
        facts.fresh_holders = like_a_quorum;
        facts
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        if !self.loses_events.load(Ordering::SeqCst) {
            self.inner.listen(listener);
        }
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        self.inner.announces_waiters(key)
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        let inner = Arc::clone(&self.inner);
        let (verb, call) = match request {
            Request::Claim(claim, _) => {
                self.claimants.lock().unwrap().push(claim.holder.id);
                let try_it = claim.with_intent(Intent::Try);
                let claim = if self.capabilities().queues { claim } else { &try_it };
                (Verb::Acquire, Request::Claim(claim, None).send_copy(inner))
            }
            Request::Renew(_) => (Verb::Renew, request.send_copy(inner)),
            Request::Release(..) => (Verb::Release, request.send_copy(inner)),
            Request::Inspect(_) => (Verb::Inspect, request.send_copy(inner)),
            Request::Downgrade(..) => (Verb::Downgrade, request.send_copy(inner)),
            Request::ReadCompletion(_) => (Verb::ReadCompletion, request.send_copy(inner)),
            Request::WriteCompletion(..) => (Verb::WriteCompletion, request.send_copy(inner)),
            _ => return self.inner.call(request),
        };
        Box::pin(self.send(verb, call))
    }
}
