/// An idle fence expires after a day. Tokens follow the time, so that the expiry cannot lower them.
pub const FENCE_TTL_MS: u64 = 86_400_000;
/// An idle queue expires after an hour.
pub const LINE_TTL_MS: u64 = 3_600_000;
/// The maximum distance between a proposal and the clock of the server.
pub const CLAMP_US: u64 = 1_000_000;
/// The greatest fencing token: the limit of exact integers in a double.
pub const FENCE_MAX: u64 = (1 << 53) - 1;

/// The version of the wire format that the scripts write.
pub const VERSION: &str = "1";

/// The maximum number of waiters that one script examines.
pub const CAP: usize = 32;

/// The state of the server that every script reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Server {
    /// The wall clock. It stops while a script runs, and may be set back between two scripts.
    pub now_us: u64,
    /// Scripts may not call `TIME`; then they use the proposal of the client.
    pub time_refused: bool,
    /// The memory is full: commands that need memory fail, unless the script has already written.
    pub full: bool,
    /// The maximum number of waiters that one script examines: [`CAP`], or fewer to test the limit more often.
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

    /// The time that scripts use.
    pub(super) const fn clock_us(&self, proposal: u64) -> u64 {
        if self.time_refused { proposal } else { self.now_us }
    }

    /// A key exists up to and including its expiry millisecond for every reader. From Redis 8 on, the active expiry may
    /// delete it during that millisecond, so this is the state without active expiry.
    pub(super) fn is_over(&self, expires_ms: Option<u64>) -> bool {
        expires_ms.is_some_and(|end| end < self.now_ms())
    }
}
