//! The critical section.

use super::job::LiveJob;
use super::ledger::Ledger;
use super::request::Request;
use super::{Entrance, Load, NotRun};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The parent of a worker process.
pub trait Host: Sync {
    /// Reports that the worker is connected. Returns when all processes may start.
    ///
    /// # Errors
    /// If the start is cancelled.
    fn start(&self) -> io::Result<()>;

    /// With [`Load::pause`]: a holder is about to write, and does so when this returns.
    ///
    /// # Errors
    /// If the worker must not continue.
    fn before_write(&self, holder: Entrance) -> io::Result<()>;
}

/// The work of a holder in its critical section.
pub(super) struct Work<'j> {
    pub(super) ledger: Ledger,
    load: &'j Load,
    over: &'j AtomicBool,
    host: &'j dyn Host,
    request: Request,
    token: Option<u64>,
    /// The value to write.
    next: Option<i64>,
    /// The entry to report to the host before the write.
    reported: Option<Entrance>,
}

impl<'j> Work<'j> {
    pub(super) fn new(job: &'j LiveJob, ledger: Ledger, over: &'j AtomicBool, host: &'j dyn Host) -> Self {
        let request = Request { account: 0, amount: 0 };
        Self { ledger, load: &job.load, over, host, request, token: None, next: None, reported: None }
    }

    pub(super) fn of(&mut self, request: Request) {
        (self.request, self.token, self.next, self.reported) = (request, None, None, None);
    }

    /// Reads the value and works, calling `renew` repeatedly. `false` if the token is stale.
    pub(super) fn begin(
        &mut self,
        token: Option<u64>,
        renew: &mut dyn FnMut() -> Result<(), NotRun>,
    ) -> Result<bool, NotRun> {
        self.token = token;
        let account = self.request.account;
        let Some(entry) = self.ledger.read(account, token)? else { return Ok(false) };
        if entry.left < self.request.amount {
            return Ok(true);
        }
        self.next = Some(entry.left - self.request.amount);
        let is_reported = self.load.pause && self.load.is_followed(entry.number);
        self.reported = is_reported.then_some(Entrance { account, number: entry.number });
        if self.load.is_crash_victim(account, entry.number) {
            // No handler and no destructor runs, as in a power failure.
            kill_process(getpid(), Signal::KILL).map_err(|error| NotRun::Start(error.into()))?;
        }
        let sleep = self.load.sleep.filter(|_| self.load.is_slow_holder(account, entry.number));
        let until = BootClock.now() + sleep.unwrap_or(self.load.work);
        let pause = self.load.ttl / 3;
        loop {
            let left = until.since(BootClock.now());
            if left.is_zero() || self.over.load(Ordering::Relaxed) {
                return Ok(true);
            }
            std::thread::sleep(left.min(pause).max(Duration::from_micros(100)));
            if left > pause {
                renew()?;
            }
        }
    }

    /// Writes the value if the amount was available. `false` if the token is stale.
    pub(super) fn end(&mut self) -> Result<bool, NotRun> {
        let Some(next) = self.next.take() else { return Ok(true) };
        if let Some(holder) = self.reported.filter(|_| !self.over.load(Ordering::Relaxed)) {
            self.host.before_write(holder).map_err(NotRun::Start)?;
        }
        self.ledger.write(self.request.account, next, self.request.amount, self.token)
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptResult {
    Served,
    /// Another client holds the lock.
    Busy,
    /// The token was stale, and the write was rejected.
    Refused,
    /// The lock was lost, and the write was skipped.
    GivenUp,
}

/// The boot clock in milliseconds, shared by all processes.
pub(super) fn clock() -> u64 {
    u64::try_from(BootClock.now().since(Moment::default()).as_millis()).unwrap_or(u64::MAX)
}
