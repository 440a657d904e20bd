//! Describes steps in words.

use crate::lang::Lang;
use crate::model::LockModel;
use crate::model::command::{Command, Word};
use crate::model::state::{Action, Reply, State, TTL, Transition, Value};
use crate::scheme::{Home, Op};

/// `P1`
pub(crate) fn name(client: u8) -> String {
    format!("P{}", client + 1)
}

pub(crate) fn value(value: Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::One => "1".to_owned(),
        Value::Id(client) => name(client),
        Value::Time(tick) => format!("t{tick}"),
        Value::Count(left) => left.to_string(),
        Value::Ends(ends) => {
            let holders = (0..).zip(ends).filter(|(_, end)| *end > 0);
            holders.map(|(client, end)| format!("{} t{end}", name(client))).collect::<Vec<_>>().join(" ")
        }
        Value::ReadWrite(lock) => {
            let writer = lock.writer.map(|writer| format!("{} x{}", name(writer), lock.writes));
            let readers = (0..).zip(lock.readers).filter(|(_, reads)| *reads);
            let readers = readers.map(|(client, _)| format!("{} r", name(client)));
            writer.into_iter().chain(readers).collect::<Vec<_>>().join(" ")
        }
    }
}

/// `SET lock P1 NX EX 2`
pub(crate) fn command(command: &Command, home: Home) -> String {
    let word = |word: &Word| match word {
        Word::Plain(text) => (*text).to_owned(),
        Word::Lock if home == Home::Three => format!("lock@{}", command.node + 1),
        Word::Lock => "lock".to_owned(),
        Word::Value(it) => value(*it),
        Word::Ttl => TTL.to_string(),
        Word::LongTtl => (2 * TTL).to_string(),
        Word::Limit(limit) => limit.to_string(),
        Word::Script(script) => script.name().to_owned(),
    };
    let words: Vec<_> = command.words.iter().map(word).collect();
    let scripted = matches!(command.words.get(1), Some(Word::Script(_)));
    let at = if scripted && home == Home::Three { format!(" @{}", command.node + 1) } else { String::new() };
    words.join(" ") + &at
}

pub(crate) fn reply(reply: Reply, lang: Lang) -> Option<String> {
    Some(match reply {
        Reply::None => return None,
        Reply::Int(number) | Reply::Ttl(number) => number.to_string(),
        Reply::Ok => "OK".to_owned(),
        Reply::Value(it) => value(it),
        Reply::Token(0) => "0".to_owned(),
        Reply::Token(token) => format!("{}{token}", lang.pick("token ", "令牌 ")),
        Reply::Failed => lang.pick("no answer", "无响应").to_owned(),
    })
}

/// A local operation of a client, for its column.
pub(crate) fn operation(op: Op, step: &Transition, lang: Lang) -> &'static str {
    match (op, step.yes) {
        (Op::HasPassed, true) => lang.pick("deadline has passed", "已超时"),
        (Op::HasPassed, false) => lang.pick("deadline has not passed", "未超时"),
        (Op::HasMajority, true) => lang.pick("a majority: holds the lock", "过半：加锁成功"),
        (Op::HasMajority, false) => lang.pick("no majority in time", "未过半或已超时"),
        (Op::Lock, true) => lang.pick("acquires the lock", "加锁成功"),
        (Op::Lock, false) => lang.pick("lock is held", "锁被占用"),
        (Op::Unlock, _) => lang.pick("releases the lock", "释放锁"),
        (Op::Enter, true) => lang.pick("reads the stock, at work", "读库存，开始执行业务"),
        (Op::Enter, false) => lang.pick("reads: refused", "读库存：被拒绝"),
        (Op::Read, _) => lang.pick("ends its reading", "读完"),
        (Op::IsHeld, true) => lang.pick("checks: lock is held", "检查：锁还在"),
        (Op::IsHeld, false) => lang.pick("checks: lock is lost", "检查：锁已丢失"),
        (Op::Write, true) => lang.pick("writes the stock", "写库存"),
        (Op::Write, false) => lang.pick("writes: refused", "写库存：被拒绝"),
        (Op::Retry, _) => lang.pick("waits and retries", "等一会儿再试"),
        _ => "",
    }
}

/// The step as a sentence.
pub(crate) fn sentence(model: &LockModel<'_>, before: &State, action: Action, step: &Transition, lang: Lang) -> String {
    let who = action.client().map(name).unwrap_or_default();
    match action {
        Action::Tick => tick(before, step, lang),
        Action::Replicate => lang.pick("The replica copies the master.", "从库同步了主库的数据。").to_owned(),
        Action::Failover => failover(before, lang),
        Action::Restart(node) => match lang {
            Lang::En => format!("Server {} restarts and has lost its data.", node + 1),
            Lang::Zh => format!("节点 {} 重启，锁的数据丢了。", node + 1),
        },
        Action::Crash(_) => match lang {
            Lang::En => format!("{who} crashes."),
            Lang::Zh => format!("{who} 崩溃。"),
        },
        Action::Lose(_) => match lang {
            Lang::En => format!("{who}'s connection is broken: the command does not arrive."),
            Lang::Zh => format!("{who} 的连接断了：命令没有送达。"),
        },
        Action::Renew(_) => match (lang, step.yes) {
            (Lang::En, true) => format!("{who}'s watchdog renews the lock."),
            (Lang::En, false) => format!("{who}'s watchdog finds that the lock is gone."),
            (Lang::Zh, true) => format!("{who} 的看门狗续期。"),
            (Lang::Zh, false) => format!("{who} 的看门狗发现锁已经没了。"),
        },
        Action::Step(client) => {
            let sentence = of_op(model.op(before, usize::from(client)), step, lang);
            let space = if sentence.starts_with('\'') { "" } else { " " };
            format!("{who}{space}{sentence}")
        }
    }
}

fn tick(before: &State, step: &Transition, lang: Lang) -> String {
    let gone = before.keys.iter().zip(step.after.keys).filter(|(then, now)| then.is_some() && now.is_none()).count();
    match (lang, gone > 0) {
        (Lang::En, false) => "A tick passes.".to_owned(),
        (Lang::En, true) => "A tick passes, and the lock expires.".to_owned(),
        (Lang::Zh, false) => "过了一拍。".to_owned(),
        (Lang::Zh, true) => "过了一拍，锁到期，被 Redis 删除。".to_owned(),
    }
}

fn failover(before: &State, lang: Lang) -> String {
    let lost = before.keys[0].is_some() && before.keys[1] != before.keys[0];
    match (lang, lost) {
        (Lang::En, true) => "The master fails; the replica takes over without having copied the lock.".to_owned(),
        (Lang::En, false) => "The master fails; the replica takes over.".to_owned(),
        (Lang::Zh, true) => "主库故障，从库被提升为主库，但锁还没有同步过来。".to_owned(),
        (Lang::Zh, false) => "主库故障，从库被提升为主库。".to_owned(),
    }
}

fn of_op(op: Op, step: &Transition, lang: Lang) -> &'static str {
    match (op, step.yes) {
        (Op::SetNx(_) | Op::SetNxEx(_) | Op::Claim | Op::Lock, true) => {
            lang.pick("finds no lock and acquires it.", "发现没有锁，加锁成功。")
        }
        (Op::SetNx(_) | Op::SetNxEx(_) | Op::Claim | Op::Lock, false) => {
            lang.pick("finds that the lock is held.", "发现锁已存在，没有拿到。")
        }
        (Op::SetNode(_), true) => lang.pick("gets a vote.", "在这个节点上加锁成功。"),
        (Op::SetNode(_), false) => lang.pick("does not get this vote.", "在这个节点上没有拿到锁。"),
        (Op::HasMajority, true) => {
            lang.pick("has a majority in time: it holds the lock.", "拿到多数节点且没有超时：加锁成功。")
        }
        (Op::HasMajority, false) => {
            lang.pick("has no majority in time, and rolls back.", "没拿到多数节点或已超时：回滚。")
        }
        (Op::Expire, true) => lang.pick("sets the expiry.", "设置过期时间。"),
        (Op::Expire, false) => {
            lang.pick("sets an expiry, but the lock no longer exists.", "设置过期时间，可锁已经不在了。")
        }
        (Op::HasNoTtl, true) => lang.pick("sees that the lock has no expiry.", "发现锁没有过期时间。"),
        (Op::HasNoTtl, false) => lang.pick("sees that no repair is needed.", "发现没有需要修补的。"),
        (Op::GetIsMine, true) => lang.pick("sees its own value in the lock.", "看到锁里是自己的值。"),
        (Op::GetIsMine, false) => lang.pick("sees the value of another client in the lock.", "看到锁不是自己的。"),
        (Op::GetDeadline, _) if step.reply == Reply::Value(Value::Nil) => lang
            .pick("reads no deadline: a missing value counts as expired.", "读到空值：锁已经没了，空值当作早已超时。"),
        (Op::GetDeadline, _) => lang.pick("reads the deadline in the lock.", "读出锁里的超时时间。"),
        (Op::HasPassed, true) => lang.pick("finds that the deadline has passed.", "判断锁已超时。"),
        (Op::HasPassed, false) => lang.pick("finds that the deadline has not passed.", "判断锁还没有超时。"),
        (Op::GetSetIsSame, true) => lang.pick(
            "gets back the deadline that it had read: it holds the lock.",
            "得到的旧值和先前看到的一致：加锁成功。",
        ),
        (Op::GetSetIsSame, false) => lang.pick(
            "gets back a different deadline: it did not acquire the lock, but has overwritten it.",
            "得到的旧值和先前看到的不一致：抢锁失败，却已经改写了锁的值。",
        ),
        _ if op.is_of_modes() => of_modes(op, step, lang),
        _ => of_rest(op, step, lang),
    }
}

fn of_modes(op: Op, step: &Transition, lang: Lang) -> &'static str {
    match (op, step.yes) {
        (Op::TakeByClock, true) => lang.pick(
            "removes the permits that have ended by its own clock, and takes one.",
            "按自己的时钟清除到期的许可，拿到一个许可。",
        ),
        (Op::TakeCount | Op::TakeByServer, true) => lang.pick("takes a permit.", "拿到一个许可。"),
        (Op::TakeCountAt(_), true) => lang.pick("takes a permit of this server.", "在这个节点上拿到一个许可。"),
        (Op::TakeCount | Op::TakeByServer | Op::TakeByClock, false) => {
            lang.pick("finds no free permit.", "没有空闲的许可。")
        }
        (Op::TakeCountAt(_), false) => lang.pick("finds no free permit on this server.", "这个节点上没有空闲的许可。"),
        (Op::GivePermit, false) => lang.pick("finds that its permit has ended.", "发现自己的许可已经到期。"),
        (Op::GiveCount | Op::GiveCountAt(_) | Op::GivePermit, _) => lang.pick("returns the permit.", "归还许可。"),
        (Op::WriteLock, true) => lang.pick("acquires the lock to write.", "拿到写锁。"),
        (Op::ReadLock, true) => {
            lang.pick("acquires the lock to read, for twice as long.", "拿到读锁，过期时间长一倍。")
        }
        (Op::WriteLock | Op::ReadLock, false) => {
            lang.pick("finds that another client holds the lock.", "发现锁被别人占用。")
        }
        (Op::EndWrite | Op::EndWriteKeepTtl | Op::WriteUnlock, true) => {
            lang.pick("ends one of its writes.", "释放一次写锁。")
        }
        (Op::ReadUnlock, true) => lang.pick("ends its hold.", "释放读锁。"),
        (Op::Read, _) => lang.pick("has finished reading.", "读完了。"),
        _ => lang.pick("finds that it does not hold the lock any more.", "发现自己已经不再持有锁。"),
    }
}

fn of_rest(op: Op, step: &Transition, lang: Lang) -> &'static str {
    match (op, step.yes) {
        (Op::Del | Op::MultiDel | Op::ExpireNow, true) => {
            lang.pick("deletes the key without checking its owner.", "删除 key，不管它是谁的。")
        }
        (Op::Del | Op::MultiDel | Op::ExpireNow, false) => lang.pick("finds no key to delete.", "没有可以删除的 key。"),
        (Op::CompareDel | Op::DelNode(_), true) => lang.pick("releases its own lock.", "释放了自己的锁。"),
        (Op::CompareDel | Op::DelNode(_), false) => {
            lang.pick("finds the lock of another client, and does not change it.", "发现锁不是自己的，不动它。")
        }
        (Op::Unlock, _) => lang.pick("releases the lock.", "释放锁。"),
        (Op::Enter, true) => lang.pick("starts its work: it reads the stock.", "开始执行业务：读库存。"),
        (Op::Enter, false) => {
            lang.pick("is rejected: the resource has seen a greater token.", "被拒绝：已经出现过更大的令牌。")
        }
        (Op::IsHeld, true) => lang.pick("checks its lock: it is held.", "检查自己的锁：还在。"),
        (Op::IsHeld, false) => {
            lang.pick("checks its lock: it is lost, so the client stops.", "检查自己的锁：已经丢失，于是停手。")
        }
        (Op::Write, true) => lang.pick("ends its work: it writes the stock.", "完成业务：写库存。"),
        (Op::Write, false) => lang.pick(
            "'s write is rejected: the resource has seen a greater token.",
            "的写入被拒绝：已经出现过更大的令牌。",
        ),
        (Op::Retry, _) => lang.pick("waits and retries.", "等一会儿再试。"),
        _ => "",
    }
}

/// The state of the lock on its servers.
pub(crate) fn servers(model: &LockModel<'_>, state: &State, lang: Lang) -> String {
    let entry = |at: usize| match state.keys[at] {
        None => lang.pick("no lock", "无锁").to_owned(),
        Some(entry) => {
            let left = match (entry.ttl, lang) {
                (None, Lang::En) => "no expiry".to_owned(),
                (None, Lang::Zh) => "无过期时间".to_owned(),
                (Some(ttl), Lang::En) => format!("{ttl} left"),
                (Some(ttl), Lang::Zh) => format!("剩 {ttl} 拍"),
            };
            format!("lock={}{}{left}", value(entry.value), lang.pick(", ", "，"))
        }
    };
    let short = |at: usize| {
        state.keys[at].map_or("-".to_owned(), |key| {
            let ttl = key.ttl.map_or(String::new(), |ttl| format!("({ttl})"));
            value(key.value) + &ttl
        })
    };
    let replica = lang.pick("replica", "从库");
    match model.scheme.home {
        Home::Three => format!("1:{} 2:{} 3:{}", short(0), short(1), short(2)),
        _ if model.is_replicated() && !state.failed_over && state.keys[0] != state.keys[1] => {
            format!("{}{}{replica} {}", entry(0), lang.pick("; ", "；"), short(1))
        }
        _ => entry(0),
    }
}
