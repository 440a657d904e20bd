//! Scripts that are wrong in one place. Each must be found, and soon.

use super::coverage::Coverage;
use super::differential::{self, START_US};
use super::real::Real;
use super::sent::Mutant;
use super::shrink::tell;
use super::traces;

/// A batch of so many sequences, so many times at most.
const SIZE: (usize, usize) = (50, 30);
const BATCHES: u64 = 20;

const MUTANTS: &[(&str, Mutant)] = &[
    (
        "a proposal is not clamped",
        Mutant { from: "last = math.max(now - CLAMP, math.min(last, now + CLAMP))", to: "last = last" },
    ),
    ("the clamp is a microsecond wider", Mutant { from: "local CLAMP = 1000000", to: "local CLAMP = 1000001" }),
    (
        "a proposed fence need not be above the last",
        Mutant { from: "last = math.max(last, previous + count)", to: "last = last" },
    ),
    ("a fence need not be above the last", Mutant { from: "math.max(now, previous + 1), 1", to: "now, 1" }),
    ("a fence goes beyond 2^53", Mutant { from: "if last > FENCE_MAX then", to: "if false then" }),
    ("every client proposes a fence", Mutant { from: "  if proposed then", to: "  if true then" }),
    ("a node of a quorum takes no proposals", Mutant { from: "  if proposed then", to: "  if false then" }),
    (
        "a block reaches ahead of the server's time",
        Mutant { from: "math.max(now, previous + 1), 1", to: "math.max(now, previous + wanted), 1" },
    ),
    ("a server that remembers no token reaches down", Mutant { from: "  elseif previous > 0 then", to: "  else" }),
    ("a block begins in the one before", Mutant { from: "math.min(wanted, last - previous)", to: "wanted" }),
    ("a block has one token at most", Mutant { from: "count = math.min(wanted, last - previous)", to: "count = 1" }),
    (
        "a proposed block reaches as far ahead as it likes",
        Mutant { from: "math.min(now + CLAMP, FENCE_MAX) - previous", to: "FENCE_MAX - previous" },
    ),
    (
        "a proposed block reaches as far back as it likes",
        Mutant { from: "math.min(count, last - (now - CLAMP) + 1)", to: "count" },
    ),
    (
        "a proposed block begins in the one before",
        Mutant { from: "math.max(last, previous + count)", to: "math.max(last, previous + 1)" },
    ),
    ("a fence is forgotten after an hour", Mutant { from: "FENCE_TTL = 86400000", to: "FENCE_TTL = 3600000" }),
    (
        "any value that begins like the holder is the holder's",
        Mutant { from: " and (#value == 32 or string.sub(value, 33, 33) == ' ')", to: "" },
    ),
    ("a dead waiter gets the lock", Mutant { from: "if alive and alive * 1000 > now then", to: "if alive then" }),
    ("a waiter lives to the microsecond of its end", Mutant { from: "alive * 1000 > now", to: "alive * 1000 >= now" }),
    (
        "a waiter without a subscription gets the lock",
        Mutant { from: "or readers > 0 then", to: "or readers >= 0 then" },
    ),
    (
        "a hand-off lasts as long as the waiter wants",
        Mutant { from: "math.min(tonumber(ttl), tonumber(claim_ttl))", to: "tonumber(ttl)" },
    ),
    (
        "an advance leaves what is known of the waiter",
        Mutant { from: "tolerant('HDEL', KEYS[4], id)\n  tolerant", to: "tolerant" },
    ),
    (
        "an advance passes over who asks for it",
        Mutant { from: "if is_mine then return 'mine', unread, shared end", to: "" },
    ),
    ("an advance leaves until when the waiter is alive", Mutant { from: "  tolerant('ZREM', KEYS[5], id)\n", to: "" }),
    (
        "an advance says not that there are more",
        Mutant { from: "> kept and 'more' or 'nobody'", to: "> kept and 'nobody' or 'nobody'" },
    ),
    (
        "an advance passes over one waiter too many",
        Mutant { from: "while passed < CAP do", to: "while passed <= CAP do" },
    ),
    (
        "a claim takes a lock although dead waiters are left",
        Mutant { from: "if turn == 'more' or turn == 'unreadable' then", to: "if turn == 'unreadable' then" },
    ),
    ("a poll purges who asks", Mutant { from: "if dead[i] == me then table.remove(dead, i) end", to: "" }),
    (
        "a poll purges the living",
        Mutant { from: "'-inf', string.format('%.0f', now_ms), 'LIMIT'", to: "'-inf', '+inf', 'LIMIT'" },
    ),
    ("a poll purges no waiter", Mutant { from: "if #dead == 0 then return 0 end", to: "if true then return 0 end" }),
    ("a purge leaves the place in line", Mutant { from: "redis.call('ZREM', KEYS[3], unpack(dead))", to: "" }),
    (
        "a purge leaves what is known of the waiter",
        Mutant { from: "redis.call('HDEL', KEYS[4], unpack(dead))", to: "" },
    ),
    (
        "the dead are counted",
        Mutant {
            from: "return tolerant('ZCOUNT', KEYS[5], string.format('(%.0f', now_ms), '+inf') or waiting",
            to: "return waiting",
        },
    ),
    ("a claim barges past the line", Mutant { from: "if turn == 'given' then", to: "if false then" }),
    (
        "a claim that arrives twice gets more time",
        Mutant { from: "if intent ~= 'poll' then return {'yours'} end", to: "" },
    ),
    ("a poll shortens", Mutant { from: "if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then", to: "if true then" }),
    ("a renewal shortens", Mutant { from: "math.max(left, ttl)", to: "ttl" }),
    ("a renewal goes by its own TTL alone", Mutant { from: "math.max(ttl, told)", to: "ttl" }),
    (
        "a renewal leaves a lease that a clock has made long",
        Mutant { from: "if left > longest + SLACK then left = longest end", to: "" },
    ),
    ("a renewal lets the fence go", Mutant { from: "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)", to: "" }),
    (
        "a renewal creates",
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
        "a raise asks not who has the lock",
        Mutant { from: "if is_holder(value, ARGV[1]) then\n  granted", to: "if value and not shared then\n  granted" },
    ),
    (
        "a raise is acked below the own grant",
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
    ("who gives up stays in line", Mutant { from: "if answer == 'absent' then leave(ARGV[1]) end", to: "" }),
    (
        "who asks again goes to the end of the line",
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
        "an eviction hits what is no string",
        Mutant { from: "elseif value ~= ARGV[1] or kind then", to: "elseif value ~= ARGV[1] then" },
    ),
    ("an eviction takes what has no fence for ours", Mutant { from: "if fence() == 0 then return {0, 0} end", to: "" }),
    (
        "an eviction asks not whether a foreign lock ends",
        Mutant { from: "elseif ends ~= (ARGV[2] == 'foreign') then", to: "elseif false then" },
    ),
    ("a claim asks not whether the server may grant", Mutant { from: "if refused then return refused end", to: "" }),
    (
        "a raise asks not whether the server may grant",
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
        "a quarantine is seen by the rounded-up clock",
        Mutant {
            from: "(time[1] * 1000 + math.floor(time[2] / 1000))",
            to: "(time[1] * 1000 + math.ceil(time[2] / 1000))",
        },
    ),
    (
        "a handshake begins with the rounded-down clock",
        Mutant { from: "math.ceil(time[2] / 1000)", to: "math.floor(time[2] / 1000)" },
    ),
    ("a claim is good for any run", Mutant { from: "if marker[1] ~= epoch or not till", to: "if not till" }),
    ("a claim is good for any set", Mutant { from: "if marker[3] ~= quorum then return", to: "if false then return" }),
    ("a handshake overwrites another set", Mutant { from: " and (not quorum or quorum == ARGV[3]) then", to: " then" }),
    ("a handshake trusts any run", Mutant { from: "if (epoch ~= ARGV[1] or not till) and", to: "if not till and" }),
    (
        "a handshake trusts who does not ask for it",
        Mutant { from: "till = ARGV[5] == 'trust' and 0 or now + ARGV[2]", to: "till = 0" },
    ),
    (
        "an init forgets that the server is new",
        Mutant { from: "elseif found == 'new' or ARGV[6] == 'join' then", to: "elseif ARGV[6] == 'join' then" },
    ),
    (
        "an init forgets that the server joins",
        Mutant { from: "found == 'new' or ARGV[6] == 'join'", to: "found == 'new'" },
    ),
    (
        "a server that may have forgotten calls a lock free",
        Mutant { from: "return refusal(ARGV[1], ARGV[2]) or false", to: "return false" },
    ),
    ("an init leaves a quarantine short", Mutant { from: "till = till + wanted - span", to: "till = till" }),
    ("an init forgets the longer span", Mutant { from: "math.max(span, tonumber(ARGV[2]))", to: "tonumber(ARGV[2])" }),
    (
        "a line lives longer than what is known of it",
        Mutant { from: "redis.call('PEXPIRE', KEYS[4], LINE_TTL)", to: "" },
    ),
    ("a line lives longer than those in it", Mutant { from: "redis.call('PEXPIRE', KEYS[5], LINE_TTL)", to: "" }),
    (
        "an entry that cannot be read is dropped",
        Mutant {
            from: "if entry and not is_mine and not is_holder(value, id) then",
            to: "entry = is_holder(value, id) and entry if false then",
        },
    ),
    (
        "an entry that cannot be read stops the line",
        Mutant { from: "kept = kept + 1", to: "if true then return 'unreadable', unread end" },
    ),
    ("an entry that cannot be read is not reported", Mutant { from: "unread = unread or {id,", to: "local _ = {id," }),
    (
        "a client with an unreadable entry is passed over when it asks",
        Mutant { from: "and not is_mine and not", to: "and not" },
    ),
    (
        "a call that looks at unreadable entries alone says that there are more",
        Mutant { from: "if kept == CAP then return 'unreadable', unread, shared end", to: "" },
    ),
    (
        "a claim takes a lock past a line that it cannot read",
        Mutant { from: "if turn == 'more' or turn == 'unreadable' then", to: "if turn == 'more' then" },
    ),
    (
        "what a later version adds to an entry is written into the key",
        Mutant { from: "([^\\t]*)(.*)'", to: "(.*)(.?)'" },
    ),
    (
        "an entry is granted to another holder than its own",
        Mutant { from: "not is_holder(value, id) then", to: "not value then" },
    ),
    ("an entry asks for nothing", Mutant { from: "'^([1-9]%d*) ", to: "'^(%d+) " }),
    ("an entry asks for no token", Mutant { from: " ([1-9]%d*) (%S+)", to: " (%d+) (%S+)" }),
    ("an entry names no version", Mutant { from: "mine.mode == 'x' and '\\t1' or", to: "mine.mode == 'x' and '' or" }),
    ("a message names no version", Mutant { from: "'1 ' .. run_id ..", to: "run_id .." }),
    ("the key of a message follows no tab", Mutant { from: "'\\t' .. KEYS[1]", to: "' ' .. KEYS[1]" }),
    (
        "an eviction ends what a later version has",
        Mutant { from: "if string.sub(value, 1, 10) == 'fencelock:' then return {0, 0} end", to: "" },
    ),
    (
        "a claim goes by a marker that it cannot read",
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
        "a fast claim needs nothing to be common",
        Mutant {
            from: "local wanted = not ARGV[5] and tonumber(ARGV[3])",
            to: "local wanted = tonumber(ARGV[9] or ARGV[3])",
        },
    ),
    (
        "a fast claim asks not whether the server may grant",
        Mutant { from: "if marker and open then", to: "if false then" },
    ),
    (
        "a fast claim takes a lock that is held",
        Mutant { from: "redis.pcall('EXISTS', KEYS[1], KEYS[3])", to: "redis.pcall('EXISTS', KEYS[3])" },
    ),
    (
        "a fast claim barges past the line",
        Mutant { from: "redis.pcall('EXISTS', KEYS[1], KEYS[3])", to: "redis.pcall('EXISTS', KEYS[1])" },
    ),
    ("a fast fence need not be above the last", Mutant { from: "and previous + 1 <= now then", to: "then" }),
    ("a fast fence is forgotten after an hour", Mutant { from: "last, 'PX', '86400000'", to: "last, 'PX', '3600000'" }),
    (
        "a fast claim that remembers no token reaches down",
        Mutant { from: "previous == 0 and 1 or math.min(wanted, now", to: "math.min(wanted, now" },
    ),
    ("a fast block begins in the one before", Mutant { from: "math.min(wanted, now - previous)", to: "wanted" }),
    ("a fast block has one token", Mutant { from: "math.min(wanted, now - previous)", to: "1" }),
    ("a fast claim says always that it has all tokens", Mutant { from: "if count == wanted then", to: "if true then" }),
    (
        "a fence that is used up is forgotten",
        Mutant { from: "redis.call('PEXPIRE', KEYS[2], FENCE_TTL)\n    error", to: "error" },
    ),
    (
        "a fast release frees the lock of any holder",
        Mutant { from: "'0', '32') == ARGV[1] and", to: "'0', '32') ~= '' and" },
    ),
    (
        "a fast path takes a longer word for the holder",
        Mutant { from: "'0', '32') == ARGV[1] and", to: "'0', '31') == string.sub(ARGV[1], 1, 32) and" },
    ),
    (
        "a fast renewal takes a longer word for the holder",
        Mutant { from: "if value == ARGV[1] .. ' ' and", to: "if value and string.sub(value, 1, 32) == ARGV[1] and" },
    ),
    (
        "a fast release serves no waiter",
        Mutant { from: "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n  return", to: "then\n  return" },
    ),
    (
        "a release without waiters asks whether the server may grant",
        Mutant { from: "(tolerant('ZCARD', KEYS[3]) or 0) > 0 and not", to: "not" },
    ),
    (
        "the names of keys are derived for others",
        Mutant { from: "name .. 'holds', name .. 'held'", to: "name .. 'held', name .. 'holds'" },
    ),
    (
        "a fast renewal counts no waiters",
        Mutant { from: "and redis.pcall('ZCARD', KEYS[3]) == 0 then\n    local left", to: "then\n    local left" },
    ),
    (
        "a fast renewal leaves a lease that a clock has made long",
        Mutant { from: "if left <= math.max(ttl, tonumber(ARGV[3])) + 1000 then", to: "if true then" },
    ),
    (
        "a fast renewal shortens",
        Mutant { from: "left > ttl and string.format('%.0f', left) or ARGV[2]", to: "ARGV[2]" },
    ),
    ("a fast renewal lets the fence go", Mutant { from: "redis.call('PEXPIRE', KEYS[2], '86400000')", to: "" }),
];

#[test]
fn a_script_that_is_wrong_in_one_place_is_found() {
    find_all(MUTANTS);
}

/// Plays sequences until each of these mutants differs from the model.
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
        // The keys do not touch each other, so the trace of one shows the difference without the others.
        let difference = tell(&mut real, &trace, Some(*mutant), cap)
            .unwrap_or_else(|| panic!("{name}: not to be seen in the trace alone: {difference:?}"));
        println!("{name}: a trace of {} steps; it differs in {}", trace.len(), difference.what);
    }
    assert!(missed.is_empty(), "not found in {} sequences: {missed:#?}", BATCHES * SIZE.0 as u64);
}
