//! The statements, and how values become their parameters.

use crate::url::Target;
use fencelock_core::{
    Acquire, ClearCompletion, Completion, CompletionRead, Event, Expiry, FencingToken, HandOffBounds, Holder, HolderId,
    HolderInfo, Holders, Holding, Key, Liveness, Mode, Occupant, Occupied, Owner, Release, Renew, Resized, TokenBlock,
    WaiterInfo,
};
use std::num::NonZeroU32;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

/// The statements that are sent often enough to be prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The common case of [`Call::Acquire`], for roles that may update the table.
    Take,
    Acquire,
    Release,
    Downgrade,
    Resize,
    Tell,
    Renew,
    Locked,
    List,
    Handed,
    Evict,
    Forget,
    ReadCompletion,
    WriteCompletion,
    ClearCompletion,
}

pub(crate) const CALLS: usize = Call::ClearCompletion as usize + 1;

/// The text of each [`Call`].
pub(crate) fn texts(target: &Target) -> [String; CALLS] {
    let schema = target.quoted_schema();
    // One moment for the whole statement. It may be earlier than that of the grant, and is later than that of the claim: so the lease is at
    // least as long as its holder assumes.
    let now = "(date_part('epoch', statement_timestamp()) * 1000000::float8)::bigint";
    [
        format!(
            "UPDATE {schema}.locks SET holder = $2, owner = $3, channel = $6, since = {now}, ttl = $4::bigint, ends = {now} + $4::bigint, \
             fence = greatest(fence + 1, {now}), \
             count = CASE WHEN fence = 0 THEN 1 ELSE greatest(least($5::int, {now} - fence), 1) END \
             WHERE key = $1 AND waiting = 0 AND ends <= {now} AND holder IS NOT NULL RETURNING fence, count"
        ),
        format!("SELECT * FROM {schema}.acquire_1($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
        format!("SELECT * FROM {schema}.release_1($1, $2)"),
        format!("SELECT * FROM {schema}.downgrade_1($1, $2, $3)"),
        format!("SELECT * FROM {schema}.resize_1($1, $2)"),
        format!("SELECT {schema}.tell_1($1)"),
        format!("SELECT * FROM {schema}.renew_1($1, $2, $3, $4)"),
        format!("SELECT {schema}.locked_1($1)"),
        format!("SELECT * FROM {schema}.list_1($1)"),
        format!("SELECT * FROM {schema}.handed_1($1, $2)"),
        format!("SELECT * FROM {schema}.evict_1($1, $2)"),
        format!("SELECT {schema}.forget_1($1)"),
        format!("SELECT * FROM {schema}.read_completion_1($1)"),
        format!("SELECT {schema}.write_completion_1($1, $2, $3, $4, $5, $6)"),
        format!("SELECT {schema}.clear_completion_1($1, $2)"),
    ]
}

/// A value with its type: the types are not asked for.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Values with their types: `params![TEXT key, INT8 ttl]`.
macro_rules! params {
    ($($kind:ident $value:expr),+) => {
        [$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$kind)),+]
    };
}

/// The permits and the weight of a mode, as in the table of waiters.
pub(crate) fn of_mode(mode: Mode) -> (i32, i32) {
    let limit = if mode == Mode::Exclusive { -1 } else { signed(mode.limit().unwrap_or(0)) };
    (limit, signed(mode.weight()))
}

pub(crate) fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A duration for SQL. What is longer than any lease may be, is that long.
pub(crate) fn micros(span: Duration) -> i64 {
    const LONGEST: i64 = 1 << 50;
    i64::try_from(span.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

// What the rows of replies and the payloads of notifications mean for the contract of a backend.

/// Why a reply cannot be read: another program has changed the tables, or the server is not Postgres.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

pub(crate) type Read<T> = Result<T, Unreadable>;

/// The grant of the statement for the common case.
pub(crate) fn taken(row: &Row) -> Read<Acquire> {
    Ok(Acquire::Granted { tokens: tokens(get(row, 0)?, get(row, 1)?)? })
}

/// The answer to a claim, and whether the key was handed over. `None`: not all waiters in front of this one were looked at, so the claim has
/// to be repeated.
pub(crate) fn claim(row: &Row) -> Read<Option<(Acquire, bool)>> {
    let known = |answer| Ok(Some((answer, get(row, 12)?)));
    match get::<i32>(row, 0)? {
        0 => known(Acquire::Granted { tokens: tokens(get(row, 1)?, get(row, 2)?)? }),
        1 => known(Acquire::Busy(occupied(row)?)),
        2 => {
            let ahead = u32::try_from(get::<i32>(row, 3)?).unwrap_or_default();
            let hand_off = HandOffBounds::new(unsigned(get(row, 1)?), Some(unsigned(get(row, 4)?)));
            known(Acquire::Queued { ahead, occupied: occupied(row)?, hand_off })
        }
        3 => known(Acquire::Gone),
        4 => Ok(None),
        5 => known(Acquire::Conflict(mode(get(row, 10)?, get(row, 11)?)?)),
        other => Err(Unreadable(format!("acquire has answered {other}"))),
    }
}

pub(crate) fn release(row: &Row) -> Read<Release> {
    match get::<i32>(row, 0)? {
        0 => Ok(Release::Released),
        1 => Ok(Release::Absent),
        2 => Ok(Release::TakenBy(holders(row, 3)?)),
        other => Err(Unreadable(format!("release has answered {other}"))),
    }
}

/// What happened in the queue: whether the key was handed over, and whether waiters are left that were not looked at.
pub(crate) fn queue(row: &Row) -> Read<(bool, bool)> {
    Ok((get(row, 1)?, get(row, 2)?))
}

/// The token of the shared hold, if it was downgraded.
pub(crate) fn downgraded(row: &Row) -> Read<Option<FencingToken>> {
    get::<Option<i64>>(row, 0)?.map(token).transpose()
}

/// `None` if no semaphore is in use.
pub(crate) fn resized(row: &Row, limit: u32) -> Read<Option<Resized>> {
    let Some(before) = get::<Option<i32>>(row, 0)? else { return Ok(None) };
    Ok(Some(Resized::new(before.unsigned_abs(), limit, unsigned(get(row, 3)?), get::<i32>(row, 4)?.unsigned_abs())))
}

pub(crate) fn renewal(row: &Row) -> Read<Renew> {
    match get::<i32>(row, 0)? {
        0 => Ok(Renew::Renewed { waiters: u32::try_from(get::<i32>(row, 1)?).unwrap_or_default() }),
        1 => Ok(Renew::Absent),
        2 => Ok(Renew::TakenBy(holders(row, 2)?)),
        other => Err(Unreadable(format!("renew has answered {other}"))),
    }
}

/// The holds of a key are in a row, and behind them its waiters.
pub(crate) fn holdings(rows: &[Row]) -> Read<Vec<Holding>> {
    let mut all = Vec::<Holding>::new();
    for row in rows {
        let (key, holder, age) = (key(row)?, holder(get(row, 1)?, get(row, 2)?)?, Some(span(get(row, 6)?)));
        let mode = mode(get(row, 7)?, get(row, 8)?)?;
        let Some(fence) = get::<Option<i64>>(row, 3)? else {
            if let Some(queue) = all.last_mut().filter(|last| last.key == key).and_then(|last| last.queue.as_mut()) {
                queue.push(WaiterInfo::new(holder, mode, age));
            }
            continue;
        };
        let (left, ttl) = (span(get(row, 5)?), span(get(row, 9)?));
        let info = HolderInfo::new(Occupant::Holder(holder), Expiry::In(left))
            .with_mode(mode)
            .with_fence(FencingToken::try_from(fence).ok())
            .with_held_for(age)
            .with_alive(Some(Liveness::of_lease(ttl.saturating_sub(left), ttl)));
        let waiters = get::<i32>(row, 4)?.unsigned_abs();
        let holding = match all.pop_if(|last| last.key == key) {
            Some(same) => same.with_holder(info),
            None => Holding::new(key, info).with_waiters(waiters).with_queue(Some(Vec::new())),
        };
        all.push(holding);
    }
    Ok(all)
}

/// A hand-off that was asked for.
pub(crate) fn handed(row: &Row) -> Read<Event> {
    let (key, holder) = (key(row)?, id(get(row, 1)?)?);
    Ok(Event::Handed { key, holder, tokens: tokens(get(row, 2)?, get(row, 3)?)?, claim_ttl: span(get(row, 4)?) })
}

/// `1 <holder> <last token> <count> <lease, ms>`, a tab and the key, is a hand-off. The key behind a tab alone, or behind what a later
/// version writes, is a hint to ask.
pub(crate) fn event(payload: &str) -> Option<Event> {
    let (words, key) = payload.split_once('\t')?;
    let key = Key::new(key).ok()?;
    Some(hand_off(words, &key).unwrap_or(Event::Changed { key }))
}

fn hand_off(words: &str, key: &Key) -> Option<Event> {
    let words: Vec<_> = words.split(' ').collect();
    let ["1", holder, last, count, lease] = words.as_slice() else { return None };
    let tokens = TokenBlock::ending(last.parse().ok()?, count.parse().ok()?);
    let claim_ttl = Duration::from_millis(lease.parse().ok()?);
    Some(Event::Handed { key: key.clone(), holder: holder.parse().ok()?, tokens, claim_ttl })
}

pub(crate) fn completion(row: &Row) -> Read<CompletionRead> {
    let now = unsigned(get(row, 0)?);
    let Some(until) = get::<Option<i64>>(row, 1)? else { return Ok(CompletionRead::new(None, now)) };
    let (granted, owner): (i64, String) = (get(row, 3)?, get(row, 4)?);
    let completion =
        Completion::new(unsigned(until), token(get(row, 2)?)?, unsigned(granted), Owner::from_text(&owner));
    Ok(CompletionRead::new(Some(completion), now))
}

pub(crate) fn cleared(row: &Row) -> Read<ClearCompletion> {
    match get::<i32>(row, 0)? {
        0 => Ok(ClearCompletion::Cleared),
        1 => Ok(ClearCompletion::Absent),
        _ => Ok(ClearCompletion::Changed),
    }
}

pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Read<T> {
    row.try_get(column).map_err(|error| Unreadable(format!("its reply cannot be read: {error}")))
}

fn occupied(row: &Row) -> Read<Occupied> {
    let (now, since, ends): (i64, i64, i64) = (get(row, 4)?, get(row, 8)?, get(row, 9)?);
    Ok(Occupied::new(holders(row, 5)?, Expiry::In(span(ends - now))).with_held_for(Some(span(now - since))))
}

/// Their ids, their owners, and how many there are.
fn holders(row: &Row, column: usize) -> Read<Holders> {
    let (ids, owners): (Vec<&[u8]>, Vec<&str>) = (get(row, column)?, get(row, column + 1)?);
    let number = get::<i32>(row, column + 2)?.unsigned_abs();
    let more = number.saturating_sub(u32::try_from(ids.len()).unwrap_or(u32::MAX));
    let mut named = ids.into_iter().zip(owners).map(|(id, owner)| holder(id, owner).map(Occupant::Holder));
    let first = named.next().ok_or_else(|| Unreadable("a key that is held has no holder".to_owned()))?;
    let all = named.try_fold(Holders::one(first?), |all, next| Ok(all.and(next?)))?;
    Ok(all.and_unnamed(more))
}

/// As in the table of waiters.
fn mode(permits: i32, weight: i32) -> Read<Mode> {
    match permits {
        ..0 => Ok(Mode::Exclusive),
        0 => Ok(Mode::Shared),
        // Of a semaphore that was resized, they may be more than the limit.
        _ => Mode::permits(weight.unsigned_abs(), weight.max(permits).unsigned_abs())
            .map(|mode| mode.resized(permits.unsigned_abs()))
            .map_err(|invalid| Unreadable(invalid.to_string())),
    }
}

fn key(row: &Row) -> Read<Key> {
    Key::new(get::<String>(row, 0)?).map_err(|invalid| Unreadable(invalid.to_string()))
}

fn holder(holder: &[u8], owner: &str) -> Read<Holder> {
    Ok(Holder { id: id(holder)?, owner: Owner::from_text(owner) })
}

fn id(bytes: &[u8]) -> Read<HolderId> {
    let bytes = bytes.try_into().map_err(|_| Unreadable("a holder has another length than 16 bytes".to_owned()))?;
    Ok(HolderId::from_bytes(bytes))
}

fn tokens(last: i64, count: i32) -> Read<TokenBlock> {
    let count = u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    Ok(TokenBlock::ending(token(last)?, count))
}

fn token(number: i64) -> Read<FencingToken> {
    FencingToken::try_from(number).map_err(|invalid| Unreadable(invalid.to_string()))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A negative one is over.
fn span(micros: i64) -> Duration {
    Duration::from_micros(unsigned(micros))
}
pub(crate) use params;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_duration_overflows() {
        assert_eq!(micros(Duration::from_millis(3)), 3_000);
        assert!(micros(Duration::MAX) < i64::MAX / 4);
    }
}

#[cfg(test)]
mod answers_tests {
    use super::*;

    #[test]
    fn a_hand_off_is_read_with_spaces_in_its_key() {
        let holder: HolderId = "ab".repeat(16).parse().unwrap();
        let tokens =
            TokenBlock::ending(FencingToken::new(1_780_000_000_000_001).unwrap(), NonZeroU32::new(64).unwrap());
        let key = Key::new("nightly report").unwrap();
        let read = event(&format!("1 {holder} 1780000000000001 64 3000\tnightly report"));
        assert_eq!(read, Some(Event::Handed { key, holder, tokens, claim_ttl: Duration::from_secs(3) }));
    }

    #[test]
    fn what_is_not_a_hand_off_of_this_version_is_a_hint_or_nothing() {
        let (id, key) = ("ab".repeat(16), Key::new("k").unwrap());
        for words in [
            "1".to_owned(),
            format!("2 {id} 7 1 3000"),
            format!("1 {id} 7 1 3000 x"),
            format!("1 {id} 7 0 3000"),
            format!("1 {id} 0 1 3000"),
        ] {
            assert_eq!(event(&format!("{words}\tk")), Some(Event::Changed { key: key.clone() }), "{words}");
        }
        for payload in ["", "hello", "1\t", "1\tfencelock:x", "1\ta\nb"] {
            assert_eq!(event(payload), None, "{payload:?}");
        }
    }
}
