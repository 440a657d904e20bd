/// An idle fence is forgotten after a day. It follows the time, so that cannot lower it.
pub const FENCE_TTL_MS: u64 = 86_400_000;
/// An idle line is forgotten after an hour.
pub const LINE_TTL_MS: u64 = 3_600_000;
/// A proposal may lie so far off the server's clock.
pub const CLAMP_US: u64 = 1_000_000;
/// The greatest fencing token: doubles count up to here without a gap.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// The version of the wire that the scripts write.
pub const VERSION: &str = "1";

/// Waiters that one script looks at.
pub const CAP: usize = 32;

/// What every script sees of the server it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Server {
    /// The wall clock. It stands still while a script runs, and may be set back between two.
    pub now_us: u64,
    /// Scripts may not ask for the time; then the client's proposal is taken for it.
    pub time_refused: bool,
    /// The memory is full: what needs more of it is refused, unless the script has already begun to write.
    pub full: bool,
    /// How many waiters one script looks at: [`CAP`], or fewer to see more of it.
    pub cap: usize,
}

impl Server {
    /// A healthy server at this time.
    pub const fn at(now_us: u64) -> Self {
        Self { now_us, time_refused: false, full: false, cap: CAP }
    }

    pub(super) const fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// The time that scripts go by.
    pub(super) const fn clock_us(&self, proposal: u64) -> u64 {
        if self.time_refused { proposal } else { self.now_us }
    }

    /// A key is there up to and including the millisecond at which it ends, for whoever looks. The server's own sweep takes it
    /// in that millisecond already, from Redis 8 on: whether it comes by then is luck, so this is what is true without it.
    pub(super) fn is_over(&self, expires_ms: Option<u64>) -> bool {
        expires_ms.is_some_and(|end| end < self.now_ms())
    }
}
