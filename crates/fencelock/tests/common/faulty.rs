use fencelock::backends::TokioClock;
use fencelock::{
    Backend, BackendReport, Capabilities, Clock, Eviction, Fault, HolderId, Holding, Key, Moment, Unknown,
};
use fencelock_core::{
    Acquire, Admin, Answer, BoxFuture, Claim, ClaimReply, ClearCompletion, Completion, CompletionRead, Completions,
    Downgrade, Intent, Listener, ModeChanges, Release, Renew, Renewal, Resize, WriteCompletion,
};
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
    async fn send<T: Send + 'static>(
        &self,
        verb: Verb,
        call: impl FnOnce(Arc<dyn Backend>) -> BoxFuture<'static, T> + Send,
    ) -> Result<T, Unknown> {
        let no_answer = || Unknown::new("faulty", Fault::Timeout, "");
        let call = call(Arc::clone(&self.inner));
        match self.fate(verb) {
            Fate::Pass => Ok(call.await),
            Fate::Lost => Err(no_answer()),
            Fate::Panic => panic!("as the test wants"),
            Fate::Denied => Err(Unknown::new("faulty", Fault::Denied, "WRONGPASS")),
            Fate::Full => Err(Unknown::new("faulty", Fault::Full, "OOM")),
            Fate::Quarantined => Err(Unknown::new("faulty", Fault::Quarantined, "9 s left")),
            Fate::Mute => {
                call.await;
                Err(no_answer())
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
                Ok(done)
            }
            Fate::Stray(span) => {
                tokio::spawn(async move {
                    tokio::time::sleep(span).await;
                    call.await;
                });
                Err(no_answer())
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

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        self.claimants.lock().unwrap().push(claim.holder.id);
        let claim = if self.capabilities().queues { claim.clone() } else { claim.with_intent(Intent::Try) };
        Box::pin(async {
            self.send(Verb::Acquire, |inner| Box::pin(async move { inner.acquire(&claim).await.answer }))
                .await
                .and_then(|answer| answer)
                .into()
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        self.inner.watch(key)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        let (renewals, many) = (renewals.to_vec(), renewals.len());
        Box::pin(async move {
            let answers = self.send(Verb::Renew, |inner| Box::pin(async move { inner.renew(&renewals).await })).await;
            answers.unwrap_or_else(|unknown| vec![Err(unknown); many])
        })
    }

    fn announces_waiters(&self, key: &Key) -> bool {
        self.inner.announces_waiters(key)
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        let (key, holder) = (key.clone(), *holder);
        Box::pin(async move {
            self.send(Verb::Release, |inner| Box::pin(async move { inner.release(&key, &holder).await }))
                .await
                .and_then(|answer| answer)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        let key = key.clone();
        Box::pin(async move {
            self.send(Verb::Inspect, |inner| Box::pin(async move { inner.inspect(&key).await }))
                .await
                .and_then(|answer| answer)
        })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        Some(self)
    }
}

impl Completions for Faulty {
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        let key = key.clone();
        Box::pin(async move {
            self.send(Verb::ReadCompletion, |inner| Box::pin(async move { inner.read_completion(&key).await }))
                .await
                .and_then(|answer| answer)
        })
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        let (key, holder, completion) = (key.clone(), *holder, completion.clone());
        Box::pin(async move {
            let write = |inner: Arc<dyn Backend>| -> BoxFuture<'static, _> {
                Box::pin(async move { inner.write_completion(&key, &holder, &completion).await })
            };
            self.send(Verb::WriteCompletion, write).await.and_then(|answer| answer)
        })
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        self.inner.clear_completion(key, seen)
    }
}

impl ModeChanges for Faulty {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        let renewal = renewal.clone();
        Box::pin(async move {
            self.send(Verb::Downgrade, |inner| Box::pin(async move { inner.downgrade(&renewal).await }))
                .await
                .and_then(|answer| answer)
        })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        self.inner.resize(key, limit)
    }
}
