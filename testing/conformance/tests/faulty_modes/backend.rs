use fencelock::backends::Memory;
use fencelock_core::{
    Acquire, Admin, Answer, Backend, BackendReport, BoxFuture, Capabilities, Claim, ClaimReply, Completions, Downgrade,
    Eviction, FencingToken, HolderId, HolderInfo, Holding, Intent, Key, Listener, Mode, ModeChanges, Release, Renew,
    Renewal, Resize, Resized, Ttl, Unknown,
};
use std::sync::Arc;

/// The defect of a [`FaultyModes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    SharedIsExclusive,
    PermitsAreShared,
    EveryWeightIsOne,
    IgnoresLimits,
    ConflictIsBusy,
    ConflictIsGranted,
    ConflictStaysInTheQueue,
    FittingClaimsOvertake,
    ReleaseEndsTheRow,
    RenewalOfTheRow,
    EvictsTheRow,
    ShowsOneHolder,
    ShowsNoModes,
    DowngradeReleases,
    DowngradeDoesNothing,
    DowngradeKeepsTheToken,
    DowngradeDrawsAgain,
    DowngradeOfAnybodys,
    DowngradeTakes,
    ResizeDoesNothing,
    ResizeEndsTheRow,
    ResizeOfAnyMode,
}

/// A backend with all modes that is right but for one thing.
#[derive(Debug)]
pub(crate) struct FaultyModes {
    memory: Memory,
    defect: Defect,
}

impl FaultyModes {
    pub(crate) const fn new(memory: Memory, defect: Defect) -> Self {
        Self { memory, defect }
    }

    fn bent(&self, mode: Mode) -> Mode {
        match (self.defect, mode) {
            (Defect::SharedIsExclusive, Mode::Shared) => Mode::Exclusive,
            (Defect::PermitsAreShared, Mode::Permits { .. }) => Mode::Shared,
            (Defect::EveryWeightIsOne, Mode::Permits { limit, .. }) => Mode::permits(1, limit).unwrap(),
            (Defect::IgnoresLimits, Mode::Permits { weight, .. }) => Mode::permits(weight, Mode::MOST_PERMITS).unwrap(),
            (_, mode) => mode,
        }
    }

    /// The answer that is given instead of a conflict.
    async fn instead_of_conflict(&self, claim: &Claim, present: Mode) -> Result<Acquire, Unknown> {
        match self.defect {
            Defect::ConflictIsBusy => {
                let seen = self.memory.inspect(&claim.key).await?;
                Ok(seen.map_or(Acquire::Gone, |seen| Acquire::Busy(seen.into())))
            }
            Defect::ConflictIsGranted => Ok(Acquire::Granted { tokens: FencingToken::new(1).unwrap().into() }),
            Defect::ConflictStaysInTheQueue => {
                self.memory.acquire(&claim.with_mode(Mode::Exclusive)).await.answer?;
                Ok(Acquire::Conflict(present))
            }
            _ => Ok(Acquire::Conflict(present)),
        }
    }

    async fn bent_claim(&self, claim: &Claim) -> Result<Acquire, Unknown> {
        if self.overtakes(claim).await? {
            return Ok(Acquire::Granted { tokens: FencingToken::new(1).unwrap().into() });
        }
        match self.memory.acquire(claim).await.answer {
            Ok(Acquire::Conflict(present)) => self.instead_of_conflict(claim, present).await,
            answer => answer,
        }
    }

    /// Grants a try that would fit, although others were first.
    async fn overtakes(&self, claim: &Claim) -> Result<bool, Unknown> {
        if self.defect != Defect::FittingClaimsOvertake || claim.queueing.intent != Intent::Try {
            return Ok(false);
        }
        let Some(seen) = self.memory.inspect(&claim.key).await? else { return Ok(false) };
        Ok(seen.first().mode.same_class(claim.mode) && seen.waiters > 0)
    }

    async fn renew_row(&self, renewal: &Renewal) -> Result<Renew, Unknown> {
        let mut renewals = vec![renewal.clone()];
        if self.defect == Defect::RenewalOfTheRow {
            let seen = self.memory.inspect(&renewal.key).await?;
            let ids = seen.iter().flat_map(|seen| seen.holders.iter().filter_map(HolderInfo::holder_id));
            renewals.extend(ids.map(|id| Renewal::new(renewal.key.clone(), id, renewal.ttl)));
        }
        self.memory.renew(&renewals).await.remove(0)
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
    async fn released_and_claimed(&self, renewal: &Renewal) -> Result<Downgrade, Unknown> {
        let seen = self.memory.inspect(&renewal.key).await?;
        let hold =
            seen.and_then(|seen| seen.holders.iter().find(|hold| hold.holder_id() == Some(renewal.holder)).cloned());
        let Some(fencelock_core::Occupant::Holder(holder)) = hold.map(|hold| hold.occupant) else {
            return Ok(Downgrade::Absent);
        };
        self.memory.release(&renewal.key, &renewal.holder).await?;
        let claim = Claim::new(renewal.key.clone(), holder, renewal.ttl, Intent::Try).with_mode(Mode::Shared);
        Ok(match self.memory.acquire(&claim).await.answer? {
            Acquire::Granted { tokens } => Downgrade::Downgraded { token: tokens.last() },
            _ => Downgrade::Absent,
        })
    }

    /// What is answered instead of a downgrade that succeeded.
    async fn instead_of_downgrade(
        &self,
        before: Option<Holding>,
        renewal: &Renewal,
        token: FencingToken,
    ) -> FencingToken {
        let was = before.and_then(|seen| seen.first().fence);
        match self.defect {
            Defect::DowngradeKeepsTheToken => was.unwrap_or(token),
            Defect::DowngradeDrawsAgain if was == Some(token) => {
                let _ = self.memory.renew(std::slice::from_ref(renewal)).await;
                FencingToken::new(token.get() + 1).unwrap()
            }
            _ => token,
        }
    }
}

impl Backend for FaultyModes {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn name(&self) -> String {
        format!("faulty: {:?}", self.defect)
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        self.memory.listen(listener);
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, ClaimReply> {
        Box::pin(async move { self.bent_claim(&claim.with_mode(self.bent(claim.mode))).await.into() })
    }

    fn watch<'a>(&'a self, key: &'a Key) -> Answer<'a, ()> {
        self.memory.watch(key)
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renew, Unknown>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for renewal in renewals {
                answers.push(self.renew_row(renewal).await);
            }
            answers
        })
    }

    fn release<'a>(&'a self, key: &'a Key, holder: &'a HolderId) -> Answer<'a, Release> {
        Box::pin(async move {
            let seen = self.memory.inspect(key).await?;
            if let Some(seen) = seen.filter(|seen| self.defect == Defect::ReleaseEndsTheRow && seen.has(*holder)) {
                self.memory.evict(&seen).await?;
                return Ok(Release::Released);
            }
            self.memory.release(key, holder).await
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Holding>> {
        Box::pin(async move { Ok(self.memory.inspect(key).await?.map(|seen| self.shown(seen))) })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn completions(&self) -> Option<&dyn Completions> {
        self.memory.completions()
    }

    fn mode_changes(&self) -> Option<&dyn ModeChanges> {
        Some(self)
    }
}

impl Admin for FaultyModes {
    fn list(&self) -> Answer<'_, Vec<Holding>> {
        Box::pin(async { Ok(self.memory.list().await?.into_iter().map(|seen| self.shown(seen)).collect()) })
    }

    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        Box::pin(async move {
            if self.defect == Defect::EvictsTheRow
                && let Some(row) = self.memory.inspect(&seen.key).await?
            {
                return self.memory.evict(&row).await;
            }
            self.memory.evict(seen).await
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        self.memory.diagnose()
    }
}

impl ModeChanges for FaultyModes {
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        Box::pin(async move {
            let before = self.memory.inspect(&renewal.key).await?;
            match (self.defect, &before) {
                (Defect::DowngradeReleases, _) => return self.released_and_claimed(renewal).await,
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
                    let owner = fencelock_core::Owner::from_text("backend:1");
                    let holder = fencelock_core::Holder { id: renewal.holder, owner };
                    let claim = Claim::new(renewal.key.clone(), holder, Ttl::default(), Intent::Try);
                    self.memory.acquire(&claim).await.answer?;
                }
                _ => {}
            }
            Ok(match self.memory.downgrade(renewal).await? {
                Downgrade::Downgraded { token } => {
                    Downgrade::Downgraded { token: self.instead_of_downgrade(before, renewal, token).await }
                }
                other => other,
            })
        })
    }

    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        Box::pin(async move {
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
        })
    }
}
