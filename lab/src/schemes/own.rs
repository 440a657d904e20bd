//! fencelock on one Redis server, with and without a check of its token.

use super::{line, on_redis, then};
use crate::fault::Fault;
use crate::lang::Text;
use crate::property::Property;
use crate::scheme::{Home, LockScheme, Op};

pub(super) fn schemes() -> Vec<LockScheme> {
    let fenced = LockScheme {
        is_fenced: true,
        exhibit: Some((Property::Exclusion, Some(Fault::Pause))),
        ..own(
            "fencelock",
            Text::new(
                "fencelock on one Redis, its token checked where the stock is read and written",
                "fencelock（单个 Redis），读写库存时都检查令牌",
            ),
            Text::new(
                "A paused process cannot know that it lost its lock. Its write is rejected nevertheless.",
                "停顿的进程醒来仍会以为自己有锁，这一点谁也拦不住；但它的写入会被拒绝。",
            ),
        )
    };
    let unfenced = LockScheme {
        exhibit: Some((Property::NoLateWrite, Some(Fault::Pause))),
        ..own(
            "fencelock-unfenced",
            Text::new(
                "fencelock on one Redis, but no receiver checks the token",
                "fencelock（单个 Redis），但没有人检查令牌",
            ),
            Text::new(
                "There is always a gap between the last check of the lock and the write. Send the token with the write, and let the receiver reject smaller ones.",
                "最后一次检查锁和写入之间总有空隙。写入时带上令牌，让接收方拒绝更小的令牌。",
            ),
        )
    };
    vec![fenced, unfenced]
}

fn own(id: &'static str, title: Text, advice: Text) -> LockScheme {
    let lines = vec![
        line(Op::Claim, 1, 6),
        line(Op::Enter, 2, 4),
        line(Op::IsHeld, 3, 4),
        then(Op::Write, 4),
        then(Op::CompareDel, 5),
        then(Op::Done, 0),
        then(Op::Busy, 0),
    ];
    LockScheme {
        home: Home::Replicated,
        is_renewed: true,
        clients: 2,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Overrun, Fault::Pause, Fault::Failover],
        ..on_redis(id, title, advice, lines)
    }
}
