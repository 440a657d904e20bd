//! Mutants of the scripts for locks that several clients hold together. Each must be detected.

use super::mutants::find_all;
use super::sent::Mutants;

const MUTANTS: Mutants = &[
    (
        "a shared claim overtakes a waiter that does not fit",
        "elseif turn ~= 'blocked' and (not shared or",
        "elseif (not shared or",
    ),
    (
        "a waiter that does not fit is granted",
        "if claim and shared and not grants().fits(shared, claim) then",
        "if false then",
    ),
    (
        "the lock is not extended with its holds",
        "if redis.call('PTTL', KEYS[1]) > left then return end",
        "if true then return end",
    ),
    ("each renewal writes to the lock", "if redis.call('PTTL', KEYS[1]) > left then return end", ""),
    ("the lock outlives its holds by less", "local SHARE = 8", "local SHARE = 16"),
    ("the side keys expire early", "local KEEP = 60000", "local KEEP = 6000"),
    (
        "a release always frees one permit",
        "(tonumber(string.match(tolerant('HGET', KEYS[7], id) or '', '^%d+')) or 0)",
        "1",
    ),
    ("a release frees no permit", "shared.used = before - freed", "shared.used = before"),
    ("permits are not counted", "shared.used = used_before + claim.weight", "shared.used = used_before"),
    ("a weight is not counted", "used_before + claim.weight", "used_before + 1"),
    ("one free permit fits any weight", "used(shared) + claim.weight <= shared.limit", "used(shared) < shared.limit"),
    (
        "unknown permits count as free",
        "tonumber(tolerant('HGET', KEYS[7], '#used')) or shared.limit",
        "tonumber(tolerant('HGET', KEYS[7], '#used')) or 0",
    ),
    (
        "limits are not compared",
        "if shared.limit ~= claim.limit then return false end",
        "if claim.mode == 'x' then return false end",
    ),
    ("clients with two limits share a semaphore", "and claim.limit ~= present.limit", "and claim.mode ~= present.mode"),
    (
        "a cancelled claim does not grant to the next waiter",
        "then others, kind = holds().described(shared, now) end",
        "then others, kind = holds().described(shared, now) return {'taken', others, kind, 0} end",
    ),
    ("a refused claim stays in the queue", "    leave(id)\n    if turn", "    if turn"),
    (
        "a refused claim does not grant to the next waiter",
        "if turn == 'blocked' then advance(nil",
        "if false then advance(nil",
    ),
    (
        "a granted waiter does not grant to the next one",
        "if turn == 'mine' then\n        local",
        "if false then\n        local",
    ),
    (
        "the last waiter is not checked for conflicts",
        "if other and grants().conflicts(other, mine) then",
        "if false then",
    ),
    (
        "a dead waiter refuses claims",
        "if not alive or alive * 1000 <= now then return nil end",
        "if not alive then return nil end",
    ),
    ("a hold ends a millisecond early", "till and till >= now and", "till and till > now and"),
    ("a hold that has ended counts", "till and till >= now and", "till and"),
    (
        "a lock is removed in the last millisecond of its last hold",
        "tonumber(last[2]) < now then",
        "tonumber(last[2]) <= now then",
    ),
    ("a lock without holds stays", "if not last or not last[2] or tonumber(last[2]) < now then", "if false then"),
    (
        "a hold is removed in its last millisecond",
        "'-inf', string.format('(%.0f', now), 'LIMIT', 0, CAP)\n    if #ended",
        "'-inf', string.format('%.0f', now), 'LIMIT', 0, CAP)\n    if #ended",
    ),
    ("holds that have ended stay", "if #ended > 0 then remove(shared, ended) end", ""),
    ("one call removes all holds that have ended", "now), 'LIMIT', 0, CAP)\n    if #ended", "now))\n    if #ended"),
    ("the result does not report that more holds have ended", "return shared, #ended == CAP", "return shared, false"),
    ("a release does not report that more holds have ended", "(more or turn == 'more')", "(turn == 'more')"),
    ("a removed hold keeps its entry", "    tolerant('HDEL', KEYS[7], unpack(ids))\n", ""),
    ("a removed hold stays", "    redis.call('ZREM', KEYS[6], unpack(ids))\n", ""),
    (
        "a new lock has the holds of an old one",
        "redis.call('UNLINK', KEYS[6], KEYS[7])\n      redis.call('SET'",
        "redis.call('SET'",
    ),
    ("a poll shortens a hold", "if rest < tonumber(ttl) then holds()", "if true then holds()"),
    (
        "a duplicate claim extends a hold",
        "    if intent ~= 'poll' then return {'yours'} end\n    if rest",
        "    if rest",
    ),
    (
        "a full memory refuses renewals",
        "    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', math.max(redis.call('PTTL', KEYS[6]), left + KEEP)))\n",
        "",
    ),
    (
        "a reply lists holds that have ended",
        "tolerant('ZRANGEBYSCORE', KEYS[6], from,",
        "tolerant('ZRANGEBYSCORE', KEYS[6], '-inf',",
    ),
    (
        "a reply counts holds that have ended",
        "redis.call('ZCOUNT', KEYS[6], from, '+inf')",
        "redis.call('ZCARD', KEYS[6])",
    ),
    (
        "a hold without an entry gets a new token each time",
        "    write(claim, last)\n    return last",
        "    return last",
    ),
    ("an entry may request more permits than the limit", " or tonumber(weight) > tonumber(limit)", ""),
    ("a semaphore has any number of permits", " or tonumber(limit) > 1000000", ""),
    ("an entry has no mode", "'\\t1' or string.format('\\t1 %s %d %d', mine.mode, mine.weight, mine.limit)", "'\\t1'"),
    (
        "a shared lock is granted with the client's time",
        "if claim == EXCLUSIVE and exact and suffix",
        "if claim == EXCLUSIVE and suffix",
    ),
    ("a shared claim does not need the server's time", "if mine.mode ~= 'x' then return {'noclock'} end", ""),
    ("holds end by the client's time", "    shared = nil             -- busy", "    -- busy"),
    (
        "a release of a hold does not need the server's time",
        "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then redis.call('TIME') end",
        "",
    ),
    (
        "a late release reports that it freed a hold",
        "if holds().rest(ARGV[1], now) then",
        "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then",
    ),
    ("an eviction ends holds with another token", "'^%d+ (%d+)') == token then", "'^%d+ (%d+)') then"),
    ("an eviction of a shared lock deletes any value", "  if not shared then return {0, 0} end\n", ""),
    (
        "an eviction leaves the holds of a lock",
        "  redis.call('UNLINK', KEYS[1], KEYS[6], KEYS[7])\n  shared = nil",
        "  redis.call('UNLINK', KEYS[1])\n  shared = nil",
    ),
    (
        "a downgrade keeps the token",
        "last = next_block(ARGV[3], 1, ARGV[5] == 'proposed')\n  shared",
        "last = string.format('%.0f', fence())\n  shared",
    ),
    (
        "a downgrade changes the lock of another holder",
        "if not shared and not is_holder(value, id) then",
        "if false then",
    ),
    ("a downgrade shortens the lease", "math.max(ttl, redis.call('PTTL', KEYS[1]))", "ttl"),
    (
        "a downgrade does not grant to shared waiters",
        "local turn, unread = advance(nil, ARGV[3], ARGV[4], ARGV[6], shared)",
        "local turn, unread",
    ),
    (
        "a downgrade does not report an entry that cannot be read",
        "last, turn == 'more' and 1 or 0, unread}",
        "last, turn == 'more' and 1 or 0}",
    ),
    ("a grant does not report an entry behind it that cannot be read", "        unread = unread or found\n", ""),
    ("a holder of permits downgrades", "if not rest or shared.mode ~= 'r' then", "if not rest then"),
    (
        "a downgrade does not check whether the server may grant",
        "if refused then return refused end\nlocal value, kind = occupant()",
        "local value, kind = occupant()",
    ),
    ("a downgrade ignores the proposal", "ARGV[5] == 'proposed')", "false)"),
    ("a shared claim ignores the proposal", "string.match(ARGV[10], '^(proposed) ?(.*)')", "nil, ARGV[10]"),
    ("a raise of a reader lowers the fence", "math.max(fence(), tonumber(ARGV[2]))", "tonumber(ARGV[2])"),
    (
        "a raise of a reader depends on the token of another",
        "if not granted or tonumber",
        "granted = granted and fence()\nif not granted or tonumber",
    ),
    (
        "a raise does not change the token of a reader",
        "if weight then redis.call('HSET'",
        "if false then redis.call('HSET'",
    ),
    (
        "a raise revives a hold that has ended",
        "if holds().rest(ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000)) then",
        "if tolerant('ZSCORE', KEYS[6], ARGV[1]) then",
    ),
    ("a shared lock is read as one of a later version", "'^fencelock:1:r:0:[1-9]%d*$'", "'^fencelock:9'"),
    ("a shared lock may have a limit", "'^fencelock:1:r:0:[1-9]%d*$'", "'^fencelock:1:r:%d+:[1-9]%d*$'"),
    ("a semaphore may have no permits", "'^fencelock:1:s:([1-9]%d*)", "'^fencelock:1:s:(%d+)"),
];

#[test]
fn every_mutant_of_shared_locks_is_detected() {
    find_all(MUTANTS);
}
