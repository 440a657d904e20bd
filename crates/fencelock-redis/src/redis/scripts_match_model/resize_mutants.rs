//! Mutants of the change of a limit.

use super::mutants::find_all;
use super::sent::Mutant;

const MUTANTS: &[(&str, Mutant)] = &[
    ("a lock whose limit is changed never expires", Mutant { from: "shared.value, 'KEEPTTL')", to: "shared.value)" }),
    (
        "a change of the limit changes the first token",
        Mutant { from: "limit, string.match(value, '%d+$'))", to: "limit, limit)" },
    ),
    (
        "a change of the limit does not grant to the next waiter",
        Mutant {
            from: "local turn, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6], shared)",
            to: "local turn, unread",
        },
    ),
    (
        "waiters keep the previous limit",
        Mutant {
            from: "entry, claim.weight, limit))\n    return true",
            to: "entry, claim.weight, before))\n    return true",
        },
    ),
    (
        "a waiter that can never be granted is kept",
        Mutant { from: "    if claim.weight > limit then return false end\n", to: "" },
    ),
    (
        "a waiter that can never be granted stays in the queue",
        Mutant {
            from: "    if claim.weight > limit then return false end\n",
            to: "    if claim.weight > limit then return true end\n",
        },
    ),
    ("a waiter with any limit gets the new limit", Mutant { from: " or claim.limit ~= before then", to: " then" }),
    (
        "a poll restores the previous limit",
        Mutant { from: "if mine.mode == 's' then grants().by_entry(mine) end\n", to: "" },
    ),
    (
        "a poll accepts a limit below its weight",
        Mutant { from: "and claim.weight <= written.limit then claim.limit", to: "then claim.limit" },
    ),
    (
        "a change of the limit counts holds that have ended",
        Mutant {
            from: "shared, more = grants().bury(shared, now)\nif not shared then\n  local _",
            to: "if not shared then\n  local _",
        },
    ),
    (
        "a change of the limit without a hold does not grant to the next waiter",
        Mutant { from: "  local _, unread = advance(nil, ARGV[4], ARGV[5], ARGV[6])\n", to: "" },
    ),
    (
        "a change of the limit without a hold does not report an entry that cannot be read",
        Mutant { from: "return {'absent', unread}", to: "return {'absent'}" },
    ),
    ("a repeated call undoes a later change", Mutant { from: "or before and shared.limit ~= limit then", to: "then" }),
    ("a shared lock becomes a semaphore", Mutant { from: "if shared.mode ~= 's' or before", to: "if before" }),
    (
        "one call changes all waiters",
        Mutant {
            from: "'+inf', 'WITHSCORES', 'LIMIT', 0, CAP) or {}\n  for i",
            to: "'+inf', 'WITHSCORES') or {}\n  for i",
        },
    ),
    (
        "the reply does not report that waiters are left",
        Mutant { from: "  more = more or #waiting == 2 * CAP\n", to: "" },
    ),
    ("a repeated call begins again", Mutant { from: "'(' .. ticket", to: "'(0'" }),
    (
        "a limit is changed with the client's time",
        Mutant {
            from: "if not exact then return {'noclock'} end\nnow = math.floor(now / 1000)\nif shared.mode ~= 's'",
            to: "now = math.floor(now / 1000)\nif shared.mode ~= 's'",
        },
    ),
    (
        "a change of the limit does not check whether the server may grant",
        Mutant {
            from: "if refused then return refused end\nlocal value, kind = occupant()\nif not value then return {'absent'}",
            to: "local value, kind = occupant()\nif not value then return {'absent'}",
        },
    ),
    (
        "a change of the limit lists holds that have ended",
        Mutant {
            from: "'ZCOUNT', KEYS[6], string.format('%.0f', now), '+inf')\nreturn",
            to: "'ZCARD', KEYS[6])\nreturn",
        },
    ),
    (
        "the reply does not report that ended holds are left",
        Mutant { from: "(more or turn == 'more') and 1 or 0, ticket", to: "(turn == 'more') and 1 or 0, ticket" },
    ),
];

#[test]
fn every_mutant_of_a_resize_is_detected() {
    find_all(MUTANTS);
}
