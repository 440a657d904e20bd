//! Schemes of the article that improves one lock six times.

use super::{line, on_redis, plain, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Content, Home, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    vec![
        setnx(),
        expire_on_failure(),
        deadline_value(),
        getset(),
        set_nx_ex(),
        token_lua(),
        system("thread", Text::new("a lock between threads: here memory:", "线程锁：本项目的 memory:")),
        system(
            "process",
            Text::new("a lock between processes of one machine: here file:", "同一操作系统内的进程锁：本项目的 file:"),
        ),
    ]
}

fn setnx() -> LockScheme {
    LockScheme {
        has_lease: false,
        faults: vec![Fault::Crash, Fault::LostRelease],
        exhibit: Some((Property::NoDeadLock, Some(Fault::LostRelease))),
        ..on_redis(
            "setnx",
            Text::new("SETNX, work, DEL", "SETNX 加锁，执行业务，DEL 释放"),
            Text::new(
                "Give the key an expiry, in the same command that creates it: SET NX EX.",
                "在创建 key 的同一条命令里设置过期时间：SET NX EX。",
            ),
            plain(Op::SetNx(Content::Now), Op::Del),
        )
    }
}

fn expire_on_failure() -> LockScheme {
    LockScheme {
        has_lease: false,
        faults: vec![Fault::Crash, Fault::LostRelease],
        exhibit: Some((Property::NoDeadLock, Some(Fault::LostRelease))),
        ..on_redis(
            "expire-on-failure",
            Text::new("SETNX, work, DEL; if DEL fails, EXPIRE 0", "SETNX 加锁，DEL 释放；DEL 失败时再 EXPIRE 0"),
            Text::new(
                "If DEL does not arrive, EXPIRE does not arrive either. The expiry must be set from the start: SET NX EX.",
                "DEL 发不出去，EXPIRE 同样发不出去。过期时间要在加锁时就设好：SET NX EX。",
            ),
            vec![
                line(Op::SetNx(Content::Now), 1, 6),
                then(Op::Enter, 2),
                then(Op::Write, 3),
                line(Op::Del, 5, 4),
                then(Op::ExpireNow, 5),
                then(Op::Done, 0),
                then(Op::Busy, 0),
            ],
        )
    }
}

fn deadline_value() -> LockScheme {
    LockScheme {
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Clocks, Fault::Overrun],
        exhibit: Some((Property::Exclusion, None)),
        ..on_redis(
            "deadline-value",
            Text::new(
                "value = deadline; once it has passed: DEL, then SETNX",
                "值为超时时间；发现已超时就先 DEL 再 SETNX",
            ),
            Text::new(
                "Let Redis expire the lock: SET NX EX. Removing an old lock and taking it must be one atomic step.",
                "让 Redis 自己让锁过期：SET NX EX。清除旧锁和拿到新锁必须是同一步。",
            ),
            vec![
                line(Op::SetNx(Content::Deadline), 5, 1),
                then(Op::GetDeadline, 2),
                line(Op::HasPassed, 3, 9),
                line(Op::Del, 4, 9),
                line(Op::SetNx(Content::Deadline), 5, 9),
                then(Op::Enter, 6),
                then(Op::Write, 7),
                then(Op::Del, 8),
                then(Op::Done, 0),
                then(Op::Busy, 0),
            ],
        )
    }
}

fn getset() -> LockScheme {
    LockScheme {
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Clocks, Fault::Overrun],
        exhibit: Some((Property::OwnLockOnly, None)),
        ..on_redis(
            "getset",
            Text::new(
                "value = deadline; once it has passed: GETSET, and compare with what was seen",
                "值为超时时间；发现已超时就 GETSET，再和先前看到的值比较",
            ),
            Text::new(
                "Let Redis expire the lock: SET NX EX. Then client clocks do not matter, and a client that fails to acquire writes nothing.",
                "让 Redis 自己让锁过期：SET NX EX。这样不依赖各客户端的时钟，抢锁失败者也不会写任何东西。",
            ),
            vec![
                line(Op::SetNx(Content::Deadline), 4, 1),
                then(Op::GetDeadline, 2),
                line(Op::HasPassed, 3, 8),
                line(Op::GetSetIsSame, 4, 8),
                then(Op::Enter, 5),
                then(Op::Write, 6),
                then(Op::Del, 7),
                then(Op::Done, 0),
                then(Op::Busy, 0),
            ],
        )
    }
}

fn set_nx_ex() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::OwnLockOnly, Some(Fault::Overrun))),
        ..on_redis(
            "set-nx-ex",
            Text::new("SET NX EX, plain DEL", "SET NX EX 加锁，直接 DEL 释放"),
            Text::new(
                "Store a unique value, and delete the key only if the value is unchanged, in one Lua script.",
                "写入自己独有的值，释放时用一个 Lua 脚本确认值没变再删除。",
            ),
            plain(Op::SetNxEx(Content::One), Op::Del),
        )
    }
}

fn token_lua() -> LockScheme {
    LockScheme {
        exhibit: Some((Property::Exclusion, Some(Fault::Overrun))),
        ..on_redis(
            "token-lua",
            Text::new(
                "SET NX EX with a password, compare and delete in Lua (recommended there)",
                "SET NX EX 加密码，用 Lua 比较后删除（原文推荐）",
            ),
            Text::new(
                "Correct as long as the work ends before the lock expires. Renew the lease, and check a fencing token where you write.",
                "只要业务在过期时间内做完就是可靠的。要放开这个前提：续期，并在写入处检查令牌。",
            ),
            plain(Op::SetNxEx(Content::Id), Op::CompareDel),
        )
    }
}

/// The article leaves this case open. The system releases the lock of a dead holder, because it can detect the death.
fn system(id: &'static str, title: Text) -> LockScheme {
    let advice = Text::new(
        "Holds: the operating system detects the death of the holder, so no expiry is needed. It works on one machine only.",
        "成立：操作系统看得见持有者退出，不需要过期时间。但只在一台机器内有效。",
    );
    LockScheme {
        home: Home::System,
        has_lease: false,
        faults: vec![Fault::Crash, Fault::Overrun, Fault::Pause],
        ..on_redis(id, title, advice, plain(Op::Lock, Op::Unlock))
    }
}
