//! Semaphores: a counter, leases by the clock of the client, and counters on several servers. Each is followed by its fix.

use super::{line, on_redis, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Home, Line, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    vec![counter(), client_clock(), leased(), node_counters(), all_nodes()]
}

fn around(take: Op, give: Op) -> Vec<Line> {
    vec![
        line(take, 1, 5),
        then(Op::Enter, 2),
        then(Op::Write, 3),
        then(give, 4),
        then(Op::Done, 0),
        line(Op::Retry, 0, 6),
        then(Op::Busy, 0),
    ]
}

fn counter() -> LockScheme {
    LockScheme {
        has_lease: false,
        faults: vec![Fault::Crash, Fault::LostRelease],
        exhibit: Some((Property::NoDeadLock, Some(Fault::Crash))),
        ..on_redis(
            "permits-counter",
            Text::new(
                "a semaphore as a counter: DECR while it is positive, INCR to return the permit (here one permit)",
                "用计数器做信号量：大于零就 DECR，归还时 INCR（这里只有一个许可）",
            ),
            Text::new(
                "A counter does not know its holders, so the permit of a client that crashes is lost forever. Lease each permit: permits-leased.",
                "计数器不知道许可在谁手里，客户端一死，许可就再也回不来。每个许可都要有租约：见 permits-leased。",
            ),
            around(Op::TakeCount, Op::GiveCount),
        )
    }
}

fn client_clock() -> LockScheme {
    LockScheme {
        permits: 2,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Clocks],
        exhibit: Some((Property::Exclusion, Some(Fault::Clocks))),
        ..on_redis(
            "permits-client-clock",
            Text::new(
                "two permits in a sorted set by deadline; each client removes what has ended by its own clock",
                "两个许可，按到期时间放进有序集合；每个客户端按自己的时钟清除到期的许可",
            ),
            Text::new(
                "A client whose clock is ahead removes permits that are in use. Only the clock of the server may end a lease: permits-leased.",
                "时钟快的客户端会把别人还在用的许可清掉。只能由服务器的时钟来判断到期：见 permits-leased。",
            ),
            around(Op::TakeByClock, Op::GivePermit),
        )
    }
}

fn leased() -> LockScheme {
    LockScheme {
        permits: 2,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Clocks],
        ..on_redis(
            "permits-leased",
            Text::new(
                "two permits in a sorted set by deadline, by the clock of the server",
                "两个许可，按到期时间放进有序集合，只用服务器的时钟",
            ),
            Text::new(
                "Holds as long as the work ends before the lease. A crashed client's permit is free when its lease has ended, and the clocks of clients do not matter. fencelock does this, and renews.",
                "只要业务在租约内做完就成立。客户端崩溃后，租约一到许可就空出来；客户端的时钟不起作用。fencelock 就是这样做的，并且自动续期。",
            ),
            around(Op::TakeByServer, Op::GivePermit),
        )
    }
}

/// A client sends its first request to the server with its own number, like clients that start with a random server.
fn node_counters() -> LockScheme {
    LockScheme {
        home: Home::Three,
        has_lease: false,
        permits: 2,
        faults: vec![],
        exhibit: Some((Property::Exclusion, None)),
        ..on_redis(
            "permits-node-counters",
            Text::new(
                "two permits, counted by each of three servers; a majority counts",
                "两个许可，三个节点各自计数，过半即成功",
            ),
            Text::new(
                "Each of three servers has two permits, so three majorities fit. Require more servers for each permit (permits-all-nodes), or number the permits and lock each like a key: the slots of fencelock.",
                "三个节点各有两个许可，合起来够三个多数派。要么要求更多的节点（见 permits-all-nodes），要么给每个许可编号，像 key 一样各自加锁：即 fencelock 的 slots。",
            ),
            vec![
                line(Op::TakeCountAt(0), 1, 2),
                line(Op::TakeCountAt(1), 4, 3),
                line(Op::TakeCountAt(1), 8, 15),
                line(Op::TakeCountAt(2), 12, 14),
                // The servers 0 and 1.
                then(Op::Enter, 5),
                then(Op::Write, 6),
                then(Op::GiveCountAt(0), 7),
                then(Op::GiveCountAt(1), 15),
                // Only server 1 yet.
                line(Op::TakeCountAt(2), 9, 13),
                then(Op::Enter, 10),
                then(Op::Write, 11),
                then(Op::GiveCountAt(1), 16),
                then(Op::Enter, 17),
                then(Op::GiveCountAt(1), 15),
                then(Op::GiveCountAt(0), 15),
                then(Op::Done, 0),
                then(Op::GiveCountAt(2), 15),
                // The servers 0 and 2.
                then(Op::Write, 18),
                then(Op::GiveCountAt(0), 16),
            ],
        )
    }
}

fn all_nodes() -> LockScheme {
    LockScheme {
        home: Home::Three,
        has_lease: false,
        permits: 2,
        faults: vec![],
        ..on_redis(
            "permits-all-nodes",
            Text::new(
                "two permits, counted by each of three servers; all three must agree",
                "两个许可，三个节点各自计数，三个节点都要同意",
            ),
            Text::new(
                "Holds: with n servers and N permits, more than nN/(N+1) servers must agree, here all. None of them may fail then, so fencelock refuses permits on a quorum and offers slots.",
                "成立：n 个节点、N 个许可时，同意的节点要多于 nN/(N+1) 个，这里就是全部。代价是一个节点都不能坏，所以 fencelock 不在多数派上提供许可，而是提供 slots。",
            ),
            vec![
                line(Op::TakeCountAt(0), 1, 9),
                line(Op::TakeCountAt(1), 2, 10),
                line(Op::TakeCountAt(2), 3, 11),
                then(Op::Enter, 4),
                then(Op::Write, 5),
                then(Op::GiveCountAt(0), 6),
                then(Op::GiveCountAt(1), 7),
                then(Op::GiveCountAt(2), 8),
                then(Op::Done, 0),
                line(Op::Retry, 0, 13),
                then(Op::GiveCountAt(0), 9),
                then(Op::GiveCountAt(1), 12),
                then(Op::GiveCountAt(0), 9),
                then(Op::Busy, 0),
            ],
        )
    }
}
