use fencelock::backends::Memory;
use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BoxFuture, Capabilities, Claim, ClaimReply, ClearCompletion,
    Completion, CompletionRead, Completions, Eviction, Fault, FencingToken, Holder, HolderId, Holding, Intent, Key,
    Listener, ModeChanges, Occupied, Owner, QuorumNode, Release, Renew, Renewal, Ttl, Unknown, WriteCompletion,
};
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The defect of a [`FaultyBackend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    BusyIsGranted,
    OneInAHundredIsGranted,
    BusyIsAnError,
    ReleaseFreesAnybodys,
    ReleaseSaysReleased,
    RenewalTakesAgain,
    RenewalOfAnybodys,
    RenewalDoesNothing,
    RenewalsBackwards,
    TryEnqueues,
    PollTakes,
    FenceStandsStill,
    FenceMovesOnRepeat,
    LocksNeverExpire,
    HalfTheTtl,
    TwiceTheTtl,
    ForgetsLabels,
    IgnoresCase,
    CutsNames,
    EvictsWhateverIsThere,
    ListsNothing,
    NeverNotifies,
    KeepsWaiters,
    TryOvertakes,
    CarriesOutLater,
    OneLockForAll,
    ReleaseDoesNothing,
    ClaimsEagerly,
    InspectTakes,
    CompletesForAnybody,
    CompletionGoesBack,
    CompletionIsForgotten,
    CompletionOfAllKeys,
    ClearsAnyCompletion,
}

/// A backend that is right but for one thing.
#[derive(Debug)]
pub(crate) struct FaultyBackend {
    memory: Arc<Memory>,
    defect: Defect,
    answers: AtomicU64,
}

impl FaultyBackend {
    pub(crate) fn new(memory: Memory, defect: Defect) -> Self {
        Self { memory: Arc::new(memory), defect, answers: AtomicU64::new(1) }
    }

    /// No defect concerns nodes of a quorum.
    pub(crate) fn node(&self) -> Arc<dyn QuorumNode> {
        Arc::clone(&self.memory) as _
    }

    fn key(&self, key: &Key) -> Key {
        let name = key.as_str();
        match self.defect {
            Defect::IgnoresCase => Key::new(name.to_lowercase()).unwrap(),
            Defect::CutsNames => Key::new(name.chars().take(255).collect::<String>()).unwrap(),
            Defect::OneLockForAll => Key::new("the one").unwrap(),
            _ => key.clone(),
        }
    }

    fn completion_key(&self, key: &Key) -> Key {
        if self.defect == Defect::CompletionOfAllKeys { Key::new("the one").unwrap() } else { key.clone() }
    }

    fn ttl(&self, ttl: Ttl) -> Ttl {
        match self.defect {
            Defect::HalfTheTtl => Ttl::new(ttl.get() / 2).unwrap(),
            Defect::TwiceTheTtl => Ttl::new(ttl.get() * 2).unwrap(),
            _ => ttl,
        }
    }

    /// The claim that is sent instead of this one.
    fn bent(&self, claim: &Claim) -> Claim {
        let mut bent = claim.clone();
        bent.key = self.key(&claim.key);
        bent.ttl = self.ttl(claim.ttl);
        bent.queueing.intent = match (self.defect, claim.queueing.intent) {
            (Defect::TryEnqueues, Intent::Try) | (Defect::PollTakes, Intent::Poll) => Intent::Enqueue,
            (_, intent) => intent,
        };
        if self.defect == Defect::ForgetsLabels {
            bent.holder.owner = Owner::from_text(claim.holder.owner.process());
        }
        bent
    }

    /// The answer that is given instead of this one.
    fn replaced(&self, claim: &Claim, answer: Acquire) -> Result<Acquire, Unknown> {
        let count = self.answers.fetch_add(1, Ordering::SeqCst);
        let fence = FencingToken::new(count).unwrap();
        match (self.defect, answer) {
            (Defect::BusyIsGranted, Acquire::Busy(_) | Acquire::Queued { .. })
            | (Defect::FenceMovesOnRepeat, Acquire::Granted { .. }) => Ok(Acquire::Granted { tokens: fence.into() }),
            (Defect::OneInAHundredIsGranted, Acquire::Queued { .. }) if count.is_multiple_of(100) => {
                Ok(Acquire::Granted { tokens: fence.into() })
            }
            (Defect::BusyIsAnError, Acquire::Busy(_)) => Err(Unknown::new("faulty", Fault::Other, "busy")),
            (Defect::TryEnqueues, Acquire::Queued { occupied, .. }) if claim.queueing.intent == Intent::Try => {
                Ok(Acquire::Busy(occupied))
            }
            (Defect::FenceStandsStill, Acquire::Granted { .. }) => {
                Ok(Acquire::Granted { tokens: FencingToken::new(1).unwrap().into() })
            }
            (_, answer) => Ok(answer),
        }
    }

    async fn overtakes(&self, claim: &Claim) -> bool {
        if self.defect != Defect::TryOvertakes || claim.queueing.intent != Intent::Try {
            return false;
        }
        // A client that was handed the key and has not claimed it yet still has the short lease of a hand-off.
        let Ok(Some(seen)) = self.memory.inspect(&claim.key).await else { return false };
        let handed =
            seen.first().expiry.span().is_some_and(|left| left.as_secs() <= 3) && claim.ttl.get().as_secs() > 3;
        handed && matches!(self.memory.evict(&seen).await, Ok(Eviction::Evicted))
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        let mut renewal = Renewal::new(self.key(&renewal.key), renewal.holder, self.ttl(renewal.ttl));
        if self.defect == Defect::RenewalDoesNothing {
            return Ok(match self.memory.inspect(&renewal.key).await? {
                None => Renew::Absent,
                Some(seen) if seen.has(renewal.holder) => Renew::Renewed { waiters: seen.waiters },
                Some(seen) => Renew::TakenBy(Occupied::from(seen).holders),
            });
        }
        let answer = self.memory.renew(std::slice::from_ref(&renewal)).await.remove(0)?;
        match (self.defect, &answer) {
            (Defect::RenewalTakesAgain, Renew::Absent) => {
                let holder = Holder { id: renewal.holder, owner: Owner::from_text("backend:1") };
                self.memory.acquire(&Claim::new(renewal.key, holder, renewal.ttl, Intent::Try)).await.answer?;
            }
            (Defect::RenewalOfAnybodys, Renew::TakenBy(others)) => {
                renewal.holder = others.first().holder_id().unwrap();
                self.memory.renew(&[renewal]).await.remove(0)?;
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let bent = self.bent(claim);
        if self.defect == Defect::CarriesOutLater {
            let memory = Arc::clone(&self.memory);
            let later = async move {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                memory.acquire(&bent).await.answer
            };
            return tokio::spawn(later).await.unwrap();
        }
        self.overtakes(&bent).await;
        self.replaced(claim, self.memory.acquire(&bent).await.answer?)
    }
}

impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn name(&self) -> String {
        format!("faulty: {:?}", self.defect)
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        if self.defect != Defect::NeverNotifies {
            self.memory.listen(listener);
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        if self.defect == Defect::ClaimsEagerly {
            let _ = self.memory.acquire(claim).now_or_never();
        }
        Box::pin(async move { self.claim(claim).await.into() })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        self.memory.watch(key)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for renewal in renewals {
                answers.push(self.renew_one(renewal).await);
            }
            if self.defect == Defect::RenewalsBackwards {
                answers.reverse();
            }
            answers
        })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async move {
            let key = &self.key(key);
            if self.defect == Defect::KeepsWaiters {
                let seen = self.memory.inspect(key).await?;
                if let Some(seen) = seen.filter(|seen| !seen.has(*holder)) {
                    return Ok(Release::TakenBy(Occupied::from(seen).holders));
                }
            }
            if self.defect == Defect::ReleaseDoesNothing {
                return Ok(Release::Released);
            }
            let answer = self.memory.release(key, holder).await?;
            match (self.defect, answer) {
                (Defect::ReleaseFreesAnybodys, Release::TakenBy(others)) => {
                    self.memory.release(key, &others.first().holder_id().unwrap()).await
                }
                (Defect::ReleaseSaysReleased, _) => Ok(Release::Released),
                (_, answer) => Ok(answer),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move {
            if self.defect == Defect::InspectTakes {
                let looker = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("backend:1") };
                self.memory.acquire(&Claim::new(key.clone(), looker, Ttl::default(), Intent::Try)).await.answer?;
            }
            self.memory.inspect(&self.key(key)).await
        })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        self.memory.mode_changes()
    }
}

impl Admin for FaultyBackend {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { if self.defect == Defect::ListsNothing { Ok(Vec::new()) } else { self.memory.list().await } })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async move {
            match self.memory.evict(seen).await? {
                Eviction::Changed(Some(now)) if self.defect == Defect::EvictsWhateverIsThere => {
                    self.memory.evict(&now).await
                }
                answer => Ok(answer),
            }
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        self.memory.diagnose()
    }
}

impl Completions for FaultyBackend {
    fn read_completion<'a>(&'a self, key: &'a Key) -> Answer<'a, CompletionRead> {
        Box::pin(async move {
            let mut read = self.memory.read_completion(&self.completion_key(key)).await?;
            if self.defect == Defect::CompletionIsForgotten && self.memory.inspect(key).await?.is_none() {
                read.completion = None;
            }
            Ok(read)
        })
    }

    fn write_completion<'a>(
        &'a self,
        key: &'a Key,
        holder: &'a HolderId,
        completion: &'a Completion,
    ) -> Answer<'a, WriteCompletion> {
        Box::pin(async move {
            let written = self.memory.write_completion(key, holder, completion).await?;
            let stored = self.completion_key(key);
            match self.defect {
                Defect::CompletesForAnybody => {
                    self.memory.restore_completion(&stored, completion).await?;
                    return Ok(WriteCompletion::Written);
                }
                Defect::CompletionGoesBack => {
                    if let Some(seen) = self.memory.read_completion(key).await?.completion {
                        self.memory.clear_completion(key, &seen).await?;
                    }
                    self.memory.restore_completion(key, completion).await?;
                }
                Defect::CompletionOfAllKeys => self.memory.restore_completion(&stored, completion).await?,
                _ => {}
            }
            Ok(written)
        })
    }

    fn clear_completion<'a>(&'a self, key: &'a Key, seen: &'a Completion) -> Answer<'a, ClearCompletion> {
        Box::pin(async move {
            let stored = self.memory.read_completion(key).await?.completion;
            let seen = stored.filter(|_| self.defect == Defect::ClearsAnyCompletion).unwrap_or_else(|| seen.clone());
            self.memory.clear_completion(key, &seen).await
        })
    }
}
