use crate::{Register, WriteReply};
use fencelock_core::register::{
    Decision, Remembered, StoreClock, StoreTiming, Update, UpdateEnv, UpdateStep, View, decisions,
};
use fencelock_core::{
    Acquire, Answer, Backend, BackendReport, BootClock, BoxFuture, Capabilities, Claim, ClaimReply, Clock, Event,
    Eviction, Fault, Finding, HolderId, Holding, Intent, Key, Listener, Listeners, Moment, Renew, Renewal, Reply,
    Request, RetryPlan, Sent, ServerReport, Trial, Tried, Unknown, lock,
};
use futures_util::{StreamExt, stream};
use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Locks on a [`Register`]: one record for each key.
///
/// Waiters poll. If the store can watch a register, they are woken too. A key whose holder has crashed is free after the TTL and some seconds: see [`StoreTiming`].
#[derive(Debug)]
pub struct RegisterLocks {
    register: Arc<dyn Register>,
    clock: Arc<dyn Clock>,
    polls: RetryPlan,
    /// The shortest one, and one that leaves room for slow answers.
    ttls: Option<(Duration, Duration)>,
    observed: Mutex<Observed>,
    /// One call proves the store, and others wait for it.
    proving: futures_util::lock::Mutex<()>,
    listeners: Listeners,
}

/// What this client remembers of a store and its keys.
#[derive(Debug)]
struct Observed {
    clock: StoreClock,
    proved: Option<Moment>,
    keys: HashMap<Key, Remembered>,
}

impl Observed {
    /// So many keys are remembered. To forget one costs a read, or a wait.
    const KEYS: usize = 1024;

    fn of_key(&mut self, key: &Key) -> (&mut Remembered, &mut StoreClock) {
        if self.keys.len() >= Self::KEYS && !self.keys.contains_key(key) {
            self.keys.retain(|_, memory| !memory.is_idle());
        }
        (self.keys.entry(key.clone()).or_default(), &mut self.clock)
    }
}

impl RegisterLocks {
    /// So many requests are sent at once for a list of keys.
    const AT_ONCE: usize = 16;

    /// From 100 ms to 2 s: each poll costs money on many stores, and none of them is faster than some milliseconds.
    const POLLS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

    /// Locks on this store, with the default [`StoreTiming`].
    pub fn new(register: Arc<dyn Register>) -> Self {
        let observed = Observed { clock: StoreClock::new(StoreTiming::default()), proved: None, keys: HashMap::new() };
        let (first, longest) = Self::POLLS;
        let polls = RetryPlan::new(first, longest);
        let (clock, observed) = (Arc::new(BootClock), Mutex::new(observed));
        let (proving, listeners) = (futures_util::lock::Mutex::default(), Listeners::default());
        Self { register, clock, polls, ttls: None, observed, proving, listeners }
    }

    /// The same with other assumptions on the clocks of the store. All clients must agree on them.
    #[must_use]
    pub fn with_timing(self, timing: StoreTiming) -> Self {
        lock(&self.observed).clock = StoreClock::new(timing);
        self
    }

    /// The same with another clock of this client.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The same with other pauses between the polls of a waiter.
    #[must_use]
    pub fn with_polls(self, polls: RetryPlan) -> Self {
        Self { polls, ..self }
    }

    /// The same for a store that may answer slowly: a client refuses TTLs below `shortest`, and warns of those below `advised`.
    #[must_use]
    pub fn with_ttls(self, shortest: Duration, advised: Duration) -> Self {
        Self { ttls: Some((shortest, advised)), ..self }
    }

    /// Reads a key, decides, and writes if nothing has changed since, until there is an answer. The holder is that of a claim or of its
    /// release. What it leaves if it is dropped is in the memory of its key.
    async fn run<T: Send>(
        &self,
        key: &Key,
        holder: Option<HolderId>,
        decide: impl Fn(&View<'_>) -> Decision<T> + Send,
    ) -> Result<T, Unknown> {
        self.run_from(key, holder, decide, &mut Sent::AtOnce).await
    }

    /// The same, and tells since when the lease of a claim counts.
    async fn run_from<T: Send>(
        &self,
        key: &Key,
        holder: Option<HolderId>,
        decide: impl Fn(&View<'_>) -> Decision<T> + Send,
        sent: &mut Sent,
    ) -> Result<T, Unknown> {
        let (mut update, mut read) = (Update::new(holder), None);
        loop {
            match self.with(key, |cx| update.judge(read.as_ref(), &decide, cx))? {
                UpdateStep::Done(answer) => return answer,
                UpdateStep::Prove => {
                    self.prove().await?;
                    *sent = Sent::At(self.clock.now());
                    continue;
                }
                UpdateStep::Read => {}
                UpdateStep::Write { expect, record } => {
                    match self.register.write_if(key, &expect, record.to_bytes(key)).await? {
                        WriteReply::Written { version, date } => {
                            if let Some(answer) = self.with(key, |cx| update.written(version, date, cx))? {
                                return Ok(answer);
                            }
                        }
                        WriteReply::Refused { why } => {
                            let pause = self.with(key, |cx| update.refused(why, cx.nonce))?;
                            if !pause.is_zero() {
                                self.register.pause(pause).await;
                            }
                        }
                    }
                }
            }
            read = Some(self.register.read(key).await?.reading(key));
        }
    }

    async fn prove(&self) -> Result<(), Unknown> {
        let before = lock(&self.observed).proved;
        let _proving = self.proving.lock().await;
        if lock(&self.observed).proved == before {
            let now = self.clock.now();
            self.register.prove().await?;
            lock(&self.observed).proved = Some(now);
        }
        Ok(())
    }

    /// Whether the store lets this client in.
    pub(crate) fn check(&self) -> Answer<'_, ()> {
        self.register.check()
    }

    fn with<T>(&self, key: &Key, step: impl FnOnce(&mut UpdateEnv<'_>) -> T) -> Result<T, Unknown> {
        let backend = self.name();
        let no_random = |error: getrandom::Error| Unknown::new(&*backend, Fault::Other, error.to_string());
        let (nonce, now) = (getrandom::u64().map_err(no_random)?, self.clock.now());
        let mut observed = lock(&self.observed);
        let proved = observed.proved;
        let (memory, clock) = observed.of_key(key);
        Ok(step(&mut UpdateEnv { key, backend: &backend, memory, clock, proved, now, nonce }))
    }
}

impl Backend for RegisterLocks {
    fn capabilities(&self) -> Capabilities {
        let mut facts = Capabilities::default();
        (facts.expires, facts.cross_process, facts.portable) = (true, true, true);
        (facts.evicts, facts.fresh_holders, facts.polls) = (true, true, self.polls);
        (facts.lists, facts.completions) = (true, true);
        (facts.shortest_ttl, facts.advised_ttl) = self.ttls.unzip();
        facts.modes.because = ", because holders that write to one record get in each other's way";
        facts
    }

    fn name(&self) -> String {
        self.register.name()
    }

    /// What this client evicts is reported, and what the store reports.
    fn listen(&self, listener: Arc<dyn Listener>) {
        self.register.listen(&listener);
        self.listeners.add(&listener);
    }

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::Claim(claim, _) => Reply::of(|| self.claim(claim)),
            Request::Renew(renewals) => Reply::of(move || self.renew_each(renewals)),
            Request::Release(key, holder) => {
                Reply::of(move || self.run(key, Some(*holder), |view| decisions::release(*holder, view)))
            }
            Request::Inspect(key) => Reply::of(|| self.run(key, None, decisions::inspect)),
            Request::Watch(key) => Box::pin(async { self.register.watch(key).into() }),
            Request::List => Reply::of(|| self.list_all()),
            Request::Evict(seen) => Reply::of(|| self.end_holds(seen)),
            Request::TryOut(key) => Reply::of(move || self.try_lock(key)),
            Request::Diagnose => Reply::of(|| self.report()),
            Request::ReadCompletion(key) => Reply::of(|| self.run(key, None, decisions::read_done)),
            Request::WriteCompletion(key, holder, done) => {
                Reply::of(move || self.run(key, None, move |view| decisions::write_done(*holder, done, view)))
            }
            Request::ConfirmCompletion(..) => Box::pin(ready(Reply::Done(()))),
            Request::ClearCompletion(key, seen) => {
                Reply::of(move || self.run(key, None, move |view| decisions::clear_done(seen, view)))
            }
            _ => Box::pin(ready(request.unsupported(self.name()))),
        }
    }

    /// A slow renewal delays those of few other keys.
    fn renewal_group(&self, key: &Key) -> u32 {
        key.as_str().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 16
    }
}

impl RegisterLocks {
    async fn claim(&self, claim: &Claim) -> ClaimReply {
        let mut sent = Sent::AtOnce;
        let decide = |view: &View<'_>| decisions::claim(claim, view);
        let answer = self.run_from(&claim.key, Some(claim.holder.id), decide, &mut sent).await;
        if claim.intent != Intent::Try && matches!(answer, Ok(Acquire::Busy(_))) {
            // A hint, where there is any.
            let _polls_suffice = self.register.watch(&claim.key);
        }
        match answer {
            // Only reads were sent: no claim of this client on this key may still be executed.
            Err(cause) if lock(&self.observed).of_key(&claim.key).0.is_idle() => ClaimReply::not_sent(cause),
            answer => ClaimReply { sent, answer },
        }
    }

    /// Whoever holds a key for longer than to its first renewal is told if another program takes it.
    async fn renew_each(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let renew = async |renewal: Renewal| {
            let _polls_suffice = self.register.watch(&renewal.key);
            self.run(&renewal.key, None, |view| decisions::renew(&renewal, view)).await
        };
        stream::iter(renewals.iter().cloned().map(renew)).buffered(Self::AT_ONCE).collect().await
    }

    async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        let keys = self.register.list().await?;
        let inspect = |key: Key| async move {
            match self.run(&key, None, decisions::inspect).await {
                // It hides no other.
                Err(why) if why.nodes().iter().all(|node| node.fault == Fault::Unsupported) => {
                    Ok(Some(Holding::unread(key, &why)))
                }
                answer => answer,
            }
        };
        let found: Vec<_> = stream::iter(keys.into_iter().map(inspect)).buffered(Self::AT_ONCE).collect().await;
        found.into_iter().filter_map(Result::transpose).collect()
    }

    async fn end_holds(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        let eviction = self.run(&seen.key, None, |view| decisions::evict(seen, view)).await?;
        if eviction == Eviction::Evicted {
            self.listeners.send(&Event::Changed { key: seen.key.clone() });
        }
        Ok(eviction)
    }

    /// Tries a lock, and what the store promises.
    async fn try_lock(&self, named: Option<&Key>) -> Vec<Finding> {
        let own = self.register.trial_key();
        let trial = Trial::new(self, getrandom::fill, named.or(own.as_ref()), "");
        let Some(trial) = trial else { return vec![Trial::impossible()] };
        let clean = || -> BoxFuture<'_, bool> { Box::pin(trial.end_holds()) };
        let tried = trial.run(&clean).await;
        let mut findings = vec![tried.finding(Tried::advice)];
        if !tried.is_occupied && named.is_none() {
            self.register.forget(trial.key()).await;
        }
        findings.extend(self.register.try_out().await);
        findings
    }

    async fn report(&self) -> BackendReport {
        if let Err(cause) = self.check().await {
            return BackendReport::unreachable(self.name(), cause.to_string(), "correct what it names");
        }
        let mut report = BackendReport::of_server(ServerReport::new(self.name()));
        report.findings = vec![Finding::fine("connection", format!("{} answers", self.name()))];
        report
    }
}
