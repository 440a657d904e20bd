//! Mutants of the scripts. Each must be detected in few sequences.

use super::coverage::Coverage;
use super::differential::{self, START_US};
use super::real::Real;
use super::sent::Mutant;
use super::shrink::run_alone;
use super::traces;

/// The number of sequences in a batch, and the maximum number of batches.
const SIZE: (usize, usize) = (50, 30);
const BATCHES: u64 = 20;

const MUTANTS: &[(&str, Mutant)] = &[
    (
        "a proposal is not clamped",
        Mutant { from: "last = math.max(now - CLAMP, math.min(last, now + CLAMP))", to: "last = last" },
    ),
    ("the clamp is a microsecond wider", Mutant { from: "local CLAMP = 1000000", to: "local CLAMP = 1000001" }),
    (
        "a proposed fence may be at or below the last one",
        Mutant { from: "last = math.max(last, previous + count)", to: "last = last" },
    ),
    ("a fence may be at or below the last one", Mutant { from: "math.max(now, previous + 1), 1", to: "now, 1" }),
    ("a fence exceeds 2^53", Mutant { from: "if last > FENCE_MAX then", to: "if false then" }),
    ("every client proposes a fence", Mutant { from: "  if proposed then", to: "  if true then" }),
    ("a node of a quorum ignores proposals", Mutant { from: "  if proposed then", to: "  if false then" }),
    (
        "a block ends after the server's time",
        Mutant { from: "math.max(now, previous + 1), 1", to: "math.max(now, previous + wanted), 1" },
    ),
    (
        "the first block of a server has more than one token",
        Mutant { from: "  elseif previous > 0 then", to: "  else" },
    ),
    ("a block overlaps the previous one", Mutant { from: "math.min(wanted, last - previous)", to: "wanted" }),
    ("a block has one token at most", Mutant { from: "count = math.min(wanted, last - previous)", to: "count = 1" }),
    (
        "a proposed block may end at any later time",
        Mutant { from: "math.min(now + CLAMP, FENCE_MAX) - previous", to: "FENCE_MAX - previous" },
    ),
    (
        "a proposed block that does not fit fills the room",
        Mutant { from: "while count * 2 <= room do count = count * 2 end", to: "count = room" },
    ),
    (
        "a proposed block may begin at any earlier time",
        Mutant { from: "math.min(count, last - (now - CLAMP) + 1)", to: "count" },
    ),
    (
        "a proposed block overlaps the previous one",
        Mutant { from: "math.max(last, previous + count)", to: "math.max(last, previous + 1)" },
    ),
    ("a fence expires after an hour", Mutant { from: "FENCE_TTL = 86400000", to: "FENCE_TTL = 3600000" }),
    (
        "a value with the prefix of the holder id belongs to the holder",
        Mutant { from: " and (#value == 32 or string.sub(value, 33, 33) == ' ')", to: "" },
    ),
    ("a dead waiter gets the lock", Mutant { from: "if alive and alive * 1000 > now then", to: "if alive then" }),
    (
        "a waiter is alive in the microsecond of its end",
        Mutant { from: "alive * 1000 > now", to: "alive * 1000 >= now" },
    ),
    (
        "a waiter without a subscription gets the lock",
        Mutant { from: "or readers > 0 then", to: "or readers >= 0 then" },
    ),
    (
        "a hand-off lasts for the TTL of the waiter",
        Mutant { from: "math.min(tonumber(ttl), tonumber(claim_ttl))", to: "tonumber(ttl)" },
    ),
    (
        "an advance leaves the entry of the waiter",
        Mutant { from: "tolerant('HDEL', KEYS[4], id)\n  tolerant", to: "tolerant" },
    ),
    (
        "an advance skips the client that polls",
        Mutant { from: "if is_mine then return 'mine', unread, shared end", to: "" },
    ),
    ("an advance leaves the end of life of the waiter", Mutant { from: "  tolerant('ZREM', KEYS[5], id)\n", to: "" }),
    (
        "an advance does not report that more waiters are left",
        Mutant { from: "> kept and 'more' or 'nobody'", to: "> kept and 'nobody' or 'nobody'" },
    ),
    ("an advance skips one waiter too many", Mutant { from: "while passed < CAP do", to: "while passed <= CAP do" }),
    (
        "a claim takes a lock although dead waiters are left",
        Mutant { from: "if turn == 'more' or turn == 'unreadable' then", to: "if turn == 'unreadable' then" },
    ),
    ("a poll purges the client that polls", Mutant { from: "if dead[i] == me then table.remove(dead, i) end", to: "" }),
    (
        "a poll purges live waiters",
        Mutant { from: "'-inf', string.format('%.0f', now_ms), 'LIMIT'", to: "'-inf', '+inf', 'LIMIT'" },
    ),
    ("a poll purges no waiter", Mutant { from: "if #dead == 0 then return 0 end", to: "if true then return 0 end" }),
    ("a purge leaves the position in the queue", Mutant { from: "redis.call('ZREM', KEYS[3], unpack(dead))", to: "" }),
    ("a purge leaves the entry of the waiter", Mutant { from: "redis.call('HDEL', KEYS[4], unpack(dead))", to: "" }),
    (
        "dead waiters are counted",
        Mutant {
            from: "return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting",
            to: "return waiting",
        },
    ),
    ("a claim overtakes the queue", Mutant { from: "if turn == 'given' then", to: "if false then" }),
    ("a duplicate claim extends the lease", Mutant { from: "if intent ~= 'poll' then return {'yours'} end", to: "" }),
    (
        "a poll shortens the lease",
        Mutant { from: "if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then", to: "if true then" },
    ),
    ("a renewal shortens the lease", Mutant { from: "math.max(left, ttl)", to: "ttl" }),
    ("a renewal ignores the lease that the holder assumes", Mutant { from: "math.max(ttl, assumed)", to: "ttl" }),
    (
        "a renewal does not cut a lease that a clock change has extended",
        Mutant { from: "if left > longest + SLACK then left = longest end", to: "" },
    ),
    ("a renewal does not extend the fence", Mutant { from: "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)", to: "" }),
    (
        "a renewal creates the lock",
        Mutant {
            from: "if not value then return {'absent'} end",
            to: "if not value then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) value = ARGV[1] end",
        },
    ),
    (
        "a renewal extends the lock of any holder",
        Mutant { from: "elseif is_holder(value, ARGV[1]) then\n  left", to: "else\n  left" },
    ),
    (
        "a raise ignores the holder of the lock",
        Mutant { from: "if is_holder(value, ARGV[1]) then\n  granted", to: "if value and not shared then\n  granted" },
    ),
    (
        "a raise below the granted token succeeds",
        Mutant { from: "if not granted or tonumber(granted) > tonumber(ARGV[2]) then", to: "if not granted then" },
    ),
    (
        "a raise refuses an equal fence",
        Mutant { from: "tonumber(granted) > tonumber(ARGV[2])", to: "tonumber(granted) >= tonumber(ARGV[2])" },
    ),
    (
        "a release frees the lock of any holder",
        Mutant {
            from: "if is_holder(value, ARGV[1]) then\n  redis.call('DEL'",
            to: "if value then\n  redis.call('DEL'",
        },
    ),
    (
        "a release serves no waiter",
        Mutant { from: "turn, unread = advance(nil, ARGV[2], ARGV[3], ARGV[4], shared) end", to: "end" },
    ),
    (
        "a waiter that gives up stays in the queue",
        Mutant { from: "if answer == 'absent' then leave(ARGV[1]) end", to: "" },
    ),
    (
        "a waiter that polls goes to the end of the queue",
        Mutant {
            from: "if not ahead then\n  local last",
            to: "if not ahead or intent == 'enqueue' then\n  local last",
        },
    ),
    (
        "an eviction removes any value",
        Mutant { from: "elseif value ~= ARGV[1] or kind then", to: "elseif not value or kind then" },
    ),
    (
        "an eviction removes a key of another type",
        Mutant { from: "elseif value ~= ARGV[1] or kind then", to: "elseif value ~= ARGV[1] then" },
    ),
    ("an eviction removes a value without a fence", Mutant { from: "if fence() == 0 then return {0, 0} end", to: "" }),
    (
        "an eviction ignores whether a foreign lock expires",
        Mutant { from: "elseif ends ~= (ARGV[2] == 'foreign') then", to: "elseif false then" },
    ),
    (
        "a claim does not check whether the server may grant",
        Mutant { from: "if refused then return refused end", to: "" },
    ),
    (
        "a raise does not check whether the server may grant",
        Mutant { from: "if refusal(ARGV[3], ARGV[4]) then return 0 end", to: "" },
    ),
    ("a release hands over during a quarantine", Mutant { from: "and not refusal(ARGV[4], ARGV[5])\n", to: "\n" }),
    (
        "an eviction hands over during a quarantine",
        Mutant { from: "if not refusal(ARGV[5], ARGV[6]) then", to: "if true then" },
    ),
    (
        "a quarantine ends a millisecond early",
        Mutant { from: "if rest > 0 then return {'quarantined'", to: "if rest > 1 then return {'quarantined'" },
    ),
    (
        "a quarantine ends a millisecond late",
        Mutant { from: "if rest > 0 then return {'quarantined'", to: "if rest >= 0 then return {'quarantined'" },
    ),
    (
        "a quarantine is checked with the rounded-up clock",
        Mutant {
            from: "(time[1] * 1000 + math.floor(time[2] / 1000))",
            to: "(time[1] * 1000 + math.ceil(time[2] / 1000))",
        },
    ),
    (
        "a handshake begins with the rounded-down clock",
        Mutant { from: "math.ceil(time[2] / 1000)", to: "math.floor(time[2] / 1000)" },
    ),
    ("a claim accepts any run", Mutant { from: "if marker[1] ~= epoch or not till", to: "if not till" }),
    ("a claim accepts any set", Mutant { from: "if marker[3] ~= quorum then return", to: "if false then return" }),
    ("a handshake overwrites another set", Mutant { from: " and (not quorum or quorum == ARGV[3]) then", to: " then" }),
    ("a handshake trusts any run", Mutant { from: "if (epoch ~= ARGV[1] or not till) and", to: "if not till and" }),
    (
        "a handshake trusts a server without the option",
        Mutant { from: "till = ARGV[5] == 'trust' and 0 or now + ARGV[2]", to: "till = 0" },
    ),
    (
        "an init ignores that the server is new",
        Mutant { from: "elseif found == 'new' or ARGV[6] == 'join' then", to: "elseif ARGV[6] == 'join' then" },
    ),
    (
        "an init ignores that the server joins",
        Mutant { from: "found == 'new' or ARGV[6] == 'join'", to: "found == 'new'" },
    ),
    (
        "a server that may have lost locks reports a lock as free",
        Mutant { from: "return refusal(ARGV[1], ARGV[2]) or false", to: "return false" },
    ),
    ("an init does not extend a quarantine", Mutant { from: "till = till + wanted - span", to: "till = till" }),
    ("an init ignores the longer span", Mutant { from: "math.max(span, tonumber(ARGV[2]))", to: "tonumber(ARGV[2])" }),
    ("the queue outlives its entries", Mutant { from: "redis.call('PEXPIRE', KEYS[4], LINE_TTL)", to: "" }),
    ("the queue outlives its waiters", Mutant { from: "redis.call('PEXPIRE', KEYS[5], LINE_TTL)", to: "" }),
    (
        "an entry that cannot be read is dropped",
        Mutant {
            from: "if entry and not is_mine and not is_holder(value, id) then",
            to: "entry = is_holder(value, id) and entry if false then",
        },
    ),
    (
        "an entry that cannot be read stops the queue",
        Mutant { from: "kept = kept + 1", to: "if true then return 'unreadable', unread end" },
    ),
    ("an entry that cannot be read is not reported", Mutant { from: "unread = unread or {id,", to: "local _ = {id," }),
    (
        "a poll without a position does not report an entry that cannot be read",
        Mutant { from: "return {'gone', unread}", to: "return {'gone'}" },
    ),
    (
        "a client with an unreadable entry is skipped when it polls",
        Mutant { from: "and not is_mine and not", to: "and not" },
    ),
    (
        "a call that finds only unreadable entries reports that more are left",
        Mutant { from: "if kept == CAP then return 'unreadable', unread, shared end", to: "" },
    ),
    (
        "a claim overtakes a queue that it cannot read",
        Mutant { from: "if turn == 'more' or turn == 'unreadable' then", to: "if turn == 'more' then" },
    ),
    ("fields of a later version are written to the lock", Mutant { from: "([^\\t]*)(.*)'", to: "(.*)(.?)'" }),
    ("an entry is granted to another holder", Mutant { from: "not is_holder(value, id) then", to: "not value then" }),
    ("an entry may request a TTL of zero", Mutant { from: "'^([1-9]%d*) ", to: "'^(%d+) " }),
    ("an entry may request no token", Mutant { from: " ([1-9]%d*) (%S+)", to: " (%d+) (%S+)" }),
    ("an entry has no version", Mutant { from: "mine.mode == 'x' and '\\t1' or", to: "mine.mode == 'x' and '' or" }),
    ("a message has no version", Mutant { from: "'1 ' .. run_id ..", to: "run_id .." }),
    ("the key of a message does not follow a tab", Mutant { from: "'\\t' .. KEYS[1]", to: "' ' .. KEYS[1]" }),
    (
        "an eviction removes a lock of a later version",
        Mutant { from: "if string.sub(value, 1, 10) == 'fencelock:' then return {0, 0} end", to: "" },
    ),
    (
        "a claim accepts a marker that it cannot read",
        Mutant { from: "if marker[4] and marker[4] ~= '1' then", to: "if false then" },
    ),
    ("a claim refuses a marker of version 0", Mutant { from: "if marker[4] and marker[4] ~=", to: "if marker[4] ~=" }),
    (
        "a handshake overwrites a marker that it cannot read",
        Mutant {
            from: "if marker[5] and marker[5] ~= '1' then return {'version', marker[5]} end\nlocal epoch, till, quorum, nodes",
            to: "local epoch, till, quorum, nodes",
        },
    ),
    (
        "an init overwrites a marker that it cannot read",
        Mutant {
            from: "if marker[5] and marker[5] ~= '1' then return {'version', marker[5]} end\nlocal epoch, till, span",
            to: "local epoch, till, span",
        },
    ),
    ("a marker is written without its version", Mutant { from: "'version', '1', ", to: "" }),
    (
        "every claim is a fast claim",
        Mutant {
            from: "local wanted = not ARGV[5] and tonumber(ARGV[3])",
            to: "local wanted = tonumber(ARGV[9] or ARGV[3])",
        },
    ),
    (
        "a fast claim does not check whether the server may grant",
        Mutant { from: "if marker and open then", to: "if false then" },
    ),
    (
        "a fast claim takes a lock that is held",
        Mutant { from: "redis.pcall('EXISTS', KEYS[1], KEYS[3])", to: "redis.pcall('EXISTS', KEYS[3])" },
    ),
    (
        "a fast claim overtakes the queue",
        Mutant { from: "redis.pcall('EXISTS', KEYS[1], KEYS[3])", to: "redis.pcall('EXISTS', KEYS[1])" },
    ),
    ("a fast fence may be at or below the last one", Mutant { from: "and previous + 1 <= now then", to: "then" }),
    ("a fast fence expires after an hour", Mutant { from: "last, 'PX', '86400000'", to: "last, 'PX', '3600000'" }),
    (
        "the first block of a fast claim has more than one token",
        Mutant { from: "previous == 0 and 1 or math.min(wanted, now", to: "math.min(wanted, now" },
    ),
    ("a fast block overlaps the previous one", Mutant { from: "math.min(wanted, now - previous)", to: "wanted" }),
    ("a fast block has one token", Mutant { from: "math.min(wanted, now - previous)", to: "1" }),
    ("a fast claim always reports all tokens", Mutant { from: "if count == wanted then", to: "if true then" }),
    (
        "a fence that is used up is forgotten",
        Mutant { from: "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)\n    error", to: "error" },
    ),
    (
        "a fast release frees the lock of any holder",
        Mutant { from: "'0', '32') == ARGV[1] and", to: "'0', '32') ~= '' and" },
    ),
    (
        "a fast path accepts a longer holder id",
        Mutant { from: "'0', '32') == ARGV[1] and", to: "'0', '31') == string.sub(ARGV[1], 1, 32) and" },
    ),
    (
        "a fast renewal accepts a longer holder id",
        Mutant { from: "if value == ARGV[1] .. ' ' and", to: "if value and string.sub(value, 1, 32) == ARGV[1] and" },
    ),
    (
        "a fast release serves no waiter",
        Mutant { from: "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n  return", to: "then\n  return" },
    ),
    (
        "a release without waiters checks whether the server may grant",
        Mutant { from: "(tolerant('ZCARD', KEYS[3]) or 0) > 0 and not", to: "not" },
    ),
    (
        "the names of keys are derived for others",
        Mutant { from: "name .. 'holds', name .. 'held'", to: "name .. 'held', name .. 'holds'" },
    ),
    (
        "a fast renewal ignores waiters",
        Mutant { from: "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n    local left", to: "then\n    local left" },
    ),
    (
        "a fast renewal does not cut a lease that a clock change has extended",
        Mutant { from: "if left <= math.max(ttl, tonumber(ARGV[3])) + 1000 then", to: "if true then" },
    ),
    (
        "a fast renewal shortens the lease",
        Mutant { from: "left > ttl and string.format('%.0f', left) or ARGV[2]", to: "ARGV[2]" },
    ),
    ("a fast renewal does not extend the fence", Mutant { from: "redis.call('PEXPIRE', KEYS[2], '86400000')", to: "" }),
];

#[test]
fn every_mutant_of_a_script_is_detected() {
    find_all(MUTANTS);
}

/// Runs sequences until each of these mutants differs from the model.
pub(super) fn find_all(mutants: &[(&str, Mutant)]) {
    let Some(mut real) = Real::start(START_US) else { return };
    let sources = super::sent::sources();
    let mut missed = Vec::new();
    for (name, mutant) in mutants {
        assert!(sources.iter().any(|source| source.contains(mutant.from)), "{name}: no script has {:?}", mutant.from);
        let rare = traces::find(&mut real, Some(*mutant));
        let find = |seed| {
            let found = differential::play(&mut real, seed, SIZE, Some(*mutant), &mut Coverage::default()).err();
            found.map(|(trace, difference)| (trace, difference, differential::cap(seed)))
        };
        let Some((trace, difference, cap)) = rare.or_else(|| (1000..1000 + BATCHES).find_map(find)) else {
            missed.push(name);
            continue;
        };
        // The keys are independent, so the trace of one shows the difference without the others.
        let difference = run_alone(&mut real, &trace, Some(*mutant), cap)
            .unwrap_or_else(|| panic!("{name}: no difference in the trace alone: {difference:?}"));
        println!("{name}: a trace of {} steps; it differs in {}", trace.len(), difference.what);
    }
    assert!(missed.is_empty(), "not detected in {} sequences: {missed:#?}", BATCHES * SIZE.0 as u64);
}
