//! The properties of a correct lock.

use crate::lang::{Lang, Text};

/// A property that must hold in every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// Two clients are never between reading and writing the protected data.
    Exclusion,
    /// No client deletes, overwrites or shortens a valid lock of another client.
    OwnLockOnly,
    /// Once all clients have been gone for one lifetime of the lock, the next client acquires it at once.
    NoDeadLock,
    /// No write is accepted after a later holder has started.
    NoLateWrite,
}

impl Property {
    /// All properties, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Exclusion, Self::OwnLockOnly, Self::NoDeadLock, Self::NoLateWrite];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::OwnLockOnly => "own-lock-only",
            Self::NoDeadLock => "no-dead-lock",
            Self::NoLateWrite => "no-late-write",
        }
    }

    /// The name in a table.
    pub const fn label(self, lang: Lang) -> &'static str {
        let text = match self {
            Self::Exclusion => Text::new("one holder", "互斥"),
            Self::OwnLockOnly => Text::new("own lock only", "不误删别人的锁"),
            Self::NoDeadLock => Text::new("no dead lock", "不会死锁"),
            Self::NoLateWrite => Text::new("no late write", "锁过期后不会再写入"),
        };
        text.get(lang)
    }

    /// The property as a sentence.
    pub const fn meaning(self, lang: Lang) -> &'static str {
        let text = match self {
            Self::Exclusion => {
                Text::new("Two clients never work at the same time.", "任何时刻最多只有一个客户端在锁内执行。")
            }
            Self::OwnLockOnly => Text::new(
                "No client deletes, overwrites or shortens a valid lock of another client.",
                "谁都不能删除、覆盖或缩短别人仍然有效的锁。",
            ),
            Self::NoDeadLock => Text::new(
                "Once all clients have been gone for one lifetime of the lock, the next client acquires it at once.",
                "所有人都离开满一个过期时间之后，新来的客户端应当立刻拿到锁。",
            ),
            Self::NoLateWrite => Text::new(
                "A holder whose lock has expired detects it, or its write is rejected: no write is accepted after a later holder has started.",
                "锁过期的持有者要么自己发现，要么写入被拒绝：后来者开始执行之后，旧的写入不再被接受。",
            ),
        };
        text.get(lang)
    }

    /// What happens when the property is violated.
    pub const fn breach(self, lang: Lang) -> &'static str {
        let text = match self {
            Self::Exclusion => Text::new("two clients work at the same time", "两个客户端同时在锁内执行"),
            Self::OwnLockOnly => {
                Text::new("a valid lock of another client was deleted or overwritten", "误删或改写了别人仍然有效的锁")
            }
            Self::NoDeadLock => Text::new(
                "the lock is refused although no client holds it any more",
                "已经没有人持有锁，却还是拿不到：死锁",
            ),
            Self::NoLateWrite => Text::new(
                "a write is accepted after a later holder has started",
                "后来者已经开始执行，过期持有者的写入却被接受",
            ),
        };
        text.get(lang)
    }

    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}
