//! Mutants of the scripts for locks that several clients hold together. Each must be detected.

use super::mutants::find_all;
use super::sent::Mutant;

const MUTANTS: &[(&str, Mutant)] = &[
    (
        "a shared claim overtakes a waiter that does not fit",
        Mutant { from: "elseif turn ~= 'blocked' and (not shared or", to: "elseif (not shared or" },
    ),
    (
        "a waiter that does not fit is granted",
        Mutant { from: "if claim and shared and not grants().fits(shared, claim) then", to: "if false then" },
    ),
    (
        "the lock is not extended with its holds",
        Mutant { from: "if redis.call('PTTL', KEYS[1]) > left then return end", to: "if true then return end" },
    ),
    (
        "each renewal writes to the lock",
        Mutant { from: "if redis.call('PTTL', KEYS[1]) > left then return end", to: "" },
    ),
    ("the lock outlives its holds by less", Mutant { from: "local SHARE = 8", to: "local SHARE = 16" }),
    ("the side keys expire early", Mutant { from: "local KEEP = 60000", to: "local KEEP = 6000" }),
    (
        "a release always frees one permit",
        Mutant { from: "(tonumber(string.match(tolerant('HGET', KEYS[7], id) or '', '^%d+')) or 0)", to: "1" },
    ),
    ("a release frees no permit", Mutant { from: "shared.used = before - freed", to: "shared.used = before" }),
    (
        "permits are not counted",
        Mutant { from: "shared.used = used_before + claim.weight", to: "shared.used = used_before" },
    ),
    ("a weight is not counted", Mutant { from: "used_before + claim.weight", to: "used_before + 1" }),
    (
        "one free permit fits any weight",
        Mutant { from: "used(shared) + claim.weight <= shared.limit", to: "used(shared) < shared.limit" },
    ),
    (
        "unknown permits count as free",
        Mutant {
            from: "tonumber(tolerant('HGET', KEYS[7], '#used')) or shared.limit",
            to: "tonumber(tolerant('HGET', KEYS[7], '#used')) or 0",
        },
    ),
    (
        "limits are not compared",
        Mutant {
            from: "if shared.limit ~= claim.limit then return false end",
            to: "if claim.mode == 'x' then return false end",
        },
    ),
    (
        "clients with two limits share a semaphore",
        Mutant { from: "and claim.limit ~= present.limit", to: "and claim.mode ~= present.mode" },
    ),
    (
        "a cancelled claim does not grant to the next waiter",
        Mutant {
            from: "then others, kind = holds().described(shared, now) end",
            to: "then others, kind = holds().described(shared, now) return {'taken', others, kind, 0} end",
        },
    ),
    ("a refused claim stays in the queue", Mutant { from: "    leave(id)\n    if turn", to: "    if turn" }),
    (
        "a refused claim does not grant to the next waiter",
        Mutant { from: "if turn == 'blocked' then advance(nil", to: "if false then advance(nil" },
    ),
    (
        "a granted waiter does not grant to the next one",
        Mutant { from: "if turn == 'mine' then\n        local", to: "if false then\n        local" },
    ),
    (
        "the last waiter is not checked for conflicts",
        Mutant { from: "if other and grants().conflicts(other, mine) then", to: "if false then" },
    ),
    (
        "a dead waiter refuses claims",
        Mutant {
            from: "if not alive or alive * 1000 <= now then return nil end",
            to: "if not alive then return nil end",
        },
    ),
    ("a hold ends a millisecond early", Mutant { from: "till and till >= now and", to: "till and till > now and" }),
    ("a hold that has ended counts", Mutant { from: "till and till >= now and", to: "till and" }),
    (
        "a lock is removed in the last millisecond of its last hold",
        Mutant { from: "tonumber(last[2]) < now then", to: "tonumber(last[2]) <= now then" },
    ),
    (
        "a lock without holds stays",
        Mutant { from: "if not last or not last[2] or tonumber(last[2]) < now then", to: "if false then" },
    ),
    (
        "a hold is removed in its last millisecond",
        Mutant {
            from: "'-inf', string.format('(%.0f', now), 'LIMIT', 0, CAP)\n    if #ended",
            to: "'-inf', string.format('%.0f', now), 'LIMIT', 0, CAP)\n    if #ended",
        },
    ),
    ("holds that have ended stay", Mutant { from: "if #ended > 0 then remove(shared, ended) end", to: "" }),
    (
        "one call removes all holds that have ended",
        Mutant { from: "now), 'LIMIT', 0, CAP)\n    if #ended", to: "now))\n    if #ended" },
    ),
    (
        "the result does not report that more holds have ended",
        Mutant { from: "return shared, #ended == CAP", to: "return shared, false" },
    ),
    (
        "a release does not report that more holds have ended",
        Mutant { from: "(more or turn == 'more')", to: "(turn == 'more')" },
    ),
    ("a removed hold keeps its entry", Mutant { from: "    tolerant('HDEL', KEYS[7], unpack(ids))\n", to: "" }),
    ("a removed hold stays", Mutant { from: "    redis.call('ZREM', KEYS[6], unpack(ids))\n", to: "" }),
    (
        "a new lock has the holds of an old one",
        Mutant { from: "redis.call('UNLINK', KEYS[6], KEYS[7])\n      redis.call('SET'", to: "redis.call('SET'" },
    ),
    ("a poll shortens a hold", Mutant { from: "if rest < tonumber(ttl) then holds()", to: "if true then holds()" }),
    (
        "a duplicate claim extends a hold",
        Mutant { from: "    if intent ~= 'poll' then return {'yours'} end\n    if rest", to: "    if rest" },
    ),
    (
        "a full memory refuses renewals",
        Mutant {
            from: "    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', math.max(redis.call('PTTL', KEYS[6]), left + KEEP)))\n",
            to: "",
        },
    ),
    (
        "a reply lists holds that have ended",
        Mutant { from: "tolerant('ZRANGEBYSCORE', KEYS[6], from,", to: "tolerant('ZRANGEBYSCORE', KEYS[6], '-inf'," },
    ),
    (
        "a reply counts holds that have ended",
        Mutant { from: "redis.call('ZCOUNT', KEYS[6], from, '+inf')", to: "redis.call('ZCARD', KEYS[6])" },
    ),
    (
        "a hold without an entry gets a new token each time",
        Mutant { from: "    write(claim, last)\n    return last", to: "    return last" },
    ),
    (
        "an entry may request more permits than the limit",
        Mutant { from: " or tonumber(weight) > tonumber(limit)", to: "" },
    ),
    ("a semaphore has any number of permits", Mutant { from: " or tonumber(limit) > 1000000", to: "" }),
    (
        "an entry has no mode",
        Mutant { from: "'\\t1' or string.format('\\t1 %s %d %d', mine.mode, mine.weight, mine.limit)", to: "'\\t1'" },
    ),
    (
        "a shared lock is granted with the client's time",
        Mutant { from: "if claim == EXCLUSIVE and exact and suffix", to: "if claim == EXCLUSIVE and suffix" },
    ),
    (
        "a shared claim does not need the server's time",
        Mutant { from: "if mine.mode ~= 'x' then return {'noclock'} end", to: "" },
    ),
    ("holds end by the client's time", Mutant { from: "    shared = nil             -- busy", to: "    -- busy" }),
    (
        "a release of a hold does not need the server's time",
        Mutant { from: "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then redis.call('TIME') end", to: "" },
    ),
    (
        "a late release reports that it freed a hold",
        Mutant { from: "if holds().rest(ARGV[1], now) then", to: "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then" },
    ),
    (
        "an eviction ends holds with another token",
        Mutant { from: "'^%d+ (%d+)') == token then", to: "'^%d+ (%d+)') then" },
    ),
    (
        "an eviction of a shared lock deletes any value",
        Mutant { from: "  if not shared then return {0, 0} end\n", to: "" },
    ),
    (
        "an eviction leaves the holds of a lock",
        Mutant {
            from: "  redis.call('UNLINK', KEYS[1], KEYS[6], KEYS[7])\n  shared = nil",
            to: "  redis.call('UNLINK', KEYS[1])\n  shared = nil",
        },
    ),
    (
        "a downgrade keeps the token",
        Mutant {
            from: "last = next_block(ARGV[3], 1, ARGV[5] == 'proposed')\n  shared",
            to: "last = string.format('%.0f', fence())\n  shared",
        },
    ),
    (
        "a downgrade keeps the version that version 0 wrote behind the owner",
        Mutant { from: "value = string.match(value, '^[^\\t]*'), mode", to: "value = value, mode" },
    ),
    (
        "a downgrade changes the lock of another holder",
        Mutant { from: "if not shared and not is_holder(value, id) then", to: "if false then" },
    ),
    ("a downgrade shortens the lease", Mutant { from: "math.max(ttl, redis.call('PTTL', KEYS[1]))", to: "ttl" }),
    (
        "a downgrade does not grant to shared waiters",
        Mutant {
            from: "local turn, unread = advance(nil, ARGV[3], ARGV[4], ARGV[6], shared)",
            to: "local turn, unread",
        },
    ),
    (
        "a downgrade does not report an entry that cannot be read",
        Mutant { from: "last, turn == 'more' and 1 or 0, unread}", to: "last, turn == 'more' and 1 or 0}" },
    ),
    (
        "a grant does not report an entry behind it that cannot be read",
        Mutant { from: "        unread = unread or found\n", to: "" },
    ),
    (
        "a holder of permits downgrades",
        Mutant { from: "if not rest or shared.mode ~= 'r' then", to: "if not rest then" },
    ),
    (
        "a downgrade does not check whether the server may grant",
        Mutant {
            from: "if refused then return refused end\nlocal value, kind = occupant()",
            to: "local value, kind = occupant()",
        },
    ),
    ("a downgrade ignores the proposal", Mutant { from: "ARGV[5] == 'proposed')", to: "false)" }),
    (
        "a shared claim ignores the proposal",
        Mutant { from: "string.match(ARGV[10], '^(proposed) ?(.*)')", to: "nil, ARGV[10]" },
    ),
    (
        "a raise of a reader lowers the fence",
        Mutant { from: "math.max(fence(), tonumber(ARGV[2]))", to: "tonumber(ARGV[2])" },
    ),
    (
        "a raise of a reader depends on the token of another",
        Mutant { from: "if not granted or tonumber", to: "granted = granted and fence()\nif not granted or tonumber" },
    ),
    (
        "a raise does not change the token of a reader",
        Mutant { from: "if weight then redis.call('HSET'", to: "if false then redis.call('HSET'" },
    ),
    (
        "a raise revives a hold that has ended",
        Mutant {
            from: "if holds().rest(ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000)) then",
            to: "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then",
        },
    ),
    (
        "a shared lock is read as one of a later version",
        Mutant { from: "'^fencelock:1:r:0:[1-9]%d*$'", to: "'^fencelock:9'" },
    ),
    (
        "a shared lock may have a limit",
        Mutant { from: "'^fencelock:1:r:0:[1-9]%d*$'", to: "'^fencelock:1:r:%d+:[1-9]%d*$'" },
    ),
    ("a semaphore may have no permits", Mutant { from: "'^fencelock:1:s:([1-9]%d*)", to: "'^fencelock:1:s:(%d+)" }),
];

#[test]
fn every_mutant_of_shared_locks_is_detected() {
    find_all(MUTANTS);
}
