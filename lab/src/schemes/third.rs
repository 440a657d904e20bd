//! The flash sale, and Redlock.

use super::{line, on_redis, plain, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Content, Home, Line, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    vec![setnx(), try_finally(), client_id(), lua(), retry(), renewal(), replica_lag(), redlock()]
}

fn setnx() -> LockScheme {
    LockScheme {
        has_lease: false,
        faults: vec![Fault::Crash, Fault::LostRelease],
        exhibit: Some((Property::NoDeadLock, Some(Fault::Crash))),
        ..on_redis(
            "sale-setnx",
            Text::new("SETNX around the sale, then DEL", "SETNX 包住扣库存，再 DEL"),
            Text::new(
                "Give the key an expiry, in the same command that creates it: SET NX EX.",
                "在创建 key 的同一条命令里设置过期时间：SET NX EX。",
            ),
            plain(Op::SetNx(Content::One), Op::Del),
        )
    }
}

/// `finally` also runs for clients that did not acquire the lock: in the article, the `return` is inside the `try`.
fn try_finally() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::OwnLockOnly, None)),
        ..on_redis(
            "try-finally",
            Text::new(
                "SET NX EX, DEL in finally, which also runs for clients that failed to acquire",
                "SET NX EX，在 finally 里 DEL；没抢到锁的请求也会执行 finally",
            ),
            Text::new(
                "Only the holder may release the lock: store a unique value, and check it in the step that deletes.",
                "只有加锁的人才能解锁：写入自己独有的值，删除的同一步里检查。",
            ),
            vec![
                line(Op::SetNxEx(Content::One), 1, 5),
                then(Op::Enter, 2),
                then(Op::Write, 3),
                then(Op::Del, 4),
                then(Op::Done, 0),
                then(Op::Del, 6),
                then(Op::Busy, 0),
            ],
        )
    }
}

fn client_id() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::OwnLockOnly, Some(Fault::Overrun))),
        ..on_redis(
            "client-id",
            Text::new("SET NX EX with a client id; GET, compare, then DEL", "SET NX EX 加客户端 id；先 GET 比较再 DEL"),
            Text::new(
                "The lock may expire between GET and DEL. Compare and delete in one Lua script.",
                "GET 和 DEL 之间锁可能正好过期。把比较和删除放进一个 Lua 脚本。",
            ),
            vec![
                line(Op::SetNxEx(Content::Id), 1, 5),
                then(Op::Enter, 2),
                then(Op::Write, 3),
                line(Op::GetIsMine, 4, 6),
                then(Op::Del, 6),
                line(Op::GetIsMine, 7, 8),
                then(Op::Done, 0),
                then(Op::Del, 8),
                then(Op::Busy, 0),
            ],
        )
    }
}

/// SET NX EX, work, compare and delete; with `finally`, also for clients that did not acquire the lock.
fn guarded(on_refusal: Line) -> Vec<Line> {
    vec![
        line(Op::SetNxEx(Content::Id), 1, 5),
        then(Op::Enter, 2),
        then(Op::Write, 3),
        then(Op::CompareDel, 4),
        then(Op::Done, 0),
        on_refusal,
        then(Op::Busy, 0),
    ]
}

fn lua() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::Exclusion, Some(Fault::Overrun))),
        ..on_redis(
            "sale-lua",
            Text::new(
                "SET NX EX with a client id, compare and delete in Lua",
                "SET NX EX 加客户端 id，用 Lua 比较后删除",
            ),
            Text::new(
                "Correct as long as the work ends before the lock expires. Renew the lease, and check a fencing token where you write.",
                "只要业务在过期时间内做完就是可靠的。要放开这个前提：续期，并在写入处检查令牌。",
            ),
            guarded(then(Op::CompareDel, 6)),
        )
    }
}

fn retry() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::Exclusion, Some(Fault::Overrun))),
        ..on_redis(
            "retry",
            Text::new(
                "SET NX EX with a client id, Lua release; tries several times",
                "SET NX EX 加客户端 id，Lua 释放；没抢到就重试几次",
            ),
            Text::new(
                "Retries do not make the lock safer. Renew the lease, and check a fencing token where you write.",
                "重试改善的是体验，不是安全。仍然要续期，并在写入处检查令牌。",
            ),
            guarded(line(Op::Retry, 0, 6)),
        )
    }
}

fn renewal() -> LockScheme {
    LockScheme {
        is_renewed: true,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Overrun, Fault::Pause],
        exhibit: Some((Property::NoLateWrite, Some(Fault::Pause))),
        ..on_redis(
            "renewal",
            Text::new(
                "SET NX EX with a client id, Lua release, a watchdog that renews",
                "SET NX EX 加客户端 id，Lua 释放，看门狗自动续期",
            ),
            Text::new(
                "A watchdog is paused with its process. Only the receiver of the write can reject it: check a fencing token there.",
                "进程停顿时看门狗也跟着停。只有接收写入的一方能拒绝它：在那里检查令牌。",
            ),
            guarded(then(Op::CompareDel, 6)),
        )
    }
}

fn replica_lag() -> LockScheme {
    LockScheme {
        home: Home::Replicated,
        faults: vec![Fault::Crash, Fault::Failover],
        clients: 2,
        exhibit: Some((Property::Exclusion, Some(Fault::Failover))),
        ..on_redis(
            "replica-lag",
            Text::new(
                "SET NX EX with a client id, Lua release, on a master with a replica",
                "SET NX EX 加客户端 id，Lua 释放，Redis 为一主一从",
            ),
            Text::new(
                "Replication is asynchronous. Use a majority of independent masters (redlock:), and check a fencing token where you write.",
                "主从同步是异步的。改用多数派的独立主节点（redlock:），并在写入处检查令牌。",
            ),
            guarded(then(Op::CompareDel, 6)),
        )
    }
}

fn redlock() -> LockScheme {
    let lines = vec![
        then(Op::SetNode(0), 1),
        then(Op::SetNode(1), 2),
        then(Op::SetNode(2), 3),
        line(Op::HasMajority, 4, 10),
        then(Op::Enter, 5),
        then(Op::Write, 6),
        then(Op::DelNode(0), 7),
        then(Op::DelNode(1), 8),
        then(Op::DelNode(2), 9),
        then(Op::Done, 0),
        then(Op::DelNode(0), 11),
        then(Op::DelNode(1), 12),
        then(Op::DelNode(2), 13),
        then(Op::Busy, 0),
    ];
    LockScheme {
        home: Home::Three,
        clients: 2,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Overrun, Fault::Restart],
        exhibit: Some((Property::Exclusion, Some(Fault::Overrun))),
        ..on_redis(
            "redlock",
            Text::new(
                "SET NX PX on three masters one after the other, a majority counts",
                "依次在三个独立主节点上 SET NX PX，过半即成功",
            ),
            Text::new(
                "There is no renewal and no fencing, and a server that lost its data must stay out for one TTL.",
                "没有续期，也没有令牌；丢了数据的节点要等满一个过期时间才能重新加入。",
            ),
            lines,
        )
    }
}
