use super::operation::{Decision, Operation, View, foreign};
use super::{Hold, Record};
use crate::{
    Acquire, Claim, ClearCompletion, Completion, CompletionRead, Eviction, Fault, FencingToken, Foreign, HolderId,
    Holders, Holding, Invalid, Key, Occupant, Release, Renew, Renewal, TokenBlock, Ttl, Unknown, WriteCompletion,
    next_block,
};

/// A claim.
#[derive(Debug, Clone, Hash)]
pub struct ClaimKey(
    /// An exclusive claim.
    pub Claim,
);

impl ClaimKey {
    fn grant(&self, view: &View<'_>, tokens: Result<TokenBlock, Invalid>, ttl: Ttl, since: u64) -> Decision<Acquire> {
        let tokens = match tokens {
            Ok(tokens) => tokens,
            Err(error) => return Decision::Done(Err(Unknown::new(view.name, Fault::Full, error.to_string()))),
        };
        let hold = Hold { holder: self.0.holder.clone(), ttl, since_micros: since };
        let record = Record { token: tokens.last().get(), hold: Some(hold), ..view.record.clone() };
        Decision::Write { record, answer: Acquire::Granted { tokens } }
    }
}

impl Operation for ClaimKey {
    type Output = Acquire;

    fn holder(&self) -> Option<HolderId> {
        Some(self.0.holder.id)
    }

    fn decide(&mut self, view: &View<'_>) -> Decision<Acquire> {
        if let Some(hold) = view.hold_of(self.0.holder.id) {
            // An earlier call has claimed it, so its lease may be almost over.
            let token = FencingToken::new(view.record.token).map(TokenBlock::from);
            return self.grant(view, token, hold.ttl.max(self.0.ttl), hold.since_micros);
        }
        match view.occupied() {
            Some(occupied) => Decision::Done(Ok(Acquire::Busy(occupied))),
            None if self.0.is_poll() => view.settle(self.0.holder.id, Acquire::Gone),
            None => {
                let time = view.time.unwrap_or(0);
                self.grant(view, next_block(view.record.token, time, self.0.queueing.block), self.0.ttl, time)
            }
        }
    }

    fn on_foreign(&self, key: &Key, _: &str, what: &Foreign) -> Result<Acquire, Unknown> {
        Ok(Acquire::Busy(foreign(key, what).into()))
    }
}

/// A renewal.
#[derive(Debug, Clone, Hash)]
pub struct RenewHold(
    /// The renewal.
    pub Renewal,
);

impl Operation for RenewHold {
    type Output = Renew;

    fn decide(&mut self, view: &View<'_>) -> Decision<Renew> {
        let Some(hold) = view.hold_of(self.0.holder) else {
            return match view.occupied() {
                Some(occupied) => Decision::Done(Ok(Renew::TakenBy(occupied.holders))),
                None => view.settle(self.0.holder, Renew::Absent),
            };
        };
        let longest = hold.ttl.get().min(self.0.assumed);
        let ttl = Ttl::new(longest).map_or(self.0.ttl, |longest| longest.max(self.0.ttl));
        view.hold(Some(Hold { ttl, ..hold.clone() }), Renew::Renewed { waiters: 0 })
    }

    fn on_foreign(&self, _: &Key, _: &str, what: &Foreign) -> Result<Renew, Unknown> {
        Ok(Renew::TakenBy(holders(what)))
    }
}

/// A release.
#[derive(Debug, Clone, Hash)]
pub struct ReleaseKey(
    /// The holder.
    pub HolderId,
);

impl Operation for ReleaseKey {
    type Output = Release;

    fn holder(&self) -> Option<HolderId> {
        Some(self.0)
    }

    fn decide(&mut self, view: &View<'_>) -> Decision<Release> {
        match view.occupied() {
            _ if view.hold_of(self.0).is_some() => view.hold(None, Release::Released),
            Some(occupied) => Decision::Done(Ok(Release::TakenBy(occupied.holders))),
            None => view.settle(self.0, Release::Absent),
        }
    }

    fn on_foreign(&self, _: &Key, _: &str, what: &Foreign) -> Result<Release, Unknown> {
        Ok(Release::TakenBy(holders(what)))
    }
}

/// The holding of a key; `None` if it is free.
#[derive(Debug, Clone, Copy, Hash)]
pub struct InspectKey;

impl Operation for InspectKey {
    type Output = Option<Holding>;

    fn decide(&mut self, view: &View<'_>) -> Decision<Option<Holding>> {
        Decision::Done(Ok(view.holding()))
    }

    fn on_foreign(&self, key: &Key, _: &str, what: &Foreign) -> Result<Option<Holding>, Unknown> {
        Ok(Some(foreign(key, what)))
    }
}

/// The end of a hold of another client, by an operator.
#[derive(Debug, Clone, Hash)]
pub struct EvictHold(
    /// What was seen.
    pub Holding,
);

impl Operation for EvictHold {
    type Output = Eviction;

    fn decide(&mut self, view: &View<'_>) -> Decision<Eviction> {
        let now = view.holding();
        let is_same = now.as_ref().is_some_and(|now| {
            let (now, seen) = (now.first(), self.0.first());
            (now.holder_id(), now.fence) == (seen.holder_id(), seen.fence)
        });
        if is_same {
            view.hold(None, Eviction::Evicted)
        } else {
            Decision::Done(Ok(Eviction::Changed(now.map(Box::new))))
        }
    }

    fn on_foreign(&self, key: &Key, _: &str, what: &Foreign) -> Result<Eviction, Unknown> {
        Ok(if self.0.first().occupant == Occupant::Foreign(what.clone()) {
            Eviction::Refused(format!("it is no record of a lock ({what}): delete it with a tool of the store"))
        } else {
            Eviction::Changed(Some(Box::new(foreign(key, what))))
        })
    }
}

/// The completion of a key, and the time of the store.
#[derive(Debug, Clone, Copy, Hash)]
pub struct ReadDone;

impl Operation for ReadDone {
    type Output = CompletionRead;

    fn decide(&mut self, view: &View<'_>) -> Decision<CompletionRead> {
        Decision::Done(now(view).map(|now| CompletionRead::new(view.record.done.clone(), now)))
    }

    fn on_foreign(&self, key: &Key, backend: &str, what: &Foreign) -> Result<CompletionRead, Unknown> {
        Err(no_record(key, backend, what))
    }
}

/// Writes a completion, if its holder holds the key.
#[derive(Debug, Clone, Hash)]
pub struct WriteDone(
    /// The holder.
    pub HolderId,
    /// The completion.
    pub Completion,
);

impl Operation for WriteDone {
    type Output = WriteCompletion;

    fn decide(&mut self, view: &View<'_>) -> Decision<WriteCompletion> {
        if view.hold_of(self.0).is_none() {
            return Decision::Done(Ok(WriteCompletion::NotHeld));
        }
        let now = match now(view) {
            Ok(now) => now,
            Err(unknown) => return Decision::Done(Err(unknown)),
        };
        let done = match view.record.done.clone() {
            Some(before) => before.merge(self.1.clone(), now),
            None => self.1.clone(),
        };
        let record = Record { done: Some(done), ..view.record.clone() };
        Decision::Write { record, answer: WriteCompletion::Written }
    }

    fn on_foreign(&self, _: &Key, _: &str, _: &Foreign) -> Result<WriteCompletion, Unknown> {
        Ok(WriteCompletion::NotHeld)
    }
}

/// Removes a completion, unless it is of a later run.
#[derive(Debug, Clone, Hash)]
pub struct ClearDone(
    /// What was read.
    pub Completion,
);

impl Operation for ClearDone {
    type Output = ClearCompletion;

    fn decide(&mut self, view: &View<'_>) -> Decision<ClearCompletion> {
        match &view.record.done {
            None => Decision::Done(Ok(ClearCompletion::Absent)),
            Some(done) if done.token > self.0.token => Decision::Done(Ok(ClearCompletion::Changed)),
            Some(_) => {
                let record = Record { done: None, ..view.record.clone() };
                Decision::Write { record, answer: ClearCompletion::Cleared }
            }
        }
    }

    fn on_foreign(&self, key: &Key, backend: &str, what: &Foreign) -> Result<ClearCompletion, Unknown> {
        Err(no_record(key, backend, what))
    }
}

/// The time of the store: windows need a clock that all clients share.
fn now(view: &View<'_>) -> Result<u64, Unknown> {
    let no_time =
        || Unknown::new(view.name, Fault::Unsupported, "work once per window needs a store that tells its time");
    view.time.ok_or_else(no_time)
}

fn no_record(key: &Key, backend: &str, what: &Foreign) -> Unknown {
    Unknown::new(backend, Fault::Unsupported, format!("the record of {key} is that of another program: {what}"))
}

/// What another program has stored never ends by itself.
fn holders(what: &Foreign) -> Holders {
    Holders::one(Occupant::Foreign(what.clone()))
}
