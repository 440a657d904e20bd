//! One typed function for each script.

pub(crate) use super::call::Call;
use super::call::millis;
pub(crate) use super::call::{ABSENT_KEY, COMPLETION_KEY, SIDE};
use super::lua::Lua;
use super::quarantine::{EpochCheck, Quarantine};
use super::reply::Evicting;
use crate::scripts::side_key::side_key;
use fencelock_core::{Claim, Completion, FencingToken, HolderId, Intent, KeyTable, Mode};
use std::sync::LazyLock;
use std::time::Duration;

const REFUSAL: &str = include_str!("lua/refusal.lua");
const TOKENS: &str = include_str!("lua/tokens.lua");
const LINE: &str = include_str!("lua/line.lua");
const SHARED: &str = include_str!("lua/shared.lua");
const GRANT: &str = include_str!("lua/grant.lua");
const COMPLETION: &str = include_str!("lua/completion.lua");
const LIVING: &str = include_str!("lua/living.lua");

/// The common case of the scripts below. Each does what its script does, or writes nothing.
pub(crate) const ACQUIRE_FAST: &str = include_str!("lua/acquire_fast.lua");
pub(crate) const RELEASE_FAST: &str = include_str!("lua/release_fast.lua");
pub(crate) const RENEW_FAST: &str = include_str!("lua/renew_fast.lua");

/// The parts of a script that may grant.
pub(crate) const GRANTING: [&str; 5] = [REFUSAL, TOKENS, SHARED, GRANT, LINE];

pub(crate) static ACQUIRE: LazyLock<Lua> =
    LazyLock::new(|| Lua::with_fast_path(ACQUIRE_FAST, &GRANTING, include_str!("lua/acquire.lua")));
pub(crate) static RELEASE: LazyLock<Lua> =
    LazyLock::new(|| Lua::with_fast_path(RELEASE_FAST, &GRANTING, include_str!("lua/release.lua")));
pub(crate) static RENEW: LazyLock<Lua> =
    LazyLock::new(|| Lua::with_fast_path(RENEW_FAST, &[LIVING, SHARED], include_str!("lua/renew.lua")));
pub(crate) static RENEW_SINGLY: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/renew_singly.lua")));
pub(crate) static DOWNGRADE: LazyLock<Lua> = LazyLock::new(|| Lua::new(&GRANTING, include_str!("lua/downgrade.lua")));
pub(crate) static RAISE: LazyLock<Lua> = LazyLock::new(|| Lua::new(&[REFUSAL, SHARED], include_str!("lua/raise.lua")));
pub(crate) static RESIZE: LazyLock<Lua> = LazyLock::new(|| Lua::new(&GRANTING, include_str!("lua/resize.lua")));
pub(crate) static INSPECT: LazyLock<Lua> =
    LazyLock::new(|| Lua::new(&[REFUSAL, LIVING, SHARED], include_str!("lua/inspect.lua")).reading());
pub(crate) static EVICT: LazyLock<Lua> = LazyLock::new(|| Lua::new(&GRANTING, include_str!("lua/evict.lua")));
pub(crate) static READ_COMPLETION: LazyLock<Lua> = LazyLock::new(|| {
    // It has the marker at another position.
    let refusal = REFUSAL.replace(LOCK_MARKER, COMPLETION_MARKER);
    of_completion(&refusal, include_str!("lua/read_completion.lua")).reading()
});
pub(crate) static WRITE_COMPLETION: LazyLock<Lua> =
    LazyLock::new(|| of_completion("", include_str!("lua/write_completion.lua")));
pub(crate) static CLEAR_COMPLETION: LazyLock<Lua> =
    LazyLock::new(|| of_completion("", include_str!("lua/clear_completion.lua")));
pub(crate) static UNREAD: LazyLock<Lua> =
    LazyLock::new(|| Lua::new(&[&COMPLETION.replace("KEYS[2]", LAST_KEY)], include_str!("lua/unread.lua")).reading());
pub(crate) static TRIAL_END: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/trial_end.lua")));
pub(crate) static HANDSHAKE: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/handshake.lua")));
pub(crate) static INIT: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/init.lua")));

/// The common cases of several locks.
pub(crate) static COMBINED: LazyLock<Lua> = LazyLock::new(|| Lua::alone(include_str!("lua/combined.lua")));

/// The key that follows the side keys of a lock.
const LAST_KEY: &str = "KEYS[8]";

/// The position of the marker among the keys of a lock, and among those of a completion.
const LOCK_MARKER: &str = LAST_KEY;
const COMPLETION_MARKER: &str = "KEYS[3]";

fn of_completion(part: &str, body: &str) -> Lua {
    Lua::alone(&[COMPLETION, part, body].concat())
}

/// The scripts of a lock as they are sent, so that a benchmark gives the server the same work: to acquire, to renew, to release, and to
/// release and acquire several locks. Not a stable interface.
pub fn lock_scripts() -> [&'static str; 4] {
    [&ACQUIRE, &RENEW, &RELEASE, &COMBINED].map(|lua| lua.source())
}

/// A claim that may be the common case has few arguments, because each argument costs the server time: `is_common` at most if the server
/// chooses the token, and by [`is_common`].
pub(crate) fn acquire(
    redis_key: &str,
    claim: &Claim,
    is_common: bool,
    token: Requested,
    channel: Option<&str>,
    epoch_check: EpochCheck<'_>,
) -> Call {
    let channel = channel.unwrap_or("-");
    let intent = match claim.intent {
        Intent::Try => "try",
        Intent::Enqueue => "enqueue",
        Intent::Poll => "poll",
    };
    let (micros, whose) = token.words();
    if is_common {
        let (run, quorum) = packed_check(epoch_check);
        let (life, hand_off) = (millis(KeyTable::WAITER_LIFE), millis(KeyTable::CLAIM_TTL));
        return Call::brief(&ACQUIRE, redis_key, epoch_check)
            .arg_of(claim.holder.wire())
            .arg(claim.ttl.as_millis())
            .arg(claim.block.get())
            .arg_of(format_args!("{run}\t{quorum}\t{intent}\t{micros}\t{life}\t{hand_off}\t{channel}"));
    }
    let call = Call::checked(&ACQUIRE, redis_key, epoch_check)
        .arg(intent)
        .arg(&claim.holder.id.hex())
        .arg_of(claim.holder.wire())
        .arg(claim.ttl.as_millis())
        .arg(micros)
        .arg(millis(KeyTable::WAITER_LIFE))
        .arg(millis(KeyTable::CLAIM_TTL))
        .arg(channel)
        .arg(claim.block.get());
    let call = match (claim.mode, token) {
        // A quorum has no permits.
        (Mode::Permits { weight, limit, .. }, _) => call.arg(format!("s {weight} {limit}")),
        (Mode::Shared, Requested::Own(_)) => call.arg("r 1 0"),
        (Mode::Shared, Requested::Proposed(_)) => call.arg("proposed r 1 0"),
        _ => call.arg(whose),
    };
    call.epoch_check(epoch_check)
}

/// Whether the common case of `acquire.lua` can grant a claim whose token the server chooses.
pub(crate) fn is_common(claim: &Claim) -> bool {
    claim.mode == Mode::Exclusive && !claim.is_poll()
}

/// The beginning of a value, which identifies its holder.
pub(crate) fn released_id(holder: &HolderId) -> [u8; HolderId::HEX_LEN + 1] {
    let mut id = [b' '; HolderId::HEX_LEN + 1];
    id[..HolderId::HEX_LEN].copy_from_slice(&holder.hex());
    id
}

pub(crate) fn release(redis_key: &str, holder: &HolderId, wall_micros: u64, epoch_check: EpochCheck<'_>) -> Call {
    let ((run, quorum), hand_off) = (packed_check(epoch_check), millis(KeyTable::CLAIM_TTL));
    Call::brief(&RELEASE, redis_key, epoch_check)
        .arg(&released_id(holder))
        .arg_of(format_args!("{run}\t{quorum}\t{wall_micros}\t{hand_off}"))
}

/// The run id and the quorum, at the beginning of an argument.
fn packed_check(epoch_check: EpochCheck<'_>) -> (&str, &str) {
    (epoch_check.epoch, epoch_check.mark.map_or("", |mark| &mark.quorum))
}

/// `known` is the remaining lease that the holder assumes, whatever the result.
pub(crate) fn renew(redis_key: &str, holder: &HolderId, ttl: Duration, known: Duration) -> Call {
    // The maximum exact integer in a double.
    let known = millis(known).min(FencingToken::MAX);
    let call = Call::checked(&RENEW, redis_key, EpochCheck::without_marker(""));
    call.arg(&holder.hex()).arg(millis(ttl)).arg(known)
}

/// For a lock in a hash slot that is being moved: renews one of its keys alone, the lock itself or a side key.
pub(crate) fn renew_singly(redis_key: &str, side: Option<&str>, holder: &HolderId, span: Duration) -> Call {
    let name = side.map_or_else(|| redis_key.to_owned(), |side| side_key(redis_key, side));
    let call = Call::of_keys(&RENEW_SINGLY, 1).arg(name).arg(side.unwrap_or("lock"));
    call.arg(&holder.hex()).arg(millis(span))
}

/// The token that a claim or a downgrade requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requested {
    /// A single server chooses the token. The time of the client is used if the server time is not available.
    Own(u64),
    /// A quorum proposes the token to its nodes.
    Proposed(u64),
}

impl Requested {
    /// The microseconds, and whose they are.
    const fn words(self) -> (u64, &'static str) {
        match self {
            Self::Own(wall_micros) => (wall_micros, "own"),
            Self::Proposed(proposal) => (proposal, "proposed"),
        }
    }
}

/// Its reply is parsed by [`super::reply::read_downgrade`].
pub(crate) fn downgrade(
    redis_key: &str,
    holder: &HolderId,
    ttl: Duration,
    token: Requested,
    epoch_check: EpochCheck<'_>,
) -> Call {
    let (micros, whose) = token.words();
    Call::checked(&DOWNGRADE, redis_key, epoch_check)
        .arg(&holder.hex())
        .arg(millis(ttl))
        .arg(micros)
        .arg(millis(KeyTable::CLAIM_TTL))
        .arg(whose)
        .epoch_check(epoch_check)
}

/// Its reply is parsed by [`super::reply::read_resize`]. `done` is the limit before an earlier call of the same change, and the ticket
/// that it returned.
pub(crate) fn resize(
    redis_key: &str,
    limit: u32,
    done: Option<(u32, &str)>,
    wall_micros: u64,
    epoch_check: EpochCheck<'_>,
) -> Call {
    let call = Call::checked(&RESIZE, redis_key, epoch_check).arg(limit);
    match done {
        Some((before, ticket)) => call.arg(before).arg(ticket),
        None => call.arg("-").arg("0"),
    }
    .arg(wall_micros)
    .arg(millis(KeyTable::CLAIM_TTL))
    .epoch_check(epoch_check)
}

pub(crate) fn raise(redis_key: &str, holder: &HolderId, to: FencingToken, epoch_check: EpochCheck<'_>) -> Call {
    Call::checked(&RAISE, redis_key, epoch_check).arg(&holder.hex()).arg(to.get()).epoch_check(epoch_check)
}

/// With a marker, a server that may have lost data never reports that a lock is free. It names at most `named` waiters, at least one.
pub(crate) fn inspect(redis_key: &str, named: usize, epoch_check: EpochCheck<'_>) -> Call {
    Call::checked(&INSPECT, redis_key, epoch_check).arg(named).epoch_check(epoch_check)
}

/// Its reply is parsed by `server::doctor::trial`.
pub(crate) fn unread(redis_key: &str) -> Call {
    Call::with_completion(&UNREAD, redis_key)
}

pub(crate) fn evict(
    redis_key: &str,
    seen: &[u8],
    what: Evicting,
    wall_micros: u64,
    epoch_check: EpochCheck<'_>,
) -> Call {
    let what = match what {
        Evicting::Ours => "ours",
        Evicting::Foreign => "foreign",
        Evicting::Endless => "endless",
        Evicting::Shared => "shared",
        Evicting::Holds => "holds",
    };
    Call::checked(&EVICT, redis_key, epoch_check)
        .arg(seen)
        .arg(what)
        .arg(wall_micros)
        .arg(millis(KeyTable::CLAIM_TTL))
        .epoch_check(epoch_check)
}

/// Its reply is parsed by [`super::quarantine::MarkerState::read`].
pub(crate) fn handshake(quarantine: &Quarantine, run_id: &str) -> Call {
    Call::of_marker(&HANDSHAKE, quarantine, run_id, quarantine.trust)
}

/// Its reply is parsed by [`crate::server::node_setup::register`].
pub(crate) fn init(quarantine: &Quarantine, run_id: &str, trust: bool, joins: bool) -> Call {
    Call::of_marker(&INIT, quarantine, run_id, trust).arg(if joins { "join" } else { "stay" })
}

/// With a marker, a server that may have lost data never reports that there is no completion.
pub(crate) fn read_completion(redis_key: &str, epoch_check: EpochCheck<'_>) -> Call {
    Call::of_completion(&READ_COMPLETION, redis_key, epoch_check.mark).epoch_check(epoch_check)
}

/// Without a holder, it restores a completion that another node has.
pub(crate) fn write_completion(redis_key: &str, holder: Option<&HolderId>, completion: &Completion) -> Call {
    let call = Call::of_completion(&WRITE_COMPLETION, redis_key, None);
    match holder {
        Some(holder) => call.arg(&holder.hex()),
        None => call.arg("-"),
    }
    .arg(completion.to_wire())
    .arg(completion.until_micros)
    .arg(completion.token.get())
    .arg(millis(Completion::KEPT))
}

pub(crate) fn clear_completion(redis_key: &str, seen: &Completion) -> Call {
    Call::of_completion(&CLEAR_COMPLETION, redis_key, None).arg(seen.token.get())
}

/// Its reply is 1 if everything of the lock was removed.
pub(crate) fn trial_end(redis_key: &str, is_own: bool) -> Call {
    Call::with_completion(&TRIAL_END, redis_key).arg(if is_own { "own" } else { "named" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Holder, Key, Owner, Ttl};

    #[test]
    fn a_script_of_a_completion_checks_its_own_marker() {
        let source = READ_COMPLETION.source();
        assert!(source.contains("if not KEYS[3] or not quorum") && !source.contains("KEYS[8]"), "{source}");
    }

    /// Each argument costs the server time.
    #[test]
    fn a_claim_and_a_release_have_few_arguments_if_the_server_derives_keys() {
        let id = HolderId::from_bytes([7; 16]);
        let holder = Holder { id, owner: Owner::from_text("host:1") };
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        let claim = Claim::new(Key::new("k").unwrap(), holder, ttl, Intent::Try);
        let arguments = |derives_keys| {
            let epoch_check = EpochCheck { derives_keys, ..EpochCheck::without_marker("0123") };
            [acquire("k", &claim, true, Requested::Own(1), None, epoch_check), release("k", &id, 1, epoch_check)]
                .map(|call| call.by_digest.args_iter().skip(3).count())
        };
        assert_eq!(arguments(true), [3 + 4, 3 + 2]);
        assert_eq!(arguments(false), [7 + 4, 7 + 2]);
    }
}
