//! Mutants of the change of a limit.

use super::mutants::find_all;
use super::sent::Mutants;

const MUTANTS: Mutants = &[
    ("a lock whose limit is changed never expires", "shared.value, 'KEEPTTL')", "shared.value)"),
    ("a change of the limit changes the first token", "limit, string.match(value, '%d+$'))", "limit, limit)"),
    (
        "a change of the limit does not grant to the next waiter",
        "local turn, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6], shared)",
        "local turn, unread",
    ),
    (
        "waiters keep the previous limit",
        "entry, claim.weight, limit))\n    return true",
        "entry, claim.weight, before))\n    return true",
    ),
    ("a waiter that can never be granted is kept", "    if claim.weight > limit then return false end\n", ""),
    (
        "a waiter that can never be granted stays in the queue",
        "    if claim.weight > limit then return false end\n",
        "    if claim.weight > limit then return true end\n",
    ),
    ("a waiter with any limit gets the new limit", " or claim.limit ~= before then", " then"),
    ("a poll restores the previous limit", "if mine.mode == 's' then grants().by_entry(mine) end\n", ""),
    (
        "a poll accepts a limit below its weight",
        "and claim.weight <= written.limit then claim.limit",
        "then claim.limit",
    ),
    (
        "a change of the limit counts holds that have ended",
        "shared, more = grants().bury(shared, now)\nif not shared then\n  local _",
        "if not shared then\n  local _",
    ),
    (
        "a change of the limit without a hold does not grant to the next waiter",
        "  local _, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6])\n",
        "",
    ),
    (
        "a change of the limit without a hold does not report an entry that cannot be read",
        "return {'absent', unread}",
        "return {'absent'}",
    ),
    ("a repeated call undoes a later change", "or before and shared.limit ~= limit then", "then"),
    ("a shared lock becomes a semaphore", "if shared.mode ~= 's' or before", "if before"),
    (
        "one call changes all waiters",
        "'+inf', 'WITHSCORES', 'LIMIT', 0, CAP) or {}\n  for i",
        "'+inf', 'WITHSCORES') or {}\n  for i",
    ),
    ("the reply does not report that waiters are left", "  more = more or #waiting == 2 * CAP\n", ""),
    ("a repeated call begins again", "'(' .. ticket", "'(0'"),
    (
        "a limit is changed with the client's time",
        "if not exact then return {'noclock'} end\nnow = math.floor(now / 1000)\nif shared.mode ~= 's'",
        "now = math.floor(now / 1000)\nif shared.mode ~= 's'",
    ),
    (
        "a change of the limit does not check whether the server may grant",
        "if refused then return refused end\nlocal value, kind = occupant()\nif not value then return {'absent'}",
        "local value, kind = occupant()\nif not value then return {'absent'}",
    ),
    (
        "a change of the limit lists holds that have ended",
        "'ZCOUNT', KEYS[6], string.format('%.0f', now), '+inf')\nreturn",
        "'ZCARD', KEYS[6])\nreturn",
    ),
    (
        "the reply does not report that ended holds are left",
        "(more or turn == 'more') and 1 or 0, ticket",
        "(turn == 'more') and 1 or 0, ticket",
    ),
];

#[test]
fn every_mutant_of_a_resize_is_detected() {
    find_all(MUTANTS);
}
