//! Schemes of articles that start with a complete class.

use super::{line, on_redis, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Content, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    vec![setnx_expire(), set_nx_px()]
}

fn setnx_expire() -> LockScheme {
    let lines = vec![
        line(Op::SetNx(Content::Id), 1, 6),
        then(Op::Expire, 2),
        then(Op::Enter, 3),
        then(Op::Write, 4),
        line(Op::GetIsMine, 5, 9),
        then(Op::MultiDel, 9),
        line(Op::HasNoTtl, 7, 8),
        then(Op::Expire, 8),
        line(Op::Retry, 0, 10),
        then(Op::Done, 0),
        then(Op::Busy, 0),
    ];
    LockScheme {
        exhibit: Some((Property::NoDeadLock, Some(Fault::Crash))),
        ..on_redis(
            "setnx-expire",
            Text::new(
                "SETNX, then EXPIRE; a waiter adds a missing EXPIRE; GET, compare, MULTI DEL EXEC",
                "先 SETNX 再 EXPIRE；等待者补上缺失的过期时间；解锁时先 GET 比较，再 MULTI DEL EXEC",
            ),
            Text::new(
                "Set the value and its expiry in one command (SET NX PX), and compare and delete in one script.",
                "用一条命令同时设置值和过期时间（SET NX PX）；比较和删除放进同一个 Lua 脚本。",
            ),
            lines,
        )
    }
}

fn set_nx_px() -> LockScheme {
    let lines = vec![
        line(Op::SetNxEx(Content::Id), 1, 4),
        then(Op::Enter, 2),
        then(Op::Write, 3),
        then(Op::CompareDel, 5),
        line(Op::Retry, 0, 6),
        then(Op::Done, 0),
        then(Op::Busy, 0),
    ];
    LockScheme {
        exhibit: Some((Property::Exclusion, Some(Fault::Overrun))),
        ..on_redis(
            "set-nx-px",
            Text::new(
                "SET NX PX with a request id, compare and delete in Lua; a waiter polls",
                "SET NX PX 加请求 id，用 Lua 比较后删除；拿不到就轮询等待",
            ),
            Text::new(
                "Correct as long as the work ends before the lock expires. Renew the lease, and check a fencing token where you write.",
                "只要业务在过期时间内做完就是可靠的。要放开这个前提：续期，并在写入处检查令牌。",
            ),
            lines,
        )
    }
}
