use super::operation::{Decision, Operation, View, foreign};
use super::{Hold, Record};
use crate::{
    Acquire, Claim, ClearCompletion, Completion, Eviction, Fault, FencingToken, Foreign, HolderId, Holders, Holding,
    Intent, Invalid, Key, Occupant, Release, Renew, Renewal, TokenBlock, Ttl, Unknown, WriteCompletion, next_block,
};

/// A claim. Without a queue, [`Intent::Enqueue`] is the same as [`Intent::Try`].
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
            None if self.0.intent == Intent::Poll => view.settle(self.0.holder.id, Acquire::Gone),
            _ if self.0.intent == Intent::Poll => Decision::Done(Ok(Acquire::Gone)),
            Some(occupied) => Decision::Done(Ok(Acquire::Busy(occupied))),
            None => {
                let time = view.time.unwrap_or(0);
                self.grant(view, next_block(view.record.token, time, self.0.block), self.0.ttl, time)
            }
        }
    }

    fn on_foreign(&self, key: &Key, _: &str, what: &Foreign) -> Result<Acquire, Unknown> {
        Ok(match self.0.intent {
            Intent::Poll => Acquire::Gone,
            Intent::Try | Intent::Enqueue => Acquire::Busy(foreign(key, what).into()),
        })
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

/// The state of a key.
#[derive(Debug, Clone, Copy, Hash)]
pub struct InspectKey;

/// What a record shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inspected {
    /// The hold.
    pub holding: Option<Holding>,
    /// The completion.
    pub done: Option<Completion>,
    /// The time of the store, in microseconds since 1970; `None` if it tells none.
    pub now_micros: Option<u64>,
}

impl Operation for InspectKey {
    type Output = Inspected;

    fn decide(&mut self, view: &View<'_>) -> Decision<Inspected> {
        let (holding, done) = (view.holding(), view.record.done.clone());
        Decision::Done(Ok(Inspected { holding, done, now_micros: view.time }))
    }

    fn on_foreign(&self, key: &Key, _: &str, what: &Foreign) -> Result<Inspected, Unknown> {
        Ok(Inspected { holding: Some(foreign(key, what)), done: None, now_micros: None })
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
        let Some(now) = view.time else { return Decision::Done(Err(no_time(view.name))) };
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

    fn on_foreign(&self, _: &Key, backend: &str, what: &Foreign) -> Result<ClearCompletion, Unknown> {
        Err(Unknown::new(backend, Fault::Unsupported, what.to_string()))
    }
}

/// Work once per window needs a clock that all clients share.
pub(super) fn no_time(backend: &str) -> Unknown {
    Unknown::new(backend, Fault::Unsupported, "the store tells no time, which work once per window needs")
}

/// What another program has stored never ends by itself.
fn holders(what: &Foreign) -> Holders {
    Holders::one(Occupant::Foreign(what.clone()))
}
