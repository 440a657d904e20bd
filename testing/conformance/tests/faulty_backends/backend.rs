use fencelock::backends::Memory;
use fencelock_core::{
    Acquire, Backend, BoxFuture, Capabilities, Claim, ClearCompletion, Completion, CompletionRead, Downgrade, Eviction,
    Fault, FencingToken, Holder, HolderId, HolderInfo, Holding, Intent, Key, Listener, Mode, Occupant, Occupied, Owner,
    Release, Renew, Renewal, Reply, Request, Resize, Resized, Ttl, Unknown, WriteCompletion,
};
use futures_util::FutureExt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The defect of a [`FaultyBackend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Defect {
    None,
    BusyIsGranted, OneInAHundredIsGranted, BusyIsAnError, TryEnqueues, TryOvertakes, PollTakes, CarriesOutLater, ClaimsEagerly,
    ReleaseFreesAnybodys, ReleaseSaysReleased, ReleaseDoesNothing, KeepsWaiters,
    RenewalTakesAgain, RenewalOfAnybodys, RenewalDoesNothing, RenewalsBackwards,
    FenceStandsStill, FenceMovesOnRepeat,
    LocksNeverExpire, HalfTheTtl, TwiceTheTtl,
    ForgetsLabels, IgnoresCase, CutsNames, OneLockForAll,
    EvictsWhateverIsThere, ListsNothing, InspectTakes, NeverNotifies,
    CompletesForAnybody, CompletionGoesBack, CompletionIsForgotten, CompletionOfAllKeys, ClearsAnyCompletion,
    SharedIsExclusive, PermitsAreShared, EveryWeightIsOne, IgnoresLimits,
    ConflictIsBusy, ConflictIsGranted, ConflictStaysInTheQueue, FittingClaimsOvertake,
    ReleaseEndsTheRow, RenewalOfTheRow, EvictsTheRow, ShowsOneHolder, ShowsNoModes,
    DowngradeReleases, DowngradeDoesNothing, DowngradeKeepsTheToken, DowngradeDrawsAgain, DowngradeOfAnybodys, DowngradeTakes,
    ResizeDoesNothing, ResizeEndsTheRow, ResizeOfAnyMode,
}

/// A backend that is right but for one thing.
#[derive(Debug)]
pub(crate) struct FaultyBackend {
    memory: Arc<Memory>,
    defect: Defect,
    answers: AtomicU64,
}

fn granted(token: u64) -> Acquire {
    Acquire::Granted { tokens: FencingToken::new(token).unwrap().into() }
}

/// The claim of a backend that claims for a client.
fn of_backend(key: &Key, id: HolderId, ttl: Ttl) -> Claim {
    Claim::new(key.clone(), Holder { id, owner: Owner::from_text("backend:1") }, ttl, Intent::Try)
}

impl FaultyBackend {
    pub(crate) fn new(memory: Memory, defect: Defect) -> Self {
        Self { memory: Arc::new(memory), defect, answers: AtomicU64::new(1) }
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

    fn mode(&self, mode: Mode) -> Mode {
        match (self.defect, mode) {
            (Defect::SharedIsExclusive, Mode::Shared) => Mode::Exclusive,
            (Defect::PermitsAreShared, Mode::Permits { .. }) => Mode::Shared,
            (Defect::EveryWeightIsOne, Mode::Permits { limit, .. }) => Mode::permits(1, limit).unwrap(),
            (Defect::IgnoresLimits, Mode::Permits { weight, .. }) => Mode::permits(weight, Mode::MOST_PERMITS).unwrap(),
            (_, mode) => mode,
        }
    }

    /// The claim that is sent instead of this one.
    fn bent(&self, claim: &Claim) -> Claim {
        let mut bent = claim.with_mode(self.mode(claim.mode));
        bent.key = self.key(&claim.key);
        bent.ttl = self.ttl(claim.ttl);
        bent.intent = match (self.defect, claim.intent) {
            (Defect::TryEnqueues, Intent::Try) | (Defect::PollTakes, Intent::Poll) => Intent::Enqueue,
            (_, intent) => intent,
        };
        if self.defect == Defect::ForgetsLabels {
            bent.holder.owner = Owner::from_text(claim.holder.owner.process());
        }
        bent
    }

    /// The answer that is given instead of this one.
    async fn replaced(&self, claim: &Claim, answer: Acquire) -> Result<Acquire, Unknown> {
        let count = self.answers.fetch_add(1, Ordering::SeqCst);
        Ok(match (self.defect, answer) {
            (Defect::BusyIsGranted, Acquire::Busy(_) | Acquire::Queued { .. })
            | (Defect::FenceMovesOnRepeat, Acquire::Granted { .. }) => granted(count),
            (Defect::OneInAHundredIsGranted, Acquire::Queued { .. }) if count.is_multiple_of(100) => granted(count),
            (Defect::BusyIsAnError, Acquire::Busy(_)) => return Err(Unknown::new("faulty", Fault::Other, "busy")),
            (Defect::TryEnqueues, Acquire::Queued { occupied, .. }) if claim.intent == Intent::Try => {
                Acquire::Busy(occupied)
            }
            (Defect::FenceStandsStill, Acquire::Granted { .. }) | (Defect::ConflictIsGranted, Acquire::Conflict(_)) => {
                granted(1)
            }
            (Defect::ConflictIsBusy, Acquire::Conflict(_)) => {
                self.memory.inspect(&claim.key).await?.map_or(Acquire::Gone, |seen| Acquire::Busy(seen.into()))
            }
            (Defect::ConflictStaysInTheQueue, Acquire::Conflict(present)) => {
                self.memory.acquire(&claim.with_mode(Mode::Exclusive)).await.answer?;
                Acquire::Conflict(present)
            }
            (_, answer) => answer,
        })
    }

    /// Whether a try is granted because it fits, although others were first.
    async fn overtakes(&self, claim: &Claim) -> Result<bool, Unknown> {
        let overtakes = [Defect::TryOvertakes, Defect::FittingClaimsOvertake].contains(&self.defect);
        let tries = overtakes && claim.intent == Intent::Try;
        let Some(seen) = self.memory.inspect(&claim.key).await?.filter(|_| tries) else { return Ok(false) };
        if self.defect == Defect::FittingClaimsOvertake {
            return Ok(seen.first().mode.same_class(claim.mode) && seen.waiters > 0);
        }
        // A client that was handed the key and has not claimed it yet still has the short lease of a hand-off.
        let short = seen.first().expiry.span().is_some_and(|left| left.as_secs() <= 3);
        if short && claim.ttl.get().as_secs() > 3 {
            self.memory.evict(&seen).await?;
        }
        Ok(false)
    }

    async fn claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        let bent = self.bent(claim);
        if self.defect == Defect::CarriesOutLater {
            let memory = Arc::clone(&self.memory);
            let later = async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                memory.acquire(&bent).await.answer
            };
            return tokio::spawn(later).await.unwrap();
        }
        if self.overtakes(&bent).await? {
            return Ok(granted(1));
        }
        self.replaced(claim, self.memory.acquire(&bent).await.answer?).await
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        let mut renewal = Renewal::new(self.key(&renewal.key), renewal.holder, self.ttl(renewal.ttl));
        let seen = self.memory.inspect(&renewal.key).await?;
        let answer = match (self.defect, seen) {
            (Defect::RenewalDoesNothing, None) => return Ok(Renew::Absent),
            (Defect::RenewalDoesNothing, Some(seen)) if seen.has(renewal.holder) => {
                return Ok(Renew::Renewed { waiters: seen.waiters });
            }
            (Defect::RenewalDoesNothing, Some(seen)) => return Ok(Renew::TakenBy(Occupied::from(seen).holders)),
            (Defect::RenewalOfTheRow, Some(seen)) => {
                let ids = seen.holders.iter().filter_map(HolderInfo::holder_id);
                let row = ids.map(|id| Renewal::new(renewal.key.clone(), id, renewal.ttl));
                self.memory.renew(&[renewal.clone()].into_iter().chain(row).collect::<Vec<_>>()).await.remove(0)?
            }
            _ => self.memory.renew(slice::from_ref(&renewal)).await.remove(0)?,
        };
        match (self.defect, &answer) {
            (Defect::RenewalTakesAgain, Renew::Absent) => {
                self.memory.acquire(&of_backend(&renewal.key, renewal.holder, renewal.ttl)).await.answer?;
            }
            (Defect::RenewalOfAnybodys, Renew::TakenBy(others)) => {
                renewal.holder = others.first().holder_id().unwrap();
                self.memory.renew(&[renewal]).await.remove(0)?;
            }
            _ => {}
        }
        Ok(answer)
    }

    fn shown(&self, seen: Holding) -> Holding {
        let waiters = seen.waiters;
        match self.defect {
            Defect::ShowsOneHolder => Holding::new(seen.key.clone(), seen.first().clone()).with_waiters(waiters),
            Defect::ShowsNoModes => {
                let mut holds = seen.holders.iter().map(|hold| hold.clone().with_mode(Mode::Exclusive));
                let first = Holding::new(seen.key.clone(), holds.next().unwrap()).with_waiters(waiters);
                holds.fold(first, Holding::with_holder)
            }
            _ => seen,
        }
    }

    /// A hold that is released and claimed again instead of being downgraded.
    async fn released_and_claimed(&self, renewal: &Renewal, seen: Option<Holding>) -> Result<Downgrade, Unknown> {
        let of = |hold: &&HolderInfo| hold.holder_id() == Some(renewal.holder);
        let hold = seen.and_then(|seen| seen.holders.iter().find(of).cloned());
        let Some(Occupant::Holder(holder)) = hold.map(|hold| hold.occupant) else { return Ok(Downgrade::Absent) };
        self.memory.release(&renewal.key, &renewal.holder).await?;
        let claim = Claim::new(renewal.key.clone(), holder, renewal.ttl, Intent::Try).with_mode(Mode::Shared);
        Ok(match self.memory.acquire(&claim).await.answer? {
            Acquire::Granted { tokens } => Downgrade::Downgraded { token: tokens.last() },
            _ => Downgrade::Absent,
        })
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

    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Reply> {
        match request {
            Request::Claim(claim, None) => {
                if self.defect == Defect::ClaimsEagerly {
                    let _ = self.memory.acquire(claim).now_or_never();
                }
                Reply::of(|| self.claim(claim))
            }
            Request::Renew(renewals) => Reply::of(|| self.renew_each(renewals)),
            Request::Release(key, holder) => Reply::of(|| self.give_up(key, holder)),
            Request::Inspect(key) => Reply::of(|| self.look(key)),
            Request::List => Reply::of(|| self.list_all()),
            Request::Evict(seen) => Reply::of(|| self.end_holds(seen)),
            Request::ReadCompletion(key) => Reply::of(|| self.read_done(key)),
            Request::WriteCompletion(key, holder, done) => Reply::of(|| self.write_done(key, holder, done)),
            Request::ClearCompletion(key, seen) => Reply::of(|| self.clear_done(key, seen)),
            Request::Downgrade(renewal, None) => Reply::of(|| self.share(renewal)),
            Request::Resize(key, limit) => Reply::of(move || self.set_limit(key, limit)),
            _ => self.memory.call(request),
        }
    }
}

/// Requests.
impl FaultyBackend {
    async fn renew_each(&self, renewals: &[Renewal]) -> Vec<Result<Renew, Unknown>> {
        let mut answers = Vec::new();
        for renewal in renewals {
            answers.push(self.renew_one(renewal).await);
        }
        if self.defect == Defect::RenewalsBackwards {
            answers.reverse();
        }
        answers
    }

    async fn give_up(&self, key: &Key, holder: &HolderId) -> Result<Release, Unknown> {
        let key = &self.key(key);
        match (self.defect, self.memory.inspect(key).await?) {
            (Defect::KeepsWaiters, Some(seen)) if !seen.has(*holder) => {
                return Ok(Release::TakenBy(Occupied::from(seen).holders));
            }
            (Defect::ReleaseEndsTheRow, Some(seen)) if seen.has(*holder) => {
                self.memory.evict(&seen).await?;
                return Ok(Release::Released);
            }
            (Defect::ReleaseDoesNothing, _) => return Ok(Release::Released),
            _ => {}
        }
        match (self.defect, self.memory.release(key, holder).await?) {
            (Defect::ReleaseFreesAnybodys, Release::TakenBy(others)) => {
                self.memory.release(key, &others.first().holder_id().unwrap()).await
            }
            (Defect::ReleaseSaysReleased, _) => Ok(Release::Released),
            (_, answer) => Ok(answer),
        }
    }

    async fn look(&self, key: &Key) -> Result<Option<Holding>, Unknown> {
        if self.defect == Defect::InspectTakes {
            let claim = of_backend(key, HolderId::from_bytes([7; 16]), Ttl::default());
            self.memory.acquire(&claim).await.answer?;
        }
        Ok(self.memory.inspect(&self.key(key)).await?.map(|seen| self.shown(seen)))
    }

    async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        let held = if self.defect == Defect::ListsNothing { Vec::new() } else { self.memory.list().await? };
        Ok(held.into_iter().map(|seen| self.shown(seen)).collect())
    }

    async fn end_holds(&self, seen: &Holding) -> Result<Eviction, Unknown> {
        if self.defect == Defect::EvictsTheRow
            && let Some(row) = self.memory.inspect(&seen.key).await?
        {
            return self.memory.evict(&row).await;
        }
        match self.memory.evict(seen).await? {
            Eviction::Changed(Some(now)) if self.defect == Defect::EvictsWhateverIsThere => {
                self.memory.evict(&now).await
            }
            answer => Ok(answer),
        }
    }

    async fn read_done(&self, key: &Key) -> Result<CompletionRead, Unknown> {
        let mut read = self.memory.read_completion(&self.completion_key(key)).await?;
        if self.defect == Defect::CompletionIsForgotten && self.memory.inspect(key).await?.is_none() {
            read.completion = None;
        }
        Ok(read)
    }

    async fn write_done(
        &self,
        key: &Key,
        holder: &HolderId,
        completion: &Completion,
    ) -> Result<WriteCompletion, Unknown> {
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
    }

    async fn clear_done(&self, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
        let stored = self.memory.read_completion(key).await?.completion;
        let seen = stored.filter(|_| self.defect == Defect::ClearsAnyCompletion).unwrap_or_else(|| seen.clone());
        self.memory.clear_completion(key, &seen).await
    }

    async fn share(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let before = self.memory.inspect(&renewal.key).await?;
        match (self.defect, &before) {
            (Defect::DowngradeReleases, _) => return self.released_and_claimed(renewal, before).await,
            (Defect::DowngradeDoesNothing, Some(seen)) if seen.has(renewal.holder) => {
                let token = FencingToken::new(seen.first().fence.unwrap().get() + 1).unwrap();
                return Ok(Downgrade::Downgraded { token });
            }
            (Defect::DowngradeOfAnybodys, Some(seen)) => {
                let holder = seen.first().holder_id().unwrap();
                let any = Renewal::new(renewal.key.clone(), holder, renewal.ttl);
                self.memory.downgrade(&any).await?;
            }
            (Defect::DowngradeTakes, None) => {
                self.memory.acquire(&of_backend(&renewal.key, renewal.holder, Ttl::default())).await.answer?;
            }
            _ => {}
        }
        let was = before.and_then(|seen| seen.first().fence);
        Ok(match (self.defect, self.memory.downgrade(renewal).await?) {
            (Defect::DowngradeKeepsTheToken, Downgrade::Downgraded { token }) => {
                Downgrade::Downgraded { token: was.unwrap_or(token) }
            }
            (Defect::DowngradeDrawsAgain, Downgrade::Downgraded { token }) if was == Some(token) => {
                Downgrade::Downgraded { token: FencingToken::new(token.get() + 1).unwrap() }
            }
            (_, answer) => answer,
        })
    }

    async fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        let before = self.memory.inspect(key).await?;
        let count = before.as_ref().map_or(0, |seen| seen.holders.count());
        let present = before.as_ref().map(|seen| seen.first().mode);
        match (self.defect, present.and_then(Mode::limit)) {
            (Defect::ResizeDoesNothing, Some(before)) => {
                Resize::check("faulty", limit)?;
                return Ok(Resize::Resized(Resized::new(before, limit, count.into(), count)));
            }
            (Defect::ResizeOfAnyMode, None) if present.is_some() => {
                return Ok(Resize::Resized(Resized::new(limit, limit, 1, count)));
            }
            _ => {}
        }
        let answer = self.memory.resize(key, limit).await?;
        if let (Defect::ResizeEndsTheRow, Some(seen)) = (self.defect, before) {
            self.memory.evict(&seen).await?;
        }
        Ok(answer)
    }
}
