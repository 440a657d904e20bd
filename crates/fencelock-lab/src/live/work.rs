//! What is done inside of a lock.

use super::account::Request;
use super::books::Books;
use super::job::Job;
use super::{Entrance, Load, NotRun};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whoever started a process for its part of a story.
pub trait Host: Sync {
    /// Everything is connected. Returns when all processes may begin.
    ///
    /// # Errors
    /// If they never will.
    fn start(&self) -> io::Result<()>;

    /// With [`Load::pause`]: somebody has a lock, or believes so, and will write as soon as this returns.
    ///
    /// # Errors
    /// If it is not to go on.
    fn before_write(&self, holder: Entrance) -> io::Result<()>;
}

/// What a hand does while it has the lock, or believes so.
pub(super) struct Work<'j> {
    pub(super) books: Books,
    load: &'j Load,
    over: &'j AtomicBool,
    host: &'j dyn Host,
    request: Request,
    token: Option<u64>,
    /// What it will write.
    next: Option<i64>,
    /// What the host is told before that.
    told: Option<Entrance>,
}

impl<'j> Work<'j> {
    pub(super) fn new(job: &'j Job, books: Books, over: &'j AtomicBool, host: &'j dyn Host) -> Self {
        let request = Request { account: 0, amount: 0 };
        Self { books, load: &job.load, over, host, request, token: None, next: None, told: None }
    }

    pub(super) fn of(&mut self, request: Request) {
        (self.request, self.token, self.next, self.told) = (request, None, None, None);
    }

    /// Reads what is left, and thinks. Meanwhile `renew` is called again and again. `false` if the token is refused.
    pub(super) fn begin(
        &mut self,
        token: Option<u64>,
        renew: &mut dyn FnMut() -> Result<(), NotRun>,
    ) -> Result<bool, NotRun> {
        self.token = token;
        let account = self.request.account;
        let Some(entry) = self.books.read(account, token)? else { return Ok(false) };
        if entry.left < self.request.amount {
            return Ok(true);
        }
        self.next = Some(entry.left - self.request.amount);
        let is_told = self.load.pause && self.load.is_followed(entry.number);
        self.told = is_told.then_some(Entrance { account, number: entry.number });
        if self.load.is_doomed(account, entry.number) {
            // No handler and no destructor: what a power failure leaves behind.
            kill_process(getpid(), Signal::KILL).map_err(|error| NotRun::Start(error.into()))?;
        }
        let sleep = self.load.sleep.filter(|_| self.load.is_sleeper(account, entry.number));
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

    /// Writes, if there was enough. `false` if the token is refused.
    pub(super) fn end(&mut self) -> Result<bool, NotRun> {
        let Some(next) = self.next.take() else { return Ok(true) };
        if let Some(holder) = self.told.filter(|_| !self.over.load(Ordering::Relaxed)) {
            self.host.before_write(holder).map_err(NotRun::Start)?;
        }
        self.books.write(self.request.account, next, self.request.amount, self.token)
    }
}

/// How an attempt to be served ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Served,
    /// Somebody else has the lock.
    Busy,
    /// The token was too old, and the write did not happen.
    Refused,
    /// The lock was known to be lost, and the write was not tried.
    GivenUp,
}

/// The time of all processes of a machine, in milliseconds.
pub(super) fn clock() -> u64 {
    u64::try_from(BootClock.now().since(Moment::default()).as_millis()).unwrap_or(u64::MAX)
}
