//! One typed function for each script.

use super::guard::{Guard, Mark, Pass};
use fencelock_core::{
    Acquire, Claim, Expiry, Fault, FencingToken, HolderId, Holding, Intent, Key, Occupant, Occupied, Raise, Release,
    Renew, SideKeys, TokenBlock, Unknown,
};
use redis::{Arg, Cmd, Script, ToRedisArgs, Value};
use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

/// Until a hand-off is confirmed. A waiter that is alive confirms within milliseconds; one that hangs costs the others
/// this long. Long enough for a waiter whose last sign of life is a second old to begin at once.
pub(crate) const CLAIM_TTL: Duration = Duration::from_secs(3);
/// A waiter shows signs of life every second; after three without one it is passed over.
const WAITER_LIFE: Duration = Duration::from_secs(3);

/// A script with its digest.
#[derive(Debug)]
pub(crate) struct Lua {
    source: String,
    digest: String,
}

impl Lua {
    fn new(body: &str) -> Self {
        Self::alone(format!("{}{body}", include_str!("lua/line.lua")))
    }

    /// One that has nothing to do with a lock.
    fn alone(source: String) -> Self {
        let digest = Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }

    #[cfg(test)]
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

pub(crate) static ACQUIRE: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/acquire.lua")));
pub(crate) static RELEASE: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/release.lua")));
pub(crate) static RENEW: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/renew.lua")));
pub(crate) static RAISE: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/raise.lua")));
pub(crate) static INSPECT: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/inspect.lua")));
pub(crate) static EVICT: LazyLock<Lua> = LazyLock::new(|| Lua::new(include_str!("lua/evict.lua")));
pub(crate) static HANDSHAKE: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/handshake.lua").to_owned()));
pub(crate) static INIT: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/init.lua").to_owned()));

/// A call of a script, to be sent by digest first and in full if the server does not know it.
#[derive(Debug)]
pub(crate) struct Call {
    lua: &'static Lua,
    by_digest: Cmd,
    pub(crate) tracked: bool,
}

impl Call {
    /// `wire` is the lock's name; its side keys follow it, as the scripts expect.
    fn new(lua: &'static LazyLock<Lua>, wire: &str) -> Self {
        Self::marked(lua, wire, None)
    }

    /// With a pass, which must also be given as its last arguments: [`Call::pass`].
    fn guarded(lua: &'static LazyLock<Lua>, wire: &str, pass: Pass<'_>) -> Self {
        Self::marked(lua, wire, pass.mark)
    }

    fn marked(lua: &'static LazyLock<Lua>, wire: &str, mark: Option<Mark<'_>>) -> Self {
        // Room for the digest, four names and the arguments: one allocation each, whatever the call.
        let mut by_digest = Cmd::with_capacity(16, 320 + 4 * wire.len());
        by_digest.arg("EVALSHA").arg(&lua.digest).arg(if mark.is_some() { 5 } else { 4 }).arg(wire);
        let mut side = SideKeys::of(wire);
        for what in super::servers::SIDE {
            by_digest.arg(side.name(what));
        }
        if let Some(mark) = mark {
            by_digest.arg(mark.name);
        }
        Self { lua, by_digest, tracked: false }
    }

    /// The server tells if another program touches its key from then on, if it can.
    pub(crate) fn tracked(mut self, tracked: bool) -> Self {
        self.tracked = tracked;
        self
    }

    /// A script that looks at a marker alone.
    fn of_marker(lua: &'static LazyLock<Lua>, guard: &Guard, run_id: &str, trust: bool) -> Self {
        let mut by_digest = redis::cmd("EVALSHA");
        by_digest.arg(&lua.digest).arg(1).arg(&guard.marker);
        Self { lua, by_digest, tracked: false }
            .arg(run_id)
            .arg(millis(guard.quarantine()))
            .arg(&guard.quorum)
            .arg(&guard.nodes)
            .arg(if trust { "trust" } else { "wait" })
    }

    fn pass(self, pass: Pass<'_>) -> Self {
        match pass.mark {
            Some(mark) => self.arg(pass.epoch).arg(mark.quorum),
            None => self.arg(pass.epoch),
        }
    }

    fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.by_digest.arg(arg);
        self
    }

    pub(crate) fn by_digest(&self) -> &Cmd {
        &self.by_digest
    }

    pub(crate) fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.lua.source);
        for arg in self.by_digest.args_iter().skip(2) {
            // A cursor is an argument of SCAN only.
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn acquire(wire: &str, claim: &Claim, wall_micros: u64, channel: &str, pass: Pass<'_>) -> Call {
    let intent = match claim.intent {
        Intent::Try => "try",
        Intent::Enqueue => "enqueue",
        Intent::Poll => "poll",
    };
    Call::guarded(&ACQUIRE, wire, pass)
        .arg(intent)
        .arg(&claim.holder.id.hex())
        .arg(claim.holder.wire())
        .arg(claim.ttl.as_millis())
        .arg(claim.proposal.unwrap_or(wall_micros))
        .arg(millis(WAITER_LIFE))
        .arg(millis(CLAIM_TTL))
        .arg(channel)
        .arg(claim.block.get())
        .pass(pass)
}

pub(crate) fn release(wire: &str, holder: &HolderId, wall_micros: u64, pass: Pass<'_>) -> Call {
    Call::guarded(&RELEASE, wire, pass).arg(&holder.hex()).arg(wall_micros).arg(millis(CLAIM_TTL)).pass(pass)
}

pub(crate) fn renew(wire: &str, holder: &HolderId, ttl: Duration) -> Call {
    Call::new(&RENEW, wire).arg(&holder.hex()).arg(millis(ttl))
}

pub(crate) fn raise(wire: &str, holder: &HolderId, to: FencingToken, pass: Pass<'_>) -> Call {
    Call::guarded(&RAISE, wire, pass).arg(&holder.hex()).arg(to.get()).pass(pass)
}

pub(crate) fn inspect(wire: &str) -> Call {
    Call::new(&INSPECT, wire)
}

pub(crate) fn evict(wire: &str, seen: &Seen, wall_micros: u64, pass: Pass<'_>) -> Call {
    Call::guarded(&EVICT, wire, pass)
        .arg(&seen.value)
        .arg(&seen.kind)
        .arg(wall_micros)
        .arg(millis(CLAIM_TTL))
        .pass(pass)
}

/// To be answered to [`super::guard::State::read`].
pub(crate) fn handshake(guard: &Guard, run_id: &str) -> Call {
    Call::of_marker(&HANDSHAKE, guard, run_id, guard.trust)
}

/// To be answered to [`super::members::enlist`].
pub(crate) fn init(guard: &Guard, run_id: &str, trust: bool, joins: bool) -> Call {
    Call::of_marker(&INIT, guard, run_id, trust).arg(if joins { "join" } else { "stay" })
}

/// A lock as it stands on the server, byte for byte.
#[derive(Debug)]
pub(crate) struct Seen {
    value: Vec<u8>,
    kind: String,
    expiry: Expiry,
    fence: Option<FencingToken>,
    waiters: u32,
}

impl Seen {
    #[cfg(test)]
    pub(crate) fn of(value: &str, kind: &str) -> Self {
        Self { value: value.into(), kind: kind.to_owned(), expiry: Expiry::Never, fence: None, waiters: 0 }
    }

    pub(crate) fn occupant(&self) -> Occupant {
        occupant(&self.value, &self.kind)
    }

    pub(crate) fn holding(&self, key: &Key, wall_micros: u64) -> Holding {
        let occupant = self.occupant();
        // The fence beside a foreign hold is an older grant's.
        let fence = self.fence.filter(|_| occupant.holder_id().is_some());
        let held_for = held_for(&occupant, fence, wall_micros);
        Holding { key: key.clone(), occupant, expiry: self.expiry, fence, held_for, waiters: self.waiters }
    }
}

/// What a script answered, read word by word.
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
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    fn number(&mut self) -> Result<i64, Unknown> {
        match self.words.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(not_understood(self.node, &other.unwrap_or(Value::Nil))),
        }
    }

    fn count(&mut self) -> Result<u32, Unknown> {
        Ok(u32::try_from(self.number()?).unwrap_or(0))
    }

    pub(crate) fn millis(&mut self) -> Result<Duration, Unknown> {
        Ok(Duration::from_millis(u64::try_from(self.number()?).unwrap_or(0)))
    }

    /// `PTTL`: -1 means that there is no end.
    fn expiry(&mut self) -> Result<Expiry, Unknown> {
        Ok(u64::try_from(self.number()?).map_or(Expiry::Never, |ms| Expiry::In(Duration::from_millis(ms))))
    }

    fn fence(&mut self) -> Result<FencingToken, Unknown> {
        let node = self.node;
        self.text()?.parse().map_err(|error| Unknown::new(node, Fault::Other, format!("{error}")))
    }

    /// The last, and how many end with it.
    fn tokens(&mut self) -> Result<TokenBlock, Unknown> {
        let last = self.fence()?;
        Ok(TokenBlock::ending(last, NonZeroU32::new(self.count()?).unwrap_or(NonZeroU32::MIN)))
    }

    fn occupant(&mut self) -> Result<Occupant, Unknown> {
        let value = self.bytes()?;
        Ok(occupant(&value, &self.text()?))
    }

    /// `last_fence` is that of the present hold, if it is one of ours, and then the time it was granted.
    fn occupied(&mut self, last_fence: Option<FencingToken>, wall_micros: u64) -> Result<Occupied, Unknown> {
        let expiry = self.expiry()?;
        let by = self.occupant()?;
        Ok(Occupied { held_for: held_for(&by, last_fence, wall_micros), by, expiry })
    }
}

/// The fence of a hold of ours is the time it was granted.
fn held_for(by: &Occupant, last_fence: Option<FencingToken>, wall_micros: u64) -> Option<Duration> {
    by.holder_id()?;
    Some(Duration::from_micros(wall_micros.saturating_sub(last_fence?.get())))
}

fn occupant(value: &[u8], kind: &str) -> Occupant {
    if !kind.is_empty() {
        return Occupant::Foreign(format!("a value of type {kind}"));
    }
    Occupant::from_wire(&String::from_utf8_lossy(value))
}

fn not_understood(node: &str, value: &Value) -> Unknown {
    Unknown::new(node, Fault::Other, format!("answer not understood: {value:?}"))
}

/// The answer of `acquire.lua`; `None` if it is the holder's already and a poll must confirm it.
pub(crate) fn read_acquire(node: &str, value: Value, wall_micros: u64) -> Result<Option<Acquire>, Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(Some(match reply.text()?.as_str() {
        "granted" => Acquire::Granted { tokens: reply.tokens()? },
        "queued" => {
            let (ahead, last_fence) = (reply.count()?, reply.text()?.parse::<u64>().ok());
            let occupied = reply.occupied(last_fence.and_then(|fence| FencingToken::new(fence).ok()), wall_micros)?;
            // A fence that is no number belongs to nobody; then no message is newer, and the waiter polls.
            Acquire::Queued { ahead, last_fence: last_fence.unwrap_or(u64::MAX), occupied }
        }
        "busy" => {
            let last_fence = reply.text()?.parse().ok();
            Acquire::Busy(reply.occupied(last_fence, wall_micros)?)
        }
        "gone" => Acquire::Gone,
        "yours" => return Ok(None),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    }))
}

pub(crate) fn read_release(node: &str, value: Value) -> Result<Release, Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "released" => Release::Released,
        "absent" => Release::Absent,
        "taken" => Release::TakenBy(reply.occupant()?),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

pub(crate) fn read_renew(node: &str, value: Value) -> Result<Renew, Unknown> {
    let mut reply = Reply::new(node, value)?;
    Ok(match reply.text()?.as_str() {
        "renewed" => Renew::Renewed { waiters: reply.count()? },
        "absent" => Renew::Absent,
        "taken" => Renew::TakenBy(reply.occupant()?),
        other => return Err(not_understood(node, &Value::SimpleString(other.to_owned()))),
    })
}

pub(crate) fn read_inspect(node: &str, value: Value) -> Result<Option<Seen>, Unknown> {
    if value == Value::Nil {
        return Ok(None);
    }
    let mut reply = Reply::new(node, value)?;
    let (value, kind, expiry) = (reply.bytes()?, reply.text()?, reply.expiry()?);
    let fence = reply.text()?.parse().ok();
    Ok(Some(Seen { value, kind, expiry, fence, waiters: reply.count()? }))
}

pub(crate) fn read_raise(node: &str, value: Value) -> Result<Raise, Unknown> {
    match value {
        Value::Int(1) => Ok(Raise::Acked),
        Value::Int(0) => Ok(Raise::Refused),
        other => Err(not_understood(node, &other)),
    }
}

pub(crate) fn read_evict(node: &str, value: Value) -> Result<Evicted, Unknown> {
    match value {
        Value::Int(1) => Ok(Evicted::Yes),
        Value::Int(0) => Ok(Evicted::AnotherByNow),
        other => Err(not_understood(node, &other)),
    }
}

/// The answer of `evict.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    Yes,
    AnotherByNow,
}
