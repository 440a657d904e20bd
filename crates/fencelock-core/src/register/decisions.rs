//! What each request does to a record.

use super::view::{Current, Decision, View};
use super::{Hold, Record};
use crate::{
    Acquire, Claim, ClearCompletion, Completion, CompletionRead, Eviction, Fault, FencingToken, HolderId, Holding,
    Invalid, Occupant, Release, Renew, Renewal, TokenBlock, Ttl, Unknown, WriteCompletion, next_block,
};

/// An exclusive claim.
pub fn claim(claim: &Claim, view: &View<'_>) -> Decision<Acquire> {
    let holder = claim.holder.id;
    if let Some(hold) = view.hold_of(holder) {
        // An earlier call has claimed it, so its lease may be almost over.
        let token = FencingToken::new(view.record.token).map(TokenBlock::from);
        return grant(claim, view, token, hold.ttl.max(claim.ttl), hold.since_micros);
    }
    match view.occupied() {
        Some(occupied) => Decision::Done(Ok(Acquire::Busy(occupied))),
        None if claim.is_poll() => view.void_claims(holder, Acquire::Gone),
        None => {
            let time = view.time.unwrap_or(0);
            grant(claim, view, next_block(view.record.token, time, claim.block), claim.ttl, time)
        }
    }
}

fn grant(
    claim: &Claim,
    view: &View<'_>,
    tokens: Result<TokenBlock, Invalid>,
    ttl: Ttl,
    since_micros: u64,
) -> Decision<Acquire> {
    let tokens = match tokens {
        Ok(tokens) => tokens,
        Err(error) => return Decision::Done(Err(Unknown::new(view.name, Fault::Full, error.to_string()))),
    };
    let hold = Some(Hold { holder: claim.holder.clone(), ttl, since_micros });
    let record = Record { token: tokens.last().get(), hold, ..view.record.clone() };
    Decision::Write { record, answer: Acquire::Granted { tokens } }
}

/// A renewal.
pub fn renew(renewal: &Renewal, view: &View<'_>) -> Decision<Renew> {
    let Some(hold) = view.hold_of(renewal.holder) else {
        return match view.occupied() {
            Some(occupied) => Decision::Done(Ok(Renew::TakenBy(occupied.holders))),
            None => view.void_claims(renewal.holder, Renew::Absent),
        };
    };
    let longest = hold.ttl.get().min(renewal.assumed);
    let ttl = Ttl::new(longest).map_or(renewal.ttl, |longest| longest.max(renewal.ttl));
    view.hold(Some(Hold { ttl, ..hold.clone() }), Renew::Renewed { waiters: 0 })
}

/// A release.
pub fn release(holder: HolderId, view: &View<'_>) -> Decision<Release> {
    match view.occupied() {
        _ if view.hold_of(holder).is_some() => view.hold(None, Release::Released),
        Some(occupied) => Decision::Done(Ok(Release::TakenBy(occupied.holders))),
        None => view.void_claims(holder, Release::Absent),
    }
}

/// The holding of a key; `None` if it is free.
pub fn inspect(view: &View<'_>) -> Decision<Option<Holding>> {
    Decision::Done(Ok(view.holding()))
}

/// The end of a hold of another client that was seen, by an operator.
pub fn evict(seen: &Holding, view: &View<'_>) -> Decision<Eviction> {
    let now = view.holding();
    let (was, is) = (seen.first(), now.as_ref().map(Holding::first));
    if let Current::Foreign(what) = view.current
        && was.occupant == Occupant::Foreign(what.clone())
    {
        let why = format!("it is no record of a lock ({what}): delete it with a tool of the store");
        return Decision::Done(Ok(Eviction::Refused(why)));
    }
    let is_same =
        is.is_some_and(|is| is.holder_id().is_some() && is.holder_id() == was.holder_id() && is.fence == was.fence);
    if is_same { view.hold(None, Eviction::Evicted) } else { Decision::Done(Ok(Eviction::Changed(now.map(Box::new)))) }
}

/// The completion of a key, and the time of the store.
pub fn read_done(view: &View<'_>) -> Decision<CompletionRead> {
    let now = no_foreign(view).and_then(|()| now(view));
    Decision::Done(now.map(|now| CompletionRead::new(view.record.done.clone(), now)))
}

/// Writes a completion, if its holder holds the key.
pub fn write_done(holder: HolderId, completion: &Completion, view: &View<'_>) -> Decision<WriteCompletion> {
    if view.hold_of(holder).is_none() {
        return Decision::Done(Ok(WriteCompletion::NotHeld));
    }
    let now = match now(view) {
        Ok(now) => now,
        Err(unknown) => return Decision::Done(Err(unknown)),
    };
    let done = match view.record.done.clone() {
        Some(before) => before.merge(completion.clone(), now),
        None => completion.clone(),
    };
    let record = Record { done: Some(done), ..view.record.clone() };
    Decision::Write { record, answer: WriteCompletion::Written }
}

/// Removes a completion that was read, unless it is of a later run.
pub fn clear_done(seen: &Completion, view: &View<'_>) -> Decision<ClearCompletion> {
    if let Err(unknown) = no_foreign(view) {
        return Decision::Done(Err(unknown));
    }
    match &view.record.done {
        None => Decision::Done(Ok(ClearCompletion::Absent)),
        Some(done) if done.token > seen.token => Decision::Done(Ok(ClearCompletion::Changed)),
        Some(_) => {
            let record = Record { done: None, ..view.record.clone() };
            Decision::Write { record, answer: ClearCompletion::Cleared }
        }
    }
}

/// The time of the store: windows need a clock that all clients share.
fn now(view: &View<'_>) -> Result<u64, Unknown> {
    let no_time =
        || Unknown::new(view.name, Fault::Unsupported, "work once per window needs a store that tells its time");
    view.time.ok_or_else(no_time)
}

fn no_foreign(view: &View<'_>) -> Result<(), Unknown> {
    let Current::Foreign(what) = view.current else { return Ok(()) };
    let why = format!("the record of {} is that of another program: {what}", view.key);
    Err(Unknown::new(view.name, Fault::Unsupported, why))
}
