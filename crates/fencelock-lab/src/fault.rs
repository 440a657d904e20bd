//! What may go wrong in a search.

use crate::words::{Lang, Text};

/// One thing that may go wrong. A search without any has clients that finish in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// One client dies, between any two steps.
    Crash,
    /// One client's connection breaks before it gives the lock back.
    LostRelease,
    /// The clocks of the second and the third client are one tick ahead of the first one's.
    Clocks,
    /// The work takes longer than the lease. The process runs on, so a watchdog does renew.
    Overrun,
    /// The whole process stands still for longer than the lease, between any two steps, its watchdog too.
    Pause,
    /// The replica takes over; what was not copied yet is lost.
    Failover,
    /// One of the servers restarts and has forgotten everything.
    Restart,
}

impl Fault {
    /// All of them, the mildest first.
    pub const ALL: [Self; 7] =
        [Self::Crash, Self::LostRelease, Self::Clocks, Self::Overrun, Self::Pause, Self::Failover, Self::Restart];

    /// Its name on the command line and in JSON.
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

    /// Its name in a table.
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

    /// What it is, as a clause.
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
            Self::Failover => {
                Text::new("the replica takes over before everything was copied", "数据还没同步完，从库就被提升为主库")
            }
            Self::Restart => {
                Text::new("a server restarts and has forgotten everything", "有一个节点重启，数据全部丢失")
            }
        };
        text.get(lang)
    }

    /// Whether it drops an assumption that a lock with a lease has to make, rather than showing a flaw.
    pub const fn is_assumption(self) -> bool {
        matches!(self, Self::Overrun | Self::Pause | Self::Failover | Self::Restart)
    }
}

/// A set of faults, each of which may happen in one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Faults(u8);

impl Faults {
    /// No fault.
    pub const NONE: Self = Self(0);

    /// This set and one more.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u8)
    }

    /// Whether `fault` may happen.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u8) != 0
    }

    /// How many may happen.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The sets of two or more of them, the smallest first.
    pub(crate) fn subsets(self) -> impl Iterator<Item = Self> {
        let mut sets: Vec<_> = (0..=self.0).filter(|bits| bits & !self.0 == 0).map(Self).collect();
        sets.retain(|set| set.count() > 1);
        sets.sort_by_key(|set| set.count());
        sets.into_iter()
    }

    /// Its name in JSON: `-` for none, `crash+clocks` for two.
    pub fn name(self) -> String {
        let names: Vec<_> = self.iter().map(Fault::name).collect();
        if names.is_empty() { "-".to_owned() } else { names.join("+") }
    }

    /// What they are, as clauses; `None` without any.
    pub fn meaning(self, lang: Lang) -> Option<String> {
        let all: Vec<_> = self.iter().map(|fault| fault.meaning(lang)).collect();
        (!all.is_empty()).then(|| all.join(lang.pick(", and ", "，并且")))
    }

    /// Those that may happen.
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
