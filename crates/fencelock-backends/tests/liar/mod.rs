use fencelock_backends::Memory;
use fencelock_core::{
    Acquire, Answer, Backend, BoxFuture, Capabilities, Claim, Eviction, Fault, FencingToken, Finding, Holder, HolderId,
    Holding, Intent, Key, Listener, Mode, Occupied, Owner, QuorumNode, Release, Renew, Renewal, Ttl, Unknown,
};
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Liar`] gets wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
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
    TryStandsInLine,
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
    TellsNobody,
    KeepsPlaces,
    TryOvertakes,
    CarriesOutLater,
    OneLockForAll,
    ReleaseDoesNothing,
    ClaimsEagerly,
    LookTakes,
    IgnoresModes,
}

/// A backend that is right but for one thing.
#[derive(Debug)]
pub(crate) struct Liar {
    truth: Arc<Memory>,
    lie: Lie,
    answers: AtomicU64,
}

impl Liar {
    pub(crate) fn new(truth: Memory, lie: Lie) -> Self {
        Self { truth: Arc::new(truth), lie, answers: AtomicU64::new(1) }
    }

    /// No lie is about nodes of a quorum.
    pub(crate) fn node(&self) -> Arc<dyn QuorumNode> {
        Arc::clone(&self.truth) as _
    }

    fn key(&self, key: &Key) -> Key {
        let name = key.as_str();
        match self.lie {
            Lie::IgnoresCase => Key::new(name.to_lowercase()).unwrap(),
            Lie::CutsNames => Key::new(name.chars().take(255).collect::<String>()).unwrap(),
            Lie::OneLockForAll => Key::new("the one").unwrap(),
            _ => key.clone(),
        }
    }

    fn ttl(&self, ttl: Ttl) -> Ttl {
        match self.lie {
            Lie::HalfTheTtl => Ttl::new(ttl.get() / 2).unwrap(),
            Lie::TwiceTheTtl => Ttl::new(ttl.get() * 2).unwrap(),
            _ => ttl,
        }
    }

    /// The claim that is sent in the place of this one.
    fn bent(&self, claim: &Claim) -> Claim {
        let mut bent = claim.clone();
        bent.key = self.key(&claim.key);
        bent.ttl = self.ttl(claim.ttl);
        bent.intent = match (self.lie, claim.intent) {
            (Lie::TryStandsInLine, Intent::Try) | (Lie::PollTakes, Intent::Poll) => Intent::Enqueue,
            (_, intent) => intent,
        };
        if self.lie == Lie::IgnoresModes {
            bent.mode = Mode::Exclusive;
        }
        if self.lie == Lie::ForgetsLabels {
            bent.holder.owner = Owner::from_text(claim.holder.owner.place());
        }
        bent
    }

    /// The answer that is given in the place of this one.
    fn retold(&self, claim: &Claim, answer: Acquire) -> Result<Acquire, Unknown> {
        let count = self.answers.fetch_add(1, Ordering::SeqCst);
        let fence = FencingToken::new(count).unwrap();
        match (self.lie, answer) {
            (Lie::BusyIsGranted, Acquire::Busy(_) | Acquire::Queued { .. })
            | (Lie::FenceMovesOnRepeat, Acquire::Granted { .. }) => Ok(Acquire::Granted { tokens: fence.into() }),
            (Lie::OneInAHundredIsGranted, Acquire::Queued { .. }) if count.is_multiple_of(100) => {
                Ok(Acquire::Granted { tokens: fence.into() })
            }
            (Lie::BusyIsAnError, Acquire::Busy(_)) => Err(Unknown::new("liar", Fault::Other, "busy")),
            (Lie::TryStandsInLine, Acquire::Queued { occupied, .. }) if claim.intent == Intent::Try => {
                Ok(Acquire::Busy(occupied))
            }
            (Lie::FenceStandsStill, Acquire::Granted { .. }) => {
                Ok(Acquire::Granted { tokens: FencingToken::new(1).unwrap().into() })
            }
            (_, answer) => Ok(answer),
        }
    }

    async fn overtakes(&self, claim: &Claim) -> bool {
        if self.lie != Lie::TryOvertakes || claim.intent != Intent::Try {
            return false;
        }
        // Whoever was handed the key and has not claimed it yet still has the short lease of a hand-off.
        let Ok(Some(seen)) = self.truth.inspect(&claim.key).await else { return false };
        let handed =
            seen.first().expiry.span().is_some_and(|left| left.as_secs() <= 3) && claim.ttl.get().as_secs() > 3;
        handed && matches!(self.truth.evict(&seen).await, Ok(Eviction::Evicted))
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        let mut renewal = Renewal::new(self.key(&renewal.key), renewal.holder, self.ttl(renewal.ttl));
        if self.lie == Lie::RenewalDoesNothing {
            return Ok(match self.truth.inspect(&renewal.key).await? {
                None => Renew::Absent,
                Some(seen) if seen.has(renewal.holder) => Renew::Renewed { waiters: seen.waiters },
                Some(seen) => Renew::TakenBy(Occupied::from(seen).holders),
            });
        }
        let answer = self.truth.renew(std::slice::from_ref(&renewal)).await.remove(0)?;
        match (self.lie, &answer) {
            (Lie::RenewalTakesAgain, Renew::Absent) => {
                let holder = Holder { id: renewal.holder, owner: Owner::from_text("liar:1") };
                self.truth.acquire(&Claim::new(renewal.key, holder, renewal.ttl, Intent::Try)).await?;
            }
            (Lie::RenewalOfAnybodys, Renew::TakenBy(others)) => {
                renewal.holder = others.first().holder_id().unwrap();
                self.truth.renew(&[renewal]).await.remove(0)?;
            }
            _ => {}
        }
        Ok(answer)
    }
}

impl Backend for Liar {
    fn capabilities(&self) -> Capabilities {
        self.truth.capabilities()
    }

    fn name(&self) -> String {
        format!("liar: {:?}", self.lie)
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        if self.lie != Lie::TellsNobody {
            self.truth.listen(listener);
        }
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Acquire> {
        if self.lie == Lie::ClaimsEagerly {
            let _ = self.truth.acquire(claim).now_or_never();
        }
        Box::pin(async move {
            if self.lie != Lie::IgnoresModes {
                claim.supported_by(self)?;
            }
            let bent = self.bent(claim);
            if self.lie == Lie::CarriesOutLater {
                let truth = Arc::clone(&self.truth);
                let later = async move {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    truth.acquire(&bent).await
                };
                return tokio::spawn(later).await.unwrap();
            }
            self.overtakes(&bent).await;
            self.retold(claim, self.truth.acquire(&bent).await?)
        })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        self.truth.watch(key)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for renewal in renewals {
                answers.push(self.renew_one(renewal).await);
            }
            if self.lie == Lie::RenewalsBackwards {
                answers.reverse();
            }
            answers
        })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async move {
            let key = &self.key(key);
            if self.lie == Lie::KeepsPlaces {
                let seen = self.truth.inspect(key).await?;
                if let Some(seen) = seen.filter(|seen| !seen.has(*holder)) {
                    return Ok(Release::TakenBy(Occupied::from(seen).holders));
                }
            }
            if self.lie == Lie::ReleaseDoesNothing {
                return Ok(Release::Released);
            }
            let answer = self.truth.release(key, holder).await?;
            match (self.lie, answer) {
                (Lie::ReleaseFreesAnybodys, Release::TakenBy(others)) => {
                    self.truth.release(key, &others.first().holder_id().unwrap()).await
                }
                (Lie::ReleaseSaysReleased, _) => Ok(Release::Released),
                (_, answer) => Ok(answer),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move {
            if self.lie == Lie::LookTakes {
                let looker = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::from_text("liar:1") };
                self.truth.acquire(&Claim::new(key.clone(), looker, Ttl::default(), Intent::Try)).await?;
            }
            self.truth.inspect(&self.key(key)).await
        })
    }

    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { if self.lie == Lie::ListsNothing { Ok(Vec::new()) } else { self.truth.list().await } })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async move {
            match self.truth.evict(seen).await? {
                Eviction::Changed(Some(now)) if self.lie == Lie::EvictsWhateverIsThere => self.truth.evict(&now).await,
                answer => Ok(answer),
            }
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Vec<Finding>> {
        self.truth.diagnose()
    }
}
