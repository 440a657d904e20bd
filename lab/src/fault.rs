//! The faults of a search.

use crate::lang::{Lang, Text};

/// A fault. Without faults, clients finish in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// One client dies between any two steps.
    Crash,
    /// The connection of one client breaks before it releases the lock.
    LostRelease,
    /// The clocks of the second and third client are one tick ahead of the first.
    Clocks,
    /// The work takes longer than the lease. The process keeps running, so a watchdog renews.
    Overrun,
    /// The whole process, including its watchdog, is paused for longer than the lease between any two steps.
    Pause,
    /// The replica is promoted; data that was not replicated is lost.
    Failover,
    /// One server restarts and has lost all data.
    Restart,
}

impl Fault {
    /// All faults, the mildest first.
    pub const ALL: [Self; 7] =
        [Self::Crash, Self::LostRelease, Self::Clocks, Self::Overrun, Self::Pause, Self::Failover, Self::Restart];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::LostRelease => "lost-release",
            Self::Clocks => "clocks",
            Self::Overrun => "overrun",
            Self::Pause => "pause",
            Self::Failover => "failover",
            Self::Restart => "restart",
        }
    }

    /// The name in a table.
    pub const fn label(self, lang: Lang) -> &'static str {
        let text = match self {
            Self::Crash => Text::new("crash", "崩溃"),
            Self::LostRelease => Text::new("lost release", "释放失败"),
            Self::Clocks => Text::new("clocks", "时钟不一致"),
            Self::Overrun => Text::new("overrun", "执行超时"),
            Self::Pause => Text::new("pause", "进程停顿"),
            Self::Failover => Text::new("failover", "主从切换"),
            Self::Restart => Text::new("restart", "节点重启"),
        };
        text.get(lang)
    }

    /// The fault as a clause.
    pub const fn meaning(self, lang: Lang) -> &'static str {
        let text = match self {
            Self::Crash => Text::new("one client crashes", "有一个客户端崩溃"),
            Self::LostRelease => Text::new(
                "one client's connection breaks before it releases the lock",
                "有一个客户端在释放锁之前断了连接",
            ),
            Self::Clocks => {
                Text::new("the clocks of P2 and P3 are one tick ahead of P1's", "P2 和 P3 的时钟比 P1 快一拍")
            }
            Self::Overrun => Text::new("the work takes longer than the lock lasts", "业务执行的时间超过了锁的过期时间"),
            Self::Pause => {
                Text::new("a process is paused for longer than the lock lasts", "整个进程停顿的时间超过了锁的过期时间")
            }
            Self::Failover => Text::new(
                "the replica is promoted before all data was replicated",
                "数据还没同步完，从库就被提升为主库",
            ),
            Self::Restart => Text::new("a server restarts and has lost all data", "有一个节点重启，数据全部丢失"),
        };
        text.get(lang)
    }

    /// Whether the fault violates an assumption of every lock with a lease, rather than showing a flaw of the scheme.
    pub const fn is_assumption(self) -> bool {
        matches!(self, Self::Overrun | Self::Pause | Self::Failover | Self::Restart)
    }
}

/// A set of faults that may happen in one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults(u8);

impl Faults {
    /// No fault.
    pub const NONE: Self = Self(0);

    /// This set and `fault`.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u8)
    }

    /// Whether `fault` may happen.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u8) != 0
    }

    /// The number of faults.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The subsets of two or more faults, the smallest first.
    pub(crate) fn subsets(self) -> impl Iterator<Item = Self> {
        let mut sets: Vec<_> = (0..=self.0).filter(|bits| bits & !self.0 == 0).map(Self).collect();
        sets.retain(|set| set.count() > 1);
        sets.sort_by_key(|set| set.count());
        sets.into_iter()
    }

    /// The name: `-` for none, `crash+clocks` for two.
    pub fn name(self) -> String {
        let names: Vec<_> = self.iter().map(Fault::name).collect();
        if names.is_empty() { "-".to_owned() } else { names.join("+") }
    }

    /// The faults as clauses; `None` without any.
    pub fn meaning(self, lang: Lang) -> Option<String> {
        let all: Vec<_> = self.iter().map(|fault| fault.meaning(lang)).collect();
        (!all.is_empty()).then(|| all.join(lang.pick(", and ", "，并且")))
    }

    /// The faults of the set.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.into_iter().filter(move |fault| self.has(*fault))
    }
}

impl From<Option<Fault>> for Faults {
    fn from(fault: Option<Fault>) -> Self {
        fault.into_iter().collect()
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        faults.into_iter().fold(Self::NONE, Self::with)
    }
}
