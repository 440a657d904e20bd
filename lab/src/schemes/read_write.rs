//! A lock for readers and writers in one hash, with one TTL for all its holders.

use super::{line, on_redis, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Line, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    vec![one_ttl(), longest()]
}

/// The first client writes in two nested calls, and continues to read for longer. The others write.
fn lines(end_write: Op) -> Vec<Line> {
    vec![
        line(Op::WriteLock, 1, 9),
        line(Op::WriteLock, 2, 9),
        line(Op::ReadLock, 3, 9),
        then(end_write, 4),
        then(end_write, 5),
        then(Op::Enter, 6),
        then(Op::Read, 7),
        then(Op::ReadUnlock, 8),
        then(Op::Done, 0),
        then(Op::Busy, 0),
        line(Op::WriteLock, 11, 14),
        then(Op::Enter, 12),
        then(Op::Write, 13),
        then(Op::WriteUnlock, 8),
        line(Op::Retry, 10, 9),
    ]
}

fn one_ttl() -> LockScheme {
    LockScheme {
        clients: 2,
        others_start: 10,
        faults: vec![Fault::Crash, Fault::LostRelease],
        exhibit: Some((Property::Exclusion, None)),
        ..on_redis(
            "read-write",
            Text::new(
                "readers and a writer in one hash, as in Redisson's RReadWriteLock; the unlock of a nested write sets the TTL of the key to that of a writer",
                "读写锁放在一个 hash 里，如 Redisson 的 RReadWriteLock；嵌套写锁解锁时，把 key 的过期时间设成写锁的",
            ),
            Text::new(
                "The key contains all holds, so it must never expire before the longest of them (read-write-longest). Redis ends the lock of a reader with the TTL of a writer.",
                "一个 key 记着所有的持有者，它的过期时间不能早于其中最长的一个（见 read-write-longest）。否则写锁的过期时间会把读锁提前结束。",
            ),
            lines(Op::EndWrite),
        )
    }
}

fn longest() -> LockScheme {
    LockScheme {
        clients: 2,
        others_start: 10,
        faults: vec![Fault::Crash, Fault::LostRelease],
        ..on_redis(
            "read-write-longest",
            Text::new("the same, and no step shortens the TTL of the key", "同上，但任何一步都不缩短 key 的过期时间"),
            Text::new(
                "Holds as long as the work ends before the lease. fencelock stores the end of each hold separately, and the key outlasts the longest.",
                "只要业务在租约内做完就成立。fencelock 按持有者分别记录到期时间，key 比其中最长的还要久。",
            ),
            lines(Op::EndWriteKeepTtl),
        )
    }
}
