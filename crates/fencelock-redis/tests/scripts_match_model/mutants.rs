//! Mutants of the scripts. Each must be detected in few sequences.

use super::coverage::Coverage;
use super::differential::{self, Difference, Differential, START_US};
use super::real::Real;
use super::sent::{Mutant, Mutants};
use super::step::Step;
use super::traces;

/// The number of sequences in a batch, and the maximum number of batches.
const SIZE: (usize, usize) = (50, 30);
const BATCHES: u64 = 20;

const MUTANTS: Mutants = &[
    ("a proposal is not clamped", "last = math.max(now - CLAMP, math.min(last, now + CLAMP))", "last = last"),
    ("the clamp is a microsecond wider", "local CLAMP = 1000000", "local CLAMP = 1000001"),
    ("a proposed fence may be at or below the last one", "last = math.max(last, previous + count)", "last = last"),
    ("a fence may be at or below the last one", "math.max(now, previous + 1), 1", "now, 1"),
    ("a fence exceeds 2^53", "if last > FENCE_MAX then", "if false then"),
    ("every client proposes a fence", "  if proposed then", "  if true then"),
    ("a node of a quorum ignores proposals", "  if proposed then", "  if false then"),
    ("a block ends after the server's time", "math.max(now, previous + 1), 1", "math.max(now, previous + wanted), 1"),
    ("the first block of a server has more than one token", "  elseif previous > 0 then", "  else"),
    ("a block overlaps the previous one", "math.min(wanted, last - previous)", "wanted"),
    ("a block has one token at most", "count = math.min(wanted, last - previous)", "count = 1"),
    (
        "a proposed block may end at any later time",
        "math.min(now + CLAMP, FENCE_MAX) - previous",
        "FENCE_MAX - previous",
    ),
    (
        "a proposed block that does not fit fills the room",
        "while count * 2 <= room do count = count * 2 end",
        "count = room",
    ),
    ("a proposed block may begin at any earlier time", "math.min(count, last - (now - CLAMP) + 1)", "count"),
    ("a proposed block overlaps the previous one", "math.max(last, previous + count)", "math.max(last, previous + 1)"),
    ("a fence expires after an hour", "FENCE_TTL = 86400000", "FENCE_TTL = 3600000"),
    (
        "a value with the prefix of the holder id belongs to the holder",
        " and (#value == 32 or string.sub(value, 33, 33) == ' ')",
        "",
    ),
    ("a dead waiter gets the lock", "if alive and alive * 1000 > now then", "if alive then"),
    ("a waiter is alive in the microsecond of its end", "alive * 1000 > now", "alive * 1000 >= now"),
    ("a waiter without a subscription gets the lock", "or readers > 0 then", "or readers >= 0 then"),
    ("a hand-off lasts for the TTL of the waiter", "math.min(tonumber(ttl), tonumber(claim_ttl))", "tonumber(ttl)"),
    ("an advance leaves the entry of the waiter", "tolerant('HDEL', KEYS[4], id)\n  tolerant", "tolerant"),
    ("an advance skips the client that polls", "if is_mine then return 'mine', unread, shared end", ""),
    ("an advance leaves the end of life of the waiter", "  tolerant('ZREM', KEYS[5], id)\n", ""),
    (
        "an advance does not report that more waiters are left",
        "> kept and 'more' or 'nobody'",
        "> kept and 'nobody' or 'nobody'",
    ),
    ("an advance skips one waiter too many", "while passed < CAP do", "while passed <= CAP do"),
    (
        "a claim takes a lock although dead waiters are left",
        "if turn == 'more' or turn == 'unreadable' then",
        "if turn == 'unreadable' then",
    ),
    ("a poll purges the client that polls", "if dead[i] == me then table.remove(dead, i) end", ""),
    ("a poll purges live waiters", "'-inf', string.format('%.0f', now_ms), 'LIMIT'", "'-inf', '+inf', 'LIMIT'"),
    ("a poll purges no waiter", "if #dead == 0 then return 0 end", "if true then return 0 end"),
    ("a purge leaves the position in the queue", "redis.call('ZREM', KEYS[3], unpack(dead))", ""),
    ("a purge leaves the entry of the waiter", "redis.call('HDEL', KEYS[4], unpack(dead))", ""),
    (
        "dead waiters are counted",
        "return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting",
        "return waiting",
    ),
    ("a claim overtakes the queue", "if turn == 'given' then", "if false then"),
    ("a duplicate claim extends the lease", "if intent ~= 'poll' then return {'yours'} end", ""),
    ("a poll shortens the lease", "if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then", "if true then"),
    ("a renewal shortens the lease", "math.max(left, ttl)", "ttl"),
    ("a renewal ignores the lease that the holder assumes", "math.max(ttl, assumed)", "ttl"),
    (
        "a renewal does not cut a lease that a clock change has extended",
        "if left > longest + SLACK then left = longest end",
        "",
    ),
    ("a renewal does not extend the fence", "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)", ""),
    (
        "a renewal creates the lock",
        "if not value then return {'absent'} end",
        "if not value then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) value = ARGV[1] end",
    ),
    ("a renewal extends the lock of any holder", "elseif is_holder(value, ARGV[1]) then\n  left", "else\n  left"),
    (
        "a raise ignores the holder of the lock",
        "if is_holder(value, ARGV[1]) then\n  granted",
        "if value and not shared then\n  granted",
    ),
    (
        "a raise below the granted token succeeds",
        "if not granted or tonumber(granted) > tonumber(ARGV[2]) then",
        "if not granted then",
    ),
    (
        "a raise refuses an equal fence",
        "tonumber(granted) > tonumber(ARGV[2])",
        "tonumber(granted) >= tonumber(ARGV[2])",
    ),
    (
        "a release frees the lock of any holder",
        "if is_holder(value, ARGV[1]) then\n  redis.call('DEL'",
        "if value then\n  redis.call('DEL'",
    ),
    ("a release serves no waiter", "turn, unread = advance(nil, ARGV[2], ARGV[3], ARGV[4], shared) end", "end"),
    ("a waiter that gives up stays in the queue", "if answer == 'absent' then leave(ARGV[1]) end", ""),
    (
        "a waiter that polls goes to the end of the queue",
        "if not ahead then\n  local last",
        "if not ahead or intent == 'enqueue' then\n  local last",
    ),
    ("an eviction removes any value", "elseif value ~= ARGV[1] or kind then", "elseif not value or kind then"),
    (
        "an eviction removes a key of another type",
        "elseif value ~= ARGV[1] or kind then",
        "elseif value ~= ARGV[1] then",
    ),
    ("an eviction removes a value without a fence", "if fence() == 0 then return {0, 0} end", ""),
    (
        "an eviction ignores whether a foreign lock expires",
        "elseif ends ~= (ARGV[2] == 'foreign') then",
        "elseif false then",
    ),
    ("a claim does not check whether the server may grant", "if refused then return refused end", ""),
    ("a raise does not check whether the server may grant", "if refusal(ARGV[3], ARGV[4]) then return 0 end", ""),
    ("a release hands over during a quarantine", "and not refusal(ARGV[4], ARGV[5])\n", "\n"),
    ("an eviction hands over during a quarantine", "if not refusal(ARGV[5], ARGV[6]) then", "if true then"),
    (
        "a quarantine ends a millisecond early",
        "if rest > 0 then return {'quarantined'",
        "if rest > 1 then return {'quarantined'",
    ),
    (
        "a quarantine ends a millisecond late",
        "if rest > 0 then return {'quarantined'",
        "if rest >= 0 then return {'quarantined'",
    ),
    (
        "a quarantine is checked with the rounded-up clock",
        "(time[1] * 1000 + math.floor(time[2] / 1000))",
        "(time[1] * 1000 + math.ceil(time[2] / 1000))",
    ),
    ("a handshake begins with the rounded-down clock", "math.ceil(time[2] / 1000)", "math.floor(time[2] / 1000)"),
    ("a claim accepts any run", "if marker[1] ~= epoch or not till", "if not till"),
    ("a claim accepts any set", "if marker[3] ~= quorum then return", "if false then return"),
    ("a handshake overwrites another set", " and (not quorum or quorum == ARGV[3]) then", " then"),
    ("a handshake trusts any run", "if (epoch ~= ARGV[1] or not till) and", "if not till and"),
    ("a handshake trusts a server without the option", "till = ARGV[5] == 'trust' and 0 or now + ARGV[2]", "till = 0"),
    (
        "an init ignores that the server is new",
        "elseif found == 'new' or ARGV[6] == 'join' then",
        "elseif ARGV[6] == 'join' then",
    ),
    ("an init ignores that the server joins", "found == 'new' or ARGV[6] == 'join'", "found == 'new'"),
    ("dead waiters are named", "alive and alive > now_ms and tolerant", "tolerant"),
    ("a wait is counted from the end of the life of the waiter", "now_ms - ticket / 1000", "now_ms - alive"),
    ("every ticket is a time", "ticket % 1000 == 0 and ", ""),
    (
        "a ticket is the number after the last one",
        "math.max(math.floor((last[2] or 0) / 1000) + 1, now_ms)",
        "(math.floor((last[2] or 0) / 1000) + 1)",
    ),
    ("a ticket is the time alone", "math.max(math.floor((last[2] or 0) / 1000) + 1, now_ms)", "now_ms"),
    (
        "a ticket is no time behind an earlier client",
        "math.floor((last[2] or 0) / 1000) + 1",
        "(last[2] or 0) / 1000 + 1",
    ),
    (
        "a server that may have lost locks reports a lock as free",
        "return refusal(ARGV[2], ARGV[3]) or living()",
        "return living()",
    ),
    ("a free lock is reported without its waiters", "or living() end", "or 0 end"),
    ("an init does not extend a quarantine", "till = till + wanted - span", "till = till"),
    ("an init ignores the longer span", "math.max(span, tonumber(ARGV[2]))", "tonumber(ARGV[2])"),
    ("the queue outlives its entries", "redis.call('PEXPIRE', KEYS[4], LINE_TTL)", ""),
    ("the queue outlives its waiters", "redis.call('PEXPIRE', KEYS[5], LINE_TTL)", ""),
    (
        "an entry that cannot be read is dropped",
        "if entry and not is_mine and not is_holder(value, id) then",
        "entry = is_holder(value, id) and entry if false then",
    ),
    ("an entry that cannot be read stops the queue", "kept = kept + 1", "if true then return 'unreadable', unread end"),
    ("an entry that cannot be read is not reported", "unread = unread or {id,", "local _ = {id,"),
    (
        "a poll without a position does not report an entry that cannot be read",
        "return {'gone', unread}",
        "return {'gone'}",
    ),
    ("a client with an unreadable entry is skipped when it polls", "and not is_mine and not", "and not"),
    (
        "a call that finds only unreadable entries reports that more are left",
        "if kept == CAP then return 'unreadable', unread, shared end",
        "",
    ),
    (
        "a claim overtakes a queue that it cannot read",
        "if turn == 'more' or turn == 'unreadable' then",
        "if turn == 'more' then",
    ),
    ("fields of a later version are written to the lock", "([^\\t]*)(.*)'", "(.*)(.?)'"),
    ("an entry is granted to another holder", "not is_holder(value, id) then", "not value then"),
    ("an entry may request a TTL of zero", "'^([1-9]%d*) ", "'^(%d+) "),
    ("an entry may request no token", " ([1-9]%d*) (%S+)", " (%d+) (%S+)"),
    ("an entry has no version", "mine.mode == 'x' and '\\t1' or", "mine.mode == 'x' and '' or"),
    ("a message has no version", "'1 ' .. run_id ..", "run_id .."),
    ("the key of a message does not follow a tab", "'\\t' .. KEYS[1]", "' ' .. KEYS[1]"),
    (
        "an eviction removes a lock of a later version",
        "if string.sub(value, 1, 10) == 'fencelock:' then return {0, 0} end",
        "",
    ),
    ("a claim accepts a marker that it cannot read", "if marker[4] and marker[4] ~= '1' then", "if false then"),
    (
        "a handshake overwrites a marker that it cannot read",
        "if marker[5] and marker[5] ~= '1' then return {'version', marker[5]} end\nlocal epoch, till, quorum, nodes",
        "local epoch, till, quorum, nodes",
    ),
    (
        "an init overwrites a marker that it cannot read",
        "if marker[5] and marker[5] ~= '1' then return {'version', marker[5]} end\nlocal epoch, till, span",
        "local epoch, till, span",
    ),
    ("a marker is written without its version", "'version', '1', ", ""),
    (
        "every claim is a fast claim",
        "local wanted = not ARGV[5] and tonumber(ARGV[3])",
        "local wanted = tonumber(ARGV[9] or ARGV[3])",
    ),
    ("a fast claim does not check whether the server may grant", "if marker and open then", "if false then"),
    (
        "a fast claim takes a lock that is held",
        "redis.pcall('EXISTS', KEYS[1], KEYS[3])",
        "redis.pcall('EXISTS', KEYS[3])",
    ),
    ("a fast claim overtakes the queue", "redis.pcall('EXISTS', KEYS[1], KEYS[3])", "redis.pcall('EXISTS', KEYS[1])"),
    ("a fast fence may be at or below the last one", "and previous + 1 <= now then", "then"),
    ("a fast fence expires after an hour", "last, 'PX', '86400000'", "last, 'PX', '3600000'"),
    (
        "the first block of a fast claim has more than one token",
        "previous == 0 and 1 or math.min(wanted, now",
        "math.min(wanted, now",
    ),
    ("a fast block overlaps the previous one", "math.min(wanted, now - previous)", "wanted"),
    ("a fast block has one token", "math.min(wanted, now - previous)", "1"),
    ("a fast claim always reports all tokens", "if count == wanted then", "if true then"),
    ("a fence that is used up is forgotten", "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)\n    error", "error"),
    ("a fast release frees the lock of any holder", "'0', '32') == ARGV[1] and", "'0', '32') ~= '' and"),
    (
        "a fast path accepts a longer holder id",
        "'0', '32') == ARGV[1] and",
        "'0', '31') == string.sub(ARGV[1], 1, 32) and",
    ),
    (
        "a fast renewal accepts a longer holder id",
        "if value == ARGV[1] .. ' ' and",
        "if value and string.sub(value, 1, 32) == ARGV[1] and",
    ),
    ("a fast release serves no waiter", "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n  return", "then\n  return"),
    (
        "a release without waiters checks whether the server may grant",
        "(tolerant('ZCARD', KEYS[3]) or 0) > 0 and not",
        "not",
    ),
    ("the names of keys are derived for others", "name .. 'holds', name .. 'held'", "name .. 'held', name .. 'holds'"),
    (
        "a fast renewal ignores waiters",
        "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n    local left",
        "then\n    local left",
    ),
    (
        "a fast renewal does not cut a lease that a clock change has extended",
        "if left <= math.max(ttl, tonumber(ARGV[3])) + 1000 then",
        "if true then",
    ),
    ("a fast renewal shortens the lease", "left > ttl and string.format('%.0f', left) or ARGV[2]", "ARGV[2]"),
    ("a fast renewal does not extend the fence", "redis.call('PEXPIRE', KEYS[2], '86400000')", ""),
];

#[test]
fn every_mutant_of_a_script_is_detected() {
    find_all(MUTANTS);
}

/// Runs sequences until each of these mutants differs from the model.
pub(super) fn find_all(mutants: Mutants) {
    let Some(mut real) = Real::start(START_US) else { return };
    find_each(mutants, &super::sent::sources(), |mutant| {
        let rare = traces::find(&mut real, Some(mutant));
        let find = |seed| {
            let found = differential::play(&mut real, seed, SIZE, Some(mutant), &mut Coverage::default()).err();
            found.map(|(trace, difference)| (trace, difference, differential::cap(seed)))
        };
        let (trace, difference, cap) = rare.or_else(|| (1000..1000 + BATCHES).find_map(find))?;
        // The keys are independent, so the trace of one shows the difference without the others.
        let difference = run_alone(&mut real, &trace, Some(mutant), cap)
            .unwrap_or_else(|| panic!("no difference in the trace alone: {difference:?}"));
        Some(format!("a trace of {} steps; it differs in {}", trace.len(), difference.what))
    });
}

/// Runs one trace alone on the server.
fn run_alone(real: &mut Real, trace: &[Step], mutant: Option<Mutant>, cap: usize) -> Option<Difference> {
    let mut differential = Differential::new(real, mutant, 1, cap);
    trace.iter().find_map(|step| differential.round(std::slice::from_ref(step), &mut Coverage::default()).err())
}

/// Calls `find` with each mutant of these scripts, which must detect it and say how.
pub(super) fn find_each<S: AsRef<str>>(
    mutants: Mutants,
    scripts: &[S],
    mut find: impl FnMut(Mutant) -> Option<String>,
) {
    let mut missed = Vec::new();
    for &(name, from, to) in mutants {
        assert!(scripts.iter().any(|script| script.as_ref().contains(from)), "{name}: no script has {from:?}");
        match find(Mutant { from, to }) {
            Some(found) => println!("{name}: {found}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:#?}");
}
