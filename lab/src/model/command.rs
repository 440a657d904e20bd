//! The command of a line as words, to be shown or sent to a real server.

use super::LockModel;
use super::permits::node_of;
use super::state::{Action, State, TTL, Value};
use crate::scheme::{Content, Op};

/// A script that a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    CompareDelete,
    CompareExpire,
    Claim,
    TakeCount,
    TakeByClock,
    TakeByServer,
    WriteLock,
    ReadLock,
    EndWrite,
    EndWriteKeepTtl,
    ReadUnlock,
}

/// A word of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Plain(&'static str),
    /// The key of the lock.
    Lock,
    Value(Value),
    /// The TTL of a lock.
    Ttl,
    /// Twice that.
    LongTtl,
    /// The permits of a semaphore.
    Limit(u8),
    Script(Script),
}

/// A command, and the server that receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) words: Vec<Word>,
    pub(crate) node: u8,
}

impl LockModel<'_> {
    /// The command of `action`, also if a broken connection prevents it.
    pub(crate) fn command(&self, before: &State, action: Action) -> Option<Command> {
        let client = action.client()?;
        if let Action::Renew(_) = action {
            return Some(Command::renewal(Value::Id(client)));
        }
        if let Action::Crash(_) = action {
            return None;
        }
        let at = usize::from(client);
        command_of(self.op(before, at), at, self.scheme.permits, |content| match content {
            Content::One => Value::One,
            Content::Id => Value::Id(client),
            Content::Now => Value::Time(self.clock(before, at)),
            Content::Deadline => Value::Time(self.clock(before, at) + TTL),
        })
    }
}

/// The command of an operation of the client with this number, if it sends one to Redis. `permits` is the limit of a semaphore, and
/// `content` returns the value that the client writes into the key.
fn command_of(op: Op, client: usize, permits: u8, content: impl Fn(Content) -> Value) -> Option<Command> {
    let limit = Word::Limit(permits);
    match op {
        Op::TakeCount => Some(Command { words: take_count(limit), node: 0 }),
        Op::TakeCountAt(nth) => Some(Command { words: take_count(limit), node: node_of(client, nth) as u8 }),
        Op::GiveCountAt(nth) => Some(Command { node: node_of(client, nth) as u8, ..increment() }),
        Op::TakeByClock | Op::TakeByServer => {
            let mut command = op.command(content)?;
            command.words.push(limit);
            Some(command)
        }
        _ => op.command(content),
    }
}

fn take_count(limit: Word) -> Vec<Word> {
    vec![Word::Plain("EVAL"), Word::Script(Script::TakeCount), limit]
}

fn increment() -> Command {
    Command { words: vec![Word::Plain("INCR"), Word::Lock], node: 0 }
}

impl Command {
    /// The renewal of a watchdog.
    pub(crate) fn renewal(id: Value) -> Self {
        script(Script::CompareExpire, id, 0)
    }
}

impl Op {
    /// The command of an operation without the limit of a semaphore.
    fn command(self, content: impl Fn(Content) -> Value) -> Option<Command> {
        let plain = |words: &[Word]| Some(Command { words: words.to_vec(), node: 0 });
        let (lock, name, id) = (Word::Lock, Word::Plain, || content(Content::Id));
        match self {
            Self::SetNx(value) => plain(&[name("SETNX"), lock, Word::Value(content(value))]),
            Self::SetNxEx(value) => Some(set_nx_ex(content(value), 0)),
            Self::SetNode(node) => Some(set_nx_ex(id(), node)),
            Self::Claim => Some(script(Script::Claim, id(), 0)),
            Self::Expire => plain(&[name("EXPIRE"), lock, Word::Ttl]),
            Self::ExpireNow => plain(&[name("EXPIRE"), lock, name("0")]),
            Self::HasNoTtl => plain(&[name("TTL"), lock]),
            Self::GetIsMine | Self::GetDeadline => plain(&[name("GET"), lock]),
            Self::GetSetIsSame => plain(&[name("GETSET"), lock, Word::Value(content(Content::Deadline))]),
            Self::Del => plain(&[name("DEL"), lock]),
            Self::MultiDel => plain(&[name("MULTI"), name("DEL"), lock, name("EXEC")]),
            Self::CompareDel => Some(script(Script::CompareDelete, id(), 0)),
            Self::DelNode(node) => Some(script(Script::CompareDelete, id(), node)),
            Self::GiveCount => Some(increment()),
            Self::TakeByClock => {
                let [now, deadline] = [Content::Now, Content::Deadline].map(|time| Word::Value(content(time)));
                plain(&[name("EVAL"), Word::Script(Script::TakeByClock), Word::Value(id()), now, deadline])
            }
            Self::TakeByServer => Some(script(Script::TakeByServer, id(), 0)),
            Self::GivePermit => plain(&[name("ZREM"), lock, Word::Value(id())]),
            Self::WriteLock => Some(script(Script::WriteLock, id(), 0)),
            Self::ReadLock => Some(script(Script::ReadLock, id(), 0)),
            Self::EndWrite | Self::WriteUnlock => Some(script(Script::EndWrite, id(), 0)),
            Self::EndWriteKeepTtl => Some(script(Script::EndWriteKeepTtl, id(), 0)),
            Self::ReadUnlock => Some(script(Script::ReadUnlock, id(), 0)),
            _ => None,
        }
    }
}

fn set_nx_ex(value: Value, node: u8) -> Command {
    let words = [Word::Plain("SET"), Word::Lock, Word::Value(value), Word::Plain("NX"), Word::Plain("EX"), Word::Ttl];
    Command { words: words.to_vec(), node }
}

fn script(script: Script, value: Value, node: u8) -> Command {
    let mut words = vec![Word::Plain("EVAL"), Word::Script(script), Word::Value(value)];
    words.extend(match script {
        Script::CompareDelete | Script::ReadUnlock => None,
        Script::ReadLock => Some(Word::LongTtl),
        _ => Some(Word::Ttl),
    });
    Command { words, node }
}

impl Script {
    /// The name of the script as a word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CompareDelete => "compare-and-delete",
            Self::CompareExpire => "compare-and-expire",
            Self::Claim => "claim",
            Self::TakeCount => "take-from-counter",
            Self::TakeByClock => "take-by-client-clock",
            Self::TakeByServer => "take-by-server-clock",
            Self::WriteLock => "write-lock",
            Self::ReadLock => "read-lock",
            Self::EndWrite => "write-unlock",
            Self::EndWriteKeepTtl => "write-unlock-keep-ttl",
            Self::ReadUnlock => "read-unlock",
        }
    }

    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::CompareDelete => include_str!("../lua/compare_delete.lua"),
            Self::CompareExpire => include_str!("../lua/compare_expire.lua"),
            Self::Claim => include_str!("../lua/claim.lua"),
            Self::TakeCount => include_str!("../lua/take_count.lua"),
            Self::TakeByClock => include_str!("../lua/take_by_clock.lua"),
            Self::TakeByServer => include_str!("../lua/take_by_server.lua"),
            Self::WriteLock => include_str!("../lua/write_lock.lua"),
            Self::ReadLock => include_str!("../lua/read_lock.lua"),
            Self::EndWrite => include_str!("../lua/end_write.lua"),
            Self::EndWriteKeepTtl => include_str!("../lua/end_write_keep_ttl.lua"),
            Self::ReadUnlock => include_str!("../lua/read_unlock.lua"),
        }
    }
}
