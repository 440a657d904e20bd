//! The critical section.

use super::job::LiveJob;
use super::ledger::{Change, Ledger};
use super::request::Request;
use super::{Entrance, Load, NotRun, WorkloadKind};
use crate::load::{Hold, Holds};
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
    /// The holds of all requests of the process.
    holds: &'j Holds,
    request: Request,
    /// What was read, if it is still to be written, or to be read again.
    changes: Vec<Change>,
    /// The entry to report to the host before the end of the work.
    reported: Option<Entrance>,
    is_inside: bool,
    /// Reads during which the stock changed.
    pub(super) torn: u64,
}

impl<'j> Work<'j> {
    pub(super) fn new(
        job: &'j LiveJob,
        ledger: Ledger,
        (over, host, holds): (&'j AtomicBool, &'j dyn Host, &'j Holds),
    ) -> Self {
        let (load, request) = (&job.load, Request::of(0, 0));
        Self { ledger, load, over, host, holds, request, changes: vec![], reported: None, is_inside: false, torn: 0 }
    }

    pub(super) fn of(&mut self, request: Request) {
        self.leave();
        (self.request, self.changes, self.reported) = (request, Vec::new(), None);
    }

    /// Reads the value and works, calling `renew` repeatedly. `tokens` are those of the locks, if they are checked. `false` if
    /// a token is stale.
    pub(super) fn begin(
        &mut self,
        tokens: &[u64],
        renew: &mut dyn FnMut() -> Result<(), NotRun>,
    ) -> Result<bool, NotRun> {
        self.holds.begin(Hold::Permits(1), || BootClock.now());
        self.is_inside = true;
        let pair = self.request.pair();
        let token = |at: usize| tokens.get(at).copied().unwrap_or_default();
        let all = self.request.changes().enumerate();
        self.changes =
            all.map(|(at, (account, amount))| Change { account, amount, left: 0, token: token(at) }).collect();
        let Some(number) = self.ledger.enter(pair, &mut self.changes, self.request.is_reader)? else {
            self.leave();
            return Ok(false);
        };
        if self.changes.iter().any(|change| change.left < change.amount) && !self.request.is_reader {
            self.changes.clear();
            return Ok(true);
        }
        let is_reported = self.load.pause && self.load.is_followed(number);
        self.reported = is_reported.then_some(Entrance { account: pair, number });
        if self.load.is_crash_victim(pair, number) {
            // No handler and no destructor runs, as in a power failure.
            kill_process(getpid(), Signal::KILL).map_err(|error| NotRun::Start(error.into()))?;
        }
        let sleep = self.load.sleep.filter(|_| self.load.is_slow_holder(pair, number));
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

    /// Ends the work: writes the value if the amount was available, or reads it again. `false` if a token is stale.
    pub(super) fn end(&mut self) -> Result<bool, NotRun> {
        let mut changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            self.leave();
            return Ok(true);
        }
        if let Some(holder) = self.reported.filter(|_| !self.over.load(Ordering::Relaxed)) {
            self.host.before_write(holder).map_err(NotRun::Start)?;
        }
        let done = match (self.load.workload, self.request.is_reader) {
            (WorkloadKind::Pool, _) => true,
            (_, true) => {
                let before = changes[0].left;
                let is_admitted = self.ledger.read(&mut changes, true)?;
                self.torn += u64::from(is_admitted && changes[0].left != before);
                is_admitted
            }
            (_, false) => self.ledger.write(&changes)?,
        };
        self.leave();
        Ok(done)
    }

    /// Ends the hold, before its release is sent.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.is_inside) {
            self.holds.end(Hold::Permits(1), || BootClock.now());
        }
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
    /// The wait for a second lock ended without it, and the first one was released.
    Deadlock,
}

/// The boot clock in milliseconds, shared by all processes.
pub(super) fn clock() -> u64 {
    u64::try_from(BootClock.now().since(Moment::default()).as_millis()).unwrap_or(u64::MAX)
}
