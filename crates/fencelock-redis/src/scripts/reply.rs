//! Parses the replies of the scripts into the types of the contract.

use super::shared;
use super::wire::{WIRE, later_value};
use crate::scripts::side_key::side_key;
use fencelock_core::{
    Acquire, Downgrade, Expiry, Fault, FencingToken, Foreign, HandOffBounds, Holder, HolderInfo, Holders, Holding, Key,
    Mode, Occupant, Occupied, Raise, Release, Renew, Resize, Resized, TokenBlock, Unknown, WaiterInfo,
};
use redis::Value;
use std::num::NonZeroU32;
use std::time::Duration;

/// The kind of hold that an eviction expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicting {
    /// A lock of fencelock, with a fence.
    Ours,
    /// A lock of another program, with a TTL.
    Foreign,
    /// A lock of another program, without a TTL.
    Endless,
    /// All holds of a lock that several clients hold.
    Shared,
    /// Some of these holds.
    Holds,
}

/// A lock as stored on the server.
#[derive(Debug)]
pub(crate) struct StoredLock {
    pub(crate) value: Vec<u8>,
    kind: String,
    expiry: Expiry,
    fence: Option<FencingToken>,
    waiters: u32,
    /// See `inspect.lua`.
    named: String,
}

impl StoredLock {
    pub(crate) fn occupant(&self) -> Occupant {
        occupant(&self.value, &self.kind)
    }

    /// Whether several clients hold it.
    pub(crate) fn is_shared(&self) -> bool {
        self.kind == shared::KIND
    }

    /// Whether a later version wrote it, in an unknown format.
    pub(crate) fn is_later(&self) -> bool {
        later_value(&String::from_utf8_lossy(&self.value)).is_some()
    }

    /// Whether it has an expiry.
    pub(crate) const fn expires(&self) -> bool {
        self.expiry.span().is_some()
    }

    /// The kind that an eviction expects; `None` if it is not a lock, and must not be evicted.
    pub(crate) fn evicting(&self) -> Option<Evicting> {
        match (self.occupant(), self.expiry) {
            // A value in the format of fencelock without a fence belongs to another program.
            (Occupant::Holder(_), _) if self.fence.is_some() => Some(Evicting::Ours),
            _ if !self.kind.is_empty() || self.is_later() => None,
            (_, Expiry::In(_)) => Some(Evicting::Foreign),
            (_, Expiry::Never) => Some(Evicting::Endless),
        }
    }

    pub(crate) fn holding(&self, key: &Key, wall_micros: u64) -> Holding {
        self.held(key, wall_micros).with_waiters(self.waiters).with_queue(self.queue())
    }

    fn held(&self, key: &Key, wall_micros: u64) -> Holding {
        if let Some(holders) = shared_holders(&self.value, &self.kind, wall_micros) {
            let mut holding = Holding::new(key.clone(), holders.first().clone());
            holding.holders = holders;
            return holding;
        }
        let occupant = self.occupant();
        // The fence next to a foreign hold belongs to an older grant.
        let fence = self.fence.filter(|_| occupant.holder_id().is_some());
        let held_for = held_for(&occupant, fence, wall_micros);
        let hold = HolderInfo::new(occupant, self.expiry).with_fence(fence).with_held_for(held_for);
        Holding::new(key.clone(), hold)
    }

    /// Unknown if there are waiters, and the server names none.
    fn queue(&self) -> Option<Vec<WaiterInfo>> {
        let named: Vec<_> = self.named.split('\n').filter_map(waiter).collect();
        (self.waiters == 0 || !named.is_empty()).then_some(named)
    }
}

/// Of a ticket that is no time, such as one of another program.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 86400);

fn waiter(line: &str) -> Option<WaiterInfo> {
    let mut words = line.splitn(3, '\t');
    let waited = words.next()?.parse().ok().map(Duration::from_millis).filter(|waited| *waited < LONGEST_WAIT);
    let holder = Holder::from_wire(words.next()?)?;
    Some(WaiterInfo::new(holder, shared::mode_of_entry(words.next()?), waited))
}

/// The reply of a script, read word by word.
pub(crate) struct Reply<'a> {
    node: &'a str,
    words: std::vec::IntoIter<Value>,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(node: &'a str, value: Value) -> Result<Self, Unknown> {
        match value {
            Value::Array(words) => Ok(Self { node, words: words.into_iter() }),
            other => Err(not_understood(node, &other)),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Unknown> {
        match self.words.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            other => Err(not_understood(self.node, &other.unwrap_or(Value::Nil))),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Unknown> {
        // Avoids a copy if the text is UTF-8. Only values of other programs may not be.
        Ok(String::from_utf8(self.bytes()?)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn number(&mut self) -> Result<i64, Unknown> {
        match self.words.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(not_understood(self.node, &other.unwrap_or(Value::Nil))),
        }
    }

    pub(crate) fn count(&mut self) -> Result<u32, Unknown> {
        Ok(u32::try_from(self.number()?).unwrap_or(0))
    }

    /// `"r" 0`, or `"s" <limit>`.
    fn class(&mut self) -> Result<Mode, Unknown> {
        let (mode, limit) = (self.text()?, self.count()?);
        match mode.as_str() {
            "r" => Ok(Mode::Shared),
            _ => Mode::permits(1, limit).map_err(|error| Unknown::new(self.node, Fault::Other, error.to_string())),
        }
    }

    /// Whether there are more dead waiters than one call of a script that freed a lock skips.
    fn has_more(&mut self) -> Result<bool, Unknown> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn millis(&mut self) -> Result<Duration, Unknown> {
        Ok(Duration::from_millis(u64::try_from(self.number()?).unwrap_or(0)))
    }

    /// `PTTL`: -1 means no expiry.
    fn expiry(&mut self) -> Result<Expiry, Unknown> {
        Ok(u64::try_from(self.number()?).map_or(Expiry::Never, |ms| Expiry::In(Duration::from_millis(ms))))
    }

    fn fence(&mut self) -> Result<FencingToken, Unknown> {
        let node = self.node;
        self.text()?.parse().map_err(|error| Unknown::new(node, Fault::Other, format!("{error}")))
    }

    /// The last token, and the size of the block.
    fn tokens(&mut self) -> Result<TokenBlock, Unknown> {
        let last = self.fence()?;
        Ok(TokenBlock::ending(last, NonZeroU32::new(self.count()?).unwrap_or(NonZeroU32::MIN)))
    }

    fn holders(&mut self) -> Result<Holders, Unknown> {
        let (value, kind) = (self.bytes()?, self.text()?);
        let shared = shared_holders(&value, &kind, 0).map(shared::occupants);
        Ok(shared.unwrap_or_else(|| occupant(&value, &kind).into()))
    }

    /// `last_fence` is the fence of the current hold, if it belongs to fencelock, and then the time of its grant.
    fn occupied(&mut self, last_fence: Option<FencingToken>, wall_micros: u64) -> Result<Occupied, Unknown> {
        let expiry = self.expiry()?;
        let (value, kind) = (self.bytes()?, self.text()?);
        if let Some(holders) = shared_holders(&value, &kind, wall_micros) {
            return Ok(shared::occupied(holders, expiry));
        }
        let by = occupant(&value, &kind);
        let held_for = held_for(&by, last_fence, wall_micros);
        Ok(Occupied::new(by, expiry).with_held_for(held_for))
    }
}

/// The fence of a fencelock hold is the time of its grant.
fn held_for(by: &Occupant, last_fence: Option<FencingToken>, wall_micros: u64) -> Option<Duration> {
    by.holder_id()?;
    Some(Duration::from_micros(wall_micros.saturating_sub(last_fence?.get())))
}

/// The holders, if several clients hold the lock.
fn shared_holders(value: &[u8], kind: &str, wall_micros: u64) -> Option<Holders<HolderInfo>> {
    (kind == shared::KIND).then(|| shared::holders(&String::from_utf8_lossy(value), wall_micros)).flatten()
}

fn occupant(value: &[u8], kind: &str) -> Occupant {
    if let Some(length) = kind.strip_prefix("string ") {
        // Longer than any lock, so the whole value is not shown.
        let shown: String = String::from_utf8_lossy(value).chars().take(8).collect();
        return Occupant::Foreign(Foreign::other(format!("a string of {length} bytes, {shown:?}...")));
    }
    if !kind.is_empty() {
        return Occupant::Foreign(Foreign::other(format!("a value of type {kind}")));
    }
    let value = String::from_utf8_lossy(value);
    match later_value(&value).map(Foreign::other).or_else(|| shared::unlisted(&value)) {
        Some(foreign) => Occupant::Foreign(foreign),
        None => Occupant::from_wire(&value),
    }
}

fn not_understood(node: &str, value: &Value) -> Unknown {
    Unknown::new(node, Fault::Other, format!("unexpected reply: {value:?}"))
}

/// The reply of `acquire.lua`.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// A complete answer.
    Answered(Acquire),
    /// The claim already holds the key, and a poll must confirm it.
    Yours,
    /// There are more dead waiters than one call skips: the call must be repeated.
    More,
    /// The first waiters, as many as one call examines, have unreadable entries.
    Unreadable,
}

/// The common case: a number is the last token, and the claim has received all tokens that it requested.
pub(crate) fn read_granted(node: &str, last: i64, wanted: NonZeroU32) -> Result<Acquire, Unknown> {
    let token = u64::try_from(last).ok().and_then(|last| FencingToken::new(last).ok());
    let last = token.ok_or_else(|| not_understood(node, &Value::Int(last)))?;
    Ok(Acquire::Granted { tokens: TokenBlock::ending(last, wanted) })
}

/// Every other case.
pub(crate) fn read_acquire(node: &str, value: Value, wall_micros: u64) -> Result<Claimed, Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(Claimed::Answered(match reply.text()?.as_str() {
        "granted" => Acquire::Granted { tokens: reply.tokens()? },
        "queued" => {
            let (ahead, last_fence) = (reply.count()?, reply.text()?.parse::<u64>().ok());
            let server_micros = reply.text()?.parse().ok();
            let occupied = reply.occupied(last_fence.and_then(|fence| FencingToken::new(fence).ok()), wall_micros)?;
            // A fence that is no number has no holder; then no message is newer, and the waiter polls.
            Acquire::Queued {
                ahead,
                occupied,
                hand_off: HandOffBounds::new(last_fence.unwrap_or(u64::MAX), server_micros),
            }
        }
        "busy" => {
            let last_fence = reply.text()?.parse().ok();
            Acquire::Busy(reply.occupied(last_fence, wall_micros)?)
        }
        "gone" => Acquire::Gone,
        "yours" => return Ok(Claimed::Yours),
        "more" => return Ok(Claimed::More),
        "unreadable" => return Ok(Claimed::Unreadable),
        "class" => Acquire::Conflict(reply.class()?),
        "noclock" => return Err(no_clock(node)),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    }))
}

/// 1 is a release while no client waits.
pub(crate) fn read_release(node: &str, value: Value) -> Result<(Release, bool), Unknown> {
    if value == Value::Int(1) {
        return Ok((Release::Released, false));
    }
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "released" => (Release::Released, reply.has_more()?),
        "absent" => (Release::Absent, reply.has_more()?),
        "taken" => {
            let holders = reply.holders()?;
            // Only for a lock that several clients hold: the release may make room for waiters.
            let left = if matches!(reply.words.as_slice(), [Value::Int(_), ..]) { reply.has_more()? } else { false };
            (Release::TakenBy(holders), left)
        }
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

pub(crate) fn read_renew(node: &str, value: Value) -> Result<Renew, Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "renewed" => Renew::Renewed { waiters: reply.count()? },
        "absent" => Renew::Absent,
        "taken" => Renew::TakenBy(reply.holders()?),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

pub(crate) fn read_downgrade(node: &str, value: Value) -> Result<(Downgrade, bool), Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "downgraded" => (Downgrade::Downgraded { token: reply.fence()? }, reply.has_more()?),
        "absent" => (Downgrade::Absent, false),
        "taken" => (Downgrade::TakenBy(reply.holders()?), false),
        "noclock" => return Err(no_clock(node)),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

/// A change of the limit of a semaphore, and the ticket for a call that continues it.
pub(crate) fn read_resize(node: &str, value: Value, limit: u32) -> Result<(Resize, Option<String>), Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "resized" => {
            let (before, used) = (reply.count()?, u64::try_from(reply.number()?).unwrap_or(0));
            let (held, left, ticket) = (reply.count()?, reply.has_more()?, reply.text()?);
            let resized = Resize::Resized(Resized::new(before, limit, used, held));
            (resized, left.then_some(ticket))
        }
        "absent" => (Resize::Free, None),
        "taken" => {
            let (value, kind) = (reply.bytes()?, reply.text()?);
            let mode = std::str::from_utf8(shared::value(&value)).ok().and_then(shared::mode_of);
            let holders = shared_holders(&value, &kind, 0).map(shared::occupants);
            let holders = holders.unwrap_or_else(|| occupant(&value, &kind).into());
            (Resize::OtherMode { mode: mode.unwrap_or_default(), holders }, None)
        }
        "noclock" => return Err(no_clock(node)),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

/// The end of each hold of a shared lock is compared with the time of the server.
fn no_clock(node: &str) -> Unknown {
    Unknown::new(
        node,
        Fault::Denied,
        "shared locks and permits need TIME in scripts, and this user may not call it: add +time to its rights",
    )
}

pub(crate) fn read_inspect(node: &str, value: Value) -> Result<Option<StoredLock>, Unknown> {
    if matches!(value, Value::Int(_)) {
        return Ok(None);
    }
    let mut reply = Reply::new(node, value)?;
    let (value, kind, expiry) = (reply.bytes()?, reply.text()?, reply.expiry()?);
    let fence = reply.text()?.parse().ok();
    Ok(Some(StoredLock { value, kind, expiry, fence, waiters: reply.count()?, named: reply.text()? }))
}

pub(crate) fn read_raise(node: &str, value: Value) -> Result<Raise, Unknown> {
    match value {
        Value::Int(1) => Ok(Raise::Acked),
        Value::Int(0) => Ok(Raise::Refused),
        other => Err(not_understood(node, &other)),
    }
}

/// What an eviction has left; `None` if the lock is another one by now.
pub(crate) fn read_evict(node: &str, value: Value) -> Result<Option<bool>, Unknown> {
    let mut reply = Reply::new(node, value)?;
    let (evicted, left) = (reply.number()? == 1, reply.has_more()?);
    Ok(evicted.then_some(left))
}

// Values and queue entries that this version cannot read.

/// A live waiter with an unreadable entry. It keeps its position; others are served before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    holder: String,
    bytes: u64,
    begins: String,
}

impl Unread {
    /// Reads the last element of a reply, if the script found an unreadable entry. No other element of a reply is an array.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let Value::Array(words) = answer else { return None };
        let Some(last @ Value::Array(_)) = words.last() else { return None };
        let mut reply = Reply::new("", last.clone()).ok()?;
        let (holder, bytes, begins) = (reply.text().ok()?, reply.count().ok()?, reply.text().ok()?);
        Some(Self { holder, bytes: bytes.into(), begins })
    }

    /// The id proves a hold, so only its start is shown.
    pub(crate) fn describe(&self, redis_key: &str) -> String {
        let holder: String = self.holder.chars().take(8).collect();
        let Self { bytes, begins, .. } = self;
        let entry = if *bytes == 0 { "no entry".to_owned() } else { format!("{begins:?}... of {bytes} bytes") };
        format!(
            "in the queue of {redis_key:?} the waiter {holder:?}... has an entry that version {WIRE} cannot read: {entry}. It keeps its \
             position, and others are served before it, until its client writes the entry again or has not polled for 3 s"
        )
    }

    /// The remedy if the entry does not disappear by itself.
    pub(crate) fn advice(redis_key: &str) -> String {
        format!(
            "use a later fencelock here if one writes such entries; else read them with HGETALL {:?}, and remove the \
             waiter: ZREM {:?} ID",
            side_key(redis_key, "waiters"),
            side_key(redis_key, "line")
        )
    }
}

/// `CAP` in `lock.lua`: the maximum number of waiters that a claim examines.
pub(crate) const EXAMINED: i64 = 32;

/// For a claim of a free key whose queue starts with as many such waiters as one call examines.
pub(crate) fn stuck(node: &str, redis_key: &str, unread: Option<&Unread>) -> Unknown {
    let first = unread.map_or_else(String::new, |unread| unread.describe(redis_key));
    let detail = format!("too many waiters whose entries cannot be read: {first}; {}", Unread::advice(redis_key));
    Unknown::new(node, Fault::Busy, detail)
}

#[cfg(test)]
mod unread_tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn an_unreadable_entry_is_the_last_element_of_a_reply() {
        let unread = Value::Array(vec![text("0123456789abcdef"), Value::Int(900), text("soon")]);
        let reply = Value::Array(vec![text("granted"), text("7"), Value::Int(1), unread]);
        let description = Unread::of(&reply).unwrap().describe("app:k");
        let parts = [
            "in the queue of \"app:k\"",
            "\"01234567\"...",
            "\"soon\"... of 900 bytes",
            "version 1",
            "keeps its position",
        ];
        for part in parts {
            assert!(description.contains(part), "{part} in {description}");
        }
        assert!(!description.contains("89abcdef"), "the whole id is a proof: {description}");
        assert_eq!(Unread::of(&Value::Array(vec![text("granted"), text("7"), Value::Int(1)])), None);
    }
}
